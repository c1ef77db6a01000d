"""Errors that a user can fix: the only exceptions that become a sentence instead of a traceback."""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MAX_NAMED: Final = 10  # runs that an error spells out
GIVE_A_RUN: Final = "give the folder the trainer wrote to"


class PttError(Exception):
    """Say in one sentence what is wrong, where, and what to do next."""


class InputError(PttError):
    """The run cannot be read at all."""


def no_such_path(path: Path, advice: str) -> InputError:
    """Return the error for a path at which nothing lies."""
    return InputError(f"{path}: there is no such file or folder; {advice}.")


class SeveralRunsError(InputError):
    """A folder or an archive holds several runs where one was asked for."""

    def __init__(self, path: Path, runs: Sequence[str], reason: str) -> None:
        rest = f" and {len(runs) - MAX_NAMED} more" if len(runs) > MAX_NAMED else ""
        example = f"give one of them, as {path / runs[0]}" if path.is_dir() else "unpack it and give one of them"
        super().__init__(
            f"{path}: contains {len(runs)} runs, not one: {', '.join(runs[:MAX_NAMED])}{rest} ({reason}); {example}. "
            "ptt diagnose judges each, as ptt.diagnose_runs does; --one-run, or one_run=True, reads them as one "
            "run."
        )
        self.path, self.runs, self.reason = path, tuple(runs), reason

    def __reduce__(self) -> tuple[type[SeveralRunsError], tuple[Path, tuple[str, ...], str]]:
        """Come back whole from another process."""
        return type(self), (self.path, self.runs, self.reason)


class SettingsError(PttError):
    """An option or a key of `ptt.toml` is wrong."""


NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)  # the last: `ulimit -f`
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")


def errno_of(error: BaseException) -> int | None:
    """Return the number of a system's error; Polars gives it in its words alone, in OSErrors as well."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if isinstance(error, OSError) or type(error).__module__.startswith("polars"):
        match = _OS_ERROR.search(str(error))
        return int(match[1]) if match else None
    return None


def no_room(error: BaseException) -> str:
    """Say why nothing can be written any more, where that is what an error is of; empty for any other."""
    number = errno_of(error)
    return os.strerror(number) if number in NO_ROOM else ""


DAMAGE: Final = (OSError, EOFError, ValueError, ArithmeticError, RecursionError, MemoryError)
DAMAGE_FROM: Final = frozenset(
    {"polars", "pyo3_runtime", "pyarrow", "sqlite3", "zlib", "_lzma", "lzma", "struct", "zipfile", "tarfile", "_pickle",
     "pickle", "zstandard", "msgspec", "compression"}
)  # fmt: skip
"""Libraries whose own exceptions tell of damage: by name, so that none is imported for it. A panic of Polars is one."""
MAX_MESSAGE: Final = 200  # characters of another's message: it may quote a whole row


def is_damage(error: BaseException) -> bool:
    """Return whether an exception tells of the data that was read; any other is a fault of ours."""
    return isinstance(error, DAMAGE) or type(error).__module__.partition(".")[0] in DAMAGE_FROM


def is_caught(error: BaseException) -> bool:
    """Return whether the edge of a file, a topic or a figure keeps what is raised: all but what ends the program."""
    return isinstance(error, Exception) or type(error).__module__ == "pyo3_runtime"  # a panic of Polars is no Exception


def describe(error: BaseException) -> str:
    """Say what was raised and where, without paths of this machine."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{first_line(error)} ({os.path.basename(last.filename)}:{last.lineno})"  # noqa: PTH119  a name, no path


def first_line(error: BaseException) -> str:
    """Return the kind of an exception and the beginning of what it says."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:MAX_MESSAGE]}" if lines else type(error).__name__

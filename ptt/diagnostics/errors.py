"""What a user can fix: the only exceptions that become a sentence instead of a traceback."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MAX_NAMED: Final = 10  # runs that an error spells out


class PttError(Exception):
    """Say in one sentence what is wrong, where, and what to do next."""


class InputError(PttError):
    """The run cannot be read at all."""


class SeveralRunsError(InputError):
    """A folder or an archive holds several runs where one was asked for."""

    def __init__(self, path: Path, runs: Sequence[str], reason: str) -> None:
        rest = f" and {len(runs) - MAX_NAMED} more" if len(runs) > MAX_NAMED else ""
        example = f"give one of them, as {path / runs[0]}" if path.is_dir() else "unpack it and give one of them"
        super().__init__(
            f"{path}: holds {len(runs)} runs, and is not one: {', '.join(runs[:MAX_NAMED])}{rest} ({reason}); "
            f"{example}. "
            "ptt diagnose judges each, as ptt.diagnose_runs does; --one-run, or one_run=True, reads them as one where "
            "you know better."
        )
        self.path, self.runs, self.reason = path, tuple(runs), reason

    def __reduce__(self) -> tuple[type[SeveralRunsError], tuple[Path, tuple[str, ...], str]]:
        """Come back whole from another process."""
        return type(self), (self.path, self.runs, self.reason)


class SettingsError(PttError):
    """An option or a key of `ptt.toml` is wrong."""


NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")


def no_room(error: BaseException) -> str:
    """Say why nothing can be written any more, where that is what an error is of; empty for any other.

    Of an error of the system Polars repeats the words alone.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number is None and type(error).__module__.startswith("polars"):
        match = _OS_ERROR.search(str(error))
        number = int(match[1]) if match else None
    return os.strerror(number) if number in NO_ROOM else ""

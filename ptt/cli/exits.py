"""Every exit code, and the one place where what a user can fix becomes a sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import typer

from ptt.cli.options import FailOn

if TYPE_CHECKING:
    from ptt.diagnostics.config import Settings
    from ptt.diagnostics.model import Severity
    from ptt.reports.figures.faults import FigureFault

OUTPUT_ERRORS: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR,
     errno.ENAMETOOLONG, errno.EFBIG}
)  # fmt: skip
"""Of what the system refuses: what lies at the place that output goes to, and not at us."""


NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
ENOUGH_DESCRIPTORS: Final = 256  # two processes with their libraries and pipes need some fifty


class Exit(IntEnum):
    """What a script can tell from the command's end."""

    JUDGED = 0
    CRASHED = 1  # never ours by choice: a bug, or a rule that failed
    USAGE = 2
    FAILED = 3
    BLIND = 4
    UNREADABLE = 5
    STOPPED = 130  # Ctrl-C, as shells have it


CODES: Final[Mapping[str, Exit]] = {
    "passed": Exit.JUDGED,
    "failed": Exit.FAILED,
    "blind": Exit.BLIND,
    "unreadable": Exit.UNREADABLE,
    "crashed": Exit.CRASHED,
}
"""By the outcome of a gate, whose module is not imported for it."""


def fail_limit(given: FailOn | None, settings: Settings) -> Severity | None:
    """Return the severity from which a finding fails: by --fail-on, else by the settings; None for none."""
    from ptt.diagnostics.model import Severity

    if given is None:
        return settings.fail_on
    return None if given is FailOn.NEVER else Severity(given.value)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print what a user can fix as one sentence and end with its code; anything else is a bug and may crash."""
    from ptt.diagnostics.errors import InputError, PttError, SeveralRunsError, errno_of, no_room

    try:
        yield
    except KeyboardInterrupt:
        typer.echo("ptt: stopped.", err=True)
        raise typer.Exit(Exit.STOPPED) from None
    except PttError as error:
        _print_error(str(error))
        unreadable = isinstance(error, InputError) and not isinstance(error, SeveralRunsError)
        raise typer.Exit(Exit.UNREADABLE if unreadable else Exit.USAGE) from error
    except OSError as error:
        number = errno_of(error)
        if number in NO_DESCRIPTORS:
            _print_error(f"{os.strerror(number)}: raise the limit with `ulimit -n {ENOUGH_DESCRIPTORS}`.")
            raise typer.Exit(Exit.USAGE) from error
        if number not in OUTPUT_ERRORS or isinstance(error, BrokenPipeError):
            raise
        where = error.filename2 or error.filename or "the output"
        _print_error(f"{where}: {os.strerror(number)}; give another --out, or free some space.")
        raise typer.Exit(Exit.USAGE) from error
    except Exception as error:  # a full disk in Polars' words; its error types are not imported here: start-up counts
        if not (why := no_room(error)):
            raise  # a bug of ours
        _print_error(f"the output: {why}; give another --out, or free some space.")
        raise typer.Exit(Exit.USAGE) from error


def print_faults(faults: Mapping[str, str]) -> Exit:
    """Print faults of ours that cost part of the answer and not the answer, and return the exit code."""
    for name, error in faults.items():
        _print_error(f"a bug in ptt, please report it: {name} failed: {error}")
    return Exit.CRASHED if faults else Exit.JUDGED


def figure_faults(faults: Sequence[FigureFault]) -> Exit:
    """Do the same of figures: those that fail for their numbers cost a line on the page alone."""
    return print_faults({f"the figure {fault.name}": fault.error for fault in faults if fault.ours})


def _print_error(sentence: str) -> None:
    from ptt.reports.text.sanitize import safe

    typer.echo(f"ptt: {safe(sentence)}", err=True)

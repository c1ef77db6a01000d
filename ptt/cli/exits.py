"""Every exit code, and the one place where what a user can mend becomes a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer


class Exit(IntEnum):
    """What a script can tell from the command's end."""

    JUDGED = 0
    CRASHED = 1  # never ours by choice: a bug, or a rule that failed
    USAGE = 2
    FAILED = 3
    BLIND = 4
    UNREADABLE = 5
    STOPPED = 130  # Ctrl-C, as shells have it


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print what a user can mend as one sentence and end with its code; anything else is a bug and may crash."""
    from ptt.diagnostics.errors import InputError, PttError

    try:
        yield
    except PttError as error:
        from ptt.reports.foreign import safe

        typer.echo(f"ptt: {safe(str(error))}", err=True)
        raise typer.Exit(Exit.UNREADABLE if isinstance(error, InputError) else Exit.USAGE) from error

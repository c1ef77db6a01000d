"""What a user can mend: the only exceptions that become a sentence instead of a traceback."""

from __future__ import annotations

import errno
import os
import re
from typing import Final


class PttError(Exception):
    """Say in one sentence what is wrong, where, and what to do next."""


class InputError(PttError):
    """The run cannot be read at all."""


class SettingsError(PttError):
    """An option or a key of `ptt.toml` is wrong."""


NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_OF_RUST: Final = re.compile(r"\(os error (\d+)\)")


def no_room(error: BaseException) -> str:
    """Say why nothing can be written any more, where that is what an error is of; empty for any other.

    Polars tells what the system told it in its words alone.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number is None and type(error).__module__.startswith("polars"):
        found = _OF_RUST.search(str(error))
        number = int(found[1]) if found else None
    return os.strerror(number) if number in NO_ROOM else ""

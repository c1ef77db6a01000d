"""What a user can fix: the only exceptions that become a sentence instead of a traceback."""

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

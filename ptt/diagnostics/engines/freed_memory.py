"""Return freed memory to the operating system; glibc otherwise keeps it for reuse."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

M_MMAP_THRESHOLD: Final = -3  # <malloc.h> of glibc
LARGE: Final = 1 << 20  # bytes: such arrays go back one by one; glibc raises its own limit to 32 MB by and by


def release() -> None:
    """Return what is free inside the heap, and large arrays from now on: a fifth of the peak; glibc alone offers it."""
    if not sys.platform.startswith("linux"):
        return
    try:
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, LARGE)
        library.malloc_trim(0)
    except (OSError, AttributeError):  # another C library
        return

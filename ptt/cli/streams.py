"""The process around a command: streams that forgive what cannot be printed, and memory given back when freed."""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from contextlib import suppress
from typing import Final, TextIO

STEERING: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})
"""Categories of characters that steer a terminal, reorder what stands on it, or break its lines."""


class _Pipe(io.FileIO):
    """A descriptor whose reader may hang up, as `head -1` does: what it no longer reads is dropped."""

    def write(self, content: object) -> int:
        """Write bytes, and nothing any more once the reader is gone."""
        try:
            return super().write(content)  # type: ignore[arg-type]
        except BrokenPipeError:
            _drop(self.fileno())
            return len(memoryview(content))  # type: ignore[arg-type]


def _drop(descriptor: int) -> None:
    """Let a descriptor lead nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def finish() -> str:
    """Write what standard output still holds, and return why that cannot be done, if it cannot."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop(sys.stdout.fileno())  # or Python tries once more, and ends with a code of its own
        return error.strerror or type(error).__name__
    return ""


def forgive() -> None:
    """Replace both streams by ones that write what their encoding can, and end in silence where nobody reads.

    A stream that was closed before the start is opened on nothing: a file would get its descriptor, and be printed to.
    """
    for descriptor, flags in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest that is free, which is this one
    sys.stdout, sys.stderr = _forgiving(sys.stdout, 1), _forgiving(sys.stderr, 2)


def _forgiving(stream: TextIO | None, descriptor: int) -> TextIO:
    encoding = (stream.encoding if stream is not None else None) or "utf-8"
    terminal = os.isatty(descriptor)
    if os.name == "nt" and terminal:  # a console there is no descriptor
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
        return stream or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123  lives as long as we do
    raw = io.BufferedWriter(_Pipe(descriptor, "w", closefd=False))
    errors = "backslashreplace" if descriptor == 2 else "replace"
    return io.TextIOWrapper(raw, encoding=encoding, errors=errors, line_buffering=terminal or descriptor == 2)


def print_json(text: str) -> None:
    """Print a JSON document; to a terminal with what would steer it or reorder its text escaped, as JSON allows."""
    out = sys.stdout
    if out is None:
        return
    out.write("".join(map(_escaped, text)) if out.isatty() and not text.isascii() else text)
    out.flush()


def _escaped(character: str) -> str:
    if character.isascii() or unicodedata.category(character) not in STEERING:
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


SETTING: Final = "_RJEM_MALLOC_CONF"  # read by the allocator within polars when it is loaded, on Linux
AT_ONCE: Final = "dirty_decay_ms:0,muzzy_decay_ms:0"
"""Of 100,000 episodes the peak is a third lower, for a fortieth more time: freed pages would wait half a second."""


def give_back_at_once() -> None:
    """Ask the allocator to keep nothing that was freed, before polars is imported; what the user set stays."""
    os.environ.setdefault(SETTING, AT_ONCE)


TOP_PAD: Final = -2  # M_TOP_PAD in glibc's <malloc.h>
STEP_BYTES: Final = 8 << 20
"""Of 220,000 page faults of a small run two fifths go, and a twentieth of its CPU time."""


def grow_in_large_steps() -> None:
    """Let glibc's heap grow and shrink in large steps; other allocators, and what the user set, stay as they are."""
    import ctypes  # here: start-up counts

    if "MALLOC_TOP_PAD_" not in os.environ:
        with suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).mallopt(TOP_PAD, STEP_BYTES)

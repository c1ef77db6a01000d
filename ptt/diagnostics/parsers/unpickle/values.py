"""The limits on what one file may return; beyond them it is refused."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ptt.diagnostics.definitions import dataclass


class RefusedError(Exception):
    """A file that is not read; the message says why in one sentence, without the file's name.

    `seconds`: CPU time that was spent on it elsewhere.
    """

    def __init__(self, reason: str, *, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Node:
    """An object of a class that is not known here: its name, what it was called with, its state and entries."""

    name: str
    args: list[Plain]
    state: Plain


Plain: TypeAlias = "bool | int | float | str | Array | list[Plain] | dict[str | int, Plain] | Node | None"
"""Lists of numbers are arrays; tuples and sets are lists; texts are cut; bytes are uint8 arrays."""


MB = 1 << 20
GB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the reading process may use; beyond it the file is refused. Sizes in bytes, times in seconds."""

    file: int = 2 * GB  # larger files are not opened
    memory: int = 512 * MB  # beside what the file's own size explains
    memory_a_byte: int = 16  # a list of small integers costs two bytes an entry on disk and 16 in memory
    memory_most: int = 24 * GB
    arrays: int = 64 * MB  # handed back, beside what the file's own size explains
    arrays_a_byte: int = 8  # the same list as int64 costs 8; bfloat16 doubles
    unpacked_a_byte: int = 200  # padding in .npz packs well; a bomb packs 1000 to one
    arrays_most: int = 2 * GB
    nodes: int = 1_000_000  # dicts, lists, texts and numbers that are not part of an array
    text: int = 64 * MB
    cpu: float = 20.0
    clock: float = 60.0
    seconds_a_mb: float = 0.5  # measured: 0.03 s a MB on a slow core
    seconds_most: float = 900.0

    def memory_for(self, size: int) -> int:
        """Address space that reading a file of `size` bytes may add."""
        return min(self.memory + self.memory_a_byte * size, self.memory_most)

    def arrays_for(self, size: int, *, packed: bool) -> int:
        """Bytes of arrays that a file of `size` bytes may give."""
        each = self.unpacked_a_byte if packed else self.arrays_a_byte
        return min(self.arrays + each * size, self.arrays_most)

    def cpu_for(self, size: int) -> float:
        """Seconds of work for a file of `size` bytes."""
        return min(self.cpu + self.seconds_a_mb * size / MB, self.seconds_most)

    def clock_for(self, size: int) -> float:
        """Seconds by the clock for a file of `size` bytes, on a machine that does other things beside."""
        return min(self.clock + 3 * self.seconds_a_mb * size / MB, self.seconds_most)


class Budget:
    """What one file may still return; shared by the archives inside it."""

    def __init__(self, *, arrays: int, nodes: int, text: int) -> None:
        self._arrays, self._nodes, self._text = arrays, nodes, text

    def array(self, size: int) -> None:
        """Take `size` bytes."""
        self._arrays -= size
        if self._arrays < 0:
            raise RefusedError("its arrays are larger than its size explains")

    def node(self, count: int = 1) -> None:
        """Take `count` values."""
        self._nodes -= count
        if self._nodes < 0:
            raise RefusedError("it has too many values outside arrays")

    def text(self, size: int) -> None:
        """Take `size` characters."""
        self._text -= size
        if self._text < 0:
            raise RefusedError("it has too much text")

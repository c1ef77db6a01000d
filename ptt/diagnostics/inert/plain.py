"""What comes out of a file: plain values, arrays, and nodes for whatever has no plain form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Node:
    """An object of a class that is not known here: its name, what it was called with, its state and entries."""

    name: str
    args: list[Plain]
    state: Plain


Plain: TypeAlias = "bool | int | float | str | Array | list[Plain] | dict[str | int, Plain] | Node | None"
"""Lists of numbers are arrays; tuples and sets are lists; texts are cut; bytes are uint8 arrays."""

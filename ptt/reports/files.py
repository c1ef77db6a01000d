"""Writes a finished file in one move, so that no reader ever meets half of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def write_text(path: Path, text: str) -> Path:
    """Write text as UTF-8 under a `.part` name, then rename it into place."""
    return write_with(path, lambda part: part.write_bytes(text.encode("utf-8")))


def write_with(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a `.part` file, then rename it into place; a failed one is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        write(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path

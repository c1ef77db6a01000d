"""Writes a finished file in one move, so that no reader ever meets half of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory


def write_text(path: Path, text: str) -> Path:
    """Write text as UTF-8 under a `.part` name, then rename it into place."""
    return write_with(path, lambda part: part.write_bytes(text.encode("utf-8")))


def write_with(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a `.part` file, then rename it into place; a failed one is removed.

    A link keeps pointing where it does, and a device or a pipe is written to: neither is replaced by a file.
    """
    target = path.resolve() if path.is_symlink() else path
    if target.exists() and not target.is_file() and not target.is_dir():
        with TemporaryDirectory(prefix="ptt-") as scratch:
            part = Path(scratch) / target.name
            write(part)
            with target.open("wb", buffering=0) as device:
                device.write(part.read_bytes())
        return path
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        write(part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return path

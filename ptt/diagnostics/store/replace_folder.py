"""Make a folder anew beside the old one and move it into place: whenever we are killed, it is whole or absent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Give a new empty folder to write; it takes the place of `folder` when the block is done, and goes where it fails.

    What killed commands left of an earlier try is cleared first.
    """
    clear_unfinished(folder)
    part, old = _beside(folder)
    part.mkdir(parents=True)
    try:
        yield part
        if folder.is_dir() and not folder.is_symlink():
            folder.rename(old)  # taken away bit by bit, it would be taken for whole until its last bit is gone
        part.rename(folder)
    finally:
        clear_unfinished(folder)


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed command left beside a folder that it was about to replace."""
    for path in _beside(folder):
        shutil.rmtree(path, ignore_errors=True)


def _beside(folder: Path) -> tuple[Path, Path]:
    return folder.with_name(folder.name + ".part"), folder.with_name(folder.name + ".old")

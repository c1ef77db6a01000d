"""Whose a store is: one process writes it at a time, and a folder remembers the run it was made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

NOTE: Final = "run.txt"
LONGEST: Final = 200  # bytes of a note; a longer one is none of ours


@contextmanager
def alone(folder: Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Keep other processes from writing below `folder` while the block runs; `waiting` is told where one does so now.

    The lock is on the folder itself, so that nothing is left behind, and ends with the process. Where the system has
    no such locks, as on some network drives, there is none: what is read is checked against hashes all the same.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    handle = _handle(folder)
    try:
        if handle is not None:
            _lock(handle, waiting)
        yield
    finally:
        if handle is not None:
            os.close(handle)
        for place in made:  # the deepest first
            _remove_empty(place)


def _handle(folder: Path) -> int | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder, os.O_RDONLY)
    except OSError:  # told where it is written to, or a system that opens no folders
        return None


def _lock(handle: int, waiting: Callable[[], None] | None) -> None:
    try:
        import fcntl
    except ImportError:
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        return


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:  # something was written
        return


def note_of(run: Path) -> str:
    """Name a run by where it lies, in a form that does not tell where that is."""
    return sha256(str(run.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def note_run(store: Path, run: Path) -> None:
    """Write down which run a store is of; one that cannot be written is no loss."""
    note = note_of(run)
    try:
        if store.is_dir() and noted_run(store) != note:
            (store / NOTE).write_text(note + "\n", encoding="ascii")
    except OSError:
        return


def noted_run(store: Path) -> str | None:
    """Give what names the run that a store is of, or None where nothing says so."""
    try:
        with (store / NOTE).open("rb") as file:
            return file.read(LONGEST).decode("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None

"""Lock a store's folder, replace it in one move, and note which run it was made from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

LOCK_FILE: Final = ".lock"
NOTE: Final = "run.txt"
MAX_NOTE: Final = 200  # bytes; a longer one is not ours


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


@contextmanager
def exclusive_lock(folder: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Keep other processes from writing below `folder` while the block runs; call `on_wait` if one is writing now.

    The lock is on the folder itself, so it leaves nothing behind and ends with the process. Systems without such locks,
    as on some network drives, go unlocked; everything read is checked against hashes anyway.
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    descriptor = _open(folder)
    try:
        if descriptor is not None and not acquire(descriptor, blocking=False):
            if on_wait is not None:
                on_wait()
            acquire(descriptor, blocking=True)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)
        for path in created:  # the deepest first
            with suppress(OSError):  # something was written
                path.rmdir()


def acquire(descriptor: int, *, blocking: bool) -> bool:
    """Lock an open file or folder until it is closed; False if another process holds the lock.

    A file system without locks counts as locked.
    """
    from filelock import lock_descriptor

    try:
        return lock_descriptor(descriptor, blocking=blocking)
    except OSError:
        return True


def _open(folder: Path) -> int | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.name == "nt":  # which opens no folders
            return os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT)
        return os.open(folder, os.O_RDONLY)
    except OSError:  # reported where it is written to
        return None


def hash_location(run: Path) -> str:
    """Hash where a run lies: the note does not reveal the path."""
    return sha256(str(run.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def note_run(store: Path, run: Path) -> None:
    """Note which run a store is for; a note that cannot be written does no harm."""
    note = hash_location(run)
    with suppress(OSError):
        if store.is_dir() and noted_run(store) != note:
            (store / NOTE).write_text(note + "\n", encoding="ascii")


def noted_run(store: Path) -> str | None:
    """Return the `hash_location` of the run that a store is for, or None if it is not noted."""
    try:
        with (store / NOTE).open("rb") as file:
            return file.read(MAX_NOTE).decode("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None

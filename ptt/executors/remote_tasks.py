"""Tasks of runs in an object store, for nodes other than the one that laid the run out: they read it there themselves.

A task carries the objects' URLs, sizes and times, never credentials: each node finds its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptt.diagnostics.engines.pieces import Piece
from ptt.diagnostics.store.file_readings import Task as ReadTask
from ptt.object_stores.remote_paths import RemotePaths, url_of
from ptt.object_stores.remote_runs import RemoteFile, fetched


@dataclass(frozen=True, kw_only=True)
class SizedPiece:
    """A piece, and how large its files are where the command runs."""

    piece: Piece
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, piece: Piece) -> SizedPiece:
        """Measure the files; one that cannot be measured is met where the piece is folded here."""
        try:
            return cls(piece=piece, sizes=sizes_of(piece))
        except OSError:
            return cls(piece=piece, sizes=())


def sizes_of(piece: Piece) -> tuple[int, ...]:
    """Measure the files of a piece."""
    return tuple(file.path.stat().st_size for file in piece.files)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a task's files come from: a whole run, or some objects of one in the order of the task's files."""

    home: str  # node that laid them out
    run: str | None = None
    files: tuple[RemoteFile, ...] = ()
    every_column: bool = False


def origin_of(task: object, home: str) -> Origin | None:
    """Return where the files of a task come from, on the node that laid them out; None for files of a file system."""
    held = task.piece if isinstance(task, SizedPiece) else task
    if isinstance(held, Piece | ReadTask):
        paths = [file.path for file in held.files]
        urls = list(map(url_of, paths))
        if not all(urls):
            return None
        try:
            states = [path.stat() for path in paths]
        except OSError:  # met where the files are read
            return None
        files = tuple(
            RemoteFile(url=url, size=state.st_size, mtime_ns=state.st_mtime_ns)
            for url, state in zip(urls, states, strict=True)
            if url is not None
        )
        return Origin(home=home, files=files, every_column=isinstance(held, ReadTask))
    run = getattr(task, "run", None)
    url = url_of(run) if isinstance(run, Path) else None
    return None if url is None else Origin(home=home, run=url)


@contextmanager
def at_hand(task: Any, origin: Origin | None, node: str) -> Iterator[Any]:
    """Yield a task whose files are on this node while the block runs.

    Raises ObjectError where an object is no longer what it was, and PttError where the store cannot be read from here.
    """
    if origin is None or node == origin.home:
        yield task
    elif origin.run is not None:
        with RemotePaths() as remote:
            yield replace(task, run=remote.run_or_why(Path(origin.run)))
    else:
        with fetched(origin.files, every_column=origin.every_column) as paths:
            held = task.piece if isinstance(task, SizedPiece) else task
            here = (replace(file, path=path) for file, path in zip(held.files, paths, strict=True))
            held = replace(held, files=tuple(here))
            yield replace(task, piece=held) if isinstance(task, SizedPiece) else held

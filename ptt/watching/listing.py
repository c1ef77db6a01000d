"""Which files of a run are new or changed since they were last read, and how far each was read.

A finished step's token file is known by its name and inode, so that a look at a run of 10,000 of them opens none and
asks the system about a few. Of the others size and time are asked each time.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers.io.run_files import MARKERS, SKIPPED_DIRS
from ptt.object_stores.client import Listed, ObjectStore, Url
from ptt.object_stores.remote_runs import lay_out_whole
from ptt.stopping import temporary_folder

RECHECKED: Final = 64  # token files a look whose size and time are asked again, each in its turn: one may be rewritten


class Mode(StrEnum):
    """How a file is read when it has changed."""

    TOKENS = "tokens"  # a recorder's: whole, and written once
    LINES = "lines"  # a log whose new lines can be read alone
    WHOLE = "whole"  # a log that is read again from its start
    ASIDE = "aside"  # nothing in it is a metric or a token


@dataclass(frozen=True, kw_only=True)
class FileState:
    """A file as it was found, and how far it was read.

    ident: its inode, or a hash of the ETag. changed: nanoseconds. read: bytes, up to the end of a line.
    """

    ident: int
    size: int
    changed: int
    read: int = 0
    mode: Mode | None = None  # None: never read

    def same(self, other: FileState) -> bool:
        """Return whether the file is as it was."""
        return (self.ident, self.size, self.changed) == (other.ident, other.size, other.changed)


class Place(Protocol):
    """Where a run lies."""

    def listed(self, known: Mapping[str, FileState]) -> Iterator[tuple[str, FileState]]:
        """Yield files that are not known, and those whose state has to be compared, by their path below the run."""

    def here(self, rels: Sequence[str]) -> AbstractContextManager[Path]:
        """Give the folder below which these files can be read while the block runs."""


class Folder:
    """A run on this machine: a folder, or a single log."""

    def __init__(self, run: Path) -> None:
        """`run`: what the user gave."""
        self._run = run
        self._turn: Iterator[str] = iter(())

    def listed(self, known: Mapping[str, FileState]) -> Iterator[tuple[str, FileState]]:
        """Walk the run as `run_files` does."""
        if self._run.is_file():
            yield self._run.name, _state(self._run.stat())
            return
        asked = self._asked(known)
        pending = [("", self._run)]
        while pending:
            below, folder = pending.pop()
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    rel = below + entry.name
                    seen = known.get(rel)
                    if (
                        seen is not None
                        and seen.mode is Mode.TOKENS
                        and seen.ident == entry.inode()
                        and rel not in asked
                    ):
                        continue
                    with suppress(OSError):  # a run that goes on takes files away
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(status.st_mode) and entry.name not in SKIPPED_DIRS:
                            pending.append((f"{rel}/", Path(entry.path)))
                        elif stat.S_ISREG(status.st_mode) and status.st_size and entry.name not in MARKERS:
                            yield rel, _state(status)

    def _asked(self, known: Mapping[str, FileState]) -> set[str]:
        asked = set(islice(self._turn, RECHECKED))
        if len(asked) < RECHECKED:
            self._turn = iter(list(known))
        return asked

    @contextmanager
    def here(self, rels: Sequence[str]) -> Iterator[Path]:  # noqa: ARG002  they lie there
        """Give the run itself."""
        yield self._run.parent if self._run.is_file() else self._run


class Objects:
    """A run in an object store: what changed is fetched for as long as it is read."""

    def __init__(self, url: Url) -> None:
        """Connect."""
        self._url = url
        self._store = ObjectStore(url)
        self._items: dict[str, Listed] = {}

    def listed(self, known: Mapping[str, FileState]) -> Iterator[tuple[str, FileState]]:  # noqa: ARG002  a list has all
        """List the objects below the URL."""
        self._items = {item.key[len(self._url.key) + 1 :]: item for item in self._store.list_below(self._url)}
        for rel, item in self._items.items():
            if item.size and not rel.endswith("/"):
                yield rel, FileState(ident=0, size=item.size, changed=item.mtime_ns)

    @contextmanager
    def here(self, rels: Sequence[str]) -> Iterator[Path]:
        """Lay these objects out in full."""
        with temporary_folder("ptt-s3-") as scratch:
            lay_out_whole(self._store, self._url, [self._items[rel] for rel in rels], Path(scratch))
            yield Path(scratch)


def _state(status: os.stat_result) -> FileState:
    return FileState(ident=status.st_ino, size=status.st_size, changed=status.st_mtime_ns)

"""Lists the files of a run dir, in one order on every machine, without leaving the dir."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from ptt.diagnostics.errors import InputError
from ptt.diagnostics.parsers.interface import RunFile

SKIPPED_DIRS = frozenset({".git", "__pycache__", ".venv", "node_modules"})
MAX_FILES = 200_000  # a run dir beyond this is a home dir given by mistake
MARKERS = frozenset({"STABLE"})  # empty files by which a writer says that a step is whole: nothing to read
DIGITS = re.compile("([0-9]{1,18})")
NAMED = 5  # paths spelt out in a note; the rest is a count


class _Walk:
    """The state of one walk: what was passed over, and why."""

    def __init__(self) -> None:
        self.links: list[str] = []
        self.unreadable: list[str] = []
        self.special: list[str] = []
        self.cut = False

    def files(self, root: Path) -> Iterator[RunFile]:
        found = 0
        pending = [(root, "")]
        while pending:
            folder, below = pending.pop()
            for entry in self._entries(folder, below):
                rel = f"{below}{_printable(entry.name)}"
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # it vanished while we looked
                    self.unreadable.append(rel)
                    continue
                if stat.S_ISLNK(status.st_mode):
                    self.links.append(rel)
                elif stat.S_ISDIR(status.st_mode):
                    if entry.name not in SKIPPED_DIRS:
                        pending.append((Path(entry.path), f"{rel}/"))
                elif entry.name in MARKERS and not status.st_size:
                    continue
                elif stat.S_ISREG(status.st_mode):
                    if found == MAX_FILES:
                        self.cut = True
                        return
                    found += 1
                    yield RunFile(path=Path(entry.path), rel=rel, size=status.st_size)
                else:
                    self.special.append(rel)

    def _entries(self, folder: Path, below: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as listing:
                return sorted(listing, key=lambda entry: entry.name)
        except OSError:  # no permission, or gone
            self.unreadable.append(below or "./")
            return []

    def notes(self) -> list[str]:
        told = [
            ("symbolic link(s) not followed, since a link may lead out of the run", self.links),
            ("folder(s) or file(s) without permission to read, so their content is missing", self.unreadable),
            ("special file(s) such as pipes or sockets passed over", self.special),
        ]
        notes = [f"{len(paths)} {what}: {_some(paths)}." for what, paths in told if paths]
        if self.cut:
            notes.append(f"The run holds more than {MAX_FILES} files; the rest was not looked at.")
        return notes


def run_files(root: Path) -> tuple[list[RunFile], list[str]]:
    """List the regular files below `root` (or `root` itself), and say what was passed over."""
    try:
        status = root.stat()
    except OSError as error:
        raise InputError(f"{root}: {error.strerror or error}; give the path of a run dir or of one log.") from error
    if stat.S_ISREG(status.st_mode):
        return [RunFile(path=root, rel=_printable(root.name), size=status.st_size)], []
    if not stat.S_ISDIR(status.st_mode):
        raise InputError(f"{root}: neither a folder nor a file; give the path of a run dir or of one log.")
    walk = _Walk()
    files = sorted(walk.files(root), key=lambda file: by_number(file.rel))
    return files, walk.notes()


def by_number(rel: str) -> tuple[tuple[str, int], ...]:
    """Order step_9 before step_10: sequences are numbered in the order of their files."""
    parts = DIGITS.split(rel)
    numbers = [int(part) for part in parts[1::2]] + [0]
    return (*zip(parts[::2], numbers, strict=True), (rel, 0))


def _printable(name: str) -> str:
    """Replace bytes that are no UTF-8, which no table and no report could hold."""
    return os.fsencode(name).decode("utf-8", "replace")


def _some(paths: list[str]) -> str:
    named = ", ".join(sorted(paths)[:NAMED])
    return named if len(paths) <= NAMED else f"{named} and {len(paths) - NAMED} more"

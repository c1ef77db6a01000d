"""Lists the files of a run dir, in one order on every machine, without leaving the dir."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ptt.diagnostics.errors import InputError
from ptt.diagnostics.log_entries import LogEntry
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.wording import counted

SKIPPED_DIRS = frozenset({".git", "__pycache__", ".venv", "node_modules"})
MAX_FILES = 200_000  # a run dir beyond this is a home dir given by mistake
MARKERS = frozenset({"STABLE"})  # empty files with which a writer marks a step as complete: nothing to read
DIGITS = re.compile("([0-9]{1,18})")
NAMED = 5  # paths spelt out in a note; the rest is a count
CLOSED: Final = "Cannot be read"  # how every note on such a file or folder begins; a run's losses are found by it
NO_PERMISSION: Final = frozenset({errno.EACCES, errno.EPERM})


class _Walk:
    """The state of one walk: what was passed over, and why."""

    def __init__(self) -> None:
        self.links: list[str] = []
        self.unreadable: dict[tuple[str, str], list[str]] = {}  # by reason, and what to do
        self.gone: list[str] = []
        self.special: list[str] = []
        self.cut = False

    def files(self, root: Path) -> Iterator[RunFile]:
        count = 0
        pending = [(root, "")]
        while pending:
            folder, below = pending.pop()
            for entry in self._entries(folder, below):
                rel = f"{below}{_printable(entry.name)}"
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # a run that goes on takes files away
                    self.gone.append(rel)
                    continue
                except OSError as error:  # of a folder that may be listed but not entered
                    self._closed(rel, error)
                    continue
                if stat.S_ISLNK(status.st_mode):
                    self.links.append(rel)
                elif stat.S_ISDIR(status.st_mode):
                    if entry.name not in SKIPPED_DIRS:
                        pending.append((Path(entry.path), f"{rel}/"))
                elif entry.name in MARKERS and not status.st_size:
                    continue
                elif stat.S_ISREG(status.st_mode):
                    if count == MAX_FILES:
                        self.cut = True
                        return
                    count += 1
                    yield RunFile(path=Path(entry.path), rel=rel, size=status.st_size)
                else:
                    self.special.append(rel)

    def _entries(self, folder: Path, below: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as listing:
                return sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            if not below:
                raise not_readable(folder, error) from error
            self._closed(below, error)
            return []

    def _closed(self, rel: str, error: OSError) -> None:
        self.unreadable.setdefault(_closed(error), []).append(rel)

    def notes(self) -> list[str]:
        passed_over = [
            ("symbolic link(s) not followed: a link may lead out of the run", self.links),
            ("file(s) disappeared before reading", self.gone),
            ("special file(s) skipped, such as pipes or sockets", self.special),
        ]
        notes = [f"{counted(len(paths), reason)}: {_some(paths)}." for reason, paths in passed_over if paths]
        for (why, advice), paths in sorted(self.unreadable.items()):
            closed = counted(len(paths), "folder(s) or file(s)")
            notes.append(f"{why}: {closed} of unknown content, {_some(paths)}; {advice}.")
        if self.cut:
            notes.append(f"The run has more than {MAX_FILES} files; the rest were not read.")
        return notes


def run_files(root: Path, logs: Sequence[LogEntry] = ()) -> tuple[list[RunFile], list[str]]:
    """List the regular files below `root` (or `root` itself), and say what was passed over.

    `logs`: how the user has text read; each file gets the entries that name it.
    """
    files, notes = _listed(root)
    if logs:
        files = [replace(file, own=tuple(entry for entry in logs if entry.reads(file.rel))) for file in files]
    return files, notes


def _listed(root: Path) -> tuple[list[RunFile], list[str]]:
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


def _closed(error: OSError) -> tuple[str, str]:
    """Return why the system does not let us read something, and what to do."""
    own = error.errno in NO_PERMISSION
    advice = "run ptt as a user who may read all of the run" if own else "fix that, or copy the run again"
    return f"{CLOSED} ({error.strerror or error})", advice


def not_readable(path: Path, error: OSError) -> InputError:
    """Make the error of a run that cannot be entered."""
    return InputError(f"{path}: is not readable: {error.strerror or error}; {_closed(error)[1]}.")


def why_closed(file: RunFile) -> str:
    """Return why nothing of a file can be read; empty where it can, and of one that holds nothing."""
    try:
        _ = file.size and file.beginning
    except OSError as error:
        return "{}; {}.".format(*_closed(error))
    return ""


def by_number(rel: str) -> tuple[tuple[str, int], ...]:
    """Order step_9 before step_10: sequences are numbered in the order of their files."""
    parts = DIGITS.split(rel)
    numbers = [int(part) for part in parts[1::2]] + [0]
    return (*zip(parts[::2], numbers, strict=True), (rel, 0))


def _printable(name: str) -> str:
    """Replace bytes that are not UTF-8, which no table or report could hold."""
    return os.fsencode(name).decode("utf-8", "replace")


def _some(paths: list[str]) -> str:
    named = ", ".join(sorted(paths)[:NAMED])
    return named if len(paths) <= NAMED else f"{named} and {len(paths) - NAMED} more"

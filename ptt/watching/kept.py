"""Keep what a watch knows beside the report, so that another process goes on where this one was killed.

One small document is replaced at each look, and the states of files are appended to a record: both cost the same in a
run of ten steps and of ten thousand. The document says how much of the record counts, so a torn end does no harm.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ptt.diagnostics.documents import read_at_most
from ptt.diagnostics.store.folders import hash_location
from ptt.reports.output import write_text
from ptt.version import __version__
from ptt.watching.listing import FileState, Mode
from ptt.watching.watcher import Watcher

FOLDER: Final = "watch"  # below --out
STATE: Final = "state.json"
RECORD: Final = "files.jsonl"
MAX_BYTES: Final = 1 << 28  # of either file: a run of 200,000 files has a record of 20 MB
COMPACT_FROM: Final = 1000  # lines of the record: with more, and twice as many as files, it is written anew


class KeptWatch:
    """The state of one watch on disk. What cannot be written is held, and the watch goes on."""

    def __init__(self, out: Path, run: str) -> None:
        """`run`: its path or URL, of which a hash is kept."""
        self._folder = out / FOLDER
        self._mark = f"{__version__} {hash_location(Path(run))}"
        self._record: tuple[int, int] = (0, 0)  # bytes, and lines, that count
        self.undelivered: list[tuple[str, dict[str, Any]]] = []  # with the name of the courier that has it
        self.why_not = ""  # why the last state could not be kept

    def restore(self, watcher: Watcher) -> bool:
        """Let a watcher go on from what is kept of this run; False where nothing sound is."""
        try:
            state = json.loads(read_at_most(self._folder / STATE, MAX_BYTES))
            if state["mark"] != self._mark:
                return False
            size, lines = state["record"]
            text = read_at_most(self._folder / RECORD, MAX_BYTES)[:size]
            if len(text) < size:
                return False
            watcher.restore(state["watch"], dict(map(_file, text.splitlines())))
            self._record, self.undelivered = (size, lines), [(name, notice) for name, notice in state["undelivered"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # of another version, torn, or anybody's
            return False
        return True

    def keep(self, watcher: Watcher) -> None:
        """Write what is known now."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._append(watcher)
            watch = {"mark": self._mark, "record": self._record, "undelivered": self.undelivered}
            write_text(self._folder / STATE, json.dumps({**watch, "watch": watcher.state()}))
            self.why_not = ""
        except OSError as error:  # a full disk costs what a killed watch would have gone on from
            self.why_not = error.strerror or type(error).__name__

    def _append(self, watcher: Watcher) -> None:
        size, lines = self._record
        stale = lines > max(COMPACT_FROM, 2 * len(watcher.files))
        rels = list(watcher.files) if stale or not size else dict.fromkeys(watcher.fresh)
        text = "".join(_line(rel, watcher.files[rel]) for rel in rels if rel in watcher.files).encode()
        if stale or not size:
            write_text(self._folder / RECORD, text.decode())
            self._record = len(text), len(rels)
        elif text:
            with (self._folder / RECORD).open("r+b") as record:
                record.seek(size)
                record.truncate()
                record.write(text)
            self._record = size + len(text), lines + len(rels)
        watcher.fresh.clear()


def _line(rel: str, state: FileState) -> str:
    return json.dumps([rel, *asdict(state).values()]) + "\n"


def _file(line: bytes) -> tuple[str, FileState]:
    rel, ident, size, changed, read, mode = json.loads(line)
    return rel, FileState(ident=ident, size=size, changed=changed, read=read, mode=None if mode is None else Mode(mode))

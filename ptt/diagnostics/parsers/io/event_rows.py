"""What carriers hold beside metrics: samples of the machine for `ranks`, and lines for `events`."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl

from ptt.diagnostics.parsers.io.interface import Rows, RunFile
from ptt.diagnostics.schema import EVENTS, RANKS

TEXT_CHARS = 300
FIRST_EVENTS, LAST_EVENTS = 200, 800  # of one file: how it began and how it ended
FLUSH_ROWS = 50_000
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
UNPRINTED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]+")
PRIVATE = (
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"), "…"),  # e-mail addresses
    (re.compile(r"(?:~|/[\w.@+-]+)(?:/[\w.@+-]+)*/(?=[\w.@+-])"), "…/"),  # folders; the file's own name tells enough
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), "…"),  # addresses of machines
)
TROUBLE = re.compile(
    r"error|exception|traceback|warn|\bnan\b|\binf\b|\boom\b|out of memory|killed|sig(?:term|kill|segv|int)|abort|"
    r"fail|crash|timed? ?out|nccl|resum|restart|checkpoint|preempt|diverg|overflow",
    re.IGNORECASE,
)
NOISE = re.compile(r"deprecat|FutureWarning|UserWarning|warnings\.warn\(", re.IGNORECASE)
DEVICE = re.compile(r"(?:^|[./_])gpu[._](\d{1,3})(?=[._/])", re.IGNORECASE)
NODE = re.compile(r"^ray/(node\.\d{1,4})\.")


def is_machine(name: str) -> bool:
    """Whether a metric is a sample of one node's device, as NeMo-RL's logger writes it among the metrics."""
    return NODE.match(name) is not None


def said(text: str) -> str:
    """Make one shortened line of a text, without escape codes, folders and addresses."""
    whole = UNPRINTED.sub(" ", ESCAPES.sub("", text[: 8 * TEXT_CHARS])).strip()
    for pattern, instead in PRIVATE:
        whole = pattern.sub(instead, whole)
    return whole if len(whole) <= TEXT_CHARS else f"{whole[:TEXT_CHARS]}…"


@dataclass
class EventLog:
    """Events of one file; of very many, the first and the last ones.

    Lines of output are kept where they speak of trouble, a checkpoint or a restart; all, where texts are kept:
    trainers print samples too.
    """

    file: RunFile
    left_out: int = 0
    _first: list[tuple[int | None, float | None, str, str]] = field(default_factory=list)
    _last: deque[tuple[int | None, float | None, str, str]] = field(default_factory=lambda: deque(maxlen=LAST_EVENTS))

    def add(self, step: int | None, wall_time: float | None, kind: str, text: str) -> None:
        """Keep one event."""
        row = (step, wall_time, kind, said(text))
        if len(self._first) < FIRST_EVENTS:
            self._first.append(row)
        else:
            self.left_out += len(self._last) == LAST_EVENTS
            self._last.append(row)

    def add_output(self, step: int | None, wall_time: float | None, kind: str, text: str) -> None:
        """Keep the lines of a piece of output that are worth it; a progress bar's last state stands for it."""
        for line in text.split("\n"):
            line = line.rstrip("\r").rpartition("\r")[2]
            shown = line[: 8 * TEXT_CHARS]
            if line.strip() and (self.file.keep_text or (TROUBLE.search(shown) and not NOISE.search(shown))):
                self.add(step, wall_time, kind, line)

    def pieces(self) -> Iterator[Rows]:
        """Yield what was kept."""
        if rows := [(*row, self.file.rel) for row in (*self._first, *self._last)]:
            yield Rows(table="events", frame=pl.DataFrame(rows, schema=EVENTS, orient="row"))


@dataclass
class MachineLog:
    """Samples of machines and devices, one value a row."""

    file: RunFile
    rank: int | None = None
    _rows: list[tuple[int | None, float | None, str | None, int | None, int | None, str, float, str]] = field(
        default_factory=list
    )

    def add(self, step: int | None, wall_time: float | None, name: str, value: float | None) -> None:
        """Keep one value; the device, and the number of the node, are read from the name."""
        if value is None or value != value or value in (float("inf"), float("-inf")):
            return
        device, node = DEVICE.search(name), NODE.match(name)
        self._rows.append(
            (
                step,
                wall_time,
                node.group(1) if node else None,
                self.rank,
                int(device.group(1)) if device else None,
                name,
                value,
                self.file.rel,
            )
        )

    @property
    def full(self) -> bool:
        """Whether it is time to take the rows out."""
        return len(self._rows) >= FLUSH_ROWS

    def pieces(self) -> Iterator[Rows]:
        """Yield what was kept, and start again empty."""
        if self._rows:
            frame = pl.DataFrame(self._rows, schema=RANKS, orient="row")
            self._rows = []
            yield Rows(table="ranks", frame=frame)

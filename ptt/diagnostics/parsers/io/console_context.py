"""What a line of a console says together with the lines before it: boxes, tables, epochs, bars that are drawn again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.parsers.io.console_lines import DIALECTS, ConsoleRow, may_name_counter
from ptt.diagnostics.parsers.io.console_pairs import (
    PAIR_CHARS,
    Counter,
    Values,
    counter_of,
    is_metric_name,
    number_of,
    of_split,
    pairs_of,
)

BOX_LINES: Final = 60  # how many lines a headline such as `Step 3/100` speaks for
EPOCH_LINES: Final = 8  # one of an epoch: a summary follows at once, else steps do
FOLLOWING_LINES: Final = 2  # that go on where a counted line ended: `average reward score: 0.5`
BANNER_CHARS: Final = 160
BANNER_WORDS: Final = 3  # beside the counter: `Starting epoch 3 of 10` is a headline, a sentence is none
INDENTED = re.compile(r"\s{2,16}[\w/.@-]{1,120}=\S{1,40}")  # OLMo's: a name and its number, and nothing else
SPLITS: Final = frozenset({"train", "training", "val", "valid", "validation", "test", "eval", "dev"})
OTHER_WORDS: Final = 3  # of a line of figures beside their names
BULLETS: Final = ("•", "-", "*", "·")
MAX_ROWS: Final = 100_000  # of lines without counter that are held back until it is known whether they recur


class ConsoleContext:
    """Reads lines one after the other; `lower` is the line in lower case, for the cheap tests."""

    def __init__(self) -> None:
        self._banner: tuple[Counter, int] | None = None  # and for how many lines more
        self._epoch = Counter()
        self._bar: Values = {}
        self._loggers = False  # whether a trainer's own logger was seen: boxes are then those of samples' texts
        self._table: _Table | None = None
        self.uncounted = Uncounted()

    def row(self, line: bytes) -> ConsoleRow | None:
        """Read one line, or what stands between two carriage returns, as a log call; None if it is none."""
        lower = line.lower()
        if line[:1] in (b"|", b"-") and (self._table is not None or line.startswith(b"----------")):
            return self._table_row(line)
        text = ""
        for dialect in DIALECTS:
            if dialect.may_be(lower) and len(line) <= dialect.longest:
                text = text or line.decode("utf-8", "replace").rstrip()
                if row := dialect.read(text):
                    return self._settled(row)
        if len(line) > PAIR_CHARS:
            return None
        return self._box(line, lower, text)

    def _settled(self, row: ConsoleRow) -> ConsoleRow | None:
        if row.dialect == "bar":
            if row.values == self._bar:  # drawn again, nothing logged since
                return None
            self._bar = row.values
        at, counter = self._epoch, row.counter
        if row.dialect in ("keras", "bar") and at.known and counter.total and counter.epoch is None:
            return replace(row, counter=replace(counter, epoch=at.epoch, epochs=at.epochs, nested=True))
        self._loggers |= row.framework is not None
        if row.dialect == "counted":  # what comes now may be of this line as well as of a headline before
            self._banner = (row.counter, FOLLOWING_LINES)
        return row

    def _box(self, line: bytes, lower: bytes, text: str) -> ConsoleRow | None:
        """Read a headline, or a line of the box below one."""
        if self._loggers:
            return None
        if self._banner:
            counter, left = self._banner
            self._banner = (counter, left - 1) if left > 1 else None
        if len(line) <= BANNER_CHARS and may_name_counter(lower):
            text = unlogged(text or line.decode("utf-8", "replace").rstrip())
            counter = banner(text.strip())
            if counter.known:
                self._banner = (counter, EPOCH_LINES if counter.unit == "epoch" else BOX_LINES)
                self._epoch = counter if counter.epoch is not None else self._epoch
                return None
        if not (self._banner or _may_name_metric(lower)) or not _DIGIT.search(lower):
            return None
        text = unlogged(text or line.decode("utf-8", "replace").rstrip())
        listed = text.lstrip().startswith(BULLETS) or INDENTED.fullmatch(text)
        split = self._banner is not None and "%|" not in text  # `Train: 0.25` below `Epoch 3`
        found, _ = pairs_of(text, spaced=False)
        if len(WORD.findall(text)) > sum(len(WORD.findall(name)) for name in found) + OTHER_WORDS:
            return None  # prose
        values = {
            name: value
            for name, value in found.items()
            if listed or is_metric_name(name) or (split and name.lower() in SPLITS)
        }
        if not values:
            return None
        if self._banner:
            return ConsoleRow(dialect="box", values=of_split(text, values), counter=self._banner[0])
        self.uncounted.add(of_split(text, values))
        return None

    def _table_row(self, line: bytes) -> ConsoleRow | None:
        if line.startswith(b"----------"):
            row = self._table.row() if self._table else None
            self._table = _Table()
            return row
        if self._table is not None and not self._table.add(line.decode("utf-8", "replace")):
            self._table = None
        return None


_DIGIT = re.compile(rb"\d")


def _may_name_metric(lower: bytes) -> bool:
    return b"loss" in lower or b"reward" in lower or b"return" in lower or b"score" in lower


WORD = re.compile(r"[^\W\d_]+")
# What Python's logging puts in front: the time, perhaps host and logger, and the level, in this order.
TIME = re.compile(r"\[?(?:\d{4}[-/]\d\d[-/]\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?!\d)")
LEVEL = re.compile(r"\b(?:INFO|DEBUG|WARNING)\b\]?(?: ?[\t:|-])?(?=\s|$)")
LEVEL_FIRST = re.compile(r"(?:INFO|DEBUG):[\w.]{1,80}:")
PREFIX_CHARS: Final = 160  # of the time, the host, the logger and the level
PREFIX_WORDS: Final = 5  # more are a sentence that names a level


def unlogged(text: str) -> str:
    """Return a line without the prefix of its logger."""
    end = 0
    if time := TIME.match(text):
        level = LEVEL.search(text, time.end(), PREFIX_CHARS)
        if level and len(text[time.end() : level.start()].split()) <= PREFIX_WORDS:
            end = level.end()
    elif level := LEVEL_FIRST.match(text):
        end = level.end()
    return text[end:].removeprefix(" ") if end else text


SETTING = re.compile(r"(?:steps|iters|epochs|episodes|batches) ?[=:]", re.IGNORECASE)  # how many there are to be


def banner(text: str) -> Counter:
    """Read a headline that counts and says nothing more: `===== Step 3/100 =====`, `Epoch 2/5`, `Iteration 7:`."""
    counter, rest = counter_of(text)
    if counter.total is None and SETTING.search(text):
        return Counter()
    if counter.known and not any(map(str.isdigit, rest)) and len(WORD.findall(rest)) <= BANNER_WORDS:
        return counter
    return Counter()


CELLS = re.compile(r"\|\s{0,40}([^|]{1,80}?)\s{0,80}\|\s{0,40}([^|]{0,80}?)\s{0,80}\|\s*")
TABLE_STEPS: Final = (
    "time/total_timesteps", "total_timesteps", "TotalEnvInteracts", "timesteps_total", "misc/total_timesteps",
    "TimestepsSoFar", "frame", "frames", "timesteps",
    "iterations", "time/iterations", "n_updates", "nupdates", "misc/nupdates", "Epoch", "epoch", "steps", "step",
)  # fmt: skip


class _Table:
    """A table of names and numbers between two rules, as Stable-Baselines3, Baselines and Spinning Up print it."""

    def __init__(self) -> None:
        self.group = ""
        self.values: Values = {}

    def add(self, line: str) -> bool:
        """Take a line; False where it is none of such a table."""
        match = CELLS.fullmatch(line.rstrip())
        if match is None:
            return False
        name, text = match.groups()
        if name.endswith("/") and not text:
            self.group = name
            return True
        with suppress(ValueError):  # a text
            self.values[self.group + name if self.group and "/" not in name else name] = number_of(text)
        return True

    def row(self) -> ConsoleRow | None:
        """Return the table as a log call."""
        key = next((key for key in TABLE_STEPS if key in self.values), None)
        at = self.values.pop(key) if key else None
        if not any(map(is_metric_name, self.values)):
            return None
        counter = Counter(at=int(at)) if at is not None and at == at and abs(at) < 2**62 else Counter()
        return ConsoleRow(dialect="table", values=self.values, counter=counter)


MIN_RECURRING: Final = 3  # fewer lines of the same names are settings that are echoed, or a summary


class Uncounted:
    """Lines of metrics that count nothing: log calls only where the same names come again with other numbers."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], list[Values]] = {}
        self._held = 0

    def add(self, values: Values) -> None:
        """Hold a line back; one name alone says too little."""
        if len(values) > 1 and any(map(canonical, values)) and self._held < MAX_ROWS:
            self._rows.setdefault(tuple(values), []).append(values)
            self._held += 1

    def rows(self) -> Iterator[ConsoleRow]:
        """Yield those that recur."""
        for rows in self._rows.values():
            if len(rows) >= MIN_RECURRING and any(row != rows[0] for row in rows):
                yield from (ConsoleRow(dialect="uncounted", values=row) for row in rows)


class EpochSteps:
    """Counts on where a counter starts again in each epoch."""

    def __init__(self) -> None:
        self._offset = 0
        self._last: Counter | None = None
        self._first_epoch = 1  # 0 where epochs are counted from there
        self.max_steps: int | None = None

    def step(self, counter: Counter) -> int | None:
        """Return the step of the run; None where the line names none."""
        if counter.at is None or counter.unit != "step":
            return None
        if counter.nested and counter.epoch is not None and counter.total:
            self._first_epoch = 0 if counter.epoch == 0 else self._first_epoch
            self._offset = (counter.epoch - self._first_epoch) * counter.total
            self.max_steps = counter.epochs * counter.total if counter.epochs else None
        elif last := self._before_restart(counter):
            self._offset += last
            self.max_steps = counter.total * counter.epochs if counter.total and counter.epochs else None
        elif not self._offset and counter.total and counter.epochs in (None, 1):
            self.max_steps = counter.total
        self._last = counter
        return self._offset + counter.at

    def _before_restart(self, counter: Counter) -> int:
        """Return how many steps the epoch before had, where the counter started again; else 0."""
        last = self._last
        if last is None or last.at is None or counter.at is None or counter.at >= last.at:
            return 0
        if counter.epoch is not None and last.epoch is not None:
            return (last.total or last.at) if counter.epoch > last.epoch else 0
        whole = counter.total is not None and counter.total == last.total and last.at >= counter.total - 1
        return counter.total or 0 if whole else 0

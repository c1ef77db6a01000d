"""Printed rows that count nothing: which of them are log calls, which belong to a printed sample, and where they stand.

A script prints `rollout batch 3 generated`, then the figures of that batch: the headline that comes before every row,
and counts one further each time, places them all.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ptt.diagnostics.parsers.io.console_pairs import Counter, Values, is_metric_name

MAX_ROWS: Final = 100_000  # of lines without counter that are held back until it is known whether they recur
MIN_RECURRING: Final = 3  # fewer lines of the same names are settings that are echoed, or a summary
MAX_SHAPES: Final = 400  # of headlines; prose that counts has a new one in each line
MAX_HEADLINES: Final = 200_000
SHAPE_CHARS: Final = 60
MIN_SHARE: Final = 0.9  # of rows that stand behind a headline of their own; a resumed run counts some twice
DIGITS: Final = re.compile(r"\d+")
CHECKED_ROWS: Final = 50  # of the same names, before which a sample is looked for: the others are as these are
SAMPLE_LINES: Final = 400  # before a row, in which the sample that it is of begins: an answer is long
SAMPLE: Final = re.compile(
    rb"^.{0,100}?\b(?:prompt|question|query|problem|completion|response|model[ _]output|output|generated(?:[ _]text)?"
    rb"|generation|answer|ground[ _]truth|expected|target|label|prediction|predicted|sample(?: \d+)?|example(?: \d+)?"
    rb"|solution|assistant|user)\]?[\"']?\s?(?::|=(?!\d)|$)",
    re.IGNORECASE,
)
COURSE: Final = re.compile(r"(?:^|[/_ ])(?:loss|grad_norm|learning_rate|lr|kl|entropy)(?:$|[/_ ])", re.IGNORECASE)
"""Names of what a whole step has and no sample."""


@dataclass(frozen=True)
class UncountedRow:
    """A row, and the number of its line."""

    line: int
    values: Values
    sampled: bool = False  # printed beside a sample, and describes that sample


@dataclass
class Headlines:
    """Lines that count, by what else they say: at which line each count stands."""

    _shapes: dict[tuple[str, str], tuple[list[int], list[Counter]]] = field(default_factory=dict)
    _held: int = 0

    def see(self, line: int, text: str, counter: Counter) -> None:
        """Note a line that counts."""
        shape = (DIGITS.sub("#", text[:SHAPE_CHARS]), counter.unit)
        if shape not in self._shapes and len(self._shapes) >= MAX_SHAPES:
            return
        if self._held < MAX_HEADLINES:
            places, counters = self._shapes.setdefault(shape, ([], []))
            places.append(line)
            counters.append(counter)
            self._held += 1

    def place(self, lines: Sequence[int]) -> list[Counter] | None:
        """Return the counter of each row by the headline that has one for each; None where no headline has."""
        best: tuple[float, list[Counter]] | None = None
        for places, counters in self._shapes.values():
            if len(places) < MIN_RECURRING:
                continue
            at = [bisect_right(places, line) - 1 for line in lines]
            if at[0] < 0:  # this headline comes behind its rows
                at = [index + 1 for index in at]
                if at[-1] >= len(places):
                    continue
            found = [counters[index] for index in at]
            counts = [_count(counter) for counter in found]
            alone = sum(one < other for one, other in pairwise(counts)) / max(1, len(counts) - 1)
            coverage = len(set(at)) / len(places)  # of two headlines the one that comes with these rows alone
            if alone >= MIN_SHARE and (best is None or coverage > best[0]):
                best = (coverage, found)
        return None if best is None else best[1]


def _line(row: UncountedRow) -> int:
    return row.line


def _count(counter: Counter) -> tuple[int, int]:
    return (counter.epoch or 0, counter.at or 0)


class Uncounted:
    """Lines of metrics that count nothing: log calls only where the same names come again with other numbers."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], list[UncountedRow]] = {}
        self._headed: dict[tuple[str, ...], list[UncountedRow]] = {}  # below the headline of an epoch
        self._sampled: dict[tuple[str, ...], list[bool]] = {}  # of the first rows of these names
        self._recent: deque[bytes] = deque(maxlen=SAMPLE_LINES)
        self._held = 0

    def other(self, line: bytes) -> None:
        """Note a line that is no row."""
        self._recent.append(line)

    def counted(self) -> None:
        """Note that a row has come, behind which another sample begins."""
        self._recent.clear()

    def is_sampled(self, values: Values) -> bool:
        """Return whether a row belongs to the sample that was printed before it."""
        if "epoch" in values or any(map(COURSE.search, values)):
            return False
        checked = self._sampled.setdefault(tuple(values), [])
        if len(checked) < CHECKED_ROWS:
            checked.append(any(map(SAMPLE.match, self._recent)))
        return 2 * sum(checked) > len(checked)

    def add(self, line: int, values: Values) -> None:
        """Hold a line back; a name that is no metric's says too little."""
        if any(map(is_metric_name, values)) and self._held < MAX_ROWS:
            rows = self._rows.setdefault(tuple(values), [])
            rows.append(UncountedRow(line, values, self.is_sampled(values)))
            self._held += 1
        self.counted()

    def add_headed(self, line: int, values: Values) -> None:
        """Note a row behind the headline of an epoch: of the first step in it, if others without one follow."""
        rows = self._headed.setdefault(tuple(values), [])
        if len(rows) < MAX_SHAPES:
            rows.append(UncountedRow(line, values))

    def rows(self) -> Iterator[list[UncountedRow]]:
        """Yield those that recur, by their names."""
        for names, alone in self._rows.items():
            headed = self._headed.get(names, []) if len(alone) >= MIN_RECURRING else []
            rows = sorted((*alone, *(headed if MIN_RECURRING * len(headed) <= len(alone) else ())), key=_line)
            if len(rows) >= MIN_RECURRING and any(row.values != rows[0].values for row in rows):
                yield rows

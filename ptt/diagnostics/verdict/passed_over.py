"""Say what the reading of a console leaves out of the lines that an entry of `[[logs]]` would read."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.log_entries import LogEntry
from ptt.diagnostics.parsers.io.console_context import ConsoleContext
from ptt.diagnostics.parsers.own_logs import numbers_of, texts_by_name
from ptt.diagnostics.wording import counted

MAX_READ: Final = 0.8  # of a metric's values that the console's reading gives, for one that it leaves out
NEAR: Final = 60  # lines within which it may give them: a table is read at its end, a bar where it was drawn first
SAME: Final = ".9g"  # digits of a number that is the same
MAX_NAMED: Final = 4  # metrics in a note


@dataclass(frozen=True, kw_only=True)
class PassedOver:
    """What of the first lines of a console is not read. `passed`: how many lines with such metrics are not at all."""

    path: str
    metrics: tuple[str, ...]
    passed: int
    lines: int

    @property
    def note(self) -> str:
        """Return the sentence that says so."""
        listed = ", ".join(self.metrics[:MAX_NAMED])
        more = len(self.metrics) - MAX_NAMED
        and_more = f" and {more} more" if more > 0 else ""
        numbers = f"the numbers on {counted(self.passed, 'line(s)')} of the first {self.lines}, and with them "
        left = f"{numbers if self.passed else ''}{listed}{and_more}"
        return f"{self.path}: read as a console's output, which leaves out {left}; an entry that reads them is below."


def passed_over(
    path: str, lines: Sequence[str], read_by: Sequence[tuple[LogEntry, Mapping[str, str]]]
) -> PassedOver | None:
    """Return what is left out of lines that entries would read, None where nearly nothing is.

    `read_by`: each entry with the names of its groups that are metrics.
    """
    seen = _Seen(lines)
    text = pl.Series(lines, dtype=pl.String)
    left_out: dict[str, None] = {}
    passed = set()
    for entry, names in read_by:
        table, _ = texts_by_name(entry, text)
        passed |= {*table["__matched"].arg_true()} - seen.lines
        for name, metric in names.items():
            values = numbers_of(table[name], entry.decimal)
            rows = (table["__matched"] & values.is_finite()).arg_true().to_list()
            if sum(seen.holds(values[at], at) for at in rows) < MAX_READ * len(rows):
                left_out[metric] = None
    if not left_out:
        return None
    return PassedOver(path=path, metrics=tuple(left_out), passed=len(passed), lines=len(lines))


class _Seen:
    """The numbers that the console's reading takes, and where."""

    def __init__(self, lines: Sequence[str]) -> None:
        context = ConsoleContext()
        self._places: dict[str, list[int]] = defaultdict(list)
        self.lines: set[int] = set()
        for at, line in enumerate(lines):
            if row := context.row(line.encode()):
                self._note(row.values, at)
        for recurring in chain.from_iterable(context.uncounted.rows()):
            self._note(recurring.values, recurring.line - 1)
        for places in self._places.values():
            places.sort()

    def _note(self, values: Mapping[str, float | None], at: int) -> None:
        self.lines.add(at)
        for value in values.values():
            if value is not None and isfinite(value):
                self._places[format(value, SAME)].append(at)

    def holds(self, value: float, line: int) -> bool:
        """Return whether a number is taken on its line, or near it where nothing is on that line."""
        places = self._places.get(format(value, SAME), [])
        by = 0 if line in self.lines else NEAR
        at = bisect_left(places, line - by)
        return at < len(places) and places[at] <= line + by

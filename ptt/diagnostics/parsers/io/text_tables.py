"""Tables of text whose first line names the columns: fastai's, pandas' and those of home-made loops."""

from __future__ import annotations

import re
from typing import Final

from ptt.diagnostics.parsers.io.console_pairs import NUMBER, Counter, Values, is_metric_name, printed_number
from ptt.diagnostics.parsers.io.counters import COUNTERS, count_name

COLUMNS: Final = re.compile(r"\s*[|\u2502\u2503\t]\s*|\s{2,}")
NAME: Final = re.compile(r"[^\W\d][\w/.@%()# -]{0,40}")
CELL: Final = re.compile(rf"({NUMBER})(%)?")
RULE: Final = re.compile(r"[\s|+=:\u2500-\u257f-]{1,400}")
OTHER_CELL: Final = re.compile(r"[\w.:/% -]{0,40}")  # a time, a name, a dash
MAX_CHARS: Final = 1000
MAX_CELLS: Final = 64


def cells_of(text: str) -> list[str]:
    """Return the cells of a line, however they are separated."""
    return COLUMNS.split(text.strip(" |\t\u2502\u2503"), MAX_CELLS)


class TextTable:
    """A table whose header was read, and how its rows are counted."""

    def __init__(self, names: list[str], counter: str) -> None:
        self._names, self._counter = names, counter

    @classmethod
    def headed(cls, text: str) -> TextTable | None:
        """Return the table that a header begins: only names, one of them a counter and one a known metric."""
        if len(text) > MAX_CHARS:
            return None
        names = cells_of(text)
        if len(names) < 2 or len(set(names)) < len(names) or not all(map(NAME.fullmatch, names)):
            return None
        counters = [name for name in names if COUNTERS.get(count_name(name), (0, "row"))[1] != "row"]
        known = any(is_metric_name(name) for name in names if name not in counters)
        return cls(names, min(counters, key=lambda name: COUNTERS[count_name(name)])) if counters and known else None

    def row(self, text: str) -> tuple[Counter, Values] | None:
        """Read a line of it; None where it is none, which ends the table."""
        cells = cells_of(text) if len(text) <= MAX_CHARS else []
        if len(cells) != len(self._names):
            return None
        values: Values = {}
        at: int | None = None
        for name, cell in zip(self._names, cells, strict=True):
            match = CELL.fullmatch(cell)
            if match is None and not OTHER_CELL.fullmatch(cell):
                return None
            if name == self._counter:
                at = int(cell.replace(",", "")) if cell.replace(",", "").isdecimal() else None
            elif match is not None:
                values[name] = printed_number(match[1], match[2])
        if at is None or not values:
            return None
        unit = COUNTERS[count_name(self._counter)][1]
        counter = Counter(epoch=at, unit="epoch") if unit == "epoch" else Counter(at=at, unit=unit)
        return counter, values


def is_rule(text: str) -> bool:
    """Return whether a line only rules a table."""
    return RULE.fullmatch(text) is not None

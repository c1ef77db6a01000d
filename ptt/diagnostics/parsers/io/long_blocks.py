"""A block of a large log that has a value a row, as columns: of the rows of one step the store gets one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.parsers.io.interface import Rows, RunFile, Wide
from ptt.diagnostics.parsers.io.metric_blocks import DENSE, Naming, is_large, may_be_dense, tell_lengths
from ptt.diagnostics.parsers.io.metric_logs import LENGTHS, CallLog
from ptt.diagnostics.parsers.io.metric_rows import metric_frame

ENTRY: Final = {"__step": "step", "__time": "wall_time", "__seq": "seq"}
MAX_PERIOD: Final = 10_000  # rows of a step, in which names may stand in the order of the step before
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Names:
    """The names of rows: each once, in the order of their first rows, and which of them a row has; -1: none."""

    raws: tuple[str, ...]
    codes: IntArray

    @classmethod
    def of(cls, names: pl.Series) -> Names:
        """Number names; those of most logs come in the same order at each step, which takes a tenth of the time."""
        if not names.null_count() and (period := _period(names)):
            raws = tuple(names[:period])
            if len(set(raws)) == period:
                return cls(raws, np.resize(np.arange(period), len(names)))
        raws = tuple(names.drop_nulls().unique(maintain_order=True))
        codes = names.cast(pl.Enum(raws)).to_physical().cast(pl.Int64).fill_null(-1)
        return cls(raws, codes.to_numpy())

    def stripped(self) -> Names:
        """Return them without white space around them; an empty one is none."""
        plain: list[str] = pl.Series(self.raws, dtype=pl.String).str.strip_chars().to_list()
        if "" not in plain and len(set(plain)) == len(plain):
            return Names(tuple(plain), self.codes)
        raws = tuple(dict.fromkeys(filter(None, plain)))
        code_of = {raw: code for code, raw in enumerate(raws)}
        table = np.array([*(code_of.get(raw, -1) for raw in plain), -1])
        return Names(raws, table[self.codes])

    def prefixed(self, front: str) -> Names:
        """Return them with this in front of each."""
        return replace(self, raws=tuple(front + raw for raw in self.raws)) if front else self


def _period(names: pl.Series) -> int:
    """Return after how many rows the names come again in the same order, throughout; 0: they do not."""
    again = (names[1:MAX_PERIOD] == names[0]).arg_max() if len(names) > 1 else None
    period = 0 if again is None else again + 1
    return period if period and bool((names[period:] == names[: len(names) - period]).all()) else 0


@dataclass(frozen=True, eq=False)
class LongBlock:
    """The values of a block of lines, each with the name of its metric; `schema` is what the next block holds.

    Without a name or a value, a row counts and is left out.
    """

    index: dict[str, pl.Series]  # step, wall_time, seq
    names: Names
    values: pl.Series
    schema: pl.Schema

    @property
    def behind(self) -> int:
        """The number of the row that follows."""
        return int(self.index["__seq"][-1]) + 1

    def pieces(self, file: RunFile, naming: Naming) -> Iterator[Rows | Wide]:
        """Yield what was measured: a row a value, but a column a metric for what is dense in a large file."""
        known = self.names.codes >= 0
        if self.values.null_count():
            known &= self.values.is_not_null().to_numpy()
        if refused := file.budget.refused(self.names.raws):
            kept = np.array([*(raw not in refused for raw in self.names.raws), False])[self.names.codes]
            file.budget.refused_values += int(np.count_nonzero(known & ~kept))
            known &= kept
        entries = self if known.all() else self._only(known)
        if len(entries.values) and is_large(file, self.names.raws) and (found := entries._wide()) is not None:
            frame, dense = found
            yield Wide(frame=frame, names=naming(frame.columns[len(ENTRY) :]))
            entries = entries._only(~dense)
        if len(entries.values):
            yield Rows(table="metrics", frame=metric_frame(entries._frame(), file.rel))

    def tell_length(self, log: CallLog) -> None:
        """Note the last step, and how long the run was to be."""
        raws = {name: log.counter.prefix + name for name in LENGTHS}
        columns = {
            name: self.values.filter(pl.Series(self.names.codes == self.names.raws.index(raw)))
            for name, raw in raws.items()
            if raw in self.names.raws
        }
        tell_lengths(columns, self.index["__step"], log)

    def _only(self, rows: BoolArray) -> LongBlock:
        """Return some of the rows."""
        chosen = pl.Series(rows)
        index = {name: column.filter(chosen) for name, column in self.index.items()}
        return replace(
            self,
            index=index,
            names=replace(self.names, codes=self.names.codes[rows]),
            values=self.values.filter(chosen),
        )

    def _frame(self) -> pl.DataFrame:
        """Return a row a value, with its name."""
        name = pl.Series(self.names.raws, dtype=pl.String).gather(self.names.codes)
        return pl.DataFrame(self.index | {"name_raw": name, "value": self.values}).rename(ENTRY)

    def _wide(self) -> tuple[pl.DataFrame, BoolArray] | None:
        """Return a row a step with a column for each metric that most steps have, and which values stand in it.

        None where that tells less than rows do: steps that go back, a metric twice at a step, or times within one.
        """
        raws, codes = self.names.raws, self.names.codes
        steps = self.index["__step"].to_numpy()
        begins = np.append(True, steps[1:] != steps[:-1])
        if (steps[1:] < steps[:-1]).any() or not _is_one_time(self.index["__time"], begins):
            return None
        places: IntArray = np.cumsum(begins) - 1
        height = int(places[-1]) + 1
        counts = np.bincount(codes, minlength=len(raws))
        usable = (may_be_dense(raw) and raw not in ENTRY for raw in raws)
        chosen = [code for code, may_be in enumerate(usable) if may_be and counts[code] > DENSE * height]
        if not chosen:
            return None
        column_of = np.full(len(raws), -1)
        column_of[chosen] = np.arange(len(chosen))
        columns, values = column_of[codes], self.values.to_numpy()
        dense = columns >= 0
        at = columns * height + places
        if not dense.all():
            at, values = at[dense], values[dense]
        known = np.zeros(len(chosen) * height, bool)
        known[at] = True
        if np.count_nonzero(known) < len(at):
            return None
        cells = np.empty(len(known))
        cells[at] = values
        frame = pl.DataFrame(self.index).filter(pl.Series(begins))
        of_metric = (slice(place * height, (place + 1) * height) for place in range(len(chosen)))
        made = (_column(raws[code], cells[at], known[at]) for code, at in zip(chosen, of_metric, strict=True))
        return frame.with_columns(made), dense


def _is_one_time(times: pl.Series, begins: BoolArray) -> bool:
    """Return whether all rows of a step have one time, or none."""
    if times.null_count():
        return times.null_count() == len(times)
    found = times.to_numpy()
    return bool((begins[1:] | (found[1:] == found[:-1])).all())


def _column(name: str, values: npt.NDArray[np.float64], known: BoolArray) -> pl.Series:
    column = pl.Series(name, values)
    return column if known.all() else pl.select(pl.when(pl.Series(known)).then(column).alias(name)).to_series()

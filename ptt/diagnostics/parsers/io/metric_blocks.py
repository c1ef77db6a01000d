"""Blocks of a large metric log as columns: a column a metric, or a value a row that becomes a row a step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.metrics.aliases import CACHED_NAMES, canonical, split_of
from ptt.diagnostics.parsers.io.interface import Rows, RunFile, Wide
from ptt.diagnostics.parsers.io.metric_logs import LENGTHS, CallLog
from ptt.diagnostics.parsers.io.metric_rows import RATIO_BOUND, UNNUMBERED, metric_frame
from ptt.diagnostics.parsers.io.values import MAX_STEP

WIDE_BYTES: Final = 2 << 20  # of a file: from here on, a row for each value costs more than everything else
PLACED_BYTES: Final = 32 << 20  # of a file without steps: up to here, its rows can be placed by those of other files
DENSE: Final = 0.5  # of a block's rows hold the metric: rarer metrics cost little as rows
MAX_CELLS: Final = 32 << 20  # in a block's columns, most of them empty: 256 MB

Naming = Callable[[list[str]], Mapping[str, str | None]]


@dataclass(frozen=True)
class Block:
    """The numbers of a block of lines, in columns; `schema` is what the next block probably holds."""

    index: dict[str, pl.Series]  # step, wall_time, seq
    numbers: dict[str, pl.Series]
    schema: pl.Schema
    nulls: Mapping[str, pl.Series] = field(default_factory=dict)  # by metric: the rows with a null
    lengths: Mapping[str, pl.Series] = field(default_factory=dict)  # its metric_logs.LENGTHS, as written

    @property
    def behind(self) -> int:
        """The number of the row that follows."""
        return int(self.index["__seq"][-1]) + 1

    def long(self, names: list[str] | None = None) -> pl.DataFrame:
        """Return `step, name_raw, value, wall_time, seq`, a row a value, of all metrics or of some."""
        chosen = self.numbers if names is None else {name: self.numbers[name] for name in names}
        long = long_rows(pl.DataFrame(self.index | chosen), list(self.index))
        return long.rename({"__step": "step", "__time": "wall_time", "__seq": "seq"})

    def pieces(self, file: RunFile, naming: Naming) -> Iterator[Rows | Wide]:
        """Yield what was measured: a row a value, but a column a metric for what is dense in a large file."""
        refused = file.budget.refused(self.numbers)
        kept = [name for name in self.numbers if name not in refused]
        file.budget.refused_values += sum(len(self.numbers[name]) - self.numbers[name].null_count() for name in refused)
        file.budget.refused_values += sum(int(rows.sum()) for name, rows in self.nulls.items() if name in refused)
        names = naming(kept)
        dense = [name for name in kept if self._is_dense(name)] if is_large(file, kept) else []
        names_of_dense = set(dense)
        if dense:
            columns = {name: self.numbers[name] for name in dense}
            yield Wide(frame=pl.DataFrame(self.index | columns), names={name: names[name] for name in dense})
        rest = [name for name in kept if name not in names_of_dense]
        if rest:
            frame = metric_frame(self.long(rest), file.rel)
            replacements = pl.Series([names[raw] for raw in rest], dtype=pl.String)
            name = pl.col("name_raw").replace_strict(rest, replacements, return_dtype=pl.String)
            yield Rows(table="metrics", frame=frame.with_columns(name=name))
        nulls = [self._null_rows(name, rows) for name, rows in self.nulls.items() if name not in refused]
        if nulls:
            yield Rows(table="metrics", frame=metric_frame(pl.concat(nulls), file.rel))

    def _null_rows(self, name: str, rows: pl.Series) -> pl.DataFrame:
        """Return a metric's null rows in the form that `long` gives."""
        frame = pl.DataFrame({key: column.filter(rows) for key, column in self.index.items()})
        frame = frame.with_columns(name_raw=pl.lit(name), value=pl.lit(None, pl.Float64))
        return frame.rename({"__step": "step", "__time": "wall_time", "__seq": "seq"})

    def tell_length(self, log: CallLog) -> None:
        """Note the last step, and how long the run was to be."""
        tell_lengths(self.lengths, self.index["__step"], log)

    def _is_dense(self, name: str) -> bool:
        column = self.numbers[name]
        return may_be_dense(name) and column.null_count() < (1 - DENSE) * len(column)


def tell_lengths(columns: Mapping[str, pl.Series], steps: pl.Series, log: CallLog) -> None:
    """Note the last step, and what columns say of the run's length, as their rows would one after another."""
    for name, column in columns.items():
        for value in column.reverse().unique(maintain_order=True).reverse():  # each value, by its last place
            log.length.see(None, {name: value})
    kept = steps.filter(steps.is_between(-MAX_STEP, MAX_STEP))  # rows with other steps are lost
    log.length.see(int(kept[-1]) if len(kept) else None, {})


def long_rows(columns: pl.DataFrame, index: list[str]) -> pl.DataFrame:
    """Return the index with `name_raw` and `value`, a row a value, even where a metric is called `value`."""
    name, value = (_unused(wanted, columns.columns) for wanted in ("name_raw", "value"))
    long = columns.unpivot(index=index, variable_name=name, value_name=value)
    return long.rename({name: "name_raw", value: "value"}).filter(pl.col("value").is_not_null())


def _unused(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


def is_large(file: RunFile, names: Iterable[str]) -> bool:
    """Return whether the metrics of a file may be kept as columns."""
    unnumbered = any(name.startswith(UNNUMBERED) for name in names)
    return file.size >= max(WIDE_BYTES, PLACED_BYTES * unnumbered)


@lru_cache(maxsize=CACHED_NAMES)
def may_be_dense(name: str) -> bool:
    """Return whether a metric may be kept as a column: a training metric whose values all mean themselves."""
    return split_of(name.removeprefix(UNNUMBERED)) == "train" and re.search(RATIO_BOUND, name) is None


def known_names(raws: list[str]) -> dict[str, str | None]:
    """Return the canonical names as the table of aliases has them."""
    return {raw: canonical(raw.removeprefix(UNNUMBERED)) for raw in raws}


ENTRY: Final = {"__step": "step", "__time": "wall_time", "__seq": "seq"}
MAX_PERIOD: Final = 10_000  # rows in a step, within which names may repeat the order of the step before
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
        """Return the names without surrounding white space; rows with an empty one have none."""
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
    """The values of a block of lines with the name of each value's metric; `schema` is what the next block holds.

    A row without a name or a value is counted, but left out.
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
        """Return one row a step, with a column for each metric that most steps have, and flags of the values it holds.

        None if that would lose information: steps that go back, a metric twice at a step, or several times in a step.
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

"""A block of a large metric log as columns: the numbers of its rows, and what of them stays a column in the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import polars as pl

from ptt.diagnostics.metrics.aliases import CACHED_NAMES, canonical, split_of
from ptt.diagnostics.parsers.io.interface import Rows, RunFile, Wide
from ptt.diagnostics.parsers.io.metric_logs import CallLog
from ptt.diagnostics.parsers.io.metric_rows import RATIO_BOUND, UNNUMBERED, metric_frame
from ptt.diagnostics.parsers.io.values import MAX_STEP

WIDE_BYTES: Final = 2 << 20  # of a file: from here on a row a value costs more than all the rest
PLACED_BYTES: Final = 32 << 20  # of one without steps: up to here its rows can be placed beside those of other files
DENSE: Final = 0.5  # of a block's rows hold the metric: what is rarer costs little as rows
MAX_CELLS: Final = 32 << 20  # of the columns of a block, most of them empty: 256 MB

Naming = Callable[[list[str]], Mapping[str, str | None]]


@dataclass(frozen=True)
class Block:
    """The numbers of a block of lines, a column each; `schema` is what the next block probably holds."""

    index: dict[str, pl.Series]  # step, wall_time, seq
    numbers: dict[str, pl.Series]
    schema: pl.Schema
    nulls: Mapping[str, pl.Series] = field(default_factory=dict)  # of a metric, the rows in which null stands
    lengths: Mapping[str, pl.Series] = field(default_factory=dict)  # what of metric_logs.LENGTHS it holds, as written

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
        """Return what `long` does for the rows in which a metric is null."""
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
        for value in column.reverse().unique(maintain_order=True).reverse():  # each where it stands last
            log.length.see(None, {name: value})
    kept = steps.filter(steps.is_between(-MAX_STEP, MAX_STEP))  # of the others the rows are lost
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
    """Return whether the metrics of a file may stand as columns."""
    unnumbered = any(name.startswith(UNNUMBERED) for name in names)
    return file.size >= max(WIDE_BYTES, PLACED_BYTES * unnumbered)


@lru_cache(maxsize=CACHED_NAMES)
def may_be_dense(name: str) -> bool:
    """Return whether a metric may stand as a column: of training, and with no value that stands for another."""
    return split_of(name.removeprefix(UNNUMBERED)) == "train" and re.search(RATIO_BOUND, name) is None


def known_names(raws: list[str]) -> dict[str, str | None]:
    """Return the canonical names as the table of aliases has them."""
    return {raw: canonical(raw.removeprefix(UNNUMBERED)) for raw in raws}

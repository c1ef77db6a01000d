"""A block of a large metric log as columns: the numbers of its rows, and what of them stays a column in the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import polars as pl

from ptt.diagnostics.metrics.aliases import CACHED_NAMES, canonical, split_of
from ptt.diagnostics.parsers.io.interface import Rows, RunFile, Wide
from ptt.diagnostics.parsers.io.metric_logs import RUNTIME, TOTALS, CallLog
from ptt.diagnostics.parsers.io.metric_rows import RATIO_BOUND, UNNUMBERED, metric_frame

WIDE_BYTES: Final = 32 << 20  # of a file: from here on a row a value costs more than all the rest
DENSE: Final = 0.5  # of a block's rows hold the metric: what is rarer costs little as rows
MAX_CELLS: Final = 32 << 20  # of the columns of a block, most of them empty: 256 MB

Naming = Callable[[list[str]], Mapping[str, str | None]]


@dataclass(frozen=True)
class Block:
    """The numbers of a block of lines, a column each; `schema` is what the next block probably holds."""

    index: dict[str, pl.Series]  # step, wall_time, seq
    numbers: dict[str, pl.Series]
    schema: pl.Schema

    @property
    def behind(self) -> int:
        """The number of the row that follows."""
        return int(self.index["__seq"][-1]) + 1

    def long(self, names: list[str] | None = None) -> pl.DataFrame:
        """Return `step, name_raw, value, wall_time, seq`, a row a value, of all metrics or of some."""
        chosen = self.numbers if names is None else {name: self.numbers[name] for name in names}
        long = pl.DataFrame(self.index | chosen).unpivot(
            index=list(self.index), variable_name="name_raw", value_name="value"
        )
        long = long.filter(pl.col("value").is_not_null())
        return long.rename({"__step": "step", "__time": "wall_time", "__seq": "seq"})

    def pieces(self, file: RunFile, naming: Naming) -> Iterator[Rows | Wide]:
        """Yield what was measured: a row a value, but a column a metric for what is dense in a large file."""
        refused = file.budget.refused(self.numbers)
        kept = [name for name in self.numbers if name not in refused]
        file.budget.refused_values += sum(len(self.numbers[name]) - self.numbers[name].null_count() for name in refused)
        names = naming(kept)
        dense = [name for name in kept if self._is_dense(name)] if file.size >= WIDE_BYTES else []
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

    def tell_length(self, log: CallLog) -> None:
        """Note the last step, and how long the run was to be."""
        last = {
            name: column[-1]
            for name in (*TOTALS[log.counter.unit], RUNTIME)
            if (column := self.numbers.get(log.counter.prefix + name)) is not None
        }
        log.length.see(int(self.index["__step"][-1]), last)

    def _is_dense(self, name: str) -> bool:
        column = self.numbers[name]
        return _may_be_dense(name) and column.null_count() < (1 - DENSE) * len(column)


@lru_cache(maxsize=CACHED_NAMES)
def _may_be_dense(name: str) -> bool:
    """Return whether a metric may stand as a column: of training, and with no value that stands for another."""
    return split_of(name.removeprefix(UNNUMBERED)) == "train" and re.search(RATIO_BOUND, name) is None


def known_names(raws: list[str]) -> dict[str, str | None]:
    """Return the canonical names as the table of aliases has them."""
    return {raw: canonical(raw.removeprefix(UNNUMBERED)) for raw in raws}

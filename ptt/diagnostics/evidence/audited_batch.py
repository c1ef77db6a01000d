"""Audited rows as flat arrays, with the sums by row of every quantity asked for: each is computed once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.schema import ADVANTAGE, COMPONENT, LOGPS
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.recomputed_scalars import Layout, RowSums, by_row, one_a_row, sum_rows

MODEL, TRAIN, ALL = "model_mask", "train_mask", "all_tokens"
FLOATS: Final = (*LOGPS, "entropy", "advantage")
ZEROED: Final = "rollout_logp or 0"  # the engine's logprobs, 0 where it has none: tokens that it never scored
NUMBER: Final = re.compile(r"\d+")
DIGITS: Final = 20  # of a number in a name
KEPT_TOKENS: Final = 1 << 20  # of so many the log ratios are kept: each pair takes 8 MB
END_SHARE: Final = 0.25  # of the rows end with one token: it then ends an answer


class Batch:
    """The rows of some steps, sorted by step: flat columns (tokens,), values of rows (rows,), all by name."""

    def __init__(self, frame: pl.DataFrame, *, by: str = "step") -> None:
        """`frame`: audited rows; `by`: the column that says which rows are reduced to one number, ascending."""
        self.frame = frame
        steps, firsts = np.unique(frame[by].to_numpy(), return_index=True)
        self.steps: IntArray = steps.astype(np.int64)
        lengths = frame["model_mask"].list.len().fill_null(0).to_numpy().astype(np.int64)
        self.layout = Layout(firsts=firsts.astype(np.int64), lengths=lengths)
        self.starts: IntArray = np.concatenate([[0], np.cumsum(lengths)])
        self._flat: dict[str, FloatArray | None] = {}
        self._sums: dict[tuple[str, str, bool], RowSums] = {}
        self._counted: dict[str, FloatArray] = {}
        self._rows: dict[str, FloatArray | None] = {}
        self._masks: dict[str, BoolArray | None] = {}
        self._parts: dict[str, IntArray] = {}

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.layout.lengths)

    def mask(self, name: str) -> BoolArray | None:
        """Return a mask of tokens, (tokens,); None where all count, or where nothing tells."""
        if name not in self._masks:
            self._masks[name] = None if name == ALL else self._explode_mask(name)
        return self._masks[name]

    def _explode_mask(self, name: str) -> BoolArray | None:
        if name not in self.frame.columns or self.frame[name].dtype != pl.List(pl.Boolean):
            return None
        column = self.frame[name]
        if not (column.list.len().fill_null(0).to_numpy() == self.layout.lengths).all():
            return None
        return column.explode(empty_as_null=False).fill_null(False).to_numpy().astype(np.bool_)

    @cached_property
    def masks(self) -> tuple[str, ...]:
        """The masks that differ from each other; the policy's own tokens come first."""
        own, trained = self.mask(MODEL), self.mask(TRAIN)
        names = [MODEL]
        if trained is not None and own is not None and not np.array_equal(trained, own):
            names.append(TRAIN)
        if own is not None and not own.all():
            names.append(ALL)
        return tuple(names)

    def flat(self, name: str) -> FloatArray | None:
        """Return a column of numbers, (tokens,), NaN where a row has none; None where no row has it."""
        if name not in self._flat:
            self._flat[name] = self._explode(name)
        return self._flat[name]

    def _explode(self, name: str) -> FloatArray | None:
        if name == ZEROED:
            engine, own = self.flat("rollout_logp"), self.mask(MODEL)
            if engine is None or own is None:
                return None
            return np.where(own, engine, 0.0)
        if name not in self.frame.columns or not isinstance(self.frame[name].dtype, pl.List):
            return self._spread(name)
        column = self.frame[name]
        fits = column.list.len().fill_null(0).to_numpy() == self.layout.lengths
        if not fits.any() or not column.is_not_null().any():
            return self._spread(name)
        values = column.filter(pl.Series(fits)).explode(empty_as_null=False).cast(pl.Float64).fill_null(np.nan)
        if fits.all():
            return values.to_numpy().copy()
        result = np.full(int(self.starts[-1]), np.nan)
        result[np.repeat(fits, self.layout.lengths)] = values.to_numpy()
        return result

    def _spread(self, name: str) -> FloatArray | None:
        """Return an advantage that is one number a row at each of its tokens."""
        if name != "advantage" or (rows := self.row(ADVANTAGE)) is None:
            return None
        return np.repeat(rows, self.layout.lengths)

    def log_ratio(self, pair: str) -> FloatArray | None:
        """Return the log ratio of a pair such as "policy/ref", (tokens,); None where a side is not recorded."""
        if pair in self._flat:
            return self._flat[pair]
        top, bottom = pair.split("/")
        above = self.flat(f"{top}_logp")
        below = self.flat(bottom if bottom == ZEROED else f"{bottom}_logp")
        r = None if above is None or below is None else above - below
        if self.starts[-1] <= KEPT_TOKENS:
            self._flat[pair] = r
        return r

    def sums(self, name: str, make: Callable[[], FloatArray], mask: str, *, ends: bool = False) -> RowSums:
        """Return the sums by row of a quantity, named so that it is computed once, over one mask.

        `ends`: with the least and the largest of each row.
        """
        key = (name, mask, ends)
        if key not in self._sums:
            with np.errstate(over="ignore", invalid="ignore"):
                counts = self._counts(mask)
                self._sums[key] = sum_rows(make(), self.mask(mask), self.starts, counts, ends=ends)
        return self._sums[key]

    def _counts(self, mask: str) -> FloatArray:
        if mask not in self._counted:
            own = self.mask(mask)
            lengths = self.layout.lengths.astype(np.float64)
            self._counted[mask] = lengths if own is None else by_row(np.add, own.astype(np.int64), self.starts, 0.0)
        return self._counted[mask]

    def row(self, name: str) -> FloatArray | None:
        """Return one value a row, (rows,), NaN where it has none; None where no row has."""
        if name not in self._rows:
            values = ROWS[name](self) if name in ROWS else self._figure(name)
            self._rows[name] = values if values is not None and np.isfinite(values).any() else None
        return self._rows[name]

    @cached_property
    def halves(self) -> tuple[Batch, Batch]:
        """Every other row of each step, and the rest; a lone row stands in both."""
        place, alone = self.layout.place % 2, np.repeat(self.layout.sizes == 1, self.layout.sizes)
        one, two = (
            self.frame.filter(pl.Series((place == half) | alone)).drop("window", strict=False) for half in (0, 1)
        )
        return Batch(one), Batch(two)

    def parts(self, name: str, make: Callable[[], IntArray]) -> IntArray:
        """Return a division of each step into parts, (rows,) numbers, named so that it is made once."""
        if name not in self._parts:
            self._parts[name] = make()
        return self._parts[name]

    def _figure(self, name: str) -> FloatArray | None:
        if name not in self.frame.columns or not self.frame[name].dtype.is_numeric():
            return None
        return self.frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()

    def row_sums(self, name: str) -> RowSums | None:
        """Return a value a row as sums that each count once."""
        values = self.row(name)
        return None if values is None else one_a_row(values)

    @cached_property
    def groups(self) -> IntArray | None:
        """The number of each row's prompt group within its step, (rows,); None where a row has none."""
        if "group_id" not in self.frame.columns or self.frame["group_id"].has_nulls():
            return None
        names = self.frame.select(pl.lit(self.layout.step).alias("at"), "group_id")
        ranks: IntArray = names.select(pl.struct("at", "group_id").rank("dense")).to_series().to_numpy() - 1
        return ranks.astype(np.int64)

    @cached_property
    def in_order(self) -> IntArray:
        """The place of each row in its step by the number of its sample, else of its group: ranks hold neighbours."""
        for name in ("sample_id", "group_id"):
            if name in self.frame.columns and not self.frame[name].has_nulls():
                keys = _natural(self.frame[name])
                order = np.lexsort((keys, self.layout.step))
                place = np.empty(self.rows, np.int64)
                place[order] = self.layout.place
                return place
        return self.layout.place


def _natural(names: pl.Series) -> IntArray:
    """Rank names with their numbers as numbers: sample 9 comes before sample 10."""
    padded = [NUMBER.sub(lambda found: found.group().zfill(DIGITS), name) for name in names.cast(pl.String).to_list()]
    return pl.Series(padded).rank("ordinal").to_numpy().astype(np.int64)


def _reward(batch: Batch) -> FloatArray | None:
    return batch._figure("reward")


def _advantage(batch: Batch) -> FloatArray | None:
    """Return the advantage of each row where it is one number a row, or the same at all of the policy's tokens."""
    figure = batch._figure(ADVANTAGE)
    if figure is not None:
        return figure
    if "advantage" not in batch.frame.columns or not isinstance(batch.frame["advantage"].dtype, pl.List):
        return None
    tokens = batch.flat("advantage")
    if tokens is None:
        return None
    sums = batch.sums("advantage", lambda: tokens, MODEL, ends=True)
    same = (sums.count > 0) & (sums.high - sums.low <= 1e-6 * np.maximum(np.abs(sums.high), 1.0))
    return np.where(same, sums.high, np.nan) if same[sums.count > 0].all() else None


def _own_length(batch: Batch) -> FloatArray | None:
    own = batch.mask(MODEL)
    return None if own is None else batch.sums(MODEL, lambda: own.astype(np.float64), MODEL).count


def _calls(batch: Batch) -> FloatArray | None:
    if "tool_names" not in batch.frame.columns or batch.frame["tool_names"].dtype != pl.List(pl.String):
        return None
    return batch.frame["tool_names"].list.len().cast(pl.Float64).fill_null(np.nan).to_numpy()


def _failed(batch: Batch) -> FloatArray | None:
    if "tool_failed" not in batch.frame.columns or batch.frame["tool_failed"].dtype != pl.List(pl.Boolean):
        return None
    return batch.frame["tool_failed"].list.sum().cast(pl.Float64).fill_null(np.nan).to_numpy()


def _unended(batch: Batch) -> FloatArray | None:
    """Return 1 for rows whose last token is none of those that end answers, else 0."""
    if "token_ids" not in batch.frame.columns or not isinstance(batch.frame["token_ids"].dtype, pl.List):
        return None
    last, own = batch.frame["token_ids"].list.last(), batch.row("own_length")
    if last.null_count() == last.len() or own is None:
        return None
    shorter = last.filter(pl.Series(own < own.max())).drop_nulls()  # cut ones are the longest
    counts = Counter(shorter.to_list())
    ends = [token for token, count in counts.items() if count >= END_SHARE * shorter.len()]
    return (~last.is_in(ends)).cast(pl.Float64).fill_null(1.0).to_numpy()


ROWS: Final[Mapping[str, Callable[[Batch], FloatArray | None]]] = {
    "reward": _reward,
    "advantage": _advantage,
    "own_length": _own_length,
    "length": lambda batch: batch.layout.lengths.astype(np.float64),
    "calls": _calls,
    "failed": _failed,
    "unended": _unended,
}


def component(batch: Batch, name: str) -> str | None:
    """Return the column of a component of the reward, by its name in the log."""
    return COMPONENT + name if COMPONENT + name in batch.frame.columns else None

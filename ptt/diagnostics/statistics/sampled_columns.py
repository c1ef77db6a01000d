"""The sampled sequences of a run laid end to end, every token in its place, and windows of steps over them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.flat_lists import flatten
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.fault_since import MIN_SEQUENCES, cut_windows
from ptt.diagnostics.statistics.fill_values import Fills
from ptt.diagnostics.statistics.pair_sample import without_placeholders
from ptt.diagnostics.statistics.placeholder_values import NO_FILLS
from ptt.diagnostics.statistics.slices import SLICES, model_runs
from ptt.diagnostics.statistics.windows import Span

ALL: Final = len(SLICES)  # both slices together, where one is asked for
WINDOW_TOKENS: Final = 4000  # of the model that a window holds where sequences are long: then fewer of them do
SUREST: Final = 1e-4  # nats: what lies closer to 0 is rounding in coarse columns, and sure in all
FEWEST_SEQUENCES: Final = 16  # of a window, however long they are


@dataclass(frozen=True)
class SampledColumns:
    """Sampled sequences in the order of their steps, end to end.

    step: of each sequence; start: where each begins, and where the last one ends; row: the sequence of each token;
    model, post: of each token, whether the policy sampled it, and whether an observation comes before it; values: of
    each column, NaN where there is no logprob.
    """

    step: IntArray
    start: IntArray
    row: IntArray
    model: BoolArray
    post: BoolArray
    values: Mapping[str, FloatArray]

    @cached_property
    def windows(self) -> tuple[Span, ...]:
        """Cut the steps into windows that hold enough tokens for a correlation."""
        usual = max(1.0, float(self.model.sum()) / max(1, len(self.step)))
        least = min(max(math.ceil(WINDOW_TOKENS / usual), FEWEST_SEQUENCES), MIN_SEQUENCES)
        return cut_windows(self.step, least=least)

    @cached_property
    def window(self) -> IntArray:
        """Return the window of each sequence."""
        firsts = np.array([window.first for window in self.windows], np.int64)
        return np.searchsorted(firsts, self.step, side="right") - 1

    @cached_property
    def sizes(self) -> Mapping[str, FloatArray]:
        """Return the logarithm of -logp of each column: how sure it is of each token."""
        with np.errstate(invalid="ignore"):
            return {name: np.log(np.maximum(-values, SUREST)) for name, values in self.values.items()}

    def inside(self, slice_: int) -> BoolArray:
        """Return which tokens the policy sampled in a slice."""
        return self.model if slice_ == ALL else self.model & (self.post == bool(slice_))


def lay_out_columns(
    samples: pl.DataFrame, observed: Collection[int], columns: Collection[str], fills: Mapping[str, Fills]
) -> SampledColumns:
    """Lay the sampled sequences out; `observed`: those that hold an observation."""
    length = pl.col("model_mask").list.len()
    rows = samples.filter(pl.col("step").is_not_null() & (length > 0)).sort("step", "seq")
    offsets, mask = flatten(rows["model_mask"])
    if mask.dtype == np.object_:
        mask = np.array([value is True for value in mask])
    mask = mask.astype(np.bool_)
    row = np.repeat(np.arange(rows.height), np.diff(offsets))
    values = {}
    for name in columns:
        fits = rows[name].is_not_null() & (rows[name].list.len() == rows["model_mask"].list.len())
        if fits.any():
            filled = np.full(len(row), np.nan)
            filled[np.repeat(fits.to_numpy(), np.diff(offsets))] = _numbers(rows[name].filter(fits))
            values[name] = without_placeholders(filled, fills.get(name, NO_FILLS))
    return SampledColumns(
        step=rows["step"].to_numpy(),
        start=offsets,
        row=row,
        model=mask,
        post=_after_observation(mask, offsets, rows["seq"].is_in(list(observed)).to_numpy()),
        values=values,
    )


def _numbers(column: pl.Series) -> npt.NDArray[Any]:
    return flatten(column)[1]


def _after_observation(mask: BoolArray, offsets: IntArray, observed: BoolArray) -> BoolArray:
    """Mark the tokens after an observation; in a sequence that holds one, any gap in the mask may be it."""
    shortest = np.where(observed, 1, np.iinfo(np.int64).max)
    runs = model_runs(mask, offsets, shortest)
    post = np.zeros(len(mask), np.bool_)
    post[mask] = np.repeat(runs.turn > 0, runs.length)
    return post

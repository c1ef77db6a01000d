"""Lay a batch of sequences end to end, leaving out the rows whose lists do not fit together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.flat_lists import flatten, list_offsets
from ptt.diagnostics.statistics.arrays import BoolArray, IntArray
from ptt.diagnostics.statistics.cells import STEP_LIMIT
from ptt.diagnostics.statistics.slices import ModelRuns, model_runs

CHUNK_TOKENS: Final = 1 << 19  # working arrays of some 4 MB each, whatever the size of a row group


@dataclass(frozen=True)
class Batch:
    """Rows whose lists agree in length, laid end to end."""

    seq: IntArray
    step: IntArray
    length: IntArray  # tokens of each row, observations included
    runs: ModelRuns
    is_model: BoolArray
    logps: dict[str, npt.NDArray[Any]]

    @property
    def stretch(self) -> IntArray:
        """Where the model tokens of each segment begin, segment 2 * row + post, and where the last one ends."""
        runs = self.runs
        tokens = np.bincount(runs.row * 2 + runs.post, weights=runs.length, minlength=2 * len(self.seq))
        return np.append(0, np.cumsum(tokens.astype(np.int64)))


def chunks(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Cut a frame between rows into pieces of about CHUNK_TOKENS tokens."""
    if not frame.height:
        return
    tokens = np.diff(list_offsets(frame["model_mask"]))
    if tokens.sum() <= CHUNK_TOKENS:
        yield frame
        return
    piece = np.cumsum(tokens) // CHUNK_TOKENS
    bounds = np.flatnonzero(np.diff(piece, prepend=-1, append=-1))
    for start, stop in pairwise(bounds):
        yield frame[int(start) : int(stop)]


def lay_out(frame: pl.DataFrame, logps: list[str], min_observation: int) -> Batch | None:
    """Return the batch, or None where a row is null, a list is, or lists of one row differ in length."""
    if any(frame[name].null_count() for name in ("step", "model_mask", *logps)):
        return None
    steps = frame["step"].to_numpy()  # expressions would wait for Polars' threads, which decode
    if len(steps) and not (steps.min() >= 0 and steps.max() < STEP_LIMIT):
        return None
    offsets, mask = flatten(frame["model_mask"])
    if mask.dtype == np.object_:  # what a null inside a mask turns it into
        return None
    flat = {name: flatten(frame[name]) for name in logps}
    if not all(np.array_equal(offsets, offsets_of_column) for offsets_of_column, _ in flat.values()):
        return None
    mask = mask.astype(np.bool_, copy=False)
    runs = model_runs(mask, offsets, _min_observation(frame, min_observation))
    return Batch(
        seq=frame["seq"].to_numpy().astype(np.int64),
        step=steps,
        length=np.diff(offsets),
        runs=runs,
        is_model=mask,
        logps={name: values for name, (_, values) in flat.items()},
    )


def is_sound(logps: list[str]) -> pl.Expr:
    """Tell rows that can be used from those that cannot; a logprob that is null as a whole is no fault."""
    mask = pl.col("model_mask")
    return pl.all_horizontal(
        pl.col("step").is_between(0, STEP_LIMIT - 1),
        mask.is_not_null(),
        mask.list.eval(pl.element().is_null()).list.any().not_(),
        *(pl.col(name).is_null() | (pl.col(name).list.len() == mask.list.len()) for name in logps),
    ).fill_null(value=False)


def _min_observation(frame: pl.DataFrame, min_observation: int) -> IntArray:
    shortest = np.full(frame.height, min_observation, np.int64)
    if "tool_count" in frame.columns:  # the row names its tools: any gap is one; or it has none: no gap is
        count = frame["tool_count"].fill_null(-1).to_numpy()
        shortest[count > 0] = 1
        shortest[count == 0] = np.iinfo(np.int64).max
    return shortest

"""Whether a token of a trajectory comes before any observation or after one."""

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

TEXT_ONLY: Final = 0
POST_TOOL: Final = 1
SLICES: Final = ("text_only", "post_tool")

MIN_OBSERVATION: Final = 4
"""Without proof of a tool, a shorter run of non-model tokens may be a template's `<eos>` and newline."""


@dataclass(frozen=True)
class ModelRuns:
    """Runs of model tokens in a batch of masks laid end to end, in order."""

    row: IntArray  # row of each run
    turn: IntArray  # observations before the run in its row
    length: IntArray  # tokens in the run
    place: IntArray  # where in its row the run begins
    since: IntArray  # tokens between the end of the last observation and the run; 0 if there was none before
    observations: IntArray  # per row: how many observations it holds

    @property
    def post(self) -> IntArray:
        """1 where an observation precedes the run in its row, else 0."""
        return (self.turn > 0).astype(np.int64)


def model_runs(mask: BoolArray, offsets: IntArray, min_observation: IntArray) -> ModelRuns:
    """Cut masks into runs and find which model runs follow an observation.

    An observation is a run of false with true on both sides, at least `min_observation[row]` long. `mask` holds
    all rows end to end, row i from offsets[i] to offsets[i + 1].
    """
    rows = len(offsets) - 1
    total = len(mask)
    if total == 0:
        empty = np.empty(0, np.int64)
        return ModelRuns(empty, empty, empty, empty, empty, np.zeros(rows, np.int64))
    breaks = np.empty(total, np.bool_)
    breaks[0] = True
    np.not_equal(mask[1:], mask[:-1], out=breaks[1:])
    starts_of_rows = offsets[:-1]
    breaks[starts_of_rows[starts_of_rows < total]] = True
    start = np.flatnonzero(breaks)
    length = np.diff(np.append(start, total))
    row = np.searchsorted(offsets, start, side="right") - 1
    is_model = mask[start]
    same_row_before = np.append(False, row[1:] == row[:-1])
    same_row_after = np.append(row[1:] == row[:-1], False)
    observation = ~is_model & same_row_before & same_row_after & (length >= min_observation[row])
    observations_so_far = np.cumsum(observation)
    first_run = np.searchsorted(row, row)  # index of the first run of the same row
    before_row = (observations_so_far - observation)[first_run]
    turn = observations_so_far - before_row
    last = np.maximum.accumulate(np.where(observation, np.arange(len(start)), 0))  # observation before each run
    since = np.where(turn > 0, start - (start + length)[last], 0)
    return ModelRuns(
        row=row[is_model],
        turn=turn[is_model],
        length=length[is_model],
        place=(start - starts_of_rows[row])[is_model],
        since=since[is_model],
        observations=np.bincount(row[observation], minlength=rows),
    )


CHUNK_TOKENS: Final = 1 << 19  # working arrays of about 4 MB each, whatever the size of a row group


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
    """Tell usable rows from unusable ones; a logprob list that is null as a whole does not count against a row."""
    mask = pl.col("model_mask")
    return pl.all_horizontal(
        pl.col("step").is_between(0, STEP_LIMIT - 1),
        mask.is_not_null(),
        mask.list.eval(pl.element().is_null()).list.any().not_(),
        *(pl.col(name).is_null() | (pl.col(name).list.len() == mask.list.len()) for name in logps),
    ).fill_null(value=False)


def _min_observation(frame: pl.DataFrame, min_observation: int) -> IntArray:
    shortest = np.full(frame.height, min_observation, np.int64)
    if "tool_count" in frame.columns:  # a row that names tools: any gap is an observation; one without tools: no gap is
        count = frame["tool_count"].fill_null(-1).to_numpy()
        shortest[count > 0] = 1
        shortest[count == 0] = np.iinfo(np.int64).max
    return shortest

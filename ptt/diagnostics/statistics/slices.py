"""Where in a trajectory a token stands: before any observation, or after one."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.statistics.arrays import BoolArray, IntArray

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
    since: IntArray  # tokens between the end of the last observation and the run; 0 where there was none
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

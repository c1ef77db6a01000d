"""Tell tool output from the model's own tokens where no mask is saved: tool tokens have a log-probability of 0.0."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

SHORTEST: Final = 2  # zeros in a row that are tool output; a single one is a token the model was sure of


def model_mask(logps: Array, calls: int | None) -> tuple[Array, bool]:
    """Tell tokens of the model, (T,) bool, from tool output; and whether there were more runs of zeros than calls.

    `calls`: the tool calls of the sample, None where they are not recorded.
    """
    mask = np.ones(len(logps), bool)
    edges = np.flatnonzero(np.diff(logps == 0.0, prepend=False, append=False))
    starts, ends = edges[::2], edges[1::2]
    long = ends - starts >= SHORTEST
    starts, ends = starts[long], ends[long]
    more = calls is not None and len(starts) > calls
    if more:
        kept = np.argsort(starts - ends, kind="stable")[: max(calls or 0, 0)]
        starts, ends = starts[kept], ends[kept]
    marks = np.zeros(len(logps) + 1, np.int64)
    np.add.at(marks, starts, 1)
    np.add.at(marks, ends, -1)
    mask[np.cumsum(marks[:-1]) > 0] = False
    return mask, bool(more and calls)

"""Scores of ranks by what the same work takes them: against the best rank, and against each one's own best.

After NVIDIA's resiliency extension (straggler detection): a score of 1 is as fast as the best, 0.5 takes twice as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

WINDOW_STEPS: Final = 20  # steps a score is over
MIN_STEPS: Final = 10  # that all ranks recorded
MAD_TO_SD: Final = 1.4826
STEP_AR1: Final = 0.8  # AR(1) of a rank's own noise that the scatter of a window allows for


@dataclass(frozen=True)
class RankScores:
    """Scores by window and rank."""

    places: tuple[str, ...]
    starts: IntArray  # first step of each window
    relative: FloatArray  # windows x ranks: time of the best rank over this rank's
    own: FloatArray  # windows x ranks: this rank's best time so far over its time now
    beyond: BoolArray  # windows x ranks: slower than the middle rank by more than noise
    overall: FloatArray  # ranks: over the whole run


def score_ranks(times: Mapping[str, tuple[IntArray, FloatArray]], *, sds: float = 4.0) -> RankScores | None:
    """Score ranks over the steps at which all have a positive time; None where there are too few of either.

    Times are compared within a step, on the log scale, so that long steps weigh no more than short ones; the middle of
    a window is its median, so that one hiccup makes no straggler.
    """
    ranks = tuple(times)
    common = _common(times)
    if len(ranks) < 2 or len(common) < MIN_STEPS:
        return None
    logs = np.log(np.stack([values[np.searchsorted(steps, common)] for steps, values in times.values()], axis=1))
    off = logs - np.median(logs, axis=1, keepdims=True)
    size = min(WINDOW_STEPS, len(common))
    bounds = np.arange(0, len(common) - size + 1, size)
    middle = np.stack([np.median(off[at : at + size], axis=0) for at in bounds])
    level = np.stack([np.median(logs[at : at + size], axis=0) for at in bounds])
    scatter = MAD_TO_SD * np.median(np.abs(off - np.median(off, axis=0)), axis=0)
    noise = sds * scatter * math.sqrt((1 + STEP_AR1) / (1 - STEP_AR1) / size)
    overall = np.median(off, axis=0)
    return RankScores(
        places=ranks,
        starts=common[bounds],
        relative=np.exp(middle.min(axis=1, keepdims=True) - middle),
        own=np.exp(np.minimum.accumulate(level, axis=0) - level),
        beyond=middle > noise,
        overall=np.exp(overall.min() - overall),
    )


def _common(times: Mapping[str, tuple[IntArray, FloatArray]]) -> IntArray:
    shared: IntArray | None = None
    for steps, values in times.values():
        with np.errstate(invalid="ignore"):
            usable = np.unique(steps[np.isfinite(values) & (values > 0)])
        shared = usable if shared is None else np.intersect1d(shared, usable)
    return np.empty(0, np.int64) if shared is None else shared


def weighted_share(flags: BoolArray, *, weight: float = 0.3) -> float:
    """Return the exponentially weighted share of flagged windows at the end: high is chronic, low was one-off."""
    share = 0.0
    for flag in flags.tolist():
        share = (1 - weight) * share + weight * float(flag)
    return share

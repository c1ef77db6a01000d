"""Whether a mismatch leaves the level that the run itself began with, though it stays within its limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.statistics.arrays import IntArray
from ptt.diagnostics.statistics.sawtooth import Sawtooth, find_sawtooth

GREW: Final = 3.0  # times the level of the first steps
EARLY: Final = 5  # a rise before it is the first updates' and no jump: these values are the run's own level
OWN_FLOOR: Final = 0.01  # of the limit: what stays below it harms nothing, whatever it was before
FIRST_VALUES: Final = 3  # the level at the start
SPREADS: Final = (
    ("mismatch/logp_abs_std", "mismatch/logp_abs_mean", 1.3),
    ("mismatch/prob_diff_std", "mismatch/prob_diff", 1.3),
    ("mismatch/kl_std", "mismatch/kl", 1.5),
    ("mismatch/logp_abs_max", "mismatch/logp_abs_mean", 2.0),
)
"""Spread, mean, and how many times more the first grows where a part of the tokens gets worse, and not all alike."""
STILL: Final = 1.3  # times the first level, over a third of the run: the updates alone do not move it
AT_ONCE: Final = 5.0  # times from one step to the next: a jump
AT_ALL_STEPS: Final = 0.9
PROMISE: Final = "true_on_policy_mode"
"""The setting under which both sides are to compute alike; one that makes a side repeatable promises less."""
OF_ONE_SIDE: Final = "batch_invariant"  # the same, where it is set for both: twice, or below no side's name
TO_THE_BIT: Final = ("true_on_policy_mode", "sglang_rl_on_policy_target", "rl_on_policy_target")
"""Settings that promise no difference at all between engine and trainer, as slime and SGLang name them."""
PROMISED: Final = ("true", "fsdp", "fsdp_tp", "megatron")  # the target is the trainer's backend
FELL: Final = 5.0  # times below the level around it
SAW: Final = 2.0  # times, by which a level falls back regularly: noise and lengths move it less
SAW_TOP: Final = 0.5  # of the limit, that the level reaches before it falls
WORST: Final = 2.5  # nats: in bfloat16 the worst token of a batch differs by less
BESIDE: Final = {"length": "len/response_mean", "entropy": "entropy", "lag": "staleness/mean", "rate": "lr"}


def own_limit(level: Series, metrics: Mapping[str, Series], limit: float) -> float | None:
    """Return the size below `limit` that the last values exceed, and the run's own first values do not by far, or None.

    It is `GREW` times the first values and above all of them, and by as much more as what may move the mismatch has
    grown: the policy's entropy, the length (unless a part of the tokens gets worse), the lag and the learning rate. It
    lies at least halfway, in factors, to the last values: noise of a low level does not reach it. level: sizes, 0 where
    both sides agree.
    """
    values = level.finite()[1]
    late = float(np.median(values[-level.width :]))
    if len(values) < EARLY + level.width or late > limit:
        return None
    own = max(GREW * float(np.median(values[:FIRST_VALUES])), float(values[:EARLY].max()))
    moved = [name for kind, name in BESIDE.items() if name in metrics and not (kind == "length" and _part(metrics))]
    own *= max((growth_of(metrics[name]) for name in moved), default=1.0)
    own = max(own, math.sqrt(float(np.median(values[:FIRST_VALUES])) * late), OWN_FLOOR * limit)
    return own if own < min(late, limit) else None


def saw_of(level: Series, limit: float) -> Sawtooth | None:
    """Return the regular falls of a level that climbs to its limit, or near it, and falls far each time, or None."""
    teeth = find_sawtooth(level.steps, level.values)
    if teeth is None or level.values.max() > limit:
        return teeth
    before = level.values[np.maximum(np.searchsorted(level.steps, teeth.falls) - 1, 0)]
    return teeth if teeth.factor >= SAW and np.median(before) >= SAW_TOP * limit else None


def resets_of(level: Series, agrees: float) -> IntArray:
    """Return the places at which a level falls far at once, to agreement, and stays there for some steps."""
    values = level.values
    if len(values) < 2 * EARLY:
        return np.zeros(0, np.int64)
    windows = sliding_window_view(values, EARLY)
    medians = np.median(windows, axis=1)
    fell = medians[:-EARLY] >= GREW * medians[EARLY:]
    fell &= (windows.max(axis=1)[EARLY:] <= agrees) & (values[EARLY - 1 : -EARLY] > agrees)
    return np.flatnonzero(fell) + EARLY


def left_zero(level: Series, settings: Mapping[str, JsonScalar]) -> bool:
    """Return whether a mismatch is 0 to the bit at first and never again, though kernels are to compute alike."""
    invariant = [(key, value) for key, value in settings.items() if key.rpartition(".")[2] == OF_ONE_SIDE]
    both = len(invariant) > 1 or any(key == OF_ONE_SIDE for key, _ in invariant)
    promised = (
        "bit_wise" in level.raw_name
        or (both and all(value is True for _, value in invariant))
        or any(value is True for key, value in settings.items() if key.rpartition(".")[2] == PROMISE)
    )
    values = level.values
    return promised and len(values) >= 2 * EARLY and values[0] == 0 and bool((values[1:] > 0).mean() >= AT_ALL_STEPS)


def on_policy_to_the_bit(settings: Mapping[str, JsonScalar]) -> str | None:
    """Return the setting, with its value, under which both sides are to agree to the bit, or None."""
    for key, value in settings.items():
        if key.rpartition(".")[2] in TO_THE_BIT and str(value).lower() in PROMISED:
            return f"{key}={value}"
    return None


def jump_of(level: Series, limit: float) -> int | None:
    """Return the place at which a level that agreed is off at once and stays so, or None."""
    above = level.values > limit
    place = int(np.argmax(above))
    if place < EARLY or not above.any() or np.mean(above[place:]) < AT_ALL_STEPS:
        return None
    values = level.values
    before, after = np.median(values[:place]), np.median(values[place : place + FIRST_VALUES])
    if after >= AT_ONCE * before:
        return place
    still = np.median(values[place - 1 - FIRST_VALUES : place - 1]) <= STILL * before
    return place - int(values[place - 1] >= GREW * before) if still and after >= GREW * before else None


def _part(metrics: Mapping[str, Series]) -> bool:
    """Return whether the worst tokens leave what arithmetic can do, and their mean does not keep up."""
    spread, mean, factor = SPREADS[-1]
    if spread not in metrics or mean not in metrics:
        return False
    worst = metrics[spread].finite()[1]
    late = float(np.median(worst[-metrics[spread].width :])) if len(worst) else 0.0
    return late > WORST and tail_growth(metrics[spread], metrics[mean]) >= factor


def tail_growth(spread: Series, mean: Series) -> float:
    """Return the growth of a spread over the growth of its mean; 1 where either is unknown."""
    _, one, two = np.intersect1d(spread.finite()[0], mean.finite()[0], return_indices=True)
    above, below = spread.finite()[1][one], mean.finite()[1][two]
    ratios = above[below > 0] / below[below > 0]
    if len(ratios) < EARLY + mean.width or not np.median(ratios[:EARLY]) > 0:
        return 1.0
    return float(np.median(ratios[-mean.width :]) / np.median(ratios[:EARLY]))


def growth_of(series: Series) -> float:
    """Return the factor by which a metric is higher at the end than at the start, at least 1; infinite from 0 on."""
    values = series.finite()[1]
    if not len(values):
        return 1.0
    first, late = float(np.median(values[:EARLY])), float(np.median(values[-series.width :]))
    return max(late / first, 1.0) if first > 0 else math.inf if late > 0 else 1.0

"""Since when and until when a fault of the recorded data holds: windows of sampled sequences, then the step itself.

A check sorts windows of steps into sound and faulty by limits of its own; each window holds enough sequences for that.
`locate_fault` then finds the first and the last faulty step from a value of each sequence, or of each step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.change_point import SUPPORT_NATS
from ptt.diagnostics.statistics.windows import Span

MIN_SEQUENCES: Final = 64  # in a window: their tokens give a correlation to a few hundredths
MAX_WINDOWS: Final = 24  # a fault that holds for a twentieth of the run still fills one
LEAST_SCALE: Final = 0.05  # of the distance between both levels: caps the weight of one value at 20 nats
ROUNDS: Final = 3  # of reclassifying: a window in which the fault begins holds both kinds
RATE_EDGE: Final = 1e-3  # a rate of exactly 0 or 1 would let one odd token decide


@dataclass(frozen=True, kw_only=True)
class FaultSpan:
    """The recorded steps from and to which a fault most likely holds, both included.

    since_interval: the earliest and latest step at which it may begin, unrecorded steps included; until_interval: the
    same for its last step. from_start, to_end: no sound step lies before or after.
    """

    since: int
    since_interval: tuple[int, int]
    until: int
    until_interval: tuple[int, int]
    from_start: bool
    to_end: bool

    def holds(self, steps: IntArray) -> BoolArray:
        """Return at which of these steps the fault holds."""
        return (steps >= self.since) & (steps <= self.until)


def cut_windows(steps: IntArray, *, least: int = MIN_SEQUENCES, most: int = MAX_WINDOWS) -> tuple[Span, ...]:
    """Cut the steps of sequences, one each and in any order, into windows of at least `least` sequences, one at least.

    They are as many as that allows, `most` at most, and of as equal numbers of sequences as whole steps allow.
    """
    distinct, counts = np.unique(steps, return_counts=True)
    if not len(distinct):
        return ()
    target = max(least, math.ceil(len(steps) / most))
    firsts, held = [0], 0
    for at, count in enumerate(counts.tolist()):
        if held >= target:
            firsts.append(at)
            held = 0
        held += count
    if held < target and len(firsts) > 1:
        firsts.pop()
    lasts = [*(at - 1 for at in firsts[1:]), len(distinct) - 1]
    return tuple(Span(int(distinct[one]), int(distinct[two])) for one, two in zip(firsts, lasts, strict=True))


def window_numbers(steps: IntArray, windows: Sequence[Span]) -> IntArray:
    """Return the window of each of the steps that these were cut from."""
    return np.searchsorted(np.array([window.first for window in windows]), steps, side="right") - 1


def fault_span(steps: IntArray, weights: FloatArray) -> FaultSpan | None:
    """Return the stretch of steps whose weights have the largest sum, and all ends that lose at most SUPPORT_NATS.

    weights: log likelihood ratio of each value, faulty over sound, in nats; NaN where it says nothing. None where no
    step is evidence of a fault. Of equal stretches the shortest wins.
    """
    distinct, place = np.unique(steps, return_inverse=True)
    if not len(distinct):
        return None
    total = np.append(0.0, np.cumsum(np.bincount(place, weights=np.nan_to_num(weights), minlength=len(distinct))))
    gain = total[1:] - np.minimum.accumulate(total[:-1])
    last = int(np.argmax(gain))
    if gain[last] <= 0:
        return None
    starts = total[last + 1] - total[: last + 1]
    first = last - int(np.argmax(starts[::-1]))
    ends = total[first + 1 :] - total[first]
    begin = np.flatnonzero(starts >= gain[last] - SUPPORT_NATS)
    end = first + np.flatnonzero(ends >= gain[last] - SUPPORT_NATS)
    before, after = int(begin[0]) - 1, int(end[-1]) + 1
    return FaultSpan(
        since=int(distinct[first]),
        since_interval=(int(distinct[before]) + 1 if before >= 0 else int(distinct[0]), int(distinct[begin[-1]])),
        until=int(distinct[last]),
        until_interval=(
            int(distinct[end[0]]),
            int(distinct[after]) - 1 if after < len(distinct) else int(distinct[-1]),
        ),
        from_start=first == 0,
        to_end=last == len(distinct) - 1,
    )


def weigh_values(values: FloatArray, sound: BoolArray, faulty: BoolArray) -> FloatArray:
    """Return the log likelihood ratio of each value, faulty over sound, in nats; NaN where the value is NaN.

    Both are taken as Laplace distributions with their own medians and one mean deviation, so an outlier counts no more
    than a value at a median. All 0 where one kind has no value, or both have the same median.
    """
    known = np.isfinite(values)
    sound, faulty = sound & known, faulty & known
    if not sound.any() or not faulty.any():
        return np.where(known, 0.0, np.nan)
    levels = float(np.median(values[sound])), float(np.median(values[faulty]))
    apart = np.concatenate([np.abs(values[sound] - levels[0]), np.abs(values[faulty] - levels[1])])
    scale = max(float(apart.mean()), LEAST_SCALE * abs(levels[1] - levels[0]))
    if scale == 0.0:
        return np.where(known, 0.0, np.nan)
    weights: FloatArray = (np.abs(values - levels[0]) - np.abs(values - levels[1])) / scale
    return weights


def weigh_counts(hits: FloatArray, trials: FloatArray, sound: float, faulty: float) -> FloatArray:
    """Return how much likelier counts are at the rate `faulty` than at `sound`, in nats; rates lie from 0 to 1."""
    sound, faulty = (min(max(rate, RATE_EDGE), 1 - RATE_EDGE) for rate in (sound, faulty))
    weights: FloatArray = hits * math.log(faulty / sound) + (trials - hits) * math.log((1 - faulty) / (1 - sound))
    return weights


def locate_fault(
    steps: IntArray, values: FloatArray, windows: Sequence[Span], faulty: Sequence[bool | None]
) -> FaultSpan | None:
    """Return since and until when a fault holds that a check found in some windows; None where it found it in none.

    values: of each sequence, or of each step, one number that tells the two kinds apart (NaN: it tells nothing).
    faulty: of each window, None where it could not be judged. Where no window is sound, it is all of the run.
    """
    wrong = np.array([one is not None and bool(one) for one in faulty])
    right = np.array([one is not None and not one for one in faulty])
    if not wrong.any() or not len(steps):
        return None
    number = window_numbers(steps, windows)
    if not right.any():
        return fault_span(steps, np.ones(len(steps)))
    span = None
    is_sound, is_faulty = right[number], wrong[number]
    for _ in range(ROUNDS):
        found = fault_span(steps, weigh_values(values, is_sound, is_faulty))
        if found is None or found == span:
            break
        span = found
        is_faulty, is_sound = span.holds(steps), ~span.holds(steps)
    return span or _of_windows(windows, wrong)


def _of_windows(windows: Sequence[Span], wrong: BoolArray) -> FaultSpan:
    """Return the stretch from the first faulty window to the last, where single values do not tell the two apart."""
    first, last = int(np.flatnonzero(wrong)[0]), int(np.flatnonzero(wrong)[-1])
    return FaultSpan(
        since=windows[first].first,
        since_interval=(windows[max(0, first - 1)].first, windows[first].last),
        until=windows[last].last,
        until_interval=(windows[last].first, windows[min(len(windows) - 1, last + 1)].last),
        from_start=first == 0,
        to_end=last == len(windows) - 1,
    )

"""One metric over the steps of a run: its mean, where that passes a limit, and how closely that is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.statistics.trend import rolling_mean

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ROLLING_STEPS: Final = 20
"""Metrics are judged by the mean over this many logged steps: no verdict hangs on a single one."""
MIN_LOGGED: Final = 10
"""Fewer logged values than this are not judged: half of them would be the run's warm-up."""
ALARM_DRAWS: Final = 200
ALARM_REACH: Final = 1000  # logged values on either side of an alarm that are redrawn
ALARM_SEED: Final = 20_260_128
NOT_A_NUMBER: Final = (1, 2, 3)  # flags of NaN and the infinities; a null is weaker evidence (schema.Flag)
DEAD_VALUES: Final = 3  # at the end, all NaN: a single one may be the last row's own trouble
LOST_SHARE: Final = 0.2  # of what was logged: so much missing, the rest is a selection
WARM: Final = 5
"""At the start of a run a mean may be over so few: a run that dies within 20 steps is to be told so."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric over steps; `values` is NaN wherever `flags` is not 0 (see schema.Flag)."""

    name: str
    raw_name: str
    steps: IntArray
    values: FloatArray
    flags: npt.NDArray[np.uint8]
    logged: int = 0  # values before the series was condensed to means of blocks; 0: it was not

    @property
    def count(self) -> int:
        """How many values were logged, finite or not."""
        return self.logged or len(self.steps)

    @property
    def not_numbers(self) -> int:
        """How many values were logged as NaN or an infinity; a null may be a row that does not log the metric."""
        return int(np.isin(self.flags, NOT_A_NUMBER).sum())

    @property
    def lost(self) -> bool:
        """Whether the values are no numbers from some step up to the end, or in a fifth of the run."""
        bad = np.isin(self.flags, NOT_A_NUMBER)
        return bool(bad[-DEAD_VALUES:].all() and len(bad) >= DEAD_VALUES) or self.not_numbers > LOST_SHARE * self.count

    @property
    def width(self) -> int:
        """How many logged values a rolling mean takes: 20, and a third of them in a run that has fewer than 60."""
        return min(ROLLING_STEPS, max(5, len(self.finite()[0]) // 3))

    def rolling(self) -> tuple[IntArray, FloatArray]:
        """Steps with a value, and the mean over the last `width` of them; NaN before five were seen."""
        steps, values = self.finite()
        return steps, rolling_mean(values, self.width, minimum=WARM)

    def rolling_median(self) -> FloatArray:
        """The median over each full window of `width` finite values."""
        return np.median(sliding_window_view(self.finite()[1], self.width), axis=1)

    def excess(self, limit: float) -> int | None:
        """Give the first step at which the rolling mean lies above `limit` and half of its values do, lastingly.

        The second condition keeps one wild step from lifting the mean; "lastingly" means that half of the values of
        the half window to come do so as well.
        """
        steps, values = self.finite()
        above = (values > limit).astype(np.float64)
        mean = rolling_mean(values, self.width, minimum=WARM)
        share = rolling_mean(above, self.width, minimum=WARM)
        ahead = rolling_mean(above[::-1], max(2, self.width // 2), minimum=1)[::-1]
        to_come = np.append(ahead[1:], 1.0)
        with np.errstate(invalid="ignore"):
            places = np.flatnonzero((mean > limit) & (share >= 0.5) & (to_come >= 0.5))
        return int(steps[places[0]]) if len(places) else None

    def first_above(self, limit: float, alarm: int) -> int:
        """Give the first step above `limit` among the values whose mean raised the alarm at step `alarm`."""
        steps, values = self.finite()
        place = int(np.searchsorted(steps, alarm))
        window = np.arange(max(0, place - self.width + 1), place + 1)
        return int(steps[window[values[window] > limit][0]])

    def finite(self) -> tuple[IntArray, FloatArray]:
        """Steps and values where there is a value."""
        usable = np.isfinite(self.values)
        return self.steps[usable], self.values[usable]


def condensed(series: Series, most: int) -> Series:
    """Give the means of at most `most` blocks of equal size, each at its last step; a shorter series as it is.

    What is not finite stands between them as it was.
    """
    steps, values = series.finite()
    size = -(-len(values) // most)
    if size <= 1:
        return series
    starts = np.arange(0, len(values), size)
    counts = np.diff(np.append(starts, len(values)))
    means = np.add.reduceat(values, starts) / counts
    bad = ~np.isfinite(series.values)
    at = np.concatenate([steps[starts + counts - 1], series.steps[bad]])
    order = np.argsort(at, kind="stable")
    flags = np.concatenate([np.zeros(len(means), series.flags.dtype), series.flags[bad]])
    return replace(
        series,
        steps=at[order],
        values=np.concatenate([means, series.values[bad]])[order],
        flags=flags[order],
        logged=series.count,
    )


def excess_interval(series: Series, limit: float, alarm: int) -> tuple[int, int]:
    """Give the 95 % interval of the step at which a series' mean passes `limit`, around the step `alarm` it did.

    Moving-block bootstrap (Kunsch 1989): what the values lie off their running median is redrawn in blocks as long as
    the mean is wide, on the log scale where all values are positive. A redrawing that never passes counts as the end.
    """
    steps, values = series.finite()
    place = int(np.searchsorted(steps, alarm))
    near = slice(max(0, place - ALARM_REACH), place + ALARM_REACH)
    steps, values = steps[near], values[near]
    logs = bool((values > 0).all())
    levels = np.log(values) if logs else values
    half = series.width // 2
    around = sliding_window_view(np.pad(levels, half, mode="edge"), 2 * half + 1)
    centre = np.median(around, axis=1)
    off = levels - centre
    blocks = -(-len(off) // series.width)
    generator = np.random.default_rng(ALARM_SEED)
    seen = [alarm]
    for starts in generator.integers(0, len(off) - series.width + 1, size=(ALARM_DRAWS, blocks)):
        drawn = centre + np.concatenate([off[start : start + series.width] for start in starts])[: len(off)]
        found = replace(series, steps=steps, values=np.exp(drawn) if logs else drawn).excess(limit)
        seen.append(int(steps[-1]) if found is None else found)
    low, high = np.percentile(seen, [2.5, 97.5], method="nearest")
    return min(int(low), alarm), max(int(high), alarm)

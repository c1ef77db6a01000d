"""When a noisy curve that rises passed a level for good: isotonic regression, and how closely that is known."""

from __future__ import annotations

from typing import Final

import numpy as np

from ptt.diagnostics.statistics.arrays import FloatArray

DRAWS: Final = 400
SEED: Final = 20_261_123
INTERVAL: Final = (2.5, 97.5)
SPREAD: Final = 2.5  # times the residuals: a monotone fit follows noise of steps that follow each other


def level_crossing(values: FloatArray, level: float) -> int | None:
    """Return the first index at which the best non-decreasing fit of values, (n,), lies above a level, or None.

    Where that is needs no fit: the sum of what values lie above the level is least just before it.
    """
    sums = np.concatenate([[0.0], np.cumsum(values - level)])
    least = len(sums) - 1 - int(np.argmin(sums[::-1]))  # of equals the last: above, not at it
    return least if least < len(values) else None


def crossing_interval(values: FloatArray, level: float, *, draws: int = DRAWS) -> tuple[int, int]:
    """Return the 95% interval of the index at which values pass a level; len(values): not within them.

    What they lie off the best non-decreasing fit is redrawn in blocks of about the root of their number (moving-block
    bootstrap, Kunsch 1989), SPREAD times as large.
    """
    fit = isotonic_fit(values)
    off = SPREAD * (values - fit)
    count = len(values)
    size = max(1, round(count**0.5))
    starts = np.random.default_rng(SEED).integers(0, count - size + 1, size=(draws, -(-count // size)))
    drawn = fit + off[(starts[:, :, None] + np.arange(size)).reshape(draws, -1)[:, :count]]
    sums = np.concatenate([np.zeros((draws, 1)), np.cumsum(drawn - level, axis=1)], axis=1)
    least = count - np.argmin(sums[:, ::-1], axis=1)
    low, high = (int(bound) for bound in np.percentile(least, INTERVAL, method="nearest"))
    return low, high


def isotonic_fit(values: FloatArray) -> FloatArray:
    """Return the non-decreasing values nearest to these by least squares (pool adjacent violators)."""
    sums: list[float] = []
    counts: list[int] = []
    for value in values.tolist():
        total, count = value, 1
        while sums and sums[-1] * count >= total * counts[-1]:
            total, count = total + sums.pop(), count + counts.pop()
        sums.append(total)
        counts.append(count)
    return np.repeat(np.array(sums) / np.array(counts), counts)

"""How far whole sequences are off, as the mean log |u| of their tokens: by rank, step, prompt and place in the file."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray, dot
from ptt.diagnostics.statistics.scored_tokens import ScoredTokens

MIN_OF_SEQUENCE: Final = 4  # tokens of a sequence with a level
MIN_PART: Final = 50  # tokens on either side of such a comparison
MIN_PROMPTS: Final = 8
BINS: Final = 24  # of steps
MIN_BINS: Final = 8  # fewer show no course


def sequence_levels(log: FloatArray, row: IntArray, use: BoolArray, rows: int) -> FloatArray:
    """Return the mean log |u| of each sequence; NaN with too few tokens."""
    count = np.bincount(row[use], minlength=rows)
    total = np.bincount(row[use], weights=log[use], minlength=rows)
    return np.where(count >= MIN_OF_SEQUENCE, total / np.maximum(count, 1), math.nan)


def _between(levels: FloatArray, key: FloatArray) -> tuple[FloatArray, float]:
    """Return the mean level of each group, in order, and the share of the levels' variance between groups."""
    known = np.isfinite(levels) & np.isfinite(key)
    groups, index = np.unique(key[known], return_inverse=True)
    if len(groups) < 2:
        return np.empty(0), math.nan
    value = levels[known]
    means = np.bincount(index, weights=value) / np.bincount(index)
    total = float(np.square(value - value.mean()).sum())
    return means, float(np.square(means[index] - value.mean()).sum()) / total if total > 0 else math.nan


def correlation(x: FloatArray, y: FloatArray) -> float:
    """Return Pearson's correlation; NaN where one of the two never changes."""
    dx, dy = x - x.mean(), y - y.mean()
    size = math.sqrt(dot(dx, dx) * dot(dy, dy))
    return dot(dx, dy) / size if size > 0 else math.nan


def by_rank(levels: FloatArray, rank: FloatArray) -> dict[str, float]:
    """Return how far the first rank lies above the second, and the share of the variance between ranks."""
    means, share = _between(levels, rank)
    top = np.sort(means)[::-1]
    return {"one_rank": float(top[0] - top[1]) if len(top) > 1 else math.nan, "rank_share": share}


def by_order(levels: FloatArray, tokens: ScoredTokens) -> dict[str, float]:
    """Return how the levels of a step go with the prompt and with the order in the file; each sample counts once."""
    first = np.sort(np.unique(tokens.sample, return_index=True)[1])
    rows = first[np.isfinite(levels[first])]
    step = np.unique(tokens.step[rows], return_inverse=True)[1]
    means = np.bincount(step, weights=levels[rows]) / np.maximum(np.bincount(step), 1)
    level, prompt = levels[rows] - means[step], tokens.prompt[rows]
    within = step[1:] == step[:-1]
    up = np.count_nonzero((np.diff(level) > 0) & within)
    pairs = np.count_nonzero(within)
    # Of n exchangeable values, (n - 1) / 2 are above the one before, with variance (n + 1) / 12.
    paired = np.count_nonzero(np.bincount(step) > 1)
    climbs = (up - pairs / 2) / math.sqrt(max(float(pairs + 2 * paired), 1.0) / 12)
    share, known = _between(level, prompt)[1], prompt[np.isfinite(prompt)]
    prompts = len(np.unique(known))
    left = len(known) - prompts
    ratio = (
        share / (prompts - 1) / ((1 - share) / left) if prompts >= MIN_PROMPTS and left > 0 < 1 - share else math.nan
    )
    return {"climbs": climbs if pairs >= MIN_PART else math.nan, "by_prompt": ratio, **_classes(level, step)}


def _classes(level: FloatArray, step: IntArray) -> dict[str, float]:
    """Divide the levels in two where the classes differ most, and see how the quiet ones lie in the file."""
    if len(level) < MIN_PART:
        return {"off_share": math.nan, "off_gap": math.nan, "spaced": math.nan}
    ordered = np.sort(level)
    number, total = np.arange(1, len(level)), np.cumsum(ordered)
    low, high = total[:-1] / number, (total[-1] - total[:-1]) / (len(level) - number)
    place = int(np.argmax(number * (len(level) - number) * np.square(high - low)))
    quiet = level < (ordered[place] + ordered[place + 1]) / 2
    pairs = np.count_nonzero(quiet[1:] & quiet[:-1] & (step[1:] == step[:-1]))
    of, all_ = np.bincount(step, weights=quiet), np.bincount(step)
    expected = float((of * (of - 1) / np.maximum(all_, 1)).sum())
    return {
        "off_share": float(1 - quiet.mean()),
        "off_gap": float(high[place] - low[place]),
        "spaced": (expected - pairs) / math.sqrt(expected) if expected > 0 else math.nan,
    }


def by_step(levels: FloatArray, tokens: ScoredTokens) -> dict[str, float]:
    """Return how the levels go with the step and with the lag."""
    known = np.isfinite(levels) & np.isfinite(tokens.lag)
    by_lag = correlation(levels[known], tokens.lag[known]) if np.count_nonzero(known) >= MIN_PART else math.nan
    steps, index = np.unique(tokens.step, return_inverse=True)
    width = max(2, -(-len(steps) // BINS))
    course, _ = _between(levels, (index // width).astype(np.float64))
    share = _between(levels, tokens.step.astype(np.float64))[1]
    if len(course) < MIN_BINS:
        return {"step_share": share, "by_lag": by_lag, "fall": math.nan, "spread": math.nan, "rise": math.nan}
    return {
        "step_share": share,
        "by_lag": by_lag,
        "fall": float((np.maximum.accumulate(course) - course).max()),
        "spread": float(np.ptp(course)),
        "rise": correlation(np.arange(len(course), dtype=np.float64), course),
    }

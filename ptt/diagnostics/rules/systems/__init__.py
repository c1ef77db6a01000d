"""What the rules on machines share: series folded over the steps that belong together, parts of a step, sizes."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES
from ptt.diagnostics.evidence.run_end import DONE_SHARE, RunEnd, read_end
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.rules.single_series import derived, logarithms

FOLDS: Final = (1, 2, 3, 4, 6, 8)  # optimiser steps a generation: every so many steps, one takes far longer
LENGTHS: Final = ("tokens/step", "tokens/seen", "len/response_mean")
STEP_PARTS: Final = re.compile(
    r"^(?:train/)?(?:timing_s|timing|timing/train|timeperf|time)/|^perf/.*_(?:time|s)$|^(?:train/)?tools/.*latency_s$|^env/.*_s$"
)
WHOLE_STEP: Final = re.compile(r"(?:^|/)(?:step|total|total_step_time|step_time|step_total|train_step)$")
IDLE_PERCENT = 1.0  # of the time at work: a device that computes for the run is above it in most of its samples


def folded(series: Series) -> Series:
    """Return the means over steps that belong together, each at its last step; the series itself if none do.

    A loop that uses one generation for several updates alternates between long and short steps. The right fold is the
    one whose means scatter least for their number.
    """
    steps, values = series.finite()
    best, lowest = series, np.inf
    for size in FOLDS:
        if len(values) < MIN_VALUES * size:
            break
        end = len(values) // size * size
        means = values[:end].reshape(-1, size).mean(axis=1)
        scatter = float(np.median(np.abs(np.diff(means)))) * np.sqrt(size)
        if scatter < 0.8 * lowest:  # a finer one is kept unless a coarser one is clearly quieter
            best, lowest = derived(series, steps[size - 1 : end : size], means), scatter
    return best


def change_point(series: Series, alarm: int) -> int:
    """Return the first step of the later of two levels, around the step where a windowed mean passed a limit.

    Uses least squares over the three windows before and the one after, since a mean passes a limit long after a sudden
    rise.
    """
    steps, values = series.finite()
    index = int(np.searchsorted(steps, alarm))
    start, end = max(0, index - 3 * series.width), min(len(values), index + series.width)
    near = values[start:end]
    if len(near) < 4:
        return alarm
    sizes = np.arange(1, len(near))
    sums = np.cumsum(near)[:-1]
    gain = sums**2 / sizes + (near.sum() - sums) ** 2 / (len(near) - sizes)  # what two means explain of the squares
    split = start + 1 + int(np.argmax(gain))
    return min(int(steps[split - 1]) + 1, alarm)


def length_of(evidence: Evidence) -> Series | None:
    """Return the work of a step: tokens, or the mean response length; None if neither is logged."""
    for name in LENGTHS:
        series = evidence.metrics.get(name)
        if series is None or len(series.finite()[0]) < MIN_VALUES:
            continue
        if name != "tokens/seen":
            logs = logarithms(series)
            return derived(series, logs.steps, np.exp(logs.values))
        steps, values = series.finite()
        gained = np.diff(values) / np.diff(steps)
        usable = gained > 0
        if usable.mean() > 0.9:  # a count that starts anew on resume goes back once
            return derived(series, steps[1:][usable], gained[usable])
    return None


def ratio_around(series: Series, step: int) -> float | None:
    """Return the mean from a step on over the mean before it; None where either has under 5 values."""
    steps, values = series.finite()
    before, after = values[steps < step], values[steps >= step]
    if len(before) < 5 or len(after) < 5 or before.mean() <= 0:
        return None
    return float(after.mean() / before.mean())


def per_token(times: Series, lengths: Series) -> Series:
    """Return the mean time over the mean length, in bins that hold a value of both."""
    steps, values = times.finite()
    long_steps, long_values = lengths.finite()
    edges = np.searchsorted(steps, long_steps, side="right")
    usable = np.append(True, np.diff(edges) > 0) & (edges > 0)
    bins, sizes, at = edges[usable], long_values[usable], long_steps[usable]
    sums = np.cumsum(np.append(0.0, values))
    starts = np.append(max(0, bins[0] - int(np.median(np.diff(bins))) if len(bins) > 1 else 0), bins[:-1])
    means = (sums[bins] - sums[starts]) / np.maximum(1, bins - starts)
    return derived(times, at, means / sizes)


def grown_part(evidence: Evidence, step: int) -> tuple[str, float, float] | None:
    """Return the part of a step whose time grew most from a step on: its name, seconds before and after."""
    parts = []
    for series in (*evidence.metrics.values(), *evidence.other.values()):
        name = series.raw_name
        if series.name == "time/step" or not STEP_PARTS.search(name) or WHOLE_STEP.search(name):
            continue
        steps, values = series.finite()
        before, after = values[steps < step], values[steps >= step]
        if len(before) >= 5 and len(after) >= 5:
            parts.append((float(after.mean() - before.mean()), name, float(before.mean()), float(after.mean())))
    growth, name, early, late = max(parts, default=(0.0, "", 0.0, 0.0))
    return None if growth <= 0 else (name, early, late)


def device_gb(evidence: Evidence) -> float | None:
    """Return the memory of the smallest device, where the run's files tell."""
    value = evidence.run.context.get("gpu_memory_gb")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def end_of(evidence: Evidence, *, done_share: float = DONE_SHARE) -> RunEnd:
    """Return how the run ended."""
    return read_end(
        evidence.run, evidence.events, evidence.other, rate=evidence.metrics.get("lr"), done_share=done_share
    )

"""This run shows a pair accuracy that swings by more than its batches explain.

What: in the second half of the run the logged accuracy scatters around its line with three times the variance of
drawing that many pairs, and at least 0.1 more than that. The number of pairs comes from the values themselves: shares
of B pairs are multiples of 1/B. Where it does not show, the swings are compared with those at the start of the run:
lastingly 2.5 times as wide, and at least 0.1 wider.
Why it matters: either batches differ in kind, so each step pulls in a different direction, or the model itself jumps.
What it is not: the scatter of small batches. With 16 pairs an accuracy of 0.7 moves by 0.11 from step to step.
What to do: check whether the batches are sorted by source or length; if not, lower the learning rate.
Source: binomial noise p(1-p)/B; the limits are our own.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity, Steps
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.post_training import PAIRS, late_half, requires_pairs
from ptt.diagnostics.rules.single_series import derived
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.change_point import spread_change
from ptt.diagnostics.wording import sig

VARIANCE_FACTOR = 3.0  # the binomial variance: drawing alone stays below that in fifteen values (chi-squared, 99.9%)
MIN_SWING = 0.1  # share of pairs, beyond the binomial part: less changes no decision
WIDENED_FACTOR = 2.5  # times the early swings: six times their variance
SHARES = (0.05, 0.95)  # between which drawing pairs is taken to scatter: beyond them one pair decides
MIN_EARLY = 0.01  # of the unit: accuracies that did not move at all have no swing to be times of
SD_OF_MEAN_SIZE = math.sqrt(math.pi / 2)  # of a normal distribution: its standard deviation over its mean size
PAIR_NAMES = frozenset({"dpo/margin", "dpo/reward_chosen", "dpo/reward_rejected", "dpo/logp_chosen"})
MAX_PAIRS = 1024  # a logged value: above it rounded values fit any number, and the noise is small anyhow
DECIMALS = (100, 1000)  # so many pairs, or two or three decimals of any number: it cannot be told
MAX_ROUNDING = 2e-3  # of a pair: what rounding to six decimals leaves at MOST_PAIRS


@requires_pairs("dpo/accuracy", what="share of correctly ranked pairs")
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the scatter of the accuracy; low where it is only guessed that pairs are what it is a share of."""
    found = _judge(series, limits)
    if isinstance(found, Finding) and evidence.algorithm.name is None and PAIR_NAMES.isdisjoint(evidence.metrics):
        note = replace(found, severity=Severity.LOW)
        return Healthy(reason=note.claim, notes=(note,))
    return found


def _judge(series: Series, limits: Limits) -> Verdict:
    pairs = pairs_of(series.finite()[1])
    if pairs is None:
        return _widened(series, limits["widened"]) or NotJudged(
            reason="the accuracies are not shares of a fixed number of pairs, so their noise is unknown",
            missing=("dpo/accuracy",),
            enable="log every step, not smoothed: logging_steps=1",
        )
    swing, times = excess_swing(late_half(series), pairs)
    summary = (
        f"with {pairs} pairs a logged value, the accuracy scatters with {sig(times)} times the variance of drawing them"
    )
    if times <= limits["times"] or swing < MIN_SWING:
        return Healthy(reason=summary)
    onset, interval = _onset(series, pairs, limits["times"])
    return _finding(series, swing, times, limits["times"], onset, interval, summary, pairs)


def _finding(
    series: Series,
    swing: float,
    times: float,
    limit: float,
    onset: int,
    interval: Steps | None,
    summary: str,
    pairs: int | None = None,
) -> Finding:
    beyond = "its early swings" if pairs is None else "the noise of its batches"
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The accuracy swings by {swing:.2f} beyond {beyond}: {summary}",
        observed=times,
        limit=limit,
        unit="x",
        onset_step=onset,
        onset_interval=interval,
        evidence={"metric": series.name, "logged_as": series.raw_name, "pairs": pairs, "swing": swing},
        causes=(
            "batches of one source or difficulty each: the data is sorted, or sampled by groups",
            "a learning rate so high that the model jumps back and forth",
        ),
        confirm=(
            "evaluate one checkpoint on several training batches: if the accuracies differ as much, it is the data",
        ),
        next=("shuffle the pairs over all sources", "if they are shuffled, halve the learning rate"),
    )


def _widened(series: Series, factor: float) -> Finding | None:
    """Return swings that grew far beyond those of the beginning, in units of what drawing pairs gives at that share."""
    steps, values = series.finite()
    if len(values) < MIN_VALUES:
        return None
    around = np.clip(_running_median(values, series.width // 2), *SHARES)
    unit = np.sqrt(around * (1 - around))
    rise = lasting_rise(derived(series, steps, np.abs(values - around) / unit), floor=0.0, factor=factor)
    if rise is None or rise.ended:
        return None
    later = steps >= rise.onset
    swing = SD_OF_MEAN_SIZE * math.sqrt(max(0.0, rise.last**2 - rise.early**2)) * float(unit[later].mean())
    if swing < MIN_SWING:
        return None
    times = rise.last / max(rise.early, MIN_EARLY)
    onset, interval = rise.onset, rise.interval
    if (place := spread_change(((values - around) / unit) ** 2)) is not None:
        onset, interval = int(steps[place[0]]), (int(steps[place[1]]), int(steps[place[2]]))
    summary = f"{sig(times)} times as wide as at the start of the run"
    return _finding(series, swing, times, factor, onset, interval, summary)


def _onset(series: Series, pairs: int, times: float) -> tuple[int, Steps]:
    """Return the step from which the accuracy scatters more about its running median than before, and its interval.

    It is the likeliest place of a single change in variance, in units of the binomial one, or the first step if it
    scattered too much even before that.
    """
    steps, values = series.finite()
    half = series.width // 2
    around = _running_median(values, half)
    share = (around * pairs + 1) / (pairs + 2)
    squares = (values - around) ** 2 / (share * (1 - share) / pairs)
    place = spread_change(squares)
    first = int(steps[0])
    if place is None or place[0] <= half or squares[: place[0]].mean() > times:
        return first, (first, first)
    return int(steps[place[0]]), (int(steps[place[1]]), int(steps[place[2]]))


def _running_median(values: FloatArray, half: int) -> FloatArray:
    window = sliding_window_view(np.pad(values, half, mode="reflect"), 2 * half + 1)
    return np.asarray(np.median(window, axis=1), dtype=np.float64)


def pairs_of(values: FloatArray) -> int | None:
    """Return the smallest number of pairs that gives all these shares; None if unclear."""
    for pairs in range(2, MAX_PAIRS + 1):
        counts = values * pairs
        if np.abs(counts - np.round(counts)).max() < MAX_ROUNDING:
            return None if pairs in DECIMALS else pairs
    return None


def excess_swing(values: FloatArray, pairs: int) -> tuple[float, float]:
    """Return the scatter about the line beyond binomial noise, and the variance in units of the binomial one."""
    place = np.arange(len(values), dtype=np.float64)
    line = np.polynomial.Polynomial.fit(place, values, 1)(place)
    variance = float(((values - line) ** 2).sum()) / (len(values) - 2)
    share = (values.sum() * pairs + 1) / (len(values) * pairs + 2)  # Laplace: never exactly 0 or 1
    drawn = float(share * (1 - share)) / pairs
    return math.sqrt(max(0.0, variance - drawn)), variance / drawn


RULE = rule(
    check,
    "preference-unstable",
    Link.TRAINING_SIGNAL,
    max_severity=Severity.MEDIUM,
    times=VARIANCE_FACTOR,
    widened=WIDENED_FACTOR,
    families=PAIRS,
)

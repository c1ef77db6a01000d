"""This run shows answers that all become the same length.

What: the spread of answer lengths in a step (standard deviation over mean) falls for good below 0.05 and below a
quarter of its early level. Where no samples are recorded, the range from shortest to longest over their mean falls
below 0.1, or the mean length changes by less than 0.1% from step to step. Medium where the reward fell meanwhile,
otherwise low.
Why it matters: prompts differ in what they need. One length for all means a fixed template, a cut at the token limit,
or a policy that stopped exploring.
What it is not: a task whose right answers are equally long.
What to do: read ten answers after the onset; check the share that is cut off, and whether the loop still samples.
Source: the variance of lengths is a common sign of mode collapse; the levels are our own.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, lasting_fall
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome_clause, outcome_since
from ptt.diagnostics.rules.single_series import derived, last_mean, measured, series_evidence
from ptt.diagnostics.wording import sig

SPREAD_LIMIT = 0.05  # of the mean: answers of 100 tokens lie within 95 and 105
RANGE_FACTOR = 2.0  # times that, of shortest to longest: of a few answers the range is twice the deviation at least
CHANGE_FACTOR = (
    0.02  # times that, of the mean from step to step: means of hundreds of answers change by a fiftieth of it
)
FALL_FACTOR = 0.25  # of the early level
LEAST = 1e-6  # floor of the spread before its logarithm: far below any real spread of lengths
ENABLE = "log completions (TRL: log_completions=True), or the mean, shortest and longest response of each step"


class Spread(NamedTuple):
    """One measure of how far lengths differ."""

    series: Series
    factor: float  # of the limit
    words: str


def _spread(evidence: Evidence) -> Spread | NotJudged:
    series = evidence.lengths.spread if evidence.lengths is not None else None
    if series is not None and len(series.finite()[0]) >= MIN_VALUES:
        return Spread(series, 1.0, "The spread of answer lengths")
    mean = evidence.metrics.get("len/response_mean")
    if mean is None or len(mean.finite()[0]) <= MIN_VALUES:
        reason = f"answer lengths are recorded at fewer than {MIN_VALUES} steps"
        return NotJudged(reason=reason, missing=("len/response_mean",), enable=ENABLE)
    low, high = (evidence.other.get(mean.raw_name.replace("mean", name)) for name in ("min", "max"))
    if low is not None and high is not None:
        steps = np.intersect1d(np.intersect1d(mean.finite()[0], low.finite()[0]), high.finite()[0])
        if len(steps) >= MIN_VALUES:
            level, least, most = (one.finite()[1][np.isin(one.finite()[0], steps)] for one in (mean, low, high))
            return Spread(derived(mean, steps, (most - least) / np.maximum(level, 1.0)), RANGE_FACTOR,
                          "The range of answer lengths")  # fmt: skip
    steps, values = mean.finite()
    changes = np.abs(np.diff(values)) / np.maximum(np.abs(values[:-1]), 1.0)
    return Spread(derived(mean, steps[1:], changes), CHANGE_FACTOR, "The change of the mean length from step to step")


def _fall(spread: Spread, limit: float) -> BaselineShift | None:
    """Return the lasting fall of a spread, found among its logarithms: it scatters by factors."""
    logs = replace(spread.series, values=np.log(np.maximum(spread.series.values, LEAST)))
    fall = lasting_fall(logs, ceiling=math.log(limit * spread.factor), margin=-math.log(FALL_FACTOR))
    if fall is None or fall.ended:
        return None
    early, extreme, last, bound = (math.exp(one) for one in (fall.early, fall.extreme, fall.last, fall.limit))
    began = min(fall.interval[0], _stretch_start(spread.series, bound, fall.onset))
    return replace(
        fall, early=early, extreme=extreme, last=last, limit=bound, onset=began, interval=(began, fall.interval[1])
    )


def _stretch_start(series: Series, limit: float, alarm: int) -> int:
    """Return the first step of the values at or below `limit` that run unbroken up to `alarm`: a mean falls later."""
    steps, values = series.finite()
    before = steps <= alarm
    above = np.flatnonzero(values[before] > limit)
    return int(steps[min(int(above[-1]) + 1 if len(above) else 0, int(before.sum()) - 1)])


@requires(_spread)
def check(spread: Spread, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how far lengths differ, against the run's beginning."""
    fall = _fall(spread, limits["spread"])
    if fall is None:
        return Healthy(reason=f"{spread.words.lower()} ends at {sig(last_mean(spread.series))} of the mean")
    reward = outcome_since(evidence, fall.interval[0])
    return Finding(
        severity=Severity.MEDIUM if reward is Outcome.FELL else Severity.LOW,
        claim=f"{spread.words} fell {sig(fall.early)} → {sig(fall.last)} of the mean{outcome_clause(reward)}",
        unit="of the mean length",
        **measured(fall),
        evidence=series_evidence(spread.series, early=fall.early),
        causes=("one template for every answer", "answers that are all cut off at the token limit",
                "a log that repeats an old value"),
        confirm=(f"read ten answers from after step {fall.onset}: do they answer ten different questions?",),
        next=("look at the share of answers that are cut off, and at the entropy, around the onset",),
    )  # fmt: skip


RULE = rule(
    check, "equal-lengths", Link.EXPLORATION, max_severity=Severity.MEDIUM, spread=SPREAD_LIMIT, families=LANGUAGE
)

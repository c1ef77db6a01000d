"""This run shows answers that shrink to a fraction of their length.

What: the mean response length stays below half of its own early level, beyond its noise. High where the reward fell;
medium where the reward held and the answers shrank within a quarter of the run; otherwise low.
Why it matters: a policy that hardly says anything explores nothing: no reasoning, no calls, nothing for the reward to
distinguish.
What it is not: getting to the point. Where the reward rose, shorter answers are better ones.
What to do: read samples from before and after. Look for a length penalty, for a loss averaged over the sequence (short
wrong answers are then pushed down less than long ones), and for calls that no longer happen.
Source: Dr. GRPO (arXiv 2503.20783) on length and the averaging of the loss; the half is our own.
"""

import math
from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, departure, lasting_fall, passed_by_values
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome_clause, outcome_since
from ptt.diagnostics.rules.single_series import derived, last_mean, measured, requires_metric, series_evidence
from ptt.diagnostics.wording import sig

FALL_FACTOR = 0.5  # of the early length
MAX_FALL_SHARE = 0.25  # of the logged steps, from nearly the early length to the limit: slower is learning to be short
NEAR_EARLY_FACTOR = 0.8  # of the early length


@requires_metric("len/response_mean", what="response length", enable="log the mean response length", minimum=MIN_VALUES)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the mean response length against its own beginning."""
    fall = lasting_fall(series, ceiling=math.inf, factor=limits["left_of_early"])
    if fall is None or fall.ended:
        return Healthy(reason=f"answers end at {sig(last_mean(series))} tokens")
    fall = _dated_by_values(series, fall)
    reward = outcome_since(evidence, fall.interval[0])
    sudden = reward is Outcome.FLAT and _is_sudden(series, fall)
    return Finding(
        severity=Severity.HIGH if reward is Outcome.FELL else Severity.MEDIUM if sudden else Severity.LOW,
        claim=f"Answers shrank from {sig(fall.early)} to {sig(fall.last)} tokens{outcome_clause(reward)}",
        unit="tokens",
        **measured(fall),
        evidence=series_evidence(
            series, early=fall.early, lowest_mean=fall.extreme, left_early_level_at=departure(series, fall.onset)
        ),
        causes=(
            "the policy collapsed onto a short answer",
            "a length penalty that outweighs the reward",
            "calls that no longer happen",
        ),
        confirm=(f"read 20 samples from before step {fall.interval[0]} and 20 of the last",),
        next=(
            "plot the reward by length over the last 50 steps: do short answers pay?",
            "remove the length penalty, change nothing else, and compare over 50 steps",
        ),
    )


def _dated_by_values(series: Series, fall: BaselineShift) -> BaselineShift:
    """Return the fall with the step at which single values crossed the limit: their mean does so later.

    Where no token is left the mean dates it still: that nothing is generated comes first, and has a rule of its own.
    """
    if last_mean(series) < 1.0:
        return fall
    steps, values = series.finite()
    shortened = derived(series, steps, fall.early / np.maximum(values, 1.0))
    crossed = passed_by_values(shortened, fall.early / fall.limit, fall.onset)
    return fall if crossed is None else replace(fall, onset=crossed[0], interval=crossed[1])


def _is_sudden(series: Series, fall: BaselineShift) -> bool:
    """Return whether the answers went from nearly their early length to the limit within a quarter of the run."""
    steps, mean = series.rolling()
    long = steps[(mean >= NEAR_EARLY_FACTOR * fall.early) & (steps <= fall.onset)]
    return bool(len(long)) and int(np.sum((steps > long[-1]) & (steps <= fall.onset))) <= MAX_FALL_SHARE * len(steps)


RULE = rule(check, "length-collapse", Link.EXPLORATION, left_of_early=FALL_FACTOR, families=LANGUAGE)

"""This run shows responses that grow far longer while what they achieve does not grow with them.

What: the mean response length lies lastingly above one and a half times its early level, and no outcome rose since it
began to grow by a third of that growth; where of no outcome it can be told, the mean reward did not.
Why it matters: length costs time and memory, runs into the token limit, and is what rewards are easiest to please by.
What it is not: longer answers that do the task more often; and where noise hides whether they do, or nothing is logged
that could say it, the finding is low.
What to do: read long and short samples of one prompt; compare reward with length within prompts; if length is paid for,
cap it or take it out of the reward, in a short run first.
Source: Singhal et al., A Long Way to Go: Investigating Length Correlations in RLHF (arXiv 2310.03716).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, lasting_rise
from ptt.diagnostics.evidence.level_change import Z_LIMIT, change_since, change_since_start
from ptt.diagnostics.evidence.outcome_agreement import MIN_AGREEMENT, NOISE_Z, TWO_WINDOW_FACTOR, OutcomeState
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import logged
from ptt.diagnostics.statistics.small_sample import estimate_change

GROWTH_LIMIT = (
    1.5  # times the early length: healthy runs that learn to reason or to call tools reach less, or gain by it
)
BEGAN = 1.25  # times the early length, half-way to the limit: gains since then are held against the longer answers
LEAST_LENGTH = 16.0  # tokens: below, a factor says nothing


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the mean response length, beside the outcomes."""
    length = logged(
        evidence, "len/response_mean", what="mean response length", minimum=MIN_VALUES,
        enable="log it: TRL logs completions/mean_length, veRL response_length/mean, slime rollout/response_len/mean",
    )  # fmt: skip
    if isinstance(length, NotJudged):
        return length
    found = lasting_rise(length, floor=LEAST_LENGTH, factor=limits["growth"])
    turn = change_since_start(length)
    quick = turn is not None and turn.sds >= Z_LIMIT and turn.late >= max(LEAST_LENGTH, limits["growth"] * turn.start)
    if (found is None or found.ended) and not quick:
        return Healthy(reason="the response length stays near its early level")
    early, late = (turn.start, turn.late) if quick and turn is not None else _levels(found)
    onset = turn.onset if quick and turn is not None else found.onset if found else None
    gains = _gains(evidence, _began(length, found), MIN_AGREEMENT * (1 - early / late))
    gained = [one for one in gains if one.state is OutcomeState.ROSE]
    if gained:
        reason = f"responses grew {early:.3g} → {late:.3g}, and {gained[0].words} with them"
        return Healthy(reason=reason)
    behind = [one for one in gains if one.state is OutcomeState.FLAT]
    told = f" while {behind[0].words} did not rise" if behind else ""
    return Finding(
        severity=Severity.MEDIUM if behind else Severity.LOW,
        claim=f"Responses grew {early:.4g} → {late:.4g} tokens{told}",
        observed=late / early if early > 0 else None,
        limit=limits["growth"],
        unit="x",
        onset_step=onset,
        onset_interval=turn.interval if quick and turn is not None else found.interval if found else None,
        evidence={"metric": "len/response_mean", "logged_as": length.raw_name, "early": early, "late": late},
        causes=("the reward, or its judge, pays for length", "a loss that is averaged by sequence favours"
                " long wrong answers", "answers no longer end: the end token became rare"),
        confirm=("compare reward with length among samples of one prompt: do longer ones win at equal outcome?",
                 "read five of the longest samples: steps of work, repetition, or padding?"),
        next=("a short run with a length penalty or a cap, nothing else changed; decide by the outcome",),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What was earned or achieved since the lengths began to grow."""

    name: str
    state: OutcomeState  # rose, flat or unsure
    start: float
    late: float

    @property
    def words(self) -> str:
        """Tell it in short."""
        return f"{self.name} ({self.start:.3g} → {self.late:.3g})"


def _gains(evidence: Evidence, began: int, least: float) -> Sequence[Gain]:
    """Give what longer answers could have been for: the outcomes, or the reward where of no outcome it can be told."""
    outcomes = [one for _, one in sorted(evidence.rewards.outcomes.items())] if evidence.rewards is not None else []
    if evidence.evaluation is not None:
        outcomes += [one.series for one in evidence.evaluation.figures if one.outcome]
    told = [gain for one in outcomes if (gain := _gain(one, began, least)).state is not OutcomeState.UNSURE]
    reward = evidence.metrics.get("reward/mean")
    return told or ([_gain(reward, began, least)] if reward is not None else [])


def _began(length: Series, found: BaselineShift | None) -> int:
    """Give the last step before lengths began to grow; that of the first window where they grew from the start."""
    steps = length.finite()[0]
    first = int(steps[length.width - 1])
    slight = lasting_rise(length, floor=LEAST_LENGTH, factor=BEGAN) if found is not None else None
    return max(first, slight.interval[0]) if slight is not None else first


def _gain(series: Series, began: int, least: float) -> Gain:
    """Tell whether a series rose since `began`, or surely by less than `least` of its level."""
    steps, values = series.finite()
    turn = change_since(series, began)
    if turn is not None:
        start, late, amount, error = turn.start, turn.late, turn.amount, NOISE_Z * TWO_WINDOW_FACTOR * turn.noise
    else:
        change = estimate_change(values[max(0, int(np.searchsorted(steps, began)) - 1) :])
        if change is None:
            return Gain(name=series.raw_name, state=OutcomeState.UNSURE, start=math.nan, late=math.nan)
        start, late, amount, error = change.early, change.late, change.amount, change.highest - change.amount
    scale = max(abs(start), abs(late))
    state = OutcomeState.UNSURE
    if amount > error and amount >= least * scale:
        state = OutcomeState.ROSE
    elif amount + error < least * scale:
        state = OutcomeState.FLAT
    return Gain(name=series.raw_name, state=state, start=start, late=late)


def _levels(found: BaselineShift | None) -> tuple[float, float]:
    return (found.early, found.last) if found is not None else (0.0, 0.0)


RULE = rule(check, "length-inflation", Link.REWARD, growth=GROWTH_LIMIT)

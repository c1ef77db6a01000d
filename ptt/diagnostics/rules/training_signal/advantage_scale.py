"""This run shows advantages whose scale explodes or vanishes.

What: the standard deviation of the advantages stays above five times its own early level, or below a tenth of it. Where
none is logged, the distance from the smallest to the largest advantage of a step stands in for it.
Why it matters: the advantage is the factor on every gradient. Five times as large acts like five times the learning
rate, and an update may leave the trust region. Near zero, the policy learns nothing while everything seems to run.
Single steps are judged too: a range thirty times the usual one, and above 50, or without end, is a division by almost
nothing, unless the rewards of that step lie as far apart.
What it is not: a solved task. Where advantages vanish while the reward rose, the finding is low, unless an
evaluation then stands still to the last digit: the policy gives one and the same answer. Nor a sparse start:
groups that all fail have no advantages, and growth from there to the usual scale is learning.
What to do: look at the reward first (scale, outliers, a component that grew), then at how advantages are normalised: by
group, by batch, or not at all. Where they vanish, count the groups without spread.
Source: debugging guides for PPO (reward scale and advantage normalisation); Dr. GRPO (arXiv 2503.20783) on dividing by
the group's deviation. The factors are our own.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, lasting_fall, lasting_rise
from ptt.diagnostics.evidence.series import INFINITE_FLAGS, Series
from ptt.diagnostics.metrics.aliases import bare_name
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome, outcome_clause
from ptt.diagnostics.rules.single_series import last_mean, measured, series_evidence
from ptt.diagnostics.statistics.arrays import MAD_TO_SD, FloatArray
from ptt.diagnostics.wording import sig

GROWTH_FACTOR = 5.0  # times the early level: a learning rate five times as large
GROWTH_FLOOR = 1.5  # normalised advantages are near 1: up to here, only more of the groups have a spread
RANGE_FLOOR = 10.0  # the same for the distance between the extremes: 4 to 8 with normalised advantages
HIGHEST = ("critic/advantages/max", "advantages/max")  # veRL, NeMo-RL; the smallest beside it
PAID = ("rewards", "score")  # in the same names: the extremes of what was paid
DIVIDED_FACTOR = 30.0  # times the usual range: of n samples normalised by their group none passes the root of n - 1
SPIKE_FLOOR = 50.0  # groups of 2,500 samples: no usual size gives more
MAX_SPIKES = 0.1  # of the steps
BESIDE = ("grad_norm", "loss/total", "reward/mean")
BESIDE_SDS = 6.0  # off the median: what is named beside a spike
BESIDE_SHARE = 0.5  # of it, at least
FALL_FACTOR = 0.1  # of the early level: nine tenths of the signal are gone


MOSTLY_ZERO = 0.5  # of a window: from here on most updates have nothing to learn from
RESIDUE = 0.01  # of the early level: equal rewards less their mean, in single precision, over almost nothing
MIN_STILL = 3  # evaluations without any difference: two may agree by chance
MAX_TASKS = 100  # of an evaluation: a share of so few may stand still while the policy moves
SAME_SHARE = 1e-6  # relative: single precision


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the spread of advantages against its own beginning."""
    series = evidence.metrics.get("advantage/std")
    if series is None or len(series.finite()[0]) < MIN_VALUES:
        series = evidence.signal.advantage_std if series is None or evidence.signal.advantage_std else series
    floor, what = GROWTH_FLOOR, "spread"
    if (series is None or len(series.finite()[0]) < MIN_VALUES) and (between := _range(evidence)) is not None:
        series, floor, what = between, RANGE_FLOOR, "range"
    if series is None or len(series.finite()[0]) < MIN_VALUES:
        return NotJudged(
            reason="no spread of advantages is logged"
            if series is None
            else f"{len(series.finite()[0])} steps have one; a change takes {MIN_VALUES} to show",
            missing=("advantage/std",),
            enable="log the standard deviation of the advantages, or samples with their advantage",
            absent=series is None,
        )
    up = lasting_rise(series, floor=floor, factor=limits["exploded"])
    down = lasting_fall(series, ceiling=math.inf, factor=limits["vanished"])
    for shift, verb in ((up, "grew"), (down, "vanished")):
        if shift is not None and not shift.ended and shift.early > 0:
            if verb == "vanished":
                shift = _from_zeros(series, shift)
            return _finding(series, shift, verb, what, outcome(evidence), _stands_still(evidence, shift.onset))
    if what == "range" and (spike := _spike(series, evidence, limits)) is not None:
        return spike
    return Healthy(reason=f"the {what} of advantages ends at {sig(last_mean(series))}")


def _from_zeros(series: Series, shift: BaselineShift) -> BaselineShift:
    """Date a fall to 0, or its rounding, by the first window of which half is 0, and half of all later values too."""
    steps, values = series.finite()
    zero = values <= RESIDUE * shift.early
    if len(zero) < series.width:
        return shift
    share = sliding_window_view(zero, series.width).mean(axis=1)
    for start in np.flatnonzero(share >= MOSTLY_ZERO):
        place = int(start + np.argmax(zero[start:]))
        if place and zero[place:].mean() >= MOSTLY_ZERO and np.median(values[:place]) > 0:
            onset = int(steps[place])
            return (
                replace(shift, onset=onset, interval=(int(steps[place - 1]), onset)) if onset < shift.onset else shift
            )
    return shift


def _stands_still(evidence: Evidence, since: int) -> str:
    """Return a clause about an evaluation that is the same to the last digit since the onset; "" where none is.

    A share of few tasks may stand still for long, and so may the best that can be reached.
    """
    for figure in evidence.evaluation.figures if evidence.evaluation else ():
        steps, values = figure.series.finite()
        later = values[steps >= since]
        if len(later) < MIN_STILL or np.ptp(later) > 0:
            continue
        level = float(later[0])
        if not math.isclose(
            level, Fraction(level).limit_denominator(MAX_TASKS), rel_tol=SAME_SHARE, abs_tol=SAME_SHARE
        ):
            return f"; {figure.title} is {sig(level)} to the last digit at all {len(later)} points since then"
    return ""


def _spike(series: Series, evidence: Evidence, limits: Limits) -> Finding | None:
    """Return single steps with advantages that no normalisation gives: they were divided by almost nothing."""
    steps = series.steps
    values = np.where(np.isin(series.flags, INFINITE_FLAGS), np.inf, series.values)
    usual, paid = float(np.median(series.finite()[1])), _paid_apart(series, evidence)
    limit = max(limits["divided"] * usual, SPIKE_FLOOR)
    at = np.flatnonzero((values > limit) & ~(values <= paid))
    if not 0 < len(at) <= MAX_SPIKES * len(values) or usual <= 0:
        return None
    worst = int(at[np.argmax(values[at])])
    step, size = int(steps[worst]), float(values[worst])
    apart = f"lie {sig(size)} apart" if math.isfinite(size) else "are infinite"
    told = np.isfinite(paid[worst]) or not math.isfinite(size)
    unless = "" if told else ", unless its rewards lie as far apart (their extremes are not logged)"
    beside = [text for name in BESIDE if (text := _at(evidence, name, step))]
    more = f" and {len(at) - 1} more" if len(at) > 1 else ""
    there = f"; there {' and '.join(beside)}" if beside else ""
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The advantages {apart} at step {step}{more}, {sig(usual)} apart usually: they were divided by a "
        f"spread of almost 0, of a group with all but equal rewards{unless}{there}",
        observed=size if math.isfinite(size) else None,
        limit=limit,
        unit="advantage",
        onset_step=int(steps[at[0]]),
        onset_interval=(int(steps[at[0]]), int(steps[at[0]])),
        evidence=series_evidence(series, usual=usual, at_steps=", ".join(str(one) for one in steps[at][:20].tolist())),
        causes=(
            "the standard deviation of a group, or of its other members (leave-one-out), is a rounding residue and "
            "passes a guard of `std > 0`",
            "no epsilon is added to the standard deviation",
        ),
        confirm=(f"print rewards, mean and standard deviation of the groups of step {step}: which spread is near 0?",),
        next=(
            "treat a spread below 1e-3 as 0: such a group teaches nothing",
            f"go back to the checkpoint before step {step}, or clip advantages",
        ),
    )


def _paid_apart(series: Series, evidence: Evidence) -> FloatArray:
    """Return how far apart rewards lie at the steps of a range of advantages; NaN where neither extreme is logged.

    Of one extreme alone, twice its size.
    """
    apart = np.full(len(series.steps), np.nan)
    for kind in PAID:
        sides = np.full((2, len(apart)), np.nan)
        for side, values in zip(("max", "min"), sides, strict=True):
            if (logged := evidence.other.get(series.name.replace("advantages/max", f"{kind}/{side}"))) is not None:
                _, at, place = np.intersect1d(series.steps, logged.steps, return_indices=True)
                values[at] = logged.values[place]
        one = 2 * np.fmax(*np.abs(sides))
        apart = np.fmax(apart, np.where(np.isfinite(sides).all(axis=0), sides[0] - sides[1], one))
    return apart


def _at(evidence: Evidence, name: str, step: int) -> str:
    """Return what a metric is at a step, and what it usually is; empty where it is not logged or not unusual there."""
    series = evidence.metrics.get(name)
    at, values = (np.zeros(0), np.zeros(0)) if series is None else series.finite()
    place = np.flatnonzero(at == step)
    if series is None or not len(place):
        return ""
    there, usual = float(values[place[-1]]), float(np.median(values))
    scatter = MAD_TO_SD * float(np.median(np.abs(values - usual)))
    if abs(there - usual) <= max(BESIDE_SDS * scatter, BESIDE_SHARE * abs(usual)):
        return ""
    return f"{series.raw_name} is {sig(there)} instead of {sig(usual)}"


def _range(evidence: Evidence) -> Series | None:
    """Return the largest advantage of a step less the smallest, where both are logged under one prefix."""
    for name, high in sorted(evidence.other.items()):
        low = evidence.other.get(f"{name.removesuffix('max')}min")
        if bare_name(name) not in HIGHEST or low is None:
            continue
        steps, at_high, at_low = np.intersect1d(high.steps, low.steps, return_indices=True)
        values = high.values[at_high] - low.values[at_low]
        flags = np.maximum(high.flags[at_high], low.flags[at_low])
        between = replace(high, steps=steps, values=values, flags=flags)
        if len(between.finite()[0]) >= MIN_VALUES:
            return between
    return None


def _finding(series: Series, shift: BaselineShift, verb: str, what: str, reward: Outcome, still: str) -> Finding:
    grew = verb == "grew"
    meanwhile = outcome_clause(reward) + ("" if grew else still)
    low = not grew and not still and (reward is Outcome.ROSE or not reward.judged)
    return Finding(
        severity=Severity.LOW if low else Severity.MEDIUM,
        claim=f"The {what} of advantages {verb}: {sig(shift.early)} to {sig(shift.last)}{meanwhile}",
        unit="advantage",
        **measured(shift),
        evidence=series_evidence(series, early=shift.early),
        causes=("the reward's scale grew", "reward outliers", "advantages that are not normalised")
        if grew
        else ("groups without any spread in reward", "a collapsed policy that gives the same answer again and again"),
        confirm=(f"compare the histograms of reward and advantage from before and after step {shift.onset}",),
        next=(
            "find the reward component, or the samples, that grew; clip or normalise the reward",
            "then check whether advantages are normalised by group or by batch as intended",
        )
        if grew
        else ("count the groups without spread: all solved, all failed, or all the same text?",),
    )


RULE = rule(
    check,
    "advantage-scale",
    Link.TRAINING_SIGNAL,
    max_severity=Severity.MEDIUM,
    exploded=GROWTH_FACTOR,
    vanished=FALL_FACTOR,
    divided=DIVIDED_FACTOR,
)

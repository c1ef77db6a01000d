"""This run shows a judge's score that jumps alone.

What: the mean of a score that a model gives (judge, rubric, grader, preference) jumps up from one window to the next by
eight standard deviations of a window's mean and stays there, in one step and not gradually, while no outcome jumps by
three at that point. Or (low) it leaps at two single steps or more, further and more often than its noise gives
(`recurring_excursions`, 1% false alarms), while no outcome leaps with it.
Why it matters: a policy that finds a phrase the judge likes is rewarded at once and everywhere, while it solves no more
tasks. A new judge, or a new judge prompt, looks the same.
What to do: compare judge model, version and prompt before and after; read the samples that gained most.
Source: Zheng et al., Judging LLM-as-a-Judge (arXiv 2306.05685), on position, verbosity and style bias.
"""

from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, window_mean_noise
from ptt.diagnostics.evidence.excursions import FALSE_ALARMS, SPIKE
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.name_words import is_judge
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import OUTCOME_ENABLE, rewards_of, with_values
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.recurring_excursions import MIN_SDS, are_beyond_noise, departures, find_excursions
from ptt.diagnostics.statistics.small_sample import fit_line
from ptt.diagnostics.wording import sig

JUMP_Z_LIMIT = 8.0  # standard deviations of a window's mean, with AR(1) noise of 0.8: learning does not jump so
MIN_JUMP_SHARE = 0.1  # of the larger level
SHARED_Z_LIMIT = 3.0  # standard deviations: an outcome that jumps this much at the place shares the jump
MIN_PEAKS = 2  # single steps: one is a batch of easy prompts
HALF_WINDOW = 10  # steps on either side, for the medians that a step is compared with


class Jump(NamedTuple):
    """A rise from one window to the next that stays."""

    step: int
    before: float
    after: float
    sds: float  # height in standard deviations of a window's mean


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge every score of a judge by its largest step."""
    rewards = rewards_of(evidence)
    judges = {name: score for name, score in with_values(rewards.components, 2 * MIN_VALUES).items() if is_judge(name)}
    if not judges:
        return NotJudged(
            reason=f"no judge's score is logged at {2 * MIN_VALUES} steps under a name that says so",
            missing=("a judge's mean score",),
            enable="log the judge's score as a separate component, with judge, rubric or grader in its name",
        )
    outcomes = with_values(rewards.outcomes, 2 * MIN_VALUES).values()
    jumps = {name: jump for name, score in judges.items() if (jump := _jump(score, limits["jump"])) is not None}
    alone = {
        name: jump for name, jump in jumps.items() if not any(_jumps_at(outcome, jump.step) for outcome in outcomes)
    }
    brief = {name: _peaks(judges[name]) for name in judges.keys() - jumps.keys()}
    for outcome in outcomes:
        brief = {name: np.setdiff1d(peaks, _leaps(outcome)) for name, peaks in brief.items()}
    brief = {name: brief[name] for name in sorted(brief) if len(brief[name]) >= MIN_PEAKS}
    if not alone and not brief:
        return Healthy(reason=f"{', '.join(judges)}: no jump of its own")
    if not outcomes:
        return NotJudged(
            reason=f"{next(iter(alone | brief))} jumps, but no outcome is logged that could share it",
            missing=("an outcome beside the reward",),
            enable=OUTCOME_ENABLE,
        )
    lasting = [_finding(judges[name], jump, limits["jump"]) for name, jump in alone.items()]
    return Broken(findings=(*lasting, *(_brief(judges[name], peaks) for name, peaks in brief.items())))


def _leaps(series: Series) -> IntArray:
    """Return the steps at which an outcome lies well above the levels before and after it."""
    steps, values = series.finite()
    off, _, deviation = departures(values, HALF_WINDOW)
    return steps[off > SHARED_Z_LIMIT * deviation]


def _peaks(series: Series) -> IntArray:
    """Return the single steps at which a score leaps beyond its noise, and comes back; empty if none do."""
    steps, values = series.finite()
    found = [one for one in find_excursions(values, sides=(SPIKE,)) if are_beyond_noise(one, rate=FALSE_ALARMS)]
    return steps[[span.extreme for one in found for span in one.spans]]


def _jump(series: Series, limit: float) -> Jump | None:
    steps, values = series.finite()
    width = series.width
    means = np.convolve(values, np.ones(width) / width, mode="valid")
    place = int(np.argmax(means[width:] - means[:-width]))
    before, after = float(means[place]), float(means[place + width])
    half = width // 2  # the jump itself is no noise: half a window on either side is left out
    left, right = values[: place + half], values[place + width + half :]
    noises = [window_mean_noise(left, width), window_mean_noise(right, width)]
    if np.isnan(noises).all():  # a short run: both sides together are long enough
        noises = [window_mean_noise(np.concatenate([left - before, right - after]), width)]
    noise, height = float(np.fmax.reduce(noises)), after - before
    lasts = float(values[-width:].mean()) - before >= height / 2
    high = height > max(limit * noise, MIN_JUMP_SHARE * max(abs(before), abs(after)))
    if not (np.isfinite(noise) and lasts and high and _is_step(values[place : place + 2 * width])):
        return None
    return Jump(int(steps[place + width]), before, after, height / noise if noise > 0 else 0.0)


def _is_step(values: FloatArray) -> bool:
    """Return whether a step in the middle fits better than a straight line: what climbs for a while has not jumped."""
    half = len(values) // 2
    residual = np.concatenate([part - part.mean() for part in (values[:half], values[half:])])
    return float(np.square(residual).sum()) < fit_line(values).squares


def _jumps_at(series: Series, step: int) -> bool:
    steps, values = series.finite()
    width, place = series.width, int(np.searchsorted(steps, step))
    left, right = values[max(0, place - width) : place], values[place : place + width]
    shared = min(len(left), len(right))  # what climbs by itself, as learning does, has no part in the jump
    return (
        shared > 0
        and float(right.mean() - left.mean()) > SHARED_Z_LIMIT * window_mean_noise(values, width)
        and _is_step(np.concatenate([left[-shared:], right[:shared]]))
    )


def _finding(series: Series, jump: Jump, limit: float) -> Finding:
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The judge's score {series.raw_name} jumps {sig(jump.before)} → {sig(jump.after)}, and no outcome jumps "
        "with it",
        observed=jump.sds,
        limit=limit,
        unit="standard deviations",
        onset_step=jump.step,
        onset_interval=(jump.step - 1, jump.step),
        evidence={"metric": series.name, "logged_as": series.raw_name, "before": jump.before, "after": jump.after},
        causes=(
            "a phrase or style that the judge likes",
            "a different judge model, version or prompt from there on",
            "a parser that now reads the judge's answer differently",
        ),
        confirm=(
            f"score the samples of the steps around {jump.step} once more with one judge: does the jump stay?",
            "read the ten samples that the judge scores highest after the jump",
        ),
        next=(
            "pin model, version and prompt of the judge",
            "name what the judge fell for in its rubric, and check its scores against human labels",
        ),
    )


def _brief(series: Series, peaks: IntArray) -> Finding:
    steps, values = series.finite()
    off, _, deviation = departures(values, HALF_WINDOW)
    at = np.isin(steps, peaks)
    heights, noise = off[at], float(np.median(deviation[at]))
    return Finding(
        severity=Severity.LOW,
        claim=f"The judge's score {series.raw_name} leaps at {len(peaks)} single steps by up to {sig(heights.max())}, "
        "and no outcome leaps with it",
        observed=float(heights.min()) / noise if noise > 0 else None,
        limit=MIN_SDS,
        unit="standard deviations",
        onset_step=int(peaks[0]),
        onset_interval=(int(peaks[0]), int(peaks[0])),
        evidence={
            "metric": series.name,
            "logged_as": series.raw_name,
            "leaps": len(peaks),
            "last_leap": int(peaks[-1]),
        },
        causes=(
            "a batch in which many answers hold a phrase that the judge likes",
            "a judge that failed at these steps and returned a default",
        ),
        confirm=(f"read the samples of step {peaks[0]} that the judge scores highest, and score them once more",),
        next=("log the judge's answers at such steps, and drop or rescore the batches where it failed",),
    )


RULE = rule(check, "judge-spikes", Link.REWARD, max_severity=Severity.MEDIUM, jump=JUMP_Z_LIMIT)

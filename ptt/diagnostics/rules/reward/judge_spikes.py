"""This run shows a judge's score that jumps alone.

What: the mean of a score that a model gives (judge, rubric, grader, preference) jumps up from one window to the next by
eight standard deviations of a window's mean and stays, as a step and not as a climb, while no outcome beside it
jumps by three at that place.
Why it matters: a policy that finds a phrase which pleases the judge is paid at once and everywhere; tasks are done no
more often. A judge that was exchanged, or whose prompt was changed, looks the same.
What to do: compare judge model, version and prompt before and after; read the samples that gained most.
Source: Zheng et al., Judging LLM-as-a-Judge (arXiv 2306.05685), on position, verbosity and style bias.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES
from ptt.diagnostics.evidence.level_change import window_mean_noise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.name_words import is_judge
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import OUTCOME_ENABLE
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.detrended_noise import fit_line

JUMP_LIMIT = 8.0  # standard deviations of a window's mean, with AR(1) noise of 0.8: learning does not jump so
LEAST_JUMP = 0.1  # of the larger level
SHARED = 3.0  # standard deviations: an outcome that jumps by so much at the place shares the jump


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge every score of a judge by its largest step."""
    parts = evidence.rewards.components if evidence.rewards is not None else {}
    judges = {
        name: one for name, one in sorted(parts.items()) if is_judge(name) and len(one.finite()[0]) >= 2 * MIN_VALUES
    }
    if not judges:
        return NotJudged(
            reason=f"no score of a judge is logged at {2 * MIN_VALUES} steps under a name that says so",
            missing=("a judge's mean score",),
            enable="log the judge's score as a part of its own, with judge, rubric or grader in its name",
        )
    outcomes = evidence.rewards.outcomes if evidence.rewards is not None else {}
    known = [one for _, one in sorted(outcomes.items()) if len(one.finite()[0]) >= 2 * MIN_VALUES]
    jumps = {name: jump for name, one in judges.items() if (jump := _jump(one, limits["jump"])) is not None}
    alone = {name: jump for name, jump in jumps.items() if not any(_jumps_too(one, jump[0]) for one in known)}
    if not alone:
        return Healthy(reason=f"{', '.join(judges)}: no jump of its own")
    if not known:
        return NotJudged(
            reason=f"{next(iter(alone))} jumps, but no outcome is logged that could share it",
            missing=("an outcome beside the reward",),
            enable=OUTCOME_ENABLE,
        )
    return Broken(findings=tuple(_finding(judges[name], jump, limits["jump"]) for name, jump in alone.items()))


def _jump(series: Series, limit: float) -> tuple[int, float, float, float] | None:
    """Give the step, the levels before and after, and the height in standard deviations, of a jump that stays."""
    steps, values = series.finite()
    width = series.width
    means = np.convolve(values, np.ones(width) / width, mode="valid")
    ups = means[width:] - means[:-width]
    place = int(np.argmax(ups))
    before, after = float(means[place]), float(means[place + width])
    half = width // 2  # the jump itself is no noise: half a window on either side is left out
    left, right = values[: place + half], values[place + width + half :]
    around = window_mean_noise(left, width), window_mean_noise(right, width)
    if np.isnan(around).all():  # a short run: both sides together are long enough
        around = (window_mean_noise(np.concatenate([left - before, right - after]), width),) * 2
    noise = float(np.fmax(*around))
    scale = max(abs(before), abs(after))
    stayed = float(values[-width:].mean()) - before >= (after - before) / 2
    if not (np.isfinite(noise) and stayed and after - before > max(limit * noise, LEAST_JUMP * scale)):
        return None
    if not _sudden(values[place : place + 2 * width]):
        return None
    return int(steps[place + width]), before, after, (after - before) / noise if noise > 0 else 0.0


def _sudden(values: FloatArray) -> bool:
    """Tell whether a step in the middle fits better than a straight line: what climbs for a while has not jumped."""
    half = len(values) // 2
    step = np.concatenate([np.full(half, values[:half].mean()), np.full(len(values) - half, values[half:].mean())])
    return float(np.square(values - step).sum()) < fit_line(values).squares


def _jumps_too(series: Series, step: int) -> bool:
    steps, values = series.finite()
    place = int(np.searchsorted(steps, step))
    width = series.width
    left, right = values[max(0, place - width) : place], values[place : place + width]
    noise = window_mean_noise(values, width)
    if not len(left) or not len(right) or float(right.mean() - left.mean()) <= SHARED * noise:
        return False
    both = min(len(left), len(right))  # what climbs by itself, as learning does, has no part in the jump
    return _sudden(np.concatenate([left[-both:], right[:both]]))


def _finding(series: Series, jump: tuple[int, float, float, float], limit: float) -> Finding:
    step, before, after, height = jump
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The judge's score {series.raw_name} jumps {before:.3g} → {after:.3g}, and no outcome with it",
        observed=height,
        limit=limit,
        unit="standard deviations",
        onset_step=step,
        onset_interval=(step - 1, step),
        evidence={"metric": series.name, "logged_as": series.raw_name, "before": before, "after": after},
        causes=("a phrase or style that pleases the judge", "another judge model, version or prompt from there on",
                "a parser that now reads the judge's answer otherwise"),
        confirm=(f"score the samples of the steps around {step} once more with one judge: does the jump stay?",
                 "read the ten samples that the judge pays best after the jump"),
        next=("fix model, version and prompt of the judge", "add what it was pleased by to its rubric, and check it"
              " against labels of people"))  # fmt: skip


RULE = rule(check, "judge-spikes", Link.REWARD, jump=JUMP_LIMIT)

"""This run shows a reward that rises suddenly after a long plateau.

What: the reward stays within its noise for three tenths of the run or more, then rises by eight standard deviations of
a window's mean, most of it within a tenth of the run. It is a note, not a failure.
Why it matters: such a rise is either late understanding (grokking) or a new way to earn reward without doing the task.
The reward curve looks the same for both.
What to do: if an outcome rose with it, keep the checkpoints before and after and continue. If none is recorded, or none
rose, first read the highest-reward samples after the jump.
Source: Power et al., Grokking (arXiv 2201.02177), for the late rise; see reward-hacking for the other explanation.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, window_mean_noise
from ptt.diagnostics.evidence.outcome_agreement import OutcomeState, judge_outcomes
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.rules.reward import highest_samples, mean_reward, side_shifts
from ptt.diagnostics.wording import sig

JUMP_Z_LIMIT = 8.0  # standard deviations of a window's mean
MIN_PLATEAU_SHARE = 0.3  # of the run: shorter ones are how learning begins
MAX_RISE_SHARE = 0.1  # of the run
MIN_JUMP_SHARE = 0.2  # of the larger level


@requires(lambda evidence: mean_reward(evidence, 2 * MIN_VALUES))
def check(reward: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Look for a plateau and a jump."""
    jump = _jump(reward, limits["jump"])
    if jump is None:
        return Healthy(reason="no long plateau with a sudden rise after it")
    step, before, after, height = jump
    if (dip := evidence.long_dip) is not None and dip.first <= step <= _window_after(reward, dip.last):
        return Healthy(reason=f"the rise at step {step} is the return from a dip since step {dip.first}")
    outcomes = judge_outcomes(evidence, reward)
    shared = any(outcome.state in (OutcomeState.ROSE, OutcomeState.SOLVED) for outcome in outcomes)
    shifts = side_shifts(evidence)
    claim = f"The reward rises suddenly after a long plateau ({sig(before)} → {sig(after)})"
    claim += ", and an outcome with it" if shared else "; no outcome shows why"
    samples = highest_samples(evidence)
    note = Finding(
        severity=Severity.LOW if not shared and shifts else Severity.INFO,
        claim=claim,
        observed=height,
        limit=limits["jump"],
        unit="standard deviations",
        onset_step=step,
        evidence={
            "metric": "reward/mean",
            "logged_as": reward.raw_name,
            "before": before,
            "after": after,
            "outcome_rose": shared,
            "shifted": ", ".join(shift.name for shift in shifts[:4]) or None,
        },
        causes=("late understanding (grokking)",)
        if shared
        else (
            "late understanding (grokking)",
            "a way to earn reward without doing the task",
            "an easier mix of tasks, or a changed scorer, from that step on",
        ),
        confirm=("read the highest-reward samples after the jump" + (f" ({samples})" if samples else ""),),
        next=("keep the checkpoints before and after the jump",),
    )
    return Healthy(reason=claim, notes=(note,))


def _window_after(series: Series, step: int) -> int:
    """Return the step a window's width of logged values after another."""
    steps = series.finite()[0]
    return int(steps[min(int(np.searchsorted(steps, step)) + series.width, len(steps) - 1)])


def _jump(series: Series, limit: float) -> tuple[int, float, float, float] | None:
    """Return step, level before and after, and height in standard deviations, of a jump after a plateau that stays."""
    steps, values = series.finite()
    width = series.width
    means = np.convolve(values, np.ones(width) / width, mode="valid")
    reach = max(width, int(MAX_RISE_SHARE * len(values)))
    place = int(np.argmax(means[reach:] - means[:-reach]))
    before, after = float(means[place]), float(means[place + reach])
    early, plateau, height = values[: place + width], means[: place + 1], after - before
    if len(early) < max(MIN_VALUES, MIN_PLATEAU_SHARE * len(values)):
        return None
    noise = window_mean_noise(early, width)
    flat = float(np.abs(plateau - np.median(plateau)).max()) <= max(4 * noise, 0.1 * height)
    lasts = float(values[-width:].mean()) - before >= height / 2
    if not flat or not lasts or height <= max(limit * noise, MIN_JUMP_SHARE * max(abs(before), abs(after))):
        return None
    return int(steps[place + width]), before, after, height / noise if noise > 0 else 0.0


RULE = rule(check, "reward-jump", Link.REWARD, max_severity=Severity.LOW, jump=JUMP_Z_LIMIT)

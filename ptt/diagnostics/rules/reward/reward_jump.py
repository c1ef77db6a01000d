"""This run shows a long plateau of the reward and then a sudden rise.

What: the reward stays within its noise for three tenths of the run or more, then rises by eight standard deviations of
a window's mean, most of it within a tenth of the run. It is a note, not a failure.
Why it matters: such a rise is either late understanding, which people call grokking, or a way found to be paid without
doing the task. The two look alike in the reward.
What to do: if an outcome rose with it, keep the checkpoint before and after and go on; if none is recorded, or none
rose, read the highest-reward samples after the jump before going on.
Source: Power et al., Grokking (arXiv 2201.02177), for the late rise; reward-hacking for its rival.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES
from ptt.diagnostics.evidence.level_change import window_mean_noise
from ptt.diagnostics.evidence.outcome_agreement import OutcomeState, judge_outcomes
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import highest_samples, reward_of, shifts_of

JUMP_LIMIT = 8.0  # standard deviations of a window's mean
PLATEAU = 0.3  # of the run: shorter ones are how learning begins
SUDDEN = 0.1  # of the run
LEAST_SHARE = 0.2  # of the larger level


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Look for a plateau and a jump."""
    reward = reward_of(evidence, 2 * MIN_VALUES)
    if isinstance(reward, NotJudged):
        return reward
    jump = _jump(reward, limits["jump"])
    if jump is None:
        return Healthy(reason="no long plateau with a sudden rise after it")
    step, before, after, height = jump
    outcomes = judge_outcomes(evidence, reward)
    shared = any(one.state in (OutcomeState.ROSE, OutcomeState.SOLVED) for one in outcomes)
    shifts = shifts_of(evidence)
    if shared:
        claim = f"The reward rises suddenly after a long plateau ({before:.3g} → {after:.3g}), and an outcome with it"
    else:
        claim = f"The reward rises suddenly after a long plateau ({before:.3g} → {after:.3g}); no outcome shows why"
    samples = highest_samples(evidence)
    note = Finding(
        severity=Severity.LOW if not shared and shifts else Severity.INFO,
        claim=claim,
        observed=height,
        limit=limits["jump"],
        unit="standard deviations",
        onset_step=step,
        evidence={"metric": "reward/mean", "logged_as": reward.raw_name, "before": before, "after": after,
                  "outcome_rose": shared, "shifted": ", ".join(one.name for one in shifts[:4]) or None},
        causes=("late understanding (grokking)",) if shared else ("late understanding (grokking)", "a way to be paid"
                " without doing the task", "an easier mix of tasks, or a changed scorer, from that step on"),
        confirm=("read the highest-reward samples after the jump" + (f" ({samples})" if samples else ""),),
        next=("keep the checkpoints before and after the jump",))  # fmt: skip
    return Healthy(reason=claim, notes=(note,))


def _jump(series: Series, limit: float) -> tuple[int, float, float, float] | None:
    steps, values = series.finite()
    width = series.width
    means = np.convolve(values, np.ones(width) / width, mode="valid")
    reach = max(width, int(SUDDEN * len(values)))
    if len(means) <= reach:
        return None
    ups = means[reach:] - means[:-reach]
    place = int(np.argmax(ups))
    before, after = float(means[place]), float(means[place + reach])
    early = values[: place + width]
    if len(early) < max(MIN_VALUES, PLATEAU * len(values)):
        return None
    noise = window_mean_noise(early, width)
    level = means[: place + 1]
    still = float(np.abs(level - np.median(level)).max()) <= max(4 * noise, 0.1 * (after - before))
    scale = max(abs(before), abs(after))
    stayed = float(values[-width:].mean()) - before >= (after - before) / 2
    if not still or not stayed or after - before <= max(limit * noise, LEAST_SHARE * scale):
        return None
    return int(steps[place + width]), before, after, (after - before) / noise if noise > 0 else 0.0


RULE = rule(check, "reward-jump", Link.REWARD, jump=JUMP_LIMIT)

"""This run shows a reward that never rises: it stands still, or at exactly one value.

What: the logged mean reward is exactly the same at every step; or from some step on to the end, for at least ten logged
steps and a fifth of the run, below its best, where the earlier rewards make such a stretch nearly impossible; or
exactly at its lowest value at seven of ten steps, no less so at the end than at the start. Or it moves, but rises
nowhere, and a rise that matters would have shown: by a tenth of the scale where rewards lie between 0 and 1, otherwise
by a tenth of its level or the scatter of a step, whichever is larger. The claim says how small a rise would have shown.
Why it matters: a reward that stands still is paid for with the whole run. Samples that all earn the same teach nothing;
a reward at its floor means that every answer fails, or that the scorer itself has failed.
What it is not: a solved task, or one that is mostly solved from the start: that is a note. So is a run of fewer than
100 logged steps (250 where it did not do all its steps), and a reward that rose at first and has stood still since. A
reward that noise hides, or beside which an evaluation or a share of tasks done rose, is not judged so; nor is
distillation, which pays no reward.
What to do: score a few of the last samples by hand; look for a scorer that falls back to a default, an environment that
is down, a format that the policy lost, a learning rate or advantages near 0, tasks that are too hard.
Source: a constant reward has no advantage (arXiv 2402.03300, section 4.1); the odds of a stretch follow from how often
the value occurred before it; a rise is judged by a straight line with its interval, widened for autocorrelation.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import step_noise
from ptt.diagnostics.evidence.run_end import progress_of
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, does_not_apply, rule
from ptt.diagnostics.rules.reward import REWARD_ENABLE, mean_reward, rewards_of
from ptt.diagnostics.rules.reward_outcome import pays_none
from ptt.diagnostics.rules.single_series import last_mean, metric_evidence
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.small_sample import LineChange, estimate_change
from ptt.diagnostics.wording import sig

STUCK_SHARE = 0.2  # of the logged steps: shorter stretches come and go
MIN_STUCK = 10  # logged steps
MIN_NEVER_MOVED = 20  # logged steps from the start: a hard task earns nothing for a while
MAX_CHANCE = 1e-4  # of a stretch as long, by how often the value occurred before
BEST_WINDOW = 3  # logged values: one lucky batch is no level
MIN_FULL_REWARD, MAX_FULL_REWARD = 0.9, 1.1  # of a reward of 1 a task (and .1 for its format)
ROUNDING = 0.01  # beyond the fullest reward: what a mean in float32, or a printed one, adds
FLOOR_SHARE = 0.7  # of the logged steps at exactly the lowest reward: less than a third are left to learn from
RISEN_FLOOR = 0.1  # of the steps: a floor touched this much less often at the end than at the start is being left
MIN_RISE = 0.1  # of a scale from 0 to 1, or of the level: a smaller rise is hardly what a run was started for
MOSTLY_RIGHT = 0.7  # of a reward of 1: if it is this near its top from the start, little is left to gain
LONG_RUN = 100  # logged values in a completed run: all of it taught nothing
LONG_OPEN_RUN = 250  # logged values in any other run: some tasks are learnt late and suddenly, but rarely after so long
DONE_SHARE = 0.98  # of the planned steps: the last logged step may lie a little before the last one
FIRST_VALUES = 3  # logged values: learning within them precedes any line
RISE_SDS = 4.0  # standard errors: few runs in a thousand rise this far by chance, anywhere in the run
STOOD_SHARE = 0.5  # of the run: a reward that stands still for less has just arrived
MIN_STOOD = 60  # logged values: three windows; over fewer nothing is said of a reward that rose before
SILENT_SHARE = 0.5  # of groups without spread: no-signal-groups then says why the reward stands still


class Stretch(NamedTuple):
    """The equal values at the end of a series."""

    value: float
    start: int
    length: int


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge equal rewards at the end of the run or throughout it, those at the floor, and a rise that never came."""
    reward = mean_reward(evidence, minimum=MIN_LOGGED)
    if isinstance(reward, NotJudged):
        return reward
    values = reward.finite()[1]
    if pays_none(evidence):
        return does_not_apply("distillation: it learns from its teacher, and every reward is 0")
    stretch = final_stretch(values)
    if stretch.start == 0 and len(values) < MIN_NEVER_MOVED:
        reason = (
            f"all {len(values)} logged rewards are {stretch.value:g}; {MIN_NEVER_MOVED} would show that it never moves"
        )
        return NotJudged(reason=reason, missing=("reward/mean",), enable=REWARD_ENABLE)
    if stretch.start == 0:
        return _never_moved(reward, stretch.value)
    stuck = _stuck_at_end(reward, stretch, limits)
    if isinstance(stuck, Finding):
        return stuck
    return _at_floor(reward, limits) or _stands_still(reward, evidence, limits) or stuck


def _stuck_at_end(reward: Series, stretch: Stretch, limits: Limits) -> Finding | Healthy:
    """Judge equal rewards at the end of a run that earned others before."""
    steps, values = reward.finite()
    share = stretch.length / len(values)
    before = values[: stretch.start]
    if stretch.length < MIN_STUCK or share < limits["share"] or _chance(before, stretch) > MAX_CHANCE:
        return Healthy(reason=f"the last {stretch.length} of {len(values)} logged rewards are equal")
    width = min(BEST_WINDOW, len(before))
    best = float(np.convolve(before, np.full(width, 1.0 / width), "valid").max())
    onset = int(steps[stretch.start])
    if stretch.value >= best:
        return Healthy(reason=f"the reward stays at {stretch.value:g}, its best, from step {onset} on")
    return Finding(
        severity=Severity.HIGH,
        claim=f"The reward is stuck at exactly {stretch.value:g} for the last {stretch.length} of {len(values)} "
        f"logged steps; it had reached {sig(best)}",
        observed=share,
        limit=limits["share"],
        unit="share",
        onset_step=onset,
        onset_interval=(int(steps[stretch.start - 1]), onset),
        evidence=metric_evidence(reward, value=stretch.value, best=best, equal_values=stretch.length),
        causes=(
            "a scorer or an environment that failed and returns a default",
            "a policy that collapsed onto one answer",
            "a format that the policy lost, so nothing is scored any more",
        ),
        confirm=(f"score ten samples from after step {onset} by hand: does the scorer say the same?",),
        next=(
            "if the scorer fails: fix it, and resume from a checkpoint before that step",
            "if the answers are all the same: look at entropy and the policy update first",
        ),
    )


def final_stretch(values: np.ndarray) -> Stretch:
    """Return the longest run of equal values at the end; `values`: (n,), n of 1 at least."""
    moved = np.flatnonzero(values != values[-1])
    start = int(moved[-1]) + 1 if len(moved) else 0
    return Stretch(float(values[-1]), start, len(values) - start)


def _chance(before: np.ndarray, stretch: Stretch) -> float:
    """Return the probability of so many equal values if each occurs as often as before (Laplace's rule)."""
    share = (float((before == stretch.value).sum()) + 1.0) / (len(before) + 2.0)
    return float(share**stretch.length)


def _never_moved(reward: Series, value: float) -> Finding | Healthy:
    steps, values = reward.finite()
    full = MIN_FULL_REWARD <= value <= MAX_FULL_REWARD
    solved = value == 1.0  # to the last digit: every answer was right
    finding = Finding(
        severity=Severity.LOW if solved else Severity.MEDIUM if full else Severity.HIGH,
        claim=f"The reward is exactly {value:g} at all {len(values)} logged steps"
        + (
            ": the task was solved from the start"
            if solved
            else ": it was solved from the start, or the scorer returns a constant; either way nothing is learnt"
            if full
            else ": it does not distinguish answers"
        ),
        observed=1.0,
        limit=STUCK_SHARE,
        unit="share",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=metric_evidence(reward, value=value, equal_values=len(values)),
        causes=("tasks that are far too hard or far too easy", "a scorer that always returns the same value"),
        confirm=("score ten samples by hand: does the scorer say the same?",),
        next=("start with tasks that the start model solves in one of ten tries",),
    )
    return Healthy(reason="the task was solved from the start", notes=(finding,)) if solved else finding


def _at_floor(reward: Series, limits: Limits) -> Finding | Healthy | None:
    """Judge a reward that most steps earn nothing of; None where they do, or where more and more do."""
    steps, values = reward.finite()
    floor = float(values.min())
    touched = values == floor
    share, third = float(touched.mean()), max(1, len(values) // 3)
    leaves = float(touched[:third].mean()) - float(touched[-third:].mean())
    if share < limits["floor"] or leaves > RISEN_FLOOR:
        return None
    finding = Finding(
        severity=Severity.MEDIUM if len(values) >= MIN_NEVER_MOVED else Severity.LOW,
        claim=f"The reward is exactly {floor:g}, its lowest, at {touched.sum()} of {len(values)} logged steps",
        observed=share,
        limit=limits["floor"],
        unit="share",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=metric_evidence(reward, value=floor, mean=float(values.mean()), equal_values=int(touched.sum())),
        causes=(
            "tasks that are far too hard: nearly every answer earns nothing",
            "a scorer that recognises few right answers: parser, format, time limit",
        ),
        confirm=("score ten samples of such steps by hand: does the scorer say the same?",),
        next=(
            "start with tasks that the start model solves in one of ten tries",
            "or sample more answers a prompt, so that more groups contain a right one",
        ),
    )
    return finding if finding.severity is Severity.MEDIUM else _noted(finding)


def _noted(finding: Finding) -> Healthy:
    return Healthy(reason=finding.claim[0].lower() + finding.claim[1:], notes=(finding,))


def _stands_still(reward: Series, evidence: Evidence, limits: Limits) -> Verdict | None:
    """Judge a reward that never rose, or stands still since it did; None if it moves, or noise hides it."""
    steps, values = reward.finite()
    material = _material(values, limits["rise"])
    if material is None:
        return None
    change = estimate_change(values)
    if change is not None and not _rose_anywhere(values) and _flat(change, material):
        return None if _other_outcome_rose(evidence) else _never_rose(reward, change, material, evidence)
    start = _stood_since(values, material)
    if start is None or _other_outcome_rose(evidence):
        return None
    late = estimate_change(values[start:])
    assert late is not None  # it has MIN_STOOD values
    level = float(values[start:].mean())
    note = _finding(
        evidence,
        reward,
        late,
        Severity.LOW,
        f"The reward has stood still at {sig(level)} since step {steps[start]}, for {len(values) - start} of "
        f"{len(values)} logged steps; a rise by {sig(_would_show(late))} would have shown",
        material,
    )
    since = int(steps[start])
    return _noted(replace(note, onset_step=since, onset_interval=(int(steps[0]), since)))


def _material(values: FloatArray, rise: float) -> float | None:
    """Return what a rise of this reward must reach to matter; None where it is solved."""
    level = float(np.median(values))
    if values.min() >= 0 and values.max() <= MAX_FULL_REWARD + ROUNDING:
        return None if level >= MIN_FULL_REWARD else rise
    return max(rise * abs(level), step_noise(values)[0])


def _flat(change: LineChange, material: float) -> bool:
    """Return whether it did not rise, and surely by less than matters."""
    return change.lowest <= 0 and change.highest <= material and _would_show(change) <= material


def _would_show(change: LineChange) -> float:
    """Return the smallest rise that four of five such runs would show."""
    return (change.highest - change.amount) * 1.4  # 80% power beside the 97.5% bound: (1.96 + .84) / 1.96


def _rose_anywhere(values: FloatArray) -> bool:
    """Return whether any later stretch lies above the first few values by more than noise."""
    spread, ar1 = step_noise(values)
    inflation = (1 + ar1) / (1 - ar1)
    first = float(values[:FIRST_VALUES].mean())
    width = max(FIRST_VALUES, len(values) // 5)
    later = np.convolve(values[FIRST_VALUES:], np.full(width, 1.0 / width), "valid")
    error = spread * math.sqrt(1 / FIRST_VALUES + inflation / width)
    return bool(len(later) and float(later.max()) - first > RISE_SDS * error)


def _stood_since(values: FloatArray, material: float) -> int | None:
    """Return the first place from which a reward that rose before stands still; None if it does not."""
    for share in (0.1, 0.2, 0.3, 0.4, STOOD_SHARE):
        start = int(share * len(values))
        change = estimate_change(values[start:]) if len(values) - start >= MIN_STOOD else None
        if change is not None and _flat(change, material / 2) and not _fell(change):
            return start
    return None


def _fell(change: LineChange) -> bool:
    return change.highest < 0


def _other_outcome_rose(evidence: Evidence) -> bool:
    """Return whether a share of tasks done, or a figure of an evaluation, rose beyond its noise."""
    outcomes = [series for _, series in sorted(rewards_of(evidence).outcomes.items())]
    if evidence.evaluation is not None:
        outcomes += [figure.series for figure in evidence.evaluation.figures if figure.outcome]
    changes = [estimate_change(series.finite()[1]) for series in outcomes]
    return any(change is not None and change.lowest > 0 for change in changes)


def _never_rose(reward: Series, change: LineChange, material: float, evidence: Evidence) -> Verdict:
    values = reward.finite()[1]
    if change.highest < 0:
        return Healthy(reason=f"the reward went {sig(change.early)} → {sig(change.late)}")
    level = float(values.mean())
    right = values.min() >= 0 and values.max() <= MAX_FULL_REWARD + ROUNDING and level >= MOSTLY_RIGHT
    done = progress_of(evidence.run).share
    enough = LONG_RUN if done is not None and done >= DONE_SHARE else LONG_OPEN_RUN
    silent = evidence.metrics.get("reward/zero_std_frac")
    told = silent is not None and bool(len(silent.finite()[0])) and last_mean(silent) > SILENT_SHARE
    note = right or told or len(values) < enough or change.highest_999 > material
    claim = (
        f"The reward never rose in {len(values)} logged steps ({sig(change.early)} → {sig(change.late)}); a rise by "
        f"{sig(_would_show(change))} would have shown"
    )
    finding = _finding(evidence, reward, change, Severity.LOW if note else Severity.MEDIUM, claim, material)
    return _noted(finding) if note else finding


def _finding(
    evidence: Evidence, reward: Series, change: LineChange, severity: Severity, claim: str, limit: float
) -> Finding:
    grouped = evidence.algorithm.groups is True
    steps = reward.finite()[0]
    return Finding(
        severity=severity,
        claim=claim,
        observed=change.amount,
        limit=limit,
        unit="reward",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=metric_evidence(
            reward, early=change.early, late=change.late, highest_rise=change.highest, would_show=_would_show(change)
        ),
        causes=(
            "tasks that are too hard or too easy for this policy, so that hardly any is sometimes solved",
            "a learning rate that is too small, or advantages and gradients near 0",
            "a reward that does not depend on what the policy can change",
        ),
        confirm=(
            "count the groups whose samples do not all earn the same: without them nothing is learnt"
            if grouped
            else "plot the reward of each kind of task: one that is never solved hides behind one that always is",
            "train on 8 prompts alone: a reward that does not rise there either points to the update, not to the tasks",
        ),
        next=(
            "if the 8 prompts can be learnt: easier prompts, or more samples a prompt",
            "if they cannot: check learning rate, advantages and loss mask before anything else",
        ),
    )


RULE = rule(
    check, "reward-stuck", Link.REWARD, max_severity=Severity.HIGH, share=STUCK_SHARE, floor=FLOOR_SHARE, rise=MIN_RISE
)

"""This run shows a policy entropy that fell to almost nothing.

What: the 20-step mean of the entropy falls below 0.02 nats and a tenth of its early level, or below 0.1 nats and a
fiftieth of its highest level, and stays there; or the last values of the run (at least three, at most a fifth of it)
all lie that low, at most a fifth of the level before them and six standard deviations of the run's own noise below it:
a collapse that the mean may not show yet.
Why it matters: a policy without entropy samples the same answer again and again. Groups stop differing, advantages
vanish, and it cannot find its way out.
What it is not: a policy that became certain because it is right: where the task is solved at the end, nothing is said.
Where the reward rose the finding is low: in healthy runs, a tool call that became deterministic looks the same. Where
the reward fell it is high. Where it did neither, it is medium if the entropy was gone within a quarter of the run, or
if most groups give no signal while the reward is below 0.7 of 1: the policy settled before it had learnt the task. The
same if such a reward has not moved since the entropy was gone. Entropy that drops at the end of the run is not a policy
that grew certain gradually: at least medium, unless the reward keeps rising. An entropy below 0 is one of densities, as
continuous actions have: it has no floor, and is not judged.
What to do: look at samples. If the answers are wrong or all the same, go back to before the fall, then lower the
learning rate, add an entropy bonus, raise the clip's upper bound (clip-higher) or hold the policy closer to the
reference.
Source: absolute floors of 0.1 to 1 nat, as older tools use, flag normal language-model RL (0.05 to 0.6 nats); what the
run itself began with says how much is gone.
"""

import math

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import step_noise
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import (
    COLLAPSE_FACTOR,
    Outcome,
    outcome,
    outcome_clause,
    outcome_since,
    reward_range,
)
from ptt.diagnostics.rules.single_series import last_mean, requires_metric, series_evidence
from ptt.diagnostics.wording import sig

ENTROPY_FLOOR = 0.02  # nats a token: below what healthy, solved tool tasks keep (0.03 to 0.05)
MAX_SILENT_SHARE = 0.5  # share of groups without spread
MAX_FULL_REWARD = 1.1  # of a reward of 1 a task (and .1 for its format)
SOLVED_REWARD = 0.7  # mean reward of a task that pays 1
MAX_FALL_SHARE = 0.25  # of the logged steps, from half of the early level to the floor
SOLVED_SHARE = 0.95  # of a reward or an outcome of at most 1: nothing is left to explore for
FAR_LEVEL = 0.1  # nats a token: what healthy runs keep lies below it, but not that far from where they began
FAR_FACTOR = 0.02  # of the highest level: healthy runs keep a twentieth of it and more
FALL_FACTOR = 0.1  # of the early level: a run that starts near the floor has not collapsed onto it
MIN_END_VALUES = 3  # low values at the end: one or two are a batch
MAX_END_SHARE = 0.2  # of the run: what came before is told by what the reward did since
END_FALL_FACTOR = 0.2  # of the level just before them: an entropy that fades over the run has not dropped at its end
END_SDS = 6.0  # of the run's own noise, in logs
SMALLEST = 1e-6  # nats: an entropy of exactly 0 has no logarithm
CAUSES = (
    "one answer crowds out the others",
    "nothing keeps the policy spread out: no entropy bonus, no KL penalty",
    "a learning rate that is too high, or a sampling temperature that is too low",
)
CONFIRM = ("read 20 of the latest samples of one prompt: are they the same, and are they right?",)
NEXT = (
    "add an entropy bonus or raise the upper clip bound, and change nothing else",
    "then lower the learning rate, then raise the KL coefficient",
)


@requires_metric("entropy", what="entropy", enable="log the policy's token entropy")
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged entropy."""
    steps, rolling = series.rolling()
    values = series.finite()[1]
    early = float(values[: series.width].mean())
    if early < 0:  # one estimate before the first update may lie anywhere
        early = float(np.median(values[: series.width]))
    if not values.any():
        return NotJudged(
            reason=f"{series.raw_name} is 0 at all {len(values)} logged steps",
            missing=(),
            enable="check that the policy samples, and that the logged figure is its entropy",
        )
    if early <= 0:
        return NotJudged(
            reason=f"{series.raw_name} begins at {sig(early)}: an entropy of densities has no floor",
            missing=("entropy",),
            enable="log the entropy of the tokens, with its own sign",
        )
    far = min(FAR_LEVEL, limits["left_of_highest"] * float(np.nanmax(rolling)))
    bound = max(min(limits["floor"], limits["left_of_early"] * early), far)
    solved = _solved(evidence)
    if solved is not None and last_mean(series) < bound:
        return Healthy(reason=f"entropy went from {sig(early)} to {sig(last_mean(series))} nats as {solved}")
    mean = np.nan_to_num(rolling, nan=np.inf)
    last = float(rolling[np.isfinite(rolling)][-1])
    at_end = _gone_at_end(series, evidence, bound)
    if at_end is not None:
        return at_end
    if not (mean < bound).any() or last >= bound:
        return Healthy(reason=f"entropy went from {sig(early)} to {sig(last)} nats, floor {sig(bound)}")
    onset = int(np.flatnonzero(mean >= bound)[-1]) + 1  # of the dip that did not recover
    half = int(np.flatnonzero(mean >= early / 2)[-1])
    settled = onset - half <= MAX_FALL_SHARE * len(steps) or _silent_and_unsolved(evidence)
    interval = (int(steps[half]), int(steps[onset]))
    since, whole = outcome_since(evidence, interval[0]), outcome(evidence)
    reward = whole if whole is Outcome.FELL or not settled or not since.judged else since
    stalled = outcome_since(evidence, interval[1]) is Outcome.FLAT and _unsolved(evidence)
    if stalled and reward is not Outcome.FELL:
        reward = Outcome.FLAT
    stuck = reward is Outcome.FLAT and (settled or stalled)
    return Finding(
        severity=Severity.HIGH if reward is Outcome.FELL else Severity.MEDIUM if stuck else Severity.LOW,
        claim=f"Entropy fell from {sig(early)} to {sig(last)} nats{outcome_clause(reward)}",
        observed=last,
        limit=bound,
        unit="nats",
        onset_step=interval[1],
        onset_interval=interval,
        evidence=series_evidence(series, early=early, settled=settled),
        causes=CAUSES,
        confirm=CONFIRM,
        next=(f"if they are the same and wrong: roll back to a checkpoint before step {interval[0]}", *NEXT),
    )


def _gone_at_end(series: Series, evidence: Evidence, bound: float) -> Finding | None:
    """Return the finding of an entropy that dropped below the bound in the last few values, or None."""
    steps, values = series.finite()
    above = np.flatnonzero(values >= bound)
    first = int(above[-1]) + 1 if len(above) else 0
    before, end = values[:first], values[first:]
    if not MIN_END_VALUES <= len(end) <= max(series.width, MAX_END_SHARE * len(values)) or len(before) < MIN_LOGGED:
        return None
    level = float(np.median(before[-series.width :]))
    if not 0 < bound < level:
        return None
    noise, _ = step_noise(np.log(np.maximum(before, SMALLEST)))
    highest = float(end.max())
    if highest > END_FALL_FACTOR * level or math.log(level / max(highest, SMALLEST)) < END_SDS * noise:
        return None
    interval = (int(steps[first - 1]), int(steps[first]))
    if outcome_since(evidence, interval[1]) is Outcome.ROSE:
        return None  # it learns on: no alarm by itself
    fell = outcome(evidence) is Outcome.FELL or _reward_fell_with_it(evidence, interval[1])
    return Finding(
        severity=Severity.HIGH if fell else Severity.MEDIUM,
        claim=f"Entropy dropped from {sig(level)} to {sig(end.mean())} nats in the last {len(end)} logged steps"
        f"{outcome_clause(Outcome.FELL) if fell else ''}",
        observed=float(end.mean()),
        limit=bound,
        unit="nats",
        onset_step=interval[1],
        onset_interval=interval,
        evidence=series_evidence(series, before=level, values_at_end=len(end)),
        causes=CAUSES,
        confirm=CONFIRM,
        next=(f"keep the checkpoint from before step {interval[1]}: the last one with any spread", *NEXT),
    )


def _reward_fell_with_it(evidence: Evidence, step: int) -> bool:
    """Return whether the mean reward from `step` on lies below half of the window before it."""
    series = evidence.metrics.get("reward/mean")
    if series is None:
        return False
    steps, values = series.finite()
    before, since = values[steps < step][-series.width :], values[steps >= step]
    return bool(len(before) and len(since) and before.mean() > 0 and since.mean() < COLLAPSE_FACTOR * before.mean())


def _silent_and_unsolved(evidence: Evidence) -> bool:
    """Return whether most groups give no signal while the reward, one of at most 1 a task, is far from its top."""
    silent = evidence.metrics.get("reward/zero_std_frac")
    if silent is None or not len(silent.finite()[0]):
        return False
    return last_mean(silent) > MAX_SILENT_SHARE and _unsolved(evidence)


def _unsolved(evidence: Evidence) -> bool:
    """Return whether the reward, one of at most 1 a task, is far from its top."""
    reward = reward_range(evidence)
    return reward is not None and reward.worst >= 0 and reward.best <= 1 and reward.last < SOLVED_REWARD


def _solved(evidence: Evidence) -> str | None:
    """Return what says that nearly every answer is right at the end, as a clause, or None."""
    reward = evidence.metrics.get("reward/mean")
    told = [reward] if reward is not None and len(reward.finite()[0]) >= MIN_LOGGED else []
    told += [] if evidence.rewards is None else [one for _, one in sorted(evidence.rewards.outcomes.items())]
    for series in told:
        values = series.finite()[1]
        top = max(1.0, float(values.max(initial=0.0)))
        if len(values) and values.min() >= 0 and top <= MAX_FULL_REWARD and last_mean(series) >= SOLVED_SHARE * top:
            return f"the task was solved ({series.raw_name} ends at {sig(last_mean(series))})"
    return None


RULE = rule(
    check,
    "entropy-collapse",
    Link.EXPLORATION,
    floor=ENTROPY_FLOOR,
    left_of_early=FALL_FACTOR,
    left_of_highest=FAR_FACTOR,
)

"""This run shows a policy entropy that fell to almost nothing.

What: the 20-step mean of the entropy falls below 0.02 nats and below a tenth of its early level, and stays there.
Why it matters: a policy without entropy samples the same answer again and again; groups stop differing, advantages
vanish, and it cannot find its way out.
What it is not: a policy that became sure because it is right. Where the reward rose the finding is low: a tool call
that became deterministic looks just so in healthy runs. Where the reward fell it is high; where it neither rose nor
fell since, medium, if the entropy was gone within a quarter of the run or most groups give no signal while the reward
is below 0.7 of 1: the policy settled before it had learnt the task.
What to do: look at samples; if the answers are wrong or all alike, go back to before the fall, lower the learning
rate, add an entropy bonus or raise the clip's upper bound (clip-higher), hold the policy closer to the reference.
Source: absolute floors of 0.1 to 1 nat, as older tools use, flag normal language-model RL (0.05 to 0.6 nats).
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome, outcome_clause, outcome_since, reward_range
from ptt.diagnostics.rules.single_series import last_mean, requires_metric, series_evidence

ENTROPY_FLOOR = 0.02  # nats a token: below what healthy, solved tool tasks keep (0.03 to 0.05)
MAX_SILENT_SHARE = 0.5  # share of groups without spread
SOLVED_REWARD = 0.7  # mean reward of a task that pays 1
MAX_FALL_SHARE = 0.25  # of the logged steps, from half of the early level to the floor
FALL_FACTOR = 0.1  # of the early level: a run that starts near the floor has not collapsed onto it


@requires_metric("entropy", what="entropy", enable="log the policy's token entropy")
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged entropy."""
    steps, rolling = series.rolling()
    early = float(series.finite()[1][: series.width].mean())
    bound = min(limits["floor"], limits["left_of_early"] * early)
    mean = np.nan_to_num(rolling, nan=np.inf)
    last = float(rolling[np.isfinite(rolling)][-1])
    if not (mean < bound).any() or last >= bound:
        return Healthy(reason=f"entropy went from {early:.3g} to {last:.3g} nats, floor {bound:.3g}")
    onset = int(np.flatnonzero(mean >= bound)[-1]) + 1  # of the dip that did not recover
    half = int(np.flatnonzero(mean >= early / 2)[-1])
    settled = onset - half <= MAX_FALL_SHARE * len(steps) or _silent_and_unsolved(evidence)
    interval = (int(steps[half]), int(steps[onset]))
    since, whole = outcome_since(evidence, interval[0]), outcome(evidence)
    reward = whole if whole is Outcome.FELL or not settled or since is Outcome.UNKNOWN else since
    stuck = reward is Outcome.FLAT and settled
    return Finding(
        severity=Severity.HIGH if reward is Outcome.FELL else Severity.MEDIUM if stuck else Severity.LOW,
        claim=f"Entropy fell from {early:.3g} to {last:.3g} nats{outcome_clause(reward)}",
        observed=last,
        limit=bound,
        unit="nats",
        onset_step=interval[1],
        onset_interval=interval,
        evidence=series_evidence(series, early=early, settled=settled),
        causes=(
            "one answer crowds out the others",
            "no force keeps the policy spread: entropy bonus, KL",
            "learning rate too high, or sampling temperature too low",
        ),
        confirm=("read 20 of the latest samples of one prompt: are they the same, and are they right?",),
        next=(
            f"if they are alike and wrong: roll back to a checkpoint from before step {interval[0]}",
            "add an entropy bonus or raise the upper clip bound, nothing else changed",
            "then lower the learning rate, then raise the KL coefficient",
        ),
    )


def _silent_and_unsolved(evidence: Evidence) -> bool:
    """Return whether most groups give no signal while the reward, one of at most 1 a task, is far from its top."""
    silent, reward = evidence.metrics.get("reward/zero_std_frac"), reward_range(evidence)
    if silent is None or reward is None or not len(silent.finite()[0]):
        return False
    return (
        last_mean(silent) > MAX_SILENT_SHARE and reward.worst >= 0 and reward.best <= 1 and reward.last < SOLVED_REWARD
    )


RULE = rule(check, "entropy-collapse", Link.EXPLORATION, floor=ENTROPY_FLOOR, left_of_early=FALL_FACTOR)

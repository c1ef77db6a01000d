"""This run shows a policy entropy that fell to almost nothing.

What: the 20-step mean of the entropy falls below 0.02 nats and below a tenth of its early level, and stays there.
Why it matters: a policy without entropy samples the same answer again and again; groups stop differing, advantages
vanish, and it cannot find its way out.
What it is not: a policy that became sure because it is right. Where the reward did not fall the finding is low: a tool
call that became deterministic looks just so in healthy runs.
What to do: look at samples; if the answers are wrong or all alike, lower the learning rate, add an entropy bonus or
raise the clip's upper bound (clip-higher), raise the sampling temperature.
Source: absolute floors of 0.1 to 1 nat, as older tools use, flag normal language-model RL (0.05 to 0.6 nats).
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED
from ptt.diagnostics.model import Broken, Finding, Healthy, Link, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules.interface import ONLINE, Limits, Rule
from ptt.diagnostics.rules.reading import early_mean, reward_fell

ID = "entropy-collapse"
ENTROPY_FLOOR = 0.02  # nats a token: below what healthy, solved tool tasks keep (0.03 to 0.05)
LEFT_OF_EARLY = 0.1  # of the early level: a run that starts near the floor has not collapsed onto it


def check(evidence: Evidence, limits: Limits) -> RuleVerdict:
    """Judge the logged entropy."""
    series = evidence.metrics.get("entropy")
    if series is None or len(series.finite()[0]) < MIN_LOGGED:
        return NotJudged(
            id=ID,
            link=Link.EXPLORATION,
            reason="no entropy is logged" if series is None else "too few entropies are logged",
            missing=("entropy",),
            enable="log the policy's token entropy",
        )
    steps, mean = series.rolling()
    early = early_mean(series)
    bound = min(limits["floor"], limits["left_of_early"] * early)
    below = np.flatnonzero(np.nan_to_num(mean, nan=np.inf) < bound)
    last = float(mean[np.isfinite(mean)][-1])
    if not len(below) or last >= bound:
        return Healthy(
            id=ID,
            link=Link.EXPLORATION,
            reason=f"entropy went from {early:.3g} to {last:.3g} nats, floor {bound:.3g}",
        )
    fell = reward_fell(evidence)
    back = np.flatnonzero(np.nan_to_num(mean, nan=np.inf) >= bound)[-1]  # the dip that did not recover
    onset = int(steps[back + 1])
    return Broken(
        findings=(
            Finding(
                id=ID,
                severity=Severity.HIGH if fell else Severity.LOW,
                link=Link.EXPLORATION,
                claim=f"Entropy fell from {early:.3g} to {last:.3g} nats"
                + (" while the reward fell" if fell else "; the reward did not fall with it"),
                observed=last,
                limit=bound,
                unit="nats",
                onset_step=onset,
                evidence={"metric": "entropy", "logged_as": series.raw_name, "early": early},
                causes=(
                    "one answer crowds out the others",
                    "no force keeps the policy spread: entropy bonus, KL",
                ),
                next=("read 20 of the latest samples of one prompt: are they the same, and are they right?",),
            ),
        )
    )


RULE = Rule(
    id=ID,
    link=Link.EXPLORATION,
    check=check,
    families=ONLINE,
    limits={"floor": ENTROPY_FLOOR, "left_of_early": LEFT_OF_EARLY},
)

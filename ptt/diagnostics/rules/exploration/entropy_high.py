"""This run shows a policy that stays random and learns nothing.

What: the entropy is 2 nats a token or more from the start and does not fall by a tenth, while the reward does not rise.
The level is a rule of thumb, so the finding is low.
Why it matters: at 2 nats the policy wavers between about seven tokens at each position. It finds right answers only by
chance and does not find them again, so no advantage points anywhere.
What it is not: an entropy that rises (see entropy-explosion), nor a wide policy that learns.
What to do: read twenty samples: are they language, and in the task's format? Then lower the sampling temperature,
remove the entropy bonus, and start from a checkpoint that solves some of the tasks.
Source: without a bonus the entropy falls from the first steps on as the reward rises (Cui et al., arXiv 2505.22617); 2
nats, seven equal choices, is our own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, early_level
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome, outcome_clause, reward_range
from ptt.diagnostics.rules.single_series import last_mean, requires_metric, series_evidence
from ptt.diagnostics.wording import sig

HIGH_NATS = 2.0  # a token: seven choices alike
FALL_FACTOR = 0.9  # of the early entropy: a policy that learns anything grows surer than that
ENABLE = "log the policy's token entropy"


@requires_metric("entropy", what="entropy", enable=ENABLE, minimum=MIN_VALUES)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the level of the entropy beside what the reward did."""
    level, last = early_level(series), last_mean(series)
    early = level.median if level is not None else last
    if min(early, last) < limits["nats"] or last < FALL_FACTOR * early:
        return Healthy(reason=f"entropy went from {sig(early)} to {sig(last)} nats")
    went, reward = outcome(evidence), reward_range(evidence)
    if reward is None:
        return NotJudged(
            reason=f"entropy stays at {sig(last)} nats{outcome_clause(went)}",
            missing=("reward/mean",),
            enable="log the mean reward at every step",
        )
    if went is Outcome.ROSE:
        return Healthy(reason=f"entropy stays at {sig(last)} nats, and the reward rose")
    first = int(series.finite()[0][0])
    return Finding(
        severity=Severity.LOW,
        claim=f"The entropy stays at {sig(last)} nats a token and the reward at {sig(reward.last)}: the policy learns "
        "nothing",
        observed=last,
        limit=limits["nats"],
        unit="nats",
        onset_step=first,
        onset_interval=(first, first),
        evidence=series_evidence(series, early=early, reward_first=reward.first, reward_last=reward.last),
        causes=(
            "a sampling temperature or an entropy bonus that is too high",
            "a starting checkpoint that does not know the task's format",
            "a reward so sparse that no advantage points anywhere",
        ),
        confirm=("read twenty of the first samples and twenty of the last: still language, and in the task's format?",),
        next=(
            "sample the starting checkpoint at temperature 1 and 0.6: how many tasks does each solve?",
            "then lower the temperature or the entropy coefficient, and change nothing else",
        ),
    )


RULE = rule(check, "entropy-high", Link.EXPLORATION, max_severity=Severity.LOW, nats=HIGH_NATS, families=LANGUAGE)

"""This run shows a policy entropy that rises and does not come back.

What: the entropy stays above twice its own early level and 0.2 nats more, beyond its noise. Where the reward fell it is
high, where the reward did not rise medium, else low.
Why it matters: a policy that grows more random while the reward does not rise unlearns what it knew; sampled tokens
get so unlikely that ratios and gradients become noise.
What it is not: exploration that pays. With clip-higher or an entropy bonus the entropy rises and the reward with it.
What to do: look for the first step and what changed there: stale rollouts, an update too large, an entropy bonus that
outweighs the reward. Read samples: are they still language?
Source: both directions are reported by users of the frameworks (veRL issues 2738 and 5953); relative limits our own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, lasting_rise
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import ONLINE, Finding, Healthy, Limits, NotJudged, Rule, Verdict
from ptt.diagnostics.rules.readings import Outcome, last_of, logged, named, outcome_since, told_of

TIMES_EARLY = 2.0  # twice as many choices, on the log scale
MARGIN = 0.2  # nats: a policy nearly certain at first may double its entropy and still be certain
FLOOR = 0.4  # nats a token: below it language-model policies train well
SEVERITY = {Outcome.FELL: Severity.HIGH, Outcome.FLAT: Severity.MEDIUM}


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged entropy against its own beginning."""
    enable = "log the policy's token entropy"
    series = logged(evidence, "entropy", what="entropy", enable=enable, least=MIN_VALUES)
    if isinstance(series, NotJudged):
        return series
    found = lasting_rise(series, floor=limits["floor"], factor=limits["times_early"], margin=MARGIN)
    if found is None or found.ended:
        return Healthy(reason=f"entropy ends at {last_of(series):.3g} nats")
    reward = outcome_since(evidence, found.interval[0])
    return Finding(
        severity=SEVERITY.get(reward, Severity.LOW),
        claim=f"Entropy rose from {found.early:.3g} to {found.last:.3g} nats{told_of(reward)}",
        observed=found.last,
        limit=found.limit,
        unit="nats",
        onset_step=found.onset,
        onset_interval=found.interval,
        evidence=named(series, early=found.early, highest_mean=found.extreme),
        causes=(
            "updates that overwrite what the policy knew: too large, or on stale rollouts",
            "an entropy bonus or a wide upper clip bound that outweighs the reward",
            "a reward too sparse to hold the policy",
        ),
        confirm=(f"read 20 samples from before step {found.interval[0]} and 20 of the last: still language?",),
        next=(
            f"roll back to a checkpoint from before step {found.interval[0]}",
            "check the freshness of the rollouts and the size of updates before the entropy bonus",
            "then lower the entropy coefficient, or the upper clip bound, nothing else changed",
        ),
    )


RULE = Rule(
    id="entropy-explosion",
    link=Link.EXPLORATION,
    check=check,
    limits={"times_early": TIMES_EARLY, "floor": FLOOR},
    families=ONLINE,
)

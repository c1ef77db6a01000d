"""This run shows a policy entropy that rises and does not come back.

What: the entropy stays above twice its own early level and 0.2 nats more, beyond its noise. High where the reward fell,
medium where it did not rise, otherwise low.
Why it matters: a policy that grows more random while the reward does not rise unlearns what it knew; sampled tokens get
so unlikely that ratios and gradients become noise.
What it is not: exploration that pays. With clip-higher or an entropy bonus the entropy rises and the reward with it.
What to do: find the first step and what changed there: stale rollouts, too large an update, an entropy bonus that
outweighs the reward. Read samples: are they still language?
Source: users of the frameworks report both directions (veRL issues 2738 and 5953); the relative limits are our own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, departure, lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome_clause, outcome_since
from ptt.diagnostics.rules.single_series import last_mean, measured, requires_metric, series_evidence
from ptt.diagnostics.wording import sig

RISE_FACTOR = 2.0  # twice as many choices, on the log scale
MARGIN = 0.2  # nats: a policy nearly certain at first may double its entropy and still be certain
FLOOR = 0.4  # nats a token: below it language-model policies train well
SEVERITY = {Outcome.FELL: Severity.HIGH, Outcome.FLAT: Severity.MEDIUM}


@requires_metric("entropy", what="entropy", enable="log the policy's token entropy", minimum=MIN_VALUES)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged entropy against its own beginning."""
    rise = lasting_rise(series, floor=limits["floor"], factor=limits["times_early"], margin=MARGIN)
    if rise is None or rise.ended:
        return Healthy(reason=f"entropy ends at {sig(last_mean(series))} nats")
    reward = outcome_since(evidence, rise.interval[0])
    return Finding(
        severity=SEVERITY.get(reward, Severity.LOW),
        claim=f"Entropy rose from {sig(rise.early)} to {sig(rise.last)} nats{outcome_clause(reward)}",
        unit="nats",
        **measured(rise),
        evidence=series_evidence(
            series, early=rise.early, highest_mean=rise.extreme, left_early_level_at=departure(series, rise.onset)
        ),
        causes=(
            "updates that overwrite what the policy knew: too large, or on stale rollouts",
            "an entropy bonus or a wide upper clip bound that outweighs the reward",
            "a reward too sparse to guide the policy",
        ),
        confirm=(f"read 20 samples from before step {rise.interval[0]} and 20 of the last: are they still language?",),
        next=(
            f"roll back to a checkpoint before step {rise.interval[0]}",
            "check the freshness of the rollouts and the size of updates before the entropy bonus",
            "then lower the entropy coefficient or the upper clip bound, and change nothing else",
        ),
    )


RULE = rule(check, "entropy-explosion", Link.EXPLORATION, times_early=RISE_FACTOR, floor=FLOOR)

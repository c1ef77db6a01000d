"""This run shows a margin that was made by destroying the rejected answers, not by learning the chosen ones.

What: the log-probability of the rejected answers falls to at least twelve times its starting distance from 0 and stays
there, while the chosen side gains less than a tenth of what the rejected side lost.
Why it matters: loss, margin and accuracy look perfect, but the model has only learnt what not to say. Text similar to
the rejected answers, often the chosen answers' own words, becomes impossible too.
What it is not: the usual fall of the rejected side. Every such objective pushes it down, often several times over.
What to do: lower the learning rate or raise beta, add an SFT term on the chosen answers, and judge by samples.
Source: arXiv 2404.04626 shows that DPO pushes rejected answers down faster than it lifts chosen ones. Twelve: a token
that usually costs one nat then costs more than ln 150,000, so it is less likely than a random draw from the vocabulary.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.rules.post_training import PREFERENCE, Side, sides
from ptt.diagnostics.rules.single_series import negated

FALL_FACTOR = 12.0  # of the start's distance from 0; see the source above
HIGH_FALL_FACTOR = 24.0
MIN_CHOSEN_SHARE = 0.1  # of what the rejected side lost: more, and the chosen side was learnt too


@requires(sides)
def check(both: tuple[Side, Side], _: Evidence, limits: Limits) -> Verdict:
    """Judge both sides' log-probabilities by where they started."""
    chosen, rejected = both
    series, bound = negated(rejected.series), limits["times"] * rejected.start
    onset = series.excess(-bound) if rejected.start < 0 else None
    gained, lost = chosen.last - chosen.start, rejected.start - rejected.last
    path = f"rejected log-probability {rejected.path}, chosen {chosen.path}"
    if onset is None or rejected.last > bound or gained > MIN_CHOSEN_SHARE * lost:
        return Healthy(reason=path)
    return Finding(
        severity=Severity.HIGH if rejected.last < HIGH_FALL_FACTOR * rejected.start else Severity.MEDIUM,
        claim=f"The margin comes from destroying the rejected answers: {path}",
        observed=rejected.last,
        limit=bound,
        unit="nats",
        onset_step=onset,
        onset_interval=(series.first_above(-bound, onset), onset),
        evidence={
            "metric": "dpo/logp_rejected",
            "logged_as": rejected.series.raw_name,
            "rejected_at_start": rejected.start,
            "chosen_at_start": chosen.start,
            "chosen_last": chosen.last,
        },
        causes=(
            "a learning rate that is too high for the objective",
            "a beta that is too small: nothing holds the policy near the reference",
            "rejected answers that the start model would hardly give, easy to push out of reach",
        ),
        confirm=(
            "sample 20 training prompts from the last checkpoint: broken or foreign text in place of the answer "
            "confirms it",
            "compare the SFT loss on the chosen answers at the start and now",
        ),
        next=(
            f"go back to the last checkpoint before step {onset}",
            "rerun with a tenth of the learning rate and nothing else changed; after that try an SFT term on the "
            "chosen answers",
        ),
    )


RULE = rule(check, "rejected-collapse", Link.POLICY_UPDATE, times=FALL_FACTOR, families=PREFERENCE)

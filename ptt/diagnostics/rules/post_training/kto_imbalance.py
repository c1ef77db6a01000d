"""This run shows a KTO loss that comes almost entirely from one of its two sides.

What: the desirable side's share of both losses (20-step mean) lies below a fifth or above four fifths, and stays there.
Why it matters: the objective weights both sides on purpose. Where one dominates, the model learns only to produce, or
only to avoid, what is on that side.
What to do: count both kinds of examples and set desirable_weight and undesirable_weight so that weight times count is
between 1:1 and 4:3.
Source: the weights of KTO (arXiv 2402.01306, section 4.2 gives that range); the share's limits are our own, far outside
it.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, does_not_apply, requires, rule
from ptt.diagnostics.rules.post_training import PREFERENCE
from ptt.diagnostics.rules.single_series import aligned, derived, last_mean, logged, negated
from ptt.diagnostics.wording import pct

MIN_SHARE = 0.2  # of both losses: one side makes four times the other's
ENABLE = "only KTO has it: log the losses of desirable and undesirable examples separately"


def _desirable_share(evidence: Evidence) -> Series | NotJudged:
    """Return the desirable side's share of both losses, at the steps that log both."""
    if evidence.algorithm.name not in (None, "kto", "bco"):
        return does_not_apply(f"{evidence.algorithm.title} training")
    desirable, undesirable = (
        logged(evidence, f"kto/{side}_loss", what=f"loss of the {side} examples", enable=ENABLE)
        for side in ("desirable", "undesirable")
    )
    if isinstance(desirable, NotJudged):
        return desirable
    if isinstance(undesirable, NotJudged):
        return undesirable
    steps, good, bad = aligned(desirable, undesirable)
    known = (good + bad) > 0
    return derived(desirable, steps[known], good[known] / (good + bad)[known])


@requires(_desirable_share)
def check(share: Series, _: Evidence, limits: Limits) -> Verdict:
    """Judge the two sides' losses."""
    low, high = limits["least_share"], 1 - limits["least_share"]
    onset_low, onset_high = negated(share).excess(-low), share.excess(high)
    last = last_mean(share) if len(share.values) else 0.5
    summary = f"desirable examples make up {pct(last)} of both losses at the end"
    if not (onset_low is not None and last < low) and not (onset_high is not None and last > high):
        return Healthy(reason=summary)
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"One side makes nearly all of the KTO loss: {summary}",
        observed=last,
        limit=low if last < low else high,
        unit="share",
        onset_step=onset_low if last < low else onset_high,
        evidence={"metric": "kto/desirable_loss", "logged_as": share.raw_name},
        causes=("many more examples of one kind", "weights that do not compensate for it"),
        confirm=("count desirable and undesirable examples, and multiply each count by its weight",),
        next=("set the weights so that these products lie between 1:1 and 4:3, and rerun",),
    )


RULE = rule(
    check,
    "kto-imbalance",
    Link.TRAINING_SIGNAL,
    max_severity=Severity.MEDIUM,
    least_share=MIN_SHARE,
    families=PREFERENCE,
)

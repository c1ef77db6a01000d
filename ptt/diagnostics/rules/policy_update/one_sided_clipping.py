"""This run shows clipping on one side only.

What: both sides of the clipping are logged, at least one token in a hundred is clipped, and nine in ten of these are
clipped on one side, over 20 steps and from then on.
Why it matters: updates push tokens on the lower side down and those on the upper side up. Clipping on one side stops
learning there, and only the other side continues. Clipped on the lower side only, the policy moves away from what it
did without learning what to do instead; on the upper side only, rare good tokens are no longer raised and entropy
falls.
What it is not: a failure by itself. Below a tenth of all tokens the finding is low.
What to do: look at which tokens are clipped. A wider upper bound (clip-higher) lets rare tokens rise; where the lower
side is clipped, look for stale rollouts and for negative advantages that outweigh the positive ones.
Source: clip-higher, DAPO (arXiv 2503.14476, section 3.1); the shares are our own.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series, finite_series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import aligned, lasting_excess, measured, series_evidence
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.wording import pct

ONE_SIDE_LIMIT = 0.9  # of the clipped tokens
MIN_CLIPPED = 0.01  # share of tokens: of fewer the sides are noise
MEDIUM_CLIPPED = 0.1  # share of tokens: so much that the side decides what is learnt
MIN_STEPS = 20  # with so much clipping: fewer are an episode


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the two sides of the clip fraction against each other."""
    low, high = (evidence.metrics.get(name) for name in ("clip/frac_low", "clip/frac_high"))
    both = None if low is None or high is None else aligned(low, high)
    if low is None or high is None or both is None or len(both[0]) < MIN_LOGGED:
        return NotJudged(
            reason="the two sides of the clipping are not logged separately" if both is None else "too few are logged",
            missing=("clip/frac_low", "clip/frac_high"),
            enable="log how many tokens are clipped on each side, as TRL does with clip_ratio/low_mean and high_mean",
        )
    steps, below, above = both
    total = below + above
    clips = total >= limits["clipped"]
    steps_clipped, total = steps[clips], total[clips]
    if len(total) < MIN_STEPS:
        return Healthy(reason=f"{len(total)} of {len(steps)} steps clip {pct(limits['clipped'])} of tokens or more")
    for side, part, series in (("lower", below, low), ("upper", above, high)):
        share = finite_series(series.name, steps_clipped, part[clips] / total, raw_name=series.raw_name)
        if (finding := _finding(side, share, total, limits)) is not None:
            return finding
    return Healthy(reason="clipping occurs on both sides")


def _finding(side: str, share: Series, total: FloatArray, limits: Limits) -> Finding | None:
    """Return the finding where the share of one side stays above its limit from its onset to the end."""
    excess = lasting_excess(share, limits["one_side"])
    if excess is None:
        return None
    since = share.steps >= excess.onset
    if since.sum() < MIN_STEPS or np.median(share.values[since]) <= limits["one_side"]:
        return None
    lower, amount = side == "lower", float(np.median(total[since]))
    return Finding(
        severity=Severity.MEDIUM if amount > limits["much"] else Severity.LOW,
        claim=f"{pct(excess.last)} of the clipped tokens are clipped on the {side} side",
        unit="share",
        **measured(excess),
        evidence=series_evidence(share, side=side, clipped_share=amount),
        causes=("negative advantages outweigh positive ones", "stale rollouts", "a learning rate that is too high")
        if lower
        else ("rare tokens are rewarded and held back by the upper bound", "a learning rate that is too high"),
        confirm=(f"list the clipped tokens of step {excess.onset} with their advantages: one kind, or all?",),
        next=("look at the share of negative advantages", "halve the learning rate and compare both sides")
        if lower
        else ("raise only the upper bound (0.2 to 0.28) and compare entropy over 100 steps",),
    )


RULE = rule(
    check,
    "one-sided-clipping",
    Link.POLICY_UPDATE,
    max_severity=Severity.MEDIUM,
    one_side=ONE_SIDE_LIMIT,
    clipped=MIN_CLIPPED,
    much=MEDIUM_CLIPPED,
)

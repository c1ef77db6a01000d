"""This run shows a clip fraction that stays high.

What: the share of tokens whose update ratio is clipped lies above 0.4 over 20 steps, and stays there; above 0.3 it is a
note. The first update on a batch clips nothing by construction: such steps are left out where they are a fifth or more.
Why it matters: PPO's clipping is a brake. A policy that is braked on many tokens learns only from the rest; either the
batch is stale or the steps are too big.
What it is not: GSPO's clipping. It clips whole sequences at a range of 3e-4, and so by design a hundred times more
tokens than GRPO (0.15 against 0.0013 in its paper); such a run gets medium here. Nor a fraction of exactly 1 at every
step: that is counted wrongly.
What to do: roll back to the last healthy checkpoint. Try a lower learning rate, fewer epochs per batch, a target KL or
fresher rollouts; check the scale of advantages and rewards.
Source: 0.4 is the limit of the common PPO debugging guides; TRL logs `clip_ratio/region_mean`, veRL
`actor/pg_clipfrac`, OpenRLHF `ppo_clip_ratio`. GSPO: arXiv 2507.18071, section 5.
"""

from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.policy_update import back_off, confirm_by_checkpoint
from ptt.diagnostics.rules.single_series import (
    Excess,
    lasting_excess,
    measured,
    peak_median,
    requires_metric,
    series_evidence,
    without_zeros,
)
from ptt.diagnostics.wording import pct, sig

CLIP_LIMIT = 0.4  # share of tokens; see the source above
CLIP_NOTED = 0.3  # share of tokens: other guides ask for care from here on
SEQUENCE_CLIPPING = frozenset({"gspo"})  # algorithms that clip whole sequences
ENABLE = "log the clip fraction; with a single update per batch it is 0 by construction"


@requires_metric("clip/frac", what="clip fraction", enable=ENABLE)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged clip fraction."""
    clipped = without_zeros(series)
    if bool((clipped.finite()[1] == 1.0).all()):
        return _miscounted(clipped, evidence)
    limit = limits["limit"]
    excess = lasting_excess(clipped, limit)
    if excess is not None:
        return _finding(series, clipped, excess, by_sequence=evidence.algorithm.name in SEQUENCE_CLIPPING)
    noted = lasting_excess(clipped, min(limits["noted"], limit))
    notes: tuple[Finding, ...] = ()
    if noted is not None and noted.ended is None and evidence.algorithm.name not in SEQUENCE_CLIPPING:
        care = "try a lower learning rate or fewer epochs a batch in the next run, and compare this curve"
        notes = (replace(_finding(series, clipped, noted), severity=Severity.LOW, confirm=(), next=(care,)),)
    median = f"the {clipped.width}-step median of the clip fraction"
    return Healthy(reason=f"{median} peaks at {sig(peak_median(clipped))}, limit {limit:g}", notes=notes)


def _miscounted(clipped: Series, evidence: Evidence) -> NotJudged:
    """Return that a fraction of exactly 1 throughout is none: a ratio that moved the other way is not clipped."""
    kl = next((evidence.metrics[name] for name in ("kl/old", "kl/ref") if name in evidence.metrics), None)
    beside = "" if kl is None else f", beside a {kl.raw_name} of {sig(float(np.median(kl.finite()[1])))}"
    return NotJudged(
        reason=f"{clipped.raw_name} is exactly 1 at all {len(clipped.finite()[1])} logged steps{beside}: it counts "
        "something else than clipped tokens",
        missing=("clip/frac",),
        enable="look at how it is counted: only tokens whose ratio left the range count, over all that are trained on",
    )


def _finding(series: Series, clipped: Series, excess: Excess, *, by_sequence: bool = False) -> Finding:
    return Finding(
        severity=excess.severity(Severity.MEDIUM if by_sequence else Severity.HIGH),
        claim=f"More than {pct(excess.limit)} of tokens {'are' if excess.ended is None else 'were'} clipped"
        + excess.recovery
        + ("; this algorithm clips whole sequences, so more is normal" if by_sequence else ""),
        unit="share",
        **measured(excess, observed=excess.peak),
        evidence=series_evidence(
            clipped,
            last_mean=excess.last,
            zeros_left_out=len(series.steps) - len(clipped.steps),
            **excess.recovery_evidence,
        ),
        causes=(
            "a learning rate that is too high for this batch size",
            "too many epochs or minibatches per batch",
            "stale rollouts",
            "advantages or rewards on too large a scale",
        ),
        confirm=(confirm_by_checkpoint(excess.interval),),
        next=back_off(excess.interval),
    )


RULE = rule(check, "clip-fraction-high", Link.POLICY_UPDATE, limit=CLIP_LIMIT, noted=CLIP_NOTED)

"""This run shows a share of refusals that rises.

What: the logged share of refused answers lies lastingly above its early level by five points, and above 12 %.
Why it matters: refusing is safe to be paid for, and easy to learn; helpfulness goes first, on prompts that were fine.
What to do: read refused prompts that were answered before; look whether the safety part of the reward pays for refusing
harmless ones; add such prompts with a reward for answering.
Source: 12 % is the alarm of the field's older monitors; Bai et al. (arXiv 2204.05862), section 4, on overrefusal.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, lasting_rise
from ptt.diagnostics.metrics.name_words import REFUSAL
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import sides_named

SHARE_LIMIT = 0.12  # of answers
MARGIN = 0.05  # above the early share
MOST = 0.5  # of answers: most prompts are lost


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged share of refusals."""
    series = sides_named(evidence, REFUSAL)
    if series is None:
        return NotJudged(
            reason=f"no share of refusals is logged at {MIN_VALUES} steps",
            missing=("refusal_rate",),
            enable="log refusal_rate: the share of answers that a classifier, or a list of phrases, takes for refusals",
        )
    found = lasting_rise(series, floor=limits["share"], margin=MARGIN)
    if found is None or found.ended:
        return Healthy(reason=f"{series.raw_name} ends at {series.finite()[1][-1]:.3g}")
    return Finding(
        severity=Severity.HIGH if found.last > MOST else Severity.MEDIUM,
        claim=f"Refusals rose {found.early:.1%} → {found.last:.1%} of answers",
        observed=found.last,
        limit=found.limit,
        unit="share",
        onset_step=found.onset,
        onset_interval=found.interval,
        evidence={"metric": "refusal_rate", "logged_as": series.raw_name, "early": found.early},
        causes=("the safety part of the reward outweighs the rest", "more prompts that should be refused",
                "a detector that takes polite answers for refusals"),
        confirm=("read twenty refused answers after the onset: were the prompts harmless?",),
        next=("weigh the safety part down, or pay for answering harmless prompts, in a short run",),
    )  # fmt: skip


RULE = rule(check, "refusals-rise", Link.REWARD, share=SHARE_LIMIT)

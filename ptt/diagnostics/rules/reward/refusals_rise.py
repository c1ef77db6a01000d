"""This run shows a share of refusals that rises.

What: the logged share of refused answers lies lastingly above its early level by five points, and above 12 %.
Why it matters: refusing is safe to be paid for, and easy to learn; helpfulness goes first, on prompts that were fine.
What to do: read refused prompts that were answered before; look whether the safety part of the reward pays for refusing
harmless ones; add such prompts with a reward for answering.
Source: 12 % is the alarm of the field's older monitors; Bai et al. (arXiv 2204.05862), section 4, on overrefusal.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.name_words import REFUSAL
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.rules.reward import logged_share
from ptt.diagnostics.rules.single_series import measured

SHARE_LIMIT = 0.12  # of answers
MIN_MARGIN = 0.05  # above the early share
HIGH_SHARE = 0.5  # of answers: most prompts are lost

NAME = "refusal_rate"
ENABLE = "log refusal_rate: the share of answers that a classifier, or a list of phrases, takes for refusals"


@requires(lambda evidence: logged_share(evidence, REFUSAL, what="refusals", name=NAME, enable=ENABLE))
def check(series: Series, _: Evidence, limits: Limits) -> Verdict:
    """Judge the logged share of refusals."""
    rise = lasting_rise(series, floor=limits["share"], margin=MIN_MARGIN)
    if rise is None or rise.ended:
        return Healthy(reason=f"{series.raw_name} ends at {series.finite()[1][-1]:.3g}")
    return Finding(
        severity=Severity.HIGH if rise.last > HIGH_SHARE else Severity.MEDIUM,
        claim=f"Refusals rose {rise.early:.1%} → {rise.last:.1%} of answers",
        unit="share",
        **measured(rise),
        evidence={"metric": NAME, "logged_as": series.raw_name, "early": rise.early},
        causes=("the safety part of the reward outweighs the rest", "more prompts that should be refused",
                "a detector that takes polite answers for refusals"),
        confirm=("read twenty refused answers after the onset: were the prompts harmless?",),
        next=("weigh the safety part down, or pay for answering harmless prompts, in a short run",),
    )  # fmt: skip


RULE = rule(check, "refusals-rise", Link.REWARD, share=SHARE_LIMIT)

"""This run shows a share of refusals that rises.

What: the share of refused answers stays five points above its early level and above 12%: as logged, or as the openings
of the recorded answers show it. Below 12% it is a note.
Why it matters: refusing earns a safe reward and is easy to learn; helpfulness on harmless prompts is the first loss.
What it is not: an apology, or a tool that did not answer. In texts, only an opening that declines to act counts, as in
"I'm sorry, but I can't help"; answers in languages other than English are not judged.
What to do: read refused prompts that were answered before; check whether the safety part of the reward pays for
refusing harmless ones; add such prompts with a reward for answering.
Source: 12% is the alarm level of older monitors; Bai et al. (arXiv 2204.05862), section 4, on overrefusal; the phrases
are those of Zou et al. (arXiv 2307.15043) and Arditi et al. (arXiv 2406.11717).
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.answers import Answers
from ptt.diagnostics.evidence.baseline_shift import BaselineShift
from ptt.diagnostics.metrics.name_words import REFUSAL
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.reward import AnswerShare, answer_share, logged_share
from ptt.diagnostics.rules.single_series import late_mean, measured
from ptt.diagnostics.wording import pct, sig

SHARE_LIMIT = 0.12  # of answers
MIN_MARGIN = 0.05  # above the early share
HIGH_SHARE = 0.5  # of answers: most prompts are lost

NAME = "refusal_rate"
ENABLE = (
    "log completions in English (TRL: log_completions=True), or refusal_rate: the share of answers that a "
    "classifier or a list of phrases flags as refusals"
)


def _refusals(evidence: Evidence) -> AnswerShare | NotJudged:
    said = evidence.answers or Answers()
    logged = logged_share(evidence, REFUSAL, what="refusals", name=NAME, enable=ENABLE)
    return answer_share(logged, said.refusals, metric=NAME, column="answers.refuses", example=said.refusing)


@requires(_refusals)
def check(share: AnswerShare, _: Evidence, limits: Limits) -> Verdict:
    """Judge the share of refusals."""
    rise = share.rise(floor=limits["share"], margin=MIN_MARGIN)
    if rise is not None:
        return _finding(share, rise, Severity.HIGH if rise.last > HIGH_SHARE else Severity.MEDIUM)
    noted = share.rise(floor=0.0, margin=MIN_MARGIN)
    notes = () if noted is None else (_finding(share, noted, Severity.LOW),)
    return Healthy(reason=f"{share.series.raw_name} ends at {sig(late_mean(share.series))}", notes=notes)


def _finding(share: AnswerShare, rise: BaselineShift, severity: Severity) -> Finding:
    return Finding(
        severity=severity,
        claim=f"Refusals rose {pct(rise.early)} → {pct(rise.last)} of answers",
        unit="share",
        **measured(rise),
        evidence=share.facts | {"early": rise.early},
        causes=("the safety part of the reward outweighs the rest", "more prompts that should be refused",
                "a detector that mistakes polite answers for refusals"),
        confirm=("read twenty refused answers after the onset: were the prompts harmless?",),
        next=("lower the weight of the safety part, or reward answers to harmless prompts, in a short run",),
    )  # fmt: skip


RULE = rule(check, "refusals-rise", Link.REWARD, share=SHARE_LIMIT, families=LANGUAGE)

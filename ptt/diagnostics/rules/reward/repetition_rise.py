"""This run shows text that repeats itself more and more.

What: the share of repetition stays five points above its early level and above 20%: as logged, or as the share of
recorded answers in which three in ten four-word sequences occurred before (in the first and last 200 words).
Why it matters: repeated text is long, likely and empty. A reward that grows with length, or a policy near collapse,
produces it.
What to do: read repeating samples; check whether they are rewarded well, and whether they run to the token limit.
Source: 20% is a common limit; slime logs `rollout/repetition_frac`. Repeated four-word sequences: seq-rep-4 of Welleck
et al. (arXiv 1908.04319), where human text has 0.05 or less.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.answers import Answers
from ptt.diagnostics.metrics.name_words import REPETITION
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.reward import AnswerShare, answer_share, logged_share
from ptt.diagnostics.rules.single_series import late_mean, measured
from ptt.diagnostics.wording import pct, sig

SHARE_LIMIT = 0.2
MIN_MARGIN = 0.05  # above the early share

NAME = "repetition_rate"
ENABLE = (
    "log completions (TRL: log_completions=True), or repetition_rate: the share of answers, or of their n-grams, that"
    " repeat (slime logs it)"
)


def _repetition(evidence: Evidence) -> AnswerShare | NotJudged:
    said = evidence.answers or Answers()
    logged = logged_share(evidence, REPETITION, what="repetition", name=NAME, enable=ENABLE)
    return answer_share(logged, said.repetitions, metric=NAME, column="answers.repetition", example=said.repeating)


@requires(_repetition)
def check(share: AnswerShare, _: Evidence, limits: Limits) -> Verdict:
    """Judge the share of repetition."""
    rise = share.rise(floor=limits["share"], margin=MIN_MARGIN)
    if rise is None:
        return Healthy(reason=f"{share.series.raw_name} ends at {sig(late_mean(share.series))}")
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"Repetition rose {pct(rise.early)} → {pct(rise.last)}",
        unit="share",
        **measured(rise),
        evidence=share.facts | {"early": rise.early},
        causes=("a reward that grows with length", "a collapse: few tokens remain likely",
                "answers that never end"),
        confirm=("read ten repeating samples after the onset: do they earn more than others of their prompt?",),
        next=("stop rewarding repetition or length, in a short run",))  # fmt: skip


RULE = rule(check, "repetition-rise", Link.REWARD, max_severity=Severity.MEDIUM, share=SHARE_LIMIT, families=LANGUAGE)

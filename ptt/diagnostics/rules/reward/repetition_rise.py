"""This run shows text that repeats itself more and more.

What: the share of repetition lies lastingly above its early level by five points, and above 20 %: as it is logged, or
else of the recorded answers those in which three in ten runs of four words stood before, of 200 words at most at either
end.
Why it matters: repeated text is long, likely, and empty: a reward that grows with length, or a policy near collapse,
brings it about.
What to do: read repeating samples; look whether they are paid well, and whether they run to the token limit.
Source: 20 % is the limit in use in the field; slime logs `rollout/repetition_frac`. Runs of four words that stood
before: seq-rep-4 of Welleck et al. (arXiv 1908.04319), where human text has 0.05 or less.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.answers import Answers
from ptt.diagnostics.metrics.name_words import REPETITION
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.reward import AnswerShare, answer_share, logged_share
from ptt.diagnostics.rules.single_series import late_mean, measured

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
        return Healthy(reason=f"{share.series.raw_name} ends at {late_mean(share.series):.3g}")
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"Repetition rose {rise.early:.1%} → {rise.last:.1%}",
        unit="share",
        **measured(rise),
        evidence=share.facts | {"early": rise.early},
        causes=("a reward that grows with length", "a collapse: few tokens remain likely",
                "answers that never end"),
        confirm=("read ten repeating samples after the onset: are they paid above others of their prompt?",),
        next=("take repetition or length out of what is paid for, in a short run",))  # fmt: skip


RULE = rule(check, "repetition-rise", Link.REWARD, max_severity=Severity.MEDIUM, share=SHARE_LIMIT)

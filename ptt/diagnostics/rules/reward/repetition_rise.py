"""This run shows text that repeats itself more and more.

What: the logged share of repetition lies lastingly above its early level by five points, and above 20 %.
Why it matters: repeated text is long, likely, and empty: a reward that grows with length, or a policy near collapse,
brings it about.
What to do: read repeating samples; look whether they are paid well, and whether they run to the token limit.
Source: 20 % is the limit in use in the field; slime logs `rollout/repetition_frac`.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.name_words import REPETITION
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.rules.reward import logged_share
from ptt.diagnostics.rules.single_series import measured

SHARE_LIMIT = 0.2
MIN_MARGIN = 0.05  # above the early share

NAME = "repetition_rate"
ENABLE = "log repetition_rate: the share of answers, or of their n-grams, that repeat (slime logs it)"


@requires(lambda evidence: logged_share(evidence, REPETITION, what="repetition", name=NAME, enable=ENABLE))
def check(series: Series, _: Evidence, limits: Limits) -> Verdict:
    """Judge the logged share of repetition."""
    rise = lasting_rise(series, floor=limits["share"], margin=MIN_MARGIN)
    if rise is None or rise.ended:
        return Healthy(reason=f"{series.raw_name} ends at {series.finite()[1][-1]:.3g}")
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"Repetition rose {rise.early:.1%} → {rise.last:.1%}",
        unit="share",
        **measured(rise),
        evidence={"metric": NAME, "logged_as": series.raw_name, "early": rise.early},
        causes=("a reward that grows with length", "a collapse: few tokens remain likely",
                "answers that never end"),
        confirm=("read ten repeating samples after the onset: are they paid above others of their prompt?",),
        next=("take repetition or length out of what is paid for, in a short run",))  # fmt: skip


RULE = rule(check, "repetition-rise", Link.REWARD, max_severity=Severity.MEDIUM, share=SHARE_LIMIT)

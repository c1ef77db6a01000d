"""This run shows text that repeats itself more and more.

What: the logged share of repetition lies lastingly above its early level by five points, and above 20 %.
Why it matters: repeated text is long, likely, and empty: a reward that grows with length, or a policy near collapse,
brings it about.
What to do: read repeating samples; look whether they are paid well, and whether they run to the token limit.
Source: 20 % is the limit in use in the field; slime logs `rollout/repetition_frac`.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, lasting_rise
from ptt.diagnostics.metrics.name_words import REPETITION
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import sides_named

SHARE_LIMIT = 0.2
MARGIN = 0.05  # above the early share


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged share of repetition."""
    series = sides_named(evidence, REPETITION)
    if series is None:
        return NotJudged(
            reason=f"no share of repetition is logged at {MIN_VALUES} steps",
            missing=("repetition_rate",),
            enable="log repetition_rate: the share of answers, or of their n-grams, that repeat (slime logs it)",
        )
    found = lasting_rise(series, floor=limits["share"], margin=MARGIN)
    if found is None or found.ended:
        return Healthy(reason=f"{series.raw_name} ends at {series.finite()[1][-1]:.3g}")
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"Repetition rose {found.early:.1%} → {found.last:.1%}",
        observed=found.last,
        limit=found.limit,
        unit="share",
        onset_step=found.onset,
        onset_interval=found.interval,
        evidence={"metric": "repetition_rate", "logged_as": series.raw_name, "early": found.early},
        causes=("a reward that grows with length", "a collapse: few tokens remain likely",
                "answers that never end"),
        confirm=("read ten repeating samples after the onset: are they paid above others of their prompt?",),
        next=("take repetition or length out of what is paid for, in a short run",))  # fmt: skip


RULE = rule(check, "repetition-rise", Link.REWARD, share=SHARE_LIMIT)

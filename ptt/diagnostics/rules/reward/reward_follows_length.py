"""This run shows a reward that starts to follow the length of answers.

What: among answers to one prompt, the share of pairs in which the longer one earns more, minus the share in which it
earns less, rises for good above 0.5 and by 0.4 over its early level. Where no samples are recorded, the same measure is
taken of how often logged reward and length change in the same direction from step to step. Medium where answers also
grow by a quarter, otherwise low.
Why it matters: a reward that can be earned by writing more teaches the policy to write more.
What it is not: length that was rewarded from the start, or a task in which more steps of work solve more: where answers
do not grow, read samples before you change anything.
What to do: compare long and short samples of one prompt at equal outcome; look at judges and their prompts.
Source: Singhal et al., A Long Way to Go: Investigating Length Correlations in RLHF (arXiv 2310.03716); Kendall's tau
within prompts. The levels are our own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.answers import agreement_by_block
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, lasting_rise, ranked_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import (
    REWARDED_LANGUAGE,
    Finding,
    Healthy,
    Limits,
    NotJudged,
    Verdict,
    requires,
    rule,
)
from ptt.diagnostics.rules.single_series import last_mean, measured, series_evidence
from ptt.diagnostics.wording import sig

AGREEMENT_LIMIT = 0.5  # three pairs in four: a correlation of 0.7 between normal variables
MIN_MARGIN = 0.4  # above the early level: what was always so did not appear
GROWTH_FACTOR = 1.25  # of the early length: answers answer to it
ENABLE = "log completions with prompts and rewards (TRL: log_completions=True), or mean length and reward at every step"


def _agreement(evidence: Evidence) -> Series | NotJudged:
    series = evidence.lengths.paid if evidence.lengths is not None else None
    if series is not None and len(series.finite()[0]) >= MIN_VALUES:
        return series
    length, reward = (evidence.metrics.get(name) for name in ("len/response_mean", "reward/mean"))
    series = agreement_by_block(length, reward) if length is not None and reward is not None else None
    if series is not None and len(series.finite()[0]) >= MIN_VALUES:
        return series
    reason = "too few samples of one prompt with rewards, and too few steps with mean length and reward, are recorded"
    return NotJudged(reason=reason, missing=("reward of each sample", "len/response_mean"), enable=ENABLE)


@requires(_agreement)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how far length and reward agree, against the run's beginning."""
    floor = limits["agreement"]
    rise = ranked_rise(series, floor=floor, margin=MIN_MARGIN) or lasting_rise(series, floor=floor, margin=MIN_MARGIN)
    if rise is None or rise.ended:
        return Healthy(
            reason=f"length and reward agree to {sig(last_mean(series))} at the end, on a scale from -1 to 1"
        )
    length = evidence.metrics.get("len/response_mean")
    grown = lasting_rise(length, floor=0.0, factor=GROWTH_FACTOR) if length is not None else None
    grows = grown is not None and not grown.ended
    return Finding(
        severity=Severity.MEDIUM if grows else Severity.LOW,
        claim=f"Longer answers came to earn more: tau of reward and length {sig(rise.early)} → {sig(rise.last)}"
        + (", and answers grew" if grows else ""),
        unit="tau",
        **measured(rise),
        evidence=series_evidence(series, early=rise.early),
        causes=("a reward, or its judge, that pays for length", "more steps of work, or more calls, that solve more"),
        confirm=("compare reward with length among samples of one prompt that have the same outcome",),
        next=("correct the reward for length in a short run and change nothing else; decide by the outcome",),
    )


RULE = rule(
    check,
    "reward-follows-length",
    Link.REWARD,
    max_severity=Severity.MEDIUM,
    agreement=AGREEMENT_LIMIT,
    families=REWARDED_LANGUAGE,
)

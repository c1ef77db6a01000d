"""This run shows importance ratios without bound.

What: from recorded tokens, p99.9 of |r| stays above ln 10 for a pair whose ratio multiplies the gradient (policy/old,
policy/rollout or old/rollout): one token in a thousand weighs ten times, or a tenth of, what it should. Or, from logs,
the largest ratio of a step stays above 10 and five times its own early level, or the smallest below 1/10 and a fifth of
it.
Why it matters: the variance of a weighted gradient grows with the square of the ratio: a handful of tokens then decides
the step, and without a cap it overflows.
What it is not: one token. The extreme of a batch is wild in healthy runs too; only a lasting change counts.
What to do: find out why the two policies differ (stale rollouts, engine against trainer, too large an update) and fix
that; only then cap or mask the ratio.
Source: caps in use are 2 to 10 (veRL's rollout correction, TIS); slime vetoes sequences with a ratio below 1e-4. The
limits on p99.9 and on the change are our own.
"""

import math

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import lasting_fall, lasting_rise
from ptt.diagnostics.evidence.column_faults import fault_of
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import (
    Measured,
    lasting_excess,
    logarithms,
    measured,
    peak_median,
    series_evidence,
    without_zeros,
)
from ptt.diagnostics.wording import sig

P999_LIMIT = math.log(10.0)  # nats: the widest cap in use
RATIO_LIMIT = 10.0  # the same as a ratio
EARLY_FACTOR = 5.0  # of the early level: the extreme of a batch varies twofold by chance
PAIRS = (
    "policy/rollout",
    "policy/old",
    "old/rollout",
    "policy/prox",
    "prox/rollout",
)  # the loss's own ratios, not the drift from the reference
MIN_RECORDED = 6  # steps of tokens: fewer tell of no habit
EXTREMES = ("is/ratio_max", "is/ratio_min")
HIGH_FACTOR = 2.0  # times the limit on |r|: a ratio of a hundred
MAX_LOG = 700.0  # exp of it is finite


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge recorded tokens of the loss's own pairs, and the extremes that are logged."""
    peaks: list[str] = []
    findings: list[Finding] = []
    for pair in PAIRS:
        if pair not in evidence.pairs or fault_of(evidence.column_faults, pair) is not None:
            continue
        series = without_zeros(evidence.pairs[pair].p999)
        if len(series.finite()[0]) >= MIN_RECORDED:
            peaks.append(f"p99.9 of |{pair}| peaks at {sig(peak_median(series))} nats")
            findings += _of_tokens(series, pair, limits["p999"])
    for name in EXTREMES:
        extreme = evidence.metrics.get(name)
        if extreme is not None and len(extreme.finite()[0]) >= MIN_LOGGED:
            peaks.append(f"{extreme.raw_name} ends at {sig(extreme.finite()[1][-1])}")
            findings += _of_extremes(extreme, limits)
    if findings:
        return min(findings, key=lambda finding: (finding.severity.rank, finding.onset_step or 0))
    if peaks:
        return Healthy(reason="; ".join(peaks))
    return NotJudged(
        reason="neither the extremes of the importance ratio nor tokens of a pair that weights the loss are recorded",
        missing=("is/ratio_max", "old_logp", "rollout_logp"),
        enable="log the largest and smallest importance ratio of each step, or record old_logp and rollout_logp",
    )


def _of_tokens(series: Series, pair: str, limit: float) -> list[Finding]:
    excess = lasting_excess(series, limit)
    if excess is None:
        return []
    severity = excess.severity(Severity.HIGH if excess.peak > HIGH_FACTOR * limit else Severity.MEDIUM)
    claim = f"One token in a thousand has a {pair} ratio beyond {sig(math.exp(limit))} or its inverse{excess.recovery}"
    evidence = series_evidence(series, pair=pair, last_mean=excess.last, **excess.recovery_evidence)
    return [_finding(claim, severity, "nats", measured(excess, observed=excess.peak), evidence)]


def _of_extremes(series: Series, limits: Limits) -> list[Finding]:
    """Judge how far the logged extreme left its early level, on logarithms: ratios multiply."""
    logs = logarithms(series)
    bound, margin = math.log(limits["ratio"]), math.log(limits["times_early"])
    up = series.name == "is/ratio_max"
    shift = lasting_rise(logs, floor=bound, margin=margin) if up else lasting_fall(logs, ceiling=-bound, margin=margin)
    if shift is None or shift.ended:
        return []
    early, observed = math.exp(shift.early), math.exp(min(shift.extreme, MAX_LOG))
    which = "greatest" if up else "least"
    claim = f"The {which} importance ratio of a step went from {sig(early)} to {sig(observed)}"
    evidence = series_evidence(series, early=early, last=math.exp(min(shift.last, MAX_LOG)))
    numbers = Measured(
        observed=observed, limit=math.exp(shift.limit), onset_step=shift.onset, onset_interval=shift.interval
    )
    return [_finding(claim, Severity.MEDIUM, "ratio", numbers, evidence)]


def _finding(claim: str, severity: Severity, unit: str, numbers: Measured, evidence: dict[str, JsonScalar]) -> Finding:
    step = numbers["onset_step"]
    return Finding(
        severity=severity,
        claim=claim,
        unit=unit,
        **numbers,
        evidence=evidence,
        causes=(
            "updates that are too large for their batch",
            "stale rollouts",
            "engine and trainer compute different probabilities",
        ),
        confirm=(f"list the ten tokens with the largest |r| of step {step}: one sequence, one tool, or everywhere?",),
        next=(
            "fix what separates the two policies: lag, engine, size of the update",
            "only then cap the ratio (2 to 10) or mask the tokens beyond it, and record that in the run's settings",
        ),
    )


RULE = rule(check, "ratio-explosion", Link.POLICY_UPDATE, p999=P999_LIMIT, ratio=RATIO_LIMIT, times_early=EARLY_FACTOR)

"""This run shows tool calls that fail more often when more of them run at once.

What: calls are compared within a step by how many others were running when they began or, without such times, steps
within stretches of ten by their number of calls. The half under more load fails in at least a tenth of its calls, at
least twice as often as the other half, by more than four standard errors.
Why it matters: such failures say nothing about the policy. They grow with the batch and with longer episodes, and teach
the policy to call less.
What it is not: failures that grow over the run together with the number of calls; only neighbours are compared.
What to do: cap calls in flight below what the tool can take, add workers, and retry what failed for lack of them.
Source: users report failures that spike with concurrency; the paired comparison is this project's own
(docs/statistics.md on correlated steps).
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.environment import UNRECORDED
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.statistics.strata import StratifiedDifference, stratified_difference
from ptt.diagnostics.wording import pct, sig

FLOOR = 0.1  # of the calls under higher load
FACTOR = 2.0  # times the share under lower load
Z_LIMIT = 4.0  # standard errors: there are few strata, and some may share a bad hour
MIN_LOAD_RATIO = 1.5  # more load over less: without such a spread there is nothing to compare
HIGH = 0.5  # every second call under load
MIN_STRATA = 10  # steps or stretches with both halves
STRETCH_STEPS = 10  # steps

ENABLE = "record the time of each turn and the latency of each call, or calls and their outcome at 100 steps or more"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether failures go with load."""
    comparison = _compare(evidence, int(limits["strata"]))
    if isinstance(comparison, NotJudged):
        return comparison
    gap, by, metric = comparison
    if gap.load_high < limits["spread"] * gap.load_low:
        reason = f"{by} vary too little: {sig(gap.load_low)} in the lower half, {sig(gap.load_high)} in the upper"
        return NotJudged(reason=reason, enable="nothing to record: the load hardly varied")
    claim = f"{pct(gap.high)} of calls fail at {sig(gap.load_high)} {by}, {pct(gap.low)} at {sig(gap.load_low)}"
    limit = max(limits["floor"], limits["factor"] * gap.low)
    if gap.high < limit or not gap.high - gap.low > limits["errors"] * gap.error:
        return Healthy(reason=claim)
    return Finding(
        severity=Severity.HIGH if gap.high >= limits["high"] else Severity.MEDIUM,
        claim=claim,
        observed=gap.high,
        limit=limit,
        unit="share",
        evidence={
            "metric": metric,
            "failed_under_less": gap.low,
            "load_less": gap.load_low,
            "load_more": gap.load_high,
            "standard_error": gap.error,
            "strata": gap.strata,
        },
        causes=(
            "a tool server with fewer workers than calls in flight",
            "a rate limit or quota",
            "time limits that run out while calls wait",
        ),
        confirm=(
            f"send the calls of one step again, {gap.load_low:.0f} and then {gap.load_high:.0f} at a time: only the "
            "second batch should fail",
        ),
        next=(
            "cap calls in flight below what the tool can take",
            "retry with growing pauses, outside the policy's context",
        ),
    )


def _compare(evidence: Evidence, least: int) -> tuple[StratifiedDifference, str, str] | NotJudged:
    """Compare calls within steps if their times are known, else steps within stretches of the run."""
    environment = evidence.environment or UNRECORDED
    strata = 0
    if (load := environment.load) is not None:
        failed = load.failed.astype(np.float64)
        gap = stratified_difference(stratum=load.steps, by=load.in_flight, hits=failed, trials=np.ones(len(failed)))
        if gap is not None and gap.strata >= least:
            return gap, "calls under way", "tool_calls.latency_s"
        strata = gap.strata if gap is not None else 0
    if (counts := environment.failures) is None:
        missing = ("tool_calls.ok", "tool_calls.latency_s")
        return NotJudged(reason="no tool calls with an outcome are recorded", missing=missing, enable=ENABLE)
    stretch = np.arange(len(counts.steps), dtype=np.int64) // STRETCH_STEPS
    gap = stratified_difference(stratum=stretch, by=counts.trials, hits=counts.hits, trials=counts.trials)
    if gap is not None and gap.strata >= least:
        return gap, "calls a step", "tool_calls.ok"
    strata = max(strata, gap.strata if gap is not None else 0)
    reason = f"{strata} stretches of the run have calls under more and under less load; {least} are needed"
    return NotJudged(reason=reason, enable=ENABLE)


RULE = rule(
    check,
    "failures-under-load",
    Link.ENVIRONMENT,
    floor=FLOOR,
    factor=FACTOR,
    errors=Z_LIMIT,
    spread=MIN_LOAD_RATIO,
    high=HIGH,
    strata=MIN_STRATA,
)

"""This run shows a tool that takes longer and longer to answer.

What: the 95th percentile of a tool's seconds per call (or the mean that the framework logs) rises for good above one
second and above three times its early level. Where its calls account for most of the time by which steps became
slower since (throughput-drop), it is as severe as that.
Why it matters: rollouts wait for the slowest call. Calls that reach their time limit fail, and the policy learns to
avoid a slow tool.
What it is not: harder calls, which a policy may rightly learn to make: then the median rises as well, and the reward
with it.
What to do: look at the tool first (queue, quota, cache, number of workers), then at what the policy asks of it.
Source: the factor is this project's own.
"""

from dataclasses import replace

import numpy as np

from ptt.diagnostics import model
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import (
    MIN_RANK_VALUES,
    BaselineShift,
    dated_by_values,
    lasting_rise,
    ranks_apart,
)
from ptt.diagnostics.evidence.counts import SECONDS, series_by_tool
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.environment import UNRECORDED
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import aligned, late_mean, measured
from ptt.diagnostics.rules.systems import throughput_drop
from ptt.diagnostics.wording import pct, sig

MIN_SECONDS = 1.0  # second: less is lost beside what the model itself takes for a turn
RISE_FACTOR = 3.0  # times the early level: load alone may double latencies
SLOW_SECONDS = 5.0  # seconds at the end: each call then costs as much as a turn of the model
EXPLAINED_SHARE = 0.5  # of the time that steps lost: most of it
MIN_RANKED = 7  # values on either side: without overlap, seven and seven are apart once in 3432 times by chance
MIN_BEFORE = 5  # values before the rise, for what a step took then
ENABLE = (
    "record latency_s of each call (open-instruct: runtime; Inspect and OpenTelemetry do), or log it by tool at "
    "each step"
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the seconds a call takes, by tool."""
    series = _latencies(evidence)
    judged = {name: latency for name, latency in sorted(series.items()) if _enough(latency)}
    if not judged:
        most = max((len(latency.finite()[0]) for latency in series.values()), default=0)
        return NotJudged(
            reason=f"latencies are recorded at {most} steps; {MIN_RANK_VALUES} are needed"
            if most
            else "no latency is recorded",
            missing=("tool_calls.latency_s", "tools/latency_mean"),
            enable=ENABLE,
        )
    findings = tuple(
        _with_lost_time(evidence, name, _finding(name, latency, rise, limits))
        for name, latency in judged.items()
        if (rise := _rise(latency, limits)) is not None
    )
    serious = tuple(finding for finding in findings if finding.severity.at_least(Severity.MEDIUM))
    if serious:
        return Broken(findings=serious)
    late = {name: late_mean(series[name]) for name in series if name in judged}
    worst = max(late, key=late.__getitem__)
    return Healthy(reason=f"{worst} is slowest at the end: {sig(late[worst])} s", notes=findings)


def _latencies(evidence: Evidence) -> dict[str, Series]:
    """Return p95 by tool if calls are timed, else the values logged by tool, else the mean over all."""
    tools = (evidence.environment or UNRECORDED).tools
    timed = {name: tool.latency["p95"] for name, tool in tools.items() if "p95" in tool.latency}
    timed = timed or series_by_tool(evidence.other, SECONDS)
    mean = evidence.metrics.get("tools/latency_mean")
    return timed if timed or mean is None else {"all tools together": mean}


def _enough(latency: Series) -> bool:
    return len(latency.finite()[0]) >= MIN_RANK_VALUES


def _rise(latency: Series, limits: Limits) -> BaselineShift | None:
    """Return the lasting rise: that of a mean, or of the last values where all of them lie above all others.

    A tool that is not called at each step has few values, and milliseconds before weigh much in a mean of logarithms.
    """
    steps, values = latency.finite()
    early = float(np.median(values[: len(values) // 3]))
    bound = max(limits["floor"], early * limits["factor"])
    within = np.flatnonzero(values <= bound)
    first = int(within[-1]) + 1 if len(within) else 0
    before, after = values[:first], values[first:]
    if min(len(before), len(after)) < MIN_RANKED or after.min() <= before.max():
        rise = lasting_rise(latency, floor=limits["floor"], factor=limits["factor"])
        return rise and dated_by_values(rise, latency)
    return BaselineShift(
        onset=int(steps[first]),
        interval=(int(steps[first - 1]) + 1, int(steps[first])),
        early=early,
        extreme=float(after.max()),
        last=float(after.mean()),
        limit=bound,
        ended=False,
    )


def _finding(name: str, series: Series, rise: BaselineShift, limits: Limits) -> Finding:
    return Finding(
        severity=Severity.MEDIUM if rise.last >= limits["slow"] and not rise.ended else Severity.LOW,
        claim=f"Latency of {name} rose from {sig(rise.early)} s to {sig(rise.extreme)} s"
        + (", then came back" if rise.ended else ""),
        unit="s",
        slice=f"tool:{name}",
        **measured(rise, observed=rise.extreme),
        evidence={
            "metric": series.name,
            "logged_as": series.raw_name,
            "early": rise.early,
            "late": rise.last,
            "ended": rise.ended,
        },
        causes=(
            "the tool's server is overloaded or throttled",
            "its state grew over the run: caches, files, processes left behind",
            "the policy asks more of it",
        ),
        confirm=(
            f"repeat five calls from before step {rise.onset} by hand: if they are slow now, it is the tool; if "
            "fast, it is load",
        ),
        next=("restart or scale the tool", "set a time limit that gives an error message, and cap calls in flight"),
    )


def _with_lost_time(evidence: Evidence, name: str, finding: Finding) -> Finding:
    """Raise the severity to that of the slowdown that the tool's calls account for, if there is one.

    Seconds per call times calls, since the rise, are compared with the extra seconds of the steps; a tool whose calls
    are not counted is assumed to have one call a value.
    """
    times, since = evidence.metrics.get("time/step"), finding.onset_step
    if finding.evidence["ended"] or times is None or since is None:
        return finding
    lost, spent = _lost(times, since), _spent(evidence, name, since)
    if not lost > 0 or spent < EXPLAINED_SHARE * lost:
        return finding
    severity = _slowdown(evidence, finding, times, _latencies(evidence)[name])
    if severity is None or finding.severity.at_least(severity):
        return finding
    return replace(
        finding,
        severity=severity,
        claim=f"{finding.claim}; its calls account for {pct(min(1.0, spent / lost))} of the time that steps lost",
        evidence={**finding.evidence, "lost_s": lost, "spent_s": spent},
    )


def _slowdown(evidence: Evidence, finding: Finding, times: Series, latency: Series) -> Severity | None:
    """Return how severe the slowdown is that began with the rise, of all steps or of those with a call, or None.

    Where a tool is not called at each step, half of them stay fast, and no mean of all steps is judged to have risen.
    """
    verdict = throughput_drop.RULE.run(evidence)
    low, high = finding.onset_interval or (0, 0)
    for slower in verdict.findings if isinstance(verdict, model.Broken) else ():
        first, last = slower.onset_interval or (low, high)
        if low <= last and first <= high:
            return slower.severity
    since = finding.onset_step or 0
    steps, _, seconds = aligned(latency, times)
    before, after = seconds[steps < since], seconds[steps >= since]
    if min(len(before), len(after)) < MIN_RANKED or not ranks_apart(before, after):
        return None
    steps, seconds = times.finite()
    factor = float(seconds[steps >= since].mean() / max(seconds[steps < since].mean(), throughput_drop.MIN_STEP_S))
    if factor < throughput_drop.SLOWDOWN_FACTOR:
        return None
    return Severity.HIGH if factor >= throughput_drop.HIGH_FACTOR else Severity.MEDIUM


def _lost(times: Series, since: int) -> float:
    """Return the seconds that the steps from one on took longer than those before; 0 where that is not known."""
    steps, seconds = times.finite()
    before, after = seconds[steps < since], seconds[steps >= since]
    if min(len(before), len(after)) < MIN_BEFORE:
        return 0.0
    return float(after.mean() - before.mean()) * (int(steps[-1]) - since + 1)


def _spent(evidence: Evidence, name: str, since: int) -> float:
    """Return the seconds that a tool's calls took from a step on, beyond what they took before."""
    tool = (evidence.environment or UNRECORDED).tools.get(name)
    series = tool.latency.get("p50") if tool is not None else None
    steps, seconds = (series or _latencies(evidence)[name]).finite()
    before, after = seconds[steps < since], steps >= since
    each = seconds[after] - (float(before.mean()) if len(before) else 0.0)
    if tool is None:
        return float(each.sum())
    counted = tool.calls.steps >= since
    return float(each.mean() * tool.calls.hits[counted].sum())


RULE = rule(
    check,
    "tool-latency",
    Link.ENVIRONMENT,
    max_severity=Severity.HIGH,
    floor=MIN_SECONDS,
    factor=RISE_FACTOR,
    slow=SLOW_SECONDS,
)

"""This run shows a tool that takes longer and longer to answer.

What: the 95th percentile of a tool's seconds per call (or the mean that the framework logs) rises for good above one
second and above three times its early level.
Why it matters: rollouts wait for the slowest call. Calls that reach their time limit fail, and the policy learns to
avoid a slow tool.
What it is not: harder calls, which a policy may rightly learn to make: then the median rises as well, and the reward
with it.
What to do: look at the tool first (queue, quota, cache, number of workers), then at what the policy asks of it.
Source: the factor is this project's own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, early_level, lasting_rise
from ptt.diagnostics.evidence.logged_tools import SECONDS, series_by_tool
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.environment import UNRECORDED
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import late_mean, measured

MIN_SECONDS = 1.0  # second: less is lost beside what the model itself takes for a turn
RISE_FACTOR = 3.0  # times the early level: load alone doubles latencies now and then
SLOW_SECONDS = 5.0  # seconds in the end: each call then costs as much as a turn of the model
ENABLE = (
    "record latency_s of each call (open-instruct: runtime; Inspect and OpenTelemetry do), or log it by tool at "
    "each step"
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the seconds a call takes, by tool."""
    series = _latencies(evidence)
    judged = {name: latency for name, latency in sorted(series.items()) if early_level(latency) is not None}
    if not judged:
        most = max((len(latency.finite()[0]) for latency in series.values()), default=0)
        return NotJudged(
            reason=f"latencies are recorded at {most} steps; {MIN_VALUES} are needed"
            if most
            else "no latency is recorded",
            missing=("tool_calls.latency_s", "tools/latency_mean"),
            enable=ENABLE,
        )
    findings = tuple(
        _finding(name, latency, rise, limits)
        for name, latency in judged.items()
        if (rise := lasting_rise(latency, floor=limits["floor"], factor=limits["factor"])) is not None
    )
    serious = tuple(finding for finding in findings if finding.severity.at_least(Severity.MEDIUM))
    if serious:
        return Broken(findings=serious)
    late = {name: late_mean(series[name]) for name in series if name in judged}
    worst = max(late, key=late.__getitem__)
    return Healthy(reason=f"{worst} is slowest at the end: {late[worst]:.3g} s", notes=findings)


def _latencies(evidence: Evidence) -> dict[str, Series]:
    """Return p95 by tool where calls are timed, else what is logged by tool, else the mean of all."""
    tools = (evidence.environment or UNRECORDED).tools
    timed = {name: tool.latency["p95"] for name, tool in tools.items() if "p95" in tool.latency}
    timed = timed or series_by_tool(evidence.other, SECONDS)
    mean = evidence.metrics.get("tools/latency_mean")
    return timed if timed or mean is None else {"all tools together": mean}


def _finding(name: str, series: Series, rise: BaselineShift, limits: Limits) -> Finding:
    return Finding(
        severity=Severity.MEDIUM if rise.last >= limits["slow"] and not rise.ended else Severity.LOW,
        claim=f"Latency of {name} rose from {rise.early:.2g} s to {rise.extreme:.2g} s"
        + (", then came back" if rise.ended else ""),
        unit="s",
        slice=f"tool:{name}",
        **measured(rise, observed=rise.extreme),
        evidence={"metric": series.name, "logged_as": series.raw_name, "early": rise.early, "late": rise.last},
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


RULE = rule(
    check,
    "tool-latency",
    Link.ENVIRONMENT,
    max_severity=Severity.MEDIUM,
    floor=MIN_SECONDS,
    factor=RISE_FACTOR,
    slow=SLOW_SECONDS,
)

"""This run shows a tool that takes longer and longer to answer.

What: the 95th percentile of a tool's seconds a call (or the mean that the framework logs) rises for good above one
second and above three times its early level.
Why it matters: rollouts wait for the slowest call. Calls that run into their time limit fail, and a policy learns to
leave a slow tool alone.
What it is not: calls of growing difficulty, which a policy may rightly learn to make: then the median rises as well
and the reward with it.
What to do: look at the tool's side first (queue, quota, cache, number of workers); then at what the policy asks of it.
Source: latency per tool over time is what the rule asks; the factor is this project's own.
"""

from collections.abc import Iterator

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, early_level, lasting_rise
from ptt.diagnostics.evidence.logged_tools import SECONDS, series_by_tool
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged, Rule, Verdict

FLOOR = 1.0  # second: less is lost beside what the model itself takes for a turn
FACTOR = 3.0  # times the early level: load alone doubles latencies now and then
SLOW = 5.0  # seconds in the end: each call then costs as much as a turn of the model
ENABLE = (
    "record latency_s of each call (open-instruct: runtime; Inspect and OpenTelemetry do), or log it by tool each step"
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the seconds a call takes, by tool."""
    series = dict(_series(evidence))
    enough = {name: one for name, one in series.items() if early_level(one) is not None}
    if not enough:
        most = max((len(one.finite()[0]) for one in series.values()), default=0)
        reason = (
            f"latencies are recorded at {most} steps; {MIN_VALUES} are needed" if most else "no latency is recorded"
        )
        missing = ("tool_calls.latency_s", "tools/latency_mean")
        return NotJudged(reason=reason, missing=missing, enable=ENABLE)
    found = {
        name: departure
        for name, one in sorted(enough.items())
        if (departure := lasting_rise(one, floor=limits["floor"], factor=limits["factor"])) is not None
    }
    findings = tuple(_finding(name, enough[name], one, limits) for name, one in found.items())
    serious = tuple(finding for finding in findings if finding.severity.at_least(Severity.MEDIUM))
    if serious:
        return Broken(findings=serious)
    worst = max(enough, key=lambda name: float(enough[name].finite()[1][-enough[name].width :].mean()))
    last = float(enough[worst].finite()[1][-enough[worst].width :].mean())
    reason = f"{worst} is slowest in the end: {last:.3g} s"
    return Healthy(reason=reason, notes=findings)


def _series(evidence: Evidence) -> Iterator[tuple[str, Series]]:
    """Give p95 by tool where calls are timed, else what is logged by tool, else the mean of all."""
    tools = evidence.environment.tools if evidence.environment is not None else {}
    timed = {name: tool.latency["p95"] for name, tool in tools.items() if "p95" in tool.latency}
    timed = timed or series_by_tool(evidence.other, SECONDS)
    if timed:
        yield from timed.items()
    elif (mean := evidence.metrics.get("tools/latency_mean")) is not None:
        yield "all tools together", mean


def _finding(name: str, series: Series, found: BaselineShift, limits: Limits) -> Finding:
    serious = found.last >= limits["slow"] and not found.ended
    return Finding(
        severity=Severity.MEDIUM if serious else Severity.LOW,
        claim=f"Latency of {name} rose from {found.early:.2g} s to {found.extreme:.2g} s"
        + (", and came back" if found.ended else ""),
        observed=found.extreme,
        limit=found.limit,
        unit="s",
        slice=f"tool:{name}",
        onset_step=found.onset,
        onset_interval=found.interval,
        evidence={"metric": series.name, "logged_as": series.raw_name, "early": found.early, "late": found.last},
        causes=(
            "the tool's server is overloaded or throttled",
            "its state grew over the run: caches, files, processes left behind",
            "the policy asks more of it",
        ),
        confirm=(
            f"repeat five calls from before step {found.onset} by hand: slow now too, then it is the tool; fast, then "
            "it is load",
        ),
        next=("restart or scale the tool", "set a time limit that gives an error message, and cap calls in flight"),
    )


RULE = Rule(
    id="tool-latency", link=Link.ENVIRONMENT, check=check, limits={"floor": FLOOR, "factor": FACTOR, "slow": SLOW}
)

"""This run shows a tool that the policy stopped calling while it goes on calling others.

What: calls of one tool a trajectory fall for good below a tenth of their early level, from at least 0.05 calls a
trajectory, while calls of all tools stay above half of theirs.
Why it matters: the policy may have learnt to avoid a tool that was down or slow for a while, and does not come back
to it by itself: what is no longer tried is no longer learnt.
What it is not: a tool that the task turned out not to need. Where the reward is no lower than it was up to then, the
finding is a note. A
tool that was never called cannot be told from one that does not exist.
What to do: look at the tool's failures and latency just before its use fell, then force it on a few prompts.
Source: use per tool over time is what the rule asks; the levels are this project's own.
"""

from collections.abc import Mapping

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, early_level, lasting_fall
from ptt.diagnostics.evidence.environment import Tool
from ptt.diagnostics.evidence.logged_tools import CALLS, series_by_tool
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged, Rule, Verdict
from ptt.diagnostics.rules.reward_outcome import reward_dropped_since
from ptt.diagnostics.statistics.change_point import permutation_p_value, rate_change

LEFT = 0.1  # of a tool's early calls a trajectory
WAS_USED = 0.05  # calls a trajectory: a tool called less often has hardly been tried
OTHERS = 0.5  # of all early calls that go on; with less, tools as such are given up: tool-use-vanished
BY_CHANCE = 0.01  # of orders of the values: beside a fall to a tenth, which chance hardly makes either
MOST_BLOCKS = 60  # means that the place is looked for in: neighbouring steps then hardly remember each other
LEAST_BLOCKS = 5  # before it and after it
ENABLE = "log completions with tool calls (TRL: log_completions=True), or calls by tool each step"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the calls of each tool a trajectory."""
    calls = _calls(evidence)
    enough = {name: series for name, series in calls.items() if early_level(series) is not None}
    if not enough:
        most = max((len(series.finite()[0]) for series in calls.values()), default=0)
        reason = (
            f"calls by tool are recorded at {most} steps; {MIN_VALUES} are needed" if calls else "no calls are recorded"
        )
        return NotJudged(reason=reason, missing=("tool_calls.name",), enable=ENABLE)
    if len(enough) < 2:
        return NotJudged(
            reason=f"only one tool is called ({next(iter(enough))}): tool-use-vanished judges it",
            enable="nothing to record, if the task has one tool",
        )
    early = sum(_early(series) for series in enough.values())
    late = sum(_late(series) for series in enough.values())
    fallen = {
        name: found
        for name, series in sorted(enough.items())
        if _early(series) >= limits["was_used"] and (found := _given_up(series, limits["left"])) is not None
    }
    if all(_early(series) < limits["was_used"] for series in enough.values()):
        reason = f"no tool had {limits['was_used']:g} calls a trajectory at first: none has been given up"
        return NotJudged(reason=reason, enable="nothing to record")
    if fallen and late < limits["others"] * early:
        reason = f"calls of all tools fell from {early:.2g} to {late:.2g} a trajectory: tool-use-vanished judges that"
        return NotJudged(reason=reason, enable="nothing to record")
    if not fallen:
        rate = ", ".join(f"{name} {_early(s):.2g} to {_late(s):.2g}" for name, s in sorted(enough.items())[:5])
        return Healthy(reason=f"calls a trajectory, early to late: {rate}")
    lost = any(reward_dropped_since(evidence, found.onset) for found in fallen.values())
    severity = Severity.MEDIUM if lost else Severity.LOW
    tools = evidence.environment.tools if evidence.environment is not None else {}
    findings = tuple(_finding(name, found, severity, enough, tools) for name, found in fallen.items())
    if severity is Severity.LOW:
        reason = f"{', '.join(fallen)}: hardly called any more, but the reward did not fall"
        return Healthy(reason=reason, notes=findings)
    return Broken(findings=findings)


def _calls(evidence: Evidence) -> Mapping[str, Series]:
    """Prefer what is counted: a framework logs calls by tool only where the environment does."""
    tools = evidence.environment.tools if evidence.environment is not None else {}
    if tools:
        return {name: tool.calls.series for name, tool in tools.items()}
    return series_by_tool(evidence.other, CALLS)


def _given_up(series: Series, left: float) -> BaselineShift | None:
    """Give the fall to nearly nothing: one that another order of the values would not show, or below their noise.

    A tool that only some prompts need is called at some steps and not at others: its noise is as large as its level,
    and no mean can lie far below that.
    """
    steps, values = series.finite()
    starts = np.unique(np.linspace(0, len(values), min(len(values), MOST_BLOCKS), endpoint=False).astype(np.int64))
    means = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    place = rate_change(means, np.ones(len(means)))
    if place is not None and LEAST_BLOCKS <= place[0] <= len(means) - LEAST_BLOCKS:
        before, after = float(means[: place[0]].mean()), float(means[place[0] :].mean())
        if after <= left * before and permutation_p_value(means) <= BY_CHANCE:
            onset, first, last = (int(steps[starts[at]]) for at in place)
            return BaselineShift(
                onset=onset, interval=(first, last), early=before, extreme=after, last=after, limit=left * before,
                ended=False,
            )  # fmt: skip
    found = lasting_fall(series, ceiling=_early(series), factor=left)
    return None if found is None or found.ended else found


def _early(series: Series) -> float:
    """Give the mean of the early part: most steps of a tool that few prompts need have no call of it."""
    level, values = early_level(series), series.finite()[1]
    return float(values[: min(level.values, len(values) // 3)].mean()) if level is not None else 0.0


def _late(series: Series) -> float:
    return float(series.finite()[1][-series.width :].mean())


def _finding(
    name: str, found: BaselineShift, severity: Severity, calls: Mapping[str, Series], tools: Mapping[str, Tool]
) -> Finding:
    failures = tools[name].failures if name in tools else None
    return Finding(
        severity=severity,
        claim=f"Calls of {name} a trajectory fell from {found.early:.2g} to {found.last:.2g}, of others not",
        observed=found.last,
        limit=found.limit,
        unit="calls a trajectory",
        slice=f"tool:{name}",
        onset_step=found.onset,
        onset_interval=found.interval,
        evidence={
            "metric": calls[name].name,
            "logged_as": calls[name].raw_name,
            "tool": name,
            "early": found.early,
            "failed_share": failures.share if failures is not None else None,
        },
        causes=(
            "the tool failed or was slow for a while, and was learnt to be avoided",
            "another tool does the same for less",
            "the prompts that need it became rare",
        ),
        confirm=(f"count prompts that need {name} around step {found.onset}, and read five of its calls just before",),
        next=(
            f"mend what made {name} fail or slow",
            f"mix in prompts that cannot be solved without {name}, and see whether it is still called",
        ),
    )


RULE = Rule(
    id="underused-tools",
    link=Link.ENVIRONMENT,
    check=check,
    limits={"left": LEFT, "was_used": WAS_USED, "others": OTHERS},
)

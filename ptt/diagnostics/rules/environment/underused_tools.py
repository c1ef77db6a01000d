"""This run shows a tool that the policy stopped calling while it goes on calling others.

What: calls of one tool fall for good below a tenth of their early level, which was at least 0.05 calls a trajectory,
while calls of all tools stay above half of theirs.
Why it matters: the policy may have learnt to avoid a tool that was down or slow for a while, and does not come back to
it by itself: what is no longer tried is no longer learnt. A tool that the settings list under required_tools is also a
finding if a hundred trajectories that call other tools never call it.
What it is not: a tool that the task turned out not to need: where the reward is no lower than before, the finding is
a note, unless the tool failed before: most of its last 30 calls, and twice as many as earlier. A tool that was never
called looks like one that does not exist, unless it is required.
What to do: look at the tool's failures and latency just before its use fell, then force it on a few prompts.
Source: the levels are this project's own.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, early_level, lasting_fall
from ptt.diagnostics.evidence.counts import CALLS, Counts, series_by_tool, wilson_lower_bound
from ptt.diagnostics.evidence.environment import MAX_TOOLS
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.environment import UNRECORDED
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import reward_dropped_since
from ptt.diagnostics.rules.single_series import late_mean, measured
from ptt.diagnostics.statistics.change_point import permutation_p_value, rate_change
from ptt.diagnostics.wording import pct, sig

FALL_FACTOR = 0.1  # of a tool's early calls a trajectory
MIN_EARLY_CALLS = 0.05  # calls a trajectory: a tool called less often has hardly been tried
MIN_REMAINING_SHARE = 0.5  # of all early calls must continue; with less, tools as such are given up: tool-use-vanished
MAX_P_VALUE = 0.01  # of a permutation test, in addition to a fall to a tenth, which chance rarely makes either
MAX_BLOCKS = 60  # block means in which the place is searched: neighbouring steps are then nearly independent
MIN_BLOCKS = 5  # before it and after it
MIN_TRAJECTORIES = 100  # in which a tool is never called: its share of calls is then below 3% (rule of three)
LAST_CALLS = 30  # of a tool that was given up: the interval of their failure share is at most +-0.18
FAILED_LAST = 0.4  # of them failed, at the interval's low end: what tool-failures calls high throughout
FAILED_FACTOR = 2.0  # times the share of the calls before
ENABLE = "log completions with tool calls (TRL: log_completions=True), or calls by tool at each step"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge each tool's calls a trajectory, and look for required tools that are never called."""
    verdict, never = _abandoned(evidence, limits), _never_called(evidence)
    match verdict:
        case _ if not never:
            return verdict
        case Broken(findings=others) | Healthy(notes=others):
            return Broken(findings=(*never, *others))
        case _:
            return Broken(findings=never)


def _never_called(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding for each required tool that no trajectory calls; none where too little is recorded to say so."""
    environment = evidence.environment or UNRECORDED
    if not environment.calls or environment.trajectories < MIN_TRAJECTORIES or len(environment.tools) >= MAX_TOOLS:
        return ()
    return tuple(
        Finding(
            severity=Severity.MEDIUM,
            claim=f"the settings require {name}, but none of {environment.trajectories} trajectories calls it",
            unit="calls a trajectory",
            slice=f"tool:{name}",
            observed=0.0,
            limit=0.0,
            onset_step=None,
            evidence={"metric": "tool_calls.name", "tool": name, "trajectories": environment.trajectories},
            causes=(
                "the tool is not offered to the policy, or only under another name",
                "the prompts can be solved without it",
                "the policy never tried it while sampling",
            ),
            confirm=(f"print the tools of one prompt as the policy sees them: is {name} among them?",),
            next=(f"show its use in the prompt or in a few examples, and see whether {name} is called",),
        )
        for name in sorted(set(evidence.required_tools) - environment.tools.keys())
    )


def _abandoned(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the calls of each tool a trajectory against its own beginning."""
    environment, logged = evidence.environment or UNRECORDED, series_by_tool(evidence.other, CALLS)
    tools = environment.tools
    # what is counted in samples comes first: a framework logs calls by tool only where the environment does
    calls = {name: tool.calls.series for name, tool in tools.items()}
    calls = logged if logged and (environment.from_recorder or not calls) else calls
    judged = {name: series for name, series in sorted(calls.items()) if early_level(series) is not None}
    if not judged:
        most = max((len(series.finite()[0]) for series in calls.values()), default=0)
        reason = (
            f"calls by tool are recorded at {most} steps; {MIN_VALUES} are needed" if calls else "no calls are recorded"
        )
        return NotJudged(reason=reason, missing=("tool_calls.name",), enable=ENABLE)
    if len(judged) < 2:
        return NotJudged(
            reason=f"only one tool is called ({next(iter(judged))}): tool-use-vanished judges it",
            enable="nothing to record, if the task has one tool",
        )
    early = {name: _early_mean(series) for name, series in judged.items()}
    late = {name: late_mean(series) for name, series in judged.items()}
    fallen = {
        name: fall
        for name, series in judged.items()
        if early[name] >= limits["was_used"] and (fall := _given_up(series, early[name], limits["left"])) is not None
    }
    if max(early.values()) < limits["was_used"]:
        reason = f"no tool had {limits['was_used']:g} calls a trajectory at first, so none was given up"
        return NotJudged(reason=reason, enable="nothing to record")
    # summed in the order of the records, whose last digits the claim shows
    before, after = (sum(means[name] for name in calls if name in judged) for means in (early, late))
    if fallen and after < limits["others"] * before:
        reason = (
            f"calls of all tools fell from {sig(before)} to {sig(after)} a trajectory: tool-use-vanished judges that"
        )
        return NotJudged(reason=reason, enable="nothing to record")
    if not fallen:
        rate = ", ".join(f"{name} {sig(early[name])} to {sig(late[name])}" for name in list(judged)[:5])
        return Healthy(reason=f"calls a trajectory, early to late: {rate}")
    lost = any(reward_dropped_since(evidence, fall.onset) for fall in fallen.values())
    findings = tuple(
        _finding(name, fall, judged[name], tools[name].failures if name in tools else None, lost=lost)
        for name, fall in fallen.items()
    )
    if any(finding.severity is Severity.MEDIUM for finding in findings):
        return Broken(findings=findings)
    reason = f"{', '.join(fallen)}: hardly called any more, but the reward did not fall"
    return Healthy(reason=reason, notes=findings)


def _given_up(series: Series, early: float, left: float) -> BaselineShift | None:
    """Return the fall to nearly nothing: one that another order of the values would not show, or below their noise.

    A tool that only some prompts need is called at some steps and not at others: its noise is as large as its level,
    and no mean can lie far below that.
    """
    steps, values = series.finite()
    starts = np.unique(np.linspace(0, len(values), min(len(values), MAX_BLOCKS), endpoint=False).astype(np.int64))
    means = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    place = rate_change(means, np.ones(len(means)))
    if place is not None and MIN_BLOCKS <= place[0] <= len(means) - MIN_BLOCKS:
        before, after = float(means[: place[0]].mean()), float(means[place[0] :].mean())
        if after <= left * before and permutation_p_value(means) <= MAX_P_VALUE:
            onset, *interval = (int(steps[starts[at]]) for at in place)
            ends = {"early": before, "extreme": after, "last": after, "limit": left * before}
            return BaselineShift(onset=onset, interval=(interval[0], interval[1]), ended=False, **ends)
    fall = lasting_fall(series, ceiling=early, factor=left)
    return None if fall is None or fall.ended else fall


def _early_mean(series: Series) -> float:
    """Return the mean of the early part: most steps of a tool that few prompts need have no call of it."""
    level, values = early_level(series), series.finite()[1]
    return float(values[: min(level.values, len(values) // 3)].mean()) if level is not None else 0.0


def _failed_before(failures: Counts | None) -> float | None:
    """Return the share of a tool's last calls that failed, if it is high and rose; else None."""
    if failures is None or failures.total < 2 * LAST_CALLS:
        return None
    first = int(np.flatnonzero(np.cumsum(failures.trials[::-1]) >= LAST_CALLS)[0]) + 1
    hits, trials = (float(values[-first:].sum()) for values in (failures.hits, failures.trials))
    before = (float(failures.hits.sum()) - hits) / max(1.0, failures.total - trials)
    high = wilson_lower_bound(hits, trials) > FAILED_LAST and hits / trials > FAILED_FACTOR * before
    return hits / trials if high else None


def _finding(name: str, fall: BaselineShift, calls: Series, failures: Counts | None, *, lost: bool) -> Finding:
    failed = _failed_before(failures)
    after = "" if failed is None else f", after {pct(failed)} of its last calls had failed"
    return Finding(
        severity=Severity.MEDIUM if lost or failed is not None else Severity.LOW,
        claim=f"Calls of {name} fell from {sig(fall.early)} to {sig(fall.last)} a trajectory; "
        f"other calls did not{after}",
        unit="calls a trajectory",
        slice=f"tool:{name}",
        **measured(fall),
        evidence={
            "metric": calls.name,
            "logged_as": calls.raw_name,
            "tool": name,
            "early": fall.early,
            "failed_share": failures.share if failures is not None else None,
        },
        causes=(
            "the tool failed or was slow for a while, and the policy learnt to avoid it",
            "another tool does the same for less",
            "the prompts that need it became rare",
        ),
        confirm=(f"count prompts that need {name} around step {fall.onset}, and read five of its calls just before",),
        next=(
            f"fix what made {name} fail or slow down",
            f"mix in prompts that cannot be solved without {name}, and see whether it is still called",
        ),
    )


RULE = rule(
    check,
    "underused-tools",
    Link.ENVIRONMENT,
    max_severity=Severity.MEDIUM,
    left=FALL_FACTOR,
    was_used=MIN_EARLY_CALLS,
    others=MIN_REMAINING_SHARE,
)

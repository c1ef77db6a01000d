"""This run shows a policy that settled on one of several tools without getting better.

What: the entropy of calls over tools, as a share of the entropy of equal use, falls for good below a quarter of its
early level, which was at least 0.3, while calls continue and the reward falls.
Why it matters: what is no longer tried is not learnt; a task that needs the other tools is then out of reach.
What it is not: settling on the right tool. Where the reward does not fall, the finding is a note. A run that stops
calling altogether is tool-use-vanished.
What to do: check which tool is left and whether calling it is rewarded, then whether the others fail.
Source: our own, both the entropy of tool names and the levels.
"""

import math
from dataclasses import replace
from functools import reduce

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, early_level, lasting_fall
from ptt.diagnostics.evidence.counts import CALLS, series_by_tool
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import reward_dropped
from ptt.diagnostics.rules.single_series import derived, late_mean, measured
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.wording import sig

FALL_FACTOR = 0.25  # of the early entropy
MIN_EARLY_ENTROPY = 0.3  # of what equal use would give: below, there was one main tool from the start
MIN_REMAINING_SHARE = 0.5  # of all early calls that go on
MIN_POOLED_CALLS = 20.0  # calls a value: the entropy of fewer is too low by more than a few hundredths

ENABLE = "log completions with tool calls (TRL: log_completions=True), or calls by tool at each step"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the spread of calls over tools."""
    mix = _mix(evidence)
    if mix is None:
        missing = ("tool_calls.name",)
        return NotJudged(reason="no calls of several tools are recorded", missing=missing, enable=ENABLE)
    series, calls, names = mix
    level = early_level(series)
    if level is None:
        reason = f"the mix of tools has {len(series.steps)} values; {MIN_VALUES} are needed"
        return NotJudged(reason=reason, enable=ENABLE)
    if level.median < limits["was"]:
        reason = f"one of {len(names)} tools had nearly all calls from the start (entropy {sig(level.median)} of 1)"
        return NotJudged(reason=reason, enable="nothing to record")
    fall = lasting_fall(series, ceiling=level.median, factor=limits["left"])
    early = early_level(calls)
    if fall is not None and late_mean(calls) < limits["others"] * (early.median if early is not None else 0.0):
        reason = "calls of all tools fell to less than half: tool-use-vanished judges that"
        return NotJudged(reason=reason, enable="nothing to record")
    if fall is None or fall.ended:
        spread = f"{sig(level.median)} of 1 at first, {sig(late_mean(series))} at the end"
        return Healthy(reason=f"entropy of calls over {len(names)} tools: {spread}")
    dropped = reward_dropped(evidence)
    finding = Finding(
        severity=Severity.MEDIUM if dropped else Severity.LOW,
        claim=f"The entropy of calls over {len(names)} tools fell from {sig(fall.early)} to {sig(fall.last)} of 1",
        unit="of equal use",
        **measured(fall),
        evidence={"metric": series.name, "logged_as": series.raw_name, "early": fall.early, "tools": ", ".join(names)},
        causes=(
            "calling one tool is rewarded",
            "the other tools failed for a while, and the policy learnt to avoid them",
            "a collapsed policy",
        ),
        confirm=(f"compare calls by tool and their rewards at 20 steps before and after step {fall.onset}",),
        next=(
            "fix the tools that failed",
            "mix in prompts that need the other tools, and see whether they are called",
        ),
    )
    if dropped:
        return finding
    reason = "the policy settled on one tool, but the reward did not fall"
    return Healthy(reason=reason, notes=(finding,))


def _mix(evidence: Evidence) -> tuple[Series, Series, tuple[str, ...]] | None:
    """Return the entropy by step, all calls by step, and the tools by calls; None with fewer than two tools."""
    environment, logged = evidence.environment, series_by_tool(evidence.other, CALLS)
    tools = environment.tools if environment is not None else {}
    if len(tools) >= 2 and (len(logged) < 2 or (environment is not None and not environment.from_recorder)):
        table = np.stack([tool.calls.hits for tool in tools.values()])
        return *_entropy(next(iter(tools.values())).calls.steps, table, MIN_POOLED_CALLS), tuple(tools)
    if len(logged) < 2:
        return None
    shared = reduce(np.intersect1d, (series.steps for series in logged.values()))
    rows = np.stack([series.values[np.isin(series.steps, shared)] for series in logged.values()])
    usable = np.isfinite(rows).all(axis=0)
    return (*_entropy(shared[usable], rows[:, usable], 0.0), tuple(logged)) if usable.any() else None


def _entropy(steps: IntArray, table: FloatArray, minimum: float) -> tuple[Series, Series]:
    """Pool neighbouring steps until a value rests on `minimum` calls; return its entropy over that of equal use."""
    places, pools = [], []
    pool = np.zeros(len(table))
    for place, calls in enumerate(table.T):
        pool = pool + calls
        if pool.sum() >= max(minimum, 1e-9):
            places.append(place)
            pools.append(pool)
            pool = np.zeros(len(table))
    pooled = np.array(pools).reshape(len(pools), len(table))
    share = pooled / np.maximum(pooled.sum(axis=1, keepdims=True), 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = -np.where(share > 0, share * np.log(share), 0.0).sum(axis=1) / math.log(len(table))
    total = Series(
        name="calls", raw_name="calls", steps=steps, values=table.sum(axis=0), flags=np.zeros(len(steps), np.uint8)
    )
    mix = derived(replace(total, name="tool_calls.name", raw_name="entropy of tools"), steps[places], values)
    return mix, total


RULE = rule(
    check,
    "tool-diversity",
    Link.EXPLORATION,
    max_severity=Severity.MEDIUM,
    left=FALL_FACTOR,
    was=MIN_EARLY_ENTROPY,
    others=MIN_REMAINING_SHARE,
    families=LANGUAGE,
)

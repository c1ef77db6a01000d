"""How a share of calls, turns or trajectories is judged: a lasting rise, or a level that is bad throughout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES
from ptt.diagnostics.evidence.counts import MIN_POOLED_TRIALS, MeasuredShare
from ptt.diagnostics.evidence.environment import Environment
from ptt.diagnostics.model import JsonScalar, Severity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged
from ptt.diagnostics.rules.single_series import Measured, measured
from ptt.diagnostics.wording import counted, pct

SharesVerdict = Broken | Healthy | NotJudged
UNRECORDED: Final = Environment(split="unknown", trajectories=0, steps=0, calls=0)
MAX_FINDINGS: Final = 5  # of one rule: the worst tools; further ones say the same about other tools
OF_ONE_TOOL: Final = 0.8  # of all hits at the end come from one tool: then the finding is about that tool
MIN_LIFT: Final = 1.5  # times its share of the trials: the most called tool has most hits anyway


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a rule asks of a share, in its own words."""

    what: str  # "tool calls that fail": completes "the share of ..."
    missing: tuple[str, ...]
    enable: str
    causes: tuple[str, ...]
    confirm: str  # {steps} is replaced by where to look
    next: tuple[str, ...]

    def unjudged(self, reason: str) -> NotJudged:
        """Return that there is no answer, and why."""
        return NotJudged(reason=reason, missing=self.missing, enable=self.enable)


def judge_shares(question: Question, shares: Sequence[MeasuredShare], limits: Limits) -> SharesVerdict:
    """Judge shares that should stay low.

    `limits`: `floor` and `factor` of a rise that counts; `medium` and `high`, the share at the end with that severity;
    `chronic`, a share that is too high whatever it was at first. A single tool is reported only if all tools together
    do not show the same, or if nearly all hits at the end come from it.
    """
    if not shares:
        return question.unjudged(f"no {question.what.split(' that ')[0]} are recorded")
    judged = [(share, finding) for share in shares if (finding := _finding(question, share, limits)) is not None]
    overall = [finding for share, finding in judged if share.tool is None]
    of_one = [finding for share, finding in judged if _makes_up(share, shares)] if overall else []
    if of_one and of_one[0].severity.at_least(_worst_first(overall)[0].severity):
        overall = []
    findings = of_one if of_one and not overall else _worst_first(overall)[:1]
    findings = findings or _worst_first([finding for _, finding in judged])
    worst = max((share for share in shares if share.tool), key=lambda share: share.late, default=None)
    if overall and findings and worst is not None:
        by_tool = {"worst_tool": worst.tool, "its_share": worst.late}
        findings = [replace(findings[0], evidence={**findings[0].evidence, **by_tool})]
    serious = [finding for finding in findings if finding.severity.at_least(Severity.MEDIUM)]
    if serious:
        return Broken(findings=tuple(serious[:MAX_FINDINGS]))
    first = next((share for share in shares if share.judgeable), None)
    if first is None:
        return question.unjudged(_too_few(question, shares))
    reason = f"share of {question.what}: {pct(first.early)} at first, {pct(first.late)} at the end"
    if first.counts is not None:
        reason += f", out of {first.counts.total}"
    return Healthy(reason=reason, notes=tuple(findings[:MAX_FINDINGS]))


def _makes_up(share: MeasuredShare, shares: Sequence[MeasuredShare]) -> bool:
    """Return whether nearly all hits at the end come from this tool, far more than its part of the trials."""
    whole = next((other.counts for other in shares if other.tool is None and other.counts is not None), None)
    if share.tool is None or share.counts is None or whole is None:
        return False
    end = whole.steps[-len(whole.late().steps)]
    (hits, trials), (all_hits, all_trials) = share.counts.since(end), whole.since(end)
    return hits >= OF_ONE_TOOL * all_hits > 0 and hits * all_trials >= MIN_LIFT * all_hits * trials


def _too_few(question: Question, shares: Sequence[MeasuredShare]) -> str:
    first = shares[0]
    plural = question.what.split(" that ")[0]
    if first.counts is None:
        return f"{len(first.series.finite()[0])} values are logged; a change takes {MIN_VALUES} to show"
    known = f"{first.counts.total} {plural} are counted, at {counted(len(first.counts.steps), 'step(s)')}"
    return f"{known}; a change takes {MIN_VALUES} steps (or groups of them) with {MIN_POOLED_TRIALS} or more to show"


def _finding(question: Question, share: MeasuredShare, limits: Limits) -> Finding | None:
    """Return the finding of a rise, or else of a level that is too high throughout."""
    rise = share.risen(floor=limits["floor"], factor=limits["factor"], chronic=limits["chronic"])
    late, steps = share.late, share.series.finite()[0]
    subject = question.what if share.tool is None else f"{question.what} (tool {share.tool})"
    if rise is not None:
        level = rise.last if share.counts is None else late
        severity = Severity.MEDIUM if level >= limits["medium"] else Severity.LOW
        severity = Severity.LOW if rise.ended else Severity.HIGH if level >= limits["high"] else severity
        numbers, where = measured(rise, observed=rise.extreme), f"after step {rise.onset}"
        back = ", then came back" if rise.ended else ""
        claim = f"The share of {subject} rose from {pct(rise.early)} to {pct(rise.extreme)}{back}"
    elif share.late_lower_bound <= limits["chronic"]:
        return None
    else:
        severity = Severity.HIGH if share.late_lower_bound >= limits["high"] else Severity.MEDIUM
        if late < share.early:
            severity = Severity.MEDIUM if severity is Severity.HIGH else Severity.LOW  # it is being learnt
        numbers = Measured(observed=late, limit=limits["chronic"], onset_step=int(steps[0]), onset_interval=None)
        where = f"of the last third, from step {int(steps[-max(1, len(steps) // 3)])} on"
        claim = f"The share of {subject} is {pct(late)} at the end, {pct(share.early)} at first"
    evidence: dict[str, JsonScalar] = {
        "metric": share.metric,
        "logged_as": share.series.raw_name,
        "early": share.early if math.isfinite(share.early) else None,
        "late": late if math.isfinite(late) else None,
    }
    if share.counts is not None:
        evidence["looked_at"] = share.counts.total
    if share.tool is not None:
        evidence["tool"] = share.tool
    return Finding(
        severity=severity,
        claim=claim,
        unit="share",
        slice=f"tool:{share.tool}" if share.tool is not None else None,
        **numbers,
        evidence=evidence,
        causes=question.causes,
        confirm=(question.confirm.format(steps=where),),
        next=question.next,
    )


def _worst_first(findings: list[Finding]) -> list[Finding]:
    return sorted(
        findings, key=lambda finding: (finding.severity.rank, -(finding.observed or 0.0), finding.slice or "")
    )

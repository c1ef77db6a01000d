"""How a share of calls, turns or trajectories is judged: a lasting rise, or a level that is bad throughout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift
from ptt.diagnostics.evidence.counts import MIN_POOLED_TRIALS, MeasuredShare
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import JsonScalar, Severity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged

SharesVerdict = Broken | Healthy | NotJudged
MOST_FINDINGS: Final = 5  # of one rule: the worst tools; more say the same of others


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a rule asks of a share, in its own words."""

    what: str  # "tool calls that fail": completes "the share of ..."
    missing: tuple[str, ...]
    enable: str
    causes: tuple[str, ...]
    confirm: str  # {steps} stands for where to look
    next: tuple[str, ...]

    def unjudged(self, reason: str) -> NotJudged:
        """Say why there is no answer."""
        return NotJudged(reason=reason, missing=self.missing, enable=self.enable)


def judge_shares(question: Question, shares: Sequence[MeasuredShare], limits: Limits) -> SharesVerdict:
    """Judge shares that should stay low.

    `limits`: `floor` and `factor` of a rise that counts; `medium` and `high`, the share in the end that makes it so
    severe; `chronic`, the share that is too high whatever it was at first. Of one tool only where all together do not
    show it already.
    """
    if not shares:
        return question.unjudged(f"no {question.what.split(' that ')[0]} are recorded")
    found = [(share, finding) for share in shares if (finding := _finding(question, share, limits)) is not None]
    overall = [finding for share, finding in found if share.tool is None]
    findings = _worst(overall)[:1] or _worst([finding for _, finding in found])
    worst = max((share for share in shares if share.tool), key=lambda share: share.late, default=None)
    if overall and findings and worst is not None:
        findings = [_with(findings[0], worst_tool=worst.tool, its_share=worst.late)]
    serious = [finding for finding in findings if finding.severity.at_least(Severity.MEDIUM)]
    if serious:
        return Broken(findings=tuple(serious[:MOST_FINDINGS]))
    judged = [share for share in shares if share.judgeable]
    if not judged:
        return question.unjudged(_too_few(question, shares))
    told = judged[0]
    if told.counts is not None:
        reason = (
            f"share of {question.what}: {told.early:.1%} at first, {told.late:.1%} in the end, "
            f"{told.counts.total} looked at"
        )
    else:
        reason = f"share of {question.what}: {told.early:.1%} at first, {told.late:.1%} in the end"
    return Healthy(reason=reason, notes=tuple(findings[:MOST_FINDINGS]))


def _too_few(question: Question, shares: Sequence[MeasuredShare]) -> str:
    first = shares[0]
    plural = question.what.split(" that ")[0]
    if first.counts is None:
        return f"{len(first.series.finite()[0])} values are logged; {MIN_VALUES} are needed to tell a change"
    held = f"{first.counts.total} {plural} are recorded, at {len(first.counts.steps)} step(s)"
    return (
        f"{held}; to tell a change, {MIN_VALUES} steps (or groups of them) with {MIN_POOLED_TRIALS} or more are needed"
    )


def _finding(question: Question, share: MeasuredShare, limits: Limits) -> Finding | None:
    """Give a rise, or else a level that is too high throughout."""
    departure = share.risen(floor=limits["floor"], factor=limits["factor"])
    late = share.late
    subject = question.what if share.tool is None else f"{question.what} (tool {share.tool})"
    if departure is not None:
        level = departure.last if share.counts is None else late
        high, medium = level >= limits["high"], level >= limits["medium"]
        severity = Severity.HIGH if high else Severity.MEDIUM if medium else Severity.LOW
        if departure.ended:
            severity = Severity.LOW
        steps = f"after step {departure.onset}"
        back = ", and came back" if departure.ended else ""
        claim = f"The share of {subject} rose from {share.early:.1%} to {departure.extreme:.1%}{back}"
        return _made(question, share, severity, claim, steps, departure)
    if share.surely <= limits["chronic"]:
        return None
    severity = Severity.HIGH if share.surely >= limits["high"] else Severity.MEDIUM
    if share.late < share.early:
        severity = Severity.MEDIUM if severity is Severity.HIGH else Severity.LOW  # it is being learnt
    claim = f"The share of {subject} is {late:.1%} in the end, {share.early:.1%} at first"
    return _made(
        question, share, severity, claim, f"of the last third, from step {_third(share.series)} on", None, limits
    )


def _third(series: Series) -> int:
    steps = series.finite()[0]
    return int(steps[-max(1, len(steps) // 3)])


def _made(
    question: Question,
    share: MeasuredShare,
    severity: Severity,
    claim: str,
    steps: str,
    departure: BaselineShift | None,
    limits: Limits | None = None,
) -> Finding:
    told: dict[str, JsonScalar] = {
        "metric": share.metric,
        "logged_as": share.series.raw_name,
        "early": _number(share.early),
        "late": _number(share.late),
    }
    if share.counts is not None:
        told["looked_at"] = share.counts.total
    if share.tool is not None:
        told["tool"] = share.tool
    limit = departure.limit if departure is not None else limits["chronic"] if limits else None
    return Finding(
        severity=severity,
        claim=claim,
        observed=departure.extreme if departure is not None else share.late,
        limit=limit,
        unit="share",
        slice=f"tool:{share.tool}" if share.tool is not None else None,
        onset_step=departure.onset if departure is not None else int(share.series.finite()[0][0]),
        onset_interval=departure.interval if departure is not None else None,
        evidence=told,
        causes=question.causes,
        confirm=(question.confirm.format(steps=steps),),
        next=question.next,
    )


def _worst(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda one: (one.severity.rank, -(one.observed or 0.0), one.slice or ""))


def _with(finding: Finding, **told: JsonScalar) -> Finding:
    return replace(finding, evidence={**finding.evidence, **told})


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

"""What the rules on recomputed advantages share: the fault that a rule judges, and what a finding says of its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.advantages import AdvantageAudit, AdvantageFault
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.interface import (
    REWARDED_LANGUAGE,
    Check,
    Finding,
    Healthy,
    Limits,
    NotJudged,
    Rule,
    Verdict,
    rule,
)
from ptt.diagnostics.wording import counted, pct

LEAST_SHARE: Final = 0.002  # of the samples since the first wrong one: each is proven, a few are no run's fault
MOST_SHARE: Final = 0.5  # of the samples since then: most of the gradient is wrong


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a rule says of the samples that are wrong."""

    claim: str
    causes: tuple[str, ...]
    next: tuple[str, ...]


def recomputed_rule(check: Check, name: str) -> Rule:
    """Return the rule of a check on recomputed advantages."""
    return rule(
        check,
        name,
        Link.TRAINING_SIGNAL,
        max_severity=Severity.HIGH,
        least=LEAST_SHARE,
        most=MOST_SHARE,
        families=REWARDED_LANGUAGE,
    )


def judge_recomputed(
    evidence: Evidence, name: str, limits: Limits, tell: Callable[[AdvantageFault], Told | Healthy]
) -> Verdict:
    """Judge the samples whose advantages have one fault; `tell` says what it is, or why it is none."""
    fault = _fault(evidence, name, limits)
    if not isinstance(fault, AdvantageFault):
        return fault
    told = tell(fault)
    return _finding(fault, told, evidence.advantages, limits) if isinstance(told, Told) else told


def _fault(evidence: Evidence, name: str, limits: Limits) -> AdvantageFault | Healthy | NotJudged:
    audit = evidence.advantages
    if audit is None:
        return NotJudged(
            reason="no sample is recorded with its reward and its advantage",
            missing=("reward", "advantage"),
            enable="record reward, advantage and group_id of each sample, with all samples of a group",
            absent=True,
        )
    if audit.formula is None:
        row = audit.rows[0]
        return NotJudged(
            reason=f"{row.said}: {row.reason}",
            missing=row.missing or ("reward", "advantage", "group_id"),
            enable="record the reward that advantages are made from, group_id, and all samples of each group",
        )
    fault = audit.of(name)
    if fault is None or fault.share < limits["least"]:
        return Healthy(reason=_right(audit))
    return fault


def _right(audit: AdvantageAudit) -> str:
    row = audit.rows[0]
    return f"{row.agreeing} of {counted(row.steps, 'step(s)')} agree throughout with {audit.said}"


def _finding(fault: AdvantageFault, told: Told, audit: AdvantageAudit | None, limits: Limits) -> Finding:
    begins = fault.after is not None
    found: dict[str, JsonScalar] = {
        "metric": "advantage",
        "recomputed_as": "" if audit is None else audit.said,
        "what_they_are": fault.said,
        "samples": fault.samples,
        "groups": fault.groups,
        "steps": fault.steps,
        "of_steps": fault.of_steps,
        "first_samples": fault.first_samples,
        "first_groups": fault.first_groups,
        "ranks": fault.ranks,
    }
    group = fault.rows["group_id"][0]
    where = f"of group {group} " if group is not None else ""
    return Finding(
        claim=told.claim,
        causes=told.causes,
        confirm=(f"recompute the advantages {where}at step {fault.since} by hand, from its rewards alone",),
        next=told.next,
        severity=Severity.HIGH if fault.share >= limits["most"] else Severity.MEDIUM,
        observed=fault.share,
        limit=limits["least"],
        unit="share",
        onset_step=fault.since if begins else None,
        onset_interval=(fault.after + 1, fault.since) if fault.after is not None else None,
        held_from_step=None if begins else fault.since,
        evidence={name: value for name, value in found.items() if value != ""},
    )


def whose(fault: AdvantageFault) -> str:
    """Return which samples are meant: "62% of the samples, at 30 of 34 steps since step 225"."""
    ranks = f" on rank {fault.ranks}" if fault.ranks and "," not in fault.ranks else ""
    since = f" since step {fault.since}" if fault.after is not None else ""
    return f"{pct(fault.share)} of the samples{ranks}, at {fault.steps} of {counted(fault.of_steps, 'step(s)')}{since}"

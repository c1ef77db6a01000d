"""This run shows importance weights whose tails grow heavy after tool calls.

What: the post-tool tail of |r| (geometric mean of p95 and p99) grew over the run by at least a fifth and beyond its own
noise (late third against early third, tested by the scatter of blocks of steps with their autocorrelation, at a stated
false-alarm rate). It also outgrew the text-only tail, is still high in the last sixth, and is large enough to matter:
p99 above ln 2, where a truncation cap of 2 begins to bite.
Why it matters: the variance of a ratio-weighted gradient goes with E[rho^2], which such a tail dominates. Loss, reward,
entropy and mean KL are means over all tokens and may not show it before it is late.
What it is not: tails that are high but do not grow, a hump that came back, growth from 0.01 to 0.1 (normal learning),
or equal growth everywhere (a separate finding).
What to do: first check that the logprobs are right. Then hold the policy in post-tool contexts: raise the KL
coefficient, constrain what tools return, truncate or mask the ratio; change one thing at a time.
Source: Challapally 2026 (figures 1 to 3); the statistics are our own, see docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.passing_values import PassingValue
from ptt.diagnostics.evidence.tail_holders import Holders, Throughout
from ptt.diagnostics.evidence.tails import TAIL_NATS, Tails
from ptt.diagnostics.model import (
    Aggregates,
    Answer,
    Broken,
    Finding,
    Healthy,
    Interval,
    Link,
    NotJudged,
    RuleVerdict,
    Run,
    Severity,
    Signature,
    TailGrowth,
)
from ptt.diagnostics.rules import interface
from ptt.diagnostics.rules.interface import Limits, identified
from ptt.diagnostics.rules.single_series import more_tokens
from ptt.diagnostics.rules.tail_conditions import (
    LARGE_GROWTH,
    MIN_WINDOW_TOKENS,
    JudgedTail,
    block_means_around,
    judge_tail,
)
from ptt.diagnostics.rules.tail_holder import judge_values, name_holders, passing_words, place, rate_left
from ptt.diagnostics.rules.tail_reason import (
    Dated,
    Dates,
    dates,
    lead_over_aggregates,
    limit_passed,
    nats,
    no_further_than_text,
    path_beside_text,
    reason,
    sides,
    tail_alarm,
    where,
)
from ptt.diagnostics.statistics.bootstrap import interval
from ptt.diagnostics.statistics.tail_growth import (
    MIN_BLOCK_TOKENS,
    LateRise,
    Percentile,
    SliceTails,
)
from ptt.diagnostics.statistics.trend import MIN_SHIFT_BLOCKS
from ptt.diagnostics.statistics.windows import Span, covered_until
from ptt.diagnostics.wording import pct, sig

ID: Final = "tool-tail-growth"
RECORD: Final = (
    "write recorder files (tokens/step_000001.parquet: step, model_mask, policy_logp, ref_logp) from the training "
    "loop; docs/recorder.md shows how"
)
SAME_PARTS: Final = "record the same ranks, environments and tools at all steps, or judge the steps that have them"


@dataclass(frozen=True, kw_only=True)
class Level:
    """The percentile that made a severity: the limit it passed, and how far it came, in nats."""

    name: str
    limit: float
    observed: float


def growth(tails: Tails, part: SliceTails) -> TailGrowth:
    """Return late over early of both percentiles, None where it is not finite, and the shares beyond a ratio of two."""
    p95, p99 = part.percentiles["p95"], part.percentiles["p99"]
    return TailGrowth(
        p95=number(p95.growth()),
        p99=number(p99.growth()),
        interval_p95=_numbers(p95.growth_interval()),
        interval_p99=_numbers(p99.growth_interval()),
        beyond=tails.beyond.get(part.name),
    )


def number(value: float) -> float | None:
    """Return the value, or None where it is not finite."""
    return value if math.isfinite(value) else None


def _numbers(bounds: Interval) -> Interval | None:
    return bounds if all(math.isfinite(bound) for bound in bounds) else None


def finding(
    tails: Tails, tail: JudgedTail, signature: Signature, severity: Severity, level: Level, p99_passed: Dated | None
) -> Finding:
    """Return the finding; `level`: the percentile that sets its severity, the limit it passed and how far it got.

    `p99_passed`: when p99 passed its own limit, whichever percentile set the severity.
    """
    rise = signature.growth[tails.post.name]
    level_rose = tails.post.percentiles[level.name].growth() > 1.0
    grew = (
        path_beside_text(tails, level.name, signature.growth[tails.text.name])
        if tail.end is None and tail.rare is None and tail.since is None and level_rose
        else f"{signature.reason}; {level.name} is past {nats(level.limit)}"
    )
    policy, reference = sides(tails.pair)
    moved = "is far" if severity.at_least(Severity.HIGH) else "moves away"
    return Finding(
        id=ID,
        severity=severity,
        link=Link.POLICY_UPDATE,
        slice=tails.post.name,
        claim=f"{policy} {moved} from {reference} {where(tails)}: {grew}",
        observed=level.observed,
        limit=level.limit,
        unit="nats",
        onset_step=signature.onset_step,
        onset_interval=signature.onset_interval,
        limit_passed_step=signature.limit_passed_step,
        limit_passed_interval=signature.limit_passed_interval,
        evidence={
            "pair": tails.pair,
            "percentile": level.name,
            "growth_p95": rise.p95,
            "growth_p99": rise.p99,
            "late_p95": number(float(tails.post.percentiles["p95"].windows[2])),
            "late_p99": number(float(tails.post.percentiles["p99"].windows[2])),
            "p99_limit_passed_step": p99_passed[0] if p99_passed else None,
            "resampled": tails.unit,
            "post_tool_tokens": int(tails.post.window_tokens.sum()),
        },
        causes=(
            "tool output puts the policy in states the reference hardly knows, so ratios there have no support",
            "a KL penalty that is too weak to hold the policy in these states",
            "tool output that is more varied than the data the reference was trained on",
        ),
        next=(
            "check the logprobs first: same temperature, same mask, no shift between the two columns",
            f"keep the checkpoint before step {signature.limit_passed_interval[0]}: it is probably the last good "
            "one, because the tail may have passed its limit there"
            if signature.limit_passed_interval is not None
            else "keep an early checkpoint as the last one known to be good",
            "read the post-tool samples with the largest |r| of the late window",
            "rerun from it with ten times the KL coefficient, change nothing else, and compare the same figure",
        ),
    )


def not_found(
    tails: Tails, tail: JudgedTail, signature: Signature, severity: Severity, dated: Dates, limits: Limits
) -> RuleVerdict:
    """What is not the signature may still be worth knowing, or be a finding of its own; `dated`: since when."""
    conditions = tail.conditions
    late = float(tail.post.windows[2])
    base = {"link": Link.POLICY_UPDATE, "observed": late, "unit": "nats", "slice": tails.post.name}
    evidence = {"pair": tails.pair, "percentile": tail.name}
    notes: tuple[Finding, ...] = ()
    if tail.grew and conditions["material"] is False:
        claim = f"Tails grew after tool calls, but too little to matter: {signature.reason}"
        notes = (_note("tail-growth-immaterial", claim, base, evidence),)
    elif tail.grew and conditions["localised"] is False:
        high = float(tails.post.percentiles["p95"].windows[2]) > limits["high_p95"]
        if tail.since is not None and not (conditions["material"] and high):  # all tails grow a little from 0 nats
            return Healthy(id=ID, link=Link.POLICY_UPDATE, reason=signature.reason)
        severity = severity if conditions["material"] else Severity.LOW  # too small to matter, as far as one can tell
        base |= {"evidence": evidence}
        return Broken(findings=(_everywhere(tails, signature, severity, dated, base),))
    elif conditions["lasting"] is False and _humped(tail.post, tails.windows):
        notes = (_note("tail-hump", f"Post-tool tails rose, then came back: {signature.reason}", base, evidence),)
    return Healthy(id=ID, link=Link.POLICY_UPDATE, reason=signature.reason, notes=notes)


def _everywhere(
    tails: Tails, signature: Signature, severity: Severity, dated: Dates, base: Mapping[str, object]
) -> Finding:
    """Return the finding of growth in both slices, dated to the step from which the post-tool tail grew."""
    (onset, interval), (passed, passed_interval) = (date or (None, None) for date in dated)
    policy, reference = sides(tails.pair)
    tail = f"late tokens with |r| above ln 2 ({sig(TAIL_NATS)} nats)"
    after_tools = f"{pct(tails.late_tail_share)} of the {tail} follow tool calls: read those samples first"
    return Finding(
        id="tail-growth-everywhere",
        severity=severity,
        claim=f"{policy} moves away from {reference} in text-only and post-tool tokens: {signature.reason}",
        limit=None,
        onset_step=onset,
        onset_interval=interval,
        limit_passed_step=passed,
        limit_passed_interval=passed_interval,
        causes=("the policy drifts everywhere: learning rate, KL coefficient",),
        confirm=("plot the mean KL over the same steps: where the whole policy drifts, it rises with the tails",),
        next=(
            *((after_tools,) if tails.late_tail_share > 0.5 else ()),
            "look at mean KL and the learning rate over the same steps",
        ),
        **base,  # type: ignore[arg-type]
    )


def _high(tails: Tails, signature: Signature, limits: Limits, run: Run) -> Finding | None:
    """Return the finding of a late tail past the severity limits that no other finding reports, or None.

    Without significant growth, its severity is one below that of growth to this level, since significance differs
    between seeds. Significant growth that is not known to be localised is as severe as growth after tools or
    everywhere. For a tail that came back, or may still rise, the last sixth counts.
    """
    p95, conditions = tails.post.percentiles["p95"], signature.conditions
    flat = conditions.get("growth") is False
    came_back = conditions.get("lasting") is False and not flat
    third, sixth = float(p95.windows[-1]), p95.last_sixth
    late = third if flat or math.isnan(sixth) else min(third, sixth) if came_back else max(third, sixth)
    if int(tails.post.window_tokens[-1]) < MIN_WINDOW_TOKENS or not late > limits["high_p95"]:
        return None
    critical = late > limits["critical_p95"]
    limit = limits["critical_p95" if critical else "high_p95"]
    grown = conditions.get("growth") is True and not came_back
    grew = ", though less far than before" if came_back else ", and whether it moved further is unclear"
    if grown:
        grew = " and moved further, perhaps not only there"
    if flat:
        most = p95.growth_interval()[1]
        if not critical or most <= LARGE_GROWTH:  # high all along is no finding
            return None
        grew = f" and may have moved further by up to ×{sig(most)}"
    passed = limit_passed(tails, "p95", limit, run)
    policy, reference = sides(tails.pair)
    weight = f"{math.exp(late):,.0f}" if late < LARGEST_SAID else "a million"
    return Finding(
        id="tails-high",
        severity=(Severity.CRITICAL if grown else Severity.HIGH)
        if critical
        else Severity.HIGH
        if grown
        else Severity.MEDIUM,
        link=Link.POLICY_UPDATE,
        slice=tails.post.name,
        claim=f"{policy} is far from {reference} {where(tails)}{grew}: p95 of |r| is {sig(late)} nats in the last "
        f"{'third' if late == third else 'sixth'} (one token in twenty carries a weight beyond {weight})",
        observed=late,
        limit=limit,
        unit="nats",
        onset_step=None if passed is None else passed[0],
        onset_interval=None if passed is None else passed[1],
        evidence={
            "pair": tails.pair,
            "percentile": "p95",
            "late_p95": number(late),
            "late_p99": number(float(tails.post.percentiles["p99"].windows[-1])),
            "late_tail_share_post_tool": number(tails.late_tail_share),
            "growth": signature.reason,
        },
        causes=(
            "the policy left its reference before the recorded steps, or too fast to test for growth",
            "the reference is not the model that training started from",
        ),
        confirm=("check that both columns come from the same checkpoint family, temperature and mask",),
        next=(
            "read the post-tool samples with the largest |r| of the late window",
            "raise the KL coefficient or move the reference, change nothing else, and compare the same figure",
        ),
    )


def _humped(percentile: Percentile, windows: tuple[Span, ...]) -> bool:
    middle = percentile.windows_drawn[1] / np.maximum(percentile.windows_drawn[0], 1e-3)
    return len(windows) == 3 and interval(middle)[0] > 1.5


def _note(name: str, claim: str, base: Mapping[str, object], evidence: Mapping[str, str]) -> Finding:
    return Finding(id=name, severity=Severity.INFO, claim=claim, limit=None, evidence=evidence, **base)  # type: ignore[arg-type]


FALSE_ALARMS: Final = 0.01  # for the whole decision: growth and localisation are each tested at it
MATERIAL_P99: Final = math.log(2.0)  # nats: the usual truncation cap C = 2 starts to bite at 1% of tokens
HIGH_P95: Final = 1.0  # nats: 5% of tokens carry a weight beyond e
CRITICAL_P95: Final = 2.0  # nats: 5% of tokens carry a weight beyond 7; the batch hangs on them
LARGEST_SAID: Final = math.log(1e6)  # nats: the digits of a larger weight say nothing more
MIN_STEPS: Final = 12
MIN_BLOCKS: Final = MIN_SHIFT_BLOCKS
MIN_LEFT_SHARE: Final = 0.1  # of the early window's post-tool tokens: below it the slice emptied, and its tails with it
MAX_ZERO_SHARE: Final = 0.999  # of tokens with r = 0: the two logprobs are copies of each other
MAX_BAD_SHARE: Final = 0.2  # of tokens without a finite r: the rest may be a biased selection

LIMITS: Final[Limits] = {
    "material_p99": MATERIAL_P99,
    "high_p95": HIGH_P95,
    "critical_p95": CRITICAL_P95,
    "false_alarms": FALSE_ALARMS,
}


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The signature, and what it means as a rule's verdict."""

    signature: Signature
    verdict: RuleVerdict


def judge(evidence: Evidence, aggregates: Aggregates) -> Judgement:
    """Judge the signature; `aggregates` are the other rules' alarms, for the lead."""
    limits = {**LIMITS, **evidence.limits.get(ID, {})}
    tails, holders = evidence.tails, evidence.holders
    if tails is None:
        reason = evidence.tails_reason or "the run has no per-token logprobs"
        return cannot_say(reason, None, aggregates, missing=evidence.tails_missing, enable=RECORD)
    if holders is None:
        return _judge_tails(tails, limits, aggregates, evidence)
    if (throughout := holders.throughout) is None:
        return _judge_values(tails, holders, limits, aggregates, evidence)
    return _judge_throughout(tails, throughout, holders, limits, aggregates, evidence)


def _judge_throughout(
    tails: Tails, throughout: Throughout, holders: Holders, limits: Limits, aggregates: Aggregates, evidence: Evidence
) -> Judgement:
    """Judge the tails without the values that are absent for part of the run: what these add or remove is not growth.

    If too few tokens are left, growth of all tokens cannot be separated from theirs.
    """
    if throughout.tails is not None:
        judgement = _judge_values(throughout.tails, holders, limits, aggregates, evidence)
        if judgement.signature.status is not Answer.CANNOT_SAY:
            return _left_out(judgement, throughout.passing)
    whole = _judge_tails(tails, limits, aggregates, evidence)
    if whole.signature.status is Answer.NOT_FOUND:
        return whole
    if throughout.tails is not None:
        return _left_out(judgement, throughout.passing)
    values = passing_words(throughout.passing)
    reason = f"too few tokens are left without what is not recorded all along: {values}"
    return cannot_say(reason, tails.pair, aggregates, enable=SAME_PARTS)


def _left_out(judgement: Judgement, passing: Sequence[PassingValue]) -> Judgement:
    """Say what a judgement leaves out; one about such a value, since it is there, is its own."""
    if any(place(one.attribute, one.value) in judgement.signature.reason for one in passing):
        return judgement
    values = passing_words(passing)
    reason = f"{judgement.signature.reason}; judged without {values}"
    verdict = judgement.verdict
    if isinstance(verdict, NotJudged):
        verdict = replace(verdict, reason=reason)
    elif isinstance(verdict, Broken):
        told = [replace(one, evidence={**one.evidence, "left_out": values}) for one in verdict.findings]
        verdict = replace(verdict, findings=tuple(told))
    return Judgement(signature=replace(judgement.signature, reason=reason), verdict=verdict)


def _judge_values(
    tails: Tails, holders: Holders, limits: Limits, aggregates: Aggregates, evidence: Evidence
) -> Judgement:
    """Judge the tails of the run, or of the value that holds them."""
    if _blocked(tails) is not None:
        judgement = _judge_tails(tails, limits, aggregates, evidence)
        return replace(judgement, verdict=name_holders(judgement.verdict, holders))
    left = {**limits, "false_alarms": limits["false_alarms"] * rate_left(holders)}
    judgement = _judge_tails(tails, left, aggregates, evidence)

    def conclude(tails: Tails, tail: JudgedTail, strict: Limits) -> tuple[Signature, RuleVerdict] | None:
        judged = None if _blocked(tails) else _conclude(tails, tail, strict, aggregates, evidence)
        return None if judged is None else (judged.signature, judged.verdict)

    signature, verdict = judge_values(judgement.signature, judgement.verdict, holders, limits, conclude)
    return Judgement(signature=replace(signature, false_alarm_rate=limits["false_alarms"]), verdict=verdict)


def _judge_tails(tails: Tails, limits: Limits, aggregates: Aggregates, evidence: Evidence) -> Judgement:
    blocked = _blocked(tails)
    if blocked is not None and _blocked(tails, early=1) is None:  # few calls at first: growth may show all the same
        shown = _conclude(tails, judge_tail(tails, limits), limits, aggregates, evidence)
        blocked = None if shown.signature.status is Answer.FOUND else blocked
    if blocked is not None:
        judgement = cannot_say(blocked, tails.pair, aggregates, enable=more_tokens(evidence, tails))
        if _bad_share(tails) > MAX_BAD_SHARE:
            return judgement
        return replace(
            judgement, verdict=_with_level(judgement.verdict, tails, judgement.signature, limits, evidence.run)
        )
    return _conclude(tails, judge_tail(tails, limits), limits, aggregates, evidence)


def _blocked(tails: Tails, *, early: int = 0) -> str | None:
    """Return why the tails cannot be judged at all, or None. `early`: the window that others are held against."""
    share = _bad_share(tails)
    if share > MAX_BAD_SHARE:
        return f"{pct(share)} of model tokens have no finite log-ratio"
    if tails.tokens and tails.zero_share > MAX_ZERO_SHARE:
        return (
            f"r is 0 for {pct(tails.zero_share)} of tokens: one side of {tails.pair} is a copy of the other, or the "
            "policy did not move"
        )
    if not tails.post.window_tokens.sum():
        return "no token follows a tool observation"
    if tails.periods is not None and tails.periods < MIN_BLOCKS:
        return f"the reference moves with the policy, and {tails.periods} whole periods are too few to compare"
    if _is_short(tails):
        return f"{tails.steps} steps with recorded tokens are too few to tell growth from noise; {MIN_STEPS} are needed"
    before, late = int(tails.post.window_tokens[early]), int(tails.post.window_tokens[-1])
    if late < min(MIN_WINDOW_TOKENS, MIN_LEFT_SHARE * before):
        return f"tool use vanished: {before} post-tool tokens in the early window, {late} in the late one"
    if min(before, late) < MIN_WINDOW_TOKENS:
        windows = f"{before} in the early window, {late} in the late one"
        return f"too few post-tool tokens: {windows}, {MIN_WINDOW_TOKENS} needed"
    judged = int(np.count_nonzero(np.isfinite(tails.post.percentiles["p99"].blocks)))
    if judged < MIN_BLOCKS:
        return f"too few post-tool tokens: {judged} of {len(tails.blocks)} blocks of steps have {MIN_BLOCK_TOKENS}"
    return None


def _bad_share(tails: Tails) -> float:
    return tails.bad_tokens / max(1, tails.bad_tokens + tails.tokens)


def _is_short(tails: Tails) -> bool:
    return tails.steps < MIN_STEPS or len(tails.blocks) < MIN_BLOCKS


def _conclude(tails: Tails, tail: JudgedTail, limits: Limits, aggregates: Aggregates, evidence: Evidence) -> Judgement:
    conditions = tail.conditions
    values = list(conditions.values())
    status = Answer.NOT_FOUND if False in values else Answer.CANNOT_SAY if None in values else Answer.FOUND
    elsewhere = conditions["localised"] is False and no_further_than_text(tails)
    if conditions["growth"] is None and not elsewhere and False not in (conditions["material"], conditions["lasting"]):
        status = Answer.CANNOT_SAY  # that text-only tails grew as well says nothing of growth in doubt
    severity, level = _severity(tails.post, tail.end, limits)
    found = status is Answer.FOUND
    dated = dates(tails, level.name, level.limit, evidence.run, rare=tail.rare) if tail.grew else (None, None)
    onset, passed = dated if found else (None, None)
    alarm = tail_alarm(tails, level.name, level.limit, evidence.run) if found else None
    end = evidence.run.last_step
    until = None if end is None else min(covered_until(tails.recorded, end), aggregates.until or end)
    lead, at_least, known = lead_over_aggregates(alarm, aggregates, until)
    signature = Signature(
        status=status,
        reason=reason(tails, tail, limits) + _apart_from_reference(tails.pair, status),
        pair=tails.pair,
        aggregates=aggregates,
        onset_step=onset[0] if onset else None,
        onset_interval=onset[1] if onset else None,
        limit_passed_step=passed[0] if passed else None,
        limit_passed_interval=passed[1] if passed else None,
        lead_steps=lead,
        lead_is_lower_bound=at_least,
        lead_interval=known,
        lead_until=until if at_least and until != end else None,
        growth={part.name: growth(tails, part) for part in (tails.post, tails.text)},
        p_value=number(tail.p_value),
        false_alarm_rate=limits["false_alarms"],
        conditions=conditions,
    )
    verdict: RuleVerdict
    if status is Answer.FOUND:
        p99_passed = limit_passed(tails, "p99", limits["material_p99"], evidence.run)
        verdict = Broken(findings=(finding(tails, tail, signature, severity, level, p99_passed),))
    elif status is Answer.CANNOT_SAY:
        verdict = NotJudged(
            id=ID, link=Link.POLICY_UPDATE, reason=signature.reason, enable=more_tokens(evidence, tails)
        )
    else:
        verdict = not_found(tails, tail, signature, severity, dated, limits)
    return Judgement(signature=signature, verdict=_with_level(verdict, tails, signature, limits, evidence.run))


def _apart_from_reference(pair: str, status: Answer) -> str:
    """Say of a pair without the reference that quiet tails of it tell nothing of drift."""
    quiet = status is not Answer.FOUND and not pair.endswith("/ref")
    return f"; {pair} does not show the distance from the reference, which was not recorded" if quiet else ""


def _with_level(verdict: RuleVerdict, tails: Tails, signature: Signature, limits: Limits, run: Run) -> RuleVerdict:
    """Return the verdict or, if it has no finding, the finding on a high tail."""
    high = None if isinstance(verdict, Broken) else _high(tails, signature, limits, run)
    if high is None:
        return verdict
    return Broken(findings=(high, *(verdict.notes if isinstance(verdict, Healthy) else ())))


def _severity(post: SliceTails, end: LateRise | None, limits: Limits) -> tuple[Severity, Level]:
    """Return the severity by the size of the late tail, and the percentile and limit that made it so."""
    p95, p99 = (
        float(part.windows[2]) if end is None else block_means_around(part, end)[1]
        for part in (post.percentiles["p95"], post.percentiles["p99"])
    )
    if p95 > limits["critical_p95"]:
        return Severity.CRITICAL, Level(name="p95", limit=limits["critical_p95"], observed=p95)
    if p95 > limits["high_p95"]:
        return Severity.HIGH, Level(name="p95", limit=limits["high_p95"], observed=p95)
    return Severity.MEDIUM, Level(name="p99", limit=limits["material_p99"], observed=p99)


def cannot_say(
    reason: str, pair: str | None, aggregates: Aggregates, *, missing: tuple[str, ...] = (), enable: str = ""
) -> Judgement:
    """Return the judgement that there can be none, why, and what to do so that the next run has one."""
    signature = Signature(status=Answer.CANNOT_SAY, reason=reason, pair=pair, aggregates=aggregates)
    return Judgement(
        signature=signature,
        verdict=NotJudged(id=ID, link=Link.POLICY_UPDATE, reason=reason, missing=missing, enable=enable),
    )


def does_not_apply(training: str, aggregates: Aggregates, *, samples: bool = False) -> Judgement:
    """Return the judgement for training that samples no text: no tool is called while it learns."""
    nothing = "no text" if samples else "nothing"
    reason = f"{training} training samples {nothing}, so no tool output comes before what it learns"
    signature = Signature(status=Answer.CANNOT_SAY, reason=reason, pair=None, aggregates=aggregates)
    return Judgement(
        signature=signature,
        verdict=identified(interface.does_not_apply(f"{training} training"), ID, Link.POLICY_UPDATE),
    )

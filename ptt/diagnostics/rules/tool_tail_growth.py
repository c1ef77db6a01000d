"""This run shows importance weights that grow heavy tails after tool calls.

What: the post-tool tail of |r| (geometric mean of p95 and p99) grew over the run by a fifth at least and beyond its
own noise (late third against early third by how blocks of steps scatter, steps following each other, at a stated
false-alarm rate), grew so against text-only tails too, is still high in the last sixth, and is large enough to
matter: p99 above ln 2, where a truncation cap of 2 begins to bite.
Why it matters: the variance of a ratio-weighted gradient goes with E[rho^2], which such a tail rules, while loss,
reward, entropy and mean KL stay flat; when those move it is late.
What it is not: tails that are high but do not grow, a hump that came back, growth from 0.01 to 0.1 (normal learning),
growth everywhere alike (a finding of its own).
What to do: first check that the logprobs are right. Then hold the policy in post-tool contexts: raise the KL
coefficient, constrain what tools return, truncate or mask the ratio; change one thing at a time.
Source: Challapally 2026 (figures 1 to 3); the statistics are our own, see docs/statistics.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence, Tails
from ptt.diagnostics.model import (
    Aggregates,
    Answer,
    Broken,
    Link,
    NotJudged,
    RuleVerdict,
    Severity,
    Signature,
    Steps,
)
from ptt.diagnostics.rules import interface
from ptt.diagnostics.rules import tool_tail_words as words
from ptt.diagnostics.rules.interface import Limits
from ptt.diagnostics.statistics.growth import (
    FLOOR,
    MIN_BLOCK_TOKENS,
    Percentile,
    Shift,
    SliceTails,
    shift,
)
from ptt.diagnostics.statistics.trend import LEAST_BLOCKS

ID: Final = words.ID
FALSE_ALARMS: Final = 0.01  # of the whole decision: growth and localisation are both tested at it
MIN_GROWTH: Final = 1.2  # late over early, of the tail and of its ratio to text: less is no alarm
WILD_BLOCKS: Final = 0.05  # p of the rank trend over blocks: a few wild blocks are no growth
MUCH: Final = 2.0  # late over early: so much may not be called no growth where p is below UNSURE
UNSURE: Final = 0.05
ALIKE: Final = 0.05  # p of text-only growth: enough to speak of growth everywhere
MATERIAL_SURE: Final = 0.9  # of redrawings of the late window: on the same side of the limit
MATERIAL_P99: Final = math.log(2.0)  # nats: the usual truncation cap C = 2 starts to bite at 1 % of tokens
HIGH_P95: Final = 1.0  # nats: 5 % of tokens carry a weight beyond e
CRITICAL_P95: Final = 2.0  # nats: 5 % of tokens carry a weight beyond 7; the batch hangs on them
MIN_STEPS: Final = 12
MIN_BLOCKS: Final = LEAST_BLOCKS
VANISHED: Final = 0.1  # of the early window's post-tool tokens: the slice emptied, and its tails with it
DEGENERATE_SHARE: Final = 0.999  # of tokens with r = 0: the two logprobs are copies of each other
UNUSABLE_SHARE: Final = 0.2  # of tokens without a finite r: what is left may be a selection

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
    tails = evidence.tails
    if tails is None:
        reason = evidence.tails_reason or "the run holds no per-token logprobs"
        return cannot_say(reason, None, aggregates, missing=evidence.tails_missing)
    blocked = _blocked(tails)
    if blocked is not None:
        return cannot_say(blocked, tails.pair, aggregates)
    return _conclude(tails, _judged(tails, limits), limits, aggregates, evidence)


def _blocked(tails: Tails) -> str | None:
    """Say why the tails cannot be judged at all, or None."""
    share = tails.bad_tokens / max(1, tails.bad_tokens + tails.tokens)
    if share > UNUSABLE_SHARE:
        return f"{share:.0%} of model tokens have no finite log-ratio"
    if tails.tokens and tails.zero_share > DEGENERATE_SHARE:
        return f"r is 0 for {tails.zero_share:.1%} of tokens: the two logprobs of {tails.pair} are copies of each other"
    if not tails.post.window_tokens.sum():
        return "no token follows a tool observation"
    early, late = int(tails.post.window_tokens[0]), int(tails.post.window_tokens[-1])
    if tails.steps < MIN_STEPS or len(tails.blocks) < MIN_BLOCKS:
        return f"{tails.steps} steps with recorded tokens are too few to tell growth from noise; {MIN_STEPS} are needed"
    if late < min(words.MIN_WINDOW_TOKENS, VANISHED * early):
        return f"tool use vanished: {early} post-tool tokens in the early window, {late} in the late one"
    if min(early, late) < words.MIN_WINDOW_TOKENS:
        windows = f"{early} in the early window, {late} in the late one"
        return f"too few post-tool tokens: {windows}, {words.MIN_WINDOW_TOKENS} needed"
    judged = int(np.count_nonzero(np.isfinite(tails.post.percentiles["p99"].blocks)))
    if judged < MIN_BLOCKS:
        return f"too few post-tool tokens: {judged} of {len(tails.blocks)} blocks of steps hold {MIN_BLOCK_TOKENS}"
    return None


def _judged(tails: Tails, limits: Limits) -> words.JudgedTail:
    steps = tails.steps / len(tails.blocks)
    own = shift(tails.post, None, steps=steps)
    p_value = own.p_value
    localised: bool | None = None
    if min(tails.text.window_tokens[0], tails.text.window_tokens[-1]) >= words.MIN_WINDOW_TOKENS:
        apart = shift(tails.post, tails.text, steps=steps)
        if math.isfinite(apart.p_value):
            alike = shift(tails.text, None, steps=steps)  # that text grew as well takes proof of its own
            likely = alike.p_value < ALIKE and alike.factor >= MIN_GROWTH
            localised = True if _moved(apart, limits) else False if likely else None
            p_value = max(p_value, apart.p_value)
    percentiles = tails.post.percentiles
    name = "p95" if percentiles["p95"].growth() >= MIN_GROWTH else "p99"
    return words.JudgedTail(
        name=name,
        post=percentiles[name],
        p_value=p_value,
        conditions={
            "growth": _grew(own, limits, steady=any(_steady(part) for part in percentiles.values())),
            "localised": localised,
            "lasting": _lasting(tails.post),
            "material": _material(percentiles["p99"], limits["material_p99"]),
        },
    )


def _steady(percentile: Percentile) -> bool:
    """Tell whether blocks rise by rank, and windows still differ when blocks and sequences are redrawn."""
    return percentile.trend_p < WILD_BLOCKS and percentile.growth_interval()[0] > 1.0


def _grew(found: Shift, limits: Limits, *, steady: bool) -> bool | None:
    """Tell whether the tail grew; None where it could not be tested, or noise might rarely have done it."""
    if math.isnan(found.p_value):  # too few blocks with tokens: no test was made
        return None
    if not steady:
        return False
    return True if _moved(found, limits) else None if found.factor >= MUCH and found.p_value < UNSURE else False


def _moved(found: Shift, limits: Limits) -> bool:
    return found.p_value < limits["false_alarms"] and found.factor >= MIN_GROWTH


def _lasting(post: SliceTails) -> bool | None:
    """Tell whether the last sixth lies above halfway, on the log scale, between early window and peak."""
    each = post.percentiles.values()
    last = math.prod(part.last_sixth for part in each)
    if not math.isfinite(last):
        return None
    windows = np.prod([np.maximum(part.windows, FLOOR) for part in each], axis=0)
    return bool(last >= math.sqrt(windows[0] * np.nanmax(windows)))


def _material(late: Percentile, limit: float) -> bool | None:
    """Tell whether the late p99 lies above the limit, by nine of ten redrawings."""
    drawn = late.windows_drawn[2]
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return None
    above = float((drawn > limit).mean())
    return True if above >= MATERIAL_SURE else False if above <= 1 - MATERIAL_SURE else None


def _conclude(
    tails: Tails,
    led: words.JudgedTail,
    limits: Limits,
    aggregates: Aggregates,
    evidence: Evidence,
) -> Judgement:
    conditions = led.conditions
    values = list(conditions.values())
    status = Answer.NOT_FOUND if False in values else Answer.CANNOT_SAY if None in values else Answer.FOUND
    severity, level = _severity(tails.post, limits)
    onset = tails.post.percentiles[level[0]].onset(level[1], tails.blocks) if status is Answer.FOUND else None
    lead, at_least, known = _lead(onset, aggregates, evidence.run.last_step)
    signature = Signature(
        status=status,
        reason=words.reason(tails, led, limits),
        pair=tails.pair,
        aggregates=aggregates,
        onset_step=onset[0] if onset else None,
        onset_interval=onset[1] if onset else None,
        lead_steps=lead,
        lead_is_lower_bound=at_least,
        lead_interval=known,
        growth={part.name: words.growth(part) for part in (tails.post, tails.text)},
        p_value=words.number(led.p_value),
        false_alarm_rate=limits["false_alarms"],
        conditions=conditions,
    )
    if status is Answer.FOUND:
        return Judgement(
            signature=signature, verdict=Broken(findings=(words.finding(tails, signature, severity, level),))
        )
    if status is Answer.CANNOT_SAY:
        return Judgement(
            signature=signature,
            verdict=NotJudged(id=ID, link=Link.POLICY_UPDATE, reason=signature.reason, enable=words.MORE),
        )
    return Judgement(signature=signature, verdict=words.not_found(tails, led, signature))


def _severity(post: SliceTails, limits: Limits) -> tuple[Severity, tuple[str, float]]:
    """Give the severity by the size of the late tail, and the percentile and limit that made it so."""
    late = float(post.percentiles["p95"].windows[2])
    if late > limits["critical_p95"]:
        return Severity.CRITICAL, ("p95", limits["critical_p95"])
    if late > limits["high_p95"]:
        return Severity.HIGH, ("p95", limits["high_p95"])
    return Severity.MEDIUM, ("p99", limits["material_p99"])


def _lead(
    onset: tuple[int, Steps] | None, aggregates: Aggregates, last: int | None
) -> tuple[int | None, bool, tuple[int, int | None] | None]:
    """Give the lead, whether it is a lower bound, and its 95 % interval, open above where it is one."""
    if onset is None or last is None:
        return None, False, None
    step, (low, high) = onset
    if not aggregates.alarms:
        return (last - step, True, (last - high, None)) if aggregates.status != "cannot_say" else (None, False, None)
    name = min(aggregates.alarms, key=lambda metric: (aggregates.alarms[metric], metric))
    alarm = aggregates.alarms[name]
    first, final = aggregates.alarm_intervals.get(name, (alarm, alarm))
    lead = alarm - step
    below, above = math.hypot(high - step, alarm - first), math.hypot(step - low, final - alarm)
    return lead, False, (math.floor(lead - below), math.ceil(lead + above))


def cannot_say(reason: str, pair: str | None, aggregates: Aggregates, *, missing: tuple[str, ...] = ()) -> Judgement:
    """Give the judgement that there can be none, and why."""
    signature = Signature(status=Answer.CANNOT_SAY, reason=reason, pair=pair, aggregates=aggregates)
    enable = words.RECORD if missing else words.MORE
    return Judgement(
        signature=signature,
        verdict=NotJudged(id=ID, link=Link.POLICY_UPDATE, reason=reason, missing=missing, enable=enable),
    )


def does_not_apply(training: str, aggregates: Aggregates) -> Judgement:
    """Give the judgement for training that samples nothing: no tool is called while it learns."""
    reason = f"{training} training samples nothing, so no tool output stands before what it learns"
    signature = Signature(status=Answer.CANNOT_SAY, reason=reason, pair=None, aggregates=aggregates)
    return Judgement(
        signature=signature, verdict=interface.does_not_apply(ID, Link.POLICY_UPDATE, f"{training} training")
    )

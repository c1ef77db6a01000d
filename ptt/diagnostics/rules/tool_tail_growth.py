"""This run shows importance weights that grow heavy tails after tool calls.

What: post-tool p95 or p99 of |r| grew over the run beyond its own noise (a rank trend over blocks of steps at a
stated false-alarm rate, and a 95 % interval of late over early above 1, whole sequences and blocks redrawn), grew
more than text-only tails, is still high in the last sixth, and is large enough to matter: p99 above ln 2, where a
truncation cap of 2 begins to bite.
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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence, Tails
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
    Severity,
    Signature,
    TailGrowth,
)
from ptt.diagnostics.rules.interface import Limits
from ptt.diagnostics.statistics.growth import MIN_BLOCK_TOKENS, Percentile, SliceTails, interval
from ptt.diagnostics.statistics.windows import Span

ID: Final = "tool-tail-growth"
FALSE_ALARMS: Final = 0.01  # of the whole decision; each of the two percentiles is tested at half of it
MATERIAL_P99: Final = math.log(2.0)  # nats: the usual truncation cap C = 2 starts to bite at 1 % of tokens
HIGH_P95: Final = 1.0  # nats: 5 % of tokens carry a weight beyond e
CRITICAL_P95: Final = 2.0  # nats: 5 % of tokens carry a weight beyond 7; the batch hangs on them
MIN_STEPS: Final = 12
MIN_BLOCKS: Final = 6
MIN_WINDOW_TOKENS: Final = 300  # three tokens above p99: fewer, and a window's p99 is an anecdote
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


@dataclass(frozen=True, kw_only=True)
class _Growth:
    """One percentile of both slices, judged."""

    name: str
    post: Percentile
    text: Percentile
    grew: bool
    localised: bool | None
    lasting: bool | None


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
    growths = [_judge_percentile(name, tails, limits) for name in ("p95", "p99")]
    led = next((g for g in growths if g.grew and g.localised), None) or next(
        (g for g in growths if g.grew), growths[1]
    )
    late_p99 = tails.post.percentiles["p99"]
    low, high = interval(late_p99.windows_drawn[2])
    limit = limits["material_p99"]
    material = True if low > limit else False if high < limit else None
    conditions = {
        "growth": led.grew,
        "localised": led.localised,
        "lasting": led.lasting,
        "material": material,
    }
    return _conclude(tails, led, conditions, limits, aggregates, evidence)


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
        return f"{tails.steps} steps with recorded tokens are too few to tell growth from noise; at least {MIN_STEPS} are needed"
    if late < min(MIN_WINDOW_TOKENS, VANISHED * early):
        return f"tool use vanished: {early} post-tool tokens in the early window, {late} in the late one"
    if min(early, late) < MIN_WINDOW_TOKENS:
        return f"too few post-tool tokens: {early} in the early window, {late} in the late one, {MIN_WINDOW_TOKENS} needed"
    judged = int(np.count_nonzero(np.isfinite(tails.post.percentiles["p99"].blocks)))
    if judged < MIN_BLOCKS:
        return f"too few post-tool tokens: {judged} of {len(tails.blocks)} blocks of steps hold {MIN_BLOCK_TOKENS}"
    return None


def _judge_percentile(name: str, tails: Tails, limits: Limits) -> _Growth:
    post, text = tails.post.percentiles[name], tails.text.percentiles[name]
    low, _ = post.growth_interval()
    grew = bool(post.trend_p < limits["false_alarms"] / 2 and low > 1.0)
    localised: bool | None = None
    if min(tails.text.window_tokens[0], tails.text.window_tokens[-1]) >= MIN_WINDOW_TOKENS:
        localised = interval(post.growth_drawn() / text.growth_drawn())[0] > 1.0
    peak = float(np.nanmax(post.windows))
    halfway = math.sqrt(max(float(post.windows[0]), 1e-3) * peak)  # on the log scale, between early and peak
    return _Growth(
        name=name,
        post=post,
        text=text,
        grew=grew,
        localised=localised,
        lasting=bool(post.last_sixth >= halfway) if math.isfinite(post.last_sixth) else None,
    )


def _conclude(
    tails: Tails,
    led: _Growth,
    conditions: Mapping[str, bool | None],
    limits: Limits,
    aggregates: Aggregates,
    evidence: Evidence,
) -> Judgement:
    values = list(conditions.values())
    status = Answer.NOT_FOUND if False in values else Answer.CANNOT_SAY if None in values else Answer.FOUND
    severity, level = _severity(tails.post, limits)
    onset = tails.post.percentiles[level[0]].onset(level[1], tails.blocks) if status is Answer.FOUND else None
    lead, at_least = _lead(onset[0] if onset else None, aggregates, evidence.run.last_step)
    signature = Signature(
        status=status,
        reason=_reason(tails, led, conditions, limits),
        pair=tails.pair,
        aggregates=aggregates,
        onset_step=onset[0] if onset else None,
        onset_interval=onset[1] if onset else None,
        lead_steps=lead,
        lead_is_lower_bound=at_least,
        growth={part.name: _growth(part) for part in (tails.post, tails.text)},
        p_value=min(1.0, 2 * min(tails.post.percentiles[name].trend_p for name in ("p95", "p99"))),
        false_alarm_rate=limits["false_alarms"],
        conditions=conditions,
    )
    if status is Answer.FOUND:
        return Judgement(
            signature=signature, verdict=Broken(findings=(_finding(tails, signature, severity, level),))
        )
    if status is Answer.CANNOT_SAY:
        return Judgement(
            signature=signature,
            verdict=NotJudged(id=ID, link=Link.POLICY_UPDATE, reason=signature.reason, enable=_MORE),
        )
    return Judgement(signature=signature, verdict=_not_found(tails, led, conditions, signature))


_MORE = "record more: every step, and at least 300 post-tool tokens in each third of the run"


def _severity(post: SliceTails, limits: Limits) -> tuple[Severity, tuple[str, float]]:
    """Give the severity by the size of the late tail, and the percentile and limit that made it so."""
    late = float(post.percentiles["p95"].windows[2])
    if late > limits["critical_p95"]:
        return Severity.CRITICAL, ("p95", limits["critical_p95"])
    if late > limits["high_p95"]:
        return Severity.HIGH, ("p95", limits["high_p95"])
    return Severity.MEDIUM, ("p99", limits["material_p99"])


def _lead(onset: int | None, aggregates: Aggregates, last: int | None) -> tuple[int | None, bool]:
    if onset is None or last is None:
        return None, False
    alarms = list(aggregates.alarms.values())
    if alarms:
        return min(alarms) - onset, False
    return (last - onset, True) if aggregates.status != "cannot_say" else (None, False)


def _reason(tails: Tails, led: _Growth, conditions: Mapping[str, bool | None], limits: Limits) -> str:
    post = tails.post.percentiles[led.name]
    grew = f"{_label(tails).lower()} {led.name} of |r| went {_path(post)} nats"
    text = f"text-only {_path(tails.text.percentiles[led.name])}"
    p99 = float(tails.post.percentiles["p99"].windows[2])
    if conditions["growth"] is False:
        return f"{grew}: no growth beyond the run's own noise"
    if conditions["material"] is False:
        return f"{grew}, which is immaterial: its late p99 of {p99:.2g} lies below {limits['material_p99']:.2g} nats"
    if conditions["lasting"] is False:
        return f"{grew} and came back: {post.last_sixth:.3g} in the last sixth"
    if conditions["localised"] is False:
        return f"{grew}, but {text} as much: growth everywhere, not after tools"
    if conditions["lasting"] is None:
        return f"{grew}, but the last sixth of the run holds no such tokens to tell whether it lasts"
    if conditions["localised"] is None:
        return f"{grew}, but there are too few text-only tokens to tell whether they grew as well"
    if conditions["material"] is None:
        return f"{grew}; its late p99 of {p99:.2g} cannot be told from the limit of {limits['material_p99']:.2g} nats"
    return f"{grew} while {text}"


def _label(tails: Tails) -> str:
    return tails.post.name.replace("_", "-").capitalize()


def _path(percentile: Percentile) -> str:
    return " → ".join(f"{value:.3g}" for value in percentile.windows)


def _growth(part: SliceTails) -> TailGrowth:
    p95, p99 = part.percentiles["p95"], part.percentiles["p99"]
    return TailGrowth(
        p95=_number(p95.growth()),
        p99=_number(p99.growth()),
        interval_p95=_numbers(p95.growth_interval()),
        interval_p99=_numbers(p99.growth_interval()),
    )


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _numbers(bounds: Interval) -> Interval | None:
    return bounds if all(math.isfinite(bound) for bound in bounds) else None


def _finding(tails: Tails, signature: Signature, severity: Severity, level: tuple[str, float]) -> Finding:
    name, limit = level
    observed = float(tails.post.percentiles[name].windows[2])
    growth, text = signature.growth[tails.post.name], signature.growth[tails.text.name]
    return Finding(
        id=ID,
        severity=severity,
        link=Link.POLICY_UPDATE,
        slice=tails.post.name,
        claim=f"{_label(tails)} log-ratio tails grew {growth.p95:.2g}-fold at p95 and {growth.p99:.2g}-fold at p99, "
        f"text-only ones {text.p95:.2g}- and {text.p99:.2g}-fold; {name} of |r| is past {limit:.2g} nats",
        observed=observed,
        limit=limit,
        unit="nats",
        onset_step=signature.onset_step,
        onset_interval=signature.onset_interval,
        evidence={
            "pair": tails.pair,
            "percentile": name,
            "growth_p95": growth.p95,
            "growth_p99": growth.p99,
            "late_p95": _number(float(tails.post.percentiles["p95"].windows[2])),
            "late_p99": _number(float(tails.post.percentiles["p99"].windows[2])),
            "resampled": tails.unit,
            "post_tool_tokens": int(tails.post.window_tokens.sum()),
        },
        causes=(
            "tool output puts the policy in states the reference hardly knows; ratios there have no support",
            "too weak a KL penalty to hold the policy in these states",
            "tool output more varied than the data the reference was trained on",
        ),
        next=(
            "check the logprobs first: same temperature, same mask, no shift between the two columns",
            f"keep the checkpoint before step {signature.onset_step} as the last one known to be good"
            if signature.onset_step is not None
            else "keep an early checkpoint as the last one known to be good",
            "read the post-tool samples with the largest |r| of the late window",
            "rerun from it with ten times the KL coefficient, nothing else changed, and compare the same figure",
        ),
    )


def _not_found(
    tails: Tails, led: _Growth, conditions: Mapping[str, bool | None], signature: Signature
) -> RuleVerdict:
    """What is not the signature may still be worth knowing, or be a finding of its own."""
    late = float(led.post.windows[2])
    base = {"link": Link.POLICY_UPDATE, "observed": late, "unit": "nats", "slice": tails.post.name}
    evidence = {"pair": tails.pair, "percentile": led.name}
    if led.grew and conditions["material"] is False:
        note = _note(
            "tail-growth-immaterial", f"Tails grew but do not matter yet: {signature.reason}", base, evidence
        )
        return Healthy(id=ID, link=Link.POLICY_UPDATE, reason=signature.reason, notes=(note,))
    if led.grew and conditions["localised"] is False:
        finding = Finding(
            id="tail-growth-everywhere",
            severity=Severity.MEDIUM,
            link=Link.POLICY_UPDATE,
            claim=f"Tails grew in text-only and post-tool tokens alike: {signature.reason}",
            observed=late,
            limit=None,
            unit="nats",
            evidence=evidence,
            causes=("the policy drifts as a whole: learning rate, KL coefficient",),
            next=("look at mean KL and the learning rate before looking at tools",),
        )
        return Broken(findings=(finding,))
    if conditions["lasting"] is False and _humped(led.post, tails.windows):
        note = _note("tail-hump", f"Post-tool tails rose and came back: {signature.reason}", base, evidence)
        return Healthy(id=ID, link=Link.POLICY_UPDATE, reason=signature.reason, notes=(note,))
    return Healthy(id=ID, link=Link.POLICY_UPDATE, reason=signature.reason)


def _humped(percentile: Percentile, windows: tuple[Span, ...]) -> bool:
    middle = percentile.windows_drawn[1] / np.maximum(percentile.windows_drawn[0], 1e-3)
    return len(windows) == 3 and interval(middle)[0] > 1.5


def _note(name: str, claim: str, base: Mapping[str, object], evidence: Mapping[str, str]) -> Finding:
    return Finding(
        id=name,
        severity=Severity.INFO,
        claim=claim,
        limit=None,
        evidence=evidence,
        **base,  # type: ignore[arg-type]
    )


def cannot_say(
    reason: str, pair: str | None, aggregates: Aggregates, *, missing: tuple[str, ...] = ()
) -> Judgement:
    """Give the judgement that there can be none, and why."""
    signature = Signature(status=Answer.CANNOT_SAY, reason=reason, pair=pair, aggregates=aggregates)
    enable = _RECORD if missing else _MORE
    return Judgement(
        signature=signature,
        verdict=NotJudged(id=ID, link=Link.POLICY_UPDATE, reason=reason, missing=missing, enable=enable),
    )


_RECORD = (
    "write recorder files (tokens/step_000001.parquet: step, model_mask, policy_logp, ref_logp) from the training loop; "
    "docs/recorder.md shows how"
)

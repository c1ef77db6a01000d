"""How the judgement on tool-tail growth is told: the reason, the finding, and what is worth knowing besides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Tails
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import (
    Broken,
    Finding,
    Healthy,
    Interval,
    Link,
    RuleVerdict,
    Severity,
    Signature,
    Steps,
    TailGrowth,
)
from ptt.diagnostics.rules.common import lasting_excess
from ptt.diagnostics.rules.interface import Limits
from ptt.diagnostics.statistics.growth import FLOOR, Percentile, SliceTails, interval
from ptt.diagnostics.statistics.windows import Span

ID: Final = "tool-tail-growth"
MIN_WINDOW_TOKENS: Final = 300  # three tokens above p99: fewer, and a window's p99 is an anecdote
MORE: Final = "record more: every step, and at least 300 post-tool tokens in each third of the run"
RECORD: Final = (
    "write recorder files (tokens/step_000001.parquet: step, model_mask, policy_logp, ref_logp) from the training "
    "loop; docs/recorder.md shows how"
)


@dataclass(frozen=True, kw_only=True)
class JudgedTail:
    """What judging hands to telling: the post-tool tail; `name` is the percentile that tells of it."""

    name: str
    post: Percentile
    p_value: float
    conditions: Mapping[str, bool | None]

    @property
    def grew(self) -> bool:
        """Whether the tail grew beyond noise."""
        return self.conditions["growth"] is True


def reason(tails: Tails, led: JudgedTail, limits: Limits) -> str:
    """Say what the tail did, and which condition decided."""
    conditions = led.conditions
    post = tails.post.percentiles[led.name]
    grew = f"{_label(tails).lower()} {led.name} of |r| went {_path(post)} nats"
    text = f"text-only {_path(tails.text.percentiles[led.name])}"
    p99 = float(tails.post.percentiles["p99"].windows[2])
    if conditions["growth"] is False:
        return f"{grew}: no growth beyond the run's own noise"
    if conditions["material"] is False:
        return f"{grew}, which is immaterial: its late p99 of {p99:.2g} lies below {nats(limits['material_p99'])}"
    if conditions["lasting"] is False:
        return f"{grew} and came back: {post.last_sixth:.3g} in the last sixth"
    if conditions["localised"] is False:
        return f"{grew}, but {text} as much: growth everywhere, not after tools"
    if conditions["growth"] is None and math.isnan(led.p_value):
        return f"{grew}, but too few blocks of steps hold such tokens to test it"
    if conditions["growth"] is None:
        return f"{grew}: much, but noise of this run could give as much in one of {1 / max(led.p_value, 1e-3):.0f} runs"
    if conditions["lasting"] is None:
        return f"{grew}, but the last sixth of the run holds no such tokens to tell whether it lasts"
    if conditions["localised"] is None:
        if min(tails.text.window_tokens[0], tails.text.window_tokens[-1]) < MIN_WINDOW_TOKENS:
            return f"{grew}, but there are too few text-only tokens to tell whether they grew as well"
        return f"{grew}; whether it outgrew {text} cannot be told from noise"
    if conditions["material"] is None:
        return f"{grew}; its late p99 of {p99:.2g} cannot be told from the limit of {nats(limits['material_p99'])}"
    return f"{grew} while {text}"


def _label(tails: Tails) -> str:
    return tails.post.name.replace("_", "-").capitalize()


def _path(percentile: Percentile) -> str:
    return " → ".join(f"{value:.3g}" for value in percentile.windows)


def growth(part: SliceTails) -> TailGrowth:
    """Give late over early of both percentiles, None where it is not finite."""
    p95, p99 = part.percentiles["p95"], part.percentiles["p99"]
    return TailGrowth(
        p95=number(p95.growth()),
        p99=number(p99.growth()),
        interval_p95=_numbers(p95.growth_interval()),
        interval_p99=_numbers(p99.growth_interval()),
    )


def number(value: float) -> float | None:
    """Give the value, or None where it is not finite."""
    return value if math.isfinite(value) else None


def nats(value: float) -> str:
    """Give a value in nats; exactly one is one nat."""
    text = f"{value:.2g}"
    return f"{text} nat" if text == "1" else f"{text} nats"


def _numbers(bounds: Interval) -> Interval | None:
    return bounds if all(math.isfinite(bound) for bound in bounds) else None


def finding(tails: Tails, signature: Signature, severity: Severity, level: tuple[str, float]) -> Finding:
    """Give the finding; `level` is the percentile that made its severity, and the limit it passed."""
    name, limit = level
    observed = float(tails.post.percentiles[name].windows[2])
    rise, text = signature.growth[tails.post.name], signature.growth[tails.text.name]
    return Finding(
        id=ID,
        severity=severity,
        link=Link.POLICY_UPDATE,
        slice=tails.post.name,
        claim=f"{_label(tails)} log-ratio tails grew: p95 of |r| ×{rise.p95:.2g}, p99 ×{rise.p99:.2g} (text-only "
        f"×{text.p95:.2g}, ×{text.p99:.2g}); {name} is past {nats(limit)}",
        observed=observed,
        limit=limit,
        unit="nats",
        onset_step=signature.onset_step,
        onset_interval=signature.onset_interval,
        evidence={
            "pair": tails.pair,
            "percentile": name,
            "growth_p95": rise.p95,
            "growth_p99": rise.p99,
            "late_p95": number(float(tails.post.percentiles["p95"].windows[2])),
            "late_p99": number(float(tails.post.percentiles["p99"].windows[2])),
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
            f"take the checkpoint before step {signature.onset_interval[0]}, where the onset's interval begins, as the "
            "last one that is probably good"
            if signature.onset_interval is not None
            else "keep an early checkpoint as the last one known to be good",
            "read the post-tool samples with the largest |r| of the late window",
            "rerun from it with ten times the KL coefficient, nothing else changed, and compare the same figure",
        ),
    )


def not_found(tails: Tails, led: JudgedTail, signature: Signature) -> RuleVerdict:
    """What is not the signature may still be worth knowing, or be a finding of its own."""
    conditions = led.conditions
    late = float(led.post.windows[2])
    base = {"link": Link.POLICY_UPDATE, "observed": late, "unit": "nats", "slice": tails.post.name}
    evidence = {"pair": tails.pair, "percentile": led.name}
    if led.grew and conditions["material"] is False:
        note = _note("tail-growth-immaterial", f"Tails grew but do not matter yet: {signature.reason}", base, evidence)
        return Healthy(id=ID, link=Link.POLICY_UPDATE, reason=signature.reason, notes=(note,))
    if led.grew and conditions["localised"] is False:
        return Broken(findings=(_everywhere(tails, led, signature, base | {"evidence": evidence}),))
    if conditions["lasting"] is False and _humped(led.post, tails.windows):
        note = _note("tail-hump", f"Post-tool tails rose and came back: {signature.reason}", base, evidence)
        return Healthy(id=ID, link=Link.POLICY_UPDATE, reason=signature.reason, notes=(note,))
    return Healthy(id=ID, link=Link.POLICY_UPDATE, reason=signature.reason)


def _everywhere(tails: Tails, led: JudgedTail, signature: Signature, base: Mapping[str, object]) -> Finding:
    """Tell of growth in both slices, from the step on at which the later of the two lies above halfway."""
    onset, interval = _both_since(tails, led.name) or (None, None)
    return Finding(
        id="tail-growth-everywhere",
        severity=Severity.MEDIUM,
        claim=f"Tails grew in text-only and post-tool tokens alike: {signature.reason}",
        limit=None,
        onset_step=onset,
        onset_interval=interval,
        causes=("the policy drifts as a whole: learning rate, KL coefficient",),
        confirm=("plot the mean KL over the same steps: it rises with the tails, where the policy drifts as a whole",),
        next=("look at mean KL and the learning rate before looking at tools",),
        **base,  # type: ignore[arg-type]
    )


def _both_since(tails: Tails, name: str) -> tuple[int, Steps] | None:
    """Give when both slices' tails had grown: each above halfway from its early window to its late one, in logs."""
    found = []
    for part in (tails.text, tails.post):
        percentile = part.percentiles[name]
        early, late = (max(float(percentile.windows[place]), FLOOR) for place in (0, 2))
        blocks = Series(
            name=name,
            raw_name=part.name,
            steps=np.array([span.first for span in tails.blocks]),
            values=percentile.blocks,
            flags=np.isnan(percentile.blocks).astype(np.uint8),
        )
        excess = lasting_excess(blocks, math.sqrt(early * late))
        if excess is None:
            return None
        found.append((excess.onset, excess.interval))
    return max(found)


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

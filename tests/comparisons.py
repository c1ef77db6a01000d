"""Seeded comparisons with a known answer, made without any run: what pages and files of a comparison are tested on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import polars as pl

from ptt.diagnostics.compare.comparison import Arm, Comparison, Member, NotCompared
from ptt.diagnostics.model import Aggregates, Answer, Diagnosis, Run, RunVerdict, Signature, Status

STEPS, SPANS = 700, 12
WINDOWS = ("early", "mid", "late")
LEVELS = {"p95": 1.0, "p99": 2.4}
HOSTILE = (
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "\u202egnp.exe\u200f\nsecond line",
    "a_very_long_name_" * 20,
    "$x_1$ {{ 7*7 }} \x1b[31mred\x00",
    "测试 🚀",
)


@dataclass(frozen=True, kw_only=True)
class Made:
    """How one arm behaves: tails by thirds, the step after which tools are gone, its reward."""

    name: str
    post: tuple[float, float, float] = (1.9, 5.8, 9.1)
    text: tuple[float, float, float] = (0.18, 0.15, 0.06)
    gone_after: int | None = None  # no post-tool tokens from this step on
    no_tails: bool = False
    reward: tuple[float, float] = (0.3, 0.45)
    kl: tuple[float, float] = (0.05, 0.6)
    seeds: int = 1
    status: Status = Status.UNSTABLE
    settings: dict[str, str | None] = field(default_factory=dict)
    left_at: int | None = None


BASELINE = Made(name="baseline", settings={"beta": "0.001", "tools": '"free text"'})
KL = Made(
    name="drift_aware_kl", post=(0.9, 1.4, 1.65), reward=(0.3, 0.45), kl=(0.05, 0.11), status=Status.SUSPECT,
    settings={"beta": "0.05", "tools": '"free text"'}, left_at=44,
)  # fmt: skip
SCHEMA = Made(
    name="schema_constrained", post=(0.17, 0.32, 0.65), reward=(0.95, 1.03), kl=(0.02, 0.08), status=Status.HEALTHY,
    settings={"beta": "0.001", "tools": '"schema"'}, left_at=12,
)  # fmt: skip
COLLAPSE = Made(name="collapse", post=(6.2, 7.0, 7.0), gone_after=180, reward=(0.05, 0.0), left_at=9)
SCALARS = Made(name="scalars_only", no_tails=True, status=Status.CANNOT_SAY)


@cache
def two_arms() -> Comparison:
    """Give a baseline and an arm whose tails are suppressed."""
    return made(BASELINE, KL)


@cache
def missing_tails() -> Comparison:
    """Give arms of which one loses its post-tool tokens and one has no tokens at all."""
    return made(BASELINE, KL, COLLAPSE, SCALARS)


@cache
def ten_arms() -> Comparison:
    """Give a sweep: tails from the baseline's down to a tenth, one arm worse, one gone, one without tails."""
    sweep = [
        Made(
            name=f"grpo_beta{beta:g}_lr2e-4",
            post=(1.8 / k, 5.6 / k**1.2, 9.0 / k**1.3),
            kl=(0.05, 0.6 / k),
            left_at=30 * i + 20,
            seeds=1 + i % 3,
            settings={"beta": f"{beta:g}"},
        )
        for i, (beta, k) in enumerate(
            ((0.002, 1.1), (0.005, 1.6), (0.01, 2.2), (0.02, 3.1), (0.05, 4.6), (0.1, 7.0)), 1
        )
    ]
    worse = Made(name="no_clip", post=(2.6, 8.5, 15.0), kl=(0.1, 2.0), left_at=25)
    return made(BASELINE, *sweep, worse, COLLAPSE, SCALARS)


@cache
def hostile() -> Comparison:
    """Give arms whose names and settings attack pages and terminals."""
    arms = [
        Made(name=name, post=(1.0 + i, 2.0 + i, 3.0 + i), settings={HOSTILE[0]: f'"{i} <b>bold</b>"'}, left_at=50)
        for i, name in enumerate(HOSTILE)
    ]
    return made(*arms, headline=f"{HOSTILE[0]} against {HOSTILE[2]}")


@cache
def nothing() -> Comparison:
    """Give two arms that cannot be compared in anything."""
    return made(SCALARS, Made(name="other", no_tails=True), bare=True)


def made(*arms: Made, headline: str = "", bare: bool = False) -> Comparison:
    """Make the comparison of some arms, the first of them the baseline."""
    told = headline or f"Post-tool p95 ends {arms[0].post[2] / arms[1].post[2]:.2g} times lower in {arms[1].name}"
    complete = _tables((BASELINE, KL))  # a table without rows keeps its columns
    tables = {name: frame.clear() for name, frame in complete.items()} | ({} if bare else _tables(arms))
    return Comparison(
        arms=tuple(_arm(arm, index, bare=bare) for index, arm in enumerate(arms)),
        pair=None if bare else "policy/ref",
        headline="Nothing could be compared" if bare else told,
        sentences=tuple(
            f"{arm.name}: late post-tool p95 {arm.post[2]:.3g} against {arms[0].post[2]:.3g}" for arm in arms[1:4]
        ),
        tables=tables,
        not_compared=tuple(
            NotCompared(
                what=f"tails of {arm.name}",
                reason="the run has no per-token log-probabilities",
                enable="record policy_logp and ref_logp with ptt's recorder",
            )
            for arm in arms
            if arm.no_tails
        ),
        matched={"steps": None, "tokens": None} if bare else {"steps": (1.0, STEPS), "tokens": (0.0, 2.4e6)},
    )


def _arm(arm: Made, index: int, *, bare: bool) -> Arm:
    names = [arm.name] if arm.seeds == 1 else [f"{arm.name}_s{seed}" for seed in range(arm.seeds)]
    members = tuple(
        Member(
            name=name,
            diagnosis=_diagnosis(arm, name, np.random.default_rng([index, seed]), bare=bare),
            profile=None,
            why_no_profile="made without a run",
        )
        for seed, name in enumerate(names)
    )
    return Arm(name=arm.name, members=members)


def _diagnosis(arm: Made, name: str, rng: np.random.Generator, *, bare: bool) -> Diagnosis:
    quiet = Aggregates(status="quiet", metrics={}, alarms={})
    return Diagnosis(
        run=Run(
            name=name, framework="trl", algorithm="grpo", first_step=1, last_step=STEPS, step_count=STEPS,
            sequences=2816, model_tokens=int(rng.integers(90_000, 120_000)),
        ),
        verdict=RunVerdict(status=arm.status, headline="", first_broken_link=None, next=()),
        signature=Signature(status=Answer.CANNOT_SAY, reason="made", pair="policy/ref", aggregates=quiet),
        findings=(), healthy=(), not_judged=(), crashes=(), sources=(),
        tables={} if bare else {"series": _series(arm, rng)},
    )  # fmt: skip


def _curves(arm: Made) -> dict[str, tuple[float, float, float]]:
    """Give early and late of each metric, and its noise."""
    return {
        "reward/mean": (*arm.reward, 0.05),
        "loss/total": (0.02, 0.01, 0.01),
        "entropy": (0.15, 0.1, 0.01),
        "kl/ref": (*arm.kl, 0.03),
        "grad_norm": (0.9, 0.7, 0.15),
        "len/response_mean": (60.0, 72.0, 6.0),
        "clip/frac": (0.01, 0.02, 0.004),
        "tools/call_frequency": (0.8, 0.0 if arm.gone_after else 1.0, 0.04),
    }


def _series(arm: Made, rng: np.random.Generator) -> pl.DataFrame:
    steps = np.arange(1, STEPS + 1)
    frames = [
        pl.DataFrame(
            {
                "step": steps,
                "name": name,
                "name_raw": name,
                "flag": pl.Series([0] * STEPS, dtype=pl.UInt8),
                "value": first + (last - first) * steps / STEPS + rng.normal(0, noise, STEPS),
            }
        )
        for name, (first, last, noise) in _curves(arm).items()
    ]
    return pl.concat(frames)


def _level(points: tuple[float, float, float], share: float) -> float:
    return float(np.exp(np.interp(share, (1 / 6, 0.5, 5 / 6), np.log(points))))


def _tables(arms: tuple[Made, ...]) -> dict[str, pl.DataFrame]:
    rows: dict[str, list[dict[str, object]]] = {
        name: []
        for name in (
            "curves", "windows", "differences", "growth", "ecdf", "ess", "aggregates", "aggregate_differences",
            "settings", "divergence",
        )
    }  # fmt: skip
    for index, arm in enumerate(arms):
        rng = np.random.default_rng([7, index])
        if not arm.no_tails:
            for axis, top in (("steps", float(STEPS)), ("tokens", 2.4e6)):
                _tails(rows, arm, arms[0], axis, top, rng)
            _shapes(rows, arm, rng)
        _means(rows, arm, arms[0])
        if arm.left_at is not None and index:
            rows["divergence"] += [
                {"arm": arm.name, "what": what, "slice": slice_of, "step": arm.left_at + late, "low": arm.left_at - 5,
                 "high": arm.left_at + late + 22, "words": f"leaves the baseline at step {arm.left_at + late}"}
                for what, slice_of, late in (("p95", "post_tool", 0), ("kl/ref", None, 60), ("p99", "post_tool", 20),
                                             ("entropy", None, 300))
            ]  # fmt: skip
    keys = sorted({key for arm in arms for key in arm.settings} | {"batch_size"})
    for key in keys:
        values = [arm.settings.get(key, None if key != "batch_size" else "32") for arm in arms]
        rows["settings"] += [
            {"key": key, "arm": arm.name, "value": value, "differs": len(set(values)) > 1}
            for arm, value in zip(arms, values, strict=True)
        ]
    return {name: pl.DataFrame(found, infer_schema_length=None) for name, found in rows.items() if found}


def _tails(
    rows: dict[str, list[dict[str, object]]],
    arm: Made,
    base: Made,
    axis: str,
    top: float,
    rng: np.random.Generator,
) -> None:
    edges = np.linspace(0 if axis == "tokens" else 1, top, SPANS + 1)
    for name, levels in (("text_only", arm.text), ("post_tool", arm.post)):
        before = base.text if name == "text_only" else base.post
        gone = math.inf if arm.gone_after is None or name == "text_only" else arm.gone_after / STEPS
        for q, factor in LEVELS.items():
            key = {"arm": arm.name, "axis": axis, "slice": name, "q": q}
            for first, last in pairwise(edges.tolist()):
                share = (first + last) / 2 / top
                here = share < gone
                value = _level(levels, share) * factor * math.exp(rng.normal(0, 0.06)) if here else None
                rows["curves"].append(
                    {**key, "x_first": first, "x_last": last, "x_mid": (first + last) / 2, **_around(value, 0.16),
                     "n_tokens": 1500 if here else 0, "runs": arm.seeds}
                )  # fmt: skip
            for index, window in enumerate(WINDOWS):
                value = levels[index] * factor if index == 0 or gone > 1 else None
                rows["windows"].append(
                    {**key, "window": window, **_around(value, 0.1), "n_tokens": 6000 if value else 0,
                     "runs": arm.seeds}
                )  # fmt: skip
                if arm is not base and value is not None:
                    ratio = before[index] * factor / value
                    rows["differences"].append(
                        {**key, "window": window, "ratio": ratio, "lo": ratio / 1.35, "hi": ratio * 1.35,
                         "p_value": 0.01, "detectable": 1.4}
                    )  # fmt: skip
            grown = levels[2] / levels[0] if gone > 1 else None
            kept = None if grown is None or arm is base else before[2] / before[0] / grown
            rows["growth"].append(
                {**key, "growth": grown, "lo": _times(grown, 0.8), "hi": _times(grown, 1.25), "suppression": kept,
                 "suppression_lo": _times(kept, 0.7), "suppression_hi": _times(kept, 1.4)}
            )  # fmt: skip


def _shapes(rows: dict[str, list[dict[str, object]]], arm: Made, rng: np.random.Generator) -> None:
    x = np.geomspace(1e-3, 40, 120)
    for name, levels in (("text_only", arm.text), ("post_tool", arm.post)):
        gone = arm.gone_after is not None and name == "post_tool"
        for window, level in ((WINDOWS[0], levels[0]), (WINDOWS[2], levels[2])):
            if gone and window == "late":
                continue
            z = (np.log(x) - math.log(level) + 1.645 * 1.5) / 1.5
            cdf = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
            rows["ecdf"] += [
                {"arm": arm.name, "slice": name, "window": window, "x": a, "cdf": b, "n_tokens": 9000}
                for a, b in zip(x.tolist(), cdf.tolist(), strict=True)
            ]
        for first in range(1, STEPS, 50):
            if gone and arm.gone_after is not None and first > arm.gone_after:
                continue
            fraction = math.exp(-_level(levels, first / STEPS) / 3) * math.exp(rng.normal(0, 0.05))
            rows["ess"].append(
                {"arm": arm.name, "slice": name, "step_first": first, "step_last": first + 49, "step_mid": first + 24.5,
                 "ess_fraction": min(1.0, fraction), "n": 1500}
            )  # fmt: skip


def _means(rows: dict[str, list[dict[str, object]]], arm: Made, base: Made) -> None:
    for metric, (first, last, noise) in _curves(arm).items():
        start, end, _ = _curves(base)[metric]
        for index, window in enumerate(WINDOWS):
            share = (2 * index + 1) / 6
            mean, other = first + (last - first) * share, start + (end - start) * share
            half = noise / 4
            rows["aggregates"].append(
                {"arm": arm.name, "metric": metric, "window": window, "mean": mean, "lo": mean - half,
                 "hi": mean + half, "n": 233, "runs": arm.seeds}
            )  # fmt: skip
            if arm is not base:
                apart = mean - other
                word = "alike" if abs(apart) < half else "higher" if apart > 0 else "lower"
                rows["aggregate_differences"].append(
                    {"arm": arm.name, "metric": metric, "window": window, "difference": apart, "lo": apart - half,
                     "hi": apart + half, "words": word}
                )  # fmt: skip


def _around(value: float | None, share: float) -> dict[str, object]:
    return {"value": value, "lo": _times(value, 1 - share), "hi": _times(value, 1 + share)}


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor

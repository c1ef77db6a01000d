"""Runs as a baseline measures them, made from seeded series: an AR(1) about a shape."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.evidence.logged_metrics import Logged
from ptt.diagnostics.gate.baseline.measure import Measured, baseline_of
from ptt.diagnostics.gate.baseline.values import Baseline, Figures
from ptt.diagnostics.statistics.tail_curves import Curve
from ptt.diagnostics.statistics.windows import Span

Array = npt.NDArray[np.float64]

SHAPES: dict[str, Callable[[Array], Array]] = {
    "flat": np.ones_like,
    "rising": lambda u: 0.4 + 0.6 * (1 - np.exp(-5 * u)),
    "falling": lambda u: 1 + 2 * np.exp(-6 * u),
    "line": lambda u: 0.5 + 0.5 * u,
}


def ar1(rng: np.random.Generator, count: int, likeness: float) -> Array:
    """Noise of standard deviation 1, each value like the one before."""
    fresh = rng.normal(size=count) * np.sqrt(1 - likeness**2)
    noise = np.empty(count)
    before = rng.normal()
    for place in range(count):
        before = noise[place] = likeness * before + fresh[place]
    return noise


def noisy(
    rng: np.random.Generator, *, shape: str = "flat", count: int = 120, noise: float = 0.1, likeness: float = 0.4
) -> Array:
    values: Array = SHAPES[shape](np.linspace(0, 1, count)) + noise * ar1(rng, count, likeness)
    return values


def facts(name: str = "run", **changes: Any) -> Figures:
    made = Figures(
        name=name,
        source=hashlib.sha256(name.encode()).hexdigest(),
        framework="trl",
        algorithm="grpo",
        pair=None,
        slices=(),
        steps=(1, 120, 120),
        sequences=960,
        model_tokens=40_000,
        status="healthy",
    )
    return replace(made, **changes)


def measured(
    metrics: Mapping[str, Sequence[float] | Array],
    *,
    name: str = "run",
    first: int = 1,
    every: int = 1,
    bad: Mapping[str, Sequence[int]] | None = None,
    **changes: Any,
) -> Measured:
    """A run that logged these values from step `first`, `every` so many steps; `bad`: places that are NaN."""
    series, last = {}, first - 1
    for metric, values in metrics.items():
        held = np.array(values, dtype=np.float64)
        flags = np.zeros(len(held), np.bool_)
        flags[list((bad or {}).get(metric, ()))] = True
        steps = first + every * np.arange(len(held))
        last = max(last, int(steps[-1]))
        series[metric] = Logged(
            logged_as=metric.replace("/", "_"), steps=steps, values=np.where(flags, np.nan, held), bad=flags
        )
    return Measured(facts=facts(name, **changes), first=first, last=last, profile=None, series=series, ess=None)


def made(*runs: Measured, name: str = "made") -> Baseline:
    return baseline_of(runs, name=name, version="0")


def curves_at(
    levels: Sequence[float] | Array, *, slice_: str = "post_tool", noise: float = 0.05, tokens: int = 4000
) -> tuple[Curve, ...]:
    """p95 at these levels and p99 at twice as much, over spans of ten steps."""
    log_value = np.log(np.array(levels, dtype=np.float64))
    spans = tuple(Span(10 * place + 1, 10 * place + 10) for place in range(len(log_value)))
    held = np.full(len(log_value), tokens)
    return tuple(
        Curve(
            slice=slice_,
            quantile=quantile,
            spans=spans,
            log_value=log_value + np.log(factor),
            own=np.full(len(log_value), noise**2),
            tokens=held,
            units=np.full(len(log_value), 16),
        )
        for quantile, factor in (("p95", 1.0), ("p99", 2.0))
    )


def with_tails(name: str, *slices: tuple[Curve, ...], **changes: Any) -> Figures:
    """Figures of a run that has tails alone."""
    curves = tuple(curve for held in slices for curve in held)
    named = tuple(dict.fromkeys(curve.slice for curve in curves))
    return facts(name, **({"pair": "policy/ref", "slices": named, "tails": curves} | changes))


def baseline_with(*runs: Figures, last: int = 120) -> Baseline:
    return Baseline(name="made", ptt_version="0", steps=Span(1, last), runs=runs)

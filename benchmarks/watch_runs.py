"""Runs that a watch is tried on, step by step: percentiles of |r| and metrics are drawn, tokens are not.

Noise is that of benchmarks/span (log-SD of 0.03 to 0.22 that may change in mid-run, AR(1) of 0 to 0.85, here up to 0.9,
tails of 3 to 8 degrees of freedom), and metrics are those of benchmarks/healthy_runs: fast, late and stepwise learning,
plateaus, solved tasks, schedules, heavy gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.healthy_runs import KINDS
from benchmarks.loop.noise import FloatArray, Generator, log_uniform
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.watch.observed import ObservedStep, StepTail

LENGTHS: Final = (100, 3000)
TAILS: Final = ("level", "from reference", "small growth", "outliers", "text rises a little")
SIZES: Final = ((1.5, 2.5), (2.5, 4.0), (4.0, 8.0), (8.0, 16.0))
FAULTS: Final = ("tail", "kl", "reward", "entropy", "gradient")
KL_OF_TAIL: Final = 0.075  # mean KL over p95 of |r|, as in the runs of the reproduction
P99_OVER_P95: Final = 1.9
ROLLED: Final = 0.6  # of the standard error of a percentile, in logs, over one over the root of the tokens beyond it


@dataclass(frozen=True, kw_only=True)
class Made:
    """A run: what a watch sees of each step, and where its fault begins, if it has one."""

    kind: str
    steps: tuple[ObservedStep, ...]
    onset: int | None = None
    size: float = 1.0


def noise(generator: Generator, count: int) -> FloatArray:
    """Draw step noise in logs: an AR(1) of any likeness, Gaussian or heavy, whose SD may change once."""
    likeness = float(generator.choice([0.0, generator.uniform(0.0, 0.85), 0.9], p=[0.25, 0.65, 0.1]))
    freedom = generator.uniform(3.0, 8.0)
    heavy = bool(generator.random() < 0.5)
    drawn = (
        generator.standard_t(freedom, count) / math.sqrt(freedom / (freedom - 2))
        if heavy
        else generator.normal(size=count)
    )
    drawn = np.clip(drawn, -8, 8)
    out = np.empty(count)
    last = 0.0
    for place, value in enumerate(drawn.tolist()):
        last = value if place == 0 else likeness * last + math.sqrt(1 - likeness**2) * value
        out[place] = last
    sd = log_uniform(generator, 0.03, 0.22)
    later = min(0.25, sd * log_uniform(generator, 0.5, 2.0)) if generator.random() < 0.3 else sd
    return out * np.where(np.arange(count) < generator.uniform(0.2, 0.8) * count, sd, later)


def _sampled(generator: Generator, level: FloatArray, tokens: int) -> FloatArray:
    """Add step noise and that of a percentile of so many tokens."""
    error = ROLLED / math.sqrt(0.05 * tokens)
    return level * np.exp(noise(generator, len(level)) + generator.normal(0, error, len(level)))


def healthy(seed: int) -> Made:
    """Draw a run that nothing is wrong with."""
    generator = np.random.default_rng([seed, 41])
    count = round(log_uniform(generator, *LENGTHS))
    kind = str(generator.choice(TAILS))
    u = np.linspace(0, 1, count)
    level = np.full(count, log_uniform(generator, 0.05, 8.0) / P99_OVER_P95)
    text = np.full(count, log_uniform(generator, 0.05, 2.0) / P99_OVER_P95)
    if generator.random() < 0.2:  # another data mix, another phase
        turned = np.where(u < generator.uniform(0.1, 0.9), 1.0, log_uniform(generator, 0.75, 1.33))
        level, text = level * turned, text * turned
    if kind == "from reference":  # policy and reference are equal at first, and part by what healthy runs show
        rise = 1 - np.exp(-u / generator.uniform(0.01, 0.3))
        level = log_uniform(generator, 0.05, 0.45) * rise
        text = log_uniform(generator, 0.05, 0.6) * rise
    elif kind == "small growth":
        level = level * log_uniform(generator, 1.05, 1.3) ** u
    elif kind == "text rises a little":
        text = text * log_uniform(generator, 1.05, 1.4) ** u
    tokens = round(log_uniform(generator, 100, 4000))
    post, before = _sampled(generator, level, tokens), _sampled(generator, text, tokens)
    if kind == "outliers":
        post = post * np.where(generator.random(count) < 0.02, log_uniform(generator, 2, 10), 1.0)
    return Made(kind=kind, steps=_steps(generator, post, before, tokens, _metrics(generator, count)))


def planted(seed: int, fault: str, size: float) -> Made:
    """Draw a run whose fault begins somewhere, at once, straight or fast and then slower, and is of this size."""
    generator = np.random.default_rng([seed, 43, FAULTS.index(fault), round(1000 * size)])
    count = round(log_uniform(generator, *LENGTHS))
    onset = round(generator.uniform(0.1, 0.7) * count)
    width = log_uniform(generator, 0.05, 0.7) * (count - onset)
    since = np.maximum(np.arange(count) - onset, 0.0)
    shape = str(generator.choice(["step", "ramp", "saturating"], p=[0.35, 0.35, 0.3]))
    done = {
        "step": np.minimum(since, 1.0),
        "ramp": np.minimum(since / width, 1.0),
        "saturating": -np.expm1(-3 * since / width),
    }[shape]
    metrics = _metrics(generator, count, kind="grpo")
    end = log_uniform(generator, 1.2, 8.0)
    base = end / size if fault == "tail" else log_uniform(generator, 0.05, 0.4)
    level = base * (size if fault == "tail" else 1.0) ** done
    tokens = round(log_uniform(generator, 100, 4000))
    post = _sampled(generator, level, tokens)
    before = _sampled(generator, np.full(count, log_uniform(generator, 0.05, 0.6)), tokens)
    if fault == "tail":
        metrics["kl/ref"] = metrics["kl/ref"] + KL_OF_TAIL * np.maximum(level - base, 0.0)
    if fault == "kl":
        first = float(np.median(metrics["kl/ref"][: max(5, onset)]))
        metrics["kl/ref"] = metrics["kl/ref"] * (size * 1.2 / first) ** done  # to so many nats
    if fault == "reward":
        metrics["reward/mean"] = metrics["reward/mean"] * (1 - (1 - 0.05) * done)
    if fault == "entropy":
        metrics["entropy"] = metrics["entropy"] * (0.008 / metrics["entropy"].mean()) ** done
        metrics["reward/mean"] = 0.55 * metrics["reward/mean"]  # not solved
    if fault == "gradient":
        metrics["grad_norm"] = metrics["grad_norm"] * (20 * size) ** done
    steps = _steps(generator, post, before, tokens, metrics)
    return Made(kind=shape, steps=steps, onset=onset, size=size)


def _metrics(generator: Generator, count: int, kind: str | None = None) -> dict[str, FloatArray]:
    """Draw the metrics of a healthy run of some kind, by canonical name."""
    kind = kind or str(generator.choice(list(KINDS), p=[0.1, 0.1, 0.5, 0.2, 0.1]))
    raw = KINDS[kind](generator, count)
    named = {canonical(name): values for name, values in raw.items()}
    metrics = {name: np.array(values) for name, values in named.items() if name is not None}
    metrics["time/step"] = log_uniform(generator, 1, 300) * np.exp(noise(generator, count))
    return metrics


def _steps(
    generator: Generator, post: FloatArray, before: FloatArray, tokens: int, metrics: dict[str, FloatArray]
) -> tuple[ObservedStep, ...]:
    names = list(metrics)
    rows = np.array([metrics[name] for name in names]).T.tolist()
    held = generator.poisson(tokens, len(post)).tolist()
    return tuple(
        ObservedStep(
            step=place + 1,
            metrics={name: value for name, value in zip(names, row, strict=True) if not math.isnan(value)},
            tails={
                "post_tool": StepTail(tokens=count, p95=high, p99=high * P99_OVER_P95),
                "text_only": StepTail(tokens=count, p95=low, p99=low * P99_OVER_P95),
            },
        )
        for place, (row, count, high, low) in enumerate(zip(rows, held, post.tolist(), before.tolist(), strict=True))
    )

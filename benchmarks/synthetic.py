"""Made runs whose truth is known: correlated tokens, noisy steps, and tails that do or do not grow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from scipy.signal import lfilter

from benchmarks.designs import CLASSES, POSITIVE, Design, base, log_uniform, of_class

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

OBSERVATION: Final = 6  # tokens of an observation: their number is of no consequence here


@dataclass(frozen=True, kw_only=True)
class Made:
    """A run: its design, its sequences, its metrics (canonical name to values, one a step)."""

    design: Design
    frame: pl.DataFrame
    metrics: dict[str, FloatArray]
    kl_crosses: float | None  # at which step the true mean KL passes 0.3


def make(kind: str, seed: int) -> Made:
    """Make one run of a class, the same every time."""
    generator = np.random.default_rng([seed, CLASSES.index(kind)])
    design = of_class(base(kind, generator), generator)
    frame = _sequences(design, generator)
    if kind == "zero-filled":
        frame = _zero_filled(frame, generator)
    crosses, metrics = _metrics(design, generator)
    return Made(design=design, frame=frame, metrics=metrics, kl_crosses=crosses)


def another(design: Design, seed: int) -> pl.DataFrame:
    """Make the sequences of another seed of the same setting."""
    return _sequences(design, np.random.default_rng([seed, CLASSES.index(design.kind), 1]))


def other_metrics(design: Design, seed: int, *, setting: int) -> dict[str, FloatArray]:
    """Make what a seed of a setting logs: levels are the setting's, noise is its own."""
    number = CLASSES.index(design.kind)
    own, shared = np.random.default_rng([seed, number, 3]), np.random.default_rng([setting, number, 4])
    return _metrics(design, own, levels=shared)[1]


def _noise(generator: np.random.Generator, count: int, rho: float) -> FloatArray:
    """AR(1) of variance 1, from its long-run state."""
    pushes = generator.normal(size=count + 50) * math.sqrt(1 - rho**2)
    path: FloatArray = lfilter([1.0], [1.0, -rho], pushes)[50:]
    return path


def _sequences(design: Design, generator: np.random.Generator) -> pl.DataFrame:
    steps, rows = design.steps, design.steps * design.per_step
    u = np.linspace(0, 1, steps)
    step = np.repeat(np.arange(steps), design.per_step)
    group = np.arange(rows) // design.group
    length = np.maximum(4, np.rint(design.length * generator.uniform(0.6, 1.4, rows))).astype(np.int64)
    tool = generator.random(rows) < np.minimum(1.0, design.tools * design.exposure(u))[step]
    after = np.where(tool, np.clip(np.rint(length * design.after), 1, length - 1), 0).astype(np.int64)
    own = design.sequence_sd * generator.normal(size=rows)
    own += design.group_sd * generator.normal(size=group[-1] + 1)[group]
    both = math.sqrt(design.shared) * _noise(generator, steps, design.rho)
    scales = []
    for curve, p99 in ((design.text, design.text_p99), (design.post, design.p99)):
        noise = both + math.sqrt(1 - design.shared) * _noise(generator, steps, design.rho)
        level = np.log(curve(u) * p99 / float(np.quantile(design.unit, 0.99))) + design.step_sd * noise
        scales.append(np.exp(own + level[step]))
    heavy = generator.random(rows) < design.heavy(u)[step]
    scales[1] *= np.where(heavy, design.times, 1.0)
    gap = np.where(tool, OBSERVATION, 0)
    parts = np.stack([length - after, gap, after], axis=1).ravel()
    scale = np.repeat(np.stack([scales[0], np.zeros(rows), scales[1]], axis=1).ravel(), parts)
    mask = np.repeat(np.tile([True, False, True], rows), parts)
    bell = lfilter([math.sqrt(1 - design.token_ar**2)], [1.0, -design.token_ar], generator.normal(size=len(mask)))
    r = scale * bell / np.sqrt(generator.chisquare(4, len(mask)) / 4)  # t with 4 degrees of freedom
    if design.kind == "degenerate":
        r = np.zeros(len(mask))
    higher = -generator.exponential(0.5, len(mask))  # the larger of the two: no logprob is above 0
    policy, ref = higher + np.minimum(r, 0.0), higher - np.maximum(r, 0.0)
    offsets = np.concatenate([[0], np.cumsum(length + gap)])
    return pl.DataFrame(
        {
            "seq": np.arange(rows, dtype=np.uint32),
            "step": step + 1,
            "group_id": pl.Series(group).cast(pl.String),
            "model_mask": _listed(offsets, mask, pa.bool_()),
            "policy_logp": _listed(offsets, policy, pa.float64()),
            "ref_logp": _listed(offsets, ref, pa.float64()),
        }
    )


def _listed(offsets: IntArray, values: npt.NDArray[np.generic], kind: pa.DataType) -> pl.Series:
    series = pl.from_arrow(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values, kind)))
    assert isinstance(series, pl.Series)
    return series


def _zero_filled(frame: pl.DataFrame, generator: np.random.Generator) -> pl.DataFrame:
    """Some sequences' reference was never computed: all its values are 0."""
    hit = pl.Series(generator.random(frame.height) < log_uniform(generator, 0.01, 1.0))
    return frame.with_columns(pl.when(hit).then(pl.col("ref_logp") * 0.0).otherwise(pl.col("ref_logp")))


def _metrics(
    design: Design, generator: np.random.Generator, *, levels: np.random.Generator | None = None
) -> tuple[float | None, dict[str, FloatArray]]:
    """Make what a trainer logs; quiet unless the class says otherwise. `levels` draws what seeds of a setting share."""
    u = np.linspace(0, 1, design.steps)
    noise = {name: _noise(generator, design.steps, 0.5) for name in ("reward", "entropy", "kl", "norm", "loss")}
    generator = levels or generator
    kl = 0.02 + generator.uniform(0.0, 0.1) * u
    entropy = generator.uniform(0.2, 0.6) * (1 - 0.4 * u)
    reward = 0.3 + 0.4 * np.sqrt(u)
    crosses = None
    onset = generator.uniform(0.3, 0.6)
    if design.kind == "KL blow-up":
        kl = kl + np.clip((u - onset) / 0.3, 0, 1) * generator.uniform(1.0, 4.0)
    elif design.kind in POSITIVE and generator.random() < 0.5:  # the mean follows the tail, late
        kl = kl + np.clip((u - 0.5) / 0.2, 0, 1) * 0.8
    if kl.max() > 0.3:
        crosses = float(1 + np.argmax(kl > 0.3))
    if design.kind == "entropy collapse":
        left = np.clip((u - onset) / 0.25, 0, 1)
        entropy, reward = entropy * 0.01**left, reward * (1 - 0.9 * left)
    return crosses, {
        "reward/mean": reward + 0.08 * noise["reward"],
        "entropy": entropy * np.exp(0.15 * noise["entropy"]),
        "kl/ref": kl * np.exp(0.35 * noise["kl"]),
        "grad_norm": 0.5 * np.exp(0.4 * noise["norm"]),
        "loss/total": 0.02 * noise["loss"],
    }

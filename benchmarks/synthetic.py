"""Made runs whose truth is known: correlated tokens, noisy steps, and tails that do or do not grow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from scipy.signal import lfilter

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Curve = Callable[[FloatArray], FloatArray]

LN2: Final = math.log(2.0)
OBSERVATION: Final = 6  # tokens of an observation: their number is of no consequence here
DRAWS: Final = 20_000  # unit draws that tell the percentiles of a slice
LEAST_TOKENS: Final = 900  # of a slice in a third of the run; fewer is the class `too few`
LEAST_SEQUENCES: Final = 40  # with an observation, in a third of the run
GROWTHS: Final = (1.6, 2.5, 4.0, 10.0)
SHAPES: Final = ("linear", "exponential", "root", "step", "share")
NEGATIVE: Final = (
    "stable",
    "high but stable",
    "exposure",
    "uniform growth",
    "text-only growth",
    "text-only decline",
    "hump",
    "immaterial growth",
    "rare but extreme",
    "zero-filled",
    "KL blow-up",
    "entropy collapse",
)
BLIND: Final = ("no tools", "tools vanish", "too short", "degenerate")
POSITIVE: Final = tuple(f"growth {size:g}x" for size in GROWTHS)
CLASSES: Final = NEGATIVE + POSITIVE + BLIND


def flat(u: FloatArray) -> FloatArray:
    """Nothing happens."""
    return np.ones_like(u)


def none(u: FloatArray) -> FloatArray:
    """Not one sequence."""
    return np.zeros_like(u)


@dataclass(frozen=True, kw_only=True)
class Design:
    """One run's shape; curves go from how far the run is (0 to 1) to a factor."""

    kind: str
    steps: int
    per_step: int
    group: int
    length: float  # model tokens of a sequence
    tools: float  # share of sequences with an observation
    after: float  # share of their model tokens after it
    p99: float  # of post-tool |r| at the start, in nats
    text_p99: float
    rho: float  # of the AR(1) of the step noise
    step_sd: float
    shared: float  # share of the step noise's variance that both slices share
    group_sd: float
    sequence_sd: float
    token_ar: float
    post: Curve = flat
    text: Curve = flat
    exposure: Curve = flat  # times `tools`
    heavy: Curve = none  # share of post-tool sequences with `times` the scale
    times: float = 1.0
    growth: float = 1.0  # true p99, late third over early third
    unit: FloatArray = field(default_factory=lambda: np.ones(1))  # sorted |r| at scale 1

    def level(self, q: float, u: float) -> float:
        """Give the true q-quantile of post-tool |r| at `u`, step noise left out."""
        share, scale = float(self.heavy(np.array([u]))[0]), self.p99 / float(np.quantile(self.unit, 0.99))
        values = np.concatenate([self.unit, self.times * self.unit])
        weights = np.repeat([1 - share, share], len(self.unit))
        order = np.argsort(values)
        place = np.searchsorted(np.cumsum(weights[order]), q * weights.sum())
        return scale * float(self.post(np.array([u]))[0]) * float(values[order][min(place, len(order) - 1)])


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
    design = _of_class(_design(kind, generator), generator)
    frame = _sequences(design, generator)
    if kind == "zero-filled":
        frame = _zero_filled(frame, generator)
    crosses, metrics = _metrics(design, generator)
    return Made(design=design, frame=frame, metrics=metrics, kl_crosses=crosses)


def _design(kind: str, generator: np.random.Generator) -> Design:
    while True:
        steps = round(math.exp(generator.uniform(math.log(20), math.log(500))))
        if kind == "too short":
            steps = int(generator.integers(3, 12))
        per_step = int(2 ** generator.integers(3, 9))
        rows = steps * per_step
        tokens = math.exp(generator.uniform(math.log(40_000), math.log(400_000)))
        length = float(np.clip(tokens / rows, 20, 400))
        alpha = generator.uniform(0.05, 0.6)
        tools = generator.uniform(max(alpha / 0.8, 0.15), 1.0)
        third = rows * length / 3
        enough = third * min(alpha, 1 - alpha) >= LEAST_TOKENS and rows * tools / 3 >= LEAST_SEQUENCES
        if rows <= 16_000 and rows * length <= 400_000 and (enough or kind == "too short"):
            break
    return Design(
        kind=kind,
        steps=steps,
        per_step=per_step,
        group=int(generator.choice([4, 8])),
        length=length,
        tools=tools,
        after=alpha / tools,
        p99=_log_uniform(generator, 0.1, 8.0),
        text_p99=_log_uniform(generator, 0.05, 2.0),
        rho=float(generator.choice([0.0, 0.5, 0.8])),
        step_sd=generator.uniform(0.05, 0.2),
        shared=generator.uniform(0.2, 0.9),
        group_sd=generator.uniform(0.1, 0.3),
        sequence_sd=generator.uniform(0.2, 0.5),
        token_ar=generator.uniform(0.0, 0.6),
    )


def _of_class(design: Design, generator: np.random.Generator) -> Design:
    """Give the design what makes its class."""
    spread = math.hypot(design.group_sd, design.sequence_sd)
    unit = np.sort(np.abs(generator.standard_t(4, DRAWS)) * np.exp(spread * generator.normal(size=DRAWS)))
    design = replace(design, unit=unit)
    kind, size = design.kind, _log_uniform(generator, 2.0, 8.0)
    late = _log_uniform(generator, 1.3 * LN2, 12 * LN2)
    if kind in POSITIVE:
        return grown(replace(design, p99=late, growth=GROWTHS[POSITIVE.index(kind)]), generator)
    if kind == "immaterial growth":
        return grown(replace(design, p99=_log_uniform(generator, 0.02, 0.5), growth=size), generator)
    if kind == "uniform growth":
        curve = shape("exponential", size, generator)
        return replace(design, p99=late / size, post=curve, text=curve)
    if kind == "text-only growth":
        return replace(design, text=shape("exponential", size, generator))
    if kind == "text-only decline":
        return replace(design, text=shape("exponential", 1 / size, generator))
    if kind == "high but stable":
        return replace(design, p99=_log_uniform(generator, 1.5, 8.0))
    if kind == "exposure":
        least = generator.uniform(0.2, 0.5)
        return replace(design, tools=max(design.tools, 0.5), exposure=lambda u: least + (1 - least) * u)
    if kind == "hump":
        top, width = generator.uniform(0.38, 0.52), generator.uniform(0.06, 0.1)
        hump: Curve = lambda u: size ** np.exp(-(((u - top) / width) ** 2))  # noqa: E731
        return replace(design, p99=_log_uniform(generator, 0.4, 3.0), post=hump)
    if kind == "rare but extreme":
        rare = _log_uniform(generator, 0.002, 0.03)
        return replace(design, heavy=lambda u: np.full_like(u, rare), times=generator.uniform(8, 20))
    if kind == "no tools":
        return replace(design, tools=0.0)
    if kind == "tools vanish":
        gone = generator.uniform(0.3, 0.6)
        return replace(design, tools=max(design.tools, 0.5), exposure=lambda u: (u < gone).astype(float))
    return design


def grown(design: Design, generator: np.random.Generator) -> Design:
    """Let the post-tool tail grow to `p99` by `growth` (late third over early third)."""
    form, size = str(generator.choice(SHAPES)), design.growth
    if form == "linear" and size >= 4:
        form = "exponential"
    if form != "share":
        return replace(design, p99=design.p99 / size, post=shape(form, size, generator))
    times = max(4.0, 2 * size)
    wanted = size * float(np.quantile(design.unit, 0.99))
    plain, large = (float((design.unit * by > wanted).mean()) for by in (1.0, times))
    top = (0.01 - plain) / (large - plain)
    begin, end = generator.uniform(0.3, 0.45), generator.uniform(0.55, 0.7)
    rising: Curve = lambda u: top * np.clip((u - begin) / (end - begin), 0, 1)  # noqa: E731
    return replace(design, p99=design.p99 / size, heavy=rising, times=times)


def shape(form: str, size: float, generator: np.random.Generator) -> Curve:
    """Give a curve whose late third lies `size` times above its early third and that begins at 1."""
    if form == "linear":
        slope = (size - 1) / (5 / 6 - size / 6)
        return lambda u: (1 + slope * u) / (1 + slope / 6)
    if form == "exponential":
        return lambda u: size ** (1.5 * u - 0.25)
    if form == "root":  # from almost nothing, fast and then ever slower, as drift from a reference goes
        power = math.log(size) / math.log((5 / 6 + 0.03) / (1 / 6 + 0.03))
        return lambda u: ((u + 0.03) / (1 / 6 + 0.03)) ** power
    onset = generator.uniform(0.34, 0.66)
    return lambda u: np.where(u < onset, 1.0, size)


def _log_uniform(generator: np.random.Generator, low: float, high: float) -> float:
    return math.exp(generator.uniform(math.log(low), math.log(high)))


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
    hit = pl.Series(generator.random(frame.height) < _log_uniform(generator, 0.01, 1.0))
    return frame.with_columns(pl.when(hit).then(pl.col("ref_logp") * 0.0).otherwise(pl.col("ref_logp")))


def _metrics(design: Design, generator: np.random.Generator) -> tuple[float | None, dict[str, FloatArray]]:
    """Make what a trainer logs; quiet unless the class says otherwise."""
    u = np.linspace(0, 1, design.steps)
    noise = {name: _noise(generator, design.steps, 0.5) for name in ("reward", "entropy", "kl", "norm", "loss")}
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

"""The shapes of made runs: classes whose truth is known, and how steps, sequences and growth are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Curve = Callable[[FloatArray], FloatArray]

LN2: Final = math.log(2.0)
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
BY_NATS: Final = "growth in both, more nats after tools"
LATE: Final = "growth in the last fifth"
CLASSES: Final = (*NEGATIVE, *POSITIVE, BY_NATS, LATE, *BLIND)


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


def base(kind: str, generator: np.random.Generator) -> Design:
    """Draw a design of which nothing is yet as its class wants it."""
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
        p99=log_uniform(generator, 0.1, 8.0),
        text_p99=log_uniform(generator, 0.05, 2.0),
        rho=float(generator.choice([0.0, 0.5, 0.8])),
        step_sd=generator.uniform(0.05, 0.2),
        shared=generator.uniform(0.2, 0.9),
        group_sd=generator.uniform(0.1, 0.3),
        sequence_sd=generator.uniform(0.2, 0.5),
        token_ar=generator.uniform(0.0, 0.6),
    )


def of_class(design: Design, generator: np.random.Generator) -> Design:
    """Give the design what makes its class."""
    spread = math.hypot(design.group_sd, design.sequence_sd)
    unit = np.sort(np.abs(generator.standard_t(4, DRAWS)) * np.exp(spread * generator.normal(size=DRAWS)))
    design = replace(design, unit=unit)
    kind, size = design.kind, log_uniform(generator, 2.0, 8.0)
    late = log_uniform(generator, 1.3 * LN2, 12 * LN2)
    if kind in POSITIVE:
        return grown(replace(design, p99=late, growth=GROWTHS[POSITIVE.index(kind)]), generator)
    if kind == "immaterial growth":
        return grown(replace(design, p99=log_uniform(generator, 0.02, 0.5), growth=size), generator)
    if kind == "uniform growth":
        curve = shape("exponential", size, generator)
        return replace(design, p99=late / size, text_p99=late / size, post=curve, text=curve)
    if kind == BY_NATS:  # the same ratio in both slices, from 0.1 in one and from more than 1 nat in the other
        curve = shape("exponential", size, generator)
        low, high = generator.uniform(0.05, 0.15), generator.uniform(1.0, 1.5)
        return replace(design, after=max(design.after, 0.3), p99=high, text_p99=low, post=curve, text=curve)
    if kind == LATE:
        onset, jump = generator.uniform(0.8, 0.95), log_uniform(generator, 2.5, 8.0)
        return replace(design, p99=late / jump, post=lambda u: np.where(u < onset, 1.0, jump))
    if kind == "text-only growth":
        return replace(design, text=shape("exponential", size, generator))
    if kind == "text-only decline":
        return replace(design, text=shape("exponential", 1 / size, generator))
    if kind == "high but stable":
        return replace(design, p99=log_uniform(generator, 1.5, 8.0))
    if kind == "exposure":
        least = generator.uniform(0.2, 0.5)
        return replace(design, tools=max(design.tools, 0.5), exposure=lambda u: least + (1 - least) * u)
    if kind == "hump":
        top, width = generator.uniform(0.38, 0.52), generator.uniform(0.06, 0.1)
        hump: Curve = lambda u: size ** np.exp(-(((u - top) / width) ** 2))  # noqa: E731
        return replace(design, p99=log_uniform(generator, 0.4, 3.0), post=hump)
    if kind == "rare but extreme":
        rare = log_uniform(generator, 0.002, 0.03)
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


def log_uniform(generator: np.random.Generator, low: float, high: float) -> float:
    """Draw a number between both, each factor as likely."""
    return math.exp(generator.uniform(math.log(low), math.log(high)))

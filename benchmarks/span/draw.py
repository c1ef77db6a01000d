"""Draws a run at random: how it was dumped, how noisy it is, what is recorded beside the tokens, what its tails do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks.span.run import LN2, Attribute, Curve, Drawn, FloatArray, Growth, IntArray, Layout, Noise, Plan
from benchmarks.span.truth import ends

Generator = np.random.Generator

UNIT_DRAWS: Final = 20_000  # of |r| at scale 1: they tell the percentiles of a slice
MOST_TOKENS: Final = 400_000
MOST_SEQUENCES: Final = 16_000
MOST_RARE: Final = 0.1  # of the tokens of one value: more, and they are no longer rare there
PLANS: Final[dict[Plan, float]] = {
    "quiet": 0.17,
    "spike": 0.06,
    "swing": 0.05,
    "text": 0.05,
    "both": 0.05,
    "small": 0.05,
    "growth": 0.29,
    "late": 0.13,
    "rare": 0.11,
    "blind": 0.04,
}
"""What a run's tails do, and in what share of the runs: more than a third show no signature."""
PRECISIONS: Final = ("float32", "bfloat16", "float16", "4 decimals")
BLINDNESS: Final = ("no tools", "tools vanish", "too short", "degenerate")
LEARNS_TOOLS: Final = 0.25  # of the runs: tool use goes from next to none to next to all, or back
ATTRIBUTES: Final = ("tool", "tool result", "rank", "env", "version", "source")


def draw(seed: int) -> Drawn:
    """Draw a run, the same every time."""
    generator = np.random.default_rng([seed, 14])
    plan = list(PLANS)[int(generator.choice(len(PLANS), p=list(PLANS.values())))]
    blindness = str(generator.choice(BLINDNESS)) if plan == "blind" else ""
    layout = _layout(generator, short=blindness == "too short")
    count = len(layout.steps)
    noise = _noise(generator, layout)
    attributes = _attributes(generator, count, ranks=int(min(8, layout.per_step.min())))
    tools, after = _tools(generator, layout, blindness)
    tools, tool_use, by_group = _learned_tools(np.random.default_rng([seed, 17]), layout, tools, blindness)
    spread = math.hypot(noise.group_sd, noise.sequence_sd)
    unit = np.abs(generator.standard_t(noise.freedom, UNIT_DRAWS)) * np.exp(spread * generator.normal(size=UNIT_DRAWS))
    post, text = _growths(generator, plan, attributes)
    drawn = Drawn(
        seed=seed,
        plan=plan,
        blindness=blindness,
        layout=layout,
        noise=noise,
        attributes=attributes,
        tools=tools,
        tool_use=tool_use,
        by_group=by_group,
        after=after,
        observations=int(generator.integers(1, 4)),
        p99=log_uniform(generator, 0.05, 8.0),
        text_p99=log_uniform(generator, 0.05, 2.0),
        level=_regime(generator, layout.u),
        post=post,
        text=text,
        unit=np.sort(unit),
    )
    return _placed(generator, drawn)


def _layout(generator: Generator, *, short: bool) -> Layout:
    """Draw which steps were dumped and how much of each, until it fits into memory and time."""
    while True:
        steps, spacing = _steps(generator, short=short)
        group = int(generator.choice([1, 2, 4, 8, 16, 32]))
        groups = max(1, round(log_uniform(generator, 4, 192) / group))
        tokens = log_uniform(generator, 15_000, MOST_TOKENS)
        rows = len(steps) * groups * group
        length = float(np.clip(tokens / rows, 12, 600))
        if rows <= MOST_SEQUENCES and rows * length <= MOST_TOKENS:
            break
    changed = np.where(np.linspace(0, 1, len(steps)) < generator.uniform(0.2, 0.8), 1.0, 1.0 + generator.choice([0, 1]))
    lengthened = np.linspace(1.0, log_uniform(generator, 0.5, 2.0), len(steps))
    return Layout(
        steps=steps,
        spacing=spacing,
        per_step=np.maximum(1, np.rint(groups / changed)).astype(np.int64) * group,
        group=group,
        length=np.maximum(length * lengthened / lengthened.mean(), 8.0),
        duplicates=float(generator.choice([0.0, generator.uniform(0.0, 0.3)])),
        precision=str(generator.choice(PRECISIONS)),
        confirmed=bool(generator.random() < 0.5),
    )


def _steps(generator: Generator, *, short: bool) -> tuple[IntArray, str]:
    """Draw the recorded steps: each one, every so many, in bursts, or one of these and then another."""
    count = int(generator.integers(3, 12)) if short else round(log_uniform(generator, 15, 400))
    spacing = str(generator.choice(["every", "sparse", "bursts", "changing"], p=[0.35, 0.25, 0.2, 0.2]))

    def gaps(kind: str, size: int) -> IntArray:
        if kind == "every":
            return np.ones(size, np.int64)
        if kind == "sparse":
            return np.full(size, int(generator.integers(2, 25)))
        burst = int(generator.integers(2, 5))
        between = int(generator.integers(4, 25))
        return np.where(np.arange(size) % burst == 0, between, 1).astype(np.int64)

    if spacing == "changing":
        kinds = generator.choice(["every", "sparse", "bursts"], 2)
        turn = int(generator.uniform(0.2, 0.8) * count)
        between = np.concatenate([gaps(str(kinds[0]), turn), gaps(str(kinds[1]), count - turn)])
    else:
        between = gaps(spacing, count)
    return np.cumsum(between) - between[0] + int(generator.integers(0, 2)), spacing


def _noise(generator: Generator, layout: Layout) -> Noise:
    sd = log_uniform(generator, 0.03, 0.22)
    changes = log_uniform(generator, 0.5, 2.0) if generator.random() < 0.3 else 1.0
    by_step = np.where(layout.u < generator.uniform(0.2, 0.8), sd, min(0.25, sd * changes))
    return Noise(
        rho=float(generator.choice([0.0, generator.uniform(0.0, 0.85)], p=[0.25, 0.75])),
        step_sd=by_step,
        shared=generator.uniform(0.2, 0.9),
        group_sd=generator.uniform(0.05, 0.35),
        sequence_sd=generator.uniform(0.1, 0.6),
        token_ar=generator.uniform(0.0, 0.6),
        freedom=generator.uniform(3.0, 8.0),
        sure=float(generator.choice([0.0, generator.uniform(0.05, 0.6)])),
    )


def _attributes(generator: Generator, count: int, *, ranks: int) -> tuple[Attribute, ...]:
    """Draw what is recorded beside the tokens; tools are always told, the rest in half of the runs each."""
    wanted = [name for name in ATTRIBUTES if name == "tool" or generator.random() < 0.5]
    wanted = [name for name in wanted if name != "rank" or ranks > 1]
    return tuple(_attribute(generator, name, count, ranks) for name in wanted)


def _attribute(generator: Generator, name: str, count: int, ranks: int) -> Attribute:
    if name == "tool result":
        share = generator.uniform(0.04, 0.3)
        shares = np.repeat([[1 - share], [share]], count, axis=1)
        return Attribute(name=name, values=("not failed", "failed"), shares=shares, scales=np.ones(2))
    many = int(generator.integers(2, ranks + 1 if name == "rank" else 6))
    if name == "rank":
        shares = np.full((many, count), 1.0 / many)
    else:
        shares = generator.dirichlet(np.full(many, 2.0))[:, None] * np.ones(count)
        shares = np.maximum(shares, 0.03)
    if name in ("tool", "env", "source") and generator.random() < 0.4:
        shares = shares * _comings_and_goings(generator, many, count)
    spread = 0.2 if generator.random() < 0.3 and name == "tool" else 0.0
    return Attribute(
        name=name,
        values=tuple(str(place) if name in ("rank", "version") else f"{name}_{place}" for place in range(many)),
        shares=shares / shares.sum(axis=0),
        scales=np.exp(spread * generator.normal(size=many)),
    )


def _comings_and_goings(generator: Generator, many: int, count: int) -> FloatArray:
    """Give factors by value and step: values come, go, or fade, but for the first, which stays."""
    u, factors = np.linspace(0, 1, count), np.ones((many, count))
    for value in range(1, many):
        turn, kind = generator.uniform(0.15, 0.85), generator.integers(0, 4)
        if kind == 0:
            factors[value] = np.where(u < turn, 0.02, 1.0)
        elif kind == 1:
            factors[value] = np.where(u < turn, 1.0, 0.02)
        elif kind == 2:
            factors[value] = np.exp(generator.uniform(-2, 2) * u)
    return factors


def _tools(generator: Generator, layout: Layout, blindness: str) -> tuple[FloatArray, float]:
    """Draw how many sequences hold an observation over the run, and how much of them follows it."""
    u, share = layout.u, generator.uniform(0.15, 1.0)
    form = generator.choice(["steady", "rising", "falling", "away for a while"], p=[0.5, 0.2, 0.15, 0.15])
    gone = generator.uniform(0.1, 0.8)
    curve = {
        "steady": np.ones_like(u),
        "rising": generator.uniform(0.3, 0.8) * (1 - u) + u,
        "falling": 1 - u * generator.uniform(0.2, 0.6),
        "away for a while": np.where((u > gone) & (u < gone + 0.12), 0.02, 1.0),
    }[str(form)]
    if blindness == "no tools":
        curve = np.zeros_like(u)
    if blindness == "tools vanish":
        share, curve = max(share, 0.5), (u < generator.uniform(0.3, 0.6)).astype(np.float64)
    return share * curve, generator.uniform(0.2, 0.8)


def _learned_tools(
    generator: Generator, layout: Layout, tools: FloatArray, blindness: str
) -> tuple[FloatArray, str, bool]:
    """Let tool use go between 1% to 20% and 80% to 99% of the sequences in some runs: straight, in an S, or at once."""
    by_group, learns = bool(generator.random() < 0.3), bool(generator.random() < LEARNS_TOOLS)
    few, most = log_uniform(generator, 0.01, 0.2), 1 - log_uniform(generator, 0.01, 0.2)
    turn, width = generator.uniform(0.2, 0.8), log_uniform(generator, 0.02, 0.2)
    form = str(generator.choice(["straight", "S", "at once"], p=[0.5, 0.3, 0.2]))
    falls = bool(generator.random() < 0.35)
    if blindness or not learns:
        return tools, "", False
    u = layout.u
    done = {"straight": u, "S": 1 / (1 + np.exp((turn - u) / width)), "at once": (u >= turn).astype(np.float64)}[form]
    done = 1 - done if falls else done
    return few + (most - few) * done, "falling" if falls else "rising", by_group


def _regime(generator: Generator, u: FloatArray) -> FloatArray:
    """Give a factor on both slices that changes once, in a fifth of the runs: another data mix, another phase."""
    if generator.random() < 0.8:
        return np.ones_like(u)
    return np.where(u < generator.uniform(0.1, 0.9), 1.0, log_uniform(generator, 0.75, 1.33))


def _growths(generator: Generator, plan: Plan, attributes: tuple[Attribute, ...]) -> tuple[Growth, Growth]:
    """Draw how post-tool and text-only tails move."""
    size = log_uniform(generator, 1.4, 16.0)
    if plan in ("quiet", "blind"):
        return Growth(), Growth()
    if plan == "text":
        return Growth(), _moving(generator, size=log_uniform(generator, 0.15, 6.0))
    if plan in ("spike", "swing"):
        return _passing(generator, plan, size), Growth()
    growth = _moving(generator, size=size, late=plan == "late")
    if plan == "both":
        return growth, replace(growth, size=size * log_uniform(generator, 0.9, 1.1))
    if plan == "rare":
        growth = replace(
            growth, form="rare", share=log_uniform(generator, 0.002, 0.012), size=generator.uniform(20, 80)
        )
    elif generator.random() < 0.2:
        growth = replace(growth, form="share", share=log_uniform(generator, 0.02, 0.4), size=generator.uniform(4, 20))
    if plan != "small" and generator.random() < 0.45:
        held = attributes[int(generator.integers(len(attributes)))]
        value = int(generator.integers(len(held.values))) if held.name != "tool result" else 1
        share = growth.share / float(held.shares[value].mean()) if plan == "rare" else growth.share
        growth = replace(
            growth,
            attribute=held.name,
            value=held.values[value],
            share=min(share, MOST_RARE) if plan == "rare" else share,
        )
    text = Growth()
    if generator.random() < 0.25:  # text grows too, less
        text = replace(growth, form="scale", size=max(1.0, size**0.3), attribute="", value="")
    return growth, text


def _moving(generator: Generator, *, size: float, late: bool = False) -> Growth:
    """Draw a growth that stays: at once, straight, fast and then slower, or ever faster; starting anywhere."""
    shape = str(generator.choice(["step", "ramp", "saturating", "power", "uneven"], p=[0.3, 0.3, 0.15, 0.15, 0.1]))
    if late and shape in ("power", "uneven"):
        shape = "ramp"
    start = generator.uniform(0.8, 0.96) if late else generator.uniform(0.0, 0.8)
    width = generator.uniform(0.02, 0.1) if late else log_uniform(generator, 0.05, 0.7)
    if shape == "step":
        return Growth(shape=shape, size=size, start=start, end=start, curve=lambda u: (u >= start).astype(np.float64))
    if shape == "power":
        power = log_uniform(generator, 0.4, 3.0)
        return Growth(shape=shape, size=size, curve=lambda u: u**power)
    end = min(1.0, start + width)
    ramp: Curve = lambda u: np.clip((u - start) / (end - start), 0, 1)  # noqa: E731
    if shape == "ramp":
        return Growth(shape=shape, size=size, start=start, end=end, curve=ramp)
    if shape == "saturating":
        fall = (end - start) / 3
        slow: Curve = lambda u: -np.expm1(-np.maximum(u - start, 0) / fall)  # noqa: E731
        return Growth(shape=shape, size=size, start=start, end=end, curve=slow)
    period, height = generator.uniform(0.05, 0.3), generator.uniform(0.05, 0.25)
    uneven: Curve = lambda u: ramp(u) * (1 + height * np.sin(2 * math.pi * u / period))  # noqa: E731
    return Growth(shape=shape, size=size, start=start, end=end, curve=uneven)


def _passing(generator: Generator, plan: Plan, size: float) -> Growth:
    """Draw a growth that does not stay: a spike that ends, or a swing that comes back again and again."""
    if plan == "spike":
        top, width = generator.uniform(0.1, 0.7), generator.uniform(0.02, 0.09)
        bell: Curve = lambda u: np.exp(-(((u - top) / width) ** 2))  # noqa: E731
        return Growth(shape="spike", size=size, start=top - 2 * width, end=top, curve=bell)
    period, phase = generator.uniform(0.05, 0.25), generator.uniform(0, 2 * math.pi)
    wave: Curve = lambda u: 0.5 + 0.5 * np.sin(2 * math.pi * u / period + phase)  # noqa: E731
    return Growth(shape="swing", size=min(size, 4.0), curve=wave)


def _placed(generator: Generator, drawn: Drawn) -> Drawn:
    """Set the level so that the tail ends where it is drawn to end: beyond what matters, or short of it."""
    if drawn.plan in ("quiet", "text", "blind"):
        return drawn
    wanted = log_uniform(generator, 0.03, 0.75 * LN2) if drawn.plan == "small" else log_uniform(generator, 0.9, 14.0)
    if drawn.plan == "rare":
        wanted = log_uniform(generator, 0.5, 3.0)
    by = wanted / ends(drawn, 0.99)[1]
    text = drawn.p99 * by / log_uniform(generator, 1.0, 8.0) if drawn.plan == "both" else drawn.text_p99
    return replace(drawn, p99=drawn.p99 * by, text_p99=text)


def log_uniform(generator: Generator, low: float, high: float) -> float:
    """Draw a number between both, each factor as likely."""
    return math.exp(generator.uniform(math.log(low), math.log(high)))

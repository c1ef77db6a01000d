"""What a fault is: a change to a healthy run from a known step on, and what a right diagnosis calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.loop.made import Made, Sample, generator_of
from benchmarks.loop.noise import FloatArray, Generator, ar
from ptt.diagnostics.model import Link, Severity

Break = Callable[[Made, Generator, float], int]
"""Changes the run in place, by how much, and gives the step from which it is broken."""

Goal = tuple[str, float]  # "to" a level, or "by" a factor, of one curve

ONLINE: Final = ("ppo", "grpo", "grpo-tools")
GROUPS: Final = ("grpo", "grpo-tools")
TOOLS: Final = ("grpo-tools",)
PPO: Final = ("ppo",)
DPO: Final = ("dpo",)
SFT: Final = ("sft",)
OFFLINE: Final = ("sft", "dpo")
HELD: Final = 10  # rows to either side that a running median is taken over
EVERY: Final = ("sft", "dpo", "ppo", "grpo", "grpo-tools")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that breaks. Any of `ids` names it; the first is what it is called."""

    name: str
    about: str  # what is changed, in one line
    ids: tuple[str, ...]
    link: Link
    algorithms: tuple[str, ...]
    breaks: Break
    dialects: tuple[str, ...] = ()  # frameworks that log what it shows in; empty: all
    sizes: Mapping[str, float] | None = None  # by word; None: one size
    least: Severity = Severity.MEDIUM  # how severe the finding is at least, where the fault is no disaster
    of_start: bool = False  # broken from the first step on: the onset is not asked for

    def inject(self, run: Made, size: float) -> tuple[Made, int]:
        """Give a broken copy of a healthy run, and the true onset."""
        broken = run.copy()
        generator = generator_of(self.name, run.algorithm, run.seed)
        return broken, self.breaks(broken, generator, size)


def begin(run: Made, generator: Generator, low: float = 0.35, high: float = 0.6) -> int:
    """Draw the step of a row in the middle of the run, or wherever the run says that faults begin."""
    low, high = run.begins or (low, high)
    return int(run.steps[int(generator.uniform(low, high) * run.count)])


def noisy(run: Made, generator: Generator, level: float, *, sd: float) -> FloatArray:
    """Give a curve at a level, with relative noise; logged wherever the run logs its reward or loss."""
    logged = run.train.get("reward", run.train["loss"])
    values = level * np.exp(ar(generator, run.count, likeness=0.3, sd=sd))
    return np.where(np.isnan(logged), np.nan, values)


def moved(width: float = 0.15, **curves: Goal) -> Break:
    """Give a fault that moves curves to a level, or by a factor, over a share `width` of the run."""

    def breaks(run: Made, generator: Generator, size: float) -> int:
        onset = begin(run, generator)
        move(run, onset, curves, width, size, generator)
        return onset

    return breaks


def move(run: Made, onset: int, curves: Mapping[str, Goal], width: float, size: float, generator: Generator) -> None:
    """Move curves from a step on; a new level keeps a tenth of noise."""
    weight = run.ramp(onset, width)
    for name, (how, goal) in curves.items():
        if how == "by":
            run.change(name, np.exp(np.log(goal) * min(size, 1.5) * weight))
        else:
            level = goal * size * np.exp(generator.normal(0, 0.1, run.count))
            run.blend(name, level, weight)


def rising(metric: str, first: float, last: float, *, sd: float = 0.12) -> Break:
    """Give a fault in one more metric, which the run logs under this name from the start."""

    def breaks(run: Made, generator: Generator, size: float) -> int:
        onset = begin(run, generator)
        run.extra[metric] = noisy(run, generator, first, sd=sd)
        run.change(metric, 1 + (last / first - 1) * size * run.ramp(onset, 0.15))
        return onset

    return breaks


def worse(run: Made, onset: int, share: float) -> None:
    """Let the policy learn no more, and lose a share of what it earns, over a tenth of the run."""
    stall(run, onset)
    for name in ("reward", "r_correct"):
        run.change(name, 1 - share * run.ramp(onset, 0.1))
    of_evals = 1 - share * run.ramp_evals(onset, 0.1)
    run.evals.values.update({name: values * of_evals for name, values in run.evals.values.items()})


def stall(run: Made, onset: int) -> None:
    """Let the policy learn no more: rewards and evaluations stay around what they were, with the noise they had."""
    for name in ("reward", "r_correct"):
        if name in run.train:
            run.train[name] = _held(run.train[name], run.steps < onset)
    run.evals.values.update({name: _held(values, run.evals.steps < onset) for name, values in run.evals.values.items()})


def _held(values: FloatArray, before: npt.NDArray[np.bool_]) -> FloatArray:
    """Hold a curve at its last level before: what is later keeps only its distance from its running median."""
    logged = np.flatnonzero(np.isfinite(values))
    seen, early = values[logged], before[logged]
    if not early.any() or early.all():
        return values
    half = min(HELD, len(seen) // 4)
    around = sliding_window_view(np.pad(seen, half, mode="edge"), 2 * half + 1)
    smooth = np.median(around, axis=1)
    last = max(2, len(seen) // 20)  # a twentieth of the run, of rewards as of evaluations: they part nowhere else
    level = float(seen[early][-last:].mean())
    found = values.copy()
    found[logged] = np.where(early, seen, level + seen - smooth)
    return found


def later(run: Made, onset: int, generator: Generator, share: float, change: Callable[[Sample], Sample]) -> None:
    """Change this share of the samples from a step on."""
    run.samples[:] = [
        change(sample) if sample.step >= onset and generator.random() < share else sample for sample in run.samples
    ]

"""One made run before it is written: its rows by neutral names, its evaluations, samples and other traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from benchmarks.loop.noise import FloatArray, Generator, IntArray

ALGORITHMS: Final = ("sft", "dpo", "ppo", "grpo", "grpo-tools")
Message = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One trajectory: what was asked, what was said and called, and what it earned."""

    step: int
    prompt: str
    messages: tuple[Message, ...]
    correct: float
    form: float  # reward for the format
    advantage: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Evals:
    """Evaluations: few points, under names of their own."""

    steps: IntArray
    values: dict[str, FloatArray] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Made:
    """A run. Faults change its arrays in place, from a step on; nothing else does."""

    algorithm: str
    dialect: str
    seed: int
    steps: IntArray  # of the logged rows
    train: dict[str, FloatArray]  # by neutral name, one value a row; NaN: the row lacks the name
    evals: Evals
    samples: list[Sample] = field(default_factory=list)
    extra: dict[str, FloatArray] = field(default_factory=dict)  # rows by the name they are written under
    extra_evals: dict[str, FloatArray] = field(default_factory=dict)  # likewise, of evaluations
    lines: list[str] = field(default_factory=list)  # what the process printed
    planned: int = 0  # steps the run was to have
    restart: tuple[int, int] | None = None  # killed after the first, resumed behind the second
    ranks: dict[str, FloatArray] = field(default_factory=dict)  # by rank's own name, one value a row
    begins: tuple[float, float] | None = None  # between which shares of the rows a fault begins; None: as it says
    stretch: float = 1.0  # times the usual width over which a fault sets in

    @property
    def count(self) -> int:
        """How many rows."""
        return len(self.steps)

    def place(self, step: int) -> int:
        """Give the first row at or behind a step."""
        return int(np.searchsorted(self.steps, step))

    def late(self, onset: int) -> FloatArray:
        """Give 0 before a step and 1 from it on."""
        return (self.steps >= onset).astype(np.float64)

    def ramp(self, onset: int, width: float = 0.1) -> FloatArray:
        """Give 0 until a step, 1 after a share `width` of the run, and a straight line between."""
        span = max(1.0, self.stretch * width * float(self.steps[-1] - self.steps[0]))
        return np.clip((self.steps - onset + 1) / span, 0, 1)

    def ramp_evals(self, onset: int, width: float = 0.1) -> FloatArray:
        """Give the same at the evaluations' steps."""
        span = max(1.0, self.stretch * width * float(self.steps[-1] - self.steps[0]))
        return np.clip((self.evals.steps - onset + 1) / span, 0, 1)

    def change(self, name: str, factor: FloatArray | float = 1.0, plus: FloatArray | float = 0.0) -> None:
        """Multiply and add, where the run has the name."""
        for held in (self.train, self.extra):
            if name in held:
                held[name] = held[name] * factor + plus

    def blend(self, name: str, target: FloatArray | float, weight: FloatArray) -> None:
        """Go from what is there to `target` as `weight` goes from 0 to 1."""
        for held in (self.train, self.extra):
            if name in held:
                held[name] = held[name] * (1 - weight) + np.asarray(target) * weight

    def blend_evals(self, name: str, target: FloatArray | float, weight: FloatArray) -> None:
        """Likewise for evaluations."""
        for held in (self.evals.values, self.extra_evals):
            if name in held:
                held[name] = held[name] * (1 - weight) + np.asarray(target) * weight

    def copy(self) -> Made:
        """Give a run that can be changed without changing this one."""
        return replace(
            self,
            train={name: values.copy() for name, values in self.train.items()},
            evals=replace(self.evals, values={name: values.copy() for name, values in self.evals.values.items()}),
            samples=list(self.samples),
            extra={name: values.copy() for name, values in self.extra.items()},
            extra_evals={name: values.copy() for name, values in self.extra_evals.items()},
            lines=list(self.lines),
            ranks={name: values.copy() for name, values in self.ranks.items()},
        )


def generator_of(*words: object) -> Generator:
    """Give a generator that depends on these words alone."""
    return np.random.default_rng([sum(ord(letter) * 257**place for place, letter in enumerate(str(word))) % 2**63
                                  for word in words])  # fmt: skip

"""A made run before it is made: how it was dumped, how noisy it is, what is recorded, and how its tails truly move."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Curve = Callable[[FloatArray], FloatArray]
Plan = Literal["quiet", "spike", "swing", "text", "both", "small", "growth", "late", "rare", "blind"]
Form = Literal["scale", "share", "rare"]

LN2: Final = math.log(2.0)
PLACES: Final = 60  # steps at which the true levels are told
HALVINGS: Final = 40  # of the interval that holds a true percentile: to one in 1e9


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which steps were dumped, and how much of each."""

    steps: IntArray  # recorded, ascending
    spacing: str  # every, sparse, bursts, changing
    per_step: IntArray  # sequences of each recorded step
    group: int  # sequences of a prompt
    length: FloatArray  # mean model tokens of a sequence, by recorded step
    duplicates: float  # share of sequences that repeat another of their group
    precision: str
    confirmed: bool  # the sampler's own logprobs are recorded beside the two

    @property
    def u(self) -> FloatArray:
        """How far the run is at each recorded step, from 0 to 1."""
        span = max(1, int(self.steps[-1] - self.steps[0]))
        return np.asarray((self.steps - self.steps[0]) / span, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What the tails do without any cause."""

    rho: float  # AR(1) from one training step to the next
    step_sd: FloatArray  # log-SD by recorded step: it may change in mid-run
    shared: float  # of its variance, by both slices
    group_sd: float
    sequence_sd: float
    token_ar: float
    freedom: float  # degrees of freedom of |r|
    sure: float  # share of tokens of probability almost one


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """What is recorded of a sequence or of a tool call: its values and their shares over the run."""

    name: str
    values: tuple[str, ...]
    shares: FloatArray  # value x recorded step, columns sum to 1
    scales: FloatArray  # static factor of the tail, by value


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How a tail moves: `curve` goes from 0 (nothing yet) to 1 (all of it)."""

    form: Form = "scale"
    shape: str = "none"
    size: float = 1.0  # factor on |r| of those that move
    share: float = 1.0  # of the sequences (form share) or tokens (form rare) that move, in the end
    start: float = 0.0
    end: float = 1.0
    curve: Curve = np.zeros_like
    attribute: str = ""  # confined to one value of it; empty: anywhere
    value: str = ""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One run before it is made."""

    seed: int
    plan: Plan
    blindness: str
    layout: Layout
    noise: Noise
    attributes: tuple[Attribute, ...]
    tools: FloatArray  # share of sequences with an observation, by recorded step
    tool_use: str  # whether an agent learns to call tools (rising), or gives it up (falling); empty: neither
    by_group: bool  # all sequences of a prompt group call tools, or none does
    after: float  # share of the model tokens of such a sequence that come after it
    observations: int  # at most, in a sequence
    p99: float  # of post-tool |r| where nothing has moved yet, in nats
    text_p99: float
    level: FloatArray  # factor on both slices, by recorded step: a regime that changes
    post: Growth
    text: Growth
    unit: FloatArray  # sorted |r| at scale 1

    def attribute(self, name: str) -> Attribute | None:
        """Give one of the recorded attributes."""
        return next((one for one in self.attributes if one.name == name), None)

    def growth_at(self, growth: Growth, places: IntArray) -> FloatArray:
        """Give how far a growth has come at some recorded steps."""
        return growth.curve(self.layout.u[places])

    def parts(self, slice_name: str, places: IntArray) -> tuple[FloatArray, FloatArray]:
        """Give the shares of a slice's tokens and the factor on their |r|, place by part."""
        post = slice_name == "post"
        growth, p99 = (self.post, self.p99) if post else (self.text, self.text_p99)
        base = self.level[places] * p99 / float(np.quantile(self.unit, 0.99))
        tool = self.attribute("tool")
        kinds = [(np.ones(len(places)), 1.0, "")]
        if post and tool is not None:
            kinds = [
                (tool.shares[value][places], float(tool.scales[value]), name) for value, name in enumerate(tool.values)
            ]
        done, shares, factors = self.growth_at(growth, places), [], []
        for share, scale, name in kinds:
            held = share * self._held(growth, name, places)
            moving = held if growth.form == "scale" else held * growth.share * done
            times = growth.size**done if growth.form == "scale" else np.full(len(places), growth.size)
            shares += [share - moving, moving]
            factors += [base * scale, base * scale * times]
        return np.stack(shares, axis=1), np.stack(factors, axis=1)

    def _held(self, growth: Growth, tool: str, places: IntArray) -> FloatArray:
        """Give the share of tokens after this tool that may move."""
        if not growth.attribute:
            return np.ones(len(places))
        if growth.attribute == "tool":
            return np.full(len(places), float(tool == growth.value))
        attribute = self.attribute(growth.attribute)
        assert attribute is not None
        return np.asarray(attribute.shares[attribute.values.index(growth.value)][places])

    def levels(self, slice_name: str, quantile: float, places: IntArray) -> FloatArray:
        """Give the true quantile of |r| at some recorded steps, step noise left out."""
        shares, factors = self.parts(slice_name, places)
        low, high = np.full(len(places), -20.0), np.full(len(places), 12.0)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            below = np.searchsorted(self.unit, np.exp(middle)[:, None] / factors) / len(self.unit)
            under = (shares * below).sum(axis=1) < quantile
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        return np.asarray(np.exp((low + high) / 2))

    def beyond(self, slice_name: str, limit: float, places: IntArray) -> FloatArray:
        """Give the true share of a slice's tokens with |r| above a limit."""
        shares, factors = self.parts(slice_name, places)
        above = 1 - np.searchsorted(self.unit, limit / factors) / len(self.unit)
        return np.asarray((shares * above).sum(axis=1))

    @property
    def places(self) -> IntArray:
        """Recorded steps, by number, at which the truth is told."""
        count = len(self.layout.steps)
        return np.unique(np.linspace(0, count - 1, min(count, PLACES)).astype(np.int64))

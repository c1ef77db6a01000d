"""Where and since when sampled tokens are more or less surprising than their entropy, and what explains it.

A temperature may explain it. For a token drawn at temperature T, exp(-(1 - 1/T) s) (s - H) has mean 0, where s is its
surprisal and H the entropy of its distribution, both at temperature 1: the weight undoes the temperature, and s - H has
mean 0 at temperature 1. So T is the root of the sum of this over all tokens, whatever their distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.fault_since import FaultSpan, cut_windows, locate_fault, window_numbers
from ptt.diagnostics.statistics.marked_tokens import (
    MarkedTokens,
    Surprisal,
    SurprisalSums,
    surprisal_sums,
    unlikely,
)
from ptt.diagnostics.statistics.mask_faults import MIN_WINDOW
from ptt.diagnostics.statistics.windows import Span

LOWEST, HIGHEST = 0.4, 4.0  # range of temperatures searched
HALVINGS: Final = 14  # of the range of 1 - 1/T, which gives four digits
STRATA: Final = (0.0, 0.2, 1.0, math.inf)  # nats of entropy: one temperature must explain sure and open tokens alike
MIN_STRATUM: Final = 200  # tokens
MAX_APART: Final = 0.12  # of a stratum's temperature from the overall one: at most 0.05 if there is a single one
Z_APART: Final = 3.0  # standard errors by which it may differ in addition


@dataclass(frozen=True, kw_only=True)
class SamplingTemperature:
    """The temperature that explains the tokens best; `consistent`: it explains them at every height of the entropy."""

    value: float
    error: float  # standard error, by sequences
    consistent: bool


def sampling_temperature(surprisal: FloatArray, entropy: FloatArray, unit: IntArray) -> SamplingTemperature | None:
    """Estimate T from tokens of finite values; `unit`: of each token its sequence, from 0. None where no T does."""
    whole = _estimate(surprisal, entropy, unit)
    if whole is None:
        return None
    consistent = True
    for low, high in pairwise(STRATA):
        here = (entropy >= low) & (entropy < high)
        if here.sum() < MIN_STRATUM:
            continue
        part = _estimate(surprisal[here], entropy[here], unit[here])
        consistent &= part is not None and abs(part[0] - whole[0]) <= MAX_APART * whole[0] + Z_APART * part[1]
    return SamplingTemperature(value=whole[0], error=whole[1], consistent=consistent)


def _estimate(surprisal: FloatArray, entropy: FloatArray, unit: IntArray) -> tuple[float, float] | None:
    """Return the temperature and its standard error; None where it lies outside what is looked for."""
    excess = surprisal - entropy

    def terms(power: float) -> FloatArray:
        exponent = -power * surprisal
        values: FloatArray = np.exp(exponent - exponent.max()) * excess
        return values

    low, high = 1 - 1 / LOWEST, 1 - 1 / HIGHEST
    if not len(surprisal) or terms(low).sum() <= 0 or terms(high).sum() >= 0:
        return None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if terms(middle).sum() > 0 else (low, middle)
    values = terms(low)
    slope = abs(float((surprisal * values).sum()))
    spread = math.sqrt(float((np.bincount(unit, values) ** 2).sum()))
    temperature = 1 / (1 - low)
    return temperature, temperature**2 * spread / slope if slope > 0 else math.inf


@dataclass(frozen=True, kw_only=True)
class SurprisalWindow:
    """Surprisal against entropy in some neighbouring steps, tokens at faulty places left out."""

    first: int
    last: int
    both: Surprisal


@dataclass(frozen=True, kw_only=True)
class SurprisalExcess:
    """Sampled tokens that are far less likely than the entropy of their distributions has them, or far more."""

    span: FaultSpan
    inside: Surprisal  # while it holds
    outside: Surprisal  # before and after
    temperature: SamplingTemperature | None  # that explains it
    clustered: float  # share of unlikely tokens that are close to other unlikely ones
    unlikely: float  # share of tokens that a policy rarely samples


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What is recorded of how tokens were sampled: the values of all sequences, or the one of the settings."""

    temperatures: tuple[float, ...]
    top_ps: tuple[float, ...]

    @property
    def truncated(self) -> bool:
        """Whether the least likely tokens were left out."""
        return any(value < 1 for value in self.top_ps)

    @property
    def at_one(self) -> bool:
        """Whether the recorded settings say that every token is sampled as it is scored."""
        return self.temperatures == (1.0,) and not self.truncated

    @property
    def unknown(self) -> bool:
        """Whether neither a temperature nor truncation is recorded."""
        return not self.temperatures and not self.truncated


MIN_RATIO: Final = 1.3  # surprisal over entropy: 1.2 at most in windows of sound runs, where T is 1
MAX_RATIO: Final = 0.85  # the other way, where the temperature that explains it says so as well
MAX_COLD: Final = 0.8  # of that temperature
MAX_COLD_UNLIKE: Final = 0.7  # where not one temperature explains all: a top_p of 0.9 alone looks like 0.75
MAX_COLDER: Final = 0.85  # where it was 1 before or after
UNKNOWN_RATIO: Final = 2.0  # where no temperature is recorded: one of 1.3 in the sampler alone leaves 1.5
MIN_UNKNOWN: Final = 1.4  # then of the temperature that explains all: nobody is known to train at more than 1.3
CHANGED: Final = 1.25  # of the temperature that explains a window over the early one
AGREES: Final = (0.92, 1.1)  # temperature that explains the first windows: then it is the scores', recorded or not
MIN_Z: Final = 4.0  # standard errors, of each of MIN_WINDOWS windows
MIN_Z_ALONE: Final = 6.0  # for a single window, in a run with hardly more
MIN_EXCESS: Final = 0.02  # nats a token: less is lost among sure tokens, and moves no percentile
WINDOWS: Final = (24, 8)  # of a run, at most: with a policy that is sure of most tokens, only wide ones show anything
EARLY_SHARE: Final = 0.25  # of the windows
MIN_WINDOWS: Final = 2  # that must show it, if there are four or more


@dataclass(frozen=True)
class JudgedTokens:
    """The marked tokens left to judge, and their sums of surprisal and entropy."""

    tokens: MarkedTokens
    chosen: BoolArray
    sums: SurprisalSums

    @classmethod
    def of(cls, tokens: MarkedTokens, chosen: BoolArray) -> JudgedTokens:
        """Add up what is needed of them."""
        return cls(tokens, chosen, surprisal_sums(tokens, chosen))

    def windows(self, most: int) -> tuple[SurprisalWindow, ...]:
        """Hold the two against each other window by window; windows without an entropy are left out."""
        spans = cut_windows(self.tokens.step, least=MIN_WINDOW, most=most)
        number = window_numbers(self.tokens.step, spans)
        windows = (
            SurprisalWindow(first=span.first, last=span.last, both=self.sums.over(number == at))
            for at, span in enumerate(spans)
        )
        return tuple(window for window in windows if window.both.tokens)

    def temperature(self, sequences: BoolArray) -> SamplingTemperature | None:
        """Estimate the temperature that some sequences were sampled at."""
        tokens = self.tokens
        usable = self.chosen & sequences[tokens.row] & np.isfinite(tokens.surprisal) & np.isfinite(tokens.entropy)
        return sampling_temperature(tokens.surprisal[usable], tokens.entropy[usable], tokens.row[usable])


def find_excess(rest: JudgedTokens, sampling: Sampling) -> SurprisalExcess | None:
    """Find the windows where surprisal and entropy differ, and since when; None if they agree or lack entropy."""
    if len(sampling.temperatures) > 1:  # a mixture that changes is no fault
        return None
    for most in WINDOWS:
        windows = rest.windows(most)
        if windows and (excess := _excess_of(rest, windows, sampling)) is not None:
            return excess
    return None


def _excess_of(rest: JudgedTokens, windows: Sequence[SurprisalWindow], sampling: Sampling) -> SurprisalExcess | None:
    step = rest.tokens.step
    early = windows[: max(1, int(EARLY_SHARE * len(windows)))]
    start = rest.temperature(step <= early[-1].last) if sampling.unknown else None
    at_one = sampling.at_one or (start is not None and AGREES[0] <= start.value <= AGREES[1])
    if at_one or sampling.unknown:
        least = MAX_RATIO if at_one else 0.0
        high, low = ([_beyond(window.both, bound) for window in windows] for bound in (MIN_RATIO, least))
    else:
        high, low = _left_early(rest, windows, len(early))
    wrong = high if high.count(True) >= low.count(True) else low
    alone = len(windows) < 2 * MIN_WINDOWS and any(abs(window.both.z) >= MIN_Z_ALONE for window in windows)
    if wrong.count(True) < (1 if alone else MIN_WINDOWS):
        return None
    spans = [Span(window.first, window.last) for window in windows]
    span = locate_fault(*rest.sums.by_step(step), spans, wrong)
    excess = None if span is None else _describe_excess(rest, span)
    if excess is None or (wrong is low and not _is_cold(excess)):
        return None
    return None if sampling.unknown and not at_one and not _is_hot(excess) else excess


def _is_cold(excess: SurprisalExcess) -> bool:
    """Return whether the sampler was colder than any that leaves out unlikely tokens alone looks."""
    one = excess.temperature
    if one is None:
        return False
    changed = not (excess.span.from_start and excess.span.to_end)
    return one.value <= (MAX_COLDER if changed else MAX_COLD if one.consistent else MAX_COLD_UNLIKE)


def _is_hot(excess: SurprisalExcess) -> bool:
    """Return whether no temperature that anyone trains at explains it."""
    one = excess.temperature
    if one is not None and one.consistent:
        return one.value >= MIN_UNKNOWN
    return excess.inside.ratio >= UNKNOWN_RATIO


def _beyond(both: Surprisal, bound: float) -> bool | None:
    """Return whether surprisal over entropy lies beyond a bound on its side of 1; None where nearly, or not surely."""
    side = 1 if bound > 1 else -1
    if side * (both.ratio - (1 + bound) / 2) < 0:
        return False
    sure = side * both.z >= MIN_Z and side * both.excess >= MIN_EXCESS
    return True if sure and side * (both.ratio - bound) >= 0 else None


def _left_early(
    rest: JudgedTokens, windows: Sequence[SurprisalWindow], early: int
) -> tuple[list[bool | None], list[bool | None]]:
    """Tell the windows whose sampling temperature left that of the first ones, upwards and downwards."""
    step = rest.tokens.step
    estimates = [rest.temperature((step >= window.first) & (step <= window.last)) for window in windows]
    start = [one.value for one in estimates[:early] if one is not None]
    usual = float(np.median(start)) if start else math.nan

    def left(one: SamplingTemperature | None, side: int) -> bool | None:
        if one is None:
            return None
        moved = side * math.log(one.value / usual) / math.log(CHANGED)
        if not moved >= 1 / 2:
            return False
        return True if moved >= 1 and side * (one.value - usual) >= MIN_Z * one.error else None

    high, low = ([left(one, side) for one in estimates] for side in (1, -1))
    return high, low


AMONG: Final = 8  # tokens to either side
MIN_AMONG: Final = 3  # unlikely ones among these: a hot sampler has two, another's text six


def _describe_excess(rest: JudgedTokens, span: FaultSpan) -> SurprisalExcess:
    inside = span.holds(rest.tokens.step)
    here = rest.chosen & inside[rest.tokens.row]
    odd = unlikely(rest.tokens) & here
    seen = np.append(0, np.cumsum(odd))
    at = np.flatnonzero(odd)
    among = seen[np.minimum(at + AMONG + 1, len(odd))] - seen[np.maximum(at - AMONG, 0)] - 1
    return SurprisalExcess(
        span=span,
        inside=rest.sums.over(inside),
        outside=rest.sums.over(~inside),
        temperature=rest.temperature(inside),
        clustered=float((among >= MIN_AMONG).mean()) if len(at) else 0.0,
        unlikely=float(odd[here].mean()) if here.any() else 0.0,
    )

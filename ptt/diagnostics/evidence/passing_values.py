"""Which values of recorded attributes are not there all along: ranks, environments, tools that come late or vanish.

What changes at the step where such a value comes or goes is the mixture's, not growth. A value that is only rare for a
while, or comes and goes all the time, is not one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.fault_since import FaultSpan, fault_span, weigh_counts

TOOL, RESULT, ENVIRONMENT, RANK, VERSION = "tool", "tool result", "environment", "rank", "policy version"
OBSERVATION: Final = "observation number"  # which tool result of its sequence came last before a token: 3, or 3+
FROM: Final = f"{OBSERVATION}, from "  # the same, counting this observation and all later ones
LAG, GROUP, TEMPERATURE, TOP_P, LOGP_KIND = "lag", "prompt group", "temperature", "top_p", "logprob kind"
NOT_PARTS: Final = (VERSION, LAG, GROUP, TEMPERATURE, TOP_P, LOGP_KIND, RESULT)
"""Attributes whose values come and go with the time, or are no part of a run."""
PARTS: Final = (ENVIRONMENT, RANK, TOOL)  # what a run consists of; a column of its own may number its times
MAX_PASSING: Final = 0.5  # of the tokens: if a column's passing values hold more than this, the column tells the time

MIN_EXPECTED: Final = (
    16.0  # prompt groups or sequences missing, by the rate elsewhere: chance does not leave out this many
)
MIN_EXPECTED_OF_HABIT: Final = 6.0
HABIT: Final = 0.95  # of the other steps have it, as a rank does: then missing even this few is not chance
MAX_LEFT: Final = 0.01  # of these: a value left in a few odd samples still counts as away
MIN_STEPS: Final = 3  # a step or two without a value may just be a late writer
MIN_STEP_SHARE: Final = 0.05  # of the recorded steps: a shorter absence does not change a third of the run
MIN_LONGER: Final = 3.0  # times the longest other absence: a value drawn in turns is away all the time
ROUNDS: Final = 3  # of estimating its rate where it occurs
MAX_VALUES: Final = 64  # of an attribute, the most common ones
MIN_THERE: Final = 8.0  # prompt groups or sequences with it: fewer are too few to miss


@dataclass(frozen=True, kw_only=True)
class PassingValue:
    """One value of an attribute, and the recorded steps at which it is absent."""

    attribute: str
    value: str
    away: FaultSpan
    steps: int  # recorded steps among these
    last_before: int | None  # recorded step; None if it is absent from the start
    first_after: int | None  # the same; None if it is absent to the end
    rate: float  # share of prompt groups or sequences with it, at the other steps


def passing_values(
    attribute: str, values: npt.NDArray[np.object_], step: IntArray, unit: IntArray
) -> Iterator[PassingValue]:
    """Yield the values of one attribute that are away from the start, to the end, or for a third of the steps.

    values, step, unit: of each row; rows of one unit (prompt group or sequence) count once.
    """
    ranks = pl.Series(values.tolist(), dtype=pl.String).rank("dense")
    known = ranks.is_not_null().to_numpy()
    if not known.any():
        return
    names, code = values[known], ranks.drop_nulls().to_numpy().astype(np.int64) - 1
    steps, place = np.unique(step[known], return_inverse=True)
    unit = np.unique(unit[known], return_inverse=True)[1]
    trials = _distinct(place, unit, len(steps))
    counts = np.bincount(code)
    for number in np.argsort(-counts, kind="stable")[:MAX_VALUES].tolist():
        if counts[number] < MIN_THERE:
            break
        of_value = code == number
        name = str(names[np.argmax(of_value)])
        hits = _distinct(place[of_value], unit[of_value], len(steps))
        away = _longest_absence(steps, hits, trials)
        if away is None:
            continue
        inside = away.holds(steps)
        rate = float(hits[~inside].sum() / trials[~inside].sum())
        before, after = steps[steps < away.since], steps[steps > away.until]
        yield PassingValue(
            attribute=attribute,
            value=name,
            away=away,
            steps=int(inside.sum()),
            last_before=int(before[-1]) if len(before) else None,
            first_after=int(after[0]) if len(after) else None,
            rate=rate,
        )


def _distinct(place: IntArray, unit: IntArray, count: int) -> FloatArray:
    """Count the distinct units of each place."""
    pairs = np.unique(unit * count + place)
    return np.bincount(pairs % count, minlength=count).astype(np.float64)


def _longest_absence(steps: IntArray, hits: FloatArray, trials: FloatArray) -> FaultSpan | None:
    """Return the stretch of steps that a value most surely lacks; None where chance or a habit explains it."""
    rate, span = float(hits.sum() / trials.sum()), None
    for _ in range(ROUNDS):
        span = fault_span(steps, weigh_counts(hits, trials, rate, 0.0))
        if span is None or span.holds(steps).all():
            return None
        inside = span.holds(steps)
        rate = float(hits[~inside].sum() / trials[~inside].sum())
    if span is None:
        return None
    inside = span.holds(steps)
    expected = rate * float(trials[inside].sum())
    third = inside.sum() >= len(steps) / 3
    if not (span.from_start or span.to_end or third) or hits[~inside].sum() < MIN_THERE:
        return None
    habit = (hits > 0)[~inside & (trials > 0)].mean() >= HABIT
    if inside.sum() < max(MIN_STEPS, MIN_STEP_SHARE * len(steps)):
        return None
    if expected < (MIN_EXPECTED_OF_HABIT if habit else MIN_EXPECTED):
        return None
    if hits[inside].sum() > MAX_LEFT * expected or expected < MIN_LONGER * rate * _longest_gap(hits, trials, ~inside):
        return None
    return span


def _longest_gap(hits: FloatArray, trials: FloatArray, chosen: BoolArray) -> float:
    """Return the most trials in a row of the chosen steps without a hit."""
    longest = held = 0.0
    for hit, trial in zip(hits[chosen], trials[chosen], strict=True):
        held = 0.0 if hit else held + trial
        longest = max(longest, held)
    return longest


@dataclass(frozen=True)
class AttributeRows:
    """Rows of tokens that belong together, in columns, with their histograms and their values of some attributes."""

    frame: pl.DataFrame  # seq, step, slice, n, coarse_bin, coarse_n, unit
    values: Mapping[str, npt.NDArray[np.object_]]  # None: not recorded

    def take(self, chosen: BoolArray) -> AttributeRows:
        """Return the chosen rows."""
        return AttributeRows(
            self.frame.filter(pl.Series(chosen, dtype=pl.Boolean)),
            {name: value[chosen] for name, value in self.values.items()},
        )

    def without_histograms(self) -> AttributeRows:
        """Return the rows for counting alone: taking some of them copies little."""
        return AttributeRows(self.frame.select("step", "slice", "n", "unit"), self.values)


def all_passing(every: AttributeRows, by_tool: AttributeRows) -> tuple[PassingValue, ...]:
    """Return the attribute values, of sequences and of tools, that are absent for part of the run."""
    found: list[PassingValue] = []
    for part in (every, by_tool):
        if not part.values:
            continue
        step, unit = part.frame["step"].to_numpy(), part.frame["unit"].to_numpy().astype(np.int64)
        tokens = part.frame["n"].to_numpy().astype(np.float64)
        once = np.flatnonzero(np.diff(part.frame["seq"].to_numpy().astype(np.int64), prepend=-1))
        once = np.arange(len(step)) if part is by_tool else once  # a sequence may call several tools
        for name, values in part.values.items():
            if name in NOT_PARTS or name.startswith(OBSERVATION):
                continue
            passing = tuple(passing_values(name, values[once], step[once], unit[once]))
            theirs = np.isin(values, [one.value for one in passing]) if passing else np.zeros(len(values), np.bool_)
            if name in PARTS or tokens[theirs].sum() <= MAX_PASSING * tokens.sum():
                found += passing
    return tuple(found)


def without_values(
    every: AttributeRows, by_tool: AttributeRows, passing: tuple[PassingValue, ...]
) -> tuple[AttributeRows, AttributeRows]:
    """Return the rows of sequences that have none of these values."""
    dropped = [
        part.frame["seq"].to_numpy()[part.values[one.attribute] == one.value]
        for one in passing
        for part in (every, by_tool)
        if one.attribute in part.values
    ]
    gone = np.unique(np.concatenate(dropped))
    left = [part.take(~np.isin(part.frame["seq"].to_numpy(), gone)) for part in (every, by_tool)]
    return left[0], left[1]

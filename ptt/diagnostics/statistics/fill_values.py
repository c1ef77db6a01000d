"""Tell values that a writer put where it had no logprob from logprobs that happen to be equal.

A value is a fill where it is commoner than its neighbours on the column's own grid and other columns contradict it at
the same tokens. The run itself shows which values its grid has (bfloat16 holds -1.0, so do four decimals), which
contexts repeat, and how sure the policy is."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.cells import Columns

MIN_VALUES: Final = 50  # clearly different from 0: fewer may lie on a coarse grid by chance
LEAST: Final = 0.01  # of size: smaller numbers of a softmax are multiples of 2^-24 in every type
FITTING_SHARE: Final = 0.9  # of the values: of float32 logprobs one in a hundred has four decimals by chance
MANTISSA_BITS: Final = {"bfloat16": 7, "float16": 10}
MAX_DECIMALS: Final = 5  # more are as fine as float32 at the usual size of a logprob


@dataclass(frozen=True)
class Grid:
    """A type of coarser numbers than float32 ("bfloat16", "float16"), or a number of decimals (name "decimals")."""

    name: str
    decimals: int = 0
    share: float = 1.0  # of the values that lie on the grid

    def spacing(self, value: float) -> float:
        """Return how far neighbouring numbers lie apart at a value."""
        if self.name == "decimals":
            return 10.0**-self.decimals
        exponent = math.floor(math.log2(abs(value))) if value else -24
        return float(2.0 ** (exponent - MANTISSA_BITS[self.name]))


def grid_of(values: npt.NDArray[np.floating]) -> Grid | None:
    """Return the coarsest grid that the values fit; None if that is float32's own, or too few differ clearly from 0."""
    single = values[np.isfinite(values) & (np.abs(values) > LEAST)].astype(np.float32)
    if len(single) < MIN_VALUES:
        return None
    share = float(((single.view(np.uint32) & 0xFFFF) == 0).mean())
    if share > FITTING_SHARE:
        return Grid("bfloat16", share=share)
    with np.errstate(over="ignore"):
        half = single.astype(np.float16).astype(np.float32)
    share = float((half == single).mean())
    if share > FITTING_SHARE:
        return Grid("float16", share=share)
    double = single.astype(np.float64)
    for decimals in range(1, MAX_DECIMALS + 1):
        share = float((np.round(double, decimals).astype(np.float32) == single).mean())
        if share > FITTING_SHARE:
            return Grid("decimals", decimals, share)
    return None


Values = npt.NDArray[np.float32]

SENTINELS: Final = (-1.0, -100.0, -999.0, -1000.0)
"""Older veRL pads with -1, losses ignore labels of -100, tables write -999; -9999 and below is no logprob anywhere."""
COMMON_SHARE: Final = 0.02  # of model tokens: one value this common, whatever its size, needs a reason
FINE_SHARE: Final = 0.001  # of a column as fine as float32, where two equal values are a coincidence already
MAX_FILLS: Final = 6  # values that are so common, at many places
MAX_CONTEXTS: Final = 200  # values that are so common, at places of their own: first tokens of prompts that come again
MIN_PLACES: Final = 4  # in their sequences
MAX_SAME_PLACE: Final = 0.5  # of the tokens at one place: a repeated context has only one
MIN_DISTINCT: Final = 0.7  # of another column's values at them
MAX_COMMON_VALUE: Final = -0.01  # nats: values this close to 0 do repeat in sure models
MIN_FILLS: Final = 4  # tokens: fewer equal values are a coincidence, and move no percentile
TIMES_NEIGHBOURS: Final = 4.0  # as common as the values beside it: of the tokens with it, most are then no logprobs
NEIGHBOURHOOD: Final = 0.25  # relative distance from the value, on either side
MIN_DISTANCE: Final = 0.4  # Kolmogorov's, of the differences there and beside: they are of another origin
MAX_UNRELATED: Final = 0.35  # Kolmogorov's, of the other column there and anywhere: the value says nothing of the token
MAX_ALIKE: Final = 0.35  # mean distance from the step's median over that from the run's: the step decides the value
EARLY_SHARE: Final = 0.2  # of the recorded steps, from the start: there the columns of a sound pair still agree
MIN_EARLY_SIZE: Final = 0.3  # nats between the value and the other column there, in the median
MIN_RUN_SHARE: Final = 0.5  # of the tokens with it, beside another one: padding comes in runs

SURE_ABOVE: Final = -1e-3  # nats: tokens as good as certain, among which exact zeros of a sure policy lie
UNLIKELY: Final = (-0.01, -0.03, -0.1, -0.3, -1.0, -2.0, -5.0)
"""Nats: what another column says of tokens that this one is sure of; nearer to 0 a zero is as good as a logprob."""
TIMES_EXPECTED: Final = 3.0  # as many contradicted zeros as near-zeros lead to expect
MIN_CONTRADICTED: Final = 2  # zeros beyond that
SURE_ROW_ABOVE: Final = -0.05  # nats: a row all of whose tokens are as good as certain
MIN_ROW_TOKENS: Final = 8  # equal values in a row: fewer are a coincidence
MIN_ROW_SPREAD: Final = 0.5  # nats: what another column's values span at least in such a row
MIN_SURE_ROWS_SHARE: Final = 0.5  # all-zero rows over those and nearly zero rows: a sure policy makes both
COPY_SHARE: Final = 0.9  # of tokens with one value in both: the one column was taken from the other


@dataclass(frozen=True, kw_only=True)
class Fills:
    """What one column holds instead of logprobs.

    values: exact fill values, sentinels first; zeros_below: a 0 is a fill where another column gives the token less
    than this, None where zeros are logprobs; zero_rows: some sequences are 0 (or nearly 0) throughout; confirm: columns
    that support a zero where they are near 0 themselves.
    """

    values: tuple[float, ...] = ()
    zeros_below: float | None = None
    zero_rows: bool = False
    confirm: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything was found."""
        return bool(self.values) or self.zeros_below is not None or self.zero_rows


@dataclass(frozen=True)
class SampledTokens:
    """Model tokens of whole sequences, end to end: their sequence, step and place in it, and each column's values."""

    row: IntArray
    step: IntArray
    place: IntArray
    values: Mapping[str, Values]

    @cached_property
    def rows(self) -> tuple[IntArray, IntArray]:
        """Return where each sequence's tokens begin, and how many they are."""
        starts = np.flatnonzero(np.diff(self.row, prepend=-1))
        return starts, np.diff(np.append(starts, len(self.row)))

    @cached_property
    def extremes(self) -> Mapping[str, tuple[Values, Values]]:
        """Return the lowest and the highest finite value of each sequence, by column."""
        starts, _ = self.rows
        return {name: (np.fmin.reduceat(of, starts), np.fmax.reduceat(of, starts)) for name, of in self.values.items()}


def sampled_tokens(samples: pl.DataFrame, columns: Collection[str]) -> SampledTokens:
    """Lay the model tokens of sampled sequences end to end; a column that a sequence lacks is NaN there."""
    length = pl.col("model_mask").list.len()
    nothing = pl.lit(np.nan, pl.Float32).repeat_by(length)
    fitted = [
        pl.when(pl.col(name).list.len() == length).then(pl.col(name)).otherwise(nothing).alias(name) for name in columns
    ]
    flat = (
        samples.lazy()
        .filter(pl.col("model_mask").is_not_null() & pl.col("step").is_not_null() & (length > 0))
        .with_row_index("row")
        .select("row", "step", "model_mask", pl.int_ranges(length).alias("place"), *fitted)
        .explode("model_mask", "place", *columns)
        .filter("model_mask")
        .collect()
    )
    values = {name: flat[name].fill_null(np.nan).to_numpy().astype(np.float32) for name in columns}
    row, step, place = (flat[name].to_numpy().astype(np.int64) for name in ("row", "step", "place"))
    return SampledTokens(row, step, place, values)


def find_fills(tokens: SampledTokens) -> dict[str, Fills]:
    """Return the fills of each column; columns without any are left out."""
    fills = {}
    for column in tokens.values:
        others = [name for name in tokens.values if name != column and np.isfinite(tokens.values[name]).any()]
        if not others or not len(tokens.row):
            continue
        confirm = tuple(name for name in others if not _copied(tokens.values[column], tokens.values[name]))
        found = Fills(
            values=tuple(_fill_values(tokens, column, others)),
            zeros_below=max(
                (told for other in others if (told := _zeros_contradicted(tokens, column, other, confirm))),
                default=None,
            ),
            zero_rows=any(_rows_filled(tokens, column, other, confirm) for other in others),
            confirm=confirm,
        )
        if found:
            fills[column] = found
    return fills


def _copied(values: Values, other: Values) -> bool:
    both = np.isfinite(values) & np.isfinite(other) & (values != 0)
    return bool(both.any()) and float((values[both] == other[both]).mean()) > COPY_SHARE


def _fill_values(tokens: SampledTokens, column: str, others: list[str]) -> Iterator[float]:
    """Yield the values that cannot be logprobs, sentinels first."""
    values = tokens.values[column]
    finite = values[np.isfinite(values)]
    distinct, counts = np.unique(finite[finite < MAX_COMMON_VALUE], return_counts=True)
    known = np.isin(distinct, np.array(SENTINELS, np.float32))
    common = (counts > FINE_SHARE * len(finite)) & (counts >= MIN_FILLS)
    coarse = grid_of(finite) is not None or _partly_coarse(tokens, column, distinct[common])
    if coarse:
        common &= counts > COMMON_SHARE * len(finite)
    suspect = (counts >= MIN_FILLS) & (known | common)
    for at in sorted(np.flatnonzero(suspect).tolist(), key=lambda at: (not known[at], -counts[at])):
        beside = np.abs(distinct - distinct[at]) <= NEIGHBOURHOOD * abs(distinct[at])
        beside[at] = False
        usual = float(np.quantile(counts[beside], 0.95)) if beside.any() else 0.0
        if counts[at] <= TIMES_NEIGHBOURS * max(usual, 0.5):
            continue
        fine = bool(known[at]) and not coarse  # no two tokens are exactly -1 by chance
        equal = values == distinct[at]
        near = np.isin(values, distinct[beside])
        padding = _in_runs(tokens.row, equal) and any(
            (tokens.values[name][equal] == values[equal]).all() for name in others
        )
        scattered = not coarse and _in_many_places(tokens.place[equal])
        told = (
            _contradicts(tokens, column, tokens.values[name], equal, near, fine=fine, scattered=scattered)
            for name in others
        )
        if padding or any(told):
            yield float(distinct[at])


def _partly_coarse(tokens: SampledTokens, column: str, common: Values) -> bool:
    """Return whether a part of a column went through a coarser type: many values come again, at any place."""
    if len(common) > MAX_CONTEXTS:
        return True
    values = tokens.values[column]
    return sum(_in_many_places(tokens.place[values == value]) for value in common) > MAX_FILLS


def _in_many_places(place: IntArray) -> bool:
    """Return whether tokens are at many places of their sequences: a repeated context has only one place."""
    count = np.unique(place, return_counts=True)[1]
    return len(count) >= MIN_PLACES and float(count.max()) < MAX_SAME_PLACE * len(place)


def _in_runs(row: IntArray, equal: BoolArray) -> bool:
    """Return whether most of these tokens are next to another of them in their sequence."""
    same = row[1:] == row[:-1]
    pairs = equal[1:] & equal[:-1] & same
    beside = np.append(pairs, False) | np.append(False, pairs)
    return float(beside[equal].mean()) > MIN_RUN_SHARE


def _contradicts(
    tokens: SampledTokens,
    column: str,
    other: Values,
    equal: BoolArray,
    near: BoolArray,
    *,
    fine: bool,
    scattered: bool,
) -> bool:
    """Return whether another column is, at tokens with a value, not what it is beside it.

    scattered: no law gives these tokens one value, so it is enough that the other column gives them many.
    """
    values = tokens.values[column]
    finite = np.isfinite(other)
    equal, near, anywhere = equal & finite, near & finite, finite & np.isfinite(values)
    if equal.sum() < MIN_FILLS:
        return False
    if scattered and len(np.unique(other[equal])) > MIN_DISTINCT * equal.sum():
        return True
    with np.errstate(invalid="ignore"):
        apart = other - values
    beside = apart[near] if near.any() else np.zeros(1, np.float32)
    if distance(apart[equal], beside) < MIN_DISTANCE:
        return False
    if fine or (
        distance(other[equal], other[anywhere]) < MAX_UNRELATED and not _repeats(tokens.step[equal], other[equal])
    ):
        return True
    steps = np.unique(tokens.step)
    early = tokens.step <= steps[int(EARLY_SHARE * (len(steps) - 1))]
    if (equal & early).sum() < MIN_FILLS:
        return False
    size = float(np.median(np.abs(apart[equal & early])))
    usual = float(np.quantile(np.abs(apart[near & early]), 0.9)) if (near & early).any() else 0.0
    return size > max(MIN_EARLY_SIZE, usual)


def _repeats(step: IntArray, values: Values) -> bool:
    """Return whether values of one step are much alike: one context that came again, and no tokens from anywhere."""
    order = np.lexsort((values, step))
    step, values = step[order], values[order].astype(np.float64)
    starts = np.flatnonzero(np.diff(step, prepend=step[0] - 1))
    counts = np.diff(np.append(starts, len(step)))
    medians = values[starts + counts // 2]
    off = np.abs(values - np.repeat(medians, counts))[np.repeat(counts > 1, counts)]
    spread = float(np.abs(values - np.median(values)).mean())
    return len(off) > 0 and float(off.mean()) < MAX_ALIKE * spread


def distance(first: Values | FloatArray, second: Values | FloatArray) -> float:
    """Return Kolmogorov's distance of two samples: the largest difference of their distribution functions."""
    parts = [np.sort(first), np.sort(second)]
    every = np.concatenate(parts)
    below = [np.searchsorted(part, every, side="right") / len(part) for part in parts]
    return float(np.abs(below[0] - below[1]).max())


def _zeros_contradicted(tokens: SampledTokens, column: str, other: str, confirm: tuple[str, ...]) -> float | None:
    """Return the logprob of another column below which this one has far more zeros than its near-zeros explain.

    The highest such logprob, or None. A policy that is sure of tokens which the reference finds unlikely gives
    near-zeros as well as zeros; a fill gives zeros alone.
    """
    values, against = tokens.values[column], tokens.values[other]
    known = np.isfinite(against)
    zero, near = (values == 0) & known, (values < 0) & (values >= SURE_ABOVE) & known
    if not zero.any():
        return None
    low, high = tokens.extremes[column]
    thirds = [tokens.values[name] for name in confirm if name != other]

    def told(at: IntArray) -> Values:  # what the other column says, but of rows of one value, which have their own test
        row = np.searchsorted(tokens.rows[0], at, side="right") - 1
        open_ = ~confirmed([third[at] for third in thirds], against[at]) & ~(low == high)[row]
        said: Values = against[at[open_]]
        return said

    zeros, nears = told(np.flatnonzero(zero)), told(np.flatnonzero(near))
    usual = max(1.0, zero.sum() / max(1, near.sum()))
    for unlikely in UNLIKELY:
        expected = (np.count_nonzero(nears < unlikely) + 1) * usual
        if np.count_nonzero(zeros < unlikely) > TIMES_EXPECTED * expected + MIN_CONTRADICTED:
            return unlikely
    return None


def confirmed(thirds: Collection[Values], against: Values) -> BoolArray:
    """Return at which tokens a third column is nearer to 0 than to the other column's value."""
    result = np.zeros(len(against), np.bool_)
    for third in thirds:
        with np.errstate(invalid="ignore"):
            result |= third > against / 2
    return result


def _rows_filled(tokens: SampledTokens, column: str, other: str, confirm: tuple[str, ...]) -> bool:
    """Return whether rows of zeros are more than the nearly certain rows of a sure policy account for."""
    _, count = tokens.rows
    (low, high), (lowest, highest) = tokens.extremes[column], tokens.extremes[other]
    with np.errstate(invalid="ignore"):
        usable = (count >= MIN_ROW_TOKENS) & (highest - lowest > MIN_ROW_SPREAD)
        thirds = [tokens.extremes[name][0] for name in confirm if name != other]
        filled = usable & (low == high) & (low >= SURE_ABOVE) & ~confirmed(thirds, lowest)
        sure = usable & (low > SURE_ROW_ABOVE) & (low < high)
    return bool(filled.sum() * MIN_SURE_ROWS_SHARE > sure.sum())


AnyValues = npt.NDArray[Any]

MISSING_BELOW: Final = -9000.0  # OpenAI-style servers write -9999.0 for a missing or -inf logprob
IMPOSSIBLE_ABOVE: Final = 1e-3  # a logprob above 0 by more than rounding
NO_FILLS: Final = Fills()


class Anomaly(IntEnum):
    """What is wrong with a value."""

    FILLED_ROW = 0  # a sequence has one value on all its tokens, and the other side has not
    ZERO = 1  # exactly 0 in place of a logprob
    MISSING = 2  # -9999 and below
    PAD = 3  # a sentinel (-1, -100) in place of a logprob
    POSITIVE = 4  # above 0
    FILL = 5  # some other value in place of logprobs


@dataclass(frozen=True)
class Placeholders:
    """Tokens that cannot be used, and the records that say why."""

    unusable: BoolArray
    records: list[tuple[str, Anomaly, IntArray, IntArray]]  # column, kind, rows, tokens in each


def find_placeholders(
    names: tuple[str, str],
    logps: Mapping[str, AnyValues],
    rows: IntArray,
    count: IntArray,
    fills: Mapping[str, Fills],
) -> Placeholders | None:
    """Find placeholders in both logprobs of a pair; None if there are none, which takes only a few passes to see.

    logps: one entry per model token, of the pair and of any column that may confirm a zero; rows: those with tokens,
    and how many each has (count); fills: what stands in place of logprobs, by column.
    """
    values = [logps[name] for name in names]
    starts = np.cumsum(count) - count
    low = [np.fmin.reduceat(side, starts) for side in values]  # fmin: a NaN must not hide its neighbours
    high = [np.fmax.reduceat(side, starts) for side in values]
    placeholders = Placeholders(np.zeros(len(values[0]), np.bool_), [])
    for at, name in enumerate(names):
        side, against, known = values[at], values[1 - at], fills.get(name, NO_FILLS)
        thirds = [logps[third] for third in known.confirm if third in logps and third not in names]
        with np.errstate(invalid="ignore"):
            spread = high[1 - at] - low[1 - at] > MIN_ROW_SPREAD
            constant = (low[at] == high[at]) & (count >= MIN_ROW_TOKENS) & spread
        if constant.any():
            sure = constant & (low[at] >= SURE_ABOVE) & (low[at] <= 0)
            if known.zero_rows and sure.any():
                sure &= confirmed([np.fmin.reduceat(third, starts) for third in thirds], low[1 - at])
            constant &= ~sure
        if constant.any():
            placeholders.records.append((name, Anomaly.FILLED_ROW, rows[constant], count[constant]))
            placeholders.unusable[np.repeat(constant, count)] = True
        if known.zeros_below is not None:
            zero = (side == 0) & (against < known.zeros_below) & ~confirmed(thirds, against)
            _mark_tokens(placeholders, name, Anomaly.ZERO, zero, rows, count)
        for value in known.values:
            kind = Anomaly.PAD if value in SENTINELS else Anomaly.FILL
            _mark_tokens(placeholders, name, kind, side == np.float32(value), rows, count)
        if np.fmin.reduce(low[at]) <= MISSING_BELOW:
            _mark_tokens(placeholders, name, Anomaly.MISSING, side <= MISSING_BELOW, rows, count)
        if np.fmax.reduce(high[at]) > IMPOSSIBLE_ABOVE:
            _mark_tokens(placeholders, name, Anomaly.POSITIVE, side > IMPOSSIBLE_ABOVE, rows, count)
    return placeholders if placeholders.records else None


def unsampled_tokens(logps: Mapping[str, AnyValues], fills: Mapping[str, Fills]) -> BoolArray | None:
    """Return the tokens that a fill value in any column shows were not sampled; None where no column has one.

    Rows that could not be scored are not among them: their tokens were sampled, and other columns hold their logprobs.
    """
    found: BoolArray | None = None
    for name in logps.keys() & fills.keys():
        values, known = logps[name], fills[name]
        mask = np.isin(values, np.array(known.values, values.dtype))
        if known.zeros_below is not None:
            zero = values == 0
            thirds = [logps[third] for third in known.confirm if third in logps]
            for against in (logps[other] for other in logps if other != name):
                with np.errstate(invalid="ignore"):
                    told = zero & (against < known.zeros_below)
                mask = mask | (told & ~confirmed([third for third in thirds if third is not against], against))
        found = mask if found is None else found | mask
    return found


def _mark_tokens(
    placeholders: Placeholders, name: str, kind: Anomaly, where: BoolArray, rows: IntArray, count: IntArray
) -> None:
    where = where & ~placeholders.unusable if placeholders.records else where
    if where.any():
        marked, each = np.unique(np.repeat(rows, count)[where], return_counts=True)
        placeholders.records.append((name, kind, marked, each))
        np.logical_or(placeholders.unusable, where, out=placeholders.unusable)


def placeholder_records(placeholders: Placeholders, seq: IntArray, step: IntArray, columns: tuple[str, ...]) -> Columns:
    """Return the anomalies of a batch as records: seq, step, column (index into `columns`), kind, n."""
    rows = np.concatenate([rows for _, _, rows, _ in placeholders.records])
    counts = [count for _, _, _, count in placeholders.records]
    each = [len(count) for count in counts]
    return {
        "seq": seq[rows].astype(np.uint32),
        "step": step[rows],
        "column": np.repeat([columns.index(name) for name, _, _, _ in placeholders.records], each).astype(np.uint8),
        "kind": np.repeat([int(kind) for _, kind, _, _ in placeholders.records], each).astype(np.uint8),
        "n": np.concatenate(counts).astype(np.uint32),
    }

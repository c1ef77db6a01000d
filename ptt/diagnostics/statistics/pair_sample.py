"""Whether a pair's sequences fall into two kinds: r proportional to the logprob in some, absent in others.

A pair scored at one temperature throughout has one kind, whatever the temperature; two kinds side by side mean that one
file mixes sequences of different temperatures."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.flat_lists import flatten
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray, dot
from ptt.diagnostics.statistics.fault_since import MIN_SEQUENCES, cut_windows
from ptt.diagnostics.statistics.fill_values import IMPOSSIBLE_ABOVE, MISSING_BELOW, NO_FILLS, Fills
from ptt.diagnostics.statistics.slices import SLICES, model_runs
from ptt.diagnostics.statistics.windows import Span

MIN_TOKENS: Final = 200
CERTAIN_ABOVE: Final = (
    -0.05
)  # nats: tokens more certain than this look the same under every temperature and every shift
NO_MOVE: Final = 1e-12  # nats: closer than this, the two logprobs count as the same number


@dataclass(frozen=True, kw_only=True)
class PairSample:
    """Facts about one pair from sampled model tokens; lines are fitted to tokens that are not nearly certain.

    slope, r_squared: r on the denominator's logprob. p99: of |r|. negative_share: of tokens with |r| above 1e-6.
    boundary_share: share of the largest 1% of |r| at the first token after an observation; boundary_tokens: the same
    share of all tokens; zero_share: of tokens whose r is 0, without those that both columns are sure of if enough
    others are left; usual_ratio: median of r over the denominator's logprob. NaN: too few tokens sampled.
    """

    tokens: int
    slope: float
    r_squared: float
    median_r: float
    p99: float
    negative_share: float
    boundary_share: float
    boundary_tokens: float
    zero_share: float
    usual_ratio: float


def pair_samples(
    samples: pl.DataFrame,
    *,
    numerator: str,
    denominator: str,
    fills: Mapping[str, Fills],
    until: Sequence[int | None],
) -> list[PairSample | None]:
    """Take the facts on one pair over the sequences up to each of these steps, or over all of them."""
    tokens = _model_tokens(samples, numerator, denominator, fills)
    parts = [tokens if step is None else tokens.until(step) for step in until]
    return [_summarize_pair(part) if len(part.step) else None for part in parts]


@dataclass(frozen=True)
class _ModelTokens:
    """Model tokens of all sampled sequences that hold both columns, end to end."""

    step: FloatArray  # NaN where it is not known
    top: FloatArray
    bottom: FloatArray
    first: BoolArray  # after an observation

    def until(self, step: int) -> _ModelTokens:
        """Return those up to a step."""
        held = self.step <= step
        return _ModelTokens(self.step[held], self.top[held], self.bottom[held], self.first[held])


def _model_tokens(samples: pl.DataFrame, numerator: str, denominator: str, fills: Mapping[str, Fills]) -> _ModelTokens:
    length = pl.col("model_mask").list.len()
    rows = samples.drop_nulls([numerator, denominator]).filter(
        length > 0, *(pl.col(name).list.len() == length for name in (numerator, denominator))
    )
    offsets, mask = _flags(rows["model_mask"])
    count, begins = np.diff(offsets), offsets[:-1]
    seen: IntArray = np.cumsum(mask) - mask  # before each token, of all rows
    first = mask & ~np.append(False, mask[:-1]) & (seen > np.repeat(seen[begins], count))
    top, bottom = (
        without_placeholders(flatten(rows[name])[1].astype(np.float64), fills.get(name, NO_FILLS))[mask]
        for name in (numerator, denominator)
    )
    step = np.repeat(rows["step"].cast(pl.Float64).fill_null(np.nan).to_numpy(), count)
    return _ModelTokens(step[mask], top, bottom, first[mask])


def _sampled_pairs(
    samples: pl.DataFrame, numerator: str, denominator: str, fills: Mapping[str, Fills]
) -> Iterator[tuple[int, FloatArray, FloatArray]]:
    """Yield the number of every sampled sequence that holds both logprobs, and both of its model tokens."""
    rows = samples.drop_nulls([numerator, denominator, "model_mask"])
    begins, mask = _flags(rows["model_mask"])
    (tops, top), (bottoms, bottom) = (
        (offsets, without_placeholders(values.astype(np.float64), fills.get(name, NO_FILLS)))
        for name in (numerator, denominator)
        for offsets, values in (flatten(rows[name]),)
    )
    counts = np.diff(begins)
    fits = (counts == np.diff(tops)) & (counts == np.diff(bottoms)) & (counts > 0)
    seqs = rows["seq"].to_numpy()
    for at in np.flatnonzero(fits).tolist():
        model = mask[begins[at] : begins[at + 1]]
        if model.any():
            yield int(seqs[at]), top[tops[at] : tops[at + 1]][model], bottom[bottoms[at] : bottoms[at + 1]][model]


def _flags(column: pl.Series) -> tuple[IntArray, BoolArray]:
    """Return offsets and truth values of a column of lists, end to end; a null is not true."""
    offsets, flags = flatten(column)
    if flags.dtype == np.object_:
        flags = np.array([value is True for value in flags])
    return offsets, flags.astype(np.bool_)


def mask_placeholders(values: list[float | None], fills: Fills = NO_FILLS) -> FloatArray:
    """Return the values with placeholders as NaN: they have a finding of their own and would rule every fit."""
    return without_placeholders(np.array(values, dtype=np.float64), fills)


def without_placeholders(values: FloatArray, fills: Fills) -> FloatArray:
    """Turn placeholders into NaN, in place."""
    with np.errstate(invalid="ignore"):
        values[(values <= MISSING_BELOW) | (values > IMPOSSIBLE_ABOVE)] = np.nan
    if fills.values:
        values[np.isin(values, fills.values)] = np.nan
    if fills.zeros_below is not None or fills.zero_rows:
        values[values == 0] = np.nan
    return values


def _summarize_pair(tokens: _ModelTokens) -> PairSample:
    top, bottom, first = tokens.top, tokens.bottom, tokens.first
    with np.errstate(invalid="ignore"):
        r = top - bottom
    finite = np.isfinite(r)
    magnitude = np.abs(r)
    p99 = float(np.quantile(magnitude[finite], 0.99)) if finite.any() else np.nan
    slope, r_squared = _fit_slope(bottom[finite], r[finite])
    moved = finite & (magnitude > 1e-6)
    return PairSample(
        tokens=int(finite.sum()),
        slope=slope,
        r_squared=r_squared,
        median_r=float(np.median(r[moved])) if moved.any() else 0.0,
        p99=p99,
        negative_share=_share(r[moved] < 0),
        boundary_share=_share(first[finite & (magnitude >= p99)]),
        boundary_tokens=_share(first[finite]),
        zero_share=_zero_share(top[finite], bottom[finite]),
        usual_ratio=_usual_ratio(r[moved], bottom[moved]),
    )


def _usual_ratio(r: FloatArray, bottom: FloatArray) -> float:
    open_ = bottom < CERTAIN_ABOVE
    return float(np.median(r[open_] / bottom[open_])) if open_.sum() >= MIN_TOKENS else np.nan


def _zero_share(top: FloatArray, bottom: FloatArray) -> float:
    """Return the share of tokens whose logprobs are equal, open ones if enough: sure policies agree on sure tokens."""
    open_ = (top < CERTAIN_ABOVE) | (bottom < CERTAIN_ABOVE)
    if open_.sum() >= MIN_TOKENS:
        top, bottom = top[open_], bottom[open_]
    return _share(np.abs(top - bottom) < NO_MOVE)


def _share(flags: BoolArray) -> float:
    return float(flags.mean()) if len(flags) else np.nan


def _fit_slope(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Return slope and R^2 of y on x over tokens that are not nearly certain; NaN with too few."""
    with np.errstate(invalid="ignore"):
        usable = np.isfinite(x) & (x < CERTAIN_ABOVE)
    return _least_squares(x[usable], y[usable]) if usable.sum() >= MIN_TOKENS else (np.nan, np.nan)


def _least_squares(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Return slope and R^2 of y = a + slope x; NaN where either does not vary."""
    x, y = x - x.mean(), y - y.mean()
    spread, total = dot(x, x), dot(y, y)
    if spread == 0 or total == 0:
        return np.nan, np.nan
    slope = dot(x, y) / spread
    return slope, slope * dot(x, y) / total


FIT_BELOW: Final = -0.01  # nats: surer tokens move too little to be fitted
MIN_FIT_TOKENS: Final = 4  # below FIT_BELOW
MAX_LEAST_LOGP: Final = -0.7  # nats: one token at least is less likely than one half, or a slope is noise
MIN_SLOPE: Final = 0.1  # T of 0.91 or 1.11
MIN_R_SQUARED: Final = 0.8  # R^2 of a sequence's own line
MAX_PLAIN_SIZE: Final = 0.05  # root mean square of r over that of the logprob: the two columns agree
MAX_DRIFT_SEQUENCES: Final = 64
"""Sequences to take from the start where the pair is against the reference: later, drift itself has a slope."""


@dataclass(frozen=True, kw_only=True)
class TemperatureMixture:
    """How many of a pair's sampled sequences are scaled, and how many plain, of those that can be fitted.

    slope: median slope of r on the denominator's logprob over the scaled sequences, 1/T - 1; spread: the interquartile
    range of their slopes over the median's size; both NaN if none is scaled. scaled_seqs: their numbers in the run.
    opposite: sequences scaled to the other side, which only the noise of few tokens makes beside them.
    """

    judged: int
    plain: int
    opposite: int
    slope: float
    spread: float
    scaled_seqs: npt.NDArray[np.uint32]

    @property
    def scaled_share(self) -> float:
        """Scaled over fitted."""
        return len(self.scaled_seqs) / max(1, self.judged)

    @property
    def plain_share(self) -> float:
        """Plain over fitted."""
        return self.plain / max(1, self.judged)


def temperature_mixture(
    samples: pl.DataFrame,
    *,
    numerator: str,
    denominator: str,
    drift: bool,
    fills: Mapping[str, Fills] | None = None,
) -> TemperatureMixture | None:
    """Sort sampled sequences into scaled and plain; None where none can be fitted.

    `drift`: the denominator is the reference; then only the first 64 count, and only positive slopes (T below 1),
    since drift has negative ones of its own.
    """
    fits = []
    for seq, top, bottom in _sampled_pairs(samples.sort("step", "seq"), numerator, denominator, fills or {}):
        fit = _fit_sequence(top, bottom)
        if fit is not None:
            fits.append((seq, *fit))
        if drift and len(fits) == MAX_DRIFT_SEQUENCES:
            break
    if not fits:
        return None
    seqs, slopes, r_squared, size = (np.array(column) for column in zip(*fits, strict=True))
    plain = size < MAX_PLAIN_SIZE
    scaled = ~plain & (r_squared > MIN_R_SQUARED) & (np.abs(slopes) > MIN_SLOPE)
    sign = 1.0 if drift else np.sign(np.median(slopes[scaled])) if scaled.any() else 1.0
    opposite = 0 if drift else int((scaled & (np.sign(slopes) != sign)).sum())
    scaled &= np.sign(slopes) == sign
    low, slope, high = np.percentile(slopes[scaled], [25, 50, 75]) if scaled.any() else [np.nan] * 3
    return TemperatureMixture(
        judged=len(fits),
        plain=int(plain.sum()),
        opposite=opposite,
        slope=float(slope),
        spread=float((high - low) / abs(slope)),
        scaled_seqs=seqs[scaled].astype(np.uint32),
    )


def _fit_sequence(top: FloatArray, bottom: FloatArray) -> tuple[float, float, float] | None:
    """Return slope and R^2 of r on the denominator's logprob, and how large r is beside it."""
    with np.errstate(invalid="ignore"):
        r = top - bottom
        usable = np.isfinite(r) & (bottom < FIT_BELOW)
    if usable.sum() < MIN_FIT_TOKENS or bottom[usable].min() > MAX_LEAST_LOGP:
        return None
    x, y = bottom[usable], r[usable]
    size = math.sqrt(dot(y, y) / dot(x, x))
    slope, r_squared = _least_squares(x, y)
    return (0.0, 0.0, size) if math.isnan(slope) else (slope, r_squared, size)


ALL: Final = len(SLICES)  # both slices together, where one is asked for
WINDOW_TOKENS: Final = 4000  # model tokens in a window where sequences are long: fewer sequences then suffice
SUREST: Final = 1e-4  # nats: closer to 0 is rounding in coarse columns, and sure in any
FEWEST_SEQUENCES: Final = 16  # in a window, however long they are


@dataclass(frozen=True)
class SampledColumns:
    """Sampled sequences in the order of their steps, end to end.

    step: of each sequence; start: where each begins, and where the last one ends; row: the sequence of each token;
    model, post: of each token, whether the policy sampled it, and whether an observation comes before it; values: of
    each column, NaN where there is no logprob.
    """

    step: IntArray
    start: IntArray
    row: IntArray
    model: BoolArray
    post: BoolArray
    values: Mapping[str, FloatArray]

    @cached_property
    def windows(self) -> tuple[Span, ...]:
        """Cut the steps into windows that hold enough tokens for a correlation."""
        usual = max(1.0, float(self.model.sum()) / max(1, len(self.step)))
        least = min(max(math.ceil(WINDOW_TOKENS / usual), FEWEST_SEQUENCES), MIN_SEQUENCES)
        return cut_windows(self.step, least=least)

    @cached_property
    def window(self) -> IntArray:
        """Return the window of each sequence."""
        firsts = np.array([window.first for window in self.windows], np.int64)
        return np.searchsorted(firsts, self.step, side="right") - 1

    @cached_property
    def place(self) -> IntArray:
        """Number each token's sequence and slice: twice the sequence's, plus one after an observation."""
        return 2 * self.row + self.post

    @cached_property
    def sizes(self) -> Mapping[str, FloatArray]:
        """Return the logarithm of -logp for each column: how sure it is of each token."""
        with np.errstate(invalid="ignore"):
            return {name: np.log(np.maximum(-values, SUREST)) for name, values in self.values.items()}

    def inside(self, slice_: int) -> BoolArray:
        """Return which tokens the policy sampled in a slice."""
        return self.model if slice_ == ALL else self.model & (self.post == bool(slice_))


def lay_out_columns(
    samples: pl.DataFrame, observed: Collection[int], columns: Collection[str], fills: Mapping[str, Fills]
) -> SampledColumns:
    """Lay the sampled sequences end to end; `observed`: those with an observation."""
    length = pl.col("model_mask").list.len()
    rows = samples.filter(pl.col("step").is_not_null() & (length > 0)).sort("step", "seq")
    offsets, mask = _flags(rows["model_mask"])
    row = np.repeat(np.arange(rows.height), np.diff(offsets))
    values = {}
    for name in columns:
        fits = rows[name].is_not_null() & (rows[name].list.len() == rows["model_mask"].list.len())
        if fits.any():
            filled = np.full(len(row), np.nan)
            filled[np.repeat(fits.to_numpy(), np.diff(offsets))] = _numbers(rows[name].filter(fits))
            values[name] = without_placeholders(filled, fills.get(name, NO_FILLS))
    return SampledColumns(
        step=rows["step"].to_numpy(),
        start=offsets,
        row=row,
        model=mask,
        post=_after_observation(mask, offsets, rows["seq"].is_in(list(observed)).to_numpy()),
        values=values,
    )


def _numbers(column: pl.Series) -> npt.NDArray[Any]:
    return flatten(column)[1]


def _after_observation(mask: BoolArray, offsets: IntArray, observed: BoolArray) -> BoolArray:
    """Mark the tokens after an observation; in a sequence that holds one, any gap in the mask may be it."""
    shortest = np.where(observed, 1, np.iinfo(np.int64).max)
    runs = model_runs(mask, offsets, shortest)
    post = np.zeros(len(mask), np.bool_)
    post[mask] = np.repeat(runs.turn > 0, runs.length)
    return post

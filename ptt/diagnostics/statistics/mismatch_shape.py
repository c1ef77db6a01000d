"""What differences between trainer and engine look like token by token: where they are, and what they go with.

Measured on sampled sequences. Tokens of a sequence are alike, so shares are judged with the sequence as the unit."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray, dot
from ptt.diagnostics.statistics.clustered_share import TailShare, tail_shares
from ptt.diagnostics.statistics.pair_sample import mask_placeholders
from ptt.diagnostics.statistics.slices import model_runs

LARGE: Final = 0.2  # nats: the usual clip range, which such a token leaves before any update
MIN_TOKENS: Final = 500  # in each slice
MIN_LARGE: Final = 20  # post-tool tokens beyond LARGE: fewer show no shape
HEAD: Final = 8  # tokens after an observation: what a boundary that is cut otherwise reaches
LOGP_BINS: Final = 10
WEIGHT_CAP: Final = 20.0  # nats: above it a single weight would make up the whole sum
FRESH: Final = 0.1  # of the mean |r|: a step below it has next to no difference
MIN_STEPS: Final = 6  # in the later half, with at least MIN_STEP_TOKENS each
MIN_STEP_TOKENS: Final = 20
MIN_LAG_SEQUENCES: Final = 20  # on either side of the median lag


@dataclass(frozen=True, kw_only=True)
class SliceDose:
    """How far one slice's tokens lie apart, r = trainer - engine."""

    tokens: int
    mean: float  # of |r|, nats
    p95: float
    p99: float
    large: float  # share beyond LARGE
    ess: float  # (sum w)^2 / (n sum w^2) of w = exp(r)


@dataclass(frozen=True, kw_only=True)
class MismatchShape:
    """The differences of one pair by slice, and the shape of those after tool output; NaN: too little to tell.

    tail: share of tokens beyond LARGE after tool output, None with too few. explained: mean |r| after tool output that
    tokens of equal logprob have before it, over what it is. negative: share of r < 0 among those beyond LARGE. slope,
    r_squared: r on the engine's logprob. head, head_tokens: share of those beyond LARGE, and of all, within HEAD tokens
    of the observation. fresh, stale: mean |r| below and above the median lag. fresh_steps: of the later half of the
    steps, the share with next to no difference.
    """

    pair: str
    text: SliceDose
    post: SliceDose
    tail: TailShare | None
    explained: float
    negative: float
    slope: float
    r_squared: float
    head: float
    head_tokens: float
    fresh: float = math.nan
    stale: float = math.nan
    fresh_steps: float = math.nan


@dataclass(frozen=True)
class SampledDifferences:
    """The model tokens of the sampled sequences: r, the engine's logprob, and the place of each."""

    r: FloatArray
    logp: FloatArray
    turn: IntArray
    since: IntArray
    seq: IntArray
    step: IntArray

    def take(self, chosen: BoolArray) -> SampledDifferences:
        """Return the chosen tokens."""
        return SampledDifferences(
            *(getattr(self, name)[chosen] for name in ("r", "logp", "turn", "since", "seq", "step"))
        )


def mismatch_shape(
    samples: pl.DataFrame, *, numerator: str, denominator: str, pair: str, min_observation: int, lags: pl.DataFrame
) -> MismatchShape | None:
    """Measure the differences of one pair in the sampled sequences; None with too few tokens in either slice.

    `lags`: seq and lag, of those whose policy version is recorded.
    """
    tokens = sampled_differences(samples, numerator, denominator, min_observation)
    if tokens is None:
        return None
    after = tokens.turn > 0
    if min(np.count_nonzero(after), np.count_nonzero(~after)) < MIN_TOKENS:
        return None
    magnitude = np.abs(tokens.r)
    large, ones = (magnitude > LARGE).astype(np.int64), np.ones(len(after))
    tail = tail_shares(after, tokens.seq, large, ones, sequence=tokens.seq, wanted=[True], looks=1)[0]
    post = tokens.take(after)
    far = np.abs(post.r) > LARGE
    near = post.since < HEAD
    slope, r_squared = _slope(post.logp, post.r)
    fresh, stale = _by_lag(post, lags)
    return MismatchShape(
        pair=pair,
        text=_dose(tokens.take(~after).r),
        post=_dose(post.r),
        tail=tail if np.count_nonzero(far) >= MIN_LARGE else None,
        explained=_explained(tokens, after),
        negative=float((post.r[far] < 0).mean()) if far.any() else math.nan,
        slope=slope,
        r_squared=r_squared,
        head=float(near[far].mean()) if far.any() else math.nan,
        head_tokens=float(near.mean()),
        fresh=fresh,
        stale=stale,
        fresh_steps=_fresh_steps(post),
    )


def sampled_differences(
    samples: pl.DataFrame, numerator: str, denominator: str, min_observation: int
) -> SampledDifferences | None:
    """Lay the model tokens of all sampled sequences end to end; None where none has both logprobs."""
    parts: list[tuple[FloatArray, FloatArray, IntArray, IntArray, IntArray, IntArray]] = []
    for row in samples.drop_nulls([numerator, denominator, "model_mask", "step"]).iter_rows(named=True):
        mask = np.array(row["model_mask"], dtype=np.bool_)
        top, bottom = mask_placeholders(row[numerator]), mask_placeholders(row[denominator])
        if not len(mask) == len(top) == len(bottom) or not mask.any():
            continue
        runs = model_runs(mask, np.array([0, len(mask)]), np.array([min_observation]))
        within = np.arange(runs.length.sum()) - np.repeat(np.cumsum(runs.length) - runs.length, runs.length)
        with np.errstate(invalid="ignore"):
            r = (top - bottom)[mask]
        usable = np.isfinite(r)
        turn, since = np.repeat(runs.turn, runs.length), np.repeat(runs.since, runs.length) + within
        seq, step = (np.full(len(r), row[name], dtype=np.int64) for name in ("seq", "step"))
        columns = (r, bottom[mask], turn, since, seq, step)
        parts.append(tuple(column[usable] for column in columns))  # type: ignore[arg-type]
    if not parts:
        return None
    return SampledDifferences(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _dose(r: FloatArray) -> SliceDose:
    magnitude = np.abs(r)
    p95, p99 = (float(value) for value in np.quantile(magnitude, [0.95, 0.99]))
    weights = np.exp(np.clip(r, -WEIGHT_CAP, WEIGHT_CAP))
    return SliceDose(
        tokens=len(r),
        mean=float(magnitude.mean()),
        p95=p95,
        p99=p99,
        large=float((magnitude > LARGE).mean()),
        ess=float(weights.sum() ** 2 / (len(r) * np.square(weights).sum())),
    )


def _explained(tokens: SampledDifferences, after: BoolArray) -> float:
    """Return what |r| after tool output would be were it that of equally likely tokens before it, over what it is."""
    magnitude = np.abs(tokens.r)
    edges = np.quantile(tokens.logp[after], np.linspace(0, 1, LOGP_BINS + 1)[1:-1])
    bin_ = np.searchsorted(edges, tokens.logp)
    of_text = np.bincount(bin_[~after], weights=magnitude[~after], minlength=LOGP_BINS)
    count = np.bincount(bin_[~after], minlength=LOGP_BINS)
    post = np.bincount(bin_[after], minlength=LOGP_BINS)
    known = count > 0
    expected = np.divide(of_text, count, out=np.zeros(LOGP_BINS), where=known)
    actual = np.bincount(bin_[after], weights=magnitude[after], minlength=LOGP_BINS)[known].sum()
    return float((expected * post)[known].sum() / actual) if actual > 0 else math.nan


def _slope(logp: FloatArray, r: FloatArray) -> tuple[float, float]:
    x, y = logp - logp.mean(), r - r.mean()
    spread, total = dot(x, x), dot(y, y)
    if spread <= 0 or total <= 0:
        return math.nan, math.nan
    slope = dot(x, y) / spread
    return slope, slope * dot(x, y) / total


def _fresh_steps(post: SampledDifferences) -> float:
    """Return the share of steps in the later half at which the two sides hardly differ."""
    steps, index, count = np.unique(post.step, return_inverse=True, return_counts=True)
    mean = np.bincount(index, weights=np.abs(post.r)) / count
    later = (steps >= np.median(steps)) & (count >= MIN_STEP_TOKENS)
    if np.count_nonzero(later) < MIN_STEPS:
        return math.nan
    return float((mean[later] < FRESH * mean[later].mean()).mean())


def _by_lag(post: SampledDifferences, lags: pl.DataFrame) -> tuple[float, float]:
    """Return mean |r| of the sequences whose lag is at most the median, and above it."""
    known = dict(lags.drop_nulls().select("seq", "lag").iter_rows())
    lag = np.array([known.get(seq, math.nan) for seq in post.seq.tolist()], dtype=np.float64)
    usable = np.isfinite(lag)
    if not usable.any():
        return math.nan, math.nan
    stale = lag > np.median(lag[usable])
    means = []
    for chosen in (usable & ~stale, usable & stale):
        if len(np.unique(post.seq[chosen])) < MIN_LAG_SEQUENCES:
            return math.nan, math.nan
        means.append(float(np.abs(post.r[chosen]).mean()))
    return means[0], means[1]

"""Which pattern the differences between trainer and engine follow, token by token.

Measured on the scale of logits: u = logit(trainer) - logit(engine). A disturbance of the logits by d is u = d at a
likely token and at an unlikely one, while r = d (1 - p) vanishes where the policy is certain: on this scale levels of
different sequences, places and steps compare."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.flat_lists import flatten
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray, dot
from ptt.diagnostics.statistics.fill_values import NO_FILLS
from ptt.diagnostics.statistics.pair_sample import without_placeholders

BEFORE: Final = 2  # tokens before an observation that a text tokenised again changes
AFTER: Final = 3
CERTAIN: Final = -0.01  # nats: of more certain tokens the logit is rounding
SURE: Final = -0.05  # nats: equal logprobs of more certain tokens are no coincidence worth counting
UNLIKELY: Final = -12.0  # nats: beyond it both sides are in the tail of float16
MOST_LOGITS: Final = 6.0  # a single token must not rule a fit
LEAST_LOGITS: Final = 1e-4  # |u| of equal logprobs, under the logarithm
SMALLEST: Final = 1e-7  # -logp of a certain token in float32
MIN_OF_SEQUENCE: Final = 4  # tokens of a sequence with a level
MIN_BIG: Final = 30  # tokens to compare with their neighbours
BIG: Final = 0.3  # nats: a difference that no noise of healthy arithmetic makes often
MOST_PLACES: Final = 4  # that a part of the sequences may be shifted by; by how many all are, shifted-logprobs finds
NEIGHBOUR: Final = 0.25  # of |r|: so near lies the neighbour's logprob where columns are shifted
FAR: Final = 12.0  # times the level of the quietest quarter of the sequences
FAR_NATS: Final = 0.02  # of |r|, below which the harm is nobody's concern
UNCERTAIN: Final = -1e-3  # nats: beyond what float16 rounds to certainty
FIRSTS: Final = 8  # sequences with far tokens, for where they begin
AFFECTED: Final = 0.15  # of its tokens are far
HEAD: Final = 12  # tokens at the start of a sequence
BODY: Final = 40  # from this place on, nothing of the start is left
MIN_PART: Final = 50  # tokens on either side of such a comparison
EQUAL: Final = 0.9  # of the tokens of a copied sequence; the rest are certain to both
BINS: Final = 24  # of steps
FLOAT_BITS: Final = 0xFFFF  # of float32, which bfloat16 lacks
SHRUNK: Final = 5  # tokens of one kind, whose mean counts half
LEVELS: Final = 10  # classes of tokens by their logprob


@dataclass(frozen=True, kw_only=True)
class ScoredTokens:
    """Model tokens of sampled sequences in order, (n,) each; `row` counts the sequences, which the last four are of.

    boundary: within two tokens before an observation or three after one. reference: NaN where none is recorded. ids: of
    tokens, -1 where unknown. sample: equal for the same text at two steps. rank, lag: NaN where unknown.
    """

    row: IntArray
    place: IntArray
    trainer: FloatArray
    engine: FloatArray
    reference: FloatArray
    boundary: BoolArray
    ids: IntArray
    step: IntArray
    sample: IntArray
    rank: FloatArray
    lag: FloatArray


def lay_out_scored(rows: pl.DataFrame) -> ScoredTokens:
    """Lay sequences end to end: step, sample, rank, lag, model_mask and, as long as it, trainer and engine.

    reference and token_ids are left out where they are null or of another length.
    """
    length = pl.col("model_mask").list.len()
    rows = rows.with_columns(
        pl.when(pl.col(name).list.len() == length).then(pl.col(name)).otherwise(nothing.repeat_by(length)).alias(name)
        for name, nothing in (("reference", pl.lit(math.nan, pl.Float32)), ("token_ids", pl.lit(-1, pl.Int64)))
    )
    offsets, mask = flatten(rows["model_mask"])
    mask = mask.astype(np.bool_)
    row = np.repeat(np.arange(rows.height), np.diff(offsets))
    trainer, engine, reference = (
        without_placeholders(flatten(rows[name])[1].astype(np.float64), NO_FILLS)
        for name in ("trainer", "engine", "reference")
    )
    chosen = mask & np.isfinite(trainer) & np.isfinite(engine)
    step, sample = (rows[name].to_numpy().astype(np.int64) for name in ("step", "sample"))
    rank, lag = (rows[name].cast(pl.Float64).fill_null(math.nan).to_numpy() for name in ("rank", "lag"))
    return ScoredTokens(
        row=row[chosen],
        place=(np.arange(len(row)) - offsets[row])[chosen],
        trainer=trainer[chosen],
        engine=engine[chosen],
        reference=reference[chosen],
        boundary=_boundaries(mask, row)[chosen],
        ids=flatten(rows["token_ids"])[1].astype(np.int64)[chosen],
        step=step,
        sample=sample,
        rank=rank,
        lag=lag,
    )


def _boundaries(mask: BoolArray, row: IntArray) -> BoolArray:
    """Mark tokens within BEFORE of the next observation of their sequence, or AFTER of the last."""
    near = np.zeros(len(mask), np.bool_)
    for distance in range(1, max(BEFORE, AFTER) + 1):
        beside = row[distance:] == row[:-distance]
        if distance <= AFTER:
            near[distance:] |= beside & ~mask[:-distance]
        if distance <= BEFORE:
            near[:-distance] |= beside & ~mask[distance:]
    return near & mask


@dataclass(frozen=True, kw_only=True)
class MismatchFingerprint:
    """What the differences follow; NaN: too little to tell.

    mean: of |r|, nats. copied, copied_reference: share of sequences whose engine logprobs are the trainer's, or the
    reference's, to the bit. shifted: share of the tokens beyond BIG whose logprob is, on the other side, that of a
    token as many places away; unshifted: as many to the other side. negative: share of r < 0. certain: share of tokens
    to which the engine gives probability 1 and the trainer less. rounded: share of the engine's logprobs that bfloat16
    holds. signed: mean u over mean |u|. slope, r_squared: of u on the logit. one_rank, rank_share: log-level of the
    first rank above the second, and share of the variance of the sequences' levels between ranks. reference_gap:
    distance of the engine from the reference over its distance from the trainer. reference_follows: correlation of u
    with the trainer's distance from the reference. boundary: mean |u| at boundaries over that at the other tokens of
    the same sequences; boundary_signed: mean u there over mean |u|. firsts: sequences with far tokens; inside: share of
    the far tokens that are in affected sequences; persists: share of far tokens from the first on; far_negative; after:
    level from the first far token on, over the quiet one. start: log-level of the start of a sequence above its body,
    in the upper half of the sequences; start_signed. step_share: share of the levels' variance between steps. by_lag:
    correlation of level and lag. fall, spread, rise: largest drop of the log-level by step bins, their range, and their
    correlation with time. token_share: share of the variance of u that goes with the token's identity, within classes
    of equal logprob; body_token_share: of tokens from BODY on; token_start: size of what goes with the token in the
    first quarter of the steps, over that in the last half.
    """

    mean: float
    copied: float
    copied_reference: float
    shifted: float
    unshifted: float
    negative: float
    certain: float
    rounded: float
    signed: float
    slope: float
    r_squared: float
    one_rank: float
    rank_share: float
    reference_gap: float
    reference_follows: float
    boundary: float
    boundary_signed: float
    firsts: float
    inside: float
    persists: float
    far_negative: float
    after: float
    start: float
    start_signed: float
    step_share: float
    by_lag: float
    fall: float
    spread: float
    rise: float
    token_share: float
    body_token_share: float
    token_start: float


def mismatch_fingerprint(tokens: ScoredTokens) -> MismatchFingerprint | None:
    """Measure the patterns; None where hardly a token is uncertain."""
    r = tokens.trainer - tokens.engine
    u = np.clip(_logit(tokens.trainer) - _logit(tokens.engine), -MOST_LOGITS, MOST_LOGITS)
    low, high = np.minimum(tokens.trainer, tokens.engine), np.maximum(tokens.trainer, tokens.engine)
    use = (low < CERTAIN) & (high > UNLIKELY)
    if np.count_nonzero(use) < MIN_PART:
        return None
    log = np.log(np.abs(u) + LEAST_LOGITS)
    levels = _levels(log, tokens.row, use, len(tokens.step))
    moved = np.abs(r) > LEAST_LOGITS
    size = float(np.abs(u[use]).mean())
    return MismatchFingerprint(
        mean=float(np.abs(r).mean()),
        certain=float(((tokens.engine > -SMALLEST) & (tokens.trainer < UNCERTAIN)).mean()),
        rounded=float((_bits(tokens.engine[low < SURE]) & FLOAT_BITS == 0).mean()),
        negative=float((r[moved] < 0).mean()) if moved.any() else math.nan,
        signed=float(u[use].mean()) / size if size > 0 else math.nan,
        **_copies(tokens, low),
        **_shift(tokens, r),
        **_slope(0.5 * (_logit(tokens.trainer) + _logit(tokens.engine))[use], u[use]),
        **_ranks(levels, tokens.rank),
        **_reference(tokens, u, use),
        **_boundary(tokens, u, use),
        **_far(tokens, r, u, use, levels),
        **_start(tokens, log, u, use, levels),
        **_steps(levels, tokens),
        **_tokens(tokens, u, use & (tokens.ids >= 0)),
    )


def _bits(values: FloatArray) -> npt.NDArray[np.uint32]:
    return values.astype(np.float32).view(np.uint32)


def _logit(logp: FloatArray) -> FloatArray:
    capped = np.minimum(logp, -SMALLEST)
    result: FloatArray = capped - np.log(-np.expm1(capped))
    return result


def _levels(log: FloatArray, row: IntArray, use: BoolArray, rows: int) -> FloatArray:
    """Return the mean log |u| of each sequence; NaN with too few tokens."""
    count = np.bincount(row[use], minlength=rows)
    total = np.bincount(row[use], weights=log[use], minlength=rows)
    return np.where(count >= MIN_OF_SEQUENCE, total / np.maximum(count, 1), math.nan)


def _share(part: BoolArray | FloatArray, of: BoolArray, row: IntArray, rows: int) -> FloatArray:
    """Return, by sequence, the share of `part` in `of`; NaN with too few tokens."""
    count = np.bincount(row[of], minlength=rows)
    held = np.bincount(row[of], weights=part[of].astype(np.float64), minlength=rows)
    return np.where(count >= MIN_OF_SEQUENCE, held / np.maximum(count, 1), math.nan)


def _copies(tokens: ScoredTokens, low: FloatArray) -> dict[str, float]:
    """Count sequences whose engine logprobs are the trainer's, or the reference's where that is not the trainer's."""
    unsure, rows = low < SURE, len(tokens.step)
    equal = _share(tokens.trainer == tokens.engine, unsure, tokens.row, rows)
    other = unsure & (tokens.reference != tokens.trainer) & np.isfinite(tokens.reference)
    reference = _share(tokens.reference == tokens.engine, other, tokens.row, rows)
    known = np.isfinite(equal)
    return {
        "copied": float((equal[known] > EQUAL).mean()) if known.any() else math.nan,
        "copied_reference": float((reference[known] > EQUAL).mean()) if known.any() else math.nan,
    }


def _shift(tokens: ScoredTokens, r: FloatArray) -> dict[str, float]:
    """Look whether tokens that are off have the logprob of a token some places before, or after, on the other side."""
    found = {"shifted": math.nan, "unshifted": math.nan}
    for lag in range(1, MOST_PLACES + 1):
        beside = tokens.row[lag:] == tokens.row[:-lag]
        shares = []
        for there, here, gap in (
            (tokens.engine[:-lag], tokens.trainer[lag:], r[lag:]),
            (tokens.engine[lag:], tokens.trainer[:-lag], r[:-lag]),
        ):
            big = beside & (np.abs(gap) > BIG)
            near = np.abs(here - there)[big] < NEIGHBOUR * np.abs(gap[big])
            shares.append(float(near.mean()) if np.count_nonzero(big) >= MIN_BIG else math.nan)
        if math.isnan(found["shifted"]) or max(shares) > found["shifted"]:
            found = {"shifted": max(shares), "unshifted": min(shares)}
    return found


def _slope(logit: FloatArray, u: FloatArray) -> dict[str, float]:
    """Fit u = slope * logit, through 0: a temperature leaves even odds even."""
    spread, total = dot(logit, logit), dot(u, u)
    if spread <= 0 or total <= 0:
        return {"slope": math.nan, "r_squared": math.nan}
    slope = dot(logit, u) / spread
    return {"slope": slope, "r_squared": slope * dot(logit, u) / total}


def _between(levels: FloatArray, key: FloatArray) -> tuple[FloatArray, float]:
    """Return the mean level of each group, in order, and the share of the levels' variance between groups."""
    known = np.isfinite(levels) & np.isfinite(key)
    groups, index = np.unique(key[known], return_inverse=True)
    if len(groups) < 2:
        return np.empty(0), math.nan
    value = levels[known]
    means = np.bincount(index, weights=value) / np.bincount(index)
    total = float(np.square(value - value.mean()).sum())
    return means, float(np.square(means[index] - value.mean()).sum()) / total if total > 0 else math.nan


def _ranks(levels: FloatArray, rank: FloatArray) -> dict[str, float]:
    means, share = _between(levels, rank)
    top = np.sort(means)[::-1]
    return {"one_rank": float(top[0] - top[1]) if len(top) > 1 else math.nan, "rank_share": share}


def _reference(tokens: ScoredTokens, u: FloatArray, use: BoolArray) -> dict[str, float]:
    chosen = use & np.isfinite(tokens.reference)
    nothing = {"reference_gap": math.nan, "reference_follows": math.nan}
    if np.count_nonzero(chosen) < MIN_PART:
        return nothing
    reference = _logit(tokens.reference[chosen])
    engine, trainer = (
        np.clip(reference - _logit(side[chosen]), -MOST_LOGITS, MOST_LOGITS) for side in (tokens.engine, tokens.trainer)
    )
    own = float(np.abs(u[chosen]).mean())
    if own <= 0 or np.ptp(trainer) <= 0:
        return nothing
    return {
        "reference_gap": float(np.abs(engine).mean()) / own,
        "reference_follows": _correlation(u[chosen], trainer),
    }


def _correlation(x: FloatArray, y: FloatArray) -> float:
    dx, dy = x - x.mean(), y - y.mean()
    size = math.sqrt(dot(dx, dx) * dot(dy, dy))
    return dot(dx, dy) / size if size > 0 else math.nan


def _boundary(tokens: ScoredTokens, u: FloatArray, use: BoolArray) -> dict[str, float]:
    bounded = np.zeros(len(tokens.step), np.bool_)
    bounded[tokens.row[tokens.boundary]] = True
    around = use & bounded[tokens.row]
    at, beside = u[around & tokens.boundary], np.abs(u[around & ~tokens.boundary])
    if min(len(at), len(beside)) < MIN_PART or not (at.any() and beside.any()):
        return {"boundary": math.nan, "boundary_signed": math.nan}
    size = float(np.abs(at).mean())
    return {"boundary": size / float(beside.mean()), "boundary_signed": float(at.mean()) / size}


def _far(tokens: ScoredTokens, r: FloatArray, u: FloatArray, use: BoolArray, levels: FloatArray) -> dict[str, float]:
    """Look where the tokens lie that are far above the quietest quarter of the sequences."""
    known, rows, magnitude = np.isfinite(levels), len(tokens.step), np.abs(u)
    quiet = math.exp(float(np.quantile(levels[known], 0.25))) if known.any() else math.nan
    far = use & (magnitude > FAR * quiet) & (np.abs(r) > FAR_NATS)
    own = _share(far, use, tokens.row, rows)
    number = np.bincount(tokens.row[far], minlength=rows)
    at = np.flatnonzero(far)
    begin, index = np.unique(tokens.row[at], return_index=True)
    several = number[begin] > 1
    first = at[index[several]]
    onset = np.full(rows, len(r))
    onset[tokens.row[first]] = first
    after = use & (np.arange(len(r)) >= onset[tokens.row])
    held = np.nansum(own[known])
    return {
        "firsts": float(len(first)),
        "inside": float(np.nansum(own[known & (own >= AFFECTED)]) / held) if held > 0 else math.nan,
        "persists": float(far[after].mean()) if after.any() else math.nan,
        "far_negative": float((r[far] < 0).mean()) if far.any() else math.nan,
        "after": float(np.median(magnitude[after])) / quiet if np.count_nonzero(after) >= MIN_PART else math.nan,
    }


def _start(
    tokens: ScoredTokens, log: FloatArray, u: FloatArray, use: BoolArray, levels: FloatArray
) -> dict[str, float]:
    upper = levels > np.nanmedian(levels) if np.isfinite(levels).any() else np.zeros(len(levels), np.bool_)
    head, body = use & (tokens.place < HEAD), use & (tokens.place >= BODY) & upper[tokens.row]
    steep = head & upper[tokens.row]
    if min(np.count_nonzero(steep), np.count_nonzero(body)) < MIN_PART or not u[head].any():
        return {"start": math.nan, "start_signed": math.nan}
    return {
        "start": float(log[steep].mean() - log[body].mean()),
        "start_signed": float(u[head].mean() / np.abs(u[head]).mean()),
    }


def _steps(levels: FloatArray, tokens: ScoredTokens) -> dict[str, float]:
    """Return how the levels go with the step and with the lag."""
    known = np.isfinite(levels) & np.isfinite(tokens.lag)
    by_lag = _correlation(levels[known], tokens.lag[known]) if np.count_nonzero(known) >= MIN_PART else math.nan
    steps, index = np.unique(tokens.step, return_inverse=True)
    width = max(2, -(-len(steps) // BINS))
    course, _ = _between(levels, (index // width).astype(np.float64))
    share = _between(levels, tokens.step.astype(np.float64))[1]
    if len(course) < FIRSTS:
        return {"step_share": share, "by_lag": by_lag, "fall": math.nan, "spread": math.nan, "rise": math.nan}
    return {
        "step_share": share,
        "by_lag": by_lag,
        "fall": float((np.maximum.accumulate(course) - course).max()),
        "spread": float(np.ptp(course)),
        "rise": _correlation(np.arange(len(course), dtype=np.float64), course),
    }


def _tokens(tokens: ScoredTokens, u: FloatArray, use: BoolArray) -> dict[str, float]:
    """Measure what goes with the token's identity, from products across different samples alone."""
    share, start = _by_token(tokens, u, use)
    body = _by_token(tokens, u, use & (tokens.place >= BODY))[0]
    return {"token_share": share, "body_token_share": body, "token_start": start}


def _by_token(tokens: ScoredTokens, u: FloatArray, use: BoolArray) -> tuple[float, float]:
    """Return the share of the variance of u between token ids, and how much of their means is there at the start."""
    if np.count_nonzero(use) < MIN_PART:
        return math.nan, math.nan
    sample = tokens.sample[tokens.row[use]]
    value = _within_classes(u[use], tokens.engine[use])
    kind = np.unique(tokens.ids[use], return_inverse=True)[1]
    once, of = np.unique(kind * (int(sample.max()) + 1) + sample, return_inverse=True)
    sums, size = np.bincount(of, weights=value), np.bincount(of).astype(np.float64)
    kinds = once // (int(sample.max()) + 1)
    all_sums, all_size = np.bincount(kinds, weights=sums), np.bincount(kinds, weights=size)
    pairs = float(np.square(all_size).sum() - np.square(size).sum())
    products = float(np.square(all_sums).sum() - np.square(sums).sum())
    variance = float(value.var())
    if pairs <= 0 or variance <= 0:
        return math.nan, math.nan
    others = (all_sums[kinds] - sums) / (all_size[kinds] - size + SHRUNK)
    steps, at = np.unique(tokens.step, return_inverse=True)
    quarter = (4 * at // len(steps))[tokens.row[use]]
    slopes = [
        dot(value[part], others[of[part]]) / dot(others[of[part]], others[of[part]])
        if others[of[part]].any()
        else math.nan
        for part in (quarter == 0, quarter >= 2)
    ]
    return products / pairs / variance, slopes[0] / slopes[1] if slopes[1] > 0 else math.nan


def _within_classes(value: FloatArray, logp: FloatArray) -> FloatArray:
    """Return the values, bounded, less the mean of those at about the same logprob."""
    bound = 3 * float(np.quantile(np.abs(value), 0.9))
    value = np.clip(value, -bound, bound)
    class_ = np.searchsorted(np.quantile(logp, np.linspace(0, 1, LEVELS + 1)[1:-1]), logp)
    result: FloatArray = value - (np.bincount(class_, weights=value) / np.maximum(np.bincount(class_), 1))[class_]
    return result

"""Which pattern the differences between trainer and engine follow, token by token.

Measured on the scale of logits: u = logit(trainer) - logit(engine). A disturbance of the logits by d is u = d at a
likely token and at an unlikely one, while r = d (1 - p) vanishes where the policy is certain: on this scale levels of
different sequences, places and steps compare."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray, dot
from ptt.diagnostics.statistics.mismatch_levels import (
    MIN_OF_SEQUENCE,
    MIN_PART,
    by_order,
    by_rank,
    by_step,
    correlation,
    sequence_levels,
)
from ptt.diagnostics.statistics.scored_tokens import ScoredTokens

CERTAIN: Final = -0.01  # nats: of more certain tokens the logit is rounding
SURE: Final = -0.05  # nats: equal logprobs of more certain tokens are no coincidence worth counting
OFF_BY: Final = 0.1  # of the logprob
SOME_OFF: Final = 0.1  # of the tokens: of fewer no factor is told
ALIKE: Final = 0.1  # of the factor: bfloat16 and the noise of engines leave less at such tokens
UNLIKELY: Final = -12.0  # nats: beyond it both sides are in the tail of float16
MOST_LOGITS: Final = 6.0  # a single token must not rule a fit
LEAST_LOGITS: Final = 1e-4  # |u| of equal logprobs, under the logarithm
SMALLEST: Final = 1e-7  # -logp of a certain token in float32
MIN_BIG: Final = 30  # tokens to compare with their neighbours
BIG: Final = 0.3  # nats: a difference that no noise of healthy arithmetic makes often
MOST_PLACES: Final = 4  # that a part of the sequences may be shifted by; by how many all are, shifted-logprobs finds
NEIGHBOUR: Final = 0.25  # of |r|: so near lies the neighbour's logprob where columns are shifted
FAR: Final = 12.0  # times the level of the quietest quarter of the sequences
FAR_NATS: Final = 0.02  # of |r|, below which the harm is nobody's concern
UNCERTAIN: Final = -1e-3  # nats: beyond what float16 rounds to certainty
AFFECTED: Final = 0.15  # of its tokens are far
HEAD: Final = 12  # tokens at the start of a sequence
BODY: Final = 40  # from this place on, nothing of the start is left
MIN_STARTS: Final = 24  # sequences with a level of their start
EQUAL: Final = 0.9  # of the tokens of a copied sequence; the rest are certain to both
FLOAT_BITS: Final = 0x1FFF  # of float32, which float16 lacks, and bfloat16 with more
SHRUNK: Final = 5  # tokens of one kind, whose mean counts half
LEVELS: Final = 10  # classes of tokens by their logprob
USUAL: Final = 3.0  # times the 0.9 quantile: beyond it a value rules a fit
CLOSE: Final = 0.5  # of the distance to the other side: a sequence belongs to the nearer one
QUIET_TOKENS: Final = 0.35  # quantile of |u| within a sequence that the tokens set apart do not reach
APART: Final = 8.0  # times it
MIN_OF_QUIET: Final = 8  # tokens of a sequence with such a quantile
BEYOND_CHANCE: Final = 5.0  # standard deviations; heavy tails reach 3
QUIET: Final = 1.2  # nats below the median log-level: sequences of one kind lie within it


@dataclass(frozen=True, kw_only=True)
class MismatchFingerprint:
    """What the differences follow; NaN: too little to tell.

    mean: of |r|, nats. copied, copied_reference: share of sequences whose engine logprobs are the trainer's, or the
    reference's, to the bit. shifted: share of the tokens beyond BIG whose logprob is, on the other side, that of a
    token as many places away; unshifted: as many to the other side. negative: share of r < 0. certain: share of tokens
    to which the engine gives probability 1 and the trainer less. rounded: share of the engine's logprobs that a float
    of 16 bits holds, less that of the trainer's: 0 where all columns are stored so. signed: mean u over mean |u|.
    slope, r_squared: of u on the logit. one_factor: share of the tokens that are off whose r is in one proportion to
    the engine's logprob. one_rank, rank_share: log-level of the first rank above the second, and share
    of the variance of the sequences' levels between ranks. reference_gap: distance of the engine from the reference
    over its distance from the trainer. reference_follows: correlation of u with the trainer's distance from the
    reference, reference_slope: its slope on it, 1 where the engine is the reference, whatever the noise. at_reference,
    at_trainer: share of sequences that are twice as near to the one; near_slope: the slope in those at the reference.
    follows_update: correlation of u with what the updates on the batch moved. by_prompt: variance of the sequences'
    levels between the prompts of a step, over that within them. boundary: mean |u| at boundaries over that at the other
    tokens of the same sequences; boundary_signed: mean u there over mean |u|. later_turns: log-level after a sequence's
    first observation above that before it, in the median. firsts: sequences with far tokens; inside: share of the far
    tokens that are in affected sequences; persists: share of far tokens from the first on; far_negative; after: level
    from the first far token on, over the quiet one. start: log-level of the start of a sequence above its body, in the
    upper half of the sequences; start_signed; quiet_starts: share of sequences whose start is far below the usual one.
    apart: share of tokens far above the quiet ones of their own sequence; apart_negative; apart_place: where they are
    on average, from 0, the start of a sequence, to 1. climbs: how much more often than by chance a sequence is further
    off than the one before it in the file (standard normal). off_share, off_gap: of the further of two classes of
    sequences, its share and how far its mean log-level lies above; spaced: how much more rarely than by chance two of
    the nearer follow each other (standard deviations). step_share: share of the levels' variance between steps. by_lag:
    correlation of level and lag. fall, spread, rise: largest drop of the log-level by step bins, their range, and their
    correlation with time. memory: correlation of u at neighbouring tokens, 0 where chance could make it. token_share:
    share of the variance of u that goes with the token's identity, within classes of equal logprob; body_token_share:
    of tokens from BODY on; token_start: size of what goes with the token in the first quarter of the steps, over that
    in the last half.
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
    one_factor: float
    one_rank: float
    rank_share: float
    reference_gap: float
    reference_follows: float
    reference_slope: float
    near_slope: float
    at_reference: float
    at_trainer: float
    follows_update: float
    by_prompt: float
    boundary: float
    boundary_signed: float
    later_turns: float
    firsts: float
    inside: float
    persists: float
    far_negative: float
    after: float
    start: float
    start_signed: float
    apart: float
    apart_negative: float
    apart_place: float
    climbs: float
    off_share: float
    off_gap: float
    spaced: float
    quiet_starts: float
    step_share: float
    by_lag: float
    fall: float
    spread: float
    rise: float
    memory: float
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
    levels = sequence_levels(log, tokens.row, use, len(tokens.step))
    moved = np.abs(r) > LEAST_LOGITS
    size = float(np.abs(u[use]).mean())
    return MismatchFingerprint(
        mean=float(np.abs(r).mean()),
        certain=float(((tokens.engine > -SMALLEST) & (tokens.trainer < UNCERTAIN)).mean()),
        rounded=_in_16_bits(tokens.engine[low < SURE]) - _in_16_bits(tokens.trainer[low < SURE]),
        negative=float((r[moved] < 0).mean()) if moved.any() else math.nan,
        signed=float(u[use].mean()) / size if size > 0 else math.nan,
        **_copies(tokens, low),
        **_shift(tokens, r),
        one_factor=_one_factor(tokens.engine, r),
        **_slope(0.5 * (_logit(tokens.trainer) + _logit(tokens.engine))[use], u[use]),
        **by_rank(levels, tokens.rank),
        **_reference(tokens, u, use),
        follows_update=_follows_update(tokens, u, use),
        **_boundary(tokens, u, use),
        later_turns=_later_turns(tokens, log, use),
        **_far(tokens, r, u, use, levels),
        **_start(tokens, log, u, use, levels),
        **_apart(tokens, u, use),
        **by_order(levels, tokens),
        **by_step(levels, tokens),
        memory=_memory(tokens, u, use, levels),
        **_tokens(tokens, u, use & (tokens.ids >= 0)),
    )


def _in_16_bits(values: FloatArray) -> float:
    return float((values.astype(np.float32).view(np.uint32) & FLOAT_BITS == 0).mean())


def _logit(logp: FloatArray) -> FloatArray:
    capped = np.minimum(logp, -SMALLEST)
    result: FloatArray = capped - np.log(-np.expm1(capped))
    return result


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


def _one_factor(engine: FloatArray, r: FloatArray) -> float:
    """Return the share of tokens off by more than a tenth that one factor explains, whichever sequences they are of."""
    ratio = r[engine < SURE] / engine[engine < SURE]
    off = ratio[np.abs(ratio) > OFF_BY]
    if len(off) < max(MIN_PART, SOME_OFF * len(ratio)):
        return math.nan
    usual = float(np.median(off))
    return float((np.abs(off - usual) < ALIKE * abs(usual)).mean())


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
    slope, total = _slope_of(u, logit), dot(u, u)
    if math.isnan(slope) or total <= 0:
        return {"slope": math.nan, "r_squared": math.nan}
    return {"slope": slope, "r_squared": slope * dot(logit, u) / total}


def _reference(tokens: ScoredTokens, u: FloatArray, use: BoolArray) -> dict[str, float]:
    chosen = use & np.isfinite(tokens.reference)
    names = "reference_gap", "reference_follows", "reference_slope", "near_slope", "at_reference", "at_trainer"
    if np.count_nonzero(chosen) < MIN_PART:
        return dict.fromkeys(names, math.nan)
    reference = _logit(tokens.reference[chosen])
    engine, trainer = (
        np.clip(reference - _logit(side[chosen]), -MOST_LOGITS, MOST_LOGITS) for side in (tokens.engine, tokens.trainer)
    )
    row, own, rows = tokens.row[chosen], u[chosen], len(tokens.step)
    if not own.any() or np.ptp(trainer) <= 0:
        return dict.fromkeys(names, math.nan)
    usual = np.abs(trainer) <= _usual(trainer)
    count, apart, beside = (np.bincount(row, weights=of, minlength=rows) for of in (None, np.abs(own), np.abs(engine)))
    known = count >= MIN_OF_SEQUENCE
    near = (beside < CLOSE * apart, apart < CLOSE * beside)
    shares = ((one & known).sum() / max(known.sum(), 1) for one in near)
    of_near = usual & near[0][row]
    values = (
        float(np.abs(engine).mean()) / float(np.abs(own).mean()),
        correlation(own, trainer),
        _slope_of(own[usual], -trainer[usual]),
        _slope_of(own[of_near], -trainer[of_near]),
        *map(float, shares),
    )
    return dict(zip(names, values, strict=True))


def _slope_of(value: FloatArray, on: FloatArray) -> float:
    """Return the slope of a line through 0."""
    size = dot(on, on)
    return dot(value, on) / size if size > 0 else math.nan


def _usual(values: FloatArray) -> float:
    return USUAL * float(np.quantile(np.abs(values), 0.9))


def _follows_update(tokens: ScoredTokens, u: FloatArray, use: BoolArray) -> float:
    moved = use & np.isfinite(tokens.policy) & (np.abs(tokens.policy - tokens.trainer) > LEAST_LOGITS)
    if np.count_nonzero(moved) < MIN_PART:
        return math.nan
    movement = _logit(tokens.policy[moved]) - _logit(tokens.trainer[moved])
    return correlation(*(np.clip(one, -_usual(one), _usual(one)) for one in (u[moved], movement)))


def _boundary(tokens: ScoredTokens, u: FloatArray, use: BoolArray) -> dict[str, float]:
    bounded = np.zeros(len(tokens.step), np.bool_)
    bounded[tokens.row[tokens.boundary]] = True
    around = use & bounded[tokens.row]
    at, beside = u[around & tokens.boundary], np.abs(u[around & ~tokens.boundary])
    if min(len(at), len(beside)) < MIN_PART or not (at.any() and beside.any()):
        return {"boundary": math.nan, "boundary_signed": math.nan}
    size = float(np.abs(at).mean())
    return {"boundary": size / float(beside.mean()), "boundary_signed": float(at.mean()) / size}


def _later_turns(tokens: ScoredTokens, log: FloatArray, use: BoolArray) -> float:
    rows, same = len(tokens.step), tokens.row[1:] == tokens.row[:-1]
    gaps = np.cumsum(np.append(False, same & (np.diff(tokens.place) > 1)))
    begin = np.append(True, ~same)
    later = gaps > gaps[begin][np.cumsum(begin) - 1]
    apart = sequence_levels(log, tokens.row, use & later, rows) - sequence_levels(log, tokens.row, use & ~later, rows)
    known = apart[np.isfinite(apart)]
    return float(np.median(known)) if len(known) >= MIN_STARTS else math.nan


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
        return {"start": math.nan, "start_signed": math.nan, "quiet_starts": math.nan}
    starts = sequence_levels(log, tokens.row, head, len(levels))
    starts = starts[np.isfinite(starts)]
    return {
        "start": float(log[steep].mean() - log[body].mean()),
        "start_signed": float(u[head].mean() / np.abs(u[head]).mean()),
        "quiet_starts": float((starts < np.median(starts) - QUIET).mean()) if len(starts) >= MIN_STARTS else math.nan,
    }


def _apart(tokens: ScoredTokens, u: FloatArray, use: BoolArray) -> dict[str, float]:
    """Count the tokens far above the quiet ones of their own sequence: noise of any size leaves few."""
    row, magnitude = tokens.row[use], np.abs(u[use])
    ordered = np.sort(row + magnitude / (2 * MOST_LOGITS)) % 1 * (2 * MOST_LOGITS)  # by sequence, then by size
    count = np.bincount(row, minlength=len(tokens.step))
    enough = count >= MIN_OF_QUIET
    begin = np.cumsum(count) - count
    quiet = np.full(len(count), math.nan)
    quiet[enough] = ordered[(begin + (QUIET_TOKENS * count).astype(np.int64))[enough]]
    judged = enough[row]
    far = judged & (magnitude > APART * quiet[row])
    far_enough = np.count_nonzero(far) >= MIN_BIG
    within = (np.arange(len(row)) - begin[row]) / count[row]  # from 0, the first token of its sequence, to 1
    return {
        "apart": float(far.sum() / judged.sum()) if judged.any() else math.nan,
        "apart_place": float(within[far].mean()) if far_enough else math.nan,
        "apart_negative": float((u[use][far] < 0).mean()) if far_enough else math.nan,
    }


def _memory(tokens: ScoredTokens, u: FloatArray, use: BoolArray, levels: FloatArray) -> float:
    """Return how alike neighbouring tokens are off, in units of their sequence's level; each sample counts once."""
    once = np.zeros(len(levels), np.bool_)
    once[np.unique(tokens.sample, return_index=True)[1]] = True
    known = use & (once & np.isfinite(levels))[tokens.row]
    row = tokens.row[known]
    beside = row[1:] == row[:-1]
    if np.count_nonzero(beside) < MIN_PART:
        return math.nan
    value = _within_classes(u[known] / np.exp(levels[row]), (tokens.trainer + tokens.engine)[known])
    spread = float(value.std())
    memory = float((value[1:] * value[:-1])[beside].mean()) / spread**2 if spread > SMALLEST else 0.0
    return memory if memory * math.sqrt(np.count_nonzero(beside)) > BEYOND_CHANCE else 0.0


def _tokens(tokens: ScoredTokens, u: FloatArray, use: BoolArray) -> dict[str, float]:
    """Measure what goes with the token's identity, from products across different samples alone.

    Among tokens to which one side gives the same logprob, that side's noise goes with the identity: the smaller counts.
    """
    share, start = min(_by_token(tokens, u, use))
    return {
        "token_share": share,
        "body_token_share": min(_by_token(tokens, u, use & (tokens.place >= BODY)))[0],
        "token_start": start,
    }


def _by_token(tokens: ScoredTokens, u: FloatArray, use: BoolArray) -> list[tuple[float, float]]:
    """Return the share of the variance of u between token ids, and how much of their means is there at the start.

    Once among tokens of equal logprob to the engine, and once to the trainer.
    """
    if np.count_nonzero(use) < MIN_PART:
        return [(math.nan, math.nan)]
    sample = tokens.sample[tokens.row[use]]
    kind = np.unique(tokens.ids[use], return_inverse=True)[1]
    once, of = np.unique(kind * (int(sample.max()) + 1) + sample, return_inverse=True)
    kinds = once // (int(sample.max()) + 1)
    steps, at = np.unique(tokens.step, return_inverse=True)
    quarter = (4 * at // len(steps))[tokens.row[use]]
    sides = (_within_classes(u[use], side[use]) for side in (tokens.engine, tokens.trainer))
    return [_between_kinds(value, of, kinds, quarter) for value in sides]


def _between_kinds(value: FloatArray, of: IntArray, kinds: IntArray, quarter: IntArray) -> tuple[float, float]:
    """Compare groups of tokens; `of`: the group of each, a kind in one sample; `kinds`: the kind of each group."""
    sums, size = np.bincount(of, weights=value), np.bincount(of).astype(np.float64)
    all_sums, all_size = np.bincount(kinds, weights=sums), np.bincount(kinds, weights=size)
    pairs = float(np.square(all_size).sum() - np.square(size).sum())
    products = float(np.square(all_sums).sum() - np.square(sums).sum())
    variance = float(value.var())
    if pairs <= 0 or variance <= 0:
        return math.nan, math.nan
    others = ((all_sums[kinds] - sums) / (all_size[kinds] - size + SHRUNK))[of]
    slopes = [_slope_of(value[part], others[part]) for part in (quarter == 0, quarter >= 2)]
    return products / pairs / variance, slopes[0] / slopes[1] if slopes[1] > 0 else math.nan


def _within_classes(value: FloatArray, logp: FloatArray) -> FloatArray:
    """Return the values, bounded, less the mean of those at about the same logprob."""
    bound = 3 * float(np.quantile(np.abs(value), 0.9))
    value = np.clip(value, -bound, bound)
    class_ = np.searchsorted(np.quantile(logp, np.linspace(0, 1, LEVELS + 1)[1:-1]), logp)
    result: FloatArray = value - (np.bincount(class_, weights=value) / np.maximum(np.bincount(class_), 1))[class_]
    return result

"""What the usual guards would have taken from the tail of the update, and what they would have cost of the rest.

Replayed on recorded tokens: what a guard would have taken from this update, not how the run would have gone on with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence.sampled_tokens import AuditedTokens
from ptt.diagnostics.model import GuardPrice, Interval
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray
from ptt.diagnostics.statistics.clipping_replay import (
    BAND,
    TOKEN_GUARDS,
    VETO_RATIO,
    Guard,
    guarded_pair,
)
from ptt.diagnostics.statistics.gradient_shares import Taken, part_taken
from ptt.diagnostics.statistics.token_weights import CLIPPED, MAX_LOG_RATIO, Objective, token_weights

SPREAD: Final = 3.0  # by which norms of scores are off: holds 97% of shares against gradients (docs/ledger.md)
HOLDS: Final = 1.25  # times the early second moment: nobody acts on a smaller rise
CLIP_FACTORS: Final = (0.1, 0.5, 1.4)  # times the clip range; the last is DAPO's 0.28 for 0.2
BEHAVIOUR: Final = ("policy/rollout", "policy/old")  # pairs with the policy that sampled, best first
OFF_POLICY: Final = 0.005  # nats, mean over a sequence: the mask of DeepSeek-V3.2 and TRL, which leave it to the user
KL_FACTORS: Final = (10.0, 50.0)
REPLAYED: Final = ("tis-2", "tis-5", "icepop-0.5-2", "mis-2")
SCHEMA_BOUND: Final = "an upper bound: as if tokens after tools had the tail of those before; its cost is not known"
PRICES: Final[dict[str, pl.DataType]] = {
    "guard": pl.String(),
    "pair": pl.String(),
    "tail_low": pl.Float64(),
    "tail_high": pl.Float64(),
    "cost_low": pl.Float64(),
    "cost_high": pl.Float64(),
    "second_moment": pl.Float64(),  # late with the guard, over early without
    "holds": pl.Boolean(),
    "reason": pl.String(),
}
Weights = Iterator[tuple[str, str | None, FloatArray]]
"""Guards by name, the pair that they look at, and the weights that they leave, (tokens,)."""


def second_moments(
    size: FloatArray, step: np.ndarray, *, early: BoolArray, late: BoolArray, of: FloatArray | None = None
) -> float | None:
    """Return the mean sum of squared contributions of a late step over that of an early one; None where there is none.

    `of`: the early contributions, where they are others than the late ones.
    """
    before, after = (
        float((values[chosen] ** 2).sum()) / max(len(np.unique(step[chosen])), 1)
        for values, chosen in ((size if of is None else of, early), (size, late))
    )
    return after / before if before > 0 else None


def price_guards(
    audited: AuditedTokens, objective: Objective, norm: FloatArray, *, early: BoolArray, late: BoolArray
) -> tuple[GuardPrice, ...]:
    """Return what each guard takes of the late window; none where nothing lies in the tail."""
    weights = token_weights(audited.policy, objective)
    before, tail = np.abs(weights.total) * norm, late & audited.tail
    if not tail.any():
        return ()
    prices = []
    for name, pair, left in guarded_weights(audited, objective):
        after = np.abs(left) * norm
        taken, cost = (part_taken(before[part], after[part], SPREAD) for part in (tail, late & ~audited.tail))
        moment = second_moments(after, audited.step, early=early, late=late, of=before)
        prices.append(
            GuardPrice(
                guard=name, pair=pair, tail=_known(taken), cost=_known(cost), second_moment=moment,
                holds=moment is not None and moment <= HOLDS,
            )
        )  # fmt: skip
    return (*prices, *_one_schema(audited, before, late))


def _known(taken: Taken) -> Interval | None:
    """Return the bounds; None where there is nothing to take."""
    return None if math.isnan(taken.low) else (taken.low, taken.high)


def cheapest_guard(prices: Sequence[GuardPrice], unguarded: float | None) -> str | None:
    """Return the guard that costs least among those that hold the second moment; None where none does or none need."""
    holding = [price for price in prices if price.holds and price.cost is not None]
    if unguarded is None or unguarded <= HOLDS or not holding:
        return None
    return min(holding, key=lambda price: (price.cost or (0.0, 0.0))[1]).name


def guard_table(prices: Sequence[GuardPrice]) -> pl.DataFrame:
    """Return the prices as a table (PRICES)."""
    none = (None, None)
    rows = [
        (price.guard, price.pair, *(price.tail or none), *(price.cost or none), price.second_moment, price.holds,
         price.reason or None)
        for price in prices
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=PRICES, orient="row")


def guarded_weights(audited: AuditedTokens, objective: Objective) -> Weights:
    """Yield every guard that the recorded columns allow; none but a factor of the KL touches the KL's own weights."""
    policy = audited.policy
    weights = token_weights(policy, objective)
    if objective.surrogate == CLIPPED and policy.ratio is not None:
        for factor in CLIP_FACTORS:
            clip = replace(objective, low=objective.low * factor, high=objective.high * factor)
            yield f"clip-x{factor:g}", "policy/old", token_weights(policy, clip).total
    for pair in _guarded_pairs(audited):
        rho = np.exp(np.clip(audited.pairs[pair], -MAX_LOG_RATIO, MAX_LOG_RATIO))
        for guard in TOKEN_GUARDS:
            if guard.name in REPLAYED:
                yield guard.name, pair, weights.policy * guard_factor(rho, guard) + weights.kl
    for name, looks_at, out in _rows_left_out(audited):
        yield name, looks_at, np.where(out[policy.row], 0.0, weights.policy) + weights.kl
    for factor in KL_FACTORS if objective.kl and policy.ref is not None else ():
        yield f"kl-x{factor:g}", "policy/ref", weights.policy + factor * weights.kl


def _guarded_pairs(audited: AuditedTokens) -> list[str]:
    """Return the pair that trainers guard, and the main pair of the tails where it is another."""
    names = list(audited.pairs)
    return list(dict.fromkeys((names[guarded_pair(names, set(range(len(names))))], names[0]))) if names else []


def guard_factor(rho: FloatArray, guard: Guard) -> FloatArray:
    """Return by what a guard multiplies weights that contain the ratio rho: 0, or cap over rho, beyond its limits."""
    above = 0.0 if guard.masks else guard.high / rho
    factor: FloatArray = np.where(rho > guard.high, above, np.where(rho < guard.low, 0.0, 1.0))
    return factor


def _rows_left_out(audited: AuditedTokens) -> Iterator[tuple[str, str | None, BoolArray]]:
    """Yield guards that leave out whole sequences, with the pair that they look at, and those left out, (rows,)."""
    row, rows = audited.policy.row, len(audited.policy.step)
    count = np.maximum(np.bincount(row, minlength=rows), 1)
    low, high = np.log(BAND)
    for pair in _guarded_pairs(audited):
        mean, least = np.bincount(row, audited.pairs[pair], rows) / count, np.full(rows, np.inf)
        np.minimum.at(least, row, audited.pairs[pair])
        yield "sequence-0.5-2", pair, (mean < low) | (mean > high)
        yield "veto-1e-4", pair, least < math.log(VETO_RATIO)
    behaviour = next((name for name in BEHAVIOUR if name in audited.pairs), None)
    if behaviour is not None:
        drift = -np.bincount(row, audited.pairs[behaviour], rows) / count
        disliked = np.bincount(row, audited.policy.advantage, rows) < 0
        yield f"opsm-{OFF_POLICY:g}", behaviour, disliked & (drift > OFF_POLICY)
    failed = audited.failed.fill_null(value=False).to_numpy()
    if failed.any():
        yield "drop-errored", None, np.bincount(row, failed, rows) > 0


def _one_schema(audited: AuditedTokens, before: FloatArray, late: BoolArray) -> Iterator[GuardPrice]:
    """Yield what one schema of tool output could take at most: the tail after tools beyond that of text before them."""
    text, post, tail = late & (audited.turn == 0), late & (audited.turn > 0), audited.tail
    if not text.any() or not post.any() or not before[late & tail].sum() > 0:
        return
    usual = float(before[text & tail].sum()) / max(float(before[text].sum()), np.finfo(np.float64).tiny)
    excess = float(before[post & tail].sum()) - usual * float(before[post].sum())
    high = max(0.0, excess) / float(before[late & tail].sum())
    yield GuardPrice(
        guard="one-schema", pair=None, tail=(0.0, min(high, 1.0)), cost=None, second_moment=None, holds=False,
        reason=SCHEMA_BOUND,
    )  # fmt: skip

"""Who holds an update: shares of the tokens' weights, how few tokens hold half of it, and what a guard would take.

A token's contribution is its weight in the loss times the norm of its score. Each step counts the same, as gradient
clipping and Adam rescale whole steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

ALL: Final = "all"  # names the window of all tokens
PULL: Final = 0.03  # steps: enough for a kind that hardly occurs, too few to bend one that does
UPDATES: Final = 1000  # converged to a thousandth; ten kinds take milliseconds
TOP_VALUES: Final = 10  # of an attribute are listed; the others are summed
SHARES: Final[dict[str, pl.DataType]] = {
    "by": pl.String(),
    "value": pl.String(),  # null: not recorded, or, with `rest`, all values not listed
    "rest": pl.Boolean(),
    "window": pl.String(),  # early | mid | late | all
    "tokens": pl.Int64(),
    "token_share": pl.Float64(),
    "share": pl.Float64(),  # of the absolute contributions
    "signed": pl.Float64(),  # sum of the signed contributions over that of all absolute ones
    "kl_share": pl.Float64(),  # of the absolute contributions here, that of the KL penalty
    "masked": pl.Float64(),  # taken by masks, of what there would be without masks, caps and clips
    "truncated": pl.Float64(),
    "clipped": pl.Float64(),
    "lift": pl.Float64(),  # share / token_share
}


@dataclass(frozen=True, kw_only=True)
class Contributions:
    """What tokens add to the update, (tokens,) each; every step's sizes add up to 1."""

    size: FloatArray
    signed: FloatArray
    kl: FloatArray  # absolute
    masked: FloatArray
    truncated: FloatArray
    clipped: FloatArray


SUMMED: Final = tuple(field.name for field in fields(Contributions))


@dataclass(frozen=True)
class Attribute:
    """One thing that tells tokens apart: the code of each token, (tokens,), -1 where it is not known, and names."""

    name: str
    code: IntArray
    values: Sequence[str]


def same_for_each_step(values: FloatArray, size: FloatArray, step: IntArray) -> FloatArray:
    """Divide values by the sum of the sizes of their step; `step` (tokens,) counts from 0."""
    total = np.bincount(step, size)
    scaled: FloatArray = values / np.where(total > 0, total, 1.0)[step]
    return scaled


def share_holding(sizes: FloatArray, part: float = 0.5) -> float:
    """Return the share of the entries, largest first, that hold a part of the sum; NaN where there is none."""
    total = sizes.sum()
    if not total > 0:
        return float("nan")
    held = np.cumsum(np.sort(sizes)[::-1])
    return float(np.searchsorted(held, part * total * (1 - 1e-12)) + 1) / len(sizes)


def heaviest(sizes: FloatArray, part: float = 0.5) -> BoolArray:
    """Mark the fewest entries that hold a part of the sum, (entries,)."""
    order = np.argsort(-sizes, kind="stable")
    count = round(share_holding(sizes, part) * len(sizes)) if sizes.sum() > 0 else 0
    marked = np.zeros(len(sizes), np.bool_)
    marked[order[:count]] = True
    return marked


def effective_number(sizes: FloatArray) -> float:
    """Return how many equal entries would be as concentrated: (sum)^2 / sum of squares (Kish); NaN for none."""
    square = float((sizes**2).sum())
    return float(sizes.sum()) ** 2 / square if square > 0 else float("nan")


def shares_by(
    of: Contributions, attributes: Sequence[Attribute], window: IntArray, windows: Sequence[str]
) -> pl.DataFrame:
    """Return the table of shares (SHARES); `window` (tokens,) numbers the windows, and where there are several, all
    tokens make one more.
    """
    frames = []
    for attribute in attributes:
        cells = len(attribute.values) + 1
        key, shape = window * cells + attribute.code + 1, (len(windows), cells)
        sums = {name: np.bincount(key, getattr(of, name), len(windows) * cells).reshape(shape) for name in SUMMED}
        sums["tokens"] = np.bincount(key, minlength=len(windows) * cells).reshape(shape)
        for number, name in enumerate((*windows, *((ALL,) if len(windows) > 1 else ()))):
            chosen = {of: total.sum(axis=0) if name == ALL else total[number] for of, total in sums.items()}
            if chosen["tokens"].any():
                frames.append(_shares_of(chosen, attribute, name))
    return pl.concat(frames) if frames else pl.DataFrame(schema=SHARES)


def _shares_of(sums: Mapping[str, npt.NDArray[Any]], attribute: Attribute, window: str) -> pl.DataFrame:
    """Return the rows of one attribute in one window, largest share first, those after the tenth as one."""
    frame = pl.DataFrame({"value": [None, *attribute.values], **sums})
    frame = frame.with_columns(rest=pl.lit(value=False)).filter(pl.col("tokens") > 0)
    frame = frame.sort(["size", "tokens", "value"], descending=[True, True, False], nulls_last=True)
    if frame.height > TOP_VALUES + 1:
        others = frame.slice(TOP_VALUES).select(
            pl.lit(None, pl.String).alias("value"), pl.col(*sums).sum(), rest=pl.lit(value=True)
        )
        frame = pl.concat([frame.head(TOP_VALUES), others])
    guarded = pl.sum_horizontal("masked", "truncated", "clipped")
    whole = pl.col("size") + guarded
    taken = [pl.when(whole > 0).then(pl.col(name) / whole).alias(name) for name in ("masked", "truncated", "clipped")]
    total = pl.col("size").sum()
    share, token_share = pl.col("size") / total, pl.col("tokens") / pl.col("tokens").sum()
    return frame.with_columns(
        *taken, by=pl.lit(attribute.name), window=pl.lit(window), share=pl.when(total > 0).then(share),
        token_share=token_share, signed=pl.when(total > 0).then(pl.col("signed") / total),
        kl_share=pl.when(pl.col("size") > 0).then(pl.col("kl") / pl.col("size")),
        lift=pl.when(total > 0).then(share / token_share),
    ).select(pl.col(name).cast(kind) for name, kind in SHARES.items())  # fmt: skip


def score_factors(squares: FloatArray, norm: FloatArray) -> FloatArray:
    """Return by what the scores of each kind of token are longer than assumed, (kinds,), from logged gradient norms.

    squares: (steps, kinds) sums of squared contributions under the assumed norms; norm: (steps,), above 0. Scores of
    single tokens are nearly orthogonal, so norm^2 is about squares @ factors^2; the factors are its maximum likelihood
    for Gamma-distributed norm^2, found by multiplicative updates (Itakura-Saito, Fevotte and others, Neural Computation
    21, 2009), with a pull of PULL steps towards one common factor.
    """
    design = squares / norm[:, None] ** 2
    common = float(np.median(1 / design.sum(axis=1)))
    design = design * common
    scale = np.ones(squares.shape[1])
    for _ in range(UPDATES):
        fitted = np.maximum(design @ scale, np.finfo(np.float64).tiny)
        up, down = design.T @ fitted**-2 + PULL / scale, design.T @ (1 / fitted) + PULL
        scale *= np.sqrt(up / down)
    factors: FloatArray = np.sqrt(scale * common)
    return factors


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What part of some tokens' contributions a guard takes: at the bounds of the scores' norms."""

    low: float
    high: float


def part_taken(before: FloatArray, after: FloatArray, spread: float) -> Taken:
    """Return the part of the sum of `before` that is gone in `after`, (tokens,) sizes each; below 0 where it grows.

    Each size is known up to a factor from 1 to `spread`: what is taken and what is left may lie at opposite ends.
    """
    total = float(before.sum())
    if not total > 0:
        return Taken(low=float("nan"), high=float("nan"))
    gone, added = float(np.maximum(before - after, 0.0).sum()), float(np.maximum(after - before, 0.0).sum())
    return Taken(
        low=gone / (gone + spread * (total - gone)) - spread * added / total,
        high=spread * gone / (total + (spread - 1) * gone) - added / (spread * total),
    )

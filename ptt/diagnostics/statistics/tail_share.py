"""Which values of an attribute hold a tail: their share of it beside their share of all tokens, with an interval.

Tokens of a sequence, and sequences of a prompt group, are alike, so clusters of them are the unit, never tokens. A
share of the tail is a ratio of sums over clusters; its interval is Wilson's at the number of independent tokens that
would scatter as much as the clusters do. The share of all tokens is taken as it was recorded. Values of one cluster are
set against each other within it, so its level takes no part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.statistics.arrays import FloatArray

CONFIDENCE: Final = 0.95  # of all intervals of one look together
MIN_CLUSTERS: Final = 5  # with a tail token of the value: fewer, and a share is that of one or two accidents


@dataclass(frozen=True, kw_only=True)
class TailShare:
    """A value's share of the tail tokens, with its interval, and of all tokens."""

    share: float
    interval: tuple[float, float]
    token_share: float
    clusters: int  # of the value, with a tail token

    @property
    def lift(self) -> float:
        """How much more of the tail than of the tokens, as a factor."""
        return self.share / self.token_share

    @property
    def lift_interval(self) -> tuple[float, float]:
        """The interval of the lift."""
        low, high = self.interval
        return low / self.token_share, high / self.token_share

    @property
    def excess(self) -> float:
        """How much more of the tail than of the tokens, as a difference: the larger sets the tail apart better."""
        return self.share - self.token_share


def tail_shares(
    value: npt.NDArray[np.generic],
    cluster: npt.NDArray[np.generic],
    tail: npt.NDArray[np.generic],
    tokens: npt.NDArray[np.generic],
    *,
    sequence: npt.NDArray[np.generic],
    wanted: Sequence[object],
    looks: int,
) -> list[TailShare | None]:
    """Return the share of each of `wanted`, None where too few clusters hold a tail token of it.

    Rows are parts of sequences, which are parts of clusters, each of one value. `looks`: shares looked at in all, by
    which intervals are corrected (Bonferroni).
    """
    most = _kish(np.bincount(np.unique(sequence, return_inverse=True)[1], weights=tail))
    clusters, index = np.unique(cluster, return_inverse=True)
    all_tail = np.bincount(index, weights=tail, minlength=len(clusters)).astype(np.float64)
    all_tokens = float(np.sum(tokens))
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * max(1, looks)))
    shares: list[TailShare | None] = []
    for one in wanted:
        of_value = value == one
        own = np.bincount(index, weights=np.where(of_value, tail, 0), minlength=len(clusters)).astype(np.float64)
        token_share = float(np.sum(tokens, where=of_value)) / max(all_tokens, 1.0)
        hit = int(np.count_nonzero(own))
        if hit < MIN_CLUSTERS or not token_share:
            shares.append(None)
            continue
        share = float(own.sum() / all_tail.sum())
        bounds = wilson_interval(share, _independent(own, all_tail, share, most), z)
        shares.append(TailShare(share=share, interval=bounds, token_share=token_share, clusters=hit))
    return shares


def _kish(weights: npt.NDArray[np.generic]) -> float:
    """Return how many equal parts are worth as much as these."""
    values = np.asarray(weights, dtype=np.float64)
    return float(values.sum() ** 2 / max(np.square(values).sum(), 1e-12))


def _independent(own: FloatArray, tail: FloatArray, share: float, most: float) -> float:
    """Return how many independent tokens would give the share as much scatter as the clusters do, at most `most`.

    That is what the sequences are worth: where next to nothing lies outside the value, its scatter is known from next
    to nothing.
    """
    count = int(np.count_nonzero(tail))
    variance = float(np.square(own - share * tail).sum()) / float(tail.sum()) ** 2 * count / max(1, count - 1)
    return most if variance <= 0 else min(most, share * (1 - share) / variance)


def wilson_interval(share: float, count: float, z: float) -> tuple[float, float]:
    """Return Wilson's score interval of a share of `count` independent trials."""
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))  # rounding aside they hold it

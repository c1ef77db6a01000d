"""Shares of clustered units (tokens of a sequence, calls of an episode) and their differences, with intervals.

A call says less where its episode has many of them, so clusters are the unit. A share of the tail is compared with the
share of all tokens, which counts as known exactly. Values of one cluster are compared within it, so its own level
cancels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.small_sample import T975

MIN_CLUSTERS: Final = 5  # with fewer, nobody knows how far clusters differ, and an interval would be made up
Z975: Final = 1.959964


@dataclass(frozen=True, kw_only=True)
class ClusteredShare:
    """Hits among trials, and how many clusters these are from; no interval where clusters are too few."""

    hits: int
    trials: int
    clusters: int
    interval: tuple[float, float] | None

    @property
    def value(self) -> float:
        """Hits over trials; NaN without trials."""
        return self.hits / self.trials if self.trials else math.nan


def clustered_share(hits: FloatArray, trials: FloatArray, cluster: IntArray) -> ClusteredShare:
    """Return the share of hits with Wilson's 95% interval for as many independent trials as the clusters are worth.

    hits, trials: of each row; cluster: a number of 0 or above. The design effect is the variance of the share between
    clusters (linearised ratio) over the binomial one, and 1 at least; where all trials hit or none does, it cannot be
    seen, and a cluster counts as one trial. Student's t for the clusters there are (Korn and Graubard 1998).
    """
    of_cluster, made = _sums(hits, trials, cluster)
    count, total, hit = len(made), float(made.sum()), float(of_cluster.sum())
    shape = {"hits": round(hit), "trials": round(total), "clusters": count}
    if count < MIN_CLUSTERS or total <= 0:
        return ClusteredShare(**shape, interval=None)
    share = hit / total
    binomial = share * (1 - share) / total
    if binomial > 0:
        between = count / (count - 1) * float(np.square(of_cluster - share * made).sum()) / total**2
        worth = total / max(1.0, between / binomial)
    else:
        worth = float(count)
    return ClusteredShare(**shape, interval=wilson(share, worth, student_t(count - 1)))


def _sums(hits: FloatArray, trials: FloatArray, cluster: IntArray) -> tuple[FloatArray, FloatArray]:
    size = int(cluster.max()) + 1 if len(cluster) else 0
    made = np.bincount(cluster, weights=trials, minlength=size).astype(np.float64)
    hit = np.bincount(cluster, weights=hits, minlength=size).astype(np.float64)
    return hit[made > 0], made[made > 0]


def wilson(share: float, trials: float, z: float = Z975) -> tuple[float, float]:
    """Return Wilson's interval of a share of `trials` independent trials."""
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    width = z / scale * math.sqrt(max(0.0, share * (1 - share) / trials + z * z / (4 * trials * trials)))
    # at none and at all of them an end is exact, which the difference of floats is not
    low = 0.0 if share <= 0 else max(0.0, centre - width)
    high = 1.0 if share >= 1 else min(1.0, centre + width)
    return low, high


def student_t(freedom: int) -> float:
    """Return the 97.5th percentile of Student's t; beyond the table by the first terms of its expansion."""
    if freedom <= len(T975):
        return T975[freedom - 1]
    return Z975 + (Z975**3 + Z975) / (4 * freedom)


MAX_EXACT: Final = 12  # pairs whose sign flips are all counted: 4096
FLIPS: Final = 9999  # sign flips drawn, with a fixed seed, where there are more pairs
MAX_FLIPPED: Final = 2000  # pairs: beyond it the mean is as good as normal
SEED: Final = 20_261_123
RULE_OF_THREE: Final = 3.0  # what never happened in n tasks happens in at most 3 / n of them, with 95% confidence
SAME: Final = 1e-12


@dataclass(frozen=True, kw_only=True)
class ClusterDifference:
    """Second less first, its 95% interval and the p-value of none; `clusters` is on how many it rests."""

    first: float
    second: float
    low: float
    high: float
    p_value: float
    clusters: int

    @property
    def value(self) -> float:
        """Second less first."""
        return self.second - self.first


def paired_difference(first: FloatArray, second: FloatArray, *, span: float = 1.0) -> ClusterDifference | None:
    """Compare the means of the same clusters; None where there are too few.

    Every cluster counts the same, so that a set with more episodes of an easy task is not the better one. The p-value
    is that of flipping signs, exact for few clusters; the interval is Student's t. Where all differ alike, how they
    vary is not seen, and the rule of three bounds it; `span` is how far one cluster can move, 1 for shares.
    """
    gap = second - first
    count = len(gap)
    if count < MIN_CLUSTERS:
        return None
    mean = float(gap.mean())
    error = float(gap.std(ddof=1)) / math.sqrt(count)
    half = student_t(count - 1) * error if error > SAME else RULE_OF_THREE / count * span
    return ClusterDifference(
        first=float(first.mean()), second=float(second.mean()), low=mean - half, high=mean + half,
        p_value=_sign_flips(gap, error), clusters=count,
    )  # fmt: skip


def _sign_flips(gap: FloatArray, error: float) -> float:
    count, seen = len(gap), abs(float(gap.sum()))
    if not np.abs(gap).max() > SAME:
        return 1.0
    if count > MAX_FLIPPED:
        return normal_p_value(float(gap.mean()) / error) if error > SAME else 0.0
    if count <= MAX_EXACT:
        signs = np.array(list(product((-1.0, 1.0), repeat=count)))
        return float((np.abs(signs @ gap) >= seen * (1 - 1e-9)).mean())
    draws = np.random.default_rng(SEED)
    hits = sum(
        int((np.abs(draws.choice((-1.0, 1.0), size=(part, count)) @ gap) >= seen * (1 - 1e-9)).sum())
        for part in (FLIPS // 3,) * 3
    )
    return (1 + hits) / (1 + FLIPS)


def welch_difference(first: FloatArray, second: FloatArray) -> ClusterDifference | None:
    """Compare the means of different clusters, with variances of their own (Welch); None where there are too few."""
    counts = len(first), len(second)
    if min(counts) < MIN_CLUSTERS:
        return None
    parts = [float(side.var(ddof=1)) / len(side) for side in (first, second)]
    error = math.sqrt(sum(parts))
    gap = float(second.mean() - first.mean())
    if error <= SAME:
        return None  # nothing varies within a side: how much the next episode would is not seen
    squares = sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True))
    half = student_t(max(1, int(sum(parts) ** 2 / squares))) * error
    return ClusterDifference(
        first=float(first.mean()), second=float(second.mean()), low=gap - half, high=gap + half,
        p_value=normal_p_value(Z975 * gap / half), clusters=min(counts),
    )  # fmt: skip


def share_difference(
    first: float, of_first: tuple[float, float], second: float, of_second: tuple[float, float], *, clusters: int
) -> ClusterDifference:
    """Compare two independent shares by their own intervals (MOVER: Newcombe 1998, Zou and Donner 2008).

    The p-value is the normal one for the side of the interval that lies towards no difference.
    """
    gap = second - first
    low = gap - math.hypot(second - of_second[0], of_first[1] - first)
    high = gap + math.hypot(of_second[1] - second, first - of_first[0])
    towards_none = gap - low if gap > 0 else high - gap
    p_value = 1.0 if gap == 0 else normal_p_value(Z975 * gap / towards_none) if towards_none > SAME else 0.0
    return ClusterDifference(first=first, second=second, low=low, high=high, p_value=p_value, clusters=clusters)


def normal_p_value(z: float) -> float:
    """Return the two-sided p-value of a standard normal value."""
    return math.erfc(abs(z) / math.sqrt(2.0))


CONFIDENCE: Final = 0.95  # of all the intervals shown together


@dataclass(frozen=True, kw_only=True)
class TailShare:
    """A value's share of the tail tokens, with its interval, and of all tokens."""

    share: float
    interval: tuple[float, float]
    token_share: float
    clusters: int  # clusters with a tail token of this value

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
    """Return the tail share of each of `wanted`; None where too few clusters hold a tail token of it.

    Rows are parts of sequences, which are parts of clusters; each row has one value. `looks`: how many shares are
    looked at in all, for the Bonferroni correction of the intervals.
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
    """Return Kish's effective number: how many equal weights carry as much information as these."""
    values = np.asarray(weights, dtype=np.float64)
    return float(values.sum() ** 2 / max(np.square(values).sum(), 1e-12))


def _independent(own: FloatArray, tail: FloatArray, share: float, most: float) -> float:
    """Return how many independent tokens would give the share as much scatter as the clusters do, at most `most`.

    `most` is the effective number of sequences: where nearly every tail token has this value, scatter is estimated from
    next to nothing and would give far more.
    """
    count = int(np.count_nonzero(tail))
    variance = float(np.square(own - share * tail).sum()) / float(tail.sum()) ** 2 * count / max(1, count - 1)
    return most if variance <= 0 else min(most, share * (1 - share) / variance)


def wilson_interval(share: float, count: float, z: float) -> tuple[float, float]:
    """Return Wilson's score interval of a share of `count` independent trials."""
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))  # rounding aside they hold it

"""Rank correlation and Mann-Whitney shares within groups, blind to what differs between groups."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.clustered_share import student_t

DRAWS: Final = 999
MAX_DRAWN: Final = 20_000  # rows to draw outcomes for; with more, the sum over groups is as good as normal


@dataclass(frozen=True, kw_only=True)
class WithinCorrelation:
    """Rank correlation within groups, over the groups in which both variables vary."""

    rho: float  # NaN where no group has both
    p_value: float  # two-sided, from exchanging one within each group
    groups: int
    rows: int


def within_correlation(
    x: FloatArray, y: FloatArray, group: IntArray, *, seed: int, draws: int = DRAWS
) -> WithinCorrelation:
    """Correlate the ranks of x and y within groups, without rows that lack either.

    One group alone gives Spearman's coefficient. The p-value permutes y within groups, which preserves whatever makes
    the members of a group alike; with very many rows it uses the normal limit of the same statistic.
    """
    known = np.isfinite(x) & np.isfinite(y)
    order = np.argsort(group[known], kind="stable")
    x, y, group = x[known][order], y[known][order], group[known][order]
    first = np.flatnonzero(np.diff(group, prepend=-1)) if len(group) else np.empty(0, np.int64)
    size = np.diff(np.append(first, len(group)))
    of = np.repeat(np.arange(len(first)), size)
    a, b = _centred_ranks(x, of, first, size), _centred_ranks(y, of, first, size)
    squares = [np.add.reduceat(one * one, first) if len(first) else np.empty(0) for one in (a, b)]
    informative = (squares[0] > 0) & (squares[1] > 0)
    rows = informative[of] if len(first) else np.empty(0, bool)
    a, b, of = a[rows], b[rows], of[rows]
    groups, count = int(informative.sum()), int(rows.sum())
    if not groups:
        return WithinCorrelation(rho=math.nan, p_value=1.0, groups=0, rows=0)
    seen = float(a @ b)
    rho = seen / math.sqrt(float(a @ a) * float(b @ b))
    if count > MAX_DRAWN:
        variance = float((squares[0] * squares[1] / np.maximum(size - 1, 1))[informative].sum())
        return WithinCorrelation(
            rho=rho, p_value=math.erfc(abs(seen) / math.sqrt(2 * variance)), groups=groups, rows=count
        )
    generator = np.random.default_rng(seed)
    beyond = 0
    for _ in range(draws):
        moved = b[np.argsort(of + generator.random(count), kind="stable")]
        beyond += abs(float(a @ moved)) >= abs(seen) - 1e-9
    return WithinCorrelation(rho=rho, p_value=(1 + beyond) / (1 + draws), groups=groups, rows=count)


def _centred_ranks(values: FloatArray, of: IntArray, first: IntArray, size: IntArray) -> FloatArray:
    """Return mid-ranks within groups minus the group's mean; rows must be ordered by group."""
    if not len(values):
        return values
    order = np.lexsort((values, of))
    ordered, groups = values[order], of[order]
    begins = np.flatnonzero(np.append(True, (np.diff(ordered) != 0) | (np.diff(groups) != 0)))
    ties = np.diff(np.append(begins, len(values)))
    place = begins + (ties - 1) / 2
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(place, ties)
    centred: FloatArray = ranks - (first + (size - 1) / 2)[of]
    return centred


MIN_GROUPS: Final = 5  # with both kinds: with fewer, nobody knows how far groups differ
MIN_OF_KIND: Final = 10  # of either kind in a single group: the normal limit then holds


@dataclass(frozen=True, kw_only=True)
class PairOrder:
    """The share of pairs, ties half, with its 95% interval, and how many groups hold pairs."""

    share: float
    interval: tuple[float, float]
    pairs: int
    groups: int


def pair_order(values: FloatArray, kind: BoolArray, group: IntArray) -> PairOrder | None:
    """Return how often, in pairs from one group, the member with `kind` has the higher value; None for too few.

    The interval takes groups as units (linearised ratio), or the members of a single group (DeLong et al. 1988).
    """
    wins, pairs, alone = _by_group(values, kind, group)
    total = float(pairs.sum())
    if not total:
        return None
    share = float(wins.sum()) / total
    if len(pairs) == 1:
        if min(len(part) for part in alone) < MIN_OF_KIND:
            return None
        error, t = math.sqrt(sum(float(part.var(ddof=1)) / len(part) for part in alone)), student_t(1 << 20)
    elif len(pairs) < MIN_GROUPS:
        return None
    else:
        count = len(pairs)
        between = count / (count - 1) * float(np.square(wins - share * pairs).sum())
        error, t = math.sqrt(between) / total, student_t(count - 1)
    interval = max(0.0, share - t * error), min(1.0, share + t * error)
    return PairOrder(share=share, interval=interval, pairs=round(total), groups=len(pairs))


def _by_group(
    values: FloatArray, kind: BoolArray, group: IntArray
) -> tuple[FloatArray, FloatArray, tuple[FloatArray, FloatArray]]:
    """Return pairs won and pairs of each group with both kinds; and for each member of either kind its own share."""
    order = np.lexsort((values, group))
    value, first, of = values[order], kind[order], np.unique(group[order], return_inverse=True)[1]
    begins = np.flatnonzero(np.append(True, (np.diff(value) != 0) | (np.diff(of) != 0)))[: len(value)]
    tie = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(value))))
    starts = np.flatnonzero(np.diff(of, prepend=-1))
    won = {}
    for name, others in (("first", ~first), ("second", first)):
        seen: IntArray = np.cumsum(others) - others  # before it, over all groups
        before: IntArray = seen[begins][tie] - (seen[starts])[of]
        equal = np.bincount(tie, weights=others, minlength=len(begins))[tie]
        won[name] = before + equal / 2
    made = [np.bincount(of, weights=part, minlength=len(starts)) for part in (first, ~first)]
    wins = np.bincount(of, weights=np.where(first, won["first"], 0.0), minlength=len(starts))
    pairs = (made[0] * made[1]).astype(np.float64)
    both = pairs > 0
    shares = (
        won["first"][first] / max(1.0, float(made[1].sum())),
        won["second"][~first] / max(1.0, float(made[0].sum())),
    )
    return wins[both].astype(np.float64), pairs[both], shares

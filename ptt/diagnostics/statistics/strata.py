"""Find the turn at which the episodes of a group part into those that succeed and those that fail.

Each candidate splits a group's episodes in two by what they did at a turn. Its evidence is a Bayes factor: the
probability of the outcomes if both sides have their own success rate over that if all share one, given how many
succeed. It averages 1 over all permutations of the outcomes, so neither many candidates nor small sides look good by
chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

MIN_TRIALS: Final = 5.0  # trials on either side of a stratum


@dataclass(frozen=True, kw_only=True)
class StratifiedDifference:
    """The share above and below each stratum's own median, over the strata that have both."""

    strata: int
    low: float
    high: float
    load_low: float  # mean of what was split by
    load_high: float
    error: float  # standard error of high - low, from how the strata differ among themselves


def stratified_difference(
    *, stratum: IntArray, by: FloatArray, hits: FloatArray, trials: FloatArray
) -> StratifiedDifference | None:
    """Split each stratum at its median of `by` and compare the share of hits; None with fewer than two strata.

    Entries at the median go into no half. What changes between strata (the run's trend) cancels; what is shared within
    one (a bad hour) makes strata differ, and so widens the error.
    """
    rows = []
    for name in np.unique(stratum):
        members = stratum == name
        middle = float(np.median(by[members]))
        halves = [members & (by < middle), members & (by > middle)]
        counts = [float(trials[half].sum()) for half in halves]
        if min(counts) < MIN_TRIALS:
            continue
        shares = [float(hits[half].sum()) / count for half, count in zip(halves, counts, strict=True)]
        loads = [float(np.average(by[half], weights=trials[half])) for half in halves]
        rows.append((*shares, *loads))
    if len(rows) < 2:
        return None
    table = np.array(rows)
    gaps = table[:, 1] - table[:, 0]
    error = float(gaps.std(ddof=1)) / len(rows) ** 0.5
    low, high, load_low, load_high = table.mean(axis=0).tolist()
    return StratifiedDifference(
        strata=len(rows), low=low, high=high, load_low=load_low, load_high=load_high, error=error
    )


def rate_differences(tables: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return the pooled difference of rates of each `key`, with Mantel and Haenszel's test.

    `tables`: one row a stratum of each key, with Float64 counts: `n` in it, `s` that succeed, `k` on the named side,
    `a` of these that succeed; 0 < k < n. Returns groups, episodes, side (on the named side), with_rate and without_rate
    (both at the strata's weights k (n - k) / n), difference, variance, z and its two-sided p_value.
    """
    k, a, n, s = (pl.col(name) for name in ("k", "a", "n", "s"))
    rest = n - k
    weight = k * rest / n
    spread = (k * rest * s * (n - s) / (n * n * pl.max_horizontal(n - 1, 1.0))).sum()
    excess = (a - k * s / n).sum()
    pooled = tables.group_by(key).agg(
        pl.len().alias("groups"),
        n.sum().cast(pl.Int64).alias("episodes"),
        k.sum().cast(pl.Int64).alias("side"),
        ((weight * a / k).sum() / weight.sum()).alias("with_rate"),
        ((weight * (s - a) / rest).sum() / weight.sum()).alias("without_rate"),
        spread.alias("variance"),
        (excess / spread.sqrt()).alias("z"),
    )
    z = pooled["z"].to_list()
    tails = [math.erfc(abs(value) / math.sqrt(2)) if math.isfinite(value) else math.nan for value in z]
    return pooled.with_columns(
        (pl.col("with_rate") - pl.col("without_rate")).alias("difference"), pl.Series("p_value", tails, pl.Float64)
    ).sort(key, nulls_last=True)


PRIOR: Final = 0.5  # prior successes and failures of a side (Jeffreys)
PASSES: Final = 12  # over all groups; kinds of split that decide in other groups gain weight with each
KIND_WEIGHT: Final = 10.0  # of an even spread over the kinds, in groups: what few groups show is not a habit
TURN_WEIGHT: Final = 3.0  # of every turn deciding equally often, in groups
SURE: Final = 0.5  # probability that the turn found decides, above which it is reported


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Candidate splits, sorted by group and turn: entries name the episodes on one side of each.

    Episodes are numbered 0 to n-1, sorted by group; groups 0 to g-1, each with both outcomes.
    """

    group: IntArray  # of each split
    turn: IntArray
    kind: IntArray  # what the sides differ in, 0 to k-1: the same numbers in all groups
    prior: FloatArray  # how likely each is to decide, relative to the others of its turn
    starts: IntArray  # each split's first entry
    episode: IntArray  # of each entry
    episode_group: IntArray  # of each episode

    def side_sizes(self) -> IntArray:
        """Return how many episodes are on the named side of each split."""
        return np.diff(np.append(self.starts, len(self.episode)))

    def side_successes(self, success: BoolArray) -> IntArray:
        """Return how many of them succeed."""
        hits = success[self.episode].astype(np.int64)
        return np.add.reduceat(hits, self.starts) if len(self.starts) else hits[:0]


@dataclass(frozen=True, kw_only=True)
class Located:
    """The deciding turn of each group, -1 where it has no candidate; `split` is the best candidate at that turn."""

    turn: IntArray
    split: IntArray
    probability: FloatArray  # that this turn decides
    undecided: FloatArray  # that no turn does
    kinds: FloatArray  # share of the groups that each kind of split decides


def log_evidence(size: IntArray, successes: IntArray, side: IntArray, hits: IntArray) -> FloatArray:
    """Return the log evidence of splits: `size` episodes, `successes` of all, `side` of them on one side with `hits`.

    Conditional on size, successes and side its exponent averages 1 under exchange of the outcomes.
    """
    shape = np.stack([size, successes, side], axis=1)
    unique, which = np.unique(shape, axis=0, return_inverse=True)
    table: FloatArray = _evidence_table(*unique.T)
    return table[which.ravel(), hits]


def _evidence_table(size: IntArray, successes: IntArray, side: IntArray) -> FloatArray:
    """Return the log evidence of every number of hits, (splits, most + 1); -inf where it cannot be."""
    most = int(size.max(initial=0))
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, most + 1)))])
    # log of the rising factorials of the prior: successes and failures of a side under a rate of its own
    rising = np.concatenate([[0.0], np.cumsum(np.log(PRIOR + np.arange(most)))])
    both = np.concatenate([[0.0], np.cumsum(np.log(2 * PRIOR + np.arange(most)))])
    hits = np.arange(most + 1)[None, :]
    n, s, k = size[:, None], successes[:, None], side[:, None]
    parts = np.stack(np.broadcast_arrays(hits, k - hits, s - hits, n - k - s + hits))
    possible = (parts >= 0).all(axis=0)
    a, b, c, d = np.where(possible, parts, 0)
    own = rising[a] + rising[b] - both[k] + rising[c] + rising[d] - both[n - k]
    ways = (
        factorial[k] - factorial[a] - factorial[b] + factorial[n - k] - factorial[c] - factorial[d]
        - (factorial[n] - factorial[s] - factorial[n - s])
    )  # fmt: skip
    mean = np.log(np.where(possible, np.exp(own + ways), 0.0).sum(axis=1, keepdims=True))
    table: FloatArray = np.where(possible, own - mean, -np.inf)
    return table


def locate(splits: Splits, success: BoolArray) -> Located:
    """Locate the deciding turn of each group: where the evidence rises most, going from turn to turn.

    What decides shows again in all that follows from it, and what comes last tells the outcome best: so the turn is not
    where the evidence is largest but where most of it is new. Kinds of split that decide in many groups count for more.
    """
    groups = int(splits.episode_group[-1]) + 1 if len(splits.episode_group) else 0
    kinds = int(splits.kind.max(initial=-1)) + 1
    evidence = np.exp(_log_evidence_of(splits, success))
    new_turn = np.flatnonzero(_changes(splits.group, splits.turn))
    turn_of = np.cumsum(_changes(splits.group, splits.turn)) - 1  # place of each split's turn among all turns
    turn_group, turn_number = splits.group[new_turn], splits.turn[new_turn]
    first_turn = np.flatnonzero(_changes(turn_group))
    turns = np.bincount(turn_group, minlength=groups)  # each group's number of turns with candidates
    weight, nothing = np.ones(kinds) / max(1, kinds), 0.5
    usual = 1.0 / turns[turn_group]
    _, same, counts = np.unique(turn_of * max(1, kinds) + splits.kind, return_inverse=True, return_counts=True)
    alike = counts[same].astype(np.float64)
    for _ in range(PASSES):
        prior = weight[splits.kind]
        prior *= usual[turn_of] / alike  # a turn's candidates of one kind share what that kind is worth there
        prior *= splits.prior / np.bincount(splits.group, prior, minlength=groups)[splits.group]
        share = prior * evidence * (1 - nothing)
        total = np.bincount(splits.group, share, minlength=groups) + nothing
        owed = share / total[splits.group]
        found = np.bincount(splits.kind, owed, minlength=kinds)
        weight = (found + KIND_WEIGHT / max(1, kinds)) / (found.sum() + KIND_WEIGHT)
        usual = _usual_turns(turn_number, _sums(owed, new_turn), turn_group, turns)
        nothing = float(np.clip((nothing / total).mean(), 0.01, 0.99)) if groups else 1.0
    of_turn = _sums(prior * evidence, new_turn) * turns[turn_group]
    gain = _new_evidence(np.log(np.maximum(of_turn, 1.0)), first_turn)
    chance = of_turn / turns[turn_group] * (1 - nothing) / total[turn_group]
    located = np.full(groups, -1)
    best = np.full(groups, -1)
    probability = np.zeros(groups)
    for_group = turn_group[first_turn]
    place = _first_greatest(gain, turn_group, first_turn)
    located[for_group] = turn_number[place]
    best[for_group] = _first_greatest(owed, turn_of, new_turn)[place]
    probability[for_group] = chance[place]
    return Located(
        turn=located,
        split=best,
        probability=probability,
        undecided=np.asarray(nothing / total, np.float64),
        kinds=weight,
    )


def _usual_turns(number: IntArray, owed: FloatArray, group: IntArray, turns: IntArray) -> FloatArray:
    """Return how likely each turn of each group is to decide, by how often its number does in all groups."""
    decided = np.bincount(group, owed, minlength=len(turns))
    expected = np.bincount(number, (decided / np.maximum(turns, 1))[group])
    ratio = (np.bincount(number, owed) + TURN_WEIGHT) / (expected + TURN_WEIGHT)
    likely: FloatArray = ratio[number]
    return likely / np.bincount(group, likely)[group]


def _log_evidence_of(splits: Splits, success: BoolArray) -> FloatArray:
    size = np.bincount(splits.episode_group)
    all_successes = np.bincount(splits.episode_group, success).astype(np.int64)
    hits = splits.side_successes(success)
    return log_evidence(size[splits.group], all_successes[splits.group], splits.side_sizes(), hits)


def _new_evidence(log_sum: FloatArray, first: IntArray) -> FloatArray:
    """Return by how much each turn's evidence passes the largest of the turns before it; 0 at least."""
    if not len(first):
        return log_sum
    offset = (float(log_sum.max(initial=0.0)) + 1.0) * np.arange(len(first))  # so that each group starts anew
    lifted = log_sum + np.repeat(offset, np.diff(np.append(first, len(log_sum))))
    before = np.concatenate([[0.0], np.maximum.accumulate(lifted)[:-1]])
    before[first] = offset
    gain: FloatArray = np.maximum(lifted - before, 0.0)
    return gain


def permutation_p(splits: Splits, success: BoolArray, *, draws: int, seed: int) -> float:
    """Return the p-value of the null that no turn decides anything, by permuting outcomes within each group.

    The statistic sums, over groups, the log of the mean evidence over turns and over candidates of a turn: each draw
    repeats the whole search.
    """
    if not len(splits.group):
        return 1.0
    size = np.bincount(splits.episode_group)
    all_successes = np.bincount(splits.episode_group, success).astype(np.int64)
    shape = np.stack([size[splits.group], all_successes[splits.group], splits.side_sizes()], axis=1)
    unique, which = np.unique(shape, axis=0, return_inverse=True)
    table = np.exp(_evidence_table(*unique.T))
    row = which.ravel()
    new_turn = np.flatnonzero(_changes(splits.group, splits.turn))
    turn_of = np.cumsum(_changes(splits.group, splits.turn)) - 1
    at_turn = np.bincount(turn_of)[turn_of]
    turns = np.bincount(splits.group[new_turn])
    weight = splits.prior / (at_turn * turns[splits.group])
    first = np.flatnonzero(_changes(splits.group))

    def statistic(outcome: BoolArray) -> float:
        evidence = table[row, splits.side_successes(outcome)]
        return float(np.log(np.add.reduceat(evidence * weight, first)).sum())

    generator = np.random.default_rng(seed)
    ordered = success[np.argsort(splits.episode_group, kind="stable")]
    seen, passed = statistic(success), 0
    for _ in range(draws):
        places = np.argsort(splits.episode_group + generator.random(len(ordered)), kind="stable")
        anew = np.empty_like(ordered)
        anew[places] = ordered
        passed += statistic(anew) >= seen - 1e-9
    return (1 + passed) / (1 + draws)


def _changes(*keys: IntArray) -> BoolArray:
    """Flag the entries where any key differs from the entry before; always the first one."""
    flags = np.zeros(len(keys[0]), bool)
    flags[:1] = True
    for key in keys:
        flags[1:] |= key[1:] != key[:-1]
    return flags


def _sums(values: FloatArray, starts: IntArray) -> FloatArray:
    return np.add.reduceat(values, starts) if len(starts) else values[:0]


def _first_greatest(values: FloatArray, of: IntArray, first: IntArray) -> IntArray:
    """Return the place of the greatest value of each run of equal `of`, the first of several."""
    if not len(first):
        return first
    greatest = np.repeat(np.maximum.reduceat(values, first), np.diff(np.append(first, len(values))))
    places = np.flatnonzero(values >= greatest - 1e-12)
    return places[_changes(of[places])]

"""Sequences laid end to end with their mask: how surprising each marked token is, and what is next to it.

The mean of a sampled token's surprisal, -logp, is the entropy of its distribution. So over tokens chosen only by what
came before them, such as all tokens or those after an observation, surprisal and entropy have the same mean, and each
sequence's difference between them scatters around 0, independently of every other sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.flat_lists import flatten
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.fill_values import MISSING_BELOW, SENTINELS

NEAR: Final = 8  # tokens on either side of an observation, and at the end, that are looked at place by place
NOWHERE: Final = 99  # a place further away, or none
LEAST_NATS: Final = 0.01  # a token, added to both sides of a ratio: of steps that are sure of all it is 1
UNLIKELY_NATS: Final = 5.0  # of surprisal: a policy that is sure of most tokens samples one in 150 that is less likely
BEYOND_ENTROPY: Final = 3.0  # nats above the entropy, where that is known: one in twenty of an open choice at most


@dataclass(frozen=True, kw_only=True)
class MarkedTokens:
    """The tokens of some sequences, observations included, with mask, surprisal, entropy and id.

    row: its sequence, from 0; surprisal, entropy: NaN where not recorded; ids: None where not recorded.
    step: of each sequence.
    """

    row: IntArray
    marked: BoolArray
    surprisal: FloatArray
    entropy: FloatArray
    ids: IntArray | None
    step: IntArray

    @property
    def sequences(self) -> int:
        """How many there are."""
        return len(self.step)


SAMPLING: Final = ("rollout_logp", "old_logp")
UPDATED: Final = "policy_logp"
LISTS: Final = ("entropy", "token_ids")


def sampling_columns(frame: pl.DataFrame) -> tuple[str, ...]:
    """Return the logprob columns that claim to be the sampling policy's, else the updated policy's."""
    here = [name for name in (*SAMPLING, UPDATED) if name in frame.columns]
    filled = [name for name in here if 2 * frame[name].null_count() < frame.height]
    return tuple(name for name in filled if name in SAMPLING) or tuple(filled)


def lay_out_marked(frame: pl.DataFrame, columns: Sequence[str]) -> MarkedTokens | None:
    """Lay sequences (seq, step, model_mask and lists beside it) end to end; None where none is sound.

    A token's surprisal is the least that any of `columns` gives it, so that a fault in one column alone does not count.
    """
    length = pl.col("model_mask").list.len()
    lists = [name for name in LISTS if name in frame.columns and isinstance(frame.schema[name], pl.List)]
    rows = frame.filter(
        pl.col("step").is_not_null() & (length > 0) & ~pl.col("model_mask").list.eval(pl.element().is_null()).list.any()
    ).sort("step", "seq")
    nothing = pl.lit(None, pl.Float32).repeat_by(length)
    known = [name for name in (*SAMPLING, UPDATED) if name in frame.columns]
    if rows.is_empty():
        return None
    uneven = [name for name in (*known, *lists) if not rows.select((pl.col(name).list.len() == length).all()).item()]
    uneven += [name for name in (*known, *lists) if rows[name].null_count() and name not in uneven]
    rows = rows.with_columns(
        pl.when(pl.col(name).list.len() == length).then(pl.col(name)).otherwise(nothing).alias(name) for name in uneven
    )
    offsets, mask = flatten(rows["model_mask"])
    count = np.diff(offsets)
    surprisal: dict[str, FloatArray] = {name: _surprisal(flatten(rows[name])[1].astype(np.float64)) for name in known}
    own = _least([surprisal[name] for name in columns])
    if UPDATED in known:  # an engine records nothing for what it did not sample
        own = np.where(np.isnan(own), surprisal[UPDATED], own)
    entropy = flatten(rows["entropy"])[1].astype(np.float64) if "entropy" in lists else np.full(len(mask), math.nan)
    ids = flatten(rows["token_ids"])[1] if "token_ids" in lists else None
    if ids is not None:
        ids = None if not np.isfinite(ids).all() else ids.astype(np.int64)
    return MarkedTokens(
        row=np.repeat(np.arange(len(count)), count),
        marked=mask.astype(np.bool_),
        surprisal=own,
        entropy=np.where(entropy >= 0, entropy, math.nan),
        ids=ids,
        step=rows["step"].to_numpy(),
    )


def _surprisal(logps: FloatArray) -> FloatArray:
    """Return surprisals; NaN where there is no logprob, or a placeholder for one."""
    known = np.isfinite(logps) & (logps <= 0) & (logps > MISSING_BELOW) & ~np.isin(logps, SENTINELS)
    return np.where(known, -logps, math.nan)


def _least(columns: Sequence[FloatArray]) -> FloatArray:
    """Return the least surprisal that a column gives each token; a 0 beside another value is no logprob."""
    least = np.full(len(columns[0]), math.nan)
    for values in columns:
        least = np.fmin(least, np.where(values > 0, values, math.nan))
    for values in columns:
        least = np.where(np.isnan(least) & (values == 0), 0.0, least)
    return least


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where each token is in its sequence; NOWHERE beyond NEAR tokens.

    after: marked tokens since the last observation, from 0. before: to the next one, from 1. end: to the end of a
    sequence that a marked token ends, from 1. observation: whether the token is of a run of others with marked tokens
    on both sides. post: whether one came before.
    """

    after: IntArray
    before: IntArray
    end: IntArray
    observation: BoolArray
    post: BoolArray

    @property
    def kinds(self) -> dict[str, IntArray]:
        """The places of each kind, by its name."""
        return {"after": self.after, "before": self.before, "end": self.end}


def places_of(tokens: MarkedTokens) -> Places:
    """Locate each token relative to observations and the end of its sequence."""
    total, row, marked = len(tokens.row), tokens.row, tokens.marked
    if not total:
        none, never = np.empty(0, np.int64), np.empty(0, np.bool_)
        return Places(after=none, before=none, end=none, observation=never, post=never)
    new_row = np.append(True, row[1:] != row[:-1])
    start = np.flatnonzero(new_row | np.append(True, marked[1:] != marked[:-1]))
    stop = np.append(start[1:], total)
    first = new_row[start]
    last = np.append(first[1:], True)
    is_marked = marked[start]
    observation = ~is_marked & ~first & ~last
    follows = np.append(False, observation[:-1]) & ~first
    leads = np.append(observation[1:], False) & ~last
    run = np.repeat(np.arange(len(start)), stop - start)
    at = np.arange(total)
    since, left = at - start[run], stop[run] - at
    seen = np.cumsum(observation)
    before_row = (seen - observation)[np.searchsorted(row[start], row[start])]

    def near(distance: IntArray, of_run: BoolArray, most: int) -> IntArray:
        return np.where(of_run[run] & (distance <= most), distance, NOWHERE)

    return Places(
        after=near(since, is_marked & follows, NEAR - 1),
        before=near(left, is_marked & leads, NEAR),
        end=near(left, is_marked & last, NEAR),
        observation=observation[run],
        post=(seen - before_row > 0)[run],
    )


def unlikely(tokens: MarkedTokens) -> BoolArray:
    """Tell the tokens that a policy rarely samples: surprising, and by far more than their entropy."""
    with np.errstate(invalid="ignore"):
        beyond = (tokens.surprisal > tokens.entropy + BEYOND_ENTROPY) | np.isnan(tokens.entropy)
        result: BoolArray = (tokens.surprisal > UNLIKELY_NATS) & beyond
    return result


def by_sequence(tokens: MarkedTokens, chosen: BoolArray, values: FloatArray) -> FloatArray:
    """Return the mean of values over each sequence's chosen tokens; NaN where none is chosen."""
    chosen = chosen & np.isfinite(values)
    row = tokens.row[chosen]
    count = np.bincount(row, minlength=tokens.sequences)
    total = np.bincount(row, values[chosen], minlength=tokens.sequences)
    means: FloatArray = np.divide(total, count, out=np.full(tokens.sequences, math.nan), where=count > 0)
    return means


@dataclass(frozen=True, kw_only=True)
class Surprisal:
    """Mean surprisal and entropy of some tokens, and how far apart they are in standard errors, by sequences."""

    tokens: int
    surprisal: float
    entropy: float
    z: float

    @property
    def ratio(self) -> float:
        """Surprisal over entropy; NaN where no entropy is known."""
        return self.surprisal / self.entropy if self.entropy > 0 else math.nan

    @property
    def excess(self) -> float:
        """Nats that a token's surprisal lies above its entropy."""
        return self.surprisal - self.entropy


@dataclass(frozen=True, kw_only=True)
class SurprisalSums:
    """For each sequence: how many tokens have both surprisal and entropy, and the sums of both, (sequences,)."""

    count: IntArray
    surprisal: FloatArray
    entropy: FloatArray

    def over(self, chosen: BoolArray) -> Surprisal:
        """Return what these come to over some sequences."""
        count = int(self.count[chosen].sum())
        if not count:
            return Surprisal(tokens=0, surprisal=math.nan, entropy=math.nan, z=math.nan)
        surprisal, entropy = self.surprisal[chosen], self.entropy[chosen]
        apart = surprisal - entropy
        scatter = math.sqrt(float((apart**2).sum()))
        return Surprisal(
            tokens=count,
            surprisal=float(surprisal.sum()) / count,
            entropy=float(entropy.sum()) / count,
            z=float(apart.sum()) / scatter if scatter > 0 else 0.0,
        )

    def by_step(self, step: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the distinct steps, and the log of surprisal over entropy of each; NaN without tokens.

        Sums are taken by step because most sequences draw no unlikely token, and only those show how a sampler differs.
        """
        distinct, place = np.unique(step, return_inverse=True)
        count, surprisal, entropy = (
            np.bincount(place, values, len(distinct)) for values in (self.count, self.surprisal, self.entropy)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log((surprisal + LEAST_NATS * count) / (entropy + LEAST_NATS * count))
        return distinct, np.where(count > 0, ratio, math.nan)


def surprisal_sums(tokens: MarkedTokens, chosen: BoolArray) -> SurprisalSums:
    """Add up the surprisal and the entropy of the chosen tokens, where both are known."""
    usable = chosen & np.isfinite(tokens.surprisal) & np.isfinite(tokens.entropy)
    row, size = tokens.row[usable], tokens.sequences
    return SurprisalSums(
        count=np.bincount(row, minlength=size),
        surprisal=np.bincount(row, tokens.surprisal[usable], size).astype(np.float64),
        entropy=np.bincount(row, tokens.entropy[usable], size).astype(np.float64),
    )


@dataclass(frozen=True, kw_only=True)
class CommonToken:
    """The commonest token id at some place, and its share of all tokens there."""

    id: int
    share: float


def common_token(tokens: MarkedTokens, chosen: BoolArray) -> CommonToken | None:
    """Return it; None where ids are not recorded or no token is chosen."""
    if tokens.ids is None or not chosen.any():
        return None
    values, counts = np.unique(tokens.ids[chosen], return_counts=True)
    most = int(np.argmax(counts))
    return CommonToken(id=int(values[most]), share=float(counts[most]) / int(counts.sum()))


def mean_of_known(values: FloatArray) -> float:
    """Return the mean of the finite values; NaN where there is none."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else math.nan

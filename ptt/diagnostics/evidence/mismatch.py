"""Measure how trainer and engine differ token by token, and rank by rank, in the sequences that were kept whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.series import Series, finite_series
from ptt.diagnostics.evidence.validity import with_ranks
from ptt.diagnostics.statistics.logprob_pairs import Pair
from ptt.diagnostics.statistics.mismatch_shape import LARGE, MismatchShape, mismatch_shape, sampled_differences
from ptt.diagnostics.statistics.rank_scores import RankLevels, p_above_others, rank_levels
from ptt.diagnostics.statistics.slices import MIN_OBSERVATION
from ptt.diagnostics.statistics.staleness import add_lags

PAIRS: Final = ("old/rollout", "policy/rollout")  # the former has no update of the policy in it
MIN_RANK_STEPS: Final = 10  # that all ranks share
MAX_RANKS: Final = 1024


@dataclass(frozen=True, kw_only=True)
class RankGap:
    """How far the mismatch of one rank lies above the middle of the others, by step."""

    rank: int
    p_value: float  # that ranks with the same weights lie so, over all ranks and starts
    mean: Series  # nats: its mean |r| less theirs
    large: Series  # its share of tokens beyond LARGE less theirs
    own: tuple[float, float]  # both, over all these steps
    others: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class RankMismatch:
    """The mismatch between engine and trainer, rank beside rank."""

    pair: str
    steps: int
    gaps: tuple[RankGap, ...]  # one a rank


def gather_mismatch(tokens: Tokens | None, *, post_name: str) -> MismatchShape | None:
    """Return the shape of the differences, of the better pair that is recorded; None where neither is."""
    pair = _pair_of(tokens)
    if tokens is None or pair is None:
        return None
    lags = pl.DataFrame(schema={"seq": pl.UInt32(), "lag": pl.Int64()})
    if "policy_version" in tokens.scan.columns:
        rows = tokens.sound_rows.select("seq", "step")
        lags = add_lags(rows.join(tokens.scalars.select("seq", "policy_version"), on="seq", how="left"))[0]
    return mismatch_shape(
        tokens.tables.samples,
        numerator=pair.numerator,
        denominator=pair.denominator,
        pair=pair.name,
        min_observation=1 if post_name == "post_tool" else MIN_OBSERVATION,
        lags=lags.select("seq", "lag"),
    )


def _pair_of(tokens: Tokens | None) -> Pair | None:
    recorded = {pair.name: pair for pair in tokens.pairs} if tokens is not None else {}
    return next((recorded[name] for name in PAIRS if name in recorded), None)


def gather_rank_mismatch(tokens: Tokens | None) -> RankMismatch | None:
    """Compare the mismatch of each rank with that of the others; None where fewer than two are known."""
    pair = _pair_of(tokens)
    if tokens is None or pair is None:
        return None
    known = with_ranks(tokens, tokens.sound_rows.select("seq")).drop_nulls("rank")
    if not 2 <= known["rank"].n_unique() <= MAX_RANKS:
        return None
    samples = tokens.tables.samples.join(known.select("seq"), on="seq", how="semi", maintain_order="left")
    sampled = sampled_differences(samples, pair.numerator, pair.denominator, 1)
    if sampled is None:
        return None
    ranks = known["rank"].cast(pl.Int64).to_numpy()[np.searchsorted(known["seq"].to_numpy(), sampled.seq)]
    levels = rank_levels(sampled.step, ranks, np.abs(sampled.r), beyond=LARGE, least=MIN_RANK_STEPS)
    if levels is None:
        return None
    p_values = p_above_others(levels.mean)
    gaps = tuple(_gap(levels, rank, pair.name, p_value) for rank, p_value in zip(levels.ranks, p_values, strict=True))
    return RankMismatch(pair=pair.name, steps=len(levels.steps), gaps=gaps)


def _gap(levels: RankLevels, rank: int, pair: str, p_value: float) -> RankGap:
    column = levels.ranks.index(rank)
    own = levels.mean[:, column], levels.large[:, column]
    others = levels.others(rank), levels.others(rank, large=True)
    mean, large = (
        finite_series(
            f"{pair} {name} of rank {rank}",
            levels.steps,
            mine - theirs,
            raw_name=f"{title} of |{pair}|, rank {rank} less others",
        )
        for name, title, mine, theirs in zip(
            ("mean", "large"), ("mean", f"share > {LARGE:g}"), own, others, strict=True
        )
    )
    return RankGap(
        rank=rank,
        p_value=p_value,
        mean=mean,
        large=large,
        own=(float(own[0].mean()), float(own[1].mean())),
        others=(float(others[0].mean()), float(others[1].mean())),
    )

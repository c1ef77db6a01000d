"""How trainer and engine differ, by token and by rank, and how many versions behind sequences are trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.series import Series, finite_series
from ptt.diagnostics.evidence.tokens_by_step import series_from_frame
from ptt.diagnostics.evidence.validity import with_ranks
from ptt.diagnostics.metrics.guessed_names import spelt_words
from ptt.diagnostics.statistics.logprob_pairs import Pair
from ptt.diagnostics.statistics.mismatch_shape import LARGE, MismatchShape, mismatch_shape, sampled_differences
from ptt.diagnostics.statistics.rank_scores import RankLevels, p_above_others, rank_levels
from ptt.diagnostics.statistics.slices import MIN_OBSERVATION
from ptt.diagnostics.statistics.staleness import add_lags
from ptt.diagnostics.wording import sig

PAIRS: Final = ("old/rollout", "policy/rollout", "prox/rollout")  # the first has no update of the policy in it
MIN_RANK_STEPS: Final = 10  # that all ranks share
MAX_RANKS: Final = 1024


ENGINE_WORDS: Final = frozenset(
    {"rollout", "engine", "vllm", "sglang", "sampler", "sampling", "inference", "generation", "behavior", "behaviour"}
)
TRAINER_WORDS: Final = frozenset({"train", "trainer", "training", "actor", "learner", "current"})
LOGPROB_WORDS: Final = ({"logp"}, {"logps"}, {"logprob"}, {"logprobs"}, {"log", "prob"}, {"log", "probs"})
NO_LEVEL: Final = frozenset({"diff", "difference", "ratio", "kl", "std", "max", "min", "abs", "error", "gap"})
BOTH: Final = 2  # series: more of one name tell of something else
NEGATED: Final = (("policy_entropy", "current_entropy"),)  # Marin: means of -logprob, of the sampler and of the trainer


def difference_of_means(series: Mapping[str, Series], other: Mapping[str, Series]) -> dict[str, Series]:
    """Return the KL of trainer and engine as the difference of both sides' mean logprobs; none where more is logged.

    Two series are the two sides of one number where their names differ by words for the engine and the trainer alone.
    """
    if any(name.startswith("mismatch/") for name in series):
        return {}
    sides: dict[tuple[str, ...], list[tuple[int, Series]]] = {}
    for one in other.values():
        words = spelt_words(one.raw_name)
        if any(asked <= {*words} for asked in LOGPROB_WORDS) and not NO_LEVEL.intersection(words):
            key = tuple(word for word in words if word not in ENGINE_WORDS | TRAINER_WORDS)
            sides.setdefault(key, []).append((sum(word in ENGINE_WORDS for word in words), one))
    pairs = [(max(group, key=_count), min(group, key=_count)) for group in sides.values() if len(group) == BOTH]
    found = [(engine, trainer) for (more, engine), (fewer, trainer) in pairs if more > fewer]
    ends = {one.raw_name.rpartition("/")[2]: one for one in (*series.values(), *other.values())}
    found += [(ends[trainer], ends[engine]) for engine, trainer in NEGATED if {engine, trainer} <= ends.keys()]
    if len(found) != 1:
        return {}
    engine, trainer = found[0]
    (steps, sampled), (others, scored) = engine.finite(), trainer.finite()
    shared, own, theirs = np.intersect1d(steps, others, return_indices=True)
    raw = f"{engine.raw_name} less {trainer.raw_name}"
    away = finite_series("mismatch/kl", shared, sampled[own] - scored[theirs], raw_name=raw)
    return {"mismatch/kl": away} if len(shared) else {}


def _count(side: tuple[int, Series]) -> int:
    return side[0]


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
    """Return the shape of the differences for the better recorded pair; None if neither is recorded."""
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


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """How old the trained sequences were: versions behind, by step."""

    lag: Series | None  # mean over a step's sequences; None where versions do not count as steps do
    oldest: Series | None  # lag of the oldest sequence of a step
    offset: int | None  # the smallest step - version of the run, taken for a lag of 0
    sequences: int
    known_share: float  # of the sequences, how many carry a version
    versions: int  # distinct
    no_lag_reason: str = ""  # why versions give no lag


VERSIONS_PER_STEP: Final = (0.75, 1.33)  # versions a step, over the run: outside of this, versions count something else
MIN_STEPS: Final = 4


def gather_freshness(tokens: Tokens | None) -> Freshness | None:
    """Measure how many versions behind the trained sequences were; None where no version is recorded."""
    if tokens is None or "policy_version" not in tokens.scan.columns:
        return None
    rows = tokens.sound_rows.select("seq", "step")
    rows = rows.join(tokens.scalars.select("seq", "policy_version"), on="seq", how="left", maintain_order="left")
    versioned = rows.drop_nulls("policy_version")
    if versioned.is_empty():
        return None
    counted = {
        "sequences": rows.height,
        "known_share": versioned.height / rows.height,
        "versions": versioned["policy_version"].n_unique(),
    }
    reason = _version_fault(versioned)
    if reason:
        return Freshness(lag=None, oldest=None, offset=None, no_lag_reason=reason, **counted)  # type: ignore[arg-type]
    lagged, offset = add_lags(versioned)
    by_step = lagged.group_by("step").agg(pl.col("lag").mean(), pl.col("lag").max().alias("most")).sort("step")
    named = "versions behind, from step - policy_version"
    return Freshness(
        lag=series_from_frame(by_step, "lag", name="staleness/mean", raw_name=named),
        oldest=series_from_frame(by_step, "most", name="staleness/max", raw_name=named),
        offset=offset,
        **counted,  # type: ignore[arg-type]
    )


def _version_fault(versioned: pl.DataFrame) -> str:
    """Return why the difference of step and version is no lag, or nothing.

    One version a step is what a trainer counts that publishes after each. Where the newest version of the steps goes
    up at another pace, it counts generations or pushes, and a difference to steps means nothing.
    """
    newest = versioned.group_by("step").agg(pl.col("policy_version").max()).sort("step")
    if newest.height < MIN_STEPS:
        return f"versions are recorded at only {newest.height} steps"
    steps, versions = newest["step"].to_numpy(), newest["policy_version"].to_numpy()
    if int(versions.min()) == int(versions.max()):
        return f"every sequence carries version {int(versions[0])}: it is not counted up, or never published"
    half = len(steps) // 2  # newest of each half: a sampler refreshed only now and then still shows its pace
    first, last = int(versions[:half].max()), int(versions[half:].max())
    pace = (last - first) / max(1, int(steps[half + versions[half:].argmax()] - steps[versions[:half].argmax()]))
    if not VERSIONS_PER_STEP[0] <= pace <= VERSIONS_PER_STEP[1]:
        return f"versions go up by {sig(pace)} a step: they count something other than steps"
    return ""

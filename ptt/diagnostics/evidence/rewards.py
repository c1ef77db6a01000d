"""Put reward components, outcomes beside the reward, and single rewards by step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.series import Series, finite_series, training_metric_names, training_series
from ptt.diagnostics.metrics.name_words import (
    ASIDE,
    JUDGE,
    OUTCOME,
    PENALTY,
    REPETITION,
    is_judge,
    is_outcome,
    is_reward,
    words_of,
)
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.store.wide_metrics import WideMetrics


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Single rewards, in the order of steps; NaN where a column does not say."""

    steps: IntArray
    rewards: FloatArray
    advantages: FloatArray
    outcomes: FloatArray  # 1 where the task was done, 0 where not, or the score of the one outcome component
    outcome_name: str | None
    ids: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PaidSource:
    """What the recorded training samples of one data source or environment earned."""

    samples: int
    steps: int
    mean: float
    lowest: float
    highest: float


@dataclass(frozen=True, kw_only=True)
class Rewards:
    """What is known about rewards beyond their mean: components, outcomes beside them, and single rewards by step."""

    components: Mapping[str, Series] = field(default_factory=dict)  # mean by step, by the component's own name
    outcomes: Mapping[str, Series] = field(default_factory=dict)  # training metrics that show whether the task was done
    samples: Samples | None = None
    sources: Mapping[str, PaidSource] = field(default_factory=dict)  # by data source or environment, where one is named
    unscored: Mapping[str, Counts] = field(default_factory=dict)  # samples without a score, by the component's name
    silent_groups: Series | None = None  # share of prompt groups with equal rewards, where groups are recorded


MIN_GROUPS: Final = 2  # in a step: a share of one group is all or nothing
EQUAL: Final = 1e-6  # rewards that differ by no more count as equal
COMPONENTS: Final = (
    re.compile(r"^rewards/(?P<name>[^/]+)/mean$"),  # TRL, ms-swift
    re.compile(r"^(?:train|rollout)/.*/rewards/(?P<name>[^/]+)/mean$"),  # prime-rl
    re.compile(
        r"^(?:reward|rewards|reward_components?|component_rewards?|rollout/reward|env/all/reward)[/.](?P<name>[^/]+)$"
    ),
)
SUFFIXED: Final = re.compile(r"^(?:.*/)?(?P<name>\w+)_rewards?$")  # `format_reward`, of home-made loops
PART_WORDS: Final = OUTCOME | ASIDE | JUDGE | PENALTY | REPETITION
"""Words that tell a part of the reward by its name alone."""
WHOLE_WORDS: Final = frozenset({"mean", "total", "all", "avg", "raw", "combined", "overall", "sum"})
SPREAD_WORDS: Final = frozenset({"std", "min", "max", "frac", "var"})
SETTING_WORDS: Final = frozenset({"scale", "weight", "weights", "threshold", "coef", "coefficient"})
STATISTIC: Final = re.compile(r"(?:[pq]\d+|median|variance|count|num|samples|clip|clipped|ratio|nan|zero|time|_)+")
"""Names of nothing but a statistic: how many rewards, their percentiles, the share that was clipped."""
PREFERENCE_WORDS: Final = frozenset({"chosen", "rejected", "margins", "accuracies", "margin"})
NO_PART: Final = WHOLE_WORDS | PREFERENCE_WORDS | SPREAD_WORDS | SETTING_WORDS
REPORTER_PREFIX: Final = "train/"


def gather_rewards(
    metrics: pl.DataFrame, trajectories: pl.DataFrame, rewards: pl.DataFrame, wide: WideMetrics
) -> Rewards | None:
    """Collect reward components and single rewards by step; None if neither is recorded."""
    components, outcomes = _logged_rewards(metrics, wide)
    trained = _trained_trajectories(trajectories)
    scored = rewards.join(trained.select("trajectory_id", "step"), on="trajectory_id", how="inner")
    for name, series in _means(scored).items():
        components.setdefault(name, series)
    done = trained.filter(pl.col("success").is_not_null())
    by_step = done.select(pl.lit("success").alias("name"), "step", pl.col("success").cast(pl.Float64).alias("score"))
    outcomes = {
        **_means(by_step),
        **{name: series_of_name for name, series_of_name in components.items() if is_outcome(name)},
        **outcomes,
    }
    samples = _samples(trained, scored)
    if not (components or outcomes or samples):
        return None
    return Rewards(
        components=components,
        outcomes=outcomes,
        samples=samples,
        sources=_sources(trained),
        unscored=_unscored(scored),
        silent_groups=_silent_groups(trained),
    )


def _unscored(scored: pl.DataFrame) -> dict[str, Counts]:
    """Count by step the samples for which a component has no score, of components that score others."""
    rows = scored.filter(pl.col("step").is_not_null() & pl.col("name").is_not_null())
    lacks = ~pl.col("score").is_finite().fill_null(value=False)
    by_step = rows.group_by("name", "step").agg(hits=lacks.sum().cast(pl.Float64), trials=pl.len().cast(pl.Float64))
    found: dict[str, Counts] = {}
    for (name,), part in by_step.sort("name", "step").partition_by("name", as_dict=True, maintain_order=True).items():
        steps, hits, trials = (part[column].to_numpy() for column in ("step", "hits", "trials"))
        if hits.any() and (hits < trials).any():
            found[str(name)] = Counts(name=f"samples without {name}", steps=steps, hits=hits, trials=trials)
    return found


MAX_SOURCES: Final = 100  # a name that each sample has of its own is no data source


def _sources(trained: pl.DataFrame) -> dict[str, PaidSource]:
    """Return what each data source earned, the largest first."""
    usable = trained.filter(pl.col("reward").is_finite() & pl.col("env").is_not_null())
    usable = usable.unique("trajectory_id", keep="first", maintain_order=True)
    reward = pl.col("reward")
    paid = usable.group_by("env").agg(
        samples=pl.len().cast(pl.Int64),
        steps=pl.col("step").n_unique().cast(pl.Int64),
        mean=reward.mean(),
        lowest=reward.min(),
        highest=reward.max(),
    )
    paid = paid.sort("samples", "env", descending=[True, False]).head(MAX_SOURCES)
    return {str(row.pop("env")): PaidSource(**row) for row in paid.iter_rows(named=True)}


def _silent_groups(trained: pl.DataFrame) -> Series | None:
    """Return the share of each step's prompt groups, of two samples and more, whose rewards are all equal."""
    usable = trained.filter(pl.col("reward").is_finite() & pl.col("group_id").is_not_null())
    groups = usable.group_by("step", "group_id").agg(
        pl.len(), (pl.col("reward").max() - pl.col("reward").min() <= EQUAL).alias("silent")
    )
    shares = groups.filter(pl.col("len") > 1).group_by("step").agg(pl.len(), pl.col("silent").mean().alias("share"))
    shares = shares.filter(pl.col("len") >= MIN_GROUPS).sort("step")
    if shares.is_empty():
        return None
    name = "share of recorded prompt groups with equal rewards"
    return finite_series("reward/zero_std_frac", shares["step"].to_numpy(), shares["share"].to_numpy(), raw_name=name)


def _logged_rewards(metrics: pl.DataFrame, wide: WideMetrics) -> tuple[dict[str, Series], dict[str, Series]]:
    raws = training_metric_names(metrics, wide)
    spelt = {raw: name for raw in raws if (name := reward_component(raw))}
    others = {raw: raw.removeprefix(REPORTER_PREFIX) for raw in raws if raw not in spelt}
    done = {raw: name for raw, name in others.items() if is_outcome(name) and not words_of(name) & PREFERENCE_WORDS}
    judged = {raw: name for raw, name in others.items() if is_judge(name) and is_reward(name)}
    return training_series(metrics, wide, spelt | judged), training_series(metrics, wide, done)


def reward_component(raw: str) -> str | None:
    """Return the reward component whose mean a metric is; None if it is not such a mean."""
    for spelling in dict.fromkeys((raw, raw.removeprefix(REPORTER_PREFIX))):
        for pattern in COMPONENTS:
            match = pattern.match(spelling)
            if match and not words_of(match["name"]) & NO_PART and not STATISTIC.fullmatch(match["name"]):
                return match["name"]
    match = SUFFIXED.match(raw)
    if match and words_of(match["name"]) <= PART_WORDS:
        return match["name"]
    return None


def _trained_trajectories(trajectories: pl.DataFrame) -> pl.DataFrame:
    """Return the trajectories that were trained on; those of unknown split where no other is known to be."""
    numbered = trajectories.filter(pl.col("step").is_not_null() & (pl.col("split") != "eval"))
    sure = numbered.filter(pl.col("split") == "train")
    return sure if sure.height else numbered


def _means(scored: pl.DataFrame) -> dict[str, Series]:
    usable = scored.filter(pl.col("score").is_finite() & pl.col("name").is_not_null())
    means = usable.group_by("name", "step").agg(pl.col("score").mean()).sort("name", "step")
    return {
        str(name): finite_series(str(name), part["step"].to_numpy(), part["score"].to_numpy())
        for (name,), part in means.partition_by("name", maintain_order=True, as_dict=True).items()
    }


def _samples(trained: pl.DataFrame, scored: pl.DataFrame) -> Samples | None:
    """Return single rewards, each with whether the task was done: by its flag, else by the only outcome component."""
    usable = trained.filter(pl.col("reward").is_finite()).unique("trajectory_id", keep="first", maintain_order=True)
    if usable.is_empty():
        return None
    names = [name for name in sorted(scored["name"].drop_nulls().unique()) if is_outcome(name)]
    outcome, title = pl.lit(None, pl.Float64), None
    if usable["success"].is_not_null().any():
        outcome, title = pl.col("success").cast(pl.Float64), "success"
    elif len(names) == 1 and scored["name"].n_unique() > 1:  # alone, the component is the reward itself
        title = names[0]
        parts = scored.filter(pl.col("name") == title).unique("trajectory_id", keep="first", maintain_order=True)
        usable = usable.join(parts.select("trajectory_id", "score"), on="trajectory_id", how="left")
        outcome = pl.col("score")
    rows = usable.with_columns(outcome.alias("outcome")).sort("step", "source", "trajectory_id", nulls_last=True)
    return Samples(
        steps=rows["step"].to_numpy(),
        rewards=rows["reward"].to_numpy(),
        advantages=rows["advantage"].fill_null(np.nan).to_numpy(),
        outcomes=rows["outcome"].fill_null(np.nan).to_numpy(),
        outcome_name=title,
        ids=tuple(rows["trajectory_id"].fill_null("")),
        sources=tuple(rows["source"].fill_null("")),
    )

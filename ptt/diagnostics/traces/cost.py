"""What the episodes cost: in money and tokens, by episode, by tool and in all, and whether they grow dearer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.model import Interval, Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.statistics.clustered_share import MIN_CLUSTERS, student_t
from ptt.diagnostics.traces.judging import Judged, graded, not_judged
from ptt.diagnostics.traces.outcomes import GROWTH, success_rises, values_of
from ptt.diagnostics.traces.tables import TraceTables
from ptt.diagnostics.wording import sig

AMOUNTS: Final = ("cost_usd", "tokens_in", "tokens_out")
MOST_TOOLS: Final = 50
Row = tuple[Any, ...]
ALL, EPISODE, SUCCESS, FAILING, TOOL = "all", "episode", "success", "failing", "tool"
SCHEMA: Final = {
    "part": pl.String, "name": pl.String, "episodes": pl.Int64, "cost_usd": pl.Float64, "low": pl.Float64,
    "high": pl.Float64, "tokens_in": pl.Float64, "tokens_out": pl.Float64,
}  # fmt: skip


def judge_cost(tables: TraceTables) -> Judged:
    """Add up what the episodes cost, and judge whether they grow dearer."""
    table = cost_table(tables)
    if table.is_empty():
        return not_judged(
            "neither cost nor tokens of episodes are recorded",
            missing=("trajectories.cost_usd",),
            enable="write with each episode its cost_usd, or its prompt_tokens and completion_tokens",
            applies=False,
        )
    mean = table.row(by_predicate=pl.col("part") == EPISODE, named=True)
    units = {"cost_usd": "$ an episode", "tokens_in": "tokens read", "tokens_out": "tokens written an episode"}
    reason = ", ".join(f"{sig(mean[name])} {unit}" for name, unit in units.items() if mean[name] is not None)
    finding = _dearer(tables)
    return Judged(verdict=graded(*([] if finding is None else [finding]), reason=reason), tables={"cost": table})


def cost_table(tables: TraceTables) -> pl.DataFrame:
    """Return what all episodes cost, one of them, one success, all that fail, and the calls of each tool.

    `low` and `high` bound the cost of all episodes, where not all record theirs, and the mean of one, at 95%.
    """
    episodes = tables.episodes
    if not any(episodes[name].count() for name in AMOUNTS):
        return pl.DataFrame(schema=SCHEMA)
    failing = episodes.filter(pl.col("success") == False)  # noqa: E712  # an expression
    labelled = _totals(episodes.filter(pl.col("success").is_not_null()))
    total, interval, good = _totals(episodes), _mean_interval(tables), int(episodes["success"].sum() or 0)
    known, bound = max(episodes[name].count() for name in AMOUNTS), _bound(tables, total["cost_usd"], interval)
    rows = [
        _row(ALL, "", known, total, bound),
        _row(EPISODE, "", episodes["cost_usd"].count(), {name: _mean(episodes[name]) for name in AMOUNTS}, interval),
        *([_row(SUCCESS, "", good, {name: _each(labelled[name], good) for name in AMOUNTS})] if good else []),
        *([_row(FAILING, "", failing.height, _totals(failing))] if failing.height else []),
        *(_row(TOOL, row.pop("tool"), row.pop("episodes"), row) for row in by_tool(tables).to_dicts()),
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def by_tool(tables: TraceTables) -> pl.DataFrame:
    """Return what the calls of each tool cost: an episode is spread evenly over its turns, a turn over its calls."""
    if not any(tables.episodes[name].count() for name in AMOUNTS):
        return pl.DataFrame(schema={"tool": pl.String, "episodes": pl.Int64, **dict.fromkeys(AMOUNTS, pl.Float64)})
    calls = tables.calls.filter(pl.col("tool").is_not_null()).select("episode", "turn", "tool")
    of = tables.episodes.select("episode", "n_turns", *AMOUNTS)
    turns = pl.max_horizontal(pl.col("turn").n_unique().over("episode"), pl.col("n_turns").fill_null(1))
    spread = calls.join(of, on="episode").with_columns((1 / turns / pl.len().over("episode", "turn")).alias("part"))
    sums = [
        pl.when(pl.col(name).is_not_null().any()).then((pl.col(name) * pl.col("part")).sum()).alias(name)
        for name in AMOUNTS
    ]
    found = spread.group_by("tool").agg(pl.col("episode").n_unique().cast(pl.Int64).alias("episodes"), *sums)
    dearest = found.sort("cost_usd", "tokens_out", "tool", descending=[True, True, False], nulls_last=True)
    return dearest.head(MOST_TOOLS)


def _row(part: str, name: str, episodes: int, amounts: Mapping[str, Any], ends: Interval | None = None) -> Row:
    low, high = ends or (None, None)
    return part, name, episodes, amounts["cost_usd"], low, high, amounts["tokens_in"], amounts["tokens_out"]


def _bound(tables: TraceTables, total: float | None, mean: Interval | None) -> Interval | None:
    """Return what all episodes cost at least and at most, those that do not record it among them."""
    missing = tables.episodes["cost_usd"].null_count()
    if total is None or not missing:
        return None if total is None else (total, total)
    return None if mean is None else (total + missing * mean[0], total + missing * mean[1])


def _each(total: float | None, count: int) -> float | None:
    return None if total is None else total / count


def _totals(episodes: pl.DataFrame) -> dict[str, float | None]:
    return {name: float(episodes[name].sum()) if episodes[name].count() else None for name in AMOUNTS}


def _mean(values: pl.Series) -> float | None:
    known = values.drop_nulls()
    return float(known.sum()) / len(known) if len(known) else None


def _mean_interval(tables: TraceTables) -> Interval | None:
    """Return the 95% interval of the mean cost, from the units that are resampled; None where these are too few."""
    sums, weights = values_of(tables, "cost_usd")
    total, of = (np.bincount(tables.unit, weights=values) for values in (sums, weights))
    total, of = total[of > 0], of[of > 0]
    count = len(of)
    if count < MIN_CLUSTERS:
        return None
    mean = float(total.sum() / of.sum())
    error = math.sqrt(count / (count - 1) * float(np.square(total - mean * of).sum())) / float(of.sum())
    half = student_t(count - 1) * error
    return max(0.0, mean - half), mean + half


def _dearer(tables: TraceTables) -> Finding | None:
    growth = tables.shift("cost_usd")
    if growth is None:
        return None
    pays = success_rises(tables)
    told = ", and success rose with it" if pays else ""
    return Finding(
        severity=Severity.LOW if pays or not tables.order.timed else Severity.MEDIUM,
        claim=f"The cost of an episode grew from ${sig(growth.early)} to ${sig(growth.late)}{told}",
        observed=growth.late,
        limit=GROWTH * growth.early,
        unit="USD an episode",
        onset_step=growth.onset,
        onset_interval=growth.interval,
        evidence={"metric": "trajectories.cost_usd", **growth.levels},
        causes=(
            "longer episodes: more turns, or more that is read again at each of them",
            "another model, another price, or a cache that no longer hits",
            "later tasks take more",
        ),
        confirm=(
            f"compare turns, tokens and model of five episodes before {tables.traces.order} {growth.onset} and five "
            "after it",
        ),
        next=("set a budget an episode near what 95% of the succeeding ones cost",),
    )

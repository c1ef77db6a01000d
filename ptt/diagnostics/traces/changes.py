"""Which rates of a set are looked at for a change over its order, all together, and what could have been seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.model import Healthy
from ptt.diagnostics.statistics.order_change import Matters, Scale, block_edges
from ptt.diagnostics.traces import conduct, outcomes, tools
from ptt.diagnostics.traces.judging import Measured, rises
from ptt.diagnostics.traces.order import Change, Rate, changes_of
from ptt.diagnostics.traces.tables import TraceTables, Values
from ptt.diagnostics.wording import pct, sig

IMPORTANCE: Final[Mapping[str, float]] = {
    "success": 10, "reward": 10, "loops": 4, "truncated": 4, "tool_failures": 3, "cost_usd": 1, "malformed": 1,
    "n_turns": 1, "tokens_out": 1, "latency_s": 1, "void": 0.5, "recovery": 0.5,
}  # fmt: skip
"""Parts of the false alarms: outcomes have the largest, since what else goes wrong mostly shows in them too."""
HARDLY_ANY: Final = 0.005  # of the episodes: "0%" where it is shown
OF_TOOLS: Final = 2.0  # of all single tools together
CHECKED: Final[Mapping[str, tuple[str, ...]]] = {
    "success": ("success",), "tool-failures": ("tool_failures",), "failures-unrecovered": ("recovery",),
    "malformed-calls": ("malformed",), "loops": ("loops",), "void-turns": ("void",), "tool-latency": ("latency_s",),
    "longer-episodes": ("n_turns", "tokens_out"), "cost": ("cost_usd",), "reward-fell": ("reward",),
    "truncated-episodes": ("truncated",),
}  # fmt: skip
"""By the id of a check: the rates that it looks at."""


def with_changes(tables: TraceTables) -> TraceTables:
    """Add what each rate did over the order of the episodes."""
    return replace(tables, changes=changes_of(tables.order, _rates(tables)))


def change_table(changes: Mapping[str, Change]) -> pl.DataFrame:
    """Return one row a rate: its level, its change, and the level at which a change would have been found."""
    rows = []
    for name, one in changes.items():
        told = (None, None, None) if one.shift is None else (one.shift.early, one.shift.late, one.shift.onset)
        rows.append((name, one.label, one.scale.value, one.level, *told, one.p_value, one.seen))
    shape = {
        "rate": pl.String, "label": pl.String, "scale": pl.String, "value": pl.Float64, "early": pl.Float64,
        "late": pl.Float64, "onset": pl.Int64, "p_value": pl.Float64, "seen_at": pl.Float64,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=shape, orient="row")


def with_power(verdict: Healthy, changes: Mapping[str, Change], unit: str) -> Healthy:
    """Say beside a clean answer how large a change would have been found."""
    looked = [changes[name] for name in CHECKED.get(verdict.id, ()) if name in changes]
    if not looked or any(change.shift is not None for change in looked):
        return verdict
    return replace(verdict, reason="; ".join([verdict.reason, *(seen_words(change, unit) for change in looked)]))


def is_blind(changes: Mapping[str, Change]) -> bool:
    """Return whether success could have fallen to hardly any unseen."""
    success = changes.get("success")
    return success is not None and success.shift is None and (success.seen is None or success.seen < HARDLY_ANY)


def seen_words(change: Change, unit: str) -> str:
    """Say in a clause that a rate did not change, and which change would have been found."""
    way = "rise" if change.rises else "fall"
    if change.seen is None:
        return f"too few episodes to find any {way} of {change.label} over the {unit}s"
    return f"no {way} of {change.label} was found, and one to {level_words(change, change.seen)} would have been"


def level_words(change: Change, value: float) -> str:
    """Write a level of a rate."""
    match change.scale:
        case Scale.SHARE:
            return pct(value)
        case Scale.LOG:
            return f"{sig(math.exp(value))} s"
        case _:
            return sig(value)


def _rates(tables: TraceTables) -> dict[str, Rate]:
    """Return the rates that this set records, by the names of IMPORTANCE; single tools as `tool:name`."""
    rates = {**_outcomes(tables), **_shares(tables), **_tools(tables), **_means(tables)}
    return {name: rate for name, rate in rates.items() if rate.weights.any()}


def _rate(name: str, label: str, values: Values, matters: Matters, **more: Any) -> Rate:
    sums, weights = values
    return Rate(label=label, sums=sums, weights=weights, matters=matters, importance=IMPORTANCE[name], **more)


def _outcomes(tables: TraceTables) -> dict[str, Rate]:
    """Return success, or else the reward, and recovery."""
    within = tables.unit if tables.order.mixed else None
    success = outcomes.values_of(tables, "success")
    rates = {
        "success": _rate("success", "success", success, outcomes.falls, rises=False, unit=within),
        "recovery": _rate(
            "recovery", "recovery after a failed call", conduct.recoveries(tables), conduct.is_lost, rises=False
        ),
    }
    if not success[1].any():
        reward, falls = outcomes.values_of(tables, "reward"), outcomes.reward_falls(tables)
        rates["reward"] = _rate("reward", "the mean reward", reward, falls, rises=False, scale=Scale.LEVEL)
    return rates


def _shares(tables: TraceTables) -> dict[str, Rate]:
    episodes = tables.episodes
    malformed, calls = conduct.malformed(tables)
    asked = {
        "malformed": ("malformed calls", malformed, calls),
        "void": ("void turns", conduct.ASKED_VOID, Measured.of(tables, episodes["void"], episodes["said"])),
        "loops": ("loops", conduct.ASKED_LOOPS, Measured.of(tables, episodes["looped"])),
        "truncated": ("truncation", conduct.ASKED_TRUNCATED, Measured.of(tables, episodes["truncated"])),
    }
    return {
        name: _rate(name, label, (one.hits, one.trials), partial(rises, of.bounds))
        for name, (label, of, one) in asked.items()
    }


def _tools(tables: TraceTables) -> dict[str, Rate]:
    """Return the failures of all calls and, of several tools, of those called most."""
    whole, single = tools.failures(tables)
    found = {"tool_failures": ("failed calls", whole), **{f"tool:{name}": (name, one) for name, one in single.items()}}
    matters = partial(rises, tools.BOUNDS)
    return {
        name: Rate(
            label=label if name == "tool_failures" else f"failed calls of {label}",
            sums=one.hits,
            weights=one.trials,
            matters=matters,
            importance=IMPORTANCE[name] if name == "tool_failures" else OF_TOOLS / len(single),
        )
        for name, (label, one) in found.items()
    }


def _means(tables: TraceTables) -> dict[str, Rate]:
    rates = {
        length.column: _rate(
            length.column, length.what, outcomes.values_of(tables, length.column), outcomes.grows(length.least),
            scale=Scale.MEAN,
        )
        for length in outcomes.LENGTHS
    }  # fmt: skip
    spent = outcomes.values_of(tables, "cost_usd")
    rates["cost_usd"] = _rate("cost_usd", "cost", spent, outcomes.grows(0.0), scale=Scale.MEAN)
    seconds = outcomes.latencies(tables)
    rates["latency_s"] = _rate("latency_s", "latency", seconds, outcomes.slows, scale=Scale.LOG)
    return rates


SHOWN_BLOCKS: Final = 24  # of the table: as many as a chart shows side by side
SHOWN_EPISODES: Final = 10  # of a block there, at least: the share of fewer jumps between none and all


def over_order(tables: TraceTables) -> pl.DataFrame:
    """Return what each block of neighbouring episodes shows, as shares and means; null where it is not known."""
    episodes = tables.episodes
    step = episodes["step"] if episodes["step"].null_count() == 0 else None
    shown = max(1, min(SHOWN_BLOCKS, episodes.height // SHOWN_EPISODES))
    edges = block_edges(episodes.height, shown, None if step is None else step.to_numpy())
    block = np.searchsorted(edges, np.arange(episodes.height), side="right")

    def ratio(hits: str, trials: str) -> pl.Expr:
        return pl.col(hits).sum() / pl.when(pl.col(trials).sum() > 0).then(pl.col(trials).sum())

    rows = episodes.with_columns(pl.Series("block", block))
    return (
        rows.group_by("block")
        .agg(
            pl.col("place").min().alias("first"),
            pl.col("place").max().alias("last"),
            pl.len().cast(pl.Int64).alias("episodes"),
            pl.col("success").mean(),
            ratio("failed", "known").alias("tool_failures"),
            ratio("malformed", "checked").alias("malformed"),
            pl.col("looped").mean().alias("loops"),
            pl.col("truncated").mean(),
            ratio("void", "said").alias("void"),
            pl.col("reward").fill_nan(None).mean(),
            pl.col("n_turns").mean().alias("turns"),
            pl.col("calls").mean(),
            pl.col("cost_usd").mean().alias("cost"),
        )
        .sort("block")
        .with_columns(pl.col("block").cast(pl.Int64))
    )

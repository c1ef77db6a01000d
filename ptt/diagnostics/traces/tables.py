"""Gather what checks look at: one row an episode, in order, and one row a call; names and texts stay behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.environment import ARGS_CHARS, MALFORMED, MIN_JSON_SHARE, are_json
from ptt.diagnostics.evidence.tail_details import EpisodeTails
from ptt.diagnostics.schema import TABLES, named_episodes
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.clustered_share import clustered_share
from ptt.diagnostics.traces.call_outcomes import decide_outcomes
from ptt.diagnostics.traces.model import EPISODE, Share, TraceSet
from ptt.diagnostics.traces.order import Change, Order, Shift, order_of

Values = tuple[FloatArray, FloatArray]
"""Of each episode: the sum of its values, and how many they are; 0 where none is known."""
STEP: Final = "step"


def scan_table(store: Path, table: str) -> pl.LazyFrame:
    """Return a table of a store as a lazy frame; without rows where nothing was found for it."""
    return pl.concat(table_parts(store, table))


def table_parts(store: Path, table: str) -> list[pl.LazyFrame]:
    """Return the parts of a table of a store, one at least; a part of no rows where nothing was found for it."""
    parts = sorted((store / table).glob("part-*.parquet"))
    found = [pl.scan_parquet(part, glob=False, hive_partitioning=False) for part in parts]
    return found or [pl.LazyFrame(schema=TABLES[table])]


def parsers_of_sources(store: Path) -> pl.DataFrame:
    """Return the parser that read each file."""
    kinds = scan_table(store, "sources") if (store / "sources").is_dir() else pl.scan_parquet(store / "sources.parquet")
    return kinds.select("path", "kind").collect()


def count_traces(store: Path, name: str) -> TraceSet:
    """Count what the tables of a store hold; None for what no file tells."""
    episodes = scan_table(store, "trajectories")
    of_source = parsers_of_sources(store).lazy().rename({"path": "source"})
    of_kind = episodes.group_by("source").len().join(of_source, on="source", how="left").group_by("kind")
    cost = pl.col("cost_usd").filter(pl.col("cost_usd").abs() < HUGE)
    totals = episodes.select(
        pl.len().alias("episodes"),
        pl.col("success").count().alias("labelled"),
        pl.col("n_turns").sum().alias("turns"),
        pl.col("n_turns").count().alias("with_turns"),
        pl.col("n_tool_calls").sum().alias("calls"),
        pl.col("n_tool_calls").count().alias("with_calls"),
        pl.col("n_tool_fail").sum().alias("errors"),
        pl.col("reward").fill_nan(None).mean().alias("reward"),
        pl.col("reward").fill_nan(None).count().alias("rewarded"),
        cost.sum().alias("cost_usd"),
        cost.count().alias("costed"),
        *(
            pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name)
            for name in ("tokens_in", "tokens_out")
        ),
        pl.col("step").count().alias("with_step"),
        pl.col("step").min().alias("first"),
        pl.col("step").max().alias("last"),
        pl.col("task").n_unique().alias("tasks"),
        pl.col("task").count().alias("with_task"),
    )
    callers = episodes.filter(pl.col("n_tool_calls") > 0).select(
        "trajectory_id"
    )  # not those that write actions as text
    calls = (
        scan_table(store, "tool_calls")
        .select("trajectory_id", "name", "ok")
        .join(callers, on="trajectory_id", how="semi")
        .select(pl.col("name").drop_nulls().n_unique().alias("tools"), (~pl.col("ok")).sum().alias("marked"))
    )
    sums, counted, formats = pl.collect_all([totals, calls, of_kind.agg(pl.col("len").sum()).sort("kind")])
    row, of_calls = sums.row(0, named=True), counted.row(0, named=True)
    return TraceSet(
        name=name,
        kinds={str(kind): int(count) for kind, count in formats.iter_rows()},
        assistant_turns=row["turns"] if row["with_turns"] else None,
        tool_calls=row["calls"] if row["with_calls"] else None,
        tool_errors=max(0, row["errors"] - of_calls["marked"]) or None,  # so far of results without their calls
        reward_mean=row["reward"],
        cost_usd=row["cost_usd"] if row["costed"] else None,
        distinct_tools=of_calls["tools"] if row["with_calls"] else None,
        **_placed(row),
        **{key: row[key] for key in ("episodes", "labelled", "rewarded", "costed", "tokens_in", "tokens_out")},
    )


def _placed(row: dict[str, Any]) -> dict[str, Any]:
    """Return by what the episodes are ordered, and the ends of that order."""
    stepped = row["episodes"] and row["with_step"] == row["episodes"]
    order = {"order": STEP, "first": row["first"], "last": row["last"]}
    by_number = {"order": EPISODE, "first": 1 if row["episodes"] else None, "last": row["episodes"] or None}
    return (order if stepped else by_number) | {"tasks": row["tasks"] if row["with_task"] else None}


MIN_TASKS: Final = 10
"""Tasks from which on they are what is resampled. With fewer, intervals are of these tasks: their episodes count."""
LOOKED_AT: Final = 200  # episodes by which a format's way to number turns is told
EVIDENCE: Final = ("told_failed", "told_by", "result_form", "result_hints")
HUGE: Final = 1e150  # no reward, price or time
KEPT: Final = (
    "trajectory_id", "step", "group_id", "task", "env", "model", "success", "reward", "n_turns", "n_tool_calls",
    "tokens_in", "tokens_out", "cost_usd", "truncated", "stop_reason", "error_type", "source", "sample_id",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TraceTables:
    """The traces as checks see them.

    episodes: one row each, in order, with `name` (what reports call it), `episode` (from 0), `place` (its training
    step, or its number from 1), `unit` (what is resampled: the number of its task where tasks repeat, else its own),
    `task_key` (task, else prompt; null where not known), `group` (prompt group, else task, else prompt; null where none
    is known), `said` and `void` (assistant turns whose text is known, and of these the ones with neither text nor call;
    null where not known), `calls`, `known` (calls with a known outcome), `failed`, `checked` (calls whose form is
    known), `malformed`, and the columns of the table of trajectories.
    calls: one row each, sorted by episode and call, with `episode`, `call`, `turn`, `tool`, `args` and `result`
    (hashes), `result_len`, `failed` and `malformed` (null where not known), `known_by` (how `failed` is known),
    `counted` (`failed`, null where a format tells of failures alone: no share can be made of them), `error_type`,
    `error_text`, `latency_s`.
    """

    store: Path
    traces: TraceSet
    episodes: pl.DataFrame
    calls: pl.DataFrame
    order: Order
    tails: EpisodeTails | None = None  # of the tokens beside the traces; None where there are no pairs of logprobs
    changes: Mapping[str, Change] = field(default_factory=dict)  # of each rate over the order, by its name

    @cached_property
    def unit(self) -> IntArray:
        """What each episode is resampled with."""
        return self.episodes["unit"].to_numpy().astype(np.int64)

    @property
    def by_task(self) -> bool:
        """Whether tasks are what is resampled."""
        return bool(len(self.unit)) and int(self.unit.max()) + 1 < len(self.unit)

    def share(self, hits: pl.Series, trials: pl.Series | None = None) -> Share:
        """Return a share over the episodes: hits of trials, or of episodes where `hits` is Boolean; null is unknown."""
        known = hits.is_not_null().to_numpy()
        of = np.ones(len(hits)) if trials is None else trials.fill_null(0).to_numpy().astype(np.float64)
        return self._share(hits.fill_null(0).cast(pl.Float64).to_numpy(), np.where(known, of, 0.0), self.unit)

    def call_share(self, hit: pl.Expr, calls: pl.DataFrame | None = None) -> Share:
        """Return the share of calls that hit among those with a known answer; episodes (or tasks) are resampled."""
        rows = (self.calls if calls is None else calls).select("episode", hit.alias("hit")).drop_nulls("hit")
        of = rows.group_by("episode").agg(pl.col("hit").sum().cast(pl.Float64), pl.len().cast(pl.Float64))
        return self._share(of["hit"].to_numpy(), of["len"].to_numpy(), self.unit[of["episode"].to_numpy()])

    @staticmethod
    def _share(hits: FloatArray, trials: FloatArray, unit: IntArray) -> Share:
        found = clustered_share(hits, trials, unit)
        return Share(hits=found.hits, trials=found.trials, interval=found.interval, clusters=found.clusters)

    def names(self, episodes: Iterable[int]) -> str:
        """Return what episodes are called, for findings to name them."""
        names = self.episodes["name"]
        return ", ".join(names[int(at)] for at in episodes)

    def shift(self, rate: str) -> Shift | None:
        """Return the change of a rate for the worse; None where there is none, or it is not recorded."""
        change = self.changes.get(rate)
        return None if change is None else change.shift

    @cached_property
    def outcome(self) -> pl.Series:
        """Each episode's success; all null where none is labelled."""
        return self.episodes["success"]


def per_episode(tables: TraceTables, rows: pl.DataFrame) -> Values:
    """Return two numbers of each episode: `rows` has the episode, and then these; 0 where it has no row."""
    found = tables.episodes.height
    at = rows["episode"].to_numpy()
    both = np.zeros((2, found))
    both[:, at] = rows[:, 1:].cast(pl.Float64).to_numpy().T
    return both[0], both[1]


def gather_tables(store: Path, traces: TraceSet, tails: EpisodeTails | None = None) -> TraceTables:
    """Gather the tables of a store for the checks."""
    found = scan_table(store, "trajectories").select(*KEPT, "prompt_hash").collect()
    found = named_episodes(found).drop("sample_id").unique("trajectory_id", keep="first", maintain_order=True)
    found = found.with_columns(_usable("reward"), _usable("cost_usd"), pl.col("reward").is_not_null().alias("rewarded"))
    number = pl.int_range(pl.len(), dtype=pl.UInt32).alias("row")
    index = found.select("trajectory_id", number, pl.col("source").alias("path"))
    index = index.join(parsers_of_sources(store), on="path", how="left", maintain_order="left").drop("path")
    turns, silent = _turns_by_episode(store, index)
    calls = _calls(store, index)
    rows = found.with_row_index("row").join(turns, on="row", how="left", maintain_order="left")
    rows = _void(store, index, rows, silent, calls)
    timed = traces.order != STEP and rows["begun"].is_not_null().all() and rows["begun"].n_unique() > 1
    rows = _ordered(rows, traces.order == STEP, timed)
    at = np.empty(rows.height, np.uint32)
    at[rows["row"].to_numpy()] = np.arange(rows.height, dtype=np.uint32)
    calls = calls.with_columns(pl.Series("episode", at[calls["row"].to_numpy()])).drop("row")
    calls = calls.sort("episode", "call", maintain_order=True)
    rows = rows.join(_calls_by_episode(calls), on="episode", how="left", maintain_order="left")
    none = pl.when(rows["n_tool_calls"].is_not_null() if calls.height else pl.lit(value=False)).then(0)
    rows = rows.with_columns(pl.col("calls", "known", "failed", "checked", "malformed").fill_null(none))
    return TraceTables(
        store=store,
        traces=traces,
        episodes=rows.drop("row", "begun", "n_tool_calls"),
        calls=calls,
        order=order_of(rows, timed=timed or traces.order == STEP),
        tails=tails,
    )


def _ordered(rows: pl.DataFrame, stepped: bool, timed: bool) -> pl.DataFrame:
    """Put episodes in order, and say what is resampled and what is compared."""
    if stepped or timed:
        rows = rows.sort("step" if stepped else "begun", maintain_order=True)
    task = pl.coalesce(_key("task"), pl.col("prompt_hash"))
    group = pl.coalesce(pl.when(pl.col("group_id").is_not_null()).then(pl.struct("step", "group_id").hash(1)), task)
    number = pl.int_range(pl.len(), dtype=pl.UInt32)
    rows = rows.with_columns(task.alias("task_key"), group.alias("group")).with_columns(
        number.alias("episode"),
        (pl.col("step") if stepped else number.cast(pl.Int64) + 1).alias("place"),
        pl.coalesce("task_key", "group").alias("of"),
    )
    of = rows["of"]
    repeats = of.null_count() == 0 and MIN_TASKS <= of.n_unique() < rows.height
    unit = of.rank("dense").cast(pl.UInt32) - 1 if repeats else rows["episode"]
    return rows.with_columns(unit.alias("unit")).drop("of")


def _usable(name: str) -> pl.Expr:
    """Return the values that can be added up: neither NaN nor infinite, nor so large that their squares are."""
    return pl.when(pl.col(name).abs() < HUGE).then(pl.col(name)).alias(name)


def _key(name: str) -> pl.Expr:
    return pl.when(pl.col(name).is_not_null()).then(pl.col(name).hash(1))


def _turns_by_episode(store: Path, index: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Count assistant turns with a known text, and find when each episode began; and list turns without any text."""
    silent = (pl.col("role") == "assistant") & (pl.col("text_len") == 0)
    times = [pl.col(name).fill_nan(None).min() for name in ("t_start", "t_end")]
    counts, places = [], []
    for part in table_parts(store, "turns"):  # one after the other: whole, they are the largest table there is
        turns = part.select("trajectory_id", "turn_idx", "role", "text_len", "t_start", "t_end")
        rows = turns.join(index.lazy(), on="trajectory_id").drop("trajectory_id", "kind").collect()
        places.append(rows.filter(silent).select("row", pl.col("turn_idx").alias("turn")))
        counts.append(
            rows.group_by("row").agg(
                ((pl.col("role") == "assistant") & pl.col("text_len").is_not_null()).sum().alias("said"),
                (pl.col("text_len") > 0).any().alias("texts"),
                pl.min_horizontal(*times).alias("begun"),
            )
        )
    said = pl.concat(counts).group_by("row").agg(pl.col("said").sum(), pl.col("texts").any(), pl.col("begun").min())
    return said, pl.concat(places)


def _void(
    store: Path, index: pl.DataFrame, rows: pl.DataFrame, silent: pl.DataFrame, calls: pl.DataFrame
) -> pl.DataFrame:
    """Count void turns, which neither say nor call anything; null where texts or turns of calls are unknown."""
    known = pl.col("texts") & (pl.col("said") > 0)
    if calls.height and not _numbers_turns(store, index, calls):
        known = known & ~pl.col("row").is_in(calls["row"].unique().implode())
    void = silent.join(calls.select("row", "turn"), on=["row", "turn"], how="anti").group_by("row").len("void")
    return (
        rows.join(void, on="row", how="left", maintain_order="left")
        .with_columns(
            pl.when(known).then(pl.col("said")).alias("said"),
            pl.when(known).then(pl.col("void").fill_null(0)).alias("void"),
        )
        .drop("texts")
    )


def _numbers_turns(store: Path, index: pl.DataFrame, calls: pl.DataFrame) -> bool:
    """Tell whether calls stand at turns of the assistant, and not at numbers of their own, by the first episodes."""
    first = calls.filter(pl.col("row") <= pl.col("row").min() + LOOKED_AT).select("row", "turn")
    named = first.select("row").unique().join(index, on="row")
    own = scan_table(store, "turns").filter(pl.col("role") == "assistant").join(named.lazy(), on="trajectory_id")
    turns = own.select("row", pl.col("turn_idx").alias("turn")).collect()
    return not first.join(turns, on=["row", "turn"], how="semi").is_empty()


def _calls(store: Path, index: pl.DataFrame) -> pl.DataFrame:
    """Return one row a call: hashes for arguments, and what is known of its outcome."""
    columns = (
        "trajectory_id",
        pl.col("call_idx").alias("call"),
        pl.col("turn_idx").alias("turn"),
        pl.col("name").alias("tool"),
        pl.when(pl.col("args_json").is_not_null()).then(pl.col("args_json").hash(1)).alias("args"),
        pl.col("result_hash").alias("result"),
        "result_len",
        "ok",
        pl.col("ok").fill_null(value=False).alias("returned"),
        pl.col("ok_source").alias("source"),
        *EVIDENCE,
        "error_type",
        "error_text",
        _usable("latency_s"),
    )
    parts = table_parts(store, "tool_calls")
    found = [part.select(columns).join(index.lazy(), on="trajectory_id").drop("trajectory_id") for part in parts]
    calls = pl.concat([part.collect() for part in found])
    calls = decide_outcomes(calls).with_columns(_counted().alias("counted"))
    sound = _sound_arguments(store)
    calls = calls.join(sound, on="args", how="left", maintain_order="left")
    is_json_tool = pl.col("sound").mean().over("tool") >= MIN_JSON_SHARE
    broken = (is_json_tool & ~pl.col("sound")).fill_null(value=False)
    reported = pl.col("error_type").str.contains(MALFORMED).fill_null(value=False)
    looked_at = calls["args"].is_not_null().any() or calls["error_type"].is_not_null().any()
    malformed = pl.when(pl.lit(bool(looked_at))).then(pl.col("tool").is_null() | broken | reported)
    return calls.with_columns(malformed.alias("malformed")).drop("sound", "returned", "source", "kind", "ok", *EVIDENCE)


def _counted() -> pl.Expr:
    """Return outcomes that shares are made of: none of a format that tells of failures, and of most calls nothing."""
    hits, known = pl.col("failed").sum().over("kind"), pl.col("failed").count().over("kind")
    alone = (hits == known) & (pl.len().over("kind") >= 2 * known)
    return pl.when(~alone).then("failed")


def _calls_by_episode(calls: pl.DataFrame) -> pl.DataFrame:
    """Count calls, those with a known outcome, those that failed, those whose form is known, and malformed ones."""
    return calls.group_by("episode").agg(
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("counted").count().cast(pl.Int64).alias("known"),
        pl.col("counted").sum().cast(pl.Int64).alias("failed"),
        pl.col("malformed").count().cast(pl.Int64).alias("checked"),
        pl.col("malformed").sum().cast(pl.Int64),
    )


def _sound_arguments(store: Path) -> pl.DataFrame:
    """Tell which arguments are JSON, by their hash; not of those that were cut when they were stored."""
    texts = (
        scan_table(store, "tool_calls")
        .filter(pl.col("args_json").str.len_chars() < ARGS_CHARS)
        .select(pl.col("args_json").unique())
        .collect()["args_json"]
    )
    return pl.DataFrame([texts.hash(1).alias("args"), pl.Series("sound", are_json(texts), pl.Boolean)])

"""Turn a run's tables into the evidence that rules look at and the small tables that reports show."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from ptt.diagnostics.config import Settings
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import algorithm_of
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.gathering.audit import audit_table
from ptt.diagnostics.gathering.completions import Completions
from ptt.diagnostics.gathering.details import gather_details
from ptt.diagnostics.gathering.environment import gather_environment, tool_table
from ptt.diagnostics.gathering.evaluation import gather_evaluation
from ptt.diagnostics.gathering.facts import run_facts
from ptt.diagnostics.gathering.freshness import gather_freshness
from ptt.diagnostics.gathering.machines import gather_machines, ranks_table
from ptt.diagnostics.gathering.rewards import gather_rewards
from ptt.diagnostics.gathering.segments import gather_segments
from ptt.diagnostics.gathering.series import (
    aggregate_table,
    read_other,
    read_series,
    series_table,
    spellings_of_training,
)
from ptt.diagnostics.gathering.tails import gather_tails, tool_use
from ptt.diagnostics.gathering.tokens_by_step import gather_pairs, gather_signal
from ptt.diagnostics.gathering.unpaired import NONE_RECORDED, unpaired
from ptt.diagnostics.gathering.validity import gather_validity
from ptt.diagnostics.gathering.where import files_by_step
from ptt.diagnostics.rules.policy_update import kl_over_target
from ptt.diagnostics.store.ingest import UNREADABLE, UNRECOGNISED
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.store.scan import read_table, read_trajectories
from ptt.diagnostics.store.wide import WideMetrics, read_wide

__all__ = ["Gathered", "gather"]


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What judging and telling start from."""

    evidence: Evidence
    tables: dict[str, pl.DataFrame]
    wide: WideMetrics  # the metrics that `tables` leaves out: too many for rows
    post_name: str = "post_observation"  # what the slice after an observation is called


NO_SEQUENCES = "no file that is read here holds per-token logprobs"


def gather(
    *,
    name: str,
    folder: Path,
    manifest: Manifest,
    tokens: Tokens | None,
    settings: Settings,
) -> Gathered:
    """Read the store's tables and the token tables into evidence."""
    metrics, wide = _metrics(folder), read_wide(folder, manifest)
    series = read_series(metrics, wide)
    other = read_other(metrics, wide)
    limits = {"kl/ref": settings.limits.get(kl_over_target.ID, {}).get("limit", kl_over_target.KL_LIMIT)}
    trajectories, calls = read_trajectories(folder, wide), read_table(folder, "tool_calls")
    tables = {
        "aggregates": aggregate_table(series, limits),
        "series": series_table(series),
        "metrics": metrics,
        "trajectories": trajectories,
        "tool_calls": calls,
        "audit": audit_table(trajectories, read_table(folder, "turns")),
        "tools": tool_table(trajectories, calls),
        "files": files_by_step(tokens, trajectories),
    }
    if wide.parts:  # the rows leave these out
        tables["other_series"] = series_table(other)
    found, post_name = None, Gathered.post_name
    if tokens is not None:
        post_name = _post_name(folder, series, tokens)
        with ThreadPoolExecutor(1) as aside:
            behind = aside.submit(gather_details, tokens, Completions(folder), post_name=post_name)
            found = gather_tails(tokens, post_name=post_name)
        tables |= found[1] | behind.result() if found else {}
    alone, missing = unpaired(manifest)
    alone = alone if tokens is None else ""
    machines = gather_machines(metrics, read_table(folder, "ranks"), wide)
    tables["ranks"] = ranks_table(machines)
    algorithm = algorithm_of(
        manifest.facts,
        series,
        logged=spellings_of_training(metrics, wide, ranks=True),
        sampled="rollout_logp" in tokens.scan.columns if tokens else False,
    )
    run = run_facts(name, manifest.facts, series, tokens, wide.steps)
    evidence = Evidence(
        run=replace(run, algorithm=algorithm.name or run.algorithm),
        algorithm=algorithm,
        metrics=series,
        other=other,
        eval_loss=read_series(metrics, WideMetrics(folder), split="eval").get("eval/loss"),
        environment=gather_environment(trajectories, calls, read_table(folder, "turns")),
        evaluation=gather_evaluation(metrics, read_table(folder, "evals"), trajectories, wide),
        rewards=gather_rewards(metrics, trajectories, read_table(folder, "rewards"), wide),
        freshness=gather_freshness(tokens),
        pairs=gather_pairs(tokens),
        signal=gather_signal(tokens, trajectories),
        machines=machines,
        events=_events(read_table(folder, "events")),
        tails=found[0] if found else None,
        tails_missing=() if found else missing if alone else NONE_RECORDED,
        tails_reason="" if found else alone or _why_no_tails(folder, tokens),
        tool_use=tool_use(tokens) if tokens is not None else None,
        validity=gather_validity(tokens) if tokens is not None else None,
        segments=gather_segments(wide.rows(metrics), tokens),
        limits=settings.limits,
    )
    return Gathered(evidence=evidence, tables=tables, wide=wide, post_name=post_name)


def _metrics(folder: Path) -> pl.DataFrame:
    """Read the metrics with the priority of their sources, which an empty table lacks."""
    metrics = read_table(folder, "metrics")
    return metrics if "priority" in metrics.columns else metrics.with_columns(pl.lit(0, pl.Int32).alias("priority"))


def _events(table: pl.DataFrame) -> tuple[Event, ...]:
    rows = table.select("step", "kind", "text", "source").iter_rows()
    return tuple(
        Event(step=step, kind=kind or "", text=text or "", source=source or "") for step, kind, text, source in rows
    )


def _why_no_tails(folder: Path, tokens: Tokens | None) -> str:
    if tokens is None:
        sources = read_table(folder, "sources")
        foreign = sources.filter(pl.col("kind") == UNRECOGNISED).height
        if not sources.height:
            return "the run holds no file"
        closed = sources.filter(pl.col("kind") == UNREADABLE).height
        unread = f"; {foreign} of {sources.height} files are in formats it does not read" if foreign else ""
        unread += f"; {closed} of {sources.height} files cannot be read at all" if closed else ""
        return NO_SEQUENCES + unread
    rows = tokens.tables.rows
    if not rows["ok"].any():
        return f"all {rows.height} recorded sequences were rejected: no step, no mask, or lists of different length"
    return "no model token has a finite log-ratio"


def _names_tools(tokens: Tokens) -> bool:
    if "tool_names" not in tokens.scan.columns:
        return False
    return bool((tokens.scalars["tool_names"].list.len() > 0).any())


def _post_name(folder: Path, series: Mapping[str, Series], tokens: Tokens) -> str:
    """Call the slice post_tool only where something proves that the gaps between model tokens are tool output."""
    called = series.get("tools/call_frequency")
    proved = (
        _names_tools(tokens)
        or (called is not None and bool((called.finite()[1] > 0).any()))
        or not read_table(folder, "tool_calls").is_empty()
    )
    return "post_tool" if proved else "post_observation"

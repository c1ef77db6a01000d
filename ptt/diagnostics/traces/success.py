"""How many episodes succeed: in all, by task, tool, model and step, by prompt group, and by how long they are.

What is not labelled stays unknown: it is in no share, and never a failure.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.model import Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.statistics.clustered_share import clustered_share
from ptt.diagnostics.traces.interface import Judged, graded, not_judged
from ptt.diagnostics.traces.model import Share
from ptt.diagnostics.traces.order import Shift, shift_of
from ptt.diagnostics.traces.tables import TraceTables
from ptt.diagnostics.wording import pct

FALL: Final = 0.15  # of the episodes: what a success rate must lose to matter
GREAT_FALL: Final = 0.4
FEW_SHARE: Final = 0.1  # of the episodes, at most: hardly any has anything to learn from, or to compare
FEW_AT_MOST: Final = 0.25  # that succeed, as far as chance goes
MOST_NAMES: Final = 50  # of a table: by episodes; the rest is in the store
BUCKETS: Final = 8  # of turns: more are too small to compare
ENABLE: Final = (
    "label episodes: write success (or the score of a scorer with two outcomes) with each, as your format has it; "
    "a reward alone does not say what counts as success"
)
CAUSES: Final = (
    "the policy changed, or forgot",
    "the environment or one of its tools broke",
    "later tasks are harder",
    "the grader or verifier changed",
)


def judge_success(tables: TraceTables) -> Judged:
    """Count successes, and judge whether they fell."""
    episodes = tables.episodes
    labelled = int(episodes["success"].count())
    views = {"by": by_names(tables), "groups": by_group(episodes), "turn_counts": by_turns(tables)}
    views = {name: table for name, table in views.items() if not table.is_empty()}
    if not labelled:
        verdict = not_judged(
            "whether episodes succeeded is not recorded", missing=("trajectories.success",), enable=ENABLE
        ).verdict
        return Judged(verdict=verdict, tables=views)
    share = tables.share(episodes["success"])
    change = _fall(tables, share)
    finding = _few(tables, share) if change is None else change
    findings = [] if finding is None else [finding]
    reason = f"{share.hits:,} of {share.trials:,} labelled episodes succeed{interval_text(share)}"
    if labelled < episodes.height:
        reason += f"; {episodes.height - labelled:,} are not labelled"
    return Judged(verdict=graded(*findings, reason=reason), measured={"success_rate": share}, tables=views)


def interval_text(share: Share) -> str:
    """Return the interval of a share, in brackets; nothing where there is none."""
    if share.interval is None:
        return ""
    return f" (95% interval {pct(share.interval[0])} to {pct(share.interval[1])})"


def _fall(tables: TraceTables, share: Share) -> Finding | None:
    """Return the fall of the success rate; a note where it may be the tasks that differ."""
    values, weights = _within_tasks(tables, tables.episodes["success"].cast(pl.Float64))
    fall = shift_of(tables.order, values, weights, lambda early, late: early - late >= FALL)
    if fall is None:
        return None
    severity = Severity.HIGH if fall.early - fall.late >= GREAT_FALL else Severity.MEDIUM
    severity = severity if tables.order.timed or tables.order.mixed else Severity.LOW
    same = " on the same tasks" if tables.order.mixed else ""
    return Finding(
        severity=severity,
        claim=f"The success rate fell from {pct(fall.early)} to {pct(fall.late)}{same}",
        observed=fall.late,
        limit=fall.early - FALL,
        unit="share",
        onset_step=fall.onset,
        onset_interval=fall.interval,
        evidence={"metric": "trajectories.success", "hits": share.hits, "trials": share.trials, **shift_numbers(fall)},
        causes=CAUSES,
        confirm=(
            f"compare five failing episodes after {tables.traces.order} {fall.onset} with succeeding ones of like "
            "tasks before it: where do they part?",
        ),
        next=(
            "look first at what else is named here: tools that fail, calls that are malformed, episodes cut off",
            "run twenty of the early tasks again: if they fail now, it is no matter of the tasks",
        ),
    )


def shift_numbers(shift: Shift) -> dict[str, float]:
    """Return what a finding keeps of a change."""
    return {"early": shift.early, "late": shift.late, "p_value": shift.p_value}


def _within_tasks(tables: TraceTables, values: pl.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return each episode's value and its weight; where tasks come early and late, apart from what its task has."""
    weights = values.is_not_null().cast(pl.Float64).to_numpy()
    if tables.order.mixed:
        frame = pl.DataFrame({"value": values, "unit": tables.episodes["unit"]})
        own = pl.col("value").mean().over("unit")
        values = frame.select(pl.col("value") - own + pl.col("value").mean())["value"]
    return values.fill_null(0.0).to_numpy(), weights


def _few(tables: TraceTables, share: Share) -> Finding | None:
    """Return that nothing succeeds, or hardly anything, where there is enough to say so and it grows no better."""
    if share.interval is None or share.interval[1] >= FEW_AT_MOST or (share.value or 0.0) > FEW_SHARE:
        return None
    values, weights = _within_tasks(tables, tables.episodes["success"].cast(pl.Float64))
    if shift_of(tables.order, values, weights, lambda early, late: late > max(early, FEW_SHARE)) is not None:
        return None
    low, high = share.interval
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{share.hits:,} of {share.trials:,} labelled episodes succeed (95% interval {pct(low)} to "
        f"{pct(high)}); the tasks may be hard",
        observed=share.value,
        limit=FEW_SHARE,
        unit="share",
        evidence={"metric": "trajectories.success", "hits": share.hits, "trials": share.trials},
        causes=(
            "the tasks are hard for this agent",
            "the grader or verifier passes next to nothing",
            "the agent's answers do not reach the grader in the form that it reads",
        ),
        confirm=("grade the best-looking episode by hand: does the grader agree?",),
        next=("solve one task by hand in the same environment and let it be graded", "then add tasks that are easier"),
    )


def by_names(tables: TraceTables) -> pl.DataFrame:
    """Return success and reward by task, environment, model, step and tool, the most frequent first."""
    episodes = tables.episodes.select(
        "episode", "unit", "task", "env", "model", "step", "success", "reward", "cost_usd"
    )
    parts = [
        _by(episodes.filter(pl.col(kind).is_not_null()), kind, pl.col(kind).cast(pl.String))
        for kind in ("task", "env", "model", "step")
        if episodes[kind].null_count() < episodes.height
    ]
    if tables.calls.height:
        used = tables.calls.filter(pl.col("tool").is_not_null()).select("episode", "tool").unique()
        parts.append(_by(used.join(episodes, on="episode"), "tool", pl.col("tool")))
    return pl.concat(parts) if parts else pl.DataFrame()


def _by(rows: pl.DataFrame, kind: str, name: pl.Expr) -> pl.DataFrame:
    rows = rows.with_columns(name.alias("name"))
    counts = rows.group_by("name").agg(
        pl.lit(kind).alias("kind"),
        pl.len().cast(pl.Int64).alias("episodes"),
        pl.col("success").count().cast(pl.Int64).alias("labelled"),
        pl.col("success").sum().cast(pl.Int64).alias("successes"),
        pl.col("reward", "cost_usd").fill_nan(None).mean(),
    )
    counts = counts.sort("episodes", "name", descending=[True, False]).head(MOST_NAMES)
    kept = rows.join(counts.select("name"), on="name", how="semi").filter(pl.col("success").is_not_null())
    bounds = {
        str(key[0]): clustered_share(
            part["success"].cast(pl.Float64).to_numpy(),
            np.ones(part.height),
            (part["unit"].rank("dense") - 1).cast(pl.Int64).to_numpy(),
        ).interval
        for key, part in kept.select("name", "success", "unit").partition_by("name", as_dict=True).items()
    }
    ends = [bounds.get(name) or (None, None) for name in counts["name"]]
    return counts.select(
        "kind",
        "name",
        "episodes",
        "labelled",
        "successes",
        (pl.col("successes") / pl.when(pl.col("labelled") > 0).then(pl.col("labelled"))).alias("success"),
        pl.Series("low", [low for low, _ in ends], pl.Float64),
        pl.Series("high", [high for _, high in ends], pl.Float64),
        "reward",
        "cost_usd",
    )


def by_group(episodes: pl.DataFrame) -> pl.DataFrame:
    """Return successes and the spread of rewards by prompt group; groups of one are none."""
    reward = pl.col("reward").fill_nan(None)
    label = pl.coalesce("task", pl.col("group_id"), pl.col("group").cast(pl.String))
    return (
        episodes.filter(pl.col("group").is_not_null())
        .group_by("group")
        .agg(
            label.first().alias("name"),
            pl.len().cast(pl.Int64).alias("episodes"),
            pl.col("success").sum().cast(pl.Int64).alias("successes"),
            pl.col("success").count().cast(pl.Int64).alias("labelled"),
            (reward.max() - reward.min()).alias("reward_spread"),
        )
        .filter(pl.col("episodes") > 1)
        .sort("episodes", "name", descending=[True, False])
        .select(
            pl.col("name").alias("group"),
            "episodes",
            pl.when(pl.col("labelled") > 0).then("successes").alias("successes"),
            "reward_spread",
        )
        .head(MOST_NAMES)
    )


def by_turns(tables: TraceTables) -> pl.DataFrame:
    """Return success by the number of assistant turns, in buckets of about as many episodes each."""
    rows = tables.episodes.select("n_turns", "success", "unit").drop_nulls("n_turns")
    if rows.is_empty():
        return pl.DataFrame()
    edges = sorted({int(edge) for edge in np.quantile(rows["n_turns"].to_numpy(), np.linspace(0, 1, BUCKETS + 1)[:-1])})
    at = np.searchsorted(edges, rows["n_turns"].to_numpy(), side="right") - 1
    highest = [*(edge - 1 for edge in edges[1:]), int(rows["n_turns"].to_numpy().max())]
    found = []
    for number, (low, high) in enumerate(zip(edges, highest, strict=True)):
        part = rows.filter(pl.Series(at == number))
        labelled = part.drop_nulls("success")
        share = clustered_share(
            labelled["success"].cast(pl.Float64).to_numpy(),
            np.ones(labelled.height),
            (labelled["unit"].rank("dense") - 1).cast(pl.Int64).to_numpy(),
        )
        bucket = f"{low}" if high == low else f"{low} to {high}"
        ends = share.interval or (None, None)
        value = share.value if share.trials else None
        found.append({"bucket": bucket, "episodes": part.height, "success": value, "low": ends[0], "high": ends[1]})
    shape = {"bucket": pl.String, "episodes": pl.Int64, "success": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    return pl.DataFrame(found, schema=shape)

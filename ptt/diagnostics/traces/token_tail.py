"""Which tool, turn or class of error carries the tail of the log-ratios of the tokens recorded beside the traces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence.tail_details import EpisodeTails
from ptt.diagnostics.evidence.tails import TAIL_NATS
from ptt.diagnostics.model import Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.bootstrap import coarse_percentile, histogram_entries
from ptt.diagnostics.statistics.clustered_share import TailShare, tail_shares
from ptt.diagnostics.statistics.observation_position import FLOOR
from ptt.diagnostics.traces.judging import Judged, graded, not_judged
from ptt.diagnostics.traces.tables import TraceTables
from ptt.diagnostics.traces.tools import classify_errors
from ptt.diagnostics.wording import pct, sig

TABLE: Final = "token_tail"
COUNTS: Final = "token_tail.parquet"
"""In a store: trajectory_id, tail and tokens of each joined episode."""
TOOL, TURN, ERROR = "tool", "turn", "error class"
NO_ERROR: Final = "no error"
FIRST_TURN: Final = "1"  # comes before any tool: what the policy unlearns there is no fault of the environment
MAX_TURN: Final = 8  # turns from here on are one: few episodes have them
MAX_VALUES: Final = 20  # of a kind: those with most tokens
MIN_TOKENS: Final = 100  # of a value: fewer have no p99
MIN_LIFT: Final = 1.5  # of the tail over the tokens: as the tail of a whole run has its holder named
MAX_TOKEN_SHARE: Final = 2 / 3  # what holds more of the tokens cannot hold the tail at such a lift
MIN_SHARE: Final = 0.1  # of the tail: mending what holds less changes little
Q99: Final = 0.99
SCHEMA: Final = {
    "kind": pl.String, "name": pl.String, "tokens": pl.Int64, "tail_share": pl.Float64, "token_share": pl.Float64,
    "lift": pl.Float64, "low": pl.Float64, "high": pl.Float64, "p99": pl.Float64,
}  # fmt: skip
LINK: Final = (
    "record tokens with two logprobs (ptt's recorder) beside the logged samples (TRL: log_completions=True), and the "
    "same sample_id in both (TRL: log_extra)"
)
CAUSES: Final = {
    TOOL: "the tool's results are unlike what the policy saw before: a format, a length or noise of its own",
    ERROR: "the policy seldom saw such errors, and what it says after them drifts",
    TURN: "contexts grow with the turns, and the late ones are rare in training",
}
NEXT: Final = {
    TOOL: "read what this tool returned before the tokens with the largest log-ratios; give it a schema",
    ERROR: "retry transient errors outside the agent's context, or leave tokens after them out of the loss",
    TURN: "compare sampler and trainer on contexts of this length; cut or summarise long ones",
}


def judge_token_tail(tables: TraceTables) -> Judged:
    """Judge whether one tool, turn or class of error holds the tail beyond what its tokens explain."""
    tails = tables.tails
    if tails is None:
        reason = "no tokens with two logprobs are recorded beside the traces"
        return not_judged(reason, missing=("sequences",), enable=LINK, applies=False)
    if not tails.joined:
        reason = f"none of the {tails.sequences:,} recorded sequences of tokens names an episode"
        return not_judged(reason, missing=("sample_id",), enable=LINK)
    table = tail_table(tails)
    level = {kind: _p99(rows) for kind, rows in _scopes(tails)}
    held = [row for row in table.iter_rows(named=True) if _holds(row, level[row["kind"]])]
    held.sort(key=lambda row: (row["token_share"] - row["tail_share"], row["kind"], row["name"]))
    p99 = _p99(tails.rows)
    reached = f"p99 of |r| is {sig(p99)} nats" if p99 >= FLOOR else f"p99 of |r| is below {FLOOR:g} nats"
    reason = f"{reached} over {tails.joined:,} sequences of tokens that are joined to episodes"
    findings = [_finding(row, tails) for row in held[:1]]  # of others that overlap it the same is true
    return Judged(verdict=graded(*findings, reason=reason), tables={TABLE: table})


def tail_table(tails: EpisodeTails) -> pl.DataFrame:
    """Return every tool, turn and class of error with its share of the tail and of the tokens.

    Tools and errors are set against the other tokens after an observation, turns against all. Intervals are of
    prompt groups or episodes as a whole, and of all values together.
    """
    named = [(kind, rows, _names(rows)) for kind, rows in _scopes(tails)]
    looks = sum(len(names) for _, _, names in named)
    found = [row for kind, rows, names in named for row in _rows(kind, rows, names, looks)]
    return pl.DataFrame(found, schema=SCHEMA, orient="row")


def write_tail_counts(tails: EpisodeTails, store: Path) -> None:
    """Keep how many tail tokens each joined episode has, for an export."""
    counts = tails.rows.group_by("trajectory_id").agg(
        pl.col("tail").sum().cast(pl.Int64), pl.col("n").cast(pl.Int64).sum().alias("tokens")
    )
    counts.sort("trajectory_id").write_parquet(store / COUNTS)


def _scopes(tails: EpisodeTails) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield each kind with the rows that have a `value` of it."""
    after = tails.rows.filter(pl.col("turn") > 0)
    yield TOOL, after.with_columns(pl.col("tool").alias("value")).drop_nulls("value")
    number = pl.col("turn") + 1
    turn = pl.when(number >= MAX_TURN).then(pl.lit(f"{MAX_TURN}+")).otherwise(number.cast(pl.String))
    yield TURN, tails.rows.with_columns(turn.alias("value"))
    known = after.drop_nulls("failed")
    failed = classify_errors(known.filter("failed")).drop("said").rename({"error_class": "value"})
    others = known.filter(~pl.col("failed")).with_columns(pl.lit(NO_ERROR).alias("value"))
    yield ERROR, pl.concat([failed, others])


def _names(rows: pl.DataFrame) -> list[str]:
    counts = rows.group_by("value").agg(pl.col("n").cast(pl.Int64).sum())
    names: list[str] = counts.sort("n", "value", descending=[True, False])["value"].head(MAX_VALUES).to_list()
    return names


def _rows(kind: str, rows: pl.DataFrame, names: list[str], looks: int) -> Iterator[tuple[object, ...]]:
    value, unit, seq = (rows[name].to_numpy() for name in ("value", "unit", "seq"))
    tail, tokens = (rows[name].to_numpy().astype(np.float64) for name in ("tail", "n"))
    all_tail, all_tokens = float(tail.sum()), float(tokens.sum())
    shares: list[TailShare | None] = [None] * len(names)
    if all_tail:
        shares = tail_shares(value, unit, tail, tokens, sequence=seq, wanted=names, looks=looks)
    for name, share in zip(names, shares, strict=True):
        own = value == name
        of_tail = float(tail[own].sum()) / all_tail if all_tail else None
        of_tokens = float(tokens[own].sum()) / all_tokens
        lift = None if of_tail is None or not of_tokens else of_tail / of_tokens
        ends = (None, None) if share is None else share.lift_interval
        p99 = _p99(rows.filter(pl.col("value") == name))
        shown = p99 if tokens[own].sum() >= MIN_TOKENS and p99 >= FLOOR else None
        yield kind, name, int(tokens[own].sum()), of_tail, of_tokens, lift, *ends, shown


def _p99(rows: pl.DataFrame) -> float:
    _, coarse, n = histogram_entries(rows)
    histogram = np.bincount(coarse, weights=n, minlength=bins.COARSE_COUNT).astype(np.float64)
    value = float(coarse_percentile(histogram, Q99))
    return value if math.isfinite(value) else 0.0


def _holds(row: dict[str, Any], level: float) -> bool:
    """Tell whether a value holds the tail: clearly more than its tokens explain, at a level that matters."""
    if (
        (row["kind"], row["name"]) in {(ERROR, NO_ERROR), (TURN, FIRST_TURN)}
        or row["low"] is None
        or row["p99"] is None
    ):
        return False
    matters = level >= TAIL_NATS and row["p99"] >= TAIL_NATS
    apart = row["lift"] >= MIN_LIFT and row["low"] > 1 and row["token_share"] <= MAX_TOKEN_SHARE
    return bool(matters and apart and row["tail_share"] >= MIN_SHARE)


def _finding(row: dict[str, Any], tails: EpisodeTails) -> Finding:
    """Return that a value holds the tail; how far the tail of the run itself matters, `ptt diagnose` judges."""
    kind, name = row["kind"], row["name"]
    of = "all tokens" if kind == TURN else "the tokens after tool calls"
    begin = {
        TURN: f"assistant turn {name} holds",
        TOOL: f"tokens after calls of {name} hold",
        ERROR: f"tokens after errors ({name}) hold",
    }[kind]
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{begin} {pct(row['tail_share'])} of the tail (|r| from {tails.begins:g} nats) and "
        f"{pct(row['token_share'])} of {of}; their p99 of |r| is {sig(row['p99'])} nats",
        observed=row["lift"],
        limit=MIN_LIFT,
        unit="times its share of the tokens",
        slice=f"{kind.replace(' ', '_')}:{name}",
        evidence={
            "metric": TABLE,
            "pair": tails.pair,
            **{key: row[key] for key in ("tokens", "tail_share", "token_share", "p99")},
            "lift_low": row["low"],
            "lift_high": row["high"],
            "sequences": tails.joined,
        },
        causes=(CAUSES[kind],),
        confirm=("read with ptt show the sequences with most tail tokens, and what came before them",),
        next=(NEXT[kind], "make pairs of these prompts: ptt traces --export pairs --from-tail"),
    )

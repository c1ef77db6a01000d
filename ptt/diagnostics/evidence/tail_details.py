"""What makes up the tail: exposure or intensity, how heavy it is, what guards would have done, who holds it.

Everything comes from the token tables and scalar columns; no token is read again.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.completions import Completions, recorded_observations
from ptt.diagnostics.evidence.tails import CELLS, TAIL_NATS, add_units, join_unit, name_slices
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.attribution import (
    Split,
    add_tail_counts,
    attribution,
    bin_limit,
    exposure_intensity,
    tail_limit,
    top_sequences,
)
from ptt.diagnostics.statistics.clipping_replay import guarded_pair, replay_guards
from ptt.diagnostics.statistics.ess import tail_heaviness
from ptt.diagnostics.statistics.histograms import count_histograms, exceedance_tables
from ptt.diagnostics.statistics.observation_position import DISTANCES, FLOOR
from ptt.diagnostics.statistics.partial_tables import share_kept
from ptt.diagnostics.statistics.slices import POST_TOOL, TEXT_ONLY
from ptt.diagnostics.statistics.staleness import BUCKETS, UNKNOWN, add_lags, staleness
from ptt.diagnostics.statistics.windows import label_spans, split_steps

MAX_TURN: Final = 8
BEFORE_ANY: Final = DISTANCES[0]
RESULT_NAMES: Final = ("failed", "not failed")
TAIL_TOO_SMALL: Final = f"late tails begin below {FLOOR:g} nats: the position of so small a |r| is not counted"
NO_RESULTS: Final = "whether a tool failed is not recorded: write tool_failed beside tool_names"
NOT_TIED: Final = (
    "the logged samples show whether a tool failed, but nothing links them to sequences: write the sequences' "
    "sample_id beside each completion (TRL: log_extra), or tool_failed into the recorder files"
)
LEFT_OUT: Final = "texts of these sequences are recorded; --keep-text keeps and shows them"


@dataclass(frozen=True, kw_only=True)
class TailPlaces:
    """Late tail tokens by position, what is missing for it, and which sample each late sequence is."""

    finer: Split | None
    missing: str
    tied: pl.DataFrame  # seq, trajectory_id


def locate_tail(
    tokens: Tokens, completions: Completions, late: pl.DataFrame, *, first_bin: int, limit: float
) -> TailPlaces:
    """Tell late tokens apart by place; `late`: the late (seq, slice) rows."""
    rows = tokens.single_rows
    tied = tied_samples(tokens, completions, rows).join(late.select("seq").unique(), on="seq", how="semi")
    if limit < FLOOR:
        return TailPlaces(finer=None, missing=TAIL_TOO_SMALL, tied=tied)
    stretches = tokens.tables.stretches
    late_stretches = stretches.filter(np.isin(stretches["seq"].to_numpy(), late["seq"].to_numpy(), kind="table"))
    if not (late_stretches["turn"] > 0).any():
        return TailPlaces(finer=None, missing="", tied=tied)
    observations = observations_of_tied(
        tokens, completions, rows.join(late_stretches.select("seq").unique(), on="seq", how="semi"), tied
    )
    cut = add_tail_counts(late_stretches, first_bin).join(
        observations, on=["seq", "turn"], how="left", maintain_order="left"
    )
    missing = ""
    if not observations["failed"].is_not_null().any():
        missing = NO_RESULTS if completions.calls["ok"].null_count() == completions.calls.height else NOT_TIED
    return TailPlaces(finer=(cut, _position_keys(observations)), missing=missing, tied=tied)


def tied_samples(tokens: Tokens, completions: Completions, rows: pl.DataFrame) -> pl.DataFrame:
    """Return which logged sample each sequence of `rows` (of the token pass) is: seq, trajectory_id."""
    ids = [name for name in ("sample_id", "trajectory_id") if name in tokens.scan.columns]
    if not ids or completions.trajectories.is_empty():
        return pl.DataFrame(schema={"seq": pl.UInt32(), "trajectory_id": pl.String()})
    return completions.tied(rows.join(tokens.scalars.select("seq", *ids), on="seq", how="left"))


def observations_of(tokens: Tokens, completions: Completions, rows: pl.DataFrame) -> pl.DataFrame:
    """Return seq, turn, tool and failed of every observation of `rows` (of the token pass) that is known."""
    return observations_of_tied(tokens, completions, rows, tied_samples(tokens, completions, rows))


def observations_of_tied(
    tokens: Tokens, completions: Completions, rows: pl.DataFrame, tied: pl.DataFrame
) -> pl.DataFrame:
    """Return tool and failure of each observation: as recorded with the tokens, else from the sample."""
    lists = [name for name in ("tool_names", "tool_failed") if name in tokens.scan.columns]
    recorded = recorded_observations(rows.join(tokens.scalars.select("seq", *lists), on="seq", how="left"))
    if tied.is_empty():
        return recorded
    logged = completions.observations(rows, tied)
    both = recorded.join(logged, on=["seq", "turn"], how="full", coalesce=True)
    merged = (pl.coalesce(name, f"{name}_right").alias(name) for name in ("tool", "failed"))
    return both.select("seq", "turn", *merged)


def _position_keys(observations: pl.DataFrame) -> dict[str, pl.Expr]:
    before = pl.when(pl.col("turn") == 0).then(pl.lit(BEFORE_ANY))
    turn = pl.when(pl.col("turn") >= MAX_TURN).then(pl.lit(f"{MAX_TURN}+")).otherwise(pl.col("turn").cast(pl.String))
    keys = {
        "distance": pl.col("distance").replace_strict(dict(enumerate(DISTANCES)), return_dtype=pl.String),
        "turn": turn,
    }
    if observations["tool"].is_not_null().any():
        keys["tool name"] = before.otherwise(pl.col("tool"))
    if observations["failed"].is_not_null().any():
        failed = pl.when("failed").then(pl.lit(RESULT_NAMES[0])).when(~pl.col("failed")).then(pl.lit(RESULT_NAMES[1]))
        keys["tool result"] = before.otherwise(failed)
    return keys


def add_texts(top: pl.DataFrame, completions: Completions, rows: pl.DataFrame, tied: pl.DataFrame) -> pl.DataFrame:
    """Fill `text` of the top sequences that are samples whose texts were kept."""
    wanted = top.select("seq", pl.col("max_turn").fill_null(0).alias("turn"))
    wanted = wanted.join(tied, on="seq").join(rows.select("seq", "n_obs"), on="seq")
    if wanted.is_empty():
        return top
    texts = completions.windows(wanted)
    return top.with_columns(pl.Series("text", [texts.get(seq) for seq in top["seq"].to_list()], dtype=pl.String))


SCALARS: Final = ("group_id", "trajectory_id", "sample_id", "rank", "env", "policy_version", "reward")
STEP_BLOCKS: Final = 20
NOTES: Final[dict[str, pl.DataType]] = {"table": pl.String(), "reason": pl.String()}


def gather_details(tokens: Tokens, completions: Completions, *, post_name: str) -> dict[str, pl.DataFrame]:
    """Return exposure, heaviness, extremes, tail_ratios, counterfactual, attribution, top_sequences, staleness, notes.

    details_notes says why a table, or a part of it, is empty. Without a single usable token there are no tables.
    """
    cells, pair = tokens.tables.cells_of(0), tokens.pairs[0]
    if cells.is_empty():
        return {}
    identity = _identity(tokens)
    sequences = join_unit(tokens.tables.sequences, identity.select("seq", "unit").sort("seq"))
    steps = cells["step"].unique().sort().to_list()
    windows = split_steps(steps, 3)
    names = {TEXT_ONLY: "text_only", POST_TOOL: post_name}
    recorded = set(tokens.tables.cells["pair"].unique().to_list())
    guarded = guarded_pair([recorded_pair.name for recorded_pair in tokens.pairs], recorded)
    of_guarded = cells if guarded == 0 else tokens.tables.cells_of(guarded)
    replayed = replay_guards(of_guarded, sequences if guarded == 0 else None, windows, pair=tokens.pairs[guarded].name)
    late_cells = label_spans(cells.select(*CELLS, "slice"), windows[-1:], name="window")
    first_bin = tail_limit(late_cells)
    late = add_tail_counts(label_spans(sequences.drop("unit"), windows[-1:], name="window"), first_bin)
    late = late.join(identity.drop("step"), on="seq", how="left", maintain_order="left")
    stale, why = staleness(sequences, identity, split_steps(steps, STEP_BLOCKS))
    split = exposure_intensity(cells, sequences, windows, pair=pair.name, inverse=pair.inverse)
    limit = bin_limit(first_bin)
    places = locate_tail(tokens, completions, late, first_bin=first_bin, limit=limit)
    counted, both = count_histograms(cells, windows), [names[TEXT_ONLY], names[POST_TOOL]]
    heavy = tail_heaviness(counted, tokens.tables.sequences, windows, pair=pair.name, inverse=pair.inverse, names=both)
    far, ratios = exceedance_tables(counted, names=both)
    files = [(file.name, file.start, file.first_row) for file in tokens.scan.files]
    top = top_sequences(late, identity, tokens.tables.stretches, files)
    top = add_texts(top, completions, tokens.tables.rows, places.tied)
    top = top.join(_rows_in_steps(tokens.tables.rows, top["seq"]), on="seq", how="left", maintain_order="left")
    of_top = places.tied.join(top.filter(pl.col("text").is_null()), on="seq", how="semi")
    share = share_kept(tokens.scan.rows)
    few = f"of one prompt group in {share} of each step" if share > 1 else ""
    reasons = [
        ("exposure", "fewer than two steps" if split.is_empty() else ""),
        ("attribution", few),
        ("attribution", places.missing),
        ("top_sequences", few),
        ("top_sequences", LEFT_OUT if completions.texts_left_out(of_top) else ""),
        ("staleness", why),
    ]
    return {
        "exposure": split,
        "heaviness": heavy,
        "extremes": far,
        "tail_ratios": ratios,
        "counterfactual": name_slices(replayed, names),
        "attribution": attribution(late, _attribution_keys(late, names), limit=limit, finer=places.finer),
        "top_sequences": top.drop("seq"),
        "staleness": name_slices(stale, names),
        "details_notes": pl.DataFrame([row for row in reasons if row[1]], schema=NOTES, orient="row"),
    }


def _rows_in_steps(rows: pl.DataFrame, seq: pl.Series) -> pl.DataFrame:
    """Return the place of sequences within their steps, seq and step_row: what `ptt show` calls some of them by."""
    steps = rows.filter(pl.col("seq").is_in(seq.implode()))["step"].unique()
    of_steps = rows.filter(pl.col("step").is_in(steps.implode(), nulls_equal=True)).sort("seq")
    return of_steps.select("seq", step_row=pl.int_range(pl.len()).over("step"))


def _identity(tokens: Tokens) -> pl.DataFrame:
    """Return what is known about each sequence: scalars, step, n_obs, tools, lag bucket, resampling unit."""
    scalars = tokens.single_scalars
    used: list[str] = [name for name in SCALARS if name in scalars.columns]
    if "tool_names" in scalars.columns:
        scalars = scalars.with_columns(tool_count=pl.col("tool_names").list.len())
        used.append("tool_count")
    rows = tokens.single_rows.select("seq", "step", "n_obs")
    identity = add_units(rows.join(scalars.select("seq", *used), on="seq", how="left", maintain_order="left"))[0]
    tools = pl.col("n_obs") > 0
    if "tool_count" in used:
        tools = tools | (pl.col("tool_count").fill_null(0) > 0)
    identity = identity.with_columns(tools.alias("has_tools"))
    return add_lags(identity)[0].drop("lag") if "policy_version" in used else identity


def _attribution_keys(rows: pl.DataFrame, names: dict[int, str]) -> dict[str, pl.Expr]:
    """Return the keys that the tail is attributed by: what the run records of them, as text."""
    turns = pl.when(pl.col("n_obs") >= 3).then(pl.lit("3+")).otherwise(pl.col("n_obs").cast(pl.String))
    keys = {
        "slice": pl.col("slice").replace_strict(names, return_dtype=pl.String),
        "observations": turns,
        "tools": pl.when("has_tools").then(pl.lit("with tools")).otherwise(pl.lit("without tools")),
    }
    for name, column in (("group", "group_id"), ("rank", "rank"), ("env", "env")):
        if column in rows.columns and rows[column].null_count() < rows.height:
            keys[name] = pl.col(column)
    if "bucket" in rows.columns and (rows["bucket"] != UNKNOWN).any():
        keys["lag"] = pl.when(pl.col("bucket").is_in(BUCKETS)).then(pl.col("bucket"))
    return keys


MIN_GROUPS: Final = 20  # prompt groups to resample: with fewer, episodes are resampled
BELOW: Final = int(np.searchsorted(bins.coarse_edges(), FLOOR)) - 1  # the bin that collects everything below FLOOR
FIRST: Final = int(np.searchsorted(bins.coarse_edges(), TAIL_NATS))


@dataclass(frozen=True, kw_only=True)
class EpisodeTails:
    """Stretches of tokens of joined episodes.

    rows: `seq`, `trajectory_id`, `unit` (what is resampled: prompt group or episode), `turn` (observations before it),
    `n`, `tail` (of them with |r| at `begins` nats or above), `coarse_bin` and `coarse_n` (tokens below FLOOR are in
    the last bin below it), `tool`, `failed`, `error_type` and `error_text` of the observation before; null where not
    known. Empty where nothing joins.
    """

    pair: str
    begins: float
    sequences: int  # with tokens, matched or not
    joined: int  # matched, among those that are kept one by one
    rows: pl.DataFrame


def gather_episode_tails(tokens: Tokens, completions: Completions) -> EpisodeTails:
    """Join the tails of the main pair to the samples of a store."""
    rows = tokens.single_rows
    tied = _tied(tokens, completions, rows)
    stretches = tokens.tables.stretches.join(tied, on="seq")
    counted = add_tail_counts(stretches, FIRST).with_columns(_whole_histogram())
    known = observations_of_tied(tokens, completions, rows.join(tied, on="seq", how="semi"), tied)
    logged = completions.observations(rows, tied).select("seq", "turn").join(tied, on="seq")
    errors = logged.join(_errors(completions), on=["trajectory_id", "turn"]).drop("trajectory_id")
    counted = (
        counted.join(known, on=["seq", "turn"], how="left", maintain_order="left")
        .join(errors, on=["seq", "turn"], how="left", maintain_order="left")
        .join(_units(tokens, tied), on="seq", how="left", maintain_order="left")
    )
    return EpisodeTails(
        pair=tokens.pairs[0].name,
        begins=float(bins.coarse_edges()[FIRST]),
        sequences=int(tokens.tables.rows["ok"].sum()),
        joined=tied.height,
        rows=counted.drop("distance", "peak", "peak_at"),
    )


def _tied(tokens: Tokens, completions: Completions, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the episode of each sequence: by the ids it names, else by the hash of its token ids."""
    by_id = tied_samples(tokens, completions, rows)
    if "token_hash" not in tokens.scan.columns:
        return by_id
    hashed = tokens.scan.frame.select("seq", "token_hash").drop_nulls().collect(engine="streaming")
    once = completions.trajectories.drop_nulls("token_hash").filter(pl.len().over("token_hash") == 1)
    by_hash = hashed.join(once.select("token_hash", "trajectory_id"), on="token_hash").drop("token_hash")
    by_hash = by_hash.join(rows, on="seq", how="semi").with_columns(pl.col("seq").cast(by_id.schema["seq"]))
    return pl.concat([by_id, by_hash]).unique("seq", keep="first", maintain_order=True).sort("seq")


def _whole_histogram() -> list[pl.Expr]:
    below = (pl.col("n") - pl.col("coarse_n").list.sum()).cast(pl.UInt32)
    return [
        pl.concat_list(pl.lit(BELOW, pl.UInt8), "coarse_bin").alias("coarse_bin"),
        pl.concat_list(below, "coarse_n").alias("coarse_n"),
    ]


def _errors(completions: Completions) -> pl.DataFrame:
    """Return what the first failed call of each observation said, by trajectory and number of the observation."""
    number = pl.col("turn_idx").rank("dense").over("trajectory_id").cast(pl.UInt32)
    results = completions.calls.filter(pl.col("ok").is_not_null()).with_columns(number.alias("turn"))
    failed = results.filter(~pl.col("ok")).sort("trajectory_id", "turn", "call_idx")
    first = failed.unique(["trajectory_id", "turn"], keep="first", maintain_order=True)
    return first.select("trajectory_id", "turn", "error_type", "error_text")


def _units(tokens: Tokens, tied: pl.DataFrame) -> pl.DataFrame:
    """Return what each matched sequence is resampled with: the prompt group if there are enough, else the episode."""
    units, grouped = add_units(tokens.scalars)
    group = tied.select("seq").join(units.select("seq", "unit"), on="seq", how="left", maintain_order="left")
    if grouped and group["unit"].n_unique() >= MIN_GROUPS:
        return group
    return tied.select("seq", pl.col("trajectory_id").rank("dense").alias("unit"))

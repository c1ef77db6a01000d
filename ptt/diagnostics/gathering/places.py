"""Where in their sequences the late tail's tokens sit: how far behind which observation, and of what tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.gathering.completions import Completions, recorded_observations
from ptt.diagnostics.statistics.attribution import Split, with_tail
from ptt.diagnostics.statistics.stretches import DISTANCES, FLOOR

LAST_TURN: Final = 8
BEFORE_ANY: Final = DISTANCES[0]
ONE_OF_TWO: Final = ("failed", "not failed")
TOO_SMALL: Final = f"late tails begin below {FLOOR:g} nats: where in a sequence so small a |r| sits is not counted"
NO_RESULTS: Final = "whether a tool failed is not recorded: write tool_failed beside tool_names"
NOT_TIED: Final = (
    "whether a tool failed is known of the logged samples, but nothing ties them to sequences: write the sequences' "
    "sample_id beside each completion (TRL: log_extra), or tool_failed into the recorder files"
)
LEFT_OUT: Final = "texts of these sequences are recorded; they are kept and shown with --keep-text"


@dataclass(frozen=True, kw_only=True)
class Places:
    """Late stretches told apart, what could not be told, and which sample each late sequence is."""

    finer: Split | None
    missing: str
    tied: pl.DataFrame  # seq, trajectory_id


def places(tokens: Tokens, completions: Completions, late: pl.DataFrame, *, first_bin: int, limit: float) -> Places:
    """Tell late tokens apart by place; `late`: the late (seq, slice) rows."""
    rows = tokens.tables.rows.filter("ok").drop("ok")
    held = [name for name in ("sample_id", "trajectory_id") if name in tokens.scan.columns]
    tied = pl.DataFrame(schema={"seq": pl.UInt32(), "trajectory_id": pl.String()})
    if held and not completions.trajectories.is_empty():
        named = rows.join(tokens.scalars.select("seq", *held), on="seq", how="left")
        tied = completions.tied(named).join(late.select("seq").unique(), on="seq", how="semi")
    if limit < FLOOR:
        return Places(finer=None, missing=TOO_SMALL, tied=tied)
    stretches = tokens.tables.stretches
    mine = stretches.filter(np.isin(stretches["seq"].to_numpy(), late["seq"].to_numpy(), kind="table"))
    if not (mine["turn"] > 0).any():
        return Places(finer=None, missing="", tied=tied)
    known = _observations(tokens, completions, rows.join(mine.select("seq").unique(), on="seq", how="semi"), tied)
    cut = with_tail(mine, first_bin).join(known, on=["seq", "turn"], how="left", maintain_order="left")
    missing = ""
    if not known["failed"].is_not_null().any():
        missing = NO_RESULTS if completions.calls["ok"].null_count() == completions.calls.height else NOT_TIED
    return Places(finer=(cut, _asked(known)), missing=missing, tied=tied)


def _observations(tokens: Tokens, completions: Completions, rows: pl.DataFrame, tied: pl.DataFrame) -> pl.DataFrame:
    """Give what is known of each observation: as recorded with the tokens, else as the sample tells."""
    lists = [name for name in ("tool_names", "tool_failed") if name in tokens.scan.columns]
    recorded = recorded_observations(rows.join(tokens.scalars.select("seq", *lists), on="seq", how="left"))
    if tied.is_empty():
        return recorded
    logged = completions.observations(rows, tied)
    both = recorded.join(logged, on=["seq", "turn"], how="full", coalesce=True)
    merged = (pl.coalesce(name, f"{name}_right").alias(name) for name in ("tool", "failed"))
    return both.select("seq", "turn", *merged)


def _asked(known: pl.DataFrame) -> dict[str, pl.Expr]:
    before = pl.when(pl.col("turn") == 0).then(pl.lit(BEFORE_ANY))
    turn = pl.when(pl.col("turn") >= LAST_TURN).then(pl.lit(f"{LAST_TURN}+")).otherwise(pl.col("turn").cast(pl.String))
    asked = {
        "distance": pl.col("distance").replace_strict(dict(enumerate(DISTANCES)), return_dtype=pl.String),
        "turn": turn,
    }
    if known["tool"].is_not_null().any():
        asked["tool name"] = before.otherwise(pl.col("tool"))
    if known["failed"].is_not_null().any():
        failed = pl.when("failed").then(pl.lit(ONE_OF_TWO[0])).when(~pl.col("failed")).then(pl.lit(ONE_OF_TWO[1]))
        asked["tool result"] = before.otherwise(failed)
    return asked


def with_texts(top: pl.DataFrame, completions: Completions, rows: pl.DataFrame, tied: pl.DataFrame) -> pl.DataFrame:
    """Fill `text` of the top sequences that are samples whose texts were kept."""
    wanted = top.select("seq", pl.col("max_turn").fill_null(0).alias("turn"))
    wanted = wanted.join(tied, on="seq").join(rows.select("seq", "n_obs"), on="seq")
    if wanted.is_empty():
        return top
    texts = completions.windows(wanted)
    return top.with_columns(pl.Series("text", [texts.get(seq) for seq in top["seq"].to_list()], dtype=pl.String))

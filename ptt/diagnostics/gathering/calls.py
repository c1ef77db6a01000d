"""Look at tool calls one by one: malformed, repeated, going round in circles, and under which load."""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence.environment import Load

ARGS_CHARS: Final = 2000  # where stored arguments are cut, as the parsers do it
MALFORMED: Final = r"(?i)parse|malformed|json|schema|invalid_?(arg|call|param|tool)|unknown_?tool|tool_?not_?found"
JSON_TOOL: Final = 0.5  # of a tool's recorded arguments are JSON: then those that are not are malformed
LONGEST_CIRCLE: Final = 4  # calls
TOLD: Final = pl.all_horizontal(pl.col("name", "args_json", "result_hash").is_not_null())
ROUNDS: Final = 3  # the same calls with the same arguments and results, so many times in a row


def malformed(calls: pl.DataFrame) -> pl.DataFrame | None:
    """Tell of each call whether it has no name, no valid JSON for arguments, or an error that says so.

    A tool that takes plain text is no tool whose arguments are broken: a tool counts as one of JSON where at least
    half of its arguments are. Arguments that were cut when they were stored are not looked at. None where neither
    arguments nor kinds of error are recorded.
    """
    if calls.is_empty() or (calls["args_json"].is_null().all() and calls["error_type"].is_null().all()):
        return None
    texts = calls["args_json"].drop_nulls().unique().sort()
    texts = texts.filter(texts.str.len_chars() < ARGS_CHARS)
    sound = pl.DataFrame([texts, pl.Series("sound", _are_json(texts), pl.Boolean)])
    rows = calls.join(sound, on="args_json", how="left", maintain_order="left")
    is_json_tool = pl.col("sound").mean().over("name") >= JSON_TOOL
    broken = is_json_tool & ~pl.col("sound")
    told = pl.col("error_type").str.contains(MALFORMED)
    hit = pl.col("name").is_null() | broken.fill_null(value=False) | told.fill_null(value=False)
    return rows.select("step", "name", hit.alias("hit"))


def _are_json(texts: pl.Series) -> list[bool]:
    """Tell which texts are JSON; those that the fast reader does not take are tried again: it knows no bare NaN."""
    fast = texts.str.json_path_match("$").is_not_null().to_list()
    return [sure or _is_json(text) for sure, text in zip(fast, texts.to_list(), strict=True)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def repeats(calls: pl.DataFrame) -> pl.DataFrame | None:
    """Tell of each call that did not fail whether its trajectory made it before: same name, arguments and result.

    Asking again for what may change, and trying again what failed, are no repeats. None where arguments or results
    are not recorded.
    """
    sure = calls.filter(TOLD & pl.col("ok").fill_null(value=True))
    if sure.is_empty():
        return None
    key = ["trajectory_id", "name", "args_json", "result_hash"]
    return sure.select("step", "trajectory_id", "name", (pl.int_range(pl.len()).over(key) > 0).alias("hit"))


def circles(calls: pl.DataFrame) -> pl.DataFrame | None:
    """Tell of each trajectory with calls whether it makes the same one to four calls three times in a row.

    Same means name, arguments and result: the same tool with other arguments is work, not a circle.
    """
    told = calls.filter(TOLD)
    if told.is_empty():
        return None
    told = told.sort("trajectory_id", "call_idx", maintain_order=True)
    same = told.select(pl.struct("name", "args_json", "result_hash").rank("dense").alias("same"))["same"].to_numpy()
    who = told["trajectory_id"].rank("dense").to_numpy()
    hit = np.zeros(len(who), bool)
    for period in range(1, LONGEST_CIRCLE + 1):
        back = np.zeros(len(who), bool)
        back[period:] = (same[period:] == same[:-period]) & (who[period:] == who[:-period])
        run = np.arange(len(back)) - np.maximum.accumulate(np.where(back, -1, np.arange(len(back))))
        hit |= run >= (ROUNDS - 1) * period  # so many calls in a row equal the one a period before
    rows = told.select("step", "trajectory_id").with_columns(pl.Series("hit", hit))
    return rows.group_by("trajectory_id").agg(pl.col("step").first(), pl.col("hit").any()).sort("step", "trajectory_id")


def calls_in_flight(calls: pl.DataFrame, turns: pl.DataFrame) -> Load | None:
    """Count for each call with a known outcome the calls under way when it began, itself included.

    A call begins when the assistant's turn ends and lasts its latency. None where the files hold no such times.
    """
    ends = turns.filter((pl.col("role") == "assistant") & pl.col("t_end").is_finite())
    ends = ends.select("trajectory_id", "turn_idx", "t_end").unique(["trajectory_id", "turn_idx"], keep="first")
    timed = calls.filter(pl.col("latency_s").is_finite() & (pl.col("latency_s") >= 0))
    timed = timed.join(ends, on=["trajectory_id", "turn_idx"])
    known = timed.filter(pl.col("ok").is_not_null()).sort("step", "t_end", "trajectory_id", "call_idx")
    if known.is_empty():
        return None
    begins = np.sort(timed["t_end"].to_numpy())
    over = np.sort((timed["t_end"] + timed["latency_s"]).to_numpy())
    at = known["t_end"].to_numpy()
    under_way = np.searchsorted(begins, at, side="right") - np.searchsorted(over, at, side="left")
    return Load(
        steps=known["step"].to_numpy(),
        in_flight=under_way.astype(np.float64),
        failed=~known["ok"].to_numpy(),
    )

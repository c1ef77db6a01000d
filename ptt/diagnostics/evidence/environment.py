"""Count calls, failures and turns by step and by tool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.series import Series, finite_series
from ptt.diagnostics.schema import WORDED
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool, under the name the policy calls it by."""

    name: str
    calls: Counts  # calls of this tool; trials are trajectories
    failures: Counts | None  # None: no call's outcome is recorded
    latency: Mapping[str, Series] = field(default_factory=dict)  # "p50", "p95": seconds; empty where not recorded


@dataclass(frozen=True, kw_only=True)
class ToolLoad:
    """For each call with a known outcome: how many calls were in flight when it began, and whether it failed."""

    steps: IntArray
    in_flight: FloatArray
    failed: BoolArray


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """One entry a trajectory, sorted by step; NaN where not recorded."""

    steps: IntArray
    turns: FloatArray  # assistant turns
    tokens: FloatArray  # of the assistant's turns
    reward: FloatArray


@dataclass(frozen=True, kw_only=True)
class AnswerAgreement:
    """How often the last answers of a step agree: shares of equal pairs, by step."""

    across: Series  # share of equal pairs, among answers to different prompts
    within: Series | None  # the same for pairs of answers to one prompt; None where each prompt is answered once
    example: str  # a trajectory with the commonest answer of the last third
    commonest: float  # its share of the answers there
    length: int  # its letters


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What is known about the environment: calls, turns and trajectories, by step and by tool. None: not recorded."""

    split: str  # train, or unknown where no trajectory is known to be of training
    trajectories: int
    steps: int
    calls: int
    failures: Counts | None = None  # failed calls of those with a known outcome
    callers: Counts | None = None  # trajectories that call any tool; None where no call is recorded
    tools: Mapping[str, Tool] = field(default_factory=dict)
    malformed: Counts | None = None
    repeated: Counts | None = None  # calls that repeat an earlier one and its result, among those that did not fail
    recovered: Counts | None = None  # failed calls that a success follows in the same trajectory
    paid_after_failure: Counts | None = None  # trajectories whose last call failed, of those paid well that call
    paid_without_call: Counts | None = None  # trajectories without any call, of those paid well
    void: Counts | None = None  # assistant turns without text and without a call
    loops: Counts | None = None  # trajectories that go round in a circle of calls, of those with calls
    load: ToolLoad | None = None
    episodes: Episodes | None = None
    answers: AnswerAgreement | None = None
    from_recorder: bool = False  # calls come from recorder files, which need not cover every step


MIN_PAIRS: Final = 10  # in a step: with fewer, one coincidence is a tenth of them
LATE_SHARE: Final = 1 / 3  # of the steps


HASHES: Final = ["prompt_hash", "text_hash"]


def answer_agreement(placed: pl.DataFrame, turns: pl.DataFrame) -> AnswerAgreement | None:
    """Return the share of equal pairs among the last answers of a step; None where texts or prompts are not recorded.

    An answer is the text of the last assistant turn that has any. Pairs are counted, not drawn.
    """
    last = (
        turns.filter((pl.col("role") == "assistant") & (pl.col("text_len") > 0) & pl.col("text_hash").is_not_null())
        .sort("turn_idx")
        .group_by("trajectory_id")
        .agg(pl.col("text_hash").last(), pl.col("text_len").last())
    )
    rows = placed.select("trajectory_id", "step", "prompt_hash").filter(pl.col("prompt_hash").is_not_null())
    rows = rows.join(last, on="trajectory_id").sort("step", "trajectory_id")
    if rows.is_empty():
        return None
    parts: dict[str, FloatArray] = {}
    size = pl.col("len").cast(pl.Float64)
    for name, key in (("all", []), ("equal", ["text_hash"]), ("prompt", ["prompt_hash"]), ("both", HASHES)):
        pairs = rows.group_by("step", *key).len().group_by("step").agg((size * (size - 1) / 2).sum()).sort("step")
        parts[name], steps = pairs["len"].to_numpy(), pairs["step"].to_numpy()
    across = _pair_share(
        "answers alike across prompts", steps, parts["equal"] - parts["both"], parts["all"] - parts["prompt"]
    )
    within = _pair_share("answers alike within a prompt", steps, parts["both"], parts["prompt"])
    if across is None:
        return None
    late = rows.filter(pl.col("step") > steps[max(0, int(len(steps) * (1 - LATE_SHARE)) - 1)])
    late = late if late.height else rows
    texts = late.group_by("text_hash").agg(pl.len(), pl.col("trajectory_id").min(), pl.col("text_len").first())
    _, count, example, length = texts.sort("len", "text_hash", descending=[True, False]).row(0)
    return AnswerAgreement(across=across, within=within, example=example, commonest=count / late.height, length=length)


def _pair_share(name: str, steps: IntArray, hits: FloatArray, pairs: FloatArray) -> Series | None:
    enough = pairs >= MIN_PAIRS
    if not enough.any():
        return None
    return finite_series(name, steps[enough], hits[enough] / pairs[enough], raw_name="text_hash")


ARGS_CHARS: Final = 2000  # where stored arguments are cut, as the parsers do it
MALFORMED: Final = r"(?i)parse|malformed|json|schema|invalid_?(arg|call|param|tool)|unknown_?tool|tool_?not_?found"
MIN_JSON_SHARE: Final = 0.5  # of a tool's recorded arguments that are JSON: from here on, the others count as malformed
MAX_LOOP_CALLS: Final = 4  # calls
IS_IDENTIFIED: Final = pl.all_horizontal(pl.col("name", "args_json", "result_hash").is_not_null())
MIN_LOOP_ROUNDS: Final = 3  # how often the same calls with the same arguments and results must repeat in a row


def malformed_calls(calls: pl.DataFrame) -> pl.DataFrame | None:
    """Flag the calls that have no name, invalid JSON as arguments, or an error that says so.

    Plain-text tools do not count as broken: a tool is expected to take JSON if at least half of its arguments are JSON.
    Arguments that were truncated in storage are ignored. None if neither arguments nor error types are recorded.
    """
    if calls.is_empty() or (calls["args_json"].is_null().all() and calls["error_type"].is_null().all()):
        return None
    texts = calls["args_json"].drop_nulls().unique().sort()
    texts = texts.filter(texts.str.len_chars() < ARGS_CHARS)
    sound = pl.DataFrame([texts, pl.Series("sound", are_json(texts), pl.Boolean)])
    rows = calls.join(sound, on="args_json", how="left", maintain_order="left")
    is_json_tool = pl.col("sound").mean().over("name") >= MIN_JSON_SHARE
    broken = is_json_tool & ~pl.col("sound")
    reported = pl.col("error_type").str.contains(MALFORMED)
    hit = pl.col("name").is_null() | broken.fill_null(value=False) | reported.fill_null(value=False)
    return rows.select("step", "name", hit.alias("hit"))


def are_json(texts: pl.Series) -> list[bool]:
    """Tell which texts are JSON; the fast reader does not know bare NaN, so texts it rejects are tried again."""
    fast = texts.str.json_path_match("$").is_not_null().to_list()
    return [sure or _is_json(text) for sure, text in zip(fast, texts.to_list(), strict=True)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def repeated_calls(calls: pl.DataFrame) -> pl.DataFrame | None:
    """Flag for each call that did not fail whether its trajectory made it before: same name, arguments and result.

    Asking again for what may change, and trying again what failed, are no repeats. None where arguments or results
    are not recorded.
    """
    sure = calls.filter(
        IS_IDENTIFIED & pl.col("ok").fill_null(value=True) & ~pl.col("told_failed").fill_null(value=False)
    )
    if sure.is_empty():
        return None
    key = ["trajectory_id", "name", "args_json", "result_hash"]
    return sure.select("step", "trajectory_id", "name", (pl.int_range(pl.len()).over(key) > 0).alias("hit"))


def call_loops(calls: pl.DataFrame) -> pl.DataFrame | None:
    """Flag for each trajectory with calls whether it makes the same one to four calls three times in a row.

    Same means name, arguments and result: the same tool with other arguments is work, not a circle.
    """
    identified = calls.filter(IS_IDENTIFIED)
    if identified.is_empty():
        return None
    identified = identified.sort("trajectory_id", "call_idx", maintain_order=True)
    same = identified.select(pl.struct("name", "args_json", "result_hash").rank("dense").alias("same"))[
        "same"
    ].to_numpy()
    who = identified["trajectory_id"].rank("dense").to_numpy()
    hit = np.zeros(len(who), bool)
    for period in range(1, MAX_LOOP_CALLS + 1):
        back = np.zeros(len(who), bool)
        back[period:] = (same[period:] == same[:-period]) & (who[period:] == who[:-period])
        run = np.arange(len(back)) - np.maximum.accumulate(np.where(back, -1, np.arange(len(back))))
        hit |= run >= (MIN_LOOP_ROUNDS - 1) * period  # this many consecutive calls equal the one a period earlier
    rows = identified.select("step", "trajectory_id").with_columns(pl.Series("hit", hit))
    return rows.group_by("trajectory_id").agg(pl.col("step").first(), pl.col("hit").any()).sort("step", "trajectory_id")


def calls_in_flight(calls: pl.DataFrame, turns: pl.DataFrame) -> ToolLoad | None:
    """Count for each call with a known outcome the calls under way when it began, itself included.

    A call begins when the assistant's turn ends and lasts its latency. None where the files hold no such times.
    """
    ends = turns.filter((pl.col("role") == "assistant") & pl.col("t_end").is_finite())
    ends = ends.select("trajectory_id", "turn_idx", "t_end").unique(["trajectory_id", "turn_idx"], keep="first")
    timed = calls.filter(pl.col("latency_s").is_finite() & (pl.col("latency_s") >= 0))
    timed = timed.join(ends, on=["trajectory_id", "turn_idx"])
    ended_calls = timed.filter(pl.col("ok").is_not_null()).sort("step", "t_end", "trajectory_id", "call_idx")
    if ended_calls.is_empty():
        return None
    begins, ended = (times.sort().to_numpy() for times in (timed["t_end"], timed["t_end"] + timed["latency_s"]))
    at = ended_calls["t_end"].to_numpy()
    in_flight = (np.searchsorted(begins, at, side="right") - np.searchsorted(ended, at, side="left")).astype(np.float64)
    return ToolLoad(steps=ended_calls["step"].to_numpy(), in_flight=in_flight, failed=~ended_calls["ok"].to_numpy())


WELL_PAID_SHARE: Final = (
    0.8  # of the range from the run's lowest reward to its highest (1st and 99th percentile): well paid
)
USUAL_CALLER_SHARE: Final = 0.5  # of a step's trajectories call a tool: then one that does not stands out
MAX_TOOLS: Final = 50  # by number of calls; a policy that invents names makes endless new ones
LATENCIES: Final = {"p50": 0.5, "p95": 0.95}
UNMARKED_FAILURE: Final = pl.col("ok") & ~(
    (pl.col("ok_source") == "unknown") & (pl.col("told_by") == WORDED) & pl.col("told_failed").fill_null(value=False)
).fill_null(value=False)
"""Where no flag tells of a call, what a server writes in place of an answer does; a traceback may be the policy's."""
END_SHARE: Final = 1 / 3  # of the steps, at the end and at the start: the report's early and late


def gather_environment(trajectories: pl.DataFrame, calls: pl.DataFrame, turns: pl.DataFrame) -> Environment | None:
    """Count calls, failures and turns by step and by tool; None where no trajectory of a known step is recorded.

    Only training trajectories count. Where the files do not mark training, all trajectories with an unknown split count
    instead. A trajectory counts once, at its own step.
    """
    placed = trajectories.filter(pl.col("step").is_not_null()).unique("trajectory_id", keep="first")
    split = "train" if (placed["split"] == "train").any() else "unknown"
    placed = placed.filter(pl.col("split") == split).sort("step", "trajectory_id")
    if placed.is_empty():
        return None
    own_calls = _join_steps(calls, placed).sort("step", "trajectory_id", "call_idx").with_columns(UNMARKED_FAILURE)
    own_turns = _join_steps(turns, placed)
    with_outcome = own_calls.filter(pl.col("ok").is_not_null())
    callers = own_calls.select("trajectory_id").unique().with_columns(pl.lit(value=True).alias("called"))
    who = placed.join(callers, on="trajectory_id", how="left")
    return Environment(
        split=split,
        trajectories=placed.height,
        steps=placed["step"].n_unique(),
        calls=own_calls.height,
        failures=_counts("tool calls that fail", with_outcome, ~pl.col("ok")),
        callers=_counts("trajectories that call a tool", who, pl.col("called").is_not_null())
        if own_calls.height
        else None,
        tools=_tools(placed, own_calls),
        malformed=_shares("tool calls that are malformed", malformed_calls(own_calls)),
        repeated=_shares("tool calls that repeat an earlier one", repeated_calls(own_calls)),
        recovered=_counts("failed calls that a success follows", _recovered_calls(with_outcome), pl.col("recovered")),
        void=_void_turns(own_turns, own_calls),
        loops=_shares("trajectories that go round in circles", call_loops(own_calls)),
        load=calls_in_flight(own_calls, own_turns),
        episodes=_episodes(placed, own_turns),
        answers=answer_agreement(placed, own_turns),
        from_recorder=False,
        **_paid_counts(who, with_outcome),
    )


def tool_table(trajectories: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return one row a tool: calls, failures early and late, latency, and how the trajectories that used it ended."""
    split = "train" if (trajectories["split"] == "train").any() else "unknown"
    placed = trajectories.filter((pl.col("split") == split) & pl.col("step").is_not_null())
    placed = placed.unique("trajectory_id", keep="first").sort("step", "trajectory_id")
    steps = placed["step"].unique().sort()
    own_calls = _join_steps(calls, placed)
    third = max(1, round(END_SHARE * len(steps)))
    early = pl.col("step") <= (steps[third - 1] if len(steps) else 0)
    late = pl.col("step") >= (steps[-third] if len(steps) else 0)
    failed = (~pl.col("ok")).cast(pl.Float64)
    ends = placed.select("trajectory_id", "success", "reward")
    used = own_calls.select("trajectory_id", "name").unique().join(ends, on="trajectory_id")
    ended = used.group_by("name").agg(
        pl.len().alias("trajectories"),
        pl.col("success").cast(pl.Float64).mean().alias("success"),
        pl.col("reward").fill_nan(None).mean().alias("reward"),
    )
    return (
        own_calls.filter(pl.col("name").is_not_null())
        .group_by("name")
        .agg(
            pl.len().alias("calls"),
            early.sum().alias("calls_early"),
            late.sum().alias("calls_late"),
            failed.mean().alias("failed"),
            failed.filter(early).mean().alias("failed_early"),
            failed.filter(late).mean().alias("failed_late"),
            *_latency_quantiles("latency_"),
        )
        .join(ended, on="name", how="left")
        .sort("calls", "name", descending=[True, False])
        .head(MAX_TOOLS)
    )


def _join_steps(rows: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    """Keep the rows of these trajectories, under the trajectory's own step."""
    return rows.drop("step", strict=False).join(placed.select("trajectory_id", "step"), on="trajectory_id", how="inner")


def _counts(name: str, rows: pl.DataFrame, hit: pl.Expr) -> Counts | None:
    return _shares(name, rows.select("step", hit.alias("hit")))


def _shares(name: str, rows: pl.DataFrame | None) -> Counts | None:
    """Count hits by step; None without a row."""
    if rows is None or rows.is_empty():
        return None
    by_step = rows.group_by("step").agg(pl.col("hit").sum().cast(pl.Float64), pl.len().cast(pl.Float64)).sort("step")
    steps, hits, trials = (column.to_numpy() for column in by_step)
    return Counts(name=name, steps=steps, hits=hits, trials=trials)


def _tools(placed: pl.DataFrame, calls: pl.DataFrame) -> dict[str, Tool]:
    named = calls.filter(pl.col("name").is_not_null())
    names = named.group_by("name").len().sort("len", "name", descending=[True, False]).head(MAX_TOOLS)["name"].to_list()
    trials = placed.group_by("step").agg(pl.len().cast(pl.Float64).alias("trials")).sort("step")
    tools: dict[str, Tool] = {}
    for name in names:
        rows = named.filter(pl.col("name") == name)
        by_step = trials.join(rows.group_by("step").agg(pl.len().cast(pl.Float64)), on="step", how="left")
        steps, of, made = (column.to_numpy() for column in by_step.sort("step").fill_null(0))
        tools[name] = Tool(
            name=name,
            calls=Counts(name=f"calls of {name} a trajectory", steps=steps, hits=made, trials=of),
            failures=_counts(f"calls of {name} that fail", rows.filter(pl.col("ok").is_not_null()), ~pl.col("ok")),
            latency=_latency(name, rows),
        )
    return tools


def _latency(name: str, rows: pl.DataFrame) -> dict[str, Series]:
    """Return median and 95th percentile of a tool's seconds by step."""
    timed = rows.filter(pl.col("latency_s").is_finite())
    by_step = timed.group_by("step").agg(_latency_quantiles("")).sort("step")
    steps = by_step["step"].to_numpy()
    return {
        part: finite_series(f"{part} latency of {name}", steps, by_step[part].to_numpy(), raw_name="latency_s")
        for part in LATENCIES
        if by_step.height
    }


def _latency_quantiles(prefix: str) -> list[pl.Expr]:
    seconds = pl.col("latency_s").fill_nan(None)
    return [seconds.quantile(q, "nearest").alias(prefix + part) for part, q in LATENCIES.items()]


def _recovered_calls(with_outcome: pl.DataFrame) -> pl.DataFrame:
    """Flag for each failed call whether a later call of its trajectory succeeds."""
    later = pl.col("ok").cast(pl.UInt8).reverse().cum_max().reverse().shift(-1).over("trajectory_id")
    return with_outcome.with_columns((later.fill_null(0) == 1).alias("recovered")).filter(~pl.col("ok"))


def _paid_counts(who: pl.DataFrame, with_outcome: pl.DataFrame) -> dict[str, Counts | None]:
    """Look at the trajectories that count as a success: did the last call fail, was there any call at all?"""
    rewards = who["reward"].fill_nan(None).drop_nulls()
    low, high = rewards.quantile(0.01), rewards.quantile(0.99)
    well = pl.lit(None, pl.Boolean)
    if low is not None and high is not None and high > low:
        well = pl.col("reward").fill_nan(None) >= low + WELL_PAID_SHARE * (high - low)
    paid = who.filter(pl.coalesce("success", well))
    if paid.is_empty() or not who["called"].any():
        return {}
    last = with_outcome.group_by("trajectory_id", maintain_order=True).agg(pl.col("ok").last())
    others = who.group_by("step").agg((pl.col("called").count() / pl.len()).alias("calling"))
    usual = others.filter(pl.col("calling") >= USUAL_CALLER_SHARE)  # elsewhere nobody calls, which is another matter
    acted, expected = paid.join(last, on="trajectory_id"), paid.join(usual, on="step", how="semi")
    return {
        "paid_after_failure": _counts("well-rewarded trajectories after a failed last call", acted, ~pl.col("ok")),
        "paid_without_call": _counts("well-rewarded trajectories without a call", expected, pl.col("called").is_null()),
    }


def _void_turns(turns: pl.DataFrame, calls: pl.DataFrame) -> Counts | None:
    """Count assistant turns without text and call; None where texts, or the turns of calls, are not recorded."""
    recorded = turns.filter((pl.col("role") == "assistant") & pl.col("text_len").is_not_null())
    if recorded.is_empty() or not (recorded["text_len"] > 0).any():
        return None
    at = calls.select("trajectory_id", "turn_idx").unique().with_columns(pl.lit(value=True).alias("called"))
    joined = recorded.join(at, on=["trajectory_id", "turn_idx"], how="left")
    if calls.height and not joined["called"].any():
        return None  # this writer numbers calls, not messages
    return _counts("assistant turns that are void", joined, (pl.col("text_len") == 0) & pl.col("called").is_null())


def _episodes(placed: pl.DataFrame, turns: pl.DataFrame) -> Episodes:
    said = turns.filter((pl.col("role") == "assistant") & pl.col("n_tokens").is_not_null())
    spent = said.group_by("trajectory_id").agg(pl.col("n_tokens").sum().alias("tokens"))
    rows = placed.join(spent, on="trajectory_id", how="left").sort("step", "trajectory_id")
    figures = rows.select(pl.col("n_turns", "tokens", "reward").cast(pl.Float64).fill_null(np.nan))
    turn_counts, tokens, reward = (column.to_numpy() for column in figures)
    return Episodes(steps=rows["step"].to_numpy(), turns=turn_counts, tokens=tokens, reward=reward)

"""What changes over the order of the episodes besides failures: turns, tokens, latency, reward; and it as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.model import Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.order_change import block_edges
from ptt.diagnostics.traces.interface import Judged, graded, no_calls, not_judged
from ptt.diagnostics.traces.loops import looping_calls
from ptt.diagnostics.traces.order import Shift, shift_of
from ptt.diagnostics.traces.tables import TraceTables
from ptt.diagnostics.wording import sig

SHOWN_BLOCKS: Final = 24  # of the table: as many as a chart shows side by side
SHOWN_EPISODES: Final = 10  # of a block there, at least: the share of fewer jumps between none and all
GROWTH: Final = 2.0  # times the early mean: less is what tasks differ by
MIN_TURNS: Final = 8.0  # turns in the end; fewer are no long episode, however short they were
MIN_TOKENS: Final = 1000.0
MIN_SECONDS: Final = 1.0  # a call; less is lost beside what the model takes for a turn
SLOW_SECONDS: Final = 5.0  # a call in the end: it then costs as much as a turn of the model
LATENCY_FACTOR: Final = 3.0  # load alone doubles latencies now and then
REWARD_FALL: Final = 0.5  # standard deviations between episodes: what the reward must lose to matter


@dataclass(frozen=True, kw_only=True)
class Length:
    """A measure of how long an episode is."""

    column: str
    what: str
    least: float


LENGTHS: Final = (
    Length(column="n_turns", what="assistant turns", least=MIN_TURNS),
    Length(column="tokens_out", what="written tokens", least=MIN_TOKENS),
)


def judge_length(tables: TraceTables) -> Judged:
    """Judge whether episodes grow longer, and find the table of blocks."""
    views = {"over_order": over_order(tables)}
    known = [length for length in LENGTHS if tables.episodes[length.column].count()]
    if not known:
        verdict = not_judged(
            "neither turns nor tokens of episodes are recorded",
            missing=("trajectories.n_turns",),
            enable="write episodes as messages with roles",
        ).verdict
        return Judged(verdict=verdict, tables=views)
    findings = [finding for length in known if (finding := _longer(tables, length)) is not None]
    means = [f"{sig(_mean(tables.episodes[length.column]))} {length.what}" for length in known]
    return Judged(verdict=graded(*findings[:1], reason=f"{' and '.join(means)} per episode"), tables=views)


def _longer(tables: TraceTables, length: Length) -> Finding | None:
    values, weights = _column(tables, length.column)
    growth = shift_of(tables.order, values, weights, lambda early, late: late >= max(length.least, GROWTH * early))
    if growth is None:
        return None
    success, labelled = _column(tables, "success")
    after = tables.order.place >= growth.onset
    parts = [success[(labelled > 0) & part] for part in (~after, after)]
    pays = all(map(len, parts)) and float(parts[1].mean()) >= float(parts[0].mean())
    told = " and succeed as often" if pays else ""
    return Finding(
        severity=Severity.LOW if pays or not tables.order.timed else Severity.MEDIUM,
        claim=f"Episodes grew from {sig(growth.early)} to {sig(growth.late)} {length.what}{told}",
        observed=growth.late,
        limit=GROWTH * growth.early,
        unit=length.what,
        onset_step=growth.onset,
        onset_interval=growth.interval,
        evidence={"metric": f"trajectories.{length.column}", **_numbers(growth)},
        causes=(
            "a reward that pays for turns or calls, or nothing that ends an episode",
            "an agent that lost the thread and repeats itself",
            "later tasks take longer",
        ),
        confirm=(
            f"read the five longest episodes from {tables.traces.order} {growth.onset} on: at work, or in circles?",
        ),
        next=("let the environment end circles", "set the turn limit near what 95% of the succeeding episodes need"),
    )


def judge_reward(tables: TraceTables) -> Judged:
    """Judge whether the reward fell; where episodes are labelled, success is judged instead."""
    reward = tables.episodes["reward"].fill_nan(None)
    if not reward.count():
        return not_judged(
            "no reward is recorded", missing=("trajectories.reward",), enable="write the reward with each episode"
        )
    values, weights = reward.fill_null(0.0).to_numpy(), reward.is_not_null().cast(pl.Float64).to_numpy()
    spread = float(np.std(values[weights > 0]))
    reason = f"the mean reward is {sig(_mean(reward))} over {reward.count():,} episodes"
    if tables.episodes["success"].count():
        return Judged(verdict=graded(reason=reason))
    fall = shift_of(tables.order, values, weights, lambda early, late: early - late >= REWARD_FALL * spread)
    if fall is None or tables.order.mixed:
        return Judged(verdict=graded(reason=reason))
    finding = Finding(
        severity=Severity.MEDIUM if tables.order.timed else Severity.LOW,
        claim=f"The mean reward fell from {sig(fall.early)} to {sig(fall.late)}",
        observed=fall.late,
        limit=fall.early - REWARD_FALL * spread,
        unit="reward",
        onset_step=fall.onset,
        onset_interval=fall.interval,
        evidence={"metric": "trajectories.reward", **_numbers(fall)},
        causes=("the policy changed", "the environment or one of its tools broke", "later tasks are harder"),
        confirm=(f"read five episodes before {tables.traces.order} {fall.onset} and five after it",),
        next=("look first at what else is named here", "run twenty of the early tasks again"),
    )
    return Judged(verdict=graded(finding, reason=reason))


def judge_latency(tables: TraceTables) -> Judged:
    """Judge whether tools take longer and longer to answer."""
    if tables.calls.is_empty():
        return no_calls(tables)
    seconds = tables.calls["latency_s"].fill_nan(None)
    if not seconds.count():
        return not_judged(
            "no latency of tool calls is recorded",
            missing=("tool_calls.latency_s",),
            enable="record the seconds that each call takes (Inspect and OpenTelemetry do)",
        )
    timed = tables.calls.select("episode", seconds.alias("seconds")).drop_nulls().filter(pl.col("seconds") > 0)
    by_episode = timed.group_by("episode").agg(pl.col("seconds").log().median(), pl.len())
    values, weights = np.zeros(tables.episodes.height), np.zeros(tables.episodes.height)
    at = by_episode["episode"].to_numpy()
    values[at], weights[at] = by_episode["seconds"].to_numpy(), 1.0
    factor, floor = float(np.log(LATENCY_FACTOR)), float(np.log(MIN_SECONDS))
    rise = shift_of(tables.order, values, weights, lambda early, late: late >= max(floor, early + factor))
    reason = f"a call takes {sig(_mean(seconds))} s (mean), {sig(seconds.quantile(0.95) or 0.0)} s (95th percentile)"
    if rise is None:
        return Judged(verdict=graded(reason=reason))
    early, late = float(np.exp(rise.early)), float(np.exp(rise.late))
    finding = Finding(
        severity=Severity.MEDIUM if late >= SLOW_SECONDS else Severity.LOW,
        claim=f"A tool call took {sig(early)} s at first and {sig(late)} s at the end (median)",
        observed=late,
        limit=LATENCY_FACTOR * early,
        unit="s",
        onset_step=rise.onset,
        onset_interval=rise.interval,
        evidence={"metric": "tool_calls.latency_s", "early": early, "late": late, "p_value": rise.p_value},
        causes=("the tool's server is overloaded or throttled", "its state grew: caches, files, processes left behind"),
        confirm=(f"repeat five calls from before {tables.traces.order} {rise.onset} by hand: slow now, or fast?",),
        next=("restart or scale the tool", "set a time limit that gives an error message, and cap calls in flight"),
    )
    return Judged(verdict=graded(finding, reason=reason))


def _mean(values: pl.Series) -> float:
    return float(np.mean(values.drop_nulls().to_numpy()))


def _numbers(shift: Shift) -> dict[str, float]:
    return {"early": shift.early, "late": shift.late, "p_value": shift.p_value}


def _column(tables: TraceTables, name: str) -> tuple[FloatArray, FloatArray]:
    """Return each episode's value, and 1 where it has one."""
    column = tables.episodes[name].cast(pl.Float64).fill_nan(None)
    return column.fill_null(0.0).to_numpy(), column.is_not_null().cast(pl.Float64).to_numpy()


def over_order(tables: TraceTables) -> pl.DataFrame:
    """Return what each block of neighbouring episodes shows, as shares and means; null where it is not known."""
    episodes = tables.episodes
    step = episodes["step"] if episodes["step"].null_count() == 0 else None
    shown = max(1, min(SHOWN_BLOCKS, episodes.height // SHOWN_EPISODES))
    edges = block_edges(episodes.height, shown, None if step is None else step.to_numpy())
    block = np.searchsorted(edges, np.arange(episodes.height), side="right")
    circles, seen = looping_calls(tables)
    calls = pl.DataFrame({"episode": tables.calls["episode"], "circle": circles, "seen": seen})
    looped = calls.filter("seen").group_by("episode").agg(pl.col("circle").any().alias("looped"))

    def ratio(hits: str, trials: str) -> pl.Expr:
        return pl.col(hits).sum() / pl.when(pl.col(trials).sum() > 0).then(pl.col(trials).sum())

    rows = episodes.with_columns(pl.Series("block", block)).join(looped, on="episode", how="left")
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
        )
        .sort("block")
        .with_columns(pl.col("block").cast(pl.Int64))
    )

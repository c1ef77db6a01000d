"""Outcomes and lengths of episodes: success, reward, turns, tokens and latency, and how they change over the order.

An episode without a label is in no share, and never counts as a failure.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import JsonScalar, Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray
from ptt.diagnostics.statistics.clustered_share import clustered_share
from ptt.diagnostics.statistics.order_change import Matters
from ptt.diagnostics.statistics.within_groups import PairOrder, pair_order
from ptt.diagnostics.traces.judging import Judged, graded, no_calls, not_judged
from ptt.diagnostics.traces.model import Share
from ptt.diagnostics.traces.order import shift_of
from ptt.diagnostics.traces.tables import TraceTables, Values, per_episode
from ptt.diagnostics.wording import pct, sig

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
    if share.interval is not None and share.hits == share.trials:
        reason += "; no label says that one failed, so it may only say that the run ended"
    return Judged(verdict=graded(*findings, reason=reason), measured={"success_rate": share}, tables=views)


def interval_text(share: Share) -> str:
    """Return the interval of a share in brackets; empty without one."""
    if share.interval is None:
        return ""
    return f" (95% interval {pct(share.interval[0])} to {pct(share.interval[1])})"


def _fall(tables: TraceTables, share: Share) -> Finding | None:
    """Return the fall of the success rate; a note where it may be the tasks that differ."""
    fall = tables.shift("success")
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
        evidence={"metric": "trajectories.success", "hits": share.hits, "trials": share.trials, **fall.levels},
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


def _few(tables: TraceTables, share: Share) -> Finding | None:
    """Return that nothing succeeds, or hardly anything, where there is enough to say so and it grows no better."""
    if share.interval is None or share.interval[1] >= FEW_AT_MOST or (share.value or 0.0) > FEW_SHARE:
        return None
    values, weights = values_of(tables, "success")
    if shift_of(tables.order, values, weights, lambda early, late: late > np.maximum(early, FEW_SHARE)) is not None:
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
    """Return successes and the spread of rewards by prompt group of two or more episodes."""
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


MEASURES: Final = (("n_turns", "turns"), ("tokens_out", "tokens"))
MARGIN: Final = 0.1  # of the pairs, beyond the half that chance gives: less says nothing of an episode


def judge_lengths(tables: TraceTables) -> Judged:
    """Say whether length tells failures from successes; a note at most, for what is hard takes longer."""
    labelled = tables.episodes.filter(pl.col("success").is_not_null())
    if labelled.is_empty():
        return not_judged(
            "whether episodes succeeded is not recorded", missing=("trajectories.success",), enable=ENABLE
        )
    findings, reasons = [], []
    for column, what in MEASURES:
        rows = labelled.filter(pl.col(column).is_not_null())
        if rows.is_empty():
            continue
        values, failed = rows[column].cast(pl.Float64).to_numpy(), ~rows["success"].to_numpy()
        found = pair_order(values, failed, rows["unit"].to_numpy().astype(np.int64))
        repeats = found is not None
        if found is None:  # hardly any task with both outcomes
            found = pair_order(values, failed, np.zeros(rows.height, np.int64))
        if found is None:
            continue
        reasons.append(_told(found, what, repeats))
        low, high = found.interval
        if low > 0.5 + MARGIN or high < 0.5 - MARGIN:
            findings.append(_note(found, what, column, repeats))
    if not reasons:
        few = "too few episodes of both outcomes to compare their lengths"
        return not_judged(few, enable="add episodes: more attempts at each task, or more tasks")
    return Judged(verdict=graded(*findings[:1], reason="; ".join(reasons)))


def _told(found: PairOrder, what: str, repeats: bool) -> str:
    of = " of one task" if repeats else ""
    low, high = found.interval
    return (
        f"of a failing and a succeeding episode{of} the failing one has more {what} in {pct(found.share)} "
        f"(95% interval {pct(low)} to {pct(high)})"
    )


def _note(found: PairOrder, what: str, column: str, repeats: bool) -> Finding:
    evidence: dict[str, JsonScalar] = {
        "metric": f"trajectories.{column}",
        "low": found.interval[0],
        "high": found.interval[1],
        "pairs": found.pairs,
        "groups": found.groups,
    }
    longer = found.share > 0.5
    told = _told(found, what, repeats)
    return Finding(
        severity=Severity.INFO,
        claim=told[:1].upper() + told[1:],
        observed=found.share,
        limit=0.5 + MARGIN if longer else 0.5 - MARGIN,
        unit="share",
        evidence=evidence,
        causes=("an agent that is lost goes on", "what is harder takes longer")
        if longer
        else ("an agent that gives up early", "an answer without the calls that it takes"),
        confirm=(
            f"read the {'longest' if longer else 'shortest'} failing episode beside a succeeding one of its task",
        ),
        next=("set a limit near what 95% of the succeeding episodes need",) if longer else ("see where they give up",),
    )


GROWTH: Final = 1.5  # times the early mean: less is what tasks differ by
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
    """Judge whether episodes grow longer."""
    known = [length for length in LENGTHS if tables.episodes[length.column].count()]
    if not known:
        return not_judged(
            "neither turns nor tokens of episodes are recorded",
            missing=("trajectories.n_turns",),
            enable="write episodes as messages with roles",
        )
    findings = [finding for length in known if (finding := _longer(tables, length)) is not None]
    means = [f"{sig(_mean(tables.episodes[length.column]))} {length.what}" for length in known]
    return Judged(verdict=graded(*findings[:1], reason=f"{' and '.join(means)} per episode"))


def _longer(tables: TraceTables, length: Length) -> Finding | None:
    growth = tables.shift(length.column)
    if growth is None:
        return None
    pays = success_rises(tables)
    told = ", and succeed more often" if pays else ""
    return Finding(
        severity=Severity.LOW if pays or not tables.order.timed else Severity.MEDIUM,
        claim=f"Episodes grew from {sig(growth.early)} to {sig(growth.late)} {length.what}{told}",
        observed=growth.late,
        limit=GROWTH * growth.early,
        unit=length.what,
        onset_step=growth.onset,
        onset_interval=growth.interval,
        evidence={"metric": f"trajectories.{length.column}", **growth.levels},
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
    """Judge whether the reward is a number, and whether it fell; of labelled episodes, success is judged instead."""
    reward = tables.episodes["reward"]
    told, known = int(tables.episodes["rewarded"].sum()), reward.count()
    if not told:
        return not_judged(
            "no reward is recorded", missing=("trajectories.reward",), enable="write the reward with each episode"
        )
    lost = [] if known == told else [_no_number(told - known, told)]
    reason = f"the mean reward is {sig(_mean(reward))} over {known:,} episodes" if known else "no reward is a number"
    fall = None if tables.episodes["success"].count() or not known else tables.shift("reward")
    if fall is None or tables.order.mixed:
        return Judged(verdict=graded(*lost, reason=reason))
    finding = Finding(
        severity=Severity.MEDIUM if tables.order.timed else Severity.LOW,
        claim="; ".join(
            [f"The mean reward fell from {sig(fall.early)} to {sig(fall.late)}", *(one.claim for one in lost)]
        ),
        observed=fall.late,
        limit=fall.early - _reward_matters(tables),
        unit="reward",
        onset_step=fall.onset,
        onset_interval=fall.interval,
        evidence={"metric": "trajectories.reward", **fall.levels},
        causes=("the policy changed", "the environment or one of its tools broke", "later tasks are harder"),
        confirm=(f"read five episodes before {tables.traces.order} {fall.onset} and five after it",),
        next=("look first at what else is named here", "run twenty of the early tasks again"),
    )
    return Judged(verdict=graded(finding, reason=reason))


def _no_number(lost: int, told: int) -> Finding:
    return Finding(
        severity=Severity.MEDIUM if lost == told else Severity.LOW,  # tables spell a missing value so
        claim=f"The reward is NaN or infinite in {lost:,} of {told:,} episodes",
        observed=lost / told,
        limit=0.0,
        unit="share",
        evidence={"metric": "trajectories.reward"},
        causes=(
            "a scorer that divides by zero, or takes the mean of nothing",
            "a table whose missing rewards became NaN",
        ),
        confirm=("score five of these episodes by hand",),
        next=("keep them out of the update: one NaN makes the advantages of its group NaN",),
    )


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
    rise = tables.shift("latency_s")
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


def values_of(tables: TraceTables, name: str) -> Values:
    """Return each episode's value, and 1 where it has one."""
    column = tables.episodes[name].cast(pl.Float64).fill_nan(None)
    return column.fill_null(0.0).to_numpy(), column.is_not_null().cast(pl.Float64).to_numpy()


def falls(early: FloatArray, late: FloatArray) -> BoolArray:
    """Tell whether a fall of success matters."""
    matters: BoolArray = early - late >= FALL
    return matters


def grows(least: float) -> Matters:
    """Tell of a mean of at least this in the end whether its growth matters."""
    return lambda early, late: late >= np.maximum(least, GROWTH * early)


def slows(early: FloatArray, late: FloatArray) -> BoolArray:
    """Tell whether a rise of the logarithm of latency matters."""
    matters: BoolArray = late >= np.maximum(math.log(MIN_SECONDS), early + math.log(LATENCY_FACTOR))
    return matters


def reward_falls(tables: TraceTables) -> Matters:
    """Tell whether a fall of the reward matters."""
    least = _reward_matters(tables)
    return lambda early, late: early - late >= least


def _reward_matters(tables: TraceTables) -> float:
    values = tables.episodes["reward"].drop_nulls().drop_nans().to_numpy()
    return REWARD_FALL * float(np.std(values)) if len(values) else 0.0


def latencies(tables: TraceTables) -> Values:
    """Return the median of the logarithms of each episode's seconds a call, and 1 where it has some."""
    seconds = tables.calls["latency_s"].fill_nan(None)
    timed = tables.calls.select("episode", seconds.alias("seconds")).drop_nulls().filter(pl.col("seconds") > 0)
    middle = timed.group_by("episode").agg(pl.col("seconds").log().median(), pl.lit(1.0))
    return per_episode(tables, middle)


def success_rises(tables: TraceTables) -> bool:
    """Tell whether success rises over the order beyond chance: then what grows with it may be worth it."""
    values, weights = values_of(tables, "success")
    return shift_of(tables.order, values, weights, lambda early, late: late > early) is not None

"""The turn at which failing episodes part from succeeding ones of the same prompt: by group, and over all of them.

What: among attempts at one prompt, what was done at one turn tells those that fail from those that succeed, beyond what
chance gives to the best of all turns and differences. Where that is the same thing in many groups, such as a call of
one tool that fails, it is a finding; else the groups are shown.
Why it matters: it is where training can tell right from wrong, and where a person should read first.
What it is not: a cause for certain. An episode that was lost before may only show it there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.statistics.arrays import BoolArray
from ptt.diagnostics.statistics.group_difference import holm_adjust
from ptt.diagnostics.statistics.strata import SURE, Located, Splits, locate, permutation_p, rate_differences
from ptt.diagnostics.traces.judging import Judged, graded, not_judged
from ptt.diagnostics.traces.model import Example, Parting
from ptt.diagnostics.traces.tables import STEP, TraceTables, scan_table
from ptt.diagnostics.wording import pct, sig

MAX_EPISODES: Final = 6_000  # looked at: groups are drawn by their hash, enough for shares to a point or two
MAX_TURNS: Final = 60  # of an episode; what decides later is not seen
MAX_ACTIONS: Final = 80_000  # turns looked at, of all episodes: bounds time where episodes are long
MAX_GROUP: Final = 32  # episodes of a group, as many of each outcome where there are more
TESTED_GROUPS: Final = 300  # in the permutation test: more make a small p-value smaller
DRAWS: Final = 499
SEED: Final = 20_261_123
P_LIMIT: Final = 0.01  # of no turn deciding anywhere
MIN_HABIT_GROUPS: Final = 5  # in which some did a thing and some did not: fewer show no habit
MIN_HABIT_VARIANCE: Final = 3.0  # of the successes expected: from there on their sum is as good as normal
SHOWN_GROUPS: Final = 200  # whose pairs are put side by side
MIN_SHARED: Final = 2  # episodes that did the same thing: what one alone did tells nothing by itself
LAST_WEIGHT: Final = 0.02  # of what is said last, which tells the outcome more often than it decides it
MIN_PRIOR: Final = 0.5  # more of the worse side than of the other: what failed there before the turn may be its cause
ANY: Final = "*"  # in the place of tools' names: whichever
MESSAGE: Final = ""  # in the place of tools' names: nothing was called
FAILS, CALLS, ASKS, SAYS, GETS, ENDS = "fails", "calls", "asks", "says", "gets", "ends"
KINDS: Final = (FAILS, CALLS, ASKS, SAYS, GETS, ENDS)
"""What sides of a split differ in, by which two that split alike are named: a failed call, the tools, arguments."""


@dataclass(frozen=True, kw_only=True)
class Partings:
    """Where the episodes of each group part, as far as that can be told.

    turns: group, turn (from 0; -1 where no two episodes did the same thing) and probability of every group. located:
    group, turn (from 0), kind, names, probability, lift, episodes, side, side_successes, successes, success_id
    and failure_id of each group whose turn is known with probability SURE, the surest first. habits: of what differs in
    many groups: kind, names, turn (null: any), episodes, with and without it, how many succeed, the difference within
    groups, its p-value corrected for all that was tried, and in how many groups it decides.
    """

    groups: int  # looked at, with both outcomes
    episodes: int
    p_value: float  # of no turn deciding in any of them
    turns: pl.DataFrame
    located: pl.DataFrame
    habits: pl.DataFrame

    @property
    def found(self) -> bool:
        """Whether any turn decides beyond chance."""
        return self.p_value <= P_LIMIT


def find_partings(mixed: pl.DataFrame, turns: pl.LazyFrame, calls: pl.LazyFrame) -> Partings:
    """Locate the parting turn of every group that is looked at, and test whether any turn decides.

    `mixed`: trajectory_id, group and success of the episodes of groups with both outcomes.
    """
    chosen = draw_groups(mixed)
    chosen, actions = _bounded(chosen, align(chosen, turns, calls))
    features = _features(chosen, actions)
    candidates = candidate_splits(chosen, features)
    splits, success = as_splits(chosen, candidates)
    tested, outcomes = first_groups(splits, success, TESTED_GROUPS)
    found = locate(splits, success)
    located = _located(chosen, candidates, found)
    return Partings(
        groups=chosen["g"].n_unique(),
        episodes=chosen.height,
        p_value=permutation_p(tested, outcomes, draws=DRAWS, seed=SEED),
        turns=chosen.group_by("g", maintain_order=True)
        .agg(pl.col("group").first())
        .with_columns(turn=pl.Series(found.turn), probability=pl.Series(found.probability))
        .drop("g"),
        located=_with_failures(_with_pairs(located, chosen, actions), located, chosen, actions),
        habits=_habits(features, chosen, located),
    )


def draw_groups(mixed: pl.DataFrame) -> pl.DataFrame:
    """Return the episodes looked at, `g` and `e` numbered from 0: whole groups by their hash, the largest thinned."""
    seeded = mixed.with_columns(
        pl.col("group").hash(SEED).alias("order"), pl.col("trajectory_id").hash(SEED).alias("lot")
    )
    half = pl.col("lot").rank("ordinal").over("group", "success")
    size = pl.len().over("group")
    kept = seeded.filter((size <= MAX_GROUP) | (half <= MAX_GROUP // 2)).sort("order", "group", "trajectory_id")
    kept = kept.with_columns(pl.col("group").rle_id().cast(pl.Int64).alias("g"))
    last = kept.group_by("g", maintain_order=True).len().with_columns(pl.col("len").cum_sum().alias("sum"))
    few = last.filter((pl.col("sum") <= MAX_EPISODES) | (pl.col("g") == 0))["g"]
    kept = kept.filter(pl.col("g").is_in(few.implode()))
    return kept.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("e")).drop("order", "lot")


def align(chosen: pl.DataFrame, turns: pl.LazyFrame, calls: pl.LazyFrame) -> pl.DataFrame:
    """Return one row a turn of an episode: e, turn (from 0), names, failed, and hashes of what was done and came back.

    The hashes are `fine` and `result`, the latter null where nothing came back. A turn is a message of the assistant;
    where calls do not stand at such messages, the turns are those of the calls.
    """
    ids = chosen.lazy().select("trajectory_id", "e")
    place = pl.col("turn_idx").fill_null(0)
    spoken = (
        turns.filter(pl.col("role") == "assistant")
        .select("trajectory_id", place, "text_hash")
        .join(ids, on="trajectory_id")
        .select("e", "turn_idx", "text_hash", pl.lit(value=True).alias("spoken"))
    )
    pieces = pl.col("args_json").str.replace_all(r"[\s{}]+", "").str.split(",").list.sort().list.join(",")
    name = pl.col("name").fill_null("?")
    failed = (~pl.col("ok") | pl.col("told_failed").fill_null(value=False)).alias("failed")
    acted = (
        calls.select("trajectory_id", place, "call_idx", name, "args_json", "result_hash", failed)
        .join(ids, on="trajectory_id")
        .with_columns(pl.struct(name, pieces).hash(SEED).alias("done"))
        .sort("e", "turn_idx", "call_idx")
        .group_by("e", "turn_idx", maintain_order=True)
        .agg(
            pl.col("name").str.join(" + "),
            pl.col("done").implode().hash(SEED),
            pl.when(pl.col("result_hash").is_not_null().all())
            .then(pl.col("result_hash").implode().hash(SEED))
            .alias("result"),
            pl.col("failed").any(),
        )
    )
    both = spoken.unique(["e", "turn_idx"], keep="first").join(acted, on=["e", "turn_idx"], how="full", coalesce=True)
    outside = (pl.col("spoken").is_null() & pl.col("name").is_not_null()).any().over("e")
    return (
        both.filter(~outside | pl.col("name").is_not_null())
        .sort("e", "turn_idx")
        .select(
            "e",
            pl.int_range(pl.len(), dtype=pl.Int64).over("e").alias("turn"),
            "turn_idx",
            pl.col("name").fill_null(MESSAGE).alias("names"),
            pl.coalesce("done", "text_hash").fill_null(0).alias("fine"),
            "result",
            pl.col("failed").fill_null(value=False),
        )
        .filter(pl.col("turn") < MAX_TURNS)
        .collect()
    )


def _bounded(chosen: pl.DataFrame, actions: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Leave out the last groups where their turns are too many to look at."""
    if actions.height <= MAX_ACTIONS:
        return chosen, actions
    last = int(chosen["g"][int(actions["e"][MAX_ACTIONS])])
    kept = chosen.filter(pl.col("g") < max(1, last))
    return kept, actions.filter(pl.col("e") < kept.height)


def _features(chosen: pl.DataFrame, actions: pl.DataFrame) -> pl.DataFrame:
    """Return one row an episode and thing it did that others of its group may not have done.

    g, e, turn, kind, names, key, fine (the very arguments or text count), last (its last turn); `nth` is how often it
    had done so before, null of what is looked at turn by turn.
    """
    rows = actions.join(chosen.select("e", "g"), on="e", maintain_order="left")
    rows = rows.with_columns((pl.col("turn") == pl.col("turn").max().over("e")).alias("last"))
    called = pl.col("names") != MESSAGE
    own = pl.when(called).then(pl.lit(ASKS)).otherwise(pl.lit(SAYS))
    nth = pl.int_range(pl.len(), dtype=pl.Int64)
    failed = rows.filter("failed")
    any_tool = failed.with_columns(pl.lit(ANY).alias("names"))
    features = [
        _feature(rows, pl.lit(CALLS), ["turn", "names"], "a"),
        _feature(rows, own, ["turn", "fine"], "b"),
        _feature(rows.with_columns(nth.over("e", "fine").alias("nth")), own, ["fine", "nth"], "c"),
        _feature(rows.filter(pl.col("result").is_not_null()), pl.lit(GETS), ["turn", "names", "result"], "i"),
        _feature(failed, pl.lit(FAILS), ["turn", "names"], "d"),
        _feature(failed.with_columns(nth.over("e", "names").alias("nth")), pl.lit(FAILS), ["names", "nth"], "e"),
        _feature(any_tool, pl.lit(FAILS), ["turn"], "f"),
        _feature(any_tool.with_columns(nth.over("e").alias("nth")), pl.lit(FAILS), ["nth"], "g"),
        _ended(chosen, rows),
    ]
    return pl.concat(features)


def candidate_splits(chosen: pl.DataFrame, features: pl.DataFrame) -> pl.DataFrame:
    """Return the candidates: g, turn, kind, names, last, and `members`, the episodes on the named side.

    Of candidates that split a group alike the first turn's counts: what follows from a choice splits as it does.
    """
    each = features.join(chosen.group_by("g").agg(pl.len().alias("size")), on="g")
    mark = pl.col("e").hash(SEED)
    found = (
        each.group_by("g", "key")
        .agg(
            pl.col("turn").min(),
            pl.col("kind").first(),
            pl.col("names").first(),
            pl.col("size").first(),
            pl.col("e").sort().alias("members"),
            (pl.col("last").all() & pl.col("fine").all()).alias("last"),
            (mark % (1 << 40)).sum().alias("side"),
            pl.len().alias("shared"),
        )
        .filter((pl.col("shared") < pl.col("size")) & ((pl.col("shared") >= MIN_SHARED) | (pl.col("kind") == FAILS)))
    )
    whole = chosen.group_by("g").agg((mark % (1 << 40)).sum().alias("whole"))
    rank = pl.col("kind").replace_strict(list(KINDS), list(range(len(KINDS))), return_dtype=pl.Int64)
    return (
        found.join(whole, on="g")
        .with_columns(pl.min_horizontal("side", pl.col("whole") - pl.col("side")).alias("side"), rank.alias("rank"))
        .sort("g", "side", "turn", "rank", "key")
        .unique(["g", "side"], keep="first", maintain_order=True)
        .sort("g", "turn", "rank", "key")
        .select("g", "turn", "kind", "names", "last", "members")
    )


def _feature(rows: pl.DataFrame, kind: pl.Expr, key: list[str], salt: str) -> pl.DataFrame:
    """Return which episodes share a feature: one row an episode and feature."""
    number = pl.col("nth") if "nth" in key else pl.lit(None, pl.Int64).alias("nth")
    return rows.select(
        "g", "e", "turn", "names", "last", kind.alias("kind"), number,
        pl.lit("fine" in key or "result" in key).alias("fine"),
        pl.struct(pl.lit(salt).alias("salt"), *key).hash(SEED).alias("key"),
    ).unique(["e", "key"], keep="first", maintain_order=True)  # fmt: skip


def _ended(chosen: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return which episodes had ended at each turn at which one of their group ends."""
    lengths = chosen.select("g", "e").join(
        rows.group_by("e").agg(pl.len().alias("n").cast(pl.Int64)), on="e", how="left"
    )
    lengths = lengths.with_columns(pl.col("n").fill_null(0))
    ends = lengths.select("g", pl.col("n").alias("turn")).unique().filter(pl.col("turn") < MAX_TURNS)
    over = ends.join(lengths, on="g").filter(pl.col("n") <= pl.col("turn"))
    over = over.with_columns(pl.lit(MESSAGE).alias("names"), pl.lit(value=False).alias("last"))
    return _feature(over, pl.lit(ENDS), ["turn"], "h")


def as_splits(chosen: pl.DataFrame, candidates: pl.DataFrame) -> tuple[Splits, BoolArray]:
    """Return candidates as arrays, and the episodes' outcomes; a kind is what differs and the tools it is about."""
    kinds = pl.format("{} {}", "kind", "names").rank("dense").cast(pl.Int64) - 1
    table = candidates.with_columns(kinds.alias("number"), pl.col("members").list.len().alias("count"))
    counts = table["count"].to_numpy().astype(np.int64)
    return Splits(
        group=table["g"].to_numpy(),
        turn=table["turn"].to_numpy(),
        kind=table["number"].to_numpy(),
        starts=np.cumsum(counts) - counts,
        episode=table["members"].explode(empty_as_null=False).to_numpy(),
        prior=np.where(table["last"].to_numpy(), LAST_WEIGHT, 1.0),
        episode_group=chosen["g"].to_numpy(),
    ), chosen["success"].to_numpy().astype(bool)


def first_groups(splits: Splits, success: BoolArray, count: int) -> tuple[Splits, BoolArray]:
    """Return the splits of the first groups alone, and their episodes' outcomes."""
    kept, episodes = int((splits.group < count).sum()), int((splits.episode_group < count).sum())
    last = int(splits.starts[kept]) if kept < len(splits.starts) else len(splits.episode)
    return Splits(
        group=splits.group[:kept],
        turn=splits.turn[:kept],
        kind=splits.kind[:kept],
        prior=splits.prior[:kept],
        starts=splits.starts[:kept],
        episode=splits.episode[:last],
        episode_group=splits.episode_group[:episodes],
    ), success[:episodes]


def _located(chosen: pl.DataFrame, candidates: pl.DataFrame, found: Located) -> pl.DataFrame:
    """Return the groups whose turn is known well enough, and how the two sides fare there."""
    sure = pl.DataFrame({"g": np.arange(len(found.turn)), "at": found.split, "probability": found.probability})
    sure = sure.filter((pl.col("at") >= 0) & (pl.col("probability") >= SURE))
    sides = candidates.with_row_index("at").with_columns(pl.col("at").cast(pl.Int64)).drop("g", "last")
    rows = sure.join(sides, on="at", maintain_order="left").drop("at")
    outcomes = chosen.group_by("g").agg(
        pl.col("group").first(),
        pl.len().cast(pl.Int64).alias("episodes"),
        pl.col("success").sum().cast(pl.Int64).alias("successes"),
    )
    hits = rows.select("g", e="members").explode("e").join(chosen.select("e", "success"), on="e")
    hits = hits.group_by("g").agg(
        pl.len().cast(pl.Int64).alias("side"), pl.col("success").sum().cast(pl.Int64).alias("side_successes")
    )
    rest = pl.col("episodes") - pl.col("side")
    lift = _shrunk(pl.col("side_successes"), pl.col("side")) - _shrunk(
        pl.col("successes") - pl.col("side_successes"), rest
    )
    return (
        rows.join(outcomes, on="g", maintain_order="left")
        .join(hits, on="g", maintain_order="left")
        .with_columns(lift.alias("lift"))
        .sort("probability", "episodes", "g", descending=[True, True, False])
    )


def _shrunk(hits: pl.Expr, of: pl.Expr) -> pl.Expr:
    """Return a rate of few, drawn towards one half by one trial more (Jeffreys)."""
    return (hits + 0.5) / (of + 1.0)


def _with_pairs(located: pl.DataFrame, chosen: pl.DataFrame, actions: pl.DataFrame) -> pl.DataFrame:
    """Add to each group the success and the failure, one on either side, that have most in common before the turn."""
    shown = located.head(SHOWN_GROUPS)
    of = shown.select("g", "turn", "members", better=pl.col("lift") > 0)
    rows = chosen.join(of, on="g").with_columns(pl.col("e").is_in(pl.col("members")).alias("named"))
    rows = rows.filter((pl.col("named") == pl.col("better")) == pl.col("success"))
    ids = ("g", "e", "trajectory_id", "turn")
    good, poor = rows.filter("success").select(ids), rows.filter(~pl.col("success")).select(ids[:3])
    pairs = good.join(poor, on="g", suffix="_failure")
    did = actions.select("e", "fine", at="turn")
    same = (
        pairs.select("e", "e_failure", "turn")
        .join(did, on="e")
        .filter(pl.col("at") < pl.col("turn"))
        .join(did.rename({"e": "e_failure"}), on=["e_failure", "at", "fine"])
        .group_by("e", "e_failure")
        .len("common")
    )
    best = (
        pairs.join(same, on=["e", "e_failure"], how="left")
        .sort(pl.col("common").fill_null(0), "e", "e_failure", descending=[True, False, False])
        .unique("g", keep="first", maintain_order=True)
        .select("g", success_id="trajectory_id", failure_id="trajectory_id_failure")
    )
    return located.join(best, on="g", how="left", maintain_order="left").drop("members")


def _with_failures(
    pairs: pl.DataFrame, located: pl.DataFrame, chosen: pl.DataFrame, actions: pl.DataFrame
) -> pl.DataFrame:
    """Add what failed before the turn on the worse side and hardly on the other: what happens there may follow from it.

    failed_tool, failed_turn (the earliest), failed_worse of worse, failed_rest of rest; null where nothing did.
    """
    of = located.head(SHOWN_GROUPS).select("g", "turn", "members", better=pl.col("lift") > 0)
    sides = chosen.join(of, on="g").select("g", "e", "turn", worse=pl.col("e").is_in("members") != pl.col("better"))
    failed = actions.filter("failed").select("e", "names", at="turn")
    first = sides.join(failed, on="e").filter(pl.col("at") < pl.col("turn")).sort("e", "at").unique("e", keep="first")
    rows = sides.join(first.select("e", "names", "at"), on="e", how="left")
    hit, worse = pl.col("at").is_not_null(), pl.col("worse")
    counts = rows.group_by("g").agg(
        (hit & worse).sum().alias("failed_worse"),
        worse.sum().alias("worse"),
        (hit & ~worse).sum().alias("failed_rest"),
        (~worse).sum().alias("rest"),
        pl.col("names").filter(hit & worse).mode().sort().first().alias("failed_tool"),
        pl.col("at").filter(hit & worse).min().alias("failed_turn"),
    )
    more = pl.col("failed_worse") / pl.col("worse") - pl.col("failed_rest") / pl.col("rest")
    told = counts.filter((more >= MIN_PRIOR) & (pl.col("rest") > 0))
    return pairs.join(told, on="g", how="left", maintain_order="left")


def _habits(features: pl.DataFrame, chosen: pl.DataFrame, located: pl.DataFrame) -> pl.DataFrame:
    """Return what goes with failing or succeeding in many groups: tools called at a turn, calls that fail."""
    coarse = features.filter(
        ~pl.col("fine") & (pl.col("nth").is_null() | (pl.col("nth") == 0)) & (pl.col("kind") != ENDS)
    )
    coarse = coarse.with_columns(pl.when(pl.col("nth").is_null()).then("turn").alias("turn"))
    key = ["kind", "names", "turn"]
    outcome = chosen.select("e", "success")
    sides = (
        coarse.join(outcome, on="e").group_by(*key, "g").agg(pl.len().alias("k"), pl.col("success").sum().alias("a"))
    )
    sizes = chosen.group_by("g").agg(pl.len().alias("n"), pl.col("success").sum().alias("s"))
    tables = (
        sides.join(sizes, on="g")
        .filter(pl.col("k") < pl.col("n"))
        .select(*key, pl.col("k", "a", "n", "s").cast(pl.Float64))
    )
    habits = rate_differences(tables, key).filter(
        (pl.col("groups") >= MIN_HABIT_GROUPS) & (pl.col("variance") >= MIN_HABIT_VARIANCE)
    )
    decides = located.group_by("kind", "names").len("decides")
    return (
        habits.with_columns(pl.Series("p_value", holm_adjust(habits["p_value"].to_list()), pl.Float64))
        .join(decides, on=["kind", "names"], how="left")
        .with_columns(pl.col("decides").fill_null(0))
        .sort(pl.col("decides"), pl.col("z").abs(), *key, descending=[True, True, False, False, False], nulls_last=True)
    )


MIN_DIFFERENCE: Final = 0.2  # of success within prompts: less decides little
MIN_DECIDES: Final = 3  # groups in which it is the turn that decides
MIN_REACH: Final = 0.1  # of the episodes that do it, where some do: else it is an accident
BROAD_REACH: Final = 0.1  # of all episodes: a failure that fewer meet costs the set little, and is a note
SHOWN: Final = 3  # groups that are shown side by side
NAME_CHARS: Final = 60  # of a tool's name in a sentence
LABELS_ENABLE: Final = (
    "write with each episode whether it succeeded: a `success` or `resolved` flag, a scorer's verdict"
)
GROUPS_ENABLE: Final = "sample several episodes of each prompt, eight or more, and write the name of its task or group"
SUCCEED: Final = "succeed"
PAID: Final = "earn more than the middle of their group"
"""What is said of the better episodes: where none is labelled, attempts are told apart by what they were paid."""
SCHEMA: Final = {
    "group": pl.String, "turn": pl.Int64, "success_id": pl.String, "failure_id": pl.String, "lift": pl.Float64,
    "episodes": pl.Int64, "why": pl.String,
}  # fmt: skip


def judge_partings(tables: TraceTables) -> Judged:
    """Locate the turn that decides, group by group, and say what it has in common over the groups."""
    mixed, better = mixed_groups(tables), SUCCEED
    if mixed.is_empty() and not tables.traces.labelled:
        mixed, better = mixed_groups(tables, by_reward=True), PAID
    if mixed.is_empty():
        return _without_groups(tables)
    found = find_partings(mixed, scan_table(tables.store, "turns"), scan_table(tables.store, "tool_calls"))
    if not found.found:
        return not_judged(
            f"among {found.episodes:,} episodes of {found.groups:,} prompts of which some {better} and some do not, "
            f"no turn tells which beyond chance (p = {sig(found.p_value)})",
            missing=("more episodes of each prompt",),
            enable=GROUPS_ENABLE,
        )
    found = replace(found, located=_named(found.located, tables.episodes))
    rows = found.located.filter(pl.col("success_id").is_not_null())
    shown = [dict(row, why=why_of(row, better)) for row in rows.to_dicts()]
    table = pl.DataFrame([[row[name] for name in SCHEMA] for row in shown], schema=SCHEMA, orient="row")
    reason = f"the turn that decides is known in {found.located.height} of {found.groups} prompt groups"
    return Judged(
        verdict=graded(*_findings(found, better, mixed.height / tables.episodes.height), reason=reason),
        tables={"partings": table},
        partings=tuple(_parting(row, tables) for row in shown[:SHOWN]),
    )


def _named(located: pl.DataFrame, episodes: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs by what their episodes are called."""
    for column in ("success_id", "failure_id"):
        names = episodes.select(pl.col("trajectory_id").alias(column), "name")
        located = located.join(names, on=column, how="left", maintain_order="left").drop(column)
        located = located.rename({"name": column})
    return located


def mixed_groups(tables: TraceTables, *, by_reward: bool = False) -> pl.DataFrame:
    """Return trajectory_id, group and success of the episodes of prompt groups with both outcomes.

    `by_reward`: success is a reward above the middle between the least and the greatest of the group.
    Attempts at one prompt in different steps of training are not compared: the policy is another.
    """
    name = pl.coalesce("group_id", "task", pl.format("prompt {}", pl.col("group")))
    key = ["group", "step"] if tables.traces.order == STEP else ["group"]
    label = pl.format("{} at step {}", name, "step") if tables.traces.order == STEP else name
    episodes = tables.episodes.filter(pl.col("group").is_not_null())
    if by_reward:
        reward = pl.when(pl.col("reward").is_finite()).then("reward")
        low, high = reward.min().over(key), reward.max().over(key)
        episodes = episodes.with_columns(pl.when(low < high).then(reward > (low + high) / 2).alias("success"))
    known = episodes.filter(pl.col("success").is_not_null())
    mixed = known.filter(pl.col("success").n_unique().over(key) == 2)
    names = mixed.select(pl.struct(key).alias("key"), label.alias("label"), "trajectory_id", "success")
    unique = names.select("key", "label").unique(maintain_order=True)
    unique = unique.with_columns(  # one name may stand for several prompts
        pl.when(pl.int_range(pl.len()).over("label") == 0)
        .then("label")
        .otherwise(pl.format("{} ({})", "label", pl.int_range(pl.len()).over("label") + 1))
        .alias("group")
    ).unique("key", keep="first", maintain_order=True)
    return names.join(unique.select("key", "group"), on="key", maintain_order="left").drop("key", "label")


def _without_groups(tables: TraceTables) -> Judged:
    if not tables.traces.labelled:
        return not_judged(
            "no episode is labelled as success or failure, nor does any prompt pay its attempts differently",
            missing=("success",),
            enable=LABELS_ENABLE,
        )
    return not_judged(
        "no prompt has both an episode that succeeds and one that fails",
        missing=("several episodes of a prompt",),
        enable=GROUPS_ENABLE,
    )


def why_of(row: dict[str, Any], better: str = SUCCEED) -> str:
    """Say what tells the turn."""
    rest, others = row["episodes"] - row["side"], row["successes"] - row["side_successes"]
    did = did_what(row["kind"], row["names"], row["turn"])
    told = f"{row['side_successes']} of the {row['side']} episodes {did} {better}, {others} of the {rest} others"
    if row["failed_tool"] is None:
        return told
    return (
        f"{told}. It may follow from a failure before it: a call of {_short(row['failed_tool'])} fails in "
        f"{row['failed_worse']} of the {row['worse']} episodes on the worse side, from turn {row['failed_turn'] + 1} "
        f"on, and in {row['failed_rest']} of the {row['rest']} others"
    )


def _short(names: str) -> str:
    return names if len(names) <= NAME_CHARS else names[: NAME_CHARS - 1] + "…"


def did_what(kind: str, names: str, turn: int | None) -> str:
    """Say what some episodes did, as a clause behind "episodes"; turns are numbered from 1."""
    at = "" if turn is None else f" at turn {turn + 1}"
    name = _short(names)
    if kind == FAILS:
        return f"in which a call{'' if names == ANY else ' of ' + name} fails{at}"
    if kind == GETS:
        return f"in which {name} returns one and the same{at}"
    if kind == ENDS:
        return f"that have ended before turn {(turn or 0) + 1}"
    if names == MESSAGE:
        return f"that write {'the same message' if kind == SAYS else 'a message and call nothing'}{at}"
    return f"that call {name}{'' if kind == CALLS else ' with the same arguments'}{at}"


def _findings(found: Partings, better: str, share: float) -> list[Finding]:
    """Return what decides in many groups: first a call that fails, then what the agent does.

    `share`: of all episodes, those in groups with both outcomes.
    """
    told = found.habits.filter(
        (pl.col("p_value") <= P_LIMIT)
        & (pl.col("difference").abs() >= MIN_DIFFERENCE)
        & (pl.col("decides") >= MIN_DECIDES)
        & (pl.col("side") >= MIN_REACH * pl.col("episodes"))
    )
    failing = told.filter((pl.col("kind") == FAILS) & (pl.col("difference") < 0)).head(1)
    choices = told.filter(pl.col("kind") != FAILS).head(1)
    return [
        _finding(row, found, better, share * row["side"] / found.episodes)
        for row in (*failing.to_dicts(), *choices.to_dicts())
    ]


def _finding(row: dict[str, Any], found: Partings, better: str, reach: float) -> Finding:
    fails = row["kind"] == FAILS
    severity = Severity.MEDIUM if better == SUCCEED and reach >= BROAD_REACH else Severity.LOW
    severity = severity if fails else Severity.INFO
    did = did_what(row["kind"], row["names"], row["turn"])
    less = "less" if row["difference"] < 0 else "more"
    same = found.located.filter((pl.col("kind") == row["kind"]) & (pl.col("names") == row["names"]))
    shown = same["failure_id"].drop_nulls().head(SHOWN).to_list()
    tool = row["names"] if row["names"] not in {ANY, MESSAGE} else None
    return Finding(
        severity=severity,
        link=Link.ENVIRONMENT if fails else None,
        claim=f"Episodes {did} {better} {less} often than others of the same prompt: "
        f"{pct(row['with_rate'])} against {pct(row['without_rate'])} in {row['groups']} prompt groups",
        observed=row["difference"],
        limit=-MIN_DIFFERENCE if row["difference"] < 0 else MIN_DIFFERENCE,
        unit="difference of success" if better == SUCCEED else "difference of shares",
        slice=f"tool:{tool}" if tool is not None else None,
        evidence={
            "with": row["with_rate"], "without": row["without_rate"], "with_it": row["side"], "reach": reach,
            "episodes": ", ".join(shown),
            "groups": row["groups"], "p_value": row["p_value"], "decides_in_groups": row["decides"],
            "located_groups": found.located.height, "turn": None if row["turn"] is None else row["turn"] + 1,
        },
        causes=(
            ("the agent cannot go on without the result", "the agent goes on as if the call had not failed")
            if fails
            else ("what is done there settles the outcome", "an episode that is lost already shows it there")
        ),
        confirm=("read the pairs of episodes side by side from that turn on",),
        next=(
            ("mend the tool, or show the agent how to recover: step-level pairs from these turns",)
            if fails
            else ("train on pairs that share all turns before this one: ptt traces exports them",)
        ),
    )  # fmt: skip


def _parting(row: dict[str, Any], tables: TraceTables) -> Parting:
    return Parting(
        group=row["group"],
        turn=row["turn"],
        success=example_of(tables, row["success_id"]),
        failure=example_of(tables, row["failure_id"]),
        why=row["why"],
    )


def example_of(tables: TraceTables, name: str) -> Example:
    """Return an episode as an example whose messages are yet to be read."""
    (row,) = tables.episodes.filter(pl.col("name") == name).head(1).to_dicts()
    outcome = {True: "success", False: "failure", None: "unknown"}[row["success"]]
    return Example(
        name=name,
        source=row["source"],
        outcome=outcome,
        reward=row["reward"],
        messages=(),
    )

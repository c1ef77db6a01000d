"""Compare two sets of agent traces: what differs beyond noise, by share, mean, tool and error class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Interval
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.clustered_share import (
    MIN_CLUSTERS,
    RULE_OF_THREE,
    ClusterDifference,
    paired_difference,
    share_difference,
    welch_difference,
)
from ptt.diagnostics.statistics.group_difference import holm_adjust
from ptt.diagnostics.traces.model import MEASURES, Share, TraceDiagnosis
from ptt.diagnostics.traces.tables import gather_tables

ERROR_RATE: Final = 0.05  # of a false difference in one family of comparisons, after Holm's correction
MIN_SHARED: Final = (
    0.5  # of each set's episodes that belong to tasks of both: with less, most of a set would be left out
)
NUMBERED: Final = (
    r"^(?i:(?:task|example|sample|episode|row|item|prompt|problem|question|query|instance|index|idx|id|test|case)"
    r"[\s_#/:.-]{0,3})?[0-9]+$"
)
"""Names of tasks that only number them, in one set."""
NUMBERED_NOTE: Final = (
    "The sets number their tasks alike, but no prompt in common shows that the same numbers are the same tasks: "
    "they are compared as wholes."
)
BETTER, WORSE, HIGHER, LOWER = "better", "worse", "higher", "lower"
NONE, UNKNOWN = "no_difference", "cannot_say"
COUNTS: Final[Mapping[str, tuple[str, str | None]]] = {
    "success_rate": ("success", None),
    "tool_failure_rate": ("failed", "known"),
    "malformed_rate": ("malformed", "checked"),
    "void_rate": ("void", "said"),
    "truncated_rate": ("truncated", None),
}
"""Columns of the episodes that shares are made of: hits, and trials where these are not the episodes."""
REWARD: Final = "reward"
OUTCOMES: Final = ("success_rate", "pseudo_success_rate")  # what a reward stands for
MEANS: Final[Mapping[str, tuple[str, str | None]]] = {
    "reward": ("mean reward", "lower"),
    "n_turns": ("assistant turns per episode", None),
    "calls": ("tool calls per episode", None),
    "tokens_out": ("tokens written per episode", None),
    "cost_usd": ("cost per episode in USD", None),
}
"""Columns of the episodes whose mean is compared: what it is called, and which way it gets worse."""


@dataclass(frozen=True, kw_only=True)
class TraceSide:
    """One of two sets: what was judged, and its store where it has one."""

    diagnosis: TraceDiagnosis
    store: Path | None = None  # None for a findings.json: tasks cannot be paired


@dataclass(frozen=True, kw_only=True)
class TraceDifference:
    """One statistic of both sets, and how they differ: `second` less `first`."""

    name: str
    label: str
    of: str  # what it is a share of; empty of a mean
    first: float | None
    second: float | None
    interval: Interval | None = None
    p_value: float | None = None  # after Holm's correction over its family
    verdict: str = UNKNOWN
    paired: bool = False
    clusters: int = 0
    worse: str | None = "higher"
    why: str = ""  # it cannot be said

    @property
    def difference(self) -> float | None:
        """Second less first."""
        return None if self.first is None or self.second is None else self.second - self.first


@dataclass(frozen=True, kw_only=True)
class ErrorChange:
    """How often calls of a tool end in one class of error in both sets; counts, not tested."""

    tool: str
    error_class: str
    first: int
    second: int


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A task most of whose attempts succeed in one set and fail in the other, with an episode of either outcome."""

    task: str
    first: float  # success rates
    second: float
    first_attempts: int
    second_attempts: int
    first_episode: str
    second_episode: str


@dataclass(frozen=True, kw_only=True)
class TraceComparison:
    """Two sets of traces side by side; the first is the baseline."""

    first: TraceSide
    second: TraceSide
    shared_tasks: int
    paired: bool
    shares: tuple[TraceDifference, ...]
    means: tuple[TraceDifference, ...]
    tools: tuple[TraceDifference, ...]
    only_first: tuple[str, ...]  # tools
    only_second: tuple[str, ...]
    errors: tuple[ErrorChange, ...]
    flipped: tuple[Flip, ...] = ()  # the surest first
    notes: tuple[str, ...] = ()

    @property
    def differing(self) -> tuple[TraceDifference, ...]:
        """What differs beyond noise."""
        return tuple(item for item in (*self.shares, *self.means, *self.tools) if item.verdict not in (NONE, UNKNOWN))

    @property
    def compared(self) -> int:
        """How many statistics both sets hold."""
        return sum(item.verdict != UNKNOWN for item in (*self.shares, *self.means, *self.tools))


def compare_traces(first: TraceSide, second: TraceSide) -> TraceComparison:
    """Compare a set with a baseline, task by task where most episodes are of tasks that both hold."""
    tables = _with_tasks(_episodes(first), _episodes(second))
    shared, paired, notes = _pairing(*tables)
    rows = (tables[0], tables[1]) if paired else (None, None)
    shares = [_share(name, first.diagnosis, second.diagnosis, *rows) for name in MEASURES]
    if _same_episodes(*tables):
        shares = [_unchanged(item) for item in shares if item is not None]
    means = [_mean(name, *tables, paired=paired) for name in MEANS]
    tools, only = _tools(first.diagnosis, second.diagnosis)
    settled = _settled([item for item in shares if item is not None])
    of_means, hacked = _undirected(_settled([item for item in means if item is not None]), settled)
    return TraceComparison(
        first=first,
        second=second,
        shared_tasks=shared,
        paired=paired,
        shares=settled,
        means=of_means,
        tools=_settled(tools),
        only_first=only[0],
        only_second=only[1],
        errors=_errors(first.diagnosis, second.diagnosis),
        flipped=_flipped(*tables),
        notes=(*notes, *hacked),
    )


def _same_episodes(first: pl.DataFrame | None, second: pl.DataFrame | None) -> bool:
    """Tell whether both sets are the very same episodes: of them no share differs, however few they are."""
    return first is not None and second is not None and first.drop("source").equals(second.drop("source"))


def _unchanged(item: TraceDifference) -> TraceDifference:
    """Take the interval of episodes that all stayed as they were, in place of that of two sets drawn apart."""
    if item.paired or item.interval is None or item.first != item.second:
        return item
    half = RULE_OF_THREE / item.clusters
    return replace(item, interval=(-half, half), paired=True)


def _undirected(
    means: tuple[TraceDifference, ...], shares: tuple[TraceDifference, ...]
) -> tuple[tuple[TraceDifference, ...], tuple[str, ...]]:
    """Call a higher reward no better where the outcome got worse, and say so."""
    worse = [item.label for item in shares if item.name in OUTCOMES and item.verdict == WORSE]
    if not worse or not any(item.name == REWARD and item.verdict == BETTER for item in means):
        return means, ()
    settled = tuple(replace(item, verdict=HIGHER) if item.name == REWARD else item for item in means)
    return settled, (f"The mean reward rose while {worse[0]} got worse: it does not measure what it should.",)


def _episodes(side: TraceSide) -> pl.DataFrame | None:
    return None if side.store is None else gather_tables(side.store, side.diagnosis.traces).episodes


def _with_tasks(first: pl.DataFrame | None, second: pl.DataFrame | None) -> tuple[pl.DataFrame | None, ...]:
    """Give episodes the key of what they share with the other set: the name of a task, or the prompt.

    A running number is no name: the third task of one set may be another than the third of the other. Where only one
    set names its tasks, prompts are what both have.
    """
    if first is None or second is None:
        return first, second
    named = pl.when(~pl.col("task").str.contains(NUMBERED)).then(pl.col("task").hash(1))
    ways = [
        [side.with_columns(task_key=key) for side in (first, second)]
        for key in (pl.coalesce(named, "prompt_hash"), pl.col("prompt_hash"))
    ]
    return tuple(max(ways, key=lambda sides: min(_covered(*sides))))


def _covered(first: pl.DataFrame, second: pl.DataFrame) -> tuple[float, float]:
    """Return the share of the episodes of either set whose task the other set has too."""
    shares = [
        side.drop_nulls("task_key").join(other, on="task_key", how="semi").height / max(1, side.height)
        for side, other in ((first, second), (second, first))
    ]
    return shares[0], shares[1]


def _flipped(first: pl.DataFrame | None, second: pl.DataFrame | None) -> tuple[Flip, ...]:
    """Return the tasks of both sets most of whose attempts turned from success to failure, or the other way."""
    if first is None or second is None:
        return ()
    both = _outcomes(first).join(_outcomes(second), on="task_key", suffix="_other")
    ends = pl.col("success") - 0.5, pl.col("success_other") - 0.5
    surest = (pl.col("success") - pl.col("success_other")).abs(), pl.min_horizontal("of", "of_other")
    both = both.filter(ends[0] * ends[1] < 0).sort(*surest, "row", descending=[True, True, False])
    return tuple(
        Flip(
            task=row["task"] or row["task_other"] or "",
            first=row["success"],
            second=row["success_other"],
            first_attempts=row["of"],
            second_attempts=row["of_other"],
            first_episode=row["episode"],
            second_episode=row["episode_other"],
        )
        for row in both.iter_rows(named=True)
    )


def _outcomes(episodes: pl.DataFrame) -> pl.DataFrame:
    """Return of each task how often it succeeds, and its first episode that ends as most do."""
    known = episodes.filter(pl.col("task_key").is_not_null(), pl.col("success").is_not_null())
    usual = pl.col("success") == (pl.col("success").mean() > 0.5)
    return known.group_by("task_key", maintain_order=True).agg(
        pl.col("episode").first().alias("row"),
        pl.col("task").first(),
        pl.col("trajectory_id").filter(usual).first().alias("episode"),
        pl.len().alias("of"),
        pl.col("success").mean(),
    )


def _pairing(first: pl.DataFrame | None, second: pl.DataFrame | None) -> tuple[int, bool, tuple[str, ...]]:
    """Return how many tasks both hold, whether these are compared alone, and a note where they are not."""
    if first is None or second is None:
        return 0, False, ("A findings.json has no single episodes: the sets are compared as wholes, not task by task.",)
    keys = [side["task_key"].drop_nulls().unique() for side in (first, second)]
    shared = keys[0].filter(keys[0].is_in(keys[1].implode()))
    if len(shared) >= MIN_CLUSTERS and min(_covered(first, second)) >= MIN_SHARED:
        return len(shared), True, ()
    if not len(shared):
        tasks = [set(side["task"].drop_nulls()) for side in (first, second)]
        if tasks[0] & tasks[1]:
            return 0, False, (NUMBERED_NOTE,)
        return 0, False, ("The sets share no task: that one is better may be the tasks.",)
    return len(shared), False, ("The sets share too few of their tasks to be compared task by task.",)


def _share(
    name: str, first: TraceDiagnosis, second: TraceDiagnosis, rows: pl.DataFrame | None, others: pl.DataFrame | None
) -> TraceDifference | None:
    """Compare a share; None where neither set has it."""
    measure = MEASURES[name]
    both = first.measured.get(name), second.measured.get(name)
    known = [share is not None and share.trials > 0 for share in both]
    if not any(known):
        return None
    blank = TraceDifference(
        name=name, label=measure.label, of=measure.of, worse=measure.worse,
        first=both[0].value if both[0] else None, second=both[1].value if both[1] else None,
    )  # fmt: skip
    if not all(known):
        return replace(blank, why=f"the {'second' if known[0] else 'first'} set does not record it")
    found = None
    if rows is not None and others is not None and name in COUNTS:
        found = _by_task(rows, others, *COUNTS[name])
    if found is not None:
        return _with(blank, found, paired=True)
    return _of_shares(blank, *both)


def _of_shares(blank: TraceDifference, first: Share | None, second: Share | None) -> TraceDifference:
    if first is None or second is None or first.interval is None or second.interval is None:
        return replace(blank, why="too few episodes or tasks for an interval")
    clusters = min(first.clusters, second.clusters)
    found = share_difference(
        first.value or 0.0, first.interval, second.value or 0.0, second.interval, clusters=clusters
    )
    return _with(blank, found, paired=False)


def _with(blank: TraceDifference, found: ClusterDifference, *, paired: bool) -> TraceDifference:
    return replace(
        blank, first=found.first, second=found.second, interval=(found.low, found.high), p_value=found.p_value,
        paired=paired, clusters=found.clusters,
    )  # fmt: skip


def _by_task(first: pl.DataFrame, second: pl.DataFrame, hits: str, trials: str | None) -> ClusterDifference | None:
    sides = [_task_rates(side, hits, trials) for side in (first, second)]
    both = sides[0].join(sides[1], on="task_key", suffix="_other").sort("task_key")
    rates = both["rate"].to_numpy(), both["rate_other"].to_numpy()
    span = 1.0 if hits not in MEANS or not both.height else float(np.ptp(np.concatenate(rates)))
    return paired_difference(*rates, span=span)


def _task_rates(episodes: pl.DataFrame, hits: str, trials: str | None) -> pl.DataFrame:
    known = episodes.filter(pl.col("task_key").is_not_null(), pl.col(hits).is_not_null())
    of = pl.len() if trials is None else pl.col(trials).sum()
    sums = known.group_by("task_key").agg(pl.col(hits).cast(pl.Float64).sum().alias("hits"), of.alias("of"))
    return sums.filter(pl.col("of") > 0).select("task_key", (pl.col("hits") / pl.col("of")).alias("rate"))


def _mean(
    column: str, first: pl.DataFrame | None, second: pl.DataFrame | None, *, paired: bool
) -> TraceDifference | None:
    """Compare a mean over episodes; None where neither set records it."""
    if first is None or second is None:
        return None
    label, worse = MEANS[column]
    sides = [_finite(side, column) for side in (first, second)]
    if not sides[0].height and not sides[1].height:
        return None
    values = [None if side.is_empty() else _average(side[column]) for side in sides]
    blank = TraceDifference(name=column, label=label, of="", first=values[0], second=values[1], worse=worse)
    if None in values:
        return replace(blank, why=f"the {'first' if values[0] is None else 'second'} set does not record it")
    found = _by_task(sides[0], sides[1], column, None) if paired else None
    if found is not None:
        return _with(blank, found, paired=True)
    found = welch_difference(*(_unit_means(side, column) for side in sides))
    return (
        replace(blank, why="too few episodes or tasks, or all alike")
        if found is None
        else _with(blank, found, paired=False)
    )


def _finite(episodes: pl.DataFrame, column: str) -> pl.DataFrame:
    return episodes.with_columns(pl.col(column).cast(pl.Float64)).filter(pl.col(column).is_finite())


def _average(values: pl.Series) -> float | None:
    mean = values.mean()
    return float(mean) if isinstance(mean, int | float) and math.isfinite(mean) else None


def _unit_means(episodes: pl.DataFrame, column: str) -> FloatArray:
    means: FloatArray = episodes.group_by("unit").agg(pl.col(column).mean()).sort("unit")[column].to_numpy()
    return means


def _tools(
    first: TraceDiagnosis, second: TraceDiagnosis
) -> tuple[list[TraceDifference], tuple[tuple[str, ...], tuple[str, ...]]]:
    """Compare the failures of each tool that both sets call; name those that one calls alone."""
    rows = [{row["name"]: row for row in side.rows("tools") if row["name"] is not None} for side in (first, second)]
    both = [name for name in rows[0] if name in rows[1]]
    found = [_tool(name, rows[0][name], rows[1][name]) for name in both]
    only = tuple(tuple(name for name in rows[a] if name not in rows[b]) for a, b in ((0, 1), (1, 0)))
    return found, (only[0], only[1])


def _tool(name: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> TraceDifference:
    blank = TraceDifference(
        name=f"tool:{name}", label=name, of=MEASURES["tool_failure_rate"].of,
        first=first["failed"], second=second["failed"],
    )  # fmt: skip
    sides = (first, second)
    if any(row["failed"] is None for row in sides):
        return replace(blank, why="the outcome of its calls is not recorded")
    if any(row["low"] is None or row["high"] is None for row in sides):
        return replace(blank, why="too few episodes call it")
    ends = [(row["low"], row["high"]) for row in sides]
    clusters = min(row["episodes"] for row in sides)
    return _with(
        blank, share_difference(first["failed"], ends[0], second["failed"], ends[1], clusters=clusters), paired=False
    )


def _errors(first: TraceDiagnosis, second: TraceDiagnosis) -> tuple[ErrorChange, ...]:
    """Return how often each class of error was met, the greatest change first."""
    counts = [
        {(row["tool"] or "", row["error_class"] or ""): row["calls"] for row in side.rows("error_classes")}
        for side in (first, second)
    ]
    keys = dict.fromkeys([*counts[0], *counts[1]])
    changes = [
        ErrorChange(
            tool=tool, error_class=kind, first=counts[0].get((tool, kind), 0), second=counts[1].get((tool, kind), 0)
        )
        for tool, kind in keys
    ]
    return tuple(sorted(changes, key=lambda item: (-abs(item.second - item.first), item.tool, item.error_class)))


def _settled(items: Sequence[TraceDifference]) -> tuple[TraceDifference, ...]:
    """Correct the p-values of one family for how many they are, and say what each difference comes to."""
    adjusted = holm_adjust([math.nan if item.p_value is None else item.p_value for item in items])
    return tuple(
        item if math.isnan(p) else replace(item, p_value=p, verdict=_verdict(item, p))
        for item, p in zip(items, adjusted, strict=True)
    )


def _verdict(item: TraceDifference, p_value: float) -> str:
    """Return better or worse only where chance explains it badly and the interval excludes no difference."""
    gap, interval = item.difference, item.interval
    if gap is None or interval is None or p_value >= ERROR_RATE or interval[0] <= 0 <= interval[1]:
        return NONE
    side = HIGHER if gap > 0 else LOWER
    if item.worse is None:
        return side
    return WORSE if side == item.worse else BETTER

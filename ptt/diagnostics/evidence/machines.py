"""Put what is recorded by rank side by side."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import field
from enum import StrEnum
from itertools import product
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.series import Series, finite_series
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.rank_scores import (
    OFFSETS,
    RankScores,
    counted_on,
    fitting_shifts,
    score_ranks,
    set_forward,
)
from ptt.diagnostics.store.wide_metrics import WideMetrics


class Measure(StrEnum):
    """What a metric by rank measures."""

    TIME = "time"  # of a phase of the step
    WHOLE_STEP = "whole step"  # a time that ends when all ranks have met: a slow rank slows all alike
    MEMORY = "memory"  # memory in use
    UTILISATION = "utilisation"  # share of time in which a device computes
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class ByRank:
    """One metric as several ranks, nodes or devices recorded it."""

    name: str
    measure: Measure
    places: Mapping[str, Series]  # "rank 3", "node.0 gpu 1": sorted
    by_step: bool  # False: the writer named no step, and the series count samples


@dataclass(frozen=True, kw_only=True)
class Machines:
    """What is known by rank, node and device: metrics that two of them recorded at least, utilisation of one too."""

    metrics: tuple[ByRank, ...]
    notes: Mapping[str, str] = field(default_factory=dict)  # by file: how its times were read, if they name no offset

    def of(self, *measures: Measure) -> tuple[ByRank, ...]:
        """Return the metrics of these measures."""
        return tuple(metric for metric in self.metrics if metric.measure in measures)


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened, in a line; `kind` is stdout, stderr, exit, exception, last_line, alert or restart.

    `aside`: of a console that logs nothing while another one logs the training: a server's, or a failed first try's.
    """

    step: int | None
    kind: str
    text: str
    source: str
    aside: bool = False


UTC: Final = (0.0,)
Offsets = Mapping[str, Collection[int | None]]
MAX_PLACES: Final = 4096  # ranks of one metric
RANK_IN_PATH: Final = r"(?:^|[^a-z])rank[_=-]?(\d{1,5})(?:\D|$)"
RANK_OF_SOURCE: Final = pl.col("source").str.to_lowercase().str.extract(RANK_IN_PATH).cast(pl.Int64)
DEVICE: Final = r"(^|[./_])(?i:gpu)[./_]\d{1,3}([./_]|$)"
PLACE_IN_NAME: Final = r"^(?:ray/node\.\d{1,4}\.|rank\d{1,5}/|(system/)[^/]{1,64}/(gpu_))"
WHOLE_STEP_NAME: Final = re.compile(
    r"(?:^|[/_.])(?:step|iteration|iter|total|train_step|train_batch)(?:[_.]?(?:time|s|secs?|seconds|ms|duration))*$"
    r"|total_step_time$|time_per_(?:step|iter)",
    re.IGNORECASE,
)
TIME_NAME: Final = re.compile(
    r"^phase/|(?:^|[/_.])(?:time|timing|duration|elapsed|latency)(?:[/_.]|$)|_(?:s|ms|secs?|seconds)$|^timing_s/",
    re.IGNORECASE,
)
MEMORY_NAME: Final = re.compile(r"mem", re.IGNORECASE)
# besides memory in use, names with "mem" may mean errors (ECC counters), clocks, temperatures, total or free memory,
# and, as in W&B's gpu.N.memory, SwanLab's gpu.N.mem.time and every memory "utilization", how busy the memory
# controller is
NOT_HELD_NAME: Final = re.compile(
    r"error|ecc|clock|temp|total|capacity|limit|free|available|bandwidth|utili[sz]ation|util$|overdrive|activity|"
    r"mem[./_]time$|"
    r"(?:^|[./_])gpu[./_](?:process[./_])?memory$",
    re.IGNORECASE,
)
UTILISATION_NAME: Final = re.compile(
    r"(?:^|[./_])gpu[./_](?:gpu|pct|ptc|gpu_?util|util|utili[sz]ation|utili[sz]ation_?(?:pct|percent|percentage|gpu))$|"
    r"(?:^|[./_])gpus?_utili[sz]ation$",
    re.IGNORECASE,
)
MAX_VALUES: Final = 1 << 21  # over all ranks, as rows: 200 MB
SESSION_PREFIX: Final = "session/"  # how long single rollouts took: they differ by their prompts, not by their machine
SCHEMA: Final = {
    "rank": pl.String,
    "metric": pl.String,
    "mean": pl.Float64,
    "spread": pl.Float64,
    "relative_score": pl.Float64,
}


def gather_machines(
    metrics: pl.DataFrame, ranks: pl.DataFrame, wide: WideMetrics, offsets: Offsets | None = None
) -> Machines | None:
    """Collect what is recorded by rank; None if nothing is.

    `wide`: metrics too many for rows; only those about machines, times and memory are read. `offsets`: the UTC offsets,
    in minutes, that each file's timestamps name; None among them if some name none.
    """
    sources = pl.concat([metrics["source"].unique(), pl.Series([part.source for part in wide.parts], dtype=pl.String)])
    in_path = pl.DataFrame({"source": sources}).select(RANK_OF_SOURCE.is_not_null().any()).item()
    if ranks.is_empty() and metrics["rank"].is_null().all() and not in_path:
        return None
    notes: dict[str, str] = {}
    machine = _machine_rows(ranks, metrics, wide, offsets or {}, notes)
    rows = pl.concat([_metric_rows(metrics), _wide_rows(wide), machine])
    rows = rows.filter(pl.col("value").is_finite())
    several = rows.group_by("name").agg(pl.col("place").n_unique().alias("places"))
    alone = pl.col("name").map_elements(_counts_alone, return_dtype=pl.Boolean)
    enough = pl.col("places").is_between(2, MAX_PLACES) | (alone & (pl.col("places") == 1))
    rows = rows.join(several.filter(enough), on="name", how="semi")
    if rows.is_empty():
        return None
    rows = rows.sort("name", "place", "step", "order")
    return Machines(
        metrics=tuple(_metric(part) for part in rows.partition_by("name", maintain_order=True)), notes=notes
    )


def classify_measure(name: str) -> Measure:
    """Tell by its name what a metric measures."""
    if UTILISATION_NAME.search(name):
        return Measure.UTILISATION
    if MEMORY_NAME.search(name):
        return Measure.OTHER if NOT_HELD_NAME.search(name) else Measure.MEMORY
    if name.startswith(SESSION_PREFIX):
        return Measure.OTHER
    if WHOLE_STEP_NAME.search(name):
        return Measure.WHOLE_STEP
    return Measure.TIME if TIME_NAME.search(name) else Measure.OTHER


def _counts_alone(name: str) -> bool:
    """Return whether a metric says something of one device alone: how busy it is, with nothing to compare it to."""
    return classify_measure(name) is Measure.UTILISATION


def ranks_table(machines: Machines | None) -> pl.DataFrame:
    """Return one row a rank and metric: mean, standard deviation over the run, of times the score against the best."""
    rows: list[tuple[str, str, float, float, float | None]] = []
    for metric in machines.metrics if machines else ():
        timed = metric.measure in (Measure.TIME, Measure.WHOLE_STEP)
        scores = score_metric(metric) if timed else None
        for place, series in metric.places.items():
            values = series.finite()[1]
            score = float(scores.overall[scores.places.index(place)]) if scores and place in scores.places else None
            rows.append((place, metric.name, float(values.mean()), float(values.std()), score))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def score_metric(metric: ByRank) -> RankScores | None:
    """Score the ranks of a timing over the steps that all of them recorded."""
    return score_ranks({place: (series.steps, series.values) for place, series in metric.places.items()})


def _metric_rows(metrics: pl.DataFrame) -> pl.DataFrame:
    """Take training metrics whose rank is in the row or in the file's name."""
    train = metrics.filter((pl.col("split") == "train") & pl.col("step").is_not_null())
    rows = train.with_columns(number=pl.coalesce(pl.col("rank").cast(pl.Int64), RANK_OF_SOURCE)).drop_nulls("number")
    return _ranked_rows(rows.with_columns(name=pl.coalesce("name", "name_raw")))


def _wide_rows(wide: WideMetrics) -> pl.DataFrame:
    """Take training metrics of wide files with a rank in their name; if they are too many, only those judged."""
    files = pl.DataFrame({"source": sorted({part.source for part in wide.parts})}, schema={"source": pl.String})
    ranked = files.with_columns(number=RANK_OF_SOURCE).drop_nulls("number")
    sources = ranked["source"].to_list()
    few = sum(column.values for part in wide.parts if part.source in sources for column in part.columns) <= MAX_VALUES
    rows = wide.of_sources(sources, lambda name: few or classify_measure(name) is not Measure.OTHER)
    return _ranked_rows(rows.join(ranked, on="source", how="inner", maintain_order="left"))


def _ranked_rows(rows: pl.DataFrame) -> pl.DataFrame:
    place = pl.format("rank {}", "number")
    return rows.select("step", "name", place=place, value="value", order="seq", by_step=pl.lit(value=True))


def _machine_rows(
    ranks: pl.DataFrame, metrics: pl.DataFrame, wide: WideMetrics, offsets: Offsets, notes: dict[str, str]
) -> pl.DataFrame:
    """Take samples of machines; a sample with a time and no step gets the step that was last logged before it."""
    labels = [pl.col("node"), pl.format("rank {}", "rank"), pl.format("gpu {}", "device")]
    rows = ranks.with_row_index("order").select(
        "step",
        "wall_time",
        "source",
        pl.col("order").cast(pl.Int64),
        name=pl.col("name").str.replace(PLACE_IN_NAME, "${1}${2}").str.replace(DEVICE, "${1}gpu${2}"),
        place=pl.concat_str(labels, separator=" ", ignore_nulls=True),
        value="value",
    )
    rows = _assign_steps(rows.filter(pl.col("place") != ""), metrics, wide, offsets, notes)
    stepped = rows.filter(pl.col("step").is_not_null())
    is_phase = pl.col("name").str.starts_with("phase/")  # phases come several times a step
    phases = stepped.filter(is_phase).group_by("step", "name", "place")
    total = phases.agg(pl.col("value").sum(), pl.col("order").max())
    sample = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("name", "place")
    counted = rows.filter(pl.col("step").is_null()).with_columns(sample.alias("step"))
    parts = ((total, True), (stepped.filter(~is_phase), True), (counted, False))
    columns = ("step", "name", "place", "value", "order")
    return pl.concat([part.select(*columns, by_step=pl.lit(value=by_step)) for part, by_step in parts])


def _assign_steps(
    rows: pl.DataFrame, metrics: pl.DataFrame, wide: WideMetrics, offsets: Offsets, notes: dict[str, str]
) -> pl.DataFrame:
    """Place samples by their times; samples whose clock fits none of the logged times keep no step."""
    loose = rows.filter(pl.col("step").is_null() & pl.col("wall_time").is_not_null())
    if loose.is_empty():
        return rows
    timed = pl.col("wall_time").is_not_null() & (pl.col("split") == "train") & pl.col("step").is_not_null()
    logged = pl.concat([metrics.filter(timed).select("step", "wall_time", "source", order="seq"), wide.times()])
    if logged.is_empty():
        return rows
    logs = _by_clock(logged, offsets, notes)
    frames = [rows.filter(pl.col("step").is_not_null() | pl.col("wall_time").is_null())]
    for clock, samples in _by_clock(loose, offsets, notes).items():
        joined = _joined(clock, samples, logs, offsets, notes)
        frames.append(samples if joined is None else joined.filter(pl.col("step").is_not_null()))
    return pl.concat([frame.select(rows.columns) for frame in frames]).sort("order")


def _by_clock(rows: pl.DataFrame, offsets: Offsets, notes: dict[str, str]) -> dict[str, pl.DataFrame]:
    """Return rows by their clock: UTC, as "", or the file whose stamps name no offset, its times counted on."""
    local = pl.col("source").is_in([source for source, named in offsets.items() if None in named])
    clocks = {"": rows.filter(~local)}
    for (source,), part in (
        rows.filter(local).sort("order", maintain_order=True).group_by("source", maintain_order=True)
    ):
        times, place, change = counted_on(part["wall_time"].to_numpy())
        clocks[str(source)] = part.with_columns(wall_time=pl.Series(times))
        if change:
            step = part["step"][place - 1]
            where = "" if step is None else f" after step {step}"
            notes[str(source)] = (
                f"Its clock was set back by {change / 60:.0f} minutes{where}; the times from there on are corrected."
            )
    return {clock: part for clock, part in clocks.items() if part.height}


def _joined(
    clock: str, samples: pl.DataFrame, logs: Mapping[str, pl.DataFrame], offsets: Offsets, notes: dict[str, str]
) -> pl.DataFrame | None:
    """Return samples with the step last logged before each; None where no log has times that fit theirs.

    The log of their own clock comes first, then that in UTC where it has the times of half the steps, then the longest.
    """
    counts = {log: part["step"].n_unique() for log, part in logs.items()}
    half = pl.concat(part.select("step") for part in logs.values())["step"].n_unique() / 2
    order = sorted(logs, key=lambda log: (not log or log != clock, bool(log) or counts[log] < half, -counts[log], log))
    for log in order:
        times = _fitted(clock, samples["wall_time"].to_numpy(), log, logs[log]["wall_time"].to_numpy(), offsets, notes)
        if times is not None:
            steps = logs[log].with_columns(wall_time=pl.Series(times)).group_by("step").agg(pl.col("wall_time").min())
            return (
                samples.drop("step")
                .sort("wall_time", "order")
                .join_asof(steps.sort("wall_time", "step"), on="wall_time", strategy="backward")
            )
    return None


def _fitted(
    clock: str, samples: FloatArray, log: str, times: FloatArray, offsets: Offsets, notes: dict[str, str]
) -> FloatArray | None:
    """Return the times of a log as the samples' clock counts; None where they fit at no offset, or at several.

    Clocks that name no offset count from UTC, or from what other stamps of the run name, where they fit so.
    """
    if clock == log:
        return times
    source, other = (log, "the samples of the machines") if log else (clock, "the logged steps")
    sign = -1.0 if log else 1.0  # a clock ahead of UTC: its times are to come down, or those of UTC to go up
    tiers: list[tuple[float, ...]] = [UTC, tuple(sign * offset for offset in OFFSETS)]
    if log and clock:  # both local: one zone, or one of them writes UTC
        tiers[1] = tuple(sorted({*tiers[1], *OFFSETS}))
    elif named := {60.0 * minutes for minutes in offsets[source] if minutes} or {
        60.0 * minutes for others in offsets.values() for minutes in others if minutes
    }:
        tiers.insert(0, tuple(sign * offset for offset in sorted(named)))
    forward = set_forward(times) if log else []
    read: list[tuple[FloatArray, float, float]] = []
    around = False
    for around, tier in product((False, True), tiers):
        ways = [(times, 0.0), *(forward if tier != UTC and not around else ())]
        read = [
            (way, change, shift) for way, change in ways for shift in fitting_shifts(way, samples, tier, around=around)
        ]
        if read:
            break
    zones = [_zone(sign * shift) for _, _, shift in read]
    if len(read) != 1:
        at = f"at several offsets ({', '.join(dict.fromkeys(zones))})" if read else "at no offset"
        _note(notes, source, f"Its times name no offset from UTC, and fit {other} {at}: they are not joined.")
        return None
    [(way, change, shift)] = read
    moved = f"moved by {shift / 60:+.0f} minutes" if log and clock else f"read as {zones[0]}"
    said = f" They are {moved}, where they fit {other}." if shift else ""
    said += f" The clock was set forward by {change / 60:.0f} minutes in their longest pause." if change else ""
    also = [] if shift else [one for one in fitting_shifts(way, samples, tiers[-1], around=around) if one]
    if also:
        said = f" They are read as UTC; {', '.join(_zone(sign * one) for one in also)} would fit {other} too."
    if said:
        _note(notes, source, f"Its times name no offset from UTC.{said}")
    return np.add(way, shift)


def _zone(seconds: float) -> str:
    """Spell an offset from UTC."""
    minutes = abs(round(seconds / 60))
    return f"UTC{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _note(notes: dict[str, str], source: str, note: str) -> None:
    if note not in notes.get(source, ""):
        notes[source] = f"{notes[source]} {note}" if source in notes else note


def _metric(rows: pl.DataFrame) -> ByRank:
    """Put the means by step of one metric side by side: system samples come every few seconds."""
    name = str(rows["name"][0])
    places: dict[str, Series] = {}
    for part in rows.partition_by("place", maintain_order=True):
        means = part.group_by("step").agg(pl.col("value").mean()).sort("step")
        places[str(part["place"][0])] = finite_series(name, means["step"].to_numpy(), means["value"].to_numpy())
    return ByRank(name=name, measure=classify_measure(name), places=places, by_step=bool(rows["by_step"].all()))

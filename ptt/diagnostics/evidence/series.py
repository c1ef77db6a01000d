"""Read one series for each canonical metric, however many writers logged it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.joined_sources import (
    best_rows,
    best_spellings,
    ends_by_spelling,
    group_spellings,
    join_spellings,
    named_alike,
    only_rows,
)
from ptt.diagnostics.metrics.aliases import bare_name
from ptt.diagnostics.metrics.catalogue import listed
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.trend import rolling_mean
from ptt.diagnostics.store.wide_metrics import Column, WideMetrics, distinct, flags_of

ROLLING_STEPS: Final = 20
"""Metrics are judged by the mean over this many logged steps: no verdict hangs on a single one."""
MIN_LOGGED: Final = 10
"""Fewer logged values than this are not judged: half of them would be the run's warm-up."""
ALARM_DRAWS: Final = 200
ALARM_PARTS: Final = 8  # one after the other: all draws of a long series at once take tens of MB
ALARM_WINDOW: Final = 1000  # logged values on either side of an alarm that are redrawn
ALARM_SEED: Final = 20_260_128
INFINITE_FLAGS: Final = (2, 3)  # flags of the infinities (schema.Flag)
NAN_FLAGS: Final = (1, 2, 3)  # flags of NaN and the infinities; a null is weaker evidence (schema.Flag)
MIN_DEAD_VALUES: Final = 3  # at the end, all NaN: a single NaN may be one bad last row
LOST_SHARE: Final = 0.2  # of the logged values: with more missing, the rest is a biased selection
LOSS: Final = "loss"
NO_LOSS_OF_ANSWERS: Final = frozenset({"aux", "kl", "value", "critic", "policy", "entropy", "std", "min", "max"})
"""Words of losses that do not measure answers."""
MIN_WARMUP_VALUES: Final = 5
"""Values that a mean needs at the start of a run: one that dies within 20 steps must be reported."""


@dataclass(frozen=True, kw_only=True)
class Extremes:
    """The ends and extremes of a series before it was condensed, each extreme with its first step."""

    first: float
    last: float
    low: float
    low_step: int
    high: float
    high_step: int
    at_zero: float  # share of values that are exactly 0
    count: int  # finite values


def extremes_of(steps: IntArray, values: FloatArray) -> Extremes:
    """Return the ends and extremes of finite values, at least one."""
    low, high = int(values.argmin()), int(values.argmax())
    return Extremes(
        first=float(values[0]),
        last=float(values[-1]),
        low=float(values[low]),
        low_step=int(steps[low]),
        high=float(values[high]),
        high_step=int(steps[high]),
        at_zero=float((values == 0).mean()),
        count=len(values),
    )


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric over steps; `values` is NaN wherever `flags` is not 0 (see schema.Flag)."""

    name: str
    raw_name: str
    steps: IntArray
    values: FloatArray
    flags: npt.NDArray[np.uint8]
    logged: int = 0  # values before the series was condensed to block means; 0: it was not
    sources_end: int | None = None  # last step at which sources of its kinds logged anything; None: unknown
    window: int = 0  # values that a rolling mean covers; 0: as many as the series' length suggests
    extremes: Extremes | None = None  # None: not condensed, so the values themselves show them

    @property
    def count(self) -> int:
        """How many values were logged, finite or not."""
        return self.logged or len(self.steps)

    @property
    def not_numbers(self) -> int:
        """How many values were logged as NaN or an infinity; a null may be a row that does not log the metric."""
        return int(np.isin(self.flags, NAN_FLAGS).sum())

    @property
    def lost(self) -> bool:
        """Whether the values are no numbers from some step up to the end, or in a fifth of the run."""
        bad = np.isin(self.flags, NAN_FLAGS)
        return (
            bool(bad[-MIN_DEAD_VALUES:].all() and len(bad) >= MIN_DEAD_VALUES)
            or self.not_numbers > LOST_SHARE * self.count
        )

    @property
    def width(self) -> int:
        """How many logged values a rolling mean takes: 20, and a third of them in a run that has fewer than 60."""
        return self.window or rolling_width(len(self.finite()[0]))

    def rolling(self) -> tuple[IntArray, FloatArray]:
        """Steps with a value, and the mean over the last `width` of them; NaN before five were seen."""
        steps, values = self.finite()
        return steps, rolling_mean(values, self.width, minimum=MIN_WARMUP_VALUES)

    def rolling_median(self) -> FloatArray:
        """The median over each full window of `width` finite values."""
        return np.median(sliding_window_view(self.finite()[1], self.width), axis=1)

    def excess(self, limit: float) -> int | None:
        """Return the first step at which the rolling mean, and half of its values, lastingly exceed `limit`.

        The second condition stops a single outlier from lifting the mean; "lastingly" means that half of the values in
        the next half window exceed it as well.
        """
        steps, values = self.finite()
        first = int(_first_excess(values, self.width, limit))
        return int(steps[first]) if first < len(steps) else None

    def mean_passed(self, limit: float) -> int | None:
        """Return the first step at which the rolling mean exceeds `limit`, even if a single outlier lifts it."""
        steps, mean = self.rolling()
        above = np.flatnonzero(mean > limit)
        return int(steps[above[0]]) if len(above) else None

    def first_above(self, limit: float, alarm: int) -> int:
        """Return the first step above `limit` among the values whose mean raised the alarm at step `alarm`."""
        steps, values = self.finite()
        index = int(np.searchsorted(steps, alarm))
        window = np.arange(max(0, index - self.width + 1), index + 1)
        return int(steps[window[values[window] > limit][0]])

    def finite(self) -> tuple[IntArray, FloatArray]:
        """Steps and values where there is a value."""
        usable = np.isfinite(self.values)
        return (self.steps, self.values) if usable.all() else (self.steps[usable], self.values[usable])


def rolling_width(values: int) -> int:
    """Return how many of `values` values a rolling mean covers: 20, or a third if there are fewer than 60."""
    return min(ROLLING_STEPS, max(5, values // 3))


def finite_series(name: str, steps: IntArray, values: FloatArray, *, raw_name: str | None = None) -> Series:
    """Make a series of values, (n,), at steps, (n,), all flagged as finite."""
    raw_name = name if raw_name is None else raw_name
    return Series(name=name, raw_name=raw_name, steps=steps, values=values, flags=np.zeros(len(steps), np.uint8))


def condense(series: Series, max_points: int) -> Series:
    """Return means of at most `max_points` blocks of equal size, each at its last step; shorter series are unchanged.

    Values that are not finite are kept between them.
    """
    steps, values = series.finite()
    size = -(-len(values) // max_points)
    if size <= 1:
        return series
    starts = np.arange(0, len(values), size)
    counts = np.diff(np.append(starts, len(values)))
    means = np.add.reduceat(values, starts) / counts
    ends = steps[starts + counts - 1]
    extremes = series.extremes or extremes_of(steps, values)
    if len(values) == len(series.values):
        flags = np.zeros(len(means), series.flags.dtype)
        return replace(series, steps=ends, values=means, flags=flags, logged=series.count, extremes=extremes)
    bad = ~np.isfinite(series.values)
    at = np.concatenate([ends, series.steps[bad]])
    order = np.argsort(at, kind="stable")
    flags = np.concatenate([np.zeros(len(means), series.flags.dtype), series.flags[bad]])
    return replace(
        series,
        steps=at[order],
        values=np.concatenate([means, series.values[bad]])[order],
        flags=flags[order],
        logged=series.count,
        extremes=extremes,
    )


def _first_excess(values: FloatArray, width: int, limit: float) -> IntArray:
    """Return the first place of finite values, (..., n), at which `Series.excess` finds an excess, or n."""
    above = (values > limit).astype(np.float64)
    fewest = min(MIN_WARMUP_VALUES, width)
    mean = rolling_mean(values, width, minimum=fewest)
    share = rolling_mean(above, width, minimum=fewest)
    ahead = rolling_mean(above[..., ::-1], max(2, width // 2), minimum=1)[..., ::-1]
    end = np.ones((*values.shape[:-1], 1))
    to_come = np.concatenate([ahead[..., 1:], end[..., : values.shape[-1]]], axis=-1)
    with np.errstate(invalid="ignore"):
        alarms = (mean > limit) & (share >= 0.5) & (to_come >= 0.5)
    first: IntArray = np.argmax(np.concatenate([alarms, end > 0], axis=-1), axis=-1)
    return first


def excess_interval(series: Series, limit: float, alarm: int) -> tuple[int, int]:
    """Return the 95% interval of the step at which a series' mean passes `limit`, around the step `alarm` it did.

    Moving-block bootstrap (Kunsch 1989): deviations from the running median are resampled in blocks as long as the
    mean's window, on the log scale if all values are positive. A resample that never passes counts as the end.
    """
    steps, values = series.finite()
    index = int(np.searchsorted(steps, alarm))
    near = slice(max(0, index - ALARM_WINDOW), index + ALARM_WINDOW)
    steps, values = steps[near], values[near]
    logs = bool((values > 0).all())
    levels = np.log(values) if logs else values
    width = min(series.width, len(values))
    half = max(1, width // 2)
    around = sliding_window_view(np.pad(levels, half, mode="edge"), 2 * half + 1)
    centre = np.median(around, axis=1)
    off = levels - centre
    blocks = -(-len(off) // width)
    generator = np.random.default_rng(ALARM_SEED)
    begins = generator.integers(0, len(off) - width + 1, size=(ALARM_DRAWS, blocks))
    own_width = replace(series, steps=steps, values=values).width
    onsets = [alarm]
    for some in np.array_split(begins, ALARM_PARTS):
        blocks_of = off[some[..., None] + np.arange(width)].reshape(len(some), -1)
        drawn = centre + blocks_of[:, : len(off)]
        if logs:
            with np.errstate(over="ignore"):
                drawn = np.minimum(np.exp(drawn), np.finfo(np.float64).max)
        onsets += steps[np.minimum(_first_excess(drawn, own_width, limit), len(steps) - 1)].tolist()
    low, high = np.percentile(onsets, [2.5, 97.5], method="nearest")
    return min(int(low), alarm), max(int(high), alarm)


DASHBOARD_METRICS: Final = listed("drawn")
MAX_SERIES_POINTS: Final = 20_000  # points of a series: a longer one is kept as means of blocks
MAX_DRAWN_POINTS: Final = 1000  # of a drawn line: more than a plot has pixels
PART_ROWS: Final = 1 << 18  # of a table of series that is made in parts: 13 MB
SERIES: Final[dict[str, type[pl.DataType]]] = {
    "name": pl.String,
    "name_raw": pl.String,
    "step": pl.Int64,
    "value": pl.Float64,
    "flag": pl.UInt8,
}
ROW_COLUMNS: Final = ("name", "name_raw", "step", "value", "flag", "priority", "source", "seq")
"""What a series is made from: there are many rows, and each copy of a column costs memory."""


def read_series(metrics: pl.DataFrame, wide: WideMetrics, *, split: str = "train") -> dict[str, Series]:
    """Return the series of each canonical metric of one split; `wide` holds metrics of training alone.

    Sources are joined step by step (`joined_sources`); of several rows of one step the best source's last one counts:
    a resumed run logs its steps again.
    """
    rows = _named_rows(metrics, split)
    if rows.is_empty() and not wide.parts:
        return {}
    spellings, ends = join_spellings(rows, wide), ends_by_spelling(rows, wide)
    chosen = {raw for raws in spellings.values() for raw in raws}
    rows = only_rows(rows, pl.col("name_raw").is_in(sorted(chosen)))
    return {
        name: replace(series, sources_end=max(ends[raw] for raw in spellings[name]))
        for name, series in _with_wide(rows, wide, spellings).items()
    }


def logged_steps(metrics: pl.DataFrame, wide: WideMetrics) -> IntArray:
    """Return all steps at which the metrics of `read_series` were logged, ascending: long series drop some."""
    rows = _named_rows(metrics, "train")
    chosen = {raw for raws in join_spellings(rows, wide).values() for raw in raws}
    steps = rows.lazy().filter(pl.col("name_raw").is_in(sorted(chosen))).select(pl.col("step").unique())
    found = distinct([steps.collect(engine="streaming")["step"].to_numpy(), wide.steps_of(chosen)])
    if len(found):
        return found
    for split in ("train", "eval"):  # even if no name is known, the rows are logged
        found = distinct([_unranked(metrics, split)["step"].unique().to_numpy()])
        if len(found):
            break
    return found


def _named_rows(metrics: pl.DataFrame, split: str) -> pl.DataFrame:
    named = (pl.col("split") == split) & pl.col("name").is_not_null() & pl.col("step").is_not_null()
    return _rows(metrics, named)


def read_other(metrics: pl.DataFrame, wide: WideMetrics) -> dict[str, Series]:
    """Return the training series without a canonical name under the names their writer gave them.

    Of the spellings that a reporter's prefix alone sets apart, that of the best source names their series. Rows of
    several ranks are left out: they are no series.
    """
    rows = _unranked(metrics, "train").filter(pl.col("name").is_null())
    spellings = group_spellings(rows, wide)
    return _with_wide(named_alike(rows, spellings), wide, spellings)


def _with_wide(rows: pl.DataFrame, wide: WideMetrics, spellings: Mapping[str, Sequence[str]]) -> dict[str, Series]:
    """Return the series of `rows`, and of the wide metrics among `spellings`, one after the other: rows are many.

    `spellings`: for each name in `rows` what its sources call it, that of the best source first.
    """
    order = wide.order
    wide_names = [name for name, raws in spellings.items() if not order.keys().isdisjoint(raws)]
    wide_names.sort(key=lambda name: min(order[raw] for raw in spellings[name] if raw in order))
    narrow = only_rows(rows, ~pl.col("name").is_in(wide_names))
    series_by_metric = _series(narrow) if narrow.height else {}
    logged = set(rows["name"].unique()) if wide_names else set()
    none = rows.clear()
    for name in wide_names:
        columns = [wide.column(raw) for raw in spellings[name] if raw in order]
        beside = rows.filter(pl.col("name") == name) if name in logged else none
        series = _wide_series(beside, columns, name, spellings[name][0])
        series_by_metric[name] = condense(series, MAX_SERIES_POINTS)
    return dict(sorted(series_by_metric.items()))


def _wide_series(rows: pl.DataFrame, columns: Sequence[Column], name: str, raw: str) -> Series:
    """Return the series of one metric from its rows and its columns; most often a single writer never went back."""
    key = ["step", "value", "flag", "priority", "source", "seq"]
    column = columns[0]
    others = set(rows["source"].unique()) - set(column.sources) if rows.height else set()
    if len(columns) == len(column.sources) == 1 and not others:
        steps, values, flags, rises = column.steps, column.values, flags_of(column.values), column.rises
        if rows.height:
            order = np.argsort(np.concatenate([column.seqs, rows["seq"].to_numpy()]), kind="stable")
            steps = np.concatenate([steps, rows["step"].to_numpy()])[order]
            values = np.concatenate([values, rows["value"].fill_null(np.nan).to_numpy()])[order]
            flags = np.concatenate([flags, rows["flag"].to_numpy()])[order]
            rises = bool((np.diff(steps) > 0).all())
        if rises:
            finite = np.where(np.isfinite(values), values, np.nan) if flags.any() else values
            return Series(name=name, raw_name=raw, steps=steps, values=finite, flags=flags)
    frames = [rows.select(key), *(column.frame().select(key) for column in columns)]
    both = pl.concat(frames, how="vertical_relaxed")
    return _series(both.with_columns(pl.lit(name).alias("name"), pl.lit(raw).alias("name_raw")))[name]


def series_by_name(rows: pl.DataFrame, names: Mapping[str, str]) -> dict[str, Series]:
    """Return one series for each name in `names`, by spelling; spellings without a name are left out."""
    wanted = rows.filter(pl.col("name_raw").is_in(sorted(names)))
    if wanted.is_empty():
        return {}
    renamed = wanted.with_columns(pl.col("name_raw").replace_strict(names, return_dtype=pl.String).alias("name"))
    return _series(renamed)


def training_metric_names(metrics: pl.DataFrame, wide: WideMetrics, *, ranks: bool = False) -> list[str]:
    """Return the names that metrics of training were logged under; those of single ranks only with `ranks`."""
    trained = (pl.col("split") == "train") & (pl.col("rank").is_null() | ranks)
    logged = metrics.filter(trained)["name_raw"].drop_nulls().unique()
    return sorted({*logged, *wide.spellings()["name_raw"]})


def training_series(metrics: pl.DataFrame, wide: WideMetrics, names: Mapping[str, str]) -> dict[str, Series]:
    """Return one training series for each name in `names`, by spelling, wherever its values are stored.

    A spelling also covers those that differ only by a reporter's prefix, unless they have a name themselves.
    """
    if not names:
        return {}
    rows = _unranked(metrics, "train")
    columns = wide.spellings()["name_raw"].unique()
    bare = {bare_name(raw): name for raw, name in names.items()}
    logged = [*rows["name_raw"].unique(), *columns]
    named = {raw: names.get(raw) or bare[bare_name(raw)] for raw in logged if raw in names or bare_name(raw) in bare}
    rows = rows.filter(pl.col("name_raw").is_in(sorted(named)))
    if not set(columns) & set(named):
        return series_by_name(rows, named)
    raws = {name: sorted(raw for raw in named if named[raw] == name) for name in set(named.values())}
    renamed = rows.with_columns(pl.col("name_raw").replace_strict(named, return_dtype=pl.String).alias("name"))
    return _with_wide(renamed, wide, {name: sorted(raws[name], key=lambda raw: raw not in names) for name in raws})


def read_evaluations(metrics: pl.DataFrame) -> dict[str, Series]:
    """Return the series of every evaluation under its writer's name; values logged by rank are left out."""
    rows = _unranked(metrics, "eval")
    return _series(named_alike(rows, group_spellings(rows))) if rows.height else {}


def further_losses(metrics: pl.DataFrame, known: Series | None) -> tuple[Series, ...]:
    """Return the losses that evaluations on further data sets log, besides the known one, sorted by name."""
    losses = {
        name: series
        for name, series in read_evaluations(metrics).items()
        if LOSS in words_of(name) and not words_of(name) & NO_LOSS_OF_ANSWERS
    }
    return tuple(losses[name] for name in sorted(losses) if known is None or name != known.raw_name)


def read_evaluation(metrics: pl.DataFrame, name: str) -> Series | None:
    """Return the series of the evaluation that a writer gave this name, else the one with this canonical name."""
    rows = _unranked(metrics, "eval")
    alike = [raw for raw in rows["name_raw"].unique() if bare_name(raw) == bare_name(name)]
    chosen = rows.filter(pl.col("name_raw").is_in(alike))
    if chosen.is_empty():
        chosen = rows.filter(pl.col("name") == name)
        chosen = chosen.filter(pl.col("name_raw").is_in(join_spellings(chosen).get(name, [])))
    return _series(chosen.with_columns(pl.lit(name).alias("name")))[name] if chosen.height else None


def _unranked(metrics: pl.DataFrame, split: str) -> pl.DataFrame:
    unranked = (pl.col("split") == split) & pl.col("step").is_not_null() & pl.col("rank").is_null()
    return _rows(metrics, unranked)


def _rows(metrics: pl.DataFrame, which: pl.Expr) -> pl.DataFrame:
    """Return the columns of some rows that series are made from."""
    return only_rows(metrics, which, ROW_COLUMNS)


def _series(rows: pl.DataFrame) -> dict[str, Series]:
    """Return one series a name; of several rows of one step the best source's last one."""
    spelt = best_spellings(rows)
    best = best_rows(rows)
    series = {}
    for group in best.partition_by("name", maintain_order=True):
        name = str(group["name"][0])
        steps, values, flags = (group[column].to_numpy() for column in ("step", "value", "flag"))
        series[name] = condense(
            Series(name=name, raw_name=spelt[name], steps=steps, values=values, flags=flags), MAX_SERIES_POINTS
        )
    return series


def aggregate_table(series: Mapping[str, Series], limits: Mapping[str, float]) -> pl.DataFrame:
    """Return what a dashboard shows: value and rolling mean of the aggregates, with the limit each is judged by."""
    schema = {"name": pl.String, "step": pl.Int64, **dict.fromkeys(("value", "mean", "limit"), pl.Float64)}
    frames = [pl.DataFrame(schema=schema)]
    for name in DASHBOARD_METRICS:
        if name in series:
            steps, values = series[name].finite()
            frame = pl.DataFrame({"step": steps, "value": values, "mean": series[name].rolling()[1]})
            limit = pl.lit(limits.get(name), pl.Float64)
            frame = frame.with_columns(pl.col("mean").fill_nan(None), name=pl.lit(name), limit=limit)
            frames.append(frame.gather_every(1 + frame.height // MAX_DRAWN_POINTS).select(list(schema)))
    return pl.concat(frames)


def series_table(series: Mapping[str, Series]) -> pl.DataFrame:
    """Return every series as judged, one value a step; null and a flag where a value is not a number."""
    empty = pl.DataFrame(schema=SERIES)
    metrics = list(series.values())
    if not metrics:
        return empty
    owners = np.repeat(np.arange(len(metrics)), [len(metric.steps) for metric in metrics])
    columns = {
        "name": pl.Series(list(series), dtype=pl.String).gather(owners),
        "name_raw": pl.Series([metric.raw_name for metric in metrics], dtype=pl.String).gather(owners),
        "step": np.concatenate([metric.steps for metric in metrics]),
        "value": pl.Series(np.concatenate([metric.values for metric in metrics])).fill_nan(None),
        "flag": np.concatenate([metric.flags for metric in metrics]),
    }
    return pl.concat([empty, pl.DataFrame(columns, schema_overrides=SERIES)], rechunk=True)  # no memory of NumPy's


def series_parts(series: Mapping[str, Series]) -> Iterator[pl.DataFrame]:
    """Yield `series_table` of a few series after the other."""
    some: dict[str, Series] = {}
    rows = 0
    for name, metric in series.items():
        if some and rows + len(metric.steps) > PART_ROWS:
            yield series_table(some)
            some, rows = {}, 0
        some[name] = metric
        rows += len(metric.steps)
    yield series_table(some)

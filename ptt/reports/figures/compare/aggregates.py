"""Draws the curves one usually watches, all arms in each panel, with the step at which an arm left the baseline."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.compare.comparison import OTHER, Arm, Comparison
from ptt.diagnostics.metrics.catalogue import listed
from ptt.reports.figures.axes import curve_scale, label_axes, shade_thirds, spans_powers, spike_cutoff, step_range
from ptt.reports.figures.compare.arms import MAX_BANDS, arm_styles, mark_divergence
from ptt.reports.figures.compare.rows import (
    CompareFigure,
    arm_name,
    cut_table,
    drawn_arms,
    finite,
    rows_of,
    with_bounds,
)
from ptt.reports.figures.panels import NO_LINE, DataTable, Panel
from ptt.reports.text.names import METRICS, joined, metric_name
from ptt.reports.text.numbers import count, number, percent
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import WINDOW_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Floats = npt.NDArray[np.float64]
FIRST = listed("compared_first")
NON_FINITE = (1, 2, 3)  # flags of NaN and the two infinities
WIDTH, HEIGHT = 340, 196
SPANS = 48  # of steps, one mean each: enough to see a bend, few enough to tell lines apart
FEW_SPANS = 20  # where more arms than have bands share a panel
MOVED = ("higher", "lower")
WAYS = {"higher": "higher", "lower": "lower", "apart": "apart between arms"}
NAMED = {"higher": " higher", "lower": " lower", "alike": " the same"}
APART = "not the same quantity"
MAX_MOVED = 5  # curves named in a title
MAX_PANELS = 24  # of the folded part; a trainer may log hundreds of curves


def panels(comparison: Comparison, first: bool) -> tuple[Panel, ...]:
    """Return one panel for each metric."""
    return tuple(
        Panel(
            key=f"compare-{'first' if first else 'other'}-{index}",
            title=_panel_title(comparison, name),
            alt=_alt(comparison, name),
            draw=partial(_draw, comparison=comparison, name=name),
            width=WIDTH,
            height=HEIGHT,
            top=NO_LINE,
            right=14,
        )
        for index, name in enumerate(_metrics(comparison, first=first)[:MAX_PANELS])
    )


def takeaway(comparison: Comparison, first: bool) -> str:
    """Say which curves differ from the baseline late in the run, or how many where they are many."""
    names = _metrics(comparison, first=first)
    words = {name: set(_late_words(comparison, name).values()) for name in names}
    ways: dict[str, list[str]] = {}
    for name in names:
        moved = words[name] & set(MOVED)
        if moved:
            ways.setdefault(moved.pop() if len(moved) == 1 else "apart", []).append(metric_name(name))
    if not names or not ways:
        return ""
    if sum(map(len, ways.values())) > MAX_MOVED:
        told = f"{sum(map(len, ways.values()))} of {len(names)} curves differ from the baseline's"
    else:
        told = "; ".join(f"{joined(ways[way])} {WAYS[way]}" for way in WAYS if way in ways)
    told = f"{told} late in the run"
    return f"{told[:1].upper()}{told[1:]}"


def _late_words(comparison: Comparison, name: str) -> dict[str, str]:
    """Return by arm whether a metric is higher, lower, alike or unclear in the last third, the drawn arms alone."""
    rows = rows_of(comparison, "aggregate_differences", metric=name, window="late")
    words = dict(rows.select("arm", "words").iter_rows())
    return {arm: words[arm] for arm in drawn_arms(comparison) if arm in words}


def _panel_title(comparison: Comparison, name: str) -> str:
    """Say how a metric of each arm lies to the baseline's in the last third."""
    words = _late_words(comparison, name)
    means = dict(_means(comparison, name).filter(window="late").select("arm", "mean").iter_rows())
    base = means.get(drawn_arms(comparison)[0])
    if not words or base is None:
        return _title(name)
    if len(words) == 1:
        ((arm, word),) = words.items()
        if arm not in means:
            return _title(name)
        if word == OTHER:
            return f"{_title(name)}: {APART}"
        return f"{_title(name)}{NAMED.get(word, '')}: {number(means[arm])} vs {number(base)}"
    counts = {way: sum(word == way for word in words.values()) for way in MOVED}
    told = [f"{way} in {many} of {len(words)} arms" for way, many in counts.items() if many]
    apart = sum(word == OTHER for word in words.values())
    told += [f"{APART} in {apart}"] if apart else []
    return f"{_title(name)}: {joined(told) or 'no arm differs clearly'}"


def caption(comparison: Comparison, first: bool) -> str:
    """Return how to read the figure."""
    if not first:
        shown = len(_metrics(comparison, first=False))
        cut = f" The first {MAX_PANELS} of {count(shown)} are drawn." if shown > MAX_PANELS else ""
        return f"Drawn as above.{cut}"
    sentences = [
        f"Each line is the mean over about a {_spans(comparison)}th of the matched steps.",
        "A pale band is the 95% interval of the mean over its third of the steps, where known."
        if _banded(comparison)
        else "",
        "A triangle on the axis marks the step from which an arm differs lastingly from the baseline in this curve.",
        "If a spike would flatten the rest, the axis stops below it."
        if any(_spiky(comparison, name) for name in _metrics(comparison, first=True))
        else "",
        "Similar curves here do not mean similar tails: averages hide what rare tokens do.",
    ]
    sentences += _non_finite(comparison)
    return " ".join(filter(None, sentences))


def _non_finite(comparison: Comparison) -> list[str]:
    """Return where values of the first metrics are NaN or infinite and so left out of the lines."""
    sentences = []
    for arm in comparison.arms:
        shares = []
        for name in FIRST:
            flags = [flag for rows in _series(arm, name) for flag in rows["flag"]]
            lost = sum(flag in NON_FINITE for flag in flags)
            shares += [f"{metric_name(name)} {percent(lost / len(flags))}"] if lost else []
        if shares:
            sentences.append(f"Not a number in {arm_name(arm.name)}, and left out: {joined(shares)}.")
    return sentences


def data(comparison: Comparison) -> tuple[DataTable, ...]:
    """Return the mean of every metric by arm and window, and how it differs from the baseline's."""
    keys = ("arm", "metric", "window")
    differences = rows_of(comparison, "aggregate_differences")
    words = {
        tuple(key): APART if word == OTHER else str(word or "").replace("_", " ")
        for *key, word in differences.select(*keys, "words").iter_rows()
    }
    rows = [
        (
            _title(row["metric"]),
            arm_name(row["arm"]),
            safe(row["window"]),
            with_bounds(row["mean"], row["lo"], row["hi"]),
            safe(words.get(tuple(row[key] for key in keys), "—")),
            count(row["n"]),
        )
        for row in rows_of(comparison, "aggregates", "mean").iter_rows(named=True)
    ]
    head = ("Metric", "Arm", "Window", "Mean (95% interval)", "Against the baseline", "Values")
    return cut_table("Means by window", head, rows)


def _title(name: str) -> str:
    shown = metric_name(name)
    return shown[:1].upper() + shown[1:]


def _banded(comparison: Comparison) -> bool:
    return len(drawn_arms(comparison)) <= MAX_BANDS


def _spans(comparison: Comparison) -> int:
    return SPANS if _banded(comparison) else FEW_SPANS


def _metrics(comparison: Comparison, *, first: bool) -> list[str]:
    known = [*FIRST, *METRICS]
    names = set(comparison.tables["aggregates"]["metric"].drop_nulls().to_list())
    ordered = sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name))
    return [name for name in ordered if (name in FIRST) == first]


def _span(comparison: Comparison) -> tuple[float, float]:
    last = [member.diagnosis.run.last_step or 1 for arm in comparison.arms for member in arm.members]
    return comparison.matched.get("steps") or (1.0, float(max(last)))


def _series(arm: Arm, metric: str) -> Iterable[pl.DataFrame]:
    """Yield the logged values of a metric of each run of an arm, one row for each step."""
    for member in arm.members:
        frame = member.diagnosis.tables.get("series")
        if frame is not None:
            yield frame.filter(name=metric)


def _line(arm: Arm, metric: str, span: tuple[float, float], spans: int) -> Floats:
    """Return an arm's mean by span of steps, each run counted the same; NaN in a span without values."""
    edges = np.linspace(span[0] - 0.5, span[1] + 0.5, spans + 1)
    runs = [np.full(spans, np.nan)]
    for rows in _series(arm, metric):
        inside = finite(rows, "value").filter(pl.col("step").is_between(edges[0], edges[-1])).sort("step")
        index = np.clip(np.searchsorted(edges, inside["step"].to_numpy(), side="right") - 1, 0, spans - 1)
        sums = np.bincount(index, weights=inside["value"].to_numpy(), minlength=spans)
        counts = np.bincount(index, minlength=spans)
        runs.append(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
    known = np.isfinite(runs).sum(axis=0)
    return np.where(known > 0, np.nansum(runs, axis=0) / np.maximum(known, 1), np.nan)


def _lines(comparison: Comparison, name: str) -> dict[str, Floats]:
    span, spans = _span(comparison), _spans(comparison)
    drawn = drawn_arms(comparison)
    return {arm.name: _line(arm, name, span, spans) for arm in comparison.arms if arm.name in drawn}


def _means(comparison: Comparison, name: str) -> pl.DataFrame:
    return rows_of(comparison, "aggregates", "mean", metric=name)


def _values(comparison: Comparison, name: str, lines: Iterable[Floats]) -> Floats:
    """Return every value that the panel of a metric shows."""
    means = _means(comparison, name)["mean"].to_numpy().astype(float)
    return np.concatenate([*(y[np.isfinite(y)] for y in lines), means])


def _spiky(comparison: Comparison, name: str) -> bool:
    values = _values(comparison, name, _lines(comparison, name).values())
    return len(values) > 0 and not spans_powers(values) and bool(values.max() > spike_cutoff(values))


def _draw(ax: Axes, *, comparison: Comparison, name: str) -> None:
    span, lines, means = _span(comparison), _lines(comparison, name), _means(comparison, name)
    step_range(ax, *span)
    values = _values(comparison, name, lines.values())
    if not len(values):
        return
    curve_scale(values, values).apply(ax)
    label_axes(ax, x_name="trainer step", top=NO_LINE)
    shade_thirds(ax, named=False)
    edges = np.linspace(span[0] - 0.5, span[1] + 0.5, _spans(comparison) + 1)
    third = (span[1] - span[0]) / len(WINDOW_NAMES)
    for arm, style in arm_styles(comparison).items():
        windows = means.filter(pl.col("arm") == arm, pl.col("window").is_in(WINDOW_NAMES))
        if _banded(comparison):
            for row in finite(windows, "lo", "hi").iter_rows(named=True):
                left = span[0] + third * WINDOW_NAMES.index(row["window"])
                ax.fill_between([left, left + third], row["lo"], row["hi"], color=style.colour, alpha=0.10, lw=0)
        if np.isfinite(lines[arm]).any():
            ax.plot(
                (edges[:-1] + edges[1:]) / 2, lines[arm], **{**style.line, "linewidth": style.width - 0.4}, zorder=4
            )
            continue
        middles = [span[0] + third * (WINDOW_NAMES.index(window) + 0.5) for window in windows["window"]]
        ax.plot(middles, windows["mean"].to_list(), **style.line, marker=style.marker, markersize=5, zorder=4)
    mark_divergence(ax, comparison, name)


def _alt(comparison: Comparison, name: str) -> str:
    sentences = [f"{_title(name)} over training, by arm."]
    means = _means(comparison, name)
    for arm in drawn_arms(comparison):
        by_window = dict(means.filter(arm=arm).select("window", "mean").iter_rows())
        values = ", ".join(f"{window} {number(by_window[window])}" for window in WINDOW_NAMES if window in by_window)
        sentences.append(f"{arm_name(arm)}: {values or 'no value (0 windows)'}.")
    return " ".join(sentences)


FIGURE = CompareFigure(
    name="aggregates",
    title="The usual curves",
    columns=3,
    panels=partial(panels, first=True),
    caption=partial(caption, first=True),
    data=data,
    takeaway=partial(takeaway, first=True),
    absence=lambda _: "no metric is logged by two arms",
    keyed=True,
)
OTHERS = CompareFigure(
    name="other_aggregates",
    title="Other curves",
    columns=3,
    panels=partial(panels, first=False),
    caption=partial(caption, first=False),
    takeaway=partial(takeaway, first=False),
    keyed=True,
)

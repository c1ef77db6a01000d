"""Draws the curves one usually watches, all arms in each panel, with the step at which an arm left the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.compare.comparison import Arm, Comparison
from ptt.diagnostics.metrics.catalogue import listed
from ptt.reports.figures.compare.arms import looks
from ptt.reports.figures.compare.kinds import (
    CompareFigure,
    arm_name,
    finite,
    names,
    numbers_of,
    of_arm,
    rows_of,
    with_bounds,
)
from ptt.reports.figures.compare.scales import across, mark_divergence, shade_thirds
from ptt.reports.figures.panels import NO_LINE, DataTable, Panel
from ptt.reports.figures.style import ceiling, dress, linear, many_powers, set_height, set_powers
from ptt.reports.text.names import METRICS, joined, metric_name
from ptt.reports.text.numbers import count, number, percent
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import WINDOW_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Floats = npt.NDArray[np.float64]
TABLE = "series"  # one value a metric and step
NOT_NUMBERS = (1, 2, 3)  # flags of NaN and the two infinities


def line(arm: Arm, metric: str, span: tuple[float, float], spans: int) -> tuple[Floats, Floats]:
    """Give an arm's mean by span of steps, each run counted alike; a span without values has none."""
    edges = np.linspace(span[0] - 0.5, span[1] + 0.5, spans + 1)
    kept = []
    for member in arm.members:
        rows = _series(member.diagnosis.tables, metric)
        if rows is None:
            continue
        steps, values = rows["step"].to_numpy(), rows["value"].to_numpy()
        inside = (steps >= edges[0]) & (steps <= edges[-1])
        place = np.clip(np.searchsorted(edges, steps[inside], side="right") - 1, 0, spans - 1)
        sums = np.bincount(place, weights=values[inside], minlength=spans)
        counts = np.bincount(place, minlength=spans)
        kept.append(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
    middles = (edges[:-1] + edges[1:]) / 2
    if not kept:
        return middles, np.full(spans, np.nan)
    every = np.array(kept)
    known = np.isfinite(every).sum(axis=0)
    return middles, np.where(known > 0, np.nansum(every, axis=0) / np.maximum(known, 1), np.nan)


def not_numbers(comparison: Comparison, metrics: tuple[str, ...]) -> list[str]:
    """Say where values are NaN or infinite and so left out of the lines."""
    told = []
    for arm in comparison.arms:
        bad = []
        for name in metrics:
            lost, every = 0, 0
            for member in arm.members:
                frame = member.diagnosis.tables.get(TABLE)
                rows = frame.filter(pl.col("name") == name) if frame is not None else pl.DataFrame()
                every += rows.height
                lost += rows.filter(pl.col("flag").is_in(NOT_NUMBERS)).height if rows.height else 0
            if lost:
                bad.append(f"{metric_name(name)} {percent(lost / every)}")
        if bad:
            told.append(f"Not a number in {arm_name(arm.name)}, and left out: {joined(bad)}.")
    return told


def _series(tables: Mapping[str, pl.DataFrame], metric: str) -> pl.DataFrame | None:
    frame = tables.get(TABLE)
    if frame is None or frame.is_empty():
        return None
    rows = frame.filter(pl.col("name") == metric, pl.col("value").is_finite()).sort("step")
    return rows if rows.height else None


FIRST = listed("compared_first")
WIDTH, HEIGHT = 340, 196
SPANS = 48  # of steps, one mean each: enough to see a bend, few enough to tell lines apart
FEW_SPANS = 20  # where more arms than that share a panel
BANDS_UP_TO = 4  # arms
MOST = 24  # panels of the folded part; a trainer may log hundreds of curves


def panels(comparison: Comparison, first: bool) -> tuple[Panel, ...]:
    """Give one panel a metric."""
    chosen = [name for name in _metrics(comparison) if (name in FIRST) == first][:MOST]
    return tuple(
        Panel(
            key=f"compare-{'first' if first else 'other'}-{index}",
            title=_title(name),
            alt=_alt(comparison, name),
            draw=partial(_draw, comparison=comparison, name=name),
            width=WIDTH,
            height=HEIGHT,
            top=NO_LINE,
            right=14,
        )
        for index, name in enumerate(chosen)
    )


def caption(comparison: Comparison, first: bool) -> str:
    """Tell how to read the figure."""
    if not first:
        shown = len([name for name in _metrics(comparison) if name not in FIRST])
        cut = f" The first {MOST} of {count(shown)} are drawn." if shown > MOST else ""
        return f"Drawn as above.{cut}"
    many = len(names(comparison)) > BANDS_UP_TO
    told = [
        f"Each line is the mean over about a {_spans(comparison)}th of the matched steps.",
        "" if many else "A pale band is the 95 % interval of the mean of its third of the steps, where it is known.",
        "A triangle on the axis marks the step from which on an arm differs lastingly from the baseline in this curve.",
        "Where a spike would flatten the rest the axis ends below it."
        if any(_spiky(comparison, name) for name in _metrics(comparison) if name in FIRST)
        else "",
        "Alike curves here do not mean alike tails: averages hide what rare tokens do.",
    ]
    told += not_numbers(comparison, FIRST)
    return " ".join(filter(None, told))


def data(comparison: Comparison) -> tuple[DataTable, ...]:
    """Give the mean of every metric by arm and window, and how it differs from the baseline's."""
    frame = finite(rows_of(comparison, "aggregates"), "mean")
    against = rows_of(comparison, "aggregate_differences")
    words: dict[tuple[str, str, str], str] = {}
    for row in against.iter_rows(named=True) if against.height else ():
        words[(row["arm"], row["metric"], row["window"])] = str(row["words"] or "").replace("_", " ")
    rows = tuple(
        (
            _title(row["metric"]),
            arm_name(row["arm"]),
            safe(row["window"]),
            with_bounds(row["mean"], row["lo"], row["hi"]),
            safe(words.get((row["arm"], row["metric"], row["window"]), "—")),
            count(int(row["n"])),
        )
        for row in (frame.iter_rows(named=True) if frame.height else ())
    )
    head = ("Metric", "Arm", "Window", "Mean (95 % interval)", "Against the baseline", "Values")
    return numbers_of("Means by window", head, rows)


def _title(name: str) -> str:
    shown = metric_name(name)
    return shown[:1].upper() + shown[1:]


def _spans(comparison: Comparison) -> int:
    return SPANS if len(names(comparison)) <= BANDS_UP_TO else FEW_SPANS


def _metrics(comparison: Comparison) -> list[str]:
    frame = rows_of(comparison, "aggregates")
    known = [*FIRST, *METRICS]
    found = set(frame["metric"].drop_nulls().to_list()) if frame.width else set()
    return sorted(found, key=lambda name: (known.index(name) if name in known else len(known), name))


def _span(comparison: Comparison) -> tuple[float, float]:
    shared = comparison.matched.get("steps")
    if shared is not None:
        return shared
    last = [member.diagnosis.run.last_step or 1 for arm in comparison.arms for member in arm.members]
    return 1.0, float(max(last))


def _lines(comparison: Comparison, name: str) -> dict[str, tuple[Floats, Floats]]:
    members, span = {arm.name: arm for arm in comparison.arms}, _span(comparison)
    return {arm: line(members[arm], name, span, _spans(comparison)) for arm in names(comparison)}


def _values(comparison: Comparison, name: str, lines: Mapping[str, tuple[Floats, Floats]]) -> Floats:
    """Give every value that the panel of a metric shows."""
    means = finite(rows_of(comparison, "aggregates", metric=name), "mean")["mean"].to_numpy().astype(float)
    return np.concatenate([*(y[np.isfinite(y)] for _, y in lines.values()), means])


def _spiky(comparison: Comparison, name: str) -> bool:
    values = _values(comparison, name, _lines(comparison, name))
    return len(values) > 0 and not many_powers(values) and bool(values.max() > ceiling(values))


def _draw(ax: Axes, *, comparison: Comparison, name: str) -> None:
    arms, span = looks(comparison), _span(comparison)
    lines = _lines(comparison, name)
    windows = rows_of(comparison, "aggregates", metric=name)
    across(ax, (span[0], max(span[1], span[0] + 1)))
    means = finite(windows, "mean")
    values = _values(comparison, name, lines)
    if not len(values):
        return
    powers = many_powers(values)
    if powers:
        set_powers(ax, values, values, None)
    else:
        top = ceiling(values)
        set_height(ax, values, [float(value) for value in values if value <= top], None, top)
        linear(ax, "y", ticks=4)
    dress(ax, x_name="trainer step", top=NO_LINE)
    shade_thirds(ax, named=False)
    third = (span[1] - span[0]) / len(WINDOW_NAMES)
    for arm, look in arms.items():
        x, y = lines[arm]
        part = of_arm(means, arm)
        if len(arms) <= BANDS_UP_TO:
            for row in finite(finite(part, "lo"), "hi").iter_rows(named=True):
                if row["window"] in WINDOW_NAMES:
                    left = span[0] + third * WINDOW_NAMES.index(row["window"])
                    ax.fill_between([left, left + third], row["lo"], row["hi"], color=look.colour, alpha=0.10, lw=0)
        if np.isfinite(y).any():
            ax.plot(x, y, **{**look.line, "linewidth": look.width - 0.4}, zorder=4)
            continue
        points = [row for row in part.iter_rows(named=True) if row["window"] in WINDOW_NAMES]
        places = [span[0] + third * (WINDOW_NAMES.index(row["window"]) + 0.5) for row in points]
        ax.plot(places, [row["mean"] for row in points], **look.line, marker=look.marker, markersize=5, zorder=4)
    mark_divergence(ax, comparison, arms, name)


def _alt(comparison: Comparison, name: str) -> str:
    told = [f"{_title(name)} over training, by arm."]
    means = finite(rows_of(comparison, "aggregates", metric=name), "mean")
    for arm in names(comparison):
        found = {row["window"]: row["mean"] for row in of_arm(means, arm).iter_rows(named=True)} if means.width else {}
        values = ", ".join(f"{window} {number(found[window])}" for window in WINDOW_NAMES if window in found)
        told.append(f"{arm_name(arm)}: {values or 'no value (0 windows)'}.")
    return " ".join(told)


def _none(_: Comparison) -> tuple[DataTable, ...]:
    return ()


FIGURE = CompareFigure(
    name="aggregates",
    title="The usual curves",
    columns=3,
    panels=partial(panels, first=True),
    caption=partial(caption, first=True),
    data=data,
    absence="no metric is logged by two arms",
    keyed=True,
)
OTHERS = CompareFigure(
    name="other_aggregates",
    title="Other curves",
    columns=3,
    panels=partial(panels, first=False),
    caption=partial(caption, first=False),
    data=_none,
    absence="",
    keyed=True,
)

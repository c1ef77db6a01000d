"""Draws how the tail of |log-ratio| moves over training, by slice: the first thing to look at."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.annotations import end_labels, mark_onset, plot_slice
from ptt.reports.figures.axes import LOG_RATIO, label_axes, linear, shade_windows, step_ends, step_range, tail_axis
from ptt.reports.figures.panels import ONE_LINE, DataTable, Panel, RunFigure, data_table, finite_rows
from ptt.reports.figures.style import LINES, slice_role
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import bounds, count, number
from ptt.reports.text.tables import error_bound, no_tokens, pair_of, slices, table, window_words
from ptt.reports.text.why import after_slice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ONSET_MARKS = "Dashed: since when the tail grows; dotted: where it passed its limit. "
SMALL_Q = 0.95  # the percentile drawn beside other curves


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Return one panel for each percentile."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    return tuple(
        Panel(
            key=f"tail-p{100 * q:g}".replace(".", ""),
            title=f"p{100 * q:g} of |log-ratio|",
            alt=_alt(diagnosis, rows, q),
            draw=partial(_draw, diagnosis=diagnosis, rows=rows),
        )
        for q in frame["q"].unique().sort()
        for rows in (frame.filter(pl.col("q") == q),)
    )


def small_tail(diagnosis: Diagnosis, size: tuple[int, int], steps: tuple[int, int]) -> tuple[Panel, ...]:
    """Return the p95 after tools as a small panel to stand beside other curves, or nothing."""
    frame, name = _frame(diagnosis), after_slice(diagnosis)
    if frame is None:
        return ()
    rows = frame.filter(pl.col("slice") == name, pl.col("q") == SMALL_Q).sort("step_mid")
    if rows.is_empty():
        return ()

    def draw(ax: Axes) -> None:
        ax.set_ylim(0, 1.15 * max(rows["value"].to_list()) or 1.0)  # a slice may hold nothing but zeros
        label_axes(ax, x_name="trainer step", top=ONE_LINE)
        step_range(ax, *steps)
        linear(ax, "y", ticks=4)
        shade_windows(ax, diagnosis, named=False)
        plot_slice(ax, rows, name, "step_mid", "value")
        mark_onset(ax, diagnosis)

    title, alt = f"{slice_name(name).capitalize()} p95 of |r|", _alt(diagnosis, rows, SMALL_Q)
    return (Panel(key="tail-small", title=title, alt=alt, draw=draw, width=size[0], height=size[1], top=ONE_LINE),)


def caption(diagnosis: Diagnosis) -> str:
    """Return how to read the figure, and from how much data it is made."""
    frame = _frame(diagnosis)
    if frame is None:
        return no_tokens(diagnosis)
    per_slice = frame.filter(pl.col("q") == pl.col("q").min())
    sizes = "; ".join(
        f"{slice_name(name)} {count(int(rows['n_tokens'].sum()))} tokens in "
        f"{count(int(rows['n_sequences'].sum()))} sequences"
        for name in slices(per_slice)
        for rows in (per_slice.filter(pl.col("slice") == name),)
    )
    return (
        f"95th and 99th percentile of |r|, r = log-ratio of the pair {pair_of(diagnosis)}, in windows of "
        f"{_span(frame)}, by slice ({sizes}). Bands are 95 % intervals from redrawing "
        "whole prompt groups, or sequences where groups are not recorded. "
        f"A line that climbs means: rare tokens get ever larger weights. Windows: {window_words(diagnosis)}. "
        + ONSET_MARKS * (diagnosis.signature.onset_step is not None)
        + error_bound()
    )


def data(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Return one row for each window and slice, then the percentiles by parts of the run."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    rows = []
    for (_, name), group in frame.sort("step_first", "slice", "q").group_by("step_first", "slice", maintain_order=True):
        first = group.row(0, named=True)
        values = {
            row["q"]: f"{number(row['value'])} ({bounds(row['lo'], row['hi'])})" for row in group.iter_rows(named=True)
        }
        sizes = (count(first["n_tokens"]), count(first["n_sequences"]))
        percentiles = (values.get(0.95, "—"), values.get(0.99, "—"))
        rows.append((_steps(first), slice_name(str(name)), *percentiles, *sizes))
    head = ("Steps", "Slice", "p95 (95 % interval)", "p99 (95 % interval)", "Tokens", "Sequences")
    return (*data_table("By window", head, rows), *_growth_table(diagnosis))


def _growth_table(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    frame = table(diagnosis, "growth")
    if frame is None:
        return ()
    head = ("Part", "Steps", "Slice", "p50", "p95", "p99", "p99.9", "Tokens", "Sequences")
    rows = [
        (
            f"{row['part'] + 1} of {row['parts']}",
            _steps(row),
            slice_name(row["slice"]),
            *(number(row[name]) for name in ("p50", "p95", "p99", "p999")),
            count(row["n_tokens"]),
            count(row["n_sequences"]),
        )
        for row in frame.sort("parts", "part", "slice").iter_rows(named=True)
    ]
    return data_table("By thirds and sixths of the run", head, rows)


def _steps(row: dict[str, Any]) -> str:
    return f"{count(row['step_first'])} to {count(row['step_last'])}"


def _frame(diagnosis: Diagnosis) -> pl.DataFrame | None:
    return finite_rows(diagnosis, "tail_emergence", "value", "slice", "q", "step_mid")


def _span(frame: pl.DataFrame) -> str:
    steps = (frame["step_last"] - frame["step_first"] + 1).median()
    return f"about {count(round(float(steps)))} steps" if isinstance(steps, int | float) else "equal length"


def _draw(ax: Axes, *, diagnosis: Diagnosis, rows: pl.DataFrame) -> None:
    values = pl.concat([rows["value"], rows["lo"], rows["hi"]]).drop_nulls().drop_nans()
    positive = values.filter(values > 0).to_numpy()
    low, high = (float(positive.min()), float(positive.max())) if len(positive) else (0.0, 1.0)
    log = len(positive) == len(values) and high / low > LOG_RATIO
    step_range(ax, *step_ends(rows), ticks=5)
    label_axes(ax, x_name="trainer step", y_name="|r|, log axis" if log else "|r|")
    tail_axis(ax, low, high, log=log)
    shade_windows(ax, diagnosis)
    labels = []
    for name in slices(rows):
        part = rows.filter(pl.col("slice") == name).sort("step_mid")
        band = part.drop_nulls(["lo", "hi"])
        colour = LINES[slice_role(name)]["color"]
        ax.fill_between(band["step_mid"], band["lo"], band["hi"], color=colour, alpha=0.18, linewidth=0)
        labels.append(plot_slice(ax, part, name, "step_mid", "value"))
    mark_onset(ax, diagnosis)
    end_labels(ax, labels)


def _alt(diagnosis: Diagnosis, rows: pl.DataFrame, q: float) -> str:
    sentences = [f"{100 * q:g}th percentile of |log-ratio| over training, pair {pair_of(diagnosis)}."]
    for name in slices(rows):
        part = rows.filter(pl.col("slice") == name).sort("step_mid")
        first, last = part.row(0, named=True), part.row(-1, named=True)
        sentences.append(
            f"{slice_name(name).capitalize()}: {number(first['value'])} around step "
            f"{count(round(first['step_mid']))}, {number(last['value'])} around step "
            f"{count(round(last['step_mid']))}."
        )
    onset = diagnosis.signature.onset_step
    if onset is not None:
        sentences.append(f"Onset of the growth marked at step {count(onset)}.")
    passed = diagnosis.signature.limit_passed_step
    if passed is not None:
        sentences.append(f"Limit passed at step {count(passed)}.")
    return " ".join(sentences)


FIGURE = RunFigure(
    name="tail_emergence",
    title="Tail emergence over training",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    absence=no_tokens,
)

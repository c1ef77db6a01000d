"""Draws how the tail of |log-ratio| moves over training, by slice: the first thing to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.annotations import EndLabel, end_labels, mark_onset, shade_windows
from ptt.reports.figures.panels import ONE_LINE, DataTable, FigureKind, Panel, growth_table
from ptt.reports.figures.style import LINES, LOG_FROM, dress, linear, logarithmic, role, short_slice, sparse, step_axis
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import bounds, count, number
from ptt.reports.text.tables import error_bound, no_tokens, pair_of, slices, table, window_words
from ptt.reports.text.why import after_slice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TABLE = "tail_emergence"
SMALL_Q = 0.95


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Give one panel a percentile."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    made = []
    for q in sorted(set(frame["q"].to_list())):
        rows = frame.filter(pl.col("q") == q)
        made.append(
            Panel(
                key=f"tail-p{100 * q:g}".replace(".", ""),
                title=f"p{100 * q:g} of |log-ratio|",
                alt=_alt(diagnosis, rows, q),
                draw=lambda ax, rows=rows: _draw(ax, diagnosis, rows),  # type: ignore[misc]
            )
        )
    return tuple(made)


def small_tail(diagnosis: Diagnosis, size: tuple[int, int], steps: tuple[int, int]) -> tuple[Panel, ...]:
    """Give the p95 after tools as a small panel to stand beside other curves, or nothing."""
    frame, name = _frame(diagnosis), after_slice(diagnosis)
    if frame is None:
        return ()
    rows = frame.filter(pl.col("slice") == name, pl.col("q") == SMALL_Q).sort("step_mid")
    if rows.is_empty():
        return ()

    def draw(ax: Axes) -> None:
        ax.set_xlim(steps[0], max(steps[1], steps[0] + 1))
        ax.set_ylim(0, 1.15 * max(rows["value"].to_list()) or 1.0)  # a slice may hold nothing but zeros
        dress(ax, x_name="trainer step", top=ONE_LINE)
        linear(ax, "x", ticks=4)
        linear(ax, "y", ticks=4)
        shade_windows(ax, diagnosis, named=False)
        ax.plot(
            rows["step_mid"].to_numpy(),
            rows["value"].to_numpy(),
            **LINES[role(name)],
            markevery=sparse(len(rows)),
            zorder=4,
        )
        mark_onset(ax, diagnosis)

    return (
        Panel(
            key="tail-small",
            title=f"{slice_name(name).capitalize()} p95 of |r|",
            alt=_alt(diagnosis, rows, SMALL_Q),
            draw=draw,
            width=size[0],
            height=size[1],
            top=ONE_LINE,
        ),
    )


def caption(diagnosis: Diagnosis) -> str:
    """Tell how to read the figure, and from how much data it is made."""
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
        + error_bound()
    )


def data(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Give one row a window and slice."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    rows = []
    for key, group in frame.sort("step_first", "slice", "q").group_by(["step_first", "slice"], maintain_order=True):
        first = group.row(0, named=True)
        values: dict[float, str] = {
            row["q"]: f"{number(row['value'])} ({bounds(row['lo'], row['hi'])})" for row in group.iter_rows(named=True)
        }
        steps = f"{count(int(first['step_first']))} to {count(int(first['step_last']))}"
        sizes = (count(int(first["n_tokens"])), count(int(first["n_sequences"])))
        rows.append((steps, slice_name(str(key[1])), values.get(0.95, "—"), values.get(0.99, "—"), *sizes))
    head = ("Steps", "Slice", "p95 (95 % interval)", "p99 (95 % interval)", "Tokens", "Sequences")
    return (DataTable(title="By window", head=head, rows=tuple(rows)), *growth_table(diagnosis))


def _frame(diagnosis: Diagnosis) -> pl.DataFrame | None:
    frame = table(diagnosis, TABLE)
    if frame is None:
        return None
    usable = frame.filter(pl.col("value").is_finite(), pl.col("slice").is_not_null())
    return None if usable.is_empty() else usable.sort("slice", "q", "step_mid")


def _span(frame: pl.DataFrame) -> str:
    steps = (frame["step_last"] - frame["step_first"] + 1).median()
    return f"about {count(round(float(steps)))} steps" if isinstance(steps, int | float) else "equal length"


def _draw(ax: Axes, diagnosis: Diagnosis, rows: pl.DataFrame) -> None:
    values = pl.concat([rows["value"], rows["lo"], rows["hi"]]).drop_nulls().drop_nans()
    positive = values.filter(values > 0)
    low, high = (float(positive.min()), float(positive.max())) if len(positive) else (0.0, 1.0)  # type: ignore[arg-type]
    logged = len(positive) == len(values) and high / low > LOG_FROM
    step_axis(ax, rows)
    dress(ax, x_name="trainer step", y_name="|r|, log axis" if logged else "|r|")
    if logged:
        logarithmic(ax, "y", low / 1.15, high * 1.25)
    else:
        ax.set_ylim(0, high * 1.1)
        linear(ax, "y")
    shade_windows(ax, diagnosis)
    labels = []
    for name in slices(rows):
        part = rows.filter(pl.col("slice") == name).sort("step_mid")
        look = LINES[role(name)]
        x, y = part["step_mid"].to_numpy(), part["value"].to_numpy()
        known = part.filter(pl.col("lo").is_not_null() & pl.col("hi").is_not_null())
        ax.fill_between(known["step_mid"], known["lo"], known["hi"], color=look["color"], alpha=0.18, linewidth=0)
        ax.plot(x, y, **look, markevery=sparse(len(x)), zorder=4)
        labels.append(
            EndLabel(
                x=float(x[-1]),
                y=float(y[-1]),
                text=short_slice(name),
                value=number(float(y[-1])),
                colour=look["color"],
            )
        )
    mark_onset(ax, diagnosis)
    end_labels(ax, labels)


def _alt(diagnosis: Diagnosis, rows: pl.DataFrame, q: float) -> str:
    told = [f"{100 * q:g}th percentile of |log-ratio| over training, pair {pair_of(diagnosis)}."]
    for name in slices(rows):
        part = rows.filter(pl.col("slice") == name).sort("step_mid")
        first, last = part.row(0, named=True), part.row(-1, named=True)
        told.append(
            f"{slice_name(name).capitalize()}: {number(first['value'])} around step "
            f"{count(round(first['step_mid']))}, {number(last['value'])} around step "
            f"{count(round(last['step_mid']))}."
        )
    signature = diagnosis.signature
    if signature.onset_step is not None:
        told.append(f"Onset of the growth marked at step {count(signature.onset_step)}.")
    return " ".join(told)


FIGURE = FigureKind(
    name="tail_emergence",
    title="Tail emergence over training",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    absence=no_tokens,
)

"""Draws the effective sample size of the importance weights: how few tokens carry the whole update."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.annotations import EndLabel, end_labels, mark_onset, shade_windows
from ptt.reports.figures.panels import DataTable, FigureKind, Panel
from ptt.reports.figures.style import LINES, dress, linear, logarithmic, role, short_slice, sparse, step_axis
from ptt.reports.text.names import joined, slice_name
from ptt.reports.text.numbers import count, number, percent
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import no_tokens, pair_of, slices, table, window_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HALF = 0.5  # of all weight of a window
TABLE = "ess"
NEAR_ONE = 0.9  # a median above it hides all movement on a linear axis: the loss is drawn instead
NEAR_ZERO = 0.1  # a median below it is drawn on a log axis, so that the floor can be told from zero
LEVELS = {"token": "Token level", "sequence": "Sequence level"}


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Give one panel a level and direction of the weights."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    made = []
    for index, (level, weights) in enumerate(_cells(diagnosis, frame)):
        rows = frame.filter((pl.col("level") == level) & (pl.col("weights") == weights))
        made.append(
            Panel(
                key=f"ess-{index}",
                title=f"{LEVELS.get(level, safe(level))}, weights {safe(weights)}",
                alt=_alt(rows, level, weights),
                draw=lambda ax, rows=rows: _draw(ax, diagnosis, rows),  # type: ignore[misc]
            )
        )
    return tuple(made)


def caption(diagnosis: Diagnosis) -> str:
    """Tell how to read the figure, and from how much data it is made."""
    frame = _frame(diagnosis)
    if frame is None:
        return no_tokens(diagnosis)
    sizes = "; ".join(
        f"{count(int(rows['n'].min()))} to {count(int(rows['n'].max()))} {level}s"  # type: ignore[arg-type]
        for level in dict.fromkeys(frame["level"].to_list())
        for rows in (frame.filter(pl.col("level") == level),)
    )
    span = round(float((frame["step_last"] - frame["step_first"] + 1).to_numpy().mean()))
    return (
        "Effective sample size (sum of weights, squared, over the sum of squared weights) as a share of n, "
        f"for the pair {pair_of(diagnosis)} in both directions; windows of about {count(span)} steps, n of "
        f"{sizes} in each; a point stands at the end of its window. 1 means all weights alike; "
        "falling means that few of them carry the update. It depends on n and on the "
        "window: compare its course, not its level. "
        f"{_dominated(frame)} "
        f"Windows: {window_words(diagnosis)}."
    )


def _dominated(frame: pl.DataFrame) -> str:
    """Say in how many windows a single weight rules, direction by direction: their course says nothing either."""
    told = []
    for weights in dict.fromkeys(frame["weights"].to_list()):
        rows = frame.filter((pl.col("weights") == weights) & (pl.col("level") == "token"))
        ruled = rows.filter(pl.col("top_share") > HALF).height
        if ruled:
            told.append(f"{count(ruled)} of {count(rows.height)} with weights {safe(weights)}")
    if not told:
        return "In no window a single token holds half of all weight."
    return f"Where a single token holds over half of all weight ({joined(told)}), ESS speaks of that token alone."


def data(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Give one row a window, slice, level and direction."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    rows = tuple(
        (
            f"{count(row['step_first'])} to {count(row['step_last'])}",
            slice_name(row["slice"]),
            safe(row["level"]),
            safe(row["weights"]),
            number(row["ess_fraction"]),
            count(row["n"]),
            percent(row["top_share"]),
        )
        for row in frame.sort("level", "weights", "step_first", "slice").iter_rows(named=True)
    )
    head = ("Steps", "Slice", "Level", "Weights", "ESS/n", "n", "Largest weight")
    return (DataTable(title="By window", head=head, rows=rows),)


def _frame(diagnosis: Diagnosis) -> pl.DataFrame | None:
    frame = table(diagnosis, TABLE)
    if frame is None:
        return None
    usable = frame.filter(pl.col("ess_fraction").is_finite(), pl.col("slice").is_not_null())
    return None if usable.is_empty() else usable.sort("slice", "step_mid")


def _cells(diagnosis: Diagnosis, frame: pl.DataFrame) -> list[tuple[str, str]]:
    levels, pair = list(LEVELS), diagnosis.signature.pair
    cells = set(frame.select("level", "weights").unique().iter_rows())
    return sorted(cells, key=lambda c: (levels.index(c[0]) if c[0] in levels else len(levels), c[1] != pair, c[1]))


def _draw(ax: Axes, diagnosis: Diagnosis, rows: pl.DataFrame) -> None:
    step_axis(ax, rows)
    lost = _median(rows) > NEAR_ONE
    value = 1 - pl.col("ess_fraction") if lost else pl.col("ess_fraction")
    drawn = rows.with_columns(value.alias("drawn"))
    if lost or _median(rows) < NEAR_ZERO:
        drawn = drawn.filter(pl.col("drawn") > 0)
        dress(ax, x_name="trainer step", y_name="1 − ESS/n, log axis" if lost else "ESS/n, log axis")
        low, high = min(drawn["drawn"].to_list(), default=0.1), max(drawn["drawn"].to_list(), default=1.0)
        logarithmic(ax, "y", low / 1.6, max(high * 1.6, low * 8), powers=low < 2e-3)
    else:
        dress(ax, x_name="trainer step", y_name="ESS/n")
        ax.set_ylim(0, 1.02)
        linear(ax, "y")
    shade_windows(ax, diagnosis)
    labels = []
    for name in slices(drawn):
        part = drawn.filter(pl.col("slice") == name).sort("step_last")
        look = LINES[role(name)]
        ax.plot(
            part["step_last"].to_numpy(),
            part["drawn"].to_numpy(),
            **look,
            markevery=sparse(len(part)),
            zorder=4,
        )
        last = part.row(-1, named=True)
        end = float(last["drawn"])
        labels.append(
            EndLabel(
                x=float(last["step_last"]),
                y=end,
                text=short_slice(name),
                value=number(end, 2),
                colour=look["color"],
            )
        )
    mark_onset(ax, diagnosis, labelled=False)
    end_labels(ax, labels)


def _median(rows: pl.DataFrame) -> float:
    return float(np.median(rows["ess_fraction"].to_numpy()))


def _alt(rows: pl.DataFrame, level: str, weights: str) -> str:
    told = [f"Effective sample size over n, {safe(level)} level, weights {safe(weights)}, over training."]
    for name in slices(rows):
        part = rows.filter(pl.col("slice") == name).sort("step_mid")
        first, last = part["ess_fraction"][0], part["ess_fraction"][-1]
        told.append(f"{slice_name(name).capitalize()}: from {number(first)} to {number(last)}.")
    if _median(rows) > NEAR_ONE:
        told.append("Drawn as one minus this value, on a log axis.")
    return " ".join(told)


FIGURE = FigureKind(
    name="effective_sample_size",
    title="Effective sample size",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    absence=no_tokens,
)

"""Draws the effective sample size of the importance weights: how few tokens carry the whole update."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.annotations import end_labels, mark_onset, plot_slice
from ptt.reports.figures.axes import NEAR_ZERO, ess_axis, shade_windows, step_ends, step_range
from ptt.reports.figures.panels import DataTable, Panel, RunFigure, data_table, finite_rows
from ptt.reports.text.names import joined, slice_name
from ptt.reports.text.numbers import count, number, percent
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import no_tokens, pair_of, slices, window_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAJORITY = 0.5  # of all weight of a window
NEAR_ONE = 0.9  # a median above it hides all movement on a linear axis: the loss is drawn instead
LEVELS = {"token": "Token level", "sequence": "Sequence level"}


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Return one panel for each level and direction of the weights."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    return tuple(
        Panel(
            key=f"ess-{index}",
            title=f"{LEVELS.get(level, safe(level))}, weights {safe(weights)}",
            alt=_alt(rows, level, weights),
            draw=partial(_draw, diagnosis=diagnosis, rows=rows),
        )
        for index, (level, weights) in enumerate(_cells(diagnosis, frame))
        for rows in (frame.filter(level=level, weights=weights),)
    )


def caption(diagnosis: Diagnosis) -> str:
    """Return how to read the figure, and from how much data it is made."""
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
    """Say in how many windows one token holds most weight, direction by direction: their ESS says little."""
    windows = []
    for weights in dict.fromkeys(frame["weights"].to_list()):
        rows = frame.filter(weights=weights, level="token")
        dominated = rows.filter(pl.col("top_share") > MAJORITY).height
        if dominated:
            windows.append(f"{count(dominated)} of {count(rows.height)} with weights {safe(weights)}")
    if not windows:
        return "In no window a single token holds half of all weight."
    return f"Where a single token holds over half of all weight ({joined(windows)}), ESS speaks of that token alone."


def data(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Return one row for each window, slice, level and direction."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    rows = [
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
    ]
    return data_table("By window", ("Steps", "Slice", "Level", "Weights", "ESS/n", "n", "Largest weight"), rows)


def _frame(diagnosis: Diagnosis) -> pl.DataFrame | None:
    return finite_rows(diagnosis, "ess", "ess_fraction", "slice", "step_mid")


def _cells(diagnosis: Diagnosis, frame: pl.DataFrame) -> list[tuple[str, str]]:
    levels, pair = list(LEVELS), diagnosis.signature.pair
    cells = set(frame.select("level", "weights").unique().iter_rows())
    return sorted(cells, key=lambda c: (levels.index(c[0]) if c[0] in levels else len(levels), c[1] != pair, c[1]))


def _draw(ax: Axes, *, diagnosis: Diagnosis, rows: pl.DataFrame) -> None:
    step_range(ax, *step_ends(rows), ticks=5)
    lost = _median(rows) > NEAR_ONE
    log = lost or _median(rows) < NEAR_ZERO
    value = 1 - pl.col("ess_fraction") if lost else pl.col("ess_fraction")
    drawn = rows.with_columns(value.alias("drawn")).filter((pl.col("drawn") > 0) | (not log))
    ess_axis(ax, "1 − ESS/n" if lost else "ESS/n", drawn["drawn"].to_numpy(), log=log)
    shade_windows(ax, diagnosis)
    labels = [
        plot_slice(ax, drawn.filter(slice=name).sort("step_last"), name, "step_last", "drawn", digits=2)
        for name in slices(drawn)
    ]
    mark_onset(ax, diagnosis, labelled=False)
    end_labels(ax, labels)


def _median(rows: pl.DataFrame) -> float:
    return float(np.median(rows["ess_fraction"].to_numpy()))


def _alt(rows: pl.DataFrame, level: str, weights: str) -> str:
    sentences = [f"Effective sample size over n, {safe(level)} level, weights {safe(weights)}, over training."]
    for name in slices(rows):
        part = rows.filter(slice=name).sort("step_mid")
        first, last = part["ess_fraction"][0], part["ess_fraction"][-1]
        sentences.append(f"{slice_name(name).capitalize()}: from {number(first)} to {number(last)}.")
    if _median(rows) > NEAR_ONE:
        sentences.append("Drawn as one minus this value, on a log axis.")
    return " ".join(sentences)


FIGURE = RunFigure(
    name="effective_sample_size",
    title="Effective sample size",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    absence=no_tokens,
)

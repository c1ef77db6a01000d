"""Draws the usual curves beside the tail's onset: how quiet they were while the tail grew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.annotations import mark_onset, place_beside, shade_windows
from ptt.reports.figures.panels import ONE_LINE, DataTable, FigureKind, Panel
from ptt.reports.figures.style import (
    INK,
    LEFT,
    LETTER,
    MUTED,
    PAPER,
    POST,
    SMALL,
    ceiling,
    dress,
    linear,
    many_powers,
    powers_reach,
    reach,
    set_height,
    set_powers,
)
from ptt.reports.figures.tail_emergence import small_tail
from ptt.reports.text.names import METRICS, joined, metric_name, sentence
from ptt.reports.text.numbers import count, number
from ptt.reports.text.tables import table
from ptt.reports.text.why import aggregates_sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TABLE = "aggregates"
WIDTH, HEIGHT = SMALL_PANEL = (340, 212)
WINDOW = 20  # steps of the mean that the alarm looks at
PIXELS = 260  # a panel's inner width: more raw points than this are drawn as their extremes
ROWS = 12  # of the data table, evenly spaced
EDGE = 5.0  # pixels: the mark of a single step beyond the axis
MOST = 8  # panels; a trainer may log hundreds of curves


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Give one panel a metric."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    steps = frame["step"].sort()
    curves = tuple(
        Panel(
            key=f"aggregate-{index}",
            title=metric_name(name)[:1].upper() + metric_name(name)[1:],
            alt=_alt(diagnosis, rows, name),
            draw=lambda ax, rows=rows, name=name: _draw(ax, diagnosis, rows, name),  # type: ignore[misc]
            width=WIDTH,
            height=HEIGHT,
            top=ONE_LINE,
        )
        for index, (name, rows) in enumerate(_metrics(frame))
    )
    return (*curves, *small_tail(diagnosis, SMALL_PANEL, (steps[0], steps[-1])))


def caption(diagnosis: Diagnosis) -> str:
    """Tell how to read the figure, and what the curves did."""
    frame = _frame(diagnosis)
    if frame is None:
        return absence(diagnosis)
    onset = diagnosis.signature.onset_step
    told = [
        f"The curves one usually watches: thin is each step, thick the mean of {WINDOW} steps, dotted the "
        "limit at which that mean raises an alarm, an orange line the step at which it did.",
        f"The dashed line is the onset of the tail's growth at step {count(onset)}." if onset is not None else "",
        aggregates_sentence(diagnosis.signature),
        "A metric without a limit is judged by its movement alone.",
        "Where a spike or single steps would flatten the rest of a curve the axis ends before them: an orange edge "
        "marks each, and the farthest of the mean and of the steps are written above."
        if any(_beyond(rows).words for _, rows in _metrics(frame))
        else "",
        "A curve that spans many powers of ten stands on a log axis."
        if any(many_powers(_means(rows)) for _, rows in _metrics(frame))
        else "",
        "The last panel is the tail, for comparison." if table(diagnosis, "tail_emergence") is not None else "",
    ]
    return " ".join(filter(None, told))


def data(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Give the mean of every metric at evenly spaced steps."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    metrics = _metrics(frame)
    steps = np.unique(frame["step"].to_numpy())
    chosen = steps[np.unique(np.linspace(0, len(steps) - 1, min(ROWS, len(steps))).round().astype(int))]
    rows = []
    for step in chosen:
        values = []
        for _, part in metrics:
            before = part.filter(pl.col("step") <= int(step), pl.col("mean").is_finite())
            values.append(number(before["mean"][-1]) if len(before) else "—")
        rows.append((count(int(step)), *values))
    limits = tuple(number(_limit(part)) if _limit(part) is not None else "none" for _, part in metrics)
    head = ("Step", *(metric_name(name) for name, _ in metrics))
    rows.append(("Alarm limit", *limits))
    return (DataTable(title=f"Means of {WINDOW} steps", head=head, rows=tuple(rows)),)


def absence(diagnosis: Diagnosis) -> str:
    """Say why there are no curves."""
    for item in diagnosis.not_judged:
        if "aggregate" in item.id:
            return f"Not drawn: {sentence(item.reason)}"
    return "Not drawn: the run holds no logged KL, reward, entropy, gradient norm or loss by step."


def _frame(diagnosis: Diagnosis) -> pl.DataFrame | None:
    frame = table(diagnosis, TABLE)
    if frame is None:
        return None
    usable = frame.filter(pl.col("value").is_finite(), pl.col("name").is_not_null())
    return None if usable.is_empty() else usable.sort("name", "step")


def _metrics(frame: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    known = list(METRICS)
    names = sorted(set(frame["name"].to_list()), key=lambda n: (known.index(n) if n in known else len(known), n))
    return [(name, frame.filter(pl.col("name") == name)) for name in names[:MOST]]


@dataclass(frozen=True, kw_only=True)
class _Beyond:
    """The steps at which a curve leaves its axis above and below, and what is written of the farthest of them."""

    above: np.ndarray[Any, Any]
    below: np.ndarray[Any, Any]
    words: str
    step: int  # of the first that is written


def _beyond(rows: pl.DataFrame) -> _Beyond:
    """Find what of a curve, of the mean and of single steps, its axis does not hold."""
    steps, raw = rows["step"].to_numpy(), rows["value"].to_numpy()
    smooth = rows.filter(pl.col("mean").is_finite())
    mean_steps, mean = smooth["step"].to_numpy(), smooth["mean"].to_numpy()
    if many_powers(mean):
        low, high, _ = powers_reach(np.where(raw > 0, raw, np.nan), mean, _limit(rows))
    else:
        top = ceiling(mean)
        low, high, _ = reach(raw, [value for value in mean.tolist() if value <= top], _limit(rows), top)
    told: list[tuple[str, int]] = []
    for name, at, values in (("mean", mean_steps, mean), ("steps", steps, raw)):
        ends = [i for i in _ends(values) if not low <= values[i] <= high]
        words = joined([f"{number(float(values[i]))} at {count(int(at[i]))}" for i in ends])
        told += [(f"{name} {words}", int(at[ends[0]]))] if ends else []
    return _Beyond(
        above=np.union1d(mean_steps[mean > high], steps[raw > high]),
        below=np.union1d(mean_steps[mean < low], steps[raw < low]),
        words="; ".join(words for words, _ in told),
        step=told[0][1] if told else 0,
    )


def _ends(values: np.ndarray[Any, Any]) -> list[int]:
    """Give the places of the greatest and the least value, each once."""
    return sorted({int(values.argmax()), int(values.argmin())}, key=lambda i: -values[i]) if len(values) else []


def _means(rows: pl.DataFrame) -> np.ndarray[Any, Any]:
    return rows.filter(pl.col("mean").is_finite())["mean"].to_numpy()


def _limit(rows: pl.DataFrame) -> float | None:
    limits = rows["limit"].drop_nulls().drop_nans()
    return float(limits[-1]) if len(limits) else None


def _draw(ax: Axes, diagnosis: Diagnosis, rows: pl.DataFrame, name: str) -> None:
    steps, raw = rows["step"].to_numpy(), rows["value"].to_numpy()
    smooth = rows.filter(pl.col("mean").is_finite())
    limit = _limit(rows)
    ax.set_xlim(float(steps[0]), float(max(steps[-1], steps[0] + 1)))
    mean = smooth["mean"].to_numpy()
    powers = many_powers(mean)
    top = float("inf") if powers else ceiling(mean)
    if powers:
        raw = np.where(raw > 0, raw, np.nan)
        shown = set_powers(ax, raw, mean, limit)
    else:
        shown = set_height(ax, raw, [value for value in mean.tolist() if value <= top], limit, top)
    dress(ax, x_name="trainer step", top=ONE_LINE)
    linear(ax, "x", ticks=4)
    if not powers:
        linear(ax, "y", ticks=4)
    shade_windows(ax, diagnosis, named=False)
    ax.plot(
        *_extremes(steps[np.isfinite(raw)], raw[np.isfinite(raw)]), color=MUTED, linewidth=0.7, alpha=0.55, zorder=3
    )
    ax.plot(smooth["step"].to_numpy(), smooth["mean"].to_numpy(), color=INK, linewidth=2.0, zorder=4)
    mark_onset(ax, diagnosis, labelled=False)
    if limit is not None:
        _draw_limit(ax, limit, shown=shown)
    alarm = diagnosis.signature.aggregates.alarms.get(name)
    if alarm is not None and steps[0] <= alarm <= steps[-1]:
        ax.axvline(alarm, color=POST, linewidth=1.2, zorder=5)
        place_beside(ax, [f"alarm {count(alarm)}"], float(alarm), color=POST)
    _mark_beyond(ax, _beyond(rows))


def _mark_beyond(ax: Axes, beyond: _Beyond) -> None:
    """Mark at the edges where the curve leaves the axis, and write above it, where no line runs, how far it went."""
    first, last = ax.get_xlim()
    for height, steps in ((1.0, beyond.above), (0.0, beyond.below)):
        pixels = ((steps - first) / (last - first) * PIXELS).round()
        shown = steps[np.unique(pixels, return_index=True)[1]]  # what falls on one pixel is one mark
        if len(shown):
            ax.plot(
                shown,
                np.full(len(shown), height),
                transform=ax.get_xaxis_transform(),
                color=POST,
                linestyle="none",
                marker="_",
                markersize=EDGE,
                markeredgewidth=3.0,
                clip_on=False,
                zorder=6,
            )
    if not beyond.words:
        return
    width, needed = ax.get_window_extent().width, LETTER * len(beyond.words)
    wished = (beyond.step - first) / (last - first) * width - needed / 2
    ax.annotate(
        beyond.words,
        (0, 1),
        xycoords="axes fraction",
        xytext=(max(min(wished, width - needed), -LEFT + 4), 6),
        textcoords="offset points",
        fontsize=SMALL,
        color=POST,
        annotation_clip=False,
    )


def _draw_limit(ax: Axes, limit: float, *, shown: bool) -> None:
    if not shown:
        ax.annotate(
            f"limit {number(limit)}, off the scale",
            (0.99, 0.97),
            xycoords="axes fraction",
            ha="right",
            va="top",
            fontsize=SMALL,
            color=INK,
            bbox={"facecolor": PAPER, "alpha": 1, "linewidth": 0, "pad": 1.0},
            zorder=7,
        )
        return
    ax.axhline(limit, color=INK, linewidth=1.0, linestyle=(0, (1, 1.6)), zorder=3)
    ax.annotate(
        f"limit\n{number(limit)}",
        (1, limit),
        xycoords=("axes fraction", "data"),
        xytext=(7, 0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL,
        color=INK,
        annotation_clip=False,
        linespacing=1.1,
    )


def _extremes(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    if len(x) <= 2 * PIXELS:
        return x, y
    parts = np.array_split(np.arange(len(x)), PIXELS)
    kept = np.array(sorted({int(i) for part in parts for i in (part[y[part].argmin()], part[y[part].argmax()])}))
    return x[kept], y[kept]


def _alt(diagnosis: Diagnosis, rows: pl.DataFrame, name: str) -> str:
    means = rows["mean"].drop_nulls().drop_nans()
    told = [f"{metric_name(name)} by trainer step."]
    if len(means):
        told.append(f"Mean of {WINDOW} steps: from {number(float(means[0]))} to {number(float(means[-1]))}.")
    limit, alarm = _limit(rows), diagnosis.signature.aggregates.alarms.get(name)
    told.append(f"Alarm limit {number(limit)}." if limit is not None else "No alarm limit.")
    told.append(f"Alarm at step {count(alarm)}." if alarm is not None else "No alarm.")
    if beyond := _beyond(rows).words:
        told.append(f"Beyond the axis: {beyond}.")
    return " ".join(told)


FIGURE = FigureKind(
    name="aggregates",
    title="The usual curves over the same steps",
    columns=3,
    panels=panels,
    caption=caption,
    data=data,
    absence=absence,
)

"""Draws the usual curves beside the tail's onset: how quiet they were while the tail grew."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Answer, Diagnosis, in_unit
from ptt.reports.figures.annotations import label_beside, mark_onset
from ptt.reports.figures.axes import CurveScale, annotate_row, curve_scale, label_axes, linear, shade_windows, step_axis
from ptt.reports.figures.panels import ONE_LINE, DataTable, Panel, RunFigure, data_table, finite_rows
from ptt.reports.figures.style import INK, LEFT, LETTER, MUTED, POST, annotate, backing
from ptt.reports.figures.tail_emergence import small_tail
from ptt.reports.text.names import METRICS, joined, metric_name, sentence
from ptt.reports.text.numbers import count, number
from ptt.reports.text.tables import table
from ptt.reports.text.why import aggregates_sentence, where_curves_end

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = np.ndarray[Any, Any]
WIDTH, HEIGHT = SMALL_PANEL = (340, 212)
WINDOW = 20  # steps of the mean that the alarm looks at
INNER_WIDTH = 260  # pixels of a panel's axes: more raw points than this are drawn as their extremes
TABLE_ROWS = 12  # of the data table, evenly spaced
EDGE_MARK = 5.0  # pixels: the mark of a single step beyond the axis
MAX_PANELS = 8  # a trainer may log hundreds of curves


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Return one panel for each metric, and the tail beside them."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    steps = frame["step"].sort()
    curves = (
        Panel(
            key=f"aggregate-{index}",
            title=metric_name(name)[:1].upper() + metric_name(name)[1:],
            alt=_alt(diagnosis, rows, name),
            draw=partial(_draw, diagnosis=diagnosis, rows=rows, name=name),
            width=WIDTH,
            height=HEIGHT,
            top=ONE_LINE,
        )
        for index, (name, rows) in enumerate(_metrics(frame))
    )
    return (*curves, *small_tail(diagnosis, SMALL_PANEL, (steps[0], steps[-1])))


def takeaway(diagnosis: Diagnosis) -> str:
    """Say which curve raised an alarm first, and how long after the tail."""
    signature = diagnosis.signature
    aggregates, lead = signature.aggregates, signature.lead_steps
    if aggregates.status == "cannot_say":
        return "Too few of the usual curves were logged to judge them"
    found = signature.status is Answer.FOUND
    if not aggregates.alarms:
        until = where_curves_end(aggregates)
        return f"No usual curve raised an alarm{until or (' while the tail grew' if found else '')}"
    step, name = min((step, name) for name, step in aggregates.alarms.items())
    shown = metric_name(name)
    after = f", {count(abs(lead))} steps {'after' if lead > 0 else 'before'} the tail" if found and lead else ""
    return f"{shown[:1].upper()}{shown[1:]} was the first usual curve to alarm, at step {count(step)}{after}"


def caption(diagnosis: Diagnosis) -> str:
    """Return how to read the figure, and what the curves did."""
    frame = _frame(diagnosis)
    if frame is None:
        return absence(diagnosis)
    onset, passed, metrics = diagnosis.signature.onset_step, diagnosis.signature.limit_passed_step, _metrics(frame)
    sentences = [
        f"The curves people usually watch. Thin: each step. Thick: mean of {WINDOW} steps. Dotted: "
        "the limit at which that mean raises an alarm. Orange line: the step at which it did.",
        f"The dashed line is the onset of the tail's growth at step {count(onset)}." if onset is not None else "",
        f"The black dotted line is step {count(passed)}, where the tail passed its limit."
        if passed is not None and passed != onset
        else "",
        aggregates_sentence(diagnosis.signature),
        "A metric without a limit is judged only by its movement.",
        "If spikes would flatten the rest of a curve, the axis stops before them. An orange edge "
        "marks each spike, and the extreme values are written above the panel."
        if any(_off_scale(rows).words for _, rows in metrics)
        else "",
        "A curve that spans many powers of ten has a log axis." if any(_scale(rows).log for _, rows in metrics) else "",
        "The last panel is the tail, for comparison." if table(diagnosis, "tail_emergence") is not None else "",
    ]
    return " ".join(filter(None, sentences))


def data(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Return the mean of every metric at evenly spaced steps."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    metrics = _metrics(frame)
    steps = np.unique(frame["step"].to_numpy())
    chosen = steps[np.unique(np.linspace(0, len(steps) - 1, min(TABLE_ROWS, len(steps))).round().astype(int))]
    rows = []
    for step in chosen.tolist():
        before = [_mean(part.filter(pl.col("step") <= step)) for _, part in metrics]
        rows.append((count(step), *(number(mean[-1]) if len(mean) else "—" for mean in before)))
    limits = [_limit(part) for _, part in metrics]
    rows.append(("Alarm limit", *("none" if limit is None else number(limit) for limit in limits)))
    return data_table(f"Means of {WINDOW} steps", ("Step", *(metric_name(name) for name, _ in metrics)), rows)


def absence(diagnosis: Diagnosis) -> str:
    """Return why there are no curves."""
    for item in diagnosis.not_judged:
        if "aggregate" in item.id:
            return f"Not drawn: {sentence(item.reason)}"
    return "Not drawn: the run logs no KL, reward, entropy, gradient norm or loss by step."


def _frame(diagnosis: Diagnosis) -> pl.DataFrame | None:
    return finite_rows(diagnosis, "aggregates", "value", "name", "step")


def _metrics(frame: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    known = list(METRICS)
    names = sorted(set(frame["name"].to_list()), key=lambda n: (known.index(n) if n in known else len(known), n))
    return [(name, frame.filter(name=name)) for name in names[:MAX_PANELS]]


@dataclass(frozen=True, kw_only=True)
class _OffScale:
    """The steps at which a curve leaves its axis above and below, and what is written of the farthest of them."""

    above: Floats
    below: Floats
    words: str
    step: int  # of the first that is written


def _off_scale(rows: pl.DataFrame) -> _OffScale:
    """Find the values of a curve, of the mean and of single steps, that lie outside its axis."""
    scale, smooth = _scale(rows), _smooth(rows)
    steps, raw, mean_steps, mean = (
        part[name].to_numpy() for part, name in ((rows, "step"), (rows, "value"), (smooth, "step"), (smooth, "mean"))
    )
    written: list[tuple[str, int]] = []
    for name, at, values in (("mean", mean_steps, mean), ("steps", steps, raw)):
        ends = [i for i in _extreme_indices(values) if not scale.low <= values[i] <= scale.high]
        words = joined([f"{number(float(values[i]))} at {count(int(at[i]))}" for i in ends])
        written += [(f"{name} {words}", int(at[ends[0]]))] if ends else []
    return _OffScale(
        above=np.union1d(mean_steps[mean > scale.high], steps[raw > scale.high]),
        below=np.union1d(mean_steps[mean < scale.low], steps[raw < scale.low]),
        words="; ".join(words for words, _ in written),
        step=written[0][1] if written else 0,
    )


def _extreme_indices(values: Floats) -> list[int]:
    """Return the indices of the greatest and the least value, each once."""
    return sorted({int(values.argmax()), int(values.argmin())}, key=lambda i: -values[i]) if len(values) else []


def _smooth(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("mean").is_finite())


def _mean(rows: pl.DataFrame) -> Floats:
    return _smooth(rows)["mean"].to_numpy()


def _limit(rows: pl.DataFrame) -> float | None:
    limits = rows["limit"].drop_nulls().drop_nans()
    return float(limits[-1]) if len(limits) else None


def _scale(rows: pl.DataFrame) -> CurveScale:
    return curve_scale(rows["value"].to_numpy(), _mean(rows), _limit(rows))


def _draw(ax: Axes, *, diagnosis: Diagnosis, rows: pl.DataFrame, name: str) -> None:
    scale, limit = _scale(rows), _limit(rows)
    drawn = rows.filter(pl.col("value") > 0) if scale.log else rows
    steps = rows["step"].to_numpy()
    ax.set_xlim(float(steps[0]), float(max(steps[-1], steps[0] + 1)))
    scale.apply(ax)
    label_axes(ax, x_name=step_axis(diagnosis.run), top=ONE_LINE)
    linear(ax, "x", ticks=4)
    shade_windows(ax, diagnosis, named=False)
    thin = _thinned(drawn["step"].to_numpy(), drawn["value"].to_numpy())
    ax.plot(*thin, color=MUTED, linewidth=0.7, alpha=0.55, zorder=3)
    ax.plot(_smooth(rows)["step"].to_numpy(), _mean(rows), color=INK, linewidth=2.0, zorder=4)
    mark_onset(ax, diagnosis, labelled=False)
    if limit is not None:
        _draw_limit(ax, limit, shown=scale.limit_shown)
    alarm = diagnosis.signature.aggregates.alarms.get(name)
    if alarm is not None and steps[0] <= alarm <= steps[-1]:
        ax.axvline(alarm, color=POST, linewidth=1.2, zorder=5)
        label_beside(ax, [f"alarm {count(alarm)}"], float(alarm), color=POST)
    _mark_off_scale(ax, _off_scale(rows))


def _mark_off_scale(ax: Axes, off_scale: _OffScale) -> None:
    """Mark at the edges where the curve leaves the axis, and write above it, where no line runs, how far it went."""
    first, last = ax.get_xlim()
    for height, steps in ((1.0, off_scale.above), (0.0, off_scale.below)):
        pixels = ((steps - first) / (last - first) * INNER_WIDTH).round()
        shown = steps[np.unique(pixels, return_index=True)[1]]  # what falls on one pixel is one mark
        if len(shown):
            ax.plot(
                shown,
                np.full(len(shown), height),
                transform=ax.get_xaxis_transform(),
                color=POST,
                linestyle="none",
                marker="_",
                markersize=EDGE_MARK,
                markeredgewidth=3.0,
                clip_on=False,
                zorder=6,
            )
    if not off_scale.words:
        return
    width, needed = ax.get_window_extent().width, LETTER * len(off_scale.words)
    wished = (off_scale.step - first) / (last - first) * width - needed / 2
    x = max(min(wished, width - needed), -LEFT + 4)
    annotate(ax, off_scale.words, (0, 1), coords="axes fraction", offset=(x, 6), color=POST, annotation_clip=False)


def _draw_limit(ax: Axes, limit: float, *, shown: bool) -> None:
    if shown:
        ax.axhline(limit, color=INK, linewidth=1.0, linestyle=(0, (1, 1.6)), zorder=3)
        annotate_row(ax, f"limit\n{number(limit)}", limit, 7, INK, right=True, linespacing=1.1)
        return
    annotate(
        ax,
        f"limit {number(limit)}, off the scale",
        (0.99, 0.97),
        coords="axes fraction",
        ha="right",
        va="top",
        color=INK,
        bbox=backing(1, 1.0),
        zorder=7,
    )


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return a long curve as the least and the greatest value of each pixel."""
    if len(x) <= 2 * INNER_WIDTH:
        return x, y
    parts = np.array_split(np.arange(len(x)), INNER_WIDTH)
    kept = np.unique([i for part in parts for i in (part[y[part].argmin()], part[y[part].argmax()])])
    return x[kept], y[kept]


def _alt(diagnosis: Diagnosis, rows: pl.DataFrame, name: str) -> str:
    means = rows["mean"].drop_nulls().drop_nans()
    sentences = [f"{metric_name(name)} by {step_axis(diagnosis.run)}."]
    if len(means):
        sentences.append(f"Mean of {WINDOW} steps: from {number(float(means[0]))} to {number(float(means[-1]))}.")
    limit, alarm = _limit(rows), diagnosis.signature.aggregates.alarms.get(name)
    sentences.append(f"Alarm limit {number(limit)}." if limit is not None else "No alarm limit.")
    sentences.append(f"Alarm at step {count(alarm)}." if alarm is not None else "No alarm.")
    if words := _off_scale(rows).words:
        sentences.append(f"Beyond the axis: {words}.")
    return in_unit(" ".join(sentences), diagnosis.run.step_unit)


FIGURE = RunFigure(
    name="aggregates",
    title="The usual curves over the same steps",
    columns=3,
    panels=panels,
    caption=caption,
    data=data,
    absence=absence,
    takeaway=takeaway,
)

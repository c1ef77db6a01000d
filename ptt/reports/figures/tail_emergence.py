"""Draws how the tail of |log-ratio| moves over training, by slice: the first thing to look at."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.annotations import draw_limit, end_labels, mark_onset, plot_slice
from ptt.reports.figures.axes import label_axes, linear, shade_windows, step_ends, step_range, tail_axis
from ptt.reports.figures.panels import ONE_LINE, DataTable, Panel, RunFigure, data_table, finite_rows
from ptt.reports.figures.style import LINES, slice_role
from ptt.reports.text.names import sentence, slice_name
from ptt.reports.text.numbers import bounds, count, number, with_unit
from ptt.reports.text.tables import WINDOW_NAMES, error_bound, no_tokens, pair_of, slices, table, window_words
from ptt.reports.text.why import after_slice
from ptt.reports.text.why import thirds as thirds_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALL_Q = 0.95  # the percentile drawn beside other curves
QUANTILES = (0.95, 0.99)
MIN_POINTS = 2  # a small panel of one point shows nothing
STILL = 1.25  # thirds of the run that differ by less are told as one value
BAND_REACH = 2.0  # times the highest value: an interval that ends further up leaves the axis


def panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Return one panel for each percentile."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    return tuple(
        Panel(
            key=f"tail-p{100 * q:g}".replace(".", ""),
            title=f"{_percentile(q)} of |log-ratio|",
            alt=_alt(diagnosis, rows, q),
            draw=partial(_draw, diagnosis=diagnosis, rows=rows, limit=_limit(diagnosis, q)),
        )
        for q in frame["q"].unique().sort()
        for rows in (frame.filter(pl.col("q") == q),)
    )


def takeaway(diagnosis: Diagnosis) -> str:
    """Say when the tail passed its limit, or how it went, and what text-only tails did meanwhile."""
    thirds = {name: ends(diagnosis, name) for name in (after_slice(diagnosis), "text_only")}
    ways = {name: _way(*ends) for name, ends in thirds.items() if ends is not None}
    frame = _frame(diagnosis)
    if not ways:
        return ""
    (name, way), *others = ways.items()
    limits = {q: limit for q in QUANTILES if (limit := _limit(diagnosis, q)) is not None}
    passed = diagnosis.signature.limit_passed_step
    head = f"{slice_name(name)} p95 {way}"
    if limits and passed is not None:
        q, limit = next(iter(limits.items()))
        head = f"{slice_name(name)} {_percentile(q)} passed {with_unit(limit, 'nats')} at step {count(passed)}"
        others = [(other, way.partition(" from ")[0]) for other, way in others]
    text = "".join(f"; {slice_name(other)} p95 {way}" for other, way in others)
    for other in sorted(thirds.keys() - ways.keys()):
        steps = frame.filter(slice=other)["step_last"].to_list() if frame is not None else []
        text += f"; no {slice_name(other)} tokens after step {count(max(steps))}" if steps else ""
    return sentence(head + text).rstrip(".")


def ends(diagnosis: Diagnosis, name: str) -> tuple[float, float] | None:
    """Return the p95 of a slice in the first and the last third of the run."""
    values = thirds_of(diagnosis, name)
    ends = (values[0], values[-1]) if len(values) == len(WINDOW_NAMES) else (None, None)
    return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])


def _way(first: float, last: float) -> str:
    if max(first, last) < STILL * min(first, last) or first == last:
        return f"stayed near {number(last, 2)}"
    return f"{'rose' if last > first else 'fell'} from {number(first, 2)} to {number(last, 2)}"


def _percentile(q: float) -> str:
    return f"p{100 * q:g}"


def _limit(diagnosis: Diagnosis, q: float) -> float | None:
    """Return the limit that the tail of one percentile passed where the signature says; None where it passed none."""
    passed = diagnosis.signature.limit_passed_step
    for finding in diagnosis.findings:
        named = finding.evidence.get("percentile") == _percentile(q)
        if passed is not None and finding.limit_passed_step == passed and finding.limit is not None and named:
            return finding.limit
    return None


def small_tail(diagnosis: Diagnosis, size: tuple[int, int], steps: tuple[int, int]) -> tuple[Panel, ...]:
    """Return the p95 after tools as a small panel to stand beside other curves, or nothing."""
    frame, name = _frame(diagnosis), after_slice(diagnosis)
    if frame is None:
        return ()
    rows = frame.filter(pl.col("slice") == name, pl.col("q") == SMALL_Q).sort("step_mid")
    if len(rows) < MIN_POINTS:
        return ()

    def draw(ax: Axes) -> None:
        ax.set_ylim(0, 1.15 * max(rows["value"].to_list()) or 1.0)  # a slice may hold nothing but zeros
        limit = _limit(diagnosis, SMALL_Q)
        label_axes(ax, x_name="trainer step", top=ONE_LINE)
        step_range(ax, *steps)
        linear(ax, "y", ticks=4)
        shade_windows(ax, diagnosis, named=False)
        plot_slice(ax, rows, name, "step_mid", "value")
        mark_onset(ax, diagnosis, labelled=False)
        if limit is not None:
            draw_limit(ax, limit)

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
        f"{_span(frame)}, by slice ({sizes}). Bands are 95% intervals from resampling "
        "whole prompt groups (sequences, where groups are not recorded). "
        f"A rising line means that rare tokens get ever larger weights. {_marks(diagnosis)}"
        f"Windows: {window_words(diagnosis)}. " + error_bound()
    )


def _marks(diagnosis: Diagnosis) -> str:
    """Say what the upright lines are, and why growth below the limit is not yet the fault."""
    signature = diagnosis.signature
    grew, passed = signature.onset_step, signature.limit_passed_step
    if grew is None:
        return ""
    if passed is None:
        return f"Dashed: step {count(grew)}, where the tail begins to grow. "
    across = next((limit for q in QUANTILES if (limit := _limit(diagnosis, q)) is not None), None)
    level = f" of {with_unit(across, 'nats')}" if across is not None else ""
    text = f"Dotted: the limit{level}, and step {count(passed)}, at which the mean of 20 steps passed it. "
    if grew < passed:
        text += (
            f"The tail has grown since step {count(grew)} (dashed), at first below the limit. Every "
            "policy moves away from its start; the distance is a fault only past the limit. "
        )
    return text


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
    head = ("Steps", "Slice", "p95 (95% interval)", "p99 (95% interval)", "Tokens", "Sequences")
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


def _draw(ax: Axes, *, diagnosis: Diagnosis, rows: pl.DataFrame, limit: float | None) -> None:
    """Draw all slices over nats: r is a logarithm already, and on a log axis noise near 0 would take most of it."""
    highest = max([*rows["value"].to_list(), limit or 0.0])
    ends = [end for end in rows["hi"].to_list() if end is not None and end < BAND_REACH * highest]
    step_range(ax, *step_ends(rows), ticks=5)
    label_axes(ax, x_name="trainer step", y_name="|r| in nats")
    tail_axis(ax, 0.0, max([highest, *ends]) or 1.0, log=False)
    shade_windows(ax, diagnosis)
    labels = []
    for name in slices(rows):
        part = rows.filter(pl.col("slice") == name).sort("step_mid")
        band = part.drop_nulls(["lo", "hi"])
        colour = LINES[slice_role(name)]["color"]
        ax.fill_between(band["step_mid"], band["lo"], band["hi"], color=colour, alpha=0.18, linewidth=0)
        labels.append(plot_slice(ax, part, name, "step_mid", "value"))
    if limit is not None:
        draw_limit(ax, limit)
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
        limit = _limit(diagnosis, q)
        level = f" of {with_unit(limit, 'nats')}" if limit is not None else ""
        sentences.append(f"Limit{level} passed at step {count(passed)}.")
    return " ".join(sentences)


FIGURE = RunFigure(
    name="tail_emergence",
    title="Tail emergence over training",
    columns=2,
    panels=panels,
    caption=caption,
    data=data,
    absence=no_tokens,
    takeaway=takeaway,
)

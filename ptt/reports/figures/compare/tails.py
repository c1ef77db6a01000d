"""Draws the tails of |log-ratio| of all arms over what they share, and each arm alone: the figures to look at first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from ptt.diagnostics.compare.comparison import POST, Comparison
from ptt.reports.figures.axes import label_axes, shade_thirds, step_range, tail_axis
from ptt.reports.figures.compare.arms import (
    MAX_BANDS,
    arm_styles,
    label_column,
    label_ends,
    mark_divergence,
    note_above,
    panel_height,
    plot_arm,
    plot_band,
)
from ptt.reports.figures.compare.missing import missing, missing_sentences, notes, plot_arms
from ptt.reports.figures.compare.rows import (
    AXES,
    PLURAL,
    CompareFigure,
    arm_name,
    cut_table,
    drawn_arms,
    finite,
    matched_range,
    matched_range_text,
    rows_of,
    slice_title,
    slices,
    with_bounds,
)
from ptt.reports.figures.panels import ONE_LINE, DataTable, Panel
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import count, number
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import error_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LARGE, SMALL = 316, 236  # pixels: the height of panels after tools, and of others
WIDTH = 430
TOP = 44  # pixels above the axes: the vertical axis's name and the windows'
NOTE = 16  # and for every line that says what is not drawn
MAX_NAMED = 4  # arms whose values stand in the heading
BAND_REACH = 2.0  # times the highest value: an interval that ends further up leaves the axis


def panels(comparison: Comparison, axis: str) -> tuple[Panel, ...]:
    """Return one panel for each slice and percentile: after tools first and large, the others below in small."""
    frame = _frame(comparison, axis)
    return tuple(
        _panel(comparison, axis, f"{axis}-{index}", name, q, rows)
        for index, name in enumerate(slices(comparison))
        for part in (frame.filter(slice=name),)
        for q in part["q"].unique().sort()
        for rows in (part.filter(q=q),)
        if finite(rows, "value").height
    )


def _panel(comparison: Comparison, axis: str, key: str, name: str, q: str, rows: pl.DataFrame) -> Panel:
    above = notes(comparison, rows, name)
    extra = NOTE * len(above)
    return Panel(
        key=f"compare-tail-{key}-{q}",
        title=slice_title(name, f"{q} of |log-ratio|"),
        alt=_alt(comparison, axis, rows, name, q),
        draw=partial(_draw, comparison=comparison, axis=axis, rows=rows, above=above),
        width=WIDTH,
        height=panel_height(comparison, (LARGE if name in POST else SMALL) + extra),
        top=TOP + extra,
        right=label_column(comparison),
    )


def caption(comparison: Comparison, axis: str) -> str:
    """Return how to read the figure, what is not in it, and from how much data it is made."""
    frame, shared = _frame(comparison, axis), matched_range_text(comparison, axis)
    bands = (
        "Bands are 95% intervals."
        if _banded(comparison)
        else "With so many arms, bands are left out here; the next figure shows them."
    )
    sentences = [
        f"95th and 99th percentiles of |r|, r = log-ratio of the pair {safe(comparison.pair or 'not named')}, over "
        f"{PLURAL[axis]}, where all arms can be compared ({shared or 'as recorded'}). "
        f"{bands} The baseline is the thick line without colour. A line below it has smaller tails; a rising "
        "line gives rare tokens ever larger weights.",
    ]
    if axis == "steps" and frame["q"].is_in(comparison.tables["divergence"]["what"].to_list()).any():
        sentences.append("A triangle on the axis marks where an arm left the baseline.")
    sentences += missing_sentences(comparison, frame)
    if (frame["runs"] > 1).any():
        sentences.append("Arms of several runs are pooled by the geometric mean.")
    hidden = len(comparison.arms) - len(drawn_arms(comparison))
    if hidden:
        sentences.append(f"{count(hidden)} further arms are only in the tables.")
    return " ".join([*sentences, error_bound()])


def data(comparison: Comparison, axis: str) -> tuple[DataTable, ...]:
    """Return one row for each arm, slice and span, with both percentiles."""
    rows = []
    keys = ("arm", "slice", "x_first", "x_last")
    for (arm, name, first, last), group in finite(_frame(comparison, axis), "value").group_by(
        keys, maintain_order=True
    ):
        values = {row["q"]: with_bounds(row["value"], row["lo"], row["hi"]) for row in group.iter_rows(named=True)}
        span = f"{number(round(first))} to {number(round(last))}"
        tokens = count(int(group["n_tokens"].to_numpy().max()))
        percentiles = (values.get("p95", "—"), values.get("p99", "—"))
        rows.append((arm_name(arm), slice_name(name), span, *percentiles, tokens))
    head = ("Arm", "Slice", AXES[axis].capitalize(), "p95 (95% interval)", "p99 (95% interval)", "Tokens")
    return cut_table(f"By span of {PLURAL[axis]}", head, rows)


def takeaway(comparison: Comparison, axis: str) -> str:
    """Say where each arm's tail after tools stands in the late third."""
    name, styles = next(iter(slices(comparison)), ""), arm_styles(comparison)
    rows = finite(rows_of(comparison, "windows", axis=axis, window="late"), "value")
    rows = rows.filter(slice=name).filter(pl.col("q") == pl.col("q").min()) if name else rows.clear()
    late = [
        (styles[arm].label, float(value)) for arm, value in rows.select("arm", "value").iter_rows() if arm in styles
    ]
    if not late:
        return ""
    if len(late) > MAX_NAMED:
        ends = (min(late, key=lambda end: end[1]), max(late, key=lambda end: end[1]))
        words = " and ".join(f"{number(value, 2)} ({label})" for label, value in ends)
        return f"Late {slice_name(name)} {rows['q'][0]} in nats lies between {words}"
    words = ", ".join(f"{label} {number(value, 2)}" for label, value in late)
    return f"Late {slice_name(name)} {rows['q'][0]} in nats: {words}"


def _frame(comparison: Comparison, axis: str) -> pl.DataFrame:
    return rows_of(comparison, "curves", axis=axis).filter(pl.col("arm").is_in(drawn_arms(comparison)))


def _banded(comparison: Comparison) -> bool:
    return len(drawn_arms(comparison)) <= MAX_BANDS


def _draw(ax: Axes, *, comparison: Comparison, axis: str, rows: pl.DataFrame, above: tuple[str, ...]) -> None:
    banded = _banded(comparison)
    _axes(ax, comparison, axis, rows, banded=banded, top=TOP + NOTE * len(above))
    shade_thirds(ax)
    ends = plot_arms(ax, comparison, rows, bands=banded)
    if axis == "steps":
        mark_divergence(ax, comparison, rows["q"][0], slice=rows["slice"][0])
    label_ends(ax, ends)
    note_above(ax, above, 16)


def _axes(ax: Axes, comparison: Comparison, axis: str, rows: pl.DataFrame, *, banded: bool, top: int) -> None:
    """Set up the axes, from 0 to what was measured: r is a logarithm already, as in the figure of one run."""
    step_range(ax, *matched_range(comparison, axis, rows))
    highest = max(finite(rows, "value")["value"].to_list())
    reach = BAND_REACH * highest
    ends = [end for end in finite(rows, "value", "hi")["hi"].to_list() if end < reach] if banded else []
    tail_axis(ax, 0.0, max([highest, *ends]) or 1.0, log=False)
    label_axes(ax, x_name=AXES[axis], y_name="|r| in nats", top=top)


def _alt(comparison: Comparison, axis: str, rows: pl.DataFrame, name: str, q: str) -> str:
    sentences = [f"{q} of |log-ratio| of {slice_name(name)} tokens over {PLURAL[axis]}, by arm."]
    for arm in drawn_arms(comparison):
        part = finite(rows, "value").filter(arm=arm).sort("x_mid")
        if not part.height:
            sentences.append(f"{arm_name(arm)}: no value (0 spans).")
            continue
        first, last = (f"{number(part['value'][i])} around {number(round(part['x_mid'][i]))}" for i in (0, -1))
        sentences.append(f"{arm_name(arm)}: {first}, {last}.")
    return " ".join(sentences)


def figure(axis: str, title: str) -> CompareFigure:
    """Return the figure of one axis."""
    return CompareFigure(
        name=f"tails_by_{axis}",
        title=title,
        columns=2,
        panels=partial(panels, axis=axis),
        caption=partial(caption, axis=axis),
        data=partial(data, axis=axis),
        takeaway=partial(takeaway, axis=axis),
        folded=axis != "steps",
        absence=lambda _: f"no two arms have tails that can be compared over {PLURAL[axis]}",
    )


BY_STEPS = figure("steps", "Tails over matched steps")
BY_TOKENS = figure("tokens", "Tails over matched model tokens")


def _arm_panels(comparison: Comparison) -> tuple[Panel, ...]:
    """Return one small panel for each arm with its band over the baseline's, where there are too many for one panel."""
    baseline, *others = drawn_arms(comparison)
    name = _post_slice(comparison)
    if _banded(comparison) or name is None:
        return ()
    rows = rows_of(comparison, "curves", "value", axis="steps", slice=name)
    rows = rows.filter(pl.col("q") == pl.col("q").min())
    if rows.is_empty():
        return ()
    return tuple(
        Panel(
            key=f"compare-each-{index}",
            title=_arm_title(comparison, rows, arm),
            alt=_arm_alt(rows, (arm, baseline)),
            draw=partial(_draw_arm, comparison=comparison, rows=rows, arms=(baseline, arm)),
            width=340,
            height=206,
            top=ONE_LINE,
            right=12,
        )
        for index, arm in enumerate(others)
    )


def _post_slice(comparison: Comparison) -> str | None:
    return next((name for name in slices(comparison) if name in POST), None)


def _draw_arm(ax: Axes, *, comparison: Comparison, rows: pl.DataFrame, arms: tuple[str, ...]) -> None:
    _axes(ax, comparison, "steps", rows, banded=True, top=ONE_LINE)
    shade_thirds(ax, named=False)
    styles = arm_styles(comparison)
    for arm in arms:
        part = rows.filter(arm=arm).sort("x_mid")
        if part.height:
            plot_band(ax, part, styles[arm])
            plot_arm(ax, part, styles[arm])


def _arm_title(comparison: Comparison, rows: pl.DataFrame, arm: str) -> str:
    """Return the arm's name, and what is not drawn of it."""
    absent, ended = missing(comparison, rows)
    if arm in absent:
        return f"{arm_name(arm)} · no value, not drawn"
    return arm_name(arm) + (f" · no value after {number(round(ended[arm]))}" if arm in ended else "")


def _arm_alt(rows: pl.DataFrame, arms: tuple[str, ...]) -> str:
    sentences = [f"{rows['q'][0]} of |log-ratio| over trainer steps with its interval, and the baseline's."]
    for arm in arms:
        values = rows.filter(arm=arm).sort("x_mid")["value"]
        ends = f"from {number(values[0])} to {number(values[-1])}" if len(values) else "no value (0 spans)"
        sentences.append(f"{arm_name(arm)}: {ends}.")
    return " ".join(sentences)


def _arm_caption(comparison: Comparison) -> str:
    return (
        f"The {slice_name(_post_slice(comparison) or '')} tail of each arm (its own colour) over the baseline's "
        "(without colour), with 95% bands; all panels have the same axes. Where the bands separate, the arm differs "
        "from the baseline."
    )


EACH_ARM = CompareFigure(
    name="each_arm", title="Each arm against the baseline", columns=3, panels=_arm_panels, caption=_arm_caption
)

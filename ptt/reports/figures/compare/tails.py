"""Draws the tails of |log-ratio| of all arms over what they share: the figure to look at first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.figures.compare.arms import End, Look, column, height, label_ends, looks, note
from ptt.reports.figures.compare.kinds import (
    AFTER,
    CompareFigure,
    arm_name,
    finite,
    names,
    numbers_of,
    of_arm,
    rows_of,
    slices,
    title_of,
    with_bounds,
)
from ptt.reports.figures.compare.scales import (
    AXES,
    PLURAL,
    across,
    lowest,
    mark_divergence,
    matched_range,
    missing,
    notes,
    range_words,
    shade_thirds,
    tail_height,
    vanished,
)
from ptt.reports.figures.panels import DataTable, Panel
from ptt.reports.figures.style import dress, sparse
from ptt.reports.text.names import slice_name
from ptt.reports.text.numbers import count, number
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import error_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BANDS_UP_TO = 4  # arms: more bands over one another are mud
LARGE, SMALL_HEIGHT = 316, 236
WIDTH = 430
TOP = 44  # pixels above the axes: the vertical axis's name and the windows'
NOTE = 16  # and for every line that says what is not drawn


def panels(comparison: Comparison, axis: str) -> tuple[Panel, ...]:
    """Give one panel a slice and percentile: after tools first and large, the others below in small."""
    frame = _frame(comparison, axis)
    if not frame.width or not finite(frame, "value").height:
        return ()
    made = []
    for index, name in enumerate(slices(comparison)):
        part = frame.filter(pl.col("slice") == name)
        for q in sorted(set(part["q"].to_list())):
            rows = part.filter(pl.col("q") == q)
            if finite(rows, "value").height:
                made.append(_panel(comparison, axis, f"{axis}-{index}", name, q, rows))
    return tuple(made)


def _panel(comparison: Comparison, axis: str, key: str, name: str, q: str, rows: pl.DataFrame) -> Panel:
    said = notes(comparison, rows, name)
    top = TOP + NOTE * len(said)
    least = (LARGE if name in AFTER else SMALL_HEIGHT) + NOTE * len(said)
    return Panel(
        key=f"compare-tail-{key}-{q}",
        title=title_of(name, f"{q} of |log-ratio|"),
        alt=_alt(comparison, axis, rows, name, q),
        draw=partial(_draw, comparison=comparison, axis=axis, rows=rows, name=name, said=said),
        width=WIDTH,
        height=height(comparison, least),
        top=top,
        right=column(comparison),
    )


def caption(comparison: Comparison, axis: str) -> str:
    """Tell how to read the figure, what is not in it, and from how much data it is made."""
    frame = _frame(comparison, axis)
    many = len(names(comparison)) > BANDS_UP_TO
    bands = (
        "Bands are left out for so many arms; the next figure has each with its own."
        if many
        else "Bands are 95 % intervals."
    )
    told = [
        f"95th and 99th percentile of |r|, r = log-ratio of the pair {safe(comparison.pair or 'not named')}, over "
        f"{PLURAL[axis]}, where all arms can be set side by side ({range_words(comparison, axis) or 'as recorded'}). "
        f"{bands} The baseline is the thick line without colour. A line below it has smaller tails; a line that climbs "
        "gives rare tokens ever larger weights.",
    ]
    if axis == "steps" and any(
        _tail_names(comparison, rows) for rows in frame.partition_by("q", maintain_order=True) if frame.height
    ):
        told.append("A triangle on the axis marks where an arm left the baseline.")
    if any(_leaves(rows) for rows in frame.partition_by("slice", "q", maintain_order=True) if frame.height):
        told.append("A line that leaves a panel below has a few values far below all others, often its first steps.")
    told += vanished(comparison, frame)
    runs = frame["runs"].to_numpy().max() if frame.height else 1
    if runs > 1:
        told.append("Arms of several runs are pooled by the geometric mean.")
    hidden = len(comparison.arms) - len(names(comparison))
    if hidden:
        told.append(f"{count(hidden)} further arms are in the tables alone.")
    return " ".join([*told, error_bound()])


def data(comparison: Comparison, axis: str) -> tuple[DataTable, ...]:
    """Give one row an arm, slice and span, with both percentiles."""
    frame = finite(_frame(comparison, axis), "value")
    if not frame.height:
        return ()
    rows = []
    keys = ["arm", "slice", "x_first", "x_last"]
    for key, group in frame.group_by(keys, maintain_order=True):
        values = {row["q"]: with_bounds(row["value"], row["lo"], row["hi"]) for row in group.iter_rows(named=True)}
        span = f"{number(round(key[2]))} to {number(round(key[3]))}"
        tokens = count(int(group["n_tokens"].to_numpy().max()))
        rows.append(
            (
                arm_name(str(key[0])),
                slice_name(str(key[1])),
                span,
                values.get("p95", "—"),
                values.get("p99", "—"),
                tokens,
            )
        )
    head = ("Arm", "Slice", AXES[axis].capitalize(), "p95 (95 % interval)", "p99 (95 % interval)", "Tokens")
    return numbers_of(f"By span of {PLURAL[axis]}", head, rows)


def _frame(comparison: Comparison, axis: str) -> pl.DataFrame:
    frame = rows_of(comparison, "curves", axis=axis)
    return frame.filter(pl.col("arm").is_in(names(comparison))) if frame.width else frame


def _draw(ax: Axes, *, comparison: Comparison, axis: str, rows: pl.DataFrame, name: str, said: tuple[str, ...]) -> None:
    arms = looks(comparison)
    banded = len(arms) <= BANDS_UP_TO
    across(ax, matched_range(comparison, axis, rows))
    drawn = finite(rows, "value")
    logged = tail_height(ax, values_of(drawn), ends_of(drawn) if banded else ())
    dress(ax, x_name=AXES[axis], y_name="|r|, log axis" if logged else "|r|", top=TOP + NOTE * len(said))
    shade_thirds(ax)
    ends, (_, gone) = [], missing(comparison, rows)
    for arm, look in arms.items():
        part = of_arm(rows, arm).sort("x_mid")
        known = finite(part, "value")
        if not known.height:
            continue
        if banded:
            band(ax, known, look)
        curve(ax, part, look)
        last = known.row(-1, named=True)
        ends.append(
            End(
                look=look,
                x=last["x_mid"],
                y=last["value"],
                value=f"until {number(round(dict(gone)[arm]))}" if arm in dict(gone) else number(last["value"]),
            )
        )
    if axis == "steps":
        for what in _tail_names(comparison, rows):
            mark_divergence(ax, comparison, arms, what, name)
    label_ends(ax, ends)
    note(ax, said, 16)


def band(ax: Axes, rows: pl.DataFrame, look: Look) -> None:
    """Draw an arm's interval, where it is known."""
    known = finite(finite(rows, "lo"), "hi")
    if known.height:
        x, low, high = (known[name].to_numpy() for name in ("x_mid", "lo", "hi"))
        ax.fill_between(x, low, high, color=look.colour, alpha=0.16, linewidth=0)


def curve(ax: Axes, rows: pl.DataFrame, look: Look) -> None:
    """Draw an arm's line; a span without a value is a gap."""
    values = rows["value"].cast(pl.Float64).to_numpy(writable=True)
    ax.plot(rows["x_mid"].to_numpy(), values, **look.line, marker=look.marker, markevery=sparse(len(rows)), zorder=4)


def values_of(rows: pl.DataFrame) -> list[float]:
    """Give every value that the vertical axis is fitted to."""
    return [float(value) for value in finite(rows, "value")["value"].to_list()]


def ends_of(rows: pl.DataFrame) -> list[float]:
    """Give the upper ends of the intervals, as far as they say something."""
    highest = max(values_of(rows), default=0.0)
    return [float(end) for end in finite(rows, "hi")["hi"].to_list() if end < 2 * highest]


def _leaves(rows: pl.DataFrame) -> bool:
    positive = [value for value in values_of(rows) if value > 0]
    return bool(positive) and lowest(positive) > min(positive)


def _tail_names(comparison: Comparison, rows: pl.DataFrame) -> tuple[str, ...]:
    """Give what the divergence table may call this panel's figure."""
    q = str(rows["q"][0])
    found = set(rows_of(comparison, "divergence")["what"].to_list()) if rows_of(comparison, "divergence").width else ()
    return tuple(sorted(what for what in found if what == q))


def _alt(comparison: Comparison, axis: str, rows: pl.DataFrame, name: str, q: str) -> str:
    told = [f"{q} of |log-ratio| of {slice_name(name)} tokens over {PLURAL[axis]}, by arm."]
    known = finite(rows, "value")
    for arm in names(comparison):
        part = of_arm(known, arm).sort("x_mid")
        if not part.height:
            told.append(f"{arm_name(arm)}: no value (0 spans).")
            continue
        first, last = part.row(0, named=True), part.row(-1, named=True)
        told.append(
            f"{arm_name(arm)}: {number(first['value'])} around {number(round(first['x_mid']))}, "
            f"{number(last['value'])} around {number(round(last['x_mid']))}."
        )
    return " ".join(told)


def figure(axis: str, title: str) -> CompareFigure:
    """Make the figure of one axis."""
    return CompareFigure(
        name=f"tails_by_{axis}",
        title=title,
        columns=2,
        panels=partial(panels, axis=axis),
        caption=partial(caption, axis=axis),
        data=partial(data, axis=axis),
        absence=f"no two arms have tails that can be set side by side over {PLURAL[axis]}",
    )


BY_STEPS = figure("steps", "Tails over matched steps")
BY_TOKENS = figure("tokens", "Tails over matched model tokens")

"""Arms that a panel does not show, or not to the end: what is missing is said, and never drawn as zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.figures.compare.arms import EARLY_END, LineEnd, arm_styles, plot_arm, plot_band
from ptt.reports.figures.compare.rows import arm_name, drawn_arms, finite, slices
from ptt.reports.figures.style import short_slice
from ptt.reports.text.names import joined, slice_name
from ptt.reports.text.numbers import counted, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_NOTE = 58  # letters that fit above a panel


def missing(comparison: Comparison, rows: pl.DataFrame) -> tuple[list[str], dict[str, float]]:
    """Return the arms without any value, and those whose values end early, with where."""
    known = finite(rows, "value")
    middles = known["x_mid"].to_list() or [0.0]
    early = max(middles) - EARLY_END * (max(middles) - min(middles))
    absent, ended = [], {}
    for name in drawn_arms(comparison):
        part = known.filter(arm=name)
        if not part.height:
            absent.append(name)
        elif max(part["x_mid"].to_list()) < early:
            ended[name] = max(part["x_last"].to_list())
    return absent, ended


def notes(comparison: Comparison, rows: pl.DataFrame, name: str) -> tuple[str, ...]:
    """Return the line inside a panel that says which arms it does not show, or not to the end."""
    styles, kind = arm_styles(comparison), short_slice(name)
    absent, ended = missing(comparison, rows)
    clauses = [f"no {kind} value: {joined([styles[arm].label for arm in absent])}"] if absent else []
    clauses += [f"{styles[arm].label}: no {kind} value after {number(round(last))}" for arm, last in ended.items()]
    if not clauses:
        return ()
    if len("; ".join(clauses)) <= MAX_NOTE:
        return ("; ".join(clauses),)
    if len(clauses) == 1:
        return (clauses[0][:MAX_NOTE],)
    # one line, whatever the number of arms: which they are stands in the caption
    numbers = [f"no {kind} value: {counted(len(absent), 'arm')}"] if absent else []
    numbers += [f"no {kind} values to the end: {counted(len(ended), 'arm')}"] if ended else []
    return ("; ".join(numbers),)


def missing_sentences(comparison: Comparison, frame: pl.DataFrame) -> list[str]:
    """Return for the caption what is missing, slice by slice."""
    sentences = []
    for name in slices(comparison):
        rows = frame.filter(slice=name)
        absent, ended = missing(comparison, rows)
        if absent and finite(rows, "value").height:
            arms = joined([arm_name(arm) for arm in absent])
            sentences.append(f"No {slice_name(name)} values: {arms}; a missing line does not mean a low value.")
        for arm, last in ended.items():
            until = f"{arm_name(arm)} has no {slice_name(name)} value after {number(round(last))}"
            sentences.append(f"{until}: missing tokens were not suppressed.")
    return sentences


def plot_arms(ax: Axes, comparison: Comparison, rows: pl.DataFrame, *, bands: bool, digits: int = 3) -> list[LineEnd]:
    """Draw every arm's line, with its band where wished, and return their ends; one that ends early says where."""
    ends, (_, ended) = [], missing(comparison, rows)
    for arm, style in arm_styles(comparison).items():
        part = rows.filter(arm=arm).sort("x_mid")
        known = finite(part, "value")
        if not known.height:
            continue
        if bands:
            plot_band(ax, known, style)
        plot_arm(ax, part, style)
        last = known.row(-1, named=True)
        value = f"until {number(round(ended[arm]))}" if arm in ended else number(last["value"], digits)
        ends.append(LineEnd(style=style, x=last["x_mid"], y=last["value"], value=value))
    return ends

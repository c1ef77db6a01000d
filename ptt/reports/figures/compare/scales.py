"""Axes that several figures of a comparison share: matched ranges, tails, the thirds and what diverged when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.figures.compare.arms import ENDED, Look, looks
from ptt.reports.figures.compare.kinds import arm_name, finite, names, of_arm, rows_of, slices
from ptt.reports.figures.style import LOG_FROM, MUTED, SHADE, SMALL, linear, logarithmic, short_slice
from ptt.reports.text.names import joined, slice_name
from ptt.reports.text.numbers import count, number
from ptt.reports.text.tables import WINDOW_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PLURAL = {"steps": "trainer steps", "tokens": "model tokens"}
FEW, FAR = 0.05, 5.0  # a share of the values that lies so many times below the others may leave the axis
AXES = {"steps": "trainer step", "tokens": "model tokens trained on"}
Range = tuple[float, float]


def matched_range(comparison: Comparison, axis: str, frame: pl.DataFrame) -> Range:
    """Give the range that all arms share on an axis, or that of the rows."""
    shared = comparison.matched.get(axis)
    first, last = shared if shared is not None else (_least(frame["x_first"]), _most(frame["x_last"]))
    return first, max(last, first + 1)


def range_words(comparison: Comparison, axis: str) -> str:
    """Say which range all arms share."""
    shared = comparison.matched.get(axis)
    if shared is None:
        return ""
    unit = "steps" if axis == "steps" else "model tokens"
    return f"{unit} {_whole(shared[0])} to {_whole(shared[1])}"


def across(ax: Axes, span: Range) -> None:
    """Let the horizontal axis run over a range, with few plainly written ticks."""
    ax.set_xlim(*span)
    linear(ax, "x", ticks=4)


def shade_thirds(ax: Axes, *, named: bool = True) -> None:
    """Shade the early and the late third of the axis lightly and name all three above it."""
    low, high = ax.get_xlim()
    third = (high - low) / len(WINDOW_NAMES)
    for index, name in enumerate(WINDOW_NAMES):
        left = low + index * third
        if index % 2 == 0:
            ax.axvspan(left, left + third, color=SHADE, linewidth=0, zorder=0)
        if named:
            ax.annotate(
                name,
                (left + third / 2, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=SMALL,
                color=MUTED,
            )


def tail_height(ax: Axes, values: Sequence[float], ends: Sequence[float] = ()) -> bool:
    """Fit the vertical axis to tails and, above them, to the ends of their intervals; say whether it is a log axis.

    What lies very far below the rest, such as the first step of a run that starts at its reference, leaves the axis.
    """
    positive = sorted(value for value in values if value > 0)
    if not positive:
        ax.set_ylim(0, 1)
        return False
    high = max(*positive, *ends, positive[-1])
    low = lowest(positive)
    logged = len(positive) == len(values) and high / low > LOG_FROM
    if logged:
        logarithmic(ax, "y", low / 1.15, high * 1.25)
    else:
        ax.set_ylim(0, high * 1.1)
        linear(ax, "y")
    return logged


def lowest(values: Sequence[float]) -> float:
    """Give the lower end of an axis of tails: the least value, unless a few lie far below all others."""
    ordered = sorted(value for value in values if value > 0)
    usual = ordered[int(FEW * len(ordered))]
    return usual if usual > FAR * ordered[0] else ordered[0]


def mark_divergence(ax: Axes, comparison: Comparison, arms: Mapping[str, Look], what: str, slice_of: str = "") -> None:
    """Set a triangle on the horizontal axis where an arm left the baseline in one figure."""
    frame = finite(rows_of(comparison, "divergence", what=what), "step")
    if frame.width and slice_of:
        frame = frame.filter(pl.col("slice") == slice_of)
    low, high = ax.get_xlim()
    for name, look in arms.items():
        rows = of_arm(frame, name)
        if not rows.height:
            continue
        step = float(rows["step"][0])
        if low <= step <= high:
            ax.plot(
                [step],
                [0.0],
                transform=ax.get_xaxis_transform(),
                marker=6,  # a caret that points up
                color=look.colour,
                markersize=8,
                clip_on=False,
                zorder=7,
            )


def _least(values: pl.Series) -> float:
    return float(values.to_numpy().min())


def _most(values: pl.Series) -> float:
    return float(values.to_numpy().max())


def _whole(value: float) -> str:
    return number(round(value)) if value == value else number(value)


NOTE_LETTERS = 58  # that fit above a panel


def missing(comparison: Comparison, rows: pl.DataFrame) -> tuple[list[str], list[tuple[str, float]]]:
    """Name the arms without any value, and those whose values end early, with where."""
    known = finite(rows, "value")
    everywhere = [known["x_mid"].to_numpy().min(), known["x_mid"].to_numpy().max()] if known.height else [0.0, 0.0]
    absent, ended = [], []
    for name in names(comparison):
        part = of_arm(known, name)
        if not part.height:
            absent.append(name)
        elif float(part["x_mid"].to_numpy().max()) < everywhere[1] - ENDED * (everywhere[1] - everywhere[0]):
            ended.append((name, float(part["x_last"].to_numpy().max())))
    return absent, ended


def notes(comparison: Comparison, rows: pl.DataFrame, name: str) -> tuple[str, ...]:
    """Say inside the figure which arms it does not show, or not to the end."""
    arms = looks(comparison)
    absent, ended = missing(comparison, rows)
    kind = short_slice(name)
    told = []
    if absent:
        told.append(f"no {kind} value: {joined([arms[arm].label for arm in absent])}")
    told += [f"{arms[arm].label}: no {kind} value after {number(round(last))}" for arm, last in ended]
    if len("; ".join(told)) <= NOTE_LETTERS:
        return ("; ".join(told),) if told else ()
    # one line, whatever the number of arms: which they are stands in the caption
    counted = [f"no {kind} value: {_arms(len(absent))}"] if absent else []
    counted += [f"no {kind} values to the end: {_arms(len(ended))}"] if ended else []
    return ("; ".join(counted) if len(told) > 1 else told[0][:NOTE_LETTERS],)


def _arms(number_of: int) -> str:
    return "1 arm" if number_of == 1 else f"{count(number_of)} arms"


def vanished(comparison: Comparison, frame: pl.DataFrame) -> list[str]:
    """Say in the caption what is missing, slice by slice."""
    told = []
    for name in slices(comparison):
        rows = frame.filter(pl.col("slice") == name)
        absent, ended = missing(comparison, rows)
        quoted = [arm_name(arm) for arm in absent]
        if quoted and finite(rows, "value").height:
            told.append(f"No {slice_name(name)} values: {joined(quoted)}; a missing line is not a low one.")
        for arm, last in ended:
            until = f"{arm_name(arm)} has no {slice_name(name)} value after {number(round(last))}"
            told.append(f"{until}: what is gone was not suppressed.")
    return told

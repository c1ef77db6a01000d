"""Says which arms a figure does not show, or not to the end: what is missing is never drawn as zero."""

from __future__ import annotations

import polars as pl

from ptt.diagnostics.comparing.values import Comparison
from ptt.reports.comparing.figures.arms import ENDED, looks
from ptt.reports.comparing.figures.kinds import arm_name, finite, names, of_arm, slices
from ptt.reports.figures.style import short_slice
from ptt.reports.names import joined, slice_name
from ptt.reports.numbers import count, number

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

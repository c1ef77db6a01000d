"""The tables of a comparison's page, finished: tails by thirds with their growth, and settings by arm."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ptt.diagnostics.comparing.phrases import sided
from ptt.diagnostics.comparing.values import Comparison
from ptt.reports.comparing.figures.arms import looks
from ptt.reports.comparing.figures.kinds import AFTER, arm_name, of_arm, rows_of, slices, title_of
from ptt.reports.comparing.swatches import Swatch, swatch
from ptt.reports.foreign import safe, shortened
from ptt.reports.numbers import NO_VALUE, bounds, number, times
from ptt.reports.panels import WINDOW_NAMES

LONGEST_VALUE = 90  # letters of a setting: longer ones are lists or paths, whose ends tell them apart
NOT_RECORDED = "not recorded"


@dataclass(frozen=True, kw_only=True)
class GrowthRow:
    """One arm's tail by thirds, its growth, and that against the baseline's."""

    arm: str
    swatch: Swatch | None
    cells: tuple[tuple[str, str], ...]  # a value, and its interval or nothing


@dataclass(frozen=True, kw_only=True)
class GrowthTable:
    """The tails of all arms for one slice and percentile."""

    title: str
    main: bool  # after tools: shown; others are folded
    rows: tuple[GrowthRow, ...]


@dataclass(frozen=True, kw_only=True)
class SettingRow:
    """One setting and its value in every arm."""

    key: str
    values: tuple[str, ...]


def growth_tables(comparison: Comparison) -> tuple[GrowthTable, ...]:
    """Give one table a slice and percentile, those after tools first."""
    growth, windows = rows_of(comparison, "growth", axis="steps"), rows_of(comparison, "windows", axis="steps")
    if not windows.height:
        return ()
    arms = looks(comparison)
    tables = []
    for name in slices(comparison, "windows"):
        for q in sorted(set(windows.filter(pl.col("slice") == name)["q"].to_list())):
            rows = []
            for arm in comparison.arms:
                here = of_arm(windows, arm.name).filter(pl.col("slice") == name, pl.col("q") == q)
                grown = (
                    of_arm(growth, arm.name).filter(pl.col("slice") == name, pl.col("q") == q)
                    if growth.height
                    else growth
                )
                cells = (*_thirds(here), *_grown(grown, baseline=arm is comparison.arms[0]))
                look = arms.get(arm.name)
                rows.append(
                    GrowthRow(arm=arm_name(arm.name), swatch=None if look is None else swatch(look), cells=cells)
                )
            tables.append(GrowthTable(title=title_of(name, q), main=name in AFTER, rows=tuple(rows)))
    return tuple(tables)


def _thirds(rows: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    found = {row["window"]: row for row in rows.iter_rows(named=True)}
    return tuple(_cell(found.get(window, {}), "value", "lo", "hi", write=number) for window in WINDOW_NAMES)


def _grown(rows: pl.DataFrame, *, baseline: bool) -> tuple[tuple[str, str], ...]:
    row = rows.row(0, named=True) if rows.height else {}
    grown = _cell(row, "growth", "lo", "hi", write=times)
    if baseline:
        return grown, ("—", "")
    return grown, _against(row)


def _against(row: Mapping[str, Any]) -> tuple[str, str]:
    """Tell growth against the baseline's by a factor above 1, less or more, as the sentences do."""
    cell = _cell(row, "suppression", "suppression_lo", "suppression_hi", write=times)
    ratio, low, high = (row.get(name) for name in ("suppression", "suppression_lo", "suppression_hi"))
    if ratio is None or not ratio > 0:
        return cell
    known = low is not None and high is not None and low >= 0 and high >= 0  # of NaN neither holds
    found = sided(ratio, low if low is not None else math.nan, high if high is not None else math.nan, ("less", "more"))
    return f"{times(found.factor)} {found.side}".rstrip(), found.interval(number, 3) if known else cell[1]


def _cell(
    row: Mapping[str, Any], value: str, low: str, high: str, *, write: Callable[[float | None], str]
) -> tuple[str, str]:
    """Give a value, and its interval where there is one."""
    if row.get(value) is None or math.isnan(row[value]):
        return NO_VALUE, ""
    known = all(row.get(end) is not None and not math.isnan(row[end]) for end in (low, high))
    return write(row[value]), bounds(row[low], row[high]) if known else "no interval"


def settings(comparison: Comparison) -> tuple[tuple[SettingRow, ...], ...]:
    """Give the settings that differ, those that are the same, and those of which only one arm tells."""
    frame = rows_of(comparison, "settings")
    differing: list[SettingRow] = []
    alike: list[SettingRow] = []
    alone: list[SettingRow] = []
    for key, rows in frame.group_by("key", maintain_order=True) if frame.height else ():
        found = {row["arm"]: row["value"] for row in rows.iter_rows(named=True)}
        values = tuple(_setting(found.get(arm.name)) for arm in comparison.arms)
        row = SettingRow(key=arm_name(str(key[0])), values=values)
        answers = set(rows["differs"].to_list())
        (differing if True in answers else alike if False in answers else alone).append(row)
    return tuple(differing), tuple(alike), tuple(alone)


def _setting(text: str | None) -> str:
    """Show a value as a person writes it: text without its quotes."""
    if text is None:
        return NOT_RECORDED
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = text
    shown = value if isinstance(value, str) else text
    return shortened(safe(shown), LONGEST_VALUE) or '""'

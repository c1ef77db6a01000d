"""Makes one self-contained HTML file of a comparison, and its figures as files: the same look as a run's report."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from ptt.diagnostics.compare.comparison import Arm, Comparison
from ptt.diagnostics.compare.readings import POST
from ptt.diagnostics.compare.wording import sided
from ptt.diagnostics.model import Status
from ptt.reports.figures.compare import BEHIND, EVERY, FOLDED, MAIN
from ptt.reports.figures.compare.arms import ROW, ArmStyle, arm_styles, draw_key
from ptt.reports.figures.compare.rows import arm_name, matched_range_text, rows_of, slice_title, slices
from ptt.reports.figures.drawing import composed, save_figure
from ptt.reports.figures.panels import Panel
from ptt.reports.figures.style import PROPERTIES, drawable, figure_style
from ptt.reports.output import render
from ptt.reports.run.html import drawn_figure, svg
from ptt.reports.text.names import STATUSES, pair_name, sentence
from ptt.reports.text.numbers import NO_VALUE, bounds, count, counted, number, times
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.tables import WINDOW_NAMES

# a marker's outline around the middle (17, 7) of its sample
SHAPES = {
    "o": "M13.4 7a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
    "s": "M13.8 3.8h6.4v6.4h-6.4z",
    "^": "M17 3l4 7.4h-8z",
    "v": "M17 11l4-7.4h-8z",
    "D": "M17 2.4l4.6 4.6l-4.6 4.6l-4.6-4.6z",
    "P": "M15.6 3h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z",
    "X": "M14 2.6l3 3l3-3l1.4 1.4l-3 3l3 3l-1.4 1.4l-3-3l-3 3l-1.4-1.4l3-3l-3-3z",
    "*": "M17 2l1.3 3.5h3.6l-2.9 2.3l1.1 3.6l-3.1-2.1l-3.1 2.1l1.1-3.6l-2.9-2.3h3.6z",
}


@dataclass(frozen=True, kw_only=True)
class Swatch:
    """A sample of an arm's line, in words of SVG that are all our own."""

    colour: str
    dashes: str
    shape: str


def swatch(look: ArmStyle) -> Swatch:
    """Give a sample of an arm's line."""
    pattern = () if isinstance(look.dash, str) else look.dash[1]
    variable = PROPERTIES[look.colour]
    dashes = " ".join(f"{part * look.width:.3g}" for part in pattern)
    return Swatch(colour=f"var({variable})", dashes=dashes, shape=SHAPES[look.marker])


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
    arms = arm_styles(comparison)
    tables = []
    for name in slices(comparison, "windows"):
        for q in sorted(set(windows.filter(pl.col("slice") == name)["q"].to_list())):
            rows = []
            for arm in comparison.arms:
                here = windows.filter(arm=arm.name).filter(pl.col("slice") == name, pl.col("q") == q)
                grown = (
                    growth.filter(arm=arm.name).filter(pl.col("slice") == name, pl.col("q") == q)
                    if growth.height
                    else growth
                )
                cells = (*_thirds(here), *_grown(grown, baseline=arm is comparison.arms[0]))
                look = arms.get(arm.name)
                rows.append(
                    GrowthRow(arm=arm_name(arm.name), swatch=None if look is None else swatch(look), cells=cells)
                )
            tables.append(GrowthTable(title=slice_title(name, q), main=name in POST, rows=tuple(rows)))
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


ARMS_ACROSS = 4  # more columns of values do not fit a page
ALL_TOLD, FIRST_TOLD = 4, 2  # arms whose sentences all stand on the first screen; sentences of each of more arms
WORST_FIRST = (Status.UNSTABLE, Status.SUSPECT, Status.CANNOT_SAY, Status.HEALTHY)


@dataclass(frozen=True, kw_only=True)
class ArmView:
    """One arm, ready to show; one beyond those drawn has no swatch."""

    name: str
    label: str  # in the figures, where it differs from the name
    baseline: bool
    tagged: bool  # the baseline, under a name that does not say so
    swatch: Swatch | None
    status: str
    status_word: str
    runs: str
    steps: str
    tokens: str


@dataclass(frozen=True, kw_only=True)
class ToldOf:
    """What the comparison says of one arm: the first of it shown, the rest on demand where there are many arms."""

    arm: str
    swatch: Swatch | None
    first: tuple[str, ...]
    rest: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ComparePage:
    """Everything that the page says outside its figures."""

    title: str
    headline: str
    told: tuple[ToldOf, ...]  # of each arm
    general: tuple[str, ...]  # of all
    facts: tuple[tuple[str, str], ...]
    arms: tuple[ArmView, ...]
    growth: tuple[GrowthTable, ...]
    differing: tuple[SettingRow, ...]
    alike: tuple[SettingRow, ...]
    alone: tuple[SettingRow, ...]  # recorded by one arm: nothing to set it against
    arms_down: bool  # of the settings that differ: one row an arm, where there are more arms than settings
    not_compared: tuple[tuple[str, str, str], ...]
    one_run_each: bool


def page(comparison: Comparison) -> ComparePage:
    """Put a comparison into words."""
    told, general = _told(comparison)
    differing, alike, alone = settings(comparison)
    names = frozenset(name for arm in comparison.arms for name in (arm.name, *(one.name for one in arm.members)))
    return ComparePage(
        title=" / ".join(shortened(arm_name(arm.name), 40) for arm in comparison.arms[:3])
        + (" / …" if len(comparison.arms) > 3 else ""),
        headline=safe(comparison.headline),
        told=told,
        general=general,
        facts=_facts(comparison),
        arms=tuple(_arm(comparison, arm, index) for index, arm in enumerate(comparison.arms)),
        growth=growth_tables(comparison),
        differing=differing,
        alike=alike,
        alone=alone,
        arms_down=len(comparison.arms) > max(ARMS_ACROSS, len(differing)),
        not_compared=tuple(
            (sentence(item.what).rstrip("."), _clause(item.reason, names), sentence(item.enable))
            for item in comparison.not_compared
        ),
        one_run_each=all(len(arm.members) == 1 for arm in comparison.arms),
    )


def _clause(text: str, names: frozenset[str]) -> str:
    """Give a clause its capital and full stop, but leave a run's name at its head as it is."""
    named = any(text.startswith(name) for name in names)
    return safe(text).rstrip(".") + "." if named else sentence(text)


def _told(comparison: Comparison) -> tuple[tuple[ToldOf, ...], tuple[str, ...]]:
    """Sort the sentences by the arm that they begin with; a name may begin another, so the longest counts."""
    of_arms: dict[str, list[str]] = {arm.name: [] for arm in comparison.arms}
    cautions: set[str] = set()
    general = []
    for text in comparison.sentences:
        named = max((name for name in of_arms if text.startswith(f"{name}: ")), key=len, default=None)
        if named is None:
            general.append(safe(text))
        else:
            of_arms[named].append(sentence(text[len(named) + 2 :]))
            if text in comparison.cautions:
                cautions.add(of_arms[named][-1])
    shown = len(max(of_arms.values(), key=len, default=[])) if len(of_arms) <= ALL_TOLD else FIRST_TOLD
    drawn = arm_styles(comparison)
    told = tuple(
        ToldOf(
            arm=arm_name(name),
            swatch=swatch(drawn[name]) if name in drawn else None,
            first=(*texts[:shown], *(text for text in texts[shown:] if text in cautions)),
            rest=tuple(text for text in texts[shown:] if text not in cautions),
        )
        for name, texts in of_arms.items()
        if texts
    )
    return told, tuple(general)


def _facts(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    runs = sum(len(arm.members) for arm in comparison.arms)
    pair = pair_name(comparison.pair) if comparison.pair else "none that all arms share"
    told = [
        ("Arms", f"{count(len(comparison.arms))} ({counted(runs, 'run')})"),
        ("Baseline", arm_name(comparison.arms[0].name) if comparison.arms else "none"),
        ("Pair", pair),
    ]
    for axis, name in (("steps", "Matched by steps"), ("tokens", "Matched by tokens")):
        told.append((name, matched_range_text(comparison, axis) or "not possible"))
    return tuple(told)


def _arm(comparison: Comparison, arm: Arm, index: int) -> ArmView:
    look = arm_styles(comparison).get(arm.name)
    statuses = Counter(member.diagnosis.verdict.status for member in arm.members)
    worst = next((status for status in WORST_FIRST if statuses[status]), Status.CANNOT_SAY)
    words = [
        STATUSES[status] if len(arm.members) == 1 else f"{count(statuses[status])} {STATUSES[status].lower()}"
        for status in WORST_FIRST
        if statuses[status]
    ]
    label = look.label if look is not None and look.label != arm.name else ""
    runs = [member.diagnosis.run for member in arm.members]
    return ArmView(
        name=arm_name(arm.name),
        label=label,
        baseline=index == 0,
        tagged=index == 0 and arm.name != "baseline",
        swatch=None if look is None else swatch(look),
        status=worst.value,
        status_word=", ".join(words) or STATUSES[Status.CANNOT_SAY],
        runs=", ".join(arm_name(member.name) for member in arm.members),
        steps=_range(run.step_count for run in runs),
        tokens=_range(run.model_tokens for run in runs),
    )


def _range(values: Iterable[int]) -> str:
    every = sorted(set(values))
    if not every:
        return "none"
    return count(every[0]) if len(every) == 1 else f"{count(every[0])} to {count(every[-1])}"


TEMPLATE = "compare.html.j2"


def render_compare_html(comparison: Comparison) -> str:
    """Give the text of compare.html; the same comparison gives the same bytes."""
    main, behind, folded = (
        tuple(figure for kind in kinds if (figure := drawn_figure(kind, comparison)).panels)
        for kinds in (MAIN, BEHIND, FOLDED)
    )
    drawn = {figure.name for figure in (*main, *behind, *folded)}
    return render(
        TEMPLATE,
        svg=svg,
        compared=page(comparison),
        main=main,
        behind=behind,
        folded=folded,
        undrawn=tuple(
            f"{kind.title}: not drawn. {sentence(reason)}"
            for kind in EVERY
            if kind.name not in drawn and (reason := kind.absence(comparison))
        ),
    )


def write_compare_figures(comparison: Comparison, folder: Path) -> list[Path]:
    """Write every figure that has data as SVG and PNG, in the light colours on white."""
    written: list[Path] = []
    for kind in EVERY:
        panels = tuple(panel for panel in kind.panels(comparison) if panel.shown != "narrow")
        if not panels:
            continue
        if kind.keyed:
            panels = (*panels, _key(comparison, panels[0]))
        pair = drawable(comparison.pair or "not named")
        with figure_style(kind.name):
            written += save_figure(composed(f"{kind.title} · pair {pair}", kind.columns, panels), folder, kind.name)
    return written


def _key(comparison: Comparison, beside: Panel) -> Panel:
    arms = tuple(arm_styles(comparison).values())
    height = max(beside.height, round(60 + ROW * len(arms)))
    return replace(beside, key="compare-key", title="Arms", draw=partial(draw_key, styles=arms), height=height)

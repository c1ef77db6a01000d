"""Makes one self-contained HTML file of a comparison, and its figures as files: the same look as a run's report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from ptt.diagnostics.compare.comparison import POST, Arm, Comparison, sided
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Status
from ptt.reports.compare.texts import setting_rows
from ptt.reports.figures.compare import BEHIND, EVERY, FOLDED, MAIN
from ptt.reports.figures.compare.arms import ROW, ArmStyle, arm_styles, draw_key
from ptt.reports.figures.compare.rows import MAX_NAME, arm_name, matched_range_text, rows_of, slice_title, slices
from ptt.reports.figures.drawing import save_figures
from ptt.reports.figures.faults import FigureFault
from ptt.reports.figures.panels import Panel
from ptt.reports.figures.style import PROPERTIES, drawable
from ptt.reports.output import render
from ptt.reports.run.drawn import drawn_figures, fault_lines
from ptt.reports.run.html import Page
from ptt.reports.text.names import STATUSES, pair_name, sentence
from ptt.reports.text.numbers import NO_VALUE, bounds, count, counted, number, times
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.tables import WINDOW_NAMES

MAX_VALUE = 90  # letters of a setting: longer ones are lists or paths, whose ends tell them apart
NOT_RECORDED = "not recorded"
MAX_ARMS_ACROSS = 4  # more columns of values do not fit a page
# arms whose sentences all stand on the first screen; sentences of each of more arms
MAX_FULL_ARMS, FIRST_SENTENCES = 4, 2
WORST_FIRST = (Status.UNSTABLE, Status.SUSPECT, Status.CANNOT_SAY, Status.HEALTHY)
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
class LegendSample:
    """A sample of an arm's line, in words of SVG that are all our own."""

    colour: str
    dashes: str
    shape: str


def legend_sample(style: ArmStyle | None) -> LegendSample | None:
    """Return a sample of an arm's line; None for an arm that is not drawn."""
    if style is None:
        return None
    pattern = () if isinstance(style.dash, str) else style.dash[1]
    dashes = " ".join(f"{part * style.width:.3g}" for part in pattern)
    return LegendSample(colour=f"var({PROPERTIES[style.colour]})", dashes=dashes, shape=SHAPES[style.marker])


@dataclass(frozen=True, kw_only=True)
class GrowthRow:
    """One arm's tail by thirds, its growth, and that against the baseline's."""

    arm: str
    sample: LegendSample | None
    cells: tuple[tuple[str, str], ...]  # a value, and its interval or nothing


@dataclass(frozen=True, kw_only=True)
class GrowthTable:
    """The tails of all arms for one slice and percentile."""

    title: str
    main: bool  # after tools: shown; others are folded
    rows: tuple[GrowthRow, ...]


def growth_tables(comparison: Comparison) -> tuple[GrowthTable, ...]:
    """Return one table for each slice and percentile, those after tools first."""
    growth, windows = (rows_of(comparison, table, axis="steps") for table in ("growth", "windows"))
    styles, tables = arm_styles(comparison), []
    for name in slices(comparison, "windows") if windows.height else ():
        for q in windows.filter(slice=name)["q"].unique().sort():
            rows = []
            for arm in comparison.arms:
                key = {"arm": arm.name, "slice": name, "q": q}
                grown = next(growth.filter(**key).iter_rows(named=True), {})
                against = ("—", "") if arm is comparison.arms[0] else _against_baseline(grown)
                cells = (*_thirds(windows.filter(**key)), _cell(grown, "growth", "lo", "hi", write=times), against)
                rows.append(GrowthRow(arm=arm_name(arm.name), sample=legend_sample(styles.get(arm.name)), cells=cells))
            tables.append(GrowthTable(title=slice_title(name, q), main=name in POST, rows=tuple(rows)))
    return tuple(tables)


def _thirds(rows: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    by_window = {row["window"]: row for row in rows.iter_rows(named=True)}
    return tuple(_cell(by_window.get(window, {}), "value", "lo", "hi", write=number) for window in WINDOW_NAMES)


def _against_baseline(row: Mapping[str, Any]) -> tuple[str, str]:
    """Write growth against the baseline's as a factor above 1, less or more, as the sentences do."""
    cell = _cell(row, "suppression", "suppression_lo", "suppression_hi", write=times)
    ratio, low, high = (row.get(name) for name in ("suppression", "suppression_lo", "suppression_hi"))
    if ratio is None or not ratio > 0:
        return cell
    known = low is not None and high is not None and low >= 0 and high >= 0  # of NaN neither holds
    nan = math.nan
    factor = sided(ratio, nan if low is None else low, nan if high is None else high, ("less", "more"))
    return f"{times(factor.factor)} {factor.side}".rstrip(), factor.interval(number, 3) if known else cell[1]


def _cell(
    row: Mapping[str, Any], value: str, low: str, high: str, *, write: Callable[[float | None], str]
) -> tuple[str, str]:
    """Return a value, and its interval where there is one."""
    if row.get(value) is None or math.isnan(row[value]):
        return NO_VALUE, ""
    known = all(row.get(end) is not None and not math.isnan(row[end]) for end in (low, high))
    return write(row[value]), bounds(row[low], row[high]) if known else "no interval"


def page(comparison: Comparison) -> dict[str, object]:
    """Return everything that the page says outside its figures."""
    arm_sentences, general = _sentences(comparison)
    settings = partial(
        setting_rows, comparison, missing=NOT_RECORDED, empty='""', max_key=MAX_NAME, max_value=MAX_VALUE
    )
    differing = settings(differs=True)
    names = frozenset(name for arm in comparison.arms for name in (arm.name, *(run.name for run in arm.members)))
    return {
        "title": " / ".join(shortened(arm_name(arm.name), 40) for arm in comparison.arms[:3])
        + (" / …" if len(comparison.arms) > 3 else ""),
        "headline": safe(comparison.headline),
        "arm_sentences": arm_sentences,
        "general": general,
        "facts": _facts(comparison),
        "arms": [_arm(comparison, arm) for arm in comparison.arms],
        "growth": growth_tables(comparison),
        "differing": differing,
        "same": settings(differs=False),
        "one_sided": settings(differs=None),  # recorded by one arm: nothing to set it against
        # of the settings that differ: one row an arm, where there are more arms than settings
        "arms_down": len(comparison.arms) > max(MAX_ARMS_ACROSS, len(differing)),
        "not_compared": [
            (sentence(item.what).rstrip("."), _clause(item.reason, names), sentence(item.enable))
            for item in comparison.not_compared
        ],
        "one_run_each": all(len(arm.members) == 1 for arm in comparison.arms),
    }


def _clause(text: str, names: frozenset[str]) -> str:
    """Return a clause with its capital and full stop; a run's name at its head keeps its case."""
    return safe(text).rstrip(".") + "." if text.startswith(tuple(names)) else sentence(text)


def _sentences(comparison: Comparison) -> tuple[list[dict[str, object]], list[str]]:
    """Sort the sentences by the arm that they begin with; one name may begin another, so the longest counts."""
    by_arm: dict[str, list[str]] = {arm.name: [] for arm in comparison.arms}
    cautions: set[str] = set()
    general = []
    for text in comparison.sentences:
        named = max((name for name in by_arm if text.startswith(f"{name}: ")), key=len, default=None)
        if named is None:
            general.append(safe(text))
            continue
        by_arm[named].append(sentence(text[len(named) + 2 :]))
        if text in comparison.cautions:
            cautions.add(by_arm[named][-1])
    shown = None if len(by_arm) <= MAX_FULL_ARMS else FIRST_SENTENCES
    styles = arm_styles(comparison)
    return (
        [
            {
                "arm": arm_name(name),
                "sample": legend_sample(styles.get(name)),
                "first": [*texts[:shown], *(text for text in rest if text in cautions)],
                "rest": [text for text in rest if text not in cautions],  # shown on demand
            }
            for name, texts in by_arm.items()
            if texts
            for rest in (texts[len(texts[:shown]) :],)
        ],
        general,
    )


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    runs = sum(len(arm.members) for arm in comparison.arms)
    return [
        ("Arms", f"{count(len(comparison.arms))} ({counted(runs, 'run')})"),
        ("Baseline", arm_name(comparison.arms[0].name)),
        ("Pair", pair_name(comparison.pair) if comparison.pair else "none shared by all arms"),
        ("Matched by steps", matched_range_text(comparison, "steps") or "not possible"),
        ("Matched by tokens", matched_range_text(comparison, "tokens") or "not possible"),
    ]


def _arm(comparison: Comparison, arm: Arm) -> dict[str, object]:
    style = arm_styles(comparison).get(arm.name)
    baseline = arm is comparison.arms[0]
    statuses = Counter(member.diagnosis.verdict.status for member in arm.members)
    present = [status for status in WORST_FIRST if statuses[status]]
    words = [
        STATUSES[status] if len(arm.members) == 1 else f"{count(statuses[status])} {STATUSES[status].lower()}"
        for status in present
    ]
    runs = [member.diagnosis.run for member in arm.members]
    return {
        "name": arm_name(arm.name),
        "label": style.label if style is not None and style.label != arm.name else "",  # in the figures
        "baseline": baseline,
        "tagged": baseline and arm.name != "baseline",  # under a name that does not say so
        "sample": legend_sample(style),  # None beyond the arms drawn
        "status": present[0],
        "status_word": ", ".join(words),
        "runs": ", ".join(arm_name(member.name) for member in arm.members),
        "steps": _range(run.step_count for run in runs),
        "tokens": _range(run.model_tokens for run in runs),
    }


def _range(values: Iterable[int]) -> str:
    ends = sorted(values)
    return " to ".join(dict.fromkeys((count(ends[0]), count(ends[-1]))))


def render_compare_page(comparison: Comparison) -> Page:
    """Return compare.html, always the same bytes; a line stands in the place of a figure that cannot be drawn."""
    faults: list[FigureFault] = []
    main, behind, folded = (
        [figure for figure in drawn_figures(kinds, comparison, faults) if figure.panels]
        for kinds in (MAIN, BEHIND, FOLDED)
    )
    drawn = {figure.name for figure in (*main, *behind, *folded)} | {fault.name for fault in faults}
    absences = [
        f"{kind.title}: not drawn. {sentence(reason)}"
        for kind in EVERY
        if kind.name not in drawn and (reason := kind.absence(comparison))
    ]
    text = render(
        "compare.html.j2",
        compared=page(comparison),
        main=main,
        behind=behind,
        folded=folded,
        undrawn=[*absences, *fault_lines(faults)],
    )
    return Page(text=text, faults=tuple(faults))


def write_compare_figures(comparison: Comparison, folder: Path, faults: list[FigureFault] | None = None) -> list[Path]:
    """Write every figure that has data as SVG and PNG, in the light colours on white."""
    styles = tuple(arm_styles(comparison).values())

    def key(beside: Panel) -> Panel:
        height = max(beside.height, round(60 + ROW * len(styles)))
        return replace(beside, key="compare-key", title="Arms", draw=partial(draw_key, styles=styles), height=height)

    return save_figures(EVERY, comparison, f"pair {drawable(comparison.pair or 'not named')}", folder, key, faults)

"""What a run did, as its page shows it: the sentences, and a row for each series with its course as a small line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Diagnosis, SeriesOutcome, in_unit
from ptt.reports.text.numbers import bounds, count, counted, percent, with_unit
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.tables import table

SHOWN: Final = 8  # rows beside the sentences; the others are folded
MAX_NAME: Final = 60
WIDTH, HEIGHT = 96.0, 22.0
NONE: Final = "–"
MOVEMENTS: Final = ("rose", "fell", "flat")


@dataclass(frozen=True, kw_only=True)
class SeriesRow:
    """One series as the page tells it."""

    name: str
    logged_as: str  # where prose has another name for it
    start: str
    end: str
    best: str
    change: str
    since: str
    notes: str
    line: str  # path of its course; empty where its values are not at hand


@dataclass(frozen=True, kw_only=True)
class OutcomeView:
    """The sentences, with names as logged in backticks, the series that are shown, and those that are folded."""

    said: str
    shown: tuple[SeriesRow, ...]
    folded: tuple[SeriesRow, ...]
    left_out: str


def said_beside_headline(diagnosis: Diagnosis) -> str:
    """Return what a run did (less what its headline says), where it could have been stopped, and what it cost."""
    outcome = diagnosis.outcome
    said = outcome.said if outcome else ""
    if outcome and outcome.did and outcome.did in diagnosis.verdict.headline:
        said = said.replace(outcome.did, "")
    stop = in_unit(diagnosis.stop.said, diagnosis.run.step_unit) if diagnosis.stop else ""
    cost = diagnosis.cost.said if diagnosis.cost is not None else ""
    return " ".join(f"{said} {stop} {cost}".split())


def outcome_view(diagnosis: Diagnosis) -> OutcomeView | None:
    """Return what a run did; None where nobody described it."""
    outcome = diagnosis.outcome
    if outcome is None:
        return None
    courses = _courses(diagnosis)
    telling = sorted(outcome.series, key=lambda one: not one.label)[:SHOWN]  # what has a name first, else as they stand
    rows = [_row(one, courses) for one in [*telling, *(one for one in outcome.series if one not in telling)]]
    left = f"{count(outcome.series_left_out)} more series are not listed." if outcome.series_left_out else ""
    said = safe(said_beside_headline(diagnosis))
    return OutcomeView(said=said, shown=tuple(rows[:SHOWN]), folded=tuple(rows[SHOWN:]), left_out=left)


Courses = Mapping[tuple[str, str], pl.DataFrame]


def _courses(diagnosis: Diagnosis) -> Courses:
    """Return step and value of the series at hand, by split and logged name."""
    courses = table(diagnosis, "courses")
    groups = [] if courses is None else courses.partition_by("split", "logged_as", as_dict=True).items()
    return {(str(split), str(name)): group for (split, name), group in groups}


def _row(one: SeriesOutcome, courses: Courses) -> SeriesRow:
    logged_as = shortened(safe(one.logged_as), MAX_NAME)
    return SeriesRow(
        name=one.label or logged_as,
        logged_as=logged_as if one.label and one.logged_as not in one.label else "",
        start=_value(one.first, one.unit),
        end=_value(one.last, one.unit),
        best=NONE if one.best is None else f"{_value(one.best)} at {count(one.best_step or 0)}",
        change=_change(one),
        since=NONE if one.changed_at is None else count(one.changed_at),
        notes=_notes(one),
        line=_line(courses.get((one.split, one.logged_as))),
    )


def _value(value: float | None, unit: str = "") -> str:
    return NONE if value is None else with_unit(value, unit)


def _change(one: SeriesOutcome) -> str:
    if one.change is None:
        return NONE
    return f"{one.movement} ({bounds(*one.change)})" if one.movement in MOVEMENTS else bounds(*one.change)


def _notes(one: SeriesOutcome) -> str:
    logged = one.count + one.not_finite
    notes = [
        f"{count(one.not_finite)} of {count(logged)} not finite" if one.not_finite else "",
        f"exactly 0 at {percent(one.at_zero)}" if one.at_zero and one.low != one.high else "",
        f"ends at its {'lowest' if one.bound == one.low else 'highest'} value" if one.bound is not None else "",
        counted(one.spikes, "spike") if one.spikes else "",
        "still moving" if one.still_moving else "",
    ]
    return ", ".join(filter(None, notes))


def _line(course: pl.DataFrame | None) -> str:
    """Return the path of a course in a box of WIDTH by HEIGHT; empty for fewer than two values."""
    if course is None or course.height < 2:
        return ""
    steps, values = (course[name].to_numpy().astype(np.float64) for name in ("step", "value"))
    low, spread = float(values.min()), float(np.ptp(values))
    left = (steps - steps[0]) / (steps[-1] - steps[0]) * WIDTH
    top = HEIGHT - (values - low) / spread * HEIGHT if spread else np.full(len(values), HEIGHT / 2)
    return "M" + " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(left.tolist(), top.tolist(), strict=True))

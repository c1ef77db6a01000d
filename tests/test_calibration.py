"""A small part of the calibration bench in every test run, and that its tables report failure as failure."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

from benchmarks import naive
from benchmarks.calibration import GROWING, SEEDS, summary, table
from benchmarks.designs import BLIND, CLASSES, NEGATIVE, base
from benchmarks.outcomes import Outcome, outcome
from ptt.diagnostics.model import Answer

pytestmark = pytest.mark.slow

RUNS = 2  # of each class
MOST_TOKENS = 150_000  # of a run here: the bench's go up to 400,000
RIGHT = Outcome(
    kind="stable",
    answer=Answer.NOT_FOUND,
    aggregates="quiet",
    alarms_truly=False,
    onset_error=None,
    covered=None,
    lead=None,
    naive=(False, True, False),
)


def small_seeds(kind: str) -> list[int]:
    """Give the first seeds of the tests' own block whose run is small."""
    drawn = ((seed, base(kind, np.random.default_rng([seed, CLASSES.index(kind)]))) for seed in SEEDS["tests"])
    small = (seed for seed, one in drawn if one.steps * one.per_step * one.length <= MOST_TOKENS)
    return list(islice(small, RUNS))


@cache
def outcomes(kind: str) -> tuple[Outcome, ...]:
    return tuple(outcome((kind, seed)) for seed in small_seeds(kind))


@pytest.mark.parametrize("kind", NEGATIVE)
def test_a_run_without_the_signature_raises_no_alarm(kind: str) -> None:
    assert len(outcomes(kind)) == RUNS
    assert Answer.FOUND not in {one.answer for one in outcomes(kind)}


@pytest.mark.parametrize("kind", ["growth 4x", "growth 10x"])
def test_large_growth_is_found(kind: str) -> None:
    assert [one.answer for one in outcomes(kind)] == [Answer.FOUND] * RUNS
    assert all(one.onset_error is not None and one.onset_error < 0.25 for one in outcomes(kind))


@pytest.mark.parametrize("kind", BLIND)
def test_a_run_of_which_nothing_can_be_said_is_not_judged(kind: str) -> None:
    assert [one.answer for one in outcomes(kind)] == [Answer.CANNOT_SAY] * RUNS


@pytest.mark.parametrize("kind", CLASSES)
def test_the_usual_curves_alarm_where_they_truly_do(kind: str) -> None:
    for one in outcomes(kind):
        assert (one.aggregates == "alarming") == one.alarms_truly


def made(found: float, *, blind: Answer = Answer.CANNOT_SAY) -> list[Outcome]:
    """Twenty runs a class: right, but that only `found` of those with the signature are."""
    every = []
    for kind in CLASSES:
        answer = blind if kind in BLIND else Answer.FOUND if kind in GROWING else Answer.NOT_FOUND
        for number in range(20):
            missed = kind in GROWING and number >= found * 20
            every.append(replace(RIGHT, kind=kind, answer=Answer.NOT_FOUND if missed else answer))
    return every


def failed(every: list[Outcome]) -> set[str]:
    return {line.split(":")[0].removeprefix("FAIL ") for line in summary(every) if line.startswith("FAIL")}


def test_the_summary_passes_what_is_right_and_fails_each_figure_that_is_not() -> None:
    assert failed(made(1.0)) == set()
    late = "growth in the last fifth found or told"
    assert failed(made(0.85)) == {"recall at 2.5x or more", late}
    missed = {"recall at 2.5x or more", "recall at 1.6x", "recall by nats", "recall of growth in the last fifth", late}
    assert failed(made(0.5)) == missed
    assert failed(made(1.0, blind=Answer.NOT_FOUND)) == {"cannot say where nothing can be said"}
    alarmed = [replace(one, answer=Answer.FOUND) if one.kind == "hump" else one for one in made(1.0)]
    assert failed(alarmed) == {"false alarms"}
    assert failed([replace(one, alarms_truly=True) for one in made(1.0)]) == {"aggregates right"}


def test_without_runs_no_figure_passes() -> None:
    with np.errstate(invalid="ignore"), pytest.warns(RuntimeWarning, match="empty"):
        assert not [line for line in summary([]) if line.startswith("PASS")]


def test_the_table_shows_every_class_with_the_naive_detectors_alarms() -> None:
    head, _, *rows = table(made(0.85))
    names = [cell.strip() for cell in head.strip("|").split("|")]
    assert names[-len(naive.NAMES) :] == list(naive.NAMES)
    cells = {row[0]: dict(zip(names, row, strict=True)) for row in (_cells(row) for row in rows)}
    assert list(cells) == list(CLASSES)
    assert {row["mean KL"] for row in cells.values()} == {"100%"}
    assert {row["KS on tokens"] for row in cells.values()} == {"0%"}
    assert cells["growth 4x"]["recall"] == "85.0%"
    assert cells["hump"]["false alarms"] == "0.0%"
    wrong = [replace(one, answer=Answer.FOUND) for one in made(1.0) if one.kind == "hump"]
    assert _cells(table(wrong)[2])[names.index("false alarms")] == "100.0%"


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]

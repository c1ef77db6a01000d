"""Made healthy runs of every kind are accused of nothing; the bench of power finds what it plants."""

from __future__ import annotations

import pytest

from benchmarks.healthy_runs import KINDS, SEEDS, Task, judge
from benchmarks.rule_power import CASES, HEADING, Case, shares, with_section

ROWS = 100


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_run_of_every_kind_is_accused_of_nothing(kind: str) -> None:
    assert judge(Task(kind=kind, rows=ROWS, seed=SEEDS["tests"])).alarms == ()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
def test_a_fault_shows_in_a_thousand_rows_and_its_sound_twin_raises_nothing(case: Case) -> None:
    found, noted = shares(case, case.broken, 1000, draws=20)
    assert max(found, noted) >= 0.8
    assert shares(case, case.sound, 1000, draws=20)[0] == 0.0


def test_the_table_takes_the_place_of_the_one_before() -> None:
    page = with_section("# Page\n\nText.\n", f"{HEADING}\n\nfirst\n")
    assert with_section(page, f"{HEADING}\n\nsecond\n") == f"# Page\n\nText.\n\n{HEADING}\n\nsecond\n"

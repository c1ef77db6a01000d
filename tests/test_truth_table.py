"""A small part of the truth table in every test run, and that the table itself tells right from wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.loop.faults import FAULTS, Fault
from benchmarks.loop.faults.fault import TOOLS
from benchmarks.loop.files import evaluated, named, write
from benchmarks.loop.healthy import healthy
from benchmarks.loop.judged import Judged, Task, Told, judge, make, sizes_of
from benchmarks.loop.made import ALGORITHMS, Made
from benchmarks.loop.page import KNOWN, page, summary
from benchmarks.loop.real import FITS, real
from benchmarks.loop.rival import ABOUT, convert
from benchmarks.loop_truth import SEEDS

pytestmark = pytest.mark.slow

SEED = SEEDS["tests"]
HEALTHY = 4  # of each algorithm
ACCUSED = 1  # of all of these, at most: two in a hundred
WELL = 0.95
IDS = [fault.name for fault in FAULTS]
RULED = [fault for fault in FAULTS if fault.ids[0] in KNOWN and (fault.algorithms != TOOLS or fault.name not in KNOWN)]
"""Faults that rules find; what runs with tools show of a rule's name is judged in rules/test_faults_of_rules.py."""


@cache
def well() -> tuple[Judged, ...]:
    return tuple(
        judge(Task(algorithm=algorithm, seed=SEED + number)) for algorithm in ALGORITHMS for number in range(HEALTHY)
    )


@cache
def broken() -> tuple[Judged, ...]:
    return tuple(judge(Task(algorithm=fault.algorithms[0], seed=SEED + 1, fault=fault.name)) for fault in RULED[::2])


def test_healthy_runs_are_left_alone() -> None:
    assert sum(bool(one.alarms) for one in well()) <= ACCUSED, [
        (one.task.title, one.alarms) for one in well() if one.alarms
    ]


def test_what_is_broken_is_named() -> None:
    missed = [one.task.title for one in broken() if one.naming is None]
    assert len(missed) <= max(1, (1 - WELL) * len(broken())), missed


def test_no_rule_crashes_on_any_of_them() -> None:
    assert [one.crashes for one in (*well(), *broken()) if one.crashes] == []


@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_a_fault_changes_the_run_from_its_onset_on_and_says_which(fault: Fault) -> None:
    run = healthy(fault.algorithms[-1], SEED, dialects=fault.dialects)
    kept = run.copy()
    made, onset = fault.inject(run, 1.0)
    again, same = fault.inject(run, 1.0)
    assert onset == same
    assert told(made) == told(again)
    assert told(run) == told(kept)
    assert told(made) != told(run)
    assert (onset == run.steps[0]) == fault.of_start
    assert run.steps[0] <= onset <= run.steps[-1]


def told(run: Made) -> tuple[object, ...]:
    """Give all that a run writes."""
    columns = {name: list(map(repr, values)) for name, values in (named(run) | evaluated(run)).items()}
    return columns, list(run.steps), run.samples, run.lines


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_seed_writes_the_same_bytes(algorithm: str, tmp_path: Path) -> None:
    folders = [write(healthy(algorithm, SEED + 2), tmp_path / name) for name in ("one", "two")]
    files = [{path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()} for folder in folders]
    assert files[0] == files[1]
    other = write(healthy(algorithm, SEED + 5), tmp_path / "three")
    assert {path.name: path.read_bytes() for path in other.rglob("*") if path.is_file()} != files[0]


def test_a_real_run_can_have_the_faults_that_fit_it() -> None:
    for name in FITS:
        task = Task(algorithm="real grpo-tools", seed=1, fault=name)
        assert told(make(task)[0]) != told(real())


def test_a_restart_repeats_steps(tmp_path: Path) -> None:
    run = replace(healthy("ppo", SEED), restart=(60, 50))
    lines = (write(run, tmp_path) / "experiment.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps[58:62] == [59, 60, 51, 52]
    assert len(steps) == run.count + 10


def test_the_other_tool_gets_its_own_names_and_no_nan(tmp_path: Path) -> None:
    run = make(Task(algorithm="ppo", seed=SEED, fault="metrics-lost"))[0]
    head, first, *_, last = convert(run, tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(head)["trainer_type"] == "ppo"
    assert {"ppo_loss", "kl", "reward_mean", "value_loss"} <= json.loads(first)["metrics"].keys()
    assert "ppo_loss" not in json.loads(last)["metrics"]
    assert ABOUT.keys() <= set(IDS)


FOUND = Told(id="kl-over-target", severity="high", link="policy_update", onset=120, cause=None)
OTHER = Told(id="reward-fell", severity="medium", link="reward", onset=150, cause=None)
RIGHT = Judged(
    task=Task(algorithm="ppo", seed=1, fault="kl-over-target"),
    dialect="verl",
    steps=300,
    onset=110,
    findings=(FOUND,),
    headline="…",
    first_link="policy_update",
    crashes=(),
)


def test_right_is_told_from_wrong() -> None:
    assert (RIGHT.naming, RIGHT.headed, RIGHT.roots) == (FOUND, True, ("kl-over-target",))
    two = replace(RIGHT, findings=(FOUND, OTHER), first_link="reward")
    assert (two.naming, two.headed, two.roots) == (FOUND, False, ("kl-over-target", "reward-fell"))
    under = replace(RIGHT, findings=(replace(FOUND, cause="reward-fell"), OTHER), first_link="reward")
    assert (under.headed, under.roots) == (False, ("reward-fell",))
    quiet = replace(RIGHT, findings=(replace(FOUND, severity="low"),), first_link=None)
    assert (quiet.naming, quiet.headed, quiet.alarms) == (None, False, ())


def test_the_page_counts_what_was_named_and_what_was_missed() -> None:
    sound = replace(RIGHT, task=Task(algorithm="ppo", seed=1), onset=None, findings=())
    accused = replace(sound, findings=(OTHER,))
    missed = replace(RIGHT, findings=())
    text = page([sound] * 3 + [accused] + [RIGHT] * 3 + [missed], None, "make it")
    assert "| ppo | 4 | 1 | 25.0% | `reward-fell` 1 |" in text
    row = next(line for line in text.splitlines() if line.startswith("| kl-over-target, usual"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[4:] == ["4", "75%", "kl-over-target 3, missed 1", "75%", "0.8", "+10 (+10 to +10)"]
    assert [line.split(":")[0] for line in summary([sound, RIGHT])] == [
        "PASS healthy ppo accused",
        "PASS faults named",
        "PASS faults with the right headline",
        "PASS faults with one root finding",
        "PASS runs in which a rule crashed",
    ]
    assert {line.split()[0] for line in summary([accused, missed])} == {"FAIL", "PASS"}


def test_runs_over_random_spans_begin_anywhere_at_any_size_and_are_counted_apart() -> None:
    broken = [Task(algorithm="grpo", seed=SEED + number, fault="kl-over-target", spanned=True) for number in range(12)]
    drawn = [(make(task), healthy("grpo", task.seed)) for task in broken]
    places = [(onset - run.steps[0]) / (run.steps[-1] - run.steps[0]) for (run, onset), _ in drawn if onset is not None]
    assert min(places) < 0.3 < 0.7 < max(places)
    assert len({int(np.diff(run.steps).max()) for (run, _), _ in drawn}) > 2
    late = replace(RIGHT, task=broken[0], place=0.8, size=0.6, findings=())
    early = replace(RIGHT, task=broken[0], place=0.4, size=1.2)
    text = page([RIGHT, late, early], None, "make it")
    assert "PASS faults over random spans named: 100.0% of 1" in text
    assert "| 0 to 0.7 of the usual | 70% to 100% of the run | 1 | 0% |" in text


def test_sizes_are_of_the_usual_one() -> None:
    for fault in FAULTS:
        assert sizes_of(fault)["usual"] == 1.0
        assert np.all(np.diff(list(sizes_of(fault).values())) > 0)

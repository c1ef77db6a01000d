"""From a command line to arms: names, groups, the baseline, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import run_of

from ptt.diagnostics.compare.arms import arms_of, group_of, names_of, planned
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.model import Aggregates, Answer, Signature
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.verdict.headline import verdict_of


def folders(place: Path, *names: str) -> list[Path]:
    for name in names:
        (place / name).mkdir(parents=True)
    return [place / name for name in names]


def opened(source: str) -> LoadedRun:
    signature = Signature(
        status=Answer.CANNOT_SAY, reason="", pair=None, aggregates=Aggregates(status="quiet", metrics={}, alarms={})
    )
    diagnosis = verdict_of(run=run_of(), signature=signature, verdicts=[], crashes=[], sources=[], tables={})
    return LoadedRun(diagnosis=diagnosis, profile=None, why_no_profile="none", source=source, kind="run")


def test_runs_are_called_by_their_folder_and_equal_names_take_the_folder_around_along(tmp_path: Path) -> None:
    runs = folders(tmp_path, "a/run", "b/run", "other")
    assert names_of(runs) == ["a-run", "b-run", "other"]


def test_what_diagnose_left_is_called_by_the_folder_around_it(tmp_path: Path) -> None:
    (tmp_path / "kl").mkdir()
    (tmp_path / "kl" / "findings.json").write_text("{}", encoding="utf-8")
    assert names_of([tmp_path / "kl" / "findings.json", tmp_path / "base" / "store"]) == ["kl", "base"]


def test_the_first_run_is_the_baseline_unless_another_is_named(tmp_path: Path) -> None:
    runs = folders(tmp_path, "one", "two", "three")
    assert [name for name, _ in planned(runs, {}, None).arms] == ["one", "two", "three"]
    assert [name for name, _ in planned(runs, {}, "three").arms] == ["three", "one", "two"]


def test_a_group_is_one_arm_where_its_first_run_stands(tmp_path: Path) -> None:
    runs = folders(tmp_path, "s1", "kl1", "s2", "kl2")
    found = planned(runs, {"base": ("s1", "s2"), "kl": ("kl1", str(runs[3]))}, None)
    assert found.arms == (("base", (0, 2)), ("kl", (1, 3)))


def test_a_group_may_name_runs_by_their_path_alone(tmp_path: Path) -> None:
    runs = folders(tmp_path, "s1", "s2", "kl1")
    found = planned([], {"base": (str(runs[0]), str(runs[1])), "kl": (str(runs[2]),)}, "kl")
    assert found.arms == (("kl", (2,)), ("base", (0, 1)))


@pytest.mark.parametrize(
    ("runs", "groups", "baseline", "says"),
    [
        (["one"], {}, None, "at least two"),
        ([], {}, None, "at least two"),
        (["one", "one"], {}, None, "given twice"),
        (["one", "two"], {"g": ("one", "two")}, None, "at least two"),
        (["one", "two"], {"g": ("nowhere",)}, None, "the runs are one, two"),
        (["one", "two"], {"g": ("one",), "h": ("one",)}, None, "belongs to one arm"),
        (["one", "two", "three"], {"two": ("one", "three")}, None, "rename the group"),
        (["one", "two"], {}, "none", "the arms are one, two"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_do(
    tmp_path: Path, runs: list[str], groups: dict[str, tuple[str, ...]], baseline: str | None, says: str
) -> None:
    folders(tmp_path, "one", "two", "three")
    with pytest.raises(SettingsError, match=says):
        planned([tmp_path / name for name in runs], groups, baseline)


@pytest.mark.parametrize("text", ["kl", "kl=", "=a,b", "kl= , ", ""])
def test_a_group_that_is_not_written_as_one_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="NAME=RUN,RUN"):
        group_of(text)


def test_a_group_reads_its_name_and_runs() -> None:
    assert group_of(" kl = a , b ") == ("kl", ("a", "b"))


def test_the_same_files_twice_in_one_arm_would_pass_for_two_seeds(tmp_path: Path) -> None:
    runs = folders(tmp_path, "one", "copy", "two")
    plan = planned(runs, {"g": ("one", "copy")}, None)
    with pytest.raises(SettingsError, match="have the same files"):
        arms_of(plan, [opened("x"), opened("x"), opened("y")])
    arms = arms_of(plan, [opened("x"), replace(opened("z")), opened("x")])
    assert [[member.name for member in arm.members] for arm in arms] == [["one", "copy"], ["two"]]

"""A small part of the whole gate's calibration in every test run, and that its section tells wrong from right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_gate_calibration import small_seed

from benchmarks import gate_calibration, gate_joint
from benchmarks.gate_joint import ASKED, HELD, Gated, answers, by_size, gated, kept, section, summary

pytestmark = pytest.mark.slow


def told(outcome: str, *, asked: tuple[float, str] = ASKED[0], factor: float = 1.0, steps: int = 100) -> Gated:
    return Gated(
        kind="stable", seed=1, steps=steps, seeds=1, asked=asked, factor=factor, outcome=outcome,
        checks=(("baseline:kl/ref", "blind", True, -1.0, 1.0), ("baseline:tails.post_tool.all", outcome, False, 1, 2)),
    )  # fmt: skip


RIGHT = [told("passed")] * 40 + [told("failed", asked=asked, factor=1.6) for asked in ASKED[1:] for _ in range(40)]


@pytest.mark.parametrize("kind", ["stable"])
def test_seeds_of_one_setting_gate_clean_and_larger_tails_fail(kind: str, tmp_path: Path) -> None:
    found = list(gated(kind, small_seed(kind), tmp_path))
    assert [(one.asked, one.seeds) for one in found] == [(asked, seeds) for asked in ASKED for seeds in HELD]
    assert not [one for one in found if one.wrong]
    assert {one.outcome for one in found if one.asked == (1.0, "all") and one.seeds >= 3} == {"passed"}
    larger = {one.outcome for one in found if one.asked == (1.6, "all")}
    assert "failed" in larger
    assert "passed" not in larger  # one that cannot be said is blind
    assert {check[0].rpartition(":")[2] for check in found[0].checks} >= {"tails.post_tool.late", "kl/ref", "entropy"}


def test_the_summary_fails_what_is_wrong_and_nothing_that_is_right() -> None:
    assert {line.split()[0] for line in summary(RIGHT)} == {"PASS"}
    assert not told("blind").wrong
    assert not told("blind", asked=ASKED[1], factor=1.6).wrong
    assert not told("passed", asked=ASKED[1], factor=1.3).wrong  # in between either may be said
    failing = [line for line in summary([*RIGHT, *[told("failed")] * 3]) if line.startswith("FAIL")]
    assert [line.split(",")[0] for line in failing] == ["FAIL runs of one setting fail", "FAIL all of these"]
    passing = summary([*RIGHT, *[told("passed", asked=ASKED[2], factor=1.6)] * 3])
    assert [line.split(",")[0] for line in passing if line.startswith("FAIL")] == [
        "FAIL tails 1.6x late pass", "FAIL all of these",
    ]  # fmt: skip
    assert summary([]) == []


def test_a_section_holds_every_table_and_the_answers_come_back(tmp_path: Path) -> None:
    text = section(RIGHT, 40, "held-out")
    for line in (*answers(RIGHT), *by_size(RIGHT), *summary(RIGHT)):
        assert line in text
    assert "| 1 | `kl/ref` | 40 | 100.0% | 0.0% | 0.0% |" in text
    file = tmp_path / "kept.jsonl"
    for one in RIGHT:
        kept(file, one)
    assert gate_joint.read_kept(file) == RIGHT
    assert gate_joint.read_kept(tmp_path / "none") == []


def test_either_bench_leaves_the_others_part_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("# tails\n\nold\n", encoding="utf-8")
    monkeypatch.setattr(gate_joint, "PAGE", page)
    gate_joint.write(section(RIGHT, 40, "held-out"))
    gate_joint.write(section([replace(one, steps=30) for one in RIGHT], 41, "held-out"))
    assert page.read_text(encoding="utf-8").startswith("# tails\n\nold\n\n## The whole gate\n")
    assert page.read_text(encoding="utf-8").count("## The whole gate") == 1
    monkeypatch.setattr(gate_calibration, "PAGE", page)
    gate_calibration.write("# tails\n\nnew\n")
    written = page.read_text(encoding="utf-8")
    assert written.startswith("# tails\n\nnew\n\n## The whole gate\n")
    assert "--settings 41" in written
    assert written.endswith("|\n")

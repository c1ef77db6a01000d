"""The sample runs, from files to verdict: as expected.json says, twice alike, and left untouched."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from html_structure import answers_of
from judged_runs import STORIES, judged_run

import ptt
from benchmarks import sample_agents
from ptt import api

SAMPLES = Path(__file__).parents[1] / "sample_logs"


def expected(story: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLES / story / "expected.json").read_text(encoding="utf-8"))
    return found


def state(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("story", STORIES)
def test_the_story_reads_as_expected(story: str) -> None:
    found = judged_run(story)
    want = expected(story)
    assert found.crashes == ()
    assert found.verdict.status == want["status"]
    assert found.signature.status == want["signature"]
    assert want["reason_holds"] in found.signature.reason
    serious = {f.id: str(f.severity) for f in found.findings if f.severity.rank <= 2}
    assert serious == want["findings"]
    assert found.verdict.first_broken_link == want["first_broken_link"]
    for name, (low, high) in want.get("onsets", {}).items():
        (onset,) = [f.seen_step for f in found.findings if f.id == name]
        assert onset is not None
        assert low <= onset <= high
    if "lead_between" in want:
        low, high = want["lead_between"]
        assert found.signature.lead_steps is not None
        assert low <= found.signature.lead_steps <= high
    for name, (low, high) in want.get("p95_growth", {}).items():
        growth = found.signature.growth[name].p95
        assert growth is not None
        assert low <= growth <= high


def test_tails_grow_fivefold_by_thirds_and_tenfold_by_sixths_where_text_only_does_not() -> None:
    growth = judged_run("tool_tail_growth").tables["growth"].sort("part")

    def ratio(slice_: str, parts: int) -> float:
        rows = growth.filter((growth["slice"] == slice_) & (growth["parts"] == parts))["p95"].to_list()
        return float(rows[-1] / rows[0])

    assert 4.5 <= ratio("post_tool", 3) <= 6
    assert 9 <= ratio("post_tool", 6) <= 14
    assert ratio("text_only", 3) < 1
    assert ratio("text_only", 6) < 1


def test_a_kl_penalty_suppresses_the_growth() -> None:
    free = judged_run("tool_tail_growth").signature.growth["post_tool"].p95
    held = judged_run("kl_penalised").signature.growth["post_tool"].p95
    assert free is not None
    assert held is not None
    assert free > 2.5 * held


@pytest.mark.slow
@pytest.mark.parametrize(
    "story", [pytest.param(story, marks=() if story == "collapse" else pytest.mark.slow) for story in STORIES]
)
def test_the_same_run_gives_the_same_bytes_and_is_left_as_it_was(story: str, tmp_path: Path) -> None:
    before = state(SAMPLES / story)
    first = ptt.diagnose(SAMPLES / story, out=tmp_path / "a")
    again = ptt.diagnose(SAMPLES / story, out=tmp_path / "b")
    kept = ptt.diagnose(SAMPLES / story, out=tmp_path / "a")  # from the store of the first
    assert answers_of(first) == answers_of(again) == answers_of(kept)
    assert state(SAMPLES / story) == before


@pytest.mark.slow
def test_figures_have_the_same_bytes_each_time(tmp_path: Path) -> None:
    from ptt.reports.figures.drawing import write_figures

    found = judged_run("tool_tail_growth")
    first = write_figures(found, tmp_path / "a")
    second = write_figures(found, tmp_path / "b")
    assert [path.name for path in first] == [path.name for path in second]
    assert len(first) >= 6
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_sample_traces_break_where_the_tool_does_and_are_what_their_maker_writes() -> None:
    for name, (begins, breaks_at) in sample_agents.WEEKS.items():
        text = "".join(sample_agents.lines(begins, breaks_at))
        assert (SAMPLES / name).read_text(encoding="ascii") == text
    assert api.traces(SAMPLES / "agents_before.jsonl").verdict.status == "healthy"
    found = api.traces(SAMPLES / "agents.jsonl")
    assert found.verdict.status == "suspect"
    (first,) = [finding for finding in found.findings if finding.id == "tool-failures"]
    assert "track_parcel" in first.claim
    breaks_at = sample_agents.WEEKS["agents.jsonl"][1]
    assert breaks_at is not None
    assert first.seen_interval is not None
    assert first.seen_interval[0] <= 1 + breaks_at <= first.seen_interval[1]
    assert first.seen_step == breaks_at  # one call fails by chance in the episode before
    assert {finding.id for finding in found.findings if finding.consequence_of == first.id} == {"loops", "success"}

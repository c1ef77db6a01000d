"""What episodes are called in reports of traces, and that `ptt show` finds them by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.schema import named_episodes

AGENTS = Path(__file__).parents[2] / "sample_logs" / "agents.jsonl"


def named(*rows: tuple[str, str | None, str | None]) -> list[str]:
    frame = pl.DataFrame(rows, schema=dict.fromkeys(("trajectory_id", "sample_id", "source"), pl.String), orient="row")
    return named_episodes(frame)["name"].to_list()


def show(*args: object) -> str:
    done = CliRunner().invoke(app, ["show", *map(str, args)])
    assert done.exit_code == 0, done.output
    return done.output


def test_an_id_of_its_own_is_the_name() -> None:
    assert named(("a0", "run-7/3", "x.jsonl"), ("b1", "run-7/4", "x.jsonl")) == ["run-7/3", "run-7/4"]


def test_without_an_id_of_its_own_the_file_and_the_number_there_are() -> None:
    rows = (("a0", None, "x.jsonl"), ("b1", "s", "x.jsonl"), ("c2", "s", "y.jsonl"), ("d3", "t", "y.jsonl"))
    assert named(*rows) == ["x.jsonl#1", "x.jsonl#2", "y.jsonl#1", "t"]


@pytest.mark.parametrize("own", ["", "a, b", "a\nb", "a\u202eb", "x" * 81, " a"])
def test_an_id_that_cannot_be_typed_again_is_none(own: str) -> None:
    assert named(("a0", own, "x.jsonl")) == ["x.jsonl#1"]


def test_what_comes_from_no_file_keeps_its_hash() -> None:
    assert named(("a0", None, None)) == ["a0"]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("judged")
    done = CliRunner().invoke(app, ["traces", str(AGENTS), "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out


def test_findings_name_episodes_that_show_finds(judged: Path) -> None:
    findings: list[dict[str, Any]] = json.loads((judged / "findings.json").read_text())["findings"]
    (failures,) = (finding for finding in findings if finding["id"] == "tool-failures")
    assert failures["evidence"]["episodes"].startswith("agents.jsonl#")
    for name in failures["evidence"]["episodes"].split(", "):
        assert f"Sample {name} " in show(judged, name)
        assert "track_parcel" in show(AGENTS, name)


def test_show_lists_the_episodes_of_the_findings_and_leaves_the_folder_as_it_is(judged: Path) -> None:
    before = sorted(judged.rglob("*"))
    listed = show(judged)
    assert "tool-failures (high)" in listed
    assert f"ptt show {judged} 'agents.jsonl#" in " ".join(listed.split())
    assert sorted(judged.rglob("*")) == before
    assert "agents.jsonl#" in show(AGENTS)


def test_a_file_with_ids_is_spoken_of_by_them(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in AGENTS.read_text().splitlines()]
    texts = [json.dumps({"id": f"conv-{number}", **line}) for number, line in enumerate(lines)]
    (tmp_path / "own.jsonl").write_text("\n".join(texts))
    diagnosis = api.traces(tmp_path / "own.jsonl")
    names = {example.name for example in diagnosis.examples}
    assert names
    assert all(name.startswith("conv-") for name in names)
    assert all(name.startswith("conv-") for name in diagnosis.tables["partings"]["failure_id"])
    assert "conv-35" in show(tmp_path / "own.jsonl", "conv-35")

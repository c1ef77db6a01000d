"""An archive is unpacked on one machine: nothing of it is sent to others, which do not see it there."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders import Story, rising, sequences_of, write_recorder_run
from slow_cases import first_fast
from typer.testing import CliRunner

import ptt
from ptt.cli import diagnose as command
from ptt.cli import look as ingest_command
from ptt.cli.app import app
from ptt.diagnostics.engines import local
from ptt.diagnostics.engines.pieces import Piece, fold_one
from ptt.diagnostics.statistics.partial_tables import PartialTables
from ptt.diagnostics.store.file_readings import Reading, read_task
from ptt.diagnostics.store.file_readings import Task as ReadTask
from ptt.processes import Died


class OtherMachines:
    """Does work as machines do that see one folder of this one and none of its temporary ones."""

    def __init__(self, seen: Path) -> None:
        self._seen = seen
        self.asked = 0

    def _look(self, paths: Sequence[Path]) -> None:
        self.asked += 1
        assert all(self._seen in path.parents for path in paths), "not there on the other machine"

    def run_pieces(self, pieces: Sequence[Piece], _: object) -> Generator[tuple[int, PartialTables | None]]:
        for number, piece in enumerate(pieces):
            self._look([file.path for file in piece.files])
            yield number, fold_one(piece)

    def read_tasks(self, tasks: Sequence[ReadTask]) -> Generator[tuple[int, list[Reading]]]:
        for number, task in enumerate(tasks):
            self._look([file.path for file in task.files])
            yield number, read_task(task)

    def run_tasks(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], **_: object
    ) -> Generator[tuple[int, Any | Died]]:
        for number, task in enumerate(tasks):
            self._look([task.run])
            yield number, function(task)


@pytest.fixture(name="run")
def long_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose tokens are folded in several pieces."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "APART_FROM", 1)
    monkeypatch.setattr(local, "batch_rows", lambda tokens_per_row: 8)
    story = Story(steps=24, sequences=16, post=rising(0.05, 1.5))
    return write_recorder_run(tmp_path / "shared" / "run", sequences_of(story))


def packed(folder: Path, *, content: bool = False) -> Path:
    path = folder.with_name(f"{folder.name}.tar.gz")
    with tarfile.open(path, "w:gz") as archive:
        for member in sorted(folder.iterdir()) if content else [folder]:
            archive.add(member, member.name)
    return path


def test_the_tokens_of_an_archive_are_folded_where_it_was_unpacked(run: Path) -> None:
    nodes = OtherMachines(run.parent)
    wanted = ptt.diagnose(run, executor=nodes).to_json()
    assert nodes.asked > 1
    nodes.asked = 0
    assert ptt.diagnose(packed(run), executor=nodes).to_json() == ptt.diagnose(packed(run)).to_json()
    assert json.loads(ptt.diagnose(packed(run), executor=nodes).to_json())["findings"] == json.loads(wanted)["findings"]
    assert nodes.asked == 0


def test_the_files_of_an_archive_are_read_where_it_was_unpacked(run: Path, tmp_path: Path) -> None:
    nodes = OtherMachines(run.parent)
    ptt.ingest(run, out=tmp_path / "out", executor=nodes)
    assert nodes.asked > 0
    nodes.asked = 0
    ptt.ingest(packed(run), out=tmp_path / "of-archive", executor=nodes)
    assert nodes.asked == 0


@pytest.fixture(name="nodes")
def cluster_for_commands(run: Path, monkeypatch: pytest.MonkeyPatch) -> OtherMachines:
    nodes = OtherMachines(run.parent)

    @contextmanager
    def opened(*_: object) -> Iterator[OtherMachines]:
        yield nodes

    monkeypatch.setattr(command, "open_executor", opened)
    monkeypatch.setattr(ingest_command, "open_executor", opened)
    return nodes


@pytest.mark.parametrize("words", first_fast([["ingest"], ["diagnose"]]))
def test_a_command_says_that_the_cluster_has_no_part_in_an_archive(
    words: list[str], run: Path, nodes: OtherMachines
) -> None:
    result = CliRunner().invoke(app, [*words, str(packed(run)), "--engine", "ray", "--out", "out"])
    assert result.exit_code in {0, 4}, result.output
    assert "to use the cluster, unpack it where all nodes see it" in result.stderr
    assert nodes.asked == 0
    result = CliRunner().invoke(app, [*words, str(run), "--engine", "ray", "--out", "out2"])
    assert "unpack it" not in result.stderr
    assert nodes.asked > 0


@pytest.mark.slow
def test_an_archive_of_several_runs_is_judged_where_it_was_unpacked(
    run: Path, nodes: OtherMachines, tmp_path: Path
) -> None:
    several = tmp_path / "shared" / "several"
    several.mkdir()
    for name, end in (("one", 1.5), ("two", 0.5)):
        home = write_recorder_run(several / name, sequences_of(Story(steps=24, sequences=16, post=rising(0.05, end))))
        lines = [{"step": step, "reward": end * step, "loss": 1.0} for step in range(1, 16)]
        (home / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcomes = {}
    for given in (several, packed(several)):
        words = ["diagnose", str(given), "--engine", "ray", "--jobs", "1", "--out", f"out-{given.name}", "--json"]
        result = CliRunner().invoke(app, words)
        outcomes[given.name] = [one["outcome"] for one in json.loads(result.stdout)["runs"]]
        assert (nodes.asked > 0) == (given is several)
        nodes.asked = 0
    assert outcomes["several.tar.gz"] == outcomes["several"]
    assert len(outcomes["several"]) == 2

"""What is given by mistake is named as that, with what to give instead, and leaves nothing behind."""

from __future__ import annotations

import errno
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ptt.cli.app import app

STEPS = 30
UNKNOWN = "not in a format ptt reads; docs/formats.md lists them.\n"


def ptt(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def trained(folder: Path) -> Path:
    """A run of one file."""
    folder.mkdir(parents=True)
    rows = [{"step": step, "loss": 1.0 / step, "kl": 0.01, "grad_norm": 0.5} for step in range(1, STEPS + 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def packed(run: Path, archive: Path) -> None:
    archive.parent.mkdir(exist_ok=True)
    with tarfile.open(archive, "w:gz") as file:
        file.add(run, run.name)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def closed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be made in `closed/`, as its permissions would for anyone but root."""
    make = os.mkdir
    (here / "closed").mkdir()

    def refuse(path: Any, *rest: Any, **more: Any) -> None:
        if Path(path).parent.name == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        make(path, *rest, **more)

    monkeypatch.setattr(os, "mkdir", refuse)


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize(
    "words",
    [
        ("diagnose", "one"),
        ("ingest", "one"),
        ("baseline", "update", "b.toml", "one"),
        ("compare", "one", "two", "--jobs", 1),
        ("gate", "one"),
    ],
)
def test_a_place_that_cannot_be_written_is_no_fault_of_the_run(words: tuple[object, ...], here: Path) -> None:
    for name in ("one", "two"):
        trained(here / name)
    done = ptt(*words, "--out", "closed/x")
    assert done.exit_code == 2
    assert done.stderr.startswith("ptt: closed/x: cannot be written: Permission denied")


def test_a_baseline_that_cannot_be_written_is_told_by_its_own_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, _: str) -> Path:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"{path}.part")

    monkeypatch.setattr("ptt.cli.baseline.write_text", refuse)
    done = ptt("baseline", "update", "b.toml", trained(here / "one"), "--yes-even-failed")
    assert (done.exit_code, done.stderr) == (
        2,
        "ptt: b.toml: cannot be written: Permission denied; give another file.\n",
    )


@pytest.mark.parametrize("words", [("diagnose",), ("report",), ("ingest",), ("baseline", "update", "b.toml")])
def test_a_file_in_no_known_format_leaves_nothing_behind(words: tuple[str, ...], here: Path) -> None:
    (here / "x.txt").write_text("hi\n")
    done = ptt(*words, "x.txt")
    assert (done.exit_code, done.stderr) == (5, f"ptt: x.txt: {UNKNOWN}")
    assert [path.name for path in here.iterdir()] == ["x.txt"]


def test_a_run_that_cannot_be_read_leaves_what_lay_beside_its_store(here: Path) -> None:
    run = trained(here / "run")
    assert ptt("ingest", run, "--out", "out").exit_code == 0
    (here / "out" / "mine.txt").write_text("kept")
    (run / "metrics.jsonl").unlink()
    packed(trained(here / "other"), run / "other.tar.gz")
    assert ptt("ingest", run, "--out", "out").exit_code == 5
    assert [path.name for path in (here / "out").iterdir()] == ["mine.txt"]


@pytest.fixture
def archives(here: Path) -> Path:
    for name in ("one", "two"):
        packed(trained(here / name), here / "runs" / f"{name}.tar.gz")
    (here / "runs" / "README.md").write_text("two seeds\n")
    return here / "runs"


@pytest.mark.usefixtures("archives")
@pytest.mark.parametrize("words", [("compare", "runs", "one", "--jobs", 1), ("ingest", "runs")])
def test_a_folder_of_archives_is_several_runs(words: tuple[object, ...]) -> None:
    done = ptt(*words)
    assert done.exit_code == 2
    assert "runs: contains 2 runs, not one: one.tar.gz, two.tar.gz (it contains 2 archives" in done.stderr
    assert "give one of them, as runs/one.tar.gz" in done.stderr


@pytest.mark.usefixtures("archives")
@pytest.mark.parametrize("command", ["diagnose", "gate"])
@pytest.mark.slow
def test_each_of_a_folder_of_archives_is_judged(command: str) -> None:
    done = ptt(command, "runs", "--json", "--jobs", 1)
    assert done.exit_code == 0, done.stderr
    assert sorted(run["name"] for run in json.loads(done.stdout)["runs"]) == ["one", "two"]


@pytest.mark.usefixtures("archives")
def test_archives_are_no_one_run_even_where_that_is_asked_for() -> None:
    done = ptt("ingest", "runs", "--one-run")
    assert done.exit_code == 5
    assert 'contains 2 archives and nothing else ptt reads; give the archives, e.g. "runs/*.tar.gz"' in done.stderr


def test_what_is_advised_of_a_folder_of_archives_is_gated(here: Path) -> None:
    packed(trained(here / "one"), here / "runs" / "one.tar.gz")
    packed(here / "one", here / "runs" / "two.tar.gz")
    told = json.loads(ptt("gate", "runs/*.tar.gz", "--jobs", 1, "--reports", "none", "--json").stdout)
    assert [run["name"] for run in told["runs"]] == ["one", "two"]
    assert [run["error"] for run in told["runs"]] == ["", ""]


def test_sources_tells_a_folder_of_archives_and_not_that_they_cannot_be_read(here: Path) -> None:
    packed(trained(here / "one"), here / "runs" / "one.tar.gz")
    (here / "runs" / "README.md").write_text("one seed\n")
    told = json.loads(ptt("sources", "runs", "--json").stdout)
    assert told["notes"] == [
        'The folder contains one archive and nothing else ptt reads; give that archive: "runs/one.tar.gz".'
    ]
    assert [one["ending"] for one in told["unread"]] == [".md"]


def test_an_archive_of_archives_does_not_tell_where_it_was_unpacked(here: Path) -> None:
    packed(trained(here / "one"), here / "runs" / "one.tar.gz")
    packed(here / "runs", here / "all.tar.gz")
    done = ptt("diagnose", "all.tar.gz", "--out", "out")
    assert done.exit_code == 5
    assert done.stderr == (
        "ptt: all.tar.gz: contains 1 archive, such as one.tar.gz, and nothing else ptt reads; unpack it "
        "and give those.\n"
    )


def test_a_checkpoint_archive_beside_logs_is_no_folder_of_archives(here: Path) -> None:
    run = trained(here / "run")
    packed(trained(here / "weights"), run / "checkpoint.tar.gz")
    told = json.loads(ptt("sources", run, "--json").stdout)
    assert told["notes"] == []
    assert [one["ending"] for one in told["unread"]] == [".gz"]
    assert ptt("ingest", run, "--out", "out").exit_code == 0


@pytest.mark.parametrize("content", ["min_observation = 3\n", "run: 1\n"])
def test_a_file_that_is_no_baseline_is_not_to_be_made_anew(content: str, here: Path) -> None:
    (here / "ptt.yaml").write_text(content)
    done = ptt("baseline", "show", "ptt.yaml")
    assert done.exit_code == 2
    assert "make it again" not in done.stderr
    assert done.stderr.endswith("; name a file that `ptt baseline update` wrote, or a new name.\n")
    (here / "policy.toml").write_text("[gate.baseline]\nfile = 'ptt.yaml'\n")
    gated = ptt("gate", trained(here / "run"), "--settings", "policy.toml")
    assert (gated.exit_code, gated.stderr) == (2, done.stderr)


def test_a_gate_inside_the_run_writes_beside_it_and_says_where(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(here / "run")
    monkeypatch.chdir(run)
    monkeypatch.setenv("COLUMNS", "500")
    done = ptt("gate", ".")
    written = here / "ptt-report" / "gate" / "index.html"
    assert done.stdout.splitlines()[-1] == f"All of it: {written}"
    assert written.is_file()
    assert [path.name for path in run.iterdir()] == ["metrics.jsonl"]

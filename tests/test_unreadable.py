"""What the system does not let us read is lost: told as such, judged as nothing, and read as soon as it can be."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from gate_samples import check_of, gate_of
from html_structure import page_with
from judged_runs import RUNS, judged_run
from rich.console import Console
from slow_cases import first_fast
from test_kept_damage import write_run
from typer.testing import CliRunner

from ptt import InputError, api
from ptt.cli.app import app
from ptt.diagnostics.gate.results import Outcome
from ptt.diagnostics.parsers import PARSERS, run_files
from ptt.diagnostics.store.ingest import ingest
from ptt.reports.run.terminal import print_diagnosis

HELD = "dac_override,-dac_read_search"  # what lets root read whatever it likes


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = write_run(tmp_path / "run", kl=0.01)
    rows = [{"step": s, "kl": 0.01 + s % 7 / 1e4, "reward": s / 40, "loss": 0.2 - s / 400 + s % 5 / 100}
            for s in range(1, 41)]  # fmt: skip
    (made / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Path]]:
    """Refuse to open what is in this set, as the system does: permissions alone would not stop root."""
    held: set[Path] = set()
    open_file, list_folder = Path.open, os.scandir

    def refuse(path: Path) -> None:
        if any(path == one or one in path.parents for one in held):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    def opened(self: Path, *args: Any, **named: Any) -> Any:
        refuse(self)
        return open_file(self, *args, **named)

    def listed(path: Any = ".") -> Any:
        if not isinstance(path, int):
            refuse(Path(path))
        return list_folder(path)

    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(os, "scandir", listed)
    yield held
    held.clear()


@pytest.mark.parametrize("text", first_fast(["", "[gate]\nmax_lost = 0\n"]))
@pytest.mark.parametrize("closed", ["tokens", "tokens/all.parquet"])
def test_what_cannot_be_read_leaves_the_gate_blind_until_it_can(
    closed: str, text: str, run: Path, tmp_path: Path, locks: set[Path]
) -> None:
    locks.add(run / closed)
    found = gate_of(run, tmp_path / "out", text)
    assert found.outcome is Outcome.BLIND
    check = check_of(found, "extent:damage")
    assert check.outcome is Outcome.BLIND
    assert "annot be read (Permission denied)" in check.claim
    assert "run ptt as a user who may read all of the run" in check.claim
    assert closed in check.claim
    locks.clear()  # neither name nor size nor time tells that
    assert gate_of(run, tmp_path / "out", text).model_tokens == 160 * 18
    assert "annot be read" not in str(gate_of(run, tmp_path / "out", text))


def test_a_file_that_cannot_be_read_is_counted_with_its_size_and_a_policy_may_let_it_pass(
    run: Path, tmp_path: Path, locks: set[Path]
) -> None:
    (run / "notes.md").write_text("x" * 100)
    locks.add(run / "notes.md")
    found = api.diagnose(run)
    (told,) = [one for one in found.sources if one.path == "notes.md"]
    assert (told.kind, told.bytes_lost) == ("unreadable", 100)
    assert told.note == "Cannot be read (Permission denied); run ptt as a user who may read all of the run."
    blind = check_of(gate_of(run, tmp_path / "out"), "extent:damage")
    assert blind.outcome is Outcome.BLIND  # whether it matters nobody knows
    let = gate_of(run, tmp_path / "out", "[gate]\nmax_lost = 0.1\n")
    assert check_of(let, "extent:damage").outcome is Outcome.PASSED
    assert any("1 file cannot be read" in note for note in let.notes)
    assert "unreadable" in page_with(found)


def test_an_unreadable_folder_is_let_pass_only_where_all_may_be_lost(
    run: Path, tmp_path: Path, locks: set[Path]
) -> None:
    locks.add(run / "tokens")
    for most, outcome in (("0.9", Outcome.BLIND), ("1", Outcome.PASSED)):
        found = gate_of(run, tmp_path / "out", f"[gate]\nmax_lost = {most}\n")
        assert check_of(found, "extent:damage").outcome is outcome


def test_sources_and_the_terminal_tell_of_it_and_no_baseline_is_made(
    run: Path, tmp_path: Path, locks: set[Path]
) -> None:
    locks.add(run / "tokens/all.parquet")
    told = "1 file, the first tokens/all.parquet: Cannot be read (Permission denied)"
    assert any(note.startswith(told) for note in api.sources(run).notes)
    console = Console(record=True, width=100, file=StringIO())
    print_diagnosis(api.diagnose(run), console, "report.html")
    assert "Unreadable  1 file, the first tokens/all.parquet" in console.export_text()
    words = ["baseline", "update", str(tmp_path / "b.toml"), str(run), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 4
    assert "a part of it is lost: 1 file cannot be read" in done.stdout.replace("\n", " ")
    assert not (tmp_path / "b.toml").exists()


@pytest.mark.parametrize("closed", ["tokens", "tokens/all.parquet"])
def test_a_findings_json_tells_of_it_as_well(closed: str, run: Path, tmp_path: Path, locks: set[Path]) -> None:
    locks.add(run / closed)
    (tmp_path / "findings.json").write_text(api.diagnose(run).to_json())
    for text in ("", "[gate]\nmax_lost = 0.9\n"):
        found = gate_of(tmp_path / "findings.json", tmp_path / "out", text)
        assert check_of(found, "extent:damage").outcome is Outcome.BLIND


def test_a_findings_json_of_a_sound_run_is_whole(tmp_path: Path) -> None:
    (tmp_path / "findings.json").write_text(judged_run("healthy").to_json())
    found = gate_of(tmp_path / "findings.json", tmp_path / "out", "[gate]\nmax_lost = 0\n")
    assert check_of(found, "extent:damage").claim == "every file could be read to its end"
    assert found.outcome is Outcome.PASSED


@pytest.mark.parametrize("keep", first_fast([0, 900]))
def test_a_findings_json_keeps_a_file_that_was_lost_as_a_whole(keep: int, run: Path, tmp_path: Path) -> None:
    content = (run / "tokens/all.parquet").read_bytes()
    (run / "tokens/b.parquet").write_bytes(content[:keep])
    for place in (run, tmp_path / "findings.json"):
        if place != run:
            place.write_text(api.diagnose(run).to_json())
        check = check_of(gate_of(place, tmp_path / "out"), "extent:damage")
        assert check.outcome is Outcome.BLIND
        assert "is lost: tokens/b.parquet" in check.claim


@pytest.mark.parametrize(
    ("rows_ok", "rows_bad", "bytes_lost", "outcome"),
    [
        (5000, 1, 30, Outcome.PASSED),
        (90, 60, 30, Outcome.BLIND),
        (5000, 0, 30, Outcome.BLIND),  # of how many bytes is not told
    ],
)
def test_a_findings_json_is_judged_by_its_rows(
    rows_ok: int, rows_bad: int, bytes_lost: int, outcome: Outcome, run: Path, tmp_path: Path
) -> None:
    document = json.loads(api.diagnose(run).to_json())
    path = "tokens/b.jsonl"
    document["sources"].append(
        {"path": path, "kind": "recorder_jsonl", "rows_ok": rows_ok, "rows_bad": rows_bad, "bytes_lost": bytes_lost,
         "note": None}
    )  # fmt: skip
    (tmp_path / "findings.json").write_text(json.dumps(document))
    found = gate_of(tmp_path / "findings.json", tmp_path / "out")
    assert check_of(found, "extent:damage").outcome is outcome


def test_a_run_that_may_not_be_entered_is_told_in_one_sentence(run: Path, tmp_path: Path, locks: set[Path]) -> None:
    locks.add(run)
    says = "is not readable: Permission denied; run ptt as a user who may read all of the run.$"
    with pytest.raises(InputError, match=says):
        api.open_run(run, out=tmp_path / "out")
    with pytest.raises(InputError, match=says):
        api.diagnose(run)


@pytest.mark.slow
def test_a_gate_goes_on_behind_a_run_that_may_not_be_entered(run: Path, tmp_path: Path, locks: set[Path]) -> None:
    locks.add(run)
    words = ["gate", str(run), str(RUNS["healthy"]), "--out", str(tmp_path / "out"), "--reports", "none", "--jobs", "1"]
    assert CliRunner().invoke(app, words).exit_code == 5
    found = {one["name"]: one for one in json.loads((tmp_path / "out/gate.json").read_text())["runs"]}
    assert found["run"]["error"].startswith("run: is not readable: Permission denied;")
    assert found["healthy"]["outcome"] == "passed"


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="nothing makes root obey permissions")
def test_permissions_stop_the_command_as_they_stop_a_user(run: Path, tmp_path: Path) -> None:
    (run / "tokens/all.parquet").chmod(0)
    words = ["setpriv", f"--bounding-set=-{HELD}", f"--inh-caps=-{HELD}"] if os.geteuid() == 0 else []
    words += [sys.executable, "-m", "ptt", "gate", str(run), "--out", str(tmp_path / "out"), "--reports", "none"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.stderr.startswith("setpriv:"):
        pytest.skip("setpriv may not do that here")
    assert "1 file cannot be" in " ".join(done.stdout.split()), done.stderr


def test_beginnings_of_files_are_not_held_until_their_turn(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for number in range(200):
        (tmp_path / "run" / f"{number}.bin").write_bytes(b"\0" * 70_000)
    files, notes = run_files(tmp_path / "run")
    held = []

    def on_file(done: int, _: int) -> None:
        if done == 100:
            held.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    ingest(files, notes=notes, parsers=PARSERS, folder=tmp_path / "store", ptt_version="1", on_file=on_file)
    tracemalloc.stop()
    assert held[0] < 4_000_000

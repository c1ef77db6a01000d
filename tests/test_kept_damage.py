"""Stores that were crafted, torn, written by two at once, or judged under something else: told, and never believed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import logps_of
from html_structure import page_with
from slow_cases import first_fast
from typer.testing import CliRunner

from ptt import InputError, Settings, api
from ptt.cli.app import app
from ptt.diagnostics.pipeline import OTHER_SETTINGS, OTHER_VERSION
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.store.folders import exclusive_lock

STRICT = Settings(limits={"kl-over-target": {"limit": 0.01}})


def write_run(run: Path, *, steps: int = 40, kl: float = 0.1) -> Path:
    """Write a small run: tokens of a few sequences a step, and its metrics."""
    (run / "tokens").mkdir(parents=True)
    rows = []
    for step in range(1, steps + 1):
        for number in range(4):
            r = pl.Series([0.01 * ((step * 7 + number * 3 + t) % 11 - 5) for t in range(24)]).to_numpy()
            policy, ref = logps_of(r)
            mask = [True] * 8 + [False] * 6 + [True] * 10
            rows.append({"step": step, "seq": "of the recorder", "model_mask": mask, "policy_logp": policy,
                         "ref_logp": ref})  # fmt: skip
    pl.DataFrame(rows).write_parquet(run / "tokens/all.parquet")
    lines = [{"step": s, "kl": kl, "reward": s / steps, "loss": 0.1} for s in range(1, steps + 1)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Give a run, what judging it left, and the store that ingest made of it."""
    base = tmp_path_factory.mktemp("made")
    run = write_run(base / "run")
    api.open_run(run, out=base / "judged")
    api.ingest(run, out=base / "alone")
    return run, base / "judged", base / "alone"


def copied(source: Path, place: Path) -> Path:
    return shutil.copytree(source, place)


def ids(found: LoadedRun) -> set[str]:
    return {finding.id for finding in found.diagnosis.findings}


def rewrite(store: Path, change: Callable[[dict[str, Any]], object]) -> None:
    place = store / "kept/diagnosis.json"
    document = json.loads(place.read_text(encoding="ascii"))
    change(document)
    place.write_text(json.dumps(document), encoding="ascii")


def test_a_recorders_own_column_seq_is_in_nobodys_way(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    run, judged, alone = made
    assert "seq" in pl.read_parquet_schema(run / "tokens/all.parquet")
    for place in (judged, alone):
        found = api.open_run(copied(place, tmp_path / place.name), out=tmp_path / "x")
        assert found.diagnosis.run.sequences == 160
        assert found.diagnosis.run.model_tokens == 160 * 18
        assert found.profile is not None
        assert found.profile.sequences["seq"].to_list() == sorted(found.profile.sequences["seq"])


def test_a_store_with_tokens_is_judged_with_the_settings_given_now(
    made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    store = copied(made[2], tmp_path / "alone")
    plain = api.open_run(store, out=tmp_path / "x")
    strict = api.open_run(store, out=tmp_path / "x", settings=STRICT)
    assert ids(strict) - ids(plain) == {"kl-over-target"}
    assert ids(api.open_run(store, out=tmp_path / "x")) == ids(plain)
    assert plain.diagnosis.judged_with == strict.diagnosis.judged_with == ""


def test_a_store_without_tokens_is_never_passed_off_as_judged_with_other_settings(
    made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    store = copied(made[1], tmp_path / "judged")
    with pytest.raises(InputError, match="other settings or custom rules than"):
        api.open_run(store, out=tmp_path / "x", settings=STRICT)
    shown = api.open_run(store, out=tmp_path / "x", settings=STRICT, as_judged=True)
    assert shown.diagnosis.judged_with == OTHER_SETTINGS
    assert isinstance(shown.diagnosis, api.Diagnosis)
    assert OTHER_SETTINGS in page_with(shown.diagnosis)
    api.open_run(made[0], out=tmp_path / "strict", settings=STRICT)
    again = api.open_run(tmp_path / "strict", out=tmp_path / "x", settings=STRICT)
    assert "kl-over-target" in ids(again)
    assert again.diagnosis.judged_with == ""


@pytest.mark.slow
def test_the_report_command_shows_a_store_as_it_was_judged_and_says_so(
    made: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copied(made[1], tmp_path / "judged")
    monkeypatch.chdir(tmp_path)
    toml = "[limits.kl-over-target]\nlimit = 0.01\n"
    (tmp_path / "ptt.toml").write_text(toml)
    done = CliRunner().invoke(app, ["report", str(store)])
    assert done.exit_code == 0, done.output
    assert "Judged with other settings or custom rules than" in done.stdout
    done = CliRunner().invoke(app, ["report", str(store), "--settings", "ptt.toml"])
    assert done.exit_code == 5
    assert "give the run" in done.stderr


def test_another_version_of_ptt_is_told(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    store = copied(made[1], tmp_path / "judged")
    rewrite(store / "store", lambda document: document["asked"].update(version="0.0.1 <script>"))
    found = api.open_run(store, out=tmp_path / "x")
    assert found.diagnosis.judged_with == OTHER_VERSION


def nested(document: dict[str, Any]) -> None:
    document["diagnosis"]["run"]["context"] = "DEEP"


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "deep": nested,
    "huge number": lambda d: d["diagnosis"]["run"].update(sequences=10**300),
    "huge float": lambda d: d["diagnosis"]["signature"].update(p_value=10**400),
    "list for a mapping": lambda d: d["diagnosis"]["run"].update(context=[1]),
    "no mapping at all": lambda d: d.update(diagnosis=[]),
    "hashes": lambda d: d.update(hashes=None),
    "number for a name": lambda d: d.update(tables=[3]),
    "a way out": lambda d: d["tables"].append("../../secret"),
    "another table": lambda d: d["hashes"].update(ecdf="0" * 64),
    "long chain": lambda d: d["diagnosis"].update(
        findings=[dict(_finding(), id=f"f{i}", consequence_of=f"f{i + 1}") for i in range(500)]
    ),
}  # fmt: skip


def _finding() -> dict[str, Any]:
    return {"id": "f", "severity": "high", "link": "reward", "claim": "c", "observed": None, "limit": None, "unit": "",
            "slice": None, "onset_step": None, "onset_interval": None, "evidence": {}, "causes": [], "confirm": [],
            "next": [], "consequence_of": None}  # fmt: skip


@pytest.mark.parametrize("damage", first_fast(DAMAGES, 2))
def test_a_crafted_record_is_taken_as_none(damage: str, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    store = copied(made[1], tmp_path / "judged")
    rewrite(store / "store", DAMAGES[damage])
    place = store / "store/kept/diagnosis.json"
    place.write_text(place.read_text().replace('"DEEP"', "[" * 200_000 + "]" * 200_000))
    with pytest.raises(InputError, match="has no tokens of its own"):
        api.open_run(store, out=tmp_path / "x")
    whole = api.open_run(made[0], out=store)  # with the run at hand it is made anew
    assert whole.diagnosis.run.sequences == 160


def test_a_table_of_other_bytes_is_never_shown_beside_the_record(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    store = copied(made[1], tmp_path / "judged")
    table = store / "store/kept/ecdf.parquet"
    pl.read_parquet(table).with_columns(pl.lit(0.5).alias("cdf")).write_parquet(table)
    with pytest.raises(InputError):
        api.open_run(store, out=tmp_path / "x")


@pytest.mark.slow
def test_a_table_that_is_no_parquet_is_a_sentence(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    store = copied(made[1], tmp_path / "judged")
    (store / "store/kept/ecdf.parquet").write_bytes(b"PAR1 nothing")
    rewrite(store / "store", lambda d: d["hashes"].update(ecdf=sha256(b"PAR1 nothing").hexdigest()))
    done = CliRunner().invoke(app, ["report", str(store), "--out", str(tmp_path / "o")])
    assert done.exit_code == 5
    assert "its table ecdf cannot be read" in done.stderr


@pytest.mark.parametrize("kind", ["link", "folder link", "pipe"])
def test_a_store_that_leads_elsewhere_is_refused(kind: str, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    store = copied(made[2], tmp_path / "alone")
    place = store / "store/metrics"
    secret = copied(place, tmp_path / "secret") if kind == "folder link" else tmp_path / "x"
    if kind == "folder link":
        shutil.rmtree(place)
        place.symlink_to(secret, target_is_directory=True)
    elif kind == "link":
        (store / "store/sources.parquet").unlink()
        (store / "store/sources.parquet").symlink_to("/dev/zero")
    else:
        os.mkfifo(store / "store/evals.parquet")
    done = CliRunner().invoke(app, ["report", str(store), "--out", str(tmp_path / "o")])
    assert done.exit_code == 5
    assert "a link or special file" in done.stderr


def crafted(store: Path, **changed: object) -> None:
    place = store / "manifest.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"in_place": [{"path": "../../secret.parquet", "rows": 1, "columns": ["step"], "kind": "recorder"}]},
        {"in_place": [{"path": "/etc/x.parquet", "rows": 1, "columns": ["step"], "kind": "recorder"}]},
        {"in_place": [{"path": "a.parquet", "rows": 10**30, "columns": ["step"], "kind": "recorder"}]},
        {"facts": [1]},
        {"facts": {"learning_rate": {"a": 1}}},
        {"notes": [1]},
        {"parts": 3},
        {"wide": {"a": 1}},
    ],
    ids=str,
)
def test_a_crafted_manifest_is_no_store_of_ours(
    changed: dict[str, object], made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    store = copied(made[2], tmp_path / "alone")
    crafted(store / "store", **changed)
    with pytest.raises(InputError, match="store of this version"):
        api.open_run(store, out=tmp_path / "x")


@pytest.mark.slow
def test_a_trainers_own_manifest_may_be_anything(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for content in ("[" * 300_000, "é", "{}", "9" * 10_000):
        (run / "manifest.json").write_text(content)
        assert api.open_run(run, out=tmp_path / "o").kind == "run"


def test_a_copied_table_of_other_types_is_refused(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    store = copied(made[2], tmp_path / "alone")
    place = store / "store/recorded.parquet"
    frame = pl.read_parquet(place)
    for change in (
        frame.with_columns(pl.col("step").cast(pl.String)),
        frame.with_columns(pl.lit(1).alias("policy_logp")),
        frame.drop("model_mask"),
    ):
        change.write_parquet(place)
        with pytest.raises(InputError, match="columns are not those of a store"):
            api.open_run(store, out=tmp_path / "x")


def test_a_record_that_cannot_be_written_does_not_cost_the_diagnosis(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    api.open_run(run, out=tmp_path / "o")
    store = tmp_path / "o/store"
    for name in ("kept", "tokens"):
        shutil.rmtree(store / name)
    (store / "kept.part").write_text("in the way")
    (store / "tokens").write_text("in the way")
    found = api.open_run(run, out=tmp_path / "o")
    assert found.diagnosis.run.sequences == 160
    assert found.profile is not None
    assert not (store / "kept").exists()


LOOK = """
import sys
from ptt import api
found = api.open_run(sys.argv[1], out=sys.argv[2])
print(found.diagnosis.to_json() == api.diagnose(sys.argv[1]).to_json(), found.profile is not None)
"""


@pytest.mark.slow
def test_processes_that_judge_one_run_at_once_all_get_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    command = [sys.executable, "-c", LOOK, str(run), str(tmp_path / "o")]
    waiting = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in waiting:
        told, error = process.communicate(timeout=300)
        assert (process.returncode, told.strip()) == (0, "True True"), error


@pytest.mark.slow
def test_a_store_that_is_replaced_meanwhile_gives_the_old_or_a_sentence(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    before = api.open_run(run, out=tmp_path / "o").diagnosis
    held = api.open_run(run, out=tmp_path / "o").diagnosis
    shutil.rmtree(run)
    api.open_run(write_run(run, steps=50, kl=0.2), out=tmp_path / "o")
    for name in held.tables:
        if name in ("metrics", "trajectories", "tool_calls"):
            with pytest.raises(InputError, match="was replaced while being read"):
                held.tables[name]
        else:
            assert held.tables[name].equals(before.tables[name]), name


LOCKING = """
import sys
from pathlib import Path
from ptt.diagnostics.store.folders import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), on_wait=lambda: print("waits", flush=True)):
    print("in")
"""


def test_one_folder_is_written_by_one_at_a_time(tmp_path: Path) -> None:
    place = tmp_path / "o"
    command = [sys.executable, "-c", LOCKING, str(place)]
    with exclusive_lock(place):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        first = process.stdout.readline()
        assert process.poll() is None
    rest, _ = process.communicate(timeout=60)
    assert (first, rest) == ("waits\n", "in\n")
    assert not place.exists()  # nothing was written there


@pytest.mark.slow
def test_two_runs_of_one_name_keep_their_reports_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in ("seedA", "seedB"):
        write_run(tmp_path / seed / "run")
        for _ in range(2):
            done = CliRunner().invoke(app, ["diagnose", f"{seed}/run"])
            assert done.exit_code == 0, done.output
    assert {path.name for path in (tmp_path / "ptt-report").iterdir()} == {"run", "seedB-run"}
    assert "seedB-run" in done.stdout
    shown = CliRunner().invoke(app, ["report", "ptt-report/run"])
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "ptt-report/run-report/report.html").is_file()
    note = (tmp_path / "ptt-report/run/store/run.txt").read_text()
    assert len(note) == 17
    assert str(tmp_path) not in note

"""What an earlier version wrote is read as it was, or refused with the command that renews it."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ptt import InputError, api
from ptt.diagnostics.gate.baseline.file import read_baseline
from ptt.diagnostics.schema import VERSION
from ptt.diagnostics.store.diagnosis import read_kept
from ptt.diagnostics.store.findings_file import read_findings
from ptt.diagnostics.store.manifest import read_manifest
from ptt.reports.run.findings_json import findings_json
from ptt.version import __version__

VERSIONS = sorted((Path(__file__).parent / "fixtures" / "versions").glob("*.zip"))
"""The output of `ptt diagnose` of each, without the report, and the baseline of the same run. The run logged sixty
steps, and a gradient norm of NaN at step 40."""


@pytest.fixture(params=VERSIONS, ids=lambda path: path.stem)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(tmp_path / "output")
    return tmp_path / "output"


NEW_KEYS = ("limit_passed_step", "limit_passed_interval")


def as_written_then(text: str) -> dict[str, Any]:
    """Return a document without the keys that came later, which must be null in it."""
    document: dict[str, Any] = json.loads(text)
    assert [document.pop(key) for key in ("audit", "cost")] == [None, None]
    assert [document["signature"].pop(key) for key in NEW_KEYS] == [None, None]
    return document


def test_findings_are_read_to_the_last_value_in_their_order(output: Path) -> None:
    text = (output / "findings.json").read_text(encoding="utf-8")
    now = findings_json(read_findings(output / "findings.json"), json.loads(text)["ptt_version"])
    assert json.dumps(as_written_then(now)) == json.dumps(json.loads(text))


def test_a_store_is_shown_without_loss(output: Path) -> None:
    findings = json.loads((output / "findings.json").read_text(encoding="utf-8"))
    opened = api.open_run(output, out=output / "unused", as_judged=True)
    assert as_written_then(findings_json(opened.diagnosis, findings["ptt_version"])) == findings
    assert (opened.kind, opened.diagnosis.from_findings) == ("store", False)
    assert opened.diagnosis.run.step_count == 60
    assert {name: table.height for name, table in opened.diagnosis.tables.items()}["metrics"] == 360
    assert opened.diagnosis.tables["checklists"].height > 10
    written = json.loads((output / "store" / "manifest.json").read_text(encoding="ascii"))
    assert written["ptt_version"] == findings["ptt_version"]
    assert (read_manifest(output / "store") is None) == (
        written["schema_version"] != VERSION
    )  # its tables are not read


def test_a_store_whose_diagnosis_cannot_be_read_names_what_renews_it(output: Path) -> None:
    kept = output / "store" / "kept" / "diagnosis.json"
    document = json.loads(kept.read_text(encoding="ascii"))
    kept.write_text(json.dumps(document | {"version": 1}), encoding="ascii")
    assert read_kept(output / "store") is None
    with pytest.raises(InputError, match="not a store of this version; make it again with ptt diagnose"):
        api.open_run(output, out=output / "unused")  # its tables are of an earlier schema
    shutil.rmtree(output / "store" / "kept")
    (output / "store" / "manifest.json").write_text(
        json.dumps({"schema_version": 0, "ptt_version": "0", "fingerprint": "", "in_place": []}), encoding="ascii"
    )
    with pytest.raises(InputError, match="not a store of this version; make it again with ptt diagnose"):
        api.open_run(output, out=output / "unused")


def test_a_baseline_is_read(output: Path) -> None:
    baseline = read_baseline(output / "baseline.toml")
    assert [run.steps for run in baseline.runs] == [(1, 60, 60)]
    assert baseline.ptt_version <= __version__

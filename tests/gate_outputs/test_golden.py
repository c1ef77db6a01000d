"""What a person reads of a gate, to the letter."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from gate_reports import SAMPLES

from ptt.diagnostics.gate.results import GateReport
from ptt.reports.gate import FORMATS, gate_json, github_annotations, job_summary, junit, markdown, sarif

GOLDEN = Path(__file__).parent / "golden"
WRITERS: dict[str, Callable[[GateReport], str]] = {
    "gate.json": lambda report: gate_json.render(report, version="0.0.0"),
    "junit.xml": junit.render,
    "sarif": lambda report: sarif.render(report, version="0.0.0"),
    "md": markdown.render,
    "annotations": github_annotations,
    "summary.md": job_summary,
}
RECORDED = [(name, kind) for name in ("failed", "hostile") for kind in WRITERS]
RECORDED += [(name, kind) for name in sorted({*SAMPLES} - {"failed", "hostile"}) for kind in ("annotations", "md")]


@pytest.mark.parametrize(("name", "kind"), RECORDED)
def test_output_is_the_recorded_one(name: str, kind: str) -> None:
    actual, recorded = WRITERS[kind](SAMPLES[name]).encode("utf-8"), GOLDEN / f"{name}.{kind}"
    if os.environ.get("PTT_RECORD_GOLDEN"):
        recorded.write_bytes(actual)
    assert actual == recorded.read_bytes()


def test_files_have_names_of_their_own() -> None:
    assert {name: one.file for name, one in FORMATS.items()} == {
        "json": "gate.json",
        "junit": "junit.xml",
        "sarif": "gate.sarif",
        "markdown": "gate.md",
    }

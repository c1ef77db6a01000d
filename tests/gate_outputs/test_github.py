"""Workflow commands as the runner reads them, and a job summary that GitHub still shows."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders import repeatable
from gate_reports import BLIND, BOUND, HOSTILE, SAMPLES, TAILS, WAIVED, report, reports, run
from hypothesis import given
from slow_cases import first_fast

from ptt.diagnostics.gate.results import GateReport
from ptt.reports.gate import github_annotations, github_guard, job_summary
from ptt.reports.gate.markdown import SUMMARY_BYTES

LINE = re.compile(r"::(error|warning|notice) ([^\n]*?)::(.*)")


def commands(given_report: GateReport) -> list[tuple[str, dict[str, str], str]]:
    """Read the lines as the runner does: properties end at the first `::`, then the escapes are undone."""
    found = []
    for line in github_annotations(given_report).splitlines():
        match = LINE.fullmatch(line)
        assert match is not None, line
        level, told, message = match.groups()
        properties = dict(part.split("=", 1) for part in told.split(","))
        found.append((level, {name: undone(value) for name, value in properties.items()}, undone(message)))
    return found


def undone(text: str) -> str:
    for escape, character in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(escape, character)
    return text


def test_the_first_command_is_the_outcome() -> None:
    assert commands(SAMPLES["passed"]) == [
        ("notice", {"title": "ptt gate: passed (exit code 0)"}, "All 2 runs passed.")
    ]
    assert commands(SAMPLES["blind"])[0][:2] == ("error", {"title": "ptt gate: blind (exit code 4)"})


def test_levels_and_files() -> None:
    found = {
        properties["title"]: (level, properties.get("file")) for level, properties, _ in commands(SAMPLES["failed"])
    }
    assert found["failed: tails: severity:tool-tail-growth"] == ("error", "runs/tails/tokens/step_000141.parquet")
    assert found["not judged: tails: required:stale-tokens"] == ("warning", "runs/tails")
    assert found["cannot be read: torn.tar.zst: run"] == ("error", "runs/torn.tar.zst")
    assert found["allowed for now: waived: severity:tool-tail-growth"][0] == "notice"


def test_no_file_where_the_run_s_path_is_not_known() -> None:
    ((_, outcome, _), (_, properties, _)) = commands(report(replace(run("r", TAILS), path=None)))
    assert "file" not in outcome | properties


@given(report=reports())
@repeatable
def test_any_text_gives_lines_that_the_runner_reads_within_its_limits(report: GateReport) -> None:
    levels = [level for level, _, _ in commands(report)]
    for level in ("error", "warning", "notice"):
        assert levels.count(level) <= 10


def test_foreign_text_begins_no_command_and_no_line() -> None:
    for line in github_annotations(SAMPLES["hostile"]).splitlines():
        assert re.match(r"::(error|warning|notice) ", line)
        assert "\r" not in line
        assert "\x1b" not in line


def test_output_between_the_guards_is_no_command() -> None:
    """As the runner does it: after stop-commands only the line with the same token counts."""
    start, end = github_guard(SAMPLES["failed"])
    token = start.removeprefix("::stop-commands::")
    assert re.fullmatch(r"ptt-[0-9a-f]{64}", token)
    assert end == f"::{token}::"
    assert github_guard(SAMPLES["failed"]) == (start, end)
    assert github_guard(SAMPLES["passed"]) != (start, end)


def test_what_does_not_fit_is_counted_and_the_worst_is_shown() -> None:
    failed = [replace(BOUND, id=f"bound:{i}") for i in range(20)]
    blind = [replace(BLIND, id=f"required:{i}") for i in range(15)]
    found = commands(report(run("r", *failed, *blind, TAILS, WAIVED)))
    assert "14 checks more" not in found[0][2]
    assert found[0][2].endswith(f"{21 - 9 + 15 - 10} checks more in the job summary.")
    assert found[1][1]["title"] == "failed: r: severity:tool-tail-growth"
    assert [level for level, _, _ in found].count("error") == 10


@pytest.mark.parametrize("text", first_fast([HOSTILE, "x" * 600]))
def test_a_summary_over_many_runs_stays_within_what_github_shows(text: str) -> None:
    checks = [replace(BOUND, id=f"bound:{i}", claim=text, data=text, fails_if=text) for i in range(40)]
    runs = [run(f"run-{i}", *checks) for i in range(60)]
    summary = job_summary(report(*runs))
    assert len(summary.encode("utf-8")) <= SUMMARY_BYTES
    assert "left out to keep it short" in summary
    assert summary.count("<details>") == summary.count("</details>")


def test_the_summary_shows_passed_runs_too() -> None:
    summary = job_summary(SAMPLES["passed"])
    assert "| seed-1 | ● passed |" in summary
    assert "Would fail on: fewer than 20 logged steps." in summary

"""Tools of MCP servers are shown by what tells them apart; findings.json keeps their whole names."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from trace_stories import ask, call, end, make, say, write_episodes
from typer.testing import CliRunner

from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.traces.compare import TraceSide, compare_traces
from ptt.reports.traces.comparison import print_compared, render_compared
from ptt.reports.traces.html import render_traces
from ptt.reports.traces.terminal import print_traces
from ptt.reports.traces.tool_names import short_names

FAILING = "mcp__acme_db__run_query"


@pytest.mark.parametrize(
    ("tools", "short"),
    [
        ({"mcp__a__get", "mcp__a__put"}, {"mcp__a__get": "get", "mcp__a__put": "put"}),
        ({"mcp__a__get", "mcp__b__get"}, {"mcp__a__get": "a__get", "mcp__b__get": "b__get"}),
        ({"mcp__a__Bash", "Bash"}, {"mcp__a__Bash": "a__Bash"}),
        ({"mcp__a__get", "get", "a__get"}, {}),
        ({"mcp__get", "get", "mcp____", "a__b"}, {}),
        ({"mcp__a__b__c"}, {"mcp__a__b__c": "b__c"}),
    ],
)
def test_a_tool_is_called_by_what_tells_it_apart(tools: set[str], short: dict[str, str]) -> None:
    assert short_names(tools) == short


def _traces(folder: Path, failing: str = FAILING) -> Path:
    folder.mkdir()
    return write_episodes(
        folder,
        make(
            60,
            lambda at: [
                *ask("Go."),
                *call(failing, error="timed out" if at > 20 else None, of=at),
                *call(f"{failing}_all", of=at),
                *say("x"),
                *end(success=at < 20),
            ],
        ),
    )


def test_reports_show_the_short_name_and_files_keep_the_whole_one(tmp_path: Path) -> None:
    path, out = _traces(tmp_path / "logs"), tmp_path / "out"
    done = CliRunner().invoke(app, ["traces", str(path), "-o", str(out)])
    assert "run_query" in done.output
    assert "mcp__" not in done.output
    page = (out / "report.html").read_text().replace("<wbr>", "")
    assert "run_query_all" in page
    assert "mcp__" not in page
    findings = json.loads((out / "findings.json").read_text())
    assert any(FAILING in finding["claim"] for finding in findings["findings"])


@pytest.mark.slow
def test_two_servers_with_one_tool_are_told_apart_in_a_comparison(tmp_path: Path) -> None:
    other = FAILING.replace("acme", "other")
    sides = [api.traces(_traces(tmp_path / name, tool)) for name, tool in (("a", FAILING), ("b", other))]
    compared = compare_traces(*(TraceSide(diagnosis=side) for side in sides))
    printed = io.StringIO()
    print_compared(compared, Console(file=printed, width=200), "compare.html")
    assert "calls acme_db__run_query" in printed.getvalue()
    assert "mcp__" not in printed.getvalue() + render_compared(compared).text
    print_traces(sides[0], Console(file=printed, width=200), "report.html")
    assert "acme_db__run_query" not in render_traces(sides[0]).text.replace("<wbr>", "")

"""A redacted report of traces: no name and no text of the files, every number of the diagnosis."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from trace_diagnoses import failing_traces

from ptt.reports.redact.redact import redacted_traces
from ptt.reports.traces.findings_json import trace_findings_json
from ptt.reports.traces.html import render_traces

SECRETS = (
    "search_flights", "get_user", "book_flight", "booking-09", "booking-03", "e-14", "e-19", "agents.jsonl", "Oslo",
    "Timed out after", "Bad Gateway", "OSL", "airline", "agent-a", "One more time", "payment_id",
)  # fmt: skip


@pytest.fixture(scope="module")
def shared() -> str:
    diagnosis = redacted_traces(failing_traces(), salt="of the test")
    return render_traces(diagnosis).text + trace_findings_json(diagnosis, "0")


@pytest.mark.parametrize("secret", SECRETS)
def test_nothing_of_the_files_stays(secret: str, shared: str) -> None:
    assert secret not in shared


def test_numbers_and_our_own_words_stay(shared: str) -> None:
    for text in ("rose from 2% to 47%", "Redacted.", "23.9%", "parted at assistant turn 2", "failed: [left out]"):
        assert text in shared


def test_one_tool_has_one_name_everywhere() -> None:
    diagnosis = redacted_traces(failing_traces(), salt="of the test")
    worst = diagnosis.tables["tools"]["name"][0]
    assert worst.startswith("tool-")
    assert worst in diagnosis.findings[0].claim
    assert diagnosis.examples[0].messages[1].calls[0].name == worst
    assert redacted_traces(failing_traces(), salt="another").tables["tools"]["name"][0] != worst


def test_rates_and_costs_of_tools_are_shared_without_their_names() -> None:
    row = {"rate": "tool:search_flights", "label": "failed calls of search_flights", "scale": "share", "value": 0.1}
    change = pl.DataFrame([row, row | {"rate": "truncated", "label": "truncation"}]).with_columns(
        early=None, late=None, onset=None, p_value=None, seen_at=0.3
    )
    cost = pl.DataFrame({"part": ["tool"], "name": ["search_flights"], "episodes": [3], "cost_usd": [1.5]})
    made = failing_traces()
    shared = redacted_traces(replace(made, tables={**made.tables, "changes": change, "cost": cost}), salt="of the test")
    assert "search_flights" not in str(shared.tables["changes"].to_dicts() + shared.tables["cost"].to_dicts())
    assert shared.tables["changes"]["label"].to_list()[1] == "truncation"
    assert shared.tables["changes"]["scale"].to_list() == ["share", "share"]
    assert shared.tables["cost"]["part"].to_list() == ["tool"]
    assert shared.tables["cost"]["name"].to_list() == [shared.tables["tools"]["name"][0]]


def test_tool_names_stay_where_they_are_wanted() -> None:
    diagnosis = redacted_traces(failing_traces(), salt="s", keep_tool_names=True)
    assert diagnosis.tables["tools"]["name"][0] == "search_flights"
    assert "Oslo" not in render_traces(diagnosis).text

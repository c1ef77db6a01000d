"""The table of tools, classes of error, and tools that are required, made up or forgotten."""

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from trace_stories import Step, ask, call, end, found, judge, make, say

from ptt import api
from ptt.diagnostics.model import Severity
from ptt.diagnostics.traces.tools import classify_errors, error_table


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Request timed out after 30 s", "timeout"),
        ("HTTP 429: slow down", "rate limit"),
        ("Error: too many requests", "rate limit"),
        ("Tool fetch_page not found", "unknown tool"),
        ("Unknown function: fetch", "unknown tool"),
        ("json.decoder.JSONDecodeError: Expecting value", "parse"),
        ("Failed parsing tool call arguments due to JSONDecodeError", "parse"),
        ("TypeError: search() missing 1 required positional argument", "invalid arguments"),
        ("pydantic: 1 validation error for Search", "invalid arguments"),
        ("PermissionError: [Errno 13]", "permission"),
        ("status: 403 Forbidden", "permission"),
        ("FileNotFoundError: [Errno 2] No such file or directory", "not found"),
        ("Error: reservation not found", "not found"),
        ("HTTP 503", "server error (5xx)"),
        ("upstream said: service unavailable", "server error (5xx)"),
        ("HTTP 418", "request error (4xx)"),
        ("Connection refused", "connection"),
        ("worker ran out of memory", "out of memory"),
        ("command exited with exit code 2", "exit code"),
        ("ZeroDivisionError: division by zero", "ZeroDivisionError"),
        ("the 404 apples cost 500 euros", "other"),
        ("", "not told"),
    ],
)
def test_errors_are_classed_by_what_they_say(text: str, expected: str) -> None:
    calls = pl.DataFrame(
        {"tool": ["a"], "error_type": [None], "error_text": [text]}, schema_overrides={"error_type": pl.String}
    )
    assert classify_errors(calls)["error_class"].to_list() == [expected]


def test_classes_are_counted_by_tool() -> None:
    texts = ["timed out", "timed out", "boom", None]
    calls = pl.DataFrame(
        {"tool": ["a", "a", "a", "b"], "error_type": [None, None, None, "permission"], "error_text": texts}
    )
    table = error_table(classify_errors(calls))
    assert table.select("tool", "error_class", "calls").rows() == [
        ("a", "timeout", 2),
        ("a", "other", 1),
        ("b", "permission", 1),
    ]
    assert table["share"].to_list() == pytest.approx([2 / 3, 1 / 3, 1.0])


def test_the_table_of_tools_counts_what_the_episodes_hold(tmp_path: Path) -> None:
    def episode(number: int) -> list[Step]:
        steps = [*ask(f"Task {number}"), *call("search", f"row {number}", key=number)]
        if number % 2:
            steps += [*call("read", "same", key=1), *call("read", "same", key=1)]
        if number % 4 == 0:
            steps += call("book", "", error="quota exceeded", key=number)
        return [*steps, *say(f"done {number}"), *end(success=number % 2 == 1)]

    diagnosis = judge(tmp_path, make(40, episode))
    rows = {row["name"]: row for row in diagnosis.tables["tools"].iter_rows(named=True)}
    assert {name: row["calls"] for name, row in rows.items()} == {"search": 40, "read": 40, "book": 10}
    assert rows["read"]["repeated"] == 0.5
    assert rows["read"]["episodes"] == 20
    assert (rows["book"]["failures"], rows["book"]["known"], rows["book"]["failed"]) == (10, 10, 1.0)
    assert (rows["read"]["success_with"], rows["read"]["success_without"]) == (1.0, 0.0)
    assert rows["search"]["low"] == 0.0
    assert rows["search"]["high"] < 0.2
    (finding,) = found(diagnosis, "tool-failures")
    assert finding.slice == "tool:book"
    assert finding.evidence["error_class"] == "rate limit"
    assert diagnosis.tables["error_classes"].row(0)[:3] == ("book", "rate limit", 10)


def offered(number: int, name: str, *, success: bool | None = None, result: str | None = "ok") -> dict[str, Any]:
    request = {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps({"n": number})},
    }
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": f"Task {number}"},
        {"role": "assistant", "content": None, "tool_calls": [request]},
    ]
    if result is not None:
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"{result} {number}"})
    messages.append({"role": "assistant", "content": f"Answer {number}"})
    tools = [{"type": "function", "function": {"name": tool, "parameters": {}}} for tool in ("search", "file.read")]
    return {"messages": messages, "tools": tools, **({} if success is None else {"success": success})}


def judge_chats(folder: Path, rows: list[dict[str, Any]]) -> Any:
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return api.traces(path)


def test_tools_that_are_not_offered_are_made_up(tmp_path: Path) -> None:
    rows = [offered(number, "fetch_page" if number % 4 == 0 else "search", result=None) for number in range(80)]
    (finding,) = found(judge_chats(tmp_path, rows), "tool-use")
    assert finding.severity is Severity.MEDIUM
    assert "20 of 80" in finding.claim
    assert "fetch_page" in finding.claim


def test_a_tool_that_answers_exists_whatever_was_offered(tmp_path: Path) -> None:
    rows = [offered(number, "submit" if number % 4 == 0 else "file_read") for number in range(80)]
    assert not found(judge_chats(tmp_path, rows), "tool-use")


def test_a_tool_that_helps_and_is_hardly_called_is_a_hint(tmp_path: Path) -> None:
    draw = random.Random(1)
    rows = []
    for number in range(400):
        helped = number % 8 == 0
        rows.append(
            offered(number, "file.read" if helped else "search", success=draw.random() < (0.9 if helped else 0.3))
        )
    diagnosis = judge_chats(tmp_path, rows)
    if diagnosis.traces.labelled:
        (finding,) = found(diagnosis, "tool-use")
        assert finding.severity is Severity.INFO
        assert finding.slice == "tool:file.read"

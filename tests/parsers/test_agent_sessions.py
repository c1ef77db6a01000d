"""Sessions as agents' own programs save them: whoever wrote them, turns, calls and what these gave back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import samples_sessions as sessions
from parser_samples import losses, table, takers
from samples_agent_spans import ANSWER, ASKED, FOUND
from samples_calls import jsonl
from samples_traces import document
from trace_pieces import kept, read, told

from ptt.diagnostics.parsers import RunFile

OTHERS = ("crewai", "browser", "toolbench", "few_shot")  # hold another conversation
WITH_A_CALL = {rel: data for rel, (_, data) in sessions.SAMPLES.items() if not any(name in rel for name in OTHERS)}


@pytest.mark.parametrize("rel", WITH_A_CALL)
def test_each_program_gives_the_conversation(tmp_path: Path, rel: str) -> None:
    found = read(tmp_path, rel, WITH_A_CALL[rel])
    ((prompt, completion, _),) = kept(found)
    assert ASKED in prompt[-1]["content"]
    assert [message["role"] for message in completion] == ["assistant", "tool", "assistant"]
    assert completion[1]["content"].strip() in (FOUND, json.dumps({"result": FOUND}))  # as ADK and Antigravity give it
    assert completion[2]["content"].strip() == ANSWER
    (call,) = table(found, "tool_calls").to_dicts()
    assert call["name"] == ("read_file" if "ui_messages" in rel else "look_up")
    assert call["result_len"]
    assert losses(found)[0] == 0


FAILING: dict[str, tuple[str, bytes]] = {
    "pi": ("pi.jsonl", jsonl([
        row if row.get("id") != "e3" else row | {"message": row["message"] | {"isError": True}} for row in sessions.PI
    ])),
    "opencode": ("export.json", document(sessions.opencode_export("error"))),
    "autogen": ("team.json", document([
        row if row["type"] != "ToolCallExecutionEvent" else row | {"content": [row["content"][0] | {"is_error": True}]}
        for row in sessions.AUTOGEN
    ])),
    "browser-use": ("history.json", document(sessions.BROWSER)),
    "callbacks": ("log.jsonl", jsonl([
        row if row["event"] != "tool_end" else row | {"output": sessions.tool_message("no", " status='error'")}
        for row in sessions.callbacks(ASKED)
    ])),
    "callbacks that raise": ("log.jsonl", jsonl([
        row if row["event"] != "tool_end" else {"event": "tool_error", "error": "KeyError('no parcel 7')"}
        for row in sessions.callbacks(ASKED)
    ])),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_a_marked_failure_is_one(tmp_path: Path, name: str) -> None:
    found = read(tmp_path, *FAILING[name])
    assert table(found, "trajectories")["n_tool_fail"].to_list() == [1]
    assert table(found, "tool_calls").filter(ok=False)["ok_source"].to_list() == ["flag"]


def test_every_branch_of_a_tree_of_answers_was_tried(tmp_path: Path) -> None:
    found = read(tmp_path, "1_DFS.json", document(sessions.TOOLBENCH_TREE))
    calls = table(found, "tool_calls").select("turn_idx", "name", "ok", "error_type").rows()
    assert [(turn, name) for turn, name, *_ in calls] == [(1, "look_up"), (3, "look_up"), (5, "look_up"), (7, "Finish")]
    assert [(ok, kind) for *_, ok, kind in calls[:2]] == [(False, None), (False, "unknown_tool")]
    ((prompt, completion, tools),) = kept(found)
    assert prompt == [{"role": "user", "content": ASKED}]
    assert completion[4]["content"] == "I look again."
    assert [tool["function"]["name"] for tool in tools] == ["look_up"]


LONG = "x" * 100_000  # longer than what a format is told by
LONG_HEADS: dict[str, dict[str, Any]] = {
    "adk.json": sessions.ADK | {"state": {"notes": LONG}},
    "opencode.json": sessions.opencode_export("completed") | {"messages": [
        {"info": one["info"] | {"summary": {"diffs": [{"file": "a", "before": LONG}]}}, "parts": one["parts"]}
        for one in sessions.opencode_export("completed")["messages"]
    ]},
    "copilot.json": sessions.COPILOT | {
        "requests": [{**one, "variableData": {"variables": [LONG]}} for one in sessions.COPILOT["requests"]],
    },
}  # fmt: skip


@pytest.mark.parametrize("name", LONG_HEADS)
def test_a_document_whose_head_holds_one_long_text_is_told_by_what_is_before_it(tmp_path: Path, name: str) -> None:
    document_of = LONG_HEADS[name]
    if name == "copilot.json":  # what is asked and answered stands behind the files it was about
        (first,) = document_of["requests"]
        document_of = document_of | {
            "requests": [{key: first[key] for key in sorted(first, key=("response", "result").count)}]
        }
    found = read(tmp_path, name, document(document_of))
    assert told(found, "n_turns", "n_tool_calls") == [(2, 1)]


def test_a_model_asked_afresh_begins_the_next_session_of_a_log(tmp_path: Path) -> None:
    found = read(tmp_path, "log.jsonl", jsonl([*sessions.callbacks(ASKED), *sessions.callbacks("And parcel 8?")]))
    assert told(found, "n_turns", "n_tool_calls") == [(2, 1), (2, 1)]


def test_calls_at_once_are_paired_by_their_names_and_ids(tmp_path: Path) -> None:
    def asks(name: str) -> dict[str, Any]:
        return {"id": f"c-{name}", "name": name, "args": {}}

    rows = [
        sessions.streamed("on_chat_model_start", "model", input={"messages": [{"role": "user", "content": ASKED}]}),
        sessions.streamed("on_chat_model_end", "model", output={"type": "ai", "content": "", "tool_calls": [
            asks("find"), asks("count"),
        ]}),
        sessions.streamed("on_tool_start", "count", input={}),
        sessions.streamed("on_tool_start", "find", input={}),
        sessions.streamed("on_tool_end", "find", output={"type": "tool", "content": "found", "tool_call_id": "c-find"}),
        sessions.streamed("on_tool_end", "count", output={"type": "tool", "content": "7", "tool_call_id": "c-count"}),
    ]  # fmt: skip
    found = read(tmp_path, "events.jsonl", jsonl(rows))
    calls = {call["name"]: call["result_len"] for call in table(found, "tool_calls").to_dicts()}
    assert calls == {"find": 5, "count": 1}


@pytest.mark.parametrize(
    "row",
    [
        {"type": "message", "role": "user", "content": "a"},
        {"type": "session", "id": "s"},
        {"event": "start", "data": {}},
        {"type": "text", "text": "a"},
        {"author": "me", "content": "a"},
        {"source": "web", "type": "page", "content": "a"},
        {"timestamp": "2023-11-14", "task": "a", "agent": "b", "status": "ok"},
        {"type": "say", "text": "a"},
        {"role": "user", "parts": []},
        {"result": [], "state": {}},
    ],
)
@pytest.mark.parametrize("carry", ["rows.jsonl", "rows.json"])
def test_what_only_looks_like_a_session_is_nobodys(tmp_path: Path, row: dict[str, Any], carry: str) -> None:
    path = tmp_path / carry
    path.write_bytes(jsonl([row]) if carry.endswith("l") else document([row]))
    assert "agent_sessions" not in takers(RunFile(path=path, rel=carry, size=path.stat().st_size))

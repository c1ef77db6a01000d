"""Transcripts in plain text and Markdown, and logs whose rows grow or count anew: how many episodes, turns, calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parser_samples import parser_named, run_file, table, takers
from samples_calls import jsonl

from ptt.diagnostics.parsers.io.unrecognised import why_not


def counts(path: Path, data: bytes) -> list[tuple[Any, ...]]:
    path.write_bytes(data)
    pieces = list(parser_named(takers(run_file(path))[0]).read(run_file(path)))
    return table(pieces, "trajectories").select("n_turns", "n_tool_calls", "n_tool_fail", "success").rows()


TEXTS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    # kimjune01/generative-tau-bench
    "bracketed.log": (
        "agent=a success=False r_state=False\n\n[agent] respond: Which order?\n[user] The blue one.\n"
        "[agent] get_order({'order_id': '#1'})\n[tool] Error: unavailable\n[agent] respond: Later.\n[user] ok\n",
        [(3, 1, 0, False)],
    ),
    "times.log": (
        "2026-01-01 10:00:00,123 - agent - INFO - [USER] find x\n2026-01-01 10:00:01,000 - agent - INFO - [TOOL CALL] "
        'search({"q": "x"})\n2026-01-01 10:00:02,000 - agent - INFO - [TOOL RESULT] found\n'
        "2026-01-01 10:00:03,000 - agent - INFO - [ASSISTANT] here\n"
        "2026-01-01 10:00:04,000 - agent - INFO - [USER] ok\n",
        [(2, 1, 0, None)],
    ),
    "bold.md": (
        "**User:** Find it.\n\n**Assistant:** I look.\n\n**Tool Call:** `search`\n```json\n{\"q\": 1}\n```\n\n"
        "**Tool Result:**\n```\nUser: in a file\n```\n\n**Assistant:** Found.\n",
        [(2, 1, 0, None)],
    ),
    "named.md": ("**User**\n\nFix\n\n---\n\n**Cursor**\n\nDone\n\n---\n\n" * 2, [(2, 0, 0, None)]),
    "pictures.md": (
        "## 👤 User\n\nfix\n\n## 🤖 Assistant\n\nOk.\n\n### 🔧 Tool: Bash\n\n```json\n{}\n```\n\n### 📋 Result\n\n"
        "```\na\n```\n\n## 👤 User\n\nmore\n\n## 🤖 Assistant\n\ndone\n",
        [(2, 1, 0, None)],
    ),
    # specstoryai/tnyOffice
    "specstory.md": (
        "_**User**_\n\nfix\n\n---\n\n_**Agent (claude-opus-4)**_\n\nTool use: **Bash** `make`\n\nError:\n\n"
        "```\nno rule\n```\n\n"
        "_**Agent (claude-opus-4) (sidechain)**_\n\nTool use: **Read**\n\nResult:\n\n```\n**User**\n```\n\n"
        "_**User**_\n\nok\n",
        [(2, 2, 1, None)],
    ),
    "specstory2.md": (
        "_**User (2026-01-01)**_\n\nfix\n\n---\n\n_**Agent (claude)**_\n\n"
        "<tool-use data-tool-type=\"read\" data-tool-name=\"Read\"><details>\n"
        "<summary>Tool use: **Read** `a`</summary>\n\n```text\nx\n```\n"
        "</details></tool-use>\n\n---\n\n"
        "_**Agent (claude)**_\n\nDone.\n\n_**User**_\n\nok\n",
        [(2, 1, 0, None)],
    ),
    "printed.txt": (
        "==== Human Message ====\n\nadd\n==== Ai Message ====\nTool Calls:\n  add (call_1)\n"
        " Call ID: call_1\n  Args:\n    a: 2\n"
        "===== Tool Message =====\nName: add\n\n4\n==== Ai Message ====\n\nIt is 4.\n",
        [(2, 1, 0, None)],
    ),
    # noahshinn/reflexion
    "sections.txt": (
        "".join(
            f"---- BEGIN {how} AGENTS ----\n\nQuestion: q\nThought 1: t\nAction 1: Search[x]\nObservation 1: y\n\n"
            for how in ("CORRECT", "HALTED")
        ),
        [(1, 1, 0, True), (1, 1, 0, False)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_speakers_are_told_in_whatever_way_a_text_marks_them(tmp_path: Path, name: str) -> None:
    text, expected = TEXTS[name]
    found = counts(tmp_path / name, text.encode())
    assert [(*row[:2], row[2] or 0, row[3]) for row in found] == expected


def test_requests_that_grow_are_one_conversation(tmp_path: Path) -> None:
    call = {"id": "a", "function": {"name": "weigh", "arguments": "{}"}}
    first = [{"role": "user", "content": "weigh"}]
    then = [*first, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    own = {"text": "", "tool_calls": [{"id": "a", "name": "weigh", "arguments": {}}]}
    rows: list[dict[str, Any]] = [
        {"messages": first, "response": own},
        {"messages": then, "response": {"text": ""}},
        {"messages": [*then, {"role": "user", "content": "well?"}], "response": {"text": "1 kg"}},
        {"messages": first, "response": {"text": "another one"}},
    ]
    assert [row[:2] for row in counts(tmp_path / "llm_calls.jsonl", jsonl(rows))] == [(2, 1), (1, 0)]
    logged: list[dict[str, Any]] = [
        {"input": first, "output": then[1]},
        {"input": then, "output": {"role": "assistant", "content": "1 kg"}},
    ]
    assert [row[:2] for row in counts(tmp_path / "calls.jsonl", jsonl(logged))] == [(2, 1)]


def test_answers_to_one_prompt_stay_apart(tmp_path: Path) -> None:
    asked = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    rows = [{"messages": asked, "response": {"text": f"d{at}"}} for at in range(3)]
    assert len(counts(tmp_path / "group.jsonl", jsonl(rows))) == 3


def test_steps_that_count_anew_begin_another_episode(tmp_path: Path) -> None:
    def step(number: int, tool: str | None) -> dict[str, Any]:
        called = tool and {"tool": tool, "args": {"path": "a"}}
        return {"step": number, "response": {"reasoning": "why", "tool_call": called, "final_answer": None}}

    result = {"tool_result": {"tool": "read_file", "success": False, "output": "no such file"}}
    rows = [step(1, "read_file"), result, step(2, None), step(1, None), step(1, "read_file"), result]
    assert [row[:3] for row in counts(tmp_path / "steps.jsonl", jsonl(rows))] == [(2, 1, 1), (1, 0, 0), (1, 1, 1)]


def test_agents_listed_beside_an_answer_are_no_episodes(tmp_path: Path) -> None:
    helper = {"agent_name": "guard", "tool_info": [{"tool_name": "save", "tool_args": {}, "tool_status": "success"}]}
    row = {"session_id": "s", "user_message": "hi", "agent_response": "hello", "agent_info": [helper, helper]}
    rows = [row, row | {"user_message": "bye", "agent_response": "so long"}, row | {"session_id": "t"}]
    assert [row[:2] for row in counts(tmp_path / "turns.jsonl", jsonl(rows))] == [(2, 4), (1, 2)]


def test_checks_that_match_are_a_success(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    rows = [{"messages": said, "eval": {"state_match": True, "output_match": well}} for well in (True, False)]
    assert [row[3] for row in counts(tmp_path / "rows.jsonl", jsonl(rows))] == [True, False]


def test_conversations_under_their_names_are_episodes(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert len(counts(tmp_path / "runs.json", json.dumps({"first run": said, "second run": said}).encode())) == 2


def test_parts_of_pydantic_ai_are_read(tmp_path: Path) -> None:
    told = [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "plan"}]},
        {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "p", "args": "{}"}]},
        {"kind": "request", "parts": [{"part_kind": "retry-prompt", "tool_name": "p", "content": "bad"}]},
        {"kind": "response", "parts": [{"part_kind": "text", "content": "done"}]},
    ]  # fmt: skip
    assert [row[:3] for row in counts(tmp_path / "messages.json", json.dumps(told).encode())] == [(2, 1, 1)]


def test_calls_in_brackets_are_calls(tmp_path: Path) -> None:
    rows = [
        {"type": "message", "role": "user", "text": "look"},
        {"type": "message", "role": "assistant", "text": '[tool_use:Bash {"command": "ls [a]"}]'},
        {"type": "message", "role": "assistant", "text": "Two ways: [tool_use: or not]"},
        {"type": "message", "role": "assistant", "text": '[tool_use:Bash {"command": "cut of'},
    ]
    assert [row[:2] for row in counts(tmp_path / "session.jsonl", jsonl(rows))] == [(3, 2)]


@pytest.mark.parametrize("text", ["Notes of a run.\nStep one: it searched.\n", "User: hi\nAssistant: hello\n"])
def test_an_unread_text_is_told_what_it_lacks(tmp_path: Path, text: str) -> None:
    path = tmp_path / "agent_run.md"
    path.write_text(text)
    assert why_not(run_file(path)).startswith("Nearest is an agent's transcript")


def test_each_execution_in_a_log_of_agentlite_is_an_episode(tmp_path: Path) -> None:
    def step(number: int, name: str, came: str) -> str:
        head = f"Agent Solver takes {number}-step Action:\n{{\n\tname: {name}\n\tparams: {{'query': 'cat'}}\n}}\n"
        return f"{head}Observation: {came}\n"

    task = "Agent Solver receives the following TaskPackage:\n[\n\tTask ID: 0\n\tInstruction: Weigh the cat.\n]\n"
    begin, end = "====Solver starts execution on TaskPackage 0====\n", "=====Solver finish execution. status:\n"
    text = task + begin + step(0, "Think", "OK") + step(1, "Search", "4 kg\nor 5") + end + begin + step(0, "Plan", "OK")
    assert counts(tmp_path / "agent.log", text.encode()) == [(2, 2, 0, None), (1, 1, 0, None)]

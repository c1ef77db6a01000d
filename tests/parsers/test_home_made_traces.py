"""Small files in the forms of frameworks and home-made agents, each read with the right counts by its parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parser_samples import losses, parser_named, run_file, table, takers
from samples_calls import jsonl

CALL: dict[str, Any] = {"name": "weigh", "args": {"of": 1}, "id": "a"}
ASK, ANSWER = {"role": "USER", "message": "weigh"}, {"role": "CHATBOT", "message": "1 kg"}


def step(thought: str, name: str) -> dict[str, Any]:
    """Return an answer as Auto-GPT of 2023 keeps it, without what came back."""
    asked = {"thoughts": {"text": thought}, "command": {"name": name, "args": {"path": "a.py"}}}
    return {"role": "assistant", "content": json.dumps(asked)}


def named(reason: str, name: str) -> dict[str, Any]:
    return {"role": "assistant", "content": f"<r>{reason}</r><c>{name}</c>\nls -la"}


def runs(first: dict[str, Any], second: dict[str, Any], last: dict[str, Any]) -> bytes:
    """Return answers under their numbers, in runs under their times, in tasks under their names."""
    return json.dumps(
        {"TestA": {"2023-08-04 08:13": {"1": first, "2": second}, "2023-08-04 22:15": {"1": last}},
         "TestB": {"2023-08-05 08:13": {"1": last}}},
    ).encode()  # fmt: skip


TOLD: dict[str, Any] = {"role": "assistant", "content": "Summary: nothing was left to do."}
LEGACY = {"role": "assistant", "content": None, "function_call": {"name": "weigh", "arguments": '{"of": 1}'}}
SEEN = {"level": "info", "agent": "campus", "session": "s1"}
MCP: list[dict[str, Any]] = [
    {"id": 1, "method": "initialize", "params": {}}, {"id": 1, "result": {"capabilities": {}}},
    {"id": 2, "method": "tools/call", "params": {"name": "weigh", "arguments": {"of": 1}}},
    {"id": 2, "result": {"content": [{"type": "text", "text": "denied"}], "isError": True}},
]  # fmt: skip
FORMS: dict[str, tuple[str, bytes, list[tuple[int | None, int, int]]]] = {
    # name: (file, bytes, turns, calls and failures of each episode)
    "auto_gpt": ("response.json", runs(step("look", "read_file"), step("run", "execute"), TOLD),
                 [(2, 2, 0), (1, 0, 0), (1, 0, 0)]),
    "mini_agi": ("response.json", runs(named("look", "execute_shell"), TOLD, named("end", "done")),
                 [(2, 1, 0), (1, 1, 0), (1, 1, 0)]),
    "a_tag_in_prose": ("answers.jsonl", jsonl([
        {"messages": [{"role": "assistant", "content": f"To list files run <command>ls</command> and read on {at}."}]}
        for at in range(3)
    ]), [(1, 0, 0)] * 3),
    "poly_gpt": ("response.json", runs(LEGACY, LEGACY, TOLD), [(2, 2, 0), (1, 0, 0), (1, 0, 0)]),
    "answers_in_lists_of_acts": ("response.json", runs(
        {"role": "assistant", "content": json.dumps({"plan": "look", "act": [["read", "a.py"], ["run", "b.py"]]})},
        {"role": "assistant", "content": json.dumps({"mind": {}, "cmd": {"name": "write", "args": {"to": "a"}}})}, TOLD,
    ), [(2, 3, 0), (1, 0, 0), (1, 0, 0)]),
    "missions": ("tool_calls.jsonl", jsonl([
        {"tool_name": tool, "mission_id": mission, "duration_ms": 8.5, "success": ok, "summary": "read", "error": None}
        for mission in ("m1", "m2") for tool, ok in (("Load", True), ("Analyse", mission == "m1"))
    ]), [(0, 2, 0), (0, 2, 1)]),
    "workers": ("agent.jsonl", jsonl([
        {**SEEN, "message": "Supervisor decision", "node": "supervisor", "think": "a lookup", "decision": "db_worker"},
        {**SEEN, "message": "Worker started", "node": "db_worker", "query": "scores"},
        {**SEEN, "message": "Worker finished", "node": "db_worker", "status": "error", "result": "no permission"},
        {**SEEN, "message": "Supervisor decision", "node": "supervisor", "think": "done", "decision": "FINISH"},
    ]), [(2, 1, 1)]),
    "told_steps": ("agent_trace.json", json.dumps([
        {"event_type": "step", "data": {"type": "plan", "thinking": "split it", "action": "Creating a research plan",
                                        "data": {"subtasks": [{"tool": "web_search", "search_query": "ptt"}] * 2}}},
        {"event_type": "step", "data": {"type": "search", "thinking": "broad", "action": "Executing web_search: 'ptt'",
                                        "data": {"query": "ptt", "tool": "web_search", "sources": [{"url": "x"}]}}},
        {"event_type": "confidence_update", "data": {"passed": False}},
    ]).encode(), [(2, 1, 0)]),
    "cohere": ("chat.json", json.dumps([
        ASK, {"role": "CHATBOT", "message": "", "tool_calls": [{"name": "weigh", "parameters": {"of": 1}}]},
        {"role": "TOOL", "tool_results": [{"call": {"name": "weigh"}, "outputs": [{"kg": 1}]}]}, ANSWER,
    ]).encode(), [(2, 1, 0)]),
    "ag_ui": ("events.jsonl", jsonl([
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "let me "},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "look"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        {"type": "TOOL_CALL_START", "toolCallId": "a", "toolCallName": "weigh"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "a", "delta": '{"of":'},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "a", "delta": "1}"},
        {"type": "TOOL_CALL_END", "toolCallId": "a"},
        {"type": "TOOL_CALL_RESULT", "messageId": "n", "toolCallId": "a", "content": "1 kg", "role": "tool"},
    ]), [(1, 1, 0)]),
    "starts_and_ends": ("events.jsonl", jsonl([
        {"type": "user_message", "id": "u", "content": "weigh"},
        {"type": "tool_start", "id": "a", "tool": "weigh", "input": {"of": 1}},
        {"type": "tool_end", "id": "a", "tool": "weigh", "output": "stuck", "error": "stuck"},
        {"type": "assistant_message", "id": "m", "content": "it is stuck"},
    ]), [(2, 1, 1)]),
    "a_success_outweighs_no_error": ("chat.jsonl", jsonl([{"messages": [
        ASK, {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "1 kg", "tool_call_id": "a", "error": False, "success": False}, ANSWER,
    ]}]), [(2, 1, 1)]),
    "mcp": ("mcp.jsonl", jsonl([
        {"ts": 1, "message": {"jsonrpc": "2.0"} | told} for told in MCP
    ]), [(0, 1, 1)]),
    "langgraph_updates": ("stream.jsonl", jsonl([
        {"agent": {"messages": [{"type": "ai", "content": "", "tool_calls": [CALL]}]}},
        {"tools": {"messages": [{"type": "tool", "content": "1 kg", "name": "weigh", "tool_call_id": "a"}]}},
        {"agent": {"messages": [{"type": "ai", "content": "1 kg"}]}},
    ]), [(2, 1, 0)]),
    "crewai_file": ("crew.txt", b"".join(
        f'2024-10-01 10:00:0{at}: task_name="{name}", task="{name} it", agent="Ann", status="completed", output="ok"\n'
        .encode() for at, name in enumerate(("research", "write"))
    ), [(2, 0, 0)]),
    "autogen_state": ("state.json", json.dumps({"agent_states": {"a": {"llm_context": {"messages": [
        {"content": "weigh", "source": "user", "type": "UserMessage"},
        {"content": [{"id": "a", "arguments": "{}", "name": "weigh"}], "source": "assistant",
         "type": "AssistantMessage"},
        {"content": [{"content": "stuck", "name": "weigh", "call_id": "a", "is_error": True}],
         "type": "FunctionExecutionResultMessage"},
        {"content": "stuck", "source": "assistant", "type": "AssistantMessage"},
    ]}}}}).encode(), [(2, 1, 1)]),
    "dify": ("messages.json", json.dumps({"data": [
        {"query": f"weigh {at}", "answer": "1 kg", "agent_thoughts": [
            {"position": 1, "thought": "look", "tool": "weigh", "tool_input": "{}", "observation": "1 kg"},
            {"position": 2, "thought": "1 kg", "tool": "", "tool_input": "", "observation": ""}]}
        for at in range(2)
    ]}).encode(), [(2, 1, 0)] * 2),
    "ai_sdk_steps": ("result.json", json.dumps({"prompt": "weigh", "steps": [
        {"stepType": "initial", "text": "",
         "toolCalls": [{"type": "tool-call", "toolCallId": "a", "toolName": "weigh", "args": {"of": 1}}],
         "toolResults": [{"type": "tool-result", "toolCallId": "a", "toolName": "weigh", "result": "1 kg"}]},
        {"stepType": "tool-result", "text": "1 kg", "toolCalls": [], "toolResults": []},
    ]}).encode(), [(2, 1, 0)]),
    "semantic_kernel": ("history.json", json.dumps([
        {"Role": {"Label": "user"}, "Items": [{"$type": "TextContent", "Text": "weigh"}]},
        {"Role": {"Label": "assistant"}, "Items": [{"$type": "FunctionCallContent", "Id": "a", "FunctionName": "weigh",
                                                    "Arguments": {"of": "1"}}]},
        {"Role": {"Label": "tool"}, "Items": [{"$type": "FunctionResultContent", "CallId": "a", "Result": "1 kg"}]},
        {"Role": {"Label": "assistant"}, "Items": [{"$type": "TextContent", "Text": "1 kg"}]},
    ]).encode(), [(2, 1, 0)]),
    "textarena": ("game.json", json.dumps({"env_id": "TicTacToe-v0", "steps": [
        {"player_id": at, "observation": "[GAME] it is your move", "action": f"[{at}]"} for at in (0, 1, 0)
    ]}).encode(), [(3, 0, 0)]),
    "a_model_and_a_tool_a_step": ("run.json", json.dumps({"task": "weigh", "iterations": [
        {"iteration": 1, "llm": {"response": "let me look"}, "tool": {"name": "weigh", "input": {}, "output": "1"}},
        {"iteration": 2, "llm": {"response": "1 kg"}, "tool": None},
    ]}).encode(), [(2, 1, 0)]),
    "mistral_entries": ("conversation.json", json.dumps({"entries": [
        {"type": "message.input", "role": "user", "content": "weigh"},
        {"type": "function.call", "tool_call_id": "a", "name": "weigh", "arguments": "{}"},
        {"type": "function.result", "tool_call_id": "a", "result": "1 kg"},
        {"type": "tool.execution", "name": "web_search", "arguments": "{}"},
        {"type": "message.output", "role": "assistant", "content": "1 kg"},
    ]}).encode(), [(3, 2, 0)]),
    "kinds_and_payloads": ("events.jsonl", jsonl([
        {"kind": "UserInput", "payload": {"text": "weigh"}},
        {"kind": "LLMResponse", "payload": {"text": "let me look"}},
        {"kind": "ToolInvoked", "payload": {"tool": "weigh", "params": {"of": 1}}},
        {"kind": "ToolReturned", "payload": {"tool": "weigh", "value": "stuck", "ok": False}},
        {"kind": "LLMResponse", "payload": {"text": "stuck"}},
    ]), [(2, 1, 1)]),
    "haystack": ("chat.json", json.dumps({"messages": [
        {"role": "user", "content": [{"text": "weigh"}]},
        {"role": "assistant", "content": [{"tool_call": {"tool_name": "weigh", "arguments": {}, "id": "a"}}]},
        {"role": "tool", "content": [{"tool_call_result": {"result": "stuck", "error": True, "origin": {
            "tool_name": "weigh", "arguments": {}, "id": "a"}}}]},
        {"role": "assistant", "content": [{"text": "stuck"}]},
    ]}).encode(), [(2, 1, 1)]),
    "mastra": ("thread.json", json.dumps({"messages": [
        {"role": "user", "content": {"format": 2, "parts": [{"type": "text", "text": "weigh"}]}},
        {"role": "assistant", "content": {"format": 2, "parts": [
            {"type": "tool-invocation", "toolInvocation": {"state": "result", "toolCallId": "a", "toolName": "weigh",
                                                           "args": {"of": 1}, "result": "1 kg"}},
            {"type": "text", "text": "1 kg"}]}},
    ]}).encode(), [(1, 1, 0)]),
    "a2a": ("task.json", json.dumps({"kind": "task", "history": [
        {"role": role, "parts": [{"kind": "text", "text": "weigh"}], "kind": "message"} for role in ("user", "agent")
    ] * 2}).encode(), [(2, 0, 0)]),
    "steps_in_markdown": ("run.md", b"".join(
        b"## Step %d\n**Thought:** look\n**Tool:** %s\n**Args:** {}\n**Result:** ok\n\n" % (at, name)
        for at, name in enumerate((b"list_files", b"read_file"))
    ), [(2, 2, 0)]),
    "told_in_a_log": ("agent.log", b"""2025-01-01 10:00:00 INFO agent: User query: weigh it
2025-01-01 10:00:01 INFO agent: Calling tool weigh with args {"of": 1}
2025-01-01 10:00:02 INFO agent: Tool weigh returned: 1 kg
2025-01-01 10:00:03 INFO agent: Calling tool tare with args {}
2025-01-01 10:00:04 ERROR agent: Tool tare failed: stuck
2025-01-01 10:00:05 INFO agent: Final answer: 1 kg
""", [(3, 2, 1)]),
    "aider_of_2024": ("aider.txt", (
        b"\n"
        b"# aider chat started at 2024-07-16 18:55:29\n"
        b"\n"
        b"#### weigh it  \n"
        b"#### and report eval_loss: 0.3 {'kl_divergence': 0.34, 'eval_loss': 0.43}  \n"
        b"> 5829 prompt tokens, 737 completion tokens, $0.0402 cost  \n"
        b"\n"
        b"#### Plan\n"
        b"1 kg\n"
        b"\n"
        b"> Applied edit to a.py  \n"
        b"#### again  \n"
        b"> 6829 prompt tokens, 37 completion tokens, $0.0402 cost  \n"
        b"\n"
        b"still 1 kg\n"
    ), [(2, 0, 0)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_read_with_its_counts(tmp_path: Path, name: str) -> None:
    file, data, want = FORMS[name]
    path = tmp_path / file
    path.write_bytes(data)
    pieces = list(parser_named(takers(run_file(path))[0]).read(run_file(path)))
    found = table(pieces, "trajectories").select("n_turns", "n_tool_calls", "n_tool_fail").rows()
    assert [tuple(count or 0 for count in row) for row in found] == want
    assert losses(pieces)[0] == 0


def test_runs_under_a_task_belong_to_it(tmp_path: Path) -> None:
    path = tmp_path / "response.json"
    path.write_bytes(runs(TOLD, TOLD, TOLD))
    found = table(list(parser_named("agent_records").read(run_file(path))), "trajectories")
    assert found["task"].to_list() == ["TestA", "TestA", "TestB"]


def test_how_far_a_run_is_labels_no_episode(tmp_path: Path) -> None:
    file, data, _ = FORMS["told_steps"]
    path = tmp_path / file
    path.write_bytes(data)
    found = table(list(parser_named("agent_records").read(run_file(path))), "trajectories")
    assert found["success"].to_list() == found["reward"].to_list() == [None]


def test_a_request_in_json_that_only_a_prompt_shows_is_no_call(tmp_path: Path) -> None:
    asked = {"name": "Ann", "arguments": {"age": 3}}
    said = [{"role": "user", "content": "who is it?"}, {"role": "assistant", "content": json.dumps(asked)}]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(jsonl([{"messages": said}] * 3))
    pieces = list(parser_named(takers(run_file(path))[0]).read(run_file(path)))
    assert set(table(pieces, "trajectories")["n_tool_calls"].to_list()) <= {0, None}


def test_prose_on_functions_is_no_log_of_calls(tmp_path: Path) -> None:
    said = "- Now calling function foo lazily\n- function foo returned wrong values\n" * 2
    path = tmp_path / "CHANGELOG.md"
    path.write_text(f"# Changelog\n{said}")
    assert takers(run_file(path)) == []

"""Samples of coding agents' sessions, built field by field after the sources that their parsers cite."""

from __future__ import annotations

import json
from typing import Any

from samples_calls import jsonl


def document(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def at(second: int) -> str:
    return f"2026-01-02T03:04:{second:02d}.250Z"


def _metrics(prompt: list[int], completion: list[int]) -> dict[str, Any]:
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(completion),
        "cost_usd": 0.25,
        "prompt_token_ids": prompt,
        "completion_token_ids": completion,
        "logprobs": [-0.125 * token for token in completion],
    }


ADD: dict[str, Any] = {"type": "function", "function": {"name": "add", "parameters": {}}}
ATIF: dict[str, Any] = {
    "schema_version": "ATIF-v1.5",
    "session_id": "a-1",
    "agent": {"name": "larch", "version": "1", "model_name": "some-model", "tool_definitions": [ADD]},
    "steps": [
        {"step_id": 1, "source": "system", "message": "You can add.", "timestamp": at(0)},
        {"step_id": 2, "source": "user", "message": "What is 1 + 2?"},
        {
            "step_id": 3,
            "source": "agent",
            "message": "I add.",
            "reasoning_content": "two numbers",
            "tool_calls": [
                {"tool_call_id": "c1", "function_name": "add", "arguments": {"a": 1, "b": 2}},
                {"tool_call_id": "c2", "function_name": "add", "arguments": {"a": 2, "b": 1}},
            ],
            "observation": {"results": [{"source_call_id": "c1", "content": "3"}, {"content": "3 again"}]},
            "metrics": _metrics([1, 2, 3], [4, 5]),
        },
        {"step_id": 4, "source": "agent", "message": "3", "metrics": _metrics([1, 2, 3, 4, 5, 9], [6]), "extra": {}},
    ],
    "final_metrics": {"total_prompt_tokens": 9, "total_completion_tokens": 3, "total_cost_usd": 0.5},
}

BASH = "THOUGHT: I look.\n\n```bash\nls\n```"
MINI: dict[str, Any] = {
    "info": {
        "exit_status": "LimitsExceeded",
        "submission": "",
        "model_stats": {"instance_cost": 0.5, "api_calls": 2},
        "mini_version": "1.13.4",
        "config": {"model": {"model_name": "maker/some-model"}},
    },
    "messages": [
        {"role": "system", "content": "You can use bash."},
        {"role": "user", "content": [{"type": "text", "text": "Please look."}]},
        {"role": "assistant", "content": BASH, "extra": {"response": {"usage": {"completion_tokens": 7}}}},
        {
            "role": "user",
            "content": [{"type": "text", "text": "<returncode>0</returncode>\n<output>\na.py\n</output>"}],
        },
        {"role": "assistant", "content": BASH},
        {"role": "user", "content": "<returncode>2</returncode>\n<output>\n</output>"},
    ],
    "trajectory_format": "mini-swe-agent-1",
}


def _bash(name: str, command: str, spent: int) -> dict[str, Any]:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    usage = {"prompt_tokens": 10, "completion_tokens": spent}
    extra = {"actions": [{"command": command, "tool_call_id": name}], "response": {"usage": usage}, "timestamp": 1.7e9}
    calls = [{"id": name, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls, "extra": extra}


def _ended(name: str, **extra: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": "<output>", "extra": {"exception_info": "", **extra}}


MINI_2: dict[str, Any] = {
    "info": {**MINI["info"], "mini_version": "2.1.0", "exit_status": "Submitted"},
    "messages": [
        *MINI["messages"][:2],
        _bash("c1", "ls", 3),
        _ended("c1", returncode=0),
        _bash("c2", "pyton a.py", 4),
        _ended("c2", returncode=127),
        _bash("c3", "sleep 99", 5),
        _ended("c3", returncode=-1, exception_info="timed out", exception_type="TimeoutExpired"),
        {"role": "exit", "content": "diff", "extra": {"exit_status": "Submitted", "submission": "diff"}},
    ],
    "trajectory_format": "mini-swe-agent-1.1",
    "instance_id": "larch__larch-7",
}
MINI_RESPONSES: dict[str, Any] = MINI_2 | {
    "messages": [
        *MINI["messages"][:2],
        {
            "object": "response",
            "model": "some-model",
            "output": [
                {"type": "reasoning", "summary": []},
                {"type": "message", "content": [{"type": "output_text", "text": "I look."}]},
                {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command": "ls"}'},
            ],
            "usage": {"input_tokens": 8, "output_tokens": 5},
        },
        {"type": "function_call_output", "call_id": "c1", "output": "a.py", "extra": {"returncode": 0}},
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
    ]
}


def _event(number: int, source: str, **told: Any) -> dict[str, Any]:
    return {"id": number, "timestamp": at(number), "source": source, "message": "", **told}


def _called(name: str, function: str, arguments: dict[str, Any]) -> dict[str, Any]:
    call = {"id": name, "function": {"name": function, "arguments": json.dumps(arguments)}, "type": "function"}
    choice = {"finish_reason": "tool_calls", "message": {"role": "assistant", "content": None, "tool_calls": [call]}}
    response = {"id": f"r-{name}", "model": "some-model", "choices": [choice], "usage": {"completion_tokens": 6}}
    return {"function_name": function, "tool_call_id": name, "model_response": response, "total_calls_in_response": 1}


_LS, _EDIT = _called("t1", "execute_bash", {"command": "ls"}), _called("t2", "str_replace_editor", {"path": "a.py"})
OPENHANDS: list[dict[str, Any]] = [
    _event(0, "agent", action="system", args={"content": "You can code.", "tools": [ADD]}),
    _event(1, "user", action="message", args={"content": "Mend a.py."}),
    _event(2, "user", action="recall", args={"query": "Mend a.py."}),
    _event(3, "environment", observation="recall", content="", extras={}, cause=2),
    _event(4, "agent", action="run", args={"command": "ls", "thought": "I look."}, tool_call_metadata=_LS),
    _event(5, "agent", observation="run", content="a.py", cause=4, tool_call_metadata=_LS, extras={}, success=True),
    _event(6, "agent", observation="error", content="Parameter 'command' is expected.", extras={"error_id": ""}),
    _event(7, "agent", action="edit", args={"path": "a.py", "thought": ""}, tool_call_metadata=_EDIT),
    _event(8, "agent", observation="error", content="No such file.", cause=7, tool_call_metadata=_EDIT, extras={}),
    _event(9, "environment", observation="agent_state_changed", content="", extras={"agent_state": "running"}),
    _event(
        10, "agent", action="finish", args={"final_thought": "done"}, tool_call_metadata=_called("t3", "finish", {})
    ),
]
OUTPUT: dict[str, Any] = {
    "instance_id": "larch__larch-7",
    "test_result": {"git_patch": "diff", "report": {"resolved": True}},
    "instruction": "Mend a.py.",
    "metadata": {"agent_class": "CodeActAgent", "llm_config": {"model": "some-model"}, "dataset": "larch-train"},
    "history": OPENHANDS,
    "metrics": {
        "accumulated_cost": 0.25,
        "accumulated_token_usage": {"prompt_tokens": 90, "completion_tokens": 12},
    },
    "error": None,
    "instance": {"repo": "larch/larch"},
}
PAIRS: dict[str, Any] = OUTPUT | {
    "instance_id": "larch__larch-8",
    "test_result": {"git_patch": ""},
    "metrics": {"accumulated_cost": 0.5},
    "error": "RuntimeError: Agent reached maximum iteration in headless mode. Current iteration: 2, max iteration: 2",
    "history": [
        [
            _event(1, "user", action="message", args={"content": "Mend a.py."}),
            _event(2, "user", observation="null", content="", extras={}),
        ],
        [
            _event(3, "agent", action="run", args={"command": "ls", "thought": "I look."}),
            _event(4, "agent", observation="run", content="a.py", cause=3, extras={"exit_code": 1}, success=False),
        ],
    ],
}


def _sdk(kind: str, source: str, **told: Any) -> dict[str, Any]:
    return {"kind": kind, "id": f"e-{kind}", "timestamp": at(1)[:-1], "source": source, **told}


def _sdk_action(name: str, tool: str, response: str, thought: str = "") -> dict[str, Any]:
    return _sdk(
        "ActionEvent",
        "agent",
        thought=[{"type": "text", "text": thought}] if thought else [],
        action={"kind": "TerminalAction", "command": "ls"},
        tool_name=tool,
        tool_call_id=name,
        tool_call={"id": name, "name": tool, "arguments": '{"command": "ls"}', "origin": "completion"},
        llm_response_id=response,
    )


def _sdk_result(name: str, tool: str, *, is_error: bool) -> dict[str, Any]:
    seen = {"kind": "TerminalObservation", "content": [{"type": "text", "text": "a.py"}], "is_error": is_error}
    return _sdk("ObservationEvent", "environment", tool_name=tool, tool_call_id=name, observation=seen)


_ASKED = {"role": "user", "content": [{"type": "text", "text": "Mend a.py."}]}
OPENHANDS_SDK: list[dict[str, Any]] = [
    _sdk("SystemPromptEvent", "agent", system_prompt={"type": "text", "text": "You can code."}, tools=[ADD]),
    _sdk("MessageEvent", "user", llm_message=_ASKED),
    _sdk_action("t1", "terminal", "r-1", "I look twice."),
    _sdk_action("t2", "terminal", "r-1"),
    _sdk_result("t1", "terminal", is_error=False),
    _sdk_result("t2", "terminal", is_error=True),
    _sdk_action("t3", "nope", "r-2"),
    _sdk("AgentErrorEvent", "agent", tool_name="nope", tool_call_id="t3", error="Tool 'nope' not found."),
    _sdk("MessageEvent", "agent", llm_message={"role": "assistant", "content": [{"type": "text", "text": "done"}]}),
]

SESSION: dict[str, Any] = {"sessionId": "s-1", "version": "2.0.1", "cwd": "/w", "userType": "external"}


def _turn(number: int, before: int | None, message: dict[str, Any], **told: Any) -> dict[str, Any]:
    ids = {"uuid": f"u{number}", "parentUuid": None if before is None else f"u{before}", "isSidechain": False}
    return {"type": message["role"], **ids, "message": message, "timestamp": at(number), **SESSION, **told}


def _block(response: str, block: dict[str, Any], spent: int, stop: str | None = None) -> dict[str, Any]:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": spent}
    head = {"id": response, "type": "message", "role": "assistant", "model": "some-model"}
    return {**head, "content": [block], "stop_reason": stop, "usage": usage}


def _use(name: str, tool: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": tool, "input": given}


def _given(name: str, content: Any, **told: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": content, **told}]}


CLAUDE: list[dict[str, Any]] = [
    {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}, "isSnapshotUpdate": False},
    {"type": "summary", "summary": "Mending", "leafUuid": "u9"},
    _turn(1, None, {"role": "user", "content": "Mend a.py."}),
    _turn(2, 1, _block("m1", {"type": "thinking", "thinking": "I look."}, 1)),
    _turn(3, 2, _block("m1", {"type": "text", "text": "I read it."}, 1)),
    _turn(4, 3, _block("m1", _use("t1", "Read", file_path="a.py"), 9, "tool_use")),
    _turn(5, 4, _given("t1", [{"type": "text", "text": "x = 1"}]), toolUseResult={"durationMs": 250}),
    _turn(6, 5, _block("m2", _use("t2", "Bash", command="pyton a.py"), 8, "tool_use")),
    _turn(7, 6, _given("t2", "exit code 127", is_error=True), toolUseResult="Error: exit code 127"),
    _turn(7, 6, _given("t2", "exit code 127", is_error=True), toolUseResult="Error: exit code 127"),
    _turn(8, None, {"role": "user", "content": "Find it."}, isSidechain=True),
    _turn(9, 8, _block("m3", {"type": "text", "text": "It is here."}, 4, "end_turn"), isSidechain=True),
    _turn(10, 7, _block("m4", {"type": "text", "text": "done"}, 2, "end_turn")),
]
CLAUDE_STREAM: list[dict[str, Any]] = [
    {"type": "system", "subtype": "init", "session_id": "s-2", "uuid": "v0", "tools": ["Bash"], "model": "some-model"},
    {
        "type": "assistant",
        "message": _block("m1", _use("t1", "Bash", command="ls"), 5, None),
        "parent_tool_use_id": None,
        "session_id": "s-2",
        "uuid": "v1",
    },
    {"type": "user", "message": _given("t1", "a.py"), "parent_tool_use_id": None, "session_id": "s-2", "uuid": "v2"},
    {
        "type": "result",
        "subtype": "error_max_turns",
        "is_error": True,
        "num_turns": 1,
        "total_cost_usd": 0.75,
        "session_id": "s-2",
        "uuid": "v3",
    },
]


def _item(second: int, kind: str, **told: Any) -> dict[str, Any]:
    return {"timestamp": at(second), "type": "response_item", "payload": {"type": kind, **told}}


def _noted(second: int, kind: str, **told: Any) -> dict[str, Any]:
    return {"timestamp": at(second), "type": "event_msg", "payload": {"type": kind, **told}}


def _words(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"role": role, "content": [{"type": kind, "text": text}]}


def _exec(name: str, command: str) -> dict[str, Any]:
    return {"name": "exec_command", "arguments": json.dumps({"cmd": command}), "call_id": name}


def _exited(code: int) -> str:
    return f"Chunk ID: 1\nWall time: 0.5 seconds\nProcess exited with code {code}\nOutput:\nExit code: 9\n"


PATCHED = json.dumps({"output": "Success.", "metadata": {"exit_code": 0, "duration_seconds": 0.125}})
CODEX: list[dict[str, Any]] = [
    {
        "timestamp": at(0),
        "type": "session_meta",
        "payload": {"id": "x-1", "timestamp": at(0), "cwd": "/w", "cli_version": "0.100.0", "model_provider": "openai"},
    },
    _item(1, "message", **_words("user", "Mend a.py.")),
    {"timestamp": at(1), "type": "turn_context", "payload": {"cwd": "/w", "model": "some-model"}},
    _noted(1, "user_message", message="Mend a.py."),
    _item(2, "reasoning", summary=[], encrypted_content="x"),
    _noted(2, "agent_message", message="I look."),
    _item(2, "message", **_words("assistant", "I look.")),
    _item(2, "function_call", **_exec("c1", "ls")),
    _item(3, "function_call_output", call_id="c1", output=_exited(0)),
    _item(4, "function_call", **_exec("c2", "grep x")),
    _item(5, "function_call_output", call_id="c2", output=_exited(1)),
    _item(6, "custom_tool_call", call_id="c3", name="apply_patch", input="*** Begin Patch", status="completed"),
    _item(6, "custom_tool_call_output", call_id="c3", output=PATCHED),
    _item(7, "function_call", name="nope", arguments="{}", call_id="c4"),
    _item(7, "function_call_output", call_id="c4", output="unsupported call: nope"),
    _noted(8, "token_count", info={"total_token_usage": {"input_tokens": 80, "output_tokens": 9}}),
    _item(8, "message", **_words("assistant", "done")),
    _noted(8, "task_complete", turn_id="1"),
]
CODEX_OLDER: list[dict[str, Any]] = [
    {"id": "x-2", "timestamp": at(0), "instructions": None},
    {"record_type": "state"},
    {"type": "message", "id": None, **_words("user", "Mend a.py.")},
    {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "c1"},
    {"type": "function_call_output", "call_id": "c1", "output": PATCHED.replace("0, ", "2, ")},
    {
        "type": "local_shell_call",
        "call_id": "c2",
        "status": "completed",
        "action": {"type": "exec", "command": ["bash", "-c", "ls"]},
    },
    {"type": "function_call_output", "call_id": "c2", "output": {"content": "a.py", "success": True}},
    {"type": "message", "id": "m", **_words("assistant", "done")},
]
CODEX_FIRST: dict[str, Any] = {
    "session": {"timestamp": at(0), "id": "x-3", "instructions": ""},
    "items": CODEX_OLDER[2:5] + CODEX_OLDER[7:],
}
CODEX_STREAM: list[dict[str, Any]] = [
    {"type": "thread.started", "thread_id": "x-4"},
    {"type": "turn.started"},
    {"type": "item.completed", "item": {"id": "item_0", "type": "agent_message", "text": "I look."}},
    {"type": "item.started", "item": {"id": "item_1", "type": "command_execution", "status": "in_progress"}},
    {
        "type": "item.completed",
        "item": {
            "id": "item_1",
            "type": "command_execution",
            "command": "pyton a.py",
            "aggregated_output": "not found",
            "exit_code": 127,
            "status": "failed",
        },
    },
    {
        "type": "item.completed",
        "item": {"id": "item_2", "type": "file_change", "changes": [{"path": "a.py"}], "status": "completed"},
    },
    {"type": "item.completed", "item": {"id": "item_3", "type": "agent_message", "text": "done"}},
    {"type": "turn.completed", "usage": {"input_tokens": 50, "cached_input_tokens": 20, "output_tokens": 6}},
    {"type": "turn.completed", "usage": {"input_tokens": 5, "cached_input_tokens": 0, "output_tokens": 1}},
]


def _ran(name: str, tool: str, status: str, **response: Any) -> dict[str, Any]:
    answer = {"functionResponse": {"id": name, "name": tool, "response": response}}
    return {
        "id": name,
        "name": tool,
        "args": {"path": "a.py"},
        "result": [answer],
        "status": status,
        "timestamp": at(3),
    }


GEMINI_TURNS: list[dict[str, Any]] = [
    {"id": "g1", "timestamp": at(1), "type": "user", "content": [{"text": "Mend a.py."}]},
    {
        "id": "g2",
        "timestamp": at(2),
        "type": "gemini",
        "content": "I look.",
        "thoughts": [{"subject": "plan", "description": "I look first.", "timestamp": at(2)}],
        "model": "some-model",
        "tokens": {"input": 40, "output": 6, "cached": 0, "thoughts": 2, "tool": 0, "total": 48},
        "toolCalls": [
            _ran("t1", "read_file", "success", output="x = 1"),
            _ran("t2", "replace", "error", error="no such text"),
            _ran("t3", "run_shell_command", "cancelled", error="cancelled"),
        ],
    },
    {"id": "g3", "timestamp": at(4), "type": "info", "content": "Request cancelled."},
    {"id": "g4", "timestamp": at(5), "type": "gemini", "content": "done", "tokens": {"input": 50, "output": 1}},
]
GEMINI_HEAD: dict[str, Any] = {
    "sessionId": "y-1",
    "projectHash": "0a",
    "startTime": at(0),
    "lastUpdated": at(5),
}
GEMINI_LINES: list[dict[str, Any]] = [
    GEMINI_HEAD | {"kind": "main"},
    *GEMINI_TURNS[:2],
    GEMINI_TURNS[1] | {"content": "I look closely."},
    {"id": "g9", "timestamp": at(3), "type": "user", "content": "No, wait."},
    {"$rewindTo": "g9"},
    GEMINI_TURNS[3],
    {"$set": {"lastUpdated": at(6), "summary": "Mending"}},
]
GEMINI_CHECKPOINT: list[dict[str, Any]] = [
    {"role": "user", "parts": [{"text": "Mend a.py."}]},
    {
        "role": "model",
        "parts": [{"text": "I look."}, {"functionCall": {"name": "read_file", "args": {"path": "a.py"}}}],
    },
    {"role": "user", "parts": [{"functionResponse": {"name": "read_file", "response": {"output": "x = 1"}}}]},
    {"role": "model", "parts": [{"functionCall": {"name": "replace", "args": {"path": "a.py"}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "replace", "response": {"error": "no such text"}}}]},
    {"role": "model", "parts": [{"text": "done"}]},
]
GEMINI_STREAM: list[dict[str, Any]] = [
    {"type": "init", "timestamp": at(0), "session_id": "y-2", "model": "some-model"},
    {"type": "message", "timestamp": at(1), "role": "user", "content": "Mend a.py."},
    {"type": "message", "timestamp": at(2), "role": "assistant", "content": "I ", "delta": True},
    {"type": "message", "timestamp": at(2), "role": "assistant", "content": "look.", "delta": True},
    {"type": "tool_use", "timestamp": at(3), "tool_name": "read_file", "tool_id": "t1", "parameters": {"path": "a.py"}},
    {"type": "tool_result", "timestamp": at(4), "tool_id": "t1", "status": "success", "output": "x = 1"},
    {"type": "tool_use", "timestamp": at(5), "tool_name": "replace", "tool_id": "t2", "parameters": {"path": "a.py"}},
    {
        "type": "tool_result",
        "timestamp": at(6),
        "tool_id": "t2",
        "status": "error",
        "error": {"type": "edit_no_occurrence_found", "message": "no such text"},
    },
    {"type": "message", "timestamp": at(7), "role": "assistant", "content": "done", "delta": True},
    {"type": "result", "timestamp": at(8), "status": "success", "stats": {"input_tokens": 30, "output_tokens": 4}},
]
GEMINI_LOG: list[dict[str, Any]] = [
    {"sessionId": "y-1", "messageId": 0, "timestamp": at(0), "type": "user", "message": "Mend a.py."}
]

SAMPLES: dict[str, tuple[str, bytes]] = {
    "atif/agent/trajectory.json": ("atif", document(ATIF)),
    "atif/all.jsonl": ("atif", jsonl([ATIF, ATIF | {"session_id": "a-2"}])),
    "mini/larch__larch-6.traj.json": ("mini_swe_agent", document(MINI)),
    "mini/larch__larch-7/larch__larch-7.traj.json": ("mini_swe_agent", document(MINI_2)),
    "mini/responses.traj.json": ("mini_swe_agent", document(MINI_RESPONSES)),
    "mini/first.traj.json": ("mini_swe_agent", document(MINI["messages"])),
    "openhands/output.jsonl": ("openhands", jsonl([OUTPUT, PAIRS])),
    "openhands/events.json": ("openhands", document(OPENHANDS)),
    "openhands/sdk.json": ("openhands", document(OPENHANDS_SDK)),
    "claude/s-1.jsonl": ("claude_code", jsonl(CLAUDE)),
    "claude/stream.jsonl": ("claude_code", jsonl(CLAUDE_STREAM)),
    "codex/rollout-1.jsonl": ("codex_cli", jsonl(CODEX)),
    "codex/rollout-2.jsonl": ("codex_cli", jsonl(CODEX_OLDER)),
    "codex/rollout-3.json": ("codex_cli", document(CODEX_FIRST)),
    "codex/stream.jsonl": ("codex_cli", jsonl(CODEX_STREAM)),
    "gemini/stream.jsonl": ("gemini_cli", jsonl(GEMINI_STREAM)),
    "gemini/session-1.json": ("gemini_cli", document(GEMINI_HEAD | {"messages": GEMINI_TURNS})),
    "gemini/session-2.jsonl": ("gemini_cli", jsonl(GEMINI_LINES)),
    "gemini/checkpoint-a.json": ("gemini_cli", document(GEMINI_CHECKPOINT)),
}
_COUNTS = ("n_turns", "n_tool_calls", "n_tool_fail", "model", "tokens_in", "tokens_out", "cost_usd", "stop_reason")
ROWS: dict[str, tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    "atif/agent/trajectory.json": ("trajectories", _COUNTS, [(2, 2, 0, "some-model", 9, 3, 0.5, None)]),
    "atif/all.jsonl": (
        "sequences",
        ("token_ids", "model_mask", "rollout_logp"),
        [([4, 5, 9, 6], [True, True, False, True], [-0.5, -0.625, None, -0.75])] * 2,
    ),
    "mini/larch__larch-6.traj.json": (
        "trajectories",
        (*_COUNTS, "truncated", "error_type"),
        [(2, 2, 0, "maker/some-model", None, 7, 0.5, "LimitsExceeded", True, None)],
    ),
    "mini/larch__larch-7/larch__larch-7.traj.json": (
        "trajectories",
        (*_COUNTS, "task"),
        [(3, 3, 2, "maker/some-model", 30, 12, 0.5, "Submitted", "larch__larch-7")],
    ),
    "openhands/output.jsonl": (
        "trajectories",
        (*_COUNTS, "task", "env", "success", "truncated"),
        [
            (3, 3, 2, "some-model", 90, 12, 0.25, "finish", "larch__larch-7", "larch-train", True, False),
            (1, 1, 0, "some-model", None, None, 0.5, "max_iterations", "larch__larch-8", "larch-train", None, True),
        ],
    ),
    "openhands/sdk.json": (
        "tool_calls",
        ("turn_idx", "name", "ok", "ok_source", "error_type"),
        [
            (2, "terminal", True, "flag", None),
            (2, "terminal", False, "flag", None),
            (5, "nope", False, "error_field", "unknown_tool"),
        ],
    ),
    "claude/s-1.jsonl": (
        "trajectories",
        (*_COUNTS, "sample_id"),
        [
            (3, 2, 1, "some-model", 75, 19, None, "end_turn", "s-1"),
            (1, 0, 0, "some-model", 25, 4, None, "end_turn", "s-1/u8"),
        ],
    ),
    "claude/stream.jsonl": (
        "trajectories",
        (*_COUNTS, "truncated", "error_type"),
        [(1, 1, 0, "some-model", 25, 5, 0.75, "error_max_turns", True, None)],
    ),
    "codex/rollout-1.jsonl": (
        "tool_calls",
        ("name", "ok", "ok_source", "error_type", "latency_s"),
        [
            ("exec_command", True, "flag", None, 0.5),
            ("exec_command", False, "flag", None, 0.5),
            ("apply_patch", True, "flag", None, 0.125),
            ("nope", False, "error_field", "unknown_tool", None),
        ],
    ),
    "codex/rollout-2.jsonl": (
        "tool_calls",
        ("name", "args_json", "ok"),
        [
            ("shell", '{"command": ["ls"]}', False),
            ("local_shell", '{"command": ["bash", "-c", "ls"], "type": "exec"}', True),
        ],
    ),
    "codex/stream.jsonl": (
        "trajectories",
        _COUNTS,
        [(2, 2, 1, None, 55, 7, None, None)],
    ),
    "gemini/stream.jsonl": ("trajectories", _COUNTS, [(3, 2, 1, "some-model", 30, 4, None, None)]),
    "gemini/session-1.json": (
        "tool_calls",
        ("name", "ok", "ok_source"),
        [("read_file", True, "flag"), ("replace", False, "flag"), ("run_shell_command", True, "unknown")],
    ),
    "gemini/session-2.jsonl": ("trajectories", _COUNTS, [(2, 3, 1, "some-model", 90, 9, None, None)]),
}

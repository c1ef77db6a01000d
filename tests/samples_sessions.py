"""One conversation as programs of agents save their sessions, row by row after the sources that the parser names."""

from __future__ import annotations

import json
from typing import Any

from samples_agent_spans import ANSWER, ARGUMENTS, ASKED, EPOCH, FOUND, REQUEST, stamp
from samples_calls import jsonl
from samples_traces import document

MS = EPOCH * 1000  # of the clock of JavaScript
GIVEN = json.loads(ARGUMENTS)


def pi(name: str, parent: str | None, message: dict[str, Any]) -> dict[str, Any]:
    message = {**message, "timestamp": MS}
    return {"type": "message", "id": name, "parentId": parent, "timestamp": stamp(1), "message": message}


def pi_answer(*parts: dict[str, Any], tokens: tuple[int, int]) -> dict[str, Any]:
    used = {"input": tokens[0], "output": tokens[1], "cacheRead": 0, "cacheWrite": 0, "totalTokens": sum(tokens)}
    return {
        "role": "assistant", "content": list(parts), "api": "anthropic-messages", "provider": "p", "model": "m-1",
        "usage": used | {"cost": {"input": 0.125, "output": 0.125, "total": 0.25}}, "stopReason": "stop",
    }  # fmt: skip


PI_CALL = {"type": "toolCall", "id": "c1", "name": "look_up", "arguments": GIVEN}
PI: list[dict[str, Any]] = [
    {"type": "session", "version": 3, "id": "s-1", "timestamp": stamp(0), "cwd": "/work"},
    {"type": "model_change", "id": "e0", "parentId": None, "timestamp": stamp(0), "provider": "p", "modelId": "m-1"},
    pi("e1", "e0", {"role": "user", "content": [{"type": "text", "text": ASKED}]}),
    pi("e2", "e1", pi_answer({"type": "thinking", "thinking": "hm"}, PI_CALL, tokens=(40, 9))),
    pi("e3", "e2", {
        "role": "toolResult", "toolCallId": "c1", "toolName": "look_up",
        "content": [{"type": "text", "text": FOUND}], "isError": False,
    }),
    pi("e4", "e3", pi_answer({"type": "text", "text": "I take that back."}, tokens=(50, 5))),
    {"type": "custom", "id": "e5", "parentId": "e3", "timestamp": stamp(1), "customType": "mark", "data": {}},
    pi("e6", "e5", pi_answer({"type": "text", "text": ANSWER}, tokens=(60, 7))),
]  # fmt: skip
"""The user took `e4` back: the branch of the last row is the session."""
PI_FIRST = [
    {key: value for key, value in row.items() if key not in ("id", "parentId") or row["type"] == "session"}
    for row in PI
    if row.get("id") not in ("e0", "e4", "e5")
]
"""As before there were trees."""

STS: list[dict[str, Any]] = [
    {"type": "session", "harness": "my-agent", "id": "s-1", "name": "Parcels"},
    *(
        {"type": "message", "message": one}
        for one in (
            {"role": "user", "content": ASKED},
            {"role": "assistant", "content": "", "model": "m-1", "tool_calls": [REQUEST],
             "usage": {"input_tokens": 40, "output_tokens": 9}},
            {"role": "tool", "tool_call_id": "c1", "content": FOUND},
            {"role": "assistant", "content": ANSWER, "usage": {"input_tokens": 60, "output_tokens": 7}},
        )
    ),
]  # fmt: skip
"""The same lines of any other harness, as the Hub shows them."""


def opencode(role: str, at: int, parts: list[dict[str, Any]], **told: Any) -> dict[str, Any]:
    info = {"id": f"msg_{at}", "sessionID": "ses_1", "role": role, "time": {"created": MS + at}, **told}
    return {"info": info, "parts": parts}


def opencode_tool(status: str) -> dict[str, Any]:
    ended = {"error": "no parcel 7"} if status == "error" else {"output": FOUND, "title": "", "metadata": {}}
    state = {"status": status, "input": GIVEN, "time": {"start": MS, "end": MS + 5}, **ended}
    return {"id": "prt_1", "type": "tool", "callID": "c1", "tool": "look_up", "state": state}


def opencode_export(status: str) -> dict[str, Any]:
    used = [
        {"tokens": {"input": read, "output": out, "reasoning": 0}, "cost": 0.25} for read, out in ((40, 9), (60, 7))
    ]
    return {
        "info": {"id": "ses_1", "title": "parcels", "version": "1.0.0", "time": {"created": MS, "updated": MS}},
        "messages": [
            opencode("user", 0, [{"type": "text", "text": ASKED}]),
            opencode("assistant", 1, [{"type": "reasoning", "text": "hm"}, opencode_tool(status)], modelID="m-1",
                     **used[0]),
            opencode("assistant", 2, [{"type": "text", "text": ANSWER}, {"type": "step-finish"}], modelID="m-1",
                     **used[1]),
        ],
    }  # fmt: skip


COPILOT: dict[str, Any] = {
    "requesterUsername": "me", "responderUsername": "GitHub Copilot", "initialLocation": "panel",
    "requests": [{
        "requestId": "request_1", "message": {"parts": [], "text": ASKED}, "variableData": {"variables": []},
        "response": [
            {"kind": "toolInvocationSerialized", "toolId": "look_up", "toolCallId": "c1", "isComplete": True},
            {"value": ANSWER, "supportThemeIcons": False},
        ],
        "result": {"metadata": {
            "toolCallRounds": [
                {"id": "r1", "response": "", "toolCalls": [{"id": "c1", "name": "look_up", "arguments": ARGUMENTS}]},
                {"id": "r2", "response": ANSWER, "toolCalls": []},
            ],
            "toolCallResults": {"c1": {"$mid": 20, "content": [{"$mid": 21, "value": FOUND}]}},
        }},
        "modelId": "m-1", "timestamp": MS,
    }],
}  # fmt: skip


def cline(at: int, kind: str, name: str, text: str) -> dict[str, Any]:
    return {"ts": MS + at, "type": kind, kind: name, "text": text, "partial": False}


def cline_request(asked: str, tokens: tuple[int, int]) -> str:
    return json.dumps({"request": asked, "tokensIn": tokens[0], "tokensOut": tokens[1], "cost": 0.25})


REST = "\n\n<environment_details>\n# Mode\nACT MODE\n</environment_details>"
CLINE: list[dict[str, Any]] = [
    cline(0, "say", "text", ASKED),
    cline(1, "say", "api_req_started", cline_request(f"<task>\n{ASKED}\n</task>{REST}", (40, 9))),
    cline(2, "say", "text", "I look."),
    cline(3, "ask", "tool", json.dumps({"tool": "readFile", "path": "parcel-7.txt", "content": "/parcel-7.txt"})),
    cline(4, "say", "api_req_started",
          cline_request(f"[read_file for 'parcel-7.txt'] Result:\n\n{FOUND}{REST}", (60, 7))),
    cline(5, "say", "text", ANSWER),
]  # fmt: skip


def adk(author: str, role: str, *parts: dict[str, Any], **told: Any) -> dict[str, Any]:
    content = {"parts": list(parts), "role": role}
    return {"id": "e", "invocationId": "i-1", "author": author, "content": content, "timestamp": EPOCH + 0.5, **told}


ADK_USED = [{"promptTokenCount": read, "candidatesTokenCount": out} for read, out in ((40, 9), (60, 7))]
ADK: dict[str, Any] = {
    "id": "s-1", "appName": "parcels", "userId": "u", "state": {}, "lastUpdateTime": EPOCH,
    "events": [
        adk("user", "user", {"text": ASKED}),
        adk("clerk", "model", {"functionCall": {"id": "c1", "name": "look_up", "args": GIVEN}},
            usageMetadata=ADK_USED[0]),
        adk("clerk", "user", {"functionResponse": {"id": "c1", "name": "look_up", "response": {"result": FOUND}}}),
        adk("clerk", "model", {"text": "Parcel"}, partial=True),
        adk("clerk", "model", {"text": ANSWER}, usageMetadata=ADK_USED[1]),
        {"id": "e", "invocationId": "i-1", "author": "clerk", "actions": {"stateDelta": {}}, "timestamp": EPOCH + 1},
    ],
}  # fmt: skip


def autogen(source: str, kind: str, content: Any, tokens: tuple[int, int] | None = None) -> dict[str, Any]:
    used = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]} if tokens else None
    return {"source": source, "models_usage": used, "metadata": {}, "content": content, "type": kind}


AUTOGEN: list[dict[str, Any]] = [
    autogen("user", "TextMessage", ASKED),
    autogen("clerk", "ToolCallRequestEvent", [{"id": "c1", "name": "look_up", "arguments": ARGUMENTS}], (40, 9)),
    autogen("clerk", "ToolCallExecutionEvent", [{"call_id": "c1", "name": "look_up", "content": FOUND,
                                                 "is_error": False}]),
    autogen("clerk", "ToolCallSummaryMessage", FOUND),
    autogen("clerk", "TextMessage", ANSWER, (60, 7)),
]  # fmt: skip


def browser(actions: list[dict[str, Any]], results: list[dict[str, Any]], tokens: int) -> dict[str, Any]:
    thought = {"evaluation_previous_goal": "Unknown", "memory": "m", "next_goal": "look"}
    return {
        "model_output": {"current_state": thought, "action": actions}, "result": results,
        "state": {"url": "about:blank", "title": "", "tabs": [], "screenshot": None},
        "metadata": {"step_start_time": EPOCH, "step_end_time": EPOCH + 1, "input_tokens": tokens, "step_number": 1},
    }  # fmt: skip


BROWSER: dict[str, Any] = {
    "history": [
        browser([{"go_to_url": {"url": "https://parcels.example/7"}}],
                [{"is_done": False, "success": None, "extracted_content": FOUND, "error": None}], 40),
        browser([{"click_element": {"index": 3}}],
                [{"is_done": False, "success": None, "extracted_content": None, "error": "Element 3 is gone"}], 50),
        browser([{"done": {"text": ANSWER, "success": True}}],
                [{"is_done": True, "success": True, "extracted_content": ANSWER, "error": None}], 60),
    ],
}  # fmt: skip


def tool_message(content: str, more: str = "") -> str:
    return f"content={content!r} name='look_up' tool_call_id='c1'{more}"


def callbacks(asked: str) -> list[dict[str, Any]]:
    prompts = [f"System: You track parcels.\nHuman: {asked}"]
    called = [{"tool": "look_up", "args": GIVEN}]
    return [
        {"time": stamp(0), "event": "llm_start", "prompts": prompts},
        {"time": stamp(1), "event": "llm_end", "response": "", "tool_calls": called},
        {"time": stamp(1.25), "event": "tool_start", "tool": "look_up", "input": str(GIVEN)},
        {"time": stamp(1.5), "event": "tool_end", "output": tool_message(FOUND)},
        {"time": stamp(2), "event": "llm_start", "prompts": [f"{prompts[0]}\nAI: \nTool: {FOUND}"]},
        {"time": stamp(2.5), "event": "llm_end", "response": ANSWER, "tool_calls": []},
    ]


def streamed(event: str, name: str, **data: Any) -> dict[str, Any]:
    return {"event": event, "name": name, "run_id": f"run-{name}", "tags": [], "metadata": {}, "data": data}


STREAMED: list[dict[str, Any]] = [
    streamed("on_chain_start", "agent", input={"messages": [{"role": "user", "content": ASKED}]}),
    streamed("on_chat_model_start", "model", input={"messages": [[{"type": "human", "content": ASKED}]]}),
    streamed("on_chat_model_end", "model", output={
        "type": "ai", "content": "", "tool_calls": [{"id": "c1", "name": "look_up", "args": GIVEN}],
    }),
    streamed("on_tool_start", "look_up", input=GIVEN),
    streamed("on_tool_end", "look_up", output={"type": "tool", "content": FOUND, "tool_call_id": "c1"}),
    streamed("on_chat_model_end", "model", output={"type": "ai", "content": ANSWER}),
]  # fmt: skip
CREWAI: list[dict[str, Any]] = [
    {"timestamp": "2023-11-14 22:13:20", "task_name": None, "task": ASKED, "agent": "Clerk", "status": "started"},
    {"timestamp": "2023-11-14 22:13:21", "task_name": None, "task": ASKED, "agent": "Clerk", "status": "completed",
     "output": ANSWER},
]  # fmt: skip


def step(kind: str, status: str = "DONE", call: str | None = None, **told: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"createdAt": stamp(1)}
    if call is not None:
        metadata["toolCall"] = {"id": call, "name": "look_up", "argumentsJson": ARGUMENTS}
    status = f"CORTEX_STEP_STATUS_{status}"
    return {"type": f"CORTEX_STEP_TYPE_{kind}", "status": status, "metadata": metadata, **told}


ANTIGRAVITY: list[dict[str, Any]] = [
    step("USER_INPUT", userInput={"items": [{"text": ASKED}], "userResponse": ASKED}),
    step("EPHEMERAL_MESSAGE", ephemeralMessage={"content": "no message of the user"}),
    step("PLANNER_RESPONSE", plannerResponse={
        "thinking": "hm", "response": "", "toolCalls": [{"id": "c1", "name": "look_up", "argumentsJson": ARGUMENTS}],
    }),
    step("GENERIC", call="c1", result=FOUND),
    step("CHECKPOINT", checkpoint={}),
    step("PLANNER_RESPONSE", plannerResponse={"modifiedResponse": ANSWER, "response": ANSWER}),
]  # fmt: skip


def node(kind: str, text: str, *children: dict[str, Any], **told: Any) -> dict[str, Any]:
    return {
        "is_terminal": False, "pruned": False, "finished": False, "depth": 0, "node_type": kind, "description": text,
        "Elo": 1000.0, "child_count": len(children), "expand_num": 0, **told, "children": list(children),
    }  # fmt: skip


def tried(code: int, *children: dict[str, Any]) -> dict[str, Any]:
    given = node("Action Input", ARGUMENTS, *children, observation=FOUND, observation_code=code, io_state={})
    return node("Action", "look_up", given)


FINISH = json.dumps({"return_type": "give_answer", "final_answer": ANSWER})
FINISHED = node("Action", "Finish", node("Action Input", FINISH, observation="{}", observation_code=3, io_state={}))
TOOLBENCH_TREE: dict[str, Any] = {
    "win": True,
    "tree": {"size": 9, "max_length": 6, "tree": node(
        "Action Input", "", tried(11, tried(1)), node("Thought", "I look again.", tried(0, FINISHED)), io_state={},
    )},
    "forward_args": {}, "compare_candidates": [],
    "answer_generation": {
        "valid_data": True, "query": ASKED, "function": [{"name": "look_up", "parameters": {}}], "query_count": 4,
        "train_messages": [[{"role": "user", "content": ASKED}, {"role": "assistant", "content": "I look again."}]],
    },
}  # fmt: skip
"""Two branches: one of two calls that failed, the second of a tool that there is not; one with a thought that ends."""
CHAIN = [
    {key: value for key, value in one.items() if key != "children"}
    for one in (tried(0), tried(0)["children"][0], FINISHED, FINISHED["children"][0])
]
TOOLBENCH_CHAIN = {"win": True, "try_count": 1, "trys": [{"chain": CHAIN, "win": False}]} | {
    "answer_generation": TOOLBENCH_TREE["answer_generation"]
}

SHOWN = [{"messages_display": f"user: {ASKED}\nassistant: None\ntool: {FOUND}\nassistant: {ANSWER}"}] * 2

SAMPLES: dict[str, tuple[str, bytes]] = {
    f"sessions/{rel}": ("agent_sessions", data)
    for rel, data in {
        "pi.jsonl": jsonl(PI),
        "pi-first.jsonl": jsonl(PI_FIRST),
        "sts.jsonl": jsonl(STS),
        "opencode.json": document(opencode_export("completed")),
        "copilot.json": document(COPILOT),
        "ui_messages.json": document(CLINE),
        "adk.json": document(ADK),
        "autogen.json": document(AUTOGEN),
        "autogen-result.json": document({"messages": AUTOGEN, "stop_reason": "Text 'TERMINATE' mentioned"}),
        "browser.json": document(BROWSER),
        "callbacks.jsonl": jsonl(callbacks(ASKED)),
        "streamed.jsonl": jsonl(STREAMED),
        "crewai.json": document(CREWAI),
        "antigravity.json": document({"trajectory": {"cascadeId": "c", "steps": ANTIGRAVITY}, "numTotalSteps": 6}),
        "antigravity.jsonl": jsonl(ANTIGRAVITY),
        "toolbench-tree.json": document(TOOLBENCH_TREE),
        "toolbench-chain.json": document(TOOLBENCH_CHAIN),
        "few_shot.jsonl": jsonl(SHOWN),
    }.items()
}
_COUNTS = ("n_turns", "n_tool_calls", "n_tool_fail", "model", "tokens_in", "tokens_out", "success")
_USED = ("m-1", 100, 16, None)
ROWS: dict[str, tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    f"sessions/{rel}": ("trajectories", _COUNTS, [row] * (2 if rel == "few_shot.jsonl" else 1))
    for rel, row in {
        "pi.jsonl": (2, 1, 0, "m-1", 150, 21, None),  # what was taken back was paid for
        "pi-first.jsonl": (2, 1, 0, *_USED),
        "sts.jsonl": (2, 1, 0, *_USED),
        "opencode.json": (2, 1, 0, *_USED),
        "copilot.json": (2, 1, 0, "m-1", None, None, None),
        "ui_messages.json": (2, 1, 0, None, 100, 16, None),
        "adk.json": (2, 1, 0, None, 100, 16, None),
        "autogen.json": (2, 1, 0, None, 100, 16, None),
        "autogen-result.json": (2, 1, 0, None, 100, 16, None),
        "browser.json": (3, 3, 1, None, 150, None, True),
        "callbacks.jsonl": (2, 1, 0, None, None, None, None),
        "streamed.jsonl": (2, 1, 0, None, None, None, None),
        "crewai.json": (1, 0, 0, None, None, None, None),
        "antigravity.json": (2, 1, 0, None, None, None, None),
        "antigravity.jsonl": (2, 1, 0, None, None, None, None),
        "toolbench-tree.json": (4, 4, 2, None, None, None, True),
        "toolbench-chain.json": (2, 2, 0, None, None, None, True),
        "few_shot.jsonl": (2, 1, 0, None, None, None, None),
    }.items()
}

"""How agents that write code keep their sessions: Pi, OpenCode, Copilot's chats, Cline and Antigravity.

Source: badlogic/pi-mono packages/coding-agent/src/core/session-manager.ts (Pi: `session`, `message`, a tree by
`parentId`), Hugging Face's Session Trace Simple Format (docs/hub/session-traces-format: the same lines for any
`harness`), sst/opencode packages/opencode/src/session/message-v2.ts (`opencode export`), microsoft/vscode
src/vs/workbench/contrib/chat/common/chatModel.ts (exported chats of Copilot), cline/cline
src/shared/ExtensionMessage.ts (`ui_messages.json`), and the steps of a trajectory as Antigravity's language server
gives them, which tools that export its conversations write down.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ptt.diagnostics.parsers.io.conversations import request, result, said
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.message_shapes import common_messages, is_message
from ptt.diagnostics.parsers.io.session_rows import Dialect, Message, Session
from ptt.diagnostics.parsers.io.tool_calls import failed
from ptt.diagnostics.parsers.io.values import (
    as_name,
    as_text,
    dict_of,
    dicts_in,
    nested,
)

# Pi


def _is_pi(row: dict[str, Any]) -> bool:
    opened = row.get("type") == "session" and "id" in row and not {"cwd", "harness"}.isdisjoint(row)
    return opened or (row.get("type") == "message" and "timestamp" in row and _is_of_pi(dict_of(row.get("message"))))


def _is_of_pi(message: Message) -> bool:
    known = message.get("role") in {"user", "assistant", "toolResult", "bashExecution", "custom"}
    return known and not {"api", "provider", "toolCallId", "timestamp"}.isdisjoint(message)


def _take_pi(row: dict[str, Any], session: Session) -> bool:
    name, parent = as_name(row.get("id")), as_name(row.get("parentId"))
    if row.get("type") == "session":
        session.told(sample_id=name, model=as_name(row.get("modelId")))
        return True
    message = dict_of(row.get("message"))
    if row.get("type") == "message" and (is_message(message) or message.get("role") == "toolResult"):
        used = dict_of(message.get("usage"))
        told = {
            f"tokens_{side}": used.get(key, used.get(f"{key}_tokens"))
            for side, key in (("in", "input"), ("out", "output"))
            if used
        }
        spent = {"cost_usd": nested(used, "cost", "total")} if used else {}
        session.told(model=as_name(message.get("model")))
        for one in common_messages([message]):
            session.places.append((name, parent, len(session.messages)))
            session.say([one], row.get("timestamp"), **told, **spent)
            told, spent = {}, {}
    else:
        session.places.append((name, parent, -1))
    return isinstance(row.get("type"), str)


# OpenCode


def _is_opencode(row: dict[str, Any]) -> bool:
    info = dict_of(row.get("info"))
    told = isinstance(row.get("parts"), list) or "sessionID" in info  # a long head ends before the parts
    return told and info.get("role") in ("user", "assistant")


def _take_opencode(row: dict[str, Any], session: Session) -> bool:
    info = dict_of(row.get("info"))
    if not _is_opencode(row):  # what is said of the whole session
        session.told(sample_id=as_name(info.get("id")))
        return "info" in row
    parts = dicts_in(row.get("parts"))
    text = "\n".join(as_text(part.get("text")) for part in parts if part.get("type") == "text")
    at = nested(info, "time", "completed") or nested(info, "time", "created")
    if info["role"] == "user":
        session.say([{"role": "user", "content": text}], at)
        return True
    calls = [part for part in parts if part.get("type") == "tool"]
    asked = [request(one.get("callID"), one.get("tool"), nested(one, "state", "input")) for one in calls]
    thoughts = "\n".join(as_text(part.get("text")) for part in parts if part.get("type") == "reasoning")
    session.told(model=as_name(info.get("modelID")), error_type=as_name(nested(info, "error", "name")))
    used = {"tokens_in": nested(info, "tokens", "input"), "tokens_out": nested(info, "tokens", "output")}
    session.say([said(text, asked, thoughts)], at, cost_usd=info.get("cost"), **used)
    for one in calls:
        state = dict_of(one.get("state"))
        content = as_text(state.get("error") if state.get("status") == "error" else state.get("output"))
        if state.get("status") in ("completed", "error"):
            flag = failed(content, failed=state["status"] == "error")
            session.say([result(one.get("callID"), content, **flag)], nested(state, "time", "end"))
    return True


# Copilot's chats


def _is_copilot(row: dict[str, Any]) -> bool:
    return "requestId" in row and isinstance(nested(row, "message", "parts"), list)


def _take_copilot(row: dict[str, Any], session: Session) -> bool:
    if not _is_copilot(row):
        return "responderUsername" in row or "sessionId" in row
    session.say([{"role": "user", "content": as_text(row["message"].get("text"))}], row.get("timestamp"))
    session.told(model=as_name(row.get("modelId")), error_type=as_name(nested(row, "result", "errorDetails", "code")))
    metadata = dict_of(nested(row, "result", "metadata"))
    given, rounds = dict_of(metadata.get("toolCallResults")), dicts_in(metadata.get("toolCallRounds"))
    for one in rounds:
        calls = dicts_in(one.get("toolCalls"))
        asked = [request(call.get("id"), call.get("name"), call.get("arguments")) for call in calls]
        session.say([said(as_text(one.get("response")), asked)], one.get("timestamp"))
        answered = [call for call in calls if call.get("id") in given]
        session.say([result(call["id"], _copilot_text(given[call["id"]])) for call in answered])
    if not rounds:
        parts = dicts_in(row.get("response"))
        spoken = [part["value"] for part in parts if isinstance(part.get("value"), str) and "kind" not in part]
        made = [part for part in parts if part.get("kind") == "toolInvocationSerialized"]
        asked = [request(call.get("toolCallId"), call.get("toolId"), {}) for call in made]
        if spoken or asked:
            session.say([said("".join(spoken), asked)])
    return True


def _copilot_text(found: Any) -> str:
    parts = dicts_in(nested(found, "content"))
    return "\n".join(as_text(part.get("value")) for part in parts) if parts else as_text(found)


# Cline and its kin

CLINE_RESULT: Final = re.compile(r"\[(\w{1,60})(?: for '(.{0,4000}?)')?\] Result:\s*", re.DOTALL)
CLINE_TOOLS: Final = {"command": "execute_command", "followup": "ask_followup_question"}
CLINE_REST: Final = "<environment_details>"


def _is_cline(row: dict[str, Any]) -> bool:
    return row.get("type") in ("say", "ask") and row["type"] in row and "ts" in row


def _take_cline(row: dict[str, Any], session: Session) -> bool:
    if not _is_cline(row):
        return False
    kind, text = row[row["type"]], as_text(row.get("text"))
    last = session.messages[-1] if session.messages else {}
    if kind == "api_req_started":
        asked = dict_of(parse_json(text))
        if session.open and last == said(""):
            session.take_back()
        session.open = [] if asked.get("tokensOut") else [asked]  # one that came to nothing may be made again
        _answer_cline(as_text(asked.get("request")), session, row["ts"])
        used = {"tokens_in": asked.get("tokensIn"), "tokens_out": asked.get("tokensOut")}
        session.say([said("")], row["ts"], cost_usd=asked.get("cost"), **used)
    elif kind == "text" and last.get("role") == "assistant" and row.get("partial") is not True:
        last["content"] = f"{last['content']}\n{text}".strip()
    elif kind == "completion_result" and row["type"] == "say" and last.get("role") == "assistant":
        last["tool_calls"] = [request(None, "attempt_completion", {"result": text})]
    elif last.get("role") == "assistant" and not last.get("tool_calls") and (name := _cline_tool(kind, text)):
        last["tool_calls"] = [request(None, name, {})]  # what the next request says of it replaces this
    return True


def _cline_tool(kind: Any, text: str) -> str | None:
    """Return the tool that an event says is called."""
    told = dict_of(parse_json(text)) if kind in ("tool", "use_mcp_server") else {}
    return as_name(told.get("toolName")) or as_name(told.get("tool")) or CLINE_TOOLS.get(kind)


def _answer_cline(asked: str, session: Session, at: Any) -> None:
    """Take from a request what the call before it was and gave, or what the user said."""
    last = session.messages[-1] if session.messages else {}
    found = CLINE_RESULT.match(asked)
    content = asked[found.end() if found else 0 :].partition(CLINE_REST)[0].strip()
    if found and last.get("role") == "assistant":
        last["tool_calls"] = [request(None, found[1], {"for": found[2]} if found[2] else {})]
        session.say([result(None, content)], at)
    elif last.get("content") != content:
        session.say([{"role": "user", "content": content}], at)


# Antigravity

STEP: Final = "CORTEX_STEP_TYPE_"
OF_STEP: Final = frozenset({"type", "status", "metadata", "error"})  # the other key of a step is what it did


def _is_antigravity(row: dict[str, Any]) -> bool:
    steps = dicts_in(nested(row, "trajectory", "steps"))
    return (as_name((steps[0] if steps else row).get("type")) or "").startswith(STEP)


def _take_antigravity(row: dict[str, Any], session: Session) -> bool:
    if not _is_antigravity(row):
        session.told(sample_id=as_name(row.get("trajectoryId")) or as_name(row.get("cascadeId")))
        return not {"trajectoryId", "cascadeId", "numTotalSteps"}.isdisjoint(row)
    steps = dicts_in(nested(row, "trajectory", "steps"))
    session.told(sample_id=as_name(nested(row, "trajectory", "cascadeId")))
    for step in steps or [row]:
        _take_step(step, session)
    return True


def _take_step(step: dict[str, Any], session: Session) -> None:
    kind, metadata = (as_name(step.get("type")) or "").removeprefix(STEP), dict_of(step.get("metadata"))
    at = metadata.get("createdAt")
    if kind == "USER_INPUT":
        told = dict_of(step.get("userInput"))
        texts = [as_text(item["text"]) for item in dicts_in(told.get("items")) if "text" in item]
        text = as_name(told.get("userResponse")) or "\n".join(texts)
        session.say([{"role": "user", "content": text}] if text else [], at)
    elif kind == "PLANNER_RESPONSE":
        told = dict_of(step.get("plannerResponse"))
        calls = [request(one.get("id"), one.get("name"), one.get("argumentsJson"))
                 for one in dicts_in(told.get("toolCalls"))]  # fmt: skip
        text = as_text(told.get("modifiedResponse") or told.get("response") or "")
        session.say([said(text, calls, told.get("thinking"))], at)
    elif (called := as_name(nested(metadata, "toolCall", "id"))) is not None:
        wrong = bool(step.get("error")) or step.get("status") == "CORTEX_STEP_STATUS_ERROR"
        given = step.get("error") if step.get("error") else {key: step[key] for key in step.keys() - OF_STEP}
        content = as_text(given)
        session.say([result(called, content, **(failed(content, failed=True) if wrong else {}))], at)


CODING_AGENTS: Final[tuple[Dialect, ...]] = (
    Dialect(is_row=_is_pi, take=_take_pi),
    Dialect(is_row=_is_opencode, take=_take_opencode, holders=frozenset({"messages"})),
    Dialect(is_row=_is_copilot, take=_take_copilot, holders=frozenset({"requests"})),
    Dialect(is_row=_is_cline, take=_take_cline),
    Dialect(is_row=_is_antigravity, take=_take_antigravity, holders=frozenset({"steps"})),
)

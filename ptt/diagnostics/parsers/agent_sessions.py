"""Sessions as programs of agents save them, each message, step or event of the agent a row.

Source: badlogic/pi-mono packages/coding-agent/src/core/session-manager.ts (Pi: `session`, `message`, a tree by
`parentId`), sst/opencode packages/opencode/src/session/message-v2.ts (`opencode export`), microsoft/vscode
src/vs/workbench/contrib/chat/common/chatModel.ts (exported chats of Copilot), cline/cline
src/shared/ExtensionMessage.ts (`ui_messages.json`), google/adk-python src/google/adk/sessions/session.py and
events/event.py, microsoft/autogen autogen_agentchat/messages.py (histories of teams), browser-use/browser-use
browser_use/agent/views.py (`AgentHistoryList`), langchain_core/callbacks/base.py (logs of callbacks and of
`astream_events`), crewAIInc/crewAI src/crewai/utilities/file_handler.py (`output_log_file`). A row is told by its keys;
a file holds one session, except for logs of callbacks, in which a model that is asked afresh begins the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ptt.diagnostics.parsers.io.conversations import opening, request, result, said
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.message_shapes import common_messages, messages_from
from ptt.diagnostics.parsers.io.record_files import first_rows, rows_of
from ptt.diagnostics.parsers.io.tool_calls import failed
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_samples
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_name,
    as_seconds,
    as_text,
    dict_of,
    dicts_in,
    nested,
    plain_text,
    total,
    total_cost,
)

Message = dict[str, Any]
NO_ROW: Final = "row(s) skipped: no part of a session."
MAX_ROWS: Final = 1_000_000  # of one session, which is in memory until its end


@dataclass
class Session:
    """What was read of one session. `columns`: of the table of trajectories; `sums`: counts of each of its answers."""

    messages: list[Message] = field(default_factory=list)
    timing: list[dict[str, Any]] = field(default_factory=list)
    columns: dict[str, Any] = field(default_factory=dict)
    sums: dict[str, list[Any]] = field(default_factory=dict)
    tools: list[Message] = field(default_factory=list)
    open: list[Message] = field(default_factory=list)  # calls of tools whose result is not told yet
    places: list[tuple[str | None, str | None, int]] = field(default_factory=list)  # id, parent and message of rows

    def say(self, messages: list[Message], at: Any = None, **sums: Any) -> None:
        """Add messages, written at a time, with what their answer cost."""
        ended, tokens = _seconds(at), {"n_tokens": as_count(sums.get("tokens_out"))}
        self.messages += messages
        self.timing += [{"t_end": ended} | (tokens if one.get("role") == "assistant" else {}) for one in messages]
        for name, value in sums.items():
            self.sums.setdefault(name, []).append(value)

    def told(self, **columns: Any) -> None:
        """Note what is said of the whole session, the first time that it is."""
        for name, value in columns.items():
            if value is not None:
                self.columns.setdefault(name, value)

    def sample(self) -> Sample:
        """Return the trajectory."""
        sums: dict[str, Any] = {name: total(self.sums.get(name, ())) for name in ("tokens_in", "tokens_out")}
        sums["cost_usd"] = total_cost(self.sums.get("cost_usd", ()))
        return Sample(
            step=None,
            split="unknown",
            completion=self.messages,
            identity=[self.columns.get("sample_id"), self.messages],
            prompt=opening(self.messages),
            timing=self.timing,
            tools=self.tools,
            columns={name: value for name, value in sums.items() if value is not None} | self.columns,
        )


def _seconds(found: Any) -> float | None:
    """Read a time that may be in milliseconds, as JavaScript counts."""
    return as_seconds(found / 1000 if isinstance(found, (int, float)) and found > 1e11 else found)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How one program writes its rows. `holders`: where a document keeps them; `take`: False if a row is none."""

    is_row: Callable[[dict[str, Any]], bool]
    take: Callable[[dict[str, Any], Session], bool]
    holders: frozenset[str] = frozenset()
    begins: Callable[[dict[str, Any], Session], bool] = lambda _row, _session: False  # whether a row begins the next


# Pi


def _is_pi(row: dict[str, Any]) -> bool:
    opened = row.get("type") == "session" and "cwd" in row and "id" in row
    return opened or (row.get("type") == "message" and "timestamp" in row and _pi_message(row) is not None)


def _pi_message(row: dict[str, Any]) -> Message | None:
    message = dict_of(row.get("message"))
    known = message.get("role") in {"user", "assistant", "toolResult", "bashExecution", "custom"}
    return message if known and {"api", "provider", "toolCallId", "timestamp"} & message.keys() else None


def _take_pi(row: dict[str, Any], session: Session) -> bool:
    name, parent = as_name(row.get("id")), as_name(row.get("parentId"))
    if row.get("type") == "session":
        session.told(sample_id=name, model=as_name(row.get("modelId")))
        return True
    message = _pi_message(row) or {}
    if message.get("role") in {"user", "assistant", "toolResult"}:
        used = dict_of(message.get("usage"))
        told = {"tokens_in": used.get("input"), "tokens_out": used.get("output")} if used else {}
        spent = {"cost_usd": nested(used, "cost", "total")} if used else {}
        session.told(model=as_name(message.get("model")))
        for one in common_messages([message]):
            session.places.append((name, parent, len(session.messages)))
            session.say([one], row.get("timestamp"), **told, **spent)
            told, spent = {}, {}
    else:
        session.places.append((name, parent, -1))
    return isinstance(row.get("type"), str)


def _on_branch(session: Session) -> None:
    """Leave out what the user took back: of a tree of rows only the branch of the last counts."""
    parents = {name: parent for name, parent, _ in session.places if name is not None}
    if not parents:
        return
    kept: set[str] = set()
    at = next((name for name, *_ in reversed(session.places) if name is not None), None)
    while at is not None and at in parents and at not in kept:
        kept.add(at)
        at = parents[at]
    numbers = [number for name, _, number in session.places if number >= 0 and name in kept]
    session.messages = [session.messages[number] for number in numbers]
    session.timing = [session.timing[number] for number in numbers]


# OpenCode


def _is_opencode(row: dict[str, Any]) -> bool:
    return isinstance(row.get("parts"), list) and nested(row, "info", "role") in ("user", "assistant")


def _take_opencode(row: dict[str, Any], session: Session) -> bool:
    info = dict_of(row.get("info"))
    if not _is_opencode(row):  # what is said of the whole session
        session.told(sample_id=as_name(info.get("id")))
        return "info" in row
    parts = dicts_in(row["parts"])
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
    return isinstance(row.get("response"), list) and isinstance(row.get("message"), dict) and "requestId" in row


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
        parts = dicts_in(row["response"])
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
        _answer_cline(as_text(asked.get("request")), session, row["ts"])
        used = {"tokens_in": asked.get("tokensIn"), "tokens_out": asked.get("tokensOut")}
        session.say([said("")], row["ts"], cost_usd=asked.get("cost"), **used)
    elif kind == "text" and last.get("role") == "assistant" and row.get("partial") is not True:
        last["content"] = f"{last['content']}\n{text}".strip()
    elif kind == "completion_result" and row["type"] == "say" and last.get("role") == "assistant":
        last["tool_calls"] = [request(None, "attempt_completion", {"result": text})]
    return True


def _answer_cline(asked: str, session: Session, at: Any) -> None:
    """Take from a request what the call before it was and gave, or what the user said."""
    last = session.messages[-1] if session.messages else {}
    found = CLINE_RESULT.match(asked)
    content = asked[found.end() if found else 0 :].partition(CLINE_REST)[0].strip()
    if found and last.get("role") == "assistant":
        last["tool_calls"] = [request(None, found[1], {"for": found[2]} if found[2] else {})]
        session.say([result(None, content)], at)
    else:
        session.say([{"role": "user", "content": content}], at)


# Google's ADK


def _is_adk(row: dict[str, Any]) -> bool:
    return isinstance(row.get("author"), str) and not {"invocationId", "invocation_id"}.isdisjoint(row)


def _take_adk(row: dict[str, Any], session: Session) -> bool:
    if not _is_adk(row):
        session.told(sample_id=as_name(row.get("id")))
        return not {"appName", "app_name"}.isdisjoint(row)
    content = dict_of(row.get("content"))
    error = as_name(row.get("errorCode")) or as_name(row.get("error_code"))
    session.told(error_type=error)
    if row.get("partial") is True or not dicts_in(content.get("parts")):
        return True
    used = dict_of(row.get("usageMetadata") or row.get("usage_metadata"))
    sums = {
        "tokens_in": used.get("promptTokenCount", used.get("prompt_token_count")),
        "tokens_out": used.get("candidatesTokenCount", used.get("candidates_token_count")),
    }
    role = "user" if row["author"] == "user" else content.get("role") or "model"
    session.say(common_messages([content | {"role": role}]), row.get("timestamp"), **(sums if used else {}))
    return True


# AutoGen's teams

AUTOGEN: Final = frozenset({
    "TextMessage", "MultiModalMessage", "HandoffMessage", "StopMessage", "StructuredMessage", "ToolCallRequestEvent",
    "ToolCallExecutionEvent", "ToolCallSummaryMessage", "ThoughtEvent", "MemoryQueryEvent", "UserInputRequestedEvent",
    "ModelClientStreamingChunkEvent", "SelectSpeakerEvent", "SelectorEvent", "CodeGenerationEvent",
    "CodeExecutionEvent",
})  # fmt: skip
SPOKEN: Final = frozenset({"TextMessage", "MultiModalMessage", "HandoffMessage", "StopMessage", "StructuredMessage"})


def _is_autogen(row: dict[str, Any]) -> bool:
    return as_name(row.get("type")) in AUTOGEN and isinstance(row.get("source"), str) and "content" in row


def _take_autogen(row: dict[str, Any], session: Session) -> bool:
    if not _is_autogen(row):
        session.told(stop_reason=as_name(row.get("stop_reason")))
        return "stop_reason" in row or "type" in row
    kind, content, at = row["type"], row["content"], row.get("created_at")
    used = dict_of(row.get("models_usage"))
    sums = {"tokens_in": used.get("prompt_tokens"), "tokens_out": used.get("completion_tokens")} if used else {}
    if kind == "ToolCallRequestEvent":
        calls = [request(call.get("id"), call.get("name"), call.get("arguments")) for call in dicts_in(content)]
        session.say([said("", calls)], at, **sums)
    elif kind == "ToolCallExecutionEvent":
        for one in dicts_in(content):
            text, flag = as_text(one.get("content")), one.get("is_error")
            told = failed(text, failed=flag) if isinstance(flag, bool) else {}
            session.say([result(one.get("call_id"), text, **told)], at)
    elif kind in SPOKEN:
        role = "user" if row["source"] == "user" else "assistant"
        session.say([{"role": role, "content": plain_text(content) if isinstance(content, list) else as_text(content)}],
                    at, **sums)  # fmt: skip
    return True


# browser-use


def _is_browser_use(row: dict[str, Any]) -> bool:
    held = "model_output" in row and isinstance(row.get("result"), list)
    return held and (isinstance(row.get("state"), dict) or isinstance(row.get("metadata"), dict))


def _take_browser_use(row: dict[str, Any], session: Session) -> bool:
    if not _is_browser_use(row):
        return False
    output, results, metadata = dict_of(row["model_output"]), dicts_in(row["result"]), dict_of(row.get("metadata"))
    ended, actions = metadata.get("step_end_time"), dicts_in(output.get("action"))
    thought = dict_of(output.get("current_state")) or output
    text = "\n".join(filter(None, (as_name(thought.get(key)) for key in ("thinking", "memory", "next_goal"))))
    made = [
        next(((name, told) for name, told in action.items() if told is not None), (None, None)) for action in actions
    ]
    if output:
        asked = [request(None, name, told if isinstance(told, dict) else {"value": told}) for name, told in made]
        session.say([said(text, asked)], ended, tokens_in=metadata.get("input_tokens"))
    for one in results[: len(made)]:
        content = as_text(one.get("error") or one.get("extracted_content") or "")
        session.say([result(None, content, **failed(content, failed=bool(one.get("error"))))], ended)
    done = next((one for one in results if one.get("is_done") is True), {})
    if done:
        session.columns["success"] = done["success"] if isinstance(done.get("success"), bool) else None
    if not output and results:
        session.told(error_type="error" if results[0].get("error") else None)
    return True


# callbacks of LangChain

STARTS: Final = frozenset({"llm_start", "chat_model_start"})
ENDS: Final = frozenset({"llm_end", "chat_model_end"})
CALLBACKS: Final = STARTS | ENDS | {
    "tool_start", "tool_end", "tool_error", "llm_error", "chain_start", "chain_end", "chain_error", "agent_action",
    "agent_finish", "llm_new_token", "chat_model_stream", "llm_stream", "chain_stream", "retriever_start",
    "retriever_end", "prompt_start", "prompt_end", "parser_start", "parser_end", "text",
}  # fmt: skip
ANSWERED: Final = re.compile(r"^(?:AI|Tool|Assistant): ", re.MULTILINE)
TOOL_MESSAGE: Final = re.compile(r"(?:name='([^']{1,200})' )?(?:id='[^']{1,200}' )?tool_call_id='([^']{1,200})'")


def _event_of(row: dict[str, Any]) -> str:
    return (as_name(row.get("event")) or as_name(row.get("event_type")) or as_name(row.get("type")) or "").removeprefix(
        "on_"
    )


def _is_callback(row: dict[str, Any]) -> bool:
    told = {"prompts", "messages", "response", "tool", "input", "output", "run_id", "data", "inputs", "outputs"}
    return _event_of(row) in CALLBACKS - {"text"} and not told.isdisjoint(row)


def _asked(row: dict[str, Any]) -> list[Message]:
    data = dict_of(row.get("data")) or row
    given = next((data[key] for key in ("messages", "prompts", "input", "inputs") if data.get(key)), None)
    return messages_from(given, "user")


def _begins_callbacks(row: dict[str, Any], session: Session) -> bool:
    """Return whether a model is asked something in which nothing has been answered yet."""
    if _event_of(row) not in STARTS or not any(one.get("role") == "assistant" for one in session.messages):
        return False
    asked = _asked(row)
    answered = any(one["role"] in ("assistant", "tool") or ANSWERED.search(as_text(one["content"])) for one in asked)
    return bool(asked) and not answered


def _take_callback(row: dict[str, Any], session: Session) -> bool:
    kind, data = _event_of(row), dict_of(row.get("data")) or row
    at = next((row[key] for key in ("timestamp", "time", "ts") if row.get(key) is not None), None)
    if kind in STARTS:
        if not session.messages:
            session.say(_asked(row), at)
    elif kind in ENDS:
        session.say([_answer_of(data)], at)
    elif kind == "tool_start":
        _start_tool(row, data, session, at)
    elif kind in ("tool_end", "tool_error"):
        _end_tool(data, session, at, wrong=kind == "tool_error")
    return kind in CALLBACKS


def _answer_of(data: dict[str, Any]) -> Message:
    given = next((data[key] for key in ("output", "response", "outputs", "text") if data.get(key)), "")
    spoken = next(iter(messages_from(given, "assistant")), {"role": "assistant", "content": ""})
    own = [request(one.get("id"), one.get("name") or one.get("tool"), one.get("args") or one.get("arguments"))
           for one in dicts_in(data.get("tool_calls"))]  # fmt: skip
    return spoken | {"role": "assistant"} | ({"tool_calls": own} if own else {})


def _start_tool(row: dict[str, Any], data: dict[str, Any], session: Session, at: Any) -> None:
    """Find the call that a tool answers, or add one that the model's answer did not show."""
    named = (row.get("name"), row.get("tool"), row.get("tool_name"), nested(row.get("serialized"), "name"))
    name = next((text for value in named if (text := as_name(value))), None)
    answers = [one for one in session.messages if one.get("role") == "assistant"]
    known = [call for call in (answers[-1].get("tool_calls", []) if answers else []) if "begun" not in call]
    call = next((one for one in known if nested(one, "function", "name") == name), None)
    if call is None:
        given = next((data[key] for key in ("input", "input_str", "inputs") if data.get(key) is not None), None)
        call = request(None, name, given)
        if not answers:
            session.say([said("")], at)
            answers = session.messages[-1:]
        answers[-1].setdefault("tool_calls", []).append(call)
    call["begun"] = as_name(row.get("run_id")) or True
    session.open.append(call)
    call["id"] = call["id"] or f"call-{len(session.messages)}-{len(session.open)}"


def _end_tool(data: dict[str, Any], session: Session, at: Any, *, wrong: bool) -> None:
    given = data.get("error") if wrong else next((data[key] for key in ("output", "outputs") if key in data), None)
    text = as_text(given)
    spelt = TOOL_MESSAGE.search(text, max(0, len(text) - 600)) if isinstance(given, str) else None
    name, identity = (spelt[1], spelt[2]) if spelt else (as_name(nested(given, "name")), None)
    identity = identity or as_name(nested(given, "tool_call_id"))
    fits = [one for one in session.open if one["id"] == identity] or [
        one for one in session.open if name in (None, nested(one, "function", "name"))
    ]
    if not fits:
        return
    session.open.remove(fits[0])
    marked = wrong or nested(given, "status") == "error" or (spelt is not None and text.endswith("status='error'"))
    content = text[len("content=") : spelt.start()].strip(" '\"") if spelt and text.startswith("content=") else text
    content = as_text(nested(given, "content")) if isinstance(given, dict) and "content" in given else content
    session.say([result(fits[0]["id"], content, **(failed(content, failed=True) if marked else {}))], at)


# CrewAI


def _is_crewai(row: dict[str, Any]) -> bool:
    return row.keys() >= {"timestamp", "task", "agent"} and row.get("status") in ("started", "completed", "failed")


def _take_crewai(row: dict[str, Any], session: Session) -> bool:
    if not _is_crewai(row):
        return False
    if row["status"] == "started":
        session.say([{"role": "user", "content": as_text(row["task"])}], row["timestamp"])
    elif row.get("output") is not None:
        session.say([said(as_text(row["output"]))], row["timestamp"])
    return True


DIALECTS: Final[tuple[Dialect, ...]] = (
    Dialect(is_row=_is_pi, take=_take_pi),
    Dialect(is_row=_is_opencode, take=_take_opencode, holders=frozenset({"messages"})),
    Dialect(is_row=_is_copilot, take=_take_copilot, holders=frozenset({"requests"})),
    Dialect(is_row=_is_cline, take=_take_cline),
    Dialect(is_row=_is_adk, take=_take_adk, holders=frozenset({"events"})),
    Dialect(is_row=_is_autogen, take=_take_autogen, holders=frozenset({"messages", "message_thread"})),
    Dialect(is_row=_is_browser_use, take=_take_browser_use, holders=frozenset({"history"})),
    Dialect(is_row=_is_callback, take=_take_callback, begins=_begins_callbacks),
    Dialect(is_row=_is_crewai, take=_take_crewai),
)


def _dialect_of(file: RunFile) -> Dialect | None:
    def see() -> Dialect | None:
        found = ((dialect, first_rows(file, dialect.holders)[:1]) for dialect in DIALECTS)
        return next((dialect for dialect, rows in found if rows and dialect.is_row(rows[0])), None)

    return file.look("dialect", see)


def recognises(file: RunFile) -> bool:
    """Recognise a session by its first row."""
    return _dialect_of(file) is not None


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a session."""
    dialect = _dialect_of(file) or DIALECTS[0]  # of what is left of a file, to say what is lost
    yield from read_samples(Samples(file, PARSER.name), _sessions(file, dialect), _add, NO_ROW)


def _sessions(file: RunFile, dialect: Dialect) -> Iterator[Any]:
    """Yield the sessions of a file, the rows that are none of its own, and what is lost."""
    session, count = Session(), 0
    for row in rows_of(file, dialect.holders):
        count += 1
        if isinstance(row, Lost):
            yield row
            continue
        if not isinstance(row, dict) or count > MAX_ROWS:
            yield None
            continue
        if dialect.begins(row, session):
            yield {"session": session}
            session = Session()
        try:
            known = dialect.take(row, session)
        except RecursionError:  # nesting that could just be decoded
            known = False
        if not known:
            yield None
    _on_branch(session)
    if session.messages:
        yield {"session": session}


def _add(found: dict[str, Any], samples: Samples) -> bool:
    samples.add(found["session"].sample())
    return True


PARSER = Parser(
    name="agent_sessions",
    describes="Sessions of Pi, OpenCode, Copilot, Cline, ADK, AutoGen, browser-use, LangChain's callbacks, CrewAI.",
    held_against="real: Pi, Cline, AutoGen, LangChain callbacks, CrewAI; source: the writers' own types",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)

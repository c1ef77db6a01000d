"""How frameworks of agents keep their sessions: ADK, AutoGen, browser-use, LangChain's callbacks, CrewAI, ToolBench.

Source: google/adk-python src/google/adk/sessions/session.py and events/event.py, microsoft/autogen
autogen_agentchat/messages.py (histories of teams), browser-use/browser-use browser_use/agent/views.py
(`AgentHistoryList`), langchain_core/callbacks/base.py (logs of callbacks and of `astream_events`), crewAIInc/crewAI
src/crewai/utilities/file_handler.py (`output_log_file`), OpenBMB/ToolBench at 86e25c5, data_example/answer/ (trees of
what was tried; chains at b2384c2), sierra-research/tau-bench few_shot_data/ (a conversation a line, as text). In a log
of callbacks a model that is asked afresh begins the next session.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.parsers.io.conversations import request, result, said
from ptt.diagnostics.parsers.io.message_shapes import common_messages, messages_from
from ptt.diagnostics.parsers.io.session_rows import Dialect, Message, Session
from ptt.diagnostics.parsers.io.tool_calls import BAD_ARGUMENTS, UNKNOWN_TOOL, failed
from ptt.diagnostics.parsers.io.values import (
    as_name,
    as_text,
    dict_of,
    dicts_in,
    nested,
    plain_text,
)

# Google's ADK


def _is_adk(row: dict[str, Any]) -> bool:
    whole = not {"appName", "app_name"}.isdisjoint(row) and not {"userId", "user_id"}.isdisjoint(row)
    return _is_event(row) or (whole and "id" in row)  # a long state may fill the head


def _is_event(row: dict[str, Any]) -> bool:
    return isinstance(row.get("author"), str) and not {"invocationId", "invocation_id"}.isdisjoint(row)


def _take_adk(row: dict[str, Any], session: Session) -> bool:
    if not _is_event(row):
        session.told(sample_id=as_name(row.get("id")))
        return _is_adk(row)
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
ANSWERED: Final = compiled(r"^(?:AI|Tool|Assistant): ", re.MULTILINE)
TOOL_MESSAGE: Final = compiled(r"(?:name='([^']{1,200})' )?(?:id='[^']{1,200}' )?tool_call_id='([^']{1,200})'")


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


# ToolBench's trees and chains of answers

UNMADE: Final = {1: UNKNOWN_TOOL, 2: BAD_ARGUMENTS}  # what codes of observations say
DONE: Final = frozenset({0, 3, 4})  # codes of results, of the answer, and of giving up: no failures


def _is_toolbench(row: dict[str, Any]) -> bool:
    chains = [nested(one, "chain") for one in dicts_in(row.get("trys"))[:1]]
    chained = dicts_in(chains[0])[:1] if chains else []
    first = nested(row, "tree", "tree") or next(iter(chained), None)
    return isinstance(row.get("win"), bool) and isinstance(nested(first, "node_type"), str)


def _take_toolbench(row: dict[str, Any], session: Session) -> bool:
    if not _is_toolbench(row):
        return False
    told = dict_of(row.get("answer_generation"))
    trained = told.get("train_messages")
    asked = dicts_in(trained[0])[:2] if isinstance(trained, list) and trained else []
    query = [{"role": "user", "content": as_text(told["query"])}] if told.get("query") else []
    session.say([one for one in asked if one.get("role") in ("system", "user")] or query)
    session.tools = [{"type": "function", "function": one} for one in dicts_in(told.get("function"))]
    session.told(success=row["win"])
    for one in dicts_in(row.get("trys")):
        _take_nodes(dicts_in(one.get("chain")), session)
    _take_nodes(dicts_in([nested(row, "tree", "tree")]), session)
    return True


def _take_nodes(waiting: list[dict[str, Any]], session: Session) -> None:
    """Take what was tried, branch by branch: a thought and the action below it are one answer."""
    waiting = waiting[::-1]
    while waiting:
        node = waiting.pop()
        kind, text = node.get("node_type"), as_text(node.get("description"))
        last = session.messages[-1] if session.messages else {}
        if kind == "Thought":
            session.say([said(text)])
        elif kind == "Action":
            if last.get("role") != "assistant" or "tool_calls" in last:
                session.say([said("")])
            session.messages[-1]["tool_calls"] = [request(f"call-{len(session.messages)}", text, None)]
        elif kind == "Action Input" and "tool_calls" in last:
            call, code = last["tool_calls"][0], node.get("observation_code")
            call["function"]["arguments"] = text
            wrong = {}
            if isinstance(code, int):
                wrong = {"error": False if code in DONE else {"type": UNMADE.get(code)}}
            session.say([result(call["id"], as_text(node.get("observation")), **wrong)])
        waiting += dicts_in(node.get("children"))[::-1]


# conversations that tau-bench shows an agent

SPEAKER: Final = compiled(r"^(system|user|assistant|tool): ", re.MULTILINE)


def _is_shown(row: dict[str, Any]) -> bool:
    return isinstance(row.get("messages_display"), str) and SPEAKER.match(row["messages_display"]) is not None


def _take_shown(row: dict[str, Any], session: Session) -> bool:
    if not _is_shown(row):
        return False
    for role, text in zip(*[iter(SPEAKER.split(row["messages_display"])[1:])] * 2, strict=True):
        if role == "tool":  # what was called is not shown
            if not session.messages or session.messages[-1]["role"] != "assistant":
                session.say([said("")])
            name = f"call-{len(session.messages)}"
            session.messages[-1].setdefault("tool_calls", []).append(request(name, None, None))
            session.say([result(name, text.strip())])
        else:
            session.say([{"role": role, "content": "" if text.strip() == "None" else text.strip()}])
    return True


FRAMEWORKS: Final[tuple[Dialect, ...]] = (
    Dialect(is_row=_is_adk, take=_take_adk, holders=frozenset({"events"})),
    Dialect(is_row=_is_autogen, take=_take_autogen, holders=frozenset({"messages", "message_thread"})),
    Dialect(is_row=_is_browser_use, take=_take_browser_use, holders=frozenset({"history"})),
    Dialect(is_row=_is_callback, take=_take_callback, begins=_begins_callbacks),
    Dialect(is_row=_is_crewai, take=_take_crewai),
    Dialect(is_row=_is_toolbench, take=_take_toolbench),
    Dialect(is_row=_is_shown, take=_take_shown, begins=lambda _row, session: bool(session.messages)),
)

"""Read events whose kind says who acts: a model that answers, a tool that is called or has answered."""

from __future__ import annotations

from typing import Any, Final

from ptt.diagnostics.parsers.io.message_shapes import decoded, messages_from
from ptt.diagnostics.parsers.io.named_parts import (
    ARGUMENTS,
    ASKED_FOR,
    RESULT,
    Message,
    Parts,
    Uses,
    call_in,
    first,
    parts_of,
    plain_key,
    result_told,
)
from ptt.diagnostics.parsers.io.trace_names import (
    ACTS,
    ENDS,
    FINAL,
    MODEL_OUTPUT,
    MODELS,
    REQUEST,
    SAYS,
    STARTS,
    TEXT,
    THOUGHT,
    WORKER,
    WORKERS,
    Act,
    calls_listed,
    result_of,
    role_of,
    words_of,
)
from ptt.diagnostics.parsers.io.values import as_label, as_name, as_text, dict_of, dicts_in

MAX_LINE: Final = 5  # words of a log line that says what happens, and of nothing else
ASKING_PARTS: Final = {"user-prompt": "user", "system-prompt": "system", "retry-prompt": "user"}
"""What parts of a request to the model are."""


def acts_of_used_tool(parts: Parts, uses: Uses, event: str) -> list[Act] | None:
    """Return what an event of a tool tells that names the agent as its speaker."""
    words = words_of(event)
    speaker = role_of(parts)
    if not words & ACTS or not words & (STARTS | ENDS) or speaker is None or speaker[1] == "tool":
        return None
    if event == parts[plain_key(speaker[0])][1]:
        return None
    raw = next((parts_of(parts[name][1]) for name in ("raw", "data", "payload") if name in parts
                and isinstance(parts[name][1], dict)), {})  # fmt: skip
    held = {name: part for name, part in (raw | parts).items() if part[1] not in (event, speaker[1])}
    if not words & ENDS and first(held, ARGUMENTS) is None and "content" in held:
        held["arguments"] = ("arguments", decoded(held.pop("content")[1]))
    elif not words & ENDS:
        held = {name: part for name, part in held.items() if name != "content"}
    return _of_tool(held, uses, event, words)


def acts_of_worker(parts: Parts, uses: Uses) -> list[Act] | None:
    """Return what a log line tells of a worker that started or finished, and of whoever decides on the next one."""
    line, thought, decided = first(parts, ("message", "msg", "event")), first(parts, THOUGHT), parts.get("decision")
    if line is None or not isinstance(line[1], str) or len(line[1].split()) > MAX_LINE:
        return None
    if thought is not None and decided is not None and isinstance(decided[1], str):
        uses.inferred += 1
        message = {"role": "assistant", "content": decided[1], "reasoning_content": as_text(thought[1])}
        return [Act(kind="say", message=message, event=line[1])]
    words, named = words_of(line[1]), first(parts, WORKER)
    if not words & WORKERS or not words & (STARTS | ENDS) or named is None or not isinstance(named[1], str):
        return None
    held = {name: part for name, part in parts.items() if part not in (line, named) and name != "level"}
    if words & ENDS:
        came = first(held, RESULT) or first(held, ("error", "status"))
        result = {"content": came[1] if came else "", "name": named[1]}
        return [Act(kind="result", message=result_told(result, held), event=line[1])]
    given = first(held, (*ARGUMENTS, *ASKED_FOR))
    if given is None:
        return None  # a worker of the run's own machinery
    uses.inferred += 1
    uses.take("tool", named[0])
    arguments = given[1] if isinstance(given[1], dict) else {given[0]: given[1]}
    function = {"name": named[1], "arguments": arguments}
    return [Act(kind="call", message={"id": None, "type": "function", "function": function}, event=line[1])]


def acts_of_event(parts: Parts, uses: Uses, event: str) -> list[Act] | None:
    """Return what an event tells whose kind says who acts; None where it does not."""
    words = words_of(event)
    if not words or len(words) > 6:
        return None
    if words & ACTS or (words & {"observation"} and len(words) == 1):
        return _of_tool(parts, uses, event, words)
    text = first(parts, TEXT)
    if words & {"thought", "thinking", "reasoning"}:
        return _plain("thought", first(parts, (*THOUGHT, "reasoningtext")) or text, uses, event)
    if words <= FINAL:
        return _plain("assistant", text, uses, event)
    if words & {"user", "human"} and not words & STARTS - {"input", "request"}:
        return _plain("user", text, uses, event)
    if words & MODELS and (came := first(parts, MODEL_OUTPUT)) is not None and not isinstance(came[1], str):
        return _of_model(parts, came, uses, event)
    if words & MODELS and (words & SAYS or len(words) == 1) and not words & {"start", "started", "request", "prompt"}:
        calls = calls_listed(parts, uses, event)
        if (text is None or isinstance(text[1], dict)) and not calls:
            return None
        uses.inferred += 1
        message: Message = {"role": "assistant", "content": as_text(text[1]) if text else ""}
        said = [Act(kind="say", message=message | ({"tool_calls": calls} if calls else {}), event=event)]
        return said + [Act(kind="result", message=c.pop("result"), event=event) for c in calls if "result" in c]
    if words & MODELS and words & {"start", "started", "request", "prompt"}:
        asked = first(parts, REQUEST)
        return None if asked is None else [Act(kind="request", message={"content": asked[1]}, event=event)]
    return None


def _of_model(parts: Parts, came: tuple[str, Any], uses: Uses, event: str) -> list[Act] | None:
    """Return what a model's event tells that holds its answer, and the request where it holds that too."""
    spoken, given = messages_from(came[1], "assistant"), first(parts, REQUEST)
    if not spoken:
        return None
    uses.inferred += 1
    uses.take("text", came[0])
    request = [] if given is None else [Act(kind="request", message={"content": given[1]}, event=event)]
    return request + [Act(kind="say", message=one, event=event) for one in spoken]


def _plain(role: str, text: tuple[str, Any] | None, uses: Uses, event: str) -> list[Act] | None:
    if text is None or not isinstance(text[1], str):
        return None
    uses.inferred += 1
    return [Act(kind="thought" if role == "thought" else "say", message={"role": role, "content": text[1]},
                event=event)]  # fmt: skip


def results_listed(parts: Parts, event: str) -> list[Act]:
    """Return the results that an event of tools lists, whoever is named as its speaker."""
    words = words_of(event)
    listed = dicts_in(parts["content"][1]) if "content" in parts and words & ACTS and words & ENDS else []
    inner = [parts_of(entry) for entry in listed]
    found = [(held, text) for held in inner if "type" not in held and (text := first(held, RESULT)) is not None]
    return [Act(kind="result", message=result_told({"content": text[1]}, held), event=event) for held, text in found]


def _of_tool(parts: Parts, uses: Uses, event: str, words: frozenset[str]) -> list[Act] | None:
    ends = bool(words & ENDS) or words == {"observation"}
    listed = parts["content"][1] if "content" in parts else None
    if isinstance(listed, list) and dicts_in(listed):
        calls = [call for entry in listed if (call := call_in(entry, uses, listed=True)) is not None]
        if calls:
            uses.inferred += 1
            return [Act(kind="say", message={"role": "assistant", "content": "", "tool_calls": calls}, event=event)]
    whole = dict(parts.values())
    executed = words & {"execution", "executed"} and first(parts, RESULT) is None  # and its result is not told
    if ends and first(parts, ARGUMENTS) is not None and (whole_call := call_in(whole, uses, listed=bool(executed))):
        uses.inferred += 1  # the event tells of the whole call
        return [Act(kind="call", message=whole_call, event=event), *result_of(whole_call, event)]
    if ends:
        came = first(parts, RESULT) or first(parts, ("error",))
        if came is None:
            return None
        uses.inferred += 1
        uses.take("result", came[0])
        return [Act(kind="result", message=result_told({"content": came[1]}, parts), event=event)]
    if not words & STARTS and len(words) > 1:
        return None
    call = call_in({key: value for key, value in whole.items() if value != event}, uses, listed=True)
    if call is None:
        return None
    uses.inferred += 1
    return [Act(kind="call", message=call, event=event), *result_of(call, event)]


def acts_of_items(parts: Parts, uses: Uses, role: str) -> list[Act] | None:
    """Return what a message of typed items tells, as Semantic Kernel keeps them; None if it is none."""
    items = dicts_in(parts["items"][1]) if "items" in parts and isinstance(parts["items"][1], list) else []
    if not items or not all(isinstance(item.get("$type"), str) for item in items):
        return None
    texts, calls, results = list[str](), list[Message](), list[Act]()
    for item in items:
        held, words = parts_of(item), words_of(item["$type"])
        if words & ACTS and words & ENDS:
            came = first(held, RESULT)
            results.append(Act(kind="result", message=result_told({"content": came[1] if came else ""}, held)))
        elif words & ACTS and (call := call_in(item, uses, listed=True)) is not None:
            calls.append(call)
        elif (text := first(held, ("text",))) is not None:
            texts.append(as_text(text[1]))
    uses.read += 1
    message: Message = {"role": role, "content": "\n".join(texts)} | ({"tool_calls": calls} if calls else {})
    return [*([Act(kind="say", message=message)] if texts or calls else []), *results]


def acts_of_rpc(found: Message) -> list[Act] | None:
    """Return what a message of the Model Context Protocol tells: a call of a tool, or an answer; None if it is none."""
    if "jsonrpc" not in found:
        return None
    identity = as_label(found.get("id"))
    asked = dict_of(found.get("params"))
    if found.get("method") == "tools/call" and as_name(asked.get("name")):
        function = {"name": asked["name"], "arguments": asked.get("arguments")}
        return [Act(kind="call", message={"id": identity, "type": "function", "function": function})]
    came, error = dict_of(found.get("result")), found.get("error")
    if "content" not in came and error is None:
        return []  # what the two sides agree on, and lists of tools
    result = {"role": "tool", "tool_call_id": identity, "content": as_text(came.get("content"))}
    failed = error or came.get("isError")
    return [Act(kind="answer", message=result | ({"error": failed} if failed else {}))]


def acts_of_parts(found: Message) -> list[Act] | None:
    """Return what a request or a response of PydanticAI tells, part by part; None if it is none."""
    kinds = [(part.get("part_kind"), part) for part in dicts_in(found.get("parts"))]
    if not kinds or not all(isinstance(kind, str) for kind, _ in kinds):
        return None
    said = "\n".join(as_text(part.get("content")) for kind, part in kinds if kind == "text")
    calls = [
        {
            "id": part.get("tool_call_id"),
            "type": "function",
            "function": {"name": part.get("tool_name"), "arguments": part.get("args")},
        }
        for kind, part in kinds
        if kind == "tool-call"
    ]
    message: Message = {"role": "assistant", "content": said} | ({"tool_calls": calls} if calls else {})
    acts = [Act(kind="say", message=message)] if found.get("kind") == "response" or said or calls else []
    for kind, part in kinds:
        if kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name")):
            result = {"content": part.get("content")} | ({"error": True} if kind == "retry-prompt" else {})
            acts.append(Act(kind="result", message=result_told(result, parts_of(part)) | result))
        elif kind in ASKING_PARTS:
            acts.append(Act(kind="say", message={"role": ASKING_PARTS[kind], "content": as_text(part.get("content"))}))
    return acts

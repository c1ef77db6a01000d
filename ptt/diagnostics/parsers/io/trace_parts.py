"""Find what somebody said, called or got back in an object of unknown layout, by the names of its parts.

An object tells by itself what it is: a message
with a speaker, a step with an action and its observation, a call of a tool, or an event whose kind says who acts.
Definitions of tools, expected calls and numbers of a metric log are none of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.message_shapes import common_messages, decoded
from ptt.diagnostics.parsers.io.named_parts import (
    ARGUMENTS,
    CALLED,
    IDENTITY,
    RESULT,
    Message,
    Parts,
    Uses,
    action_call,
    call_in,
    first,
    named_call,
    parts_of,
    plain_key,
    result_told,
)
from ptt.diagnostics.parsers.io.trace_events import (
    acts_of_event,
    acts_of_items,
    acts_of_parts,
    acts_of_rpc,
    acts_of_used_tool,
    acts_of_worker,
    results_listed,
)
from ptt.diagnostics.parsers.io.trace_names import (
    ACTED,
    AGENT,
    ANSWERED,
    ASKED,
    CALLS,
    CUT_CALL,
    DESCRIBED,
    GIVEN,
    INNER,
    LOGGED,
    MAX_ACTION,
    MAX_DEPTH,
    MODEL_OUTPUT,
    OBSERVED,
    PARTIAL,
    PUT_OUT,
    RUNNERS,
    SAID,
    SPAN_TIMES,
    TEXT,
    THOUGHT,
    TIME,
    UNDONE,
    Act,
    calls_listed,
    event_of,
    result_of,
    role_of,
    words_of,
)
from ptt.diagnostics.parsers.io.values import as_text, dicts_in

MODEL_PARTS: Final = ("llm", "model", "assistant", "llmcall", "modelcall", "llmoutput")
TOOL_PARTS: Final = ("tool", "tools", "toolcall", "toolcalls", "toolexecution", "execution")
"""What a step's model said and its tool did, each in an object of its own."""
LETTER: Final = re.compile(r"[^\W\d_]")
VERB: Final = re.compile(r"(?:tool|function)[ _-]?calls?::?(?P<name>[\w.-]{1,120})", re.IGNORECASE)
DETAILS: Final = ("detail", "details", "data", "payload")


def acts_in(found: Any, uses: Uses, *, listed: bool = False, depth: int = 0) -> list[Act]:
    """Return what an object tells, in order; nothing if it is no part of a conversation.

    `listed`: it stands where calls are listed, so that a name and arguments are enough to be one.
    """
    if not isinstance(found, dict) or depth > MAX_DEPTH:
        return []
    if isinstance(found.get("kwargs"), dict) and isinstance(found.get("id"), list):  # LangChain's own dump
        found = {"type": as_text(found["id"][-1:]).strip('[]"'), **found["kwargs"]}
    if (said := acts_of_parts(found)) is not None or (said := acts_of_rpc(found)) is not None:
        return said
    if len(found) == 1 and (said := _update(found, uses, depth)):
        return said
    found = _called_in_verb(found)
    parts = parts_of(found)
    event = event_of(parts)
    if PARTIAL & words_of(event) or ("spanid" in parts and not SPAN_TIMES.isdisjoint(parts)):
        return []
    said = results_listed(parts, event) or _exchange(parts, uses, event) or acts_of_used_tool(parts, uses, event)
    said = said or _spoken(parts, uses, event)
    if said is None:
        said = _step(parts, uses, event) or _thought_of_tool(found, parts, uses, event) or _of_two(parts, uses, event)
    if said is None:
        said = acts_of_event(parts, uses, event)
    if said is None and (call := call_in(found, uses, listed=listed)) is not None:
        said = [Act(kind="call", message=call, event=event), *result_of(call, event)]
    if said is None and not LOGGED.isdisjoint(parts):
        said = acts_of_worker(parts, uses)
    if said is None:
        said = _answered(parts, uses, event)
    if said is None:
        said = _by_agent(parts, uses, event)
    if said is None:
        said = _inside(parts, uses, event, depth)
    stamp = first(parts, TIME)
    if stamp is not None:
        for act in said:
            act.message.setdefault("timestamp", stamp[1])
    return said


def _update(found: dict[str, Any], uses: Uses, depth: int) -> list[Act]:
    """Return the messages that a node of a graph added, under its name, as LangGraph streams its updates."""
    (held,) = found.values()
    messages = held.get("messages") if isinstance(held, dict) else None
    messages = messages if isinstance(messages, list) else [messages] if isinstance(messages, dict) else []
    acts = [act for entry in messages for act in acts_in(entry, uses, depth=depth + 1)]
    return [] if any(act.message.get("role") in ("user", "system") for act in acts) else acts  # a whole conversation


def _called_in_verb(found: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose action names a tool, as `TOOL_CALL::search`, as the call that its detail holds."""
    verbs = ((key, VERB.fullmatch(value)) for key, value in found.items() if isinstance(value, str))
    key, called = next(((key, match) for key, match in verbs if match), ("", None))
    held = next((name for name in DETAILS if isinstance(found.get(name), dict)), None)
    if called is None or held is None or first(parts_of(found[held]), ARGUMENTS) is None:
        return found
    rest = {name: value for name, value in found.items() if name not in (key, held, "actor")}
    return {**rest, "tool": called["name"], **found[held]}


def _exchange(parts: Parts, uses: Uses, event: str) -> list[Act]:
    """Return what an object tells that holds a question and the agent's answer, side by side."""
    asked, answered = first(parts, ASKED), first(parts, ANSWERED)
    if answered and plain_key(answered[0]) == "finalresponse" and "usercontent" not in parts:
        return []  # what came of a whole run
    question, answer = _unheld(asked[1]) if asked else None, _unheld(answered[1]) if answered else None
    helped = answered is None and asked and plain_key(asked[0]).startswith("user") and _of_helpers(parts, uses)
    if helped and isinstance(question, str):  # what came of the calls was not said
        answered, answer = asked, ""
    if answered is None or not isinstance(question, str) or not isinstance(answer, str):
        return []
    uses.read += 1
    uses.take("text", answered[0])
    used = next(({"calls": part} for name, part in parts.items() if name in ("toolsused", "tooltrace")), parts)
    inner = (parts_of(value) for _, value in parts.values() if isinstance(value, dict))
    calls = calls_listed(used, uses, event) or next(
        (found for held in inner if (found := calls_listed(held, uses, event))), []
    )
    calls = calls or _of_helpers(parts, uses)
    message: Message = {"role": "assistant", "content": answer} | ({"tool_calls": calls} if calls else {})
    return [
        Act(kind="say", message={"role": "user", "content": question}, event=event),
        Act(kind="say", message=message, event=event),
        *(Act(kind="result", message=call.pop("result"), event=event) for call in calls if "result" in call),
    ]


def _of_helpers(parts: Parts, uses: Uses) -> list[Message]:
    """Return the calls that agents made who are listed beside an answer they helped with, each with its own calls."""
    helpers = [entry for _, value in parts.values() if isinstance(value, list) for entry in dicts_in(value)]
    listed = [entry for helper in helpers if first(parts_of(helper), AGENT) is not None
              for value in helper.values() if isinstance(value, list) for entry in dicts_in(value)]  # fmt: skip
    return [call for entry in listed if (call := call_in(entry, uses)) is not None]


def with_agents(entries: list[Any]) -> list[Any]:
    """Return entries in which speakers with names of their own are the assistant, where the others are known.

    Whoever answers a user, and is not one that ptt knows, is an agent, or what runs its code; where an assistant speaks
    more often than they, names stay.
    """
    parts = [parts_of(entry) for entry in entries if isinstance(entry, dict)]
    known = [role_of(entry) for entry in parts]
    speakers = [found[1] for found in known if found]
    keys = {found[0] for found in known if found}
    if "user" not in speakers or known.count(None) <= speakers.count("assistant") or len(keys) != 1:
        return entries
    (key,) = keys
    return [entry | _role_by_name(entry, key) if isinstance(entry, dict) else entry for entry in entries]


def _role_by_name(entry: Message, key: str) -> Message:
    name = entry.get(key)
    if not isinstance(name, str) or not name or role_of(parts_of({key: name})) is not None:
        return {}
    return {key: "tool" if words_of(name) & RUNNERS else "assistant"}


def _spoken(parts: Parts, uses: Uses, event: str) -> list[Act] | None:
    """Return what a message with a known speaker tells; None if the object is none."""
    speaker = role_of(parts)
    if speaker is None:
        return None
    key, role = speaker
    if (items := acts_of_items(parts, uses, role)) is not None:
        return items
    text = _text(parts, key)
    if isinstance(text, tuple) and isinstance(text[1], dict) and role_of(parts_of(text[1])) is not None:
        return None  # what is inside tells it
    calls = (calls_listed(parts, uses, event) or named_call(parts, uses)) if role == "assistant" else []
    if role == "assistant" and not calls and _is_text(parts, "action") and "observation" in parts:
        return None  # a step
    thought = first(parts, THOUGHT) if role == "assistant" else None
    answers = role == "tool" and first(parts, IDENTITY[:-1]) is not None  # with nothing, but it did
    if text is None and not calls and thought is None and "content" not in parts and not answers:
        return [*_observed(parts, uses, event)] or None if role == "tool" else None
    message: Message = {"role": role, "content": text[1] if text else ""}
    uses.take("role", key)
    uses.read += 1
    if text is not None:
        uses.take("text", text[0])
    rest = {name: part for name, part in parts.items() if text is None or part[0] != text[0]}
    return [*_acts(message, role, rest, calls, thought, uses, event)]


def _acts(
    message: Message, role: str, parts: Parts, calls: list[Message], thought: Any, uses: Uses, event: str
) -> Iterator[Act]:
    if role == "tool":
        told = decoded(message.get("content"))
        call = call_in(told, uses) if isinstance(told, dict) and "arguments" in told else _cut_call(told)
        if call is not None and "result" in call:  # it tells the whole call
            yield from (Act(kind="call", message=call, event=event), *result_of(call, event))
            return
        yield Act(kind="result", message=result_told(message, parts), event=event)
        return
    if thought is not None and isinstance(thought[1], str) and thought[1]:
        message["reasoning_content"] = thought[1]
    for plain in common_messages([message | ({"tool_calls": calls} if calls else {})]):
        kind = "result" if plain.get("role") == "tool" else "say"
        yield Act(kind=kind, message=plain, event=event)
    results = [call.pop("result") for call in calls if "result" in call]
    yield from (Act(kind="result", message=result, event=event) for result in results)
    if calls and not results:
        yield from _observed(parts, uses, event)


def _cut_call(told: Any) -> Message | None:
    """Return the call that a tool's message tells in Python's spelling, and cuts off."""
    written = CUT_CALL.match(told) if isinstance(told, str) else None
    if written is None:
        return None
    function = {"name": written[1], "arguments": ""}
    result = {"role": "tool", "name": written[1], "content": told[written.end() :]}
    return {"id": None, "type": "function", "function": function, "result": result}


def _text(parts: Parts, speaker: str) -> tuple[str, Any] | None:
    """Return what was said: the first part for it that is not the speaker's own."""
    found = [parts[name] for name in TEXT if name in parts and parts[name][0] != speaker]
    whole = [(key, _unheld(value)) for key, value in found if isinstance(value, str | list | dict)]
    return next((entry for entry in whole if entry[1]), next(iter(whole), None))


def _unheld(found: Any) -> Any:
    """Return the text in an object that only holds it; other values unchanged."""
    held = next((found[key] for key in ("parts", "text") if found.get(key)), None) if isinstance(found, dict) else None
    if isinstance(held, list):
        held = [part.get("text") if isinstance(part, dict) and "text" in part else part for part in held]
        if all(isinstance(part, str) for part in held):
            return "\n".join(held)
    return held if isinstance(held, str) else found


def _step(parts: Parts, uses: Uses, event: str) -> list[Act] | None:
    """Return what a step tells: the agent's thought and action, and what it observed; None if it is none."""
    actor = parts["agent"][1] if "agent" in parts else None
    if isinstance(actor, dict) and "environment" in parts:  # two sides, each an object or a text of its own
        asked = first(parts, ("usermessage", "userinput"))
        step = _step(parts_of(actor) | {"observation": parts["environment"]}, uses, event)
        if step is not None and asked is not None and _is_text(parts, plain_key(asked[0])):
            return [Act(kind="say", message={"role": "user", "content": asked[1]}, event=event), *step]
        return step
    observed = next((name for name in OBSERVED[:7] if name in parts), None)
    acted = next((name for name in ACTED if name in parts and parts[name][1] not in ([], {}, "")), "")
    acted = acted or next((name for name, (key, _) in parts.items() if name.startswith("action") or
                           ("action" in words_of(key) and not name.startswith(UNDONE))), "")  # fmt: skip
    thought = first(parts, THOUGHT) or next((told for name, told in parts.items() if name.endswith(THOUGHT[2:])), None)
    alone = bool(acted) and isinstance(parts[acted][1], str) and CALLED.fullmatch(parts[acted][1][:MAX_ACTION])
    said = next((parts[name] for name in SAID if LOGGED.isdisjoint(parts) and _is_text(parts, name)), thought)
    listed = acted in CALLS[:1] and not {*SAID, "toolresults"}.isdisjoint(parts)  # with no text, or an empty one
    rated = "reward" in parts or "rew" in parts  # by an environment
    unused = first(parts, GIVEN) is None and any(name in parts and parts[name][1] == [] for name in CALLS)
    if not acted and (observed is not None or unused) and said is not None and said is not thought:
        uses.read += 1
        uses.take("text", said[0])
        message = {"role": "assistant", "content": as_text(said[1])}
        return [Act(kind="say", message=message, event=event), *_observed(parts, uses, event)]
    if not acted or (observed is None and said is None and not alone and not listed and not rated):
        return None
    key, value = parts[acted]
    if isinstance(value, str) and not LETTER.search(value):  # a move in a game
        seen = parts[observed][1] if observed is not None else None
        if not isinstance(seen, str) or not LETTER.search(seen):
            return None
        uses.read += 1
        moved = Act(kind="say", message={"role": "assistant", "content": value}, event=event)
        return [moved, *_observed(parts, uses, event)]
    value = decoded(value)
    if isinstance(value, str):
        held = [value for _, value in parts.values() if isinstance(value, dict)] if _is_told(value) else []
        calls = [call for entry in held if (call := call_in(entry, uses)) is not None]
        if not calls and not (said is not None and _is_told(value)):
            calls = [action_call(value, parts, uses)]
    elif isinstance(value, dict | list):
        calls = calls_listed({"action": (key, value)}, uses, event)
    else:
        return None
    if not calls and said is None:
        return None
    if calls:
        uses.take("calls", key)
    uses.read += 1
    if said is not None:
        uses.take("text", said[0])
    message = {"role": "assistant", "content": "" if said is None else as_text(said[1])}
    results = [call.pop("result") for call in calls if "result" in call]
    acts = [Act(kind="say", message=message | ({"tool_calls": calls} if calls else {}), event=event)]
    acts += [Act(kind="result", message=result, event=event) for result in results]
    return acts if results else [*acts, *_observed(parts, uses, event)]


def _thought_of_tool(found: Message, parts: Parts, uses: Uses, event: str) -> list[Act] | None:
    """Return what a step tells that holds a thought beside the name of a tool and its input; None if it is none."""
    thought, named = first(parts, THOUGHT), first(parts, ("tool", "toolname"))
    given = first(parts, ARGUMENTS)
    if thought is None or named is None or given is None or not isinstance(thought[1], str):
        return None
    call = call_in(found, uses) if named[1] else None
    if call is None and (named[1] or not thought[1]):
        return None
    uses.read += 1
    uses.take("text", thought[0])
    result = [] if call is None else result_of(call, event)
    message: Message = {"role": "assistant", "content": thought[1]} | ({"tool_calls": [call]} if call else {})
    return [Act(kind="say", message=message, event=event), *result]


def _of_two(parts: Parts, uses: Uses, event: str) -> list[Act] | None:
    """Return what a step tells whose model and tool are an object each: `{"llm": {...}, "tool": {...}}`."""
    spoke = next((parts[name] for name in MODEL_PARTS if name in parts and isinstance(parts[name][1], dict)), None)
    text = first(parts_of(spoke[1]), (*MODEL_OUTPUT, *TEXT)) if spoke else None
    tools = [parts[name][1] for name in TOOL_PARTS if name in parts]
    if spoke is None or text is None or not isinstance(text[1], str):
        return None
    listed = [entry for value in tools for entry in (value if isinstance(value, list) else [value])]
    calls = [call for entry in listed if (call := call_in(entry, uses, listed=True)) is not None]
    if tools and not calls and any(tools):
        return None
    uses.read += 1
    uses.take("text", text[0])
    results = [act for call in calls for act in result_of(call, event)]
    message: Message = {"role": "assistant", "content": text[1]} | ({"tool_calls": calls} if calls else {})
    return [Act(kind="say", message=message, event=event), *results]


def _is_told(action: str) -> bool:
    """Return whether an action is told in a sentence, as `Searching the web for ptt`, so that it names no tool."""
    return DESCRIBED.fullmatch(action[:MAX_ACTION]) is not None and CALLED.fullmatch(action[:MAX_ACTION]) is None


def _is_text(parts: Parts, name: str) -> bool:
    return name in parts and isinstance(parts[name][1], str) and bool(parts[name][1])


def _observed(parts: Parts, uses: Uses, event: str) -> Iterator[Act]:
    """Yield what came back in a step."""
    for name in OBSERVED:
        if name not in parts or parts[name][1] == []:
            continue
        key, value = parts[name]
        uses.take("result", key)
        entries = value if isinstance(value, list) and value and all(isinstance(e, dict) for e in value) else [value]
        for entry in entries:
            inner = parts_of(entry) if isinstance(entry, dict) else {}
            text = first(inner, RESULT)
            content = entry if text is None else text[1]
            yield Act(kind="result", message=result_told({"content": content}, inner or _state(parts)), event=event)
        return
    if (failed := first(parts, ("error", "errormessage", "toolerror"))) is not None and failed[1]:
        yield Act(kind="result", message=result_told({"content": failed[1]}, _state(parts)), event=event)


def _state(parts: Parts) -> Parts:
    return {name: parts[name] for name in ("error", "success", "exitcode", "returncode") if name in parts}


def _answered(parts: Parts, uses: Uses, event: str) -> list[Act] | None:
    """Return what a model's answer tells that is an object of thought, call and text."""
    held = next((parts[name] for name in MODEL_OUTPUT if name in parts and isinstance(parts[name][1], dict)), None)
    inner = parts_of(held[1]) if held else {}
    thought = first(inner, THOUGHT)
    if held is None or thought is None or not isinstance(thought[1], str):
        return None
    uses.inferred += 1
    uses.take("text", held[0])
    calls = calls_listed(inner, uses, event) or named_call(inner, uses)
    text = first(inner, TEXT)
    message: Message = {
        "role": "assistant",
        "content": as_text(text[1]) if text else "",
        "reasoning_content": thought[1],
    }
    return [Act(kind="say", message=message | ({"tool_calls": calls} if calls else {}), event=event)]


def _by_agent(parts: Parts, uses: Uses, event: str) -> list[Act] | None:
    """Return what a named agent was asked to do and put out."""
    agent, text, asked = first(parts, AGENT), first(parts, PUT_OUT), first(parts, GIVEN)
    if agent is None or text is None or asked is None or not LOGGED.isdisjoint(parts):
        return None
    if not all(isinstance(part[1], str) for part in (agent, text, asked)):
        return None
    uses.inferred += 1
    uses.take("role", agent[0])
    uses.take("text", text[0])
    spoken = (("user", asked[1]), ("assistant", text[1]))
    return [Act(kind="say", message={"role": role, "content": said}, event=event) for role, said in spoken]


def _inside(parts: Parts, uses: Uses, event: str, depth: int) -> list[Act]:
    """Return what an object inside tells, where this one only wraps it."""
    named = [parts[name][1] for name in INNER if name in parts]
    others = [value for name, (_, value) in parts.items() if name not in INNER] if depth else []
    for value in [*named, *others]:
        value = decoded(value) if isinstance(value, str) and value[:1] == "{" else value
        if isinstance(value, dict):
            # what wraps it says of what kind it is
            outer = {parts[name][0]: parts[name][1] for name in ("type", "eventtype", "event", "kind") if name in parts
                     and isinstance(parts[name][1], str)}  # fmt: skip
            acts = acts_in(outer | value if outer.keys().isdisjoint(value) else value, uses, depth=depth + 1)
            if acts:
                return [Act(kind=act.kind, message=act.message, event=event or act.event) for act in acts]
    return []

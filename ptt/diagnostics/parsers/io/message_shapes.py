"""Turn messages of other interfaces into OpenAI's chat shape, the common one, and find them in what tracers record.

Read are legacy functions, Anthropic's blocks, Gemini's and Bedrock's parts, LangChain's messages, the parts of
OpenTelemetry's conventions and of Vercel's AI SDK; items of the Responses interface in io/response_items.py. Each
writer marks a failed call in its own way; here the mark becomes `error` on the tool's message, as `calls_of` reads it.
A message that is in the common shape already is handed on unchanged.

A recorded payload may be a text, a text of JSON, a message or a list of some, a request, or a client's whole answer.
Contents of payloads become plain texts, so that a message is known again in the payload of the next call.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.tool_calls import function_of
from ptt.diagnostics.parsers.io.values import as_json, as_name, as_text, dict_of, dicts_in

ROLES: Final = {
    "system": "system", "developer": "developer", "user": "user", "assistant": "assistant", "tool": "tool",
    "human": "user", "ai": "assistant", "gpt": "assistant", "model": "assistant", "bot": "assistant",
    "agent": "assistant", "chatbot": "assistant", "function": "tool", "observation": "tool", "ipython": "tool",
    "tool_response": "tool", "function_response": "tool",
    "tool_result": "tool", "tool_results": "tool", "toolresult": "tool",
}  # fmt: skip
"""What writers call the speaker, and what it is here. Others stay: an environment's own kinds of message."""
SAYS: Final = ("content", "tool_calls", "function_call", "reasoning_content", "text", "parts")
ARGUMENTS: Final = ("arguments", "args", "input", "parameters")
CALL_BLOCKS: Final = frozenset(
    {
        "tool_use",
        "server_tool_use",
        "mcp_tool_use",
        "tool_call",
        "tool-call",
        "function_call",
        "functioncall",
        "toolcall",
    }
)
RESULT_BLOCKS: Final = (
    "tool_result", "tool-result", "tool_call_response", "function_call_output", "functionresponse",
)  # fmt: skip
"""How kinds of results end; also web_search_tool_result and its kin."""
THOUGHT_BLOCKS: Final = frozenset({"thinking", "reasoning"})
NESTED_CALLS: Final = ("functionCall", "function_call", "toolUse", "tool_call")  # of Gemini, Bedrock, ...; results:
NESTED_RESULTS: Final = ("functionResponse", "function_response", "toolResult", "tool_call_result")
NESTED: Final = frozenset({*NESTED_CALLS, *NESTED_RESULTS, "value", "thought"})
IDENTITIES: Final = ("call_id", "tool_use_id", "tool_call_id", "toolUseId", "toolCallId", "id")
"""Ids of the call that a block makes or answers; its own id comes last and cannot find a result alone."""
ANSWERED: Final = (
    "call_id",
    "tool_use_id",
    "toolUseId",
    "toolCallId",
)  # ids that only a result has, of what it answers
TOOL_NAMES: Final = ("name", "toolName", "tool_name")
RESULTS: Final = ("content", "result", "output", "response")
CONTENTS: Final = ("parts", "contents", "text")  # where a message has no `content`
SAID: Final = ("value", "content")  # the text of a block that has no `text`
THOUGHTS: Final = ("thinking", "reasoning", "content", "text", "value")
FLAGS: Final = frozenset({"is_error", "isError", "success", "status"})  # through which a result may say that it failed
STATUSES: Final = {"error": True, "success": False}  # of a result: whether it failed
PART_STATES: Final = {"output-error": True, "output-available": False}  # of the AI SDK 5's parts
LANGCHAIN: Final = frozenset({"human", "ai", "system", "tool", "function"})

LOOKED: Final = 20  # messages looked at to recognise a chat

Message = dict[str, Any]


def is_message(found: Any) -> bool:
    """Return whether an object is a message of a chat: a known speaker who says or calls something."""
    return _is_turn(found) and (found.get("role") is None or found["role"].lower() in ROLES)


def _is_turn(found: Any) -> bool:
    """Return whether somebody says something; writers name environments and judges as they like."""
    if not isinstance(found, dict):
        return False
    role = found.get("role")
    if role is None:
        return as_name(found.get("type")) in LANGCHAIN and ("content" in found or "data" in found)
    return isinstance(role, str) and any(key in found for key in SAYS)


def is_chat(found: Any, looked: int = LOOKED) -> bool:
    """Return whether a value begins as a list of messages; the last one may be cut where a file is recognised."""
    if not isinstance(found, list) or not found:
        return False
    turns = found[: max(1, min(len(found) - 1, looked))]
    return all(map(_is_turn, turns)) and 2 * sum(map(is_message, turns)) >= len(turns)


def common_messages(found: list[Message]) -> list[Message]:
    """Return messages in the common shape; the same list where they are in it."""
    if not any(map(_is_foreign, found)):
        return found
    return [message for given in found for message in (_common(given) if _is_foreign(given) else (given,))]


def _is_foreign(message: Message) -> bool:
    role = message.get("role")
    if role != "assistant" and role != "tool" and role != "user" and role != "system" and role != "developer":
        return True
    content = message.get("content")
    if content is None and any(key in message for key in CONTENTS):
        return True
    if not isinstance(content, str) and content is not None:
        parts = content if isinstance(content, list) else []
        if isinstance(content, dict) or any(isinstance(part, dict) and _is_block(part) for part in parts):
            return True
    calls = message.get("tool_calls")
    if calls and (not isinstance(calls, list) or not all(map(_is_common_call, calls))):
        return True
    if role == "tool" and message.get("error", False) is False and not FLAGS.isdisjoint(message):
        return True
    return bool(message.get("function_call") or message.get("tool_call"))


def _is_block(part: Message) -> bool:
    kind = part.get("type")
    if not isinstance(kind, str):
        return not NESTED.isdisjoint(part)
    if kind == "text" and len(part) == 2:  # as most blocks are
        return "text" not in part
    told = kind in THOUGHT_BLOCKS or _is_tool_part(part) or is_call_kind(kind) or is_result_kind(kind)
    return told or not NESTED.isdisjoint(part) or (kind == "text" and "text" not in part)


def is_call_kind(kind: str) -> bool:
    """Return whether blocks of a kind ask for a tool."""
    return kind.lower() in CALL_BLOCKS


def is_result_kind(kind: str) -> bool:
    """Return whether blocks of a kind hold what a tool gave back."""
    return kind.lower().endswith(RESULT_BLOCKS)


def _is_common_call(call: Any) -> bool:
    return isinstance(call, dict) and ("function" in call or "arguments" in call)


def _common(message: Message) -> Iterator[Message]:
    if message.get("role") is None and isinstance(message.get("data"), dict):  # LangChain's messages_to_dict
        message = {"type": message.get("type"), **message["data"]}
    said = message.get("role", message.get("type"))
    role = ROLES.get(said.lower(), said) if isinstance(said, str) else said
    content = message.get("content")
    if content is None:
        content = next((message[key] for key in CONTENTS if message.get(key) is not None), None)
    if isinstance(content, dict):  # a block alone, or an object as a tool gives it
        held = content.get("parts")  # Mastra's
        content = held if isinstance(held, list) else [content] if "type" in content else as_json(content)
    whole = message | {"role": role, "content": content}
    if role == "tool" and message.get("error", False) is False and (failed := _failed(message)) is not None:
        whole["error"] = failed
    if role == "tool" and "tool_call_id" not in message:
        answered = next((name for key in ANSWERED if (name := as_name(message.get(key))) is not None), None)
        whole |= {} if answered is None else {"tool_call_id": answered}
    calls = list(_calls(message)) if role != "tool" else []  # a result may show the call that it answers
    if isinstance(content, list) and any(isinstance(part, dict) and _is_block(part) for part in content):
        yield from _of_blocks(whole, content, calls)
        return
    yield whole | {"tool_calls": calls} if calls or "tool_calls" in message else whole


def _failed(result: Message) -> bool | None:
    """Return whether a result says that its call failed, by a flag or a status; None where it does not say."""
    flags = [result[key] for key in ("is_error", "isError", "error") if isinstance(result.get(key), bool)]
    if True in flags:
        return True
    success = result.get("success")
    told = not success if isinstance(success, bool) else STATUSES.get(as_name(result.get("status")) or "")
    return False if told is None and flags else told


def _calls(message: Message) -> Iterator[Message]:
    found = message.get("tool_calls")
    found = parse_json(found) if isinstance(found, str) else found
    for call in [found] if isinstance(found, dict) else found if isinstance(found, list) else []:
        call = parse_json(call) if isinstance(call, str) else call
        if isinstance(call, dict):
            yield call if _is_common_call(call) else call | {"arguments": arguments_of(call)}
    for key in ("function_call", "tool_call"):  # one alone
        if not found and isinstance(legacy := message.get(key), dict):
            yield {"type": "function", **dict_of({"id": legacy["id"]} if "id" in legacy else {}), "function": legacy}


def arguments_of(call: Message) -> Any:
    """Return a call's arguments, whatever its writer calls them."""
    return next((call[key] for key in ARGUMENTS if call.get(key) is not None), None)


def _of_blocks(message: Message, blocks: list[Any], calls: list[Message]) -> Iterator[Message]:
    """Take calls and results out of the blocks of one message.

    Results come before what the user adds to them, and behind the calls of a model whose own interface runs its tools.
    """
    texts: list[Any] = []
    thoughts: list[str] = []
    results: list[Message] = []
    known = {as_name(call.get("id")) for call in calls} - {None}  # LangChain repeats a block among its own calls
    asked_for = Tally(map(_request, calls))  # as others do whose blocks have no id
    for block in [part for entry in blocks for part in _parts_of_tool(entry)]:
        if not isinstance(block, dict) or not _is_block(block):
            texts.append(block)
        elif (call := _call_in(block)) is not None:
            request = _request(call)
            again = asked_for[request] > 0 if call["id"] is None else call["id"] in known
            asked_for[request] -= again
            calls += [] if again else [call]
        elif (result := _result_in(block)) is not None:
            results.append(result)
        elif block.get("type") in THOUGHT_BLOCKS or block.get("thought") is True:
            thoughts.append(as_text(next((block[key] for key in THOUGHTS if key in block), "")))
        else:
            said = next((block[key] for key in SAID if block.get(key) is not None), None)
            texts.append(block if said is None or "text" in block else {"type": "text", "text": said})
    thoughts += [text for text in [as_name(message.get("reasoning_content"))] if text]
    if not calls:
        yield from results
    if texts or calls or thoughts:
        rest: Message = {"role": message["role"], "content": texts or ""}
        if calls:
            rest["tool_calls"] = calls
        if thoughts:
            rest["reasoning_content"] = "\n".join(thoughts)
        yield {key: message[key] for key in ("name", "timestamp", "tool_call_id", "error") if key in message} | rest
    if calls:
        yield from results


def _parts_of_tool(block: Any) -> list[Any]:
    """Return the call and the result that one part of an interface's message tells (Vercel's AI SDK, 4 and 5)."""
    if not isinstance(block, dict) or not _is_tool_part(block):
        return [block]
    told = dict_of(block.get("toolInvocation")) or block
    name = as_name(told.get("toolName")) or str(block["type"]).removeprefix("tool-")
    identity = {"toolCallId": told.get("toolCallId"), "toolName": name}
    call = {"type": "tool-call", "args": told.get("args", told.get("input"))} | identity
    came = next((told[key] for key in ("result", "output", "errorText") if told.get(key) is not None), None)
    failed = True if told.get("errorText") else PART_STATES.get(as_name(told.get("state")) or "")
    if came is None and failed is None:
        return [call]
    result = {"type": "tool-result", "result": came} | identity
    return [call, result if failed is None else result | {"isError": failed}]


def _is_tool_part(block: Message) -> bool:
    kind = block.get("type")
    if not isinstance(kind, str) or kind in ("tool-call", "tool-result"):
        return False
    named = kind.startswith("tool-") or kind == "dynamic-tool"
    return isinstance(block.get("toolInvocation"), dict) or (named and "toolCallId" in block)


def _request(call: Message) -> str:
    """Return what a call asks for, in the same form wherever the call is found."""
    function = common_call(call)["function"]
    given = function["arguments"]
    return f"{function['name']} {given if isinstance(given, str) else as_json(given)}"


def _call_in(block: Message) -> Message | None:
    found: Any = next((block[key] for key in NESTED_CALLS if isinstance(block.get(key), dict)), None)
    if found is None and is_call_kind(as_name(block.get("type")) or ""):
        found = parse_json(block["value"]) if isinstance(block.get("value"), str) else block
        found = found if isinstance(found, dict) else {"arguments": block.get("value")}
    return None if found is None else common_call(found)


def common_call(call: Message) -> Message:
    """Return a request for a tool in the common shape."""
    function = function_of(call)
    name = next((name for key in TOOL_NAMES if (name := as_name(function.get(key))) is not None), None)
    return {"id": _identity(call), "type": "function", "function": {"name": name, "arguments": arguments_of(function)}}


def _result_in(block: Message) -> Message | None:
    kind = as_name(block.get("type"))
    found: Any = next((block[key] for key in NESTED_RESULTS if isinstance(block.get(key), dict)), None)
    if found is None and kind is not None and is_result_kind(kind):
        found = block
    if found is None:
        return None
    said = next((found[key] for key in RESULTS if found.get(key) is not None), None)
    origin = dict_of(found.get("origin")) or found  # the call itself, in Haystack's
    result: Message = {"role": "tool", "tool_call_id": _identity(origin), "content": said}
    if (name := next((name for key in TOOL_NAMES if (name := as_name(origin.get(key)))), None)) is not None:
        result["name"] = name
    failed = _failed(found)
    return result | ({} if failed is None else {"error": failed})


def _identity(found: Message) -> str | None:
    return next((name for key in IDENTITIES if (name := as_name(found.get(key))) is not None), None)


PAYLOAD_ROLES: Final = {
    "human": "user", "humanmessage": "user", "humanmessagechunk": "user",
    "ai": "assistant", "aimessage": "assistant", "aimessagechunk": "assistant", "model": "assistant",
    "systemmessage": "system", "developer": "system",
    "toolmessage": "tool", "function": "tool", "functionmessage": "tool", "ipython": "tool",
}  # fmt: skip
"""What a message's role or LangChain's class of it is here."""
SPOKEN: Final = frozenset({"user", "assistant", "system", "tool"})
HOLDERS: Final = (
    "messages", "choices", "generations", "message", "output", "candidates", "response", "input", "content", "text",
    "answer", "result",
)  # fmt: skip
"""Keys under which an input or output holds its messages, the most reliable first."""
MAX_DEPTH: Final = 6  # of lists and of objects that hold the messages


def decoded(found: Any) -> Any:
    """Return the value of a JSON text; other text is returned unchanged."""
    if isinstance(found, str) and found.lstrip()[:1] in ("[", "{", '"'):
        read = parse_json(found)
        return found if read is None else read
    return found


def messages_from(found: Any, role: str, depth: int = 0) -> list[Message]:
    """Return the messages in a model's input or output; `role`: the speaker where none is named."""
    found = decoded(found)
    if found is None or depth > MAX_DEPTH:
        return []
    if isinstance(found, list):
        return [message for entry in found for message in messages_from(entry, role, depth + 1)]
    if not isinstance(found, dict):
        return [{"role": role, "content": as_text(found)}]
    if _speaks(found):
        return [_with_text(message) for message in common_messages([_spoken(found, role)])]
    held = next((key for key in HOLDERS if found.get(key) not in (None, "", [])), None)
    if held is None:
        return [{"role": role, "content": as_text(found)}] if found else []
    before = messages_from(found.get("system"), "system", depth + 1) if held == "messages" else []
    return before + messages_from(found[held], role, depth + 1)


def _is_block_kind(kind: str) -> bool:
    return is_call_kind(kind) or is_result_kind(kind)


def _speaks(found: Message) -> bool:
    """Return whether an object is a message, not what holds some."""
    kind = as_name(found.get("type")) or ""
    if "lc" in found and isinstance(found.get("kwargs"), dict):
        return True
    if _is_block_kind(kind) or kind.lower() in PAYLOAD_ROLES:
        return True
    asks = isinstance(found.get("tool_calls"), list) or isinstance(found.get("function_call"), dict)
    return asks or isinstance(found.get("role"), str) or (kind in SPOKEN and "content" in found)


def _spoken(found: Message, role: str) -> Message:
    """Return an object as a message with role, content and all calls that it contains."""
    if "lc" in found:  # as LangChain's `dumpd` spells an object
        name = found.get("id")
        kind = name[-1] if isinstance(name, list) and name and isinstance(name[-1], str) else ""
        found = {"type": kind, **dict_of(found.get("kwargs"))}
    kind = as_name(found.get("type")) or ""
    if _is_block_kind(kind):  # an item, or a part by itself
        return {"role": "assistant" if is_call_kind(kind) else "tool", "content": [found]}
    spoken = (as_name(found.get("role")) or kind).lower()
    spoken = PAYLOAD_ROLES.get(spoken, spoken)
    message = found | {"role": spoken if spoken in SPOKEN else role}
    more = dict_of(found.get("additional_kwargs"))
    calls = dicts_in(found.get("tool_calls")) or dicts_in(more.get("tool_calls"))
    calls = calls or list(filter(None, [dict_of(found.get("function_call") or more.get("function_call"))]))
    thoughts = [text for key in ("reasoning_content", "thinking") if (text := as_name(found.get(key)))]
    message.pop("function_call", None)
    if isinstance(message.get("content"), dict):
        message["content"] = [message["content"]]
    message["tool_calls"] = [common_call(call) for call in calls]
    return message | ({"reasoning_content": "\n".join(thoughts)} if thoughts else {})


def _with_text(message: Message) -> Message:
    """Return a message with its content as one text and, of its other fields, only those of the common shape."""
    content = message.get("content")
    text = as_text(content)
    if isinstance(content, list):
        text = "\n".join(_text_of(part) for part in content if part is not None)
    plain: Message = {"role": message["role"], "content": text}
    if plain["role"] != "tool":
        return plain | {key: message[key] for key in ("reasoning_content", "tool_calls") if message.get(key)}
    identity = as_name(message.get("tool_call_id")) or as_name(message.get("id"))
    told = {"tool_call_id": identity, "name": as_name(message.get("name"))}
    return (
        plain | {key: value for key, value in told.items() if value} | ({"error": True} if message.get("error") else {})
    )


def _text_of(part: Any) -> str:
    if isinstance(part, dict):
        part = next((part[key] for key in ("text", "content") if part.get(key) is not None), part)
    return as_text(part)


def definitions_in(found: Any) -> list[Message]:
    """Return the definitions of tools in a list, also where each is a text of JSON."""
    found = decoded(found)
    return dicts_in([decoded(entry) for entry in found]) if isinstance(found, list) else []

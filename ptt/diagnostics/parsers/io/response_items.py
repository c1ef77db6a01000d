"""Items of OpenAI's Responses interface as messages in the common shape, and the answers of its clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ptt.diagnostics.parsers.io.message_shapes import ROLES, Message, arguments_of, common_messages, is_message
from ptt.diagnostics.parsers.io.values import as_json, as_name, dict_of, dicts_in, plain_text

CALL_ITEMS: Final = "_call"  # how kinds of items end that ask for a tool, and how their results do:
OUTPUT_ITEMS: Final = "_output"
NAMED_CALLS: Final = frozenset({"function_call", "custom_tool_call", "mcp_call", "mcp_tool_call", "tool_call"})
OWN: Final = frozenset({"type", "id", "call_id", "status", "output", "result", "results"})  # of a built-in tool's call
FAILED: Final = frozenset({"failed", "error"})
ITEMS: Final = frozenset({"message", "reasoning", "item_reference", "compaction"})


def is_item(found: Any) -> bool:
    """Return whether an object is an item of OpenAI's Responses interface, a plain message among them."""
    if not isinstance(found, dict):
        return False
    kind = found.get("type")
    return is_message(found) if kind is None else isinstance(kind, str) and (_ends_call(kind) or kind in ITEMS)


def is_own_item(found: Any) -> bool:
    """Return whether an object is an item that only the Responses interface has."""
    kind = found.get("type") if isinstance(found, dict) else None
    if kind == "message":
        return isinstance(found.get("role"), str)
    return isinstance(kind, str) and (_ends_call(kind) or kind == "reasoning")


def _ends_call(kind: str) -> bool:
    return kind.endswith((CALL_ITEMS, CALL_ITEMS + OUTPUT_ITEMS))


def messages_of_items(items: Iterable[Message]) -> list[Message]:
    """Return items as messages: what the model reasons, says and calls between two inputs makes one turn.

    A second text in a row starts a new turn, since the answer to a request holds one text.
    """
    messages: list[Message] = []
    turn: Message | None = None
    for item in items:
        kind, role = item.get("type"), as_name(item.get("role"))
        if kind in (None, "message") and role != "assistant":
            turn = None
            messages.append({"role": ROLES.get(role or "", role), "content": _spoken(item.get("content"))})
        elif isinstance(kind, str) and kind.endswith(OUTPUT_ITEMS):
            turn = None
            messages.append(_output(item))
        elif kind in (None, "message", "reasoning") or (isinstance(kind, str) and kind.endswith(CALL_ITEMS)):
            begins = turn is None or (kind in (None, "message") and turn["content"])
            begins = begins or (kind == "reasoning" and bool(turn and turn["content"] and "tool_calls" not in turn))
            if begins or turn is None:
                turn = {"role": "assistant", "content": ""}
                messages.append(turn)
            messages += _extend(turn, kind or "message", item)
    return messages


def _extend(turn: Message, kind: str, item: Message) -> list[Message]:
    """Add an item to a turn of the assistant; return the result that a built-in tool's call holds itself."""
    if kind == "message":
        turn["content"] = _spoken(item.get("content"))
        return []
    if kind == "reasoning":
        thought = "\n".join(
            text
            for key in ("summary", "content")
            for part in dicts_in(item.get(key))
            if (text := as_name(part.get("text")))
        )
        if thought:
            turn["reasoning_content"] = (
                f"{turn['reasoning_content']}\n{thought}" if "reasoning_content" in turn else thought
            )
        return []
    identity = item.get("call_id") or item.get("id")
    if kind in NAMED_CALLS:
        name, arguments = item.get("name"), arguments_of(item)
    else:
        name, arguments = kind.removesuffix(CALL_ITEMS), {key: item[key] for key in item.keys() - OWN}
    call = {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
    turn.setdefault("tool_calls", []).append(call)
    own = item.get("output", item.get("results", item.get("result")))
    failed = bool(item.get("error")) or as_name(item.get("status")) in FAILED
    if own is None and not failed:
        return []
    said = _spoken(item["error"] if own is None and item.get("error") else own)
    result: Message = {"role": "tool", "tool_call_id": identity, "content": said}
    return [result | ({"error": failed} if failed or "error" in item else {})]


def _output(item: Message) -> Message:
    result: Message = {"role": "tool", "tool_call_id": item.get("call_id"), "content": _spoken(item.get("output"))}
    failed = item.get("is_error", item.get("error"))
    return result | ({"error": failed} if isinstance(failed, bool) or failed else {})


def _spoken(content: Any) -> Any:
    """Return the text of parts; what was refused is said too."""
    if not isinstance(content, list):
        return content if content is None or isinstance(content, str) else as_json(content)
    parts = [
        part | {"text": part["refusal"]} if isinstance(part, dict) and "refusal" in part else part for part in content
    ]
    return plain_text(parts)


def answers(response: Any) -> list[Message]:
    """Return the messages of a model's answer: of chat completions the first choice, of others all."""
    found = dict_of(response)
    choices = dicts_in(found.get("choices"))
    if choices:
        first = choices[0].get("message", choices[0].get("delta"))
        text = choices[0].get("text")
        spoken = {"role": "assistant", "content": text} if first is None and isinstance(text, str) else first
        return _spoken_by_assistant(spoken)
    if isinstance(found.get("output"), list):
        return messages_of_items(dicts_in(found["output"]))
    if found.get("role") == "assistant" or isinstance(found.get("message"), dict):
        return _spoken_by_assistant(found.get("message", found))
    return [{"role": "assistant", "content": response}] if isinstance(response, str) and response else []


def _spoken_by_assistant(message: Any) -> list[Message]:
    if not isinstance(message, dict):
        return []
    return common_messages([{"role": "assistant", **{k: v for k, v in message.items() if k != "role"}}])

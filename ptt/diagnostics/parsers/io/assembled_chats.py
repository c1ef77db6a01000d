"""Put what events and steps tell together to one conversation: turns, calls by whoever asked first, and their results.

Loggers tell the same thing more than once: the model's answer asks for a call, then the tool's own event starts it; a
turn is shown again to the next speaker. A call counts once, and so does a message that another kind of event repeats.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from ptt.diagnostics.parsers.io.message_shapes import decoded, messages_from
from ptt.diagnostics.parsers.io.named_parts import Message
from ptt.diagnostics.parsers.io.trace_names import Act
from ptt.diagnostics.parsers.io.values import as_json, as_name, as_text, dicts_in, digest, nested

CALL: Final = "call"  # the kind of an event that names none
REPEATS: Final = 8  # messages back that another event may still repeat
ANSWERED: Final = re.compile(r"^(?:AI|Assistant|ai|assistant|Tool|tool): ", re.MULTILINE)
MESSAGE_BYTES: Final = 1000  # in memory, for a message without its text


@dataclass
class Chat:
    """One conversation so far."""

    messages: list[Message] = field(default_factory=list)
    spoke: bool = False  # whether the agent's turns were told, not only its calls
    size: int = 0  # in memory, about
    _waiting: list[tuple[Message, str]] = field(default_factory=list)  # calls, and the kind of event that started them
    _known: dict[str, Message] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)
    _recent: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=REPEATS))
    _thought: str = ""

    def add(self, act: Act) -> None:
        """Take in what an event tells."""
        message = act.message
        if act.kind == "say":
            self._say(message, act.event)
        elif act.kind == "call":
            self._call(message, message.get("timestamp"), act.event or CALL)
        elif act.kind == "result" or (act.kind == "answer" and as_name(message.get("tool_call_id")) in self._known):
            self._result(message, act.event)
        elif act.kind == "thought":
            self._thought = as_text(message.get("content"))
        elif act.kind == "request" and not self.messages:
            for asked in messages_from(message["content"], "user"):
                self._append(asked)

    def begins_anew(self, act: Act) -> bool:
        """Return whether a request to the model shows a new conversation: it holds no answer where some were given."""
        if act.kind != "request" or not self.messages or not any(m["role"] == "assistant" for m in self.messages):
            return False
        asked = messages_from(act.message["content"], "user")
        return bool(asked) and not any(
            m["role"] in ("assistant", "tool") or ANSWERED.search(as_text(m.get("content"))) for m in asked
        )

    def _append(self, message: Message) -> None:
        self.messages.append(message)
        self.size += MESSAGE_BYTES + len(as_text(message.get("content")))

    def _is_repeat(self, message: Message, event: str) -> bool:
        asked = [nested(call, "function", "name") for call in dicts_in(message.get("tool_calls"))]
        mark = digest([message.get("role"), as_text(message.get("content")), asked])
        repeated = bool(event) and any(mark == seen and event != by for seen, by in self._recent)
        self._recent.append((mark, event))
        return repeated

    def _say(self, message: Message, event: str) -> None:
        calls = dicts_in(message.get("tool_calls"))
        if self._is_repeat(message, event):
            return
        if message.get("role") == "assistant":
            self.spoke = True
            if self._thought and not message.get("reasoning_content"):
                message["reasoning_content"] = self._thought
            self._thought = ""
            calls = [call for call in calls if not self._is_known(call)]
            if calls or "tool_calls" in message:
                message["tool_calls"] = calls
        self._append(message)
        for call in calls:
            self._wait(call, started="")

    def _is_known(self, call: Message) -> bool:
        identity = as_name(call.get("id"))
        return identity is not None and identity in self._known

    def _wait(self, call: Message, *, started: str) -> None:
        call.pop("result", None)
        if not as_name(call.get("id")):
            call["id"] = f"call_{len(self._known)}"  # so that results that come out of order find it
        self._known[call["id"]] = call
        self._waiting.append((call, started))

    def _call(self, call: Message, stamp: Any, event: str) -> None:
        if self._is_known(call):
            if call["id"] not in self._answered:
                return
            self._answered.discard(call["id"])  # some count their ids anew with each task
        for at, (asked, started) in enumerate(self._waiting):
            if started != event and _same(asked, call):
                self._waiting[at] = (asked, event)
                if (identity := as_name(call.get("id"))) is not None:
                    self._known[identity] = asked
                return
        call.pop("timestamp", None)
        if not self.messages or self.messages[-1].get("role") != "assistant":
            made: Message = {"role": "assistant", "content": ""} | ({"timestamp": stamp} if stamp else {})
            if self._thought:
                made["reasoning_content"], self._thought = self._thought, ""
            self._append(made)
        last = self.messages[-1]
        last["tool_calls"] = [*dicts_in(last.get("tool_calls")), call]
        self._wait(call, started=event)

    def _result(self, result: Message, event: str) -> None:
        told = as_name(result.get("tool_call_id"))
        asked = self._known.get(told) if told else None
        if asked is not None and asked["id"] in self._answered:
            return
        if asked is None:
            name = as_name(result.get("name"))
            named = [call for call, _ in self._waiting if name and nested(call, "function", "name") == name]
            asked = next(iter(named or [call for call, _ in self._waiting if not name or not told]), None)
        if asked is None and self._is_repeat(result, event):
            return
        if asked is not None:
            self._waiting = [(call, started) for call, started in self._waiting if call is not asked]
            self._answered.add(asked["id"])
            result["tool_call_id"] = asked["id"]
        self._append(result)


def _same(asked: Message, call: Message) -> bool:
    """Return whether two requests are one: the same tool, and the same arguments where both have some."""
    mine, other = asked["function"], call["function"]
    if mine.get("name") != other.get("name"):
        return False
    given = [decoded(function.get("arguments")) for function in (mine, other)]
    if any(arguments in (None, "", {}) or isinstance(arguments, str) for arguments in given):
        return True
    return as_json(given[0]) == as_json(given[1])


def with_listed(chat: Chat, calls: list[Message]) -> None:
    """Add to a conversation without calls the calls that its record lists separately, in order."""
    results = [message for message in chat.messages if message.get("role") == "tool"]
    asking = [at for at, message in enumerate(chat.messages) if message.get("role") == "assistant"]
    if not asking:
        return
    if len(results) != len(calls):
        results = []
    for at, call in enumerate(calls):
        result = call.pop("result", None)
        call["id"] = as_name(call.get("id")) or f"call_{at}"
        turn = asking[-1] if not results else _before(chat.messages, results[at], asking)
        chat.messages[turn].setdefault("tool_calls", []).append(call)
        if results:
            results[at]["tool_call_id"] = call["id"]
            if result is not None and "error" in result:
                results[at]["error"] = result["error"]
        elif result is not None:
            chat.messages.append(result | {"tool_call_id": call["id"]})


def _before(messages: list[Message], result: Message, asking: list[int]) -> int:
    """Return the number of the assistant's message that a result follows."""
    place = next(at for at, message in enumerate(messages) if message is result)
    return max((at for at in asking if at < place), default=asking[0])

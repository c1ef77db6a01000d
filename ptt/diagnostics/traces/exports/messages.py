"""Messages of a kept conversation, made fit for training: turns merged, roles known, an assistant's turn at the end.

Each message stays one JSON text, which is how it is written; a digest without the ids of calls tells equal ones, since
every attempt draws new ids.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from ptt.diagnostics.definitions import dataclass

ASSISTANT: Final = "assistant"
ROLES: Final = {"developer": "system", "function": "tool", "ipython": "tool", "observation": "tool"}
KNOWN: Final = frozenset({"system", "user", ASSISTANT, "tool"})  # what chat templates take
ANSWERABLE: Final = frozenset({"user", "tool"})  # what a prompt ends with
DIGEST_BYTES: Final = 12  # 96 bits: no two of 10^9 messages agree by chance
MAX_TURNS: Final = 256  # that an episode is split into: each is written with all before it
SCHEMAS: Final = ("parameters", "input_schema", "inputSchema")  # what interfaces call a tool's arguments

UNREADABLE: Final = "unreadable"
UNKNOWN_ROLE: Final = "unknown_role"
NO_PROMPT: Final = "no_prompt"
NO_TURN: Final = "no_assistant_turn"
EMPTY: Final = "empty_completion"
IN_TEXT: Final = "conversation_in_a_text"
RENDERED: Final = "rendered_completion"
ANSWERED: Final = "tool_output_in_text"

TEMPLATE: Final = ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "[INST]", "<|assistant|>")
"""What chat templates write around messages: a text with it was rendered before, and would be rendered twice."""
RESULT_TAGS: Final = ("tool_response", "tool_result", "function_results", "information", "observation", "interpreter")
RESULT_MARKS: Final = ("<|tool_response", "[TOOL_RESULTS]", "<|observation|>", "<｜tool▁output▁begin｜>")
"""What templates and harnesses write around results of tools: in a turn of the policy no mask leaves these out."""
OBSERVATION: Final = re.compile(r"^Observation:", re.MULTILINE)  # of ReAct
_KEY: Final = r"""["'](?:{})["']\s{{0,9}}:\s{{0,9}}"""
PACKED: Final = re.compile(rf"\s{{0,99}}(?:\{{\s{{0,99}}{_KEY.format('messages|conversations')})?\[\s{{0,99}}\{{")
PACKED_ROLE: Final = re.compile(_KEY.format("role|from") + r"""["'](?:assistant|user|system|tool|human|gpt)["']""")
"""How a text begins that is a list of messages, in JSON or as Python prints it, and what stands in it."""


@dataclass(frozen=True, kw_only=True)
class Chat:
    """A prompt or a completion: JSON texts of its messages, and a digest of each."""

    texts: tuple[str, ...]
    digests: tuple[bytes, ...]
    roles: tuple[str, ...]
    said: tuple[str, ...]  # what each message says, without the names of keys
    malformed: tuple[int, ...]  # calls of each whose arguments are no object

    @property
    def digest(self) -> bytes:
        """Return what equal chats have in common."""
        return b"".join(self.digests)

    def part(self, first: int, last: int | None = None) -> Chat:
        """Return some of the messages."""
        cut = slice(first, last)
        return Chat(
            texts=self.texts[cut],
            digests=self.digests[cut],
            roles=self.roles[cut],
            said=self.said[cut],
            malformed=self.malformed[cut],
        )

    def __add__(self, other: Chat) -> Chat:
        """Return both, one after the other."""
        return Chat(
            texts=self.texts + other.texts,
            digests=self.digests + other.digests,
            roles=self.roles + other.roles,
            said=self.said + other.said,
            malformed=self.malformed + other.malformed,
        )

    @property
    def length(self) -> int:
        """Return how many characters the policy wrote."""
        return sum(len(said) for said, role in zip(self.said, self.roles, strict=True) if role == ASSISTANT)

    @property
    def has_tool_output(self) -> bool:
        """Return whether anyone but the policy speaks: a tool, or a user between two turns."""
        return any(role != ASSISTANT for role in self.roles)


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """An episode's prompt and completion; `why` says what keeps the completion from training, "" if nothing does."""

    prompt: Chat
    completion: Chat
    why: str = ""
    trimmed: bool = False  # messages after the last assistant turn were cut
    merged: int = 0  # assistant messages joined with the one before

    def turns(self) -> Iterator[tuple[int, Conversation]]:
        """Yield each turn that says anything with its number, and all before it as its prompt; MAX_TURNS at most."""
        turn = 0
        for at, (role, said) in enumerate(zip(self.completion.roles, self.completion.said, strict=True)):
            if role != ASSISTANT:
                continue
            if turn == MAX_TURNS:
                return
            if said:
                before = self.prompt + self.completion.part(0, at)
                yield turn, Conversation(prompt=before, completion=self.completion.part(at, at + 1))
            turn += 1

    @property
    def digest(self) -> bytes:
        """Return what equal prompts with equal completions have in common."""
        spelt = b"|".join((self.prompt.digest, self.completion.digest))
        return blake2b(spelt, digest_size=DIGEST_BYTES).digest()


NOTHING: Final = Chat(texts=(), digests=(), roles=(), said=(), malformed=())


def read_conversation(prompt: str | None, completion: str | None) -> Conversation:
    """Return the conversation of two JSON texts.

    If the assistant speaks first, everything before the first answer to it is the prompt. If it first calls a tool,
    what it was asked is lost.
    """
    try:
        messages = [*_messages(prompt), *_messages(completion)]
    except (ValueError, RecursionError, TypeError):
        return Conversation(prompt=NOTHING, completion=NOTHING, why=UNREADABLE)
    for message in messages:
        message["role"] = ROLES.get(message["role"], message["role"])
    if any(message["role"] not in KNOWN for message in messages):
        return Conversation(prompt=NOTHING, completion=NOTHING, why=UNKNOWN_ROLE)
    if any(message["role"] != "tool" and _is_packed(message.get("content")) for message in messages):
        return Conversation(prompt=NOTHING, completion=NOTHING, why=IN_TEXT)
    joined = merge_turns(messages)
    _name_results(joined)
    asked = next((at for at, message in enumerate(joined) if message["role"] in ANSWERABLE), None)
    if asked is None or joined[0].get("tool_calls"):
        return Conversation(prompt=NOTHING, completion=NOTHING, why=NO_PROMPT)
    begins = next((at for at in range(asked, len(joined)) if joined[at]["role"] == ASSISTANT), len(joined))
    ends = max((at + 1 for at in range(begins, len(joined)) if joined[at]["role"] == ASSISTANT), default=begins)
    chat = _chat(joined)
    completed = chat.part(begins, ends)
    return Conversation(
        prompt=chat.part(0, begins),
        completion=completed,
        why=NO_TURN if begins == ends else _why_not(joined[begins:ends]) if completed.length else EMPTY,
        trimmed=begins < ends < len(joined),
        merged=len(messages) - len(joined),
    )


def holds_template(text: str) -> bool:
    """Return whether a text holds what chat templates write around messages."""
    return any(mark in text for mark in TEMPLATE)


def _is_packed(content: Any) -> bool:
    """Return whether a text is a list of messages, as JSON or as Python prints it."""
    packed = isinstance(content, str) and PACKED.match(content) and PACKED_ROLE.search(content)
    return bool(packed)


def _why_not(completion: Sequence[dict[str, Any]]) -> str:
    """Return why turns of the policy cannot be told from the text of others; "" where they can."""
    for message in completion:
        said = message.get("content")
        if message["role"] != ASSISTANT or not said:
            continue
        if holds_template(said):
            return RENDERED
        tagged = "</" in said and any(f"<{tag}>" in said and f"</{tag}>" in said for tag in RESULT_TAGS)
        acted = "Observation:" in said and OBSERVATION.search(said)
        if tagged or acted or any(mark in said for mark in RESULT_MARKS):
            return ANSWERED
    return ""


def read_tools(text: str | None) -> str | None:
    """Return definitions of tools in the shape that chat templates take, as JSON; None without any.

    Names on top, as other interfaces have them, go below `function`; a schema is `parameters` whatever its name was.
    """
    if text is None:
        return None
    try:
        found = [tool for tool in _messages(text) if tool]
    except (ValueError, RecursionError, TypeError):
        return None
    return msgspec.json.encode([_definition(tool) for tool in found]).decode() if found else None


def _definition(tool: dict[str, Any]) -> dict[str, Any]:
    if "function" in tool or not isinstance(tool.get("name"), str):
        return tool
    function = {key: value for key, value in tool.items() if key not in ("type", *SCHEMAS)}
    schema = next((tool[key] for key in SCHEMAS if isinstance(tool.get(key), dict)), None)
    return {"type": "function", "function": function | ({} if schema is None else {"parameters": schema})}


def merge_turns(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join what one turn of the assistant was split into: texts, a text and its calls, calls one by one.

    A text after calls is another turn: in one message the text would stand before them.
    """
    joined: list[dict[str, Any]] = []
    for message in messages:
        before = joined[-1] if joined else None
        both = before is not None and before["role"] == message["role"] == ASSISTANT
        if before is None or not both or (before.get("tool_calls") and message.get("content")):
            joined.append(dict(message))
            continue
        before["content"] = "\n".join(filter(None, (before.get("content"), message.get("content"))))
        if later := message.get("reasoning_content"):
            before["reasoning_content"] = "\n".join(filter(None, (before.get("reasoning_content"), later)))
        if calls := [*before.get("tool_calls", ()), *message.get("tool_calls", ())]:
            before["tool_calls"] = calls
    return joined


def _messages(text: str | None) -> list[dict[str, Any]]:
    if text is None:
        return []
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:  # Python's writer spells NaN and infinities, which JSON does not know
        found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(message, dict) for message in found):
        raise TypeError("messages are no list of objects")
    return found


def _name_results(messages: Sequence[dict[str, Any]]) -> None:
    """Give results without a name that of their call: some templates show it."""
    waiting: deque[tuple[str | None, str]] = deque()
    for message in messages:
        for call in message.get("tool_calls", ()):
            waiting.append((call.get("id"), call["function"].get("name") or ""))
        if message["role"] != "tool" or not waiting:
            continue
        wanted = message.get("tool_call_id")
        of_call = next((call for call in waiting if wanted is not None and call[0] == wanted), waiting[0])
        waiting.remove(of_call)
        if of_call[1] and "name" not in message:
            message["name"] = of_call[1]


def _chat(messages: Sequence[dict[str, Any]]) -> Chat:
    return Chat(
        texts=tuple(msgspec.json.encode(message).decode() for message in messages),
        digests=tuple(map(_digest, messages)),
        roles=tuple(message["role"] for message in messages),
        said=tuple(map(_said, messages)),
        malformed=tuple(map(_malformed, messages)),
    )


def _malformed(message: dict[str, Any]) -> int:
    return sum(not isinstance(call["function"].get("arguments"), dict) for call in message.get("tool_calls", ()))


def _digest(message: dict[str, Any]) -> bytes:
    plain = {key: value for key, value in message.items() if key not in ("tool_call_id", "tool_calls")}
    if calls := message.get("tool_calls"):
        plain["tool_calls"] = [call["function"] for call in calls]
    return blake2b(msgspec.json.encode(plain, order="sorted"), digest_size=DIGEST_BYTES).digest()


def _said(message: dict[str, Any]) -> str:
    parts = [message.get("reasoning_content"), message.get("content")]
    for call in message.get("tool_calls", ()):
        arguments = call["function"].get("arguments")
        spelt = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        parts.append(f"{call['function'].get('name') or ''} {spelt}")
    return "\n".join(filter(None, parts))

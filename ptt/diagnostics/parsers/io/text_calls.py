"""Calls that stand in the text of a conversation become calls, and what answers them becomes results of tools.

Only what the assistant says is searched. What stands in a thinking block, in a code fence or in a tag of an
environment counts if an answer follows: then the framework's parser read it. JSON alone in a message counts if it
names a tool that is declared or if an answer follows. A call that its parser would refuse stays in the text, and is
counted as malformed. Completions that are kept as one text are taken apart at the marks of their chat template, also
where the decoder has dropped its special tokens and only lines such as `user` are left.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.parsers.io.call_templates import (
    ANSWER,
    BLOCK,
    NAMING,
    STRONG,
    Found,
    find_calls,
    may_call,
    result_at,
)
from ptt.diagnostics.parsers.io.call_values import Asked, python_calls, values_of, whole_json
from ptt.diagnostics.parsers.io.message_shapes import Message, common_messages, is_chat
from ptt.diagnostics.parsers.io.tool_calls import UNREAD
from ptt.diagnostics.parsers.io.values import as_text, dicts_in

ASSISTANT, TOOL, USER = "assistant", "tool", "user"
DECLARED: Final = compiled(r"[\"']name[\"']\s*+:\s*+[\"']([\w.:/-]{1,200})[\"']")
DECLARED_CHARS: Final = 100_000  # of a prompt, searched for definitions of tools
PROMISED: Final = compiled(
    r"<tool_call>|<function=|<search>|<python>|<\|python_tag\|>|\[TOOL_CALLS\]|Action Input:|<function_call|✿FUNCTION✿"
)
"""What a prompt says that offers tools: a completion without a call then made none."""
MARKS: Final = compiled(
    r"<\|im_start\|>(\w{1,20})\n?|<\|start_header_id\|>(\w{1,20})<\|end_header_id\|>\s{0,2}|<start_of_turn>(\w{1,20})\n"
    r"|<\|(system|user|assistant|observation)\|>\n?|<｜(System|User|Assistant)｜>"
    r"|<\|from\|>([\w.-]{1,200})\n(?:<\|recipient\|>all\n<\|content\|>)?"
)
LINES: Final = compiled(
    r"(?:\A|\n)(system|user|assistant|tool)\n|(?:(?<=[\]})>.\"'])|\n|\A)(ipython)\n\n|(assistant)\n\n"
)
SPEAKERS: Final = {role: role for role in ("system", USER, ASSISTANT)} | {"model": ASSISTANT, "developer": "system"}
"""What a chat template calls the speakers; all others are tools."""
END_TOKENS: Final = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>",
    "<｜end▁of▁sentence｜>",
)  # fmt: skip
SHELL_BLOCKS: Final = ("```bash", "```sh", "```mswea_bash_command")
ANSWERS: Final = compiled(
    r"\s*(?:(?:EXECUTION|Execution) (?:RESULT|result)|\[\w{1,60}(?: for '[^\n]{0,300}')?\] Result:|<returncode>|<error>"
    r"|\[?(?:[Tt]ool|TOOL|Function|API|Code(?: execution)?)[ _](?:call )?(?:[Rr]esult|[Oo]utput|[Rr]esponse|RESULT)s?\b"
    r"|(?:Observation|OBSERVATION|Output|OUTPUT|Results?|(?:TOOL )?RESULTS?)\s*:)"
)
"""How a message begins in which an environment answers, without a tag around it."""
HARMONY_CALL: Final = "<|call|>"
CLINE: Final = compiled(r"\s*\[(\w{1,60})(?: for '[^\n]{0,300}')?\] Result:")
CLINE_PART: Final = compiled(r"<(\w{1,60})>")


@dataclass(kw_only=True)
class _Turn:
    """A message, or a part of one, with the calls that were found in its text."""

    origin: int
    message: Message
    text: str | None = None  # what is searched: the text of an assistant's message without calls of its own
    found: list[Found] = field(default_factory=list)
    answers: list[str] | None = None  # what it gives back to calls, where it reads like an answer
    rest: str = ""  # behind the answers

    @property
    def role(self) -> Any:
        return self.message.get("role")


def read_text_calls(
    messages: Sequence[Message],
    *,
    declared: Iterable[str] = (),
    asked: Any = None,
    transcript: bool = False,
    blocks: bool = False,
) -> list[tuple[int, Message]] | None:
    """Return messages with the calls and results in their texts as such, each with the number of the one it comes from.

    None where the texts hold none. `transcript`: the only message is a whole completion of one text or several turns.
    `blocks`: the format takes the one code block of a message as its action, and what comes next answers it.
    """
    structured = any(message.get("tool_calls") for message in messages)
    if not transcript and not _searchable(messages, structured=structured):
        return None
    turns = [turn for at, message in enumerate(messages) for turn in _turns(at, message, transcript)]
    reads = any("tool_calls" in message for message in messages)
    for turn in turns:
        turn.found = find_calls(turn.text) if turn.text is not None else []
    if structured and not any(turn.found for turn in turns):
        return None
    for turn in turns:
        if turn.role in (USER, TOOL):
            turn.answers, turn.rest = _answers(_text_of(turn.message))
    names = frozenset({*declared, *_declared([*messages, *dicts_in(asked)]), *_names_in(asked)})
    tagged = not blocks and (reads or any(turn.role == TOOL or turn.answers for turn in turns))
    for turn in turns if blocks else ():
        shell = [place for place in turn.found if (turn.text or "").startswith(SHELL_BLOCKS, place.start)]
        found = shell if len(shell) == 1 else turn.found
        turn.found = [replace(place, needs="") for place in found if len(found) == 1 or not place.needs]
    alone = not transcript and asked is None and all(turn.role == ASSISTANT for turn in turns)
    _prove(turns, names, structured=structured, tagged=tagged, apart=reads, alone=alone)
    if len(turns) == len(messages) and not any(turn.found for turn in turns):
        return None
    return list(_Writer(turns, tagged).messages())


def _text_of(message: Message) -> str:
    """Return what a message says, without its pictures."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part["text"] for part in dicts_in(content) if isinstance(part.get("text"), str))
    return as_text(content)


def _searchable(messages: Sequence[Message], *, structured: bool) -> bool:
    """Return whether some text may hold calls; beside calls of their own place only those that need no proof count."""
    for message in messages:
        if message.get("role") == ASSISTANT and not message.get("tool_calls"):
            text = _text_of(message)
            if may_call(text, STRONG) if structured else may_call(text) or text.lstrip()[:1] in ("{", "["):
                return True
        elif not structured and message.get("role") == USER and CLINE.match(_text_of(message)):
            return True
    return False


def _turns(at: int, message: Message, transcript: bool) -> Iterator[_Turn]:
    if message.get("role") != ASSISTANT or message.get("tool_calls"):
        yield _Turn(origin=at, message=message)
        return
    text = _text_of(message)
    for role, part in split_roles(text) if transcript else [(ASSISTANT, text)]:
        whole = message | {"role": role, "content": part} if part is not text else message
        yield _Turn(origin=at, message=whole, text=part if role == ASSISTANT else None)


def split_roles(text: str) -> list[tuple[str, str]]:
    """Take a text apart at the marks of a chat template; what stands before the first is the assistant's."""
    marks = list(MARKS.finditer(text)) if "<" in text else []
    marks = [mark for mark, before in zip(marks, [None, *marks], strict=False) if not _goes_on(mark, before)]
    if not marks:
        marks = list(LINES.finditer(text))
        marks = marks if _alternate([str(mark[mark.lastindex or 0]) for mark in marks]) else []
    if not marks:
        return [(ASSISTANT, text)]
    roles = [ASSISTANT, *(str(mark[mark.lastindex or 0]).lower() for mark in marks)]
    starts, ends = [0, *(mark.end() for mark in marks)], [*(mark.start() for mark in marks), len(text)]
    parts = [_trimmed(text[start:end]) for start, end in zip(starts, ends, strict=True)]
    return [(SPEAKERS.get(role, TOOL), part) for role, part in zip(roles, parts, strict=True) if part.strip()]


def _goes_on(mark: re.Match[str], before: re.Match[str] | None) -> bool:
    """Return whether the assistant only turns to another: Functionary marks each part of its turn."""
    return before is not None and before[0].startswith("<|from|>assistant") and mark[0].startswith("<|from|>assistant")


def _trimmed(text: str) -> str:
    """Return a text without white space around it and without the tokens that end a turn."""
    text = text.strip()
    while text.endswith(END_TOKENS):
        text = text[: text.rindex("<")].rstrip()
    return text


def _alternate(roles: Sequence[str]) -> bool:
    """Return whether lines that name roles are turns: others and the assistant by turns, the assistant among them."""
    speak = [role for role in roles if role != "system"]
    return (
        ASSISTANT in roles and len(speak) > 1 and all((a == ASSISTANT) != (b == ASSISTANT) for a, b in pairwise(speak))
    )


def _declared(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the names of the tools that system prompts define."""
    for message in messages:
        if message.get("role") == "system":
            yield from _names_in(_text_of(message))


def _names_in(prompt: Any) -> list[str]:
    return DECLARED.findall(prompt[:DECLARED_CHARS]) if isinstance(prompt, str) else []


def _answers(text: str) -> tuple[list[str] | None, str]:
    """Return the results in a message that begins with one, and what stands behind them; None where it does not."""
    found, at = list[str](), 0
    while result := result_at(text, at):
        found.append(result[0])
        at = result[1]
    if found:
        return found, text[at:].strip()
    return ([text], "") if ANSWERS.match(text) else (None, "")


def _prove(
    turns: Sequence[_Turn], names: frozenset[str], *, structured: bool, tagged: bool, apart: bool, alone: bool
) -> None:
    """Leave in each turn the calls that are proven.

    `structured`: the framework's own parser found others. `tagged`: answers are marked as such, or the framework keeps
    calls apart, so that a user who goes on gives none. `apart`: it does, so that a malformed one that nothing answers
    was no call to it. `alone`: only the agent's answers were kept, so that a message which is nothing but a request, or
    begins with its tag, was one to the framework; elsewhere the text behind a tool's name is no input of it.
    """
    proven: set[str] = set()
    for turn, after in zip(turns, [*turns[1:], None], strict=True):
        if turn.text is None:
            continue
        answered = after is not None and (after.role == TOOL or after.answers is not None)
        replied = answered or (after is not None and after.role != ASSISTANT and not tagged)
        if not turn.found and not structured:
            turn.found = _bare(turn.text, names, answered=answered, replied=replied or alone, after=after)
        if not replied:
            turn.found = [place for place in turn.found if not _goes_on_behind(place, turn.text)]
        last = turn.found[-1] if turn.found else None
        for at, place in enumerate(turn.found):
            named = alone and place.needs == NAMING and turn.text[: place.start].rstrip()[-1:] in ("", ">")
            told = place.needs == NAMING and not alone and turn.text[: place.end].rstrip()[-1:] not in (">", "}", "]")
            ends = answered and place is last and not told and not turn.text[place.end :].strip("\n `")
            shown = bool(place.results) or named or ends
            proven |= {place.needs} if shown and place.needs else set()
            asked = [
                replace(call, sound=bool(shown or replied)) if call.sound is None else call for call in place.asked
            ]
            refused = apart and any(call.sound is False for call in asked)
            needs = place.needs or (ANSWER if refused else "")
            turn.found[at] = replace(place, asked=tuple(asked), needs="" if shown else needs)
    for turn in turns:
        turn.found = [
            place
            for place in turn.found
            if not place.needs or (not structured and _is_known(place, turn, proven, last=turn is turns[-1]))
        ]


def _goes_on_behind(place: Found, text: str) -> bool:
    """Return whether a text goes on without an answer behind a call at which the harmony template stops: none ran."""
    return not place.results and HARMONY_CALL in text[place.start : place.end] and bool(_trimmed(text[place.end :]))


def _is_known(place: Found, turn: _Turn, proven: set[str], *, last: bool) -> bool:
    """Return whether calls without an answer are as those with one; of code only what the conversation ends with."""
    ends = last and place is turn.found[-1] and not (turn.text or "")[place.end :].strip()
    return place.needs in proven and place.needs != ANSWER and (ends or place.needs != BLOCK)


def _bare(text: str, names: frozenset[str], *, answered: bool, replied: bool, after: _Turn | None) -> list[Found]:
    """Return the calls of a message that is nothing but JSON or Python calls, or a tag named in the answer to it."""
    bare = _trimmed(text)
    asked = list(whole_json(bare)) if bare[:1] in ("{", "[") else []
    if not asked and bare.startswith("[") and bare.endswith(")]"):
        asked = python_calls(bare) or []
    if asked and (replied or all(call.name in names for call in asked)):
        return [Found(start=0, end=len(text), asked=tuple(asked))]
    named = CLINE.match(_text_of(after.message)) if answered and after else None
    opens = text.rfind(f"<{named[1]}>") if named else -1
    if named is None or opens < 0:
        return []
    body, closing, _ = text[opens + len(named[1]) + 2 :].partition(f"</{named[1]}>")
    end = opens + 2 * len(named[1]) + 5 + len(body) if closing else len(text)
    parts = CLINE_PART.split(body)  # a name after each text but the first
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    given = {name: value.partition(f"</{name}>")[0].strip("\n") for name, value in pairs if f"</{name}>" in value}
    call = Asked(name=named[1], arguments=given)
    return [Found(start=opens, end=end, asked=(call,))]


class _Writer:
    """Writes turns as messages; each call gets an id, by which its answer names it."""

    def __init__(self, turns: Sequence[_Turn], tagged: bool) -> None:
        self.turns, self.tagged = turns, tagged
        self.waiting: deque[str] = deque()
        self.count = 0

    def messages(self) -> Iterator[tuple[int, Message]]:
        for turn in self.turns:
            if turn.found and turn.text is not None:
                self.waiting.clear()
                yield from ((turn.origin, message) for message in self._asking(turn, turn.text))
                continue
            if turn.role == ASSISTANT:
                self.waiting.clear()
            yield from ((turn.origin, message) for message in self._answering(turn))

    def _asking(self, turn: _Turn, text: str) -> Iterator[Message]:
        """Yield what the assistant says up to each answer, and the answers between."""
        said, calls, unread, at = list[str](), list[Message](), list[Message](), 0
        for place in turn.found:
            said.append(text[at : place.start])
            at = place.end
            for call in place.asked:
                request = self._request(call)
                (calls if call.sound else unread).append(request)
                if not call.sound:
                    said.append(text[place.start : place.end])
            if place.results:
                yield _spoken(turn.message, said, calls, unread)
                yield from (self._result(turn.message, text) for text in place.results)
                said, calls, unread = [], [], []
                self.waiting.clear()
        said.append(text[at:])
        if calls or unread or "".join(said).strip():
            yield _spoken(turn.message, said, calls, unread)

    def _request(self, call: Asked) -> Message:
        identity = f"text-call-{self.count}"
        self.count += 1
        self.waiting.append(identity)
        return {"id": identity, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

    def _answering(self, turn: _Turn) -> Iterator[Message]:
        """Yield a message, as results of tools where it answers calls that wait."""
        bare = not self.tagged and turn.role not in (ASSISTANT, "system")
        if not self.waiting or not (turn.role == TOOL or turn.answers is not None or bare):
            yield turn.message
            return
        texts = [_text_of(turn.message)] if turn.answers is None else turn.answers
        for text in texts:
            yield self._result(turn.message, text)
        if bare or turn.role == USER:
            self.waiting.clear()
        if turn.rest and turn.role == USER:
            yield turn.message | {"content": turn.rest}

    def _result(self, message: Message, text: str) -> Message:
        kept = message if message.get("role") == TOOL else {}
        result = kept | {"role": TOOL, "content": text}
        return result | {"tool_call_id": self.waiting.popleft()} if self.waiting else result


def _spoken(message: Message, said: Sequence[str], calls: list[Message], unread: list[Message]) -> Message:
    spoken = message | {"role": ASSISTANT, "content": _trimmed("".join(said))}
    return spoken | ({"tool_calls": calls} if calls else {}) | ({UNREAD: unread} if unread else {})


def offers_tools(asked: Any) -> bool:
    """Return whether a prompt offers tools in the words of a template."""
    texts = [asked] if isinstance(asked, str) else [_text_of(message) for message in dicts_in(asked)]
    return any(PROMISED.search(text) for text in texts)


def chat_in(found: Any) -> Any:
    """Return the messages of a text that spells a list of them, as JSON or as Python prints it; else what was given."""
    if not isinstance(found, str) or found.lstrip()[:1] != "[" or "role" not in found:
        return found
    read = values_of(found)
    return common_messages(read) if is_chat(read) else found


def prompt_in(asked: Any) -> Any:
    """Return the messages of a prompt that is kept as a text of them, or as its chat template renders them."""
    asked = chat_in(asked)
    if not isinstance(asked, str) or not (MARKS.search(asked) or LINES.match(asked)):
        return asked
    parts = split_roles(f"{asked}\n")
    return [{"role": role, "content": part} for role, part in parts] if parts[0][0] != ASSISTANT else asked

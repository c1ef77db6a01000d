"""Take transcripts that are plain text apart: who speaks, which lines call a tool, where an episode begins.

Speakers stand on lines of their own, decorated in one way throughout (`## USER`, `--- [3] assistant ---`, `[tool]`),
or begin a line (`User: ...`, `Thought 2: ...`). An episode begins at a line of one word, always the same one, that
comes again before each exchange (`Question: ...`, `TASK 3 | reward=0.0`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ptt.diagnostics.definitions import compiled, dataclass
from ptt.diagnostics.parsers.io.printed_runs import AIDER, Message, Transcript, aider, logged, played, stepped

SPEAKERS: Final = {
    "user": "user", "human": "user", "customer": "user", "you": "user", "assistant": "assistant", "ai": "assistant",
    "agent": "assistant", "bot": "assistant", "model": "assistant", "gpt": "assistant", "chatgpt": "assistant",
    "claude": "assistant", "llm": "assistant", "ai assistant": "assistant", "system": "system",
    "system prompt": "system", "tool": "tool", "function": "tool", "environment": "tool", "observation": "tool",
    "tool result": "tool", "tool results": "tool", "tool response": "tool", "tool output": "tool",
    "function result": "tool", "execution result": "tool", "result": "tool", "output": "tool", "thought": "thought",
    "thinking": "thought", "reasoning": "thought", "action": "action", "action input": "input", "tool call": "call",
    "tool calls": "call", "tool use": "call", "function call": "call", "final answer": "answer", "using tool": "action",
    "tool input": "input", "args": "input", "arguments": "input", "tool args": "input", "tool arguments": "input",
}  # fmt: skip
"""What introduces a part of a transcript, and what the part is."""
HEADINGS: Final = SPEAKERS | {
    "prompt": "user",
    "response": "assistant",
    "task": "user",
    "tool name": "action",
}
"""More of them, where they stand in a heading."""
AUDITED: Final = HEADINGS | {"target": "assistant", "auditor": "user"}
AUDITOR: Final = compiled(r"^[ \t]*\[\d{1,4}\] auditor\b", re.IGNORECASE | re.MULTILINE)
"""Who speaks in an audit, in headings with numbers; elsewhere a target is the right answer."""
TEXTS: Final = (".txt", ".md", ".markdown", ".log", ".out", ".transcript", ".history")
"""How names of files end that may be transcripts."""
AGENT: Final = frozenset({"assistant", "thought", "action", "call", "input", "answer"})
INLINE: Final = compiled(
    r"[ \t]{0,4}(?P<heading>#{1,6} )?(?P<bold>\*\*|__)?(?P<word>[A-Za-z]{2,12}(?:[ _][A-Za-z]{2,10})?)"
    r"(?:[ _#](?P<number>\d{1,4}))?(?:\*\*|__)?"
    r"[ \t]?:(?:\*\*|__)?(?:[ \t]|$)"
)
NUMBERED: Final = compiled(r"\[\d{1,4}\] (?P<who>[A-Za-z]+(?: [A-Za-z]+)?)(?: (?:→|->) [\w ]+)?(?: \([^()]*\))?:")
"""A heading with its number, whom it is said to, and a remark."""
BRACKETED: Final = compiled(
    r"[ \t]{0,4}\[(?P<word>[A-Za-z]{2,12}(?:[ _][A-Za-z]{2,10})?)(?:[ _#]\d{1,4})?\]:?[ \t]+(?=\S)"
)
"""A speaker in brackets, whose text follows on the line."""
STAMP: Final = compiled(
    r"[ \t]{0,4}(?:\[?(?:\d{4}-\d\d-\d\d[T ])?\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
    r"(?:Z|[+-]\d\d:?\d\d)?\]?[ \t]*[-|,:]?[ \t]*"
    r"(?:(?:[\w.-]{1,40}[ \t]*[-|:][ \t]*)?\[?(?:INFO|DEBUG|WARNING|WARN|ERROR)\]?[ \t]*[-|:]?[ \t]*)?"
    r"|(?:INFO|DEBUG|WARNING|ERROR):[\w.-]{1,60}:[ \t]*)"
)
"""The time that a log writes before each line, and its level."""
ADORNED: Final = compiled(r"(?P<kept>[ \t#>*_\[-]{0,8})[\u2190-\u2bff\ufe0f\u200d\U0001f000-\U0001faff]+[ \t]?")
"""A picture before the name of a speaker."""
REMARKS: Final = compiled(r"\([^()\n]{0,60}\)|`[^`\n]{0,60}`|<[^<>\n]{0,60}>|\d{1,4}(?:[-/:.T]\d{1,4})+Z?")
COUNTED: Final = frozenset({"turn", "step", "message", "round", "entry", "msg", "from", "to", "the", "s", "role"})
"""Words that stand beside a speaker in a heading, as in `## Turn 3: Assistant`."""
FENCE: Final = compiled(r"[ \t]{0,3}(?:```|~~~)")
CALL_ALONE: Final = compiled(r"(?P<name>[A-Za-z_][\w.-]{0,80})\((?P<args>.{0,20000})\)\s*", re.DOTALL)
"""A turn that is nothing but a call, where a tool answers next."""
RESPONDS: Final = compiled(r"respond(?::[ \t]*|\((?=[\"'{]))")
SPECSTORY_RESULT: Final = compiled(
    r"^(?P<kind>Result|Error|Output):[ \t]*\n\s*(?P<fence>```|~~~)[^\n]*\n(?P<text>.*?)^(?P=fence)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
"""A result that stands in the turn that asked for it."""
UNKNOWN: Final = "?"  # before the name of a speaker who may be the agent
MAX_NAMED, MIN_NAMED = 2, 2  # words of such a name, and turns by it
DECORATED: Final = compiled(r"(?:\*\*|__|_\*\*|#{1,6} |-{3,} ?|={3,} ?|\[)\W{0,4}[A-Z]")
TOOL_USE: Final = compiled(
    r"<tool-use\b[^>\n]{0,200}data-tool-name=\"(?P<name>[^\"\n]{1,120})\"[^>\n]{0,200}>(?P<text>.*?)</tool-use>",
    re.DOTALL,
)
"""A call and its result as SpecStory writes them since its version 2."""
FENCED: Final = compiled(r"^(?P<fence>```|~~~)[^\n]*\n(?P<text>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)
PRINTED_CALL: Final = compiled(
    r"^  (?P<name>[\w.-]{1,120}) \([\w-]{1,80}\)\n Call ID: [^\n]*\n  Args:\n(?P<args>(?:    [^\n]*(?:\n|\Z))*)",
    re.MULTILINE,
)
"""A call as LangChain's `pretty_print` shows it."""
CALL_NAMED: Final = compiled(r"[`*_]{0,3}(?P<name>[A-Za-z_][\w.:-]{0,80})[`*_]{0,3}\s*(?P<args>[({`].*|)\Z", re.DOTALL)
"""What stands under a heading for a call."""
PLAIN_NAME: Final = compiled(r"[A-Za-z_][\w.:-]{0,80}")
SECTION: Final = compiled(r"[-=#*_~]{1,80}[ \t]*(?P<words>[A-Za-z]+(?: [A-Za-z]+){0,5})[ \t]*[-=#*_~]{0,80}")
SECTIONS: Final = {
    "correct": True, "successful": True, "succeeded": True, "passed": True, "solved": True, "resolved": True,
    "incorrect": False, "failed": False, "unsuccessful": False, "halted": False, "unsolved": False,
    "unresolved": False, "wrong": False,
}  # fmt: skip
"""What a heading over several episodes says of them."""
LETTERS: Final = compiled(r"[A-Za-z]+(?:[ _][A-Za-z]+)?")
BEGINS: Final = compiled(
    r"[^\w\n]{0,8}(?P<word>question|task|episode|problem|sample|instance|trajectory|conversation|example|query|game"
    r"|entering new)\b(?P<sign>[ \t]?[:#|]|[ \t]+\d|[ \t]+\w+ chain)",
    re.IGNORECASE,
)
PAIR: Final = compiled(r"\b([A-Za-z_]{2,30})[ \t]?[=:][ \t]?([\w.+-]{1,60})")
CALLED: Final = compiled(
    r"^[ \t]*\W{0,4}(?:tool[ _]call|calling (?:the )?tool|calling|function[ _]call|using tool|tool[ _]use|invoking"
    r"|tool(?=: [\w.-]{1,80}[({]))"
    r"[ \t]*[:=]?[ \t]*(?P<bold>\*\*)?[`'\"]?(?P<name>[A-Za-z_][\w.-]{0,80})[`'\"]?[ \t]*(?(bold)\*\*[^\n]{0,300}?)"
    r"(?:with(?: (?:args|arguments|input))?:?[ \t]*)?"
    r"(?P<args>\([^\n]{0,20000}\)|\{[^\n]{0,20000}\})?[ \t]*\]?[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
VERDICT: Final = compiled(r"\b(in)?correct\b|\b(wrong)\b", re.IGNORECASE)
VERDICT_CHARS: Final = 60
HEADING_CHARS: Final = 80
COLOURS: Final = compiled(r"\x1b\[[0-9;]{0,20}m")
MIN_MARKS: Final = 4  # of a text that is no record's: two exchanges
TAGGED: Final = (
    ("<tool_call>", "<tool_response>"), ("<search>", "<information>"), ("```python", "```output"),
    ("<code>", "<output"),
    ("<execute>", "Observation"), ("<python>", "<result"), ("<code>", "<interpreter>"), ("<search>", "<result"),
    ("<|im_start|>assistant", "<tool_response>"), ("Action:", "Observation:"), ("Action 1:", "Observation 1:"),
)  # fmt: skip
"""How a text shows a call of a tool and what came back."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Where a part begins: its line, where its text begins, what introduces it, and in which style."""

    start: int
    text: int
    part: str
    style: str


def shows_calls(text: str) -> bool:
    """Return whether a text shows at least one call and its result in the tags of a template."""
    return "{%" not in text and any(call in text and back in text for call, back in TAGGED)


def is_transcript(text: str) -> bool:
    """Return whether a text is the transcript of an agent: its turns and what answers them, twice at least."""
    if text.lstrip().startswith(AIDER):
        return True
    if played(text) is not None or stepped(text):
        return True
    return is_marked(marks_of(text)) or logged(text) is not None


def is_marked(marks: list[Mark]) -> bool:
    """Return whether what introduces the parts of a text shows an agent and what answers it, twice at least."""
    parts = [mark.part for mark in marks]
    agent = sum(part in AGENT for part in parts)
    return len(marks) >= MIN_MARKS and agent > 1 and sum(part in ("user", "tool") for part in parts) > 1


def transcripts(text: str) -> Iterator[Transcript]:
    """Yield the episodes of a text."""
    if text.lstrip().startswith(AIDER):
        yield aider(text)
        return
    if (game := played(text)) is not None:
        yield game
        return
    if steps := stepped(text):
        yield from steps
        return
    marks = marks_of(text)
    if not is_marked(marks) and (told := logged(text)) is not None:
        yield told
        return
    starts = _episodes(text, marks)
    sections = _sections(text) if len(starts) > 1 else []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        inside = marks[bisect_left(marks, start, key=_start) : bisect_left(marks, end, key=_start)]
        if inside:
            found = _transcript(text, start, end, inside)
            said = [success for at, success in sections if at <= start]
            if said and not found.labels.keys() & {"success", "reward"}:
                found.labels["success"] = said[-1]
            yield found


def _start(mark: Mark) -> int:
    return mark.start


def _sections(text: str) -> list[tuple[int, bool]]:
    """Return where headings say of the episodes below them how they went."""
    found, at = list[tuple[int, bool]](), 0
    for line in text.splitlines(keepends=True):
        heading = SECTION.fullmatch(line.strip())
        words = set(heading["words"].lower().split()) & SECTIONS.keys() if heading else set()
        if len(words) == 1:
            found.append((at, SECTIONS[words.pop()]))
        at += len(line)
    return found if len({success for _, success in found}) > 1 else []


def plain(text: str) -> str:
    """Return a text without the colours of a terminal, with one kind of line end."""
    return COLOURS.sub("", text.replace("\r\n", "\n")) if "\x1b" in text or "\r" in text else text


def marks_of(text: str) -> list[Mark]:
    """Return what introduces the parts of a text, in the style that most of them have."""
    marks, quoted = list[Mark](), list[Mark]()
    headed = AUDITED if AUDITOR.search(text) else HEADINGS
    at = 0
    fenced = False
    for line in text.splitlines(keepends=True):
        if FENCE.match(line):
            fenced = not fenced
        if (mark := _mark(line, at, headed)) is not None:
            (quoted if fenced else marks).append(mark)
        at += len(line)
    if fenced or not any(mark.part in AGENT for mark in marks):  # one is left open, or the whole text is in some
        marks = sorted([*marks, *quoted], key=lambda mark: mark.start)
    marks = _with_named(marks)
    agents = Counter(mark.style for mark in marks if mark.part in AGENT)
    if not agents:
        return []
    users = Counter(mark.style for mark in marks if mark.part == "user")
    style = max(agents, key=lambda found: (agents[found] + users[found], found))
    return [mark for mark in marks if mark.style == style]


def _mark(line: str, at: int, headed: dict[str, str]) -> Mark | None:
    """Return the speaker that a line names, whatever time or picture stands before the name.

    headed: who speaks under headings with numbers.
    """
    end = at + len(line)
    if (stamp := STAMP.match(line)) is not None and stamp.end():
        line = line[stamp.end() :]
    if (adorned := ADORNED.match(line)) is not None:
        line = adorned["kept"] + line[adorned.end() :]
    return _mark_in(line, end - len(line), headed) if line.strip() else None


def _mark_in(line: str, at: int, headed: dict[str, str]) -> Mark | None:
    bare = line.strip()
    numbered = NUMBERED.fullmatch(bare[:HEADING_CHARS])
    if numbered is not None and (part := headed.get(numbered["who"].lower())) is not None:
        return Mark(start=at, text=at + len(line), part=part, style="numbered")
    inline = INLINE.match(line)
    if inline is not None and inline["heading"]:
        part = HEADINGS.get(inline["word"].lower().replace("_", " "))
        named = part is None or inline["word"] == "Agent"  # whose turn it is: the turn follows
        return None if named else Mark(start=at, text=at + inline.end(), part=str(part), style=_style("#"))
    part = SPEAKERS.get(inline["word"].lower().replace("_", " ")) if inline is not None else None
    if inline is not None and part is not None and inline["word"][0].isupper():
        return Mark(start=at, text=at + inline.end(), part=part, style="bold" if inline["bold"] else "inline")
    bracketed = BRACKETED.match(line)
    if bracketed is not None and (part := SPEAKERS.get(bracketed["word"].lower().replace("_", " "))) is not None:
        return Mark(start=at, text=at + bracketed.end(), part=part, style="bracketed")
    if len(bare) <= HEADING_CHARS and (not bare[0].isalpha() or bare[-1] == ":"):
        words = [word.lower().replace("_", " ") for word in LETTERS.findall(REMARKS.sub("", bare))]
        words = [word for word in words if word not in COUNTED] if len(words) > 1 else words
        words = [word.removesuffix(" message") for word in words]
        if len(words) == 1 and words[0] in HEADINGS and (len(bare) > len(words[0])) and bare[0] != "<":
            return Mark(start=at, text=at + len(line), part=HEADINGS[words[0]], style=_style(bare))
        if 0 < len(words) <= MAX_NAMED and not bare[0].isspace() and DECORATED.match(bare):
            return Mark(start=at, text=at + len(line), part=f"{UNKNOWN}{' '.join(words)}", style=_style(bare))
    return None


def _style(bare: str) -> str:
    """Return the decoration of a heading, however long it is."""
    signs = re.sub(r"[A-Za-z0-9]+(?:[ _][A-Za-z]+)?|[^\x00-\x7f]|[\s:]", "", REMARKS.sub("", bare))
    signs = re.sub(r"(.)\1+", r"\1", signs)
    return "bold" if signs in ("*", "_") else f"alone {signs}"


def _with_named(marks: list[Mark]) -> list[Mark]:
    """Return marks in which the name that answers a user by turns, where no agent has a usual one, is the agent."""
    users = Counter(mark.style for mark in marks if mark.part == "user")
    agents = {mark.style for mark in marks if mark.part in AGENT}
    style, said = users.most_common(1)[0] if users else ("", 0)
    if said < MIN_NAMED or style in agents or style == "inline":
        return [mark for mark in marks if not mark.part.startswith(UNKNOWN)]
    names = Counter(mark.part for mark in marks if mark.part.startswith(UNKNOWN) and mark.style == style)
    name, count = names.most_common(1)[0] if names else ("", 0)
    agent = name if count >= MIN_NAMED else ""
    return [
        replace(mark, part="assistant") if mark.part == agent else mark
        for mark in marks
        if not mark.part.startswith(UNKNOWN) or (mark.part == agent and mark.style == style)
    ]


def _episodes(text: str, marks: list[Mark]) -> list[int]:
    """Return where episodes begin: at a word that comes again before each exchange; else at the beginning."""
    found: dict[str, list[int]] = {}
    at = 0
    for line in text.splitlines(keepends=True):
        if (match := BEGINS.match(line)) is not None:
            found.setdefault(match["word"].lower() + match["sign"].strip()[:1].strip("0123456789"), []).append(at)
        at += len(line)
    first = marks[0].start if marks else 0
    usable = [starts for starts in found.values() if len(starts) > 1 and starts[0] <= first]
    best = max(usable, key=len, default=[0])
    return best if best[0] <= first else [0]


def _transcript(text: str, start: int, end: int, marks: list[Mark]) -> Transcript:
    found = Transcript()
    opening = text[start : marks[0].start].strip(" \t\r\n=-#*")
    head = opening.partition("\n")[0]
    if "=" in head or "|" in head:
        found.labels = {name.lower(): _number(value) for name, value in PAIR.findall(head)}
        opening = opening[len(head) :].strip(" \t\r\n=-#*") if found.labels else opening
    if opening and marks[0].part not in ("user", "system"):
        found.messages.append({"role": "user", "content": opening})
    ends = [*(mark.start for mark in marks[1:]), end]
    for mark, stop, following in zip(marks, ends, [*(mark.part for mark in marks[1:]), ""], strict=True):
        said = text[mark.text : stop].strip()
        calls = mark.part == "tool" and following == "tool" and CALL_NAMED.match(said) is not None
        named = mark.part == "tool" and following == "input" and PLAIN_NAME.fullmatch(said.strip("`*")) is not None
        _add(found.messages, "call" if calls else "action" if named else mark.part, said.strip("`*") if named else said)
    for message, after in zip(found.messages, [*found.messages[1:], {}], strict=True):
        if message["role"] == "assistant" and "<tool-use" not in message["content"]:
            _with_calls(message, answered=after.get("role") == "tool")
    found.messages = [told for message in found.messages for told in _with_results(message)]
    last = found.messages[-1]
    verdict = VERDICT.search(last["content"].partition("\n")[0][:VERDICT_CHARS])
    if verdict is not None and last["role"] == "tool":
        found.labels.setdefault("success", not (verdict[1] or verdict[2]))
    return found


def _number(text: str) -> float | bool | str:
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text)
    except ValueError:
        return text


def _add(messages: list[Message], part: str, text: str) -> None:
    """Add a part: thoughts and actions make up one turn of the agent until something answers."""
    last = messages[-1] if messages else {}
    if part in ("user", "system", "tool", "assistant"):
        messages.append({"role": part, "content": text})
        return
    written = f"{WRITTEN[part]}{text}"
    if part == "call" and (named := CALL_NAMED.match(text)) is not None:
        if last.get("role") != "assistant":
            last = {"role": "assistant", "content": ""}
            messages.append(last)
        given = FENCED.search(named["args"])
        arguments = given["text"].strip() if given else named["args"].strip("()")
        last.setdefault("tool_calls", []).append({"function": {"name": named["name"], "arguments": arguments}})
        return
    if part == "call":
        written = (
            f"Tool Call: {text}"
            if "\n" not in text and not text.startswith("{")
            else f"<tool_call>\n{text}\n</tool_call>"
        )
    if last.get("role") == "assistant" and (part != "thought" or "Action:" not in last["content"]):
        last["content"] = f"{last['content']}\n{written}" if last["content"] else written
    else:
        messages.append({"role": "assistant", "content": written})


WRITTEN: Final = {"thought": "Thought: ", "action": "Action: ", "input": "Action Input: ", "answer": "Final Answer: ",
                  "call": ""}  # fmt: skip


def _with_calls(message: Message, *, answered: bool) -> None:
    """Take the calls out of lines that name them, or of a turn that is one and is answered by a tool."""
    alone = CALL_ALONE.fullmatch(message["content"]) if answered else None
    if alone is not None:
        message["tool_calls"] = [{"function": {"name": alone["name"], "arguments": alone["args"]}}]
        message["content"] = ""
        return
    message["content"] = (
        RESPONDS.sub("", message["content"], count=1) if RESPONDS.match(message["content"]) else (message["content"])
    )
    for form in (PRINTED_CALL, CALLED):
        found = list(form.finditer(message["content"]))
        found = [match for match in found if match["args"] or "tool" in match[0].lower()]
        if found:
            message.setdefault("tool_calls", []).extend(
                {"function": {"name": match["name"], "arguments": (match["args"] or "").strip("()")}} for match in found
            )
            message["content"] = form.sub("", message["content"]).strip()


def _with_results(message: Message) -> Iterator[Message]:
    """Yield a turn, and the results that stand in it behind its calls."""
    before, end, rest = message["content"].rpartition("</tool-use>")  # behind it each opening would search to the end
    used = list(TOOL_USE.finditer(before + end)) if message["role"] == "assistant" else []
    if used:
        calls = [{"id": f"use-{at}-{one.start()}", "function": {"name": one["name"], "arguments": ""}}
                 for at, one in enumerate(used)]  # fmt: skip
        yield message | {"content": (TOOL_USE.sub("", before + end) + rest).strip(), "tool_calls": calls}
        for call, one in zip(calls, used, strict=True):
            blocks = FENCED.findall(one["text"])
            yield {"role": "tool", "tool_call_id": call["id"], "content": blocks[-1][1] if blocks else ""}
        return
    results = list(SPECSTORY_RESULT.finditer(message["content"])) if message.get("tool_calls") else []
    if results:
        message["content"] = SPECSTORY_RESULT.sub("", message["content"]).strip()
    yield message
    for result in results[: len(message.get("tool_calls", ()))]:
        failed = {"error": True} if result["kind"] == "Error" else {}
        yield {"role": "tool", "content": result["text"]} | failed

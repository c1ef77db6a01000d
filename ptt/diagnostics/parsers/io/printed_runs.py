"""Take apart what programs print of an agent's run: aider's history, AgentLite's steps, text games, logs in words.

Each has a form of its own for a whole text, without speakers that introduce its parts.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, Final

Message = dict[str, Any]

AIDER: Final = "# aider chat started at"
TOKENS: Final = re.compile(r"> (?:Tokens:|[\d.,k]{1,12} prompt tokens\b)")
"""What aider prints behind each answer."""
END: Final = "#### "
THINKS: Final = "> think:"
PLAYED: Final = re.compile(r"> ?(?:(?P<label>[A-Za-z]{2,20}): ?)?(?P<said>.{1,4000})")
LOG_CALL: Final = re.compile(
    r"\b(?:(?:calling|invoking|executing|running|called)(?: the)? (?:tool|function|skill)|using(?: the)? tool)"
    r"(?: call)?[ :]+['\"`]?"
    r"(?P<name>[A-Za-z_][\w.-]{0,80})['\"`]?(?:\(\))?(?P<args>[^\n]*)",
    re.IGNORECASE,
)
LOG_RESULT: Final = re.compile(
    r"\b(?:tool|function|skill)[ :]+['\"`]?(?P<name>(?!call|result|output|response)[A-Za-z_][\w.-]{0,80})['\"`]?"
    r"(?: call)?[ ]"
    r"(?P<how>returned|responded|results?|outputs?|succeeded|completed|finished|failed|error(?:ed)?|raised|timed out)\b"
    r"[^:=\n]{0,40}[:=]?(?P<text>[^\n]*)"
    r"|\b(?:tool|function|execution)(?: call)? (?:result|output|response)\b[^:=\n]{0,40}[:=](?P<came>[^\n]*)",
    re.IGNORECASE,
)
LOG_SAID: Final = re.compile(
    r"(?:^|[\]:|-] ?|\s)(?:(?P<user>user(?: (?:query|input|message|request|question|asked|says))?|question|query|task)"
    r"|(?P<agent>final (?:answer|response)|(?:agent|assistant|llm|model)(?: (?:response|answer|output|reply|says))))"
    r"[ ]?[:=][ ]?(?P<text>[^\n]+)",
    re.IGNORECASE,
)
"""How programs log in words what an agent is asked, calls, gets back and answers."""
LOG_LINE: Final = re.compile(
    r"\W{0,4}(?:\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d|(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b)"
)
"""The time or the level that a logger writes first: prose on tools has none."""
LOG_WITH: Final = re.compile(r"^\W{0,3}(?:with )?(?:args|arguments|input|params|parameters)?[ :=]*", re.IGNORECASE)
LOG_FAILED: Final = ("failed", "error", "errored", "raised", "timed out")
MIN_PLAYED: Final = 2  # actions that are answered
ACTION_CHARS: Final = 120
STEPPED: Final = re.compile(
    r"^Agent [^\n]{1,80} takes -?\d{1,4}-step Action:\n\{\n[ \t]*name: (?P<name>[\w.-]{1,120})\n"
    r"[ \t]*params: (?P<args>[^\n]*)\n\}\n"
    r"(?:Observation: (?P<result>.*?)(?=^Agent [^\n]{1,80} (?:takes|receives) |^=+[^\n=]{1,80}execution|\Z))?",
    re.MULTILINE | re.DOTALL,
)
"""A step as AgentLite logs it; agents made with it keep the form."""
STARTED: Final = re.compile(r"^=+[^\n=]{1,80} starts execution\b", re.MULTILINE)


@dataclass
class Transcript:
    """One episode of a text."""

    messages: list[Message] = field(default_factory=list)
    labels: dict[str, Any] = field(default_factory=dict)


def aider(text: str) -> Transcript:
    """Read aider's history: what the user asked after `####`, what the program says after `>`, answers between."""
    found = Transcript()
    said: list[str] = []
    broken = re.search(r"^#### .*  $", text, re.MULTILINE) is not None  # what was typed has breaks, headings have none
    before = "\n> Tokens:" not in text  # early versions tell the tokens before the answer
    for line in [*text.splitlines(), END]:
        asks = line is END or (line.startswith("#### ") and (line.endswith("  ") or not broken))
        if asks or TOKENS.match(line):
            answer = "\n".join(said).strip()
            last = found.messages[-1] if found.messages else {}
            # behind the notice of an answer stands only what the program objects to it
            if answer and (before or not asks or last.get("role") == "user"):
                last = {"role": "assistant", "content": answer}
                found.messages.append(last)
            said = []
            if asks and line is not END and last.get("role") == "user":
                last["content"] += "\n" + line[5:].strip()
            elif asks and line is not END:
                found.messages.append({"role": "user", "content": line[5:].strip()})
        elif not line.startswith((">", "# aider chat")):
            said.append(line)
    return found


def stepped(text: str) -> list[Transcript]:
    """Read AgentLite's log: a task, steps of one call each, and what each observed; an episode an execution."""
    steps = list(STEPPED.finditer(text)) if "-step Action:" in text else []
    if len(steps) < MIN_PLAYED:
        return []
    starts = [0, *(match.start() for match in STARTED.finditer(text))]
    episodes = [Transcript() for _ in starts]
    at = 0
    for step in steps:
        messages = episodes[bisect_right(starts, step.start()) - 1].messages
        if not messages and (task := text[at : step.start()].strip()):
            messages.append({"role": "user", "content": task})
        call = {"function": {"name": step["name"], "arguments": step["args"]}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        if step["result"] is not None:
            messages.append({"role": "tool", "content": step["result"].strip()})
        at = step.end()
    return [episode for episode in episodes if episode.messages]


def logged(text: str) -> Transcript | None:
    """Read a program's log that tells in words of calls and of what they returned, each on its line."""
    if not re.search(r"tool|function|skill", text, re.IGNORECASE):
        return None
    found = Transcript()
    asked = answered = 0
    names: set[str | None] = {None}
    for line in text.splitlines():
        logs = LOG_LINE.match(line) is not None
        if logs and (call := LOG_CALL.search(line)) is not None:
            arguments = LOG_WITH.sub("", call["args"]).strip(" ()")
            function = {"function": {"name": call["name"], "arguments": arguments}}
            found.messages.append({"role": "assistant", "content": "", "tool_calls": [function]})
            asked += 1
            names.add(call["name"])
        elif logs and asked and (came := LOG_RESULT.search(line)) is not None and came["name"] in names:
            failed = {"error": True} if (came["how"] or "").lower() in LOG_FAILED else {}
            named = {"name": came["name"]} if came["name"] else {}
            told = came["text"] if came["text"] is not None else came["came"]
            found.messages.append({"role": "tool", "content": told.strip()} | named | failed)
            answered += 1
        elif (said := LOG_SAID.search(line)) is not None:
            found.messages.append({"role": "user" if said["user"] else "assistant", "content": said["text"]})
    return found if min(asked, answered) >= MIN_PLAYED else None


def played(text: str) -> Transcript | None:
    """Read a text game: actions after `>`, thoughts after `> think:`, what the game answers on the lines between."""
    if THINKS not in text.lower():
        return None
    found = Transcript()
    thought = ""
    for line in text.splitlines():
        said = PLAYED.fullmatch(line)
        last = found.messages[-1] if found.messages else {}
        if said is None:
            if line.strip() and last.get("role") in ("user", "tool"):
                last["content"] += f"\n{line}"
            elif line.strip() and not thought:
                found.messages.append({"role": "tool" if last else "user", "content": line})
        elif said["label"]:
            thought = f"{thought}\n{said[0]}" if thought else said[0]
        elif len(said["said"]) <= ACTION_CHARS:
            verb, _, rest = said["said"].strip().partition(" ")
            call = {"function": {"name": verb, "arguments": rest}}
            found.messages.append({"role": "assistant", "content": thought, "tool_calls": [call]})
            thought = ""
    answered = sum(message["role"] == "tool" for message in found.messages)
    return found if answered >= MIN_PLAYED and found.messages[0]["role"] == "user" else None

"""Sessions of Claude Code: its transcripts (`~/.claude/projects/*/*.jsonl`) and its streamed output.

Source: real transcripts of versions 1 and 2 (codesque16/tau2-mermaid at 6c0f8a540ce9c40173c376cf7c614b3e444af905,
results/haiku_base_solo_complete_dataset/) and Anthropic's reference of the SDK's messages (`system` with `init`,
`assistant`, `user`, `result` with `total_cost_usd`; lines, or one list). A response comes on several lines, one a
block, which share `message.id`: they are one turn, and the last `usage` of them counts. Lines of a sub-agent
(`isSidechain`) in a session are a trajectory of their own. A result is an error where it says `is_error`, and none
where it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ptt.diagnostics.parsers.io.conversations import opening, request, result, said
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile, count_notes
from ptt.diagnostics.parsers.io.json_documents import document_head, members
from ptt.diagnostics.parsers.io.lines import SUFFIXES, first_objects
from ptt.diagnostics.parsers.io.tool_calls import calls_of, failed
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, attempt, objects
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_flag,
    as_label,
    as_name,
    as_plain_number,
    as_seconds,
    dict_of,
    dicts_in,
    first_name,
    nested,
    plain_text,
    total,
    total_cost,
)

TURNS: Final = frozenset({"user", "assistant"})
BOOKKEEPING: Final = frozenset({"file-history-snapshot", "queue-operation", "agent-setting", "summary", "system"})
LOOKED_AT: Final = 20  # lines: a session may begin with its bookkeeping
MAX_SESSIONS: Final = 10_000  # sub-agents of a file that are held apart
INPUTS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
SYNTHETIC: Final = "<synthetic>"  # a message that the tool itself put there
CUT_SHORT: Final = frozenset({"max_tokens", "error_max_turns", "error_max_budget_usd"})
NO_TURNS: Final = "contains no message of a user or an agent."


def recognises(file: RunFile) -> bool:
    """Recognise a turn with the ids of its session among the first lines, and no line of another kind."""
    name = file.name.lower()
    if name.endswith(SUFFIXES):
        first = first_objects(file, LOOKED_AT)
    else:
        head = file.readable_head if name.endswith(".json") else b""
        if head.lstrip()[:1] != b"[" or b'"session_id"' not in head:
            return False
        found = document_head(head.decode("utf-8", "replace"), whole=file.size <= len(head))
        first = dicts_in(found)[:LOOKED_AT]
    typed = [line for line in first if isinstance(line.get("type"), str)]  # a wrapper may add lines of its own
    return len(typed) * 2 > len(first) and any(map(_is_of_session, typed))


def _is_of_session(line: dict[str, Any]) -> bool:
    if line["type"] in TURNS:
        spoken = isinstance(nested(line, "message", "role"), str)
        return spoken and (("parentUuid" in line and "sessionId" in line) or "session_id" in line)
    if line["type"] == "system":
        return line.get("subtype") == "init" and "session_id" in line and "tools" in line
    named = "sessionId" in line or "leafUuid" in line or "messageId" in line
    return line["type"] in BOOKKEEPING and named


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the session's trajectory, and one for each of its sub-agents."""
    samples, session = Samples(file, PARSER.name), _Session()
    bad = 0
    for line in objects(file) if file.name.lower().endswith(SUFFIXES) else members(file, frozenset()):
        if isinstance(line, Lost):
            yield line
        else:
            bad += not attempt(session.add, line[1] if isinstance(line, tuple) else line, samples)
    for name, chat in session.chats.items():
        bad += not attempt(partial(_put, chat, session, name), {}, samples)
    yield from samples.close()
    if not session.chats:
        yield Lost(note=f"{file.rel} {NO_TURNS}")
    yield from count_notes(file, {"message(s) skipped: nested too deeply.": bad})


@dataclass
class _Chat:
    """One conversation."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    timing: list[dict[str, Any]] = field(default_factory=list)
    usages: dict[str, dict[str, Any]] = field(default_factory=dict)  # by response id; the last of its lines counts
    latencies: dict[str, float] = field(default_factory=dict)  # of calls, by id
    costs: list[Any] = field(default_factory=list)
    session: str | None = None
    model: str | None = None
    stop: str | None = None
    failed: bool = False  # the last response is an error of the interface
    turns: dict[str, int] = field(default_factory=dict)  # place of a response's message

    def respond(self, line: dict[str, Any]) -> None:
        """Add a line of a response to the message that it belongs to."""
        message = dict_of(line.get("message"))
        name = as_name(message.get("id")) or as_name(line.get("uuid")) or f"line-{len(self.messages)}"
        blocks = dicts_in(message.get("content"))
        texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
        if isinstance(message.get("content"), str):
            texts = [message["content"]]
        thoughts = [block["thinking"] for block in blocks if isinstance(block.get("thinking"), str)]
        calls = [
            request(block.get("id"), block.get("name"), block.get("input"))
            for block in blocks
            if block.get("type") == "tool_use"
        ]
        if name not in self.turns:
            self.turns[name] = len(self.messages)
            self._put(line, said(""))
        at = self.turns[name]
        before = self.messages[at]
        parts = [part for part in (before["content"], *texts) if part]
        reasoning = "\n".join(part for part in (before.get("reasoning_content"), *thoughts) if part)
        self.messages[at] = said("\n".join(parts), [*before.get("tool_calls", []), *calls], reasoning)
        usage = dict_of(message.get("usage"))
        if usage:
            self.usages[name] = usage
        self.timing[at] = {"n_tokens": as_count(usage.get("output_tokens")), "t_end": as_seconds(line.get("timestamp"))}
        model = as_name(message.get("model"))
        self.model = self.model or (None if model == SYNTHETIC else model)
        self.stop = as_name(message.get("stop_reason")) or self.stop
        self.failed = line.get("isApiErrorMessage") is True
        self.costs.append(line.get("costUSD"))

    def ask(self, line: dict[str, Any]) -> None:
        """Add what the user or tools said."""
        content = nested(line, "message", "content")
        blocks = dicts_in(content)
        told = [block for block in blocks if block.get("type") == "tool_result"]
        for block in told:
            identity, flag = as_name(block.get("tool_use_id")), block.get("is_error") is True
            self._put(line, result(identity, block.get("content"), **failed(block.get("content"), failed=flag)))
            took = as_plain_number(nested(line, "toolUseResult", "durationMs"))
            if identity is not None and took is not None and len(told) == 1:
                self.latencies[identity] = took / 1000
        rest = [block for block in blocks if block.get("type") != "tool_result"]
        if rest or isinstance(content, str):
            self._put(line, {"role": "user", "content": content if isinstance(content, str) else plain_text(rest)})

    def _put(self, line: dict[str, Any], message: dict[str, Any]) -> None:
        self.messages.append(message)
        self.timing.append({"t_end": as_seconds(line.get("timestamp"))})


@dataclass
class _Session:
    """The conversations of a file, by the sub-agent that leads them; the main one has no name."""

    chats: dict[str, _Chat] = field(default_factory=dict)
    tools: list[dict[str, Any]] = field(default_factory=list)
    ended: dict[str, Any] = field(default_factory=dict)  # the last line of streamed output
    _roots: dict[str, str] = field(default_factory=dict)  # by line: the first line of its sub-agent
    _seen: set[str] = field(default_factory=set)

    def add(self, line: dict[str, Any], _: Samples) -> bool:
        """Add one line; one that a resumed session repeats counts once."""
        kind, name = as_name(line.get("type")), as_name(line.get("uuid"))
        if kind == "result" and "session_id" in line:
            self.ended = line
        elif kind == "system" and line.get("subtype") == "init":
            names = line.get("tools")
            self.tools = [{"name": tool} for tool in names if isinstance(tool, str)] if isinstance(names, list) else []
        if kind not in TURNS or not isinstance(line.get("message"), dict) or (name is not None and name in self._seen):
            return True
        if name is not None:
            self._seen.add(name)
        chat = self._chat(line, name)
        chat.session = chat.session or as_name(line.get("sessionId")) or as_name(line.get("session_id"))
        (chat.respond if kind == "assistant" else chat.ask)(line)
        return True

    def _chat(self, line: dict[str, Any], name: str | None) -> _Chat:
        lead = as_name(line.get("parent_tool_use_id")) or ""
        if line.get("isSidechain") is True:
            root = self._roots.get(as_name(line.get("parentUuid")) or "", name or "sidechain")
            lead = as_name(line.get("agentId")) or root
            if name is not None:
                self._roots[name] = root
        if lead not in self.chats and len(self.chats) >= MAX_SESSIONS:
            lead = next(iter(self.chats))
        return self.chats.setdefault(lead, _Chat())


def _put(chat: _Chat, session: _Session, name: str, _: dict[str, Any], samples: Samples) -> bool:
    ended = session.ended if not name else {}
    usages = list(chat.usages.values())
    cost = as_plain_number(ended.get("total_cost_usd"))
    stop = as_name(ended.get("subtype")) or chat.stop
    calls = [call | {"latency_s": chat.latencies.get(call["call_id"] or "")} for call in calls_of(chat.messages)]
    samples.add(
        Sample(
            step=None,
            split="unknown",
            completion=chat.messages,
            identity=[chat.session, name, chat.messages],
            prompt=opening(chat.messages),
            calls=calls,
            timing=chat.timing,
            tools=session.tools,
            columns={
                "sample_id": as_label(chat.session if not name else f"{chat.session}/{name}"),
                "model": first_name([chat.model]),
                "tokens_in": total(usage.get(key) for usage in usages for key in INPUTS),
                "tokens_out": total(usage.get("output_tokens") for usage in usages),
                "cost_usd": total_cost(chat.costs) if cost is None else cost,
                "stop_reason": stop,
                "truncated": None if stop is None else stop in CUT_SHORT,
                "error_type": _error(chat, ended),
            },
        )
    )
    return True


def _error(chat: _Chat, ended: dict[str, Any]) -> str | None:
    if as_flag(ended.get("is_error")) and as_name(ended.get("subtype")) not in CUT_SHORT:
        return as_name(ended.get("subtype")) if ended.get("subtype") != "success" else "api_error"
    return "api_error" if chat.failed else None


PARSER = Parser(
    name="claude_code",
    describes="Claude Code's sessions and streamed output (JSON lines): trajectories, turns, tool calls, tokens, cost.",
    held_against="real: Claude Code 2.1.80",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)

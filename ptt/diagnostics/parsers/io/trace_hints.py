"""Say of an unread file that resembles an agent trace what form is nearest, and which part is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.lines import text_head
from ptt.diagnostics.parsers.io.message_shapes import decoded
from ptt.diagnostics.parsers.io.named_parts import ARGUMENTS, PLAIN, RESULT, Parts, parts_of
from ptt.diagnostics.parsers.io.record_values import first_values
from ptt.diagnostics.parsers.io.trace_names import ROLE, TEXT, role_of
from ptt.diagnostics.parsers.io.transcript_texts import AGENT, TEXTS, marks_of, plain
from ptt.diagnostics.parsers.io.values import dicts_in

TRACE: Final = re.compile(r"trace|traj|agent|convers|chat|messages|turns|session|dialog|transcript", re.I)
"""Words by which a file or a list may be meant for a trace."""
LOOKED: Final = 20
ENOUGH: Final = 0.5  # share of the entries that must have a part
MIN_ENTRIES: Final = 2  # one may be anything
MAX_DEPTH: Final = 3
MAX_SPEAKER: Final = 30  # characters of a speaker's name
NEAREST: Final = "Nearest is an agent"  # how a hint begins
GUIDE: Final = "docs/traces.md lists the names of all parts"
SPEAKERS: Final = "user, assistant, tool or system"


def nearest_trace(file: RunFile) -> str:
    """Return what a file lacks to be a trace; empty where it does not resemble one."""
    rows = [row for row in first_values(file) if isinstance(row, dict | list)][:LOOKED]
    for place, entries in _lists(rows, ""):
        meant = bool(TRACE.search(place or file.name))
        if (lack := _lack([parts_of(entry) for entry in entries[:LOOKED]], meant=meant)) != "":
            where = f"the list `{place}`" if place else "each record"
            return f"Nearest is an agent trace: {where} {lack}; {GUIDE}."
    return "" if rows else _nearest_transcript(file)


def _nearest_transcript(file: RunFile) -> str:
    """Return what a text lacks to be the transcript of an agent."""
    if not file.name.lower().endswith(TEXTS) or not TRACE.search(file.name):
        return ""
    parts = {mark.part for mark in marks_of(plain(text_head(file).decode("utf-8", "replace")))}
    lack = "no heading or beginning of a line names who speaks (User:, Assistant:, Tool:)"
    if parts & AGENT:
        lack = "the agent speaks once, or nobody answers it (User:, Tool:, Observation:)"
    return f"Nearest is an agent's transcript: {lack}; {GUIDE}."


def _lists(rows: list[Any], place: str, depth: int = 0) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the lists of objects in some rows, and the rows themselves, the outermost last."""
    if depth < MAX_DEPTH:
        for row in rows[:1]:
            members = row.items() if isinstance(row, dict) else [("", row)]
            for key, value in members:
                inner = decoded(value) if isinstance(value, str) and value[:1] == "[" else value
                name = re.sub(r"[^\w.-]", "?", str(key)[:40])
                if isinstance(inner, dict):
                    yield from _lists([inner], name, depth + 1)
                elif isinstance(inner, list) and (entries := dicts_in(inner)):
                    yield from _lists(list(entries), name, depth + 1)
    if entries := dicts_in(rows):
        yield place, entries


def _lack(entries: list[Parts], *, meant: bool) -> str:
    """Return what entries lack to be the parts of a trace; empty where nothing shows that they are meant for one."""

    def named(names: tuple[str, ...] | frozenset[str]) -> str:
        """Return the name of a part that enough of the entries have."""
        found = [next((entry[name][0] for name in names if name in entry), "") for entry in entries]
        return next(filter(None, found)) if len(list(filter(None, found))) >= ENOUGH * len(entries) else ""

    if len(entries) < MIN_ENTRIES:
        return ""
    text, tool = named(TEXT), named(PLAIN)
    speaker = named(tuple(name for name in ROLE if name != "type"))
    known = [role for entry in entries if (role := role_of(entry)) is not None]
    if tool and not named(ARGUMENTS) and not named(RESULT):
        return f"names tools in `{tool}`, but neither arguments nor results"
    if known and text and not any(role == "assistant" for _, role in known):
        return (
            f"has speakers in `{known[0][0]}`, but none of the first {len(entries)} entries is the agent's (assistant)"
        )
    if known and not text and not tool:
        return f"has speakers in `{known[0][0]}`, but no text under content, text, message or value"
    if text and speaker and not known and meant:
        said = {
            str(entry[name][1]) for name in ROLE for entry in entries if name in entry and entry[name][0] == speaker
        }
        if all(len(name) <= MAX_SPEAKER for name in said):
            return f"has texts in `{text}`, but `{speaker}` names no speaker that ptt knows: {SPEAKERS}"
    if speaker and meant and not text and not tool:
        return f"has `{speaker}`, but no text under content, text, message or value, and no tool with its arguments"
    if text and not speaker and meant:
        return f"has texts in `{text}`, but nothing that says who speaks (role, from, speaker)"
    return ""

"""The values of a file whatever holds them: JSON on lines among other lines, documents, tables of text, Parquet."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import HEAD_BYTES, Lost, RunFile
from ptt.diagnostics.parsers.io.json_documents import document_head, members
from ptt.diagnostics.parsers.io.lines import BOM, DECODER, SUFFIXES, blocks, first_objects, parse_json, text_head
from ptt.diagnostics.parsers.io.named_parts import NAME, plain_key
from ptt.diagnostics.parsers.io.parquet_files import cut_note, is_cut, schema_of
from ptt.diagnostics.parsers.io.record_files import BATCH_ROWS, LONG_HEAD_BYTES, _long_head, _rows, _table_rows, layout
from ptt.diagnostics.parsers.io.trace_names import TEXT, words_of
from ptt.diagnostics.parsers.io.values import as_error
from ptt.diagnostics.wording import counted

LOOKED: Final = 200  # values looked at to recognise a file
LINES: Final = (*SUFFIXES, ".jsonlines", ".jl", ".log", ".txt", ".out", ".trace", ".transcript", ".history")
DOCUMENTS: Final = (".json", ".traj", ".json.gz", ".json.zst")
OPENS: Final = (b"{", b"[")
MAX_OBJECT: Final = 16 << 20  # bytes of one object over several lines
SPELT: Final = b'"[{"'  # how a cell begins that holds a list of objects
INSIDE: Final = b'{"'  # how an object begins behind the time and level of a log line
TORN: Final = ('{"', '[{"')  # how a line begins that is JSON, and not the level of a log line
STEP: Final = b"[STEP] step="
TAGGED: Final = re.compile(r"\[(?P<tag>START|STEP|END)\][ \t]+(?P<rest>.{1,100000})")
ACTED: Final = re.compile(r"(?:step=\S*[ \t]+)?action=")
RATED: Final = re.compile(
    r"[ \t]reward=(?P<reward>\S+)(?=(?P<done>[ \t]+done=(?:true|false)\b)|[ \t]+error=|$)", re.IGNORECASE
)
PAIR: Final = re.compile(r"(?<!\w)(\w{1,40})=(\S*)")
WORDS: Final = ("true", "false", "null")
QUOTED: Final = re.compile(r"(?<![\w.])([A-Za-z_][\w.]{0,40})=\"((?:[^\"\\]|\\.)*)\"")
MIN_QUOTED: Final = 3  # pairs of a name and a text that make a log line a record
STREAM_IDS: Final = ("toolCallId", "tool_call_id", "messageId", "message_id", "id")
DELTAS: Final = ("delta", "inputTextDelta", "textDelta")
"""Parts of a streamed event: what it belongs to, and the next piece of its text."""
BOUND: Final = re.compile(r"(?:^|[-_. ]|(?<=[a-z])(?=[A-Z]))(?i:(?P<starts>start)|end)$")
OF_MESSAGES: Final = frozenset({"text", "message"})
OF_OTHERS: Final = frozenset({"tool", "user", "human", "system", "reasoning", "thinking"})
"""Words of an event's kind: of the agent's own words, and of what is none."""
MAX_STREAMS: Final = 1000  # open at a time: more never end
MAX_HELD: Final = 100  # rows behind a start in which its first piece comes
MAX_PREFIX: Final = 200
MAX_ROW: Final = 20  # of a Parquet file, looked at


def first_values(file: RunFile) -> list[Any]:
    """Return the first values of a file; those that are cut are left out, or lack their end."""
    name = file.name.lower()
    if name.endswith(".parquet"):
        return list(itertools.islice((row for row in _parquet(file, MAX_ROW) if isinstance(row, dict)), MAX_ROW))
    if name.endswith((".csv", ".tsv")):
        return _first_cells(file)
    if _is_document(file):
        return _first_of_document(file)
    if not name.endswith(LINES) and not name.endswith(DOCUMENTS):
        return []
    head = text_head(file).removeprefix(BOM)
    if STEP in head and head.count(STEP) > 1:
        return list(_tagged_episodes(_long_head(file).split(b"\n")))
    first_lines = head.split(b"\n")[:LOOKED]
    if INSIDE not in head and not any(line.startswith(OPENS) or _pairs(line) for line in first_lines):
        return []
    rows: list[Any] = list(whole_events(first_objects(file))) if name.endswith(SUFFIXES) else []
    lines = _values_of_lines(_long_head(file).split(b"\n"))
    told = (value for value in whole_events(lines) if not isinstance(value, Lost))
    found = list(itertools.islice(told, LOOKED))
    return found if len(found) > len(rows) else rows


def whole_events(rows: Iterable[Any]) -> Iterator[Any]:
    """Yield rows, those that stream a message or a call piece by piece put together: its start, pieces and end.

    Events that no piece stands between are no stream: they stay as they are, where they are.
    """
    opened: dict[str, _Stream] = {}
    held: deque[Any] = deque()  # rows from the first start on that no piece has followed yet
    for row in rows:
        kind = row.get("type") if isinstance(row, dict) else None
        identity = next((row[key] for key in STREAM_IDS if isinstance(row.get(key), str)), "") if kind else ""
        bound = BOUND.search(kind) if identity and isinstance(kind, str) else None
        stream = opened.get(identity)
        piece = next((row[key] for key in DELTAS if isinstance(row.get(key), str)), None) if stream else None
        if bound and bound["starts"]:
            held += [stream.whole()] if stream and stream.pieces else []
            opened[identity] = _Stream(row)
            held.append(opened[identity])
        elif stream and piece is not None:
            stream.pieces.append(piece)
        elif stream and bound:
            del opened[identity]
            held.append(stream.whole(row) if stream.pieces else row)
        else:
            held.append(row)
        if len(opened) > MAX_STREAMS:
            oldest = opened.pop(next(iter(opened)))
            held += [oldest.whole()] if oldest.pieces else []
        yield from _settled(held, opened)
    yield from _settled(held, {})
    yield from (stream.whole() for stream in opened.values() if stream.pieces)


class _Stream:
    """What an event that starts a message or a call is followed by."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.start, self.pieces = start, list[str]()

    def whole(self, end: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """Return the message or the call, with what its last event adds."""
        words = words_of(self.start["type"])
        tool, says = "tool" in words, words & OF_MESSAGES and not words & OF_OTHERS
        told = {"role": "assistant"} if says else {}
        return told | {**end} | self.start | {"arguments" if tool else "content": "".join(self.pieces)}


def _settled(held: deque[Any], opened: dict[str, _Stream]) -> Iterator[Any]:
    """Yield the rows at the head of the queue that no later piece of a stream can complete, and remove them."""
    waiting = {id(stream): name for name, stream in opened.items() if not stream.pieces} if held else {}
    while held and (id(held[0]) not in waiting or len(held) > MAX_HELD):
        row = held.popleft()
        if not isinstance(row, _Stream):
            yield row
        elif not row.pieces:
            opened.pop(waiting.get(id(row), ""), None)
            yield row.start


def _pairs(line: bytes) -> dict[str, str]:
    """Read a log line of `name="text"` pairs, as CrewAI writes it, as a record; empty for XML and Prometheus lines."""
    if line.count(b'="') < MIN_QUOTED or line.startswith(b"<") or b'{name="' in line:
        return {}
    text = line.decode("utf-8", "replace")
    found = QUOTED.findall(text)
    covered = len(text) - len(QUOTED.sub("", text))
    return dict(found) if len(found) >= MIN_QUOTED and 2 * covered > len(text) else {}


def values(file: RunFile) -> Iterator[Any]:
    """Yield the values of a file, and what is lost of it; streamed events are put together."""
    yield from whole_events(_values(file))


def _values(file: RunFile) -> Iterator[Any]:
    name = file.name.lower()
    if name.endswith(".parquet"):
        yield from _parquet(file, BATCH_ROWS) if schema_of(file) else (cut_note(file),)
    elif name.endswith((".csv", ".tsv")):
        yield from (row for row in _table_rows(file) if row is not None)
    elif _is_document(file):
        whole: dict[str, Any] = {}
        for member in members(file, frozenset()):
            if isinstance(member, Lost):
                yield member
            elif layout(file) == "list":
                yield member[1]
            else:
                whole[member[0]] = member[1]
        if whole:
            yield whole
    else:
        yield from _lines(file)


def _first_of_document(file: RunFile) -> list[Any]:
    """Return the first elements of a list, or the object that a document is, as far as its beginning tells."""
    head = _long_head(file).removeprefix(BOM).decode("utf-8", "replace")
    found = document_head(head, whole=len(head) < LONG_HEAD_BYTES)
    if isinstance(found, list):
        return list(whole_events(found[:LOOKED]))
    return [found] if isinstance(found, dict) else []


def _is_document(file: RunFile) -> bool:
    """Return whether a file is one JSON document, not several one after another."""
    kind = layout(file) if file.name.lower().endswith(DOCUMENTS[:1]) else ""
    if kind not in ("list", "object"):
        return False
    return kind == "list" or b"\n}\n{" not in text_head(file).replace(b"\r", b"")


def _lines(file: RunFile) -> Iterator[Any]:
    lost: list[Lost] = []
    if text_head(file).count(STEP) > 1:
        yield from _tagged_episodes(_split_lines(file, lost))
        yield from lost
        return
    rows = nbytes = 0
    for value in _values_of_lines(_split_lines(file, lost)):
        file.budget.tick()
        if isinstance(value, Lost):
            rows, nbytes = rows + value.rows, nbytes + value.bytes
        else:
            yield value
        yield from lost
        lost.clear()
    yield from lost
    if rows:
        yield Lost(rows=rows, bytes=nbytes, note=f"{file.rel}: {counted(rows, 'record(s)')} skipped: torn or damaged.")


def _tagged_episodes(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the episodes that `[START]`, `[STEP]` and `[END]` lines tell, as OpenEnv's environments print them."""
    episode: dict[str, Any] = {}
    for line in lines:
        found = TAGGED.match(line.decode("utf-8", "replace").strip())
        if found is None:
            continue
        told = {name: parse_json(value) if value in WORDS else value for name, value in PAIR.findall(found["rest"])}
        if found["tag"] == "STEP":
            episode.setdefault("steps", []).append(_tagged_step(found["rest"]) or told)
            continue
        if found["tag"] == "START" and episode:
            yield episode
        episode = (
            told if found["tag"] == "START" else {name: episode.get(name, told.get(name)) for name in episode | told}
        )
        if found["tag"] == "END":
            yield episode
            episode = {}
    if episode:
        yield episode


def _tagged_step(text: str) -> dict[str, Any]:
    """Return the action of a step, up to the last reward beside `done`, for an action may hold words like these."""
    acted = ACTED.match(text)
    rated = max(RATED.finditer(text), key=lambda one: (one["done"] is not None, one.start()), default=None)
    if acted is None or rated is None:
        return {}
    try:
        reward = float(rated["reward"])
    except ValueError:
        reward = None
    error = as_error(text[rated.end() :].partition(" error=")[2])
    return {"action": text[acted.end() : rated.start()].strip(), "reward": reward, "error": error}


def _split_lines(file: RunFile, lost: list[Lost]) -> Iterator[bytes]:
    for block in blocks(file):
        if isinstance(block, Lost):
            lost.append(block)
        else:
            yield from block.split(b"\n")


def _values_of_lines(lines: Iterable[bytes]) -> Iterator[Any]:
    """Yield the JSON values among lines: on one each, or from a line that opens one to a line that ends it.

    A `Lost` for each that is torn.
    """
    held: list[bytes] = []
    size = 0
    for line in lines:
        if held:
            held.append(line)
            size += len(line)
            if line[:1] in (b"}", b"]") or size > MAX_OBJECT:
                value = parse_json(b"\n".join(held))
                yield Lost(rows=1, bytes=size) if value is None else value
                held, size = [], 0
            continue
        bare = line.strip()
        if not bare.startswith(OPENS):
            begins = bare.find(INSIDE, 0, MAX_PREFIX)
            if begins < 0 or not bare.endswith(b"}"):
                if pairs := _pairs(bare):
                    yield pairs
                continue
            bare = bare[begins:]
        value = parse_json(bare)
        if value is not None:
            yield value
        elif bare in OPENS or (line[:1] in OPENS and bare.endswith((b",", b"{", b"["))):
            held, size = [line], len(line)
        else:
            yield from _several(bare.decode("utf-8", "replace"))
    if held:
        yield Lost(rows=1, bytes=size)


def _several(text: str) -> Iterator[Any]:
    """Yield the objects that stand one after another on a line."""
    at = 0
    while at < len(text) and text[at] in "{[":
        try:
            value, at = DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            if text.startswith(TORN, at):
                yield Lost(rows=1, bytes=len(text) - at)
            return
        yield value
        while at < len(text) and text[at] in " \t,":
            at += 1


def _first_cells(file: RunFile) -> list[Any]:
    head = file.readable_head.decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        names = next(csv.reader(io.StringIO(head.partition("\n")[0], newline="")), [])
        told = {plain_key(name) for name in names} & {*TEXT, *NAME}
        if not told and SPELT not in file.readable_head:
            return []
        rows = list(itertools.islice(csv.DictReader(io.StringIO(head, newline="")), LOOKED))
    except csv.Error:
        return []
    rows = rows[:-1] if len(file.readable_head) >= HEAD_BYTES else rows
    return [{key: value for key, value in row.items() if isinstance(key, str) and value} for row in rows]


def _parquet(file: RunFile, batch_rows: int) -> Iterator[Any]:
    footer = schema_of(file) if is_cut(file) else None
    names = {plain_key(name) for name in footer[0].names} if footer else set()
    if not names & {*TEXT, "messages", "conversation", "conversations", "trajectory", "steps", "turns", "history"}:
        return
    yield from _rows(file, batch_rows)

"""Metric logs as JSON lines: one object a log call, flat or nested, from any logger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.metrics.aliases import framework_of
from ptt.diagnostics.parsers.io.counters import KINDS, Counter
from ptt.diagnostics.parsers.io.interface import HEAD_BYTES, Context, Lost, Parser, Piece, RunFile, lost_notes
from ptt.diagnostics.parsers.io.json_blocks import fast_block
from ptt.diagnostics.parsers.io.lines import (
    BOM,
    FIRST_LINES,
    SUFFIXES,
    blocks,
    first_objects,
    is_too_deep,
    is_torn,
    json_object,
    parse_json,
    text_head,
    torn_line,
)
from ptt.diagnostics.parsers.io.metric_blocks import known_names
from ptt.diagnostics.parsers.io.metric_logs import WRAPPERS, CallLog, counter_of
from ptt.diagnostics.parsers.io.metric_rows import STEP_KEYS, TIME_KEYS, MetricColumns, flatten, framework_facts
from ptt.diagnostics.parsers.io.setup_files import kept
from ptt.diagnostics.parsers.io.telemetry import safe_settings

MIN_LINES: Final = 2  # one line is a document
MAX_OTHER: Final = 3  # other lines at the beginning before the file counts as a document
MICROSOFT: Final = frozenset({"step", "timestamp", "metrics"})  # rows of a format of its own
SAMPLES, STEPS = "global_step", "training_step"  # where both are logged, the former may count samples
MIN_UPDATES: Final = 3  # rows whose two counters keep one factor
TRAINER_STEPS: Final = Counter(keys=STEP_KEYS, unit="step")
NO_JSON: Final = "line(s) skipped: not a JSON object."
NO_STEP: Final = "row(s) skipped: no training step."
DONE: Final = re.compile(
    r"(?:train(?:ing)?|run)?[ _-]?(?:done|finish(?:ed)?|completed?|ended|end)|succe(?:ss|eded)", re.IGNORECASE
)


def is_closing(found: dict[str, Any]) -> bool:
    """Return whether this is the summary that ms-swift puts behind its last row, with the whole history once more."""
    return "log_history" in found and "step" not in found


def recognises(file: RunFile) -> bool:
    """Recognise lines that are log calls, whatever the file's name."""
    return _counter_of(file) is not None


def _counter_of(file: RunFile) -> Counter | None:
    """Return what counts the rows on a file's first lines, looked into once: a short log is read faster."""
    return file.look("counter of sampled objects", lambda: _counter(sample(file)))


def _counter(rows: list[dict[str, Any]]) -> Counter | None:
    calls = [row for row in rows if not is_closing(row)]
    if not calls or any(row.keys() >= MICROSOFT for row in calls):
        return None
    return _by_updates(calls, counter_of(calls, trust_steps=True))


def _by_updates(calls: list[dict[str, Any]], counter: Counter | None) -> Counter | None:
    """Return the counter of updates where the trainer's step counts a fixed number of samples for each of them.

    open-instruct's `global_step` is 256, 512, ... of `training_step` 1, 2, ..., which its console counts.
    """
    if len(calls) < MIN_UPDATES or not all(type(call.get(key)) is int for call in calls for key in (SAMPLES, STEPS)):
        return counter
    samples, updates = ([int(call[key]) for call in calls] for key in (SAMPLES, STEPS))
    factor = samples[0] // max(updates[0], 1)
    fixed = factor > 1 and updates[-1] > updates[0]
    if fixed and all(count == factor * at for count, at in zip(samples, updates, strict=True)):
        return Counter(keys=(STEPS,), unit="step")
    return counter


def sample(file: RunFile) -> list[dict[str, Any]]:
    """Return the objects on the first lines of a file that holds JSON lines; empty for any other."""
    key = "sampled objects"
    if key not in file.looks:
        rows = _lines_of(text_head(file))
        named = file.name.lower().endswith(SUFFIXES)
        file.looks[key] = first_objects(file, FIRST_LINES) if not rows and named else rows
    found: list[dict[str, Any]] = file.looks[key]
    return found


def _lines_of(head: bytes) -> list[dict[str, Any]]:
    """Return the objects on the lines of a file's first bytes; empty where these are no JSON lines."""
    text = head.removeprefix(BOM).lstrip()
    if not text.startswith((b"{", b"[", b'"{')):
        return []
    lines = text.split(b"\n")
    if len(head) == HEAD_BYTES:
        lines.pop()
    rows: list[dict[str, Any]] = []
    whole = other = 0
    for line in filter(bytes.strip, lines):
        found = objects_on(line)
        whole += bool(found)
        other += not found
        if other > MAX_OTHER and other > whole:  # a document, spread over lines
            return []
        rows += found or []
    return rows if whole >= MIN_LINES and other <= whole else []


def objects_on(line: bytes) -> list[dict[str, Any]] | None:
    """Return the JSON object on a line, or the objects of a list; None for any other line."""
    found = parse_json(line)
    if isinstance(found, str) and found.startswith("{"):  # written as a message by a JSON formatter
        found = parse_json(found.encode("utf-8", "replace"))
    if isinstance(found, dict):
        return [found]
    rows = found if isinstance(found, list) else []
    return rows if rows and all(isinstance(row, dict) for row in rows) else None


def _framework(block: bytes) -> str | None:
    """Name the framework where the shape of the first row leaves no doubt."""
    record = json_object(block[: block.find(b"\n") + 1] or block) or {}
    if record.keys() == {"step", "data"} and isinstance(record["data"], dict):
        return "verl"
    if "global_step/max_steps" in record:
        return "ms-swift"
    if {"training_step", "recorded_at"} <= record.keys():
        return "art"
    own = ("mismatch_kl/", "optim/", "perf/", "off_policy/")
    if {"step", "time"} <= record.keys() and any(name.startswith(own) for name in record):
        return "prime-rl"
    return framework_of(flatten(record))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics block by block; lines that are not log calls are counted."""
    framework: str | None = None
    counter = _counter_of(file) or TRAINER_STEPS
    log = CallLog(MetricColumns(file), counter)
    schema = None
    settings: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    ended = False
    counts = {NO_JSON: 0, NO_STEP: 0}
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        quick = fast_block(
            block,
            file,
            wrappers=WRAPPERS,
            steps=counter.keys,
            times=TIME_KEYS,
            seq=log.seq,
            schema=schema,
            front=counter.prefix,
            spelt_out=True,
        )
        framework = framework or _framework(block)
        if quick is not None:
            log.seq, schema = quick.behind, quick.schema
            quick.tell_length(log)
            ended = False
            del block  # its memory is for the next one
            yield from quick.pieces(file, known_names)
            continue
        for record in _calls(file, block):
            if isinstance(record, Lost):
                yield record
            elif record is None:
                counts[NO_JSON] += 1
            elif is_closing(record):
                continue
            elif log.add(record):
                ended = False
            else:
                header = not log.seq and safe_settings(flatten(record))
                settings |= header or {}
                headers |= flatten(record) if header else {}
                ended = _says_done(record)
                counts[NO_STEP] += not header and not ended
            yield from log.columns.flush()
        yield from log.columns.pieces()
    yield from lost_notes(file, counts)
    yield from framework_facts(framework)
    if ended:
        settings["status"] = "completed"
    if settings:
        yield Context(facts=settings, settings=kept(headers))
    yield from log.facts()


def _says_done(record: dict[str, Any]) -> bool:
    """Return whether a row that counts nothing says that training is over."""
    told = (record.get(key) for key in (*KINDS, "status", "message"))
    return any(isinstance(word, str) and DONE.fullmatch(word.strip()) for word in told)


def _calls(file: RunFile, block: bytes) -> Iterator[dict[str, Any] | Lost | None]:
    """Yield the objects on each line that is not blank, None if it has none; a torn last line is `Lost`."""
    for line in filter(bytes.strip, block.split(b"\n")):
        found = objects_on(line)
        if found is None:
            yield torn_line(file, line) if is_torn(block) and block.endswith(line) else None
        elif is_too_deep(file, line, found):
            continue
        yield from found or ()


PARSER = Parser(
    name="metrics_jsonl",
    describes="Metric logs as JSON lines (veRL's file logger, prime-rl, ART, Tinker, home-made): metrics.",
    held_against="real: veRL 0.9.1's file logger and prime-rl's monitor; ms-swift, ART, Tinker, LLaMA-Factory and "
    "RLlib by source",
    priority=20,
    general=True,
    recognises=recognises,
    read=read,
)

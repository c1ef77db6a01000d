"""The small files that Microsoft's post-training toolkit leaves beside its metrics: how a run was set up and ended.

After `post_training_toolkit/models/artifacts.py` and `postmortem.py` of microsoft/post-training-toolkit, schema 1.0.
Of settings only those on the list of settings_facts are taken; hosts, folders and process ids never are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import WHITE, count_halves, json_object
from ptt.diagnostics.parsers.io.telemetry import PLAIN_WORD, EventLog, Facts, safe_settings
from ptt.diagnostics.parsers.io.values import as_seconds, as_step

MAX_BYTES: Final = 64 << 20  # the largest holds a traceback and a list of packages
START: Final = "run_metadata_start.json"  # written once, at the start: its status says `running` for ever
KEYS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "run_metadata.json": (b'"run_id"', b'"status"', b'"package_versions"'),
    START: (b'"run_id"', b'"status"', b'"package_versions"'),
    "run_metadata_final.json": (b'"run_id"', b'"status"', b'"package_versions"'),
    "postmortem.json": (b'"exit_reason"', b'"last_step"'),
    "critical_failure.json": (b'"reason"', b'"last_good_step"'),
    "resume_validation.json": (b'"resumed_from_step"', b'"is_valid"'),
}
VERSION: Final = re.compile(r"\d{1,6}[0-9A-Za-z.+-]{0,31}")
COMMIT: Final = re.compile(r"[0-9a-f]{7,40}")
PACKAGES: Final = ("torch", "transformers", "trl", "accelerate", "peft", "vllm", "deepspeed", "numpy")
MAX_MESSAGES: Final = 20  # warnings, errors and events of one file


def recognises(file: RunFile) -> bool:
    """Recognise the toolkit's file names with its own keys in the head."""
    keys = KEYS.get(file.name)
    if keys is None or not 0 < file.size <= MAX_BYTES:
        return False
    head = file.readable_head
    if file.name.startswith("run_metadata"):  # its packages may stand behind a long configuration
        keys = keys[:2]
    return head.lstrip(WHITE).startswith(b"{") and all(key in head for key in keys)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield what the file says as events, and its settings as facts."""
    record = _object(file)
    if record is None:
        yield Lost(bytes=max(1, file.size), note=f"{file.rel} is not a complete JSON object; its content is lost.")
        return
    events = EventLog(file)
    if file.name.startswith("run_metadata"):
        facts = _metadata(record, events, started=file.name == START)
    elif file.name == "postmortem.json":
        facts = _postmortem(record, events)
    elif file.name == "critical_failure.json":
        facts = _critical(record, events)
    else:
        facts = _resumed(record, events)
        if record.get("is_valid") is False or record.get("errors"):
            told = "; ".join(text for text in record.get("errors") or () if isinstance(text, str))
            step = facts.get("resumed_from_step", "unknown")
            yield Lost(note=f"The resume from step {step} did not pass the toolkit's own check{told and ': '}{told}.")
    yield from events.pieces()
    if facts:
        yield Context(facts=facts)


def _object(file: RunFile) -> dict[str, Any] | None:
    try:
        content = file.path.read_bytes()
    except OSError:
        return None
    count_halves(file, content)
    return json_object(content)


def _metadata(record: dict[str, Any], events: EventLog, *, started: bool) -> Facts:
    """Take trainer, size of the world, code version, settings, package versions; the status where it is the last."""
    status, last = _word(record.get("status")), as_step(record.get("total_steps"))
    ended = status not in (None, "running")
    when = as_seconds(record.get("end_time" if ended else "start_time"))
    if status is not None:
        events.add(last if ended else None, when, "exit" if ended else "stdout", f"run status: {status}")
    config = _inner(record, "config")
    facts = safe_settings(_inner(config, "training_args"))
    trainer = _word(record.get("trainer_type"))
    facts |= {"algorithm": trainer} if trainer not in (None, "unknown") else {}
    facts |= {} if started or status is None else {"status": status}
    for name in ("world_size", "dataset_size"):
        facts |= {name: count} if (count := as_step(record.get(name))) else {}
    commit = record.get("git_sha")
    if isinstance(commit, str) and COMMIT.fullmatch(commit):
        facts |= {"git_sha": commit, "git_dirty": record.get("git_dirty") is True}
    versions = _inner(record, "package_versions")
    for name in PACKAGES:
        if isinstance(version := versions.get(name), str) and VERSION.fullmatch(version):
            facts[f"{name}_version"] = version
    return facts | _hardware(_inner(record, "hardware"))


def _hardware(record: dict[str, Any]) -> Facts:
    """Take the number of devices and the memory of the smallest."""
    facts: Facts = {"gpu_count": count} if (count := as_step(record.get("gpu_count"))) else {}
    given = record.get("gpu_memory_gb")
    sizes = given if isinstance(given, list) else [given]
    known = [float(size) for size in sizes if isinstance(size, int | float) and 0 < size < 1e6]
    return facts | ({"gpu_memory_gb": min(known)} if known else {})


def _postmortem(record: dict[str, Any], events: EventLog) -> Facts:
    """Take why the process ended, the end of its traceback and of its events."""
    reason, last = _word(record.get("exit_reason")), as_step(record.get("last_step"))
    when = as_seconds(record.get("timestamp"))
    events.add(last, when, "exit", f"exit reason: {reason or 'unknown'}")
    for key in ("traceback", "cuda_error"):
        if isinstance(text := record.get(key), str) and text.strip():
            lines = [line for line in text.splitlines() if line.strip()]
            for line in lines[-MAX_MESSAGES:]:
                events.add(last, when, "stderr", line)
    recent = record.get("recent_events")
    for text in recent[-MAX_MESSAGES:] if isinstance(recent, list) else ():
        if isinstance(text, str):
            events.add_output(None, None, "alert", text)
    return {"exit_reason": reason} if reason else {}


def _critical(record: dict[str, Any], events: EventLog) -> Facts:
    good, reason = as_step(record.get("last_good_step")), record.get("reason")
    text = f"critical failure: {reason if isinstance(reason, str) else 'unknown'}"
    events.add(as_step(record.get("step")), as_seconds(record.get("timestamp")), "alert", text)
    return {} if good is None else {"last_good_step": good}


def _resumed(record: dict[str, Any], events: EventLog) -> Facts:
    step, when = as_step(record.get("resumed_from_step")), as_seconds(record.get("timestamp"))
    events.add(step, when, "restart", f"resumed from step {'unknown' if step is None else step}")
    for key in ("errors", "warnings"):
        given = record.get(key)
        for text in given[:MAX_MESSAGES] if isinstance(given, list) else ():
            if isinstance(text, str):
                events.add(step, when, "alert", f"on resume, {key.removesuffix('s')}: {text}")
    facts: Facts = {} if step is None else {"resumed_from_step": step}
    return facts | ({"resume_valid": record["is_valid"]} if isinstance(record.get("is_valid"), bool) else {})


def _inner(record: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and PLAIN_WORD.fullmatch(value) else None


PARSER = Parser(
    name="microsoft_records",
    describes="Small files of Microsoft's post-training toolkit: settings, versions, why a run ended, resumes.",
    held_against="real: metadata and resume check beside TRL runs; postmortem and critical failure by source",
    priority=60,
    of_training=False,
    recognises=recognises,
    read=read,
)

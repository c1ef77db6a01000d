"""Microsoft's post-training toolkit: agent episodes, the small files beside its metrics, and snapshots of behaviour.

Episodes have one step a line, closed by a line with the outcome (microsoft/post-training-toolkit at 7ab9855,
post_training_toolkit/agents/traces.py, `Step`, `AgentRunLog.to_jsonl`). The field `step` numbers the steps of an
episode; it is no training step. What the assistant says and the calls behind it are one message here; a call that could
not be parsed (a step of its own, or one whose metadata says so) is malformed, and its outcome is unknown.

How a run was set up and ended: `post_training_toolkit/models/artifacts.py` and `postmortem.py`, schema 1.0. Of settings
only those on the list of settings_facts are taken; hosts, folders and process ids never are.

Snapshots, and the differences of two, are answers to fixed prompts (`models/snapshots.py` and `diffing.py`):
`snapshots/` holds one document a step with prompt, output, length and refusal of each prompt; `diffs/` what changed
between two steps, and the prompts that it flags.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import WHITE, begins_with, count_halves, json_object
from ptt.diagnostics.parsers.io.metric_rows import MetricColumns, flatten, metric_values
from ptt.diagnostics.parsers.io.setup_files import kept
from ptt.diagnostics.parsers.io.telemetry import PLAIN_WORD, EventLog, Facts, safe_settings
from ptt.diagnostics.parsers.io.tool_calls import calls_of
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, objects, read_samples
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_flag,
    as_label,
    as_name,
    as_plain_number,
    as_score,
    as_seconds,
    as_step,
    as_text,
    dict_of,
    dicts_in,
    nested,
)

EPISODE: Final = re.compile(rb'"episode_id"\s*:\s*("(?:[^"\\]|\\.)*"|\d+)')
ROLES: Final = {
    "user_message": "user",
    "assistant_message": "assistant",
    "tool_call": "assistant",
    "tool_result": "tool",
}
END: Final = "episode_end"
PARSE_ERROR: Final = "tool_parse_error"
BAD_ROWS: Final = "record(s) skipped: not a step of an episode."
MAX_HELD_STEPS: Final = 200_000  # of episodes still open; beyond it, the oldest is taken unfinished


def recognises_agents(file: RunFile) -> bool:
    """Recognise lines that name an episode, a step and its type."""
    return begins_with(file, _is_step)


def _is_other_episode(before: bytes, after: bytes) -> bool:
    """Return whether two lines belong to different episodes."""
    names = [EPISODE.search(line) for line in (before, after)]
    return all(names) and len({name[1] for name in names if name}) > 1


def _is_step(row: dict[str, Any]) -> bool:
    return "episode_id" in row and "step" in row and isinstance(row.get("type"), str)


def read_agents(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory an episode; episodes may be interleaved."""
    yield from read_samples(Samples(file, AGENTS.name), _episodes(file), _add_agents, BAD_ROWS)
    yield Context(facts={"framework": "microsoft-ptt"})


def _episodes(file: RunFile) -> Iterator[dict[str, Any] | Lost]:
    """Yield the steps of each episode that ends, or that the others leave no room for; without steps, a row of none."""
    episodes: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    count = 0
    for row in objects(file):
        if isinstance(row, Lost):
            yield row
            continue
        at = as_step(row["step"]) if _is_step(row) else None
        if at is None:
            yield {"steps": []}
            continue
        name, ends = as_text(row["episode_id"]), row["type"] == END
        if name in episodes:
            episodes[name].append((at, row))
        else:
            episodes[name] = [(at, row)]
        count += 1
        if ends or count > MAX_HELD_STEPS:
            steps = episodes.pop(name if ends else next(iter(episodes)))
            count -= len(steps)
            yield {"steps": _in_order(steps)}
    for steps in episodes.values():
        yield {"steps": _in_order(steps)}


def _in_order(steps: list[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [step for _, step in sorted(steps, key=itemgetter(0))]


def _add_agents(record: dict[str, Any], samples: Samples) -> bool:
    if not record["steps"]:
        return False
    steps: list[dict[str, Any]] = record["steps"]
    end: dict[str, Any] = next((step for step in steps if step["type"] == END), {})
    told = dict_of(end.get("metadata"))
    shown = [step for step in steps if step["type"] in ROLES or step["type"] == PARSE_ERROR]
    unparsed = [_is_unparsed(step) for step in shown]
    kinds = Counter(step["type"] for step in shown)
    messages, timing = _conversation(shown, unparsed)
    calls = [call | ({"ok": None} if call["error_type"] == PARSE_ERROR else {}) for call in calls_of(messages)]
    episode = as_label(steps[0]["episode_id"])
    asked = next((step.get("content") for step in steps if step["type"] == "user_message"), None)
    spent = [count for step in shown if step["type"] != "tool_result" and (count := as_count(step.get("tokens")))]
    samples.add(
        Sample(
            step=None,
            split="unknown",
            completion=messages,
            identity=[episode, len(shown), asked, shown[-1].get("content") if shown else None, end.get("reward")],
            prompt=asked,
            reward=as_score(end.get("reward")),
            calls=calls,
            timing=timing,
            columns={
                "sample_id": episode,
                "success": as_flag(end.get("success")),
                "n_tool_calls": kinds["tool_call"],
                "n_tool_fail": sum(call["ok"] is False for call in calls),
                "error_type": PARSE_ERROR if any(unparsed) else None,
                "cost_usd": as_score(end.get("total_cost")),
                "tokens_out": sum(spent) if spent else None,
                **{name: as_label(told.get(name)) for name in ("task", "model", "env")},
            },
        )
    )
    return True


def _is_unparsed(step: dict[str, Any]) -> bool:
    told = step.get("metadata")
    return step["type"] == PARSE_ERROR or (isinstance(told, dict) and told.get("parse_error") is True)


def _conversation(
    steps: list[dict[str, Any]], unparsed: list[bool]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the messages of the steps, calls with what was said before them, and when and how long each was."""
    messages: list[dict[str, Any]] = []
    timing: list[dict[str, Any]] = []
    for step, broken in zip(steps, unparsed, strict=True):
        role = ROLES.get(step["type"], "assistant")
        asks = step["type"] == "tool_call" or (broken and role == "assistant")
        spent, stamp = as_count(step.get("tokens")), as_seconds(step.get("timestamp"))
        if asks and messages and messages[-1]["role"] == "assistant":
            messages[-1].setdefault("tool_calls", []).append(_call(step))
            spent = None if spent is None else spent + (timing[-1]["n_tokens"] or 0)
            timing[-1] = {"n_tokens": spent or timing[-1]["n_tokens"], "t_end": stamp or timing[-1]["t_end"]}
        else:
            messages.append({"role": role, **(_asking(step) if asks else _saying(step, role))})
            timing.append({"n_tokens": spent, "t_end": stamp})
        if broken and asks:  # nobody answers such a call
            reason = step.get("error") or step.get("content") or PARSE_ERROR
            messages.append({"role": "tool", "content": as_text(reason), "error": {"type": PARSE_ERROR}})
            timing.append({"n_tokens": None, "t_end": None})
    return messages, timing


def _asking(step: dict[str, Any]) -> dict[str, Any]:
    said = step.get("content") if step["type"] != PARSE_ERROR else None
    return {"content": said, "tool_calls": [_call(step)]}


def _call(step: dict[str, Any]) -> dict[str, Any]:
    written = step.get("args") if step["type"] == "tool_call" else step.get("args", step.get("content"))
    return {"name": as_name(step.get("tool")), "arguments": written}


def _saying(step: dict[str, Any], role: str) -> dict[str, Any]:
    if role != "tool":
        return {"content": step.get("content")}
    error = step.get("error")
    content = step.get("result") if step.get("result") is not None else step.get("content")
    content = as_text(error) if content is None and error is not None else content
    return {"content": content, "error": {"type": None, "message": error} if error is not None else None}


AGENTS = Parser(
    name="microsoft_agents",
    describes="Agent episodes of Microsoft's post-training toolkit: trajectories, turns, tool calls, outcomes.",
    held_against="source: microsoft/post-training-toolkit",
    priority=60,
    of_training=False,
    splits=_is_other_episode,
    recognises=recognises_agents,
    read=read_agents,
)


RECORDS_MAX_BYTES: Final = 64 << 20  # the largest holds a traceback and a list of packages
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


def recognises_records(file: RunFile) -> bool:
    """Recognise the toolkit's file names with its own keys in the head."""
    keys = KEYS.get(file.name)
    if keys is None or not 0 < file.size <= RECORDS_MAX_BYTES:
        return False
    head = file.readable_head
    if file.name.startswith("run_metadata"):  # its packages may come after a long configuration
        keys = keys[:2]
    return head.lstrip(WHITE).startswith(b"{") and all(key in head for key in keys)


def read_records(file: RunFile) -> Iterator[Piece]:
    """Yield the file's content as events, and its settings as facts."""
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
        settings = _inner(_inner(record, "config"), "training_args")
        packages = {name: str(facts[f"{name}_version"]) for name in PACKAGES if f"{name}_version" in facts}
        yield Context(facts=facts, settings=kept(flatten(settings)), packages=packages)


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


RECORDS = Parser(
    name="microsoft_records",
    describes="Small files of Microsoft's post-training toolkit: settings, versions, why a run ended, resumes.",
    held_against="real: metadata and resume check beside TRL runs; postmortem and critical failure by source",
    priority=60,
    of_training=False,
    recognises=recognises_records,
    read=read_records,
)


SNAPSHOT: Final = (b'"metadata"', b'"num_prompts"', b'"entries"')
DIFF: Final = (b'"step_a"', b'"step_b"', b'"entries"')
SNAPSHOTS_MAX_BYTES: Final = 64 << 20  # for twenty prompts or a few hundred, with their answers
MAX_FLAGGED: Final = 20  # prompts that an event names
NO_ENTRY: Final = "entry(s) skipped: no prompt or no output."


def recognises_snapshots(file: RunFile) -> bool:
    """Recognise a document by the keys that its head holds."""
    if not file.name.endswith(".json") or not 0 < file.size <= SNAPSHOTS_MAX_BYTES:
        return False
    head = file.readable_head
    return head.lstrip(WHITE).startswith(b"{") and any(all(key in head for key in keys) for keys in (SNAPSHOT, DIFF))


def read_snapshots(file: RunFile) -> Iterator[Piece]:
    """Yield the answers and metrics of a snapshot, or the content of a difference."""
    try:
        content = file.path.read_bytes()
    except OSError:  # gone
        content = b""
    count_halves(file, content)
    record = json_object(content)
    if record is None:
        yield Lost(bytes=max(1, file.size), note=f"{file.rel} is not a complete JSON object; its content is lost.")
    elif "step_a" in record:
        yield from _diff(file, record)
    else:
        yield from _snapshot(file, record)


def _snapshot(file: RunFile, record: dict[str, Any]) -> Iterator[Piece]:
    metadata = dict_of(record.get("metadata"))
    step, limit = as_step(metadata.get("step")), as_count(nested(metadata, "generation_config", "max_new_tokens"))
    shared = {"step": step, "limit": limit}
    entries = [{**entry, **shared} for entry in dicts_in(record.get("entries"))]
    yield from read_samples(Samples(file, SNAPSHOTS.name), entries, _add_snapshots, NO_ENTRY)
    yield from _figures(file, step, as_seconds(metadata.get("timestamp")), dict_of(record.get("summary")))


def _add_snapshots(entry: dict[str, Any], samples: Samples) -> bool:
    prompt, output, length = entry.get("prompt"), entry.get("output"), as_count(entry.get("output_length"))
    if not isinstance(prompt, str) or not isinstance(output, str):
        return False
    asked = [{"role": "user", "content": prompt}]
    identity = as_name(entry.get("prompt_id"))
    samples.add(
        Sample(
            step=entry["step"],
            split="eval",
            completion=[*asked, {"role": "assistant", "content": output}],
            identity=[identity, prompt, output, entry["step"]],
            prompt=asked,
            columns={
                "n_turns": 1,
                "group_id": identity,
                "tokens_out": length,
                "truncated": None if length is None or entry["limit"] is None else length >= entry["limit"],
            },
        )
    )
    return True


def _figures(file: RunFile, step: int | None, when: float | None, figures: dict[str, Any]) -> Iterator[Piece]:
    """Yield what was measured over all prompts at a step; histograms are passed over."""
    columns = MetricColumns(file)
    for name, value in metric_values(flatten(figures)).items():
        if step is not None and "histogram" not in name:
            columns.add(step, f"eval/snapshot/{name}", value, when, 0)
    yield from columns.pieces()


def _diff(file: RunFile, record: dict[str, Any]) -> Iterator[Piece]:
    first, last = as_step(record.get("step_a")), as_step(record.get("step_b"))
    when, summary = as_seconds(record.get("timestamp")), dict_of(record.get("summary"))
    flagged = [name for name in summary.get("flagged_prompt_ids") or () if isinstance(name, str)]
    before, after = (as_plain_number(summary.get(f"refusal_rate_{side}")) for side in ("before", "after"))
    changed, count = as_count(summary.get("significant_changes")), as_count(summary.get("num_prompts"))
    events = EventLog(file)
    severity = as_name(summary.get("drift_severity"))
    if severity not in (None, "minimal"):
        named = f": {', '.join(flagged[:MAX_FLAGGED])}" if flagged else ""
        text = f"behaviour from step {first} to {last}: {severity} drift, {changed} of {count} prompts flagged{named}"
        events.add(last, when, "alert", text)
    yield from events.pieces()
    figures = {"flagged_share": changed / count if changed is not None and count else None}
    figures |= {"refusal_delta": after - before if before is not None and after is not None else None}
    known = {name: value for name, value in figures.items() if value is not None}
    yield from _figures(file, last, when, {"drift": known})


SNAPSHOTS = Parser(
    name="microsoft_snapshots",
    describes="Behaviour snapshots and differences of Microsoft's toolkit: answers to fixed prompts, drift, refusals.",
    held_against="source: microsoft/post-training-toolkit, models/snapshots.py and diffing.py",
    priority=60,
    of_training=False,
    recognises=recognises_snapshots,
    read=read_snapshots,
)

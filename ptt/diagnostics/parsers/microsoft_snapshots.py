"""Behaviour snapshots of Microsoft's post-training toolkit, and the differences of two: answers to fixed prompts.

After `post_training_toolkit/models/snapshots.py` and `diffing.py` of microsoft/post-training-toolkit: `snapshots/`
holds one document a step with prompt, output, length and refusal of each prompt; `diffs/` what changed between two
steps, and the prompts that it flags.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import WHITE, count_halves, json_object
from ptt.diagnostics.parsers.io.metric_rows import MetricColumns, flatten, metric_values
from ptt.diagnostics.parsers.io.telemetry import EventLog
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_samples
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_name,
    as_plain_number,
    as_seconds,
    as_step,
    dict_of,
    dicts_in,
    nested,
)

SNAPSHOT: Final = (b'"metadata"', b'"num_prompts"', b'"entries"')
DIFF: Final = (b'"step_a"', b'"step_b"', b'"entries"')
MAX_BYTES: Final = 64 << 20  # of twenty prompts or a few hundred, with their answers
MAX_FLAGGED: Final = 20  # prompts that an event names
NO_ENTRY: Final = "entry(s) skipped: no prompt or no output."


def recognises(file: RunFile) -> bool:
    """Recognise a document by the keys that its head holds."""
    if not file.name.endswith(".json") or not 0 < file.size <= MAX_BYTES:
        return False
    head = file.readable_head
    return head.lstrip(WHITE).startswith(b"{") and any(all(key in head for key in keys) for keys in (SNAPSHOT, DIFF))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the answers and figures of a snapshot, or what a difference says."""
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
    yield from read_samples(Samples(file, PARSER.name), entries, _add, NO_ENTRY)
    yield from _figures(file, step, as_seconds(metadata.get("timestamp")), dict_of(record.get("summary")))


def _add(entry: dict[str, Any], samples: Samples) -> bool:
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


PARSER = Parser(
    name="microsoft_snapshots",
    describes="Behaviour snapshots and differences of Microsoft's toolkit: answers to fixed prompts, drift, refusals.",
    held_against="source: microsoft/post-training-toolkit, models/snapshots.py and diffing.py",
    priority=60,
    of_training=False,
    recognises=recognises,
    read=read,
)

"""Logs of Inspect AI, packed (.eval) or plain (.json): scores of an evaluation, its conversations and tool calls.

Source: UKGovernmentBEIS/inspect_ai src/inspect_ai/log/_log.py (`EvalLog`, `EvalSample`), log/_recorders/eval.py
(members of the zip file, which newer versions pack with zstd), tool/_tool_call.py, event/_tool.py and
scorer/_metric.py (`value_to_float`: C, I, P and N).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.json_documents import members, members_of
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, attempt, calls_of
from ptt.diagnostics.parsers.io.values import as_count, as_label, as_score, as_seconds, as_step, nested
from ptt.diagnostics.parsers.io.zip_members import LOCAL, content, listing

SAMPLE: Final = re.compile(r"samples/[^/\\]+\.json")
HEADER, START = "header.json", "_journal/start.json"
TOTAL_BYTES: Final = 16 << 30
NOTHING: Final = frozenset[str]()
GRADES: Final = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
CUT_SHORT: Final = frozenset({"max_tokens", "model_length"})
KIND: Final = re.compile(r"[A-Za-z_][\w.]{0,99}")  # an error's message begins with its class


def recognises(file: RunFile) -> bool:
    """Say yes to a zip file by its ending, and to a plain log by the keys it begins with."""
    try:
        if file.name.endswith(".eval"):
            return file.head.startswith(LOCAL)
        head = file.head if file.name.endswith(".json") else b""
    except OSError:  # unreadable: nobody's
        return False
    return head.lstrip().startswith(b"{") and all(key in head for key in (b'"eval"', b'"run_id"', b'"status"'))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a sample and epoch, and the figures of the evaluation."""
    log = _Log(Samples(file, PARSER.name))
    parts = _packed(file) if file.name.endswith(".eval") else members(file, frozenset({"samples", "reductions"}))
    bad = 0
    for part in parts:
        if isinstance(part, Lost):
            yield part
            continue
        key, value = part
        if key == "samples":
            bad += not attempt(log.add, value, log.samples)
        elif key != "reductions":
            log.header[key] = value
        if log.samples.full:
            yield from log.samples.take()
    log.evaluate()
    yield from log.samples.close()
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {bad} sample(s) hold no conversation and do not count.")


def _packed(file: RunFile) -> Iterator[tuple[str, Any] | Lost]:
    """Yield what a plain log would hold, out of the members of a zip file: the header first."""
    found = listing(file)
    if found.torn:
        yield Lost(rows=1, bytes=1, note=f"{file.rel} is cut or damaged; the members before that count.")
    named = {member.name: member for member in found.members}
    start = named.get(HEADER) or named.get(START)  # a run that was killed has no header yet
    wanted = [*([start] if start else []), *(member for name, member in named.items() if SAMPLE.fullmatch(name))]
    unpacked = 0
    for member in wanted:
        unpacked += member.unpacked
        if unpacked > TOTAL_BYTES:
            yield Lost(
                rows=1,
                bytes=file.size,
                note=f"{file.rel} unpacks to more than {TOTAL_BYTES >> 30} GB; the rest was not read.",
            )
            return
        try:
            data = content(file, member)
        except ValueError as error:
            yield Lost(rows=1, bytes=member.packed, note=f"{file.rel}: member {member.name} {error}.")
            continue
        whole: dict[str, Any] = {}
        for part in members_of(data, NOTHING, f"{file.rel}: member {member.name}"):
            if isinstance(part, Lost) or member is start:
                yield part
            else:
                whole[part[0]] = part[1]
        if whole:
            yield "samples", whole


class _Log:
    """One evaluation: what its header says, and the samples so far."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.header: dict[str, Any] = {}

    def evaluate(self) -> None:
        """Take the figures that the log itself works out."""
        about, results = self.header.get("eval"), self.header.get("results")
        scores = nested(results, "scores")
        settings = [nested(self.header.get("plan"), "config"), nested(about, "model_generate_config")]
        for score in scores if isinstance(scores, list) else []:
            figures = nested(score, "metrics")
            name = as_label(nested(score, "name")) or as_label(nested(score, "scorer")) or "score"
            scored = as_count(nested(score, "scored_samples"))
            for metric, figure in figures.items() if isinstance(figures, dict) else ():
                self.samples.evaluated(
                    suite=as_label(nested(about, "task")),
                    step=as_step(nested(about, "metadata", "step")),
                    model=as_label(nested(about, "model")),
                    metric=f"{name}/{metric}",
                    value=as_score(nested(figure, "value")),
                    n=as_count(nested(results, "completed_samples")) if scored is None else scored,
                    temperature=next(
                        (v for s in settings if (v := as_score(nested(s, "temperature"))) is not None), None
                    ),
                    max_tokens=next(
                        (v for s in settings if (v := as_count(nested(s, "max_tokens"))) is not None), None
                    ),
                )

    def add(self, found: dict[str, Any], samples: Samples) -> bool:
        """Add one sample."""
        messages = found.get("messages")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            return False
        scores = dict(_scores(found.get("scores")))
        given = [score for score in scores.values() if score is not None]
        stop, limit = as_label(_stop_reason(found)), as_label(nested(found, "limit", "type"))
        name, epoch = as_label(found.get("id")), as_step(found.get("epoch"))
        run = as_label(nested(self.header.get("eval"), "eval_id")) or as_label(
            nested(self.header.get("eval"), "run_id")
        )
        samples.add(
            Sample(
                step=as_step(nested(self.header.get("eval"), "metadata", "step")),
                split="eval",
                completion=messages,
                identity=[run, name, epoch, messages, scores],
                prompt=found.get("input"),
                reward=given[0] if len(scores) == len(given) == 1 else None,
                components=scores,
                calls=_calls(messages, found.get("events")),
                columns={
                    "sample_id": None if name is None or epoch is None else f"{name}/{epoch}",
                    "group_id": name,
                    "env": as_label(nested(self.header.get("eval"), "task")),
                    "success": given[0] == 1.0 if len(scores) == len(given) == 1 and given[0] in {0.0, 1.0} else None,
                    "truncated": None if stop is None and limit is None else bool(limit) or stop in CUT_SHORT,
                    "stop_reason": limit or stop,
                    "error_type": _error(found.get("error")),
                },
            )
        )
        return True


def _scores(found: Any) -> Iterator[tuple[str, float | None]]:
    for name, score in found.items() if isinstance(found, dict) else ():
        value = nested(score, "value")
        if isinstance(value, dict):
            yield from ((f"{name}/{part}", _grade(one)) for part, one in value.items())
        elif not isinstance(value, list):
            yield name, _grade(value)


def _grade(value: Any) -> float | None:
    return GRADES.get(value) if isinstance(value, str) and value in GRADES else as_score(value)


def _stop_reason(found: dict[str, Any]) -> Any:
    choices = nested(found, "output", "choices")
    return nested(choices[0], "stop_reason") if isinstance(choices, list) and choices else None


def _error(found: Any) -> str | None:
    if not isinstance(found, dict):
        return None
    kind = KIND.match(as_label(found.get("message")) or "")
    return kind[0] if kind else "error"


def _calls(messages: list[dict[str, Any]], events: Any) -> list[dict[str, Any]]:
    """Pair calls and results; an absent error is none, and the events know how long a call took."""
    told = [m | {"error": m.get("error")} if m.get("role") == "tool" else m for m in messages]
    took: dict[str, float | None] = {}
    for event in events if isinstance(events, list) else []:
        if nested(event, "event") == "tool" and (name := as_label(event.get("id"))) is not None:
            took[name] = _seconds(event)
    calls = calls_of(told)
    for call in calls:
        call["latency_s"] = took.get(call["call_id"] or "")
    return calls


def _seconds(event: dict[str, Any]) -> float | None:
    begun, ended = as_seconds(event.get("timestamp")), as_seconds(event.get("completed"))
    working = as_score(event.get("working_time"))
    return ended - begun if working is None and begun is not None and ended is not None else working


PARSER = Parser(
    name="inspect_log",
    describes="Logs of Inspect AI (.eval, .json): evaluations, trajectories, turns, tool calls, scores.",
    priority=80,
    recognises=recognises,
    read=read,
)

"""Logs of Inspect AI, packed (.eval) or plain (.json): scores of an evaluation, its conversations and tool calls.

Source: UKGovernmentBEIS/inspect_ai src/inspect_ai/log/_log.py (`EvalLog`, `EvalSample`), log/_recorders/eval.py
(members of the zip file, which newer versions pack with zstd), tool/_tool_call.py, event/_tool.py and
scorer/_metric.py (`value_to_float`: C, I, P and N).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.json_documents import members, members_of
from ptt.diagnostics.parsers.io.tool_calls import calls_of
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_samples
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_label,
    as_name,
    as_score,
    as_seconds,
    as_step,
    dict_of,
    dicts_in,
    nested,
)
from ptt.diagnostics.parsers.io.zip_members import LOCAL, content, listing
from ptt.diagnostics.wording import counted

SAMPLE: Final = re.compile(r"samples/[^/\\]+\.json")
HEADER, START = "header.json", "_journal/start.json"
OTHERS: Final = re.compile(r"_journal/.+|(?:header|summaries|reductions)\.json")  # members that hold no sample
FOREIGN: Final = "member(s) skipped: Inspect writes no such name."
MAX_BYTES: Final = 16 << 30  # unpacked
GRADES: Final = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
ATTACHED: Final = "attachment://"
CUT_SHORT: Final = frozenset({"max_tokens", "model_length"})
ERROR_CLASS: Final = re.compile(r"[A-Za-z_][\w.]{0,99}")  # an error's message begins with its class


def recognises(file: RunFile) -> bool:
    """Recognise a zip file by its ending, and a plain log by the keys it begins with."""
    if file.name.endswith(".eval"):
        return file.readable_head.startswith(LOCAL)
    head = file.readable_head if file.name.endswith(".json") else b""
    return head.lstrip().startswith(b"{") and all(key in head for key in (b'"eval"', b'"run_id"', b'"status"'))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a sample and epoch, and the figures of the evaluation."""
    log = _Log(Samples(file, PARSER.name))
    yield from read_samples(log.samples, log.rows(), log.add, "sample(s) skipped: no conversation.")


def _packed(file: RunFile) -> Iterator[tuple[str, Any] | Lost]:
    """Yield the contents of a plain log from the members of a zip file, the header first."""
    archive = listing(file)
    if archive.torn:
        yield Lost(rows=1, bytes=1, note=f"{file.rel} is cut or damaged; the members that could be found were read.")
    named = {member.name: member for member in archive.members}
    start = named.get(HEADER) or named.get(START)  # a run that was killed has no header yet
    foreign = [m for name, m in named.items() if not (SAMPLE.fullmatch(name) or OTHERS.fullmatch(name))]
    if foreign:  # most likely a damaged name
        size = sum(member.packed for member in foreign)
        yield Lost(rows=len(foreign), bytes=size, note=f"{file.rel}: {counted(len(foreign), FOREIGN)}")
    wanted = [*([start] if start else []), *(member for name, member in named.items() if SAMPLE.fullmatch(name))]
    unpacked = 0
    for member in wanted:
        unpacked += member.unpacked
        if unpacked > MAX_BYTES:
            yield Lost(
                rows=1,
                bytes=file.size,
                note=f"{file.rel} unpacks to more than {MAX_BYTES >> 30} GB; the rest was not read.",
            )
            return
        try:
            data = content(file, member)
        except ValueError as error:
            yield Lost(rows=1, bytes=member.packed, note=f"{file.rel}: member {member.name} {error}.")
            continue
        whole: dict[str, Any] = {}
        for part in members_of(data, frozenset(), f"{file.rel}: member {member.name}"):
            if isinstance(part, Lost) or member is start:
                yield part
            else:
                whole[part[0]] = part[1]
        if whole:
            yield "samples", whole


class _Log:
    """One evaluation: its header, and the samples so far."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.header: dict[str, Any] = {}

    def rows(self) -> Iterator[Any]:
        """Yield the samples, then take the figures that the log itself works out."""
        file = self.samples.file
        parts = _packed(file) if file.name.endswith(".eval") else members(file, frozenset({"samples", "reductions"}))
        for part in parts:
            if isinstance(part, Lost):
                yield part
            elif part[0] == "samples":
                yield part[1]
            elif part[0] != "reductions":
                self.header[part[0]] = part[1]
        about, results = self.header.get("eval"), self.header.get("results")
        settings = [nested(self.header.get("plan"), "config"), nested(about, "model_generate_config")]
        temperatures, limits = ([nested(given, name) for given in settings] for name in ("temperature", "max_tokens"))
        scores = nested(results, "scores")
        for score in scores if isinstance(scores, list) else []:
            name = as_label(nested(score, "name")) or as_label(nested(score, "scorer")) or "score"
            scored = as_count(nested(score, "scored_samples"))
            for metric, figure in dict_of(nested(score, "metrics")).items():
                self.samples.evaluated(
                    suite=as_label(nested(about, "task")),
                    step=as_step(nested(about, "metadata", "step")),
                    model=as_label(nested(about, "model")),
                    metric=f"{name}/{metric}",
                    value=as_score(nested(figure, "value")),
                    n=as_count(nested(results, "completed_samples")) if scored is None else scored,
                    temperature=_first(map(as_score, temperatures)),
                    max_tokens=_first(map(as_count, limits)),
                )

    def add(self, record: dict[str, Any], samples: Samples) -> bool:
        """Add one sample."""
        held, about = record.get("messages"), self.header.get("eval")
        if not isinstance(held, list) or not all(isinstance(message, dict) for message in held):
            return False
        messages = [_message(message, dict_of(record.get("attachments"))) for message in held]
        scores = dict(_scores(record.get("scores")))
        reward = next(iter(scores.values())) if _leads(record.get("scores")) else None
        choices = nested(record, "output", "choices")
        stop = as_label(nested(choices[0], "stop_reason")) if isinstance(choices, list) and choices else None
        limit = as_label(nested(record, "limit", "type"))
        name, epoch = as_label(record.get("id")), as_step(record.get("epoch"))
        run = as_label(nested(about, "eval_id")) or as_label(nested(about, "run_id"))
        turns = {answer[0]: answer[1] for event in _events(record, "model") if (answer := _turn(event))}
        samples.add(
            Sample(
                step=as_step(nested(about, "metadata", "step")),
                split="eval",
                completion=messages,
                identity=[run, name, epoch, held, scores],
                prompt=record.get("input"),
                reward=reward,
                components=scores,
                calls=_calls(messages, record),
                timing=[turns.get(as_name(message.get("id")) or "", {}) for message in held],
                tools=_tools(record),
                columns={
                    "sample_id": None if name is None or epoch is None else f"{name}/{epoch}",
                    "group_id": name,
                    "task": name,
                    "env": as_label(nested(about, "task")),
                    "success": self._success(record.get("scores")),
                    "truncated": None if stop is None and limit is None else bool(limit) or stop in CUT_SHORT,
                    "stop_reason": limit or stop,
                    "error_type": _error(record.get("error")),
                    **_usage(record.get("model_usage"), as_name(nested(about, "model"))),
                },
            )
        )
        return True

    def _success(self, scores: Any) -> bool | None:
        """Return the first scorer's verdict if it is a yes or no: a grade, a flag, or a scorer with an accuracy.

        If a scorer reports a mean, its 1 or 0 may just be the end of a scale.
        """
        name, score = next(iter(dict_of(scores).items()), (None, None))
        value = nested(score, "value")
        reports = dicts_in(nested(self.header.get("results"), "scores"))
        metrics = [found.get("metrics") for found in reports if name in (found.get("name"), found.get("scorer"))]
        scaled = bool(metrics) and not any("accuracy" in key for key in dict_of(metrics[0]))
        if isinstance(value, (dict, list)) or (scaled and not isinstance(value, (str, bool))):
            return None
        grade = _grade(value)
        return grade == 1.0 if grade in {0.0, 1.0} else None


def _message(message: dict[str, Any], attachments: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose text is no attachment and its reasoning apart."""
    content = message.get("content")
    if isinstance(content, str):
        kept = attachments.get(content.removeprefix(ATTACHED)) if content.startswith(ATTACHED) else None
        return message | {"content": kept} if isinstance(kept, str) else message
    thoughts = [text for part in dicts_in(content) if isinstance(text := part.get("reasoning"), str)]
    if not thoughts:
        return message
    rest = [part for part in dicts_in(content) if part.get("type") != "reasoning"]
    return message | {"content": rest or "", "reasoning_content": "\n".join(thoughts)}


def _events(record: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in dicts_in(record.get("events")) if event.get("event") == kind]


def _turn(event: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return the id of the message that a call of the model gave, and when and how long it was."""
    choices = nested(event, "output", "choices")
    name = as_name(nested(choices[0], "message", "id")) if isinstance(choices, list) and choices else None
    if name is None:
        return None
    return name, {
        "n_tokens": as_count(nested(event, "output", "usage", "output_tokens")),
        "t_start": as_seconds(event.get("timestamp")),
        "t_end": as_seconds(event.get("completed")),
    }


def _tools(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the definitions of the tools that the first call of the model with any was offered."""
    return next((tools for event in _events(record, "model") if (tools := dicts_in(event.get("tools")))), [])


def _usage(usage: Any, model: str | None) -> dict[str, Any]:
    """Return the evaluated model's tokens; without its name, all models' together, that of the grader among them."""
    named = dict_of(usage)
    used = [dict_of(named[model])] if model in named else [dict_of(each) for each in named.values()]
    sums = {
        column: [count for each in used if (count := as_score(each.get(key))) is not None]
        for column, key in (("tokens_in", "input_tokens"), ("tokens_out", "output_tokens"), ("cost_usd", "total_cost"))
    }
    columns: dict[str, Any] = {"cost_usd": sum(sums.pop("cost_usd")) or None}
    columns |= {name: as_count(sum(counts)) if counts else None for name, counts in sums.items()}
    return {"model": model, **columns}


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _scores(scores: Any) -> Iterator[tuple[str, float | None]]:
    for name, score in dict_of(scores).items():
        value = nested(score, "value")
        if isinstance(value, dict):
            yield from ((f"{name}/{part}", _grade(grade)) for part, grade in value.items())
        elif not isinstance(value, list):
            yield name, _grade(value)


def _grade(value: Any) -> float | None:
    return GRADES.get(value) if isinstance(value, str) and value in GRADES else as_score(value)


def _error(error: Any) -> str | None:
    if not isinstance(error, dict):
        return None
    kind = ERROR_CLASS.match(as_label(error.get("message")) or "")
    return kind[0] if kind else "error"


def _leads(scores: Any) -> bool:
    """Return whether the first scorer gives one value, which then is the reward."""
    first = next(iter(dict_of(scores).values()), None)
    return first is not None and not isinstance(nested(first, "value"), (dict, list))


def _calls(messages: list[dict[str, Any]], record: dict[str, Any]) -> list[dict[str, Any]]:
    """Pair calls and results. A null `error` is not an error; events show how long a call took, and one that raised."""
    calls = calls_of([m | {"error": m.get("error")} if m.get("role") == "tool" else m for m in messages])
    events = {as_label(event.get("id")): event for event in _events(record, "tool")}
    return [call | _told(events.get(call["call_id"] or "", {})) for call in calls]


def _told(event: dict[str, Any]) -> dict[str, Any]:
    """Return what the event of a call adds to it."""
    raised = {"ok": False, "ok_source": "flag"} if event.get("failed") is True else {}
    return {"latency_s": _seconds(event)} | raised


def _seconds(event: dict[str, Any]) -> float | None:
    begun, ended = as_seconds(event.get("timestamp")), as_seconds(event.get("completed"))
    working = as_score(event.get("working_time"))
    return ended - begun if working is None and begun is not None and ended is not None else working


PARSER = Parser(
    name="inspect_log",
    describes="Logs of Inspect AI (.eval, .json): evaluations, trajectories, turns, tool calls, scores.",
    held_against="real: Inspect AI 0.3.285",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)

"""Trajectories in ATIF, the Agent Trajectory Interchange Format that Harbor's agents write, versions 1.x.

Source: laude-institute/harbor docs/rfcs/0001-trajectory-format.md and src/harbor/models/trajectories/ (as mirrored in
sachiny0106/Xelron at 6cb22d122a163155187943b638f6bc36cf2e47e6), and its golden files below tests/golden/. A document is
one trajectory or a list of them, in JSON lines one a line; `subagent_trajectories` (v1.7) are trajectories of their
own. Steps that a continued trajectory repeats (`is_copied_context`) are part of it, as in Harbor's own exports. Token
ids and log-probabilities of a step (v1.3 and v1.4) are those of one call of the engine. Harbor keeps a trial's
trajectory in `agent/trajectory.json` and what the verifier said of it in `result.json` above
(src/harbor/models/trial/result.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.answer_texts import as_success
from ptt.diagnostics.parsers.io.calls import (
    Joined,
    SequenceRows,
    Sessions,
    engine_call,
    joined_row,
    step_in,
    token_array,
)
from ptt.diagnostics.parsers.io.conversations import ASSISTANT, opening, request, result, said
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile, count_notes
from ptt.diagnostics.parsers.io.json_documents import document_head, members, whole_document
from ptt.diagnostics.parsers.io.lines import SUFFIXES, begins_with, line_objects
from ptt.diagnostics.parsers.io.tool_calls import calls_of, malformed_call, numbered
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, attempt
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_label,
    as_name,
    as_plain_number,
    as_score,
    as_seconds,
    as_step,
    dict_of,
    dicts_in,
    first_name,
    nested,
    total,
    total_cost,
)

VERSION: Final = re.compile(r"ATIF-v1(?:\.\d+)?")
MARK: Final = re.compile(rb'"schema_version"\s*:\s*"ATIF-v')
ROLES: Final = {"system": "system", "user": "user", "agent": ASSISTANT}
UNREADABLE: Final = "Previous response had parsing errors:"
NO_STEPS: Final = "trajectory record(s) skipped: no steps of ATIF."
UNFIT: Final = "step(s) without log-probabilities: not one for each token."
MAIN, RESULT = "trajectory.json", "result.json"
MAX_RESULT: Final = 16 << 20  # bytes: it holds settings, times and scores
TIMEOUT: Final = "AgentTimeoutError"
MAX_NESTED: Final = 1000  # trajectories of sub-agents within one: far more than any agent starts


def recognises(file: RunFile) -> bool:
    """Recognise the version that a trajectory begins with."""
    name = file.name.lower()
    if name.endswith(SUFFIXES):
        return begins_with(file, _is_atif)
    head = file.readable_head if name.endswith(".json") else b""
    if head.lstrip()[:1] not in {b"{", b"["} or not MARK.search(head):
        return False
    found = document_head(head.decode("utf-8", "replace"), whole=file.size <= len(head))
    return _is_atif(found[0] if isinstance(found, list) and found else found)


def _is_atif(found: Any) -> bool:
    version = nested(found, "schema_version")
    return isinstance(version, str) and VERSION.fullmatch(version) is not None


def read(file: RunFile) -> Iterator[Piece]:
    """Yield each trajectory, and its sequences where its steps hold token ids and log-probabilities."""
    reader = _Reader(file)
    bad = 0
    for record in _records(file):
        if isinstance(record, Lost):
            yield record
            continue
        bad += not attempt(reader.add, record, reader.samples)
        yield from reader.sequences()
        if reader.samples.full:
            yield from reader.samples.take()
    yield from reader.rows.take()
    yield from reader.samples.close()
    yield from count_notes(file, {NO_STEPS: bad, UNFIT: reader.unfit}, lost=(NO_STEPS,))


def _records(file: RunFile) -> Iterator[Any]:
    if file.name.lower().endswith(SUFFIXES):
        yield from line_objects(file)
        return
    whole: dict[str, Any] = {}
    steps: list[Any] = []
    for member in members(file, frozenset({"steps"})):
        if isinstance(member, Lost):
            yield member
        elif member[0] == "steps":
            steps.append(member[1])
        elif member[0] == "":
            yield member[1]
        else:
            whole[member[0]] = member[1]
    if whole or steps:
        yield {**whole, "steps": steps}


class _Reader:
    """Turns trajectories into the tables."""

    def __init__(self, file: RunFile) -> None:
        self.samples, self.rows = Samples(file, PARSER.name), SequenceRows()
        self.unfit = 0
        self._step = step_in(file.rel)
        self._trial = _trial(file)
        self._calls: list[tuple[str, list[dict[str, Any]]]] = []

    def add(self, record: dict[str, Any], samples: Samples) -> bool:
        """Add a trajectory and those of its sub-agents."""
        if not isinstance(record.get("steps"), list):
            return False
        waiting, taken = [record], 0
        while waiting and taken < MAX_NESTED:
            one = waiting.pop()
            taken += 1
            self._add(one, samples, leads=taken == 1)
            waiting += dicts_in(one.get("subagent_trajectories"))
        return True

    def _add(self, record: dict[str, Any], samples: Samples, *, leads: bool) -> None:
        steps = samples.objects(record.get("steps"))
        told = [pair for step in steps for pair in _messages(step)]
        messages = [message for message, _ in told]
        calls = calls_of(messages)
        agent, sums = dict_of(record.get("agent")), dict_of(record.get("final_metrics"))
        metrics = [dict_of(step.get("metrics")) for step in steps]
        session = as_label(record.get("trajectory_id")) or as_label(record.get("session_id"))
        trial = self._trial if leads else {}
        samples.add(
            Sample(
                step=self._step,
                split="unknown",
                completion=messages,
                identity=[session, messages],
                prompt=opening(messages),
                reward=trial.get("reward"),
                components=trial.get("components", {}),
                calls=numbered([*calls, *_malformed(messages)]),
                timing=[timing for _, timing in told],
                tools=dicts_in(agent.get("tool_definitions")),
                columns={
                    "n_tool_calls": len(calls),
                    "sample_id": session,
                    **trial.get("columns", {}),
                    "model": first_name([agent.get("model_name"), *(step.get("model_name") for step in steps)]),
                    "tokens_in": _sum(sums.get("total_prompt_tokens"), metrics, "prompt_tokens"),
                    "tokens_out": _sum(sums.get("total_completion_tokens"), metrics, "completion_tokens"),
                    "cost_usd": _cost(sums.get("total_cost_usd"), metrics),
                },
            )
        )
        self._calls.append((samples.rows["trajectories"][-1]["trajectory_id"], metrics))

    def sequences(self) -> Iterator[Piece]:
        """Yield what the calls of the trajectories added last make as sequences of tokens."""
        for name, metrics in self._calls:
            sessions, joined = Sessions(), list[Joined]()
            for measured in metrics:
                tokens = token_array(measured.get("completion_token_ids"))
                if tokens is None or not len(tokens) or measured.get("logprobs") is None:
                    continue
                call = engine_call(token_array(measured.get("prompt_token_ids")), tokens, measured["logprobs"], None)
                self.unfit += call.logps is None
                if call.logps is not None:
                    joined += sessions.add("", call)
            for at, sequence in enumerate([*joined, *sessions.close()]):
                told = {"step": self._step, "trajectory_id": name, "sample_id": f"{name}#{at}"}
                yield from self.rows.add(joined_row(sequence, told))
        self._calls = []


def _trial(file: RunFile) -> dict[str, Any]:
    """Return what the trial's result says of its main trajectory, where Harbor's folders hold both."""
    path = file.path.parent.parent / RESULT
    if file.path.parent.name != "agent" or file.name != MAIN or path.is_symlink() or not path.is_file():
        return {}
    try:
        beside = RunFile(path=path, rel=RESULT, size=path.stat().st_size, budget=file.budget)
    except OSError:
        return {}
    found = whole_document(beside, MAX_RESULT, too_large="no result.", damaged="is no result.")
    if not isinstance(found, dict) or "trial_name" not in found:
        return {}
    scores = {name: as_score(value) for name, value in dict_of(nested(found, "verifier_result", "rewards")).items()}
    reward = scores.get("reward", next(iter(scores.values())) if len(scores) == 1 else None)
    error = as_name(nested(found, "exception_info", "exception_type"))
    return {
        "reward": reward,
        "components": {name: score for name, score in scores.items() if name != "reward"},
        "columns": {
            "task": as_label(found.get("task_name")),
            "env": as_label(found.get("source")),
            "success": as_success(reward),
            "truncated": True if error == TIMEOUT else None,
            "error_type": None if error == TIMEOUT else error,
            "stop_reason": error,
        },
    }


def _messages(step: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the messages of a step with their times: what was said, and what tools or the system gave back."""
    role = ROLES.get(as_name(step.get("source")) or "", "user")
    calls = dicts_in(step.get("tool_calls")) if role == ASSISTANT else []
    at = as_seconds(step.get("timestamp"))
    timing = {"n_tokens": as_count(nested(step, "metrics", "completion_tokens")), "t_end": at}
    if role == ASSISTANT:
        asked = [request(call.get("tool_call_id"), call.get("function_name"), call.get("arguments")) for call in calls]
        message = said(step.get("message"), asked, step.get("reasoning_content"))
    else:
        message = {"role": role, "content": step.get("message")}
    found = [(message, timing)]
    for given in dicts_in(nested(step, "observation", "results")):
        # A terminal answers all commands of a step at once, and names none of them.
        answers = as_name(given.get("source_call_id")) or (as_name(calls[-1].get("tool_call_id")) if calls else None)
        if given.get("content") is not None:
            content = given["content"]
            found.append((result(answers, content) if answers else {"role": "user", "content": content}, {}))
    return found


def _malformed(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield responses that Terminus 2 could not read (src/harbor/agents/terminus_2/terminus_2.py): calls never made."""
    for at, message in enumerate(messages):
        text = message.get("content")
        if message["role"] == "user" and isinstance(text, str) and text.startswith(UNREADABLE):
            yield malformed_call(at - 1, text)


def _sum(whole: Any, metrics: list[dict[str, Any]], name: str) -> int | None:
    found = as_step(whole)
    return found if found is not None and found >= 0 else total(measured.get(name) for measured in metrics)


def _cost(whole: Any, metrics: list[dict[str, Any]]) -> float | None:
    found = as_plain_number(whole)
    return total_cost(measured.get("cost_usd") for measured in metrics) if found is None else found


PARSER = Parser(
    name="atif",
    describes="Trajectories in ATIF, Harbor's format (v1.x): turns, tool calls, tokens, cost; rollout_logp.",
    held_against="real: Harbor's golden trajectories of OpenHands and Terminus 2, ATIF v1.5",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)

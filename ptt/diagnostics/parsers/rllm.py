"""rLLM: episodes saved one a file, and the traces of its model gateway in SQLite.

`episodes/episode_*.json` of `rllm eval`, with token ids: rllm-org/rllm, rllm/eval/episode_store.py, types.py,
agents/agent.py; `episodes/{train|val}_step_{S}_epoch_{E}/episode_*.json`, with texts alone:
rllm/utils/episode_logger.py.

The gateway keeps one call of the engine a row; sessions are joined to sequences. Tables `traces`, `trace_sessions`:
rllm-model-gateway/src/rllm_model_gateway/store/sqlite_store.py; the record: models.py; prompts stored as what they add
to an earlier call: token_chain.py; there too, data_process.py.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np

from ptt.diagnostics.parsers.io.calls import (
    RESPELT,
    UNFIT,
    Array,
    Joined,
    SequenceRows,
    Sessions,
    engine_call,
    joined_row,
    logp_array,
    messages_in,
    token_array,
)
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile, count_notes
from ptt.diagnostics.parsers.io.json_documents import whole_document
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.sqlite import DAMAGE, missing_notes, open_database, rows, tables_of, unreadable
from ptt.diagnostics.parsers.io.text_calls import chat_in
from ptt.diagnostics.parsers.io.tool_calls import calls_of
from ptt.diagnostics.parsers.io.trajectories import Samples, scores_of, spoken, turns_of
from ptt.diagnostics.parsers.io.values import (
    as_flag,
    as_hash,
    as_id,
    as_int64,
    as_json,
    as_name,
    as_number,
    dict_of,
    nested,
)

FILE_BYTES: Final = 256 << 20  # for one episode: a larger file is not one
NAME: Final = re.compile(r"^episode_(\d{6}_|hash[0-9a-f]{8}_id).*\.json$")
LOGGED: Final = re.compile(r"(?:^|/)(train|val)_step_(\d{1,12})_epoch_\d+/[^/]+$")
NO_OBJECT: Final = "trajectory record(s) skipped: not an object."
EPISODES_UNDATED: Final = "sequence(s) skipped: neither a training step nor a weights version."
UNFIT_STEPS: Final = "step(s) skipped: not one log-probability for each token."


def recognises_episodes(file: RunFile) -> bool:
    """Recognise an episode by name and by the first keys."""
    head = file.readable_head if NAME.match(file.name) else b""
    return head.lstrip()[:1] == b"{" and (b'"trajectories"' in head or b'"task"' in head)


def read_episodes(file: RunFile) -> Iterator[Piece]:
    """Yield the episode's trajectories, turns and tool calls, and sequences where it holds token ids."""
    episode = whole_document(
        file,
        FILE_BYTES,
        too_large=f"an episode of {file.size >> 20} MB was not read.",
        damaged="is cut or damaged: its episode is lost.",
    )
    if isinstance(episode, Lost):
        yield episode
    elif not isinstance(episode, dict) or "trajectories" not in episode:
        yield Lost(rows=1, bytes=file.size, note=f"{file.rel} contains no episode.")
    else:
        yield from _EpisodesReader(file, episode).pieces()
        yield Context(facts={"framework": "rllm"})


class _EpisodesReader:
    """Turns the trajectories of one episode into the tables."""

    def __init__(self, file: RunFile, episode: dict[str, Any]) -> None:
        self._file, self._episode = file, episode
        self._name = as_id(episode.get("episode_id")) or as_id(episode.get("id")) or file.name
        self._samples, self._rows = Samples(file, EPISODES.name), SequenceRows()
        self._counts = dict.fromkeys((NO_OBJECT, RESPELT, EPISODES_UNDATED, UNFIT_STEPS), 0)
        logged, self._step = LOGGED.search(file.rel), as_int64(episode.get("training_step"))
        if logged:
            self._split = "train" if logged[1] == "train" else "eval"
            self._step = int(logged[2]) if self._step is None else self._step
        else:
            self._split = "unknown" if "training_step" in episode else "eval"

    def pieces(self) -> Iterator[Piece]:
        """Yield the tables, and what could not be used."""
        trajectories = self._episode["trajectories"]
        for at, trajectory in enumerate(trajectories if isinstance(trajectories, list) else []):
            if isinstance(trajectory, dict):
                yield from self._add(f"{self._file.rel}:{at}", trajectory)
            else:
                self._counts[NO_OBJECT] += 1
        yield from self._rows.take()
        yield from self._samples.take()
        yield from count_notes(self._file, self._counts, lost=(NO_OBJECT,))

    def _add(self, uid: str, trajectory: dict[str, Any]) -> Iterator[Piece]:
        steps, signals = self._samples.objects(trajectory.get("steps")), dict_of(trajectory.get("signals"))
        versions = [version for step in steps if (version := as_int64(step.get("weight_version"))) is not None]
        # Each step repeats the conversation before it: the longest one, of equals the last, holds them all.
        chats = [messages_in(chat_in(step.get("chat_completions"))) for step in reversed(steps)]
        messages, _, _ = spoken(max(chats, key=len, default=[]))
        columns = {
            "sample_id": as_id(trajectory.get("uid")),
            "step": self._step,
            "split": self._split,
            "prompt_hash": as_hash(as_json(self._episode.get("task"))),
            "reward": as_number(trajectory.get("reward")),
            "n_turns": len(steps),
            "group_id": self._name.rpartition(":")[0] or None,
            "env": as_name(trajectory.get("name")),
            "policy_version": min(versions, default=None),
            "success": as_flag(self._episode.get("is_correct")),
            "stop_reason": as_name(self._episode.get("termination_reason")),
            "duration_s": as_number(dict_of(self._episode.get("metrics")).get("time/rollout")),
        }
        self._samples.put(
            uid,
            columns,
            turns=turns_of(messages, keep_text=self._file.keep_text),
            calls=calls_of(messages) if messages else None,
            rewards=scores_of({name: as_number(value) for name, value in signals.items()}),
        )
        shared = {name: columns[name] for name in ("step", "reward", "policy_version")} | {"trajectory_id": uid}
        if shared["step"] is None:
            shared["step"] = shared["policy_version"]
        for at, joined in enumerate(self._sequences(steps)):
            self._counts[EPISODES_UNDATED] += shared["step"] is None
            self._counts[RESPELT] += joined.retokenised
            advantage = _advantages(joined)
            yield from self._rows.add(joined_row(joined, {**shared, "sample_id": f"{uid}#{at}"}, advantage))

    def _sequences(self, steps: list[dict[str, Any]]) -> list[Joined]:
        sessions, sequences = Sessions(), list[Joined]()
        for step in steps:
            tokens = token_array(step.get("response_ids") or [])
            if tokens is not None and len(tokens):
                prompt = token_array(step.get("prompt_ids"))  # images have no token ids
                call = engine_call(prompt, tokens, step.get("logprobs"), step)
                self._counts[UNFIT_STEPS] += call.logps is None
                sequences += sessions.add("", call)
        return [*sequences, *sessions.close()]


def _advantages(joined: Joined) -> Array | None:
    """Lay the steps' advantages, one each or one a token, onto the tokens they sampled."""
    parts = []
    for step in joined.told:
        size, advantage = len(step["response_ids"]), step.get("advantage")
        single, listed = as_number(advantage), logp_array(advantage, size)
        if single is None and listed is None:
            return None
        parts.append(np.full(size, single, np.float32) if listed is None else listed)
    advantages = np.zeros(len(joined.model_mask), np.float32)
    advantages[joined.model_mask] = np.concatenate(parts)
    return advantages


EPISODES = Parser(
    name="rllm_episodes",
    describes="rLLM's episodes (evaluation store, episode log): trajectories, turns, tool calls; tokens if kept.",
    held_against="source: rllm-org/rllm `eval/episode_store.py`",
    priority=10,
    recognises=recognises_episodes,
    read=read_episodes,
)


STEPS: Final = ("training_step", "global_step", "step")
MAX_CONTEXTS: Final = 256  # in a session: those that a later call may continue
NEEDED: Final = {
    "traces": {"trace_id", "data", "created_at"},
    "trace_sessions": {"trace_id", "session_id", "created_at"},
}
ORDER: Final = "SELECT trace_id, session_id, created_at FROM trace_sessions"
ORDER_BY_RUN: Final = "SELECT trace_id, run_id || '/' || session_id, created_at FROM trace_sessions"
DATA: Final = "SELECT data FROM traces WHERE trace_id = ?"
UNREADABLE: Final = "call(s) skipped: unreadable, or without token ids."
ORPHANED: Final = "call(s) that continue a missing call; each is a sequence of its own."
GATEWAY_UNDATED: Final = "session(s) without a training step; the weights version is used instead."


def recognises_gateway(file: RunFile) -> bool:
    """Recognise a file by the tables and their columns."""
    tables = tables_of(file)
    return all(columns.issubset(tables.get(table, ())) for table, columns in NEEDED.items())


def read_gateway(file: RunFile) -> Iterator[Piece]:
    """Yield sequences, and a trajectory with its turns and tool calls for each session."""
    yield from missing_notes(file)
    try:
        with open_database(file.path, file.budget) as connection:
            reader = _GatewayReader(file)
            order = ORDER_BY_RUN if "run_id" in tables_of(file).get("trace_sessions", ()) else ORDER
            calls: list[tuple[str, float, int, str]] = []
            for row in rows(connection, file, order, held=True):
                if isinstance(row, Lost):
                    yield row
                elif isinstance(row[0], str) and isinstance(row[1], str) and isinstance(row[2], int | float):
                    calls.append((row[1], float(row[2]), len(calls), row[0]))
                else:
                    reader.counts[UNREADABLE] += 1
            for session, of_session in groupby(sorted(calls), key=itemgetter(0)):
                records = ((trace, _record(connection, file, trace)) for *_, trace in of_session)
                yield from reader.add(session, records)
            yield from reader.close()
    except DAMAGE as error:
        yield unreadable(file, error)
        return
    yield Context(facts={"framework": "rllm"})


def _record(connection: sqlite3.Connection, file: RunFile, trace: str) -> Any:
    cell = next(rows(connection, file, DATA, (trace,)), None)
    return None if cell is None or isinstance(cell, Lost) else parse_json(cell[0])


class _GatewayReader:
    """Turns the calls of sessions into the tables."""

    def __init__(self, file: RunFile) -> None:
        self.counts = dict.fromkeys((UNREADABLE, UNFIT, RESPELT, ORPHANED, GATEWAY_UNDATED), 0)
        self._file = file
        self._samples, self._rows = Samples(file, GATEWAY.name), SequenceRows()
        self._sequences = 0

    def add(self, session: str, records: Iterable[tuple[str, Any]]) -> Iterator[Piece]:
        """Add one session: its calls in their order, each with its trace's id."""
        sequences: list[Joined] = []
        sessions, contexts = Sessions(), dict[str, Array]()
        calls: list[dict[str, Any]] = []
        for trace, record in records:
            if not isinstance(record, dict):
                self.counts[UNREADABLE] += 1
                continue
            steps = (as_int64(nested(record, "metadata", key)) for key in STEPS)
            call = {
                "step": next((step for step in steps if step is not None), None),
                "version": as_int64(record.get("weight_version")),
                "messages": _messages(record),
                "stop": as_name(record.get("finish_reason")),
            }
            calls.append(call)
            tokens, prompt = token_array(record.get("completion_token_ids")), self._prompt(record, contexts)
            if tokens is None or prompt is None:
                self.counts[UNREADABLE] += 1
                continue
            contexts[trace] = np.concatenate([prompt, tokens])
            if len(contexts) > MAX_CONTEXTS:
                del contexts[next(iter(contexts))]
            if len(tokens):  # a failed call has none
                engine = engine_call(prompt, tokens, record.get("logprobs"), call)
                self.counts[UNFIT] += engine.logps is None
                sequences += sessions.add("", engine)
        sequences += sessions.close()
        if calls:
            yield from self._put(session, calls, sequences)

    def _prompt(self, record: dict[str, Any], contexts: dict[str, Array]) -> Array | None:
        """Return the whole prompt: as stored, or what it added to the call before."""
        added = record.get("prompt_delta_token_ids")
        if added is None:
            return token_array(record.get("prompt_token_ids"))
        delta, parent = token_array(added), record.get("parent_trace_id")
        if delta is None:
            return None
        before = contexts.get(parent) if isinstance(parent, str) else None
        if before is None:
            self.counts[ORPHANED] += 1
            return delta[:0]
        return np.concatenate([before, delta])

    def _put(self, session: str, calls: list[dict[str, Any]], sequences: list[Joined]) -> Iterator[Piece]:
        step, version = (
            next((call[name] for call in calls if call[name] is not None), None) for name in ("step", "version")
        )
        self.counts[GATEWAY_UNDATED] += step is None and version is not None
        step = version if step is None else step
        trajectory = f"{self._file.rel}:{session}"
        for joined in sequences:
            self._sequences += 1
            self.counts[RESPELT] += joined.retokenised
            columns = {
                "step": step,
                "sample_id": f"{session}#{self._sequences}",
                "group_id": session.rpartition(":")[0] or None,  # sessions are named {task}:{rollout}
                "trajectory_id": trajectory,
                "policy_version": min(
                    (call["version"] for call in joined.told if call["version"] is not None), default=None
                ),
                "tool_names": _tools(joined),
            }
            yield from self._rows.add(joined_row(joined, columns))
        messages: list[dict[str, Any]] = next((call["messages"] for call in reversed(calls) if call["messages"]), [])
        stop = calls[-1]["stop"]
        columns = {
            "step": step,
            "split": "unknown",
            "n_turns": len(calls),
            "policy_version": version,
            "stop_reason": stop,
            "truncated": None if stop is None else stop == "length",
        }
        turns = turns_of(messages, keep_text=self._file.keep_text)
        self._samples.put(trajectory, columns, turns=turns, calls=calls_of(messages) if messages else None)
        if self._samples.full:
            yield from self._samples.take()

    def close(self) -> Iterator[Piece]:
        """Yield the rest, and what could not be used."""
        yield from self._rows.take()
        yield from self._samples.take()
        yield from count_notes(self._file, self.counts, lost=(UNREADABLE,))


def _messages(record: dict[str, Any]) -> list[dict[str, Any]]:
    messages, answer = messages_in(record.get("messages")), record.get("response_message")
    if isinstance(answer, dict) and answer:
        messages += messages_in([{"role": "assistant", **answer}])
    return messages


def _tools(joined: Joined) -> list[str | None] | None:
    """Name the tool behind each observation: the first that the call before it asked for; None for other turns."""
    names: list[str | None] = []
    for call, grown in zip(joined.told, joined.grown, strict=False):
        requests = calls_of(call["messages"][-1:])
        names += [as_id(requests[0]["name"]) if requests else None] if grown else []
    return names if any(name is not None for name in names) else None


GATEWAY = Parser(
    name="rllm_gateway",
    describes="rLLM's gateway traces (SQLite): engine log-probabilities by session, turns, tool calls, weight version.",
    held_against="real: rllm-model-gateway 0.1.0",
    priority=10,
    recognises=recognises_gateway,
    read=read_gateway,
)

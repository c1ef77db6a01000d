"""Episodes that rLLM saves one a file: its evaluation store with token ids, its training log with texts alone.

`episodes/episode_*.json` of `rllm eval`: rllm-org/rllm, rllm/eval/episode_store.py, types.py, agents/agent.py;
`episodes/{train|val}_step_{S}_epoch_{E}/episode_*.json`: rllm/utils/episode_logger.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ptt.diagnostics.parsers.io.calls import (
    Array,
    Call,
    SequenceRows,
    Sessions,
    TokenRow,
    logp_array,
    messages_in,
    name_of,
    number,
    respelt,
    table_rows,
    token_array,
    whole,
)
from ptt.diagnostics.parsers.io.conversations import as_hash, as_json, as_name, calls_of, turns_of
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import well_formed

FILE_BYTES: Final = 256 << 20  # one episode; more is none
_NAME: Final = re.compile(r"^episode_(\d{6}_|hash[0-9a-f]{8}_id).*\.json$")
_LOGGED: Final = re.compile(r"(?:^|/)(train|val)_step_(\d{1,12})_epoch_\d+/[^/]+$")


def recognises(file: RunFile) -> bool:
    """Say yes by name and by the first keys."""
    if not _NAME.match(file.name):
        return False
    try:
        head = file.head
    except OSError:  # unreadable: nobody's
        return False
    return head.lstrip()[:1] == b"{" and (b'"trajectories"' in head or b'"task"' in head)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the episode's trajectories, turns and tool calls, and sequences where it holds token ids."""
    episode = _episode(file)
    if isinstance(episode, Lost):
        yield episode
        return
    logged = _LOGGED.search(file.rel)
    step = whole(episode.get("training_step")) if "training_step" in episode else None
    step = int(logged[2]) if step is None and logged else step
    split = (
        ("train" if logged[1] == "train" else "eval")
        if logged
        else ("unknown" if "training_step" in episode else "eval")
    )
    reader = _Reader(file, episode, step=step, split=split)
    trajectories = episode["trajectories"]
    for at, trajectory in enumerate(trajectories if isinstance(trajectories, list) else []):
        if isinstance(trajectory, dict):
            yield from reader.add(at, trajectory)
        else:
            reader.bad += 1
    yield from reader.close()
    yield Context(facts={"framework": "rllm"})


def _episode(file: RunFile) -> dict[str, Any] | Lost:
    if file.size > FILE_BYTES:
        return Lost(rows=1, bytes=file.size, note=f"{file.rel}: an episode of {file.size >> 20} MB was not read.")
    try:
        text = file.path.read_bytes().decode("utf-8", "replace")
        found = well_formed(json.loads(text), text)
    except OSError as error:
        return Lost(bytes=file.size, note=f"{file.rel} could not be read: {error.strerror}.")
    except (ValueError, RecursionError):  # cut, damaged, or nested deeper than any episode
        return Lost(rows=1, bytes=file.size, note=f"{file.rel} is cut or damaged: its episode is lost.")
    if not isinstance(found, dict) or "trajectories" not in found:
        return Lost(rows=1, bytes=file.size, note=f"{file.rel} holds no episode.")
    return found


class _Reader:
    """Turns the trajectories of one episode into the tables."""

    def __init__(self, file: RunFile, episode: dict[str, Any], *, step: int | None, split: str) -> None:
        self._file, self._step, self._split = file, step, split
        self._episode = episode
        self._name = name_of(episode.get("episode_id")) or name_of(episode.get("id")) or file.name
        self._rows = SequenceRows()
        self._tables: dict[str, list[dict[str, Any]]] = {
            "trajectories": [],
            "turns": [],
            "tool_calls": [],
            "rewards": [],
        }
        self._unfit = self._stepless = self._respelt = 0
        self.bad = 0

    def add(self, at: int, trajectory: dict[str, Any]) -> Iterator[Piece]:
        listed = trajectory.get("steps")
        steps = [step for step in listed if isinstance(step, dict)] if isinstance(listed, list) else []
        uid = f"{self._file.rel}:{at}"
        reward = number(trajectory.get("reward"))
        versions = [version for step in steps if (version := whole(step.get("weight_version"))) is not None]
        messages = _messages(steps)
        calls = calls_of(messages)
        correct, stop = self._episode.get("is_correct"), as_name(self._episode.get("termination_reason"))
        key = {"trajectory_id": uid}
        self._tables["trajectories"].append(
            {
                **key,
                "sample_id": name_of(trajectory.get("uid")),
                "step": self._step,
                "split": self._split,
                "prompt_hash": as_hash(as_json(self._episode.get("task"))),
                "reward": reward,
                "n_turns": len(steps),
                "n_tool_calls": len(calls) if messages else None,
                "n_tool_fail": sum(call["ok"] is False for call in calls) if messages else None,
                "group_id": self._name.rpartition(":")[0] or None,
                "env": as_name(trajectory.get("name")),
                "policy_version": min(versions) if versions else None,
                "success": correct if isinstance(correct, bool) else None,
                "stop_reason": stop,
                "source": self._file.rel,
            }
        )
        self._tables["turns"] += [{**key, **turn} for turn in turns_of(messages, keep_text=self._file.keep_text)]
        self._tables["tool_calls"] += [{**key, "step": self._step, **call} for call in calls]
        signals = trajectory.get("signals")
        for name, value in (signals if isinstance(signals, dict) else {}).items():
            self._tables["rewards"].append({**key, "name": name, "score": number(value)})
        yield from self._sequences(uid, steps, reward, versions)

    def _sequences(
        self, uid: str, steps: list[dict[str, Any]], reward: float | None, versions: list[int]
    ) -> Iterator[Piece]:
        sessions = Sessions()
        found = []
        for step in steps:
            tokens = token_array(step.get("response_ids") or [])
            if tokens is None or not len(tokens):
                continue
            logps = logp_array(step.get("logprobs"), len(tokens))
            self._unfit += logps is None
            prompt = token_array(step.get("prompt_ids"))  # of images there are no ids
            call = Call(prompt=tokens[:0] if prompt is None else prompt, completion=tokens, logps=logps, told=step)
            found += list(sessions.add("", call))
        found += list(sessions.close())
        when = self._step if self._step is not None else min(versions, default=None)
        self._stepless += len(found) if when is None else 0
        for at, joined in enumerate(found):
            self._respelt += joined.retokenised
            yield from self._rows.add(
                TokenRow(
                    token_ids=joined.token_ids,
                    model_mask=joined.model_mask,
                    rollout_logp=joined.rollout_logp,
                    advantage=_advantages(
                        [(len(step["response_ids"]), step.get("advantage")) for step in joined.told], joined.model_mask
                    ),
                    told={
                        "step": when,
                        "sample_id": f"{uid}#{at}",
                        "trajectory_id": uid,
                        "reward": reward,
                        "policy_version": min(versions, default=None),
                    },
                )
            )

    def close(self) -> Iterator[Piece]:
        """Yield the tables, and what could not be used."""
        yield from self._rows.take()
        for table, found in self._tables.items():
            yield from table_rows(table, found)
        rel = self._file.rel
        if self.bad:
            yield Lost(rows=self.bad, note=f"{rel}: {self.bad} trajectory(ies) are no objects.")
        yield from respelt(rel, self._respelt)
        if self._stepless:
            yield Lost(note=f"{rel}: {self._stepless} sequence(s) name no training step and no version of the weights.")
        if self._unfit:
            yield Lost(note=f"{rel}: {self._unfit} step(s) hold no log-probability for each of their tokens.")


def _messages(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take the longest conversation: each step repeats the ones before it."""
    longest: list[dict[str, Any]] = []
    for step in steps:
        messages = messages_in(step.get("chat_completions"))
        longest = messages if len(messages) >= len(longest) else longest
    return longest


def _advantages(parts: list[tuple[int, Any]], mask: Array) -> Array | None:
    """Lay the steps' advantages, one each or one a token, onto the tokens they sampled."""
    laid = []
    for size, found in parts:
        single = number(found)
        listed = logp_array(found, size)
        if single is None and listed is None:
            return None
        laid.append(np.full(size, single, np.float32) if listed is None else listed)
    advantages = np.zeros(len(mask), np.float32)
    advantages[mask] = np.concatenate(laid)
    return advantages


PARSER = Parser(
    name="rllm_episodes",
    describes="rLLM's episodes (evaluation store, episode log): trajectories, turns, tool calls; tokens if kept.",
    priority=10,
    recognises=recognises,
    read=read,
)

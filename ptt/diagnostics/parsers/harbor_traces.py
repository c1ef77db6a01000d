"""Traces that Harbor exports as rows for training: one an episode of a trial, with task, agent, model and result.

Source: laude-institute/harbor src/harbor/utils/traces_utils.py (`export_traces`: conversations, agent, model,
model_provider, date, task, episode, run_id, trial_name, result, tool_definitions, on request instruction and
verifier_output; `result` is the reward spelt as a text, or the name of the exception that ended the trial). Read in
sachiny0106/Xelron tests/golden/openhands/hello-world.traces.json (6cb22d1). Calls stand in the texts, as the agent
wrote them, and are not counted. An episode begins as the one before it ended, so that rows of a trial overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.answer_texts import as_success
from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.message_shapes import common_messages
from ptt.diagnostics.parsers.io.record_files import holds, records, splits
from ptt.diagnostics.parsers.io.record_labels import tools_of
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_samples
from ptt.diagnostics.parsers.io.values import as_label, as_number

KEYS: Final = frozenset({"conversations", "agent", "model", "episode"})
NAMES: Final = frozenset({"trial_name", "run_id"})
NO_CHAT: Final = "row(s) skipped: no conversation."


def recognises(file: RunFile) -> bool:
    """Recognise rows by their keys."""
    return holds(file, _is_row)


def _is_row(found: Any) -> bool:
    return isinstance(found, dict) and found.keys() >= KEYS and not NAMES.isdisjoint(found)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a row."""
    yield from read_samples(Samples(file, PARSER.name), records(file, _is_row), _add, NO_CHAT)


def _add(row: dict[str, Any], samples: Samples) -> bool:
    if not isinstance(row.get("conversations"), list):
        return False
    messages = common_messages(samples.objects(row["conversations"]))
    task, trial, episode = (as_label(row.get(key)) for key in ("task", "trial_name", "episode"))
    reward, error = _result(row.get("result"))
    samples.add(
        Sample(
            step=None,
            split="eval",
            completion=messages,
            identity=[as_label(row.get("run_id")), trial, episode, messages],
            prompt=row.get("instruction") or task or messages[:1],
            reward=reward,
            tools=tools_of([row]),
            columns={
                "sample_id": "/".join(name for name in (trial, episode) if name) or None,
                "task": task,
                "model": as_label(row.get("model")),
                "success": as_success(reward),
                "error_type": error,
            },
        )
    )
    return True


def _result(found: Any) -> tuple[float | None, str | None]:
    """Return the reward, or the name of the exception."""
    if isinstance(found, str):
        try:
            return float(found), None
        except ValueError:
            return None, found or None
    return as_number(found), None


PARSER = Parser(
    name="harbor_traces",
    describes="Traces that Harbor exports as rows: trajectories by task and trial, turns, results.",
    held_against="real: Harbor's export of an OpenHands trial",
    priority=80,
    of_training=False,
    splits=splits,
    recognises=recognises,
    read=read,
)

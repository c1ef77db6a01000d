"""Sampled completions that ms-swift logs: one object a log call, one list a column.

Source: modelscope/ms-swift swift/rlhf_trainers/grpo_trainer.py (`log_completions`) and
swift/megatron/trainers/grpo_trainer.py (with `gen_step`): `completions.jsonl` with step (as text), prompt, completion,
one column a reward function, advantages and entropy. The buffer behind it is not emptied, so that a log call repeats
the samples of the one before until new ones are generated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import begins_with
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, messages_of, read_lines, rows_of_columns
from ptt.diagnostics.parsers.io.values import as_hash, as_json, as_score, as_step

STEPS: Final = ("step", "gen_step")  # its Megatron trainer counts generations
KEYS: Final = ("prompt", "completion")
OTHER: Final = frozenset({*STEPS, *KEYS, "advantages", "entropy", "image", "images", "request_id", "trajectory_id"})


def recognises(file: RunFile) -> bool:
    """Recognise objects whose step, prompt and completion are lists."""
    return begins_with(file, lambda row: _is_call(row) or _is_sample(row))


def _is_call(row: dict[str, Any]) -> bool:
    return all(isinstance(row.get(key), list) for key in (*KEYS, _step_key(row)))


def _is_sample(row: dict[str, Any]) -> bool:
    """Return whether a row is one sample of such a log, written out again: by its `advantages`, or a step in text."""
    step = row.get("step")
    known = isinstance(step, str) or (isinstance(step, int) and "advantages" in row)
    return known and all(isinstance(row.get(key), str) for key in KEYS)


def _step_key(row: dict[str, Any]) -> str:
    return STEPS[0] if STEPS[0] in row else STEPS[1]


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a sample, repeats of an earlier log call left out."""
    yield from read_lines(file, PARSER.name, _Calls().add, {"framework": "ms-swift"})


@dataclass
class _Calls:
    """What earlier log calls held, each sample with how often."""

    seen: dict[int, int] = field(default_factory=dict)

    def add(self, record: dict[str, Any], samples: Samples) -> bool:
        rows, uneven = ([record], list[str]()) if _is_sample(record) else rows_of_columns(record, "completion")
        sound = bool(rows) and not uneven
        here: dict[int, int] = {}
        for row in rows:
            sample = _sample(row)
            if sample is None:
                sound = False
                continue
            mark = as_hash(as_json(sample.identity))
            here[mark] = here.get(mark, 0) + 1
            if here[mark] > self.seen.get(mark, 0):
                samples.add(sample)
        self.seen |= {mark: max(times, self.seen.get(mark, 0)) for mark, times in here.items()}
        return sound


def _sample(row: dict[str, Any]) -> Sample | None:
    step, completion = as_step(row.get("step", row.get("gen_step"))), row["completion"]
    messages = completion if isinstance(completion, str) else messages_of(completion)
    if step is None or messages is None:
        return None
    scores = {name: as_score(value) for name, value in row.items() if name not in OTHER}
    components = {name: score for name, score in scores.items() if score is not None or row[name] is None}
    given = [score for score in components.values() if score is not None]
    advantage = as_score(row.get("advantages"))
    return Sample(
        step=step,
        split="unknown",  # evaluation writes into the same file
        completion=messages,
        identity=[step, row.get("prompt"), completion, components, advantage],
        prompt=row.get("prompt"),
        reward=sum(given) if given else None,  # the trainer's own total if no weights were set
        components=components,
        asked=row.get("prompt"),
        columns={"advantage": advantage},
    )


PARSER = Parser(
    name="swift_completions",
    describes="ms-swift's completions.jsonl: trajectories, rewards by function, advantages.",
    held_against="source: modelscope/ms-swift `grpo_trainer.py`",
    priority=10,
    of_training=False,
    recognises=recognises,
    read=read,
)

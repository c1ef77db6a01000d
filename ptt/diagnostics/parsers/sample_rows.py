"""Samples that a trainer or a script dumps, a row each, with or without their texts: reward, task, tokens, answer.

The step stands in the row or in the file's name. Rows of one rollout's turns make one episode.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.episode_ledger import ERRORS, MASKS, TURNS, count_in
from ptt.diagnostics.parsers.io.answer_texts import is_right
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import first_objects
from ptt.diagnostics.parsers.io.record_labels import dumped_at, labels_of, reward_of, split_of
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, objects, read_samples
from ptt.diagnostics.parsers.io.values import as_error, as_flag, as_label, as_name, as_number, as_score, digest, nested

SAID: Final = ("response", "completion", "output", "generation", "answer_text")
ASKED: Final = ("prompt", "question", "problem", "input", "instruction", "query")
EXPECTED: Final = ("ground_truth", "gts", "expected_answer", "reference_answer", "gold_answer")
EXTRACTED: Final = ("extracted_answer", "extracted", "predicted_answer", "prediction", "pred")
TASKS: Final = ("task_index", "prompt_index", "prompt_idx")
NUMBERED: Final = ("sample_index", "index", "idx")  # which sample of its step a row is
LOOKED_AT: Final = 64  # rows without texts: more than a step has benchmarks
ROLLOUTS: Final = ("rollout_id", "trajectory_id", "episode_id", "traj_uid")
SAMPLES: Final = ("sample_index", "sample_idx", "sample_id", "uid")
"""Which sample it is of several that have a rollout's name, as where that is the step."""
MAX_HELD: Final = 10_000  # episodes of a step whose turns may alternate; the one that waited longest ends first
TURN_NUMBERS: Final = ("turn", "turn_idx", "turn_index", "turn_id")
PARTS: Final = re.compile(
    r"(?!(?:.*_)?(?:mean|avg|average|max|min|std|baseline)_)"
    r"(?:rewards?/.+|(?:.+_)?(?:reward|score)(?:_func)?|acc|accuracy|correct|format)"
)
"""Names of the parts of a sample's reward, and not of statistics over its group."""
NO_SAMPLE: Final = "row(s) skipped: no sample with a step, and a reward, tokens or a text."


def recognises(file: RunFile) -> bool:
    """Recognise rows with prompt, text and reward; without these, several of one step, or one that stands alone."""
    rows = first_objects(file)
    steps = Counter(dumped_at(file, row) for row in rows)
    if not rows or None in steps:
        return False
    several = max(steps.values()) > 1
    rewarded = all(_score(row)[0] is not None for row in rows)
    if all(_text(row, SAID) is not None and _text(row, ASKED) is not None for row in rows):
        return rewarded or several
    return rewarded and (several or len(rows) == 1) and _are_named(file, rows)


def _are_named(file: RunFile, rows: list[dict[str, Any]]) -> bool:
    """Return whether rows name their samples, or tasks that are no benchmarks: those give one score at each step."""
    if all(labels_of(row).columns["sample_id"] is not None or row.keys() & {*NUMBERED} for row in rows):
        return True
    if any(_task(row) is None for row in rows):
        return False
    seen = Counter((dumped_at(file, row), _task(row)) for row in first_objects(file, LOOKED_AT))
    steps, tasks = {step for step, _ in seen}, {task for _, task in seen}
    return max(seen.values()) > 1 or (len(steps) > 1 and len(tasks) == len(seen))


def _task(row: dict[str, Any]) -> str | None:
    named = labels_of(row).columns
    return named["task"] or named["group_id"] or _label(row, TASKS)


def _text(row: dict[str, Any], names: Iterable[str]) -> str | None:
    return next((found for name in names if isinstance(found := row.get(name), str)), None)


def _score(row: dict[str, Any]) -> tuple[float | None, dict[str, float]]:
    """Return the reward of a sample and its parts; beside a text the parts may stand for it."""
    own = reward_of(row)
    if own is not None or _text(row, SAID) is None:
        return own, {}
    parts = {
        name: value for name, found in row.items() if PARTS.fullmatch(name) and (value := as_score(found)) is not None
    }
    return (sum(parts.values()) if parts else None), parts


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a sample, or a rollout where the rows are its turns."""
    yield from read_samples(Samples(file, PARSER.name), _joined(file, objects(file)), _add_sample, NO_SAMPLE)


def _joined(file: RunFile, rows: Iterable[dict[str, Any] | Lost]) -> Iterator[dict[str, Any] | Lost]:
    """Put the rows of one episode's turns together, also where those of several alternate.

    It is one rollout, and one sample of it, at one step, and ends where its turn's number does not grow. It has the
    last turn's reward, and all tokens.
    """
    held: dict[tuple[str | None, ...], dict[str, Any]] = {}
    at: int | None = None
    for row in rows:
        is_turn = isinstance(row, dict) and row.keys() & {*TURN_NUMBERS}
        if not isinstance(row, dict) or not is_turn or (name := _label(row, ROLLOUTS)) is None:
            yield row
            continue
        if (step := dumped_at(file, row)) != at:
            yield from held.values()
            held, at = {}, step
        before = held.pop(key := (name, _label(row, SAMPLES)), {})
        turn = count_in(row, TURN_NUMBERS)
        if before and turn is not None and turn <= (count_in(before, TURN_NUMBERS) or 0):
            yield before
            before = {}
        held[key] = {**before, **row, "n_turns": before.get("n_turns", 0) + 1}
        tokens = [labels_of(one).columns["tokens_out"] for one in (before, row)]
        if before and any(tokens):
            held[key]["completion_tokens"] = sum(count or 0 for count in tokens)  # the name that is read first
        if len(held) > MAX_HELD:
            yield held.pop(next(iter(held)))
    yield from held.values()


def _label(row: dict[str, Any], names: Iterable[str]) -> str | None:
    return next((name for key in names if (name := as_label(row.get(key))) is not None), None)


def _add_sample(row: dict[str, Any], samples: Samples) -> bool:
    step, (reward, parts) = dumped_at(samples.file, row), _score(row)
    named, said = labels_of(row).columns, _text(row, SAID)
    if step is None or (reward is None and said is None and named["tokens_out"] is None):
        return False
    task = named["task"] or _label(row, TASKS)
    asked, expected = _text(row, ASKED), next((row[k] for k in EXPECTED if k in row), None)
    columns = {
        **{label: found for label, found in named.items() if found is not None},
        "group_id": named["group_id"] or task,
        "task": task,
        "env": as_name(nested(row, "agent_ref", "name")) or named["env"],
        "advantage": as_number(row.get("advantage")),
        "error_type": next((name for key in ERRORS if (name := as_error(row.get(key)))), None),
        "masked": next((flag for key in MASKS if (flag := as_flag(row.get(key))) is not None), None),
    }
    turns = count_in(row, ("n_turns", *TURNS))
    columns |= {} if turns is None else {"n_turns": turns}
    split, identity = split_of(samples.file, row), [step, named["sample_id"], task, asked, said, reward]
    if said is None:
        given = as_label(row.get(next((key for key in EXTRACTED if row.get(key)), "")))
        right = None if expected is None or given is None else is_right(f"\\boxed{{{given}}}", expected)
        samples.put(
            samples.new_id(digest([PARSER.name, *identity])),
            {**columns, "step": step, "split": split, "reward": reward, "answer_right": right},
        )
        return True
    samples.add(
        Sample(
            step=step,
            split=split,
            completion=said,
            identity=identity,
            prompt=asked,
            reward=reward,
            components=parts,
            asked=asked,
            columns=columns,
            expected=expected,
        )
    )
    return True


PARSER = Parser(
    name="sample_rows",
    describes="Samples that a trainer or a script dumps, a row each: step (or in the file's name), reward, task, text.",
    held_against="source: alibaba/ROLL, NVIDIA-NeMo/RL and huggingface/trl, whose dumps have such rows",
    priority=95,
    general=True,
    of_training=False,
    recognises=recognises,
    read=read,
)

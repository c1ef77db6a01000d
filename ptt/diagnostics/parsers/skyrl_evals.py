"""Evaluations that SkyRL dumps: samples by data source, and the figures it worked out over them.

Source: NovaSky-AI/SkyRL skyrl/train/utils/trainer_utils.py (`dump_per_dataset_eval_results`):
`dumped_evals/{eval_only|global_step_N_evals}/{data_source}.jsonl` and `aggregated_results.jsonl`. The score is a
number, or a list of one reward a token whose sum it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile, any_line
from ptt.diagnostics.parsers.io.lines import begins_with, first_objects
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_lines
from ptt.diagnostics.parsers.io.values import as_label, as_score, nested

KEYS: Final = frozenset({"input_prompt", "output_response", "score"})
STEP: Final = re.compile(r"(?:^|/)global_step_(\d{1,18})_evals?/")
FIGURE: Final = re.compile(r"eval/(?P<suite>.+)/(?P<metric>[^/]+)")
AGGREGATED: Final = "aggregated_results.jsonl"


def recognises(file: RunFile) -> bool:
    """Recognise dumped samples by their keys, and the file of figures by its name and keys."""
    if file.name.startswith(AGGREGATED):
        return any(FIGURE.fullmatch(name) for row in first_objects(file) for name in row)
    return begins_with(file, lambda row: row.keys() >= KEYS)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a sample and the mean score, or the figures of the whole evaluation."""
    add = _add_figures if file.name.startswith(AGGREGATED) else _add
    yield from read_lines(file, PARSER.name, add, {"framework": "skyrl"})


def _step(samples: Samples) -> int | None:
    match = STEP.search(samples.file.rel)
    return int(match[1]) if match else None


def _add_figures(record: dict[str, Any], samples: Samples) -> bool:
    step = _step(samples)
    for name, kept in record.items():
        figure, value = FIGURE.fullmatch(name), as_score(kept)
        if figure and value is not None:
            samples.evaluated(suite=figure["suite"], step=step, metric=figure["metric"], value=value)
    return any(FIGURE.fullmatch(name) for name in record)


def _add(record: dict[str, Any], samples: Samples) -> bool:
    output, step = record.get("output_response"), _step(samples)
    if not isinstance(output, str):
        return False
    score = _score(record.get("score"))
    suite = as_label(record.get("data_source")) or "unknown"
    stop = as_label(record.get("stop_reason"))
    samples.add(
        Sample(
            step=step,
            split="eval",
            completion=output,
            identity=[step, suite, record.get("input_prompt"), output, score],
            prompt=record.get("input_prompt"),
            reward=score,
            asked=record.get("input_prompt"),
            expected=nested(record, "env_extras", "reward_spec", "ground_truth"),
            columns={
                "env": as_label(record.get("env_class")) or as_label(record.get("data_source")),
                "stop_reason": stop,
                "truncated": None if stop is None else stop == "length",
            },
        )
    )
    samples.mean(suite, step, "score", score)
    return True


def _score(score: Any) -> float | None:
    if not isinstance(score, list):
        return as_score(score)
    values = [as_score(value) for value in score]
    given = [value for value in values if value is not None]
    return sum(given) if given and len(given) == len(values) else None


PARSER = Parser(
    name="skyrl_evals",
    describes="SkyRL's dumped_evals: trajectories of the evaluation, and evaluations by data source.",
    held_against="source: NovaSky-AI/SkyRL `train/utils/trainer_utils.py`",
    priority=10,
    of_training=False,
    splits=any_line,
    recognises=recognises,
    read=read,
)

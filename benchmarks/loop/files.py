"""Writes a made run as its framework would: trainer_state.json and completions, or JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from benchmarks.loop.made import Made, Sample
from benchmarks.loop.names import DIALECTS, EVALUATED
from benchmarks.loop.noise import FloatArray

Row = dict[str, Any]
_CALL = pl.Struct(
    {
        "type": pl.String,
        "function": pl.Struct(
            {"name": pl.String, "arguments": pl.Struct({"key": pl.String, "a": pl.Int64, "b": pl.Int64})}
        ),
    }
)
COMPLETIONS: Final[dict[str, Any]] = {
    "step": pl.Int64,
    "prompt": pl.List(pl.Struct({"role": pl.String, "content": pl.String})),
    "completion": pl.List(
        pl.Struct({"role": pl.String, "content": pl.String, "tool_calls": pl.List(_CALL), "name": pl.String})
    ),
    "correct_reward": pl.Float64,
    "format_reward": pl.Float64,
    "advantage": pl.Float64,
}


def write(made: Made, folder: Path) -> Path:
    """Write the run into a folder and give it back."""
    folder.mkdir(parents=True, exist_ok=True)
    if made.dialect.startswith("trl"):
        _trainer_state(made, folder)
    else:
        _json_lines(made, folder)
    if made.samples:
        _completions(made.samples, folder)
    if made.lines:
        (folder / "train.log").write_text("\n".join(made.lines) + "\n", encoding="utf-8")
    return folder


def named(made: Made) -> dict[str, FloatArray]:
    """Give the training curves under the names they are written with; what the framework does not log is left out."""
    names = DIALECTS[made.dialect]
    return {names[name]: values for name, values in made.train.items() if name in names} | made.extra


def evaluated(made: Made) -> dict[str, FloatArray]:
    """Give the evaluations likewise."""
    names = EVALUATED[made.dialect]
    return {names[name]: values for name, values in made.evals.values.items() if name in names} | made.extra_evals


def _trainer_state(made: Made, folder: Path) -> None:
    history = [{"epoch": round(step / 1000, 4), **row, "step": step} for step, row in _rows(made.steps, named(made))]
    history += [{"epoch": round(step / 1000, 4), **row, "step": step}
                for step, row in _rows(made.evals.steps, evaluated(made))]  # fmt: skip
    history.sort(key=lambda row: row["step"])
    last = int(made.steps[-1])
    if last >= made.planned:
        closing = {"epoch": round(last / 1000, 4), "step": last, "train_loss": 0.1, "train_runtime": 100.0,
                   "total_flos": 0.0, "train_samples_per_second": 1.0, "train_steps_per_second": 1.0}  # fmt: skip
        history.append(closing)
    state = {
        "epoch": round(last / 1000, 4),
        "global_step": last,
        "log_history": history,
        "logging_steps": int(made.steps[0]),
        "max_steps": made.planned,
        "save_steps": 500,
    }
    (folder / "trainer_state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")


def _rows(steps: Any, values: Mapping[str, FloatArray]) -> Iterator[tuple[int, Row]]:
    for place, step in enumerate(steps):
        row = {name: _number(column[place]) for name, column in values.items() if not _absent(column[place])}
        if row:
            yield int(step), row


def _absent(value: float) -> bool:
    return math.isnan(value)


def _number(value: float) -> float | None:
    """Give what JSON holds: Hugging Face writes null for a metric that is all NaN, which is LOST here."""
    return None if value == LOST else float(value)


LOST = float("inf")
"""Stands in a made run's rows for a value that was NaN; a NaN there means that the row lacks the name."""


def _json_lines(made: Made, folder: Path) -> None:
    """One object a step; a resumed run repeats steps, slightly off."""
    found = dict(_rows(made.steps, named(made)))
    for step, row in _rows(made.evals.steps, evaluated(made)):
        found.setdefault(step, {}).update(row)
    lines = [_line(made, step, row) for step, row in sorted(found.items())]
    if made.restart is not None:
        killed, resumed = made.restart
        again = [_line(made, step, {name: value if value is None else value * 1.01 for name, value in row.items()})
                 for step, row in sorted(found.items()) if resumed < step <= killed]  # fmt: skip
        place = sum(step <= killed for step in found)
        lines = [*lines[:place], *again, *lines[place:]]
    name = "metrics.jsonl" if made.dialect == "prime" else "experiment.jsonl"
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _line(made: Made, step: int, row: Row) -> str:
    told = {name: math.nan if value is None else value for name, value in row.items()}
    if made.dialect == "verl":
        return json.dumps({"step": step, "data": told | {"training/global_step": step}})
    return json.dumps({"step": step, "time": 1.7e9 + 30.0 * step} | told)


def _completions(samples: list[Sample], folder: Path) -> None:
    (folder / "completions").mkdir()
    for step, found in groupby(samples, key=lambda sample: sample.step):
        rows = [
            {
                "step": step,
                "prompt": [{"role": "user", "content": sample.prompt}],
                "completion": [dict(message) for message in sample.messages],
                "correct_reward": sample.correct,
                "format_reward": sample.form,
                "advantage": sample.advantage,
            }
            for sample in found
        ]
        pl.DataFrame(rows, schema=COMPLETIONS).write_parquet(folder / "completions" / f"completions_{step:05d}.parquet")


def lost(values: FloatArray, late: FloatArray) -> FloatArray:
    """Give the curve with every value from a step on lost to NaN."""
    return np.where(late > 0, LOST, values)

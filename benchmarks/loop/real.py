"""A real run whose files lie in this repository, as a run that faults can be put into."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.loop.made import Evals, Made
from benchmarks.loop.names import EVALUATED, TRL_GRPO
from benchmarks.loop.noise import FloatArray

REAL: Final = "real grpo-tools"
STATE: Final = Path(__file__).parents[2] / "sample_logs" / "healthy" / "trainer_state.json"
FITS: Final = (
    "tool-failures", "reward-fell", "refusals-rise", "repetition-rise", "slice-degradation", "truncated-share",
    "empty-responses", "kl-over-target", "one-sided-clipping", "policy-drift", "entropy-explosion",
    "length-collapse", "stale-rollouts", "metrics-lost", "nan-precursors", "gradient-spikes", "gradient-vanished",
    "frozen-loss", "loss-scale-drops", "throughput-drop", "stragglers", "run-cut-short", "learning-rate-jump",
    "learning-rate-zero",
)  # fmt: skip
"""The faults it can have: it logs the curves they show in, and is no longer learning when they come."""


@cache
def real() -> Made:
    """Read the run's log history; copy it before it is changed."""
    state = json.loads(STATE.read_text(encoding="utf-8"))
    history: list[dict[str, Any]] = state["log_history"]
    rows = [row for row in history if "loss" in row]
    evals = [row for row in history if any(name.startswith("eval_") for name in row)]
    known = {raw: name for name, raw in TRL_GRPO.items()}
    other = {name for row in rows for name in row} - known.keys() - {"step", "epoch"}
    of_evals = {raw: name for name, raw in EVALUATED["trl"].items()}
    return Made(
        algorithm=REAL,
        dialect="trl",
        seed=0,
        steps=np.array([row["step"] for row in rows], dtype=np.int64),
        train={name: column(rows, raw) for raw, name in known.items() if any(raw in row for row in rows)},
        evals=Evals(
            steps=np.array([row["step"] for row in evals], dtype=np.int64),
            values={name: column(evals, raw) for raw, name in of_evals.items()},
        ),
        extra={name: column(rows, name) for name in sorted(other)},
        planned=int(state["max_steps"]),
    )


def column(rows: list[dict[str, Any]], name: str) -> FloatArray:
    """Give one name of all rows; NaN where a row lacks it."""
    return np.array([np.nan if row.get(name) is None else row[name] for row in rows], dtype=np.float64)

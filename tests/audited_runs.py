"""Made runs with every column that a trainer's scalars are computed from, and those scalars by plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from builders import write_recorder_run

from ptt import Diagnosis, diagnose
from ptt.diagnostics.model import AuditRow

STEPS, GROUPS, GROUP = 14, 2, 4
ROWS = GROUPS * GROUP
CLIP = 0.2
Row = Mapping[str, Any]
Token = Callable[[Row, int], float]


def rows_of(step: int, generator: np.random.Generator) -> list[dict[str, Any]]:
    """Make the rows of one step: answers of uneven length, half of them with tool output inside."""
    rows = []
    for number in range(ROWS):
        head, tail = int(generator.integers(4, 12)), int(generator.integers(3, 14))
        gap = 5 if number % 2 else 0
        mask = [True] * head + [False] * gap + [True] * tail * (gap > 0)
        count = len(mask)
        old = -generator.exponential(0.7, count) - 0.05
        own = np.array(mask)
        policy = np.minimum(old + 0.12 * generator.normal(size=count), -1e-3)
        rows.append(
            {
                "seq": 0,
                "step": step,
                "sample_id": f"{step}-{number}",
                "group_id": f"{step}-{number // GROUP}",
                "reward": float(generator.integers(0, 5)) / 4,
                "advantage": float(np.round(generator.normal(), 3)),
                "token_ids": [1 + number] * (count - 1) + [0],
                "model_mask": mask,
                "policy_logp": policy,
                "old_logp": old,
                "rollout_logp": np.where(own, np.minimum(old + 0.03 * generator.normal(size=count), -1e-3), 0.0),
                "ref_logp": np.where(own, policy + 0.4 * generator.normal(size=count) - 0.2, policy - 3.0),
                "entropy": np.where(own, 0.2 + generator.random(count), 4.0),
            }
        )
    return rows


def run_rows(*, seed: int = 0, steps: int = STEPS) -> list[list[dict[str, Any]]]:
    """Make the rows of all steps."""
    generator = np.random.default_rng(seed)
    return [rows_of(step, generator) for step in range(1, steps + 1)]


def positions(row: Row) -> list[int]:
    return [at for at, own in enumerate(row["model_mask"]) if own]


def k3(row: Row, at: int) -> float:
    r = float(row["ref_logp"][at] - row["policy_logp"][at])
    return math.exp(r) - r - 1


def entropy(row: Row, at: int) -> float:
    return float(row["entropy"][at])


def gap(row: Row, at: int) -> float:
    return abs(float(row["old_logp"][at] - row["rollout_logp"][at]))


def ratio(row: Row, at: int) -> float:
    return math.exp(float(row["old_logp"][at] - row["rollout_logp"][at]))


def clipped(row: Row, at: int) -> float:
    weight = math.exp(float(row["policy_logp"][at] - row["old_logp"][at]))
    high, low = weight > 1 + CLIP and row["advantage"] > 0, weight < 1 - CLIP and row["advantage"] < 0
    return float(high or low)


def mean(values: Iterable[float]) -> float:
    held = list(values)
    return sum(held) / len(held)


def over(rows: Sequence[Row], token: Token, *, where: Callable[[Row], Sequence[int]] = positions) -> Iterator[float]:
    """Give a quantity of the tokens of all rows, one by one."""
    return (token(row, at) for row in rows for at in where(row))


def everywhere(row: Row) -> range:
    return range(len(row["model_mask"]))


def logged(rows: Sequence[Row]) -> dict[str, float]:
    """Log what TRL would of one step."""
    return {
        "kl": mean(over(rows, k3)),
        "entropy": mean(over(rows, entropy)),
        "clip_ratio/region_mean": mean(over(rows, clipped)),
        "reward": mean(row["reward"] for row in rows),
        "completions/mean_length": mean(float(len(positions(row))) for row in rows),
        "sampling/sampling_logp_difference/mean": mean(over(rows, gap)),
        "sampling/importance_sampling_ratio/mean": mean(over(rows, ratio)),
    }


def frame_of_rows(steps: Sequence[Sequence[Row]]) -> pl.DataFrame:
    """Lay the rows out as the recorder writes them."""
    logps = ("policy_logp", "old_logp", "rollout_logp", "ref_logp", "entropy")
    kinds = {name: pl.List(pl.Float32) for name in logps} | {"token_ids": pl.List(pl.Int32)}
    return pl.DataFrame([dict(row) for rows in steps for row in rows], schema_overrides=kinds)


def judged(
    folder: Path, steps: Sequence[Sequence[Row]], log: Mapping[str, Sequence[float]], *, kept: pl.Expr | None = None
) -> Diagnosis:
    """Write and judge a run; `kept` leaves some of its rows out of the dump."""
    frame = frame_of_rows(steps)
    run = write_recorder_run(folder, frame if kept is None else frame.filter(kept), metrics=log)
    return diagnose(run)


def log_of(steps: Sequence[Sequence[Row]]) -> dict[str, list[float]]:
    """Give what is logged of all steps, by name."""
    each = [logged(rows) for rows in steps]
    return {name: [one[name] for one in each] for name in each[0]}


def audited(diagnosis: Diagnosis, name: str) -> AuditRow:
    """Give the row that recomputes one logged metric; rows that hold it against other metrics come behind it."""
    return next(row for row in diagnosis.audit or () if row.logged_as == name)

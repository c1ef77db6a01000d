"""A run that is written step by step, as a trainer does, for tests that watch it meanwhile."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ptt.recorders import Recorder

SEQUENCES, HEAD, GAP, TAIL = 8, 30, 6, 30


@dataclass
class GrowingRun:
    """Writes token files below `tokens/` and lines of `metrics.jsonl`; the same steps give the same bytes."""

    folder: Path
    rank: int | None = None
    recorder: Recorder = field(init=False)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.folder / "tokens", rank=self.rank, strict=True)

    def write(self, first: int, last: int, **logged: float) -> None:
        """Write steps whole; `logged` replaces what the log says."""
        for step in range(first, last + 1):
            self.record(step)
            self.log(step, **logged)

    def record(self, step: int) -> None:
        generator = np.random.default_rng([step, self.rank or 0])
        rows = []
        for number in range(SEQUENCES):
            r = generator.normal(size=HEAD + GAP + TAIL) * 0.03
            likely = -generator.exponential(size=len(r)) - 0.01
            rows.append(
                {
                    "model_mask": [True] * HEAD + [False] * GAP + [True] * TAIL,
                    "policy_logp": likely + np.minimum(r, 0),
                    "ref_logp": likely - np.maximum(r, 0),
                    "group_id": f"{step}-{number // 4}",
                    "tool_names": ["lookup"],
                }
            )
        self.recorder._written.discard(step)  # a resumed trainer has a recorder of its own
        self.recorder.write(step, rows)

    def log(self, step: int, **logged: float) -> None:
        generator = np.random.default_rng([step, 99])
        row = {"step": step, "loss": generator.normal(0.5, 0.1), "reward": generator.normal(0.4, 0.1),
               "kl": generator.gamma(4, 0.0025), "grad_norm": generator.gamma(9, 0.1), "entropy": 2.0 - 0.001 * step,
               "learning_rate": 1e-6} | logged  # fmt: skip
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

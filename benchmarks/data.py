"""Make recorder files with 20M model tokens, the same every time, below benchmarks/data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STEPS = 100
SEQUENCES = 256  # a step
SEED = 20_260_128
FOLDER = Path(__file__).parent / "data" / "tokens_20m"


def make(folder: Path = FOLDER) -> Path:
    """Write the files unless they are there; some 0.5 GB."""
    if len(list(folder.glob("step_*.parquet"))) == STEPS:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(SEED)
    for step in range(1, STEPS + 1):
        pq.write_table(_step(generator, step), folder / f"step_{step:06d}.parquet", compression="zstd")
    return folder


def _step(generator: np.random.Generator, step: int) -> pa.Table:
    """Seven in ten sequences hold one observation, half their length; tails grow after it over the run."""
    length = generator.integers(600, 1800, SEQUENCES)
    offsets = np.concatenate([[0], np.cumsum(length)])
    total = int(offsets[-1])
    mask = np.ones(total, np.bool_)
    scale = np.full(total, 0.02)
    for row in range(SEQUENCES):
        if generator.random() < 0.7:
            start = int(offsets[row] + length[row] * generator.uniform(0.2, 0.5))
            end = int(min(start + length[row] * 0.5, offsets[row + 1] - 1))
            mask[start:end] = False
            scale[end : offsets[row + 1]] = 0.05 + 0.4 * step / STEPS
    policy = -generator.exponential(0.5, total).astype(np.float32)
    ref = np.minimum(policy + (generator.standard_t(4, total) * scale).astype(np.float32), 0.0)

    def listed(values: np.ndarray, kind: pa.DataType) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values, kind))

    return pa.table(
        {
            "step": pa.array(np.full(SEQUENCES, step), pa.int64()),
            "sample_id": [f"{step}-{row}" for row in range(SEQUENCES)],
            "group_id": [f"{step}-{row // 8}" for row in range(SEQUENCES)],
            "model_mask": listed(mask, pa.bool_()),
            "policy_logp": listed(policy, pa.float32()),
            "ref_logp": listed(ref, pa.float32()),
        }
    )

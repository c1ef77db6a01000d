"""Make recorder files with 20M model tokens and more, the same every time, below benchmarks/data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

SEED: Final = 20_260_128
HOME: Final = Path(os.environ.get("PTT_BENCH_DATA") or Path(__file__).parent / "data")
MIN_OBSERVATION: Final = 4  # tokens: ptt's own default
QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
LABELLED: Final = "labelled"  # folder of the tokens that other tools get
TRUTH: Final = "truth.parquet"
PAIR_COLUMNS: Final = ("old_logp", "rollout_logp")  # the second and the third to the fifth pair need them

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How much to write. Steps beyond `distinct` repeat neighbours' tokens under numbers and names of their own."""

    name: str
    steps: int = 100
    sequences: int = 256  # a step
    distinct: int = 100
    pairs: int = 1  # 1, 2 or 4
    slices: int = 0  # environments, beside text-only and post-tool

    def prototype(self, step: int) -> int:
        """Return the distinct step whose tokens a step has, so that tails grow over the whole run."""
        return (step - 1) * min(self.distinct, self.steps) // self.steps


TOKENS: Final = {
    "20M": Shape(name="tokens_20m"),
    "200M": Shape(name="tokens_200m", steps=2000, sequences=128),
    "1B": Shape(name="tokens_1b", steps=10_000, sequences=128),
}


def make(folder: Path | None = None) -> Path:
    """Write the 20M tokens unless they are there; some 0.5 GB."""
    return write_run(TOKENS["20M"], folder)


def write_run(shape: Shape, folder: Path | None = None) -> Path:
    """Write a run's files unless they are there."""
    folder = folder or HOME / shape.name
    if len(list(folder.glob("step_*.parquet"))) != shape.steps:
        folder.mkdir(parents=True, exist_ok=True)
        _write(shape, lambda step, drawn: write_step(folder, drawn.table(step, shape)))
    return folder


def _write(shape: Shape, work: Callable[[int, Drawn], None]) -> None:
    """Write all steps on all cores: compressing takes most of the time."""
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work, step, drawn) for step, drawn in _steps(shape)]:
            done.result()


def write_step(folder: Path, table: pa.Table) -> None:
    """Write the file of one step, whole or not at all."""
    path = folder / f"step_{table['step'][0].as_py():06d}.parquet"
    pq.write_table(table, path.with_suffix(".part"), compression="zstd")
    path.with_suffix(".part").rename(path)


def write_labelled(shape: Shape) -> Path:
    """Write the same tokens for tools without a notion of slices, unless they are there; and the exact percentiles.

    One row a model token: its step, whether an observation came before it, and both logprobs. Lists are unrolled,
    tokens of observations are left out and the slice is computed: all of that is done for whoever reads them.
    """
    folder = HOME / shape.name / LABELLED
    if not (folder / TRUTH).exists():
        folder.mkdir(parents=True, exist_ok=True)
        exact: list[pl.DataFrame] = []
        levels: dict[int, pl.DataFrame] = {}
        _write(shape, lambda step, drawn: pq.write_table(drawn.labelled(step), folder / f"flat_{step:06d}.parquet",
                                                         compression="zstd"))  # fmt: skip
        for step, drawn in _steps(shape):
            if (number := shape.prototype(step)) not in levels:
                levels = {number: drawn.percentiles()}
            exact.append(levels[number].select(pl.lit(step, pl.Int64).alias("step"), pl.all()))
        pl.concat(exact).write_parquet(folder / TRUTH)
    return folder


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The tokens of one step, sequence after sequence."""

    offsets: Array  # (sequences + 1,)
    mask: Array
    policy: Array
    ref: Array
    others: dict[str, Array]

    def table(self, step: int, shape: Shape) -> pa.Table:
        """Return the table that a recorder writes of a step."""
        rows = len(self.offsets) - 1
        columns = {
            "step": pa.array(np.full(rows, step), pa.int64()),
            "sample_id": [f"{step}-{row}" for row in range(rows)],
            "group_id": [f"{step}-{row // 8}" for row in range(rows)],
            "model_mask": self._listed(self.mask, pa.bool_()),
            "policy_logp": self._listed(self.policy, pa.float32()),
            "ref_logp": self._listed(self.ref, pa.float32()),
        }
        columns |= {name: self._listed(values, pa.float32()) for name, values in self.others.items()}
        if shape.slices:
            columns["env"] = [f"env-{(row // 8 + step) % shape.slices}" for row in range(rows)]
        return pa.table(columns)

    def _listed(self, values: Array, kind: pa.DataType) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(self.offsets, pa.int32()), pa.array(values, kind))

    @cached_property
    def post(self) -> Array:
        """Whether an observation of at least MIN_OBSERVATION tokens came before, of every model token."""
        found = np.zeros(len(self.mask), np.bool_)
        for start, end in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            away = np.flatnonzero(np.diff(np.concatenate([[True], self.mask[start:end], [True]])))
            long = np.flatnonzero(away[1::2] - away[::2] >= MIN_OBSERVATION)
            if len(long):
                found[start + away[2 * long[0] + 1] : end] = True
        return found[self.mask]

    def labelled(self, step: int) -> pa.Table:
        """Return one row a model token, with its slice."""
        post = self.post
        return pa.table(
            {
                "step": pa.array(np.full(len(post), step, np.int32)),
                "post": pa.array(post),
                "policy_logp": pa.array(self.policy[self.mask]),
                "ref_logp": pa.array(self.ref[self.mask]),
            }
        )

    def percentiles(self) -> pl.DataFrame:
        """Return the exact percentiles of |r| by slice."""
        size = np.abs(self.policy[self.mask].astype(np.float64) - self.ref[self.mask])
        rows = []
        for label in (False, True):
            tokens = size[self.post == label]
            if len(tokens):
                values = np.quantile(tokens, list(QUANTILES.values()))
                rows.append({"post": label, "n": len(tokens)} | dict(zip(QUANTILES, values.tolist(), strict=True)))
        return pl.DataFrame(rows)


def _steps(shape: Shape) -> Iterator[tuple[int, Drawn]]:
    """Yield every step with its tokens; distinct ones are drawn once."""
    generator = np.random.default_rng(SEED)
    beside = np.random.default_rng(SEED + 1)
    distinct = min(shape.distinct, shape.steps)
    drawn, number = None, -1
    for step in range(1, shape.steps + 1):
        if drawn is None or shape.prototype(step) != number:
            number = shape.prototype(step)
            drawn = _draw(generator, beside, shape, (number + 1) / distinct)
        yield step, drawn


def _draw(generator: np.random.Generator, beside: np.random.Generator, shape: Shape, along: float) -> Drawn:
    """Seven in ten sequences hold one observation, half their length; tails grow after it over the run."""
    length = generator.integers(600, 1800, shape.sequences)
    offsets = np.concatenate([[0], np.cumsum(length)])
    total = int(offsets[-1])
    mask = np.ones(total, np.bool_)
    scale = np.full(total, 0.02)
    for row in range(shape.sequences):
        if generator.random() < 0.7:
            start = int(offsets[row] + length[row] * generator.uniform(0.2, 0.5))
            end = int(min(start + length[row] * 0.5, offsets[row + 1] - 1))
            mask[start:end] = False
            scale[end : offsets[row + 1]] = 0.05 + 0.4 * along
    policy = -generator.exponential(0.5, total).astype(np.float32)
    ref = np.minimum(policy + (generator.standard_t(4, total) * scale).astype(np.float32), 0.0)
    names = PAIR_COLUMNS[: {1: 0, 2: 1, 4: 2}[shape.pairs]]
    others = {name: np.minimum(policy + beside.normal(0, 0.01, total).astype(np.float32), 0.0) for name in names}
    return Drawn(offsets=offsets, mask=mask, policy=policy, ref=ref, others=others)

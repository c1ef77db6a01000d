"""Make the metric logs that `make bench` measures: JSON lines or CSV, a row a step or a value, 30 or 3,000 metrics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from benchmarks.data import HOME
from benchmarks.metrics_scale import LEVELS, PLAIN, SEED

CELLS: Final = 1 << 20  # drawn at a time


@dataclass(frozen=True, kw_only=True)
class Log:
    """One log: `thousandths` of the rows that are asked for, each with so many metrics."""

    title: str
    ending: str
    metrics: int = 30
    thousandths: int = 1000
    long: bool = False  # a row a value


LOGS: Final = {
    "jsonl": Log(title="JSON lines", ending="jsonl"),
    "csv": Log(title="CSV", ending="csv"),
    "long-jsonl": Log(title="JSON lines, a value a row", ending="jsonl", long=True),
    "long-csv": Log(title="CSV, a value a row", ending="csv", long=True),
    "wide-jsonl": Log(title="JSON lines", ending="jsonl", metrics=3000, thousandths=10),
    "wide-csv": Log(title="CSV", ending="csv", metrics=3000, thousandths=10),
}


def name_of(log: Log, count: int) -> str:
    """Say what a log is, of `count` rows that were asked for."""
    return f"{log.title}: {max(1, count * log.thousandths // 1000):,} steps of {log.metrics:,} metrics"


def write_log(key: str, count: int) -> Path:
    """Write a log into a folder of its own, once, and return that: noise around a level for each metric."""
    log = LOGS[key]
    folder = HOME / f"log-{key}-{count}"
    if folder.exists():
        return folder
    rows = max(1, count * log.thousandths // 1000)
    names = [*PLAIN, *(f"extra_{number:04d}" for number in range(log.metrics - len(PLAIN)))]
    levels = np.array([*LEVELS, *([1.0] * (log.metrics - len(PLAIN)))])
    generator = np.random.default_rng(SEED)
    part = folder.with_name(folder.name + ".part")
    part.mkdir(parents=True, exist_ok=True)
    with (part / f"metrics.{log.ending}").open("wb") as file:
        for begin in range(0, rows, step := max(1, CELLS // log.metrics)):
            drawn = levels * np.exp(0.1 * generator.normal(size=(min(step, rows - begin), log.metrics)))
            frame = pl.DataFrame(drawn, schema=names).with_row_index("step", offset=begin + 1)
            if log.long:
                frame = frame.unpivot(index="step", variable_name="name").sort("step", maintain_order=True)
            if log.ending == "csv":
                frame.write_csv(file, include_header=begin == 0)
            else:
                frame.write_ndjson(file)
    part.rename(folder)
    return folder

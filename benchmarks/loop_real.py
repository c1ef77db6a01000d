"""How much made healthy runs look like a real one: level, noise and likeness of each curve, side by side.

`python -m benchmarks.loop_real RUN --algorithm grpo-tools` reads RUN and a dozen made runs of its framework the same
way, and marks the curves whose figures lie outside what the made runs span.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from benchmarks.loop.files import write
from benchmarks.loop.healthy import healthy
from benchmarks.loop.made import ALGORITHMS
from ptt import api

SEEDS: Final = range(300_000, 300_012)
LEAST: Final = 20  # values of a curve
SMOOTH: Final = 0.1  # of the run: what is off a mean so wide is noise


class Figures(NamedTuple):
    """What a curve is like."""

    rise: float  # last fifth over first fifth
    noise: float  # robust, over the curve's own level
    likeness: float  # of one residual to the next
    tail: float  # the largest residual over the robust noise


def figures(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Figures:
    """Give a curve's figures."""
    width = max(3, int(SMOOTH * len(values)))
    level = np.convolve(
        np.pad(values, (width // 2, width - 1 - width // 2), mode="edge"), np.ones(width) / width, "valid"
    )
    off = values - level
    robust = 1.4826 * float(np.median(np.abs(off - np.median(off))))
    fifth = max(1, len(values) // 5)
    first, last = float(np.mean(values[:fifth])), float(np.mean(values[-fifth:]))
    scale = float(np.mean(np.abs(values))) or 1.0
    alike = float(np.corrcoef(off[:-1], off[1:])[0, 1]) if off.std() > 0 else 0.0
    return Figures(
        last / first if first else np.nan, robust / scale, alike, float(np.abs(off).max()) / (robust or np.nan)
    )


def of_run(run: Path) -> dict[str, Figures]:
    """Read a run and give the figures of every training curve that moves."""
    table = api.diagnose(run).tables["metrics"]
    rows = table.filter((pl.col("split") == "train") & pl.col("value").is_not_null()).sort("step", "seq")
    found = {}
    for (name,), part in rows.group_by(["name_raw"], maintain_order=True):
        values = part["value"].to_numpy()
        if len(values) >= LEAST and values.std() > 0:
            found[str(name)] = figures(values)
    return found


def main(arguments: Sequence[str]) -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--algorithm", choices=ALGORITHMS, required=True)
    parser.add_argument("--dialect", default="")
    chosen = parser.parse_args(arguments)
    made: list[dict[str, Figures]] = []
    for seed in SEEDS:
        run = healthy(chosen.algorithm, seed, dialects=(chosen.dialect,) if chosen.dialect else ())
        with TemporaryDirectory(prefix="loop-") as folder:
            made.append(of_run(write(run, Path(folder) / "run")))
    print(f"{'curve':45} " + " ".join(f"{word:>24}" for word in Figures._fields))
    for name, real in sorted(of_run(chosen.run).items()):
        others = [one[name] for one in made if name in one]
        if others:
            print(f"{name:45} " + " ".join(_cell(real[place], [one[place] for one in others]) for place in range(4)))


def _cell(real: float, others: list[float]) -> str:
    low, high = np.nanpercentile(others, [5, 95])
    return f"{real:>8.3g}{' ' if low <= real <= high else '*'} {low:>6.2g}..{high:<6.2g}"


if __name__ == "__main__":
    main(sys.argv[1:])

"""What a long metric log costs: time and peak memory of `ptt diagnose`, beside Microsoft's toolkit on the same file.

`python -m benchmarks.metrics_scale --rows 1000000 --rival PYTHON` makes a GRPO log of 30 metrics a row, once in that
toolkit's format and once as plain rows (about 800 MB each), and runs each tool on it once, in a process of its own.
The plain rows are `ptt`'s alone: the toolkit finds no metric in them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

SEED: Final = 20_260_128
STAMP: Final = "2026-01-01T00:00:00+00:00"
CHUNK: Final = 10_000
KNOWN: Final = ("grpo_loss", "reward_mean", "reward_std", "kl", "entropy", "grad_norm", "clip_fraction",
                "output_length_mean", "group_reward_mean", "group_reward_std", "completion_length",
                "refusal_rate")  # fmt: skip
PLAIN: Final = ("loss", "reward", "reward_std", "kl", "entropy", "grad_norm", "clip_ratio/region_mean",
                "completions/mean_length", "rewards/correct_reward/mean", "rewards/correct_reward/std",
                "completions/max_length", "frac_reward_zero_std")  # fmt: skip
LEVELS: Final = (0.02, 0.5, 0.3, 0.05, 0.6, 0.4, 0.01, 300.0, 0.5, 0.3, 400.0, 0.02)
OTHERS: Final = 18  # metrics that neither has a rule for
RIVAL_RUN: Final = "import sys; from post_training_toolkit.cli import diagnose_cli; sys.exit(diagnose_cli())"


def rows(count: int, names: Sequence[str]) -> Iterator[tuple[int, dict[str, float]]]:
    """Draw the rows: noise around a level, chunk by chunk."""
    generator = np.random.default_rng(SEED)
    every = [*names, *(f"extra_{number:02d}" for number in range(OTHERS))]
    levels = np.array([*LEVELS, *([1.0] * OTHERS)])
    for begin in range(0, count, CHUNK):
        drawn = levels * np.exp(0.1 * generator.normal(size=(min(CHUNK, count - begin), len(every))))
        for place, values in enumerate(drawn.tolist()):
            yield begin + place + 1, dict(zip(every, values, strict=True))


def write(path: Path, count: int, *, wrapped: bool) -> Path:
    """Write the log, in the toolkit's format or as plain rows."""
    with path.open("w", encoding="utf-8") as file:
        if wrapped:
            head = {"type": "header", "schema_version": "1.0", "run_id": "made", "trainer_type": "grpo",
                    "config_hash": None, "timestamp": STAMP}  # fmt: skip
            file.write(json.dumps(head) + "\n")
        for step, row in rows(count, KNOWN if wrapped else PLAIN):
            told = (
                {"step": step, "timestamp": "2026-01-01T00:00:00+00:00", "metrics": row}
                if wrapped
                else {"step": step, **row}
            )
            file.write(json.dumps(told) + "\n")
    return path


def measured(command: Sequence[str]) -> tuple[float, float, int]:
    """Run a command: seconds, peak memory in GB, exit code."""
    begin = time.perf_counter()
    child = os.posix_spawnp(command[0], list(command), os.environ, file_actions=[
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])  # fmt: skip
    _, status, usage = os.wait4(child, 0)
    return time.perf_counter() - begin, usage.ru_maxrss / 1e6, os.waitstatus_to_exitcode(status)


def main(arguments: Sequence[str]) -> None:
    """Make the files, run both, print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rival", help="a Python that has post_training_toolkit")
    parser.add_argument("--folder", type=Path, help="where the files go and stay; by default they are made and removed")
    chosen = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="scale-") as scratch:
        folder = chosen.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        ptt = [sys.executable, "-m", "ptt", "diagnose"]
        for wrapped in (True, False):
            home = folder / ("wrapped" if wrapped else "plain")
            home.mkdir(exist_ok=True)
            path = home / "metrics.jsonl"
            if not path.exists() or chosen.folder is None:
                write(path, chosen.rows, wrapped=wrapped)
            print(f"{path.name}, {'its' if wrapped else 'plain'} format: {chosen.rows:,} rows, "
                  f"{path.stat().st_size / 1e6:.0f} MB")  # fmt: skip
            runs = {"ptt diagnose": [*ptt, str(home), "--out", str(folder / f"out-{home.name}")]}
            if chosen.rival and wrapped:
                out = str(folder / "rival")
                runs["post-training-toolkit"] = [
                    chosen.rival,
                    "-W",
                    "ignore",
                    "-c",
                    RIVAL_RUN,
                    "-i",
                    str(home),
                    "-o",
                    out,
                ]
            for name, command in runs.items():
                seconds, peak, code = measured(command)
                print(f"  {name}: {seconds:.1f} s, {peak:.2f} GB, exit {code}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The token pass and the whole diagnosis beside a bare Polars scan-and-sum of the same columns: `make bench`.

Each measurement is a process of its own, in turn, so that neither warms the other's memory; printed are the
least and the median of the runs, the ratio of the medians, and the peak memory of a process.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.data import make

ROUNDS = 5
INNER = 3


def bare(folder: Path) -> object:
    """What anyone would write to touch every value once."""
    import polars as pl

    columns = pl.scan_parquet(folder / "*.parquet").select("step", "model_mask", "policy_logp", "ref_logp")
    lists = pl.col("model_mask", "policy_logp", "ref_logp").list.sum().sum()
    return columns.select(pl.col("step").sum(), lists).collect(engine="streaming")


def token_pass(folder: Path) -> object:
    """The pass that everything else is computed from."""
    import polars as pl

    from ptt.diagnostics.statistics.logprob_pairs import available_pairs
    from ptt.diagnostics.statistics.token_pass import token_pass

    columns = pl.scan_parquet(folder / "*.parquet").select("step", "model_mask", "policy_logp", "ref_logp")
    pairs = available_pairs({"policy_logp", "ref_logp"})
    frame = columns.with_row_index("seq")
    return token_pass(frame, pairs=pairs, min_observation=4, tokens_per_row=1200)


def diagnose(folder: Path) -> object:
    """All of it: files to verdict, resampling included, without drawing."""
    import ptt

    return ptt.diagnose(folder)


WORK = {"bare": bare, "token_pass": token_pass, "diagnose": diagnose}


def child(name: str, folder: Path) -> None:
    """Time `name` in this process and print seconds and peak memory."""
    import resource

    seconds = []
    for _ in range(INNER):
        start = time.perf_counter()
        WORK[name](folder)
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": min(seconds), "peak_mb": peak}))


def main() -> None:
    """Measure in turn and print a table."""
    make()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WORK}
    for _ in range(ROUNDS):
        for name in WORK:
            command = [sys.executable, "-m", "benchmarks.token_pass", name]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[name].append(json.loads(done.stdout))
    base = statistics.median(run["seconds"] for run in found["bare"])
    print(f"{'':12} {'least s':>8} {'median s':>9} {'x bare':>7} {'peak MB':>8}")
    for name, runs in found.items():
        seconds = [run["seconds"] for run in runs]
        median, peak = statistics.median(seconds), max(run["peak_mb"] for run in runs)
        print(f"{name:12} {min(seconds):8.3f} {median:9.3f} {median / base:7.2f} {peak:8.0f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1], make())
    else:
        main()

"""Token JSON lines into the store, beside DuckDB and a plain loop: `python -m benchmarks.json_ingest` (group `bench`).

300 MB as NeMo-RL writes them. DuckDB reads the same files with `read_json` into one Parquet file; the loop is
`json.loads` a line, and once more with what it found written to Parquet. Each measurement is a process of its own, in
turn; printed are the least and the median of the runs, MB a second by the median, and the peak memory of a process.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS = 5
STEPS = 4
STEP_BYTES = 75_000_000
TOKENS = 4096  # the longest row of a batch, to which NeMo-RL pads the others
SEED = 20_260_211
FOLDER = Path(__file__).parent / "data" / "nemo_300mb"


def make(folder: Path = FOLDER) -> Path:
    """Write the files unless they are there; some 0.3 GB."""
    if len(list(folder.glob("train_data_step*.jsonl"))) == STEPS:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(SEED)
    for step in range(1, STEPS + 1):
        part = folder / f"train_data_step{step}.part"
        with part.open("w") as handle:
            index = 0
            while handle.tell() < STEP_BYTES:
                handle.write(json.dumps(_row(generator, index)) + "\n")
                index += 1
        part.rename(part.with_suffix(".jsonl"))
    return folder


def _row(generator: np.random.Generator, index: int) -> dict[str, Any]:
    """One observation, a third of the response; float32 values spelt as doubles, as `tensor.tolist()` gives them."""
    length, prompt = int(generator.integers(TOKENS // 2, TOKENS + 1)), int(generator.integers(100, 400))
    mask = np.zeros(TOKENS, np.float32)
    mask[prompt:length] = 1
    third = (length - prompt) // 3
    mask[prompt + third : prompt + 2 * third] = 0
    engine = (-generator.exponential(0.5, TOKENS) * mask).astype(np.float32)
    trainer = (engine + generator.normal(0, 0.01, TOKENS) * mask).astype(np.float32)
    ids = generator.integers(0, 150_000, TOKENS)
    ids[length:] = 0
    return {
        "content": [["word " * 400, "answer " * 400]],
        "rewards": [float(index % 2)],
        "input_lengths": [length],
        "token_ids": [ids.tolist()],
        "token_loss_mask": [mask.tolist()],
        "sample_loss_mask": [1.0],
        "advantages": [np.full(TOKENS, generator.normal(), np.float32).tolist()],
        "generation_logprobs": [engine.tolist()],
        "prev_logprobs": [trainer.tolist()],
        "idx": index,
    }


def ptt(folder: Path, out: Path) -> None:
    """Ingest as `ptt ingest` does, into canonical Parquet, trimmed to the responses."""
    from ptt.diagnostics.parsers import PARSERS, run_files
    from ptt.diagnostics.store.ingest import ingest

    files, notes = run_files(folder)
    ingest(files, notes=notes, parsers=PARSERS, folder=out / "store", ptt_version="benchmark")


def duckdb(folder: Path, out: Path) -> None:
    """Read all columns and write them, on as many threads as there are cores."""
    import duckdb as database

    source = f"read_json('{folder}/*.jsonl', format='newline_delimited', maximum_object_size=100000000)"
    database.sql(f"copy (select * from {source}) to '{out / 'duckdb.parquet'}' (format parquet)")


def loop(folder: Path, _: Path) -> None:
    """Read every line and drop it."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open() as handle:
            for line in handle:
                json.loads(line)


def loop_and_write(folder: Path, out: Path) -> None:
    """Read every line and write what was found, file by file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in sorted(folder.glob("*.jsonl")):
        with path.open() as handle:
            rows = [json.loads(line) for line in handle]
        pq.write_table(pa.Table.from_pylist(rows), out / f"{path.stem}.parquet")


WORK = {"ptt": ptt, "duckdb": duckdb, "json.loads": loop, "json.loads to Parquet": loop_and_write}


def child(name: str, folder: Path) -> None:
    """Time `name` in this process, imports left out, and print seconds and peak memory."""
    import resource

    if name == "ptt":
        import ptt.diagnostics.parsers
        import ptt.diagnostics.store.ingest  # noqa: F401
    if name == "duckdb":
        import duckdb  # noqa: F401
    with tempfile.TemporaryDirectory() as scratch:
        start, cpu = time.perf_counter(), time.process_time()
        WORK[name](folder, Path(scratch))
        seconds, busy = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu": busy, "peak_mb": peak}))


def main() -> None:
    """Measure in turn and print a table."""
    size = sum(path.stat().st_size for path in make().glob("*.jsonl")) / 1e6
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WORK}
    for _ in range(ROUNDS):
        for name in WORK:
            command = [sys.executable, "-m", "benchmarks.json_ingest", name]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[name].append(json.loads(done.stdout))
    base = statistics.median(run["seconds"] for run in found["ptt"])
    print(f"{'':22} {'least s':>8} {'median s':>9} {'MB/s':>6} {'x ptt':>6} {'cpu s':>6} {'peak MB':>8}")
    for name, runs in found.items():
        seconds = [run["seconds"] for run in runs]
        median, peak = statistics.median(seconds), max(run["peak_mb"] for run in runs)
        cpu = statistics.median(run["cpu"] for run in runs)
        print(
            f"{name:22} {min(seconds):8.3f} {median:9.3f} {size / median:6.0f} {median / base:6.2f} {cpu:6.2f} "
            f"{peak:8.0f}"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1], make())
    else:
        main()

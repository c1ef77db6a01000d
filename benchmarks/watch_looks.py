"""What a look of `ptt watch` costs by the length of the run: a new step with its line of the log, CPU milliseconds.

`python -m benchmarks.watch_looks [FOLDER]`: runs of 10 to 10,000 steps of 16 sequences of 88 tokens are laid out below
the folder; each is looked at once whole, and then after each of some new steps.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

from ptt.diagnostics.config import Settings
from ptt.recorders import Recorder
from ptt.watching.kept import KeptWatch
from ptt.watching.listing import Folder
from ptt.watching.watcher import Watcher

LENGTHS: Final = (10, 100, 1000, 10_000)
LOOKS: Final = 15
SEQUENCES, MODEL, GAP = 16, 40, 8


class Run:
    """A run whose token files are copies of one another but for the step, so that ten thousand are made in time."""

    def __init__(self, folder: Path) -> None:
        """Begin without a step."""
        self.folder = folder
        (folder / "tokens").mkdir(parents=True)
        self._generator = np.random.default_rng(7)
        self._made = 0

    def write(self) -> None:
        """Write the next step."""
        self._made += 1
        generator = self._generator
        tokens = 2 * MODEL + GAP
        rows = []
        for _ in range(SEQUENCES):
            r = 0.03 * generator.normal(size=tokens)
            likely = -generator.exponential(size=tokens) - 0.01
            mask = [True] * MODEL + [False] * GAP + [True] * MODEL
            rows.append(
                {"model_mask": mask, "policy_logp": likely + np.minimum(r, 0), "ref_logp": likely - np.maximum(r, 0)}
            )
        Recorder(self.folder / "tokens").write(self._made, rows)
        logged = {"step": self._made, "loss": generator.normal(), "reward": generator.random(), "kl": 0.01}
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(logged) + "\n")


def measure(run: Run, out: Path) -> tuple[float, float, float, int]:
    """Return seconds of the first look, the median and the longest of later ones (CPU), and the state's bytes."""
    watcher, kept = Watcher(Folder(run.folder), Settings()), KeptWatch(out, str(run.folder))
    times = []
    for number in range(LOOKS + 1):
        if number:
            run.write()
        begun = time.process_time()
        list(watcher.look())
        kept.keep(watcher)
        times.append(time.process_time() - begun)
    size = (out / "watch" / "state.json").stat().st_size
    return times[0], statistics.median(times[1:]), max(times[1:]), size


def main(folder: Path) -> None:
    """Print a table."""
    print("| steps before | first look | a look at a new step (median) | longest | state |\n|---|---|---|---|---|")
    run, out = Run(folder / "run"), folder / "out"
    for length in LENGTHS:
        while run._made < length:
            run.write()
        first, median, longest, size = measure(run, out / str(length))
        print(
            f"| {length:,} | {first:.2g} s | {1000 * median:.0f} ms | {1000 * longest:.0f} ms | {size / 1024:.0f} KB |",
            flush=True,
        )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stderr.write(f"most memory: {memory:.0f} MB; {os.cpu_count()} cores\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else scratch))
        shutil.rmtree(scratch, ignore_errors=True)

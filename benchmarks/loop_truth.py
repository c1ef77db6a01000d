"""Whether the loop's rules name what is broken, and leave alone what is well, on made runs whose truth is known.

`python -m benchmarks.loop_truth --write` makes docs/truth_table.md; without `--write` it prints it. With `--rival
PYTHON` (a Python that has Microsoft's post-training toolkit) the same runs are put to that as well and its answers
kept in benchmarks/loop/rival.json, from which the page can be made again without it. No seed of the block `held-out`
was used for tuning.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from benchmarks.loop.judged import Judged, Task, judge, spanned_tasks, tasks_of
from benchmarks.loop.made import ALGORITHMS
from benchmarks.loop.page import page, summary
from benchmarks.loop.real import REAL
from benchmarks.loop.rival import results

SEEDS: Final = {"tuning": 0, "held-out": 100_000, "tests": 200_000}
HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parent / "docs" / "truth_table.md"
RIVAL: Final = HERE / "loop" / "rival.json"
SPANNED: Final = 50_000  # of a block: where the seeds of runs over random spans begin
CHUNK: Final = 8


def run(tasks: Sequence[Task], workers: int) -> list[Judged]:
    """Judge all runs, in the order they are given."""
    if workers == 1:
        return [judge(task) for task in tasks]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(judge, tasks, chunksize=CHUNK))


def details(found: Sequence[Judged]) -> list[dict[str, Any]]:
    """Give what was said of each run, for a look at single ones."""
    return [
        {"run": one.task.title, **asdict(one), "roots": one.roots, "named": bool(one.task.fault and one.naming)}
        for one in found
    ]


def main(arguments: Sequence[str]) -> None:
    """Judge, print or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="healthy runs of each algorithm")
    parser.add_argument("--fault-seeds", type=int, default=20, help="runs of each fault, size and algorithm")
    parser.add_argument("--span-seeds", type=int, default=40, help="healthy runs of each algorithm over random spans")
    parser.add_argument("--span-fault-seeds", type=int, default=4, help="runs of each fault and algorithm over them")
    parser.add_argument("--seed-block", choices=sorted(SEEDS), default="tuning")
    parser.add_argument("--only", action="append", default=[], help="faults by name, or `healthy`; all by default")
    parser.add_argument("--algorithm", action="append", default=[], choices=(*ALGORITHMS, REAL))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rival", help="a Python that has post_training_toolkit")
    parser.add_argument("--rival-is", default="post-training-toolkit", help="its version, for the page")
    parser.add_argument("--details", type=Path, help="a JSON file for what was said of each run")
    parser.add_argument("--write", action="store_true", help="write docs/truth_table.md")
    chosen = parser.parse_args(arguments)
    first = SEEDS[chosen.seed_block]
    tasks = tasks_of(
        range(first, first + chosen.seeds),
        range(first, first + chosen.fault_seeds),
        chosen.algorithm or (*ALGORITHMS, REAL),
    )
    tasks += spanned_tasks(
        range(first + SPANNED, first + SPANNED + chosen.span_seeds),
        range(first + SPANNED, first + SPANNED + chosen.span_fault_seeds),
        chosen.algorithm or ALGORITHMS,
    )
    tasks = [task for task in tasks if not chosen.only or (task.fault or "healthy") in chosen.only]
    if chosen.rival:
        RIVAL.write_text(
            json.dumps(
                results(
                    chosen.rival,
                    [one for one in tasks if one.algorithm != REAL and not one.spanned],
                    chosen.rival_is,
                ),
                indent=1,
            )
            + "\n",
            encoding="utf-8",
        )
    found = run(tasks, chosen.workers)
    if chosen.details:
        chosen.details.write_text(json.dumps(details(found), indent=1), encoding="utf-8")
    rival = json.loads(RIVAL.read_text(encoding="utf-8")) if RIVAL.exists() else None
    command = (
        f"python -m benchmarks.loop_truth --seeds {chosen.seeds} --fault-seeds {chosen.fault_seeds} "
        f"--span-seeds {chosen.span_seeds} --span-fault-seeds {chosen.span_fault_seeds} "
        f"--seed-block {chosen.seed_block} --write"
    )
    text = page(found, rival, command)
    if chosen.write:
        PAGE.write_text(text, encoding="utf-8")
    print("\n".join(summary(found)) if chosen.write else text)


if __name__ == "__main__":
    main(sys.argv[1:])

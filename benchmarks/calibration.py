"""How often the signature is right on made runs whose truth is known, beside what people look at instead.

`python -m benchmarks.calibration --runs 900 --seed-block held-out` draws that many runs at random over what real dumps
span (`benchmarks/span/`) and prints the rates; `--write` puts them into docs/calibration.md, from held-out seeds alone.
Whatever was tuned was tuned on the block `tuning`; no two blocks share a seed.
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
from typing import Final

from benchmarks import naive
from benchmarks.rule_power import HEADING, with_section
from benchmarks.span.faults import PLANTED
from benchmarks.span.judged import Judged, judge
from benchmarks.span.strata import Rate, Sorted, answers, data_rates, other_rates, recall_strata, required, sort
from benchmarks.span.truth import Truth

SEEDS: Final = {"tuning": range(100_000), "held-out": range(100_000, 200_000), "tests": range(200_000, 200_100)}
FAULT_SEEDS: Final = 50_000  # of a block: where the seeds of runs with a planted fault begin
PAGE: Final = Path(__file__).parents[1] / "docs" / "calibration.md"
CHUNK: Final = 4
ABOUT: Final = """\
Each run is drawn at random (`benchmarks/span/draw.py`). It has 15 to 400 recorded steps: every step, steps at a fixed
interval, bursts, or first one of these and then another. A step has 4 to 192 sequences in prompt groups of 1 to 32; up
to a third of them repeat another of their group. A run has 15,000 to 400,000 model tokens, one to three tool answers a
sequence, and lengths and batch sizes that may change mid-run. In a quarter of the runs tool use goes from 1% to 20% of
the sequences to 80% to 99%, or back: straight, in an S or at once, by sequence or by prompt group. Values are float32,
bfloat16, float16 or four decimals, with and without the sampler's own logprobs; up to 60% of the tokens have a
probability of almost one. Tokens of a sequence share its scale. Tails are Student t with 3 to 8 degrees of freedom.
Steps carry AR(1) noise of 0 to 0.85 from one training step to the next, with a log-SD of 0.03 to 0.22 that may change
mid-run. Tools are always recorded; tool results, ranks, environments, policy versions and prompt sources are each
recorded in half of the runs, and their values come, go and fade.

Tails stay flat, rise and return, swing, or rise in text only, in both slices or by too little to matter. Or they grow
1.4-fold to 16-fold: at once, linearly, fast and then slower, faster and faster, or unevenly. Growth starts anywhere. It
is in all values of an attribute or in one, and in all sequences, in a growing share of them, or in a few tokens per
thousand beyond p99.

The truth is computed from the drawn curves. Where a condition of the signature is too close to its limit to call
(growth of the tail between 1.1 and 1.3, late p99 between 0.85 and 1.2 times ln 2, and so on), the run counts as
`open`. So does a run in which the tokens of a few sequences become extreme only after tools, while percentiles grow
no more than those of text. The `smallest detectable` growth is the log growth that a test which knew the run's noise
and the place of the change would detect with 97% power at a false-alarm rate of 1%; smaller growth has strata of its
own. For rare and extreme tokens it is a dozen tokens, and more where those of one sequence occur together. An onset
is correct between the tail's first move and half of its way, on a log scale."""


def run(tasks: Sequence[tuple[int, str]], jobs: int, kept: Path | None = None) -> list[Judged]:
    """Judge the runs, in the order they are given; what `kept` holds of them is not judged again, the rest is added."""
    known = {(one.seed, one.fault): one for one in (read(kept) if kept is not None and kept.exists() else ())}
    waiting = [task for task in tasks if task not in known]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for one in pool.map(judge, waiting, chunksize=CHUNK):
            known[one.seed, one.fault] = one
            if kept is not None:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(one)) + "\n")
    return [known[task] for task in tasks]


def read(kept: Path) -> list[Judged]:
    """Read the runs that were judged before."""
    found = []
    for line in kept.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        truth = row["truth"] | {"holder": row["truth"]["holder"] and tuple(row["truth"]["holder"])}
        row |= {name: tuple(row[name]) for name in ("faults", "naive", "crashes")}
        row |= {"truth": Truth(**truth), "interval": row["interval"] and tuple(row["interval"])}
        found.append(Judged(**row))
    return found


def tasks_of(runs: int, faults: int, block: str) -> list[tuple[int, str]]:
    """List the seeds of a block to be judged: as they are drawn, and with each fault planted."""
    seeds = SEEDS[block]
    tasks = [(seeds[number], "") for number in range(runs)]
    first = FAULT_SEEDS if len(seeds) > FAULT_SEEDS else 0
    planted = ((seeds[first + number], name) for name in PLANTED for number in range(faults))
    return tasks + list(planted)


def lines_of(runs: Sorted) -> list[str]:
    """Give the tables and lists of the page."""
    return [
        "## Required",
        "",
        *_listed(required(runs)),
        "",
        "## Answers",
        "",
        f"{len(runs.without)} of {len(runs.sound)} runs do not have the signature, {len(runs.with_it)} do, and in "
        f"{len(runs.carried)} of these it is detectable at the run's size. The last columns are alarms of naive "
        f"detectors on the same runs: p95 of |r| over all tokens {naive.RATIO:g} times higher late than early; a "
        f"20-step mean KL above {naive.KL_LIMIT:g}; a Kolmogorov-Smirnov test of early against late post-tool tokens "
        f"at p < {naive.ALPHA:g}.",
        "",
        *answers(runs),
        "",
        "## Recall at 2.5x or more, by stratum",
        "",
        "Growth that is detectable at the run's size, neither in the last fifth nor in a few tokens only.",
        "",
        *_listed(recall_strata(runs)),
        "",
        "## Data faults",
        "",
        *_listed(data_rates(runs)),
        "",
        "## Other rates",
        "",
        *_listed(other_rates(runs)),
    ]


def _listed(rates: Sequence[Rate]) -> list[str]:
    return [f"- {one.told()}" for one in rates]


def page(lines: Sequence[str], runs: int, faults: int) -> str:
    """Give the document."""
    command = f"python -m benchmarks.calibration --runs {runs} --faults {faults} --seed-block held-out --write"
    made = f"Made by `{command}`: seeds from {SEEDS['held-out'].start} on, none of them used for tuning."
    about = "Intervals are 95% Wilson intervals."
    return "\n".join(["# Calibration", "", made, about, "", ABOUT, "", *lines, ""])


def main(arguments: Sequence[str]) -> None:
    """Judge, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=900)
    parser.add_argument("--faults", type=int, default=8, help="runs with each planted fault")
    parser.add_argument("--seed-block", choices=sorted(SEEDS), default="tuning")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--details", type=Path, help="a JSON-lines file: runs in it are not judged again, others added")
    parser.add_argument("--write", action="store_true", help="write docs/calibration.md, from held-out seeds alone")
    chosen = parser.parse_args(arguments)
    if chosen.write and chosen.seed_block != "held-out":
        parser.error("the page is written from held-out seeds alone")
    judged = run(tasks_of(chosen.runs, chosen.faults, chosen.seed_block), chosen.jobs, chosen.details)
    lines = lines_of(sort(judged))
    print("\n".join(lines))
    if chosen.write:
        kept = PAGE.read_text(encoding="utf-8").partition(HEADING)  # the table of the rules on curves has its own bench
        PAGE.write_text(with_section(page(lines, chosen.runs, chosen.faults), "".join(kept[1:])), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

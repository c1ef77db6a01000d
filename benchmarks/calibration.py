"""How often the signature is right on made runs whose truth is known, beside what people look at instead.

`python -m benchmarks.calibration --runs 2000 --seed-block held-out` prints the tables; `--write` puts them
into docs/calibration.md. Whatever was tuned was tuned on the block `tuning`; no two blocks share a seed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks import naive
from benchmarks.designs import BLIND, BY_NATS, CLASSES, LATE, NEGATIVE, POSITIVE
from benchmarks.outcomes import Outcome, outcome
from ptt.diagnostics.model import Answer

SEEDS: Final = {"tuning": range(100_000), "held-out": range(100_000, 200_000), "tests": range(200_000, 200_100)}
PAGE: Final = Path(__file__).parents[1] / "docs" / "calibration.md"
WORKERS: Final = 2
GROWING: Final = (*POSITIVE, BY_NATS, LATE)
ABOUT: Final = """\
Runs are made (`benchmarks/designs.py`): 20 to 500 steps, 8 to 256 sequences a step, 40,000 to 400,000
model tokens, at least 900 of either slice and 40 sequences with a tool in each third; prompt groups of 4 or
8; tokens of a sequence share its scale, tails are Student t with 4 degrees of freedom; steps carry AR(1)
noise of 0, 0.5 or 0.8 with a log-SD of 0.05 to 0.2, partly shared by both slices. Growth is late third over
early third of the true p99; it is linear, exponential, fast at first and then slower, a step, or a growing
share of sequences. Two further classes: growth by one ratio in both slices, from 0.1 nats in text-only and
from more than 1 nat in post-tool tails; and a jump that comes in the last fifth of the run. Noise that is
worse than that, or a run shorter than that, is not covered by these figures.

`false alarms` and `recall` are shares of runs with the signature `found`; onset error is in shares of the
run's steps (median), `in interval` the share of 95 % intervals that hold the true onset, `lead` the median
number of steps before the first aggregate's alarm where one came. The last columns are alarms of naive
detectors on the same runs: p95 of |r| over all tokens 1.5 times higher late than early; a 20-step mean KL
above 0.3; a Kolmogorov-Smirnov test of early against late post-tool tokens at p < 0.01."""


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Give one line a class."""
    lines = [
        "| class | n | found | not found | cannot say | false alarms | recall | onset error | in interval "
        "| lead | aggregates right |" + "".join(f" {name} |" for name in naive.NAMES),
        "|---|" + "---:|" * (10 + len(naive.NAMES)),
    ]
    for kind in CLASSES:
        mine = [one for one in outcomes if one.kind == kind]
        if not mine:
            continue
        count = {answer: sum(one.answer == answer for one in mine) for answer in Answer}
        share = f"{count[Answer.FOUND] / len(mine):.1%}"
        errors = [one.onset_error for one in mine if one.onset_error is not None]
        covered = [one.covered for one in mine if one.covered is not None]
        leads = [one.lead for one in mine if one.lead is not None]
        cells: list[object] = [
            kind,
            len(mine),
            *count.values(),
            share if kind not in GROWING else "",
            share if kind in GROWING else "",
            f"{np.median(errors):.1%}" if errors and kind in GROWING else "",
            f"{np.mean(covered):.0%}" if covered and kind in GROWING else "",
            f"{np.median(leads):.0f}" if leads and kind in GROWING else "",
            f"{np.mean([_aggregates_right(one) for one in mine]):.0%}",
            *(f"{np.mean([one.naive[number] for one in mine]):.0%}" for number in range(len(naive.NAMES))),
        ]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return lines


def _aggregates_right(one: Outcome) -> bool:
    return (one.aggregates == "alarming") == one.alarms_truly


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """Give each required figure, whether it is met, and the naive detectors' own."""

    def of(kinds: Sequence[str]) -> list[Outcome]:
        return [one for one in outcomes if one.kind in kinds]

    negative = of(NEGATIVE)
    false = [one.answer == Answer.FOUND for one in of((*NEGATIVE, *BLIND))]
    lines = [_line("false alarms", false, 0.01, at_most=True)]
    for name, kinds, least in (
        ("recall at 2.5x or more", POSITIVE[1:], 0.95),
        ("recall at 1.6x", POSITIVE[:1], 0.80),
        ("recall by nats", (BY_NATS,), 0.80),
        ("recall of growth in the last fifth", (LATE,), 0.60),
    ):
        lines.append(_line(name, [one.answer == Answer.FOUND for one in of(kinds)], least))
    late = [one.answer != Answer.NOT_FOUND for one in of((LATE,))]
    lines.append(_line("growth in the last fifth found or told", late, 1.0))
    said = [one.answer == Answer.CANNOT_SAY for one in of(BLIND)]
    said += [one.answer != Answer.FOUND for one in of(("zero-filled",))]
    lines.append(_line("cannot say where nothing can be said", said, 0.95))
    lines.append(_line("aggregates right", [_aggregates_right(one) for one in outcomes], 0.95))
    for number, name in enumerate(naive.NAMES):
        alarms = np.mean([one.naive[number] for one in negative])
        large, small = (np.mean([one.naive[number] for one in of(kinds)]) for kinds in (POSITIVE[1:], POSITIVE[:1]))
        lines.append(f"{name}: false alarms {alarms:.1%}, recall {large:.1%} at 2.5x or more, {small:.1%} at 1.6x")
    return lines


def _line(name: str, hits: Sequence[bool], required: float, *, at_most: bool = False) -> str:
    share = float(np.mean(hits)) if hits else float("nan")
    met = share <= required if at_most else share >= required
    bound = "at most" if at_most else "at least"
    counted = f"{share:.2%} ({sum(hits)} of {len(hits)})"
    return f"{'PASS' if met else 'FAIL'} {name}: {counted}, required {bound} {required:.0%}"


def run(runs: int, block: str) -> list[Outcome]:
    """Judge `runs` runs of a block, class by class in turn, on two processes."""
    seeds = SEEDS[block]
    tasks = [(CLASSES[number % len(CLASSES)], seeds[number // len(CLASSES)]) for number in range(runs)]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        return list(pool.map(outcome, tasks, chunksize=4))


def main(arguments: Sequence[str]) -> None:
    """Judge, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed-block", choices=sorted(SEEDS), default="tuning")
    parser.add_argument("--write", action="store_true", help="write docs/calibration.md")
    chosen = parser.parse_args(arguments)
    outcomes = run(chosen.runs, chosen.seed_block)
    rows, lines = table(outcomes), summary(outcomes)
    print("\n".join([*rows, "", *lines]))
    if chosen.write:
        PAGE.write_text(page(rows, lines, chosen.runs, chosen.seed_block), encoding="utf-8")


def page(rows: Sequence[str], lines: Sequence[str], runs: int, block: str) -> str:
    """Give the document."""
    command = f"python -m benchmarks.calibration --runs {runs} --seed-block {block} --write"
    seeds = SEEDS[block]
    head = [
        "# Calibration",
        "",
        f"Made by `{command}`: seeds from {seeds.start} on in each class, none of them used for tuning."
        if block == "held-out"
        else f"Made by `{command}`: seeds used for tuning.",
        "",
        ABOUT,
        "",
    ]
    return "\n".join([*head, *rows, "", *(f"- {line}" for line in lines), ""])


if __name__ == "__main__":
    main(sys.argv[1:])

"""Whether runs of one setting get one verdict: real runs of several seeds, and halves of each, judged side by side.

`python -m benchmarks.seed_stability base=RUN base=RUN healthy=RUN --out stability.md`: each RUN holds recorder Parquet
files below `tokens/`. Beside the whole run these parts of it are judged: both halves of its prompt groups (drawn within
each burst of steps on the same rollouts, seeded), and every second burst. An arm is stable where no two of its parts
answer found and not found, a tenth at most cannot say, and the severities of findings on tails lie one apart at most.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import polars as pl

from ptt import api
from ptt.diagnostics.model import Answer, Severity

TAIL_FINDINGS: Final = ("tool-tail-growth", "tail-growth-everywhere", "tails-high")
MAX_UNSURE_SHARE: Final = 0.1  # of an arm's parts that may answer "cannot say"
MAX_APART: Final = 1  # severities
SEED: Final = 20_261_122
WHOLE: Final = "whole"
STEP_FILES: Final = "tokens/*.parquet"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What was said of a run, or of a part of it."""

    arm: str
    run: str
    part: str
    steps: int
    status: Answer
    severity: Severity  # of the worst finding on tails; low where there is none
    said: str  # the id of that finding, with its level
    reason: str

    @property
    def cells(self) -> tuple[str, ...]:
        """One row of the table."""
        return self.run, self.part, str(self.steps), self.status.value, self.severity.value, self.said, self.reason


def judge(arm: str, run: Path, part: str, folder: Path, steps: int) -> Judged:
    """Diagnose one folder."""
    found = api.diagnose(folder)
    tails = [one for one in found.findings if one.id in TAIL_FINDINGS]
    worst = min(tails, key=lambda one: one.severity.rank, default=None)
    severity = Severity.LOW if worst is None else min(worst.severity, Severity.LOW, key=lambda one: one.rank)
    level = "" if worst is None or worst.observed is None else f" {worst.observed:.3g} {worst.unit}"
    return Judged(
        arm=arm,
        run=run.name,
        part=part,
        steps=steps,
        status=found.signature.status,
        severity=severity,
        said="-" if worst is None else f"{worst.id}{level}",
        reason=found.signature.reason,
    )


def parts_of(tokens: pl.DataFrame, *, draws: int, seed: int = SEED) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield named halves of a run's sequences: of its prompt groups, `draws` times both halves, and of its bursts."""
    unit = "group_id" if "group_id" in tokens.columns else "sample_id"
    bursts = bursts_of(tokens, unit)
    for draw in range(draws):
        generator = np.random.default_rng([seed, draw])
        first: set[str] = set()
        for burst in bursts:
            units = sorted(tokens.filter(pl.col("step").is_in(burst))[unit].unique().to_list())
            first |= set(generator.permutation(units)[: len(units) // 2].tolist())
        held = pl.col(unit).is_in(sorted(first))
        yield f"groups {draw}a", tokens.filter(held)
        yield f"groups {draw}b", tokens.filter(~held)
    for name, start in (("bursts odd", 0), ("bursts even", 1)):
        yield name, tokens.filter(pl.col("step").is_in([step for burst in bursts[start::2] for step in burst]))


def bursts_of(tokens: pl.DataFrame, unit: str) -> list[list[int]]:
    """Return the steps in order, together those that follow each other on the same groups of rollouts."""
    bursts: list[list[int]] = []
    before: frozenset[str] = frozenset()
    for (step,), rows in tokens.select("step", unit).sort("step").group_by(["step"], maintain_order=True):
        units = frozenset(rows[unit].to_list())
        if bursts and bursts[-1][-1] == int(step) - 1 and units & before:
            bursts[-1].append(int(step))
        else:
            bursts.append([int(step)])
        before = units
    return bursts


def judged_parts(arm: str, run: Path, *, draws: int) -> Iterator[Judged]:
    """Judge a run, then its parts: each written as a run of its own, with what the trainer logged beside the tokens."""
    tokens = pl.concat([pl.read_parquet(path) for path in sorted(run.glob(STEP_FILES))], how="diagonal_relaxed")
    yield judge(arm, run, WHOLE, run, tokens["step"].n_unique())
    for part, rows in parts_of(tokens, draws=draws):
        with TemporaryDirectory(prefix="half-") as temporary:
            folder = Path(temporary) / "run"
            (folder / "tokens").mkdir(parents=True)
            for path in sorted(run.iterdir()):
                if path.is_file():
                    shutil.copy(path, folder / path.name)
            for (step,), held in rows.group_by(["step"], maintain_order=True):
                held.write_parquet(folder / "tokens" / f"step_{int(step):06d}.parquet")
            yield judge(arm, run, part, folder, rows["step"].n_unique())


def summary(arm: str, judged: Sequence[Judged]) -> tuple[str, ...]:
    """Return an arm's row: its answers, its severities, and whether it is stable."""
    counts = {answer: sum(one.status is answer for one in judged) for answer in Answer}
    ranks = [one.severity.rank for one in judged]
    flips = min(counts[Answer.FOUND], counts[Answer.NOT_FOUND])
    unsure = counts[Answer.CANNOT_SAY]
    same = not flips and (unsure in (0, len(judged)) or unsure <= MAX_UNSURE_SHARE * len(judged))
    best, worst = (list(Severity)[rank].value for rank in (max(ranks), min(ranks)))
    return (
        arm,
        str(len({one.run for one in judged})),
        str(len(judged)),
        *(str(counts[answer]) for answer in Answer),
        best if best == worst else f"{best} to {worst}",
        "yes" if same else "no",
        "yes" if max(ranks) - min(ranks) <= MAX_APART else "no",
    )


def page(judged: Sequence[Judged]) -> str:
    """Return both tables: by arm, and every part."""
    arms = {one.arm: [each for each in judged if each.arm == one.arm] for one in judged}
    head = ("arm", "runs", "parts", *(answer.value for answer in Answer), "tails", "one status", "one severity apart")
    rows = [summary(arm, ones) for arm, ones in arms.items()]
    each = [(one.arm, *one.cells) for one in judged]
    return _table(head, rows) + "\n" + _table(("arm", "run", "part", "steps", "status", "tails", "by", "reason"), each)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def main(arguments: Sequence[str]) -> None:
    """Judge the runs and print, or write, the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="ARM=RUN", help="a run's folder, after the arm it belongs to")
    parser.add_argument("--draws", type=int, default=1, help="how often the prompt groups are halved (default 1)")
    parser.add_argument("--out", type=Path, help="a file for the tables")
    chosen = parser.parse_args(arguments)
    judged: list[Judged] = []
    for named in chosen.runs:
        arm, _, path = named.rpartition("=")
        if not arm or not any(Path(path).glob(STEP_FILES)):
            parser.error(f"{named}: not ARM=RUN with {STEP_FILES} below RUN")
        started = time.perf_counter()
        for one in judged_parts(arm, Path(path), draws=chosen.draws):
            judged.append(one)
            print(f"{time.perf_counter() - started:6.0f} s", arm, *one.cells, file=sys.stderr, flush=True)
    text = page(judged)
    if chosen.out is None:
        print(text)
    else:
        chosen.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

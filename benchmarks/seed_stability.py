"""Whether runs of one setting get one verdict: real runs of several seeds, and halves of each, judged side by side.

`python -m benchmarks.seed_stability base=RUN base=RUN healthy=RUN --out stability.md`: each RUN holds recorder Parquet
files below `tokens/`. Beside the whole run these parts of it are judged: both halves of its prompt groups (drawn within
each burst of steps on the same rollouts, seeded), and every second burst. An arm is stable where no two of its parts
answer found and not found, a tenth at most cannot say, and the severities of findings on tails lie one apart at most.

`... --baseline 3 sound=RUN sound=RUN ...` asks the gate instead: a baseline is made of each three runs of an arm, and
the arm's other runs are gated against it, as they are, and with their late post-tool tail as many times as high as the
gate says would fail (there the baseline alone decides). All of the first must pass, nine in ten of the second fail.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

import numpy as np
import polars as pl

from ptt import api
from ptt.diagnostics.gate.against_baseline import against
from ptt.diagnostics.gate.baseline.file import read_baseline, text_of
from ptt.diagnostics.gate.baseline.measure import baseline_of, measure
from ptt.diagnostics.gate.baseline.values import Baseline, hull
from ptt.diagnostics.gate.judge import judge as gate
from ptt.diagnostics.gate.policy import AgainstBaseline, Policy
from ptt.diagnostics.gate.results import Outcome
from ptt.diagnostics.model import Answer, Severity
from ptt.diagnostics.statistics.noninferiority import RATIO_LIMIT
from ptt.diagnostics.statistics.tail_curves import split_thirds
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.version import __version__

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


LATE_TAIL: Final = "baseline:tails.post_tool.late"
STATED: Final = re.compile(r"a tail ([0-9.]+) times as high as this would fail")
PLACEHOLDER: Final = Path("baseline.toml")
TODAY: Final = date(2000, 1, 1)  # dates allowances, of which there are none


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What the gate said of one run held against a baseline of others, and of the same run with a higher tail."""

    arm: str
    seeds: tuple[str, ...]  # of the baseline
    run: str
    outcome: str  # of the gate: passed, failed, blind; or refused, where the baseline could not be made
    why: str  # the checks that did not pass
    factor: float | None  # from which on the gate says a higher late tail would fail
    raised: str = ""  # what it said then, the baseline alone deciding

    @property
    def cells(self) -> tuple[str, ...]:
        """One row of the table."""
        factor = "-" if self.factor is None else f"{self.factor:.2f}"
        return " ".join(self.seeds), self.run, self.outcome, factor, self.raised or "-", self.why or "-"


def raise_late_tail(run: Path, to: Path, *, factor: float, first: int) -> None:
    """Copy a run with r = policy - ref of its post-tool tokens `factor` times as large from step `first` on.

    What is lowered is the smaller logprob of the two, so that none rises above 0; old and rollout logprobs move with
    the policy's, so that their pairs with it stay.
    """
    shutil.copytree(run, to)
    for path in sorted(to.glob(STEP_FILES)):
        table = pl.read_parquet(path)
        if table["step"].max() >= first:  # type: ignore[operator]
            table.with_columns(_raised(table, factor, first)).write_parquet(path)


def _raised(table: pl.DataFrame, factor: float, first: int) -> list[pl.Series]:
    moving = [name for name in ("policy_logp", "old_logp", "rollout_logp", "prox_logp") if name in table.columns]
    columns: dict[str, list[object]] = {name: [] for name in (*moving, "ref_logp")}
    for row in table.select("step", "model_mask", *columns).iter_rows(named=True):
        mask = np.array(row["model_mask"], bool)
        after = np.maximum.accumulate(~mask & np.maximum.accumulate(mask)) & mask  # an observation stands before
        values = {name: np.array(row[name], np.float64) for name in columns}
        r = values["policy_logp"] - values["ref_logp"]
        by = np.where(after & (row["step"] >= first), (factor - 1) * r, 0.0)
        for name in columns:
            values[name] += np.minimum(by, 0.0) if name != "ref_logp" else -np.maximum(by, 0.0)
            columns[name].append(values[name].astype(np.float32).tolist())
    return [pl.Series(name, held, dtype=table.schema[name]) for name, held in columns.items()]


def draws(arm: str, runs: Sequence[Path], *, size: int) -> Iterator[Drawn]:
    """Gate each run of an arm against baselines of every `size` others."""
    with TemporaryDirectory(prefix="draws-") as temporary:
        scratch = Path(temporary)
        opened = {run.name: api.open_run(run, out=scratch / f"store-{run.name}") for run in runs}
        for seeds in combinations(runs, size):
            names, held_out = tuple(run.name for run in seeds), [run for run in runs if run not in seeds]
            measured = [measure(opened[name]) for name in names]
            if refused := [reason for one in measured for reason in one.facts.accepted]:
                for run in held_out:
                    yield Drawn(
                        arm=arm, seeds=names, run=run.name, outcome="refused", why="; ".join(refused), factor=None
                    )
                continue
            file = scratch / PLACEHOLDER
            file.write_text(text_of(baseline_of(measured, name=arm, version=__version__)), encoding="utf-8")
            for run in held_out:
                yield _draw(arm, names, run, opened[run.name], read_baseline(file), scratch)


def _draw(arm: str, seeds: tuple[str, ...], run: Path, opened: LoadedRun, baseline: Baseline, scratch: Path) -> Drawn:
    policy = Policy(baseline=AgainstBaseline(file=PLACEHOLDER, held=baseline))
    found = gate(opened, policy, name=run.name, today=TODAY)
    stated = next((STATED.search(one.claim) for one in found.checks if one.id == LATE_TAIL), None)
    factor = float(stated[1]) if stated else None
    raised = ""
    if factor is not None:
        copy = scratch / "raised" / run.name
        raise_late_tail(run, copy, factor=factor, first=split_thirds(hull(baseline.runs))[2].first)
        answers = against(measure(api.open_run(copy, out=scratch / "raised-store")), baseline, limit=RATIO_LIMIT)
        raised = "failed" if any(one.outcome == "failed" for one in answers) else "not failed"
        for made in (copy, scratch / "raised-store"):
            shutil.rmtree(made)
    why = "; ".join(one.id for one in found.checks if one.outcome is not Outcome.PASSED and not one.excused)
    return Drawn(arm=arm, seeds=seeds, run=run.name, outcome=found.outcome.value, why=why, factor=factor, raised=raised)


def drawn_page(drawn: Sequence[Drawn]) -> str:
    """Return both tables: what was said by arm, and every judgement."""
    rows = []
    for arm in dict.fromkeys(one.arm for one in drawn):
        mine = [one for one in drawn if one.arm == arm]
        counts = [str(sum(one.outcome == word for one in mine)) for word in ("passed", "failed", "blind", "refused")]
        raised = sum(one.raised == "failed" for one in mine)
        factors = [one.factor for one in mine if one.factor is not None]
        median = f"{np.median(factors):.2f}" if factors else "-"
        rows.append((arm, str(len({one.seeds for one in mine})), str(len(mine)), *counts, median, str(raised)))
    head = ("arm", "draws", "judgements", "passed", "failed", "blind", "refused", "median factor", "failed when raised")
    each = ("arm", "baseline", "run", "gate", "would fail from", "when raised", "not passed")
    return _table(head, rows) + "\n" + _table(each, [(one.arm, *one.cells) for one in drawn])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


Told = TypeVar("Told", Judged, Drawn)


def _shown(made: Iterable[Told]) -> Iterator[Told]:
    """Yield each answer, and print it to stderr as it comes."""
    started = time.perf_counter()
    for one in made:
        print(f"{time.perf_counter() - started:6.0f} s", one.arm, *one.cells, file=sys.stderr, flush=True)
        yield one


def main(arguments: Sequence[str]) -> None:
    """Judge the runs and print, or write, the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="ARM=RUN", help="a run's folder, after the arm it belongs to")
    parser.add_argument(
        "--baseline", type=int, metavar="N", help="gate against baselines of N runs of each arm instead"
    )
    parser.add_argument("--draws", type=int, default=1, help="how often the prompt groups are halved (default 1)")
    parser.add_argument("--out", type=Path, help="a file for the tables")
    chosen = parser.parse_args(arguments)
    arms: dict[str, list[Path]] = {}
    for named in chosen.runs:
        arm, _, path = named.rpartition("=")
        if not arm or not any(Path(path).glob(STEP_FILES)):
            parser.error(f"{named}: not ARM=RUN with {STEP_FILES} below RUN")
        arms.setdefault(arm, []).append(Path(path))
    if chosen.baseline:
        drawn = (one for arm, runs in arms.items() for one in draws(arm, runs, size=chosen.baseline))
        text = drawn_page([*_shown(drawn)])
    else:
        judged = (one for arm in arms for run in arms[arm] for one in judged_parts(arm, run, draws=chosen.draws))
        text = page([*_shown(judged)])
    if chosen.out is None:
        print(text)
    else:
        chosen.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

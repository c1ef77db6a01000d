"""How often `ptt gate` with a baseline decides wrongly: whole runs, tails and metrics together, as a policy has them.

`python -m benchmarks.gate_joint --settings 150` prints the section; `--write` puts it into docs/gate-calibration.md.
Its seeds lie from 60,000 on in the block `held-out`, which nothing else uses.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import polars as pl

from benchmarks.calibration import SEEDS
from benchmarks.designs import Curve, Design
from benchmarks.gate_calibration import (
    ALIKE,
    COUNTS,
    KINDS,
    MOST_WRONG,
    PAGE,
    SEED_SD,
    SIZES,
    TOLD,
    WHOLE_GATE,
    factors,
    profile_of,
    truth,
)
from benchmarks.synthetic import FloatArray, another, make, other_metrics
from ptt.diagnostics.evidence.series import Series, series_table
from ptt.diagnostics.gate.against_baseline import with_baseline
from ptt.diagnostics.gate.baseline.file import text_of
from ptt.diagnostics.gate.baseline.measure import baseline_of, measure
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.policy import AgainstBaseline, Policy
from ptt.diagnostics.gate.results import Outcome
from ptt.diagnostics.model import Aggregates, Answer, Diagnosis, Run, RunVerdict, Signature, Status
from ptt.diagnostics.statistics.noninferiority import MATERIAL_NATS
from ptt.diagnostics.statistics.tail_curves import SPAN_COUNT
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.version import __version__

FIRST: Final = 60_000  # of the block: seeds from here on are used by this bench alone
HELD: Final = COUNTS  # runs in the baseline
ASKED: Final = ((1.0, "all"), (1.6, "all"), (1.6, "late"))
TODAY: Final = date(2000, 1, 1)  # dates allowances, of which there are none
ORDER: Final = (Outcome.PASSED, Outcome.FAILED, Outcome.BLIND)

ABOUT: Final = """\
The figures above test tails alone. Here whole runs go through all stages of `ptt gate`: tokens are measured, a baseline
file of one, two, three or five seeds is written and read again, and the gate judges by this policy:

```toml
[gate]
severity = "never"   # growing classes rightly have findings; here only the baseline decides
[gate.baseline]
file = "..."
```

Classes, noise, factors and truth are as above. Beside its tokens each seed logs five metrics (reward, entropy, KL,
gradient norm, loss) at the setting's levels with AR(1) noise of 0.5, equally large in both, so none of them may fail.
Tails are one family of tests (0.02), metrics another (0.01). A metric that is too noisy to judge passes unless it
measures 1.6 times worse; a tail only where three seeds or more cannot bound it and it lies nearer to the limit than to
1.6. `wrong` is a failed gate where nothing is worse, or a passed gate where post-tool tails are 1.6 times as high."""
SIZE_ABOUT: Final = """\
By length of the runs; `blind` is exit code 4. Tails 1.6 times as high in the last third alone are the hardest case: a
95% interval must exclude exactly 1.6 before a run passes, so up to 2.5% of such runs may pass, and only a third of the
steps shows the growth."""


@dataclass(frozen=True, kw_only=True)
class Gated:
    """What the gate said of one run, beside what is true of it."""

    kind: str
    seed: int
    steps: int
    seeds: int  # in the baseline
    asked: tuple[float, str]
    factor: float  # as in gate_calibration
    outcome: str
    checks: tuple[tuple[str, str, bool, float | None, float | None], ...]  # id, outcome, excused, low, high

    @property
    def wanted(self) -> str | None:
        """What must not be contradicted; None in between."""
        return "passed" if self.factor <= ALIKE else "failed" if self.factor >= TOLD else None

    @property
    def wrong(self) -> bool:
        """Passed where it should fail, or failed where it should pass."""
        return self.outcome != "blind" and self.wanted not in (None, self.outcome)


def opened(frame: pl.DataFrame, metrics: dict[str, FloatArray], name: str) -> LoadedRun:
    """Give a made run as the gate sees one."""
    profile = profile_of(frame)
    steps = np.unique(frame["step"].to_numpy()).astype(np.int64)
    series = {
        one: Series(name=one, raw_name=one, steps=steps, values=values, flags=np.zeros(len(steps), np.uint8))
        for one, values in metrics.items()
    }
    run = Run(
        name=name,
        framework="trl",
        algorithm=None,
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        step_count=len(steps),
        sequences=frame.height,
        model_tokens=int(profile.cells["n"].cast(pl.Int64).sum()),
    )
    nothing = Aggregates(status="cannot_say", metrics={}, alarms={})
    diagnosis = Diagnosis(
        run=run,
        verdict=RunVerdict(status=Status.HEALTHY, headline="", first_broken_link=None, next=()),
        signature=Signature(status=Answer.CANNOT_SAY, reason="not asked", pair=profile.pair, aggregates=nothing),
        findings=(),
        healthy=(),
        not_judged=(),
        crashes=(),
        sources=(),
        tables={"series": series_table(series)},
    )
    source = hashlib.sha256(name.encode()).hexdigest()
    return LoadedRun(diagnosis=diagnosis, profile=profile, why_no_profile="", source=source, kind="run")


def larger(design: Design, asked: tuple[float, str]) -> Design:
    """Give the setting whose post-tool |r| are so many times as large, and nothing else."""
    size, where = asked
    begin = (design.steps * 2 // 3) / max(1, design.steps - 1) - 1e-9 if where == "late" else 0.0
    before = design.post
    post: Curve = lambda u: before(u) * np.where(u >= begin, size, 1.0)  # noqa: E731
    return replace(design, post=post)


def gated(kind: str, seed: int, folder: Path, *, held: Sequence[int] = HELD) -> Iterator[Gated]:
    """Gate the first seed of a setting, its tails as they are and larger, against baselines of the others."""
    design = make(kind, seed).design

    def run(number: int, of: Design = design) -> LoadedRun:
        own = 1000 * seed + number
        moved = np.exp(SEED_SD * np.random.default_rng([own, 5]).normal(size=2))
        seeded = replace(of, p99=of.p99 * moved[0], text_p99=of.text_p99 * moved[1])
        return opened(another(seeded, own), other_metrics(design, own, setting=seed), f"seed {number} {of is design}")

    theirs = [measure(run(number)) for number in range(1, 1 + max(held))]
    policies = {}
    for count in held:
        file = folder / f"{count}.toml"
        text = text_of(baseline_of(theirs[:count], name="made", version=__version__))
        file.write_text(text, encoding="utf-8")
        policies[count] = with_baseline(Policy(severity=None, baseline=AgainstBaseline(file=file)))
    for asked in ASKED:
        mine = run(0, design if asked[0] == 1 else larger(design, asked))
        for count, policy in policies.items():
            told = judge(mine, policy, name="run", today=TODAY)
            yield Gated(
                kind=kind,
                seed=seed,
                steps=design.steps,
                seeds=count,
                asked=asked,
                factor=_factor(design, asked),
                outcome=told.outcome.value,
                checks=tuple((one.id, one.outcome.value, one.excused, one.low, one.high) for one in told.checks),
            )


def _factor(design: Design, asked: tuple[float, str]) -> float:
    middles = (np.arange(SPAN_COUNT) + 0.5) / SPAN_COUNT
    levels = {name: np.array([design.level(float(name[1:]) / 100, u) for u in middles]) for name in MATERIAL_NATS}
    return truth(levels, factors(asked))


def every(settings: int, block: str, *, start: int = 0) -> Iterable[Gated]:
    """Gate the settings of a block one after the other."""
    seeds = SEEDS[block][FIRST:] if block == "held-out" else SEEDS[block]
    with TemporaryDirectory() as folder:
        for number in range(start, settings):
            yield from gated(KINDS[number % len(KINDS)], seeds[number // len(KINDS)], Path(folder))


def _share(part: Sequence[bool]) -> str:
    return f"{np.mean(part):.1%}" if len(part) else ""


def _made(asked: tuple[float, str]) -> str:
    return "the same" if asked[0] == 1 else f"{asked[0]:g}x{' late' if asked[1] == 'late' else ''}"


def summary(found: Sequence[Gated]) -> list[str]:
    """Give each required figure, and whether it is met."""
    lines = []
    for seeds in sorted({one.seeds for one in found}):
        mine = [one for one in found if one.seeds == seeds and one.wanted]
        questions = [
            ("runs of one setting fail", [one for one in mine if one.asked == ASKED[0]]),
            ("tails 1.6x pass", [one for one in mine if one.asked == ASKED[1] and one.wanted == "failed"]),
            ("tails 1.6x late pass", [one for one in mine if one.asked == ASKED[2] and one.wanted == "failed"]),
            ("all of these", mine),
        ]
        for name, part in questions:
            wrong = sum(one.wrong for one in part)
            share = wrong / len(part) if part else math.nan
            lines.append(
                f"{'PASS' if share <= MOST_WRONG else 'FAIL'} {name}, {seeds} in the baseline: {share:.2%}"
                f" ({wrong} of {len(part)}), required at most {MOST_WRONG:.0%}"
            )
    return lines


def answers(found: Sequence[Gated]) -> list[str]:
    """Give what the gate said by how large the tails were made."""
    lines = [
        "| seeds in the baseline | post-tool tails | true factor | pairs | passed | failed | blind | wrong |",
        "|---:|---|---|---:|---:|---:|---:|---:|",
    ]
    for seeds in sorted({one.seeds for one in found}):
        for asked in ASKED:
            for wanted, name in (("passed", "1"), (None, "between"), ("failed", "1.6 or more")):
                mine = [one for one in found if (one.seeds, one.asked, one.wanted) == (seeds, asked, wanted)]
                if mine:
                    shares = [_share([one.outcome == outcome for one in mine]) for outcome in ORDER]
                    wrong = str(sum(one.wrong for one in mine)) if wanted else ""
                    cells = [str(seeds), _made(asked), name, str(len(mine)), *shares, wrong]
                    lines.append(f"| {' | '.join(cells)} |")
    return lines


def by_size(found: Sequence[Gated]) -> list[str]:
    """Give how often the gate is blind and wrong by how long runs are."""
    lines = [
        "| seeds in the baseline | steps | settings | same: passed | same: blind | 1.6x: failed | 1.6x: blind "
        "| 1.6x late: failed | 1.6x late: blind | wrong |",
        "|---:|---|" + "---:|" * 8,
    ]
    for seeds in sorted({one.seeds for one in found}):
        for low, high in SIZES:
            mine = [one for one in found if one.seeds == seeds and low <= one.steps < high]
            if not mine:
                continue
            cells = [str(seeds), f"{low} to {high - 1}", str(sum(one.asked == ASKED[0] for one in mine))]
            for asked, right in zip(ASKED, ("passed", "failed", "failed"), strict=True):
                part = [one for one in mine if one.asked == asked and one.wanted == right]
                cells += [_share([one.outcome == outcome for one in part]) for outcome in (right, "blind")]
            lines.append("| " + " | ".join([*cells, str(sum(one.wrong for one in mine))]) + " |")
    return lines


def blinding(found: Sequence[Gated]) -> list[str]:
    """Give which checks leave the gate blind on runs alike, and how often each cannot be said."""
    lines = [
        "| seeds in the baseline | check | asked | cannot say | leaves the gate blind | failed |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    alike = [one for one in found if one.asked == ASKED[0]]
    for seeds in sorted({one.seeds for one in alike}):
        mine = [one for one in alike if one.seeds == seeds]
        counted = Counter((id_, out, excused) for one in mine for id_, out, excused, *_ in one.checks)
        for id_ in sorted({key[0] for key in counted if key[0].startswith("baseline")}):
            asked = sum(count for key, count in counted.items() if key[0] == id_)
            blind = [sum(n for (i, out, e), n in counted.items() if (i, out, e) == (id_, "blind", held))
                     for held in (True, False)]  # fmt: skip
            failed = sum(n for (i, out, _), n in counted.items() if (i, out) == (id_, "failed"))
            name = id_.removeprefix("baseline:")
            shares = f"{sum(blind) / asked:.1%} | {blind[1] / asked:.1%} | {failed / asked:.1%}"
            lines.append(f"| {seeds} | `{name}` | {asked} | {shares} |")
    return lines


def section(found: Sequence[Gated], settings: int, block: str) -> str:
    """Give the section of the page."""
    seeds = SEEDS[block]
    first = seeds.start + (FIRST if block == "held-out" else 0)
    parts = [
        WHOLE_GATE,
        f"Made by `python -m benchmarks.gate_joint --settings {settings} --seed-block {block} --write`: seeds from"
        f" {first} on in each class, used for nothing else.",
        ABOUT,
        "\n".join(f"- {line}" for line in summary(found)),
        "\n".join(answers(found)),
        SIZE_ABOUT,
        "\n".join(by_size(found)),
        "What the gate cannot say for runs of one setting:",
        "\n".join(blinding(found)),
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Gate, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=int, default=150)
    parser.add_argument("--seed-block", choices=sorted(SEEDS), default="held-out")
    parser.add_argument(
        "--keep", type=Path, help="a file of every answer, one line each: what is there is not made again"
    )
    parser.add_argument("--write", action="store_true", help="write the section into docs/gate-calibration.md")
    chosen = parser.parse_args(arguments)
    found = read_kept(chosen.keep)
    done = len({(one.kind, one.seed) for one in found})
    for one in every(chosen.settings, chosen.seed_block, start=done):
        found.append(one)
        if chosen.keep:
            kept(chosen.keep, one)
    text = section(found, chosen.settings, chosen.seed_block)
    print(text)
    if chosen.write:
        write(text)


def write(text: str) -> None:
    """Put the section at the end of the page; what stands before it stays."""
    before = PAGE.read_text(encoding="utf-8").partition(f"{WHOLE_GATE}\n")[0].rstrip()
    PAGE.write_text(f"{before}\n\n{text}", encoding="utf-8")


def kept(file: Path, one: Gated) -> None:
    """Add an answer to a file."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(one)) + "\n")


def read_kept(file: Path | None) -> list[Gated]:
    """Read answers of an earlier call; a setting of which some are missing is made again."""
    if file is None or not file.exists():
        return []
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    whole = len(found) - len(found) % (len(ASKED) * len(HELD))
    return [
        Gated(**held | {"asked": tuple(held["asked"]), "checks": tuple(map(tuple, held["checks"]))})
        for held in found[:whole]
    ]


if __name__ == "__main__":
    main(sys.argv[1:])

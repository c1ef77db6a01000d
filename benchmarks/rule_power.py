"""What rules on logged curves find in 10, 30, 100 and 1,000 rows, by simulation: of faults, and of sound runs.

`python -m benchmarks.rule_power --write` puts the table at the end of docs/calibration.md; without it, it is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.loop.noise import FloatArray, Generator, progress, some_ar
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.evidence.rewards import Rewards
from ptt.diagnostics.evidence.series import Series, finite_series
from ptt.diagnostics.model import Broken, Healthy, Run, Severity
from ptt.diagnostics.rules import RULES

PAGE: Final = Path(__file__).parent.parent / "docs" / "calibration.md"
HEADING: Final = "## Rules on curves, by the number of rows"
LENGTHS: Final = (10, 30, 100, 1000)
DRAWS: Final = 200
SEED: Final = 20_261_127
EVALUATIONS: Final = 8
BY_ID: Final = {rule.id: rule for rule in RULES}
GRPO: Final = Algorithm(name="grpo", family=Family.ONLINE, critic=False, groups=True)
SFT: Final = Algorithm(name="sft", family=Family.SUPERVISED)
DPO: Final = Algorithm(name="dpo", family=Family.PREFERENCE)
Curves = dict[str, FloatArray]
Draw = Callable[[Generator, int], Curves]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault that a rule names, and a run that looks like it and is sound."""

    rule: str
    fault: str
    broken: Draw
    sound: Draw
    algorithm: Algorithm = GRPO


def near(generator: Generator, count: int, level: float | FloatArray, sd: float) -> FloatArray:
    """Draw a level with noise whose autocorrelation is one that real runs have; never below 0."""
    return np.maximum(level + some_ar(generator, count, sd), 0.0)


def from_to(count: int, early: float, late: float, at: float) -> FloatArray:
    """Give one level, then another after a ramp of a twentieth of the run that begins at a share of it."""
    return np.interp(np.linspace(0, 1, count), [at, at + 0.05], [early, late])


def learnt(generator: Generator, count: int, first: float = 0.3, last: float = 0.6, sd: float = 0.05) -> FloatArray:
    """Draw a reward that is learnt."""
    return near(generator, count, first + (last - first) * progress(generator, count), sd)


def _evaluated(values: FloatArray, count: int) -> Curves:
    at = np.unique(np.linspace(0, count - 1, min(EVALUATIONS, count)).astype(int))
    held = np.full(count, np.nan)
    held[at] = np.interp(np.linspace(0, 1, len(at)), np.linspace(0, 1, len(values)), values)
    return {"loss/total": np.linspace(2.0, 0.5, count), "eval/loss": held}


CASES: Final = (
    Case(
        rule="reward-stuck", fault="reward flat at 0.05, sd 0.01",
        broken=lambda g, n: {"reward/mean": near(g, n, 0.05, 0.01)},
        sound=lambda g, n: {"reward/mean": learnt(g, n, 0.05, 0.25, 0.03)},
    ),
    Case(
        rule="reward-stuck", fault="reward flat at 0.4, sd 0.05",
        broken=lambda g, n: {"reward/mean": near(g, n, 0.4, 0.05)},
        sound=lambda g, n: {"reward/mean": learnt(g, n)},
    ),
    Case(
        rule="reward-stuck", fault="reward exactly 0 at 87 of 100 steps",
        broken=lambda g, n: {"reward/mean": g.uniform(0.05, 0.4, n) * (g.random(n) < 0.13)},
        sound=lambda g, n: {"reward/mean": g.uniform(0.05, 0.4, n) * (g.random(n) < np.linspace(0.05, 0.9, n))},
    ),
    Case(
        rule="reward-fell", fault="reward 0.6 → 0.05 at a quarter, sd 0.05",
        broken=lambda g, n: {"reward/mean": near(g, n, from_to(n, 0.6, 0.05, 0.25), 0.05)},
        sound=lambda g, n: {"reward/mean": learnt(g, n)},
    ),
    Case(
        rule="reward-fell", fault="reward 0.6 → 0.2 at a half, sd 0.05",
        broken=lambda g, n: {"reward/mean": near(g, n, from_to(n, 0.6, 0.2, 0.5), 0.05)},
        sound=lambda g, n: {"reward/mean": near(g, n, from_to(n, 0.3, 0.6, 0.3), 0.1)},
    ),
    Case(
        rule="entropy-collapse", fault="entropy 2.5 → 0.03 nats, reward flat at 0.4",
        broken=lambda g, n: {"entropy": from_to(n, 2.5, 0.03, 0.4) * np.exp(some_ar(g, n, 0.1)),
                             "reward/mean": near(g, n, 0.4, 0.03)},
        sound=lambda g, n: {"entropy": np.geomspace(2.5, 0.2, n) * np.exp(some_ar(g, n, 0.1)),
                            "reward/mean": learnt(g, n)},
    ),
    Case(
        rule="kl-over-target", fault="KL 0.02 → 0.6 nats at a half",
        broken=lambda g, n: {"kl/ref": from_to(n, 0.02, 0.6, 0.5) * np.exp(some_ar(g, n, 0.3))},
        sound=lambda g, n: {"kl/ref": 0.08 * np.linspace(0.02, 1, n) * np.exp(some_ar(g, n, 0.4))},
    ),
    Case(
        rule="kl-over-target", fault="KL 0.6 nats from the first log on (a note)",
        broken=lambda g, n: {"kl/ref": 0.6 * np.exp(some_ar(g, n, 0.1))},
        sound=lambda g, n: {"kl/ref": 0.1 * np.exp(some_ar(g, n, 0.3))},
    ),
    Case(
        rule="no-signal-groups", fault="spread within groups 0.3 → 0.01",
        broken=lambda g, n: {"reward/std": from_to(n, 0.3, 0.01, 0.5) * np.exp(some_ar(g, n, 0.1)),
                             "reward/mean": near(g, n, 0.4, 0.03)},
        sound=lambda g, n: {"reward/std": np.linspace(0.3, 0.15, n) * np.exp(some_ar(g, n, 0.15)),
                            "reward/mean": learnt(g, n)},
    ),
    Case(
        rule="components-diverge", fault="format 0.2 → 1 while right answers stay at 0.3",
        broken=lambda g, n: {"part:format": np.clip(near(g, n, from_to(n, 0.2, 1.0, 0.3), 0.02), 0, 1),
                             "part:correctness": near(g, n, 0.3, 0.02)},
        sound=lambda g, n: {"part:format": np.clip(near(g, n, from_to(n, 0.2, 1.0, 0.1), 0.02), 0, 1),
                            "part:correctness": np.clip(learnt(g, n), 0, 1)},
    ),
    Case(
        rule="reward-hacking", fault="reward 0.2 → 0.75 while the true score stays below 0.02",
        broken=lambda g, n: {"reward/mean": learnt(g, n, 0.2, 0.75, 0.03), "reward/true": near(g, n, 0.01, 0.003)},
        sound=lambda g, n: (lambda done: {"reward/mean": near(g, n, 0.2 + 0.55 * done, 0.03),
                                          "reward/true": near(g, n, 0.1 + 0.4 * done, 0.03)})(progress(g, n)),
    ),
    Case(
        rule="at-chance", fault="half of 64 pairs a row ranked right", algorithm=DPO,
        broken=lambda g, n: {"dpo/accuracy": g.binomial(64, 0.5, n) / 64},
        sound=lambda g, n: {"dpo/accuracy": g.binomial(64, 0.5 + 0.2 * np.minimum(1, np.linspace(0, 3, n)), n) / 64},
    ),
    Case(
        rule="overfitting", fault="loss of 8 evaluations 1.0 → 1.5 from a half on", algorithm=SFT,
        broken=lambda g, n: _evaluated(np.interp(np.linspace(0, 1, EVALUATIONS), [0, 0.4, 1], [1.5, 1.0, 1.5])
                                       * np.exp(g.normal(0, 0.005, EVALUATIONS)), n),
        sound=lambda g, n: _evaluated(np.interp(np.linspace(0, 1, EVALUATIONS), [0, 0.6, 1], [1.5, 1.0, 1.01])
                                      * np.exp(g.normal(0, 0.005, EVALUATIONS)), n),
    ),
    Case(
        rule="truncated-share", fault="all answers 4,096 tokens long from a half on, no share logged",
        broken=lambda g, n: {"len/response_mean": np.where(np.arange(n) >= n // 2, 4096.0, 900 + some_ar(g, n, 90))},
        sound=lambda g, n: {"len/response_mean": np.linspace(600, 900, n) + some_ar(g, n, 60)},
    ),
)  # fmt: skip


def evidence_of(curves: Curves, algorithm: Algorithm, rows: int) -> Evidence:
    """Return curves as a rule is given them."""
    series: dict[str, Series] = {}
    for name, values in curves.items():
        logged = ~np.isnan(values)
        series[name] = finite_series(name, np.flatnonzero(logged) + 1, values[logged])
    parts = {name.removeprefix("part:"): one for name, one in series.items() if name.startswith("part:")}
    return Evidence(
        run=Run(
            name="drawn",
            framework=None,
            algorithm=algorithm.name,
            first_step=1,
            last_step=rows,
            step_count=rows,
            sequences=0,
            model_tokens=0,
        ),
        algorithm=algorithm,
        metrics={name: one for name, one in series.items() if not name.startswith(("part:", "eval/"))},
        eval_loss=series.get("eval/loss"),
        rewards=Rewards(components=parts) if parts else None,
    )


def shares(case: Case, draw: Draw, rows: int, draws: int = DRAWS) -> tuple[float, float]:
    """Return the share of runs with a finding of medium severity or above, and of those with any."""
    generator = np.random.default_rng([SEED, rows])
    found = noted = 0
    for _ in range(draws):
        match BY_ID[case.rule].run(evidence_of(draw(generator, rows), case.algorithm, rows)):
            case Broken(findings=said) | Healthy(notes=said):
                found += any(one.severity.at_least(Severity.MEDIUM) for one in said)
                noted += bool(said)
            case _:
                pass
    return found / draws, noted / draws


def _cell(found: float, noted: float) -> str:
    return f"{found:.0%}" if noted == found else f"{found:.0%} ({noted:.0%})"


def section() -> str:
    """Return the table."""
    heads = "".join(f" {rows:,} |" for rows in LENGTHS)
    lines = [
        HEADING,
        "",
        f"Made by `python -m benchmarks.rule_power --write`: {DRAWS} draws a cell, noise with an AR(1) of 0 to 0.8. "
        "The share of runs with a finding of medium severity or above, and in brackets with any finding or note; of "
        "faults, and of sound runs that look like them.",
        "",
        f"| rule | fault |{heads} sound:{heads}",
        "|---|---|" + "---:|" * len(LENGTHS) + "---:|" * len(LENGTHS),
    ]
    for case in CASES:
        cells = [_cell(*shares(case, draw, rows)) for draw in (case.broken, case.sound) for rows in LENGTHS]
        lines.append(f"| {case.rule} | {case.fault} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def with_section(page: str, text: str, heading: str = HEADING) -> str:
    """Return a page that ends with a section, in place of the one it had."""
    return page.split(heading)[0].rstrip("\n") + "\n\n" + text


def main(arguments: Sequence[str]) -> None:
    """Draw, judge, print or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write it into docs/calibration.md")
    text = section()
    if parser.parse_args(arguments).write:
        PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])

"""How often a gate built on `tails_against` decides wrongly, on pairs of made runs whose truth is known.

`python -m benchmarks.gate_calibration --settings 200 --seed-block held-out` prints the tables; `--write` puts them
into docs/gate-calibration.md. Whatever was tuned was tuned on the block `tuning`; no two blocks share a seed.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.calibration import SEEDS
from benchmarks.designs import Design
from benchmarks.synthetic import another, make
from benchmarks.tails_against import tails_against
from ptt.diagnostics.statistics.logprob_pairs import available_pairs
from ptt.diagnostics.statistics.noninferiority import MATERIAL_NATS, Decision
from ptt.diagnostics.statistics.slices import MIN_OBSERVATION
from ptt.diagnostics.statistics.tail_curves import SPAN_COUNT, Curve, Profile, tail_curves, third_of
from ptt.diagnostics.statistics.token_pass import token_pass
from ptt.diagnostics.statistics.windows import Span, split_steps

FloatArray = npt.NDArray[np.float64]
Tails = Mapping[str, Sequence[Curve]]  # slice -> p95 and p99 of one run

PAGE: Final = Path(__file__).parents[1] / "docs" / "gate-calibration.md"
KINDS: Final = (
    "stable",
    "high but stable",
    "exposure",
    "uniform growth",
    "text-only growth",
    "text-only decline",
    "hump",
    "immaterial growth",
    "rare but extreme",
    "growth 2.5x",
)
SLICES: Final = ("text_only", "post_tool")
COUNTS: Final = (1, 2, 3, 5)  # seeds in the baseline
BASELINES: Final = max(COUNTS)
ASKED: Final = ((1.0, "all"), (1.1, "all"), (1.25, "all"), (1.6, "all"), (1.6, "late"))
SEED_SD: Final = 0.085  # log-SD between seeds: two of them then lie 0.12 apart, as in arms of real runs
WIDE_SD: Final = 0.19  # of the arm whose seeds lie furthest apart
THIRD: Final = 3  # one setting in three is asked again with it
ALIKE: Final = 1.001
TOLD: Final = 1.599
ORDER: Final = ("worse", "not_worse", "cannot_say")
MOST_WRONG: Final = 0.01
ENOUGH_STEPS: Final = 80  # with ENOUGH_SEEDS in the baseline, so long a run is to be judged
ENOUGH_SEEDS: Final = 3
LEAST_FOUND: Final = 0.9  # of runs with tails 1.6 times as large
MOST_BLIND: Final = 0.1  # of runs of one setting
WHOLE_GATE: Final = "## The whole gate"
"""Heading of the last section, which benchmarks/gate_joint.py writes and this bench leaves as it is."""
SIZES: Final = ((20, 40), (40, 80), (80, 160), (160, 320), (320, 501))

ABOUT: Final = """\
Settings are made as in [calibration.md](calibration.md), in the classes where two seeds of one setting make sense:
{kinds}. Each is made with six seeds: one run, and one, two, three or five others as its baseline. Every run's tails
are multiplied by a log-normal factor with a log-SD of {sd:g} of its own, a different one for each slice: seeds of
one setting differ by this much in real runs. Steps carry AR(1) noise of 0, 0.5 or 0.8 with a log-SD of
0.05 to 0.2, drawn for each run. The run's post-tool tails are unchanged, or every post-tool |r| is 1.1, 1.25 or
1.6 times as large, over the whole run or in its last third.

The gate tests both slices, over the whole run and in its last third, by p95 and p99 in twelve spans of steps.
`worse`: one of them exceeds 1.25 times the baseline beyond noise (Simes over both percentiles, Hommel over all tests,
at 0.02). `not worse`: the 95% interval of every factor over the run lies below 1.6, and so does the one-sided 95% bound
late in the run. Otherwise it cannot say. Noise comes from steps, from sequences and from seeds; a prior from real seeds
supplies what one or two seeds cannot show. Tails below {p99:.2f} nats (p99) and {p95:.2f} (p95)
count as these values: growth below them is harmless and must pass. `true factor` is that of the raised tails, in the
whole run or in its last third, whichever is larger: 1 must not fail, 1.6 must not pass, and in between both are
acceptable. `wrong` is a pass that should fail, or a failure that should pass; cannot say is neither. Where the true
factor is `between` at 1.6x, the baseline's own tails are too small to matter and the run's are not.

The truth is that of the setting. A run whose seed lies 2.5 standard deviations below it, compared with seeds above it,
has tails only 1.13 times as high where the true factor is 1.6, and passes. With few settings one such pair can decide a
figure below.""".format(kinds=", ".join(KINDS), sd=SEED_SD, **MATERIAL_NATS)
SIZE_NEEDED: Final = """\
`same` covers all pairs that must not fail. Short runs with autocorrelated noise cannot be judged: the ratio of two runs
over 20 steps of AR(1) 0.8 with a log-SD of 0.2 is known to a factor of 1.4 at best, and that of their last thirds to
1.6. Record 80 steps and give three seeds."""
APART: Final = """\
A third of the settings again, with seeds whose log-SD is {size:g}, as wide as the widest group of real seeds.
The truth is that of the setting. No test can recognise a seed that lies 1.6 times above it by chance, so no required
figure rests on this table."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting and its seeds' tails: the first is held against the others."""

    seed: int
    design: Design
    runs: tuple[Tails, ...]
    truth: Mapping[str, FloatArray]  # percentile -> true post-tool level of each span


@dataclass(frozen=True, kw_only=True)
class Decided:
    """What was decided of one pair, beside what is true of it."""

    kind: str
    steps: int
    seeds: int  # in the baseline
    asked: tuple[float, str]  # times the tails, and where
    factor: float  # true factor of the post-tool tail, raised to MATERIAL: the larger of whole run and late third
    decision: Decision

    @property
    def wanted(self) -> Decision | None:
        """What must not be contradicted; None in between, where either is a matter of degree."""
        return "not_worse" if self.factor <= ALIKE else "worse" if self.factor >= TOLD else None

    @property
    def wrong(self) -> bool:
        """Passed where it should fail, or failed where it should pass."""
        return self.decision != "cannot_say" and self.wanted not in (None, self.decision)


def profile_of(frame: pl.DataFrame) -> Profile:
    """Take a made run through the token pass."""
    tables = token_pass(
        frame.lazy().select("seq", "step", "model_mask", "policy_logp", "ref_logp"),
        pairs=available_pairs({"policy_logp", "ref_logp"}),
        min_observation=MIN_OBSERVATION,
    )
    by = "group_id" if "group_id" in frame.columns else "seq"
    units = frame.select("seq", pl.col("seq").min().over(by).alias("unit"))
    return Profile(
        pair="policy/ref",
        slices=dict(enumerate(SLICES)),
        cells=tables.cells_of(0),
        sequences=tables.sequences.join(units, on="seq", how="left", maintain_order="left"),
        unit="prompt group" if by == "group_id" else "sequence",
    )


def setting(kind: str, seed: int, *, baselines: int = BASELINES) -> Setting:
    """Make a setting and its seeds."""
    first = make(kind, seed)
    design = first.design
    spans = split_steps(range(1, design.steps + 1), SPAN_COUNT)
    frames = [first.frame, *(another(design, 1000 * seed + number) for number in range(baselines))]
    runs = tuple(tails_of(profile_of(frame), spans) for frame in frames)
    middles = [(span.middle - 1) / (design.steps - 1) for span in spans]
    truth = {name: np.array([design.level(float(name[1:]) / 100, u) for u in middles]) for name in MATERIAL_NATS}
    return Setting(seed=seed, design=design, runs=runs, truth=truth)


def tails_of(profile: Profile, spans: Sequence[Span]) -> Tails:
    """Measure both slices."""
    return {name: tuple(tail_curves(profile, slice_name=name, spans=spans).values()) for name in SLICES}


def decide(made: Setting, *, asked: tuple[float, str], seeds: int, seed_sd: float = SEED_SD) -> Decided:
    """Hold the first seed, its post-tool tails so many times as large, against `seeds` others.

    Tails of a run whose every r is larger by a factor are larger by that factor: the curve is moved, no run made anew.
    """
    moved = factors(asked)
    generator = np.random.default_rng([made.seed, KINDS.index(made.design.kind), 2])
    offsets = generator.normal(size=(len(made.runs), len(SLICES))) * seed_sd
    runs = [
        {
            name: [_times(one, offsets[number, place] + (moved if not number and place else 0.0)) for one in run[name]]
            for place, name in enumerate(SLICES)
        }
        for number, run in enumerate(made.runs)
    ]
    found = tails_against(
        {name: [runs[0][name]] for name in SLICES},
        {name: [run[name] for run in runs[1 : 1 + seeds]] for name in SLICES},
    )
    return Decided(
        kind=made.design.kind,
        steps=made.design.steps,
        seeds=seeds,
        asked=asked,
        factor=truth(made.truth, moved),
        decision=found.decision,
    )


def factors(asked: tuple[float, str]) -> FloatArray:
    """Give the log of how many times as large the tails of each span are."""
    size, where = asked
    return math.log(size) * np.ones(SPAN_COUNT) * (third_of(SPAN_COUNT) == 2 if where == "late" else 1.0)


def _times(one: Curve, moved: FloatArray | float) -> Curve:
    return replace(one, log_value=one.log_value + moved)


def truth(levels: Mapping[str, FloatArray], moved: FloatArray) -> float:
    """Give the true factor of the tail that is judged, floors and all: of the whole run or the late third."""
    apart = np.mean(
        [
            np.log(np.maximum(held * np.exp(moved), MATERIAL_NATS[name]))
            - np.log(np.maximum(held, MATERIAL_NATS[name]))
            for name, held in levels.items()
        ],
        axis=0,
    )
    return math.exp(max(float(apart.mean()), float(apart[third_of(SPAN_COUNT) == 2].mean())))


def made_setting(number: int, block: str) -> Setting:
    """Make one setting of a block."""
    return setting(KINDS[number % len(KINDS)], SEEDS[block][number // len(KINDS)])


def decisions(made: Setting, *, seeds: Sequence[int] = COUNTS, seed_sd: float = SEED_SD) -> list[Decided]:
    """Decide every question of one setting."""
    return [decide(made, asked=asked, seeds=held, seed_sd=seed_sd) for held in seeds for asked in ASKED]


def decided(number: int, block: str) -> tuple[list[Decided], list[Decided]]:
    """Make one setting and decide its questions; a third of them also with seeds that differ widely."""
    made = made_setting(number, block)
    return decisions(made), decisions(made, seed_sd=WIDE_SD) if number % THIRD == 0 else []


def _share(hits: Sequence[bool]) -> str:
    return f"{np.mean(hits):.1%}" if hits else ""


def answers(every: Sequence[Decided]) -> list[str]:
    """Give what was decided by how large the tails were made, and the wrong decisions."""
    lines = [
        "| seeds in the baseline | post-tool tails | true factor | pairs | worse | not worse | cannot say | wrong |",
        "|---:|---|---|---:|---:|---:|---:|---:|",
    ]
    for seeds in sorted({one.seeds for one in every}):
        for size, where in ASKED:
            for wanted, truth in (("not_worse", "1"), (None, "between"), ("worse", "1.6 or more")):
                mine = [one for one in every if (one.seeds, one.asked, one.wanted) == (seeds, (size, where), wanted)]
                if mine:
                    made = "the same" if size == 1 else f"{size:g}x{' late' if where == 'late' else ''}"
                    shares = [_share([one.decision == held for one in mine]) for held in ORDER]
                    wrong = _share([one.wrong for one in mine]) if wanted else ""
                    lines.append("| " + " | ".join([str(seeds), made, truth, str(len(mine)), *shares, wrong]) + " |")
    return lines


def by_size(every: Sequence[Decided]) -> list[str]:
    """Give how often nothing can be said, and what is wrong, by how long the runs are."""
    lines = [
        "| seeds in the baseline | steps | pairs | cannot say: same | cannot say: 1.6x | cannot say: 1.6x late "
        "| wrong: same | wrong: 1.6x or 1.6x late |",
        "|---:|---|" + "---:|" * 6,
    ]
    for seeds in sorted({one.seeds for one in every}):
        for low, high in SIZES:
            mine = [one for one in every if one.seeds == seeds and low <= one.steps < high and one.wanted]
            alike = [one for one in mine if one.wanted == "not_worse"]
            worse = [one for one in mine if one.wanted == "worse"]
            blind = [
                _share([one.decision == "cannot_say" for one in part])
                for part in (alike, *([one for one in worse if one.asked[1] == where] for where in ("all", "late")))
            ]
            wrong = [_share([one.wrong for one in part]) for part in (alike, worse)]
            cells = [str(seeds), f"{low} to {high - 1}", str(len(mine)), *blind, *wrong]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def summary(every: Sequence[Decided]) -> list[str]:
    """Give each required figure, and whether it is met."""
    lines = []
    for seeds in sorted({one.seeds for one in every}):
        mine = [one for one in every if one.seeds == seeds and one.wanted]
        for name, part in (
            ("seeds of one setting fail", [one for one in mine if one.asked == ASKED[0]]),
            ("tails 1.6x pass", _worse(mine, "all")),
            ("tails 1.6x late pass", _worse(mine, "late")),
        ):
            wrong = [one.wrong for one in part]
            share = float(np.mean(wrong)) if wrong else math.nan
            lines.append(
                f"{'PASS' if share <= MOST_WRONG else 'FAIL'} {name}, {seeds} in the baseline: {share:.2%}"
                f" ({sum(wrong)} of {len(wrong)}), required at most {MOST_WRONG:.0%}"
            )
    return [*lines, *_power(every)]


def _worse(every: Sequence[Decided], where: str) -> list[Decided]:
    return [one for one in every if one.wanted == "worse" and one.asked == (1.6, where)]


def _power(every: Sequence[Decided]) -> list[str]:
    """Give what seeds and steps are enough for, and that more seeds never tell less."""
    by_seeds = {}
    for seeds in sorted({one.seeds for one in every}):
        worse = [one.decision == "worse" for one in _worse([one for one in every if one.seeds == seeds], "all")]
        by_seeds[seeds] = float(np.mean(worse)) if worse else math.nan
    if not by_seeds:
        return []
    rising = all(less <= more for less, more in pairwise(by_seeds.values()))
    shares = ", ".join(f"{share:.1%} with {seeds}" for seeds, share in by_seeds.items())
    long = [one for one in every if one.seeds == ENOUGH_SEEDS and one.steps >= ENOUGH_STEPS]
    found = [one.decision == "worse" for one in _worse(long, "all")]
    blind = [one.decision == "cannot_say" for one in long if one.asked == ASKED[0] and one.wanted == "not_worse"]
    enough = f"{ENOUGH_SEEDS} in the baseline, {ENOUGH_STEPS} steps or more"
    found_share, blind_share = (float(np.mean(part)) if part else math.nan for part in (found, blind))
    return [
        f"{'PASS' if rising else 'FAIL'} tails 1.6x fail more often with more seeds: {shares}",
        f"{'PASS' if found_share >= LEAST_FOUND else 'FAIL'} tails 1.6x fail, {enough}: {found_share:.1%}"
        f" ({sum(found)} of {len(found)}), required at least {LEAST_FOUND:.0%}",
        f"{'PASS' if blind_share <= MOST_BLIND else 'FAIL'} cannot say for seeds of one setting, {enough}:"
        f" {blind_share:.1%} ({sum(blind)} of {len(blind)}), required at most {MOST_BLIND:.0%}",
    ]


def main(arguments: Sequence[str]) -> None:
    """Decide, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=int, default=200)
    parser.add_argument("--seed-block", choices=sorted(SEEDS), default="tuning")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write docs/gate-calibration.md")
    chosen = parser.parse_args(arguments)
    with ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as pool:
        pairs = list(pool.map(partial(decided, block=chosen.seed_block), range(chosen.settings)))
    every = [one for each, _ in pairs for one in each]
    apart = [one for _, each in pairs for one in each]
    text = page(every, apart, chosen.settings, chosen.seed_block)
    print(text)
    if chosen.write:
        write(text)


def write(text: str) -> None:
    """Write the page; the last section, another bench's, stays."""
    _, heading, rest = PAGE.read_text(encoding="utf-8").partition(f"{WHOLE_GATE}\n")
    PAGE.write_text(f"{text}\n{heading}{rest}" if heading else text, encoding="utf-8")


def page(every: Sequence[Decided], apart: Sequence[Decided], settings: int, block: str) -> str:
    """Give the document."""
    seeds = SEEDS[block]
    tuned = "none of them used for tuning" if block == "held-out" else "seeds used for tuning"
    parts_of = [
        "# Calibration of the gate",
        f"Made by `python -m benchmarks.gate_calibration --settings {settings} --seed-block {block} --write`: seeds"
        f" from {seeds.start} on in each class, {tuned}.",
        ABOUT,
        "\n".join(f"- {line}" for line in summary(every)),
        "\n".join(answers(every)),
        "## How long a run must be",
        SIZE_NEEDED,
        "\n".join(by_size(every)),
        "## Seeds that differ widely",
        APART.format(size=WIDE_SD),
        "\n".join(answers(apart)),
    ]
    return "\n\n".join(parts_of) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])

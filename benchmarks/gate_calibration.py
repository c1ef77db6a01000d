"""How often a gate built on `tails_against` decides wrongly, on pairs of made runs whose truth is known.

`python -m benchmarks.gate_calibration --settings 200 --seed-block held-out` prints the tables; `--write` puts them
into docs/gate-calibration.md. Whatever was tuned was tuned on the block `tuning`; no two blocks share a seed.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.calibration import SEEDS
from benchmarks.designs import Design
from benchmarks.synthetic import another, make
from ptt.diagnostics.statistics.curves import SPANS, Curve, curves, window_of
from ptt.diagnostics.statistics.pairs import available
from ptt.diagnostics.statistics.profile import Profile
from ptt.diagnostics.statistics.slices import MIN_OBSERVATION
from ptt.diagnostics.statistics.token_pass import token_pass
from ptt.diagnostics.statistics.versus import MATERIAL, Decision, tails_against
from ptt.diagnostics.statistics.windows import parts

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
BASELINES: Final = 3  # seeds that a baseline holds at most
ASKED: Final = ((1.0, "all"), (1.1, "all"), (1.25, "all"), (1.6, "all"), (1.6, "late"))
SEED_SD: Final = 0.1  # log-SD between seeds in the table that has any
ALIKE: Final = 1.001
TOLD: Final = 1.599
SIZES: Final = ((20, 40), (40, 80), (80, 160), (160, 320), (320, 501))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting and its seeds' tails: the first is held against the others."""

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
        pairs=available({"policy_logp", "ref_logp"}),
        min_observation=MIN_OBSERVATION,
    )
    units = frame.select("seq", pl.col("seq").min().over("group_id").alias("unit"))
    return Profile(
        pair="policy/ref",
        slices=dict(enumerate(SLICES)),
        cells=tables.cells_of(0),
        sequences=tables.sequences.join(units, on="seq", how="left", maintain_order="left"),
        unit="prompt group",
    )


def setting(kind: str, seed: int, *, baselines: int = BASELINES) -> Setting:
    """Make a setting and its seeds."""
    first = make(kind, seed)
    design = first.design
    spans = parts(range(1, design.steps + 1), SPANS)
    frames = [first.frame, *(another(design, 1000 * seed + number) for number in range(baselines))]
    runs = tuple(tails_of(profile_of(frame), spans) for frame in frames)
    middles = [(span.middle - 1) / (design.steps - 1) for span in spans]
    truth = {name: np.array([design.level(float(name[1:]) / 100, u) for u in middles]) for name in MATERIAL}
    return Setting(design=design, runs=runs, truth=truth)


def tails_of(profile: Profile, spans: Sequence[object]) -> Tails:
    """Measure both slices."""
    return {name: tuple(curves(profile, slice_name=name, spans=spans).values()) for name in SLICES}  # type: ignore[arg-type]


def decide(made: Setting, *, asked: tuple[float, str], seeds: int, seed_sd: float = 0.0) -> Decided:
    """Hold the first seed, its post-tool tails so many times as large, against `seeds` others.

    Tails of a run whose every r is larger by a factor are larger by that factor: the curve is moved, no run made anew.
    """
    moved = _factors(asked)
    generator = np.random.default_rng([20_261_101, made.design.steps, made.design.per_step])
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
        factor=_truth(made.truth, moved),
        decision=found.decision,
    )


def _factors(asked: tuple[float, str]) -> FloatArray:
    size, where = asked
    return math.log(size) * np.ones(SPANS) * (window_of(SPANS) == 2 if where == "late" else 1.0)


def _times(one: Curve, moved: FloatArray | float) -> Curve:
    return replace(one, log_value=one.log_value + moved)


def _truth(levels: Mapping[str, FloatArray], moved: FloatArray) -> float:
    """Give the true factor of the tail that is judged, floors and all: of the whole run or the late third."""
    apart = np.mean(
        [
            np.log(np.maximum(held * np.exp(moved), MATERIAL[name])) - np.log(np.maximum(held, MATERIAL[name]))
            for name, held in levels.items()
        ],
        axis=0,
    )
    return math.exp(max(float(apart.mean()), float(apart[window_of(SPANS) == 2].mean())))


def run(settings: int, block: str, *, seed_sd: float = 0.0, seeds: Sequence[int] = (1, BASELINES)) -> list[Decided]:
    """Decide every question over so many settings, kind by kind in turn."""
    return [one for made in made_settings(settings, block) for one in decisions(made, seeds=seeds, seed_sd=seed_sd)]


def made_settings(settings: int, block: str) -> Iterable[Setting]:
    """Make the settings of a block one after the other."""
    held = SEEDS[block]
    return (setting(KINDS[number % len(KINDS)], held[number // len(KINDS)]) for number in range(settings))


def decisions(made: Setting, *, seeds: Sequence[int] = (1, BASELINES), seed_sd: float = 0.0) -> list[Decided]:
    """Decide every question of one setting."""
    return [decide(made, asked=asked, seeds=held, seed_sd=seed_sd) for held in seeds for asked in ASKED]

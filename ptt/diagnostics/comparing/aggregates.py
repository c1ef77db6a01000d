"""Logged metrics side by side: means by window with their intervals, and whether two arms differ in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.comparing.values import Arm, Member
from ptt.diagnostics.statistics.levels import T95, Level, between_seeds, levels_of, minus, pooled
from ptt.diagnostics.statistics.windows import WINDOWS

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ALIKE_SHARE: Final = 0.1
"""Of the baseline's mean: two runs of one setting differ by as much, and nobody would act on it."""
ALIKE_NOISE: Final = 0.5
"""Of the standard deviation of a single step: metrics about zero, such as the loss, have no level to take a share of."""
LOST_SHARE: Final = 0.2  # of a window's values are no numbers: the mean of the rest is a selection
COMMON_SHARE: Final = 0.8  # of the steps are logged by both: then they are set against each other step by step
NOT_NUMBERS: Final = (1, 2, 3)  # flags of NaN and the infinities (schema.Flag)
AGGREGATES: Final = pl.Schema(
    {
        "arm": pl.String,
        "metric": pl.String,
        "window": pl.String,
        "mean": pl.Float64,
        "lo": pl.Float64,
        "hi": pl.Float64,
        "n": pl.Int64,
        "runs": pl.Int64,
        "step_first": pl.Int64,
        "step_last": pl.Int64,
    }
)
DIFFERENCES: Final = pl.Schema(
    {
        "arm": pl.String,
        "metric": pl.String,
        "window": pl.String,
        "difference": pl.Float64,
        "lo": pl.Float64,
        "hi": pl.Float64,
        "words": pl.String,
        "alike_within": pl.Float64,
    }
)


@dataclass(frozen=True)
class Logged:
    """One metric of one run: steps in order; NaN where a value is no number."""

    steps: IntArray
    values: FloatArray
    bad: npt.NDArray[np.bool_]  # logged as NaN or an infinity
    raw: str

    def within(self, low: int, high: int) -> Logged:
        """Give the part from step `low` to step `high`, both included."""
        here = (self.steps >= low) & (self.steps <= high)
        return Logged(self.steps[here], self.values[here], self.bad[here], self.raw)

    @property
    def lost(self) -> bool:
        """Whether so much of it is no number that the rest tells nothing."""
        return bool(self.bad.sum() > LOST_SHARE * max(1, len(self.bad)))


Series = Mapping[str, Logged]


def series_of(member: Member) -> dict[str, Logged]:
    """Give the training metrics of a run by canonical name; nothing where only its findings are at hand."""
    table = member.diagnosis.tables.get("series")
    if table is None:
        return {}
    found = {}
    for group in table.sort("name", "step").partition_by("name", maintain_order=True):
        values = group["value"].fill_null(math.nan).to_numpy()
        found[str(group["name"][0])] = Logged(
            steps=group["step"].to_numpy(),
            values=np.where(np.isfinite(values), values, math.nan),
            bad=np.isin(group["flag"].to_numpy(), NOT_NUMBERS),
            raw=str(group["name_raw"][0]),
        )
    return found


def windows_of(low: int, high: int) -> list[tuple[int, int]]:
    """Cut the steps from `low` to `high` into three windows as long as each other."""
    edges = np.linspace(low, high + 1, 4).round().astype(int)
    return [(int(edges[part]), int(edges[part + 1]) - 1) for part in range(3)]


def compare_aggregates(
    arms: Sequence[Arm], held: Mapping[str, Series], reach: tuple[int, int] | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give the tables `aggregates` and `aggregate_differences`; `held`: series by member, `reach`: the steps shared."""
    means: list[tuple[object, ...]] = []
    apart: list[tuple[object, ...]] = []
    for metric in sorted({name for series in held.values() for name in series} if reach else ()):
        logging = [arm for arm in arms if all(metric in held[member.name] for member in arm.members)]
        if len(logging) < 2 or reach is None:
            continue
        windows = windows_of(*reach)
        pieces = {arm.name: [[held[m.name][metric].within(*w) for w in windows] for m in arm.members] for arm in logging}
        levels = {name: [levels_of([p.values for p in run]) for run in runs] for name, runs in pieces.items()}
        for arm in logging:
            for place, window in enumerate(WINDOWS):
                means.append(_mean_row(arm, metric, window, place, levels, pieces, windows[place]))
        base = arms[0]
        for arm in logging[1:] if logging[0] is base else ():
            for place, window in enumerate(WINDOWS):
                row = _difference_row(place, levels[arm.name], levels[base.name], pieces[arm.name], pieces[base.name])
                apart.append((arm.name, metric, window, *row))
    order = {arm.name: place for place, arm in enumerate(arms)}
    by = [pl.col("arm").replace_strict(order, return_dtype=pl.Int64), pl.col("metric")]
    return (
        pl.DataFrame(means, schema=AGGREGATES, orient="row").sort(by, maintain_order=True),
        pl.DataFrame(apart, schema=DIFFERENCES, orient="row").sort(by, maintain_order=True),
    )


def _mean_row(
    arm: Arm,
    metric: str,
    window: str,
    place: int,
    levels: Mapping[str, Sequence[Sequence[Level]]],
    pieces: Mapping[str, Sequence[Sequence[Logged]]],
    steps: tuple[int, int],
) -> tuple[object, ...]:
    mine = [run[place] for run in levels[arm.name]]
    parts = [run[place] for run in pieces[arm.name]]
    head = (arm.name, metric, window)
    if any(part.lost for part in parts) or not all(level.values for level in mine):
        return (*head, None, None, None, sum(level.values for level in mine), len(mine), *steps)
    spread, freedom = between_seeds([[run[place] for run in runs] for runs in levels.values() if _known(runs, place)])
    level = pooled(mine, spread, freedom) if len(mine) > 1 else mine[0]
    low, high = level.bounds()
    return (*head, level.mean, _told(low), _told(high), level.values, len(mine), *steps)


def _known(runs: Sequence[Sequence[Level]], place: int) -> bool:
    return all(run[place].values for run in runs)


def _difference_row(
    place: int,
    arm: Sequence[Sequence[Level]],
    base: Sequence[Sequence[Level]],
    arm_parts: Sequence[Sequence[Logged]],
    base_parts: Sequence[Sequence[Logged]],
) -> tuple[float | None, float | None, float | None, str, float | None]:
    mine, theirs = [run[place] for run in arm], [run[place] for run in base]
    parts = [run[place] for run in (*arm_parts, *base_parts)]
    if any(part.lost for part in parts) or not all(level.values for level in (*mine, *theirs)):
        return None, None, None, "cannot_say", None
    if len(mine) == len(theirs) == 1:
        difference = _paired(arm_parts[0], base_parts[0], place) or minus(mine[0], theirs[0])
    else:
        spread, freedom = between_seeds([mine, theirs])
        difference = minus(pooled(mine, spread, freedom), pooled(theirs, spread, freedom))
    baseline = pooled(theirs)
    noise = max(level.noise if math.isfinite(level.noise) else 0.0 for level in (*mine, *theirs))
    margin = max(ALIKE_SHARE * abs(baseline.mean), ALIKE_NOISE * noise) if noise > 0 else 0.0
    low, high = difference.bounds()
    return difference.mean, _told(low), _told(high), words_of(difference, margin), margin


def words_of(difference: Level, margin: float) -> str:
    """Say higher, lower, alike or cannot_say of a difference.

    alike: its 90 % interval lies within the margin (two one-sided tests), so that no difference is taken for
    likeness; higher, lower: its 99.8 % interval leaves out 0, since so many metrics and windows are asked at once,
    and it is larger than the margin.
    """
    if math.isnan(difference.error):
        return "cannot_say"
    low, high = difference.bounds(T95)
    if max(-low, high) <= margin:
        return "alike"
    sign = difference.exceeds_zero()
    if sign and abs(difference.mean) > margin:
        return "higher" if sign > 0 else "lower"
    return "cannot_say"


def _paired(arm: Sequence[Logged], base: Sequence[Logged], place: int) -> Level | None:
    """Give the mean difference step by step, where most steps are logged by both: what steps share then cancels."""
    pieces = []
    for mine, theirs in zip(arm, base, strict=True):
        common, at, there = np.intersect1d(mine.steps, theirs.steps, return_indices=True)
        if len(common) < COMMON_SHARE * max(len(mine.steps), len(theirs.steps)):
            return None
        pieces.append(mine.values[at] - theirs.values[there])
    found = levels_of(pieces)[place]
    return found if found.values else None


def _told(value: float) -> float | None:
    return value if math.isfinite(value) else None

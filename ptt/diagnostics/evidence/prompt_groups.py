"""What the attempts at one prompt earned: all right, all wrong, all equal in between, or mixed, which alone teaches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.sample_counters import share_of_one
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray

EQUAL: Final = 1e-6  # rewards that differ by no more count as equal
RIGHT_SHARE: Final = 0.9  # of the way from the run's lowest reward to its highest: a bonus for format may be missing
WRONG_SHARE: Final = 0.1
FULL_REWARD: Final = 0.9  # of a reward of 1 a task, where all rewards of a run are one value
MIN_GROUPS: Final = 2  # of a step: a share of one group is all or nothing


@dataclass(frozen=True, kw_only=True)
class PromptGroups:
    """Shares of a step's prompt groups, each (steps,); they sum to 1."""

    steps: IntArray
    right: FloatArray
    wrong: FloatArray
    equal: FloatArray  # all equal, and neither right nor wrong; 0 where only shares of the others are logged
    mixed: FloatArray
    asked: FloatArray  # groups of the step; NaN where only shares are logged
    disguised: float  # of the silent recorded groups: components of the reward differ, so that a clip made it equal
    logged_as: str

    @property
    def silent(self) -> FloatArray:
        """The share of groups without signal."""
        return 1.0 - self.mixed

    def since(self, step: int) -> tuple[float, float, float]:
        """Return the mean shares of right, wrong and equal groups from a step on."""
        here = self.steps >= step
        return float(self.right[here].mean()), float(self.wrong[here].mean()), float(self.equal[here].mean())


def gather_groups(
    metrics: Mapping[str, Series], trajectories: pl.DataFrame, rewards: pl.DataFrame
) -> PromptGroups | None:
    """Read the groups from logged shares, else from the recorded rewards of training; None where neither tells them."""
    return _logged_groups(metrics) or _recorded_groups(trajectories, rewards)


def _logged_groups(metrics: Mapping[str, Series]) -> PromptGroups | None:
    right, wrong = metrics.get("groups/all_right_frac"), metrics.get("groups/all_wrong_frac")
    if right is None or wrong is None:
        return None
    logged = metrics.get("groups/mixed_frac")
    if (counted := _counted_groups(right, wrong, logged)) is not None:
        return counted
    top = max(_top(series) for series in (right, wrong, logged) if series is not None)  # all three are in one unit
    steps, at, beside = np.intersect1d(right.finite()[0], wrong.finite()[0], return_indices=True)
    scale = _scale(top)
    solved, failed = right.finite()[1][at] / scale, wrong.finite()[1][beside] / scale
    if not len(steps):
        return None
    mixed, equal = 1.0 - solved - failed, np.zeros(len(steps))
    if logged is not None:
        known, here, there = np.intersect1d(steps, logged.finite()[0], return_indices=True)
        if len(known) == len(steps):
            teaching = share_of_one(logged).finite()[1][there]
            equal = np.maximum(mixed[here] - teaching, 0.0)
            mixed = mixed - equal
    return PromptGroups(
        steps=steps,
        right=solved,
        wrong=failed,
        equal=equal,
        mixed=np.clip(mixed, 0.0, 1.0),
        asked=np.full(len(steps), np.nan),
        disguised=math.nan,
        logged_as=f"{right.raw_name}, {wrong.raw_name}",
    )


def _counted_groups(right: Series, wrong: Series, mixed: Series | None) -> PromptGroups | None:
    """Read groups that are logged as counts: whole numbers with the same sum at every step."""
    if mixed is None:
        return None
    at = np.intersect1d(np.intersect1d(right.finite()[0], wrong.finite()[0]), mixed.finite()[0])
    solved, failed, teaching = (one.finite()[1][np.isin(one.finite()[0], at)] for one in (right, wrong, mixed))
    asked = solved + failed + teaching
    whole = all((values == np.round(values)).all() for values in (solved, failed, teaching))
    if not len(at) or not whole or asked.min() < MIN_GROUPS or (len(at) > 1 and np.ptp(asked) > 0):
        return None
    return PromptGroups(
        steps=at,
        right=solved / asked,
        wrong=failed / asked,
        equal=np.zeros(len(at)),
        mixed=teaching / asked,
        asked=asked,
        disguised=math.nan,
        logged_as=f"{right.raw_name}, {wrong.raw_name}",
    )


def _top(series: Series) -> float:
    values = series.finite()[1]
    return float(values.max()) if len(values) else 0.0


def _scale(top: float) -> float:
    return 100.0 if top > PERCENT else 1.0


PERCENT: Final = 1.5  # a share above this is logged in per cent


def _recorded_groups(trajectories: pl.DataFrame, rewards: pl.DataFrame) -> PromptGroups | None:
    placed = trajectories.filter(pl.col("step").is_not_null() & (pl.col("split") != "eval"))
    sure = placed.filter(pl.col("split") == "train")
    usable = (sure if sure.height else placed).filter(pl.col("reward").is_finite() & pl.col("group_id").is_not_null())
    if usable.is_empty():
        return None
    low, high = float(usable["reward"].min()), float(usable["reward"].max())  # type: ignore[arg-type]
    best, worst = pl.col("reward").max(), pl.col("reward").min()
    silent = best - worst <= EQUAL
    right = silent & (worst >= (low + RIGHT_SHARE * (high - low) if high > low else FULL_REWARD))
    wrong = silent & ~right & (best <= (low + WRONG_SHARE * (high - low) if high > low else EQUAL))
    parts = _parts_differ(usable, rewards)
    groups = usable.join(parts, on="trajectory_id", how="left").group_by("step", "group_id").agg(
        size=pl.len(), right=right, wrong=wrong, silent=silent, disguised=silent & (pl.col("parts").n_unique() > 1)
    ).filter(pl.col("size") > 1)  # fmt: skip
    by_step = groups.group_by("step").agg(
        asked=pl.len().cast(pl.Float64),
        right=pl.col("right").mean(),
        wrong=pl.col("wrong").mean(),
        silent=pl.col("silent").mean(),
    )
    by_step = by_step.filter(pl.col("asked") >= MIN_GROUPS).sort("step")
    if by_step.is_empty():
        return None
    silent_share = by_step["silent"].to_numpy()
    solved, failed = by_step["right"].to_numpy(), by_step["wrong"].to_numpy()
    disguised = groups.filter("silent")["disguised"].mean()
    return PromptGroups(
        steps=by_step["step"].to_numpy(),
        right=solved,
        wrong=failed,
        equal=np.maximum(silent_share - solved - failed, 0.0),
        mixed=1.0 - silent_share,
        asked=by_step["asked"].to_numpy(),
        disguised=float(disguised) if isinstance(disguised, float) else math.nan,
        logged_as="rewards of recorded prompt groups",
    )


def _parts_differ(usable: pl.DataFrame, rewards: pl.DataFrame) -> pl.DataFrame:
    """Return for each sample what its reward is made of, as one text, where components are recorded."""
    own = rewards.filter(pl.col("score").is_finite()).join(
        usable.select("trajectory_id"), on="trajectory_id", how="semi"
    )
    made = pl.format("{}={}", pl.col("name"), pl.col("score").round(6))
    return own.sort("trajectory_id", "name").group_by("trajectory_id").agg(parts=made.str.join(";"))

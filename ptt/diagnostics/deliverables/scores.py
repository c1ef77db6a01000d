"""Which step scored best in evaluation, and which others cannot be told from it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.series import Series

LEAST: Final = 2  # one point is best by default
NOISE_FROM: Final = 5  # points: fewer differences tell no noise
MAD_TO_SD: Final = 1.4826
Z: Final = 1.96  # of the difference of two figures: 95 %
CERTAIN: Final = 1e-12
GUESSED: Final = "console:"  # lines of a console name their step less surely than other writers do
# Of several logged figures the one closest to the task counts; the higher the better but for the last row.
HIGHER: Final = (
    r"(?<!token_)(?:accurac(?:y|ies)|acc|acc_norm|correct(?:ness)?|success(?:_rate)?|solve[d_]?\w*|exact_match|em|pass(?:@|_at_)?\w*|win_?rate|f1)",
    r"(?:avg_|mean_)?scores?",
    r"rewards?(?:_mean)?|mean_reward",
    r"mean_token_accuracy",
)  # fmt: skip
LOWER: Final = r"(?:loss|nll|perplexity|ppl)"
NOT_A_SCORE: Final = re.compile(r"std|stderr|count|runtime|per_second|num_|length|entropy|zero_std", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Score:
    """The best figure of one evaluation over the steps."""

    metric: str  # as its writer spelt it
    step: int
    value: float
    higher: bool  # the higher the better
    points: int
    samples: int | None  # behind the figure; None where nobody wrote it down
    noise: float | None  # half width at 95 % of the difference of two figures; None where it is not known
    ties: tuple[int, ...]  # other steps within the noise, or exactly equal where it is not known
    last_value: float
    last_step: int


def best_score(evaluated: Mapping[str, Series], evals: pl.DataFrame, family: Family | None) -> Score | None:
    """Give the best step by the figure closest to the task; None where fewer than two steps were evaluated.

    The loss of an RL objective says nothing of a model's worth, so that it is never taken in online training.
    """
    found = [
        (rank, name.startswith(GUESSED), -len(steps), name, steps, values, samples)
        for name, (steps, values, samples) in {**_logged(evaluated), **_harness(evals)}.items()
        if len(steps) >= LEAST and (rank := _rank(name, family)) is not None
    ]
    if not found:
        return None
    rank, _, _, name, steps, values, samples = min(found, key=lambda item: item[:4])
    return _best(name, steps, values, samples, higher=0 <= rank < len(HIGHER))


Points = tuple[np.ndarray, np.ndarray, int | None]


def _logged(evaluated: Mapping[str, Series]) -> dict[str, Points]:
    held: dict[str, Points] = {}
    for name, series in evaluated.items():
        steps, values = series.finite()
        held[name] = (np.asarray(steps), np.asarray(values), None)
    return held


def _harness(evals: pl.DataFrame) -> dict[str, Points]:
    """Give the figures of harnesses that name their step; of a step told twice the last."""
    if evals.is_empty():
        return {}
    usable = evals.filter(pl.col("step").is_not_null(), pl.col("value").is_finite())
    held: dict[str, Points] = {}
    for (suite, metric), rows in sorted(
        usable.group_by(["suite", "metric"], maintain_order=True), key=lambda item: str(item[0])
    ):
        one = rows.unique("step", keep="last", maintain_order=True).sort("step")
        n = one["n"].drop_nulls()
        samples = int(n.min()) if len(n) == one.height and len(n) else None  # type: ignore[arg-type]
        held[f"{suite}/{metric}"] = (one["step"].to_numpy(), one["value"].to_numpy(), samples)
    return held


def _rank(name: str, family: Family | None) -> int | None:
    """Give how close a figure is to the task, 0 the closest; None for one that is no score."""
    plain = name.removeprefix(GUESSED)
    parts = [part for part in re.split(r"[/:.]|^eval_|^val_|^test_", plain) if part]
    last = next((part for part in reversed(parts) if part.lower() not in {"mean", "avg", "none"}), plain)
    if NOT_A_SCORE.search(last) or parts[-1:] == ["std"]:
        return None
    if re.fullmatch(LOWER, last, re.IGNORECASE):
        if family is Family.ONLINE:
            return None
        return -1 if family is Family.SUPERVISED else len(HIGHER)
    for rank, pattern in enumerate(HIGHER):
        if re.fullmatch(pattern, last, re.IGNORECASE) or (
            rank == 0 and re.search(r"(?:^|_)(?:accuracy|success_rate|correct)(?:_|$)", last) and "token" not in last
        ):
            return rank
    return None


def _best(name: str, steps: np.ndarray, values: np.ndarray, samples: int | None, *, higher: bool) -> Score:
    worth = values if higher else -values
    place = int(np.argmax(worth))  # of equals the first
    noise = _noise(values, values[place], samples)
    reach = CERTAIN if noise is None else noise
    ties = np.flatnonzero(worth >= worth[place] - reach)
    return Score(
        metric=name,
        step=int(steps[place]),
        value=float(values[place]),
        higher=higher,
        points=len(steps),
        samples=samples,
        noise=noise,
        ties=tuple(int(steps[i]) for i in ties if i != place),
        last_value=float(values[-1]),
        last_step=int(steps[-1]),
    )


def _noise(values: np.ndarray, best: float, samples: int | None) -> float | None:
    """Give how far two figures of one model may lie apart: binomial for a share of `samples`, or from the series.

    Differences of neighbours hold the noise twice and the trend hardly at all.
    """
    if samples and bool(((values >= 0) & (values <= 1)).all()):
        share = min(max(best, 1 / (samples + 2)), 1 - 1 / (samples + 2))  # at 0 and 1 the formula would give none
        return Z * math.sqrt(2 * share * (1 - share) / samples)
    if len(values) < NOISE_FROM:
        return None
    between = np.diff(values)
    return Z * MAD_TO_SD * float(np.median(np.abs(between - np.median(between))))

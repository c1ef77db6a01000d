"""What common guards on importance weights would have done, replayed on the recorded ratios slice by slice.

Trainers guard policy/rollout or old/rollout, so `guarded_pair` picks the recorded pair nearest to these, and every row
names its pair. On a drift pair (policy/ref) the replay shows what a guard on that ratio would do. The guards are those
of verl, IcePop, MIS and GSPO: truncation w = min(rho, C), bands that set w = 0 outside, and whole sequences. A cell of
|r| (0.4% wide, more in a run of many steps) counts on the side of a limit where its mean lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.cells import grouped_sums
from ptt.diagnostics.statistics.windows import WINDOWS, Span, label_spans

Rows = list[tuple[object, ...]]

PREFERENCE: Final = ("policy/rollout", "old/rollout", "policy/old", "policy/prox", "prox/rollout")
WEIGHT_CAP: Final = 10.0  # the bias is measured on weights cut here: no single token may rule it
VETO_RATIO: Final = 1e-4
BAND: Final = (0.5, 2.0)

SCHEMA: Final[dict[str, pl.DataType]] = {
    "pair": pl.String(),
    "guard": pl.String(),
    "level": pl.String(),  # what is cut or masked at once: token or sequence
    "slice": pl.UInt8(),
    "window": pl.String(),
    "n": pl.Int64(),  # tokens before the guard
    "hit": pl.Float64(),  # share of them whose weight the guard changes
    "ess_fraction": pl.Float64(),  # (sum w)^2 / (n sum w^2) afterwards; masked tokens count in n
    "second_moment": pl.Float64(),  # mean w^2 afterwards, over n
    "mass_removed": pl.Float64(),  # 1 - sum w / sum rho
    "bias": pl.Float64(),  # mean of min(rho, 10) - min(w, 10) over n; null for whole sequences
}


@dataclass(frozen=True)
class Guard:
    """A guard on token ratios: weights above `high` are cut to it; with `masks`, those outside become 0."""

    name: str
    low: float
    high: float
    masks: bool


TOKEN_GUARDS: Final = (
    Guard("none", 0.0, math.inf, masks=False),
    *(Guard(f"tis-{cap}", 0.0, float(cap), masks=False) for cap in (2, 5, 10)),
    Guard("icepop-0.5-5", 0.5, 5.0, masks=True),
    Guard("icepop-0.5-2", 0.5, 2.0, masks=True),
    Guard("mis-2", 0.0, 2.0, masks=True),
    Guard("mis-10", 0.0, 10.0, masks=True),
)


SIGNED: Final = ("n", "s_abs", "s_r", "s_rho", "s_rho2")
"""The columns of cells that splitting them by the sign of r takes."""


@dataclass(frozen=True)
class SignedCells:
    """Cells split by the sign of r, (cells,) each: mean |r| in nats, counts, sums of rho and rho^2."""

    magnitude: FloatArray
    n_up: FloatArray
    n_down: FloatArray
    s1_up: FloatArray
    s1_down: FloatArray
    s2_up: FloatArray
    s2_down: FloatArray


def split_by_sign(cells: pl.DataFrame) -> SignedCells:
    """Split each cell by the sign of r.

    A cell is a bin of |r|, so n_up = (n + sum r / mean |r|) / 2, to 0.2% of n, and exactly after rounding in
    cells of 250 tokens or fewer; where cells are w wide, to w / 2 of n. The sums of the large side follow by
    subtracting the small one.
    """
    n, s_abs, s_r, s_rho, s_rho2 = (cells[name].to_numpy().astype(np.float64, copy=False) for name in SIGNED)
    magnitude = s_abs / n
    n_up = count_positive(n, s_r, magnitude)
    n_down = n - n_up
    s1_down = np.where(n_up == 0, s_rho, n_down * np.exp(-magnitude))
    s2_down = np.where(n_up == 0, s_rho2, n_down * np.exp(-2 * magnitude))
    return SignedCells(
        magnitude=magnitude,
        n_up=n_up,
        n_down=n_down,
        s1_up=np.where(n_up == 0, 0.0, np.maximum(s_rho - s1_down, 0.0)),
        s1_down=s1_down,
        s2_up=np.where(n_up == 0, 0.0, np.maximum(s_rho2 - s2_down, 0.0)),
        s2_down=s2_down,
    )


def count_positive(n: FloatArray, s_r: FloatArray, magnitude: FloatArray) -> FloatArray:
    """Return how many of each cell's `n` tokens have r > 0 (where r = 0, all), from sum r and mean |r|."""
    direction = np.divide(s_r, magnitude, out=n.copy(), where=magnitude > 0)
    rounded: FloatArray = np.clip(np.rint((n + direction) / 2), 0.0, n)
    return rounded


def guarded_pair(names: Sequence[str], recorded: set[int]) -> int:
    """Return the index of the recorded pair that a guard would act on, by PREFERENCE; else 0, the main pair."""
    number_of = {name: number for number, name in enumerate(names) if number in recorded}
    return next((number_of[name] for name in PREFERENCE if name in number_of), 0)


def replay_guards(
    cells: pl.DataFrame, sequences: pl.DataFrame | None, windows: Sequence[Span], *, pair: str
) -> pl.DataFrame:
    """Replay every guard on the cells of `pair`, and sequence guards where `sequences` hold its sums."""
    named = label_spans(cells, windows, name="window")
    merged = grouped_sums(named, ("window", "slice", "bin"), SIGNED)
    if merged.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    cells_by_sign = split_by_sign(merged)
    group = (merged["window"] * 2 + merged["slice"]).to_numpy()
    n, total = _sum_by_group(group, merged["n"].to_numpy()), _sum_by_group(group, merged["s_rho"].to_numpy())
    rows = []
    for guard in TOKEN_GUARDS:
        effect = [_sum_by_group(group, values) for values in _apply_guard(cells_by_sign, guard)]
        rows += _rows((pair, guard.name, "token"), n, total, effect)
    if sequences is not None:
        rows += _sequence_rows(label_spans(sequences, windows, name="window"), pair)
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _apply_guard(cells: SignedCells, guard: Guard) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Give, cell by cell, tokens hit, sum w, sum w^2, and what the weights cut at 10 lose."""
    up, down = np.exp(np.minimum(cells.magnitude, 300.0)), np.exp(-cells.magnitude)
    above, below = (cells.n_up > 0) & (up > guard.high), (cells.n_down > 0) & (down < guard.low)
    hit = np.where(above, cells.n_up, 0.0) + np.where(below, cells.n_down, 0.0)
    cut = 0.0 if guard.masks or math.isinf(guard.high) else guard.high
    w1_up, w2_up = np.where(above, cut * cells.n_up, cells.s1_up), np.where(above, cut**2 * cells.n_up, cells.s2_up)
    w1_down, w2_down = np.where(below, 0.0, cells.s1_down), np.where(below, 0.0, cells.s2_down)
    was = np.where(up > WEIGHT_CAP, WEIGHT_CAP * cells.n_up, cells.s1_up)
    lost = np.where(above, was - min(cut, WEIGHT_CAP) * cells.n_up, 0.0)
    return hit, w1_up + w1_down, w2_up + w2_down, lost + np.where(below, cells.s1_down, 0.0)


def _sequence_rows(sequences: pl.DataFrame, pair: str) -> Rows:
    """Drop whole sequences: one token below the veto, or exp(mean r) over both slices outside of the band."""
    whole = sequences.with_columns(
        pl.col("min_r").min().over("seq").alias("least"),
        (pl.col("s_r").sum().over("seq") / pl.col("n").cast(pl.Int64).sum().over("seq")).alias("mean"),
    )
    group = (whole["window"] * 2 + whole["slice"]).to_numpy()
    count, s1, s2 = (whole[name].to_numpy().astype(np.float64) for name in ("n", "s_rho", "s_rho2"))
    n, total = _sum_by_group(group, count), _sum_by_group(group, s1)
    lowest, mean = whole["least"].to_numpy(), whole["mean"].to_numpy()
    low, high = np.log(BAND)
    rows = []
    outside = (mean < low) | (mean > high)
    for name, dropped in (("veto-1e-4", lowest < math.log(VETO_RATIO)), ("sequence-0.5-2", outside)):
        effect = [_sum_by_group(group, values) for values in (count * dropped, s1 * ~dropped, s2 * ~dropped)]
        rows += _rows((pair, name, "sequence"), n, total, effect)
    return rows


def _sum_by_group(group: IntArray, values: npt.NDArray[np.generic]) -> FloatArray:
    added: FloatArray = np.bincount(group, values.astype(np.float64), 2 * len(WINDOWS)).astype(np.float64)
    return added


def _rows(names: tuple[str, str, str], n: FloatArray, total: FloatArray, effect: Sequence[FloatArray]) -> Rows:
    hit, w1, w2, *bias = effect
    return [
        (
            *names,
            *(group % 2, WINDOWS[group // 2], int(n[group]), hit[group] / n[group]),
            w1[group] ** 2 / (n[group] * w2[group]) if w2[group] > 0 else None,
            w2[group] / n[group],
            max(0.0, 1 - w1[group] / total[group]),
            bias[0][group] / n[group] if bias else None,
        )
        for group in np.flatnonzero(n).tolist()
    ]

"""Did tools get more frequent or more dangerous: the growth of E[rho^2] split into exposure and intensity.

With alpha the share of post-tool tokens, E[rho^2] = (1 - alpha) m_text + alpha m_tool holds exactly. The
difference between two windows is split over the three factors by their Shapley value: the mean over all
orders in which the factors may change, which adds up to the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.cells import grouped_sums
from ptt.diagnostics.statistics.clipping_replay import WEIGHT_CAP, split_by_sign
from ptt.diagnostics.statistics.dot_product import product
from ptt.diagnostics.statistics.windows import Span, label_spans, split_steps

Top = tuple[float, float | None]
"""Share of the largest token, and of the largest sequence where sequences are known."""

DRAWS: Final = 400
SEED: Final = 20_260_128
BLOCKS: Final = 8  # of steps in a window: sequences share their step, so these are redrawn as well
MIN_STEPS: Final = 8  # in a window: fewer, and redrawing whole steps tells nothing
DOMINANT_SHARE: Final = 0.5
EXPONENT_CAP: Final = 300.0  # as in the token pass
FACTORS: Final = ("alpha", "m_text", "m_tool", "total")
PARTS: Final = ("change", "exposure", "text", "tool")
SHARES: Final = tuple(f"{name}_share" for name in PARTS[1:])
INTERVAL: Final = (2.5, 97.5)

SCHEMA: Final[dict[str, pl.DataType]] = {
    "weights": pl.String(),  # the pair, or the pair turned round
    "cap": pl.Float64(),  # weights are cut at it; null: as recorded
    **{f"{name}_{window}": pl.Float64() for name in FACTORS for window in ("early", "late")},
    **{f"{name}{end}": pl.Float64() for name in PARTS for end in ("", "_lo", "_hi")},
    **{f"{name}{end}": pl.Float64() for name in SHARES for end in ("", "_lo", "_hi")},  # null: it may not have changed
    **{f"top_{what}_{window}": pl.Float64() for what in ("token", "sequence") for window in ("early", "late")},
    "dominated": pl.Boolean(),  # in a window one token or sequence holds more than half of the sum
}


def moment_factors(sums: FloatArray) -> FloatArray:
    """Return alpha, m_text, m_tool, E[w^2] of n_text, n_tool, q_text, q_tool, (..., 4) both; NaN where empty.

    q is the sum of squared weights over the tokens of a slice.
    """
    n, q = sums[..., :2], sums[..., 2:]
    total = n.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.concatenate([n[..., 1:] / total, q / n, q.sum(axis=-1, keepdims=True) / total], axis=-1)


def shapley_split(early: FloatArray, late: FloatArray) -> FloatArray:
    """Return the change of E[w^2] and its parts exposure, text, tool (..., 4) between two arrays of factors.

    A slice without tokens in one window has no intensity there; it is taken as unchanged, so that what comes
    or goes with the slice is exposure.
    """
    a0, t0, p0 = (early[..., i] for i in range(3))
    a1, t1, p1 = (late[..., i] for i in range(3))
    t0, t1 = np.where(np.isnan(t0), t1, t0), np.where(np.isnan(t1), t0, t1)
    p0, p1 = np.where(np.isnan(p0), p1, p0), np.where(np.isnan(p1), p0, p1)
    t0, t1 = np.where(np.isnan(t0), 0.0, t0), np.where(np.isnan(t1), 0.0, t1)
    p0, p1 = np.where(np.isnan(p0), 0.0, p0), np.where(np.isnan(p1), 0.0, p1)
    mean_alpha = (a0 + a1) / 2
    exposure = (a1 - a0) * ((p0 + p1) / 2 - (t0 + t1) / 2)
    text, tool = (t1 - t0) * (1 - mean_alpha), (p1 - p0) * mean_alpha
    return np.stack([late[..., 3] - early[..., 3], exposure, text, tool], axis=-1)


def resample_units(values: FloatArray, block: IntArray, *, seed: int, draws: int = DRAWS) -> FloatArray:
    """Redraw units within blocks, then blocks: (units, K) sums, ascending (units,) blocks to (draws, K)."""
    generator = np.random.default_rng(seed)
    bounds = np.flatnonzero(np.diff(block, prepend=-1, append=-1))
    drawn = [_resample(values[a:b], draws, generator) for a, b in pairwise(bounds)]
    if len(drawn) == 1:
        return drawn[0]
    held, each = np.stack(drawn), np.arange(draws)
    chosen = generator.integers(0, len(held), size=(len(held), draws))
    total: FloatArray = np.zeros((draws, values.shape[1]))
    for places in chosen:
        total += held[places, each]
    return total


def _resample(values: FloatArray, draws: int, generator: np.random.Generator) -> FloatArray:
    units = len(values)
    chosen = generator.integers(0, units, size=(draws, units), dtype=np.int32)
    chosen += (units * np.arange(draws, dtype=np.int32))[:, None]
    times = np.bincount(chosen.ravel(), minlength=draws * units).reshape(draws, units)
    return product(times.astype(np.float64), values)


def exposure_intensity(
    cells: pl.DataFrame, sequences: pl.DataFrame, windows: Sequence[Span], *, pair: str, inverse: str
) -> pl.DataFrame:
    """Split the growth from first to last window, for weights rho and 1/rho, as recorded and cut at 10.

    `cells` and `sequences` (with `unit`) are those of one pair. Weights as recorded are redrawn by units
    within blocks of steps; cut ones, known by cells only, by whole steps.
    """
    if len(windows) < 2:
        return pl.DataFrame(schema=SCHEMA)
    ends = (windows[0], windows[-1])
    rows_of = [label_spans(sequences, [span], name="window") for span in ends]
    steps_of = [_by_step(label_spans(cells, [span], name="window")) for span in ends]
    rows: list[dict[str, object]] = []
    for weights, square, sign in ((pair, "s_rho2", 1.0), (inverse, "s_inv2", -1.0)):
        tops: list[Top] = [_largest(part, square, sign) for part in rows_of]
        rows.append(_row(weights, None, [_by_unit(part, square) for part in rows_of], tops))
    for weights, sign, numbers in ((pair, 1.0, (0, 1)), (inverse, -1.0, (2, 3))):
        held = [part.select("block", "n_0", "n_1", *(f"q_{i}" for i in numbers)) for part in steps_of]
        tops = [
            (min(_largest_weight(part, sign), WEIGHT_CAP) ** 2 / float(table.to_numpy()[:, 3:].sum()), None)
            for part, table in zip(rows_of, held, strict=True)
        ]
        rows.append(_row(weights, WEIGHT_CAP, held, tops))
    return pl.DataFrame(rows, schema=SCHEMA)


def _by_unit(rows: pl.DataFrame, square: str) -> pl.DataFrame:
    """Sum n and squared weights by slice, for each (block of steps, unit)."""
    blocks = split_steps(rows["step"].unique().sort().to_list(), BLOCKS)
    found = grouped_sums(label_spans(rows, blocks, name="block"), ("block", "unit", "slice"), ("n", square))
    found = found.rename({square: "q"}).cast({"n": pl.Float64})
    wide = found.group_by("block", "unit").agg(
        pl.col(name).filter(pl.col("slice") == number).sum().alias(f"{name}_{number}")
        for name in ("n", "q")
        for number in (0, 1)
    )
    return wide.sort("block", "unit").drop("unit")


def _by_step(cells: pl.DataFrame) -> pl.DataFrame:
    """Sum n and the squares of weights cut at 10 by slice (q_0, q_1; of 1/rho q_2, q_3), for each step.

    All steps are of block 0, or of block -1 if they are too few to be redrawn.
    """
    held = split_by_sign(cells)
    capped = np.exp(np.minimum(held.magnitude, EXPONENT_CAP)) > WEIGHT_CAP
    small, large = np.exp(-2 * held.magnitude), np.exp(2 * np.minimum(held.magnitude, np.log(WEIGHT_CAP)))
    squares = np.where(capped, WEIGHT_CAP**2 * held.n_up, held.s2_up) + held.s2_down
    inverse_squares = held.n_up * small + held.n_down * large
    steps, index = np.unique(cells["step"].to_numpy(), return_inverse=True)
    group = 2 * index + cells["slice"].to_numpy()
    columns = {"block": np.full(len(steps), 0 if len(steps) >= MIN_STEPS else -1)}
    for first, name, values in (
        (0, "n", cells["n"].to_numpy()),
        (0, "q", squares),
        (2, "q", inverse_squares),
    ):
        table = np.bincount(group, weights=values, minlength=2 * len(steps)).reshape(-1, 2)
        columns |= {f"{name}_{first + number}": table[:, number] for number in (0, 1)}
    return pl.DataFrame(columns)


def _largest(rows: pl.DataFrame, square: str, sign: float) -> Top:
    """Return the shares of the sum of squares that the largest token and the largest sequence hold."""
    total = float(rows[square].to_numpy().sum())
    by_sequence = grouped_sums(rows, ("seq",), (square,))
    return _largest_weight(rows, sign) ** 2 / total, float(by_sequence[square].max()) / total  # type: ignore[arg-type]


def _largest_weight(rows: pl.DataFrame, sign: float) -> float:
    most = rows["max_r"].max() if sign > 0 else -rows["min_r"].min()  # type: ignore[operator]
    return float(np.exp(min(float(most), EXPONENT_CAP)))  # type: ignore[arg-type]


def _row(weights: str, cap: float | None, tables: list[pl.DataFrame], tops: list[Top]) -> dict[str, object]:
    held = [table.drop("block").to_numpy() for table in tables]
    recorded = [moment_factors(values.sum(axis=0)) for values in held]
    row: dict[str, object] = {"weights": weights, "cap": cap}
    for window, values in zip(("early", "late"), recorded, strict=True):
        row |= {f"{name}_{window}": value for name, value in zip(FACTORS, _finite(values), strict=True)}
    parted = shapley_split(*recorded)
    row |= dict(zip(PARTS, _finite(parted), strict=True))
    blocks = [table["block"].to_numpy() for table in tables]
    if all(block[0] >= 0 for block in blocks):
        drawn = [
            moment_factors(resample_units(values, block, seed=SEED + number))
            for number, (values, block) in enumerate(zip(held, blocks, strict=True))
        ]
        row |= _intervals(parted, shapley_split(*drawn))
    for window, (token, sequence) in zip(("early", "late"), tops, strict=True):
        row |= {f"top_token_{window}": token, f"top_sequence_{window}": sequence}
    return row | {"dominated": any(share is not None and share > DOMINANT_SHARE for top in tops for share in top)}


def _intervals(parted: FloatArray, drawn: FloatArray) -> dict[str, float | None]:
    """Return the intervals of change and parts; if the change's excludes 0, also the parts' shares with theirs."""
    found = dict(zip(PARTS, np.nanpercentile(drawn, INTERVAL, axis=0).T, strict=True))
    shares: dict[str, float | None] = {}
    if found["change"][0] > 0 or found["change"][1] < 0:
        shares = dict(zip(SHARES, _finite(parted[1:] / parted[0]), strict=True))
        usable = drawn[drawn[:, 0] != 0]
        found |= dict(zip(SHARES, np.nanpercentile(usable[:, 1:] / usable[:, :1], INTERVAL, axis=0).T, strict=True))
    ends = {f"{name}_{end}": _finite(pair)[i] for name, pair in found.items() for i, end in enumerate(("lo", "hi"))}
    return shares | ends


def _finite(values: FloatArray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]

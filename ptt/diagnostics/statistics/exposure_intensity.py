"""Did tools get more frequent or more dangerous: the growth of E[rho^2] split into exposure and intensity.

With alpha the share of post-tool tokens, E[rho^2] = (1 - alpha) m_text + alpha m_tool holds exactly. The
difference between two windows is split over the three factors by their Shapley value: the mean over all
orders in which the factors may change, which adds up to the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.bootstrap import DRAWS, INTERVAL, SEED, draw_counts, finite_or_none
from ptt.diagnostics.statistics.cells import EXPONENT_CAP, grouped_sums, in_parts
from ptt.diagnostics.statistics.clipping_replay import SIGNED, WEIGHT_CAP, split_by_sign
from ptt.diagnostics.statistics.dot_product import product
from ptt.diagnostics.statistics.ess import largest_log_weight
from ptt.diagnostics.statistics.windows import Span, label_spans, split_steps

Top = tuple[float, float | None]
"""Share of the largest token, and of the largest sequence where sequences are known."""

BLOCKS: Final = 8  # of steps in a window: sequences share their step, so these are redrawn as well
MIN_STEPS: Final = 8  # in a window: fewer, and redrawing whole steps tells nothing
DOMINANT_SHARE: Final = 0.5
FACTORS: Final = ("alpha", "m_text", "m_tool", "total")
PARTS: Final = ("change", "exposure", "text", "tool")
SHARES: Final = tuple(f"{name}_share" for name in PARTS[1:])

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
    a0, a1 = early[..., 0], late[..., 0]
    t0, p0 = (_fill_missing(early[..., factor], late[..., factor]) for factor in (1, 2))
    t1, p1 = (_fill_missing(late[..., factor], early[..., factor]) for factor in (1, 2))
    mean_alpha = (a0 + a1) / 2
    exposure = (a1 - a0) * ((p0 + p1) / 2 - (t0 + t1) / 2)
    text, tool = (t1 - t0) * (1 - mean_alpha), (p1 - p0) * mean_alpha
    return np.stack([late[..., 3] - early[..., 3], exposure, text, tool], axis=-1)


def _fill_missing(values: FloatArray, other: FloatArray) -> FloatArray:
    """Return the other's value where one is NaN, and 0 where both are."""
    filled = np.where(np.isnan(values), other, values)
    return np.where(np.isnan(filled), 0.0, filled)


def resample_units(values: FloatArray, block: IntArray, *, seed: int, draws: int = DRAWS) -> FloatArray:
    """Redraw units within blocks, then blocks: (units, K) sums, ascending (units,) blocks to (draws, K)."""
    generator = np.random.default_rng(seed)
    drawn = []
    for start, stop in pairwise(np.flatnonzero(np.diff(block, prepend=-1, append=-1))):
        times = draw_counts(int(stop - start), draws, generator, np.int32)
        drawn.append(product(times.astype(np.float64), values[start:stop]))
    if len(drawn) == 1:
        return drawn[0]
    blocks = np.stack(drawn)
    total: FloatArray = np.zeros((draws, values.shape[1]))
    for chosen in generator.integers(0, len(blocks), size=(len(blocks), draws)):
        total += blocks[chosen, np.arange(draws)]
    return total


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
    needed = cells.select("step", "slice", *SIGNED)  # taking a window's rows copies them
    steps_of = [_by_step(label_spans(needed, [span], name="window")) for span in ends]
    rows: list[dict[str, object]] = []
    for weights, square, sign in ((pair, "s_rho2", 1.0), (inverse, "s_inv2", -1.0)):
        tops: list[Top] = [_largest(part, square, sign) for part in rows_of]
        rows.append(_row(weights, None, [_by_unit(part, square) for part in rows_of], tops))
    for weights, sign, numbers in ((pair, 1.0, (0, 1)), (inverse, -1.0, (2, 3))):
        tables = [part.select("block", "n_0", "n_1", *(f"q_{i}" for i in numbers)) for part in steps_of]
        tops = [
            (min(_largest_weight(part, sign), WEIGHT_CAP) ** 2 / float(table.to_numpy()[:, 3:].sum()), None)
            for part, table in zip(rows_of, tables, strict=True)
        ]
        rows.append(_row(weights, WEIGHT_CAP, tables, tops))
    return pl.DataFrame(rows, schema=SCHEMA)


def _by_unit(rows: pl.DataFrame, square: str) -> pl.DataFrame:
    """Sum n and squared weights by slice, for each (block of steps, unit)."""
    blocks = split_steps(rows["step"].unique().sort().to_list(), BLOCKS)
    sums = grouped_sums(label_spans(rows, blocks, name="block"), ("block", "unit", "slice"), ("n", square))
    sums = sums.rename({square: "q"}).cast({"n": pl.Float64})
    wide = sums.group_by("block", "unit").agg(
        pl.col(name).filter(pl.col("slice") == number).sum().alias(f"{name}_{number}")
        for name in ("n", "q")
        for number in (0, 1)
    )
    return wide.sort("block", "unit").drop("unit")


def _by_step(cells: pl.DataFrame) -> pl.DataFrame:
    """Sum n and the squares of weights cut at 10 by slice (q_0, q_1; of 1/rho q_2, q_3), for each step.

    All steps are of block 0, or of block -1 if they are too few to be redrawn.
    """
    sums = pl.concat([_sums_of_steps(part) for part in in_parts(cells, "step")], rechunk=True)
    return sums.select(pl.lit(0 if sums.height >= MIN_STEPS else -1, pl.Int64).alias("block"), pl.all())


def _sums_of_steps(cells: pl.DataFrame) -> pl.DataFrame:
    """Sum n and the squares as above, a row a step."""
    signed = split_by_sign(cells)
    capped = np.exp(np.minimum(signed.magnitude, EXPONENT_CAP)) > WEIGHT_CAP
    small, large = np.exp(-2 * signed.magnitude), np.exp(2 * np.minimum(signed.magnitude, np.log(WEIGHT_CAP)))
    squares = np.where(capped, WEIGHT_CAP**2 * signed.n_up, signed.s2_up) + signed.s2_down
    inverse_squares = signed.n_up * small + signed.n_down * large
    steps, index = np.unique(cells["step"].to_numpy(), return_inverse=True)
    group = 2 * index + cells["slice"].to_numpy()
    columns: dict[str, npt.NDArray[Any]] = {}
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
    by_sequence = grouped_sums(rows, ("seq",), (square,))[square].to_numpy()
    return _largest_weight(rows, sign) ** 2 / total, float(by_sequence.max()) / total


def _largest_weight(rows: pl.DataFrame, sign: float) -> float:
    return float(np.exp(min(largest_log_weight(rows, sign), EXPONENT_CAP)))


def _row(weights: str, cap: float | None, tables: list[pl.DataFrame], tops: list[Top]) -> dict[str, object]:
    sums = [table.drop("block").to_numpy() for table in tables]
    blocks = [table["block"].to_numpy() for table in tables]
    recorded = [moment_factors(values.sum(axis=0)) for values in sums]
    change = shapley_split(*recorded)
    row: dict[str, object] = {"weights": weights, "cap": cap, **dict(zip(PARTS, finite_or_none(change), strict=True))}
    for window, values, (token, sequence) in zip(("early", "late"), recorded, tops, strict=True):
        row |= {f"{name}_{window}": value for name, value in zip(FACTORS, finite_or_none(values), strict=True)}
        row |= {f"top_token_{window}": token, f"top_sequence_{window}": sequence}
    if all(block[0] >= 0 for block in blocks):
        drawn = [
            moment_factors(resample_units(values, block, seed=SEED + number))
            for number, (values, block) in enumerate(zip(sums, blocks, strict=True))
        ]
        row |= _intervals(change, shapley_split(*drawn))
    return row | {"dominated": any(share is not None and share > DOMINANT_SHARE for top in tops for share in top)}


def _intervals(change: FloatArray, drawn: FloatArray) -> dict[str, float | None]:
    """Return the intervals of change and parts; if the change's excludes 0, also the parts' shares with theirs."""
    intervals = dict(zip(PARTS, np.nanpercentile(drawn, INTERVAL, axis=0).T, strict=True))
    shares: dict[str, float | None] = {}
    if intervals["change"][0] > 0 or intervals["change"][1] < 0:
        shares = dict(zip(SHARES, finite_or_none(change[1:] / change[0]), strict=True))
        usable = drawn[drawn[:, 0] != 0]
        intervals |= dict(zip(SHARES, np.nanpercentile(usable[:, 1:] / usable[:, :1], INTERVAL, axis=0).T, strict=True))
    for name, (low, high) in intervals.items():
        shares[f"{name}_lo"], shares[f"{name}_hi"] = finite_or_none((low, high))
    return shares

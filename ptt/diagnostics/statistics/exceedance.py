"""How far out the tokens of a slice lie: p99.9, shares beyond fixed ratios, and post-tool percentiles over text-only.

Intervals are 95%, from redrawing a window's blocks of steps; sequences stay in their step. A window of fewer than 8
steps has none.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.bootstrap import (
    DRAWS,
    INTERVAL,
    SEED,
    coarse_percentile,
    coarse_percentiles,
    finite_or_none,
    interval,
)
from ptt.diagnostics.statistics.cells import BINS
from ptt.diagnostics.statistics.histograms import BLOCKS, Histograms
from ptt.diagnostics.statistics.percentiles import percentiles
from ptt.diagnostics.statistics.slices import POST_TOOL, TEXT_ONLY
from ptt.diagnostics.statistics.tail_growth import FLOOR
from ptt.diagnostics.statistics.windows import WINDOWS

LIMITS: Final = (2, 5, 10, 100)
"""Of max(rho, 1/rho)."""
RATIOS: Final = {"p95": 0.95, "p99": 0.99, "p999": 0.999}
ENDS: Final = ("", "_lo", "_hi")
SCHEMA: Final[dict[str, pl.DataType]] = {
    "window": pl.String(),
    "slice": pl.String(),
    "n": pl.Int64(),  # tokens
    **{f"p999{end}": pl.Float64() for end in ENDS},  # of |r|, nats
    **{f"above_{limit}{end}": pl.Float64() for limit in LIMITS for end in ENDS},  # share with max(rho, 1/rho) > limit
}
RATIO_SCHEMA: Final[dict[str, pl.DataType]] = {
    "window": pl.String(),
    "percentile": pl.String(),  # p95, p99, p999 of |r|
    "text": pl.Float64(),  # nats
    "post": pl.Float64(),
    **{f"ratio{end}": pl.Float64() for end in ENDS},  # post over text, both at least 0.001
}
_COARSE: Final = np.flatnonzero(np.diff(bins.coarse_bin_of(np.arange(BINS)), prepend=-1))
_SEED: Final = SEED + 40


def exceedance_tables(counted: Histograms, *, names: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables `extremes`, by window and slice, and `tail_ratios`, by window and percentile."""
    exact = _percentiles(counted)
    rows, ratios = [], []
    for window in range(len(counted.n)):
        blocks = counted.blocks[counted.window == window]
        above = _count_above(blocks, counted.s_abs[window] / np.maximum(counted.n[window], 1.0))
        coarse = np.add.reduceat(blocks, _COARSE, axis=2)
        recorded, times = coarse.sum(axis=0), _draw_blocks(len(blocks), seed=_SEED + window)
        drawn = None if times is None else np.tensordot(times, coarse, 1)
        shares = None if times is None else np.tensordot(times, above, 1)
        for number, name in enumerate(names):
            if (window, number) not in exact:
                continue
            n = recorded[number].sum()
            far = _with_interval(
                exact[window, number]["p999"],
                coarse_percentile(recorded[number], 0.999),
                None if drawn is None else coarse_percentile(drawn[:, number], 0.999),
            )
            beyond = _shares(above[:, number].sum(axis=0), n, None if shares is None else shares[:, number])
            rows.append((WINDOWS[window], name, int(n), *far, *beyond))
        if {(window, TEXT_ONLY), (window, POST_TOOL)} <= exact.keys():
            ratios += _ratios(WINDOWS[window], exact[window, TEXT_ONLY], exact[window, POST_TOOL], recorded, drawn)
    return (
        pl.DataFrame(rows, schema=SCHEMA, orient="row"),
        pl.DataFrame(ratios, schema=RATIO_SCHEMA, orient="row"),
    )


def _percentiles(counted: Histograms) -> dict[tuple[int, int], dict[str, float]]:
    window, slice_, bin_ = np.nonzero(counted.n)
    cells = pl.DataFrame(
        {
            "window": window,
            "slice": slice_,
            "bin": bin_,
            "wide": np.full(len(bin_), counted.width.bit_length() - 1),
            "n": counted.n[window, slice_, bin_].astype(np.int64),
            "s_abs": counted.s_abs[window, slice_, bin_],
        }
    )
    exact = percentiles(cells, by=["window", "slice"])
    return {(row["window"], row["slice"]): row for row in exact.to_dicts()}


def _count_above(blocks: FloatArray, magnitude: FloatArray) -> FloatArray:
    """Return tokens beyond each limit, and all tokens, (blocks, slices, limits + 1); a bin lies where its mean does."""
    beyond = [(blocks * (magnitude > math.log(limit))).sum(axis=2) for limit in LIMITS]
    return np.stack([*beyond, blocks.sum(axis=2)], axis=-1)


def _draw_blocks(blocks: int, *, seed: int) -> FloatArray | None:
    """Return how often each block is drawn, (draws, blocks); None where they are too few."""
    if blocks < BLOCKS:
        return None
    return np.random.default_rng(seed).multinomial(blocks, np.full(blocks, 1 / blocks), size=DRAWS).astype(np.float64)


def _with_interval(value: float, centre: FloatArray, drawn: FloatArray | None) -> tuple[float | None, ...]:
    """Return a value and its interval: the spread of the coarse draws, carried over to it."""
    if drawn is None or not np.isfinite(centre) or centre <= 0:
        return value, None, None
    low, high = interval(drawn / centre)
    return value, *finite_or_none((value * low, value * high))


def _shares(above: FloatArray, n: float, drawn: FloatArray | None) -> list[float | None]:
    """Return the share beyond each limit with its interval; where no token is, its upper end is that of n tokens."""
    shares: list[float | None] = []
    for index in range(len(LIMITS)):
        share = float(above[index] / n)
        if drawn is None:
            shares += [share, None, None]
        elif share == 0:
            shares += [0.0, 0.0, 1 - 0.025 ** (1 / n)]
        else:
            usable = drawn[drawn[:, -1] > 0]
            shares += [share, *np.percentile(usable[:, index] / usable[:, -1], INTERVAL).tolist()]
    return shares


def _ratios(
    window: str, text: dict[str, float], post: dict[str, float], recorded: FloatArray, drawn: FloatArray | None
) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    spreads = [None] * len(RATIOS) if drawn is None else coarse_percentiles(drawn, list(RATIOS.values()))
    for (name, q), values in zip(RATIOS.items(), spreads, strict=True):
        ratio = max(post[name], FLOOR) / max(text[name], FLOOR)
        spread = None if values is None else _floored_ratio(values)
        rows.append(
            (
                window,
                name,
                text[name],
                post[name],
                *_with_interval(ratio, _floored_ratio(coarse_percentile(recorded, q)), spread),
            )
        )
    return rows


def _floored_ratio(values: FloatArray) -> FloatArray:
    floored = np.maximum(values, FLOOR)
    over: FloatArray = floored[..., POST_TOOL] / floored[..., TEXT_ONLY]
    return over

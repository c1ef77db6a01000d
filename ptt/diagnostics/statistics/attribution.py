"""What a late tail is made of: who holds it, and whether tools got more frequent or more dangerous.

With alpha the share of post-tool tokens, E[rho^2] = (1 - alpha) m_text + alpha m_tool holds exactly. The difference
between two windows is split over the three factors by their Shapley value: the mean over all orders in which the
factors may change, which adds up to the difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.dataframe.group_by import GroupBy

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray, product
from ptt.diagnostics.statistics.bootstrap import DRAWS, INTERVAL, SEED, draw_counts, entries_in_parts, finite_or_none
from ptt.diagnostics.statistics.cells import EXPONENT_CAP, conform, grouped_sums, in_parts
from ptt.diagnostics.statistics.clipping_replay import SIGNED, WEIGHT_CAP, split_by_sign
from ptt.diagnostics.statistics.ess import largest_log_weight
from ptt.diagnostics.statistics.percentiles import percentiles
from ptt.diagnostics.statistics.slices import POST_TOOL
from ptt.diagnostics.statistics.windows import Span, label_spans, split_steps

TOP_GROUPS: Final = 10
TOP_SEQUENCES: Final = 20
TOP_SHARES: Final = (0.001, 0.01)  # shares of the sequences, counted from those with most tail tokens down

SCHEMA: Final[dict[str, pl.DataType]] = {
    "by": pl.String(),
    "value": pl.String(),  # null: not recorded for these sequences, or, with `rest`, all values not listed
    "rest": pl.Boolean(),
    "tail": pl.Int64(),  # tokens of the late window with |r| at or above `limit`
    "tokens": pl.Int64(),
    "tail_share": pl.Float64(),
    "token_share": pl.Float64(),
    "lift": pl.Float64(),  # tail_share / token_share
    "n_sequences": pl.Int64(),
    "tail_sequences": pl.Int64(),  # those of them with a tail token
    "limit": pl.Float64(),  # nats
}
TOP_SCHEMA: Final[dict[str, pl.DataType]] = {
    "path": pl.String(),
    "row": pl.Int64(),  # in the file, from 0
    "step": pl.Int64(),
    "sample_id": pl.String(),
    "group_id": pl.String(),
    "tail": pl.Int64(),
    "tokens": pl.Int64(),
    "tail_share": pl.Float64(),
    "max_abs_r": pl.Float64(),
    "max_at": pl.Int64(),  # the first token with it, counted in the sequence from 0; null below FLOOR
    "max_turn": pl.Int64(),  # observations before that token
    "reward": pl.Float64(),
    "text": pl.String(),  # the sample's text from that turn on; null where none was kept
}


def tail_limit(late_cells: pl.DataFrame) -> int:
    """Return the coarse bin where the tail begins: its lower edge is the one nearest to the late post-tool p99 of |r|.

    Where no post-tool token is left, p99 of all late tokens stands in.
    """
    post = late_cells.filter(pl.col("slice") == POST_TOOL)
    tail_cells = (late_cells if post.is_empty() else post).with_columns(every=pl.lit(0))
    p99 = float(percentiles(tail_cells, by=["every"])["p99"][0])
    edges = bins.coarse_edges()[1:-1]
    return 1 + int(np.abs(np.log(edges) - math.log(p99)).argmin()) if p99 > 0 else 1


def bin_limit(first_bin: int) -> float:
    """Return the |r| in nats that coarse bin `first_bin` begins at."""
    return float(bins.coarse_edges()[first_bin])


def add_tail_counts(sequences: pl.DataFrame, first_bin: int) -> pl.DataFrame:
    """Add `tail`: how many tokens of each row lie in coarse bin `first_bin` or above."""
    tail = np.zeros(sequences.height, np.int64)
    for part, row, coarse, n in entries_in_parts(sequences):
        above = coarse >= first_bin
        tail[part] = np.bincount(row[above], weights=n[above], minlength=part.stop - part.start)
    return sequences.with_columns(pl.Series("tail", tail))


Split = tuple[pl.DataFrame, Mapping[str, pl.Expr]]


def attribution(
    rows: pl.DataFrame, by: Mapping[str, pl.Expr], *, limit: float, finer: Split | None = None
) -> pl.DataFrame:
    """Give, for every value of each of `by`, its share of the tail and of the tokens.

    `rows`: late (seq, slice) rows with n and tail, and what `by` asks for (string expressions). Values beyond
    the ten with most tail are put together (`rest`); the shares of each `by` sum to 1. `finer`: the
    same tokens cut more finely, and what to tell those rows apart by. The last rows are the sequences with most tail
    tokens, the top 0.1 % and 1 % of them.
    """
    total, tail = int(rows["n"].cast(pl.Int64).sum()), int(rows["tail"].sum())
    if not total:
        return pl.DataFrame(schema=SCHEMA)
    frames = [
        _top_values(cut.with_columns(value.cast(pl.String).alias("value"))).with_columns(by=pl.lit(name))
        for cut, keys in ((rows, by), finer or (rows, {}))
        for name, value in keys.items()
    ]
    counted = pl.concat([*frames, _concentration(rows)], how="diagonal")
    tail_share, token_share = pl.col("tail") / max(tail, 1), pl.col("tokens") / total
    return counted.with_columns(
        tail_share.alias("tail_share"),
        token_share.alias("token_share"),
        pl.when(tail > 0).then(tail_share / token_share).alias("lift"),
        pl.lit(limit).alias("limit"),
    ).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def _top_values(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum by `value`, most tail first; those after the tenth become one row."""
    order = ["tail", "tokens", "value"]
    every = _sums(rows.group_by("value")).sort(order, descending=[True, True, False], nulls_last=True)
    every = every.with_columns(rest=pl.lit(value=False))
    if every.height <= TOP_GROUPS + 1:
        return every
    listed = every.head(TOP_GROUPS)
    others = rows.join(listed.select("value"), on="value", how="anti", nulls_equal=True)
    rest = _sums(others.group_by(pl.lit(None, pl.String).alias("value"))).with_columns(rest=pl.lit(value=True))
    return pl.concat([listed, rest])


def _sums(grouped: GroupBy) -> pl.DataFrame:
    return grouped.agg(
        pl.col("tail").sum(),
        pl.col("n").cast(pl.Int64).sum().alias("tokens"),
        pl.col("seq").n_unique().alias("n_sequences"),
        pl.col("seq").filter(pl.col("tail") > 0).n_unique().alias("tail_sequences"),
    )


def _concentration(rows: pl.DataFrame) -> pl.DataFrame:
    ordered = by_sequence(rows)
    hit = (pl.col("tail") > 0).sum().cast(pl.UInt32)
    frames = []
    for share in TOP_SHARES:
        top = ordered.head(max(1, math.ceil(share * ordered.height)))
        sums = top.select(pl.col("tail", "tokens").sum(), n_sequences=pl.len().cast(pl.UInt32), tail_sequences=hit)
        value = pl.lit(f"{100 * share:g} %")
        frames.append(sums.with_columns(by=pl.lit("top sequences"), value=value, rest=pl.lit(value=False)))
    return pl.concat(frames)


def by_sequence(rows: pl.DataFrame) -> pl.DataFrame:
    """Put the slices of each sequence together, most tail tokens first, the larger |r| first among equals."""
    return (
        rows.group_by("seq")
        .agg(
            pl.col("step").first(),
            pl.col("tail").sum(),
            pl.col("n").cast(pl.Int64).sum().alias("tokens"),
            pl.max_horizontal(-pl.col("min_r"), "max_r").max().clip(0).alias("max_abs_r"),
        )
        .sort("tail", "max_abs_r", "seq", descending=[True, True, False])
    )


def top_sequences(
    rows: pl.DataFrame, identity: pl.DataFrame, stretches: pl.DataFrame, files: Sequence[tuple[str, int, int]]
) -> pl.DataFrame:
    """Return the 20 sequences with most tail tokens: their `seq`, file and row, and the place of their largest |r|.

    `identity`: seq with sample_id, group_id and reward where they are recorded; `files`: name, first
    seq and the row it is in that file, in order.
    """
    total = max(1, int(rows["tail"].sum()))
    top = by_sequence(rows).filter(pl.col("tail") > 0).head(TOP_SEQUENCES)
    named = [name for name in ("sample_id", "group_id", "reward") if name in identity.columns]
    top = top.join(identity.select("seq", *named), on="seq", how="left", maintain_order="left")
    peaks = stretches.filter(pl.col("seq").is_in(top["seq"].implode()) & (pl.col("peak") > 0))
    peaks = peaks.sort("peak", "peak_at", descending=[True, False]).unique("seq", keep="first", maintain_order=True)
    peaks = peaks.select("seq", max_at="peak_at", max_turn="turn")
    top = top.join(peaks, on="seq", how="left", maintain_order="left")
    seq = top["seq"].to_numpy().astype(np.int64)
    starts = np.array([start for _, start, _ in files], dtype=np.int64)
    file = np.searchsorted(starts, seq, side="right") - 1
    offsets = np.array([first_row - start for _, start, first_row in files], dtype=np.int64)
    top = top.with_columns(
        pl.Series("path", [files[i][0] if i >= 0 else None for i in file.tolist()], dtype=pl.String),
        pl.Series("row", np.where(file >= 0, seq + offsets[file] if len(starts) else seq, 0)),
        (pl.col("tail") / total).alias("tail_share"),
    )
    return conform(top, {"seq": top.schema["seq"], **TOP_SCHEMA})


Top = tuple[float, float | None]
"""Share of the largest token, and of the largest sequence where sequences are known."""

BLOCKS: Final = 8  # groups of steps in a window: sequences of one step are alike, so steps are resampled too
MIN_STEPS: Final = 8  # in a window: with fewer, resampling whole steps tells nothing
DOMINANT_SHARE: Final = 0.5
FACTORS: Final = ("alpha", "m_text", "m_tool", "total")
PARTS: Final = ("change", "exposure", "text", "tool")
SHARES: Final = tuple(f"{name}_share" for name in PARTS[1:])

EXPOSURE_SCHEMA: Final[dict[str, pl.DataType]] = {
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
        return pl.DataFrame(schema=EXPOSURE_SCHEMA)
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
    return pl.DataFrame(rows, schema=EXPOSURE_SCHEMA)


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

    All steps go into block 0, or into block -1 if they are too few to resample.
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

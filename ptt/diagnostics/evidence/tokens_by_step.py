"""Reduce the token tables to a few figures a step: the spread of every pair, advantages, masks, empty answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.schema import Flag
from ptt.diagnostics.statistics.cells import grouped_sums
from ptt.diagnostics.statistics.percentiles import percentiles


@dataclass(frozen=True, kw_only=True)
class PairSteps:
    """The log-ratio r of one pair by recorded step, over all model tokens."""

    pair: str
    p99: Series  # of |r|, nats
    p999: Series
    mean_abs: Series
    slices: Mapping[str, Series] = field(default_factory=dict)  # mean of |r| by slice, for slices with tokens


@dataclass(frozen=True, kw_only=True)
class Signal:
    """What the loss is computed from, by recorded step; None if it is not recorded."""

    advantage_std: Series | None = None  # over the samples of a step
    masked: Series | None = None  # share of the policy's own tokens that got no gradient
    empty: Series | None = None  # share of sequences with at most one token of the policy's own


SLICES: Final = ("text_only", "post_tool")  # by slice number in cells
MIN_SAMPLES: Final = 4  # in a step: a standard deviation of fewer means little
MAX_EMPTY_TOKENS: Final = 1  # tokens: an end-of-sequence alone is not an answer, if answers are usually longer
USUAL_TOKENS: Final = 8  # tokens: where a task asks for a single token, only no token at all is empty


def series_from_frame(frame: pl.DataFrame, column: str, *, name: str, raw_name: str) -> Series:
    """Return a column of a frame with `step` as a series."""
    values = frame[column].cast(pl.Float64).fill_null(np.nan).to_numpy()
    flags = np.where(np.isfinite(values), Flag.FINITE, Flag.NAN).astype(np.uint8)
    return Series(name=name, raw_name=raw_name, steps=frame["step"].to_numpy(), values=values, flags=flags)


def gather_pairs(tokens: Tokens | None) -> dict[str, PairSteps]:
    """Return the spread of r by step of every pair that has tokens."""
    pairs: dict[str, PairSteps] = {}
    if tokens is None:
        return pairs
    for number, pair in enumerate(tokens.pairs):
        cells = tokens.tables.cells_of(number)
        if cells.is_empty():
            continue
        sums = grouped_sums(cells, ["step"], ("n", "s_abs"))
        means = sums.select("step", (pl.col("s_abs") / pl.col("n")).alias("mean_abs_r"))
        by_step = percentiles(cells, by=["step"]).sort("step").join(means, on="step", how="left", maintain_order="left")
        p99, p999, mean_abs = (
            series_from_frame(by_step, column, name=f"{pair.name} {field}", raw_name=f"{title} of |{pair.name}|")
            for field, column, title in (
                ("p99", "p99", "p99"),
                ("p999", "p999", "p99.9"),
                ("mean_abs", "mean_abs_r", "mean"),
            )
        )
        slices = _mean_by_slice(cells, pair.name)
        pairs[pair.name] = PairSteps(pair=pair.name, p99=p99, p999=p999, mean_abs=mean_abs, slices=slices)
    return pairs


def _mean_by_slice(cells: pl.DataFrame, pair: str) -> dict[str, Series]:
    sums = grouped_sums(cells, ["step", "slice"], ("n", "s_abs")).with_columns(mean=pl.col("s_abs") / pl.col("n"))
    parts = {name: sums.filter(pl.col("slice") == number) for number, name in enumerate(SLICES)}
    return {
        name: series_from_frame(part, "mean", name=f"{pair} mean_abs {name}", raw_name=f"mean of |{pair}|, {name}")
        for name, part in parts.items()
        if part.height
    }


def gather_signal(tokens: Tokens | None, trajectories: pl.DataFrame) -> Signal:
    """Collect what the loss is computed from, as far as samples and sequences record it."""
    return Signal(
        advantage_std=_advantages(trajectories),
        masked=_masked(tokens) if tokens is not None else None,
        empty=_empty(tokens) if tokens is not None else None,
    )


def _advantages(trajectories: pl.DataFrame) -> Series | None:
    """Take the advantages of samples."""
    usable = (pl.col("split") == "train") & pl.col("advantage").is_finite() & pl.col("step").is_not_null()
    samples = trajectories.filter(usable)
    by_step = samples.group_by("step").agg(pl.col("advantage").std().alias("std"), pl.len()).sort("step")
    by_step = by_step.filter((pl.col("len") >= MIN_SAMPLES) & pl.col("std").is_not_null())
    if by_step.is_empty():
        return None
    return series_from_frame(
        by_step, "std", name="advantage/std", raw_name="standard deviation of the samples' advantages"
    )


def _masked(tokens: Tokens) -> Series | None:
    if "train_mask" not in tokens.scan.columns:
        return None
    counted = tokens.scan.frame.select(
        "step", pl.col("train_mask").list.sum().alias("trained"), pl.col("model_mask").list.sum().alias("own")
    ).drop_nulls()
    by_step = counted.group_by("step").agg(pl.col("trained").sum(), pl.col("own").sum()).collect(engine="streaming")
    by_step = by_step.filter(pl.col("own") > 0).sort("step")
    if by_step.is_empty():
        return None
    by_step = by_step.with_columns((1 - pl.col("trained") / pl.col("own")).clip(lower_bound=0.0).alias("share"))
    return series_from_frame(by_step, "share", name="mask/share", raw_name="share of model tokens outside train_mask")


def _empty(tokens: Tokens) -> Series | None:
    rows = tokens.sound_rows
    if rows.is_empty():
        return None
    max_tokens = MAX_EMPTY_TOKENS if float(np.median(rows["n_model"].to_numpy())) >= USUAL_TOKENS else 0
    by_step = rows.group_by("step").agg((pl.col("n_model") <= max_tokens).mean().alias("share")).sort("step")
    return series_from_frame(by_step, "share", name="len/empty_frac", raw_name="share of sequences without an answer")

"""From the token tables to tails over time: blocks, windows, and the tables behind the three figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.bins import UNDERFLOW
from ptt.diagnostics.statistics.bootstrap import interval
from ptt.diagnostics.statistics.ecdf import ecdf
from ptt.diagnostics.statistics.ess import sliding_ess
from ptt.diagnostics.statistics.percentiles import inverse_moments, moments, percentiles
from ptt.diagnostics.statistics.slices import POST_TOOL, TEXT_ONLY
from ptt.diagnostics.statistics.tail_curves import Profile
from ptt.diagnostics.statistics.tail_growth import TAIL_QUANTILES, SliceTails, block_count, slice_tails
from ptt.diagnostics.statistics.windows import WINDOWS, Span, label_spans, sliding_windows, split_steps

ESS_WINDOWS = 24  # about so many windows, overlapping by three quarters
IDS = ("group_id", "trajectory_id", "sample_id")


@dataclass(frozen=True, kw_only=True)
class Tails:
    """The tails of one pair: both slices, over the same blocks and windows."""

    pair: str
    blocks: tuple[Span, ...]
    windows: tuple[Span, ...]
    text: SliceTails
    post: SliceTails
    zero_share: float  # share of tokens whose r is exactly 0 (below 1e-12)
    bad_tokens: int  # model tokens whose r is null, NaN or infinite
    tokens: int
    steps: int  # with tokens
    tool_free_tokens: int  # text-only tokens of sequences without any observation
    unit: str  # what was resampled as a whole: "prompt group" or "sequence"


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """Share of recorded sequences with at least one observation, by step."""

    steps: IntArray
    share: FloatArray
    sequences: IntArray


def tool_use_by_step(tokens: Tokens) -> ToolUse | None:
    """Return the share of sequences with an observation, by step."""
    rows = tokens.tables.rows.filter("ok")
    if rows.is_empty():
        return None
    by_step = rows.group_by("step").agg((pl.col("n_obs") > 0).mean().alias("share"), pl.len()).sort("step")
    return ToolUse(
        steps=by_step["step"].to_numpy(),
        share=by_step["share"].to_numpy(),
        sequences=by_step["len"].cast(pl.Int64).to_numpy(),
    )


def gather_tails(tokens: Tokens, *, post_name: str) -> tuple[Tails, dict[str, pl.DataFrame]] | None:
    """Return the tails of the main pair and the tables the figures are drawn from; None without a single token."""
    pair = tokens.pairs[0]
    cells = tokens.tables.cells_of(0)
    if cells.is_empty():
        return None
    sequences, unit = _join_units(tokens)
    steps = cells["step"].unique().sort().to_list()
    units = int(sequences.select(pl.struct("step", "unit").n_unique()).item())
    count = block_count(steps=len(steps), units=units, tokens=_fewest_tokens(cells))
    blocks, windows, sixths = split_steps(steps, count), split_steps(steps, 3), split_steps(steps, 6)
    names = {TEXT_ONLY: "text_only", POST_TOOL: post_name}
    slices = {
        number: slice_tails(
            cells.filter(pl.col("slice") == number),
            sequences.filter(pl.col("slice") == number),
            name=name,
            blocks=blocks,
            windows=windows,
            sixths=sixths,
        )
        for number, name in names.items()
    }
    rows = tokens.tables.rows.filter("ok")
    total = int(cells["n"].cast(pl.Int64).sum())
    tails = Tails(
        pair=pair.name,
        blocks=blocks,
        windows=windows,
        text=slices[TEXT_ONLY],
        post=slices[POST_TOOL],
        zero_share=int(cells.filter(pl.col("bin") == UNDERFLOW)["n"].cast(pl.Int64).sum()) / total,
        bad_tokens=int(tokens.tables.bad.filter(pl.col("pair") == 0)["n_bad"].cast(pl.Int64).sum()),
        tokens=total,
        steps=len(steps),
        tool_free_tokens=int(rows.filter(pl.col("n_obs") == 0)["n_model"].cast(pl.Int64).sum()),
        unit=unit,
    )
    tables = {
        "tail_emergence": _emergence(slices, blocks, sequences),
        "ecdf": _named(_ecdf(cells, windows), names),
        "ess": _ess(sequences, steps, names, tokens),
        "growth": _named(_growth(cells, sequences, windows, sixths), names),
        "step_stats": step_stats(tokens, names),
    }
    return tails, tables


def profile_of(tokens: Tokens, *, post_name: str) -> Profile | None:
    """Return what sets the main pair of this run against another run's; None without a single token."""
    cells = tokens.tables.cells_of(0)
    if cells.is_empty():
        return None
    sequences, unit = _join_units(tokens)
    return Profile(
        pair=tokens.pairs[0].name,
        slices={TEXT_ONLY: "text_only", POST_TOOL: post_name},
        cells=cells.drop("pair"),
        sequences=sequences,
        unit=unit,
    )


def _fewest_tokens(cells: pl.DataFrame) -> int:
    """Return the tokens of the slice that has fewer, of those that have any."""
    counted = cells.group_by("slice").agg(pl.col("n").cast(pl.Int64).sum())["n"]
    return int(counted.to_numpy().min())


def _join_units(tokens: Tokens) -> tuple[pl.DataFrame, str]:
    """Join the sequences with what they are redrawn by: the prompt group where it is known, else the sequence."""
    held = [name for name in IDS if name in tokens.scan.columns]
    ids = tokens.scalars.select("seq", *held)
    grouped = "group_id" in held and ids["group_id"].null_count() < ids.height / 2 and ids["group_id"].n_unique() > 1
    used = [name for name in held if grouped or name != "group_id"]
    key = pl.coalesce(*(pl.col(name) for name in used), pl.concat_str(pl.lit("row "), pl.col("seq")))
    units = ids.select("seq", pl.col("seq").min().over(key).alias("unit")).sort("seq")
    rows = tokens.tables.sequences
    place = np.searchsorted(units["seq"].to_numpy(), rows["seq"].to_numpy())  # a join would copy the histograms
    joined = rows.with_columns(units["unit"].gather(place))
    sorted_ = (np.diff(rows["step"].to_numpy()) >= 0).all()  # as files in order are; rows come by seq and slice
    return joined if sorted_ else joined.sort("step", "seq", "slice"), "prompt group" if grouped else "sequence"


def _emergence(slices: dict[int, SliceTails], blocks: tuple[Span, ...], sequences: pl.DataFrame) -> pl.DataFrame:
    counts = label_spans(sequences, blocks, name="block").group_by("slice", "block").len()
    held = {(row[0], row[1]): row[2] for row in counts.iter_rows()}
    rows = []
    for number, tails in slices.items():
        for name, q in TAIL_QUANTILES.items():
            percentile = tails.percentiles[name]
            for index, span in enumerate(blocks):
                value = float(percentile.blocks[index])
                if not np.isfinite(value):
                    continue
                low, high = interval(percentile.drawn[index])
                rows.append(
                    (
                        *(tails.name, q, span.first, span.last, span.middle, value),
                        low if np.isfinite(low) else None,
                        high if np.isfinite(high) else None,
                        int(tails.tokens[index]),
                        int(held.get((number, index), 0)),
                    )
                )
    schema = [
        "slice",
        "q",
        "step_first",
        "step_last",
        "step_mid",
        "value",
        "lo",
        "hi",
        "n_tokens",
        "n_sequences",
    ]
    types = [pl.String, pl.Float64, pl.Int64, pl.Int64, *[pl.Float64] * 4, pl.Int64, pl.Int64]
    return pl.DataFrame(rows, schema=dict(zip(schema, types, strict=True)), orient="row")


def _join_spans(frame: pl.DataFrame, spans: tuple[Span, ...], index: str) -> pl.DataFrame:
    bounds = pl.DataFrame(
        {
            index: np.arange(len(spans), dtype=np.int32),
            "step_first": [span.first for span in spans],
            "step_last": [span.last for span in spans],
        }
    )
    return frame.join(bounds, on=index, how="left", maintain_order="left")


def _ecdf(cells: pl.DataFrame, windows: tuple[Span, ...]) -> pl.DataFrame:
    found = ecdf(label_spans(cells, windows, name="part"), by=["slice", "part"])
    names = dict(enumerate(WINDOWS))
    return _join_spans(found, windows, "part").with_columns(
        pl.col("part").replace_strict(names, return_dtype=pl.String).alias("window")
    )


def _growth(
    cells: pl.DataFrame, sequences: pl.DataFrame, windows: tuple[Span, ...], sixths: tuple[Span, ...]
) -> pl.DataFrame:
    frames = []
    for spans in (windows, sixths):
        found = percentiles(label_spans(cells, spans, name="part"), by=["slice", "part"]).rename({"n": "n_tokens"})
        counted = (
            label_spans(sequences, spans, name="part").group_by("slice", "part").agg(pl.len().alias("n_sequences"))
        )
        found = found.join(counted, on=["slice", "part"], how="left", maintain_order="left")
        frames.append(_join_spans(found, spans, "part").with_columns(parts=pl.lit(len(spans), pl.Int64)))
    return pl.concat(frames)


def _ess(sequences: pl.DataFrame, steps: list[int], names: dict[int, str], tokens: Tokens) -> pl.DataFrame:
    width = max(4, len(steps) // 6)
    spans = sliding_windows(steps, width=width, stride=max(1, (len(steps) - width) // ESS_WINDOWS))
    pair = tokens.pairs[0]
    frames = [
        sliding_ess(
            sequences.filter(pl.col("slice") == number), spans, pair=pair.name, inverse=pair.inverse
        ).with_columns(slice=pl.lit(name))
        for number, name in names.items()
    ]
    return pl.concat(frames)


def step_stats(tokens: Tokens, names: dict[int, str]) -> pl.DataFrame:
    """Return percentiles, ESS, second moment and KL estimates of every recorded step, slice and pair."""
    frames = []
    for number, pair in enumerate(tokens.pairs):
        cells = tokens.tables.cells_of(number)
        by = ["step", "slice"]
        found = percentiles(cells, by=by).join(
            moments(cells, by=by, sampled_from=pair.sampled_from).drop("n"),
            on=by,
            how="left",
            maintain_order="left",
        )
        if number == 0:
            inverse = inverse_moments(tokens.tables.sequences, by=by)
            found = found.join(inverse, on=by, how="left", maintain_order="left")
            if pair.sampled_from == "numerator":
                found = found.with_columns(k3=pl.col("k3_inverse"))
            found = found.drop("k3_inverse")
        frames.append(found.with_columns(pair=pl.lit(pair.name)))
    return _named(pl.concat(frames, how="diagonal"), names)


def _named(frame: pl.DataFrame, names: dict[int, str]) -> pl.DataFrame:
    return frame.with_columns(pl.col("slice").replace_strict(names, return_dtype=pl.String))

"""Whole distributions side by side: CDFs by window, and the effective sample size over the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.compare.comparable import WithTails
from ptt.diagnostics.compare.comparison import Arm
from ptt.diagnostics.compare.tail_measures import Axis, MeasuredRun
from ptt.diagnostics.statistics.ecdf import ecdf
from ptt.diagnostics.statistics.ess import sliding_ess
from ptt.diagnostics.statistics.tail_curves import split_thirds
from ptt.diagnostics.statistics.windows import WINDOWS, label_spans

ECDF: Final = pl.Schema(
    dict.fromkeys(("arm", "slice", "window"), pl.String) | {"x": pl.Float64, "cdf": pl.Float64, "n_tokens": pl.Int64}
)
ESS: Final = pl.Schema(
    {"arm": pl.String, "slice": pl.String, "step_first": pl.Int64, "step_last": pl.Int64}
    | {"step_mid": pl.Float64, "ess_fraction": pl.Float64, "n": pl.Int64}
)


def distribution_tables(found: WithTails, axis: Axis) -> dict[str, pl.DataFrame]:
    """Return the tables ecdf and ess over matched steps; tokens of seeds are pooled, their ESS is averaged."""
    cdfs, sizes = [pl.DataFrame(schema=ECDF)], [pl.DataFrame(schema=ESS)]
    for arm in found.arms:
        runs = [axis.runs[member.name] for member in arm.members]
        for name in found.slices[arm.name]:
            cdfs.append(_cdf(arm, runs, name))
            sizes.append(_ess(arm, runs, name, axis))
    return {"ecdf": pl.concat(cdfs), "ess": pl.concat(sizes)}


def _cdf(arm: Arm, runs: Sequence[MeasuredRun], name: str) -> pl.DataFrame:
    cells = [
        label_spans(run.profile.cells.filter(_slice(run, name)), split_thirds(run.spans), name="part") for run in runs
    ]
    named = ecdf(pl.concat(cells), by=["part"]).with_columns(
        pl.lit(arm.name).alias("arm"),
        pl.lit(name).alias("slice"),
        pl.col("part").replace_strict(dict(enumerate(WINDOWS)), return_dtype=pl.String).alias("window"),
    )
    return named.select(pl.col(column).cast(kind) for column, kind in ECDF.items())


def _ess(arm: Arm, runs: Sequence[MeasuredRun], name: str, axis: Axis) -> pl.DataFrame:
    by_run = [_by_span(run, name) for run in runs]
    edges = axis.matched.edges
    rows = []
    for bin_index in range(len(edges) - 1):
        here = [by_bin[bin_index] for by_bin in by_run if bin_index in by_bin]
        if len(here) < len(runs):
            continue
        first, last = math.ceil(edges[bin_index]), math.floor(edges[bin_index + 1])
        share = float(np.mean([fraction for fraction, _ in here]))
        rows.append((arm.name, name, first, last, (first + last) / 2, share, sum(n for _, n in here)))
    return pl.DataFrame(rows, schema=ESS, orient="row")


def _by_span(run: MeasuredRun, name: str) -> dict[int, tuple[float, int]]:
    """Return ESS/n and n of tokens for each span that holds any."""
    profile = run.profile
    rows = profile.sequences.filter(_slice(run, name)).sort("step", maintain_order=True)
    by_span = {}
    for index, span in enumerate(run.spans):
        table = sliding_ess(rows, [span], pair=profile.pair, inverse="inverse")
        token_rows = table.filter((pl.col("level") == "token") & (pl.col("weights") == profile.pair))
        if token_rows.height and math.isfinite(token_rows["ess_fraction"][0]):
            by_span[index] = (float(token_rows["ess_fraction"][0]), int(token_rows["n"][0]))
    return by_span


def _slice(run: MeasuredRun, name: str) -> pl.Expr:
    number = next(key for key, of in run.profile.slices.items() if of == name)
    return pl.col("slice") == number

"""One series for each canonical metric, whatever number of writers logged it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.schema import Flag

SHOWN: Final = ("kl/ref", "reward/mean", "entropy", "grad_norm", "loss/total")
MAX_POINTS: Final = 1000  # of a drawn line: more than a figure has pixels


def read_series(metrics: pl.DataFrame) -> dict[str, Series]:
    """Give the training series of each canonical metric.

    Of several spellings the one counts that the best source (lowest priority) has most of; of several rows of one
    step the best source's last one: a resumed run logs its steps again.
    """
    rows = metrics.filter((pl.col("split") == "train") & pl.col("name").is_not_null() & pl.col("step").is_not_null())
    if rows.is_empty():
        return {}
    spelling = (
        rows.group_by("name", "name_raw")
        .agg(pl.col("priority").min(), pl.len())
        .sort("name", "priority", "len", "name_raw", descending=[False, False, True, False])
        .unique("name", keep="first", maintain_order=True)
    )
    return _series(rows.join(spelling.select("name", "name_raw"), on=["name", "name_raw"], how="semi"))


def read_other(metrics: pl.DataFrame, *, split: str = "train") -> dict[str, Series]:
    """Give the series of one split under the names their writer gave them: those of training without a canonical name.

    Rows of several ranks are left out: they are no series.
    """
    if "priority" not in metrics.columns:
        return {}
    wanted = (pl.col("split") == split) & pl.col("step").is_not_null() & pl.col("rank").is_null()
    unnamed = pl.col("name").is_null() if split == "train" else pl.lit(value=True)
    rows = metrics.filter(wanted & unnamed).with_columns(pl.col("name_raw").alias("name"))
    return _series(rows) if rows.height else {}


def read_spelling(metrics: pl.DataFrame, name: str, *, split: str) -> Series | None:
    """Give the series that a writer gave this name, or of an evaluation this canonical one; None where there is none.

    Of several spellings of a canonical name the one with most rows counts.
    """
    rows = metrics.filter((pl.col("split") == split) & pl.col("step").is_not_null() & pl.col("rank").is_null())
    mine = rows.filter(pl.col("name_raw") == name)
    if mine.is_empty() and split != "train":
        mine = rows.filter(pl.col("name") == name)
        spelt = mine.group_by("name_raw").len().sort("len", "name_raw", descending=[True, False])["name_raw"]
        mine = mine.filter(pl.col("name_raw") == spelt[0]) if len(spelt) else mine
    return _series(mine.with_columns(pl.lit(name).alias("name")))[name] if mine.height else None


def _series(rows: pl.DataFrame) -> dict[str, Series]:
    """Give one series a name; of several rows of one step the best source's last one."""
    best = rows.with_columns(
        (pl.col("flag") == Flag.NULL_IN_SOURCE).alias("absent")
    ).sort(  # beside a value: not logged
        "name", "step", "absent", "priority", "source", "seq", descending=[False, False, False, False, True, True]
    )
    best = best.unique(["name", "step"], keep="first", maintain_order=True)
    return {
        str(group["name"][0]): Series(
            name=str(group["name"][0]),
            raw_name=str(group["name_raw"][0]),
            steps=group["step"].to_numpy(),
            values=group["value"].fill_null(np.nan).to_numpy(),
            flags=group["flag"].to_numpy(),
        )
        for group in best.partition_by("name", maintain_order=True)
    }


def aggregate_table(series: Mapping[str, Series], limits: Mapping[str, float]) -> pl.DataFrame:
    """Give what a dashboard shows: value and rolling mean of the aggregates, with the limit each is judged by."""
    schema = {
        "name": pl.String,
        "step": pl.Int64,
        "value": pl.Float64,
        "mean": pl.Float64,
        "limit": pl.Float64,
    }
    frames = [pl.DataFrame(schema=schema)]
    for name in SHOWN:
        if name in series:
            steps, values = series[name].finite()
            frame = pl.DataFrame({"step": steps, "value": values, "mean": series[name].rolling()[1]})
            frame = frame.with_columns(
                pl.col("mean").fill_nan(None),
                name=pl.lit(name),
                limit=pl.lit(limits.get(name), pl.Float64),
            )
            frames.append(frame.gather_every(1 + frame.height // MAX_POINTS).select(list(schema)))
    return pl.concat(frames)

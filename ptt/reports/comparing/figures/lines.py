"""Reads the logged curves of an arm's runs, as one line of means."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.comparing.values import Arm, Comparison
from ptt.reports.comparing.figures.kinds import arm_name
from ptt.reports.names import joined, metric_name
from ptt.reports.numbers import percent

Floats = npt.NDArray[np.float64]
TABLE = "series"  # one value a metric and step
NOT_NUMBERS = (1, 2, 3)  # flags of NaN and the two infinities


def line(arm: Arm, metric: str, span: tuple[float, float], spans: int) -> tuple[Floats, Floats]:
    """Give an arm's mean by span of steps, each run counted alike; a span without values has none."""
    edges = np.linspace(span[0] - 0.5, span[1] + 0.5, spans + 1)
    kept = []
    for member in arm.members:
        rows = _series(member.diagnosis.tables, metric)
        if rows is None:
            continue
        steps, values = rows["step"].to_numpy(), rows["value"].to_numpy()
        inside = (steps >= edges[0]) & (steps <= edges[-1])
        place = np.clip(np.searchsorted(edges, steps[inside], side="right") - 1, 0, spans - 1)
        sums = np.bincount(place, weights=values[inside], minlength=spans)
        counts = np.bincount(place, minlength=spans)
        kept.append(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
    middles = (edges[:-1] + edges[1:]) / 2
    if not kept:
        return middles, np.full(spans, np.nan)
    every = np.array(kept)
    known = np.isfinite(every).sum(axis=0)
    return middles, np.where(known > 0, np.nansum(every, axis=0) / np.maximum(known, 1), np.nan)


def not_numbers(comparison: Comparison, metrics: tuple[str, ...]) -> list[str]:
    """Say where values are NaN or infinite and so left out of the lines."""
    told = []
    for arm in comparison.arms:
        bad = []
        for name in metrics:
            lost, every = 0, 0
            for member in arm.members:
                frame = member.diagnosis.tables.get(TABLE)
                rows = frame.filter(pl.col("name") == name) if frame is not None else pl.DataFrame()
                every += rows.height
                lost += rows.filter(pl.col("flag").is_in(NOT_NUMBERS)).height if rows.height else 0
            if lost:
                bad.append(f"{metric_name(name)} {percent(lost / every)}")
        if bad:
            told.append(f"Not a number in {arm_name(arm.name)}, and left out: {joined(bad)}.")
    return told


def _series(tables: Mapping[str, pl.DataFrame], metric: str) -> pl.DataFrame | None:
    frame = tables.get(TABLE)
    if frame is None or frame.is_empty():
        return None
    rows = frame.filter(pl.col("name") == metric, pl.col("value").is_finite()).sort("step")
    return rows if rows.height else None

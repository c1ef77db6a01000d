"""Keeps the curves that findings rest on, logged or worked out, so that a report can draw each beside its finding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Finding, SeriesOutcome, Severity

DRAWN_FROM: Final = Severity.MEDIUM  # findings of less have no plot
TABLE: Final = "finding_series"
SCHEMA: Final = {
    "metric": pl.String,
    "logged_as": pl.String,
    "step": pl.Int64,
    "value": pl.Float64,
    "flag": pl.UInt8,
}
MAX_DEPTH: Final = 4  # of values within values: evidence of one topic holds readings, and those hold series


def finding_series(findings: Sequence[Finding], evidence: Evidence, metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the curves that findings name under `metric` and `logged_as`, one row a step; `metrics` are all rows."""
    wanted = dict.fromkeys(_names(finding) for finding in findings if finding.severity.at_least(DRAWN_FROM))
    frames = [pl.DataFrame(schema=SCHEMA)]
    if any(logged or metric for metric, logged in wanted):
        known = _by_raw_name(evidence)
        for metric, logged in wanted:
            series = known.get(logged) or known.get(metric) or (None if logged else evidence.metrics.get(metric))
            found = _logged(metrics, logged or metric) if series is None else _rows(series)
            if found.height:
                named = found.with_columns(metric=pl.lit(metric), logged_as=pl.lit(logged))
                frames.append(named.select(pl.col(column).cast(kind) for column, kind in SCHEMA.items()))
    return pl.concat(frames)


def _names(finding: Finding) -> tuple[str, str]:
    """Return the canonical name of the curve that a finding names, and the one it was logged under; empty if none."""
    metric, logged = finding.evidence.get("metric"), finding.evidence.get("logged_as")
    return metric if isinstance(metric, str) else "", logged if isinstance(logged, str) else ""


def _by_raw_name(evidence: Evidence) -> dict[str, Series]:
    """Return every series of the evidence by the name it was logged under; the judged training metrics come first."""
    known: dict[str, Series] = {}
    for series in (*evidence.metrics.values(), *evidence.other.values(), *_within(evidence, MAX_DEPTH)):
        known.setdefault(series.raw_name, series)
    return known


def _within(value: object, depth: int) -> Iterator[Series]:
    """Yield the series in a value of the evidence, however its topic holds them."""
    if isinstance(value, Series):
        yield value
    elif depth and is_dataclass(value) and not isinstance(value, (type, SeriesOutcome)):  # of these there are thousands
        for field in fields(value):
            yield from _within(getattr(value, field.name), depth - 1)
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from _within(item, depth - 1)
    elif depth and isinstance(value, tuple):
        for item in value:
            yield from _within(item, depth - 1)


def _rows(series: Series) -> pl.DataFrame:
    values = np.where(np.isfinite(series.values), series.values, np.nan)
    return pl.DataFrame({"step": series.steps, "value": pl.Series(values).fill_nan(None), "flag": series.flags})


def _logged(metrics: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return what was logged under a name, the last value of a step, whatever split it is of."""
    of_run = pl.col("rank").is_null() if "rank" in metrics.columns else pl.lit(value=True)
    rows = metrics.filter((pl.col("name_raw") == name) & pl.col("step").is_not_null() & of_run)
    return rows.unique("step", keep="last", maintain_order=True).sort("step").select("step", "value", "flag")

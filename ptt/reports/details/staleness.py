"""Tails and the age of rollouts, in words and a table."""

from __future__ import annotations

import math

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.details.part import Part
from ptt.reports.foreign import safe
from ptt.reports.names import slice_name
from ptt.reports.numbers import bounds, count, number, percent, times
from ptt.reports.panels import DataTable, pair_of, table

UNKNOWN = "unknown"


def staleness(diagnosis: Diagnosis) -> Part | None:
    """Say whether tails are longer where rollouts are older."""
    frame = table(diagnosis, "staleness")
    if frame is None:
        return None
    told = []
    for name, rows in frame.group_by("slice", maintain_order=True):
        known = rows.filter(pl.col("lag") != UNKNOWN).to_dicts()
        if not known or known[0]["slope"] is None:
            continue
        row, last = known[0], known[-1]
        low, high = (None if end is None else math.exp(end) for end in (row["slope_lo"], row["slope_hi"]))
        told.append(
            f"{slice_name(str(name[0])).capitalize()} p99 of |r| (pair {pair_of(diagnosis)}) is "
            f"{number(row['p99'], 2)} at lag {row['lag']} and {number(last['p99'], 2)} at lag {last['lag']}: "
            f"{times(math.exp(row['slope']))} for each doubling of 1 + lag "
            f"(95 % interval {bounds(low, high)})."
        )
    unknown = int(frame.filter(pl.col("lag") == UNKNOWN)["n"].sum()) / max(1, int(frame["n"].sum()))
    told.append(f"The version is unknown for {percent(unknown)} of the tokens.")
    told.append(
        "Lag counts versions behind the freshest sequence (step minus version is "
        f"{count(frame['offset'][0])} there); percentiles are known to a quarter. Lag and training time may "
        "go together: this proves no cause."
    )
    head = ("Slice", "Lag", "p95 of |r|", "p99 of |r|", "Of the slice", "Tokens", "Sequences")
    rows_shown = tuple(
        (
            slice_name(row["slice"]),
            safe(row["lag"]),
            number(row["p95"], 2),
            number(row["p99"], 2),
            percent(row["share"]),
            count(row["n"]),
            count(row["n_sequences"]),
        )
        for row in frame.to_dicts()
    )
    tables = (DataTable(title="Tails by lag", head=head, rows=rows_shown),)
    return Part(key="staleness", title="Tails and the age of rollouts", sentence=" ".join(told), tables=tables)

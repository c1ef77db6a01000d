"""Who holds the late tail, in words and tables."""

from __future__ import annotations

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.details.part import Part, foreign_name
from ptt.reports.foreign import safe
from ptt.reports.names import BY, slice_name
from ptt.reports.numbers import count, number, percent, times
from ptt.reports.panels import DataTable, table

SHOWN_VALUES = 14
RAISED = 1.05  # lift
EACH = 4  # prompt groups are many, and would fill the table alone
FEW = 8  # sequences: of fewer, the lift is chance
TOP = "top sequences"


def holders(diagnosis: Diagnosis) -> Part | None:
    """Say whose the late tail is."""
    frame = table(diagnosis, "attribution")
    if frame is None or not frame["tail"].sum():
        return None
    of_slice = frame.filter(pl.col("by") == "slice").sort("tail", descending=True).to_dicts()
    tail = sum(row["tail"] for row in of_slice)
    told = [f"The late tail is {count(tail)} tokens with |r| of {number(frame['limit'][0])} nats or more."]
    told += [
        f"{foreign_name(slice_name(row['value'])).capitalize()} tokens hold {percent(row['tail_share'])} of it and "
        f"{percent(row['token_share'])} of the tokens."
        for row in of_slice[:1]
    ]
    told += [
        f"The {foreign_name(row['value'])} of sequences with most of it hold {percent(row['tail_share'])}."
        for row in frame.filter((pl.col("by") == TOP) & (pl.col("value") == "1 %")).to_dicts()
    ]
    listed = frame.filter((pl.col("by") != TOP) & ~pl.col("rest") & (pl.col("n_sequences") >= FEW))
    lifted = listed.filter(pl.col("lift") > RAISED).sort("lift", "tail", descending=True, maintain_order=True)
    lifted = lifted.group_by("by", maintain_order=True).head(EACH).sort("lift", "tail", descending=True)
    told.append(
        f"Lift is share of the tail over share of the tokens; below, what lies above {RAISED} in at least "
        f"{FEW} sequences, at most {EACH} of a kind."
    )
    head = ("By", "Value", "Lift", "Of the tail", "Of the tokens", "Tail tokens", "Sequences")
    tables = (
        DataTable(title="Highest lift", head=head, rows=_holder_rows(lifted.head(SHOWN_VALUES))),
        DataTable(title="Everything by which the tail was split", head=head, rows=_holder_rows(frame)),
    )
    return Part(key="holders", title="Who holds the late tail", sentence=" ".join(told), tables=tables)


def _holder_rows(frame: pl.DataFrame) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            BY.get(row["by"]) or safe(row["by"]),
            "all others" if row["rest"] else _value(row["by"], row["value"]),
            times(row["lift"]),
            percent(row["tail_share"]),
            percent(row["token_share"]),
            count(row["tail"]),
            count(row["n_sequences"]),
        )
        for row in frame.to_dicts()
    )


def _value(by: str, value: str | None) -> str:
    if value is None:
        return "not recorded"
    return slice_name(value) if by == "slice" else foreign_name(value)

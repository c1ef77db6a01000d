"""Who holds the late tail, in words and tables."""

from __future__ import annotations

from typing import Any

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.details.part import Part, foreign_name, notes_on
from ptt.reports.foreign import safe
from ptt.reports.names import BY, slice_name
from ptt.reports.numbers import count, number, percent, times
from ptt.reports.panels import DataTable, table

SHOWN_VALUES = 14
RAISED = 1.05  # lift
EACH = 4  # prompt groups are many, and would fill the table alone
FEW = 8  # sequences: of fewer, the lift is chance
CLEAR = 1.5  # times the lift of its slice: below, a place says no more than the slice does
WORTH = 0.05  # of the tail: a smaller part is no answer
PLACES = ("distance", "turn", "tool name", "tool result")
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
    told += _place(frame, of_slice)
    listed = frame.filter((pl.col("by") != TOP) & ~pl.col("rest") & (pl.col("n_sequences") >= FEW))
    lifted = listed.filter(pl.col("lift") > RAISED).sort("lift", "tail", descending=True, maintain_order=True)
    lifted = lifted.group_by("by", maintain_order=True).head(EACH).sort("lift", "tail", descending=True)
    told.append(
        f"Lift is share of the tail over share of the tokens; below, what lies above {RAISED} in at least "
        f"{FEW} sequences, at most {EACH} of a kind."
    )
    told += notes_on(diagnosis, "attribution")
    head = ("By", "Value", "Lift", "Of the tail", "Of the tokens", "Tail tokens", "Sequences")
    tables = (
        DataTable(title="Highest lift", head=head, rows=_holder_rows(lifted.head(SHOWN_VALUES))),
        DataTable(title="Everything by which the tail was split", head=head, rows=_holder_rows(frame)),
    )
    return Part(key="holders", title="Who holds the late tail", sentence=" ".join(told), tables=tables)


def _place(frame: pl.DataFrame, of_slice: list[dict[str, Any]]) -> list[str]:
    """Name the place in a sequence that stands out most from its slice."""
    usual = max((row["lift"] or 0.0 for row in of_slice), default=0.0)
    known = frame.filter(pl.col("by").is_in(PLACES) & ~pl.col("rest") & pl.col("value").is_not_null())
    known = known.filter((pl.col("tail_sequences") >= FEW) & (pl.col("tail_share") >= WORTH))
    clear = known.filter(pl.col("lift") >= CLEAR * usual).sort("lift", "tail", descending=True, maintain_order=True)
    return [
        f"By place, {BY[row['by']]} {_value(row['by'], row['value'])} tells most: "
        f"{percent(row['tail_share'])} of it and {percent(row['token_share'])} of the tokens "
        f"(lift {times(row['lift'])})."
        for row in clear.head(1).to_dicts()
    ]


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
    if by in PLACES and value == "none":
        return "before any"
    return slice_name(value) if by == "slice" else foreign_name(value)

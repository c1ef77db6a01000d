"""What one part of the section behind the tail is made of."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.foreign import safe, shortened
from ptt.reports.names import sentence
from ptt.reports.panels import DataTable, table

LONGEST = 60  # letters of a name in a table
DASH = "—"
SLICES_SHOWN = ("post_tool", "post_observation", "text_only")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One question behind the tail: a sentence that answers it and the table it comes from."""

    key: str
    title: str
    sentence: str
    tables: tuple[DataTable, ...]


def foreign_name(text: str | None) -> str:
    """Show a name that the run gave, cut to LONGEST letters."""
    return DASH if text is None else shortened(safe(text), LONGEST)


def notes_on(diagnosis: Diagnosis, name: str) -> list[str]:
    """Say what table `name` leaves out, and why."""
    frame = table(diagnosis, "details_notes")
    return [] if frame is None else [sentence(reason) for reason in frame.filter(pl.col("table") == name)["reason"]]

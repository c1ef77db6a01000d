"""What stands behind the tail, in words and tables: how heavy it is, guards, who holds it, what to read, staleness."""

from __future__ import annotations

from ptt.diagnostics.model import Diagnosis
from ptt.reports.details.guards import guards
from ptt.reports.details.heaviness import heaviness
from ptt.reports.details.holders import holders
from ptt.reports.details.part import Part
from ptt.reports.details.staleness import staleness
from ptt.reports.details.worst import worst

__all__ = ["Part", "details"]

PARTS = (heaviness, guards, holders, worst, staleness)


def details(diagnosis: Diagnosis) -> tuple[Part, ...]:
    """Give the parts the run holds numbers for; none where there are no tails."""
    made = (part(diagnosis) for part in PARTS)
    return tuple(part for part in made if part is not None)

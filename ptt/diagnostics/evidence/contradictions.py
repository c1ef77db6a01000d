"""Identities and inequalities between logged metrics, and the runs that break them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import AuditRow, JsonScalar


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """One identity that the metrics were held against."""

    row: AuditRow


def find_contradictions(
    metrics: Mapping[str, Series], other: Mapping[str, Series], facts: Mapping[str, JsonScalar]
) -> tuple[Contradiction, ...]:
    """Hold the metrics against every identity whose names they log."""
    return ()

"""Logged scalars recomputed from token rows: which formula and which reduction give what the trainer logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import AuditRow, JsonScalar


@dataclass(frozen=True, kw_only=True)
class ScalarAudit:
    """What the logged scalars turned out to be."""

    rows: tuple[AuditRow, ...]


def audit_scalars(
    tokens: Tokens | None,
    metrics: Mapping[str, Series],
    other: Mapping[str, Series],
    facts: Mapping[str, JsonScalar],
) -> ScalarAudit | None:
    """Recompute every logged scalar that the rows allow; None where they allow none."""
    return None

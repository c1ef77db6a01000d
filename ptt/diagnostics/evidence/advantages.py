"""Which estimator gives the recorded advantages from the recorded rewards, and for which rows it does not."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.model import AuditRow, JsonScalar


@dataclass(frozen=True, kw_only=True)
class AdvantageAudit:
    """What the advantages turned out to be."""

    rows: tuple[AuditRow, ...]


def audit_advantages(
    tokens: Tokens | None, trajectories: pl.DataFrame, facts: dict[str, JsonScalar]
) -> AdvantageAudit | None:
    """Fit estimators to rewards and advantages by group; None where no sample has both."""
    return None

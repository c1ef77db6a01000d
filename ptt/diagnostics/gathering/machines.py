"""Put what is recorded by rank side by side."""

from __future__ import annotations

import polars as pl

from ptt.diagnostics.evidence.machines import Machines


def gather_machines(metrics: pl.DataFrame, ranks: pl.DataFrame) -> Machines | None:
    """Put what is recorded by rank side by side; None where nothing is."""
    return None

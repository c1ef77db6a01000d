"""Count calls, failures and turns by step and by tool."""

from __future__ import annotations

import polars as pl

from ptt.diagnostics.evidence.environment import Environment


def gather_environment(trajectories: pl.DataFrame, calls: pl.DataFrame, turns: pl.DataFrame) -> Environment | None:
    """Count calls, failures and turns by step and by tool; None where no trajectory is recorded."""
    return None

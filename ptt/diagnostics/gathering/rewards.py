"""Put reward components and single rewards by step."""

from __future__ import annotations

import polars as pl

from ptt.diagnostics.evidence.rewards import Rewards


def gather_rewards(metrics: pl.DataFrame, trajectories: pl.DataFrame, rewards: pl.DataFrame) -> Rewards | None:
    """Put reward components and single rewards by step; None where neither is recorded."""
    return None

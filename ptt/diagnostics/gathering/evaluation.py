"""Put the figures of evaluations into series."""

from __future__ import annotations

import polars as pl

from ptt.diagnostics.evidence.evaluation import Evaluation


def gather_evaluation(metrics: pl.DataFrame, evals: pl.DataFrame, trajectories: pl.DataFrame) -> Evaluation | None:
    """Put the figures of evaluations into series; None where there is none."""
    return None

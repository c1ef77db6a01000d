"""What the rules on updates share: what moves a policy too far, and what to do about it, in an expert's order."""

from __future__ import annotations

from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Steps
from ptt.diagnostics.statistics.arrays import FloatArray

CAUSES = (
    "a learning rate that is too high for this batch size",
    "too many epochs or minibatches per batch",
    "advantages or rewards on too large a scale",
)
LOG_LEARNING_RATE = "log the optimiser's learning rate at every step, with all its digits"

DECIMALS: Final = 4  # a log that shows any number beyond these shows a small one as well
MAX_EXACT: Final = 1e6  # of larger numbers a double has too few digits to show how many decimals were printed
ROUNDED: Final = 1e-3  # of the last decimal: rounding of a double adds far less to a printed number
FULL_RATES: Final = frozenset({"transformers", "trl", "ms-swift", "llamafactory"})
"""Frameworks that write the rate as a full double, whatever else they round."""


def shows_small_numbers(evidence: Evidence, *, besides: str) -> bool:
    """Return whether any metric but `besides` is logged with more decimals than would hide a small number."""
    if besides == "lr" and evidence.run.framework in FULL_RATES:
        return True
    every = (*evidence.metrics.values(), *evidence.other.values())
    for series in every:
        if series.name == besides or series.logged:
            continue  # means of blocks have digits that nobody logged
        if has_more_decimals(series.finite()[1]):
            return True
    return False


def has_more_decimals(values: FloatArray) -> bool:
    """Return whether any finite value has more than DECIMALS decimals; values: (n,)."""
    scaled = values[np.abs(values) < MAX_EXACT] * 10.0**DECIMALS
    return len(scaled) > 0 and float(np.abs(scaled - np.round(scaled)).max()) > ROUNDED


def confirm_by_checkpoint(interval: Steps) -> str:
    """Return which checkpoints to compare."""
    return f"compare the last checkpoint before step {interval[0]} with the final one on a fixed evaluation"


def back_off(interval: Steps) -> tuple[str, ...]:
    """Return what to do about updates that are too large, one thing at a time."""
    return (
        f"roll back to the last checkpoint before step {interval[0]}",
        "rerun from it with half the learning rate, and change nothing else",
        "if that is not enough: fewer PPO epochs (or minibatches) per batch",
        "then stop updating on a batch once its KL passes a target",
        "then check advantage normalisation and the reward's scale",
    )

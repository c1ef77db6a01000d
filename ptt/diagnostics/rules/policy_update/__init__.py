"""What the rules on updates share: what moves a policy too far, and what to do about it, in an expert's order."""

from __future__ import annotations

from ptt.diagnostics.model import Steps

CAUSES = (
    "learning rate too high for this batch size",
    "too many epochs or minibatches over one batch",
    "advantages or rewards on too large a scale",
)
LOG_LEARNING_RATE = "log the learning rate of the optimiser at every step, with all its digits"


def confirm_by_checkpoint(interval: Steps) -> str:
    """Return which checkpoints to compare."""
    return f"compare the checkpoint from before step {interval[0]} with the last one on a fixed evaluation"


def back_off(interval: Steps) -> tuple[str, ...]:
    """Return what to do about updates that are too large, one thing at a time."""
    return (
        f"roll back to the last healthy checkpoint: one from before step {interval[0]}",
        "rerun from it with a lower learning rate (half of it), nothing else changed",
        "if that does not hold it: fewer PPO epochs (or minibatches) over a batch",
        "then stop the updates of a batch early once its KL passes a target",
        "then check advantage normalisation and the reward's scale",
    )

"""What the rules on updates share: what moves a policy too far, and what to do about it, in an expert's order."""

from __future__ import annotations

from ptt.diagnostics.model import Steps

CAUSES = (
    "learning rate too high for this batch size",
    "too many epochs or minibatches over one batch",
    "advantages or rewards on too large a scale",
)

FOLLOWS = {
    "kl-over-target": "updates that large carry the policy off",
    "update-too-large": "a policy far off has large ratios",
    "clip-fraction-high": "updates stay as large as those that moved it",
    "one-sided-clipping": "tokens pushed down leave the clip range at its lower side",
    "ratio-explosion": "log-ratios far off are ratios without bound",
    "tail-growth-everywhere": "log-ratios of all tokens grow with the distance",
    "policy-drift": "what is measured is the same distance",
    "reward-fell": "a policy far off no longer does what is paid for",
    "tool-use-vanished": "a policy far from the reference forgets to call",
    "no-signal-groups": "a collapsed policy answers alike",
    "advantage-scale": "answers that are all alike have no advantages",
    "truncated-share": "a collapsed policy does not end its answers",
    "empty-responses": "a collapsed policy ends at once",
    "entropy-collapse": "the policy left for a single answer",
    "entropy-explosion": "what the policy knew is overwritten",
    "length-collapse": "a collapsed policy ends at once",
    "gradient-spikes": "log-ratios far off make gradients that large",
    "metrics-lost": "ratios overflow",
    "value-loss-rising": "the critic's states are not those it learnt",
    "explained-variance-low": "the critic's states are not those it learnt",
}


def followed_by(rule: str, **more: str) -> dict[str, str]:
    """Give what a failure of this link brings about, itself left out."""
    return {name: how for name, how in {**FOLLOWS, **more}.items() if name != rule}


def confirm_by_checkpoint(interval: Steps) -> str:
    """Say which checkpoints to compare."""
    return f"compare the checkpoint from before step {interval[0]} with the last one on a fixed evaluation"


def back_off(interval: Steps) -> tuple[str, ...]:
    """Say what to do about updates that are too large, one thing at a time."""
    return (
        f"roll back to the last healthy checkpoint: one from before step {interval[0]}",
        "rerun from it with a lower learning rate (half of it), nothing else changed",
        "if that does not hold it: fewer PPO epochs (or minibatches) over a batch",
        "then stop the updates of a batch early once its KL passes a target",
        "then check advantage normalisation and the reward's scale",
    )

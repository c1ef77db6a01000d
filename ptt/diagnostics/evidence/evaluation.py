"""What is known of evaluations: each figure over the steps, and the protocol it was taken under."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is known of evaluations: each figure over the steps, and the protocol it was taken under."""

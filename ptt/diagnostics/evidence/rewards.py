"""What is known of rewards beyond their mean: components, and single rewards by step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rewards:
    """What is known of rewards beyond their mean: components, and single rewards by step."""

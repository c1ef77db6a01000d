"""What is known of the environment: calls, turns and trajectories, by step and by tool."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What is known of the environment: calls, turns and trajectories, by step and by tool."""

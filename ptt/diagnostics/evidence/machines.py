"""What is known by rank, node and device, and what happened to the run's processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Machines:
    """What is known by rank, node and device."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened, in a line; `kind` is stdout, stderr, exit, alert or restart."""

    step: int | None
    kind: str
    text: str
    source: str

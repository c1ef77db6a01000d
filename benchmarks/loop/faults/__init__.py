"""The table of contents of all faults that are put into healthy runs."""

from __future__ import annotations

from typing import Final

from benchmarks.loop.faults import environment, machines, offline, rewards, updates
from benchmarks.loop.faults.fault import Fault

FAULTS: Final[tuple[Fault, ...]] = (
    *environment.FAULTS,
    *rewards.FAULTS,
    *updates.FAULTS,
    *machines.FAULTS,
    *offline.FAULTS,
)
NOT_MADE: Final = ("old-logprobs-off", "versions-unknown", "tool-diversity")
"""Failures of the catalogue that are seen in recorded sequences alone, or under another name here."""

__all__ = ["FAULTS", "NOT_MADE", "Fault"]

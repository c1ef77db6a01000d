"""A watch over one run: given its steps one by one, it warns, and stops the run within a budget of false stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from ptt.diagnostics.watch.observed import ObservedStep

BUDGET: Final = 0.01
"""Probability that a healthy run is ever stopped, over its whole length."""
STATE_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """Something that a watch tells of a run.

    kind: "stop" only within the budget, or on a fault that needs no statistic. since_step: where it probably began.
    share: the part of the budget that this rule may spend; 0 for what is no matter of chance.
    """

    kind: Literal["warning", "stop"]
    rule: str
    since_step: int
    step: int
    value: float
    limit: float
    claim: str  # what is the matter, in one sentence without a full stop
    next: tuple[str, ...] = ()  # what to do
    share: float = 0.0


class Monitor:
    """Judges a run step by step; each rule warns once and stops once.

    Steps must come in ascending order: one at or before the last is a resumed or rewritten one, and is passed over.
    """

    def __init__(self, *, budget: float, limits: Mapping[str, Mapping[str, float]]) -> None:
        """Use `start` or `restored`."""
        self._budget, self._limits = budget, limits
        self._last: int | None = None

    @classmethod
    def start(cls, *, limits: Mapping[str, Mapping[str, float]] | None = None, budget: float = BUDGET) -> Monitor:
        """Return a watch that has seen nothing; limits: Settings.limits."""
        return cls(budget=budget, limits=limits or {})

    def observe(self, step: ObservedStep) -> tuple[Alarm, ...]:
        """Return what the step makes known for the first time."""
        if self._last is not None and step.step <= self._last:
            return ()
        self._last = step.step
        return ()

    def state(self) -> dict[str, Any]:
        """Return everything that was learnt, as JSON holds it."""
        return {"version": STATE_VERSION, "budget": self._budget, "limits": dict(self._limits), "last": self._last}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Monitor:
        """Return the watch that had this state; ValueError where it is of another version."""
        if state.get("version") != STATE_VERSION:
            raise ValueError("the state is of another version of the watch")
        monitor = cls(budget=state["budget"], limits=state["limits"])
        monitor._last = state["last"]
        return monitor

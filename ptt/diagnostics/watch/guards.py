"""What to set so that the next run does not go the same way, with the values that this run gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ptt.diagnostics.model import Guard
from ptt.diagnostics.wording import pct, sig

ROOM: Final = 2.0  # times the level before it went wrong: the cap lets healthy noise pass
MIN_CAP: Final = 0.01  # nats a token: a cap below this stops a run in its first steps
KEPT: Final = 3  # checkpoints from onset to stop: one before it always survives
TAILS: Final = frozenset({"tool-tail-growth", "tail-growth-everywhere"})
DRIFT: Final = TAILS | {"kl-over-target"}


def guards_for(
    rule: str, *, since: int, step: int, tail_before: float, before: Mapping[str, float]
) -> tuple[Guard, ...]:
    """Return the guards against what a rule stopped or warned for.

    since, step: where it began and was known; tail_before: p95 of |r| in nats before it, NaN if unknown; before:
    levels by metric, from the last steps before it.
    """
    guards = [_rollback(since, step)]
    kl, calls = before.get("kl/ref", math.nan), before.get("tools/call_frequency", math.nan)
    if rule in DRIFT and math.isfinite(kl):
        cap = max(MIN_CAP, ROOM * kl)
        says = f"cap the mean KL at {sig(cap)} nats a token, as it was {sig(kl)} before step {since}: raise the KL "
        says += "coefficient while it lies above, and end the epoch of a batch that passes it"
        guards.append(Guard(name="kl-cap", value=cap, unit="nats", says=says))
    if rule in TAILS and math.isfinite(tail_before):
        cap = max(MIN_CAP, ROOM * tail_before)
        says = (
            f"truncate or mask importance weights beyond {sig(math.exp(cap))}: p95 of |r| was {sig(tail_before)} nats "
        )
        says += f"before step {since}"
        guards.append(Guard(name="tail-cap", value=cap, unit="nats", says=says))
    if rule == "tool-tail-growth":
        share = f" at {pct(min(1.0, calls))} of the answers" if math.isfinite(calls) and calls <= 1 else ""
        says = (
            f"hold tool calls{share} as before step {since}, with tools that answer in one form, and widen them only "
        )
        says += f"while p95 of |r| after tool calls stays below {sig(max(MIN_CAP, ROOM * tail_before))} nats"
        guards.append(Guard(name="curriculum", value=max(MIN_CAP, ROOM * tail_before), unit="nats", says=says))
    return tuple(guards)


def _rollback(since: int, step: int) -> Guard:
    every = max(1, (step - since) // KEPT)
    says = (
        f"go back to the last checkpoint before step {since}; save every {every} steps and keep the last {KEPT + 1}: "
    )
    says += f"it took {step - since} steps to be sure"
    return Guard(name="rollback", value=float(since), unit="step", says=says)

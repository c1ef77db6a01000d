"""What runs that passed show together: that they moved away from their baseline, each within its limit."""

from __future__ import annotations

from collections.abc import Sequence

from ptt.diagnostics.baseline.moves import drift, drifted
from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.gate.values import GatedRun, Outcome


def drift_notes(runs: Sequence[GatedRun], policy: Policy) -> tuple[str, ...]:
    """Tell of drift among the runs that passed; nothing without a baseline, or with too few of them.

    Runs that failed or were blind are left out: what they show is told where they are.
    """
    held = policy.baseline.held if policy.baseline is not None else None
    if held is None:
        return ()
    known = {run.source for run in held.runs}
    passed = [run.figures for run in runs if run.outcome is Outcome.PASSED and run.figures is not None]
    newer = {one.source: one for one in passed if one.source not in known}
    told = drifted(drift(held, list(newer.values())), len(newer))
    return (told,) if told else ()

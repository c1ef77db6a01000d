"""This run shows single steps or short spans that take a multiple of the usual time, and cost a tenth of the run.

What: the step time leaves its level by a factor of two or more, further and more often than its noise gives, and
returns, and a tenth of the run's time or more goes into it. Low, since it costs time and not the policy; medium from a
quarter of the time on where something is counted at these steps that waits or fails.
Why it matters: it says when something was down, or what the run waits for.
What it is not: a step in every k that is slow by design, because it generates, evaluates or saves: those are left out.
Nor a step time that stays long (throughput-drop).
What to do: see which part of the step takes the time; look for errors of the environment at these steps.
Source: `recurring_excursions`; the factor and the share are our own.
"""

from __future__ import annotations

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.excursions import Recurrence, facts_of
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.comes_and_goes import (
    beside_words,
    causes_of,
    event_of,
    judge_recurrences,
    steps_words,
    typical,
    when_words,
)
from ptt.diagnostics.rules.interface import EVERY, Finding, Limits, Verdict, rule
from ptt.diagnostics.rules.single_series import metric_evidence
from ptt.diagnostics.wording import pct, sig

FACTOR = 2.0  # times the level
MUCH_LOST = 0.25  # of it: what it waits for decides what the run costs
LOST_SHARE = 0.1  # of the run's time
TIME = "time/step"


FAILING = ("error", "fail", "timeout", "timed_out", "waiting", "retr")


def _fails(recurrence: Recurrence) -> bool:
    """Return whether something is counted at these steps that waits or fails."""
    names = (one.series.raw_name.lower() for one in recurrence.beside if one.side > 0)
    return any(word in name for name in names for word in FAILING)


def _finding(recurrence: Recurrence, _: Evidence, limits: Limits) -> Finding | None:
    lead = recurrence.lead
    value, level = typical(lead.values), typical(lead.levels)
    steps, values = lead.series.finite()
    slow = np.isin(steps, lead.steps)
    lost = float((values - lead.excursions.level)[slow].sum() / values.sum()) if values.sum() > 0 else 0.0
    by_design = event_of(recurrence) is not None or recurrence.period is not None
    if by_design or value < limits["times_level"] * level or lost < limits["lost"]:
        return None
    first = int(lead.begins[0])
    return Finding(
        severity=Severity.MEDIUM if lost >= limits["much"] and _fails(recurrence) else Severity.LOW,
        claim=f"Steps take {sig(value)} s instead of {sig(level)} s at {steps_words(lead)}{when_words(recurrence)}, "
        f"and {pct(lost)} of the run's time is lost there{beside_words(recurrence, skip=(TIME,))}",
        observed=lost,
        limit=limits["lost"],
        unit="of the run's time",
        onset_step=first,
        onset_interval=(first, first),
        evidence=metric_evidence(lead.series, value=value, level=level, **facts_of(recurrence)),
        causes=causes_of(
            recurrence,
            "an environment, tool or reward service that was down or slow, and retries",
            "one very long answer that all others wait for",
        ),
        confirm=(f"compare the parts of the time of step {first} with those of the step before",),
        next=("log errors and retries of the environment at each step", "set a time limit on calls and rollouts"),
    )


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the steps that take far longer than those around them."""
    return judge_recurrences(
        evidence, limits, (TIME,), what="step time", enable="log the time of each step", judge=_finding
    )


RULE = rule(
    check,
    "slow-steps",
    Link.SYSTEMS,
    families=EVERY,
    max_severity=Severity.MEDIUM,
    times_level=FACTOR,
    lost=LOST_SHARE,
    much=MUCH_LOST,
)

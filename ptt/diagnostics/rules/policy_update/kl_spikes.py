"""This run shows a KL divergence from the reference that spikes and comes back.

What: the logged KL rises above 1 nat a token (10/3 of the limit of kl-over-target), several times or for three values
and more, further and more often than its own noise gives, and falls back each time. A single spike above that limit,
and ten times as high as the KL around it, is a note.
Why it matters: a mean over a window does not show it, and the KL penalty of such a step pulls the whole policy for the
sake of a few tokens.
What it is not: the scatter of a small KL; a KL that stays high (kl-over-target).
What to do: look at the tokens with the largest KL at these steps. Where engine or trainer held other weights, or the
mask or the batch was another one, the claim or the samples show it.
Source: `recurring_excursions`; the limit follows kl-over-target, where it is high.
"""

from __future__ import annotations

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.excursions import Recurrence, facts_of
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.comes_and_goes import (
    beside_words,
    causes_of,
    confirm_of,
    event_of,
    judge_recurrences,
    steps_words,
    typical,
    when_words,
)
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.policy_update import kl_over_target
from ptt.diagnostics.rules.single_series import lasting_excess, metric_evidence
from ptt.diagnostics.statistics.recurring_excursions import departures
from ptt.diagnostics.wording import sig

KL = "kl/ref"
SIDE = 10  # values on either side that give the level
SINGLE_FACTOR = 10.0  # times that level: a single value of a heavy tail is worth no note for less
TIMES_LIMIT = kl_over_target.HIGH_FACTOR  # times the limit of a lasting KL: 1 nat a token, where nothing else is set


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the spikes of the KL that recur; else note the largest single one."""
    verdict = judge_recurrences(
        evidence, limits, (KL,), what="KL to the reference", enable=kl_over_target.ENABLE, judge=_finding
    )
    if not isinstance(verdict, Healthy) or verdict.notes:
        return verdict
    note = _single(evidence, limits)
    return verdict if note is None else Healthy(reason=note.claim, notes=(note,))


def _limit(evidence: Evidence, series: Series, limits: Limits) -> tuple[float, float] | None:
    """Return the limit of a spike, and that of a lasting KL, in the unit of the series; None where it is unknown."""
    tokens = kl_over_target.tokens_per_value(evidence, series)
    if isinstance(tokens, NotJudged):
        return None
    lasting = kl_over_target.limit_in_force(evidence, {"limit": kl_over_target.KL_LIMIT})[0] * tokens
    return limits["times_limit"] * lasting, lasting


def _single(evidence: Evidence, limits: Limits) -> Finding | None:
    """Return the note of the highest single spike that no mean over a window shows, or None."""
    series = evidence.metrics[KL]
    steps, values = series.finite()
    off, level, _ = departures(values, SIDE)
    place = int(np.argmax(off))
    known = _limit(evidence, series, limits)
    if known is None or values[place] <= max(known[0], SINGLE_FACTOR * level[place]) or off[place] <= 0:
        return None
    if lasting_excess(series, known[1]) is not None or any(
        int(steps[place]) in one.lead.steps for one in evidence.excursions or ()
    ):
        return None
    step = int(steps[place])
    return Finding(
        severity=Severity.LOW,
        claim=f"KL to the reference spikes to {sig(values[place])} nats at step {step} and comes back; it is "
        f"{sig(level[place])} around it",
        observed=float(values[place]),
        limit=known[0],
        unit="nats",
        onset_step=step,
        onset_interval=(step, step),
        evidence=metric_evidence(series, value=float(values[place]), level=float(level[place])),
        causes=("a few tokens that the policy has all but excluded and the reference has not, or the reverse",),
        next=(f"look at the tokens of step {step} with the largest KL if reward or gradient moved within 20 steps",),
    )


def _finding(recurrence: Recurrence, evidence: Evidence, limits: Limits) -> Finding | None:
    lead = recurrence.lead
    known = _limit(evidence, lead.series, limits)
    if known is None:
        return None
    (limit, lasting), value, highest = known, typical(lead.values), float(lead.values.max())
    if value <= limit or lasting_excess(lead.series, lasting) is not None:
        return None  # what lasts is kl-over-target's
    first = int(lead.begins[0])
    alone = lead.excursions.alone and event_of(recurrence) is None
    return Finding(
        severity=Severity.LOW if alone else Severity.MEDIUM,
        claim=f"KL to the reference spikes to {sig(highest)} nats at {steps_words(lead)}{when_words(recurrence)} and "
        f"comes back; it is {sig(typical(lead.levels))} around them{beside_words(recurrence, skip=(KL,))}",
        observed=highest,
        limit=limit,
        unit="nats",
        onset_step=first,
        onset_interval=(first, first),
        evidence=metric_evidence(
            lead.series, value=value, highest=highest, level=typical(lead.levels), **facts_of(recurrence)
        ),
        causes=causes_of(
            recurrence,
            "a few tokens that the policy has all but excluded and the reference has not, or the reverse",
            "logprobs of other tokens at these steps: a mask, padding, or a template of one kind of sample",
        ),
        confirm=(
            f"list the tokens of step {first} with the largest KL: a few of one kind, or the whole batch?",
            *confirm_of(recurrence)[1:],
        ),
        next=(
            "fix what these tokens have in common",
            "clip the KL of single tokens, or use an estimator without exp, so that no token decides a step",
        ),
    )


RULE = rule(
    check,
    "kl-spikes",
    Link.POLICY_UPDATE,
    families=LANGUAGE,
    max_severity=Severity.MEDIUM,
    times_limit=TIMES_LIMIT,
)

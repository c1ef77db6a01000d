"""Findings on a mismatch within its limits that tells of a fault: a saw, an agreement lost or missed, single events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.mismatch_course import MEASURES
from ptt.diagnostics.evidence.mismatch_rise import GREW, SAW_TOP, left_zero, on_policy_to_the_bit, saw_of
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import JsonScalar, Severity
from ptt.diagnostics.rules.comes_and_goes import OF_WEIGHTS, event_of, steps_words, typical, when_words
from ptt.diagnostics.rules.data_freshness import lag_of
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.rules.single_series import series_evidence
from ptt.diagnostics.wording import sig

MANY_LINES: Final = 100  # single turns are tokenised otherwise in any run
LINE: Final = 120  # characters
RETOKENISED: Final = re.compile(
    r"(?i)\bmismatch in prefix tokens\b|\btokens?\b.{0,60}\bnot a prefix\b|"
    r"\bprefix\b.{0,40}\btokens?\b.{0,40}\b(?:do|does|did) not match\b|"
    r"\bre-?tokeni[sz]\w*.{0,60}\b(?:mismatch\w*|differ\w*|not match)\b"
)
LEFT_OUT: Final = re.compile(r"(?i)mask|\bdrop|\bdiscard|\bskip|\bexclud|\bbranch|\bnew sample")  # not trained on
AS_PRINTED: Final = 1e-6  # equal logprobs of float32 that a log has rounded


class Mismatch(NamedTuple):
    """A recorded difference between engine and trainer, and how to judge it."""

    series: Series
    limit: float
    fine: float | None  # the limit of a low finding, where there is one
    zero: float  # what no difference at all would be


def within_limits(mismatches: Sequence[Mismatch], evidence: Evidence) -> Finding | None:
    """Return the finding on the first telling course; where rollouts are old, and say so, stale-rollouts speaks."""
    if lag_of(evidence) is not None:
        return None
    for one in mismatches:
        found = one.series.name in MEASURES and (
            _saw(one) or _left_zero(one, evidence) or _never_zero(one, evidence) or _at_events(one, evidence)
        )
        if found:
            return found
    return None


def retokenised(evidence: Evidence) -> Finding | None:
    """Return the finding on turns that are tokenised again, by the warnings of the console alone, or None."""
    lines = (event for event in evidence.events if RETOKENISED.search(event.text))
    told = [event for event in lines if not LEFT_OUT.search(event.text)]
    steps = sorted({event.step for event in told if event.step is not None})
    if len(told) < MANY_LINES or len(told) < len(steps):
        return None
    return Finding(
        severity=Severity.LOW,
        claim=f"{len(told):,} lines tell of turns whose tokens are not those that the engine read or sampled, such as: "
        f"{told[0].text[:LINE]}",
        observed=float(len(told)),
        limit=float(MANY_LINES),
        unit="lines",
        onset_step=steps[0] if steps else None,
        evidence={"lines": len(told), "source": told[0].source},
        causes=("earlier turns are rendered and tokenised again, and their tokens are put together for the update",),
        confirm=("compare the engine's token ids with those trained on, for one episode of several turns",),
        next=("pass the engine's own token ids from turn to turn, or train each turn as a sample of its own",),
    )


def _saw(mismatch: Mismatch) -> Finding | None:
    """Return the finding on a mismatch that climbs to near its limit and falls back at regular steps."""
    series, limit, _, zero = mismatch
    away = _away(mismatch)
    teeth = saw_of(away, limit - zero)
    if teeth is None:
        return None
    at = np.maximum(np.searchsorted(away.steps, teeth.falls), 1)
    top, low = (zero + float(np.median(away.values[places])) for places in (at - 1, at))
    return _finding(
        mismatch,
        f"Inference engine and trainer come apart and together again: {series.raw_name} climbs to {sig(top)}, near its "
        f"limit of {limit:g}, and falls to {sig(low)} every {teeth.interval} steps",
        top,
        int(away.steps[0]),
        f"what happens every {teeth.interval} steps: a weight update, an evaluation, a cleared cache?",
        lowest=low,
        interval=teeth.interval,
    )


def _left_zero(mismatch: Mismatch, evidence: Evidence) -> Finding | None:
    """Return the finding on two sides that are to compute alike, do so at the first step, and never again."""
    series, zero, away = mismatch.series, mismatch.zero, _away(mismatch)
    if not left_zero(away, evidence.settings):
        return None
    late = zero + float(np.median(away.values[1:]))
    return _finding(
        mismatch,
        f"Inference engine and trainer are to compute alike, and do so at the first step alone: {series.raw_name} is "
        f"{zero:g} there and {sig(late)} later",
        late,
        int(away.steps[1]),
        "score one sequence on both sides right after a weight update: equal to the bit?",
    )


def _never_zero(mismatch: Mismatch, evidence: Evidence) -> Finding | None:
    """Return the finding on two sides that are to agree to the bit, and differ from the first step on."""
    series, zero, away = mismatch.series, mismatch.zero, _away(mismatch)
    setting = on_policy_to_the_bit(evidence.settings)
    if setting is None or len(away.values) < MIN_LOGGED or away.values.min() <= AS_PRINTED:
        return None
    late = zero + float(np.median(away.values))
    found = _finding(
        mismatch,
        f"Inference engine and trainer are to agree to the bit ({setting}), and do so at no step: {series.raw_name} is "
        f"{sig(late)} in the median; little enough to train on, but not what is promised",
        late,
        int(away.steps[0]),
        "score one sequence twice on each side, alone and in a full batch: which side differs from itself?",
    )
    return replace(
        found,
        causes=(
            "autocast or another number type around the trainer's logprobs or its last layer",
            "a kernel, an attention backend or a reduction that differs between both sides or goes by the batch",
        ),
        next=("no autocast where the trainer computes logprobs, and one attention backend on both sides",),
    )


def _at_events(mismatch: Mismatch, evidence: Evidence) -> Finding | None:
    """Return the finding on a mismatch that rises where an engine may have got other weights."""
    series, limit, _, zero = mismatch
    for recurrence in evidence.excursions or ():
        lead, event = recurrence.lead, event_of(recurrence)
        if lead.series.name != series.name or event is None or event.kind not in OF_WEIGHTS:
            continue
        value, level = typical(lead.values), typical(lead.levels)
        if value > limit or value - zero < max(SAW_TOP * (limit - zero), GREW * (level - zero)):
            continue  # beyond the limit it is mismatch-comes-and-goes'
        first = int(lead.begins[0])
        return _finding(
            mismatch,
            f"Inference engine and trainer come apart for a while, within the limit of {limit:g}: {series.raw_name} "
            f"rises to {sig(value)} at {steps_words(lead)}{when_words(recurrence)}, and is {sig(level)} around them",
            value,
            first,
            f"which weights does the engine hold at step {first}? compare the checksum of one layer",
            level=level,
            goes_with=event.kind,
        )
    return None


def _finding(mismatch: Mismatch, claim: str, observed: float, onset: int, confirm: str, **more: JsonScalar) -> Finding:
    series, limit, _, zero = mismatch
    return Finding(
        severity=Severity.LOW,
        claim=claim,
        observed=observed,
        limit=limit,
        unit=unit_of(series, zero),
        onset_step=onset,
        evidence=series_evidence(series, **more),
        causes=(),
        confirm=(confirm,),
        next=("only then add truncated importance weights",),
    )


def _away(mismatch: Mismatch) -> Series:
    """Return how far a mismatch lies from none."""
    series, (steps, values) = mismatch.series, mismatch.series.finite()
    away = np.abs(values - mismatch.zero)
    return replace(series, steps=steps, values=away, flags=series.flags[np.isfinite(series.values)])


def unit_of(series: Series, zero: float) -> str:
    """Return the unit of a measure of the mismatch."""
    named = {"prob_diff": "probability", "frac": "share"}
    return next((unit for word, unit in named.items() if word in series.name), "ratio" if zero else "nats")

"""This run shows ranks, environments, tools or steps that are missing from its records.

What: a rank that writes at some steps is absent at others; an environment, a tool or a source of prompts is not
recorded any more while the log still has its figures; or a gap between recorded steps five times the usual one.
Why it matters: what a missing part held is in no figure. If parts differ, the rest is a different mixture: a tail may
seem to grow or vanish. Growth is therefore judged without them.
What it is not: an environment or tool that comes later or goes, in the log as in the records; a run that continues on
more or fewer ranks, which share as many sequences a step (notes).
What to do: look at that rank's log at the first step it lacks; compare only figures from the other parts.
Source: a run continues when one of its writers dies.
"""

import math
import re

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.passing_values import RANK, PassingValue
from ptt.diagnostics.evidence.validity import Coverage, Validity
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.data_validity import dates_of, recorded_validity, when_words
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.rules.tail_holder import shown, value_words

MAX_GAPS = 0.0  # a single gap counts; the usual distance is the run's own
MIN_LOGGED = 3  # values: fewer may belong to earlier steps
MIN_LOGGED_SHARE = 0.5  # of the stretch at which they are logged


@requires(recorded_validity)
def check(validity: Validity, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the coverage of ranks, steps, and what is recorded of the run's parts."""
    coverage = validity.coverage
    resized = _resized(coverage)
    findings = [_rank_finding(coverage)] if coverage.missing_ranks and not resized else []
    throughout = evidence.holders.throughout if evidence.holders is not None else None
    passing = [one for one in throughout.passing if one.attribute != RANK] if throughout is not None else []
    logged = {one: name for one in passing if (name := _still_logged(one, evidence))}
    findings += [_vanished(one, name, validity) for one, name in logged.items()]
    if len(coverage.step_gaps) > limits["gaps"]:
        findings.append(_gap_finding(coverage))
    if findings:
        return Broken(findings=tuple(findings))
    known = f"all {coverage.ranks} ranks are present at every step" if coverage.ranks else "no ranks are recorded"
    known = "the ranks share as many sequences a step all along" if resized else known
    notes = ([_resized_note(coverage)] if resized else []) + [_note(one) for one in passing]
    return Healthy(reason=f"{known}; recorded steps have no unusual gap", notes=tuple(notes))


def _resized(coverage: Coverage) -> bool:
    """Tell a run that continues on more or fewer ranks: a step's sequences are those of all ranks, not of the rest.

    What ranks that are lost wrote is missing from the step; where a run is resumed on another number of ranks with the
    same batch, each rank has more or fewer.
    """
    span = coverage.without_rank
    if span is None or not (span.from_start or span.to_end):
        return False
    if coverage.first_step_missing_rank < span.since or coverage.last_step_missing_rank > span.until:
        return False
    left = 1 - len(coverage.missing_ranks) / coverage.ranks
    return coverage.sequences_without_rank > (1 + left) / 2


def _still_logged(one: PassingValue, evidence: Evidence) -> str:
    """Return a metric of this value that is logged at most of the steps without its records; else ""."""
    for series in (*evidence.metrics.values(), *evidence.other.values()):
        if one.value not in re.split(r"[/.:]", series.raw_name):
            continue
        steps, values = series.finite()
        steps = steps[values != 0]
        spacing = float(np.median(np.diff(steps))) if len(steps) > 1 else math.inf
        length = one.away.until - one.away.since + 1
        inside = int(one.away.holds(steps).sum())
        if inside >= MIN_LOGGED and inside * spacing >= MIN_LOGGED_SHARE * length and inside < len(steps):
            return series.raw_name
    return ""


def _vanished(one: PassingValue, logged_as: str, validity: Validity) -> Finding:
    coverage, span = validity.coverage, one.away
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"Nothing of {value_words(one)} is recorded {when_words(span)}, while the log has {shown(logged_as)} "
        "there",
        observed=float(one.steps),
        limit=0.0,
        unit="steps",
        **dates_of(span),
        evidence={
            "attribute": one.attribute,
            "value": one.value,
            "logged_as": logged_as,
            **_extent(
                coverage,
                one.rate * one.steps,
                (span.since, span.until),
                "in no statistic (judged by its share at other steps); growth is judged without it",
            ),
        },
        causes=("a filter of the recorder", "its writer died"),
        next=(f"find where {value_words(one)} was written before",),
    )


def _note(one: PassingValue) -> Finding:
    span = one.away
    return Finding(
        severity=Severity.INFO,
        claim=f"Nothing of {value_words(one)} is recorded {when_words(span)}: means over all tokens are of another "
        "mixture there",
        observed=one.rate,
        limit=None,
        unit="share of the samples elsewhere",
        **dates_of(span),
        evidence={"attribute": one.attribute, "value": one.value},
    )


def _resized_note(coverage: Coverage) -> Finding:
    assert coverage.without_rank is not None
    ranks = coverage.ranks - len(coverage.missing_ranks)
    return Finding(
        severity=Severity.INFO,
        claim=f"{ranks} of {coverage.ranks} ranks record {when_words(coverage.without_rank)}, as many sequences a step "
        "as all do elsewhere",
        observed=float(ranks),
        limit=None,
        unit="ranks",
        **dates_of(coverage.without_rank),
        evidence={"ranks": ranks, "sequences": coverage.sequences_without_rank},
    )


def _rank_finding(coverage: Coverage) -> Finding:
    names = ", ".join(str(rank) for rank in coverage.missing_ranks)
    first, count = coverage.first_step_missing_rank, coverage.steps_missing_ranks
    span = coverage.without_rank
    lasts = span is not None and (span.from_start or span.to_end)
    when = f"{when_words(span)} ({count} recorded steps)" if span and lasts else f"at {count} recorded steps"
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"Rank {names} of {coverage.ranks} is missing {when}",
        observed=float(coverage.steps_missing_ranks),
        limit=0.0,
        unit="steps",
        **(dates_of(span) if span and lasts else {"onset_step": first}),
        evidence={
            "ranks": names,
            **_extent(
                coverage,
                coverage.steps_missing_ranks,
                (first, coverage.last_step_missing_rank),
                "in no statistic (judged by what a rank usually writes); without it, slices and windows may be a "
                "different mixture",
            ),
        },
        causes=("the rank's writer died or fell behind",),
        next=(f"read the log of rank {names} at step {first}",),
    )


def _extent(coverage: Coverage, parts: float | None, steps: tuple[int, int], effect: str) -> dict[str, JsonScalar]:
    """Estimate what `parts` missing parts held by what the others do, as `extent` says it; no file holds them."""
    return {
        "tokens": None if parts is None else round(parts * coverage.usual_tokens),
        "sequences": None if parts is None else round(parts * coverage.usual_sequences),
        "first_step": steps[0],
        "last_step": steps[1],
        "files": 0,
        "example": None,
        "effect": effect,
    }


def _gap_finding(coverage: Coverage) -> Finding:
    first = coverage.step_gaps[0]
    return Finding(
        severity=Severity.LOW,
        claim=f"No sequence is recorded between steps {first[0]} and {first[1]}"
        + (f", and in {len(coverage.step_gaps) - 1} more gaps" if len(coverage.step_gaps) > 1 else ""),
        observed=float(len(coverage.step_gaps)),
        limit=0.0,
        unit="gaps",
        onset_step=first[0] + 1,
        evidence=_extent(
            coverage,
            None,
            (first[0] + 1, coverage.step_gaps[-1][1] - 1),
            "in no statistic; an onset or a window's edge inside the gap cannot be placed more exactly",
        ),
        causes=("files were deleted or not copied", "a resume that skipped steps"),
        next=("look for the files of these steps",),
    )


RULE = rule(check, "missing-parts", Link.DATA_VALIDITY, max_severity=Severity.MEDIUM, gaps=MAX_GAPS)

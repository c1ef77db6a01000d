"""This run shows a capability that is lost while others are trained.

What: a figure that is logged by slice (`slice:<name>`, `eval/slice_<name>`) lies lastingly below its early level by
8 % of it, beyond its own noise; where it is evaluated rarely, its straight line falls at one in a thousand.
Why it matters: means over everything hide it, and what is lost is not asked for until it is in use.
What to do: evaluate the slice alone with the first checkpoint and the last; mix its tasks back in.
Source: higher is taken for better; 8 % and, for high, 15 % are the limits under which runs are compared in the field.
"""

import re

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, lasting_fall
from ptt.diagnostics.evidence.level_change import change_since_start
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Broken, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.statistics.small_sample import MIN_POINTS, estimate_change

FALL_LIMIT = 0.08  # of the early level
HIGH_FALL = 0.15
SLICE = re.compile(r"(?:^|/)slice[:_]")
SDS = 4.0  # standard deviations of a window's mean
NO_CEILING = 1e300  # every level matters: what counts is the share that is lost
Fall = tuple[float, float, int, tuple[int, int]]


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge every slice by itself."""
    series = [one for name, one in sorted(evidence.other.items()) if SLICE.search(name)]
    series += evidence.evaluation.slices if evidence.evaluation is not None else ()
    judged = [one for one in series if len(one.finite()[0]) >= MIN_POINTS]
    if not judged:
        return NotJudged(
            reason="no figure by slice is logged at six points",
            missing=("slice:<name>",),
            enable="log a score for every capability that must not be lost, as slice:<name> or eval/slice_<name>",
        )
    found = [(one, lost) for one in judged if (lost := _lost(one, limits["fall"])) is not None]
    if not found:
        return Healthy(reason=f"none of {len(judged)} slice(s) fell")
    return Broken(findings=tuple(_finding(one, lost, limits["fall"]) for one, lost in found))


def _lost(series: Series, limit: float) -> Fall | None:
    """Give early and late level, onset and its interval; None where the slice kept its level."""
    steps, values = series.finite()
    if len(values) >= MIN_VALUES:
        found = lasting_fall(series, ceiling=NO_CEILING, factor=1 - limit)
        turn = change_since_start(
            series
        )  # many slices are asked at once: the end must lie below the start by itself as well
        lasting = found is not None and not found.ended and found.early > 0 and turn is not None and turn.sds <= -SDS
        return (found.early, found.last, found.onset, found.interval) if found is not None and lasting else None
    change = estimate_change(values)
    if change is None or change.significant_sign >= 0 or change.early <= 0 or change.late > (1 - limit) * change.early:
        return None
    below = [place for place, value in enumerate(values) if value < (1 - limit) * change.early]
    place = below[0] if below else len(values) - 1
    return change.early, change.late, int(steps[place]), (int(steps[max(0, place - 1)]), int(steps[place]))


def _finding(series: Series, lost: Fall, limit: float) -> Finding:
    early, late, onset, interval = lost
    share = (early - late) / early
    return Finding(
        severity=Severity.HIGH if share >= HIGH_FALL else Severity.MEDIUM,
        claim=f"{series.raw_name} fell {early:.3g} → {late:.3g}",
        observed=share,
        limit=limit,
        unit="of the early level",
        slice=series.raw_name,
        onset_step=onset,
        onset_interval=interval,
        evidence={"metric": series.name, "logged_as": series.raw_name, "early": early, "late": late},
        causes=("its tasks are not among those trained on", "the policy left the reference", "its scorer changed"),
        confirm=("evaluate the slice alone with the first checkpoint and the last, same settings",),
        next=("mix tasks of the slice back in, or raise the KL coefficient; one of both",),
    )


RULE = rule(check, "slice-degradation", Link.REWARD, fall=FALL_LIMIT, families=EVERY)

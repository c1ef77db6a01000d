"""This run shows a capability that is lost while others are trained.

What: a figure that is logged by slice (`slice:<name>`, `eval/slice_<name>`) stays 8% below its early level, beyond its
own noise; where it is evaluated rarely, its straight line falls (p < 0.001).
Why it matters: overall means hide it, and the loss only shows once the model is in use.
What to do: evaluate the slice alone with the first checkpoint and the last; mix its tasks back in.
Source: higher is taken to be better; 8% and, for high, 15% are common limits when runs are compared.
"""

import re
from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, change_since_start, lasting_fall
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity, Steps
from ptt.diagnostics.rules.interface import EVERY, Broken, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.statistics.small_sample import MIN_POINTS, estimate_change
from ptt.diagnostics.wording import counted, sig

MIN_FALL_SHARE = 0.08  # of the early level
HIGH_FALL_SHARE = 0.15
SLICE_NAME = re.compile(r"(?:^|/)slice[:_]")
Z_LIMIT = 4.0  # standard deviations of a window's mean
NO_CEILING = 1e300  # every level matters: what counts is the share that is lost


class Fall(NamedTuple):
    """What a slice lost."""

    early: float
    late: float
    onset: int
    interval: Steps


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge every slice by itself."""
    slices = [series for name, series in sorted(evidence.other.items()) if SLICE_NAME.search(name)]
    slices += evidence.evaluation.slices if evidence.evaluation is not None else ()
    judged = [series for series in slices if len(series.finite()[0]) >= MIN_POINTS]
    if not judged:
        return NotJudged(
            reason="no figure by slice is logged at six points",
            missing=("slice:<name>",),
            enable="log a score for every capability that must not be lost, as slice:<name> or eval/slice_<name>",
        )
    falls = [(series, fall) for series in judged if (fall := _fall(series, limits["fall"])) is not None]
    if not falls:
        return Healthy(reason=f"none of {counted(len(judged), 'slice(s)')} fell")
    return Broken(findings=tuple(_finding(series, fall, limits["fall"]) for series, fall in falls))


def _fall(series: Series, limit: float) -> Fall | None:
    steps, values = series.finite()
    if len(values) >= MIN_VALUES:
        fall = lasting_fall(series, ceiling=NO_CEILING, factor=1 - limit)
        # many slices are asked at once: the end must lie below the start by itself as well
        change = change_since_start(series)
        if fall is None or fall.ended or fall.early <= 0 or change is None or change.sds > -Z_LIMIT:
            return None
        return Fall(fall.early, fall.last, fall.onset, fall.interval)
    line = estimate_change(values)
    if line is None or line.significant_sign >= 0 or line.early <= 0 or line.late > (1 - limit) * line.early:
        return None
    below = np.flatnonzero(values < (1 - limit) * line.early)
    place = int(below[0]) if len(below) else len(values) - 1
    return Fall(line.early, line.late, int(steps[place]), (int(steps[max(0, place - 1)]), int(steps[place])))


def _finding(series: Series, fall: Fall, limit: float) -> Finding:
    share = (fall.early - fall.late) / fall.early
    return Finding(
        severity=Severity.HIGH if share >= HIGH_FALL_SHARE else Severity.MEDIUM,
        claim=f"{series.raw_name} fell {sig(fall.early)} → {sig(fall.late)}",
        observed=share,
        limit=limit,
        unit="of the early level",
        slice=series.raw_name,
        onset_step=fall.onset,
        onset_interval=fall.interval,
        evidence={"metric": series.name, "logged_as": series.raw_name, "early": fall.early, "late": fall.late},
        causes=("its tasks are not among those trained on", "the policy left the reference", "its scorer changed"),
        confirm=("evaluate only this slice with the first and the last checkpoint, with the same settings",),
        next=("mix tasks of the slice back in, or raise the KL coefficient, but not both at once",),
    )


RULE = rule(check, "slice-degradation", Link.REWARD, fall=MIN_FALL_SHARE, families=EVERY)

"""Whether the aggregates everyone watches would have raised an alarm, and how they moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series, excess_interval
from ptt.diagnostics.model import Aggregates, Broken, Finding, RuleVerdict, Severity, Steps
from ptt.diagnostics.statistics.trend import movement

WATCHED: Final = ("loss/total", "reward/mean", "entropy", "kl/ref", "grad_norm", "clip/frac")


def aggregates_of(evidence: Evidence, verdicts: Sequence[RuleVerdict]) -> Aggregates:
    """Give each watched metric's movement over the run, and the first step at which a rule on it raised an alarm."""
    moved = {}
    judged = 0
    offline = evidence.algorithm.family not in (None, Family.ONLINE)  # where nobody looks for what nobody logs
    for name in [name for name in WATCHED if not offline or name in evidence.metrics]:
        series = evidence.metrics.get(name)
        if series is None or len(series.finite()[0]) < MIN_LOGGED:
            moved[name] = "cannot_say"
            continue
        judged += 1
        steps, values = series.finite()
        moved[name] = movement(steps.astype(float), values)
    alarms: dict[str, int] = {}
    intervals: dict[str, Steps] = {}
    for verdict in verdicts:
        for finding in verdict.findings if isinstance(verdict, Broken) else ():
            metric = str(finding.evidence.get("metric"))
            onset = finding.onset_step
            if metric not in WATCHED or onset is None or not finding.severity.at_least(Severity.MEDIUM):
                continue
            if metric not in alarms or onset < alarms[metric]:
                alarms[metric] = onset
                intervals[metric] = _alarm_interval(evidence.metrics.get(metric), finding, onset)
    status = "alarming" if alarms else "quiet" if judged >= len(WATCHED) / 2 else "cannot_say"
    return Aggregates(status=status, metrics=moved, alarms=alarms, alarm_intervals=intervals)


def _alarm_interval(series: Series | None, finding: Finding, alarm: int) -> Steps:
    """Give how closely the step of an alarm is known: by redrawing the series where its mean over a limit raised it."""
    if series is not None and finding.limit is not None and series.excess(finding.limit) == alarm:
        return excess_interval(series, finding.limit, alarm)
    low, high = finding.onset_interval or (alarm, alarm)
    return min(low, alarm), max(high, alarm)

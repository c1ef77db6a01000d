"""Whether the aggregates everyone watches would have raised an alarm, and how they moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ptt.diagnostics.evidence import MIN_LOGGED, Evidence
from ptt.diagnostics.model import Aggregates, Broken, RuleVerdict, Severity
from ptt.diagnostics.statistics.trend import movement

WATCHED: Final = ("loss/total", "reward/mean", "entropy", "kl/ref", "grad_norm", "clip/frac")


def aggregates_of(evidence: Evidence, verdicts: Sequence[RuleVerdict]) -> Aggregates:
    """Give each watched metric's movement over the run, and the first step at which a rule on it raised an alarm."""
    moved = {}
    judged = 0
    for name in WATCHED:
        series = evidence.metrics.get(name)
        if series is None or len(series.finite()[0]) < MIN_LOGGED:
            moved[name] = "cannot_say"
            continue
        judged += 1
        steps, values = series.finite()
        moved[name] = movement(steps.astype(float), values)
    alarms: dict[str, int] = {}
    for verdict in verdicts:
        for finding in verdict.findings if isinstance(verdict, Broken) else ():
            metric = str(finding.evidence.get("metric"))
            if metric in WATCHED and finding.onset_step is not None and finding.severity.at_least(Severity.MEDIUM):
                alarms[metric] = min(finding.onset_step, alarms.get(metric, finding.onset_step))
    status = "alarming" if alarms else "quiet" if judged >= len(WATCHED) / 2 else "cannot_say"
    return Aggregates(status=status, metrics=moved, alarms=alarms)

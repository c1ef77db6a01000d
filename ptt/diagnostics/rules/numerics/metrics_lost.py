"""This run shows metrics that turned NaN or vanished.

What: loss, gradient norm, KL, entropy or reward is NaN, infinite or null in the logs; or was logged regularly and is
absent from the last fifth of the run while others go on. (A loss of exactly 0 beside a NaN gradient norm is a writer's
filter at work: the gradient norm is what to believe.)
Why it matters: NaN compares false with every limit, so it reads as healthy elsewhere. TRL's default
`logging_nan_inf_filter` replaces a NaN loss by the running mean: the loss then looks fine.
What to do: go back to the last step with finite values; look at gradient norm, log-ratios and rewards just before.
Source: NaN encodings differ by writer (bare NaN, null, dropped keys, 0 with a flag); all arrive here as one.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, NAN_FLAGS, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Broken, Finding, Healthy, Limits, NotJudged, Rule, Verdict
from ptt.diagnostics.rules.numerics import CORE, core_series, dead_tail
from ptt.diagnostics.statistics.arrays import IntArray

LAST_PART = 0.2  # of the steps: absent for so long, a metric is gone and not merely skipped


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the flags and the coverage of the core metrics."""
    held = core_series(evidence)
    if not held or max(len(series.steps) for series in held) < MIN_LOGGED:
        return NotJudged(
            reason="none of loss, gradient norm, KL, entropy and reward is logged often enough",
            missing=CORE,
            enable="log them every step",
        )
    last = max(int(series.steps[-1]) for series in evidence.metrics.values() if len(series.steps))
    first = min(int(series.steps[0]) for series in held)
    findings = [finding for series in held if (finding := _not_finite(series, evidence.metrics))]
    findings += _beside(evidence, bool(findings))
    findings += [finding for series in held if (finding := _vanished(series, first, last, limits["last_part"]))]
    if findings:
        return Broken(findings=tuple(findings))
    return Healthy(reason=f"{len(held)} core metrics are finite and logged up to step {last}")


def _beside(evidence: Evidence, known: bool) -> list[Finding]:
    """Tell of the first other metric that is no number for good; where a core metric tells of it, that is enough."""
    others = [series for name, series in sorted(evidence.metrics.items()) if name not in CORE and series.lost]
    found = [finding for series in others if (finding := _not_finite(series, evidence.metrics))]
    if known or not found:
        return []
    first = min(found, key=lambda finding: (finding.onset_step or 0, str(finding.evidence["metric"])))
    return [replace(first, severity=Severity.MEDIUM)]


def _not_finite(series: Series, metrics: Mapping[str, Series]) -> Finding | None:
    bad = np.flatnonzero(~np.isfinite(series.values))
    if not len(bad):
        return None
    steps, _ = series.finite()
    last_finite = int(steps[-1]) if len(steps) else None
    tail = dead_tail(series)
    dead = len(tail) > 0
    first = int(series.steps[tail[0] if dead else bad[0]])
    what = "NaN or infinite" if np.isin(series.flags[bad], NAN_FLAGS).any() else "null"
    alone = len(bad) == 1 and what == "null"
    hidden = _hidden(metrics.get("loss/total"), series.steps[bad]) if series.name == "grad_norm" else 0
    return Finding(
        severity=Severity.CRITICAL if dead else Severity.LOW if alone else Severity.MEDIUM,
        claim=f"{series.raw_name} is {what} at {len(bad)} of {series.count} logged steps"
        + (", up to the end of the run" if dead else "")
        + (f"; the loss is shown as exactly 0 at {hidden} of them" if hidden else ""),
        observed=float(len(bad)),
        limit=0.0,
        unit="steps",
        onset_step=first,
        evidence={
            "metric": series.name,
            "logged_as": series.raw_name,
            "last_finite_step": last_finite,
            "first_not_finite_step": int(series.steps[bad[0]]),
            **({"loss_shown_as_0": hidden} if hidden else {}),
        },
        causes=("a step that blew the weights up", "log of a zero probability", "an infinite reward"),
        next=(f"take the last checkpoint before step {first}; replay that step with anomaly detection on",),
    )


def _hidden(loss: Series | None, steps: IntArray) -> int:
    """Count the steps without a finite gradient norm at which a writer's filter shows a loss of exactly 0."""
    return 0 if loss is None else int((np.isin(loss.steps, steps) & (loss.values == 0.0)).sum())


def _vanished(series: Series, first: int, last: int, part: float) -> Finding | None:
    gap = last - int(series.steps[-1])
    if len(series.steps) < MIN_LOGGED or last <= first or gap < part * (last - first):
        return None
    if gap <= 3 * float(np.median(np.diff(series.steps))):
        return None
    return Finding(
        severity=Severity.HIGH,
        claim=f"{series.raw_name} was logged up to step {int(series.steps[-1])} and no more; the run goes on to {last}",
        observed=float(gap),
        limit=part * (last - first),
        unit="steps",
        onset_step=int(series.steps[-1]) + 1,
        evidence={"metric": series.name, "logged_as": series.raw_name},
        causes=("a writer that drops NaN", "a change of configuration on resume"),
        next=("look for NaN at that step in the trainer's own output",),
    )


RULE = Rule(
    id="metrics-lost", link=Link.NUMERICS, check=check, limits={"last_part": LAST_PART}, judges_nan=True, families=EVERY
)

"""This run shows metrics that turned NaN or vanished.

What: loss, gradient norm, KL, entropy or reward is NaN, infinite or null in the logs; or was logged regularly and is
missing from the last fifth of the run while its writer's other metrics continue. (A loss of exactly 0 beside a NaN
gradient norm is a writer's filter at work: believe the gradient norm.)
What it is not: a run that was cut short, or several files that end at different steps; see run-cut-short.
Why it matters: NaN compares false with every limit, so it reads as healthy elsewhere. TRL's default
`logging_nan_inf_filter` replaces a NaN loss by the running mean: the loss then looks fine.
What to do: go back to the last step with finite values; look at gradient norm, log-ratios and rewards just before.
Source: writers encode NaN differently (bare NaN, null, dropped keys, 0 with a flag); this rule treats them all the
same.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import INFINITE_FLAGS, MIN_LOGGED, NAN_FLAGS, Series
from ptt.diagnostics.model import LIKELY, Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Broken, Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.rules.numerics import CORE, core_series, dead_tail
from ptt.diagnostics.rules.single_series import metric_evidence
from ptt.diagnostics.statistics.arrays import IntArray
from ptt.diagnostics.statistics.change_point import rate_change
from ptt.diagnostics.wording import counted

BLOWN_CAUSES = ("a step that blew up the weights", "log of a zero probability", "an infinite reward")
BLOWN_NEXT = "take the last checkpoint before step {}; replay that step with anomaly detection on"
SCORED_CAUSES = (
    "a reward function that divides by 0, takes the log of 0 or overflows",
    "a judge's answer without a number",
)
UNSCORED_CAUSES = (
    "a part of the reward that is None for some samples: its NaN spreads to all advantages of the batch, and no update "
    "is made",
)
SCORED_NEXT = "score the samples of step {} again one by one; clip or reject rewards that are not finite"
ABSENT_SHARE = 0.2  # of the steps: absent for this long, a metric is gone and not just skipped

MOSTLY = 0.8  # of the values: a finite one here and there does not mean that training went on


@requires(partial(core_series, enable="log them at every step"))
def check(core: list[Series], evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the flags and the coverage of the core metrics."""
    last = max(int(series.steps[-1]) for series in evidence.metrics.values() if len(series.steps))
    first = min(int(series.steps[0]) for series in core)
    findings = [finding for series in core if (finding := _not_finite(series, evidence))]
    findings = findings or _first_other(evidence)
    findings += [finding for series in core if (finding := _vanished(series, first, last, limits["last_part"]))]
    if findings:
        return Broken(findings=tuple(findings))
    return Healthy(reason=f"{len(core)} core metrics are finite and logged up to step {last}")


def _first_other(evidence: Evidence) -> list[Finding]:
    """Return the finding on the first metric outside the core that has turned into NaN for good, or none."""
    others = [series for name, series in sorted(evidence.metrics.items()) if name not in CORE and series.lost]
    findings = [finding for series in others if (finding := _not_finite(series, evidence))]
    findings.sort(key=lambda finding: (finding.onset_step or 0, str(finding.evidence["metric"])))
    return [replace(finding, severity=Severity.MEDIUM) for finding in findings[:1]]


def _not_finite(series: Series, evidence: Evidence) -> Finding | None:
    bad = np.flatnonzero(~np.isfinite(series.values))
    if not len(bad):
        return None
    steps, _ = series.finite()
    tail = dead_tail(series)
    dead = len(tail) > 0
    first = int(series.steps[_lasting_from(series, int(tail[0])) if dead else bad[0]])
    what = "NaN or infinite" if np.isin(series.flags[bad], NAN_FLAGS).any() else "null"
    if what == "null" and not len(steps):  # a column that the writer never fills was not lost
        return None
    infinite = bool(np.isin(series.flags[bad], INFINITE_FLAGS).all())
    overflow = series.name == "grad_norm" and infinite and not dead  # in half precision: the scaler skips it
    alone = len(bad) == 1 and (what == "null" or overflow)
    loss = evidence.metrics.get("loss/total")
    hidden = _hidden(loss, series.steps[bad]) if series.name == "grad_norm" else 0
    scored = not dead and series.name.startswith("reward/")
    unscored = () if series.name.startswith("reward/") else _unscored(series.steps[bad], evidence)
    return Finding(
        severity=Severity.CRITICAL if dead else Severity.LOW if alone else Severity.MEDIUM,
        claim=f"{series.raw_name} is {what} at {len(bad)} of {series.count} logged steps"
        + (", up to the end of the run" if dead else "")
        + (f"; the loss is shown as exactly 0 at {hidden} of them" if hidden else ""),
        observed=float(len(bad)),
        limit=0.0,
        unit="steps",
        link=Link.REWARD if scored else None,
        context=unscored,
        onset_step=first,
        onset_interval=(first, first),
        evidence=metric_evidence(
            series,
            last_finite_step=int(steps[-1]) if len(steps) else None,
            first_not_finite_step=int(series.steps[bad[0]]),
            **({"loss_shown_as_0": hidden} if hidden else {}),
        ),
        causes=SCORED_CAUSES if scored else (*UNSCORED_CAUSES, *BLOWN_CAUSES) if unscored else BLOWN_CAUSES,
        next=((SCORED_NEXT if scored else BLOWN_NEXT).format(first),),
    )


def _unscored(bad: IntArray, evidence: Evidence) -> tuple[str, ...]:
    """Say which part of the reward has no score for some recorded samples of just these steps, and a likely cause."""
    for name, counts in evidence.rewards.unscored.items() if evidence.rewards is not None else ():
        within = np.isin(counts.steps, bad)
        if within.any() and counts.hits[within].all() and not counts.hits[~within].any():
            least = f"{counts.hits[within].sum():.0f} of {counts.trials[within].sum():.0f}"
            others = f", and at the other {(~within).sum()} none lacks it" if (~within).any() else ""
            return (
                f"at the {counted(int(within.sum()), 'recorded step(s)')} among them {least} samples have no {name}"
                f"{others}",
                f"{LIKELY}{UNSCORED_CAUSES[0]}",
            )
    return ()


def _lasting_from(series: Series, tail: int) -> int:
    """Return the index from which most values are not finite; `tail`: from which none is finite."""
    lost = ~np.isfinite(series.values)
    change = rate_change(lost.astype(np.float64), np.ones(len(lost)))
    begins = tail if change is None else change[0] + int(np.argmax(lost[change[0] :]))
    return begins if begins < tail and lost[begins:].mean() >= MOSTLY else tail


def _hidden(loss: Series | None, steps: IntArray) -> int:
    """Count the steps without a finite gradient norm where a writer's filter shows a loss of exactly 0."""
    return 0 if loss is None else int((np.isin(loss.steps, steps) & (loss.values == 0.0)).sum())


def _vanished(series: Series, first: int, run_end: int, part: float) -> Finding | None:
    """Return the finding on a metric that stops while others go on in its own kind of source; others end elsewhere."""
    end = int(series.steps[-1])
    last = run_end if series.sources_end is None else series.sources_end
    gap, limit = last - end, part * (last - first)
    if len(series.steps) < MIN_LOGGED or last <= first or gap < limit or gap <= 3 * np.median(np.diff(series.steps)):
        return None
    return Finding(
        severity=Severity.HIGH,
        claim=f"{series.raw_name} stopped being logged after step {end}; the run continues to step {last}",
        observed=float(gap),
        limit=limit,
        unit="steps",
        onset_step=end + 1,
        evidence=metric_evidence(series),
        causes=("a writer that drops NaN", "a change of configuration on resume"),
        next=("look for NaN at that step in the trainer's own output",),
    )


RULE = rule(check, "metrics-lost", Link.NUMERICS, last_part=ABSENT_SHARE, families=EVERY, judges_nan=True)

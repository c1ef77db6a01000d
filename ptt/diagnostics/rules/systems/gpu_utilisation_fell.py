"""This run shows devices whose utilisation fell for good.

What: the mean utilisation of the devices that work for the run fell below half of its own early level and below 50%,
beyond its noise, to the end of the run. It is medium where steps take longer too, or throughput in tokens per second
fell; otherwise low.
Why it matters: an idle device costs money. It waits for something: data, tools, rewards, another rank.
What it is not: work that changed. Generation keeps a device less busy than an update does; where the step time holds,
nothing is lost. Devices that never compute are left out, and so are samples that belong to no step.
What to do: compare the times of a step's parts before and after: the devices wait for the part that grew.
Source: W&B's `gpu.N.gpu`, MLflow's `gpu_N_utilization_percentage`, trackio's `gpu/N/utilization`, SwanLab's
`gpu.N.pct`, or a logged gpu_utilization: the share of time in which a kernel runs (nvmlDeviceGetUtilizationRates). Half
of the early level is our own.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, lasting_fall, lasting_rise
from ptt.diagnostics.evidence.machines import DEVICE, Measure, classify_measure
from ptt.diagnostics.evidence.series import Series, finite_series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.single_series import last_mean, measured, metric_evidence
from ptt.diagnostics.rules.systems import IDLE_PERCENT, change_point, grown_part
from ptt.diagnostics.wording import sig

FALL_FACTOR = 0.5  # of the early level
CEILING_PERCENT = 50.0  # of the time: a device that is busy more than half of it is not what a step waits for
SLOWER_FACTOR = 1.2  # times the early time of a step: less may be the run's noise
WHOLE_SHARE = 1.0  # utilisation up to this is logged as a share, not in per cent


def utilisation(evidence: Evidence) -> Series | NotJudged:
    """Return the mean utilisation in per cent of the devices that work, by step."""
    metrics = evidence.machines.of(Measure.UTILISATION) if evidence.machines else ()
    places = [series for metric in metrics if metric.by_step for series in metric.places.values()]
    logged = [series for name, series in evidence.other.items() if _is_utilisation(name)]
    devices = [series for series in places or logged if len(series.finite()[0]) >= MIN_VALUES]
    in_percent = [_percent(series) for series in devices]
    work = [series for series in in_percent if float(np.median(series.finite()[1])) >= IDLE_PERCENT]
    steps = np.unique(np.concatenate([series.finite()[0] for series in work])) if work else np.empty(0, np.int64)
    if not len(steps):
        return NotJudged(
            reason=f"utilisation of a working device is recorded at fewer than {MIN_VALUES} steps",
            missing=("ranks",),
            enable="let W&B, MLflow or trackio sample the devices, or log gpu_utilization at every step",
        )
    table = np.full((len(work), len(steps)), np.nan)
    for row, series in enumerate(work):
        at, values = series.finite()
        table[row, np.searchsorted(steps, at)] = values
    known = np.isfinite(table).all(axis=0)
    return finite_series(work[0].raw_name, steps[known], table[:, known].mean(axis=0))


@requires(utilisation)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the mean utilisation against its own beginning."""
    fall = lasting_fall(series, ceiling=CEILING_PERCENT, factor=limits["of_early"])
    if fall is None or fall.ended:
        if len(series.finite()[0]) < MIN_VALUES:
            reason = f"the devices are sampled together at fewer than {MIN_VALUES} steps"
            return NotJudged(reason=reason, missing=("ranks",), enable="sample all devices at the same steps")
        return Healthy(reason=f"the devices' utilisation ends at {sig(last_mean(series))}%")
    onset = change_point(series, fall.onset)
    fall = replace(fall, onset=onset, interval=(min(onset, fall.interval[0]), fall.onset))
    slower = _slower(evidence)
    finding = _finding(evidence, series, fall, slower)
    if slower:
        return finding
    return Healthy(reason=f"{finding.claim}; no step is known to take longer", notes=(finding,))


def _is_utilisation(name: str) -> bool:
    return classify_measure(re.sub(DEVICE, r"\1gpu\2", name)) is Measure.UTILISATION


def _percent(series: Series) -> Series:
    steps, values = series.finite()
    scale = 100.0 if float(values.max()) <= WHOLE_SHARE else 1.0
    return finite_series(series.name, steps, values * scale, raw_name=series.raw_name)


def _slower(evidence: Evidence) -> str:
    """Return what tells that steps take longer, or nothing."""
    times, tokens = evidence.metrics.get("time/step"), evidence.metrics.get("throughput/tokens")
    rise = lasting_rise(times, floor=0.0, factor=SLOWER_FACTOR) if times is not None else None
    if rise is not None and not rise.ended:
        return f"; steps now take {sig(rise.last)} s, up from {sig(rise.early)} s"
    less = lasting_fall(tokens, ceiling=np.inf, factor=1 / SLOWER_FACTOR) if tokens is not None else None
    return (
        f"; throughput fell to {sig(less.last)} tokens a second from {sig(less.early)}"
        if less and not less.ended
        else ""
    )


def _finding(evidence: Evidence, series: Series, fall: BaselineShift, slower: str) -> Finding:
    part = grown_part(evidence, fall.onset)
    look = f": {part[0]} went from {sig(part[1])} to {sig(part[2])} s" if part is not None else ""
    return Finding(
        severity=Severity.MEDIUM if slower else Severity.LOW,
        claim=f"The devices' utilisation fell from {sig(fall.early)}% to {sig(fall.last)}%{slower}",
        unit="%",
        **measured(fall),
        evidence=metric_evidence(series, early=fall.early, grew_most=part[0] if part else None),
        causes=(
            "rollouts, tools or a reward service that respond more slowly",
            "a data loader, a disk or a network that cannot keep up",
            "a rank that all others wait for",
        ),
        confirm=(f"compare the times of a step's parts before and after step {fall.onset}{look}",),
        next=("fix what the devices wait for; leave the optimiser alone",),
    )


RULE = rule(
    check,
    "gpu-utilisation-fell",
    Link.SYSTEMS,
    max_severity=Severity.MEDIUM,
    of_early=FALL_FACTOR,
    families=EVERY,
)

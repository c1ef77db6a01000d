"""This run shows ranks that use very different amounts of memory.

What: the largest and the smallest memory use of the ranks or devices differ by more than a fifth of the mean, over 20
steps and to the end of the run.
Why it matters: the fullest rank sets the batch size of all; it runs out of memory while others have room.
What it is not: trouble by itself. Pipeline stages, or a rank that also holds an engine, differ by design; so it is
medium only where the fullest device is nearly full. Devices that the run does not use are left out: those that never
compute, or hold less than a tenth of what the fullest one holds.
What to do: compare what the fullest rank holds with the others: optimiser state, engine, experts, longest sequences.
Source: a fifth of the mean is where Microsoft's toolkit speaks of imbalance; relative, never in megabytes.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.machines import ByRank, Measure
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series, finite_series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, does_not_apply, rule
from ptt.diagnostics.rules.single_series import metric_evidence
from ptt.diagnostics.rules.systems import IDLE_PERCENT, device_gb
from ptt.diagnostics.wording import pct

IMBALANCE_LIMIT = 0.2  # (largest - smallest) / mean
FULL_SHARE = 0.9  # of the device
PERCENT = ("gpu.memoryAllocated", "memory_percent")
IDLE_MEMORY = 0.1  # of the fullest: a driver's context or another user's tools; a part of a model is more
GIGABYTES = "gb"


class Imbalance(NamedTuple):
    """The spread of one memory metric between ranks, by step."""

    series: Series  # (largest - smallest) / mean
    place: str  # who uses most
    size: float | None  # of the device, in the metric's unit
    top: float | None  # the largest's level

    @property
    def median(self) -> float:
        """The median over the run."""
        return float(np.median(self.series.finite()[1]))


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the spread of memory between ranks, or Microsoft's own rows of it."""
    metrics = evidence.machines.of(Measure.MEMORY) if evidence.machines else ()
    idle = _idle(evidence)
    ratios = [ratio for metric in metrics if (ratio := _ratio(metric, idle)) is not None]
    rows = evidence.other.get("memory_imbalance_ratio")
    if rows is not None and len(rows.finite()[0]) >= 2:
        ratios.append(Imbalance(rows, f"rank {_last(evidence, 'memory_max_rank')}", None, None))
    if not ratios and evidence.run.context.get("world_size") == 1:
        return does_not_apply("the run has only one process")
    if not ratios:
        return NotJudged(
            reason=f"memory of two or more working ranks or devices is recorded at fewer than {MIN_LOGGED} steps",
            missing=("ranks",),
            enable="log torch.cuda.max_memory_reserved() on every rank, or let W&B sample every node",
        )
    above = [ratio for ratio in ratios if ratio.series.excess(limits["imbalance"]) is not None]
    worst = max(above or ratios, key=lambda ratio: ratio.median)
    if not above:
        differ = f"largest and smallest differ by {pct(worst.median)} of their mean"
        return Healthy(reason=f"{differ}, limit {pct(limits['imbalance'])}")
    finding = _finding(worst, device_gb(evidence), limits)
    if finding.severity is Severity.MEDIUM:
        return finding
    return Healthy(reason=f"{finding.claim}; none is known to be full", notes=(finding,))


def _idle(evidence: Evidence) -> frozenset[str]:
    """Return the devices that never compute, where another one does."""
    metrics = evidence.machines.of(Measure.UTILISATION) if evidence.machines else ()
    busy = {
        place: float(np.median(series.finite()[1]))
        for metric in metrics
        for place, series in metric.places.items()
        if len(series.finite()[1])
    }
    idle = frozenset(place for place, share in busy.items() if share < IDLE_PERCENT)
    return idle if len(idle) < len(busy) else frozenset()


def _ratio(metric: ByRank, idle: frozenset[str]) -> Imbalance | None:
    """Return (largest - smallest) / mean by step, who is largest, the size of the device, the largest's level."""
    held = {place: series for place, series in metric.places.items() if place not in idle}
    levels = {place: float(np.median(values)) for place, series in held.items() if len(values := series.finite()[1])}
    least = IDLE_MEMORY * max(levels.values(), default=0.0)
    used = {place: held[place].finite() for place, level in levels.items() if level >= least}
    if len(used) < 2 or len(steps := reduce(np.intersect1d, [steps for steps, _ in used.values()])) < MIN_LOGGED:
        return None
    values = np.stack([logged[np.searchsorted(at, steps)] for at, logged in used.values()], axis=1)
    mean = values.mean(axis=1)
    ratio = np.divide(np.ptp(values, axis=1), mean, out=np.zeros(len(steps)), where=mean > 0)
    level = np.median(values, axis=0)
    largest = int(np.argmax(level))
    size = 100.0 if metric.name in PERCENT else None
    return Imbalance(finite_series(metric.name, steps, ratio), list(used)[largest], size, float(level[largest]))


def _last(evidence: Evidence, name: str) -> int | None:
    series = evidence.other.get(name)
    values = series.finite()[1] if series is not None else np.empty(0)
    return int(values[-1]) if len(values) else None


def _finding(ratio: Imbalance, known: float | None, limits: Limits) -> Finding:
    series, place, top, limit = ratio.series, ratio.place, ratio.top, limits["imbalance"]
    device = ratio.size if ratio.size is not None else known if GIGABYTES in series.raw_name.lower() else None
    full = device is not None and top is not None and top >= limits["nearly_full"] * device
    onset, median = series.excess(limit), ratio.median
    return Finding(
        severity=Severity.MEDIUM if full else Severity.LOW,
        claim=f"{series.raw_name} differs between ranks by {pct(median)} of its mean; {place} uses most"
        + (", and is nearly full" if full else ""),
        observed=median,
        limit=limit,
        unit="share",
        onset_step=onset,
        evidence=metric_evidence(series, largest=place, largest_level=top, device=device),
        causes=(
            "a rank that also holds an engine, the optimiser or the logits",
            "sequences that are not balanced between ranks",
            "experts or pipeline stages of different size",
        ),
        confirm=(
            f"compare the tokens of a step on {place} with those on another rank: does it do more work, or store more?",
        ),
        next=("balance sequences by length between ranks before you change the batch size",),
    )


RULE = rule(
    check,
    "memory-imbalance",
    Link.SYSTEMS,
    max_severity=Severity.MEDIUM,
    imbalance=IMBALANCE_LIMIT,
    nearly_full=FULL_SHARE,
    families=EVERY,
)

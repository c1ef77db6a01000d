"""This run shows memory that keeps growing towards the size of the device.

What: used or peak memory rose lastingly by a fifth or more above the run's early level and is still rising in the last
third; it matters by what is left of the device, or, where its size is not known, once it has doubled.
Why it matters: such a run ends in an out-of-memory error, usually at the longest batch, hours after it began.
What it is not: a high level. A peak counter rises to its level and stays; gigabytes alone say nothing.
What to do: take two memory snapshots a hundred steps apart and compare what is held: lists of tensors with their
graphs, caches that never empty, samples kept for logging.
Source: the trend and its distance to the device, never an absolute size: a healthy step may use 95 % of a device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, lasting_rise
from ptt.diagnostics.evidence.machines import Measure
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.systems import device_gb, length_of, ratio_around

GROWN = 1.2  # times the early level: allocators settle within that
DOUBLED = 2.0  # where the size of the device is not known
NEARLY_FULL = 0.9  # of the device
STILL = 0.15  # of the whole growth lies in the last third: a straight line has a third there, a settled one none
PERCENT = ("gpu.memoryAllocated", "memory_percent", "proc.memory.percent", "memory")  # of W&B, in per cent
MEMORY = ("mem/peak_gb", "mem/host_gb")


class Grown(NamedTuple):
    """A memory series that rose, and how far its device reaches."""

    severity: int
    series: Series
    place: str
    found: BaselineShift
    size: float | None
    still: bool


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge every memory series of the run, of all devices."""
    held = [(name, evidence.metrics[name]) for name in MEMORY if name in evidence.metrics]
    held += [
        (f"{metric.name} of {place}", series)
        for metric in (evidence.machines.of(Measure.MEMORY) if evidence.machines else ())
        for place, series in metric.places.items()
        if metric.by_step
    ]
    held = [(place, series) for place, series in held if len(series.finite()[0]) >= MIN_VALUES]
    if not held:
        return NotJudged(
            reason=f"no memory is logged at {MIN_VALUES} steps or more",
            missing=("mem/peak_gb",),
            enable="log the peak of torch.cuda.max_memory_reserved() at every step; W&B samples it by itself",
        )
    size = device_gb(evidence)
    grown = [one for place, series in held if (one := _grown(place, series, size, limits)) is not None]
    if not grown:
        reason = f"none of {len(held)} memory series rose lastingly by a factor of {limits['grown']:g}"
        return Healthy(reason=reason)
    worst = max(grown, key=lambda one: (one.severity, one.found.last / max(one.found.early, 1e-9), one.place))
    finding = _finding(evidence, worst, len(grown), limits)
    if finding.severity.at_least(Severity.MEDIUM):
        return finding
    return Healthy(reason=finding.claim, notes=(finding,))


def _grown(place: str, series: Series, device: float | None, limits: Limits) -> Grown | None:
    found = lasting_rise(series, floor=0.0, factor=limits["grown"])
    if found is None or found.ended or found.early <= 0:
        return None
    still = _still(series, found)
    size = 100.0 if series.raw_name in PERCENT else device if series.name == "mem/peak_gb" else None
    full = size is not None and found.last >= limits["nearly_full"] * size
    near = size is not None and found.last + (found.last - found.early) >= size
    doubled = size is None and found.last >= DOUBLED * found.early
    severity = 0 if not still else 2 if full else 1 if near or doubled else 0
    return Grown(severity, series, place, found, size, still)


def _still(series: Series, found: BaselineShift) -> bool:
    """Tell whether the last third of the steps still adds its part to the growth."""
    _, values = series.finite()
    part = max(5, len(values) // 6)
    late, before = float(np.mean(values[-part:])), float(np.mean(values[-3 * part : -2 * part]))
    return late - before >= STILL * (late - found.early)


def _finding(evidence: Evidence, worst: Grown, count: int, limits: Limits) -> Finding:
    found, size = worst.found, worst.size
    lengths = length_of(evidence)
    longer = ratio_around(lengths, found.onset) if lengths is not None else None
    by_length = longer is not None and longer >= found.last / found.early
    unit = "%" if worst.series.raw_name in PERCENT else "GB" if worst.place in MEMORY else "units"
    level = Severity.LOW if by_length else (Severity.LOW, Severity.MEDIUM, Severity.HIGH)[worst.severity]
    of = f" of {size:.4g}" if size is not None else ""
    return Finding(
        severity=level,
        claim=f"{worst.place} grew from {found.early:.4g} to {found.last:.4g}{of} {unit}"
        + (", and still grows" if worst.still else ", and has settled")
        + ("; the tokens of a step grew along" if by_length else ""),
        observed=found.last,
        limit=size if size is not None else found.early * (DOUBLED if worst.severity else limits["grown"]),
        unit=unit,
        onset_step=found.onset,
        onset_interval=found.interval,
        evidence={
            "metric": worst.series.name,
            "logged_as": worst.series.raw_name,
            "where": worst.place,
            "early": found.early,
            "device": size,
            "series_that_grew": count,
            "work_ratio": longer,
        },
        causes=(
            "tensors kept with their graph: losses or log-probabilities gathered for logging without detach()",
            "a cache of an engine or of a data loader that is never emptied",
            "longer sequences, in a batch that is padded to its longest",
        ),
        confirm=(
            f"take memory snapshots at steps {found.onset} and {found.onset + 100} of a rerun and compare what is held",
        ),
        next=("detach what is gathered for logging; restart from the last checkpoint before the device is full",),
    )


RULE = rule(check, "memory-growth", Link.SYSTEMS, grown=GROWN, nearly_full=NEARLY_FULL, families=EVERY)

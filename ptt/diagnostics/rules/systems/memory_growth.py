"""This run shows memory that keeps growing towards the size of the device.

What: used or peak memory rose for good by a fifth or more above the run's early level and is still rising in the last
third. How much it matters depends on the free memory left, or, where the device's size is unknown, on whether usage has
doubled.
Why it matters: such a run ends in an out-of-memory error, usually at the longest batch, hours after it began.
What it is not: a high level. A peak counter rises to its level and stays; a number of gigabytes alone says nothing.
What to do: take two memory snapshots a hundred steps apart and compare what is allocated: lists of tensors with their
graphs, caches that never empty, samples kept for logging.
Source: the trend and its distance to the device, never an absolute size: a healthy step may use 95% of a device.
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
from ptt.diagnostics.rules.single_series import metric_evidence
from ptt.diagnostics.rules.systems import device_gb, length_of, ratio_around

GROWTH_FACTOR = 1.2  # times the early level: allocators settle within that
UNSIZED_FACTOR = 2.0  # where the size of the device is not known
FULL_SHARE = 0.9  # of the device
LATE_SHARE = 0.15  # of the whole growth lies in the last third: a straight line has a third there, a settled one none
PERCENT = ("gpu.memoryAllocated", "memory_percent", "proc.memory.percent", "memory")  # of W&B, in per cent
MEMORY = ("mem/peak_gb", "mem/host_gb")


class Growth(NamedTuple):
    """A memory series that rose, and how far its device reaches."""

    grade: int  # 0: low, 1: medium, 2: high
    series: Series
    place: str
    rise: BaselineShift
    size: float | None
    still: bool


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge every memory series of the run, of all devices."""
    memory = [(name, evidence.metrics[name]) for name in MEMORY if name in evidence.metrics]
    memory += [
        (f"{metric.name} of {place}", series)
        for metric in (evidence.machines.of(Measure.MEMORY) if evidence.machines else ())
        for place, series in metric.places.items()
        if metric.by_step
    ]
    memory = [(place, series) for place, series in memory if len(series.finite()[0]) >= MIN_VALUES]
    if not memory:
        return NotJudged(
            reason=f"no memory is logged at {MIN_VALUES} steps or more",
            missing=("mem/peak_gb",),
            enable="log the peak of torch.cuda.max_memory_reserved() at every step; W&B samples it by itself",
        )
    size = device_gb(evidence)
    grown = [growth for place, series in memory if (growth := _growth(place, series, size, limits)) is not None]
    if not grown:
        return Healthy(reason=f"none of {len(memory)} memory series rose for good by a factor of {limits['grown']:g}")
    worst = max(grown, key=lambda growth: (growth.grade, growth.rise.last / max(growth.rise.early, 1e-9), growth.place))
    finding = _finding(evidence, worst, len(grown), limits)
    if finding.severity.at_least(Severity.MEDIUM):
        return finding
    return Healthy(reason=finding.claim, notes=(finding,))


def _growth(place: str, series: Series, device: float | None, limits: Limits) -> Growth | None:
    rise = lasting_rise(series, floor=0.0, factor=limits["grown"])
    if rise is None or rise.ended or rise.early <= 0:
        return None
    still = _still_grows(series, rise)
    size = 100.0 if series.raw_name in PERCENT else device if series.name == "mem/peak_gb" else None
    if size is None:
        grade = int(rise.last >= UNSIZED_FACTOR * rise.early)
    else:
        full, near = rise.last >= limits["nearly_full"] * size, rise.last + (rise.last - rise.early) >= size
        grade = 2 if full else int(near)
    return Growth(grade if still else 0, series, place, rise, size, still)


def _still_grows(series: Series, rise: BaselineShift) -> bool:
    """Return whether the last third of the steps still adds its part to the growth."""
    _, values = series.finite()
    part = max(5, len(values) // 6)
    late, before = float(np.mean(values[-part:])), float(np.mean(values[-3 * part : -2 * part]))
    return late - before >= LATE_SHARE * (late - rise.early)


def _finding(evidence: Evidence, worst: Growth, count: int, limits: Limits) -> Finding:
    rise, size = worst.rise, worst.size
    lengths = length_of(evidence)
    longer = ratio_around(lengths, rise.onset) if lengths is not None else None
    by_length = longer is not None and longer >= rise.last / rise.early
    unit = "%" if worst.series.raw_name in PERCENT else "GB" if worst.place in MEMORY else "units"
    of = f" of {size:.4g}" if size is not None else ""
    return Finding(
        severity=Severity.LOW if by_length else (Severity.LOW, Severity.MEDIUM, Severity.HIGH)[worst.grade],
        claim=f"{worst.place} grew from {rise.early:.4g} to {rise.last:.4g}{of} {unit}"
        + (", and still grows" if worst.still else ", then settled")
        + ("; the tokens per step grew as well" if by_length else ""),
        observed=rise.last,
        limit=size if size is not None else rise.early * (UNSIZED_FACTOR if worst.grade else limits["grown"]),
        unit=unit,
        onset_step=rise.onset,
        onset_interval=rise.interval,
        evidence=metric_evidence(
            worst.series, where=worst.place, early=rise.early, device=size, series_that_grew=count, work_ratio=longer
        ),
        causes=(
            "tensors kept with their graph: losses or log-probabilities collected for logging without detach()",
            "an engine's or a data loader's cache that is never emptied",
            "longer sequences, in a batch that is padded to its longest",
        ),
        confirm=(
            f"take memory snapshots at steps {rise.onset} and {rise.onset + 100} of a rerun and compare what is "
            "allocated",
        ),
        next=("detach what is collected for logging; restart from the last checkpoint before the device is full",),
    )


RULE = rule(check, "memory-growth", Link.SYSTEMS, grown=GROWTH_FACTOR, nearly_full=FULL_SHARE, families=EVERY)

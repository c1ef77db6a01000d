"""What is known by rank, node and device, and what happened to the run's processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ptt.diagnostics.evidence.series import Series


class Measure(StrEnum):
    """What a metric by rank measures."""

    TIME = "time"  # of a phase of the step
    WHOLE_STEP = "whole step"  # a time that ends when all ranks have met: a slow rank slows all alike
    MEMORY = "memory"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class ByRank:
    """One metric as several ranks, nodes or devices recorded it."""

    name: str
    measure: Measure
    places: Mapping[str, Series]  # "rank 3", "node.0 gpu 1": sorted
    by_step: bool  # False: the writer named no step, and the series count samples


@dataclass(frozen=True, kw_only=True)
class Machines:
    """What is known by rank, node and device: metrics that two of them recorded at least."""

    metrics: tuple[ByRank, ...]

    def of(self, *measures: Measure) -> tuple[ByRank, ...]:
        """Give the metrics of these measures."""
        return tuple(metric for metric in self.metrics if metric.measure in measures)


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened, in a line; `kind` is stdout, stderr, exit, alert or restart."""

    step: int | None
    kind: str
    text: str
    source: str

"""A share over the run, whether it was counted in trajectories or logged by the framework, asked in one way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.departures import LEAST, Departure, early_level, rise
from ptt.diagnostics.evidence.series import Series

LEAST_TRIALS: Final = 100  # before a level is called high: the interval of a share is then +-0.1 at most


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One share over the run: counted in trajectories, or as the framework logged it (then without counts)."""

    series: Series
    metric: str
    counts: Counts | None = None
    tool: str | None = None  # None: of all tools

    @property
    def judgeable(self) -> bool:
        """Whether there is enough of it to tell a change."""
        return early_level(self.series) is not None if self.counts is None else self.counts.shows_change

    @property
    def late(self) -> float:
        """The share in the end."""
        if self.counts is not None:
            return self.counts.late().share
        values = self.series.finite()[1]
        return float(values[-self.series.width :].mean()) if len(values) else math.nan

    @property
    def surely(self) -> float:
        """What the share in the end is at least, as far as chance goes."""
        if self.counts is None:
            return self.late if len(self.series.finite()[0]) >= LEAST else 0.0
        late = self.counts.late()
        return late.at_least if late.total >= LEAST_TRIALS else 0.0

    @property
    def early(self) -> float:
        """The share at first."""
        if self.counts is not None:
            return self.counts.early().share
        level, values = early_level(self.series), self.series.finite()[1]
        return float(values[: level.values].mean()) if level else math.nan

    def risen(self, *, floor: float, factor: float) -> Departure | None:
        """Give its lasting rise."""
        if self.counts is not None:
            return self.counts.rise(floor=floor, factor=factor)
        return rise(self.series, floor=floor, factor=factor)


def counted(counts: Counts | None, metric: str, *, tool: str | None = None) -> tuple[Measured, ...]:
    """Give a share that was counted in trajectories, where it was."""
    if counts is None:
        return ()
    return (Measured(series=counts.series, metric=metric, counts=counts, tool=tool),)


def logged_share(metrics: Mapping[str, Series], name: str, *, of: str | None = None) -> tuple[Measured, ...]:
    """Give a share that the framework logged, where it did; not at steps where it logged none `of` what it is a share.

    TRL writes a share of 0 where there was nothing to take a share of.
    """
    series = metrics.get(name)
    if series is None:
        return ()
    whole = metrics.get(of) if of is not None else None
    if whole is not None:
        empty = np.isin(series.steps, whole.steps[whole.values == 0])
        series = replace(series, values=np.where(empty, np.nan, series.values))
    return (Measured(series=series, metric=name),) if len(series.finite()[0]) else ()

"""How often something happened of how often it could have, by step; and where that share leaves its early level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.evidence.departures import EARLY_LEAST, EARLY_MOST, EARLY_SHARE, LEAST, SDS, Departure, fall, rise
from ptt.diagnostics.evidence.series import Series

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

POOLED: Final = 8  # trials a value: with fewer, a share says more about chance than about the step
LATE_SHARE: Final = 1 / 3  # of the steps: what "in the end" means
Z95: Final = 1.96


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Hits of so many trials at each step; steps are sorted and have at least one trial each."""

    name: str  # completes "share of ..."
    steps: IntArray
    hits: FloatArray
    trials: FloatArray

    @property
    def total(self) -> int:
        """How many trials there are."""
        return int(self.trials.sum())

    @cached_property
    def pooled(self) -> Counts:
        """Give neighbouring steps put together until each value rests on POOLED trials; it stands at its last step."""
        ends: list[int] = []
        seen = 0.0
        for place, trials in enumerate(self.trials.tolist()):
            seen += trials
            if seen >= POOLED:
                ends.append(place)
                seen = 0.0
        if not ends:
            return Counts(name=self.name, steps=self.steps[:0], hits=self.hits[:0], trials=self.trials[:0])
        starts = np.array([0, *(end + 1 for end in ends[:-1])])
        ends[-1] = len(self.steps) - 1  # what is left over joins the last one
        return Counts(
            name=self.name,
            steps=self.steps[np.array(ends)],
            hits=np.add.reduceat(self.hits, starts),
            trials=np.add.reduceat(self.trials, starts),
        )

    @property
    def series(self) -> Series:
        """Give the share by (pooled) step."""
        found = self.pooled
        share = found.hits / found.trials
        return Series(
            name=self.name,
            raw_name=f"share of {self.name}",
            steps=found.steps,
            values=share,
            flags=np.zeros(len(share), np.uint8),
        )

    @property
    def shows_change(self) -> bool:
        """Whether there is enough of it to tell a lasting change from chance."""
        return len(self.pooled.steps) >= LEAST

    def late(self) -> Counts:
        """Give the last third of the steps."""
        start = len(self.steps) - max(1, round(LATE_SHARE * len(self.steps)))
        return self._part(slice(start, None))

    def early(self) -> Counts:
        """Give the steps that departures takes the early level from, or the first third where there are too few."""
        found = self.pooled
        count = min(max(EARLY_LEAST, int(EARLY_SHARE * len(found.steps))), EARLY_MOST)
        if len(found.steps) < LEAST:
            return self._part(slice(0, max(1, round(LATE_SHARE * len(self.steps)))))
        return found._part(slice(0, count))

    def _part(self, part: slice) -> Counts:
        return Counts(name=self.name, steps=self.steps[part], hits=self.hits[part], trials=self.trials[part])

    @property
    def share(self) -> float:
        """Hits over trials of all steps; NaN without a trial."""
        trials = float(self.trials.sum())
        return float(self.hits.sum()) / trials if trials else math.nan

    @property
    def at_least(self) -> float:
        """Give the lower end of the 95 % interval of the share (Wilson 1927); 0 without a trial."""
        return wilson(float(self.hits.sum()), float(self.trials.sum()))

    def rise(self, *, floor: float, factor: float) -> Departure | None:
        """Give the lasting rise of the share above `floor`, early share x `factor`, and what chance makes of it."""
        if not self.shows_change:
            return None
        share, chance = self._chance()
        return rise(self.series, floor=max(floor, share * factor + chance))

    def fall(self, *, ceiling: float, factor: float) -> Departure | None:
        """Give the lasting fall of the share below `ceiling`, early share x `factor`, and what chance makes of it."""
        if not self.shows_change:
            return None
        share, chance = self._chance()
        return fall(self.series, ceiling=min(ceiling, share * factor - chance))

    def _chance(self) -> tuple[float, float]:
        """Give the early share and how far a window's may lie off by sampling alone."""
        early = self.early()
        trials = float(early.trials.sum())
        share = (float(early.hits.sum()) + 0.5) / (trials + 1)  # never 0 or 1: neither has been seen for sure
        window = self.series.width * float(np.median(self.pooled.trials))
        return share, SDS * math.sqrt(share * (1 - share) * (1 / window + 1 / trials))


def wilson(hits: float, trials: float, *, z: float = Z95) -> float:
    """Give the lower end of Wilson's interval of a share."""
    if trials <= 0:
        return 0.0
    share = hits / trials
    centre = share + z * z / (2 * trials)
    width = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, (centre - width) / (1 + z * z / trials))

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
from ptt.diagnostics.statistics.shifts import rank_shift, rate_change

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

POOLED: Final = 8  # trials a value: with fewer, a share says more about chance than about the step
LATE_SHARE: Final = 1 / 3  # of the steps: what "in the end" means
Z95: Final = 1.96
FEW: Final = 60  # values: of fewer, how like each other they are is not known well enough for `departures`
SURE_RANKS: Final = 3.5  # standard deviations of a rank sum: one in four thousand; ten values against ten reach 3.78


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
        """Give the steps that departures takes the early level from, the first third at most."""
        found = self.pooled
        count = min(max(EARLY_LEAST, int(EARLY_SHARE * len(found.steps))), EARLY_MOST, len(found.steps) // 3)
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
        found = self._shifted(floor=floor, factor=factor)
        return found or rise(self.series, floor=max(floor, share * factor + chance))

    def _shifted(self, *, floor: float, factor: float) -> Departure | None:
        """Give the rise of few values from the first third of them to the last, by their ranks.

        Steps of a few prompts differ by more than chance, and a level that moved early looks like noise that remembers.
        """
        found = self.pooled
        third = len(found.steps) // 3
        if len(found.steps) >= FEW:
            return None
        early, late = found._part(slice(0, third)), found._part(slice(len(found.steps) - third, None))
        share, chance = _chance(early, float(late.trials.sum()))
        bound = max(floor, share * factor + chance)
        moved = rank_shift(early.hits / early.trials, late.hits / late.trials)
        place = rate_change(found.hits, found.trials)
        if late.share <= bound or moved < SURE_RANKS or place is None:
            return None
        means = self.series.rolling()[1]
        return Departure(
            onset=int(found.steps[place[0]]),
            interval=(int(found.steps[place[1]]), int(found.steps[place[2]])),
            early=early.share,
            extreme=float(np.nanmax(means)),
            last=late.share,
            limit=bound,
            ended=False,
        )

    def fall(self, *, ceiling: float, factor: float) -> Departure | None:
        """Give the lasting fall of the share below `ceiling`, early share x `factor`, and what chance makes of it."""
        if not self.shows_change:
            return None
        share, chance = self._chance()
        return fall(self.series, ceiling=min(ceiling, share * factor - chance))

    def _chance(self) -> tuple[float, float]:
        """Give the early share and how far a window's may lie off by sampling alone."""
        return _chance(self.early(), self.series.width * float(np.median(self.pooled.trials)))


def _chance(early: Counts, window: float) -> tuple[float, float]:
    trials = float(early.trials.sum())
    share = (float(early.hits.sum()) + 0.5) / (trials + 1)  # never 0 or 1: neither has been seen for sure
    return share, SDS * math.sqrt(share * (1 - share) * (1 / window + 1 / trials))


def wilson(hits: float, trials: float, *, z: float = Z95) -> float:
    """Give the lower end of Wilson's interval of a share."""
    if trials <= 0:
        return 0.0
    share = hits / trials
    centre = share + z * z / (2 * trials)
    width = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, (centre - width) / (1 + z * z / trials))

"""Whether steps lie beyond a limit more often than not, by a test that may be looked at after every step.

One bets, step after step, that the next one lies beyond the limit: with a stake L the capital is multiplied by 1 + L/2
where it does and by 1 - L/2 where it does not. As long as each step, given all before it, is at most as likely to lie
beyond as not, nobody gets rich: the capital exceeds 1/a at any time at all with probability a at most (Ville's
inequality; Waudby-Smith and Ramdas 2024; Ramdas, Grünwald, Vovk and Shafer 2023; Howard, Ramdas, McAuliffe and Sekhon
2021). Nothing is assumed of how values are distributed or how long noise is remembered, as long as it falls back: the
limit has to lie where a healthy step is not expected, even after one that was. The capital is split over stakes, and
over the steps at which to begin, with 1/(n log² n) for the n-th, so that a healthy past does not ruin what comes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

STAKES: Final = (1.0, 1.6, 1.96)
WIN: Final = tuple(1 + stake / 2 for stake in STAKES)
LOSE: Final = tuple(1 - stake / 2 for stake in STAKES)
LATE_PLACES: Final = 4.0  # places that the prior over beginnings passes over: it would spend half on the first two
PRIOR: Final = math.log(LATE_PLACES)  # the sum over all places of 1/(n log² n) beyond these is below 1 over it
LARGEST: Final = 1e250  # of a capital: beyond it nothing is learnt, and products would overflow


@dataclass(kw_only=True)
class Bet:
    """The capital of one bet on a series; since: step from which on more steps were beyond than not, -1 for none."""

    capitals: list[float] = field(default_factory=lambda: [0.0] * len(STAKES))
    count: int = 0
    score: int = 0  # steps beyond less steps not, since it was last below 1
    since: int = -1

    @property
    def capital(self) -> float:
        """Return what an initial capital of 1 has become, without what has not yet been staked."""
        return sum(self.capitals) / len(STAKES)

    def take(self, step: int, *, beyond: bool) -> None:
        """Take the next step."""
        self.count += 1
        late = self.count + LATE_PLACES
        begun = PRIOR / (late * math.log(late) ** 2)
        if beyond:
            self.capitals = [min(LARGEST, (old + begun) * win) for old, win in zip(self.capitals, WIN, strict=True)]
            self.since = self.since if self.score else step
            self.score += 1
        else:
            self.capitals = [(old + begun) * lose for old, lose in zip(self.capitals, LOSE, strict=True)]
            self.score = max(0, self.score - 1)

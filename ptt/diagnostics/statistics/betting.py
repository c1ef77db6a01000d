"""Whether steps lie beyond a limit more often than not, by a test that may be looked at after every step.

One bets, step after step, that the next one lies beyond the limit: with a stake L the capital is multiplied by 1 + L/2
where it does and by 1 - L/2 where it does not. As long as each step, given all before it, is at most as likely to lie
beyond as not, nobody gets rich: the capital exceeds 1/a at any time at all with probability a at most (Ville's
inequality; Waudby-Smith and Ramdas 2024; Ramdas, Grünwald, Vovk and Shafer 2023; Howard, Ramdas, McAuliffe and Sekhon
2021). Nothing is assumed of how values are distributed or how long noise is remembered, as long as it falls back: the
limit has to lie where a healthy step is not expected, even after one that was.

When to begin is not known. A new bet begins where two steps in a row lay beyond, before the third is seen, and stakes
1/(k (k + 1)) of the capital the k-th time: these add up to 1, and what is not yet staked is kept, so that neither a
healthy past nor its outliers cost what comes. Had a fault been waited for from each step on, 1/(n log² n) would be left
for the n-th: ten steps' worth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

STAKES: Final = (1.0, 1.6, 1.96)
WIN: Final = tuple(1 + stake / 2 for stake in STAKES)
LOSE: Final = tuple(1 - stake / 2 for stake in STAKES)
BEGIN_AFTER: Final = 2  # steps beyond in a row: after one, its twin of the same rollouts would be as good as won
LARGEST: Final = 1e250  # of a capital: beyond it nothing is learnt, and products would overflow


@dataclass(kw_only=True)
class Bet:
    """The capital of one bet on a series; since: step from which on more steps were beyond than not, -1 for none."""

    capitals: list[float] = field(default_factory=lambda: [0.0] * len(STAKES))
    count: int = 0
    in_a_row: int = 0  # steps beyond, up to the last
    begun: int = 0  # bets
    score: int = 0  # steps beyond less steps not, since it was last below 1
    since: int = -1

    @property
    def capital(self) -> float:
        """Return what an initial capital of 1 has become, without what has not yet been staked."""
        return sum(self.capitals) / len(STAKES)

    def take(self, step: int, *, beyond: bool) -> None:
        """Take the next step."""
        self.count += 1
        if not (beyond or self.score or self.begun):
            return
        staked = 0.0
        if self.in_a_row == BEGIN_AFTER:
            self.begun += 1
            staked = 1 / (self.begun * (self.begun + 1))
        factors = WIN if beyond else LOSE
        self.capitals = [min(LARGEST, (old + staked) * by) for old, by in zip(self.capitals, factors, strict=True)]
        if beyond:
            self.in_a_row += 1
            self.since = self.since if self.score else step
            self.score += 1
        else:
            self.in_a_row = 0
            self.score = max(0, self.score - 1)

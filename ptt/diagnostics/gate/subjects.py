"""What a bound may be on: a logged metric, a tail of the log-ratios, or an effective sample size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ptt.diagnostics.metrics.aliases import canonical_names
from ptt.diagnostics.metrics.catalogue import ANY, known
from ptt.diagnostics.statistics.bins import HIGHEST_EXPONENT

SLICES: Final = ("text_only", "post_tool", "post_observation")
QUANTILES: Final = ("p95", "p99")
POOLED: Final = "pooled"
"""The only level of a tail or an effective sample size: that of all tokens of the window together."""
TAIL, ESS, LOGGED = "tail.", "ess.", "logged:"


@dataclass(frozen=True, kw_only=True)
class Logged:
    """A metric by its canonical name, or as its writer spelt it."""

    name: str
    exact: bool = False  # only as its writer spelt it


@dataclass(frozen=True, kw_only=True)
class Tail:
    """A percentile of |r| over the tokens of one slice."""

    slice: str
    quantile: str


@dataclass(frozen=True, kw_only=True)
class Ess:
    """The effective sample size of one slice's token weights, as a share of its tokens."""

    slice: str


Subject = Logged | Tail | Ess


def name_of(subject: Subject) -> str:
    """Spell a subject as the settings do."""
    match subject:
        case Logged(name=name, exact=exact):
            return LOGGED + name if exact else name
        case Tail(slice=slice_, quantile=quantile):
            return f"{TAIL}{slice_}.{quantile}"
        case Ess(slice=slice_):
            return ESS + slice_


_SHARE: Final = (0.0, 1.0)
_NOT_NEGATIVE: Final = (0.0, math.inf)
SHARES: Final = "accuracy"
"""How the last part of a name ends that is a share or a percentage, whoever logs it: never negative."""
MAX_TAIL: Final = 2.0**HIGHEST_EXPONENT  # nats: bins of |r| end there, larger ones are placeholders
MAX_LEVEL: Final = 1e6
"""Of a level without a known end. Rewards, KL, losses and norms are of the order of one, and of some thousand in a run
that comes apart; a bound beyond a million lies there to let everything pass."""
MAX_COUNT: Final = 1e15
"""Of what counts, and of names that are the writer's own and may: the longest trainings see some 1e14 tokens."""
MAX_SLOPE: Final = 25 / 165
"""Of the range of a metric: the steepest straight line through ten values (the least a window has) a step apart is that
of five at one end of the range and five at the other."""


def largest_of(subject: Subject, canonical: str | None) -> float:
    """Return the largest bound, of either sign, that could be meant where a statistic has no known end."""
    own_name = isinstance(subject, Logged) and canonical not in canonical_names()
    return MAX_COUNT if own_name or known(canonical).counts else MAX_LEVEL


def range_of(subject: Subject, statistic: str, canonical: str | None) -> tuple[float, float]:
    """Return between which values a statistic of a subject lies, whatever the run."""
    match subject:
        case Tail():
            low, high = 0.0, MAX_TAIL
        case Ess():
            low, high = _SHARE
        case Logged():
            share = subject.name.rsplit("/", 1)[-1].endswith(SHARES)
            low, high = known(canonical).range or (_NOT_NEGATIVE if share else ANY)
    match statistic:
        case "change":
            return low - high, high - low
        case "ratio":
            return 0.0, math.inf
        case "slope":
            return MAX_SLOPE * (low - high), MAX_SLOPE * (high - low)
        case _:
            return low, high

"""What the rules on pairs and on given answers share: which series they read, and how closely a level is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.rules.interface import Check, Limits, NotJudged, Verdict, does_not_apply, requires
from ptt.diagnostics.rules.single_series import aligned, last_mean, too_few
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.wording import sig

PAIRS: Final = frozenset({Family.PREFERENCE, Family.REWARD_MODEL})
PREFERENCE: Final = frozenset({Family.PREFERENCE})
SUPERVISED: Final = frozenset({Family.SUPERVISED})

UNPAIRED: Final = ("kto", "bco")

MIN_VALUES: Final = 30  # logged values: the second half then still makes ten blocks
BLOCKS: Final = 10
T_LIMIT: Final = 3.25  # standard errors: Student's t with nine degrees of freedom, 99%
MIN_LEVEL: Final = 3  # values that give a level
T_OF_FEW: Final = (9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, T_LIMIT)  # Student's t, 99%, of 3 to 10 blocks
MAX_RATIO_SPREAD: Final = 1e-3  # of the ratio: rounding of logged values leaves this much
START_VALUES: Final = 5  # values: at its start the policy is the reference, and there only

# Names of these metrics in reward trainers (TRL, NeMo-RL) and OpenRLHF; elsewhere they may mean anything.
PLAIN_NAMES: Final = {"dpo/accuracy": ("accuracy", "acc"), "dpo/margin": ("margin",)}

LOG_PAIRS: Final = (
    "log the share of correctly ranked pairs and their margin at each step: TRL's DPO, ORPO, CPO and reward "
    "trainers do so by themselves with logging_steps=1"
)


class Level(NamedTuple):
    """A mean, and how closely it is known."""

    mean: float
    error: float

    @property
    def low(self) -> float:
        """The lower end of the 99% interval."""
        return self.mean - T_LIMIT * self.error

    @property
    def high(self) -> float:
        """The upper end of the 99% interval."""
        return self.mean + T_LIMIT * self.error


def level_of(values: FloatArray) -> Level:
    """Return the mean of values that follow each other, with the error that the scatter of ten blocks of them shows.

    Of three to nine values each is a block; the error is then as much larger as Student's t is.
    """
    blocks = min(BLOCKS, len(values))
    means = np.array([part.mean() for part in np.array_split(values, blocks)])
    wider = T_OF_FEW[blocks - MIN_LEVEL] / T_LIMIT
    return Level(float(values.mean()), wider * float(means.std(ddof=1)) / math.sqrt(blocks))


def late_half(series: Series) -> FloatArray:
    """Return the second half of the finite values."""
    values = series.finite()[1]
    return values[len(values) // 2 :]


def start_of(logp: Series, reward: Series | None = None) -> float:
    """Return the log-probability before training: where the side's reward, beta times what it gained, is 0.

    It is on the line through start and end of both. Without rewards, or if these have no reference (and are a multiple
    of the log-probability itself), the first few values are used instead.
    """
    first, last = float(np.median(logp.finite()[1][:START_VALUES])), last_mean(logp)
    if reward is None or len(reward.finite()[0]) < START_VALUES:
        return first
    reward_first, reward_last = float(np.median(reward.finite()[1][:START_VALUES])), last_mean(reward)
    if _proportional(logp, reward) or reward_last == reward_first:
        return first
    origin = first - reward_first * (last - first) / (reward_last - reward_first)
    passed = first < origin <= 0.0 if last < first else origin < first
    return origin if passed else first


def _proportional(logp: Series, reward: Series) -> bool:
    """Return whether rewards are a constant multiple of the log-probabilities: then no reference is subtracted."""
    _, logps, rewards = aligned(logp, reward)
    ratio = rewards[logps != 0] / logps[logps != 0]
    return len(ratio) < START_VALUES or float(np.ptp(ratio)) <= MAX_RATIO_SPREAD * float(np.abs(ratio).max())


class Side(NamedTuple):
    """The log-probability of one side of the pairs: where it started, and where it ended."""

    series: Series
    start: float
    last: float

    @property
    def path(self) -> str:
        """Where it started and ended."""
        return f"{sig(self.start)} → {sig(self.last)}"


def sides(evidence: Evidence) -> tuple[Side, Side] | NotJudged:
    """Return the chosen and the rejected side, or why they cannot be judged."""
    found = []
    for side in ("chosen", "rejected"):
        series = pair_series(evidence, f"dpo/logp_{side}", what="log-probability of chosen and rejected answers")
        if isinstance(series, NotJudged):
            return series
        found.append(Side(series, start_of(series, evidence.metrics.get(f"dpo/reward_{side}")), last_mean(series)))
    return found[0], found[1]


def requires_pairs(
    name: str, *, what: str, minimum: int = MIN_VALUES
) -> Callable[[Callable[[Series, Evidence, Limits], Verdict]], Check]:
    """Give a check a series of preference pairs; without one, the answer is that of `pair_series`."""
    return requires(lambda evidence: pair_series(evidence, name, what=what, minimum=minimum))


def pair_series(evidence: Evidence, name: str, *, what: str, minimum: int = MIN_VALUES) -> Series | NotJudged:
    """Return a series of preference pairs by its canonical name, or why it cannot be judged.

    `what` completes "no ... is logged".
    """
    if name == "dpo/accuracy" and evidence.algorithm.name in UNPAIRED:
        return does_not_apply(f"{evidence.algorithm.title} training has no pairs to rank")
    series = evidence.metrics.get(name)
    paired = evidence.algorithm.family in PAIRS or "dpo/reward_rejected" in evidence.metrics
    if series is None and paired:
        spellings = [prefix + plain for plain in PLAIN_NAMES.get(name, ()) for prefix in ("", "train/")]
        series = next((evidence.other[raw] for raw in spellings if raw in evidence.other), None)
    if series is None:
        return NotJudged(reason=f"no {what} is logged", missing=(name,), enable=LOG_PAIRS, absent=True)
    return series if len(series.finite()[0]) >= minimum else too_few(evidence, name, series, minimum)

"""What the rules on pairs and on given answers share: which series they read, and how closely a level is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.rules.interface import NotJudged, does_not_apply

FloatArray = npt.NDArray[np.float64]

PAIRS: Final = frozenset({Family.PREFERENCE, Family.REWARD_MODEL})
PREFERENCE: Final = frozenset({Family.PREFERENCE})
SUPERVISED: Final = frozenset({Family.SUPERVISED})

UNPAIRED: Final = ("kto", "bco")

LEAST: Final = 30  # logged values: the second half then still makes ten blocks
BLOCKS: Final = 10
SURE: Final = 3.25  # standard errors: Student's t with nine degrees of freedom, 99 %
PROPORTIONAL: Final = 1e-3  # of the ratio: what rounding of logged values leaves
START: Final = 5  # values: at its start the policy is the reference, and there only

# What reward trainers (TRL, NeMo-RL) and OpenRLHF call the two figures; anywhere else the names may mean anything.
PLAIN: Final = {"dpo/accuracy": ("accuracy", "acc"), "dpo/margin": ("margin",)}

LOG_PAIRS: Final = (
    "log each step's share of pairs ranked rightly and their margin: TRL's DPO, ORPO, CPO and reward "
    + ("trainers do so by themselves with logging_steps=1")
)


class Level(NamedTuple):
    """A mean, and how closely it is known."""

    mean: float
    error: float

    @property
    def low(self) -> float:
        """The lower end of the 99 % interval."""
        return self.mean - SURE * self.error

    @property
    def high(self) -> float:
        """The upper end of the 99 % interval."""
        return self.mean + SURE * self.error


def level_of(values: FloatArray) -> Level:
    """Give the mean of values that follow each other, with the error that the scatter of ten blocks of them shows."""
    means = np.array([part.mean() for part in np.array_split(values, BLOCKS)])
    return Level(float(values.mean()), float(means.std(ddof=1)) / math.sqrt(BLOCKS))


def late_half(series: Series) -> FloatArray:
    """Give the second half of the finite values."""
    values = series.finite()[1]
    return values[len(values) // 2 :]


def start_of(logp: Series, reward: Series | None = None) -> float:
    """Give the level a log-probability had before training: where the side's reward, beta times what it left, is 0.

    On the line through start and end of both; without rewards, or where these measure from no reference (they are
    then a multiple of the log-probability itself), the first few values stand in.
    """
    first = float(np.median(logp.finite()[1][:START]))
    if reward is None or len(reward.finite()[0]) < START:
        return first
    last, paid_first, paid_last = end_of(logp), float(np.median(reward.finite()[1][:START])), end_of(reward)
    if _multiple(logp, reward) or paid_last == paid_first:
        return first
    origin = first - paid_first * (last - first) / (paid_last - paid_first)
    passed = first < origin <= 0.0 if last < first else origin < first
    return origin if passed else first


def _multiple(logp: Series, reward: Series) -> bool:
    """Tell whether the rewards are the log-probabilities times one number: nothing is subtracted for a reference."""
    _, left, right = np.intersect1d(logp.finite()[0], reward.finite()[0], return_indices=True)
    of, paid = logp.finite()[1][left], reward.finite()[1][right]
    ratio = paid[of != 0] / of[of != 0]
    return len(ratio) < START or float(np.ptp(ratio)) <= PROPORTIONAL * float(np.abs(ratio).max())


def end_of(series: Series) -> float:
    """Give the mean over the last window."""
    return float(series.rolling()[1][-1])


def turned(series: Series) -> Series:
    """Give the series upside down: what falls below a bound then rises above one."""
    return replace(series, values=-series.values)


class Side(NamedTuple):
    """The log-probability of one side of the pairs: where it started, and where it ended."""

    series: Series
    start: float
    last: float

    @property
    def path(self) -> str:
        """Say both."""
        return f"{self.start:.3g} → {self.last:.3g}"


def sides(evidence: Evidence) -> tuple[Side, Side] | NotJudged:
    """Give the chosen and the rejected side, or why they cannot be judged."""
    found = []
    for side in ("chosen", "rejected"):
        what = "log-probability of chosen and rejected answers"
        series = of_pairs(evidence, f"dpo/logp_{side}", what=what)
        if isinstance(series, NotJudged):
            return series
        found.append(Side(series, start_of(series, evidence.metrics.get(f"dpo/reward_{side}")), end_of(series)))
    return found[0], found[1]


def of_pairs(evidence: Evidence, name: str, *, what: str, least: int = LEAST) -> Series | NotJudged:
    """Give a series of preference pairs by its canonical name, or why it cannot be judged.

    `what` completes "no ... is logged".
    """
    if name == "dpo/accuracy" and evidence.algorithm.name in UNPAIRED:
        return does_not_apply(f"{evidence.algorithm.title} training, which has no pairs to rank")
    series = evidence.metrics.get(name)
    paired = evidence.algorithm.family in PAIRS or "dpo/reward_rejected" in evidence.metrics
    if series is None and paired:
        spelt = [prefix + plain for plain in PLAIN.get(name, ()) for prefix in ("", "train/")]
        series = next((evidence.other[raw] for raw in spelt if raw in evidence.other), None)
    if series is None:
        return NotJudged(reason=f"no {what} is logged", missing=(name,), enable=LOG_PAIRS)
    count = len(series.finite()[0])
    if count < least:
        reason = f"{count} finite values of {series.raw_name} are logged; {least} are needed"
        return NotJudged(reason=reason, missing=(name,), enable="log every step: logging_steps=1")
    return series

"""A reward that is earned without the task being done: parts that part, and calls that multiply for nothing.

What: a part of the reward (or the whole) rises over the steps, or the order of the episodes, beyond chance, while an
outcome falls by a fifth; or calls grow by half while no outcome rises. Which of calls and length is paid shows within
prompts: attempts at one prompt that call or write more earn more.
Why it matters: the policy is made better at earning and worse at the task, and the curve of the reward cannot show it.
What it is not: more calls that solve more tasks; a penalty that grows as the task is learnt.
Source: as rules reward-hacking and calls-inflation, of which these are the checks for traces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.outcome_agreement import MIN_LOSS
from ptt.diagnostics.metrics.name_words import PENALTY, words_of
from ptt.diagnostics.model import JsonScalar, Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.rules.reward.calls_inflation import GROWTH_FACTOR, MIN_CALLS
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.within_groups import within_correlation
from ptt.diagnostics.traces.interface import Judged, graded, no_calls, not_judged
from ptt.diagnostics.traces.order import Shift, shift_of
from ptt.diagnostics.traces.scores import REWARD, Scores, scores_of
from ptt.diagnostics.traces.tables import TraceTables
from ptt.diagnostics.wording import sig

MIN_RISE: Final = 0.1  # of the larger level: a reward that rose by less gained little
MIN_RISE_SDS: Final = 0.3  # of the episodes' spread, likewise
LENGTH_FACTOR: Final = 1.5  # times the early length
PAID_RHO: Final = 0.2  # rank correlation within prompts from which a reward pays for a thing
PAID_P: Final = 0.01
SEED: Final = 20_261_125
SCORES_ENABLE: Final = (
    "record for each episode the parts of its reward and, beside them, whether the task was done (in TRL a reward "
    "function of weight 0 is enough)"
)
CALLS, LENGTH = "tool calls", "length"


def judge_hacking(tables: TraceTables) -> Judged:
    """Hold every part of the reward that rises against every outcome that falls."""
    scores = scores_of(tables)
    if not scores.outcomes:
        return not_judged("no outcome stands beside the reward", missing=("success",), enable=SCORES_ENABLE)
    paid = {name: values for name, values in scores.parts.items() if name not in scores.outcomes}
    if not paid:
        return not_judged("no reward is recorded beside the outcome", missing=("reward",), enable=SCORES_ENABLE)
    falls = {name: fall for name, values in scores.outcomes.items() if (fall := _fall(tables, values)) is not None}
    if not falls:
        return Judged(verdict=graded(reason=f"{', '.join(scores.outcomes)}: did not fall beyond chance"))
    rises = {name: rise for name, values in paid.items() if (rise := _rise(tables, values)) is not None}
    if not rises:
        return Judged(verdict=graded(reason=f"{next(iter(falls))} fell, and no part of the reward rose meanwhile"))
    if _shift(tables, scores.parts.get(REWARD, paid[next(iter(rises))]), lambda early, late: late < early) is not None:
        return Judged(verdict=graded(reason=f"{next(iter(falls))} fell, and the reward as a whole with it"))
    lost = min(falls, key=lambda name: (falls[name].late / falls[name].early, name))
    part = max(rises, key=lambda name: (name == REWARD and len(rises) == 1, _gain(rises[name]), name))
    return Judged(verdict=graded(_hacking(tables, scores, (part, rises[part]), (lost, falls[lost])), reason=""))


def judge_inflation(tables: TraceTables) -> Judged:
    """Find calls that multiply while no outcome rises."""
    scores = scores_of(tables)
    if not np.isfinite(scores.calls).any() or not np.nansum(scores.calls):
        return no_calls(tables)
    growth = _grown(tables, scores.calls, MIN_CALLS, GROWTH_FACTOR)
    mean = float(np.nanmean(scores.calls))
    if growth is None:
        return Judged(verdict=graded(reason=f"an episode makes {sig(mean)} tool calls, and no more towards the end"))
    grew = f"{sig(growth.early)} → {sig(growth.late)}"
    gains = scores.outcomes or {name: values for name, values in scores.parts.items() if name == REWARD}
    if not gains:
        return not_judged(
            f"tool calls grew {grew} an episode, but no outcome says whether they help",
            missing=("success",),
            enable=SCORES_ENABLE,
        )
    for name, values in gains.items():
        if (rise := _shift(tables, values, lambda early, late: late > early)) is not None:
            gained = f"{sig(rise.early)} → {sig(rise.late)}"
            reason = f"tool calls grew {grew} an episode, and {name} ({gained}) with them"
            return Judged(verdict=graded(reason=reason))
    fallen = next((name for name, values in gains.items() if _fall(tables, values) is not None), None)
    name = fallen or next(iter(gains))
    finding = Finding(
        severity=Severity.MEDIUM if fallen else Severity.LOW,
        claim=f"Tool calls grew {grew} an episode while {name} {'fell' if fallen else 'did not clearly rise'}",
        observed=growth.late / growth.early if growth.early > 0 else None,
        limit=GROWTH_FACTOR,
        unit="times the early number",
        onset_step=growth.onset,
        onset_interval=growth.interval,
        evidence={"metric": "n_tool_calls", "early": growth.early, "late": growth.late, "p_value": growth.p_value,
                  "episodes": _most(tables, scores.calls, growth.onset)},
        causes=("calls are paid for, or what they return is", "the agent repeats calls that bring nothing new"),
        confirm=(f"read the episodes with the most calls from {tables.traces.order} {growth.onset} on",),
        next=("pay for the state that calls leave behind, not for the calls",),
    )  # fmt: skip
    return Judged(verdict=graded(finding, reason=f"tool calls grew {grew} an episode"))


def _hacking(tables: TraceTables, scores: Scores, part: tuple[str, Shift], lost: tuple[str, Shift]) -> Finding:
    (name, rise), (outcome, fall) = part, lost
    inflated = _inflated(tables, scores, name)
    grew = ", and ".join(one.words for one in inflated)
    with_it = f"; {grew}" if grew else ""
    onset = max((rise, fall), key=lambda one: one.onset)
    evidence: dict[str, JsonScalar] = {
        "metric": name, "early": rise.early, "late": rise.late, "outcome": outcome, "outcome_early": fall.early,
        "outcome_late": fall.late, "p_value": max(rise.p_value, fall.p_value),
        "episodes": _most(tables, scores.parts[name], onset.onset),
    }  # fmt: skip
    for one in inflated:
        evidence |= {
            f"{one.name} early": one.growth.early,
            f"{one.name} late": one.growth.late,
            f"{one.name} rho": one.rho,
        }
    severity = Severity.HIGH if inflated else Severity.MEDIUM
    return Finding(
        severity=Severity.LOW if words_of(name) & PENALTY else severity,
        claim=f"{name} rose {sig(rise.early)} → {sig(rise.late)} while {outcome} fell "
        f"{sig(fall.early)} → {sig(fall.late)}" + with_it,
        observed=1 - fall.late / fall.early,
        limit=MIN_LOSS,
        unit="of the early outcome",
        onset_step=onset.onset,
        onset_interval=onset.interval,
        evidence=evidence,
        causes=(
            *(f"{name} pays for {one.name}" for one in inflated if one.is_paid),
            "the reward is easier to earn than the task is to do",
        ),
        confirm=(f"read the episodes that {name} pays best from {tables.traces.order} {onset.onset} on",),
        next=(f"pay {name} only where {outcome} is earned, in a short run, and decide by {outcome}",),
    )


@dataclass(frozen=True, kw_only=True)
class Inflation:
    """What grew while the outcome fell, and whether the reward pays for it within prompts."""

    name: str
    growth: Shift
    rho: float | None
    is_paid: bool

    @property
    def words(self) -> str:
        """The growth in a clause."""
        paid = f", which it pays for (rank correlation {self.rho:+.2f} within prompts)" if self.is_paid else ""
        unit = "letters an episode" if self.name == LENGTH else "an episode"
        return f"{self.name} grew {sig(self.growth.early)} → {sig(self.growth.late)} {unit}{paid}"


def _inflated(tables: TraceTables, scores: Scores, part: str) -> list[Inflation]:
    found = []
    for name, values, floor, factor in (
        (CALLS, scores.calls, MIN_CALLS, GROWTH_FACTOR),
        (LENGTH, scores.length, 0.0, LENGTH_FACTOR),
    ):
        growth = _grown(tables, values, floor, factor)
        if growth is not None:
            paid = within_correlation(values, scores.parts[part], scores.group, seed=SEED)
            rho = paid.rho if np.isfinite(paid.rho) else None
            is_paid = rho is not None and rho >= PAID_RHO and paid.p_value <= PAID_P
            found.append(Inflation(name=name, growth=growth, rho=rho, is_paid=is_paid))
    return found


def _shift(tables: TraceTables, values: FloatArray, matters: Callable[[float, float], bool]) -> Shift | None:
    known = np.isfinite(values)
    return shift_of(tables.order, np.where(known, values, 0.0), known.astype(np.float64), matters)


def _rise(tables: TraceTables, values: FloatArray) -> Shift | None:
    spread = float(np.nanstd(values))

    def matters(early: float, late: float) -> bool:
        return late - early >= max(MIN_RISE * max(abs(early), abs(late)), MIN_RISE_SDS * spread, 1e-12)

    return _shift(tables, values, matters)


def _fall(tables: TraceTables, values: FloatArray) -> Shift | None:
    return _shift(tables, values, lambda early, late: early > 0 and late <= (1 - MIN_LOSS) * early)


def _grown(tables: TraceTables, values: FloatArray, floor: float, factor: float) -> Shift | None:
    return _shift(tables, values, lambda early, late: late >= max(floor, factor * early, 1e-12))


def _gain(rise: Shift) -> float:
    return (rise.late - rise.early) / max(abs(rise.early), abs(rise.late))


def _most(tables: TraceTables, values: FloatArray, onset: int, count: int = 3) -> str:
    """Return the ids of the episodes with the most of it, from the onset on."""
    late = np.where(tables.order.place >= onset, np.nan_to_num(values, nan=-np.inf), -np.inf)
    return tables.names(at for at in np.argsort(-late, kind="stable")[:count] if np.isfinite(late[at]))

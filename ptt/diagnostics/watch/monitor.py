"""A watch over one run: given its steps one by one, it warns, and stops the run within a budget of false stops."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping
from dataclasses import asdict
from statistics import median
from typing import Any, Final, Literal

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Guard
from ptt.diagnostics.statistics.betting import Bet
from ptt.diagnostics.watch.guards import DRIFT, guards_for
from ptt.diagnostics.watch.observed import ObservedStep
from ptt.diagnostics.watch.watched import (
    REWARD_FELL,
    STOPPING,
    STUCK_STOP,
    STUCK_WARNING,
    SURE,
    WARNING,
    Past,
    Sure,
    Watched,
)
from ptt.diagnostics.wording import sig

BUDGET: Final = 0.01
"""Probability that a healthy run is ever stopped, over its whole length: a rule may spend its share of it."""
WARNING_TIMES: Final = 5.0
"""A warning may be false so many times as often as a stop."""
STATE_VERSION: Final = 2
SERIES: Final = (*STOPPING, *WARNING)
FIRST: Final = 12  # values that tell the first level
RECENT: Final = 20  # values whose mean is a level that was reached
FEW: Final = 5  # of the latest, whose median is told
SOLVED: Final = 0.7  # of a reward of 1, as in the rule on entropy
BEFORE: Final = ("kl/ref", "tools/call_frequency")  # metrics that guards are made of, before the run went wrong
DRIFTING: Final = [number for number, each in enumerate(SERIES) if each.rule in DRIFT]
REWARD: Final = "reward/mean"
REWARD_SERIES: Final = next(number for number, each in enumerate(SERIES) if each.rule == REWARD_FELL)
TEACHER: Final = "kl/teacher"  # distillation has no reward

Kind = Literal["warning", "stop"]
KINDS: Final[tuple[Kind, ...]] = ("warning", "stop")


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """Something that a watch tells of a run.

    kind: "stop" only within the budget, or on a fault that needs no statistic. since_step: where it probably began.
    share: the part of the budget that this rule may spend; 0 for what is no matter of chance.
    """

    kind: Kind
    rule: str
    since_step: int
    step: int
    value: float
    limit: float
    claim: str  # what is the matter, in one sentence without a full stop
    guards: tuple[Guard, ...] = ()  # what to set
    share: float = 0.0


class Monitor:
    """Judges a run step by step; each rule warns once and stops once.

    Steps must come in ascending order: one at or before the last is a resumed or rewritten one, and is passed over.
    """

    def __init__(self, *, budget: float, limits: Mapping[str, Mapping[str, float]]) -> None:
        """Use `start` or `restored`."""
        self._budget = budget
        self._limits = {rule: dict(of) for rule, of in limits.items()}
        self._last: int | None = None
        self._told: set[tuple[str, str]] = set()
        self._bets: list[dict[str, Bet]] = [{"warning": Bet(), "stop": Bet()} for _ in SERIES]
        self._first: list[list[float]] = [[] for _ in SERIES]
        self._recent: list[list[float]] = [[] for _ in SERIES]
        self._best = [math.nan] * len(SERIES)
        self._levels: list[list[float] | None] = [None] * len(SERIES)
        self._held = [[0, 0, 0] for _ in SURE]  # values seen, broken ones in a row, step of the first of these
        self._stuck: list[float] | None = None  # the reward that has not moved, how often, since which step
        self._before: dict[str, list[float]] = {}

    @classmethod
    def start(cls, *, limits: Mapping[str, Mapping[str, float]] | None = None, budget: float = BUDGET) -> Monitor:
        """Return a watch that has seen nothing; limits: Settings.limits."""
        return cls(budget=budget, limits=limits or {})

    def observe(self, step: ObservedStep) -> tuple[Alarm, ...]:
        """Return what the step makes known for the first time."""
        if self._last is not None and step.step <= self._last:
            return ()
        self._last = step.step
        if not any(self._bets[number]["warning"].score for number in DRIFTING):
            for name in BEFORE:
                if math.isfinite(value := step.metrics.get(name, math.nan)):
                    self._before[name] = [*self._before.get(name, []), value][-RECENT:]
        alarms = [alarm for number, series in enumerate(SERIES) for alarm in self._watch(number, series, step)]
        alarms += [alarm for number, sure in enumerate(SURE) for alarm in self._sure(number, sure, step)]
        return (*alarms, *self._never_moved(step))

    @property
    def watched(self) -> tuple[str, ...]:
        """The rules that had enough values for a bet."""
        return tuple(
            dict.fromkeys(each.rule for number, each in enumerate(SERIES) if self._bets[number]["warning"].count)
        )

    def _watch(self, number: int, series: Watched, step: ObservedStep) -> list[Alarm]:
        """Bet on a series' value against the limits that its past gives."""
        value = series.measure(step)
        if value is None or not math.isfinite(value):
            return []
        first, alarms = self._first[number], list[Alarm]()
        if len(first) < FIRST:
            insort(first, value)
        else:
            for kind, level in zip(KINDS, self._levels_of(number), strict=True):
                if math.isnan(level) or (series.unsolved and self._solved()):
                    continue
                beyond = value < level if series.falls else value > level
                if self._wins(kind, number, step.step, beyond=beyond):
                    alarms.append(self._alarm(kind, number, step.step, level))
        self._keep(number, series, value)
        return alarms

    def _levels_of(self, number: int) -> list[float]:
        """Return the limits of a warning and a stop, NaN for none; they change with the best level alone."""
        if (levels := self._levels[number]) is None:
            series, past = SERIES[number], self._past(number)
            setting = series.set_to(self._limits)
            levels = [math.nan if limit is None else limit(setting, past) for limit in (series.warn, series.stop)]
            self._levels[number] = levels
        return levels

    def _wins(self, kind: Kind, number: int, step: int, *, beyond: bool) -> bool:
        """Take a step and tell whether the bet is won for the first time: what was won cannot be lost again."""
        bet = self._bets[number][kind]
        bet.take(step, beyond=beyond)
        if not beyond:
            return False
        share = self._budget * SERIES[number].share
        enough = 1 / (share if kind == "stop" else WARNING_TIMES * share)
        return bet.capital >= enough and self._is_new(kind, SERIES[number].rule)

    def _past(self, number: int) -> Past:
        first, lower = self._first[number], FIRST // 4
        place = lower if SERIES[number].falls else FIRST - 1 - lower
        return Past(first=first[place], lowest=first[0], best=self._best[number])

    def _solved(self) -> bool:
        """Tell whether the reward says that nothing is left to learn; also where nothing is known of a reward."""
        return not self._best[REWARD_SERIES] > 0 or median(self._recent[REWARD_SERIES]) >= SOLVED

    def _keep(self, number: int, series: Watched, value: float) -> None:
        """Keep the latest values and the best mean of them."""
        recent, best = self._recent[number], self._best[number]
        recent.append(value)
        del recent[:-RECENT]
        if series.best is not None and len(recent) == RECENT:
            level = sum(recent) / RECENT
            level = level if math.isnan(best) else series.best(level, best)
            if level != best:
                self._best[number], self._levels[number] = level, None

    def _alarm(self, kind: Kind, number: int, step: int, level: float) -> Alarm:
        series, past, since = SERIES[number], self._past(number), self._bets[number]["warning"].since
        value = median(self._recent[number][-FEW:])
        was = f"{sig(past.first)} at first" if series.best is None else f"{sig(past.best)} at best"
        before = {name: median(values) for name, values in self._before.items() if values}
        return Alarm(
            kind=kind,
            rule=series.rule,
            since_step=since if since >= 0 else step,
            step=step,
            value=value,
            limit=level,
            claim=f"{series.what} is {sig(value)}{series.unit}, past {sig(level)}, and was {was}",
            guards=guards_for(series.rule, since=since, step=step, tail_before=past.first, before=before),
            share=series.share if kind == "stop" else 0.0,
        )

    def _is_new(self, kind: Kind, rule: str) -> bool:
        new = (kind, rule) not in self._told
        self._told.add((kind, rule))
        return new

    def _sure(self, number: int, sure: Sure, step: ObservedStep) -> list[Alarm]:
        value = step.metrics.get(sure.metric)
        if value is None or (sure.broken(value) and not sure.shown_by(step)):
            return []
        held = self._held[number]
        held[0] += 1
        if not sure.broken(value):
            held[1] = 0
            return []
        held[1:] = [held[1] + 1, step.step if held[1] == 0 else held[2]]
        of_start = held[0] == held[1]
        kinds: list[Kind] = ["warning"] if held[1] >= sure.warn_after else []
        if sure.stop_after is not None and held[1] >= sure.stop_after and (of_start or not sure.of_start):
            kinds.append("stop")
        return [
            self._certain(kind, sure.rule, held[2], step.step, value, sure.limit, sure.says)
            for kind in kinds
            if self._is_new(kind, sure.rule)
        ]

    def _never_moved(self, step: ObservedStep) -> list[Alarm]:
        """Tell of a reward that has been the same at every step so far."""
        value = step.metrics.get(REWARD)
        if value is None or TEACHER in step.metrics:
            return []
        if self._stuck is None:
            self._stuck = [value, 0, step.step]
        first, count, since = self._stuck
        if count < 0 or value != first:
            self._stuck[1] = -1
            return []
        self._stuck[1] += 1
        after: dict[Kind, int] = {"warning": STUCK_WARNING, "stop": STUCK_STOP}
        says = f"the reward has been exactly {sig(first)} at all {int(count) + 1} logged steps"
        return [
            self._certain(kind, "reward-stuck", int(since), step.step, value, first, says)
            for kind, values in after.items()
            if count + 1 >= values and self._is_new(kind, "reward-stuck")
        ]

    @staticmethod
    def _certain(kind: Kind, rule: str, since: int, step: int, value: float, limit: float, says: str) -> Alarm:
        guards = guards_for(rule, since=since, step=step, tail_before=math.nan, before={})
        return Alarm(
            kind=kind, rule=rule, since_step=since, step=step, value=value, limit=limit, claim=says, guards=guards
        )

    def state(self) -> dict[str, Any]:
        """Return everything that was learnt, as JSON holds it."""
        learnt = {name.lstrip("_"): value for name, value in vars(self).items()}
        bets = [{kind: asdict(bet) for kind, bet in of.items()} for of in self._bets]
        return {**learnt, "version": STATE_VERSION, "told": sorted(self._told), "bets": bets}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Monitor:
        """Return the watch that had this state; ValueError where it is of another version."""
        if state.get("version") != STATE_VERSION:
            raise ValueError("the state is of another version of the watch")
        monitor = cls(budget=state["budget"], limits=state["limits"])
        for name in vars(monitor):
            setattr(monitor, name, state[name.lstrip("_")])
        monitor._told = {(kind, rule) for kind, rule in state["told"]}
        monitor._bets = [{kind: Bet(**bet) for kind, bet in of.items()} for of in state["bets"]]
        return monitor

"""Faults that are planted into a real run's rows, each with what a right diagnosis calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.loop.planted_log import COUNTERS, Log, Row
from ptt.diagnostics.model import Link, Severity

Generator = np.random.Generator
RATE_JUMP: Final = 2000.0
DEAD_ROWS: Final = 5  # that a run at least writes after its first NaN
POLICY: Final = (Link.POLICY_UPDATE,)
BLOWN: Final = ("learning-rate-jump",)


@dataclass(frozen=True, kw_only=True)
class Planted:
    """One fault: what it needs of a log, what it changes, and what it is called."""

    name: str
    links: tuple[Link, ...]
    ids: tuple[str, ...]  # any of them names it
    plant: Callable[[Log, Generator], int]  # changes the rows; gives the place of the first that is changed
    needs: tuple[str, ...] = ()
    families: tuple[str, ...] = ("online", "pairs", "sft", "other")
    least: Severity = Severity.MEDIUM
    of_start: bool = False  # broken from the first row on: no onset is asked for

    def fits(self, log: Log) -> bool:
        """Return whether a log shows it."""
        return log.family in self.families and log.has(*self.needs)


def _begin(log: Log, generator: Generator, low: float = 0.3, high: float = 0.75) -> int:
    return int(generator.uniform(low, high) * len(log.rows))


def _times(rows: Iterable[Row], key: str | None, factors: Iterable[float]) -> None:
    for row, factor in zip(rows, factors, strict=False):
        if key in row and isinstance(row[key], int | float):
            row[key] = abs(row[key]) * float(factor)


def _dead(rows: Iterable[Row]) -> None:
    """Turn all but counters and the rate into NaN."""
    for row in rows:
        for name in row:
            if name not in COUNTERS and name not in ("learning_rate", "lr", "actor/lr"):
                row[name] = float("nan")


def _jumped(log: Log, generator: Generator, *, dies: bool) -> int:
    """Raise the rate 2000 times; gradients and KL climb, loss and reward go; at the end NaN, or noise for good."""
    start = min(_begin(log, generator), len(log.rows) - DEAD_ROWS - 9)
    late = log.rows[start:]
    _times(late, log.key("lr"), np.full(len(late), RATE_JUMP * np.exp(generator.normal(0, 0.5))))
    reach = int(generator.integers(1, 9))
    climb = np.exp(np.append(np.linspace(np.log(4), np.log(1000), reach), np.full(len(late), np.log(1000.0))))
    noise = np.exp(generator.normal(0, 0.5, (2, len(late))))
    _times(late[1:], log.key("grad"), climb[: len(late)] * noise[0])
    _times(late[1:], log.key("kl"), climb[: len(late)] * noise[1])
    _thrown_off(log, late[1 + reach // 2 :], generator)
    if dies:
        _dead(late[1 + reach :])
    return start


def _thrown_off(log: Log, rows: list[Row], generator: Generator) -> None:
    """Let the policy answer noise: rewards at their floor, losses of a uniform guess, pairs at chance."""
    reward, loss, pairs = log.key("reward"), log.key("loss"), log.key("pairs")
    floor = min(row[reward] for row in log.rows if reward in row) if reward else 0.0
    for row in rows:
        if reward in row:
            row[reward] = floor + abs(generator.normal(0, 0.02))
        if loss in row and log.family != "online":
            uniform = max(9.0, 2 * float(log.rows[0][loss]))
            row[loss] = (
                float(generator.normal(uniform, 1.0)) if log.family == "sft" else float(abs(generator.normal(20, 8)))
            )
        if pairs in row:
            row[pairs] = float(np.clip(generator.normal(0.5, 0.1), 0, 1))
            row["rewards/margins"] = float(generator.normal(0, 30))


def _idle(log: Log, generator: Generator) -> int:
    """Set the rate to 0: every row is one of the first tenth's, and the policy its own reference."""
    head = [dict(row) for row in log.rows[: max(5, len(log.rows) // 10)]]
    rate, kl = log.key("lr"), log.key("kl")
    for row in log.rows:
        taken = head[int(generator.integers(len(head)))]
        for name in row:
            if name not in COUNTERS and name in taken:
                row[name] = taken[name]
        row[str(rate)] = 0.0
        if kl in row:
            row[kl] = 0.0
    for row in log.evaluations():
        if rate in row:
            row[str(rate)] = 0.0
    first: Row = {}
    for row in log.evaluations():
        for name in row:
            if name.startswith("eval_") and isinstance(row[name], int | float):
                row[name] = first.setdefault(name, row[name])
    return 0


def _one(role: str, value: float) -> Callable[[Log, Generator], int]:
    def plant(log: Log, generator: Generator) -> int:
        key = str(log.key(role))
        places = [place for place, row in enumerate(log.rows) if key in row]
        place = places[int(generator.uniform(0.15, 0.9) * len(places))]
        log.rows[place][key] = value
        return place

    return plant


def _floored(log: Log, generator: Generator) -> int:
    """Hold the reward at its floor for the last two thirds; without spread nothing is learnt."""
    start, reward = len(log.rows) // 3, str(log.key("reward"))
    floor = min(0.0, *(row[reward] for row in log.rows if reward in row))
    for row in log.rows[start:]:
        for name in row:
            if name == reward or name in ("critic/rewards/mean", "critic/score/max", "critic/rewards/max"):
                row[name] = floor
            elif name.startswith(("rewards/", "critic/score/", "critic/rewards/")):
                row[name] = 0.0 if name.endswith("/std") else min(floor, 0.0)
        row.update({name: value for name, value in (("reward_std", 0.0), ("frac_reward_zero_std", 1.0)) if name in row})
        _times([row], log.key("grad"), [float(generator.uniform(1e-4, 1e-2))])
    return start


def _one_sample(log: Log, _generator: Generator) -> int:
    """Take one sample a prompt: veRL's group estimator then returns the reward itself, and there is no critic."""
    for row in log.rows:
        for name in [name for name in row if "vf_" in name or name.startswith(("critic/vf", "critic/values"))]:
            del row[name]
        for kind in ("mean", "max", "min"):
            if f"critic/rewards/{kind}" in row:
                row[f"critic/advantages/{kind}"] = row[f"critic/returns/{kind}"] = row[f"critic/rewards/{kind}"]
    return 0


def _short(log: Log, generator: Generator) -> int:
    """Keep the first 4 to 12 rows, of which the later ones show a gross collapse."""
    count = int(generator.integers(4, 13))
    whole = list(log.rows)
    kept = log.thinned(1, first=count)
    log.lines[:], log.rows[:] = kept.lines, kept.rows
    start = int(generator.integers(1, max(2, count // 2)))
    late = log.rows[start:]
    climb = np.exp(np.minimum(np.arange(1, len(late) + 1), 3) * np.log(1000) / 3) * np.exp(
        generator.normal(0, 0.3, len(late))
    )
    if log.family == "pairs":
        _driven_apart(log, late, generator)
    else:
        _times(late, log.key("grad"), climb)
        for row, kl in zip(late, np.minimum(0.5 * 4.0 ** np.arange(len(late)), 30.0), strict=True):
            if log.key("kl") in row:
                row[str(log.key("kl"))] = float(kl * np.exp(generator.normal(0.3, 0.3)))
        reward = log.key("reward")
        level = max((row[reward] for row in whole if reward in row), default=0.0)
        for row in log.rows[:start] if reward else ():
            if reward in row:
                row[reward] = 0.8 * level  # a policy that could already do it: what is lost shows
        _thrown_off(log, late, generator)
    return start


def _driven_apart(log: Log, rows: list[Row], generator: Generator) -> None:
    """Drive the pairs of a preference run apart: the loss goes to 0, margins past a hundred, gradients to nothing."""
    for place, row in enumerate(rows, 1):
        row[str(log.key("loss"))] = float(0.5 ** (12 * place)) * float(generator.uniform(0.5, 2))
        row["rewards/margins"] = min(40.0 * place, 140.0) * float(generator.uniform(0.9, 1.1))
        row["rewards/accuracies"] = 1.0
        for name, value in (("rewards/rejected", -0.8), ("rewards/chosen", 0.2)):
            if name in row:
                row[name] = value * row["rewards/margins"]
        if "logps/rejected" in row:
            row["logps/rejected"] = row["logps/rejected"] - 10 * row["rewards/margins"]
        if log.key("grad") in row:
            row[str(log.key("grad"))] = float(10.0 ** -min(2 * place, 8)) * float(generator.uniform(0.5, 2))


def _dies(log: Log, generator: Generator) -> int:
    return _jumped(log, generator, dies=True)


def _blows_up(log: Log, generator: Generator) -> int:
    return _jumped(log, generator, dies=False)


NUMERIC: Final = ("metrics-lost", "nan-precursors")
FAULTS: Final = (
    Planted(name="rate-jump-blow-up", links=POLICY, ids=BLOWN, plant=_blows_up, needs=("lr",)),
    Planted(name="rate-jump-nan", links=POLICY, ids=BLOWN, plant=_dies, needs=("lr",)),
    Planted(name="rate-zero", links=POLICY, ids=("learning-rate-zero",), plant=_idle, needs=("lr",), of_start=True),
    *(
        Planted(
            name=f"one-{value}-{role}", links=(Link.REWARD if role == "reward" else Link.NUMERICS,), ids=NUMERIC,
            plant=_one(role, float(value)), needs=(role,),
        )
        for role in ("reward", "grad", "loss")
        for value in ("inf", "nan")
    ),
    Planted(name="reward-at-floor", links=(Link.REWARD,), ids=("reward-stuck",), plant=_floored,
            needs=("reward",), families=("online",)),
    Planted(name="one-sample", links=(Link.TRAINING_SIGNAL,), ids=("advantages-without-baseline",),
            plant=_one_sample, needs=("advantage",), families=("online",), of_start=True),
    Planted(name="short-sft", links=(Link.NUMERICS, Link.POLICY_UPDATE), plant=_short, families=("sft",),
            ids=("loss-divergence", "gradient-spikes", "learning-rate-high"), needs=("loss",)),
    Planted(name="short-online", links=POLICY, plant=_short, families=("online",),
            ids=("kl-over-target", "update-too-large", "policy-drift"), needs=("kl", "reward")),
    Planted(name="short-pairs", links=(Link.POLICY_UPDATE,), ids=("preference-saturated",), plant=_short,
            families=("pairs",), needs=("loss", "grad")),
)  # fmt: skip
"""What is planted."""

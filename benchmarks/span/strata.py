"""Rates of right and wrong answers, stratum by stratum, each with its interval and the aim it is held against."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from benchmarks import naive
from benchmarks.span.faults import PLANTED
from benchmarks.span.judged import LATE_REASON, Judged
from benchmarks.span.run import Plan

Z: Final = 1.959963984540054  # two-sided 95 %
LARGE: Final = 2.5  # after over before
MEDIUM: Final = 1.6
LEAST: Final = 10  # runs of a stratum: fewer are not held against an aim
ONSET_SLACK: Final = 0.10  # of the run
FLAT: Final[tuple[Plan, ...]] = ("quiet", "text", "small")


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How many of how many, and what is aimed at."""

    name: str
    hits: int
    of: int
    aim: float | None = None
    at_most: bool = False

    @property
    def share(self) -> float:
        """The share itself; NaN without runs."""
        return self.hits / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval."""
        if not self.of:
            return 0.0, 1.0
        middle = (self.hits + Z * Z / 2) / (self.of + Z * Z)
        half = Z / (self.of + Z * Z) * math.sqrt(self.hits * (self.of - self.hits) / self.of + Z * Z / 4)
        return max(0.0, middle - half), min(1.0, middle + half)

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None where there is none, or nothing to hold against it."""
        if self.aim is None or self.of == 0:
            return None
        return self.share <= self.aim if self.at_most else self.share >= self.aim

    def told(self) -> str:
        """Give the line of a list."""
        low, high = self.interval
        verdict = {True: "PASS ", False: "FAIL ", None: ""}[self.met] if self.of else "NO RUNS "
        bound = "" if self.aim is None else f"; target: {'at most' if self.at_most else 'at least'} {self.aim:.0%}"
        share = f"{self.share:.1%} " if self.of else ""
        return f"{verdict}{self.name}: {share}({self.hits} of {self.of}; {low:.1%} to {high:.1%}){bound}"


def rate(
    name: str,
    runs: Iterable[Judged],
    hit: Callable[[Judged], bool | None],
    aim: float | None = None,
    *,
    at_most: bool = False,
) -> Rate:
    """Count; a run of which `hit` says None is not asked."""
    answers = [answer for answer in map(hit, runs) if answer is not None]
    return Rate(name=name, hits=sum(answers), of=len(answers), aim=aim, at_most=at_most)


def is_found(one: Judged) -> bool:
    """Whether the signature was found."""
    return one.status == "found"


def is_late_reason(one: Judged) -> bool:
    """Whether it cannot be said since the rise came too late."""
    return one.status == "cannot_say" and LATE_REASON in one.reason


def is_told(one: Judged) -> bool:
    """Whether growth at the end was found, or said to be too late to tell."""
    return is_found(one) or is_late_reason(one)


def within(one: Judged) -> bool | None:
    """Whether the onset lies within a tenth of the run of the true one: from the first move to half of the way."""
    if one.onset is None or one.truth.start is None or one.truth.halfway is None:
        return None
    off = max(one.truth.start - one.onset, one.onset - one.truth.halfway, 0)
    return off <= ONSET_SLACK * one.span


def covered(one: Judged) -> bool | None:
    """Whether the onset's interval holds some of what is true of it: first move to half of the way."""
    if one.interval is None or one.truth.start is None or one.truth.halfway is None:
        return None
    return one.interval[0] <= one.truth.halfway and one.interval[1] >= one.truth.start


def passed(one: Judged) -> bool | None:
    """Whether the step at which it passed its limit lies within a tenth of the run of the true one."""
    if one.passed is None or one.truly_passed is None:
        return None
    return abs(one.passed - one.truly_passed) <= ONSET_SLACK * one.span


@dataclass(frozen=True, kw_only=True)
class Sorted:
    """The judged runs by what is true of them."""

    sound: tuple[Judged, ...]  # without a planted fault
    faulty: tuple[Judged, ...]

    @property
    def without(self) -> list[Judged]:
        """Runs that show no signature."""
        return [one for one in self.sound if one.truth.signature is False]

    @property
    def with_it(self) -> list[Judged]:
        """Runs that show it."""
        return [one for one in self.sound if one.truth.signature]

    @property
    def carried(self) -> list[Judged]:
        """Those whose size can carry it."""
        return [one for one in self.with_it if one.truth.carried >= 1]

    @property
    def ordinary(self) -> list[Judged]:
        """Of these the ones whose growth is neither late nor of a few tokens."""
        return [one for one in self.carried if not one.truth.rare and not one.truth.late]

    @property
    def open(self) -> list[Judged]:
        """Runs of which neither is true: too near a limit."""
        return [one for one in self.sound if one.truth.signature is None and one.plan != "blind"]


def sort(judged: Sequence[Judged]) -> Sorted:
    """Part the runs with a planted fault from the others."""
    return Sorted(sound=tuple(one for one in judged if not one.fault), faulty=tuple(one for one in judged if one.fault))


def required(runs: Sorted) -> list[Rate]:
    """Give the figures that are held against an aim."""
    late = [one for one in runs.carried if one.truth.late and not one.truth.rare]
    unfound = [one for one in late if not is_found(one)]
    rare = [one for one in runs.carried if one.truth.rare]
    large = [one for one in runs.ordinary if one.truth.size >= LARGE]
    found = [one for one in runs.with_it if is_found(one)]
    flat = [one for one in runs.without if one.plan in FLAT]
    blind = [one for one in runs.sound if one.plan == "blind"]
    learning = [one for one in runs.without if one.tool_use]
    medium = [one for one in runs.ordinary if MEDIUM <= one.truth.size < LARGE]
    return [
        rate("false alarms", runs.without, is_found, 0.01, at_most=True),
        rate("false alarms where tool use rises or falls", learning, is_found, 0.01, at_most=True),
        rate("recall at 2.5x or more", large, is_found, 0.97),
        rate("recall at 1.6x to 2.5x", medium, is_found, 0.85),
        rate("growth in the last fifth found", late, is_found, 0.60),
        rate("growth in the last fifth missed, lateness given as the reason", unfound, is_late_reason, 1.0),
        rate("growth in the last fifth called healthy", late, lambda one: one.verdict == "healthy", 0.0, at_most=True),
        rate("flat runs with lateness given as the reason", flat, is_late_reason, 0.02, at_most=True),
        rate("recall of rare and extreme tails", rare, is_found, 0.85),
        rate("onset within a tenth of the run", found, within, 0.95),
        rate("onset interval covers the true onset", found, covered, 0.93),
        rate("cannot say where nothing can be judged", blind, lambda one: one.status == "cannot_say", 0.95),
        rate(
            "usual curves judged correctly",
            runs.sound,
            lambda one: (one.aggregates == "alarming") == one.alarms_truly,
            0.95,
        ),
        rate("runs in which a rule crashed", runs.sound, lambda one: bool(one.crashes), 0.0, at_most=True),
    ]


def recall_strata(runs: Sorted) -> list[Rate]:
    """Give recall at 2.5 x or more by everything a run differs in."""
    large = [one for one in runs.ordinary if one.truth.size >= LARGE]
    keys: dict[str, Callable[[Judged], str]] = {
        "size": lambda one: _band(one.truth.size, (2.5, 4, 8), " times"),
        "growth": lambda one: _band(one.truth.carried, (1, 1.5, 2.5), " of the smallest detectable"),
        "shape": lambda one: one.shape if one.form == "scale" else "share of sequences",
        "starts at": lambda one: _band(
            ((one.truth.start or 0) / max(1, one.span)), (0, 0.1, 0.33, 0.67), " of the run"
        ),
        "recorded steps": lambda one: _band(one.recorded, (0, 20, 40, 80, 160), ""),
        "dumped": lambda one: one.spacing,
        "precision": lambda one: one.precision,
        "tool use": lambda one: one.tool_use or "as drawn",
        "confined to": lambda one: one.truth.holder[0] if one.truth.holder else "nothing",
    }
    rates = []
    for name, key in keys.items():
        groups = sorted({key(one) for one in large})
        rates += [
            rate(f"{name} {group}", [one for one in large if key(one) == group], is_found, 0.97) for group in groups
        ]
    return [one if one.of >= LEAST else Rate(name=one.name, hits=one.hits, of=one.of) for one in rates]


def _band(value: float, bounds: Sequence[float], unit: str) -> str:
    place = int(np.searchsorted(bounds, value, side="right")) - 1
    upper = f" to {bounds[place + 1]:g}" if place + 1 < len(bounds) else " or more"
    return f"{bounds[max(place, 0)]:g}{upper}{unit}"


def answers(runs: Sorted) -> list[str]:
    """Give a table of all answers: what each group of runs was told."""
    grown = [one for one in runs.with_it if not one.truth.rare]
    groups: dict[str, list[Judged]] = {
        f"without: {plan}": [one for one in runs.without if one.plan == plan]
        for plan in dict.fromkeys(one.plan for one in runs.without)
    }
    groups["open: too close to a limit to call"] = runs.open
    for low, high in ((0.0, 0.5), (0.5, 1.0), (1.0, 1.5), (1.5, 2.5), (2.5, math.inf)):
        upper = f"{low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
        groups[f"signature, {upper} of the smallest detectable"] = [
            one for one in grown if low <= max(one.truth.carried, 0.0) < high and not one.truth.late
        ]
    for name, least, most in (("below", -math.inf, 1.0), ("above", 1.0, math.inf)):
        kept = [one for one in runs.with_it if least <= one.truth.carried < most]
        groups[f"signature in the last fifth, {name} the smallest detectable"] = [
            one for one in kept if one.truth.late and not one.truth.rare
        ]
        groups[f"rare and extreme, {name} the smallest detectable"] = [one for one in kept if one.truth.rare]
    groups["nothing can be judged"] = [one for one in runs.sound if one.plan == "blind"]
    head = ("runs", "n", "found", "cannot say", "of these: too late", "not found", "run called healthy")
    lines = [
        "| " + " | ".join((*head, *naive.NAMES)) + " |",
        "|---|" + "---:|" * (len(head) - 1 + len(naive.NAMES)),
    ]
    for name, mine in groups.items():
        count = Counter(one.status for one in mine)
        late, healthy = sum(map(is_late_reason, mine)), sum(one.verdict == "healthy" for one in mine)
        cells = [name, len(mine), count["found"], count["cannot_say"], late, count["not_found"], healthy]
        others = [f"{np.mean([one.naive[at] for one in mine]):.0%}" if mine else "" for at in range(len(naive.NAMES))]
        lines.append("| " + " | ".join(map(str, (*cells, *others))) + " |")
    return lines


def data_rates(runs: Sorted) -> list[Rate]:
    """Give false data faults by precision, and how often each planted fault was named."""
    rates = [
        rate(
            f"false data faults, medium or worse, in {precision}: runs without the signature",
            [one for one in runs.without if one.precision == precision],
            _accused,
            0.0,
            at_most=True,
        )
        for precision in sorted({one.precision for one in runs.without})
    ]
    grown = [*runs.with_it, *runs.open]
    rates.append(rate("false data faults, medium or worse: other runs", grown, _accused))
    for name, (_, ids) in PLANTED.items():
        mine = [one for one in runs.faulty if one.fault == name]
        rates.append(rate(f"planted: {name}", mine, partial(_named, ids=ids), 1.0))
    return rates


def _accused(one: Judged) -> bool:
    return any(not fault.endswith(" low") for fault in one.faults)


def _named(one: Judged, *, ids: Sequence[str]) -> bool:
    return any(fault.split()[0] in ids for fault in one.faults)


def other_rates(runs: Sorted) -> list[Rate]:
    """Give what is asked without an aim."""
    found = [one for one in runs.with_it if is_found(one)]
    held = [one for one in found if one.truth.holder is not None]
    free = [one for one in runs.with_it if is_found(one) and one.truth.holder is None]
    small = [one for one in runs.ordinary if one.truth.size < LARGE]
    return [
        rate("recall below 2.5x", small, is_found),
        rate("value with the tail named, where growth was found", held, lambda one: one.holder_named),
        rate("a value named where none has the tail", free, lambda one: one.holder_named),
        rate("limit crossing within a tenth of the run", found, passed),
        rate("onset interval shorter than half the run", found, _short),
    ]


def _short(one: Judged) -> bool | None:
    return None if one.interval is None else one.interval[1] - one.interval[0] <= one.span / 2

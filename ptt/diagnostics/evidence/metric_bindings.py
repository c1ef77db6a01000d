"""Which logged metrics stand for the symbols of an identity, and whether it is about this run at all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import reduce
from itertools import pairwise
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.aliases import bare_name, canonical
from ptt.diagnostics.metrics.identities import Identity
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray

Binding = Mapping[str, Series]
"""The metric of each symbol."""
UNPLACED: Final = "console:"  # names of values that a console prints without a step
MAX_SETS: Final = 512  # of metrics that one identity is held against: more are statistics of layers or of samples
NUMBER: Final = re.compile(r"\d{1,15}(?!\d)")
MAX_NUMBER: Final = 1e15  # of a setting: any larger one is none


class LoggedMetrics:
    """The metrics of a run, by canonical names and by those of their writer."""

    def __init__(self, metrics: Mapping[str, Series], other: Mapping[str, Series]) -> None:
        """Index them; a name that words were read from is none of the framework's."""
        placed = [one for one in (*metrics.values(), *other.values()) if not one.raw_name.startswith(UNPLACED)]
        self._canonical = {name: one for name, one in metrics.items() if canonical(one.raw_name) == name}
        self._bare = {bare_name(one.raw_name): one for one in placed}
        self.bare = sorted(self._bare)
        """The names as logged, without a reporter's prefix."""

    def __getitem__(self, name: str) -> Series | None:
        """Return the metric of a canonical name, or of one as logged."""
        return self._canonical.get(name) or self._bare.get(bare_name(name))

    def first(self, names: list[str]) -> Series | None:
        """Return the first of these that is logged."""
        return next((series for name in names if (series := self[name]) is not None), None)

    def like(self, pattern: str) -> dict[str, Series]:
        """Return the metrics that a name or pattern stands for, by the name, sorted."""
        if "*" not in pattern:
            found = self[pattern]
            return {} if found is None else {found.raw_name: found}
        return {name: self._bare[name] for name in self.bare if _is_like(name, pattern)}


def _is_like(name: str, pattern: str) -> bool:
    """Return whether a name fits a pattern, in which `*` at the end stands for one segment."""
    return fnmatchcase(name, pattern) and name.count("/") == pattern.count("/")


def applies(identity: Identity, facts: Mapping[str, JsonScalar], logged: LoggedMetrics) -> bool:
    """Return whether the settings, the framework and the logged metrics are those that an identity is about."""
    told = {name: str(value).lower() for name, value in facts.items()}
    return (
        (not identity.framework or told.get("framework") in identity.framework)
        and all(told.get(name) in values for name, values in identity.given.items())
        and all(told.get(name, values[0]) in values for name, values in identity.given_if_known.items())
        and not any(told.get(name) in values for name, values in identity.unless.items())
        and all(_is_below(told.get(name), version) for name, version in identity.below.items())
        and all(logged[name] is None for name in identity.absent)
    )


def _is_below(version: str | None, limit: str) -> bool:
    """Return whether a version is known to be below another."""
    return version is not None and [*map(int, NUMBER.findall(version))] < [*map(int, NUMBER.findall(limit))]


def plain_number(value: JsonScalar) -> float | None:
    """Return a setting as a number that can be reckoned with; None for any other."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MAX_NUMBER:
        return None
    return float(value)


def settings_of(identity: Identity, facts: Mapping[str, JsonScalar]) -> dict[str, float]:
    """Return the numbers that an identity takes from the settings; those that are unknown and have no default lack."""
    numbers = {}
    for symbol, names in identity.settings.items():
        default = names[-1] if not isinstance(names[-1], str) else None
        given = [facts[name] for name in names if isinstance(name, str) and name in facts]
        known = [number for value in given if (number := plain_number(value)) is not None]
        if known or default is not None:
            numbers[symbol] = known[0] if known else float(default or 0.0)
    return numbers


def bindings_of(identity: Identity, logged: LoggedMetrics) -> list[Binding]:
    """Return the sets of metrics that an identity is to be held against, `MAX_SETS` at most."""
    found: list[Binding] = []
    alike = {name: series for pattern in identity.each for name, series in logged.like(pattern).items()}
    found.extend({"x": series} for series in alike.values())
    if identity.metrics:
        chosen = {symbol: logged.first(names) for symbol, names in identity.metrics.items()}
        found.append({symbol: series for symbol, series in chosen.items() if series is not None})
    for stem in identity.stems:
        found.extend(_of_stem(stem, logged))
    for text in identity.ladder:
        found.extend(_of_ladder(text, logged))
    return [binding for binding in found if binding][:MAX_SETS]


def _of_stem(stem: Mapping[str, str], logged: LoggedMetrics) -> Iterator[Binding]:
    """Yield the metrics whose names begin alike and end as the stem says, at least two of them."""
    beginnings = {
        name.removesuffix(ending) for ending in stem.values() for name in logged.bare if name.endswith(ending)
    }
    for beginning in sorted(beginnings):
        found = {symbol: logged[beginning + ending] for symbol, ending in stem.items()}
        binding = {symbol: series for symbol, series in found.items() if series is not None}
        if len(binding) > 1:
            yield binding


def _of_ladder(text: str, logged: LoggedMetrics) -> Iterator[Binding]:
    """Yield metrics that differ by the number after a text alone, each with the next larger number."""
    rungs: dict[tuple[str, str], dict[int, str]] = {}
    for name in logged.bare:
        before, found, after = name.partition(text)
        if found and "std" not in name and (number := NUMBER.match(after)):
            rungs.setdefault((before, after[number.end() :]), {})[int(number.group())] = name
    for names in rungs.values():
        numbers = sorted(names)
        for few, many in pairwise(numbers):
            fewer, more = logged[names[few]], logged[names[many]]
            if fewer is not None and more is not None:
                yield {"fewer": fewer, "more": more}


def align(series: Mapping[str, Series]) -> tuple[IntArray, dict[str, FloatArray]]:
    """Return the steps at which each series has a value, (n,), and the values there."""
    finite = {symbol: one.finite() for symbol, one in series.items()}
    steps = reduce(np.intersect1d, (own for own, _ in finite.values()))
    return steps, {symbol: values[np.searchsorted(own, steps)] for symbol, (own, values) in finite.items()}


@dataclass(frozen=True, kw_only=True)
class HeldSteps:
    """One set of metrics held against an identity at the steps that log all of them, (n,)."""

    steps: IntArray
    beyond: FloatArray  # by how much it is broken beyond rounding and tolerance; at most 0 where it holds
    left: FloatArray
    right: FloatArray
    sides: tuple[str, str]  # what the sides are called: a metric as logged, or an expression
    symbols: Mapping[str, tuple[str, FloatArray]]  # what each is logged as, and its values
    names: tuple[str, ...]  # the metrics, as logged
    quantity: str  # the canonical name of the first, or as logged

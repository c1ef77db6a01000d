"""The words a custom rule is made of: windows, comparisons, conditions, and the rule itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.model import CUSTOM, Link, Severity

DEFAULT_WIDTH: Final = 20
MAX_WIDTH: Final = 10_000  # a window is redone at every value: wider ones cost minutes in a long run
MIN_VALUES: Final = 10
"""Without `min_steps`, fewer logged values than this are not judged: half of them would be the run's warm-up."""
SPIKE_WIDTH: Final = 5  # the values among which a spike is looked for: as Microsoft's toolkit has it

PLAIN_AGGREGATES: Final = ("mean", "median", "min", "max", "std", "slope", "last", "nan_count")
NEED_TWO: Final = frozenset({"std", "slope"})

Direction = Literal["<", "<=", ">", ">="]


class RuleError(SettingsError):
    """A custom rule is wrong: the message names file, rule and key."""


@dataclass(frozen=True)
class Moving:
    """Every stretch of so many logged values: the condition may come to hold at any step."""

    width: int


@dataclass(frozen=True)
class Last:
    """The last so many logged values."""

    width: int


@dataclass(frozen=True)
class Part:
    """A third of the logged values, or all of them."""

    name: Literal["early", "mid", "late", "whole"]


Window = Moving | Last | Part


@dataclass(frozen=True)
class Bound:
    """Above or below a number."""

    direction: Direction
    value: float


@dataclass(frozen=True)
class Between:
    """From `low` to `high`, both included."""

    low: float
    high: float


@dataclass(frozen=True)
class Outside:
    """Below `low` or above `high`."""

    low: float
    high: float


@dataclass(frozen=True)
class TimesEarly:
    """Above or below so many times the early level."""

    direction: Direction
    factor: float


@dataclass(frozen=True)
class Change:
    """At least `share` of the early level's size above it, or below it where `share` is negative."""

    share: float


@dataclass(frozen=True)
class Spike:
    """One of the last few values is at least so many times the mean of the window before them."""

    factor: float


Comparison = Bound | Between | Outside | TimesEarly | Change | Spike
RELATIVE: Final = (TimesEarly, Change)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement on one metric."""

    metric: str
    comparison: Comparison
    aggregate: str = "mean"
    window: Window = Moving(DEFAULT_WIDTH)


@dataclass(frozen=True)
class AllOf:
    """Holds where every part does."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class AnyOf:
    """Holds where some part does."""

    parts: tuple[Condition, ...]


Condition = Statement | AllOf | AnyOf


@dataclass(frozen=True, kw_only=True)
class CustomRule:
    """One rule of a user's."""

    id: str  # without the prefix
    file: str  # the name of the file it stands in
    severity: Severity
    link: Link
    condition: Condition
    claim: str = ""  # a template; empty: the condition in words
    why: str = ""
    reference: str = ""
    causes: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    families: frozenset[Family] = field(default_factory=frozenset)  # empty: every one
    algorithms: tuple[str, ...] = ()  # likewise
    for_steps: int = 1
    min_steps: int = MIN_VALUES
    enabled: bool = True

    @property
    def name(self) -> str:
        """The id that findings carry."""
        return CUSTOM + self.id


def tests_of(condition: Condition) -> Iterator[Statement]:
    """Yield the tests of a condition, in the order they are written."""
    if isinstance(condition, Statement):
        yield condition
    else:
        for part in condition.parts:
            yield from tests_of(part)

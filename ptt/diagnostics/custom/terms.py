"""The words of a custom rule: windows, comparisons, conditions, claims with fields, and how each is read and said."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from difflib import get_close_matches
from typing import Final, Literal, cast

from ptt.diagnostics.definitions import compiled, dataclass
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.evidence.algorithm import CRITIC_NAMES, GROUP_NAMES, NAMES, Algorithm, Family, kin
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.metrics.catalogue import link_name
from ptt.diagnostics.model import CUSTOM, Link, Severity
from ptt.diagnostics.statistics.logprob_pairs import DEFAULT_ORDER

DEFAULT_WIDTH: Final = 20
MAX_WIDTH: Final = 10_000  # a window is redone at every value: wider ones cost minutes in a long run
MIN_VALUES: Final = 10
"""Without `min_steps`, fewer logged values than this are not judged: half of them would be the run's warm-up."""
SPIKE_WIDTH: Final = 5  # the values among which a spike is looked for: as Microsoft's toolkit has it

PLAIN_AGGREGATES: Final = ("mean", "median", "min", "max", "std", "slope", "last", "nan_count")
NEED_TWO: Final = frozenset({"std", "slope"})

Direction = Literal["<", "<=", ">", ">="]

OF_CONDITION: Final = ("value", "limit", "early")
FIELDS: Final = (*OF_CONDITION, "onset")
_FIELD: Final = compiled(r"\{\{|\}\}|\{(\w+)(?::([^{}]*))?\}|[{}]")
_FORMAT: Final = compiled(r",?(?:\.\d)?[efg%]?")


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
    algorithms: tuple[str, ...] = ()  # empty: every one
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


TOKENS: Final = "tokens:"
"""Begins the name of a statistic of recorded tokens: tokens:PAIR:SLICE:STATISTIC, one value a step."""
SLICES: Final = ("text_only", "post_tool", "post_observation")
STATISTICS: Final = ("p50", "p95", "p99", "p999", "mean_r", "mean_abs_r", "second_moment", "chi2", "ess_fraction",
                     "ess_fraction_inverse", "k1", "k2", "k3", "n")  # fmt: skip

_ID: Final = compiled(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
TRAINERS: Final = {"dpo", "ppo", "sft", "orpo", "kto", "cpo", "grpo"}
KIN: Final = {"ppo": CRITIC_NAMES, "grpo": GROUP_NAMES - {"rloo"}}
"""Names under which frameworks configure the same algorithm, or a loss of its trainer."""


def link_of(metric: str) -> Link | None:
    """Return the link that a metric's canonical name tells, or None."""
    name = canonical(metric) or metric
    link = link_name(name)
    return Link(link) if link else None


def checked_id(text: str) -> str:
    """Return an id that is safe in reports and settings."""
    if not _ID.fullmatch(text):
        raise RuleError(f"{text!r} is not a valid id; use at most 80 letters, digits, dots, dashes and underscores")
    return text


def checked_metric(text: str) -> str:
    """Return a metric's name; that of a token statistic must be one there is."""
    name = text.strip()
    if not name or any(sign.isspace() or not sign.isprintable() for sign in name):
        raise RuleError(f"{text!r} is not a metric's name: it is empty or contains a space")
    if name.startswith(TOKENS):
        parts = name.removeprefix(TOKENS).split(":")
        for part, known in zip(parts, (DEFAULT_ORDER, SLICES, STATISTICS), strict=False):
            if part not in known:
                raise RuleError(f"{name}: {unknown(part, known)}")
        if len(parts) != 3:
            raise RuleError(f"{name}: a token statistic is named tokens:PAIR:SLICE:STATISTIC")
    return name


def checked_algorithms(names: Iterable[str]) -> tuple[str, ...]:
    """Return the algorithms a rule is for; none where it is for every one."""
    given = [name.strip().lower() for name in names]
    known = [*NAMES, "all", "common"]
    for name in given:
        if name not in known:
            raise RuleError(unknown(name, known))
    return () if {"all", "common"} & set(given) else tuple(dict.fromkeys(given))


def unknown(name: str, known: Collection[str]) -> str:
    """Return the message for a name that is not known, with those close to it."""
    near = " or ".join(repr(str(candidate)) for candidate in closest(name, known)[:2])
    return f"{name!r} is unknown; " + (f"is {near} meant?" if near else f"known are {', '.join(known)}")


def closest(name: str, known: Iterable[str]) -> Sequence[str]:
    """Return up to three names like this one, most alike first: as a whole, or in their last part."""
    names = sorted(set(known))
    near = get_close_matches(name, names, n=3)
    if not near:
        last = {full_name.rsplit("/", 1)[-1]: full_name for full_name in reversed(names)}
        near = [last[part] for part in get_close_matches(name.rsplit("/", 1)[-1], sorted(last), n=3)]
    return near


def is_for(algorithms: Sequence[str], run: Algorithm) -> bool | None:
    """Return whether a rule for these algorithms applies to a run; None if the files do not say."""
    if not algorithms:
        return True
    if run.name is not None:
        return any(run.name == name or run.name in KIN.get(name, ()) for name in algorithms)
    if run.family is not None:
        return any(run.family in kin(NAMES[name]) for name in algorithms)
    return None


def check_template(template: str, conditions: int = 1) -> None:
    """Refuse a template with unknown fields, an invalid format, or a single brace.

    Of several conditions each has fields of its own, numbered from 1 as written: `{value2}`.
    """
    numbered = [f"{name}{number}" for number in range(1, conditions + 1) for name in OF_CONDITION]
    known = (*FIELDS, *numbered) if conditions > 1 else FIELDS
    for part in _FIELD.finditer(template):
        if part.group() in {"{", "}"}:
            raise RuleError(f"a single {part.group()!r}; write it twice to print it")
        name, form = part.group(1), part.group(2) or ""
        if name is not None and name not in known:
            raise RuleError(f"there is no field {{{name}}}; known are {', '.join(known)}")
        if not _FORMAT.fullmatch(form):
            raise RuleError(f"{form!r} is not a number format; write for example {{value:.3f}} or {{value:.1%}}")


def fill_template(template: str, values: Mapping[str, float | int | None]) -> str:
    """Fill a template that `check_template` let pass; a value that is not known reads "unknown"."""

    def formatted(part: re.Match[str]) -> str:
        if part.group(1) is None:
            return part.group()[0]
        value = values.get(part.group(1))
        if value is None:
            return "unknown"
        form = part.group(2) or ("d" if isinstance(value, int) else ".4g")
        return format(value if form in {"d", ","} else float(value), form)

    return _FIELD.sub(formatted, template)


NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
MAX_TEXT: Final = 200  # characters of a comparison
MICROSOFT_TOLERANCE: Final = 0.02  # what `== N` of Microsoft's toolkit allows on either side
FORMS: Final = (
    '"> 0.3" (or <, <=, >=), "between 0.68 and 0.71", "outside 0.5 and 2", "== 1 within 0.02", '
    '"> 2 times_early", "drop 50%", "rise 50%", "spike 2.5x"'
)
MICROSOFT_SYNTAX: Final = "< N, <= N, > N, >= N, == N, range(A, B), drop(N%), spike(Nx)"

Groups = tuple[str, ...]


def _pattern(text: str) -> re.Pattern[str]:
    return compiled(text.replace("NUMBER", f"({NUMBER})").replace(" ", r"\s*"), re.IGNORECASE)


def _span(kind: Callable[[float, float], Comparison], low: str, high: str) -> Comparison:
    if float(low) > float(high):
        raise RuleError(f"the range from {low} to {high} is empty; give the smaller number first")
    return kind(float(low), float(high))


def _within_tolerance(value: str, tolerance: str) -> Comparison:
    return _span(Between, repr(float(value) - float(tolerance)), repr(float(value) + float(tolerance)))


def _change(share: str, sign: float) -> Comparison:
    if not 0 < float(share) <= 1e6:
        raise RuleError(f"a change by {share}% is no change; give a percentage above 0")
    return Change(sign * float(share) / 100.0)


def _spike(factor: str) -> Comparison:
    if float(factor) <= 1:
        raise RuleError(f"a spike of {factor}x is no spike; give a factor above 1")
    return Spike(float(factor))


Form = tuple[re.Pattern[str], Callable[[Groups], Comparison]]

SHARED: Final[tuple[Form, ...]] = (
    (_pattern(r" (<=|>=|<|>) NUMBER "), lambda g: Bound(cast(Direction, g[0]), float(g[1]))),
    (_pattern(r" drop \( NUMBER % \) "), lambda g: _change(g[0], -1.0)),
    (_pattern(r" spike \( NUMBER x \) "), lambda g: _spike(g[0])),
    (_pattern(r" range \( NUMBER , NUMBER \) "), lambda g: _span(Between, *g)),
)
PTT_FORMS: Final[tuple[Form, ...]] = (
    (_pattern(r" between\s+NUMBER\s+and\s+NUMBER "), lambda g: _span(Between, *g)),
    (_pattern(r" outside\s+NUMBER\s+and\s+NUMBER "), lambda g: _span(Outside, *g)),
    (_pattern(r" == NUMBER\s+within\s+NUMBER "), lambda g: _within_tolerance(*g)),
    (_pattern(r" (<=|>=|<|>) NUMBER\s+times[_ ]early "), lambda g: TimesEarly(cast(Direction, g[0]), float(g[1]))),
    (_pattern(r" drop\s+NUMBER % "), lambda g: _change(g[0], -1.0)),
    (_pattern(r" rise\s+NUMBER % "), lambda g: _change(g[0], 1.0)),
    (_pattern(r" spike\s+NUMBER x "), lambda g: _spike(g[0])),
)
MICROSOFT_FORMS: Final[tuple[Form, ...]] = (
    (_pattern(r" == NUMBER "), lambda g: _within_tolerance(g[0], str(MICROSOFT_TOLERANCE))),
    (_pattern(r" drop \( NUMBER \) "), lambda g: _change(g[0], -1.0)),
    (_pattern(r" spike \( NUMBER \) "), lambda g: _spike(g[0])),
)


def comparison_of(text: str, *, theirs: bool = False) -> Comparison:
    """Read a comparison; `theirs` also takes what only Microsoft's toolkit writes, as it means it."""
    if len(text) > MAX_TEXT:
        raise RuleError(f"{text[:40].strip()!r}... is not a comparison: it has more than {MAX_TEXT} characters")
    for pattern, make in (*SHARED, *PTT_FORMS, *(MICROSOFT_FORMS if theirs else ())):
        if match := pattern.fullmatch(text):
            made = make(match.groups())
            if any(abs(value) == float("inf") for value in vars(made).values() if isinstance(value, float)):
                raise RuleError(f"{text.strip()!r} has a number that is too large")
            return made
    raise RuleError(f"{text.strip()!r} is not a comparison; there are {MICROSOFT_SYNTAX if theirs else FORMS}")


DIRECTION_WORDS: Final = {"<": "below", "<=": "at most", ">": "above", ">=": "at least"}
AGGREGATES: Final = {
    "mean": "mean", "median": "median", "min": "smallest", "max": "largest", "last": "latest value",
    "std": "standard deviation", "slope": "slope per step", "nan_count": "count of NaN and infinite values",
}  # fmt: skip


def in_words(test: Statement) -> str:
    """Return what a test states: "mean of kl/ref over 20 values is above 0.3"."""
    if isinstance(test.comparison, Spike):
        subject = f"one of 5 values of {test.metric}"
    else:
        subject = f"{_aggregate(test.aggregate)} of {test.metric}"
    return f"{subject} {_window_words(test.window)} is {_compared(test.comparison)}"


def _aggregate(name: str) -> str:
    return AGGREGATES.get(name) or f"{name.removeprefix('p').lstrip('0')}th percentile"


def _window_words(window: Window) -> str:
    match window:
        case Moving(width=width):
            return f"over {width} values"
        case Last(width=width):
            return f"over the last {width} values"
        case Part(name="whole"):
            return "over the whole run"
        case Part(name=name):
            return f"over the {name} third"


def _compared(comparison: Comparison) -> str:
    match comparison:
        case Bound(direction=direction, value=value):
            return f"{DIRECTION_WORDS[direction]} {value:g}"
        case Between(low=low, high=high):
            return f"between {low:g} and {high:g}"
        case Outside(low=low, high=high):
            return f"outside {low:g} to {high:g}"
        case TimesEarly(direction=direction, factor=factor):
            return f"{DIRECTION_WORDS[direction]} {factor:g} times its early level"
        case Change(share=share):
            return f"{100 * abs(share):g}% or more {'above' if share > 0 else 'below'} its early level"
        case Spike(factor=factor):
            return f"{factor:g} times or more the mean before"

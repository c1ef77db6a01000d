"""The policy of a gate: what a run or a set of traces must show to pass, and the names that it may use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from datetime import date
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.documents import MAX_INTEGER, DocumentError, closest
from ptt.diagnostics.gate.baseline.values import Baseline
from ptt.diagnostics.metrics.aliases import canonical_names
from ptt.diagnostics.metrics.catalogue import ANY, known
from ptt.diagnostics.model import JsonScalar, Severity
from ptt.diagnostics.rules import LIMITS, RULES
from ptt.diagnostics.statistics.bins import HIGHEST_EXPONENT
from ptt.diagnostics.traces.compare import TraceSide
from ptt.diagnostics.traces.diagnose import CHECKS
from ptt.diagnostics.traces.model import MEASURES
from ptt.diagnostics.verdict.catalogue import OF_ONE_RULE

POOLED: Final = "pooled"
"""The only level of a tail or an effective sample size: that of all tokens of the window together."""
TAIL, ESS, LOGGED = "tail.", "ess.", "logged:"

MARGIN: Final = 0.05  # of the trials: five points less success is what people call a loss
MAX_MARGIN: Final = 0.5
KEY: Final = "traces"

Unit = Annotated[float, Meta(ge=0, le=1)]
Margin = Annotated[float, Meta(gt=0, le=MAX_MARGIN)]

MIN_STEPS: Final = 20
"""Logged steps. Rules judge by means over 20 of them: a shorter run passes most rules because it ended, not because it
was well."""
BASELINE_LIMIT: Final = 1.25
"""Times the baseline. Two seeds of one setting differ by less in most tails; a tail 1.6 times as high fails."""

Text = Annotated[str, Meta(pattern=r"\S", max_length=500)]  # a reason is a sentence


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


class ShareTable(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`[gate.traces] NAME = { min = ..., max = ..., confidence = ... }`."""

    min: Unit | None = None
    max: Unit | None = None
    confidence: Annotated[float, Meta(ge=0.5, lt=1)] | None = None


class TraceBaselineTable(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`[gate.traces.baseline]`."""

    path: Text
    margin: Margin | dict[str, Margin] = MARGIN


class TracesTable(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`[gate.traces]`: beside its own keys one for each share of MEASURES."""

    min_episodes: Annotated[int, Meta(ge=1, le=MAX_INTEGER)] | None = None
    baseline: TraceBaselineTable | None = None
    success_rate: ShareTable | None = None
    tool_failure_rate: ShareTable | None = None
    malformed_rate: ShareTable | None = None
    loop_rate: ShareTable | None = None
    truncated_rate: ShareTable | None = None
    void_rate: ShareTable | None = None
    recovery_rate: ShareTable | None = None
    refusal_rate: ShareTable | None = None
    repetition_rate: ShareTable | None = None
    duplicate_rate: ShareTable | None = None
    pseudo_success_rate: ShareTable | None = None


@dataclass(frozen=True, kw_only=True)
class ShareBound:
    """What a share must not pass; with `confidence`, as sure as that."""

    name: str
    low: float | None
    high: float | None
    confidence: float | None = None


@dataclass(frozen=True, kw_only=True)
class TraceBaseline:
    """The traces that others must not be worse than, by more than the margin of each share."""

    path: Path
    margins: Mapping[str, float]
    named: bool  # the policy names the shares: each must be judged
    held: TraceSide | None = None  # what lies there, once it was read


@dataclass(frozen=True, kw_only=True)
class TraceDemands:
    """What traces must show to pass."""

    min_episodes: int | None = None
    bounds: tuple[ShareBound, ...] = ()
    baseline: TraceBaseline | None = None

    def flat(self) -> dict[str, JsonScalar]:
        """Return what is demanded as plain values by name, for the record."""
        flat: dict[str, JsonScalar] = {} if self.min_episodes is None else {"traces.min_episodes": self.min_episodes}
        for bound in self.bounds:
            ends = {"min": bound.low, "max": bound.high, "confidence": bound.confidence}
            flat |= {f"traces.{bound.name}.{key}": value for key, value in ends.items() if value is not None}
        if self.baseline is not None:
            flat |= {f"traces.baseline.margin.{name}": margin for name, margin in self.baseline.margins.items()}
        return flat


def read_demands(table: TracesTable | None, path: Path) -> TraceDemands | None:
    """Return the demands of a settings file's table; None where it has none. DocumentError names what is wrong."""
    if table is None:
        return None
    given = {name: getattr(table, name) for name in MEASURES}
    bounds = tuple(_bound(name, share) for name, share in given.items() if share is not None)
    if not bounds and table.baseline is None and table.min_episodes is None:
        names = ", ".join(MEASURES)
        raise DocumentError(KEY, f"demands nothing; name a share, such as success_rate = {{ min = 0.6 }}: {names}")
    baseline = None if table.baseline is None else _baseline(table.baseline, path)
    return TraceDemands(min_episodes=table.min_episodes, bounds=bounds, baseline=baseline)


def _bound(name: str, table: ShareTable) -> ShareBound:
    key = f"{KEY}.{name}"
    if table.min is None and table.max is None:
        raise DocumentError(key, "has neither max nor min: no traces could ever fail it")
    if table.min is not None and table.max is not None and table.min > table.max:
        raise DocumentError(f"{key}.min", f"is {table.min:g}, above max, {table.max:g}: no traces could ever pass")
    if table.min == 0 or table.max == 1:
        which = "min" if table.min == 0 else "max"
        raise DocumentError(f"{key}.{which}", "is passed by every share: leave it out")
    return ShareBound(name=name, low=table.min, high=table.max, confidence=table.confidence)


def _baseline(table: TraceBaselineTable, path: Path) -> TraceBaseline:
    margin = table.margin
    if isinstance(margin, float | int):
        margins, named = dict.fromkeys(MEASURES, float(margin)), False
    else:
        margins, named = dict(margin), True
        for name in margins:
            if name not in MEASURES:
                raise DocumentError(f"{KEY}.baseline.margin", f"{name!r} is no share; {closest(name, MEASURES)}")
    return TraceBaseline(path=path.parent / table.path.strip(), margins=margins, named=named)


class Allowance(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A finding that may stand up to and including a day, because someone answers for it: `[[gate.allow]]`."""

    finding: Text
    owner: Text
    reason: Text
    expires: date
    slice: Text | None = None

    def __post_init__(self) -> None:
        """Leave out the blanks around what was written."""
        for key in ("finding", "owner", "reason", "slice"):
            if text := getattr(self, key):
                force_setattr(self, key, text.strip())

    @property
    def name(self) -> str:
        """What it covers, as ids of checks spell it."""
        return self.finding + (f"/{self.slice}" if self.slice else "")


@dataclass(frozen=True, kw_only=True)
class Window:
    """A part of what was logged: a third, everything, or so many values at the end."""

    name: str  # early, mid, late, all or last
    count: int = 0  # of `last`

    def __str__(self) -> str:
        """Spell it as the settings do."""
        return f"last {self.count}" if self.name == "last" else self.name


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What a statistic of a metric over a window must not pass."""

    name: str
    subject: Subject
    statistic: str
    window: Window
    low: float | None  # `min` of the settings
    high: float | None  # `max`
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How far a run must have come before a verdict on it counts."""

    min_steps: int | None = MIN_STEPS
    last_step: int | None = None
    min_sequences: int | None = None
    min_model_tokens: int | None = None
    max_lost: float | None = None  # share of its bytes; None: the usual one, and no file of tokens or metrics whole


@dataclass(frozen=True, kw_only=True)
class AgainstBaseline:
    """What is held against a baseline, and how much worse it may be beyond noise."""

    file: Path
    limit: float = BASELINE_LIMIT
    metrics: Mapping[str, str | None] | None = None  # to the worse direction, None: the known one; None: all known
    held: Baseline | None = None  # what the file holds, once it was read


ADVISORY: Final = "advisory:"
"""Begins what an allowance calls an advisory, and the id of its check."""


@dataclass(frozen=True, kw_only=True)
class AdvisoryDemands:
    """Which advisories fail a run: those of a severity or worse, and those of these ids."""

    severity: Severity | None = None
    ids: tuple[str, ...] = ()
    notes: bool = False  # those that only would apply fail it too

    def reaches(self, name: str, severity: Severity) -> bool:
        """Return whether an advisory of this id and severity fails a run."""
        return name in self.ids or (self.severity is not None and severity.at_least(self.severity))


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a run must show to pass."""

    severity: Severity | None = Severity.HIGH
    cannot_say_passes: bool = False
    require: tuple[str, ...] = ()
    extent: Extent = field(default_factory=Extent)
    allow: tuple[Allowance, ...] = ()
    bounds: tuple[Bound, ...] = ()
    baseline: AgainstBaseline | None = None
    traces: TraceDemands | None = None
    advisories: AdvisoryDemands | None = None
    judged_by: tuple[str, ...] = ()  # other parts of the settings that a diagnosis hangs on: [limits], own rules

    def flat(self) -> dict[str, JsonScalar]:
        """Return what is demanded as plain values by name, for the record."""
        settings: dict[str, JsonScalar] = {
            "severity": self.severity.value if self.severity else "never",
            "cannot_say": "pass" if self.cannot_say_passes else "fail",
        }
        if self.require:
            settings["require"] = ", ".join(self.require)
        for key in ("min_steps", "last_step", "min_sequences", "min_model_tokens"):
            if (value := getattr(self.extent, key)) is not None:
                settings[key] = value
        if self.extent.max_lost is not None:
            settings["max_lost"] = self.extent.max_lost
        for allowance in self.allow:
            settings[f"allow.{allowance.name}"] = (
                f"{allowance.owner}, until {allowance.expires.isoformat()}: {allowance.reason}"
            )
        for bound in self.bounds:
            settings[f"bound.{bound.name}"] = f"{bound.statistic} of {name_of(bound.subject)} over {bound.window}"
            if bound.low is not None:
                settings[f"bound.{bound.name}.min"] = bound.low
            if bound.high is not None:
                settings[f"bound.{bound.name}.max"] = bound.high
            if bound.unit:
                settings[f"bound.{bound.name}.unit"] = bound.unit
        if self.advisories:
            settings["advisories.severity"] = getattr(self.advisories.severity, "value", "never")
            settings["advisories.ids"] = ", ".join(self.advisories.ids)
            settings["advisories.notes"] = self.advisories.notes
        if self.baseline:
            settings["baseline.limit"] = self.baseline.limit
        return settings | (self.traces.flat() if self.traces else {})


MAX_SEVERITY: Final[Mapping[str, Severity]] = {
    "tail-growth-immaterial": Severity.INFO,
    **{rule.id: rule.max_severity for rule in RULES if rule.max_severity is not Severity.CRITICAL},
}
"""Findings that are never more severe than this, whatever the run; all others can be critical."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """The ids that a policy may name, with severities; `custom` are rules of the user's own, `advisories` are all."""

    custom: Mapping[str, Severity] = field(default_factory=dict)
    advisories: Mapping[str, Severity] = field(default_factory=dict)

    @property
    def rules(self) -> frozenset[str]:
        """Ids of rules, which can be required."""
        return frozenset({*LIMITS, *self.custom})

    @property
    def findings(self) -> frozenset[str]:
        """Ids of findings, which can be allowed."""
        return self.rules | OF_ONE_RULE.keys() | {check.id for check in CHECKS}

    def at_most(self, finding: str) -> Severity:
        """Return the worst that a finding of this id can be."""
        return self.custom.get(finding) or MAX_SEVERITY.get(finding, Severity.CRITICAL)


def rule_of(finding: str) -> str:
    """Return the rule that makes findings of this id."""
    return OF_ONE_RULE.get(finding, finding)

"""What a rule is: a failure by name, its limits beside their reasons, and one check with three answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import wraps
from typing import Final, TypeVar

from ptt.diagnostics import model
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence import algorithm as kinds
from ptt.diagnostics.evidence.algorithm import Family, samples_online
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import JsonScalar, Link, Severity, Steps

Limits = Mapping[str, float]
EVERY: Final = frozenset(Family)
ONLINE: Final = kinds.SAMPLED
LANGUAGE: Final = kinds.LANGUAGE
REWARDED: Final = kinds.REWARDED
REWARDED_LANGUAGE: Final = LANGUAGE & REWARDED
OFFLINE: Final = EVERY - ONLINE
OF_LINK: Final[Mapping[Link, frozenset[Family]]] = {
    Link.DATA_VALIDITY: LANGUAGE,
    Link.ENVIRONMENT: LANGUAGE,
    Link.DATA_FRESHNESS: LANGUAGE,
    Link.REWARD: REWARDED,
    Link.CRITIC: REWARDED,
    Link.EVALUATION: REWARDED,
    Link.TRAINING_SIGNAL: REWARDED,
}
"""The kinds of training that can fail at a link of the loop, unless a rule names its own: else all that sample."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found; `Rule.run` turns it into a `model.Finding`, which documents the fields."""

    severity: Severity
    claim: str
    observed: float | None
    limit: float | None
    unit: str
    slice: str | None = None
    link: Link | None = None  # None: the rule's own; another if the finding itself shows where the fault is
    onset_step: int | None = None
    onset_interval: Steps | None = None
    held_from_step: int | None = None
    evidence: Mapping[str, JsonScalar] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    next: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Broken:
    """Several findings of one check."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class Healthy:
    """A check that looked and found nothing wrong; `notes` are findings worth knowing, at most low."""

    reason: str
    notes: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NotJudged:
    """A question that this run cannot answer, why, and what to record so that the next one can."""

    reason: str
    missing: tuple[str, ...] = ()
    enable: str = ""
    applies: bool = True  # False: the question makes no sense for this kind of training
    absent: bool = False  # True: nothing at all of what is missing is recorded, and the reason says so


Verdict = Finding | Broken | Healthy | NotJudged
"""What a check answers; the rule that asked adds its id and link."""
Check = Callable[[Evidence, Limits], Verdict]
Reading = TypeVar("Reading")


def requires(
    read: Callable[[Evidence], Reading | NotJudged],
) -> Callable[[Callable[[Reading, Evidence, Limits], Verdict]], Check]:
    """Hand a check what `read` returns, before its evidence and limits; where that is NotJudged, it is the answer."""

    def decorate(check: Callable[[Reading, Evidence, Limits], Verdict]) -> Check:
        @wraps(check)
        def checked(evidence: Evidence, limits: Limits) -> Verdict:
            reading = read(evidence)
            return reading if isinstance(reading, NotJudged) else check(reading, evidence, limits)

        return checked

    return decorate


def identified(verdict: Verdict, rule: str, link: Link) -> model.RuleVerdict:
    """Return the verdict of a check as that of a rule: with its id and link, in findings that name no other too."""

    def finding(unidentified: Finding) -> model.Finding:
        return model.Finding(id=rule, **{**vars(unidentified), "link": unidentified.link or link})

    match verdict:
        case Finding():
            return model.Broken(findings=(finding(verdict),))
        case Broken(findings=findings):
            return model.Broken(findings=tuple(map(finding, findings)))
        case Healthy(reason=reason, notes=notes):
            return model.Healthy(id=rule, link=link, reason=reason, notes=tuple(map(finding, notes)))
        case NotJudged():
            return model.NotJudged(id=rule, link=link, **vars(verdict))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One failure. `limits` can be set in `ptt.toml` under [limits.<id>]; the module's docstring is its page."""

    id: str
    link: Link
    check: Check
    limits: Limits = field(default_factory=dict)
    judges_nan: bool = False  # whether NaN is what the rule judges
    families: frozenset[Family] = ONLINE  # the kinds of training that can fail like this
    max_severity: Severity = Severity.CRITICAL  # no finding is worse, whatever the run: a gate cannot ask for more

    def run(self, evidence: Evidence) -> model.RuleVerdict:
        """Check with the limits in force; a run that cannot fail so is not asked."""
        return identified(self._verdict(evidence), self.id, self.link)

    def _verdict(self, evidence: Evidence) -> Verdict:
        family = evidence.algorithm.family
        if family is not None and family not in self.families:
            return does_not_apply(f"{evidence.algorithm.title} training")
        requested = RequestedMetrics(evidence.metrics)
        limits = {**self.limits, **evidence.limits.get(self.id, {})}
        verdict = self.check(replace(evidence, metrics=requested), limits)
        if self.judges_nan or not isinstance(verdict, Healthy) or not (nonfinite := requested.nonfinite()):
            return verdict
        # a clean answer based on a metric that turned into NaN or infinity proves nothing
        lost = ", ".join(
            f"{series.raw_name} is NaN or infinite at {series.not_numbers} of {series.count} steps"
            for series in nonfinite
        )
        return NotJudged(
            reason=f"{lost}; of the rest: {verdict.reason}",
            missing=tuple(series.name for series in nonfinite),
            enable="first find out why these values are not finite: see metrics-lost and nan-precursors",
        )


def rule(
    check: Check,
    name: str,
    link: Link,
    /,
    *,
    families: frozenset[Family] | None = None,
    judges_nan: bool = False,
    max_severity: Severity = Severity.CRITICAL,
    **limits: float,
) -> Rule:
    """Return the rule of a check: its id, its link, and its limits by name; without `families` those of its link."""
    return Rule(
        id=name,
        link=link,
        check=check,
        limits=limits,
        judges_nan=judges_nan,
        families=OF_LINK.get(link, ONLINE) if families is None else families,
        max_severity=max_severity,
    )


class RequestedMetrics(Mapping[str, Series]):
    """The metrics, and which of them a rule asked for by name."""

    def __init__(self, metrics: Mapping[str, Series]) -> None:
        """Begin with nothing asked."""
        self._metrics = metrics
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Series:
        """Return a metric, and remember that it was asked for."""
        self.names.add(name)
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._metrics)

    def __len__(self) -> int:
        """Count the metrics."""
        return len(self._metrics)

    def nonfinite(self) -> list[Series]:
        """Return those asked for that are NaN or infinite at the end, or for a good part of the run."""
        return [self._metrics[name] for name in sorted(self.names & self._metrics.keys()) if self._metrics[name].lost]


def by_kind(evidence: Evidence, *, sampled: str, given: str) -> str:
    """Return what to say to training that samples its own data, or whose kind is open, and to that on given data."""
    return sampled if samples_online(evidence.algorithm) else given


def does_not_apply(training: str) -> NotJudged:
    """Return that the question makes no sense for this run; `training` completes "does not apply to"."""
    return NotJudged(reason=f"does not apply to {training}", applies=False)

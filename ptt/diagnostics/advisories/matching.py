"""Hold advisories against a setup and, where there is one, against what its run shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from ptt.diagnostics.advisories.advisory import Advisory, Database, MetricCondition, RunSignature, distribution
from ptt.diagnostics.advisories.conditions import METRICS_OF_RELEASES, RangeAnswer, SettingAnswer, holds, in_range
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.mismatch_causes import Sign
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.training_setup import TrainingSetup
from ptt.diagnostics.model import AdvisoryMatch, AdvisoryReport, DiagnosisRecord, Severity, Strength
from ptt.diagnostics.statistics.arrays import FloatArray

PRESENCE: Final = ("present", "absent")  # what a metric is, without any shape
MIN_VALUES: Final = 5  # of a metric, to say that it grows or falls: two thirds of them are compared
RANK_CORRELATION: Final = 0.5  # of values with steps: a random walk of few values is often above, white noise hardly
NEAR_NOTHING: Final = 0.2  # of what a metric is later: a first step before the fault set in
SPIKE_WIDTHS: Final = 10.0  # median absolute deviations from the median
MIN_SPIKE_VALUES: Final = 10
CONSOLE: Final = "console:"  # begins the names of what is printed and not counted in steps
TOGETHER: Final = 0.9  # correlation of two metrics that are called the same thing
EQUAL: Final = 1e-6  # relative
COUNTS: Final = Severity.LOW
"""A finding below it is a note, and no sign of anything."""
Tri = bool | None


class Lookup(Protocol):
    """The series of a run by any of their names."""

    def found(self, name: str) -> Series | None:
        """Return the series of this name, if there is one."""


@dataclass(frozen=True, kw_only=True)
class SignatureAnswer:
    """Whether a run shows a signature, by which findings, and what to record where it cannot say."""

    shown: Tri
    faint: bool = False  # by findings of low severity alone
    findings: tuple[str, ...] = ()
    would_show: tuple[str, ...] = ()


def shown_by(signature: RunSignature, record: DiagnosisRecord, lookup: Lookup) -> SignatureAnswer:
    """Look for a signature in a run that was judged."""
    if not signature.shown:
        return SignatureAnswer(shown=None)
    found = {finding.id for finding in record.findings if finding.severity.at_least(COUNTS)}
    severe = {finding.id: finding.severity for finding in reversed(record.findings)}
    blind = {item.id: item.enable for item in record.not_judged if item.applies}
    parts: list[Tri] = []
    would: list[str] = []
    if signature.any_finding:
        parts.append(_any([_judged(name, found, blind) for name in signature.any_finding]))
        would += [blind[name] for name in signature.any_finding if parts[-1] is None and name in blind]
    for name in signature.all_findings:
        parts.append(_judged(name, found, blind))
        would += [blind[name]] if parts[-1] is None and name in blind else []
    parts += [None if name in blind else name not in found for name in signature.no_finding]
    for metric in signature.metrics:
        parts.append(_shape(metric, lookup))
        would += [f"log {name}" for name in _unlogged(metric, lookup)] if parts[-1] is None else []
    measured = parts[len(parts) - len(signature.metrics) :]
    telling = any(metric.is_ not in PRESENCE for metric in signature.metrics)
    if signature.any_finding and parts[0] is None and telling and all(measured):
        parts[0] = True  # no rule could judge it, and what the metrics show is as good
    shown = False if False in parts else None if None in parts else True
    named = tuple(name for name in signature.any_finding + signature.all_findings if name in found)
    return SignatureAnswer(
        shown=shown,
        faint=bool(named) and not telling and all(severe[name] is COUNTS for name in named),
        findings=named if shown else (),
        would_show=tuple(dict.fromkeys(filter(None, would))) if shown is None else (),
    )


def _judged(name: str, found: set[str], blind: Mapping[str, str]) -> Tri:
    return True if name in found else None if name in blind else False


def _any(answers: list[Tri]) -> Tri:
    return True if True in answers else None if None in answers else False


def _unlogged(metric: MetricCondition, lookup: Lookup) -> Iterator[str]:
    for name in (metric.name, metric.other):
        if name is not None and _series(name, lookup) is None:
            yield name


def _series(name: str, lookup: Lookup) -> Series | None:
    """Return a series by its name, also where only a console has it."""
    return lookup.found(name) or lookup.found(f"{CONSOLE}{name}")


def _shape(metric: MetricCondition, lookup: Lookup) -> Tri:
    """Say whether a metric has a shape; None where it is not logged, or too short to say."""
    found = _series(metric.name, lookup)
    series = None if found is None or not np.isfinite(found.values).any() else found
    if metric.is_ in PRESENCE:
        return (series is not None) is (metric.is_ == "present")
    if series is None:
        return None
    if metric.other is not None:
        other = _series(metric.other, lookup)
        return None if other is None else _of_two(metric.is_, series, other)
    values = series.finite()[1]
    if metric.value is not None:
        median = float(np.median(values))
        return median > metric.value if metric.is_ == "above" else median < metric.value
    return SHAPES[metric.is_](values)


def _of_two(shape: str, series: Series, other: Series) -> Tri:
    (steps, values), (others, beside) = series.finite(), other.finite()
    _, own, theirs = np.intersect1d(steps, others, return_indices=True)
    left, right = values[own], beside[theirs]
    if len(left) < MIN_VALUES:
        return None
    if shape == "equals":
        return bool(np.allclose(left, right, rtol=EQUAL, atol=EQUAL * float(np.abs(left).max())))
    if not (left.std() > 0 and right.std() > 0):
        return None
    return bool(np.corrcoef(left, right)[0, 1] > TOGETHER)


def _grows(values: FloatArray) -> Tri:
    """Say whether the last third lies above the first, and the values rise with their order (Spearman)."""
    if len(values) < MIN_VALUES:
        return None
    third = max(1, len(values) // 3)
    if not values[-third:].mean() > values[:third].mean():
        return False
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return bool(np.corrcoef(ranks, np.arange(len(values)))[0, 1] > RANK_CORRELATION)


def _grows_from_the_second(values: FloatArray) -> Tri:
    if len(values) < MIN_VALUES:
        return None
    return bool(values[0] <= NEAR_NOTHING * np.median(values[1:]))


def _spikes(values: FloatArray) -> Tri:
    if len(values) < MIN_SPIKE_VALUES:
        return None
    middle = np.median(values)
    width = float(np.median(np.abs(values - middle))) or EQUAL * float(np.abs(middle))
    return bool(width > 0 and (np.abs(values - middle) > SPIKE_WIDTHS * width).any())


SHAPES: Final[Mapping[str, Callable[[FloatArray], Tri]]] = {
    "zero": lambda values: bool((values == 0).all()),
    "constant": lambda values: None if len(values) < MIN_VALUES else bool(np.ptp(values) <= EQUAL * abs(values[0])),
    "grows": _grows,
    "falls": lambda values: _grows(-values),
    "grows-from-the-second-step": _grows_from_the_second,
    "spikes": _spikes,
}


CERTAIN: Final = 2.0  # nats: framework, versions and settings are those of a known bug
LIKELY: Final = 1.0  # the version is not recorded
BY_DEFAULT: Final = 0.5  # of it, where defaults that most runs have count among the settings
ORDER: Final = tuple(Strength)
NO_RUN: Final = SignatureAnswer(shown=None)
TRAINING: Final = "train/"  # Hugging Face trackers put it before a trainer's names
ENDED: Final = "run-cut-short"  # at low severity a log that ends early, as most logs that somebody copied do


@dataclass(frozen=True, kw_only=True)
class SetupAnswer:
    """What a setup says to an advisory: whether it holds, and why it is not certain."""

    holds: bool | None
    ours: bool | None  # the framework is the advisory's
    settings: dict[str, SettingAnswer]
    ranges: dict[str, RangeAnswer]
    unsure: tuple[str, ...] = ()


def match_run(
    database: Database, setup: TrainingSetup, record: DiagnosisRecord | None, lookup: Lookup | None
) -> AdvisoryReport:
    """Return the advisories that concern a run, strongest first; without a run, those of its setup alone."""
    if lookup is not None and setup.framework is not None:
        found_as = {name: lookup.found(name) for name in METRICS_OF_RELEASES.get(setup.framework, ())}
        setup = replace(setup, logged=frozenset(name for name, series in found_as.items() if _is_named(series, name)))
    found = []
    for advisory in database.advisories:
        if not _is_ours(advisory, setup):
            continue
        answer = answer_of(advisory, setup)
        if answer.holds is False:  # no signature could change that
            continue
        shown = NO_RUN if record is None or lookup is None else shown_by(advisory.signature, record, lookup)
        match = _match(advisory, answer, shown, database.sources.get(advisory.id, ""))
        found += [match] if match is not None else []
    named = {distribution(package.name) for one in database.advisories for package in one.affected.packages}
    return AdvisoryReport(
        version=database.version,
        date=database.date,
        count=len(database.advisories),
        framework=setup.framework,
        packages={name: version for name, version in sorted(setup.packages.items()) if name in named},
        settings=len(setup.settings),
        matches=tuple(sorted(found, key=lambda one: (ORDER.index(one.strength), one.severity.rank, one.id))),
    )


def mismatch_signs(database: Database, setup: TrainingSetup, lookup: Lookup) -> tuple[Sign, ...]:
    """Return the known bugs that would make trainer and engine of this setup disagree, as signs of their causes."""
    signs = []
    for advisory in database.advisories:
        cause, shapes = advisory.signature.mismatch_cause, [_shape(one, lookup) for one in advisory.signature.metrics]
        if cause is None or not all(shapes) or (answer := answer_of(advisory, setup)).holds is not True:
            continue
        weight = CERTAIN if not answer.unsure else LIKELY
        weight *= BY_DEFAULT if any(one.by_default for one in answer.settings.values()) else 1.0
        signs.append(Sign(text=f"{advisory.id} fits: {advisory.summary.lower()}", weights={cause: weight}))
    return tuple(signs)


def _is_named(series: Series | None, name: str) -> bool:
    """Return whether a series is logged under this very name: a lookup finds it under any."""
    return series is not None and series.raw_name.removeprefix(TRAINING) == name


def answer_of(advisory: Advisory, setup: TrainingSetup) -> SetupAnswer:
    """Hold an advisory against a setup alone."""
    ranges = {package.name: in_range(package, setup) for package in advisory.affected.packages}
    framework, ours = advisory.affected.framework, _is_ours(advisory, setup)
    own_defaults = not setup.in_part and (framework is None or framework == setup.framework)
    settings = {
        key: _without_default(holds(key, condition, setup), own_defaults)
        for key, condition in advisory.conditions().items()
    }
    unsure = [answer.unsure for answer in ranges.values() if answer.unsure]
    if ours and framework != setup.framework and framework is not None and not ranges:
        unsure.append(f"the run is {setup.framework}'s, which is made of {framework} and may differ in this")
    versions = [answer.holds for answer in ranges.values()]
    decided = [ours, *(answer.holds for answer in settings.values()), *(() if settings else versions)]
    if settings and all(answer.by_default for answer in settings.values()):
        decided.append(None)  # a setup that writes none of these settings may be of another trainer altogether
    if advisory.affected.only:
        decided.append(None)
        unsure.append(f"it is only about {advisory.affected.only}, which no setting records")
    return SetupAnswer(
        holds=False if False in (*decided, *versions) else None if None in decided else True,
        ours=ours,
        settings=settings,
        ranges=ranges,
        unsure=tuple(unsure),
    )


def _is_ours(advisory: Advisory, setup: TrainingSetup) -> bool | None:
    framework = advisory.affected.framework
    return True if framework is None else setup.is_of(framework)


def _without_default(answer: SettingAnswer, own: bool) -> SettingAnswer:
    """Return an answer, unknown where it rests on a default that need not be this setup's: settings that were read
    in part, or a framework that this one is only made of."""
    return answer if own or not answer.by_default else SettingAnswer(holds=None, unlikely=answer.holds is False)


def _match(advisory: Advisory, setup: SetupAnswer, shown: SignatureAnswer, source: str) -> AdvisoryMatch | None:
    strength = _strength(advisory, setup, shown)
    if strength is None:
        return None
    held = {key: answer for key, answer in setup.settings.items() if answer.holds}
    return AdvisoryMatch(
        id=advisory.id,
        strength=strength,
        kind=advisory.kind,
        severity=advisory.level,
        summary=advisory.summary,
        effect=advisory.effect,
        findings=shown.findings,
        looked_for=strength is Strength.NOTE and shown.shown is False,
        shaped=any(metric.is_ not in PRESENCE for metric in advisory.signature.metrics),
        settings={key: answer.value for key, answer in held.items()},
        by_default=tuple(key for key, answer in held.items() if answer.by_default),
        packages={name: answer.version for name, answer in setup.ranges.items()},
        unsure=(*setup.unsure, *_unrecorded(setup)),
        would_show=shown.would_show if strength is Strength.NOTE else (),
        change=advisory.change.line or "",
        where=advisory.change.where,
        upgrade=advisory.change.upgrade or "",
        workaround=advisory.change.workaround or "",
        references=tuple(reference.url for reference in advisory.references),
        source=source,
    )


def _unrecorded(setup: SetupAnswer) -> Iterable[str]:
    missing = [key for key, answer in setup.settings.items() if answer.holds is None]
    return (f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not recorded",) if missing else ()


def _strength(advisory: Advisory, setup: SetupAnswer, shown: SignatureAnswer) -> Strength | None:
    """Return how strongly an advisory that may apply speaks; None where it does not.

    Findings of low severity name a cause only where a setting that somebody wrote speaks for it too.
    """
    if setup.holds is None:
        return Strength.POSSIBLE if shown.shown and _is_particular(advisory, setup) else None
    written = any(answer.holds and not answer.by_default for answer in setup.settings.values())
    faint = shown.faint and (not written or set(shown.findings) == {ENDED})
    return Strength.CAUSE if shown.shown and not faint and not setup.unsure else Strength.NOTE


def _is_particular(advisory: Advisory, setup: SetupAnswer) -> bool:
    """Return whether more than a signature speaks for an advisory: its framework, or a version in its range.

    Of a framework whose defaults are not affected, a version or a setting that is.
    """
    versions = any(answer.holds for answer in setup.ranges.values())
    if advisory.affected.framework is None:
        return versions
    if any(answer.unlikely for answer in setup.settings.values()):
        return versions or any(answer.holds and not answer.by_default for answer in setup.settings.values())
    return bool(setup.ours)

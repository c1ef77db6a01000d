"""Hold advisories against a setup and, where there is one, against what its run shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ptt.diagnostics.advisories.advisory import Advisory, Database, distribution
from ptt.diagnostics.advisories.conditions import METRICS_OF_RELEASES, RangeAnswer, SettingAnswer, holds, in_range
from ptt.diagnostics.advisories.signature import PRESENCE, Lookup, SignatureAnswer, shown_by
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.training_setup import TrainingSetup
from ptt.diagnostics.model import AdvisoryMatch, AdvisoryReport, DiagnosisRecord, Strength

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

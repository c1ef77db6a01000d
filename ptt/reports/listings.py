"""The report's long lists in words: findings with their consequences, and the files they came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ptt.diagnostics.model import Diagnosis, Finding, JsonScalar, Severity, Source
from ptt.reports.chains import chains
from ptt.reports.consequences import onset_words
from ptt.reports.foreign import safe
from ptt.reports.names import LINKS, SEVERITIES, sentence, slice_name
from ptt.reports.numbers import count, number, with_unit
from ptt.reports.whereabouts import places

FOLDED_ABOVE = 30  # files of one kind: a run of a thousand steps writes a thousand of them
SHOWN_AT_MOST = 500  # of one kind, so that the page stays under its size; findings.json lists all


@dataclass(frozen=True, kw_only=True)
class FindingView:
    """One finding in words, with those that follow from it."""

    id: str
    anchor: str
    severity: str  # the value, for styles
    severity_word: str
    link: str
    claim: str
    facts: tuple[tuple[str, str], ...]  # observed, limit, slice
    onset: str  # since when, and how closely that is known
    evidence: tuple[tuple[str, str], ...]
    causes: tuple[str, ...]
    confirm: tuple[str, ...]
    next: tuple[str, ...]
    next_title: str
    where: tuple[str, ...]  # to look in this run
    consequences: tuple[FindingView, ...]
    below: int  # how many stand below it, by whatever number of links


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """One file, or the sum of many."""

    path: str
    rows_ok: str
    rows_bad: str
    bytes_lost: str
    note: str


@dataclass(frozen=True, kw_only=True)
class SourceGroup:
    """The files of one kind: `shown` are the files, or their sum if they are many and `folded` has them."""

    kind: str
    shown: tuple[SourceRow, ...]
    folded: tuple[SourceRow, ...]
    unlisted: str


def finding_views(diagnosis: Diagnosis) -> tuple[FindingView, ...]:
    """Put the findings into words: causes in order of time, each consequence under its cause."""
    order = {id(finding): index for index, finding in enumerate(diagnosis.findings, start=1)}
    told = chains(diagnosis)

    def views(place: int, depth: int) -> tuple[tuple[FindingView, ...], int]:
        found: list[FindingView] = []
        while place < len(told) and told[place][1] == depth:
            finding = told[place][0]
            below, place = views(place + 1, depth + 1)
            found.append(_finding(finding, f"finding-{order[id(finding)]}", below, diagnosis))
        return tuple(found), place

    return views(0, 0)[0]


def source_groups(sources: Iterable[Source]) -> tuple[SourceGroup, ...]:
    """Group the files by kind, those of unknown kind last."""
    kinds: dict[str, list[Source]] = {}
    for source in sources:
        kinds.setdefault(source.kind, []).append(source)
    return tuple(_group(kind, kinds[kind]) for kind in sorted(kinds, key=lambda k: (k == "unrecognised", k)))


def _finding(finding: Finding, anchor: str, consequences: tuple[FindingView, ...], diagnosis: Diagnosis) -> FindingView:
    facts = []
    if finding.observed is not None:
        facts.append(("Observed", with_unit(finding.observed, safe(finding.unit))))
    if finding.limit is not None:
        facts.append(("Limit", with_unit(finding.limit, safe(finding.unit))))
    if finding.slice:
        facts.append(("Slice", slice_name(finding.slice)))
    return FindingView(
        id=safe(finding.id),
        anchor=anchor,
        severity=finding.severity.value,
        severity_word=SEVERITIES[finding.severity],
        link=LINKS[finding.link],
        claim=sentence(finding.claim),
        facts=tuple(facts),
        onset=_onset(finding),
        evidence=tuple(_evidence(finding.evidence)),
        causes=tuple(sentence(cause) for cause in finding.causes),
        confirm=tuple(sentence(step) for step in finding.confirm),
        next=tuple(sentence(step) for step in finding.next),
        next_title="What to look at, and do" if diagnosis.from_findings else "What to do then",
        where=tuple(safe(place) for place in places(finding, diagnosis)),
        consequences=consequences,
        below=sum(1 + view.below for view in consequences),
    )


def _onset(finding: Finding) -> str:
    if finding.onset_step is None:
        return "not known" if finding.severity.rank <= Severity.MEDIUM.rank else ""
    return sentence(onset_words(finding.onset_step, None))[:-1] + (
        f"; it may lie anywhere from {count(finding.onset_interval[0])} to {count(finding.onset_interval[1])}"
        if finding.onset_interval is not None and finding.onset_interval[0] < finding.onset_interval[1]
        else ""
    )


def _evidence(evidence: Mapping[str, JsonScalar]) -> Iterable[tuple[str, str]]:
    for key, value in evidence.items():
        match value:
            case bool():
                shown = "yes" if value else "no"
            case str():
                shown = safe(value)
            case _:
                shown = number(value)
        yield safe(key).replace("_", " "), shown


def _group(kind: str, sources: list[Source]) -> SourceGroup:
    rows = sorted(sources, key=lambda s: (s.rows_bad == 0 and s.bytes_lost == 0 and s.note is None, s.path))
    notes = len({source.note for source in sources if source.note})
    total = SourceRow(
        path=f"{count(len(sources))} files",
        rows_ok=count(sum(s.rows_ok for s in sources)),
        rows_bad=count(sum(s.rows_bad for s in sources)),
        bytes_lost=count(sum(s.bytes_lost for s in sources)),
        note=f"{count(notes)} different notes, below"
        if notes > 1
        else next((safe(s.note) for s in sources if s.note), ""),
    )
    unlisted = len(rows) - SHOWN_AT_MOST
    listed = tuple(_source(source) for source in rows[:SHOWN_AT_MOST])
    fold = len(rows) > FOLDED_ABOVE
    return SourceGroup(
        kind=safe(kind),
        shown=(total,) if fold else listed,
        folded=listed if fold else (),
        unlisted=f"{count(unlisted)} more are listed in findings.json" if unlisted > 0 else "",
    )


def _source(source: Source) -> SourceRow:
    return SourceRow(
        path=safe(source.path),
        rows_ok=count(source.rows_ok),
        rows_bad=count(source.rows_bad),
        bytes_lost=count(source.bytes_lost),
        note=safe(source.note or ""),
    )

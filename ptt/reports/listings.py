"""The report's long lists in words: findings with their consequences, and the files they came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ptt.diagnostics.model import Diagnosis, Finding, JsonScalar, Source
from ptt.reports.foreign import safe
from ptt.reports.names import LINKS, SEVERITIES, sentence, slice_name
from ptt.reports.numbers import count, number, with_unit
from ptt.reports.why import onset_words, roots

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
    facts: tuple[tuple[str, str], ...]
    evidence: tuple[tuple[str, str], ...]
    causes: tuple[str, ...]
    next: tuple[str, ...]
    consequences: tuple[FindingView, ...]


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
    """Put the findings into words: worst first, each consequence under its cause."""
    followers: dict[str, list[Finding]] = {}
    for finding in diagnosis.findings:
        if finding.consequence_of is not None:
            followers.setdefault(finding.consequence_of, []).append(finding)
    order = {id(finding): index for index, finding in enumerate(diagnosis.findings, start=1)}
    told: set[int] = set()

    def told_once(findings: Iterable[Finding]) -> tuple[FindingView, ...]:
        views = []
        for finding in findings:
            if id(finding) not in told:
                told.add(id(finding))
                below = told_once(followers.get(finding.id, ()))
                views.append(_finding(finding, f"finding-{order[id(finding)]}", below))
        return tuple(views)

    # the second call takes up findings that name each other as cause: none may be lost
    return told_once(roots(diagnosis)) + told_once(diagnosis.findings)


def source_groups(sources: Iterable[Source]) -> tuple[SourceGroup, ...]:
    """Group the files by kind, those of unknown kind last."""
    kinds: dict[str, list[Source]] = {}
    for source in sources:
        kinds.setdefault(source.kind, []).append(source)
    return tuple(_group(kind, kinds[kind]) for kind in sorted(kinds, key=lambda k: (k == "unrecognised", k)))


def _finding(finding: Finding, anchor: str, consequences: tuple[FindingView, ...]) -> FindingView:
    facts = []
    if finding.onset_step is not None:
        facts.append(("Since", onset_words(finding.onset_step, finding.onset_interval)))
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
        evidence=tuple(_evidence(finding.evidence)),
        causes=tuple(sentence(cause) for cause in finding.causes),
        next=tuple(sentence(step) for step in finding.next),
        consequences=consequences,
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

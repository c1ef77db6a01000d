"""A diagnosis in plain words: every string that the page and the terminal show, finished, and no markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ptt.diagnostics.model import Diagnosis, Finding, JsonScalar, Link, NotJudged, Severity, Source, Status
from ptt.reports.run.answers import Reply, replies
from ptt.reports.run.where_to_look import places
from ptt.reports.text.consequences import chains, onset_words
from ptt.reports.text.names import ANSWERS, CONDITIONS, LINKS, SEVERITIES, STATUSES, pair_name, sentence, slice_name
from ptt.reports.text.numbers import count, number, with_unit
from ptt.reports.text.sanitize import safe
from ptt.reports.text.why import samples

PARTIAL = (
    "Made from findings.json alone. It holds the verdict, the findings, what was not judged and the list of files. It "
    "does not hold the curves, the numbers behind the tail, the checks that found nothing amiss, the four conditions "
    "of tail growth, the checkpoints and the logged settings: none of these is shown here, whatever the run recorded. "
    "The store that ptt diagnose wrote beside it has them: ptt report on that folder draws the whole report."
)
REDACTED = (
    "Redacted. Texts of the run are left out; names and ids of runs, files, samples, tools, environments, metrics "
    "of its own and the like are replaced by short hashes, equal where the name was equal. Numbers, steps and the "
    "words of ptt are unchanged."
)
GUESSABLE = (
    "Made from findings.json alone and without --salt, a name that can be guessed can be confirmed from its hash: make "
    "it again with --salt and a secret of your own before it is shown outside."
)


def notices(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Give the sentences to show above everything else; none for a whole diagnosis as it was judged."""
    told = []
    if diagnosis.redacted:
        told.append(f"{REDACTED} {GUESSABLE}" if diagnosis.guessable else REDACTED)
    if diagnosis.from_findings:
        told.append(PARTIAL)
    if diagnosis.judged_with:
        told.append(diagnosis.judged_with)
    return tuple(told)


BROKEN_FROM = Severity.MEDIUM  # below it a finding is a note, and its link is not called broken


@dataclass(frozen=True, kw_only=True)
class Lane:
    """What is known of one link; `state` is broken, healthy, noted, blind or silent."""

    link: str
    state: str
    word: str
    detail: str
    first: bool


def lanes(diagnosis: Diagnosis) -> tuple[Lane, ...]:
    """Give every link its lane, outside in."""
    return tuple(_lane(diagnosis, link) for link in Link)


def _lane(diagnosis: Diagnosis, link: Link) -> Lane:
    findings = [finding for finding in diagnosis.findings if finding.link is link]
    broken = [finding for finding in findings if finding.severity.at_least(BROKEN_FROM)]
    healthy = sum(check.link is link for check in diagnosis.healthy)
    unanswered = [item for item in diagnosis.not_judged if item.link is link]
    blind = sum(item.applies for item in unanswered)
    absent = len(unanswered) - blind
    counts = (
        (len(broken), "broken"),
        (len(findings) - len(broken), "noted"),
        (healthy, "healthy"),
        (blind, "not judged"),
        (absent, "does not apply" if absent == 1 else "do not apply"),
    )
    silence = "no rule asks about it yet"
    if diagnosis.from_findings and not findings:
        state, word, silence = "silent", "No finding", "whether a check looked is not in findings.json"
    elif broken:
        state, word = "broken", "Broken"
    elif findings:
        state, word = "noted", "Noted"
    elif healthy and blind:
        state, word = "blind", "Partly judged"
    elif healthy:
        state, word = "healthy", "Healthy"
    elif blind:
        state, word = "blind", "Not judged"
    elif absent:
        state, word = "silent", "Does not apply"
    else:
        state, word = "silent", "No check"
    return Lane(
        link=LINKS[link],
        state=state,
        word=word,
        detail=", ".join(f"{number} {what}" for number, what in counts if number) or silence,
        first=link is diagnosis.verdict.first_broken_link,
    )


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


NO_LINK = {
    Status.UNSTABLE: "Which link broke first cannot be said",
    Status.SUSPECT: "Which link broke first cannot be said",
    Status.HEALTHY: "No broken link found",
    Status.CANNOT_SAY: "No link is known to be broken, nor the whole to be healthy",
}


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One labelled fact, ready to show."""

    name: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One of the four conditions of the signature, and whether it holds: yes, no or cannot say."""

    name: str
    meaning: str
    answer: str


@dataclass(frozen=True, kw_only=True)
class Blind:
    """A question that was not judged."""

    id: str
    link: str
    reason: str
    missing: str
    enable: str


@dataclass(frozen=True, kw_only=True)
class Absent:
    """Questions of one link that make no sense for this kind of training, and why."""

    link: str
    reason: str
    ids: str


@dataclass(frozen=True, kw_only=True)
class ReportView:
    """Everything one report says."""

    run_name: str
    notices: tuple[str, ...]  # what the report was made from, where that limits it
    whole: bool  # False: only what findings.json holds is known
    status: str  # the value, for styles
    status_word: str
    headline: str
    first_broken: str
    next: tuple[str, ...]
    replies: tuple[Reply, ...]
    facts: tuple[Fact, ...]
    signature: str
    conditions: tuple[Condition, ...]
    findings: tuple[FindingView, ...]
    lanes: tuple[Lane, ...]
    not_judged: tuple[Blind, ...]
    absent: tuple[Absent, ...]
    healthy: tuple[tuple[str, str, str], ...]  # id, link, reason
    crashes: tuple[tuple[str, str], ...]  # id, error
    sources: tuple[SourceGroup, ...]
    context: tuple[Fact, ...]


def view(diagnosis: Diagnosis) -> ReportView:
    """Put a diagnosis into words."""
    verdict, signature = diagnosis.verdict, diagnosis.signature
    broken = verdict.first_broken_link
    answered = replies(diagnosis)
    return ReportView(
        run_name=safe(diagnosis.run.name),
        notices=notices(diagnosis),
        whole=not diagnosis.from_findings,
        status=verdict.status.value,
        status_word=STATUSES[verdict.status],
        headline=sentence(verdict.headline),
        first_broken=f"First broken link: {LINKS[broken].lower()}" if broken else NO_LINK[verdict.status],
        next=answered[-1].sentences,
        replies=answered,
        facts=_facts(diagnosis),
        signature=ANSWERS[signature.status] if samples(diagnosis) else "does not apply",
        conditions=_conditions(diagnosis) if samples(diagnosis) and not diagnosis.from_findings else (),
        findings=finding_views(diagnosis),
        lanes=lanes(diagnosis),
        not_judged=tuple(_blind(item) for item in diagnosis.not_judged if item.applies),
        absent=_absent(diagnosis),
        healthy=tuple((safe(h.id), LINKS[h.link], sentence(h.reason)) for h in diagnosis.healthy),
        crashes=tuple((safe(crash.id), safe(crash.error)) for crash in diagnosis.crashes),
        sources=source_groups(diagnosis.sources),
        context=tuple(
            Fact(name=safe(key), value=_scalar(value)) for key, value in sorted(diagnosis.run.context.items())
        ),
    )


def _conditions(diagnosis: Diagnosis) -> tuple[Condition, ...]:
    held = diagnosis.signature.conditions
    return tuple(
        Condition(name=name, meaning=meaning, answer=_yes_no(held.get(key)))
        for key, (name, meaning) in CONDITIONS.items()
    )


def _facts(diagnosis: Diagnosis) -> tuple[Fact, ...]:
    run, pair = diagnosis.run, diagnosis.signature.pair
    framework = safe(" · ".join(filter(None, (run.framework, run.algorithm)))) or "not recognised"
    steps = count(run.step_count)
    if run.first_step is not None and run.last_step is not None:
        steps += f" ({count(run.first_step)} to {count(run.last_step)})"
    logged = (Fact(name="Framework", value=framework), Fact(name="Steps", value=steps))
    if not samples(diagnosis) and not run.sequences:
        return logged
    return (
        *logged,
        Fact(name="Sequences", value=count(run.sequences) if run.sequences else "none recorded"),
        Fact(name="Model tokens", value=count(run.model_tokens) if run.model_tokens else "none recorded"),
        Fact(name="Pair", value=pair_name(pair) if pair else "none: fewer than two log-probabilities"),
    )


def _blind(item: NotJudged) -> Blind:
    return Blind(
        id=safe(item.id),
        link=LINKS[item.link],
        reason=sentence(item.reason),
        missing=", ".join(safe(name) for name in item.missing),
        enable=sentence(item.enable),
    )


def _absent(diagnosis: Diagnosis) -> tuple[Absent, ...]:
    """Give one line a link and reason, outside in."""
    held: dict[tuple[Link, str], list[str]] = {}
    for item in diagnosis.not_judged:
        if not item.applies:
            held.setdefault((item.link, item.reason), []).append(safe(item.id))
    ordered = sorted(held.items(), key=lambda entry: (list(Link).index(entry[0][0]), entry[0][1]))
    return tuple(
        Absent(link=LINKS[link], reason=sentence(reason).rstrip("."), ids=", ".join(ids))
        for (link, reason), ids in ordered
    )


def _yes_no(held: bool | None) -> str:
    return "cannot say" if held is None else "yes" if held else "no"


def _scalar(value: str | float | bool | None) -> str:
    match value:
        case None:
            return "not recorded"
        case bool():
            return "yes" if value else "no"
        case str():
            return safe(value)
        case _:
            return number(value)

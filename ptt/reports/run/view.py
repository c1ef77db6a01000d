"""The parts of a run's report page in plain words: every string finished, and no markup."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from ptt.diagnostics.model import Diagnosis, Finding, JsonScalar, Link, Run, Severity, Source, Status, since_words
from ptt.diagnostics.verdict.catalogue import OF_ONE_RULE, pages
from ptt.reports.run.where_to_look import places
from ptt.reports.text.consequences import chains, span_words
from ptt.reports.text.names import CONDITIONS, LINKS, kind_name, pair_name, sentence, slice_name
from ptt.reports.text.numbers import count, counted, number, with_unit
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import rows_where
from ptt.reports.text.why import samples

PARTIAL = (
    "Made from findings.json alone, which has the verdict, the findings, what was not judged and the "
    "list of files. It lacks the curves, the numbers behind the tail, the checks that passed, the four "
    "conditions of tail growth, the checkpoints and the logged settings, so this page shows none of these. "
    "The store that ptt diagnose wrote beside it has them: run ptt report on that folder for the full report."
)
REDACTED = (
    "Redacted. Texts of the run are left out; names and ids of runs, files, samples, tools, environments "
    "and custom metrics are replaced by short hashes. Equal names get equal hashes. Numbers, steps and "
    "the words of ptt are unchanged."
)
GUESSABLE = (
    "Made from findings.json alone and without --salt, the hash of a name can confirm a guess: make the "
    "report again with --salt and your own secret before you share it."
)
NO_LINK = {
    Status.UNSTABLE: "Which link broke first cannot be said",
    Status.SUSPECT: "Which link broke first cannot be said",
    Status.HEALTHY: "No broken link found",
    Status.CANNOT_SAY: "No broken link found, but too little was recorded to be sure",
}
WHY = "Why it matters"  # the heading of a rule's documentation
BROKEN_FROM = Severity.MEDIUM  # below it a finding is a note, and its link is not called broken
FOLD_ABOVE = 30  # files of one kind: a run of a thousand steps writes a thousand of them
MAX_FILES = 500  # of one kind, so that the page stays under its size; findings.json lists all


def notices(diagnosis: Diagnosis) -> list[str]:
    """Return the sentences to show above everything else; none for a whole diagnosis as it was judged."""
    redacted = f"{REDACTED} {GUESSABLE}" if diagnosis.guessable else REDACTED
    texts = {redacted: diagnosis.redacted, PARTIAL: diagnosis.from_findings, diagnosis.judged_with: True}
    return [text for text, shown in texts.items() if shown and text]


def first_broken(diagnosis: Diagnosis) -> str:
    """Name the link that broke first, or say why none is named."""
    link = diagnosis.verdict.first_broken_link
    return f"First broken link: {LINKS[link].lower()}" if link else NO_LINK[diagnosis.verdict.status]


def facts(diagnosis: Diagnosis) -> dict[str, str]:
    """Return what the run is: each fact by its name."""
    run, pair = diagnosis.run, diagnosis.signature.pair
    steps, name = count(run.step_count), f"{run.step_unit.capitalize()}s"
    if run.first_step is not None and run.last_step is not None:
        every = run.step_count > run.last_step - run.first_step
        steps += f"{'' if every else ' logged'} ({span_words((run.first_step, run.last_step))})"
    if run.placed_by:
        steps += f", numbered by {safe(run.placed_by)}"
    framework = safe(" · ".join(filter(None, (run.framework, run.algorithm)))) or "not recognised"
    logged = {"Framework": framework, **_kind(run), name: steps}
    if not samples(diagnosis) and not run.sequences:
        return logged
    return logged | {
        "Sequences": count(run.sequences) if run.sequences else "none recorded",
        "Model tokens": count(run.model_tokens) if run.model_tokens else "none recorded",
        "Pair": pair_name(pair) if pair else "none (needs two log-probabilities a token)",
    }


def _kind(run: Run) -> dict[str, str]:
    """Return the kind of training, where it was inferred and no algorithm is named."""
    if run.kind is None or run.algorithm is not None or not run.kind_reason:
        return {}
    return {"Kind of training": f"{kind_name(run.kind)} ({safe(run.kind_reason)})"}


def conditions(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """Return name, meaning and answer of each condition of the signature; none where it is not asked or not known."""
    if diagnosis.from_findings or not samples(diagnosis):
        return []
    answers = diagnosis.signature.conditions
    return [
        (name, meaning, "cannot say" if answers.get(key) is None else _yes_no(answers[key]))
        for key, (name, meaning) in CONDITIONS.items()
    ]


def settings(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Return name and value of each logged setting."""
    return [
        (safe(name), "not recorded" if value is None else _scalar(value))
        for name, value in diagnosis.run.settings.items()
    ]


def trainer_state(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Return name and value of what the trainer's own state holds."""
    settings = diagnosis.run.settings
    return [
        (safe(name), _scalar(value)) for name, value in sorted(diagnosis.run.context.items()) if name not in settings
    ]


def no_settings(diagnosis: Diagnosis) -> str:
    """Say that no settings are shown: because none are recorded, or because the file with them was not read."""
    unread = [row["source"] for row in rows_where(diagnosis, "context", item="settings") if row["present"]]
    if not unread:
        return "The run records no settings."
    return f"None were read: {safe(unread[0])} may hold them, in a form that ptt does not read."


def _scalar(value: JsonScalar) -> str:
    return _yes_no(value) if isinstance(value, bool) else safe(value) if isinstance(value, str) else number(value)


def _yes_no(value: object) -> str:
    return "yes" if value else "no"


@dataclass(frozen=True, kw_only=True)
class Lane:
    """What is known of one link; `state` is broken, healthy, noted, blind or silent."""

    link: str
    state: str
    word: str
    detail: str
    first: bool


def lanes(diagnosis: Diagnosis) -> list[Lane]:
    """Return one lane a link, outside in."""
    return [_lane(diagnosis, link) for link in Link]


def _lane(diagnosis: Diagnosis, link: Link) -> Lane:
    findings = [finding for finding in diagnosis.findings if finding.link is link]
    broken = sum(finding.severity.at_least(BROKEN_FROM) for finding in findings)
    healthy = sum(check.link is link for check in diagnosis.passed)
    applies = [item.applies for item in diagnosis.not_judged if item.link is link]
    blind, absent = applies.count(True), applies.count(False)
    counts = {
        "broken": broken,
        "noted": len(findings) - broken,
        "healthy": healthy,
        "not judged": blind,
        "does not apply" if absent == 1 else "do not apply": absent,
    }
    detail = ", ".join(f"{number} {what}" for what, number in counts.items() if number) or "no rule covers it yet"
    if diagnosis.from_findings and not findings:
        state, word = "silent", "No finding"
        detail = detail if any(counts.values()) else "findings.json does not say whether a check looked"
    elif broken:
        state, word = "broken", "Broken"
    elif findings:
        state, word = "noted", "Noted"
    elif healthy:
        state, word = ("blind", "Partly judged") if blind else ("healthy", "Healthy")
    elif blind:
        state, word = "blind", "Not judged"
    else:
        state, word = "silent", "Does not apply" if absent else "No check"
    return Lane(
        link=LINKS[link],
        state=state,
        word=word,
        detail=detail,
        first=link is diagnosis.verdict.first_broken_link,
    )


def fold_lines(diagnosis: Diagnosis) -> dict[str, str]:
    """Return what each folded part of the page holds, in a few words."""
    blind = [item for item in diagnosis.not_judged if item.applies]
    broken = sum(lane.state == "broken" for lane in lanes(diagnosis))
    kept = rows_where(diagnosis, "checkpoints")
    on_disk = sum(row["path"] is not None and row["role"] == "" for row in kept)
    return {
        "behind": "which samples it is in, how heavy it is, and what a cap would do",
        "keep": f"{counted(on_disk, 'checkpoint')} on disk, the run's context, checklists",
        "loop": f"{counted(broken, 'link')} of {count(len(Link))} broken" if broken else "no link broken",
        "blind": f"{counted(len(blind), 'question')}, and what to record for each" if blind else "nothing",
        "healthy": counted(len(diagnosis.passed), "check"),
        "sources": f"{counted(len(diagnosis.sources), 'file')} read",
        "settings": counted(len(diagnosis.run.settings), "setting"),
    }


def absent(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """Return link, reason and ids of the questions that make no sense for this kind of training, outside in."""
    ids: dict[tuple[Link, str], list[str]] = {}
    for item in diagnosis.not_judged:
        if not item.applies:
            ids.setdefault((item.link, item.reason), []).append(safe(item.id))
    order = list(Link)
    return [
        (LINKS[link], sentence(reason).rstrip("."), ", ".join(ids[link, reason]))
        for link, reason in sorted(ids, key=lambda entry: (order.index(entry[0]), entry[1]))
    ]


@dataclass(frozen=True, kw_only=True)
class FindingView:
    """One finding, what is put into words of it, and those that follow from it."""

    finding: Finding
    anchor: str
    numbers: dict[str, str]  # observed, limit, slice, onset
    evidence: list[tuple[str, str]]
    places: list[str]  # to look in this run
    line: str  # the finding in one line: what it claims, and since when
    means: str  # why such a failure matters; empty for a rule of the user's own
    consequences: tuple[FindingView, ...]
    below: int  # how many stand below it, by whatever number of links


def finding_views(diagnosis: Diagnosis) -> tuple[FindingView, ...]:
    """Put the findings into words: causes in order of time, each consequence under its cause."""
    order = {id(finding): index for index, finding in enumerate(diagnosis.findings, start=1)}
    views: defaultdict[int, list[FindingView]] = defaultdict(list)  # by depth, the last one first
    for finding, depth in reversed(chains(diagnosis)):
        consequences = tuple(reversed(views.pop(depth + 1, [])))
        views[depth].append(
            FindingView(
                finding=finding,
                anchor=f"finding-{order[id(finding)]}",
                numbers=_numbers(finding),
                evidence=[(safe(key).replace("_", " "), _scalar(value)) for key, value in finding.evidence.items()],
                places=[safe(place) for place in places(finding, diagnosis)],
                line=_line(finding),
                means=meaning(finding),
                consequences=consequences,
                below=sum(1 + view.below for view in consequences),
            )
        )
    return tuple(reversed(views[0]))


def worst_first(views: Iterable[FindingView]) -> tuple[FindingView, ...]:
    """Order causes by severity, those of one severity in order of time."""
    return tuple(sorted(views, key=lambda view: view.finding.severity.rank))


def every(views: Iterable[FindingView]) -> Iterator[FindingView]:
    """Yield each finding, and below it those that follow from it."""
    for view in views:
        yield view
        yield from every(view.consequences)


def meaning(finding: Finding) -> str:
    """Return why such a failure matters; empty for a rule of the user's own."""
    return _meanings().get(finding.id, "")


def _line(finding: Finding) -> str:
    """Say a finding in one line."""
    return ", ".join(filter(None, (sentence(finding.claim).rstrip("."), since_words(finding, count))))


@cache
def _meanings() -> dict[str, str]:
    """Return why each failure matters, by the id of its finding."""
    why = {page.id: sentence(page.sections.get(WHY, "")) for page in pages()}
    return why | {name: why[rule] for name, rule in OF_ONE_RULE.items()}


def _numbers(finding: Finding) -> dict[str, str]:
    onset = "not known" if finding.severity.at_least(Severity.MEDIUM) else ""
    if finding.held_from_step is not None:
        onset = "Before the first logged step"
    elif finding.onset_step is not None:
        onset, interval = f"Step {count(finding.onset_step)}", finding.onset_interval
        if interval is not None and interval[0] < interval[1]:
            onset += f"; 95% interval {span_words(interval)}"
    passed = "" if finding.limit_passed_step is None else f"Step {count(finding.limit_passed_step)}"
    if finding.limit_passed_interval is not None:
        passed += f" ({span_words(finding.limit_passed_interval)})"
    values = {
        "Observed": "" if finding.observed is None else with_unit(finding.observed, safe(finding.unit)),
        "Limit": "" if finding.limit is None else with_unit(finding.limit, safe(finding.unit)),
        "Slice": slice_name(finding.slice or ""),
        "Suspected onset": onset,
        "Limit passed": passed,
    }
    return {name: value for name, value in values.items() if value}


@dataclass(frozen=True, kw_only=True)
class SourceGroup:
    """The files of one kind: `shown` are the files, or their sum if they are many and `folded` has them."""

    kind: str
    shown: list[tuple[str, ...]]
    folded: list[tuple[str, ...]]
    unlisted: str


def source_groups(sources: Iterable[Source]) -> list[SourceGroup]:
    """Group the files by kind, those of unknown kind last."""
    kinds: dict[str, list[Source]] = {}
    for source in sources:
        kinds.setdefault(source.kind, []).append(source)
    return [_group(kind, kinds[kind]) for kind in sorted(kinds, key=lambda kind: (kind == "unrecognised", kind))]


def _group(kind: str, sources: list[Source]) -> SourceGroup:
    ordered = sorted(sources, key=lambda s: (s.rows_bad == 0 and s.bytes_lost == 0 and s.note is None, s.path))
    notes = {source.note for source in sources if source.note}
    note = f"{count(len(notes))} different notes, below" if len(notes) > 1 else "".join(notes)
    rows = [_source(source.path, [source], source.note or "") for source in ordered[:MAX_FILES]]
    unlisted = len(sources) - MAX_FILES
    fold = len(sources) > FOLD_ABOVE
    return SourceGroup(
        kind=safe(kind),
        shown=[_source(f"{count(len(sources))} files", sources, note)] if fold else rows,
        folded=rows if fold else [],
        unlisted=f"{count(unlisted)} more are listed in findings.json" if unlisted > 0 else "",
    )


def _source(path: str, sources: list[Source], note: str) -> tuple[str, ...]:
    """Return the cells of one row: path, kind, rows read, rejected, bytes lost, note."""
    totals = (sum(getattr(source, name) for source in sources) for name in ("rows_ok", "rows_bad", "bytes_lost"))
    return safe(path), safe(sources[0].kind), *map(count, totals), safe(note)

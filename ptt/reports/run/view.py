"""The parts of a run's report page in plain words: every string finished, and no markup."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import (
    Diagnosis,
    Finding,
    JsonScalar,
    Link,
    NotJudged,
    Run,
    Severity,
    Source,
    Status,
    since_words,
)
from ptt.diagnostics.verdict.catalogue import OF_ONE_RULE, pages
from ptt.reports.text.consequences import chains, span_words
from ptt.reports.text.names import CONDITIONS, LINKS, kind_name, pair_name, sentence, slice_name
from ptt.reports.text.numbers import count, counted, limit_value, number, with_unit
from ptt.reports.text.sanitize import safe
from ptt.reports.text.support import support_brief
from ptt.reports.text.tables import Row, rows_where
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
class Unjudged:
    """The questions that one thing to record would answer, by link and by why they are open."""

    enable: str
    missing: str
    count: int
    questions: list[tuple[str, str, list[str]]]  # link, reason, ids


def unjudged(diagnosis: Diagnosis) -> list[Unjudged]:
    """Return what to record, what answers most questions first."""
    groups: defaultdict[str, list[NotJudged]] = defaultdict(list)
    for item in diagnosis.not_judged:
        if item.applies:
            groups[item.enable].append(item)
    made = []
    for enable, items in groups.items():
        asked: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for item in items:
            asked[LINKS[item.link], sentence(item.reason)].append(safe(item.id))
        missing = dict.fromkeys(safe(name) for item in items for name in item.missing)
        made.append(
            Unjudged(
                enable=sentence(enable),
                missing=", ".join(missing),
                count=len(items),
                questions=[(link, reason, ids) for (link, reason), ids in asked.items()],
            )
        )
    return sorted(made, key=lambda group: (not group.enable, -group.count))


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
    follows: str  # of a finding on the tail after tools: what that tail goes with
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
                follows=_follows(finding, diagnosis),
                consequences=consequences,
                below=sum(1 + view.below for view in consequences),
            )
        )
    return tuple(reversed(views[0]))


def _follows(finding: Finding, diagnosis: Diagnosis) -> str:
    """Say what the tail follows that a finding is about."""
    support = diagnosis.support if on_supported_tail(finding, diagnosis) else None
    return "" if support is None else " ".join(support_brief(support))


def on_supported_tail(finding: Finding, diagnosis: Diagnosis) -> bool:
    """Return whether a finding is about a tail after tools of which it is known what it follows."""
    return diagnosis.support is not None and "percentile" in finding.evidence


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
        "Limit": "" if finding.limit is None else limit_value(finding.limit, safe(finding.unit)),
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


FILES: Final = re.compile(r"(?:^|_)(?:file|(?<!error_)example|source|path|between_files)$")
SAMPLES: Final = re.compile(r"(?:^|_)(?:sample|trajectory|sequence|prompt|group)(?:_id)?$")
STEPS: Final = re.compile(r"^(?:worst|highest|lowest|peak|first|dead|last_finite)_\w*step$|^(?:worst|peak)_at$")
OF_TAILS: Final = frozenset({Link.POLICY_UPDATE, Link.DATA_FRESHNESS})  # links whose findings on a slice are of |r|
COLUMNS: Final = ("trajectories.", "turns.", "tool_calls.")  # begin the names of what agent traces are judged by
STEPS_BEFORE: Final = 10  # the onset, worth reading where no interval is known


def places(finding: Finding, diagnosis: Diagnosis) -> list[str]:
    """Return the places, those nearest to the onset first; none where the finding names none."""
    found = []
    if finding.seen_step is not None:
        before = 0 if finding.held_from_step is not None else STEPS_BEFORE
        low, high = finding.seen_interval or (finding.seen_step - before, finding.seen_step)
        low = max(low, diagnosis.run.first_step) if diagnosis.run.first_step is not None else low
        found.append(f"Steps {span_words((low, high))}" if high > low else f"Step {count(finding.seen_step)}")
    curves = (finding.evidence.get(key) for key in ("logged_as", "metric"))
    names = [name for name in curves if isinstance(name, str)][:1]
    found += [f"The {'column' if name.startswith(COLUMNS) else 'curve'} {name}" for name in names]
    for key, value in finding.evidence.items():
        name = key.replace("_", " ").capitalize()
        if isinstance(value, str) and value and FILES.search(key):
            found.append(f"File {value}")
        elif isinstance(value, str | int) and not isinstance(value, bool) and SAMPLES.search(key):
            found.append(f"{name} {value}")
        elif isinstance(value, int) and not isinstance(value, bool) and STEPS.search(key):
            found.append(f"{name} {count(value)}")
    return [*found, *_checkpoints(finding, diagnosis), *_sample(finding, diagnosis)]


def _sample(finding: Finding, diagnosis: Diagnosis) -> list[str]:
    """Say the command that prints the sample with most tail tokens, where the finding is one of tails."""
    top = diagnosis.tables.get("top_sequences")
    if finding.slice is None or finding.link not in OF_TAILS or top is None or not {"step_row"} <= set(top.columns):
        return []
    return [f"ptt show RUN {row['step']}:{row['step_row']}" for row in top.head(1).to_dicts()]


def _checkpoints(finding: Finding, diagnosis: Diagnosis) -> list[str]:
    """Name the checkpoints on either side of the onset."""
    if finding.seen_step is None:
        return []
    low = finding.seen_interval[0] if finding.seen_interval else finding.seen_step
    on_disk = checkpoints_on_disk(diagnosis)
    before = [f"{row['path']} before it" for row in on_disk if row["step"] < low]
    after = [f"{row['path']} after it" for row in on_disk if row["step"] >= finding.seen_step]
    return [f"Checkpoints: {', '.join(before[-1:] + after[:1])}"] if before or after else []


ROLES: Final = {
    "last_healthy": ("Last healthy", "to roll back to"),
    "best": ("Best by evaluation", "to ship"),
    "first_broken": ("First after the failure", "to look for the cause"),
    "last": ("Last", "to look at the end of the run"),
}
ITEMS: Final = {
    "settings": "Settings",
    "seed": "Seed",
    "code": "Code version",
    "packages": "Packages",
    "model": "Model",
    "dataset": "Data set",
    "evaluation": "Evaluation protocol",
    "resumed": "Steps recorded twice",
    "gaps": "Gaps in the record",
}
PHASES: Final = {"before": "Before training", "during": "During training", "after": "After training"}
STYLES: Final = {"yes": "yes", "no": "no", "cannot tell": "cannot-say", "does not apply": "absent"}
MAX_CHECKPOINTS: Final = 60  # listed


def kept_checkpoints(diagnosis: Diagnosis) -> list[tuple[str, str, str, bool, str]]:
    """Return name, use, checkpoint, whether it is on disk, and reason of each of the four to keep."""
    return [
        (*ROLES[row["role"]], _checkpoint(row), row["path"] is not None, sentence(row["note"]))
        for row in rows_where(diagnosis, "checkpoints")
        if row["role"] in ROLES
    ]


def _checkpoint(row: Row) -> str:
    if row["path"] is not None:
        return f"{safe(row['path'])} (step {count(row['step'] or 0)}{'' if row['weights'] else '; no weights in it'})"
    return f"step {count(row['step'])}, not on disk here" if row["step"] is not None else "none"


def checkpoints_on_disk(diagnosis: Diagnosis) -> list[Row]:
    """Return the rows of the checkpoints whose files are there."""
    rows = rows_where(diagnosis, "checkpoints", role="")
    return [row for row in rows if row["path"] is not None and row["step"] is not None]


def checkpoint_cells(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """Return step, path, and whether it holds weights, of each checkpoint on disk."""
    rows = checkpoints_on_disk(diagnosis)[-MAX_CHECKPOINTS:]
    return [(count(row["step"]), safe(row["path"]), "yes" if row["weights"] else "no") for row in rows]


def context_items(diagnosis: Diagnosis) -> list[tuple[str, str, str, str]]:
    """Return name, style, value and source of each item of the run's context, what is present first."""
    return [
        (
            ITEMS.get(row["item"]) or safe(row["item"]),
            {True: "yes", False: "no"}.get(row["present"], "absent"),
            safe(row["value"]) if row["present"] is not False else f"Missing. {sentence(row['enable'])}",
            safe(row["source"]),
        )
        for row in sorted(rows_where(diagnosis, "context"), key=lambda row: row["present"] is False)
    ]


def checklists(diagnosis: Diagnosis) -> dict[str, list[tuple[str, str, str, str]]]:
    """Return item, style, answer and evidence of each row, by the list's title and tally."""
    lists = {}
    rows = rows_where(diagnosis, "checklists")
    for phase, title in PHASES.items() if rows else ():
        listed = [row for row in rows if row["phase"] == phase]
        answers = Counter(row["answer"] for row in listed)
        tally = ", ".join(
            f"{answers[answer]} {_plural(answer, answers[answer])}" for answer in STYLES if answers[answer]
        )
        lists[f"{title}: {tally}"] = [
            (safe(row["item"]), STYLES.get(row["answer"], "cannot-say"), row["answer"], sentence(row["evidence"]))
            for row in listed
        ]
    return lists


def _plural(answer: str, number: int) -> str:
    return "do not apply" if answer == "does not apply" and number > 1 else answer

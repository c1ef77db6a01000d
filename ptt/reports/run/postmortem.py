"""Begins a postmortem of a run in Markdown: what the logs tell is filled in, what people must add is marked TODO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined

from ptt.diagnostics.model import Answer, Diagnosis, Finding, Severity, Status
from ptt.diagnostics.verdict.catalogue import pages
from ptt.reports.figures import FIGURES
from ptt.reports.figures.timeline import end_of
from ptt.reports.run.answers import NOTHING_TO_DO, replies
from ptt.reports.run.handover import kept_checkpoints
from ptt.reports.run.view import NO_LINK, notices
from ptt.reports.text.consequences import chains, followed, onset_words, roots, span_words
from ptt.reports.text.markdown import Markdown, code, md, target
from ptt.reports.text.names import LINKS, SEVERITIES, STATUSES, metric_name, sentence
from ptt.reports.text.numbers import count, counted, with_unit
from ptt.reports.text.tables import table
from ptt.reports.text.why import aggregates_sentence, chance, coverage
from ptt.version import __version__

NAMED: Final = 8  # checkpoints to distrust
MOST: Final = 4  # lines that would record what is missing, those that answer most first
SIGNATURE: Final = "tool-tail-growth"


def impact(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Say which steps and checkpoints are touched."""
    first = followed(diagnosis)
    if first is None:
        return ()
    told = [_steps(diagnosis, first)]
    if diagnosis.from_findings:
        told.append("Checkpoints: findings.json does not list them; the store does.")
        return tuple(told)
    told += [
        f"Checkpoint to go back to: {checkpoint}. {note}".rstrip()
        for name, _, checkpoint, _, note in kept_checkpoints(diagnosis)
        if name == "Last healthy"
    ]
    told.append(f"Checkpoints not to trust: {_distrusted(diagnosis, first)}.")
    return tuple(told)


def _steps(diagnosis: Diagnosis, first: Finding) -> str:
    last = diagnosis.run.last_step
    if first.onset_step is None or last is None:
        return "Steps affected: not known, the finding has no date; treat the whole run as affected."
    end = max(end_of(first, last), first.onset_step)
    began = first.onset_interval
    surely = f"; it may have begun anywhere from step {count(began[0])} to {count(began[1])}" if began else ""
    over = f"to step {count(end)}, after which it was not seen"
    ended = f"to the end of the run (step {count(last)})" if end >= last else over
    return f"Steps affected: from {onset_words(first.onset_step, None)} {ended}{surely}."


def _distrusted(diagnosis: Diagnosis, first: Finding) -> str:
    frame = table(diagnosis, "checkpoints")
    if frame is None:
        return "none was looked for"
    held = frame.filter(pl.col("role") == "", pl.col("path").is_not_null()).sort("step")
    begun = first.onset_interval[0] if first.onset_interval else first.onset_step
    late = held if begun is None else held.filter(pl.col("step") >= begun)
    if late.is_empty():
        return "those of the affected steps; none of them is on disk here"
    named = [f"{row['path']} (step {count(row['step'])})" for row in late.head(NAMED).to_dicts()]
    more = f" and {count(len(late) - NAMED)} later ones" if len(late) > NAMED else ""
    return ", ".join(named) + more


def recordings(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Give the lines that record what was missing, those that answer most questions first."""
    answers: dict[str, int] = {}
    for item in diagnosis.not_judged:
        if item.applies and item.enable and item.enable not in diagnosis.verdict.next:
            answers[item.enable] = answers.get(item.enable, 0) + 1
    ordered = sorted(answers, key=lambda line: (-answers[line], line))[:MOST]
    return tuple(f"Record more: {sentence(line)}" for line in ordered)


def gate_snippet(diagnosis: Diagnosis) -> str:
    """Give the lines of ptt.toml that let `ptt gate` fail a run like this one, or keep a healthy one so."""
    first = followed(diagnosis)
    known = {page.id for page in pages()}
    limit = Severity.MEDIUM if first is not None and first.severity is Severity.MEDIUM else Severity.HIGH
    lines = ["[gate]", f'severity = "{limit.value}"  # a finding as bad as this, or worse, fails the run']
    required = [first.id] if first is not None and first.id in known else []
    if diagnosis.verdict.status is Status.CANNOT_SAY and SIGNATURE in known:
        required = [SIGNATURE]
    if required:
        lines.append(f'require = ["{required[0]}"]  # a run that records too little to tell does not pass')
    return "\n".join(lines)


TEMPLATE: Final = "postmortem.md.j2"
MOST_ROWS: Final = 40  # of the timeline: the worst findings, in order of time
KINDS: Final = {
    Status.UNSTABLE: "Postmortem",
    Status.SUSPECT: "Postmortem",
    Status.HEALTHY: "Review",
    Status.CANNOT_SAY: "Review",
}


@dataclass(frozen=True, kw_only=True)
class Event:
    """One row of the timeline."""

    step: str
    interval: str
    what: str
    name: Markdown
    link: str


@dataclass(frozen=True, kw_only=True)
class Below:
    """One finding in the tree of what followed from what."""

    indent: Markdown
    name: Markdown
    severity: str
    since: str
    claim: str


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One figure and how to read it."""

    title: str
    path: Markdown
    caption: str


@dataclass(frozen=True, kw_only=True)
class Unjudged:
    """One question that could not be answered."""

    name: Markdown
    link: str
    reason: str
    enable: str


@dataclass(frozen=True, kw_only=True)
class Postmortem:
    """Everything the skeleton says, in words that are not yet Markdown."""

    kind: str
    run: str
    status: str
    first_broken: str
    span: str
    broken: bool
    judged: bool
    notices: tuple[str, ...]
    summary: tuple[str, ...]
    impact: tuple[str, ...]
    events: tuple[Event, ...]
    unlisted: str
    numbers: tuple[str, ...]
    pictures: tuple[Picture, ...]
    tree: tuple[Below, ...]
    coverage: str
    unjudged: tuple[Unjudged, ...]
    actions: tuple[str, ...]
    recordings: tuple[str, ...]
    earlier: tuple[str, ...]
    gate: Markdown
    causes: tuple[str, ...]


def postmortem(diagnosis: Diagnosis, figures: Mapping[str, str]) -> str:
    """Give the text of postmortem.md; `figures` are the ways to pictures by the figures' names."""
    environment = Environment(  # noqa: S701  no HTML: `finalize` escapes every value for Markdown
        loader=PackageLoader("ptt.reports"),
        finalize=md,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(TEMPLATE).render(it=_view(diagnosis, figures), version=Markdown(__version__))


def _view(diagnosis: Diagnosis, figures: Mapping[str, str]) -> Postmortem:
    verdict, first = diagnosis.verdict, followed(diagnosis)
    answers = {reply.key: reply.sentences for reply in replies(diagnosis)}
    events, unlisted = _events(diagnosis)
    link = verdict.first_broken_link
    return Postmortem(
        kind=KINDS[verdict.status],
        run=diagnosis.run.name,
        status=STATUSES[verdict.status],
        first_broken=LINKS[link] if link else NO_LINK[verdict.status],
        span=_span(diagnosis),
        broken=first is not None,
        judged=verdict.status is not Status.CANNOT_SAY,
        notices=tuple(notices(diagnosis)),
        summary=_summary(diagnosis, answers["happened"]),
        impact=impact(diagnosis),
        events=events,
        unlisted=unlisted,
        numbers=tuple(_measured(finding) for finding in roots(diagnosis) if finding.observed is not None),
        pictures=_pictures(diagnosis, figures),
        tree=_tree(diagnosis),
        coverage=coverage(diagnosis) or "Every question that was asked could be judged.",
        unjudged=tuple(
            Unjudged(name=code(i.id), link=LINKS[i.link], reason=sentence(i.reason), enable=sentence(i.enable))
            for i in diagnosis.not_judged
            if i.applies
        ),
        actions=tuple(text for text in answers["next"] if text != NOTHING_TO_DO),
        recordings=recordings(diagnosis),
        earlier=_earlier(diagnosis),
        gate=Markdown(gate_snippet(diagnosis)),
        causes=tuple(sentence(cause) for cause in first.causes) if first else (),
    )


def _summary(diagnosis: Diagnosis, happened: Sequence[str]) -> tuple[str, ...]:
    """Give the verdict, what it means in plain words, how sure it is, and what the usual curves showed."""
    signature = diagnosis.signature
    if diagnosis.verdict.status is Status.CANNOT_SAY:
        return (sentence(diagnosis.verdict.headline),)
    if signature.status is not Answer.FOUND:
        return (sentence(diagnosis.verdict.headline), *happened)
    likely = chance(signature)
    told = (diagnosis.verdict.headline, *happened[:1], likely, aggregates_sentence(signature))
    return tuple(sentence(text) for text in told if text)


def _span(diagnosis: Diagnosis) -> str:
    run = diagnosis.run
    if run.first_step is None or run.last_step is None:
        return "no steps are recorded"
    return f"{count(run.first_step)} to {count(run.last_step)} ({counted(run.step_count, 'step')} recorded)"


def _events(diagnosis: Diagnosis) -> tuple[tuple[Event, ...], str]:
    """Give findings and alarms in order of time, those without a known beginning last."""
    run, first = diagnosis.run, followed(diagnosis)
    dated: list[tuple[int, int, Event]] = []
    if run.first_step is not None:
        dated.append((run.first_step, 0, _event(run.first_step, None, "First recorded step")))
    findings = [finding for finding, _ in chains(diagnosis)]
    shown = sorted(findings, key=lambda finding: finding.severity.rank)[:MOST_ROWS]
    undated = []
    for finding in shown:
        row = _of_finding(finding, first, {item.id for item in findings})
        if finding.onset_step is None:
            undated += [row] if finding.severity.at_least(Severity.LOW) else []  # a note without a date is no event
        else:
            dated.append((finding.onset_step, 1, row))
    aggregates = diagnosis.signature.aggregates
    for name, step in aggregates.alarms.items():
        what = f"Alarm of a usual curve: {metric_name(name)}"
        dated.append((step, 2, _event(step, aggregates.alarm_intervals.get(name), what)))
    if run.last_step is not None:
        dated.append((run.last_step, 3, _event(run.last_step, None, "Last recorded step")))
    rows = [event for _, _, event in sorted(dated, key=lambda entry: (entry[0], entry[1], entry[2].what))]
    rest = len(findings) - len(shown)
    return (*rows, *undated), f"{counted(rest, 'further finding')} of lower severity left out." if rest else ""


def _event(step: int | None, interval: tuple[int, int] | None, what: str) -> Event:
    known = interval is not None and interval[0] < interval[1]
    return Event(
        step="not known" if step is None else count(step),
        interval=span_words(interval) if known and interval else "",
        what=what,
        name=Markdown(""),
        link="",
    )


def _of_finding(finding: Finding, first: Finding | None, known: set[str]) -> Event:
    cause = finding.consequence_of
    role = f", follows from {cause}" if cause in known and cause != finding.id else ""
    if finding is first:
        role = ", broke first"
    event = _event(finding.onset_step, finding.onset_interval, sentence(finding.claim))
    what = f"{SEVERITIES[finding.severity]}{role}: {event.what}"
    return Event(step=event.step, interval=event.interval, what=what, name=code(finding.id), link=LINKS[finding.link])


def _measured(finding: Finding) -> str:
    """Say what was seen, and what the limit is."""
    limit = f", where the limit is {with_unit(finding.limit, finding.unit)}" if finding.limit is not None else ""
    return f"{finding.id}: {with_unit(finding.observed, finding.unit)}{limit}"


def _pictures(diagnosis: Diagnosis, figures: Mapping[str, str]) -> tuple[Picture, ...]:
    return tuple(
        Picture(title=kind.title, path=target(figures[kind.name]), caption=kind.caption(diagnosis))
        for kind in FIGURES
        if kind.name in figures
    )


def _tree(diagnosis: Diagnosis) -> tuple[Below, ...]:
    return tuple(
        Below(
            indent=Markdown("  " * depth),
            name=code(finding.id),
            severity=finding.severity.value,
            since=f"since {onset_words(finding.onset_step, None)}" if finding.onset_step is not None else "undated",
            claim=sentence(finding.claim),
        )
        for finding, depth in chains(diagnosis)
    )


def _earlier(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Say when the logs first showed it, and when the curves that everybody watches did."""
    first, signature = followed(diagnosis), diagnosis.signature
    if first is None:
        return ()
    if first.onset_step is None:
        return ("The logs do not tell when it began.",)
    told = [f"The logs show it from {onset_words(first.onset_step, first.onset_interval)} on ({first.id})."]
    if signature.status is Answer.FOUND or signature.aggregates.alarms:
        told.append(aggregates_sentence(signature))
    return tuple(told)

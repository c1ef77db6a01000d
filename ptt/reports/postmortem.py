"""Begins a postmortem of a run in Markdown: what the logs tell is filled in, what people must add is marked TODO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from ptt import __version__
from ptt.diagnostics.model import Answer, Diagnosis, Finding, Severity, Status
from ptt.reports.answers import NOTHING_TO_DO, replies
from ptt.reports.chains import chains, roots
from ptt.reports.consequences import followed, onset_words, span_words
from ptt.reports.figures import FIGURES
from ptt.reports.markdown import Markdown, code, md, target
from ptt.reports.names import LINKS, SEVERITIES, STATUSES, metric_name, sentence
from ptt.reports.numbers import count, counted, with_unit
from ptt.reports.origin import notices
from ptt.reports.postmortem_parts import gate_snippet, impact, recordings
from ptt.reports.view import NO_LINK
from ptt.reports.why import aggregates_sentence, chance, coverage

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
        notices=notices(diagnosis),
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

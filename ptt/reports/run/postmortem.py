"""Begins a postmortem of a run in Markdown: what the logs tell is filled in, what people must add is marked TODO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from ptt.diagnostics.model import Answer, Diagnosis, Finding, Severity, Status, Steps, in_unit, since_words
from ptt.diagnostics.verdict.catalogue import pages
from ptt.reports.figures import FIGURES
from ptt.reports.figures.timeline import end_of
from ptt.reports.output import render
from ptt.reports.run.advisories import cause_lines, database_line
from ptt.reports.run.answers import NOTHING_TO_DO, replies
from ptt.reports.run.audit import recomputed_line
from ptt.reports.run.outcome import said_beside_headline
from ptt.reports.run.view import NO_LINK, checkpoints_on_disk, kept_checkpoints, notices
from ptt.reports.text.consequences import chains, first_failure, limit_words, onset_words, roots, span_words
from ptt.reports.text.markdown import Markdown, code, target
from ptt.reports.text.names import LINKS, SEVERITIES, metric_name, sentence
from ptt.reports.text.numbers import count, counted, limit_value, with_unit
from ptt.reports.text.tables import table
from ptt.reports.text.why import aggregates_sentence, chance, coverage, samples

MAX_CHECKPOINTS: Final = 8  # named as not to trust
MAX_RECORDINGS: Final = 4  # lines that would record what is missing, those that answer most first
MAX_EVENTS: Final = 40  # of the timeline: the worst findings, in order of time
SIGNATURE: Final = "tool-tail-growth"
NO_STEPS = "Steps affected: unknown. Treat the whole run as affected."

Event = tuple[str, str, str, str, str]  # step, interval, what happened, the finding's name, its link


def postmortem(diagnosis: Diagnosis, figures: Mapping[str, str]) -> str:
    """Return the text of postmortem.md; `figures` are the paths to pictures by the figures' names."""
    verdict, first = diagnosis.verdict, first_failure(diagnosis)
    answers = {reply.key: reply.sentences for reply in replies(diagnosis)}
    events, unlisted = _events(diagnosis)
    pictures = [kind for kind in FIGURES if kind.name in figures]
    broken = verdict.status in {Status.UNSTABLE, Status.SUSPECT}
    text = render(
        "postmortem.md.j2",
        diagnosis=diagnosis,
        kind="Postmortem" if broken else "Review",
        first_broken=LINKS[verdict.first_broken_link] if verdict.first_broken_link else NO_LINK[verdict.status],
        span=_span(diagnosis),
        broken=first is not None,
        judged=verdict.status is not Status.CANNOT_SAY,
        notices=notices(diagnosis),
        summary=_summary(diagnosis, answers["happened"]),
        impact=_impact(diagnosis, first) if first else (),
        events=events,
        unlisted=unlisted,
        numbers=[_measured(finding) for finding in roots(diagnosis) if finding.observed is not None],
        recomputed=sentence(recomputed_line(diagnosis)),
        known=cause_lines(diagnosis),
        held_against="" if diagnosis.advisories is None else database_line(diagnosis.advisories),
        pictures=[(kind.title, target(figures[kind.name]), kind.caption(diagnosis)) for kind in pictures],
        tree=[(Markdown("  " * depth), finding, _onset(finding)) for finding, depth in chains(diagnosis)],
        coverage=coverage(diagnosis) or "Every question was judged.",
        unjudged=[item for item in diagnosis.not_judged if item.applies],
        actions=[*(text for text in answers["next"] if text != NOTHING_TO_DO), *_recordings(diagnosis)],
        earlier=_earlier(diagnosis, first) if first else (),
        gate=Markdown(_gate_snippet(diagnosis, first)),
        causes=first.causes if first else (),
    )
    return in_unit(text, diagnosis.run.step_unit)


def _span(diagnosis: Diagnosis) -> str:
    run = diagnosis.run
    if run.first_step is None or run.last_step is None:
        return "no steps are recorded"
    return f"{span_words((run.first_step, run.last_step))} ({counted(run.step_count, run.step_unit)} recorded)"


def _summary(diagnosis: Diagnosis, happened: tuple[str, ...]) -> list[str]:
    """Return the verdict, what it means in plain words, how sure it is, and what the usual curves showed."""
    signature, headline = diagnosis.signature, sentence(diagnosis.verdict.headline)
    did = [text] if (text := said_beside_headline(diagnosis)) else []
    if diagnosis.verdict.status is Status.CANNOT_SAY:
        return [headline, *did]
    if signature.status is not Answer.FOUND:
        return [headline, *did, *happened]
    sentences = (*happened[:1], chance(signature), aggregates_sentence(signature))
    return [text for text in (headline, *did, *map(sentence, sentences)) if text]


def _impact(diagnosis: Diagnosis, first: Finding) -> list[str]:
    """Say which steps and checkpoints are affected."""
    steps, last, interval = NO_STEPS, diagnosis.run.last_step, first.onset_interval
    if first.seen_step is not None and last is not None:
        end = max(end_of(first, last), first.seen_step)
        ended = f"to step {count(end)}, and not after that"
        ended = f"to the end of the run (step {count(last)})" if end >= last else ended
        began = f"; its start lies in steps {span_words(interval)}" if interval else ""
        passed = f"; {limit_words(first)}" if limit_words(first) else ""
        start = "the first logged step" if first.held_from_step is not None else onset_words(first.seen_step, None)
        steps = f"Steps affected: from {start} {ended}{began}{passed}."
    if diagnosis.from_findings:
        return [steps, "Checkpoints: findings.json does not list them; the store does."]
    healthy = [
        f"Checkpoint to go back to: {checkpoint}. {note}".rstrip()
        for name, _, checkpoint, _, note in kept_checkpoints(diagnosis)
        if name == "Last healthy"
    ]
    return [steps, *healthy, f"Checkpoints not to trust: {_untrusted(diagnosis, first)}."]


def _untrusted(diagnosis: Diagnosis, first: Finding) -> str:
    if table(diagnosis, "checkpoints") is None:
        return "not looked for"
    onset = first.seen_interval[0] if first.seen_interval else first.seen_step
    on_disk = sorted(checkpoints_on_disk(diagnosis), key=lambda row: row["step"])
    late = [row for row in on_disk if onset is None or row["step"] >= onset]
    if not late:
        return "those of the affected steps (none of them is on disk here)"
    more = f" and {count(len(late) - MAX_CHECKPOINTS)} later ones" if len(late) > MAX_CHECKPOINTS else ""
    return ", ".join(f"{row['path']} (step {count(row['step'])})" for row in late[:MAX_CHECKPOINTS]) + more


def _recordings(diagnosis: Diagnosis) -> list[str]:
    """Return the lines that record what was missing, those that answer most questions first."""
    answers = Counter(
        item.enable
        for item in diagnosis.not_judged
        if item.applies and item.enable and item.enable not in diagnosis.verdict.next
    )
    ordered = sorted(answers, key=lambda line: (-answers[line], line))[:MAX_RECORDINGS]
    return [f"Record more: {sentence(line)}" for line in ordered]


def _gate_snippet(diagnosis: Diagnosis, first: Finding | None) -> str:
    """Return the lines of ptt.toml that let `ptt gate` fail a run like this one, or keep a healthy one so."""
    known = {page.id for page in pages()}
    limit = Severity.MEDIUM if first is not None and first.severity is Severity.MEDIUM else Severity.HIGH
    lines = ["[gate]", f'severity = "{limit.value}"  # a finding this severe, or worse, fails the run']
    required = first.id if first is not None else ""
    if diagnosis.verdict.status is Status.CANNOT_SAY and SIGNATURE in known and samples(diagnosis):
        required = SIGNATURE
    if required in known:
        lines.append(f'require = ["{required}"]  # a run that records too little to judge does not pass')
    return "\n".join(lines)


def _events(diagnosis: Diagnosis) -> tuple[list[Event], str]:
    """Return findings and alarms in order of time, those without a known beginning last."""
    run, aggregates = diagnosis.run, diagnosis.signature.aggregates
    dated: list[tuple[int, int, Event]] = []
    undated = []
    for order, step, what in ((0, run.first_step, "First recorded step"), (3, run.last_step, "Last recorded step")):
        if step is not None:
            dated.append((step, order, _event(step, None, what)))
    findings = [finding for finding, _ in chains(diagnosis)]
    shown = sorted(findings, key=lambda finding: finding.severity.rank)[:MAX_EVENTS]
    for finding in shown:
        role = ", broke first" if finding is first_failure(diagnosis) else ""
        if not role and finding.consequence_of != finding.id and finding.consequence_of in {f.id for f in findings}:
            role = f", follows from {finding.consequence_of}"
        told = f"{sentence(finding.claim)} {sentence(finding.likely_cause)}".rstrip()
        what = f"{SEVERITIES[finding.severity]}{role}: {told}"
        event = _event(finding.seen_step, finding.seen_interval, what, finding)
        if finding.held_from_step is not None:
            event = ("first logged step", *event[1:])
        if finding.seen_step is not None:
            dated.append((finding.seen_step, 1, event))
        elif finding.severity.at_least(Severity.LOW):  # a note without a date is no event
            undated.append(event)
    for name, step in aggregates.alarms.items():
        what = f"Alarm of a usual curve: {metric_name(name)}"
        dated.append((step, 2, _event(step, aggregates.alarm_intervals.get(name), what)))
    rows = [event for _, _, event in sorted(dated, key=lambda entry: (entry[0], entry[1], entry[2][2]))]
    rest = len(findings) - len(shown)
    return [*rows, *undated], f"{counted(rest, 'finding')} of lower severity not shown." if rest else ""


def _event(step: int | None, interval: Steps | None, what: str, finding: Finding | None = None) -> Event:
    span = span_words(interval) if interval is not None and interval[0] < interval[1] else ""
    name, link = (code(finding.id), LINKS[finding.link]) if finding else ("", "")
    return "not known" if step is None else count(step), span, what, name, link


def _measured(finding: Finding) -> str:
    """Say what was seen, and what the limit is."""
    limit = f" (limit: {limit_value(finding.limit, finding.unit)})" if finding.limit is not None else ""
    return f"{finding.id}: {with_unit(finding.observed, finding.unit)}{limit}"


def _onset(finding: Finding) -> str:
    return since_words(finding, count) or "undated"


def _earlier(diagnosis: Diagnosis, first: Finding) -> list[str]:
    """Say when the logs first showed it, and when the curves that everybody watches did."""
    if first.seen_step is None:
        return ["The logs do not show when it began."]
    signature = diagnosis.signature
    shown = f"The logs show it {since_words(first, count)} ({first.id})."
    curves = signature.status is Answer.FOUND or signature.aggregates.alarms
    return [shown, *([aggregates_sentence(signature)] if curves else [])]

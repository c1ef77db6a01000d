"""A diagnosis in plain words: every string that the page and the terminal show, finished, and no markup."""

from __future__ import annotations

from dataclasses import dataclass

from ptt.diagnostics.model import Diagnosis, Link, NotJudged, Status
from ptt.reports.answers import Reply, replies
from ptt.reports.foreign import safe
from ptt.reports.lanes import Lane, lanes
from ptt.reports.listings import (
    FindingView,
    SourceGroup,
    finding_views,
    source_groups,
)
from ptt.reports.names import ANSWERS, CONDITIONS, LINKS, STATUSES, pair_name, sentence
from ptt.reports.numbers import count, number
from ptt.reports.origin import notices
from ptt.reports.why import samples

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

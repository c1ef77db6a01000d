"""Say what the logs show where a finding sets in: that the run was started again, and lines of its console."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.excursions import EVALUATION, RESTART, happened_at
from ptt.diagnostics.evidence.sample_counters import LINES, NUMBERS
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Finding, JsonScalar, Link, Severity, Steps
from ptt.diagnostics.parsers.io.console_incidents import speaks_of_samples, words_alike
from ptt.diagnostics.rules.comes_and_goes import MISMATCHES
from ptt.diagnostics.verdict.failure_causes import KINDS, Said, with_cause
from ptt.diagnostics.wording import INNER_QUOTES, counted, shortened, sig

NEAR: Final = 20  # steps: what is dated worse than this goes with nothing
WINDOW: Final = 20  # logged steps from the onset on in which lines are counted
TIMES: Final = 5.0  # as many a step as before: lines that came all along say nothing of the onset
AFTER: Final = 10  # steps from a restart to the first batch that shows its fault: several share one generation
PARTED: Final = 3.0  # times its early level, at all steps up to the onset
MIN_PARTED: Final = 5  # steps before the onset
MIN_FAILED: Final = 0.3  # a sample: of an evaluation's many, nearly every third
FAILED_BEFORE: Final = 0.1  # of it: in all evaluations before
OF_POLICY: Final = frozenset({Link.EXPLORATION, Link.REWARD, Link.POLICY_UPDATE, Link.NUMERICS})
LIKELY_AT_START: Final = (
    ": weights or an adapter that were not loaded, or not as before, are as likely as the learning rate"
)
MORE: Final = 1.3  # times as many a step as before
STARTED_AGAIN: Final = re.compile(r"\b(?:restart|resume[ds]?\b|began again|started again)")
MAX_QUOTE: Final = 140  # characters of a line
MIN_SAID: Final = 5  # times
STEADY: Final = 0.2  # of the steps: so many say it where it is a part of the run
QUOTES: Final = frozenset({"run-stalled", "run-cut-short", "out-of-memory", "slow-steps"})
"""Findings that quote the console themselves."""


@dataclass(frozen=True, kw_only=True)
class _Happened:
    """Steps of what may set a fault off: the last before each new start, and that of the first evaluation."""

    restarts: Sequence[int]
    evaluation: int | None


@dataclass(frozen=True, kw_only=True)
class _Line:
    """Lines of the console of one wording, around an onset."""

    name: str
    first_step: int
    count: float
    before: float  # a step


@dataclass(frozen=True, kw_only=True)
class _Failed:
    """A figure of failures that an evaluation near an onset counted, and hardly any before it."""

    name: str
    step: int
    change: str


def with_context(findings: Sequence[Finding], evidence: Evidence) -> tuple[Finding, ...]:
    """Add to each root of medium severity or above what happened in the run just where it sets in."""
    if not any(map(_is_root, findings)):
        return tuple(findings)
    happened = happened_at(
        evidence.metrics, evidence.other, evidence.run, evidence.evaluation, evidence.events, evidence.segments
    )
    restarts = [int(step) for step in happened.get(RESTART, ())]
    lines = [one for one in (*evidence.metrics.values(), *evidence.other.values()) if one.raw_name.startswith(LINES)]
    evaluations = [int(step) for step in happened.get(EVALUATION, ())]
    events = _Happened(restarts=restarts, evaluation=evaluations[0] if evaluations else None)
    told = [
        _caused(_told(one, evidence, events, lines) if _is_asked(one) else one, evidence, events, lines)
        for one in findings
    ]
    if any(one.link is Link.DATA_FRESHNESS and _is_asked(one) for one in findings):
        return tuple(told)
    return tuple(_parted(one, evidence) if one.link in OF_POLICY and _is_asked(one) else one for one in told)


def _parted(finding: Finding, evidence: Evidence) -> Finding:
    """Say that engine and trainer had begun to disagree before a policy broke, where no finding of its own says so."""
    first = _window(finding)[0]
    for name in MISMATCHES:
        series = evidence.metrics.get(name)
        if series is None:
            continue
        steps, values = series.finite()
        before = np.abs(values[steps < first] - (1.0 if name == "mismatch/prob_error" else 0.0))
        if len(before) < 2 * MIN_PARTED:
            continue
        early = float(np.median(before[: max(MIN_PARTED, len(before) // 3)]))
        low = np.flatnonzero(before <= PARTED * early)
        since = int(low[-1]) + 1 if len(low) else 0
        if early > 0 and MIN_PARTED <= len(before) - since <= len(before) // 2:
            at, now = int(steps[since]), float(np.median(before[-MIN_PARTED:]))
            return replace(
                finding,
                context=(
                    *finding.context,
                    f"before it, from step {at} on, {series.raw_name} left its level ({sig(early)} → {sig(now)}): "
                    "engine and trainer parted first, as with a stale cache or old weights in the engine",
                ),
                evidence={"engine_left_level_at": at, **finding.evidence},
            )
    return finding


def _is_root(finding: Finding) -> bool:
    return finding.consequence_of is None and finding.severity.at_least(Severity.MEDIUM)


def _is_asked(finding: Finding) -> bool:
    if finding.onset_step is None or not _is_root(finding):
        return False
    first, last = _window(finding)
    return last - first <= NEAR


def _caused(finding: Finding, evidence: Evidence, events: _Happened, lines: Sequence[Series]) -> Finding:
    """Name the likely cause of a root, by the lines of the console that begin with it, or that were there all along."""
    if not _is_root(finding):
        return finding
    first, last = _window(finding)
    if finding.id in KINDS["lost"] and finding.onset_step is not None:
        begun = list(_during(lines, finding.onset_step, finding.evidence.get("last_step")))
    else:
        begun = list(_begun(lines, first, last) if _is_asked(finding) else _steady(lines, evidence))
    said = [Said(text=_line_text(one, evidence), count=one.count) for one in begun]
    if not lines and finding.id in KINDS["lost"]:
        said = list(_unplaced(evidence))
    restart = max((step for step in events.restarts if first - AFTER <= step <= last), default=None)
    return with_cause(finding, evidence, said, restart if _is_asked(finding) else None)


def _during(lines: Sequence[Series], first: int, last: JsonScalar) -> Iterator[_Line]:
    """Yield the wordings that come more often while samples are lost than before: they are what is lost."""
    for series in lines:
        steps, values = series.finite()
        inside = (steps >= first) & (steps <= (last if isinstance(last, int) else steps[-1] if len(steps) else 0))
        count, before = float(values[inside].sum()), float(values[steps < first].sum())
        earlier = before / max(1, first - int(steps[0])) if len(steps) else 0.0
        if count and count / max(1, int(steps[inside][-1]) - first + 1) > MORE * earlier:
            yield _Line(name=series.raw_name, first_step=int(steps[inside][0]), count=count, before=earlier)


def _unplaced(evidence: Evidence) -> Iterator[Said]:
    """Yield what a console without steps says of lost samples, the most frequent wordings."""
    spoken = [event.text for event in evidence.events if event.step is None and speaks_of_samples(event.text)]
    shapes: dict[str, list[str]] = {}
    for text in spoken:
        shapes.setdefault(NUMBERS.sub("", text), []).append(text)
    yield from (Said(text=texts[-1], count=len(texts)) for texts in shapes.values() if len(texts) >= MIN_SAID)


def _steady(lines: Sequence[Series], evidence: Evidence) -> Iterator[_Line]:
    """Yield the wordings that come at many steps of the run."""
    for series in lines:
        steps, values = series.finite()
        if (values > 0).sum() >= STEADY * max(1, evidence.run.step_count):
            yield _Line(name=series.raw_name, first_step=int(steps[0]), count=float(values.sum()), before=0.0)


def _window(finding: Finding) -> Steps:
    onset = finding.onset_step or 0
    low, high = finding.onset_interval or (onset, onset)
    return min(low, onset), max(high, onset)


def _told(finding: Finding, evidence: Evidence, events: _Happened, lines: Sequence[Series]) -> Finding:
    first, last = _window(finding)
    claim, told, facts = " ".join((finding.claim, *finding.context)), list[str](), dict[str, JsonScalar]()
    restart = next((step for step in events.restarts if first - 1 <= step <= last), None)
    evaluated = events.evaluation
    earlier = max((step for step in events.restarts if first - AFTER <= step < first - 1), default=None)
    if restart is None and earlier is not None:
        facts["restart_step"] = earlier
        later = counted((finding.onset_step or first) - earlier, "step(s)")
        told.append(
            f"it begins {later} after the run was started again at step {earlier}"
            + (LIKELY_AT_START if finding.link in OF_POLICY else "")
        )
    elif restart is not None:
        facts["restart_step"] = restart
        told += [] if STARTED_AGAIN.search(claim) else [f"the run was started again at step {restart}"]
    elif evaluated is not None and evaluated in (last, last - 1) and evaluated > (evidence.run.first_step or 0) + 1:
        facts["first_evaluation_step"] = evaluated
        told += [] if "evaluation" in claim else [f"the first evaluation was at step {evaluated}"]
    if (failed := _failed(evidence, first, last)) is not None:
        facts |= {"failing_evaluation_step": failed.step, "failing_metric": failed.name}
        told.append(f"in the evaluation of step {failed.step} {failed.name} went from {failed.change}")
        why = f"find out why {failed.name} rose: what fails there fails in training too, and is not the policy's doing"
        finding = replace(finding, confirm=(why, *finding.confirm))
    line = None if finding.id in QUOTES else _line(lines, first, last)
    if line is not None and (quote := _quote(line, evidence)) not in claim:
        facts |= {"console_line": quote, "console_lines": line.count}
        rarely = "hardly" if line.before else "never"
        told.append(f'the console says {_times(line.count)} there, and {rarely} before: "{quote}"')
    return replace(finding, context=(*finding.context, *told), evidence={**facts, **finding.evidence})


def _failed(evidence: Evidence, first: int, last: int) -> _Failed | None:
    """Return the failures of an evaluation near an onset that none before it had; of several the most frequent."""
    found: list[tuple[float, _Failed]] = []
    for series in evidence.evaluation.failures if evidence.evaluation is not None else ():
        steps, values = series.finite()
        failing = (values >= MIN_FAILED) & (steps >= first - NEAR) & (steps <= last + NEAR)
        at = int(np.argmax(failing))
        if not failing.any() or not at:
            continue
        was, now = float(values[:at].max()), float(values[at])
        if was <= FAILED_BEFORE * now:
            told = _Failed(name=series.raw_name, step=int(steps[at]), change=f"{sig(was)} to {sig(now)}")
            found.append((now, told))
    return max(found, key=lambda one: (one[0], one[1].name))[1] if found else None


def _times(count: float) -> str:
    return "once" if count == 1 else counted(round(count), "time(s)")


def _line(lines: Sequence[Series], first: int, last: int) -> _Line | None:
    """Return the wording that begins with an onset: first what never came before, then what came first."""
    found = list(_begun(lines, first, last))
    return min(found, key=lambda one: (one.before > 0, one.first_step, -one.count, one.name), default=None)


def _begun(lines: Sequence[Series], first: int, last: int) -> Iterator[_Line]:
    for series in lines:
        steps, values = series.finite()
        steps, values = steps[values > 0], values[values > 0]
        since = (steps >= first - 1) & (steps <= last + WINDOW)
        if not since.any() or steps[since][0] > last + 1:
            continue
        before = steps < first - 1
        rate = float(values[before].sum()) / max(1, first - int(steps[0])) if before.any() else 0.0
        count = float(values[since].sum())
        if count / (last + WINDOW - first + 2) >= TIMES * rate:
            yield _Line(name=series.raw_name, first_step=int(steps[since][0]), count=count, before=rate)


def _quote(line: _Line, evidence: Evidence) -> str:
    return shortened(_line_text(line, evidence), MAX_QUOTE)


def _line_text(line: _Line, evidence: Evidence) -> str:
    """Return the first such line as the console has it, else the words that are counted."""
    words = line.name.rpartition("/")[2]
    at = [event for event in evidence.events if event.step is not None and abs(event.step - line.first_step) <= 1]
    at.sort(key=lambda event: event.kind == "exception")  # without the name of the process that says it
    text = next((event.text for event in at if words_alike(event.text, words)), words)
    return text.translate(INNER_QUOTES)

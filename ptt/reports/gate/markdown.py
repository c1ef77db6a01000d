"""The gate as Markdown, for a comment on a merge request and for the summary of a job: the outcome comes first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ptt.diagnostics.gate.results import ORDER, GatedRun, GateReport
from ptt.reports.gate.check_text import (
    OUTCOMES,
    SHAPES,
    STANDINGS,
    Case,
    Standing,
    against,
    cases_of,
    clause,
    headline,
    measured,
    named,
    next_steps,
    since,
    size,
    title,
    untold_allowance,
    worst_first,
)
from ptt.reports.text.markdown import html, text
from ptt.reports.text.names import STATUSES, sentence
from ptt.reports.text.numbers import count, counted
from ptt.reports.text.sanitize import safe

COMMENT: Final = 65_000  # bytes; a comment on GitHub may have 65,536 characters
MOST_PASSED = 500  # names of passed runs, folded
MOST_ROWS = 500  # of the table of runs
_CLOSING = 400  # bytes kept for the sentence that tells what was left out


def render(report: GateReport) -> str:
    """Give the Markdown of a comment: runs that did not simply pass, and why."""
    return summary(report, limit=COMMENT, every_run=False)


def summary(report: GateReport, *, limit: int, every_run: bool) -> str:
    """Give the Markdown in at most `limit` bytes: what is left out is counted, the worst stays.

    every_run: passed runs get their row and their checks too, folded.
    """
    runs = _worst_first(report)
    plain = {name for name, _, cases in runs if all(case.standing is Standing.PASSED for case in cases)}
    shown = [one for one in runs if every_run or one[0] not in plain]
    blocks = [_opening(report), *_table(shown)]
    blocks += [_section(*one, folded=every_run and one[0] in plain) for one in shown]
    blocks += [] if every_run else _passed([name for name, _, _ in runs if name in plain])
    blocks += _closing(report)
    return _fitting(blocks, limit)


def _worst_first(report: GateReport) -> list[tuple[str, GatedRun, tuple[Case, ...]]]:
    every = [(name, run, cases_of(run)) for name, run in named(report).items()]
    return sorted(every, key=lambda one: ORDER.index(one[1].outcome))


def _opening(report: GateReport) -> str:
    return f"## {SHAPES[report.outcome]} {text(title(report))}\n\n{text(headline(report))}\n"


def _table(shown: Sequence[tuple[str, GatedRun, tuple[Case, ...]]]) -> list[str]:
    if not shown:
        return []
    lines = ["| run | gate | verdict | what was seen | holds |", "|---|---|---|---|---|"]
    for name, run, cases in shown[:MOST_ROWS]:
        verdict = STATUSES[run.status] if run.status is not None else "none"
        cells = [text(name), _outcome(run, cases), verdict, text(run.error or run.headline), text(size(run))]
        lines.append(f"| {' | '.join(cells)} |")
    rest = len(shown) - MOST_ROWS
    if rest > 0:
        lines += ["", f"And {counted(rest, 'run')} more; gate.json has all."]
    return ["\n".join(lines) + "\n"]


def _outcome(run: GatedRun, cases: Sequence[Case]) -> str:
    waived = sum(case.standing is Standing.WAIVED for case in cases)
    unsaid = sum(case.standing is Standing.TOLERATED for case in cases)
    told = f"{SHAPES[run.outcome]} {OUTCOMES[run.outcome]}"
    told += f", {count(waived)} allowed for now" if waived else ""
    return told + (f", {count(unsaid)} not judged" if unsaid else "")


def _section(name: str, run: GatedRun, cases: Sequence[Case], *, folded: bool) -> str:
    """Tell a run's checks: what did not pass in full, what passed folded."""
    passed = [case for case in cases if case.standing is Standing.PASSED]
    told = [_item(case) for case in worst_first(cases) if case.standing is not Standing.PASSED]
    told += [f"- note: {text(sentence(note))}" for note in run.notes]
    if run.report:
        told.append(f"- report: {text(run.report)}, among the gate's output")
    lines = [f"### {SHAPES[run.outcome]} {text(name)}: {OUTCOMES[run.outcome]}", ""]
    lines += [*told, ""] if told else []
    if passed:
        lines += _folded(f"{counted(len(passed), 'check')} passed", [_passed_item(case) for case in passed])
    body = "\n".join(lines).rstrip("\n") + "\n"
    if not folded:
        return body
    return "\n".join(_folded(f"{html(name)}: {OUTCOMES[run.outcome]}", lines[2:])) + "\n"


def _item(case: Case) -> str:
    """Tell one check: what was seen, against what, since when, who answers for it, and what to do."""
    lines = [f"- **{STANDINGS[case.standing]}**: {text(against(case))}"]
    check = case.check
    if check is None:
        return lines[0]
    facts = "; ".join(part for part in (measured(check), since(check)) if part)
    lines += [f"  - {text(sentence(facts))}"] if facts else []
    lines += [f"  - Judged on: {text(clause(check.data))}"] if check.data else []
    told = untold_allowance(case)
    lines += [f"  - {text(told)}"] if told else []
    lines += [f"  - Next: {text(step)}" for step in next_steps(case)]
    return "\n".join(lines)


def _passed_item(case: Case) -> str:
    check = case.check
    if check is None:
        return f"- {text(sentence(case.title))}"
    parts = [f"{safe(case.title)}: {clause(case.claim)}", sentence(measured(check))]
    fails = f" Would have failed it: {text(clause(check.fails_if))}" if check.fails_if else ""
    return f"- {text(' '.join(part for part in parts if part))}{fails}"


def _passed(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    lines = [f"- {text(name)}" for name in names[:MOST_PASSED]]
    rest = len(names) - MOST_PASSED
    lines += [f"- and {counted(rest, 'run')} more"] if rest > 0 else []
    return ["\n".join(_folded(f"{counted(len(names), 'run')} passed", lines)) + "\n"]


def _closing(report: GateReport) -> list[str]:
    blocks = []
    if report.notes:
        blocks.append("\n".join(f"- note: {text(sentence(note))}" for note in report.notes) + "\n")
    demanded = [f"- {text(name)}: {text(_value(report.policy[name]))}" for name in sorted(report.policy)]
    demanded += [f"- baseline: {text(report.baseline)}"] if report.baseline else []
    return [*blocks, "\n".join(_folded("What was demanded", demanded)) + "\n"] if demanded else blocks


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _folded(heading: str, lines: Iterable[str]) -> list[str]:
    return ["<details>", f"<summary>{heading}</summary>", "", *lines, "", "</details>"]


def _fitting(blocks: Sequence[str], limit: int) -> str:
    """Join blocks as long as they fit; a block that does not is left out whole, so that no markup is torn."""
    kept, left, used = [], 0, 0
    for block in blocks:
        length = len(block.encode("utf-8")) + 1
        if used + length > limit - _CLOSING:
            left += 1
            continue
        kept.append(block)
        used += length
    if left:
        kept.append(f"{counted(left, 'part')} of this page left out, as it would be too long; gate.json has all.\n")
    return "\n".join(kept)

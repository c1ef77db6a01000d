"""The gate as Markdown, for a comment on a merge request; and what GitHub Actions shows: annotations, the summary."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from ptt.diagnostics.gate.results import GatedRun, GateReport, Outcome
from ptt.reports.gate import checks, gate_json
from ptt.reports.gate.checks import Case, CheckStatus
from ptt.reports.text.markdown import html, text
from ptt.reports.text.names import STATUSES, sentence
from ptt.reports.text.numbers import count, counted
from ptt.reports.text.sanitize import encodable, safe

COMMENT_BYTES: Final = 65_000  # a comment on GitHub may have 65,536 characters
MAX_PASSED = 500  # names of passed runs, folded
MAX_ROWS = 500  # of the table of runs
CLOSING_BYTES = 400  # kept for the sentence on what was left out
RunCases = tuple[str, GatedRun, tuple[Case, ...]]


def render(report: GateReport) -> str:
    """Return the Markdown of a comment: runs that did not simply pass, and why."""
    return summary(report, limit=COMMENT_BYTES, every_run=False)


def summary(report: GateReport, *, limit: int, every_run: bool) -> str:
    """Return the Markdown in at most `limit` bytes: what is left out is counted, the worst stays.

    every_run: passed runs get their row and their checks too, folded.
    """
    runs = [(name, run, checks.cases_of(run, name)) for name, run in checks.runs_worst_first(report)]
    plain = {name for name, _, cases in runs if all(case.status is CheckStatus.PASSED for case in cases)}
    shown = [run for run in runs if every_run or run[0] not in plain]
    title = f"## {checks.outcome_mark(report.outcome)} {text(checks.title(report))}"
    blocks = [f"{title}\n\n{text(checks.headline(report))}\n", *_table(shown)]
    blocks += [_section(*run, folded=every_run and run[0] in plain) for run in shown]
    blocks += [] if every_run else _passed([name for name, _, _ in runs if name in plain])
    blocks += _closing(report)
    return _fitting(blocks, limit)


def _table(shown: Sequence[RunCases]) -> list[str]:
    if not shown:
        return []
    lines = ["| run | gate | verdict | result | size |", "|---|---|---|---|---|"]
    for name, run, cases in shown[:MAX_ROWS]:
        verdict = STATUSES[run.status] if run.status is not None else "none"
        cells = [text(name), _outcome(run, cases), verdict, text(run.error or run.headline), text(checks.size(run))]
        lines.append(f"| {' | '.join(cells)} |")
    rest = len(shown) - MAX_ROWS
    if rest > 0:
        lines += ["", f"And {counted(rest, 'run')} more; see gate.json."]
    return ["\n".join(lines) + "\n"]


def _outcome(run: GatedRun, cases: Sequence[Case]) -> str:
    statuses = [case.status for case in cases]
    waived, tolerated = statuses.count(CheckStatus.WAIVED), statuses.count(CheckStatus.TOLERATED)
    words = f"{checks.outcome_mark(run.outcome)} {checks.OUTCOME_TEXT[run.outcome].word}"
    words += f", {count(waived)} allowed for now" if waived else ""
    return words + (f", {count(tolerated)} not judged" if tolerated else "")


def _section(name: str, run: GatedRun, cases: Sequence[Case], *, folded: bool) -> str:
    """Write a run's checks: what did not pass in full, what passed folded."""
    passed = [case for case in cases if case.status is CheckStatus.PASSED]
    lines = [_item(case) for case in checks.worst_first(cases) if case.status is not CheckStatus.PASSED]
    lines += _notes(run.notes)
    lines += [f"- report: {text(run.report)}, in the gate's output folder"] if run.report else []
    lines += [""] if lines else []
    if passed:
        lines += _folded(f"{counted(len(passed), 'check')} passed", [_passed_item(case) for case in passed])
    outcome = checks.OUTCOME_TEXT[run.outcome].word
    if folded:
        return "\n".join(_folded(f"{html(name)}: {outcome}", lines)) + "\n"
    title = f"### {checks.outcome_mark(run.outcome)} {text(name)}: {outcome}"
    return "\n".join([title, "", *lines]).rstrip("\n") + "\n"


def _notes(notes: Sequence[str]) -> list[str]:
    return [f"- note: {text(sentence(note))}" for note in notes]


def _item(case: Case) -> str:
    """Write one check: what was seen, against what, since when, who answers for it, and what to do."""
    lines = [f"- **{checks.STATUS_TEXT[case.status].word}**: {text(checks.against(case))}"]
    data = checks.clause(case.check.data) if case.check is not None else ""
    facts = (("", checks.details(case)), ("Judged on: ", data), ("", checks.unclaimed_allowance(case)))
    lines += [f"  - {head}{text(fact)}" for head, fact in facts if fact]
    lines += [f"  - Next: {text(step)}" for step in checks.next_steps(case)]
    return "\n".join(lines)


def _passed_item(case: Case) -> str:
    check = case.check
    if check is None:
        return f"- {text(sentence(case.title))}"
    parts = [f"{safe(case.title)}: {checks.clause(case.claim)}", sentence(checks.measured(check))]
    fails = f" Would fail on: {text(checks.clause(check.fails_if))}" if check.fails_if else ""
    return f"- {text(' '.join(part for part in parts if part))}{fails}"


def _passed(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    lines = [f"- {text(name)}" for name in names[:MAX_PASSED]]
    rest = len(names) - MAX_PASSED
    lines += [f"- and {counted(rest, 'run')} more"] if rest > 0 else []
    return ["\n".join(_folded(f"{counted(len(names), 'run')} passed", lines)) + "\n"]


def _closing(report: GateReport) -> list[str]:
    blocks = ["\n".join(_notes(report.notes)) + "\n"] if report.notes else []
    demanded = [f"- {text(name)}: {text(_value(report.policy[name]))}" for name in sorted(report.policy)]
    demanded += [f"- baseline: {text(report.baseline)}"] if report.baseline else []
    return [*blocks, "\n".join(_folded("Policy", demanded)) + "\n"] if demanded else blocks


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _folded(heading: str, lines: Iterable[str]) -> list[str]:
    return ["<details>", f"<summary>{heading}</summary>", "", *lines, "", "</details>"]


def _fitting(blocks: Sequence[str], limit: int) -> str:
    """Join blocks as long as they fit; a block that does not is left out whole, so that no markup is torn."""
    kept, left, used = [], 0, 0
    for block in blocks:
        length = len(block.encode("utf-8")) + 1
        if used + length > limit - CLOSING_BYTES:
            left += 1
            continue
        kept.append(block)
        used += length
    if left:
        kept.append(f"{counted(left, 'part')} of this page left out to keep it short; gate.json has all.\n")
    return "\n".join(kept)


MAX_PER_LEVEL = 10  # annotations that GitHub shows of one level and step; the rest are dropped without a word
SUMMARY_BYTES = 1024 * 1024  # of a step's summary; a longer one is not shown at all


def github_annotations(report: GateReport, *, rest_in: str = "the job summary") -> str:
    """Return the workflow commands, one a line: the outcome first, then the worst of each level as far as GitHub goes.

    `rest_in` names where the checks stand for which GitHub has no more room.
    """
    cases = checks.not_passed(report)
    command = "notice" if report.outcome is Outcome.PASSED else "error"
    room = {level: MAX_PER_LEVEL - (level == command) for level in ("error", "warning", "notice")}
    lines = []
    for case in cases:
        status, path = checks.STATUS_TEXT[case.status], checks.evidence_path(case)
        if room[status.github] == 0:
            continue
        room[status.github] -= 1
        properties = {"file": safe(path)} if path is not None else {}
        properties |= {"title": f"{status.word}: {case.run_name}: {case.id}"}
        message = f"{checks.one_line(case)} {checks.unclaimed_allowance(case)}".rstrip()
        lines.append(_command(status.github, properties, message))
    rest = len(cases) - len(lines)
    more = f" {counted(rest, 'check')} more in {safe(rest_in)}." if rest else ""
    outcome = _command(command, {"title": checks.title(report)}, checks.headline(report) + more)
    return "\n".join([outcome, *lines]) + "\n"


def job_summary(report: GateReport) -> str:
    """Return the Markdown for $GITHUB_STEP_SUMMARY: all runs and checks as far as a summary may be long."""
    return summary(report, limit=SUMMARY_BYTES, every_run=True)


def github_guard(report: GateReport) -> tuple[str, str]:
    """Return a line before and one after other output: between them the runner takes no line for a command.

    The token must be one that nobody can write into a log beforehand: it is made of all that the report holds.
    """
    token = "ptt-" + hashlib.sha256(gate_json.render(report).encode("utf-8")).hexdigest()
    return f"::stop-commands::{token}", f"::{token}::"


def _command(command: str, properties: dict[str, str], message: str) -> str:
    text = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{command} {text}::{_data(message)}"


def _data(text: str) -> str:
    return encodable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

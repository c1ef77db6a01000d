"""The gate's answer on a terminal: a line a run, worst first, then the outcome with its exit code and why.

In a pipe or a CI log each of these is one line, however long, to be searched; a terminal wraps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from ptt.diagnostics.gate.results import ORDER, SHOWN_WITH_A_PASS, CheckKind, GatedRun, GateReport, Outcome
from ptt.reports.gate import checks
from ptt.reports.gate.checks import Case, CheckStatus
from ptt.reports.text import notebook
from ptt.reports.text.names import sentence
from ptt.reports.text.numbers import counted
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.terminal import print_wrapped

MIN_WIDTH: Final = 40
MAX_RUNS: Final = 30  # with lines of their own, of those that passed and of those that did not; the page lists all
MAX_SUMMARY_RUNS: Final = 5
MAX_SUMMARY_LINE: Final = 300  # letters
INDENT: Final = 2
LABEL_WIDTH: Final = 15
WORDS: Final = {
    Outcome.CRASHED: "CRASH",
    Outcome.FAILED: "FAIL",
    Outcome.UNREADABLE: "UNREADABLE",
    Outcome.BLIND: "BLIND",
    Outcome.PASSED: "PASS",
}
GROUPS: Final = {
    CheckKind.CRASH: "Faults of the program",
    CheckKind.SEVERITY: "What the rules found",
    CheckKind.ADVISORY: "Known bugs and settings",
    CheckKind.WAIVER: "What is allowed for now",
    CheckKind.EXTENT: "Whether the run came far enough",
    CheckKind.REQUIRED: "Rules that must give an answer",
    CheckKind.BOUND: "Bounds on metrics, tails and sample sizes",
    CheckKind.BASELINE: "Against the baseline",
}


def print_gate(report: GateReport, console: Console, index: str, *, explain: bool = False) -> None:
    """Print the answer; `explain` shows each check with its data and what would have failed it."""
    runs = checks.runs_worst_first(report)
    shown = runs if explain else _shown(runs)
    for name, run in shown:
        if not explain:
            _line(console, _summary(name, run, report))
            continue
        head = _outcome(run.outcome).append(f"  {name}", style="bold")
        _line(console, head.append(f"  {checks.size(run)}" if run.checks else "", style="dim"))
        _explain(console, checks.worst_first(checks.cases_of(run, name)))
        _notes(console, run.notes, indent=INDENT)
    for text in _left_out(runs, shown):
        _line(console, text)
    _notes(console, report.notes)
    outcome = checks.OUTCOME_TEXT[report.outcome]
    text = _outcome(report.outcome, "ptt gate: ").append(
        f", exit code {outcome.exit_code}: {outcome.meaning}. ", style="default"
    )
    _line(console, text.append(checks.headline(report), style="default"))
    where = Text("All of it: ", style="dim").append(safe(index), style="underline")
    console.print(where, soft_wrap=True)  # never wrapped: a path is there to be copied


def _shown(runs: Sequence[tuple[str, GatedRun]]) -> list[tuple[str, GatedRun]]:
    """Return the runs that get lines of their own: the worst of those that did not pass, and few that did, or none."""
    passed = [item for item in runs if item[1].outcome is Outcome.PASSED]
    others = [item for item in runs if item[1].outcome is not Outcome.PASSED]
    return others[:MAX_RUNS] + (passed if len(passed) <= MAX_RUNS else [])


def _left_out(runs: Sequence[tuple[str, GatedRun]], shown: Sequence[tuple[str, GatedRun]]) -> Iterator[Text]:
    """Count the runs that got no line, by outcome, worst first."""
    left = Counter(run.outcome for _, run in runs)
    left.subtract(run.outcome for _, run in shown)
    for outcome in ORDER:
        if left[outcome] > 0:
            passed = outcome is Outcome.PASSED
            words = f"{counted(left[outcome], 'run' if passed else 'more run')} {checks.OUTCOME_TEXT[outcome].of_runs}"
            text = _marked(CheckStatus(outcome.value), words)
            yield text if passed else text.append("; the page named below lists all", style="dim")


def _marked(status: CheckStatus, words: str) -> Text:
    text = checks.STATUS_TEXT[status]
    return Text(f"{text.mark} {words}", style=text.style)


def _outcome(outcome: Outcome, head: str = "") -> Text:
    return _marked(CheckStatus(outcome.value), head + checks.OUTCOME_TEXT[outcome].word)


def _case(case: Case, words: str) -> Text:
    return _marked(case.status, f"{checks.STATUS_TEXT[case.status].word}  ").append(words, style="default")


def summary(report: GateReport) -> str:
    """Return the answer in a few lines of plain text: the outcome with its exit code, and the worst runs."""
    lines = [f"{checks.outcome_mark(report.outcome)} {checks.title(report)}: {checks.headline(report)}"]
    runs = checks.runs_worst_first(report)
    for name, run in runs[:MAX_SUMMARY_RUNS]:
        lines.append(shortened(" ".join((name, WORDS[run.outcome], _told(name, run, report).plain)), MAX_SUMMARY_LINE))
    if len(runs) > MAX_SUMMARY_RUNS:
        lines.append(f"and {counted(len(runs) - MAX_SUMMARY_RUNS, 'more run')}")
    return "\n".join(lines)


def notebook_card(report: GateReport) -> str:
    """Return the answer as a notebook shows it: the outcome with its exit code, a row a run, and the notes."""
    rows = [
        (f"{checks.outcome_mark(run.outcome)} {name}", WORDS[run.outcome], _told(name, run, report).plain)
        for name, run in checks.runs_worst_first(report)
    ]
    title = f"{checks.outcome_mark(report.outcome)} {checks.title(report)}: {checks.headline(report)}"
    return notebook.card(title, head=("run", "gate", "why"), rows=rows, texts=list(map(sentence, report.notes)))


def _summary(name: str, run: GatedRun, report: GateReport) -> Text:
    """Write a run: its outcome, the worst check with its value, limit and reason, and how many others did not pass."""
    style = checks.STATUS_TEXT[CheckStatus(run.outcome.value)].style
    head = Text(f"{checks.outcome_mark(run.outcome)} ", style=style)
    head.append(name, style="bold").append(f"  {WORDS[run.outcome]}", style=style)
    return head.append("  ").append_text(_told(name, run, report))


def _told(name: str, run: GatedRun, report: GateReport) -> Text:
    """Say why a run did not pass, or of one that did how much it holds and what its pass rests on."""
    cases = checks.worst_first(checks.cases_of(run, name))
    stopping = [case for case in cases if case.status in checks.BLOCKING]
    if run.outcome is not Outcome.PASSED and stopping:
        more = f" (+{counted(len(stopping) - 1, 'more check')})" if len(stopping) > 1 else ""
        return Text(f"{_reason(stopping[0], report)}{more}")
    told = Text(checks.size(run) if run.checks else "", style="dim")
    for case in cases:
        if case.status is CheckStatus.WAIVED:
            told.append(f"; {checks.allowance(case).removesuffix('.')}", style=checks.STATUS_TEXT[case.status].style)
    if tolerated := sum(case.status is CheckStatus.TOLERATED for case in cases):
        text = checks.STATUS_TEXT[CheckStatus.TOLERATED]
        told.append(f"; {tolerated} {text.word}", style=text.style)
    for note in run.notes:
        if note.startswith(SHOWN_WITH_A_PASS):
            told.append(f"; {safe(note)}", style="default")
    return told


def _reason(case: Case, report: GateReport) -> str:
    """Name what failed with its value and limit, then say why, and under which demand of the policy."""
    check, limit = case.check, report.policy.get("severity")
    if check is None:
        return checks.clause(case.claim)
    if check.kind is CheckKind.SEVERITY and check.rule and limit:
        measured = checks.measured(check).replace("observed", safe(check.metric) or "observed", 1)
        value = ", ".join(filter(None, (measured, checks.since(case))))
        head = f"{safe(check.rule)}{': ' if value else ''}{value}. {sentence(case.claim)}"
        severity = f"Severity {check.severity}" if check.severity is not None else "It counts"
        return f"{head} {severity}; the policy fails at {safe(str(limit))} or above."
    unmet = "cannot say" if case.status is CheckStatus.BLIND else "not met"
    found = f"{checks.details(case)} {sentence(case.claim)} {checks.unclaimed_allowance(case)}"
    return " ".join(f"{unmet}: {safe(case.title).rstrip('.')}. {found}".split())


def _explain(console: Console, cases: Sequence[Case]) -> None:
    """Print every check under its group: what was seen, on what, and what would have failed it."""
    for kind, title in ((None, ""), *GROUPS.items()):
        group = [case for case in cases if (case.check.kind if case.check else None) is kind]
        if group and title:
            _line(console, Text(title, style="bold"), indent=INDENT)
        for case in group:
            _line(console, _case(case, sentence(case.title)), indent=2 * INDENT)
            for label, texts in _parts(case):
                _labelled(console, label, texts, indent=2 * INDENT)


def _parts(case: Case) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what there is to say of a check, each part with its label."""
    yield "found", [sentence(case.claim)]
    if case.check is None:
        return
    yield "measured", [checks.details(case)]
    file = f"; file {case.file}" if case.file else ""
    yield "data", [sentence(case.check.data + file)]
    failing = case.status in {CheckStatus.FAILED, CheckStatus.CRASHED}
    yield ("fails on" if failing else "would fail on"), [sentence(case.check.fails_if)]
    yield "allowance", [checks.allowance(case)]
    if case.status in checks.BLOCKING:
        yield "next", checks.next_steps(case)


def _notes(console: Console, notes: Sequence[str], *, indent: int = 0) -> None:
    for note in notes:
        _line(console, Text(f"note: {sentence(note)}", style="dim"), indent=indent)


def _labelled(console: Console, label: str, texts: Iterable[str], *, indent: int = INDENT) -> None:
    for index, text in enumerate(filter(None, texts)):
        head = (label if index == 0 else "").ljust(LABEL_WIDTH)
        _line(console, Text(text), indent=indent + INDENT, head=head)


def _line(console: Console, text: Text, *, indent: int = 0, head: str = "") -> None:
    """Print a text, wrapped under itself; foreign text in it steers neither the terminal nor rich."""
    if not (console.is_terminal or indent or head):
        text.rstrip()
        console.print(text, soft_wrap=True)
        return
    hang = None if indent or head else INDENT
    print_wrapped(console, text, head=Text(" " * indent + head, style="dim"), hang=hang, min_width=MIN_WIDTH)

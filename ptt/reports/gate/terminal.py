"""The gate's answer on a terminal: a line a check, worst first, then the outcome with its exit code and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from ptt.diagnostics.gate.results import ORDER, CheckKind, GatedRun, GateReport, Outcome
from ptt.reports.gate.check_text import (
    COUNTS,
    EXIT_CODES,
    MEANINGS,
    OUTCOMES,
    RUNS,
    SHAPES,
    STANDINGS,
    Case,
    Standing,
    allowance,
    cases_of,
    headline,
    measured,
    named,
    next_steps,
    one_line,
    since,
    size,
    worst_first,
)
from ptt.reports.text.names import sentence
from ptt.reports.text.numbers import counted
from ptt.reports.text.sanitize import safe, shortened

NARROWEST: Final = 40
LONGEST_NAME: Final = 60
MOST_RUNS: Final = 30  # with lines of their own, of those that passed and of those that did not; the page lists all
INDENT: Final = 2
LABEL: Final = 15
STYLES: Final = {
    Standing.CRASHED: "bold magenta",
    Standing.FAILED: "bold red",
    Standing.UNREADABLE: "bold magenta",
    Standing.BLIND: "bold cyan",
    Standing.TOLERATED: "cyan",
    Standing.WAIVED: "yellow",
    Standing.PASSED: "green",
}
MARKS: Final = {
    Standing.TOLERATED: SHAPES[Outcome.BLIND],
    Standing.WAIVED: "▲",
    **{Standing(outcome.value): shape for outcome, shape in SHAPES.items()},
}
GROUPS: Final = {
    CheckKind.CRASH: "Faults of the program",
    CheckKind.SEVERITY: "What the rules found",
    CheckKind.WAIVER: "What is allowed for now",
    CheckKind.EXTENT: "Whether the run came far enough",
    CheckKind.REQUIRED: "Rules that must give an answer",
    CheckKind.BOUND: "Bounds on metrics, tails and sample sizes",
    CheckKind.BASELINE: "Against the baseline",
}


def print_gate(report: GateReport, console: Console, index: str, *, explain: bool = False) -> None:
    """Print the answer; `explain` shows each check with its data and what would have failed it."""
    runs = sorted(named(report).items(), key=lambda item: _rank(item[1]))
    shown = runs if explain else _shown(runs)
    for name, run in shown:
        _line(console, _head(name, run))
        if explain:
            _explain(console, run)
        else:
            _checks(console, run, alone=len(runs) == 1)
    for text in _left_out(runs, shown):
        _line(console, text)
    for note in report.notes:
        _line(console, Text(f"note: {sentence(note)}", style="dim"))
    _line(console, _outcome(report))
    _line(console, Text("All of it: ", style="dim").append(safe(index), style="underline"))


def _shown(runs: Sequence[tuple[str, GatedRun]]) -> list[tuple[str, GatedRun]]:
    """Give the runs that get lines of their own: the worst of those that did not pass, and few that did, or none."""
    passed = [one for one in runs if one[1].outcome is Outcome.PASSED]
    others = [one for one in runs if one[1].outcome is not Outcome.PASSED]
    return others[:MOST_RUNS] + (passed if len(passed) <= MOST_RUNS else [])


def _left_out(runs: Sequence[tuple[str, GatedRun]], shown: Sequence[tuple[str, GatedRun]]) -> Iterator[Text]:
    """Count the runs that got no line, by outcome, worst first."""
    left = Counter(run.outcome for _, run in runs)
    left.subtract(run.outcome for _, run in shown)
    for outcome in ORDER:
        if left[outcome] > 0:
            passed = outcome is Outcome.PASSED
            told = f"{counted(left[outcome], 'run' if passed else 'more run')} {RUNS[outcome]}"
            standing = Standing(outcome.value)
            text = Text(f"{MARKS[standing]} {told}", style=STYLES[standing])
            yield text if passed else text.append("; the page named below lists all", style="dim")


def _rank(run: GatedRun) -> int:
    """Order runs by outcome, worst first; equals stay as they were given."""
    return list(Standing).index(Standing(run.outcome.value))


def _head(name: str, run: GatedRun) -> Text:
    standing = Standing(run.outcome.value)
    text = Text(f"{MARKS[standing]} {OUTCOMES[run.outcome]}", style=STYLES[standing])
    text.append(f"  {shortened(name, LONGEST_NAME)}", style="bold")
    return text.append(f"  {size(run)}" if run.checks else "", style="dim")


def _checks(console: Console, run: GatedRun, *, alone: bool) -> None:
    """Print a line a check; of a run that passed among others, only what did not simply pass."""
    cases = worst_first(cases_of(run))
    if run.outcome is Outcome.PASSED and not alone:
        cases = [case for case in cases if case.standing is not Standing.PASSED]
    for case in cases:
        text = _mark(case).append(one_line(case), style="default")
        _line(console, text, indent=INDENT)
        if case.standing in COUNTS:
            _labelled(console, "next", next_steps(case)[:1])
    _notes(console, run)


def _explain(console: Console, run: GatedRun) -> None:
    """Print every check under its group: what was seen, on what, and what would have failed it."""
    cases = worst_first(cases_of(run))
    for kind, title in ((None, ""), *GROUPS.items()):
        mine = [case for case in cases if (case.check.kind if case.check else None) is kind]
        if mine and title:
            _line(console, Text(title, style="bold"), indent=INDENT)
        for case in mine:
            _line(console, _mark(case).append(sentence(case.title), style="default"), indent=2 * INDENT)
            for label, texts in _parts(case):
                _labelled(console, label, texts, indent=2 * INDENT)
    _notes(console, run)


def _parts(case: Case) -> Iterator[tuple[str, Sequence[str]]]:
    """Give what is to be told of a check, each with its label."""
    yield "seen", [sentence(case.claim)]
    if case.check is None:
        return
    if detail := "; ".join(part for part in (measured(case.check), since(case.check)) if part):
        yield "measured", [sentence(detail)]
    where = [case.check.data, *([f"file {case.check.file}"] if case.check.file else [])]
    yield "looked at", [sentence("; ".join(where))]
    failing = case.standing in {Standing.FAILED, Standing.CRASHED}
    yield ("fails on" if failing else "would fail on"), [sentence(case.check.fails_if)]
    if told := allowance(case):
        yield "allowance", [told]
    if case.standing in COUNTS:
        yield "next", next_steps(case)


def _mark(case: Case) -> Text:
    return Text(f"{MARKS[case.standing]} {STANDINGS[case.standing]}  ", style=STYLES[case.standing])


def _notes(console: Console, run: GatedRun) -> None:
    for note in run.notes:
        _line(console, Text(f"note: {sentence(note)}", style="dim"), indent=INDENT)


def _outcome(report: GateReport) -> Text:
    standing = Standing(report.outcome.value)
    text = Text(f"{MARKS[standing]} ptt gate: {OUTCOMES[report.outcome]}", style=STYLES[standing])
    text.append(f", exit code {EXIT_CODES[report.outcome]}: {MEANINGS[report.outcome]}. ", style="default")
    return text.append(headline(report), style="default")


def _labelled(console: Console, label: str, texts: Iterable[str], *, indent: int = INDENT) -> None:
    for index, text in enumerate(filter(None, texts)):
        head = (label if index == 0 else "").ljust(LABEL)
        _line(console, Text(text), indent=indent + INDENT, head=head)


def _line(console: Console, text: Text, *, indent: int = 0, head: str = "") -> None:
    """Print a text, wrapped under itself; foreign text in it steers neither the terminal nor rich."""
    room = max(console.width - indent - len(head), NARROWEST)
    for index, part in enumerate(text.wrap(console, room, overflow="fold")):
        part.rstrip()
        left = Text(" " * indent + (head if index == 0 else " " * len(head)), style="dim")
        console.print(left.append_text(part), soft_wrap=True)

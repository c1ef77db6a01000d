"""The page and the JSON over many diagnosed runs: one line a run, the worst first, and the way to its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import STEP, Diagnosis, Link, Severity, Status
from ptt.reports.output import fields_of, finite_json, render
from ptt.reports.run.findings_json import steps_json
from ptt.reports.run.outcome import said_beside_headline
from ptt.reports.run.terminal import SHAPES, STATUS_STYLES
from ptt.reports.text.consequences import first_failure
from ptt.reports.text.names import LINKS, SEVERITIES, STATUSES, joined, sentence
from ptt.reports.text.numbers import count, counted
from ptt.reports.text.sanitize import encodable, safe, shortened
from ptt.reports.text.terminal import print_wrapped

SCHEMA_VERSION: Final = 1
MAX_NAME: Final = 60
MIN_WIDTH: Final = 60  # of a line on a terminal, however narrow that is
MAX_PRINTED: Final = 40  # lines on a terminal; the page lists all
NONE: Final = "–"
WEIGHTY: Final = (Severity.CRITICAL, Severity.HIGH, Severity.MEDIUM)
CRASHED, UNREADABLE = "crashed", "unreadable"
"""How a run stands that has no verdict: by a fault of ours, or because no readable data."""
STANDINGS: Final = (CRASHED, Status.UNSTABLE, Status.SUSPECT, UNREADABLE, Status.CANNOT_SAY, Status.HEALTHY)
WORDS: Final[Mapping[str, str]] = {
    **{status.value: word for status, word in STATUSES.items()},
    CRASHED: "Crashed",
    UNREADABLE: "Unreadable",
}
MEANINGS: Final[Mapping[str, str]] = {
    CRASHED: "a bug in ptt",
    Status.UNSTABLE: "a critical finding",
    Status.SUSPECT: "a finding to look into",
    UNREADABLE: "no readable data",
    Status.CANNOT_SAY: "too little was recorded to judge",
    Status.HEALTHY: "no fault found",
}
STYLES: Final[Mapping[str, str]] = {
    **{status.value: style for status, style in STATUS_STYLES.items()},
    CRASHED: "bold red",
    UNREADABLE: "bold yellow",
}
MARKS: Final[Mapping[str, str]] = {
    **{status.value: shape for status, shape in SHAPES.items()},
    CRASHED: "✖",
    UNREADABLE: "▲",
}


@dataclass(frozen=True, kw_only=True)
class DiagnosedRun:
    """One run as the index tells it."""

    name: str  # unique among the runs, and the folder of its output
    path: str | None  # as given; None where it lies outside the current folder
    outcome: str  # passed, failed, blind, unreadable or crashed: what its exit code would be
    status: Status | None = None
    headline: str = ""
    did: str = ""  # in a few sentences, without what the headline says of it
    first_broken_link: Link | None = None
    onset_step: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    step_count: int = 0
    step_unit: str = STEP
    framework: str | None = None
    algorithm: str | None = None
    findings: Mapping[str, int] = field(default_factory=dict)  # by severity
    error: str = ""
    report: str | None = None  # where its report.html lies, from the index

    @property
    def standing(self) -> str:
        """The status, or why there is none."""
        if self.outcome == CRASHED or self.status is None:
            return CRASHED if self.outcome == CRASHED else UNREADABLE
        return self.status


@dataclass(frozen=True, kw_only=True)
class RunsIndex:
    """What many runs came to, in the order they were given."""

    title: str  # of the folder that holds them; empty where they were given one by one
    runs: tuple[DiagnosedRun, ...]
    outcome: str  # the worst of theirs
    exit_code: int
    reason: str = ""  # why a folder was taken for several runs
    notes: tuple[str, ...] = ()


def diagnosed_run(diagnosis: Diagnosis, *, name: str, path: str | None, outcome: str, report: str) -> DiagnosedRun:
    """Return what the index tells of a diagnosis."""
    run, verdict = diagnosis.run, diagnosis.verdict
    severities = Counter(finding.severity.value for finding in diagnosis.findings)
    return DiagnosedRun(
        name=name,
        path=path,
        outcome=outcome,
        status=verdict.status,
        headline=verdict.headline,
        did=said_beside_headline(diagnosis),
        first_broken_link=verdict.first_broken_link,
        onset_step=_onset(diagnosis),
        first_step=run.first_step,
        last_step=run.last_step,
        step_count=run.step_count,
        step_unit=run.step_unit,
        framework=run.framework,
        algorithm=run.algorithm,
        findings={severity.value: severities[severity.value] for severity in Severity},
        report=report,
    )


def _onset(diagnosis: Diagnosis) -> int | None:
    """Return the onset of what broke first, if it has one."""
    first = first_failure(diagnosis)
    return first.onset_step if first is not None else None


def worst_first(runs: Sequence[DiagnosedRun]) -> list[DiagnosedRun]:
    """Sort runs by standing, then by their numbers of critical, high and medium findings; equals keep their order."""
    return sorted(runs, key=lambda run: (STANDINGS.index(run.standing), *(-run.findings.get(s, 0) for s in WEIGHTY)))


def index_json(index: RunsIndex, version: str) -> str:
    """Return the text of index.json; the same runs give the same bytes. docs/report.md says what it holds."""
    return finite_json(
        {
            "schema_version": SCHEMA_VERSION,
            "ptt_version": version,
            "outcome": index.outcome,
            "exit_code": index.exit_code,
            "headline": headline(index),
            "reason": index.reason,
            "runs": [_run_json(run) for run in worst_first(index.runs)],
            "notes": index.notes,
        }
    )


def _run_json(run: DiagnosedRun) -> dict[str, object]:
    return {
        **fields_of(run, "name", "path", "outcome", "status", "headline", "did", "first_broken_link", "onset_step"),
        "steps": steps_json(run.first_step, run.last_step, run.step_count, run.step_unit),
        **fields_of(run, "framework", "algorithm", "findings", "error", "report"),
    }


def headline(index: RunsIndex) -> str:
    """Say in how many runs a fault was seen, and how many could not be looked at."""
    numbers, runs = Counter(run.standing for run in index.runs), len(index.runs)
    faulty = numbers[Status.UNSTABLE] + numbers[Status.SUSPECT]
    unseen = numbers[UNREADABLE] + numbers[CRASHED]
    if not faulty and not unseen and numbers[Status.HEALTHY] == runs:
        return f"All {count(runs)} runs are healthy"
    text = (
        f"{count(faulty)} of {counted(runs, 'run')} {'shows' if faulty == 1 else 'show'} a fault"
        if faulty
        else (
            f"No fault found in {count(runs - unseen)} of {counted(runs, 'run')}"
            if unseen
            else f"No fault found in {counted(runs, 'run')}; {count(numbers[Status.CANNOT_SAY])} recorded too little"
        )
    )
    return f"{text}; {count(unseen)} could not be judged" if unseen else text


def tally(index: RunsIndex) -> str:
    """Count the runs by how they stand, worst first."""
    numbers = Counter(run.standing for run in index.runs)
    return ", ".join(f"{count(numbers[item])} {WORDS[item].lower()}" for item in STANDINGS if numbers[item])


def index_html(index: RunsIndex) -> str:
    """Return the text of index.html; the same runs give the same bytes."""
    numbers = Counter(run.standing for run in index.runs)
    runs = worst_first(index.runs)
    return render(
        "runs.html.j2",
        index={
            "title": safe(index.title),
            "headline": headline(index),
            "standing": runs[0].standing if runs else Status.CANNOT_SAY,
            "counts": [
                {
                    "standing": standing,
                    "word": WORDS[standing],
                    "number": count(numbers[standing]),
                    "meaning": MEANINGS[standing],
                }
                for standing in STANDINGS
                if numbers[standing]
            ],
            "notes": [sentence(f"Read as several runs: {index.reason}")] * bool(index.reason)
            + list(map(sentence, index.notes)),
            "runs": [_row(run) for run in runs],
        },
    )


def _row(run: DiagnosedRun) -> dict[str, Any]:
    return {
        "name": shortened(safe(run.name), MAX_NAME),
        "standing": run.standing,
        "word": WORDS[run.standing],
        "headline": _headline(run),
        "did": safe(run.did),
        "findings": _findings(run),
        "first_broken": LINKS[run.first_broken_link] if run.first_broken_link else NONE,
        "onset": _onset_words(run) or NONE,
        "steps": _steps(run) or NONE,
        "trained": safe(" · ".join(filter(None, (run.framework, run.algorithm)))) or NONE,
        "report": quote(encodable(run.report)) if run.report else "",
    }


def _headline(run: DiagnosedRun) -> str:
    """Return the headline, or what went wrong, without the run's name in front, which stands beside it."""
    return sentence(run.error.removeprefix(f"{run.name}: ") or run.headline)


def _findings(run: DiagnosedRun) -> str:
    parts = [f"{count(run.findings[s])} {SEVERITIES[s].lower()}" for s in WEIGHTY if run.findings.get(s)]
    return f"Findings: {joined(parts)}" if parts else ""


def _onset_words(run: DiagnosedRun) -> str:
    return "" if run.onset_step is None else f"{run.step_unit} {count(run.onset_step)}"


def _steps(run: DiagnosedRun) -> str:
    if run.first_step is None or run.last_step is None:
        return ""
    if run.first_step == run.last_step:
        return f"{run.step_unit} {count(run.first_step)}"
    return f"{run.step_unit}s {count(run.first_step)} to {count(run.last_step)}"


def print_index(index: RunsIndex, console: Console, page: str) -> None:
    """Print a line a run, worst first, then where the page lies; foreign text steers neither terminal nor rich."""
    if index.reason:
        print_wrapped(
            console, Text(sentence(f"{counted(len(index.runs), 'run')}, not one: {index.reason}"), style="dim")
        )
    runs = worst_first(index.runs)
    width = max((len(WORDS[run.standing]) for run in runs[:MAX_PRINTED]), default=0)
    for run in runs[:MAX_PRINTED]:
        line = _line(run, width)
        if console.is_terminal:
            line.truncate(max(console.width, MIN_WIDTH), overflow="ellipsis")
        console.print(line, soft_wrap=True)
    if len(runs) > MAX_PRINTED:
        print_wrapped(console, Text(f"and {count(len(runs) - MAX_PRINTED)} more (the page lists all)", style="dim"))
    for note in index.notes:
        print_wrapped(console, Text(f"note: {sentence(note)}", style="dim"))
    print_wrapped(console, Text(sentence(f"{headline(index)} ({tally(index)})"), style="bold"))
    print_wrapped(console, Text(safe(page), style="underline"), head=Text("Index  ", style="dim"))


def _line(run: DiagnosedRun, width: int) -> Text:
    standing = run.standing
    text = Text().append(f"{MARKS[standing]} {WORDS[standing].ljust(width)}  ", style=STYLES[standing])
    text.append(f"{shortened(safe(run.name), MAX_NAME)}: ", style="bold")
    text.append(_headline(run), style="default")
    details = list(_details(run))
    return text.append(f" ({'; '.join(details)})" if details else "", style="dim")


def _details(run: DiagnosedRun) -> Iterator[str]:
    """Yield the link that broke first and since when, and the steps."""
    if run.first_broken_link:
        since = f", since {_onset_words(run)}" if run.onset_step is not None else ""
        yield f"{LINKS[run.first_broken_link].lower()}{since}"
    if steps := _steps(run):
        yield steps

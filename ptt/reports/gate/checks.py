"""What the gate's outputs say of a check, a run and the whole in a line, so that all of them say the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.gate.results import ORDER, CheckKind, CheckResult, GatedRun, GateReport, Outcome
from ptt.diagnostics.model import Severity, Status, in_unit
from ptt.reports.text.names import joined, sentence
from ptt.reports.text.numbers import count, counted, number, percent, with_unit
from ptt.reports.text.sanitize import encodable, safe

SHARE = "share"  # the unit of what is shown as per cent, and its differences in points
NO_GAP = 1e-9  # less is what rounding leaves of no difference


class CheckStatus(StrEnum):
    """What an output shows of a check; the order is worst first."""

    CRASHED = "crashed"
    FAILED = "failed"
    UNREADABLE = "unreadable"
    BLIND = "blind"
    TOLERATED = "tolerated"  # blind, and the policy lets that pass: shown, never as passed
    WAIVED = "waived"  # a finding that someone answers for until a day
    PASSED = "passed"


BLOCKING = frozenset({CheckStatus.CRASHED, CheckStatus.FAILED, CheckStatus.UNREADABLE, CheckStatus.BLIND})
"""What keeps a gate from passing."""


class StatusText(NamedTuple):
    """What a status is called and how it is shown."""

    word: str
    mark: str
    style: str  # on a terminal
    junit: str  # element
    github: str  # workflow command


STATUS_TEXT = {
    CheckStatus.CRASHED: StatusText("crashed", "✖", "bold magenta", "error", "error"),
    CheckStatus.FAILED: StatusText("failed", "■", "bold red", "failure", "error"),
    CheckStatus.UNREADABLE: StatusText("cannot be read", "◇", "bold magenta", "error", "error"),
    CheckStatus.BLIND: StatusText("not judged", "◆", "bold cyan", "error", "warning"),
    CheckStatus.TOLERATED: StatusText("not judged, which the policy allows", "◆", "cyan", "skipped", "notice"),
    CheckStatus.WAIVED: StatusText("allowed for now", "▲", "yellow", "skipped", "notice"),
    CheckStatus.PASSED: StatusText("passed", "●", "green", "", ""),
}


class OutcomeText(NamedTuple):
    """What the outcome of a run, or of the whole, is called."""

    exit_code: int  # of the command; a test holds it against the command's own list
    word: str
    of_runs: str  # of many: 3 runs ...
    meaning: str
    page_meaning: str  # of one run, on the page


OUTCOME_TEXT = {
    Outcome.CRASHED: OutcomeText(1, "crashed", "crashed", "a bug in ptt", "a bug in ptt, or its process was killed"),
    Outcome.FAILED: OutcomeText(
        3, "failed", "failed", "a check found what the policy forbids", "a check found what the policy forbids"
    ),
    Outcome.UNREADABLE: OutcomeText(
        5, "cannot be read", "cannot be read", "a run cannot be read", "the run cannot be read"
    ),
    Outcome.BLIND: OutcomeText(
        4,
        "blind",
        "could not be judged",
        "what the policy requires could not be judged",
        "a check lacked the data it needs",
    ),
    Outcome.PASSED: OutcomeText(0, "passed", "passed", "every check passed", "every check passed"),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of an output: a check, or what keeps a run from being checked at all."""

    id: str
    title: str
    claim: str
    status: CheckStatus
    run: GatedRun
    run_name: str  # harmless to show, and unique
    check: CheckResult | None = None

    @property
    def file(self) -> str | None:
        """The file below the run where the evidence lies."""
        return self.check.file if self.check is not None else None

    @property
    def severity(self) -> Severity | None:
        """The severity of the finding behind it."""
        return self.check.severity if self.check is not None else None

    @property
    def rank(self) -> tuple[int, int]:
        """The order among others: by status, then by severity, the worst the lowest."""
        return list(CheckStatus).index(self.status), NO_SEVERITY if self.severity is None else self.severity.rank


NO_SEVERITY = 9  # behind every severity: a check without one


def check_status(check: CheckResult, run: GatedRun) -> CheckStatus:
    """Return a check's status; an allowance that nothing needs any more has no finding's severity, and is passed."""
    match check.outcome:
        case Outcome.PASSED if check.waiver and (check.kind is not CheckKind.WAIVER or check.severity is not None):
            return CheckStatus.WAIVED
        case Outcome.BLIND if check.excused or run.outcome is Outcome.PASSED:
            return CheckStatus.TOLERATED
    return CheckStatus(check.outcome.value)


def cases_of(run: GatedRun, run_name: str = "") -> tuple[Case, ...]:
    """Return all lines of a run in the order of its checks; ids are unique, for readers that drop what comes twice."""
    *ids, own_id = unique([*(check.id for check in run.checks), "run"])
    checks = tuple(
        Case(
            id=check_id,
            title=check.title.strip() or check_id,
            claim=check.claim.strip() or check.outcome.value,
            status=check_status(check, run),
            run=run,
            run_name=run_name,
            check=check,
        )
        for check_id, check in zip(ids, run.checks, strict=True)
    )
    if not run.error and run.outcome in {check.outcome for check in run.checks}:
        return checks
    # an outcome that no check carries: a run that cannot be read, a worker that died, no check at all
    status = CheckStatus(run.outcome.value)
    if status is CheckStatus.PASSED and not run.checks:
        status = CheckStatus.TOLERATED
    claim = run.error or (run.headline if run.checks else "no check applies to this run") or run.outcome.value
    own = Case(
        id=own_id, title="the run can be read and judged", claim=claim, status=status, run=run, run_name=run_name
    )
    return (own, *checks)


def worst_first(cases: Sequence[Case]) -> list[Case]:
    """Sort by status, then by the severity of the finding behind it; equals keep their order."""
    return sorted(cases, key=lambda case: case.rank)


def not_passed(report: GateReport) -> list[Case]:
    """Return what did not simply pass, of all runs, worst first."""
    cases = [case for name, run in runs_by_name(report).items() for case in cases_of(run, name)]
    return worst_first([case for case in cases if case.status is not CheckStatus.PASSED])


def runs_by_name(report: GateReport) -> dict[str, GatedRun]:
    """Return the runs by a name that is harmless to show, and still unique once it is."""
    return dict(zip(unique([run.name for run in report.runs]), report.runs, strict=True))


def runs_worst_first(report: GateReport) -> list[tuple[str, GatedRun]]:
    """Return the runs with their names by outcome, worst first; equals stay as they were given."""
    return sorted(runs_by_name(report).items(), key=lambda item: ORDER.index(item[1].outcome))


def unique(names: Sequence[str]) -> list[str]:
    """Make names harmless to show; two that then look the same get a number."""
    shown = [safe(name).strip() or "(no name)" for name in names]
    taken = set(shown)
    seen: set[str] = set()
    result = []
    for name in shown:
        candidate, number = name, 1
        while candidate in seen or (number > 1 and candidate in taken):
            number += 1
            candidate = f"{name} ({number})"
        seen.add(candidate)
        result.append(candidate)
    return result


ARCHIVES = (".tar.gz", ".tgz", ".tar.zst", ".zip", ".json")
"""A run kept in one file: what lies in it is no path of its own."""


def evidence_path(case: Case) -> str | None:
    """Return the file below the checkout; None where the run's own path is not known, or leads out of it."""
    base = _relative_path(case.run.path)
    if base is None:
        return None
    inner = _relative_path(case.file)
    if inner is None or base.endswith(ARCHIVES):
        return base
    return f"{base}/{inner}" if base != inner and not base.endswith(f"/{inner}") else base


def evidence_uri(case: Case) -> str:
    """Return a relative URI for it; a run whose path is not known is placed under its name."""
    return quote(encodable(evidence_path(case) or _relative_path(case.run.name) or "run"), safe="/")


def _relative_path(path: str | None) -> str | None:
    """Normalise a relative path; None for an absolute one, an empty one, and one with `..` in it."""
    parts = [part for part in PurePosixPath((path or "").replace("\\", "/")).parts if part != "."]
    if not parts or parts[0].startswith("/") or ".." in parts or (len(parts[0]) == 2 and parts[0][1] == ":"):
        return None
    return "/".join(parts)


def title(report: GateReport) -> str:
    """Return the outcome with its exit code."""
    outcome = OUTCOME_TEXT[report.outcome]
    return f"ptt gate: {outcome.word} (exit code {outcome.exit_code})"


def outcome_mark(outcome: Outcome) -> str:
    """Return the shape that stands before an outcome."""
    return STATUS_TEXT[CheckStatus(outcome.value)].mark


def headline(report: GateReport) -> str:
    """Count the runs by outcome, worst first."""
    if not report.runs:
        return "No run was checked."
    runs = Counter(run.outcome for run in report.runs)
    every = counted(len(report.runs), "run")
    unsure = sum(run.outcome is Outcome.PASSED and run.status is Status.CANNOT_SAY for run in report.runs)
    them = "it is" if unsure == 1 else "they are"
    but = f" Of {count(unsure)} that passed the diagnosis cannot say whether {them} sound." if unsure else ""
    if len(runs) == 1:
        (outcome,) = runs
        return f"{'The run' if len(report.runs) == 1 else f'All {every}'} {OUTCOME_TEXT[outcome].of_runs}.{but}"
    parts = [f"{count(runs[outcome])} {text.of_runs}" for outcome, text in OUTCOME_TEXT.items() if outcome in runs]
    return f"Of {every}, {joined(parts)}.{but}"


def measured(check: CheckResult) -> str:
    """Set what was observed against its limit, with the 95% interval where there is one; empty without either."""
    if check.expected is not None and check.observed is not None:
        return _from_baseline(check, check.observed, check.expected)
    parts = []
    if check.observed is not None:
        interval = ""
        if check.low is not None or check.high is not None:
            interval = f" (95% interval {_interval(check.low, check.high, check.unit)})"
        parts.append(f"observed {with_unit(check.observed, safe(check.unit))}{interval}")
    if check.limit is not None:
        parts.append(f"limit {with_unit(check.limit, safe(check.unit))}")
    return ", ".join(parts)


def _interval(low: float | None, high: float | None, unit: str = "") -> str:
    """Write an interval; an end that nothing is known of is open."""
    if unit == SHARE:
        ends = [None if end is None else percent(end) for end in (low, high)]
    else:
        ends = [None if end is None else number(end) for end in (low, high)]
    if low is not None and high is not None:
        return f"{ends[0]} to {ends[1]}"
    return f"from {ends[0]}, open above" if low is not None else f"up to {ends[1]}, open below"


def _points(difference: float) -> str:
    """Write a difference of shares."""
    return f"{number(float(f'{100 * difference:.3g}'))} points"


def _from_baseline(check: CheckResult, difference: float, level: float) -> str:
    """Write a difference as one: by how much it lies off the baseline's level, and by how much it may."""
    if check.unit == SHARE:
        return _from_share(check, difference, level)
    lowest, highest = check.allowed
    ends = [f"{with_unit(-lowest, safe(check.unit))} lower"] if lowest is not None else []
    ends += [f"{with_unit(highest, safe(check.unit))} higher"] if highest is not None else []
    notes = [f"allowed: {' or '.join(ends)}"] if ends else []
    if check.low is not None or check.high is not None:
        notes.insert(0, f"95% interval of the difference {_interval(check.low, check.high)}")
    side = "higher" if difference > 0 or (difference == 0 and lowest is None) else "lower"
    difference_text = f"{with_unit(abs(difference), safe(check.unit))} {side} than the baseline's {number(level)}"
    return f"{difference_text} ({'; '.join(notes)})" if notes else difference_text


def _from_share(check: CheckResult, difference: float, level: float) -> str:
    """Write both shares as per cent, and how they differ in points."""
    lowest, highest = check.allowed
    ends = [f"{_points(-lowest)} lower"] if lowest is not None else []
    ends += [f"{_points(highest)} higher"] if highest is not None else []
    notes = [f"allowed: {' or '.join(ends)}"] if ends else []
    if check.low is not None and check.high is not None:
        interval = f"{_points(check.low).removesuffix(' points')} to {_points(check.high)}"
        notes.insert(0, f"95% interval of the difference {interval}")
    side = "higher" if difference > 0 else "lower"
    gap = f"{_points(abs(difference))} {side} than" if abs(difference) > NO_GAP else "the same as"
    text = f"{percent(level + difference)}, {gap} the baseline's {percent(level)}"
    return f"{text} ({'; '.join(notes)})" if notes else text


def since(case: Case) -> str:
    """Return where it began; empty where that is not known."""
    return in_unit(case.check.since, case.run.step_unit) if case.check is not None else ""


def details(case: Case) -> str:
    """Return what was measured and since when, as one sentence; empty where neither is known."""
    parts = (measured(case.check), since(case)) if case.check is not None else ()
    return sentence("; ".join(filter(None, parts)))


def allowance(case: Case) -> str:
    """Return who answers for a finding, until when and why, whether in force or expired; empty without an allowance."""
    waiver = case.check.waiver if case.check is not None else None
    if waiver is None:
        return ""
    where = f" in {safe(waiver.slice)}" if waiver.slice else ""
    expired = case.status in {CheckStatus.FAILED, CheckStatus.BLIND}
    until = f"its allowance expired on {safe(waiver.expires)}" if expired else f"allowed until {safe(waiver.expires)}"
    return f"{safe(waiver.finding)}{where}: {until}, owner {safe(waiver.owner)}: {clause(waiver.reason)}"


def unclaimed_allowance(case: Case) -> str:
    """Return the allowance where the claim does not say who answers, and until when."""
    waiver = case.check.waiver if case.check is not None else None
    claimed = waiver is not None and waiver.owner in case.claim and waiver.expires in case.claim
    return "" if claimed else allowance(case)


def clause(foreign: str) -> str:
    """End a clause that stands behind a colon; its first letter stays."""
    shown = safe(foreign).strip()
    return shown if not shown or shown[-1] in ".!?…" else shown + "."


def against(case: Case) -> str:
    """Say what was found, then what is required."""
    return f"{sentence(case.claim)} Required: {safe(case.title).rstrip('.')}."


def one_line(case: Case) -> str:
    """Write a check that did not pass in one line: what was found and is required, against which limit, since when."""
    return f"{against(case)} {details(case)}".rstrip()


def next_steps(case: Case) -> tuple[str, ...]:
    """Return what to do, as sentences."""
    return () if case.check is None else tuple(sentence(step) for step in case.check.next)


def size(run: GatedRun) -> str:
    """Return how much a run holds; nothing is known of one that was not read."""
    if run.status is None and not run.steps:
        return "unknown"
    return f"{counted(run.steps, run.step_unit)}, {counted(run.model_tokens, 'model token')}"


def severity_level(severity: Severity | None) -> str:
    """Return the level that SARIF and annotations know; a failed check without a severity is an error."""
    match severity:
        case Severity.MEDIUM:
            return "warning"
        case Severity.LOW | Severity.INFO:
            return "note"
    return "error"

"""How the gate's outputs tell a check, a run and the whole in a line, so that all of them say the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from urllib.parse import quote

from ptt.diagnostics.gate.results import CheckKind, CheckResult, GatedRun, GateReport, Outcome, Waiver
from ptt.diagnostics.model import Severity
from ptt.reports.text.names import joined, sentence
from ptt.reports.text.numbers import bounds, count, counted, number, with_unit
from ptt.reports.text.sanitize import encodable, safe

ARCHIVES = (".tar.gz", ".tgz", ".tar.zst", ".zip", ".json")
"""A run kept in one file: what lies in it is no path of its own."""


def evidence_path(run: GatedRun, file: str | None) -> str | None:
    """Give the file below the checkout; None where the run's own path is not known, or leads out of it."""
    base = _below(run.path)
    if base is None:
        return None
    inner = _below(file)
    if inner is None or base.endswith(ARCHIVES):
        return base
    return f"{base}/{inner}" if base != inner and not base.endswith(f"/{inner}") else base


def evidence_uri(run: GatedRun, file: str | None) -> str:
    """Give a relative URI for it; a run whose path is not known is placed under its name."""
    path = evidence_path(run, file) or _below(run.name) or "run"
    return quote(encodable(path), safe="/")


def _below(path: str | None) -> str | None:
    """Normalise a relative path; None for an absolute one, an empty one, and one with `..` in it."""
    if not path:
        return None
    parts = [part for part in PurePosixPath(path.replace("\\", "/")).parts if part != "."]
    if not parts or parts[0].startswith("/") or ".." in parts or (len(parts[0]) == 2 and parts[0][1] == ":"):
        return None
    return "/".join(parts)


class Standing(StrEnum):
    """What an output shows of a check; the order is worst first."""

    CRASHED = "crashed"
    FAILED = "failed"
    UNREADABLE = "unreadable"
    BLIND = "blind"
    TOLERATED = "tolerated"  # blind, and the policy lets that pass: shown, never as passed
    WAIVED = "waived"  # a finding that someone answers for until a day
    PASSED = "passed"


COUNTS = frozenset({Standing.CRASHED, Standing.FAILED, Standing.UNREADABLE, Standing.BLIND})
"""What keeps a gate from passing."""

LEAST_SEVERE = 9  # behind every severity: a check without one


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of an output: a check, or what keeps a run from being checked at all."""

    id: str
    title: str
    claim: str
    standing: Standing
    check: CheckResult | None = None


def standing_of(check: CheckResult, run: GatedRun) -> Standing:
    """Tell how a check stands; an allowance that nothing needs any more has no finding's severity, and is passed."""
    match check.outcome:
        case Outcome.PASSED if check.waiver and (check.kind is not CheckKind.WAIVER or check.severity is not None):
            return Standing.WAIVED
        case Outcome.BLIND if check.excused or run.outcome is Outcome.PASSED:
            return Standing.TOLERATED
    return Standing(check.outcome.value)


def cases_of(run: GatedRun) -> tuple[Case, ...]:
    """Give all lines of a run in the order of its checks; ids are unique, for readers that drop what comes twice."""
    ids = unique([check.id for check in run.checks])
    checks = tuple(
        Case(
            id=name,
            title=check.title.strip() or name,
            claim=check.claim.strip() or check.outcome.value,
            standing=standing_of(check, run),
            check=check,
        )
        for name, check in zip(ids, run.checks, strict=True)
    )
    if run.error or run.outcome not in {check.outcome for check in run.checks}:
        return (_own(run, taken=ids), *checks)
    return checks


def _own(run: GatedRun, *, taken: Sequence[str]) -> Case:
    """Tell an outcome that no check carries: a run that cannot be read, a worker that died, no check at all."""
    standing = Standing(run.outcome.value)
    if standing is Standing.PASSED:
        standing = Standing.TOLERATED if not run.checks else Standing.PASSED
    claim = run.error or (run.headline if run.checks else "no check was asked of this run") or run.outcome.value
    name = unique([*taken, "run"])[-1]
    return Case(id=name, title="the run can be read and judged", claim=claim, standing=standing)


def worst_first(cases: Iterable[Case]) -> list[Case]:
    """Sort by standing, then by the severity of the finding behind it; equals keep their order."""
    return sorted(cases, key=rank)


def rank(case: Case) -> tuple[int, int]:
    """Give the place of a case among others, the worst the lowest."""
    severity = case.check.severity if case.check is not None else None
    return list(Standing).index(case.standing), LEAST_SEVERE if severity is None else severity.rank


def findings_of(report: GateReport) -> list[tuple[str, GatedRun, Case]]:
    """Give what did not simply pass, of all runs, worst first, each with its run and the name to show."""
    found = [
        (name, run, case)
        for name, run in named(report).items()
        for case in cases_of(run)
        if case.standing is not Standing.PASSED
    ]
    return sorted(found, key=lambda one: rank(one[2]))


def named(report: GateReport) -> dict[str, GatedRun]:
    """Give the runs by a name that is harmless to show, and still unique once it is."""
    return dict(zip(unique([run.name for run in report.runs]), report.runs, strict=True))


def unique(names: Sequence[str]) -> list[str]:
    """Make names harmless to show; two that then look alike get a number."""
    shown = [safe(name).strip() or "(no name)" for name in names]
    taken = Counter(shown)
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


EXIT_CODES = {Outcome.PASSED: 0, Outcome.CRASHED: 1, Outcome.FAILED: 3, Outcome.BLIND: 4, Outcome.UNREADABLE: 5}
"""What the command ends with; a test holds it against the command's own list."""

OUTCOMES = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.BLIND: "blind",
    Outcome.UNREADABLE: "cannot be read",
    Outcome.CRASHED: "crashed",
}
SHAPES = {
    Outcome.PASSED: "●",
    Outcome.FAILED: "■",
    Outcome.BLIND: "◆",
    Outcome.UNREADABLE: "◇",
    Outcome.CRASHED: "✖",
}
STANDINGS = {
    Standing.CRASHED: "crashed",
    Standing.FAILED: "failed",
    Standing.UNREADABLE: "cannot be read",
    Standing.BLIND: "not judged",
    Standing.TOLERATED: "not judged, which the policy lets pass",
    Standing.WAIVED: "allowed for now",
    Standing.PASSED: "passed",
}
MEANINGS = {
    Outcome.PASSED: "every check passed",
    Outcome.FAILED: "a check found what the policy forbids",
    Outcome.BLIND: "what the policy demands could not be judged",
    Outcome.UNREADABLE: "a run cannot be read",
    Outcome.CRASHED: "a fault of the program itself",
}
RUNS = {  # of many: 3 runs ...
    Outcome.CRASHED: "crashed",
    Outcome.FAILED: "failed",
    Outcome.UNREADABLE: "cannot be read",
    Outcome.BLIND: "could not be judged",
    Outcome.PASSED: "passed",
}


def title(report: GateReport) -> str:
    """Name the outcome with its exit code."""
    return f"ptt gate: {OUTCOMES[report.outcome]} (exit code {EXIT_CODES[report.outcome]})"


def headline(report: GateReport) -> str:
    """Count the runs by outcome, worst first."""
    if not report.runs:
        return "No run was looked at."
    found = Counter(run.outcome for run in report.runs)
    if len(found) == 1:
        (outcome,) = found
        return f"{_all(len(report.runs))} {RUNS[outcome]}."
    parts = [f"{count(found[outcome])} {words}" for outcome, words in RUNS.items() if outcome in found]
    return f"Of {counted(len(report.runs), 'run')}, {joined(parts)}."


def _all(how_many: int) -> str:
    return "The run" if how_many == 1 else f"All {counted(how_many, 'run')}"


def measured(check: CheckResult) -> str:
    """Set what was observed against its limit, with the 95 % interval where there is one; empty without either."""
    if check.expected is not None and check.observed is not None:
        return _from_baseline(check, check.observed, check.expected)
    parts = []
    if check.observed is not None:
        interval = ""
        if check.low is not None or check.high is not None:
            interval = f" (95 % interval {_interval(check.low, check.high)})"
        parts.append(f"observed {with_unit(check.observed, safe(check.unit))}{interval}")
    if check.limit is not None:
        parts.append(f"limit {with_unit(check.limit, safe(check.unit))}")
    return ", ".join(parts)


def _interval(low: float | None, high: float | None) -> str:
    """Write an interval; an end that nothing is known of is open."""
    if low is not None and high is not None:
        return bounds(low, high)
    return f"from {number(low)}, open above" if low is not None else f"up to {number(high)}, open below"


def _from_baseline(check: CheckResult, difference: float, level: float) -> str:
    """Tell a difference as one: by how much it lies off the baseline's level, and by how much it may."""
    lowest, highest = check.allowed
    ends = [f"{with_unit(-lowest, safe(check.unit))} lower"] if lowest is not None else []
    ends += [f"{with_unit(highest, safe(check.unit))} higher"] if highest is not None else []
    details = [f"may be {' or '.join(ends)}"] if ends else []
    if check.low is not None or check.high is not None:
        details.insert(0, f"95 % interval of the difference {_interval(check.low, check.high)}")
    side = "higher" if difference > 0 or (difference == 0 and lowest is None) else "lower"
    apart = f"{with_unit(abs(difference), safe(check.unit))} {side} than the baseline's {number(level)}"
    return f"{apart} ({'; '.join(details)})" if details else apart


def since(check: CheckResult) -> str:
    """Tell where it began; empty where that is not known."""
    return "" if check.step is None else f"since step {count(check.step)}"


def allowed(waiver: Waiver, *, expired: bool = False) -> str:
    """Tell who answers for a finding, until when and why."""
    where = f" in {safe(waiver.slice)}" if waiver.slice else ""
    until = f"its allowance expired on {safe(waiver.expires)}" if expired else f"allowed until {safe(waiver.expires)}"
    return f"{safe(waiver.finding)}{where}: {until}, {safe(waiver.owner)} answers for it: {clause(waiver.reason)}"


def allowance(case: Case) -> str:
    """Tell the allowance of a check that has one, in force or expired; empty without one."""
    if case.check is None or case.check.waiver is None:
        return ""
    return allowed(case.check.waiver, expired=case.standing in {Standing.FAILED, Standing.BLIND})


def untold_allowance(case: Case) -> str:
    """Tell the allowance where the claim does not: who answers, and until when."""
    waiver = case.check.waiver if case.check is not None else None
    told = waiver is not None and waiver.owner in case.claim and waiver.expires in case.claim
    return "" if told else allowance(case)


def clause(foreign: str) -> str:
    """End a clause that stands behind a colon; its first letter stays."""
    shown = safe(foreign).strip()
    return shown if not shown or shown[-1] in ".!?…" else shown + "."


def against(case: Case) -> str:
    """Set what was seen against what was demanded."""
    return f"demanded: {safe(case.title).rstrip('.')}; seen: {clause(case.claim)}"


def one_line(case: Case) -> str:
    """Tell a check that did not pass in one line: what was demanded, what was seen, against which limit, since when."""
    details = []
    if case.check is not None:
        details = [part for part in (measured(case.check), since(case.check)) if part]
    told = against(case)
    return f"{told} {sentence('; '.join(details))}" if details else told


def next_steps(case: Case) -> tuple[str, ...]:
    """Give what to do, as sentences."""
    return () if case.check is None else tuple(sentence(step) for step in case.check.next)


def size(run: GatedRun) -> str:
    """Tell how much a run holds; nothing is known of one that was not read."""
    if run.status is None and not run.steps:
        return "not known"
    return f"{counted(run.steps, 'step')}, {counted(run.model_tokens, 'model token')}"


def severity_level(severity: Severity | None) -> str:
    """Give the level that SARIF and annotations know; a failed check without a severity is an error."""
    match severity:
        case Severity.MEDIUM:
            return "warning"
        case Severity.LOW | Severity.INFO:
            return "note"
    return "error"

"""How the gate's outputs tell a check, a run and the whole in a line, so that all of them say the same."""

from __future__ import annotations

from collections import Counter

from ptt.diagnostics.gate.values import CheckResult, GatedRun, GateReport, Outcome, Waiver
from ptt.diagnostics.model import Severity
from ptt.reports.foreign import safe
from ptt.reports.gating.standing import Case, Standing
from ptt.reports.names import joined, sentence
from ptt.reports.numbers import bounds, count, counted, with_unit

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
    parts = []
    if check.observed is not None:
        interval = ""
        if check.low is not None or check.high is not None:
            interval = f" (95 % interval {bounds(check.low, check.high)})"
        parts.append(f"observed {with_unit(check.observed, safe(check.unit))}{interval}")
    if check.limit is not None:
        parts.append(f"limit {with_unit(check.limit, safe(check.unit))}")
    return ", ".join(parts)


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

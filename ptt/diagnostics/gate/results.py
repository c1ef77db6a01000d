"""What a gate says: one result a check, one outcome a run, one over all runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.gate.baseline.values import Figures
from ptt.diagnostics.model import STEP, JsonScalar, Link, Severity, Status


class Outcome(StrEnum):
    """How the gate stands after looking at a run, or at many."""

    PASSED = "passed"
    FAILED = "failed"
    BLIND = "blind"
    UNREADABLE = "unreadable"
    CRASHED = "crashed"


ORDER = (Outcome.CRASHED, Outcome.FAILED, Outcome.UNREADABLE, Outcome.BLIND, Outcome.PASSED)
"""Of many runs the first of these counts: our own fault, then a fault that was seen, then what could not be looked at.
"""


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of many runs or checks."""
    return min(outcomes, key=ORDER.index, default=Outcome.BLIND)


class CheckKind(StrEnum):
    """What a check looks at."""

    SEVERITY = "severity"  # no finding at or above the limit that is not allowed
    REQUIRED = "required"  # a named rule was judged
    EXTENT = "extent"  # the run reached its steps, sequences, tokens
    BOUND = "bound"  # a metric's statistic over a window lies within its bound
    BASELINE = "baseline"  # not worse than the baseline beyond noise
    ADVISORY = "advisory"  # no known bug or ruinous setting that is not allowed
    WAIVER = "waiver"  # an allowed finding whose allowance expired, or that is not needed any more
    CRASH = "crash"  # a rule of ours failed


@dataclass(frozen=True, kw_only=True)
class Waiver:
    """A finding that may stand until a day, because someone answers for it."""

    finding: str  # id of the finding
    owner: str
    reason: str
    expires: str  # ISO date, the last day it holds
    slice: str | None = None


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """One check of one run: what it looked at, what it saw, and what would have failed it."""

    id: str  # unique in a run and the same from run to run: severity, required:<rule>, bound:<name>, ...
    kind: CheckKind
    outcome: Outcome  # passed, failed or blind; crashed for CRASH alone
    title: str  # what the check demands, one clause
    claim: str  # what was seen, one clause
    data: str  # what it was judged on: metric, window, slice, steps, tokens
    fails_if: str  # what would have failed it, one clause
    observed: float | None = None
    limit: float | None = None
    unit: str = ""
    expected: float | None = None  # the baseline's level, where what was observed is a difference from it
    allowed: tuple[float | None, float | None] = (None, None)  # the lowest and highest such difference; None: any
    low: float | None = None  # 95% interval of what was observed
    high: float | None = None
    severity: Severity | None = None  # of the finding behind it
    link: Link | None = None
    rule: str | None = None  # id of the rule or finding behind it
    metric: str = ""  # what was measured, as the log or the policy calls it; empty where it has no name
    step: int | None = None  # where it began
    since: str = ""  # the same in words, with its interval; or that it held from the first logged step
    file: str | None = None  # below the run, where the evidence lies
    waiver: Waiver | None = None  # the allowance that let it pass, or that expired
    excused: bool = False  # blind for want of data, and the policy lets that pass
    next: tuple[str, ...] = ()


PASSES_ALTHOUGH = "passes, although "
AGAINST_ITSELF = "gated against itself"
SHOWN_WITH_A_PASS = (PASSES_ALTHOUGH, AGAINST_ITSELF)
"""Heads of notes that no output of a passed run leaves out."""
MAX_NAMED = 6  # checks named in a note; the rest is counted


def cannot_say_note(checks: Sequence[CheckResult], outcome: Outcome, status: Status) -> tuple[str, ...]:
    """Return what a pass rests on where the diagnosis cannot say whether the run is sound."""
    if outcome is not Outcome.PASSED or status is not Status.CANNOT_SAY:
        return ()
    passed = [check for check in checks if check.outcome is Outcome.PASSED]
    names = [f"{check.title} ({check.data})" if check.kind is CheckKind.SEVERITY else check.title for check in passed]
    more = [f"{len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
    checked = "; ".join([*names[:MAX_NAMED], *more])
    return (f"{PASSES_ALTHOUGH}the diagnosis cannot say whether the run is sound; only this was checked: {checked}",)


def rank(check: CheckResult) -> tuple[int, int]:
    """Order checks by outcome, findings by severity; others stay as they were made."""
    return ORDER.index(check.outcome), check.severity.rank if check.severity else len(ORDER) + 5


@dataclass(frozen=True, kw_only=True)
class GatedRun:
    """One run and all its checks; an unreadable one has none, and an error."""

    name: str  # unique among the runs
    outcome: Outcome
    checks: tuple[CheckResult, ...] = ()
    status: Status | None = None  # of the diagnosis
    headline: str = ""
    first_broken_link: Link | None = None
    error: str = ""
    framework: str | None = None
    steps: int = 0
    step_unit: str = STEP  # what a step is: "row", "episode" or "epoch" where the files number no steps
    model_tokens: int = 0
    report: str | None = None  # where its report.html lies, from the gate's own output folder
    notes: tuple[str, ...] = ()
    path: str | None = None  # as given, relative and with slashes; None where it lies outside the current folder
    figures: Figures | None = None  # on the steps of the policy's baseline, for what runs show together


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """The gate's answer over all runs, in the order they were given."""

    outcome: Outcome
    runs: tuple[GatedRun, ...]
    policy: Mapping[str, JsonScalar] = field(default_factory=dict)  # what was demanded, flat, for the record
    baseline: str | None = None  # its file, as given
    notes: tuple[str, ...] = ()

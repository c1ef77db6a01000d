"""This run shows steps recorded by two segments: it was killed and resumed from an earlier step.

What: sequences: a step has twice the usual number, from twice the usual files or from a file that goes back to earlier
steps. Metrics: a file logs a metric again at earlier steps, or of two similar files the later one begins within the
earlier one's steps. At least two steps.
Why it matters: what was recorded at these steps before the kill belongs to a policy that was thrown away. Its sequences
still count: in their windows they enter tails, ESS, E[rho^2] and who holds the tail, and an onset among these steps may
be the lost segment's. For metrics the later file's value counts, so no curve holds a step twice.
Medium where the metrics show three resumes or more that threw away a fifth of all the steps that were computed: then
what ends the run comes back, and the exceptions between the segments say what it is.
What to do: move the lost segment's files, from the step of the resume on, out of the run folder and judge again.
Source: TRL and transformers keep the event file of the killed process beside the new one's; writers that append do too.
"""

import re
from collections.abc import Iterator, Sequence

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.evidence.run_end import CONSEQUENCE
from ptt.diagnostics.evidence.segments import Overlap
from ptt.diagnostics.evidence.validity import Extent
from ptt.diagnostics.model import LIKELY, Link, Severity
from ptt.diagnostics.rules.data_validity import extent
from ptt.diagnostics.rules.interface import EVERY, Broken, Finding, Healthy, Limits, NotJudged, Verdict, by_kind, rule
from ptt.diagnostics.wording import shortened

MIN_CHAIN = 3  # resumes: one or two are a node or a time limit
WASTED = 0.2  # of the steps that were computed
MAX_RAISED = 3  # exceptions that are quoted
MAX_QUOTE = 90  # characters of one
NAME = re.compile(r"(?:\w+\.)*(\w+)")  # of the exception's class, behind its modules
TRANSPORT = re.compile(r"(?i)connect|time.?d?.?out|http|protocol|network|socket|unavailable|server")
"""Names of exceptions of a request to something outside of the trainer."""
UNCAUGHT = "one request of one sample that fails, which nothing catches: it ends the whole step and the run with it"
CAUSES = ("the run was killed and resumed from a checkpoint before its last step",)
MIN_STEPS = 2.0  # recorded twice: a single step is the saved one, logged again


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the steps that were recorded twice."""
    segments = evidence.segments
    if segments is None:
        return NotJudged(
            reason="no step is recorded",
            missing=("step",),
            enable=by_kind(
                evidence,
                sampled="log metrics or write recorder files with their step: docs/recorder.md",
                given="log metrics with their step",
            ),
        )
    findings, twice = [], segments.sequences
    if twice is not None and segments.extent is not None and twice.steps >= limits["steps"]:
        findings.append(_sequences(twice, segments.extent, limits))
    logged = [overlap for overlap in segments.metrics if overlap.steps >= limits["steps"]]
    if logged:
        findings.append(_metrics(evidence, logged, limits))
    if findings:
        return Broken(findings=tuple(findings))
    return Healthy(reason="no steps are recorded by two segments")


def _sequences(twice: Overlap, both: Extent, limits: Limits) -> Finding:
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"Steps {twice.first_step} to {twice.last_step} contain the sequences of two segments ({twice.steps} "
        f"recorded steps, {both.sequences} sequences): the run was resumed, and both count",
        observed=float(twice.steps),
        limit=limits["steps"],
        unit="steps",
        onset_step=twice.first_step,
        evidence={
            "steps": twice.steps,
            "between_files": " and ".join(twice.sources),
            **extent(both, "tails, ESS and E[rho^2] of these steps include both segments: windows weight them twice"),
        },
        causes=CAUSES,
        next=(f"move the lost segment's files of steps {twice.first_step} to {twice.last_step} away and judge again",),
    )


def _metrics(evidence: Evidence, logged: list[Overlap], limits: Limits) -> Finding:
    worst = max(logged, key=lambda overlap: overlap.steps)
    first, last = min(overlap.first_step for overlap in logged), max(overlap.last_step for overlap in logged)
    names = sorted({name for overlap in logged for name in overlap.sources})
    again = sum(overlap.steps for overlap in logged)
    computed = again + evidence.run.step_count
    chain = len(logged) >= MIN_CHAIN and again >= WASTED * computed
    raised = _raised(evidence, last) if chain else ()
    often = f"{len(logged)} times the run began again from an earlier step: {again} of the {computed} steps that it "
    return Finding(
        severity=Severity.MEDIUM if chain else Severity.LOW,
        claim=f"{often}computed were thrown away (from step {first} to {last})"
        if chain
        else f"Steps {first} to {last} are logged by two segments: the run was resumed, and the later file's values "
        "count",
        context=tuple(_ended_by(raised)),
        observed=float(worst.steps),
        limit=limits["steps"],
        unit="steps",
        onset_step=first,
        evidence={
            "steps": worst.steps,
            **({"thrown_away": again, "resumes": len(logged)} if chain else {}),
            "between_files": " and ".join(worst.sources),
            **extent(
                Extent(tokens=0, sequences=0, first_step=first, last_step=last, files=len(names), example=names[0]),
                "metrics only: each curve has one value a step, the later file's; alarms at these steps come from it",
            ),
        },
        causes=(*((UNCAUGHT,) if any(map(_of_request, raised)) else ()), *CAUSES),
        confirm=("read the last lines of each segment: is it one exception that comes back?",) if chain else (),
        next=(
            "catch what fails in one sample, and leave that sample out; or save more often",
            "read a fall of a curve at a resume as the older checkpoint, not as something forgotten",
        )
        if chain
        else (f"read the curves of steps {first} to {last} from the later file",),
    )


def _raised(evidence: Evidence, last: int) -> tuple[Event, ...]:
    """Return the exceptions up to the last resume, each once, without those that only report another.

    Where the console names no steps, all that it holds.
    """
    raised = [event for event in evidence.events if event.kind == "exception" and not event.aside]
    if any(event.step is not None for event in raised):
        raised = [event for event in raised if event.step is not None and event.step <= last]
    own = {event.text: event for event in reversed(raised) if not CONSEQUENCE.search(event.text)}
    return tuple(reversed(own.values()))


def _of_request(event: Event) -> bool:
    name = NAME.match(event.text)
    return name is not None and TRANSPORT.search(name[1]) is not None


def _ended_by(raised: Sequence[Event]) -> Iterator[str]:
    if raised:
        told = "; ".join(f'"{shortened(event.text, MAX_QUOTE)}"' for event in raised[:MAX_RAISED])
        yield f"{'the console, without steps,' if raised[0].step is None else 'between them the console'} shows {told}"
    if any(map(_of_request, raised)):
        yield f"{LIKELY}{UNCAUGHT}"


RULE = rule(
    check, "resumed-segments", Link.DATA_VALIDITY, max_severity=Severity.MEDIUM, steps=MIN_STEPS, families=EVERY
)

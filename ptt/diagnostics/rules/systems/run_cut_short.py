"""This run shows an end that was not planned.

What: a process ended with an error, a postmortem or a status of failure, or a log that was opened and never closed,
before the number of steps that was set. A last checkpoint before that number, with no other trace, is a note.
Why it matters: the last steps, and what went wrong in them, are often missing from the logs; an average over the run
then leaves out its worst part.
What it is not: a resumed run. What was killed and went on to its end counts as ended; see resumed-segments.
What to do: read the last lines of the output, then look for what the other findings say of the last steps.
Source: exit records of W&B; header, footer, status and postmortem of Microsoft's toolkit; `global_step` and `max_steps`
of Hugging Face trainers.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.systems import crash_traces, done_share, ended_well, is_open

MIN_DONE_SHARE = 0.999  # of the steps that were set: the last one may not have been saved


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how the run ended."""
    share = done_share(evidence)
    if ended_well(evidence, done=limits["done"]):
        reached = f"it reached {share:.0%} of the steps that were set" if share is not None else "it says it completed"
        return Healthy(reason=reached)
    traces = crash_traces(evidence)
    if traces or (is_open(evidence) and share is not None):
        return _finding(evidence, traces, share, Severity.HIGH if traces else Severity.MEDIUM)
    if is_open(evidence) or share is not None:
        finding = _finding(evidence, (), share, Severity.LOW)
        return Healthy(reason=f"{finding.claim}; nothing says that it crashed", notes=(finding,))
    return NotJudged(
        reason="neither the number of steps that was set nor how the processes ended is recorded",
        missing=("max_steps", "events"),
        enable="keep trainer_state.json of the last checkpoint, the trainer's output, or a W&B log",
    )


def _finding(evidence: Evidence, traces: tuple[str, ...], share: float | None, severity: Severity) -> Finding:
    last = evidence.run.last_step
    context = evidence.run.context
    limit = context.get("max_steps")
    planned = float(limit) if isinstance(limit, int | float) and limit > 0 else None
    how = traces[0] if traces else "its log was opened and never closed" if is_open(evidence) else "no word of its end"
    of = f" of {planned:.0f}" if planned else ""
    return Finding(
        severity=severity,
        claim=f"The run ends at step {last}{of}: {how}",
        observed=None if last is None else float(last),
        limit=planned,
        unit="steps",
        onset_step=last,
        onset_interval=None if last is None else (last, last),
        evidence={
            "status": context.get("status"),
            "exit_reason": context.get("exit_reason"),
            "done_share": share,
            "traces": len(traces),
        },
        causes=(
            "an exception, or a rank that timed out in a collective",
            "a scheduler that stopped or preempted it",
            "killed by hand, or copied while it still went on",
        ),
        confirm=("read the last hundred lines of the output of every rank, the earliest error first",),
        next=("mend what the earliest error names, then resume from the last checkpoint whose metrics are finite",),
    )


RULE = rule(check, "run-cut-short", Link.SYSTEMS, done=MIN_DONE_SHARE, families=EVERY)

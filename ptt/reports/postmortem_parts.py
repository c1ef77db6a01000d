"""Parts of a postmortem that are worked out of a diagnosis: its impact, what to record, the check to add."""

from __future__ import annotations

from typing import Final

import polars as pl

from ptt.diagnostics.catalogue import pages
from ptt.diagnostics.model import Diagnosis, Finding, Severity, Status
from ptt.reports.consequences import followed, onset_words
from ptt.reports.keeping import role_views
from ptt.reports.names import sentence
from ptt.reports.numbers import count
from ptt.reports.panels import table
from ptt.reports.placing import end_of

NAMED: Final = 8  # checkpoints to distrust
MOST: Final = 4  # lines that would record what is missing, those that answer most first
SIGNATURE: Final = "tool-tail-growth"


def impact(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Say which steps and checkpoints are touched."""
    first = followed(diagnosis)
    if first is None:
        return ()
    told = [_steps(diagnosis, first)]
    if diagnosis.from_findings:
        told.append("Checkpoints: findings.json does not list them; the store does.")
        return tuple(told)
    told += [
        f"Checkpoint to go back to: {role.which}. {role.note}".rstrip()
        for role in role_views(diagnosis)
        if role.name == "Last healthy"
    ]
    told.append(f"Checkpoints not to trust: {_distrusted(diagnosis, first)}.")
    return tuple(told)


def _steps(diagnosis: Diagnosis, first: Finding) -> str:
    last = diagnosis.run.last_step
    if first.onset_step is None or last is None:
        return "Steps affected: not known, the finding has no date; treat the whole run as affected."
    end = max(end_of(first, last), first.onset_step)
    began = first.onset_interval
    surely = f"; it may have begun anywhere from step {count(began[0])} to {count(began[1])}" if began else ""
    over = f"to step {count(end)}, after which it was not seen"
    ended = f"to the end of the run (step {count(last)})" if end >= last else over
    return f"Steps affected: from {onset_words(first.onset_step, None)} {ended}{surely}."


def _distrusted(diagnosis: Diagnosis, first: Finding) -> str:
    frame = table(diagnosis, "checkpoints")
    if frame is None:
        return "none was looked for"
    held = frame.filter(pl.col("role") == "", pl.col("path").is_not_null()).sort("step")
    begun = first.onset_interval[0] if first.onset_interval else first.onset_step
    late = held if begun is None else held.filter(pl.col("step") >= begun)
    if late.is_empty():
        return "those of the affected steps; none of them is on disk here"
    named = [f"{row['path']} (step {count(row['step'])})" for row in late.head(NAMED).to_dicts()]
    more = f" and {count(len(late) - NAMED)} later ones" if len(late) > NAMED else ""
    return ", ".join(named) + more


def recordings(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Give the lines that record what was missing, those that answer most questions first."""
    answers: dict[str, int] = {}
    for item in diagnosis.not_judged:
        if item.applies and item.enable and item.enable not in diagnosis.verdict.next:
            answers[item.enable] = answers.get(item.enable, 0) + 1
    ordered = sorted(answers, key=lambda line: (-answers[line], line))[:MOST]
    return tuple(f"Record more: {sentence(line)}" for line in ordered)


def gate_snippet(diagnosis: Diagnosis) -> str:
    """Give the lines of ptt.toml that let `ptt gate` fail a run like this one, or keep a healthy one so."""
    first = followed(diagnosis)
    known = {page.id for page in pages()}
    limit = Severity.MEDIUM if first is not None and first.severity is Severity.MEDIUM else Severity.HIGH
    lines = ["[gate]", f'severity = "{limit.value}"  # a finding as bad as this, or worse, fails the run']
    required = [first.id] if first is not None and first.id in known else []
    if diagnosis.verdict.status is Status.CANNOT_SAY and SIGNATURE in known:
        required = [SIGNATURE]
    if required:
        lines.append(f'require = ["{required[0]}"]  # a run that records too little to tell does not pass')
    return "\n".join(lines)

"""Says where in this run to look at a finding: which steps, which curve, which files, which checkpoints."""

from __future__ import annotations

import re
from typing import Final

from ptt.diagnostics.model import Diagnosis, Finding, Link
from ptt.reports.run.handover import checkpoints_on_disk
from ptt.reports.text.consequences import span_words
from ptt.reports.text.numbers import count

FILES: Final = re.compile(r"(?:^|_)(?:file|(?<!error_)example|source|path|between_files)$")
SAMPLES: Final = re.compile(r"(?:^|_)(?:sample|trajectory|sequence|prompt|group)(?:_id)?$")
STEPS: Final = re.compile(r"^(?:worst|highest|lowest|peak|first|dead|last_finite)_\w*step$|^(?:worst|peak)_at$")
OF_TAILS: Final = frozenset({Link.POLICY_UPDATE, Link.DATA_FRESHNESS})  # links whose findings on a slice are of |r|
COLUMNS: Final = ("trajectories.", "turns.", "tool_calls.")  # begin the names of what agent traces are judged by
STEPS_BEFORE: Final = 10  # the onset, worth reading where no interval is known


def places(finding: Finding, diagnosis: Diagnosis) -> list[str]:
    """Return the places, those nearest to the onset first; none where the finding names none."""
    found = []
    if finding.seen_step is not None:
        before = 0 if finding.held_from_step is not None else STEPS_BEFORE
        low, high = finding.seen_interval or (finding.seen_step - before, finding.seen_step)
        low = max(low, diagnosis.run.first_step) if diagnosis.run.first_step is not None else low
        found.append(f"Steps {span_words((low, high))}" if high > low else f"Step {count(finding.seen_step)}")
    curves = (finding.evidence.get(key) for key in ("logged_as", "metric"))
    names = [name for name in curves if isinstance(name, str)][:1]
    found += [f"The {'column' if name.startswith(COLUMNS) else 'curve'} {name}" for name in names]
    for key, value in finding.evidence.items():
        name = key.replace("_", " ").capitalize()
        if isinstance(value, str) and value and FILES.search(key):
            found.append(f"File {value}")
        elif isinstance(value, str | int) and not isinstance(value, bool) and SAMPLES.search(key):
            found.append(f"{name} {value}")
        elif isinstance(value, int) and not isinstance(value, bool) and STEPS.search(key):
            found.append(f"{name} {count(value)}")
    return [*found, *_checkpoints(finding, diagnosis), *_sample(finding, diagnosis)]


def _sample(finding: Finding, diagnosis: Diagnosis) -> list[str]:
    """Say the command that prints the sample with most tail tokens, where the finding is one of tails."""
    top = diagnosis.tables.get("top_sequences")
    if finding.slice is None or finding.link not in OF_TAILS or top is None or not {"step_row"} <= set(top.columns):
        return []
    return [f"ptt show RUN {row['step']}:{row['step_row']}" for row in top.head(1).to_dicts()]


def _checkpoints(finding: Finding, diagnosis: Diagnosis) -> list[str]:
    """Name the checkpoints on either side of the onset."""
    if finding.seen_step is None:
        return []
    low = finding.seen_interval[0] if finding.seen_interval else finding.seen_step
    on_disk = checkpoints_on_disk(diagnosis)
    before = [f"{row['path']} before it" for row in on_disk if row["step"] < low]
    after = [f"{row['path']} after it" for row in on_disk if row["step"] >= finding.seen_step]
    return [f"Checkpoints: {', '.join(before[-1:] + after[:1])}"] if before or after else []

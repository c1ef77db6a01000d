"""Says where in this run to look at a finding: which steps, which curve, which files, which checkpoints."""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from ptt.diagnostics.model import Diagnosis, Finding
from ptt.reports.text.numbers import count
from ptt.reports.text.tables import table

FILES: Final = re.compile(r"(?:^|_)(?:file|example|source|path|between_files)$")
SAMPLES: Final = re.compile(r"(?:^|_)(?:sample|trajectory|sequence|prompt|group)(?:_id)?$")
STEPS: Final = re.compile(r"^(?:worst|highest|lowest|peak|first|dead|last_finite)_\w*step$|^(?:worst|peak)_at$")
NEAR: Final = 10  # steps before the onset that are worth reading


def places(finding: Finding, diagnosis: Diagnosis) -> list[str]:
    """Give the places, those nearest to the onset first; empty where the finding names none."""
    told = [_steps(finding, diagnosis), _curve(finding), *_named(finding), _checkpoints(finding, diagnosis)]
    return [place for place in told if place]


def _steps(finding: Finding, diagnosis: Diagnosis) -> str:
    if finding.onset_step is None:
        return ""
    low, high = finding.onset_interval or (finding.onset_step - NEAR, finding.onset_step)
    start = diagnosis.run.first_step
    low = max(low, start) if start is not None else low
    return f"Steps {count(low)} to {count(max(high, low))}" if high > low else f"Step {count(finding.onset_step)}"


def _curve(finding: Finding) -> str:
    logged, name = finding.evidence.get("logged_as"), finding.evidence.get("metric")
    if not isinstance(logged, str) and not isinstance(name, str):
        return ""
    return f"The curve {logged if isinstance(logged, str) else name}"


def _named(finding: Finding) -> list[str]:
    """Give the files, samples and single steps that the evidence names."""
    told = []
    for key, value in finding.evidence.items():
        if isinstance(value, str) and value and FILES.search(key):
            told.append(f"File {value}")
        elif isinstance(value, str | int) and not isinstance(value, bool) and SAMPLES.search(key):
            told.append(f"{key.replace('_', ' ').capitalize()} {value}")
        elif isinstance(value, int) and not isinstance(value, bool) and STEPS.search(key):
            told.append(f"{key.replace('_', ' ').capitalize()} {count(value)}")
    return told


def _checkpoints(finding: Finding, diagnosis: Diagnosis) -> str:
    """Name the checkpoints on either side of the onset."""
    frame = table(diagnosis, "checkpoints")
    if frame is None or finding.onset_step is None:
        return ""
    held = frame.filter(pl.col("role") == "", pl.col("path").is_not_null())
    low = finding.onset_interval[0] if finding.onset_interval else finding.onset_step
    before = held.filter(pl.col("step") < low)["path"].to_list()
    after = held.filter(pl.col("step") >= finding.onset_step)["path"].to_list()
    sides = [*(f"{path} before it" for path in before[-1:]), *(f"{path} after it" for path in after[:1])]
    return f"Checkpoints: {', '.join(sides)}" if sides else ""

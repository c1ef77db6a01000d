"""Tells of each finding in which files of the run its beginning can be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ptt.diagnostics.model import Finding

if TYPE_CHECKING:
    import polars as pl

KINDS: Final = {"tokens": "tokens_file", "samples": "samples_file"}


def placed(findings: Sequence[Finding], files: pl.DataFrame | None) -> list[Finding]:
    """Add the file of the first recorded step at or after each onset (else the last before it) to the evidence.

    `files`: kind, step and path, as gathering gives them. A rule that names a file itself is left alone.
    """
    if files is None or files.is_empty():
        return list(findings)
    held = {kind: files.filter(files["kind"] == kind) for kind in KINDS}
    return [_placed(finding, held) for finding in findings]


def _placed(finding: Finding, held: dict[str, pl.DataFrame]) -> Finding:
    onset = finding.onset_step
    if onset is None:
        return finding
    found = {}
    for kind, rows in held.items():
        if rows.height:
            place = min(rows["step"].search_sorted(onset), rows.height - 1)
            found[KINDS[kind]] = str(rows["path"][place])
    return replace(finding, evidence={**found, **finding.evidence})

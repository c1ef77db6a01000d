"""Read a findings.json back into a diagnosis: verdict and findings without tables."""

from __future__ import annotations

from pathlib import Path

from ptt.diagnostics.model import Diagnosis


def read_findings(path: Path) -> Diagnosis:
    """Give the diagnosis that a findings.json holds; InputError where it is none."""
    raise NotImplementedError

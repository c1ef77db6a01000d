"""The runs that reports are written of again."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged_runs import judged_runs, written_findings

from ptt import api


@pytest.fixture(scope="module")
def judged() -> dict[str, api.Diagnosis]:
    """Judge every sample run once."""
    return judged_runs()


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Give the findings.json of each of them."""
    return written_findings(tmp_path_factory.mktemp("findings"))

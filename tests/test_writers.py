"""The trackers' own libraries as installed here write a run; the parsers read what they read back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from carriers import WRITERS, read_back, read_here, unpacked

SCRIPT = Path(__file__).parent / "fixtures" / "make_carriers.py"

pytestmark = pytest.mark.writers


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    subprocess.run([sys.executable, str(SCRIPT), str(folder)], check=True, cwd=folder, timeout=600)
    return folder


@pytest.mark.parametrize("writer", WRITERS)
def test_scalars_equal_what_the_installed_library_reads_back(written: Path, tmp_path: Path, writer: str) -> None:
    found = read_here(unpacked(written, tmp_path)[writer], writer)
    assert len(found) > 1000
    assert found == read_back(written, writer)

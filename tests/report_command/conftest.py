"""Every sample and every cut run, judged once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptt import api

ROOT = Path(__file__).parents[2]
RUNS = {
    path.name.removesuffix(".tar.zst"): path
    for path in (*sorted((ROOT / "sample_logs").iterdir()), *sorted((ROOT / "tests/fixtures/runs").glob("*.tar.zst")))
    if path.is_dir() or path.suffix == ".zst"
}


@pytest.fixture(scope="session")
def judged() -> dict[str, api.Diagnosis]:
    """Judge all of them, by name."""
    return {name: api.diagnose(path) for name, path in RUNS.items()}


@pytest.fixture(scope="session")
def findings(judged: dict[str, api.Diagnosis], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write findings.json of each, and give the files by name."""
    folder = tmp_path_factory.mktemp("findings")
    places = {}
    for name, diagnosis in judged.items():
        places[name] = folder / name / "findings.json"
        places[name].parent.mkdir()
        places[name].write_text(diagnosis.to_json(), encoding="utf-8")
    return places

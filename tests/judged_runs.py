"""Every sample and every cut run, judged once for all tests that ask for them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ptt import api

ROOT = Path(__file__).parents[1]
RUNS = {
    path.name.removesuffix(".tar.zst"): path
    for path in (*sorted((ROOT / "sample_logs").iterdir()), *sorted((ROOT / "tests/fixtures/runs").glob("*.tar.zst")))
    if path.is_dir() or path.suffix == ".zst"
}


@cache
def judged_runs() -> dict[str, api.Diagnosis]:
    """Judge all of them, by name."""
    return {name: api.diagnose(path) for name, path in RUNS.items()}


def written_findings(folder: Path) -> dict[str, Path]:
    """Write findings.json of each below a folder, and give the files by name."""
    places = {}
    for name, diagnosis in judged_runs().items():
        places[name] = folder / name / "findings.json"
        places[name].parent.mkdir()
        places[name].write_text(diagnosis.to_json(), encoding="utf-8")
    return places

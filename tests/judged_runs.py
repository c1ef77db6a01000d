"""Every sample and every cut run, judged once for all tests that ask for them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from filelock import FileLock
from shared_folder import shared_folder

from ptt import api
from ptt.diagnostics.compare.comparison import Comparison
from ptt.diagnostics.store.diagnosis import LoadedRun

ROOT = Path(__file__).parents[1]
RUNS = {
    path.name.removesuffix(".tar.zst"): path
    for path in (*sorted((ROOT / "sample_logs").iterdir()), *sorted((ROOT / "tests/fixtures/runs").glob("*.tar.zst")))
    if path.is_dir() or path.suffix == ".zst"
}
STORIES = sorted(name for name, path in RUNS.items() if path.is_dir())


@cache
def opened_run(name: str) -> LoadedRun:
    """Return one run as it was judged: the first worker that asks judges it, the others read what that one kept."""
    folder = shared_folder()
    with FileLock(folder / f"{name}.lock"):
        return api.open_run(RUNS[name], out=folder / name)


def kept_folder(name: str) -> Path:
    """Return the folder in which a run is kept as it was judged, for commands to take as their --out."""
    opened_run(name)
    return shared_folder() / name


def judged_run(name: str) -> api.Diagnosis:
    """Return its diagnosis."""
    diagnosis = opened_run(name).diagnosis
    assert isinstance(diagnosis, api.Diagnosis)
    return diagnosis


@cache
def compared_runs(*names: str) -> Comparison:
    """Return a comparison of some of them."""
    for name in names:
        opened_run(name)
    return api.compare([RUNS[name] for name in names], out=shared_folder())


@cache
def judged_runs() -> dict[str, api.Diagnosis]:
    """Return all of them, by name."""
    return {name: judged_run(name) for name in RUNS}


def written_findings(folder: Path) -> dict[str, Path]:
    """Write findings.json of each below a folder, and give the files by name."""
    places = {}
    for name, diagnosis in judged_runs().items():
        places[name] = folder / name / "findings.json"
        places[name].parent.mkdir()
        places[name].write_text(diagnosis.to_json(), encoding="utf-8")
    return places

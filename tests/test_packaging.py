"""What a user installs: the wheel built from the sdist holds every module and template, nothing else."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from ptt.version import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = out.glob("*.whl")
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as members:
        assert not [name for name in members.getnames() if "__pycache__" in name]
    return found


def tracked() -> set[str]:
    kinds = {".py", ".j2", ".css", ".json", ".toml", ".typed", ".yml"}
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "ptt").rglob("*")
        if path.is_file() and (path.suffix in kinds or path.name == "py.typed")
    }


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    assert {name for name in names if ".dist-info/" not in name} == tracked()


def test_the_version_of_the_package_is_the_one_it_reports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__


def test_the_wheel_alone_judges_a_sample(wheel: Path, tmp_path: Path) -> None:
    """Unpacked in front of this environment's path: nothing of the checkout is imported."""
    place = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(place)
    path = f"import sys; sys.path.insert(0, {str(place)!r})"
    code = f"{path}; import ptt.cli.app as app; print(app.__file__); app.main()"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            "diagnose",
            str(ROOT / "sample_logs" / "healthy"),
            "--out",
            str(tmp_path / "o"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert str(place) in done.stdout
    assert "Healthy" in done.stdout

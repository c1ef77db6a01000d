"""Every advisory that comes with ptt: it fires on its case, as strongly as promised, and is silent where it must be.

A case is a run as its framework leaves it, written from the public thread and not from the advisory."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from slow_cases import first_fast

from ptt import api
from ptt.diagnostics.advisories.advisory import shipped
from ptt.diagnostics.model import AdvisoryReport, Strength
from ptt.diagnostics.pipeline import FINDINGS

CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.name for path in CASES.iterdir() if path.is_dir())
STRENGTHS = {
    "settings-and-signature": Strength.CAUSE,
    "settings-only": Strength.NOTE,
    "signature-only": Strength.POSSIBLE,
}


def case(name: str) -> dict[str, Any]:
    return tomllib.loads((CASES / name / "CASE.toml").read_text(encoding="utf-8"))


def of_run(run: Path) -> AdvisoryReport | None:
    return api.diagnose(run, one_run=True).advisories


def of_setup(run: Path) -> AdvisoryReport | None:
    """Return what applies by the files of the setup alone, or by a console that prints it."""
    report = api.check_config([run])
    return report if report.settings else of_run(run)


def strength_of(name: str, report: AdvisoryReport | None) -> Strength | None:
    assert report is not None
    return next((match.strength for match in report.matches if match.id == name), None)


def told_by(name: str, report: AdvisoryReport | None) -> str:
    """Return what the answer rests on and what it lacks, for who writes a case."""
    assert report is not None
    match = next((match for match in report.matches if match.id == name), None)
    setup = f"framework {report.framework}, versions {dict(report.packages)}, {report.settings} settings"
    if match is None:
        return f"{name} does not apply: {setup}; a framework, version or setting rules it out, or no finding shows it"
    held = f"settings {dict(match.settings)}, findings {match.findings}"
    return f"{setup}; holds: {held}; not certain: {match.unsure}; would show it: {match.would_show}"


@pytest.mark.parametrize("name", first_fast(NAMES, 20))
def test_an_advisory_fires_on_its_case(name: str) -> None:
    told, run = case(name), CASES / name / "run"
    report = of_setup(run) if told["shows"] == "settings-only" else of_run(run)
    assert strength_of(told["id"], report) is STRENGTHS[told["shows"]], told_by(told["id"], report)


@pytest.mark.parametrize("name", first_fast(NAMES, 20))
def test_it_is_silent_at_the_fixed_version_or_with_the_setting_changed(name: str, tmp_path: Path) -> None:
    told = case(name)
    if "silent_with" not in told:
        pytest.skip("nothing of its setup is recorded")
    shutil.copytree(CASES / name / "run", run := tmp_path / "run")
    change = told["silent_with"]
    file = run / change["file"].removeprefix("run/")
    text = file.read_text(encoding="utf-8")
    assert change["replace"] in text, f"silent_with: {change['file']} does not hold {change['replace']!r}"
    file.write_text(text.replace(change["replace"], change["by"]), encoding="utf-8")
    report = of_run(run) if told["shows"] == "signature-only" else of_setup(run)
    assert strength_of(told["id"], report) is None


def test_signatures_name_findings_that_exist() -> None:
    shown = {advisory.id: advisory.signature for advisory in shipped().advisories}
    named = {name: {*one.any_finding, *one.all_findings, *one.no_finding} for name, one in shown.items()}
    assert {name: findings - FINDINGS for name, findings in named.items() if findings - FINDINGS} == {}


def test_every_advisory_has_a_case() -> None:
    assert {advisory.id for advisory in shipped().advisories} - {case(name)["id"] for name in NAMES} == set()

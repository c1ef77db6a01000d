"""`ptt init` as a user runs it: what it writes works at once, and nothing that is there is lost."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from shared_folder import share_stores
from typer.testing import Result

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_logs"
WORKFLOW = ".github/workflows/gate.yml"
Invoke = Callable[..., Result]


@pytest.fixture(autouse=True)
def _shared(tmp_path: Path) -> None:
    share_stores(tmp_path)


def files() -> dict[str, str]:
    found = (path for path in Path().rglob("*") if path.is_file() and path.parts[0] != "ptt-report")
    return {path.as_posix(): path.read_text() for path in found}


def steps(done: Result) -> list[str]:
    """Return the steps that are printed, each on a line of its own."""
    return re.split(r" ?\d\. ", " ".join(done.stdout.partition("Next")[2].split()))[1:]


def test_an_empty_folder_gets_a_policy_and_the_workflow_that_the_docs_show(invoke: Invoke) -> None:
    done = invoke("init")
    assert done.exit_code == 0, done.output
    assert files().keys() == {"ptt.toml", WORKFLOW}
    assert files()[WORKFLOW] == (ROOT / "docs" / "ci" / "github-actions.yml").read_text(encoding="utf-8")
    assert tomllib.loads(files()["ptt.toml"]) == {"gate": {"severity": "high"}}
    assert [step.split()[0] for step in steps(done)] == ["Make", "Try", "In", "Commit", "Keep"]
    assert steps(done)[3] == f"Commit what was written: git add ptt.toml {WORKFLOW}"
    assert steps(done)[4] == "Keep reports out of the repository: echo ptt-report/ >> .gitignore"
    uncommented = files()["ptt.toml"].replace("\n# ", "\n").partition("\n\n[gate.baseline]")
    Path("ptt.toml").write_text(uncommented[0] + uncommented[2].replace('\nfile = "baselines/main.toml"', ""))
    assert "every check" in invoke("gate", SAMPLES / "healthy", "--quiet").stdout


def test_runs_give_a_baseline_that_the_policy_names_and_the_steps_work(invoke: Invoke) -> None:
    done = invoke("init", SAMPLES / "healthy")
    assert done.exit_code == 0, done.output
    assert files().keys() == {"ptt.toml", WORKFLOW, "baselines/main.toml"}
    gate = tomllib.loads(files()["ptt.toml"])["gate"]
    assert gate == {"severity": "high", "last_step": 500, "baseline": {"file": "baselines/main.toml"}}
    command = shlex.split(steps(done)[0].removeprefix("Try the policy: "))
    assert command == ["ptt", "gate", str(SAMPLES / "healthy"), "--explain"]
    assert invoke(*command[1:]).exit_code == 0
    before = files()
    again = invoke("init", SAMPLES / "healthy")
    assert again.exit_code == 0
    assert "Kept" in again.stdout
    assert "Wrote" not in again.stdout
    assert files() == before


def test_a_run_that_cannot_be_a_baseline_leaves_nothing(invoke: Invoke) -> None:
    done = invoke("init", SAMPLES / "collapse")
    assert done.exit_code == 3
    assert "cannot be a baseline" in done.stdout
    assert files() == {}
    assert invoke("init", "absent").exit_code == 5
    assert files() == {}


def test_what_is_there_is_kept_and_named_until_force_is_given(invoke: Invoke) -> None:
    Path("ptt.toml").write_text("[metrics]\n")
    kept = invoke("init")
    assert kept.exit_code == 0
    assert files()["ptt.toml"] == "[metrics]\n"
    assert "ptt.toml" in kept.stdout.partition("Kept")[2].partition("Next")[0]
    assert "--force" in kept.stdout
    invoke("init", "--force")
    assert "[gate]" in files()["ptt.toml"]


def test_a_policy_without_a_baseline_is_told_of_it(invoke: Invoke) -> None:
    Path("ptt.toml").write_text('[gate]\nseverity = "high"\n')
    done = invoke("init", SAMPLES / "healthy", "--baseline", "base line.toml")
    assert 'Add to ptt.toml [gate.baseline] and, below it, file = "base line.toml".' in steps(done)
    assert f"git add 'base line.toml' {WORKFLOW}" in steps(done)[-2]


def test_a_folder_of_gitlab_s_gets_no_workflow_of_github_s(invoke: Invoke) -> None:
    Path(".gitlab-ci.yml").write_text("")
    done = invoke("init")
    assert files().keys() == {"ptt.toml", ".gitlab-ci.yml"}
    assert "docs/ci/gitlab-ci.yml" in done.stdout


def test_below_the_root_of_a_repository_the_workflow_is_said_to_be_in_the_wrong_place(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    shown = "".join(steps(invoke("init"))).replace(" ", "")  # a long path is broken across lines
    assert f"Move{WORKFLOW}to{tmp_path}" in shown


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["."], "never written to"),
        (["run", "--baseline", "run/base.toml"], "never written to"),
        (["--yes-even-failed"], "without use here"),
        (["--force"], "is no regular file"),
    ],
)
def test_nothing_is_written_where_it_must_not_be(args: list[str], why: str, invoke: Invoke) -> None:
    for folder in ("run", *(["ptt.toml"] if "--force" in args else [])):
        Path(folder).mkdir()
    Path("run/metrics.jsonl").write_text("{}\n")
    refused = invoke("init", *args)
    assert refused.exit_code == 2, refused.output
    assert why in refused.stderr
    assert files().keys() == {"run/metrics.jsonl"}

"""The action and the CI files that are there to be copied: valid by their hosts' schemas, and run as they would be."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from ptt.cli.app import app
from ptt.reports.gate.checks import OUTCOME_TEXT

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "ci.md").read_text(encoding="utf-8")
FILES = sorted((DOCS / "ci").iterdir())


def check(file: Path, schema: str, *more: str) -> str:
    tool = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *more, str(file)]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_workflow_is_valid_by_github_s_schema(tmp_path: Path) -> None:
    file = DOCS / "ci" / "github-actions.yml"
    assert check(file, "vendor.github-workflows") == ""
    assert check(file, "custom.github-workflows-require-timeout") == ""
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(file.read_text(encoding="utf-8").replace("runs-on:", "runs-at:"), encoding="utf-8")
    assert "runs-at" in check(wrong, "vendor.github-workflows")


def test_the_job_is_valid_by_gitlab_s_schema() -> None:
    assert check(DOCS / "ci" / "gitlab-ci.yml", "vendor.gitlab-ci", "--data-transform", "gitlab-ci") == ""


def commands() -> list[tuple[str, list[str]]]:
    """Find every `ptt gate` of the page and its files."""
    found = []
    for file in FILES:
        for text in strings(yaml.safe_load(file.read_text(encoding="utf-8"))):
            found += [(file.name, shlex.split(line)) for line in text.splitlines() if line.startswith("ptt ")]
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL):
        found += [("ci.md", shlex.split(line)) for line in block.splitlines() if line.startswith("ptt ")]
    return found


def strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for item in value.values() for text in strings(item)]
        case list():
            return [text for item in value for text in strings(item)]
    return []


def options() -> dict[str, set[str]]:
    group = typer.main.get_command(app)
    return {
        name: {word for parameter in command.params for word in parameter.opts}
        for name, command in group.commands.items()  # type: ignore[attr-defined]
    }


def test_every_place_has_a_command() -> None:
    places = {"ci.md", *(file.name for file in FILES)} - {"github-actions.yml"}  # it uses the action
    assert {place for place, _ in commands()} == places


@pytest.mark.skipif("gate" not in options(), reason="the command is not there yet")
@pytest.mark.parametrize(("place", "words"), commands())
def test_commands_use_options_that_exist(place: str, words: list[str]) -> None:
    assert words[1] in options()
    assert {word for word in words if word.startswith("--")} <= options()[words[1]], place


def test_the_hook_on_the_page_is_the_one_in_the_file() -> None:
    (shown,) = [block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "id: ptt-gate" in block]
    whole = yaml.safe_load((DOCS / "ci" / "pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert yaml.safe_load(shown) == whole["repos"][0]["hooks"]


def test_files_that_later_steps_read_are_those_the_gate_writes() -> None:
    text = (DOCS / "ci" / "gitlab-ci.yml").read_text(encoding="utf-8")
    (words,) = [found for place, found in commands() if place == "gitlab-ci.yml"]
    written = {words[at + 1] for at, word in enumerate(words) if word in {"--junit", "--markdown"}}
    assert written
    assert all(path.startswith("gate/") for path in written)
    assert set(re.findall(r"gate/gate\.\w+|gate/\w+\.xml", text)) == written


ACTION: dict[str, Any] = yaml.safe_load((DOCS.parent / "action.yml").read_text(encoding="utf-8"))
WORKFLOW: dict[str, Any] = yaml.safe_load((DOCS / "ci" / "github-actions.yml").read_text(encoding="utf-8"))
EXPRESSION = re.compile(r"\$\{\{ (.+?) \}\}")


def test_the_action_is_valid_by_github_s_schema() -> None:
    assert check(DOCS.parent / "action.yml", "vendor.github-actions") == ""


def test_the_workflow_takes_ptt_from_where_its_top_says_and_from_no_index() -> None:
    assert set(WORKFLOW["env"]) == {"PTT_REPOSITORY", "PTT_REF"}
    steps = WORKFLOW["jobs"]["gate"]["steps"]
    (own,) = [step["with"] for step in steps if "checkout" in step.get("uses", "") and "path" in step["with"]]
    assert (own["repository"], own["ref"]) == ("${{ env.PTT_REPOSITORY }}", "${{ env.PTT_REF }}")
    assert [step["id"] for step in steps if step.get("uses") == f"./{own['path']}"] == ["ptt"]
    for file in FILES:
        assert "ptt-forensics" not in file.read_text(encoding="utf-8")
    for name in ("PTT_REPOSITORY", "PTT_REF"):
        gitlab = (DOCS / "ci" / "gitlab-ci.yml").read_text(encoding="utf-8")
        assert len(re.findall(rf"{name}:", gitlab)) == 1
        assert f'"${name}"' in gitlab


def test_the_workflow_gives_and_takes_what_the_action_has() -> None:
    steps = WORKFLOW["jobs"]["gate"]["steps"]
    (used,) = [step for step in steps if step.get("id") == "ptt"]
    assert set(used["with"]) <= set(ACTION["inputs"])
    assert {name for name, of in ACTION["inputs"].items() if of.get("required")} <= set(used["with"])
    outputs = set(re.findall(r"steps\.ptt\.outputs\.([\w-]+)", str(steps)))
    assert outputs == {"report", "sarif"}
    assert outputs <= set(ACTION["outputs"])
    for name in (*ACTION["inputs"], *ACTION["outputs"]):
        assert f"`{name}`" in PAGE, f"docs/ci.md does not tell {name}"


def test_the_action_s_own_expressions_name_what_is_there() -> None:
    inputs, outputs = set(), set()
    for expression in EXPRESSION.findall(str(ACTION)):
        match expression.split("."):
            case ["inputs", name]:
                inputs.add(name)
            case ["steps", "gate", "outputs", name]:
                outputs.add(name)
            case _:
                assert expression == "github.action_path"
    assert inputs == set(ACTION["inputs"])
    assert outputs == set(ACTION["outputs"])


def gated_by_the_action(place: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Run the action's step as a runner does, with the ptt of this environment in the place of the installed one."""
    (step,) = [step for step in ACTION["runs"]["steps"] if step.get("id") == "gate"]
    temp, output = place / "temp", place / "output"
    (temp / "ptt" / "bin").mkdir(parents=True, exist_ok=True)
    ptt = temp / "ptt" / "bin" / "ptt"
    ptt.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from ptt.cli.app import main; main()" "$@"\n')
    ptt.chmod(0o755)
    output.write_text("")
    given = {name: str(of.get("default", "")) for name, of in ACTION["inputs"].items()}
    given |= {name.replace("_", "-"): value for name, value in inputs.items()}
    env = {
        name: EXPRESSION.sub(lambda found: given[found[1].removeprefix("inputs.")], value)
        for name, value in step["env"].items()
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=place, capture_output=True, text=True, check=False,
        env={**os.environ, **env, "RUNNER_TEMP": str(temp), "GITHUB_OUTPUT": str(output)},
    )  # fmt: skip
    told = dict(line.split("=", 1) for line in output.read_text(encoding="utf-8").splitlines())
    return done, {name: told.get(name, "") for name in ACTION["outputs"]}


def log(run: Path, kl: float) -> None:
    rows = [
        {"step": step, "reward": 0.5 + step / 1000, "kl": kl + step % 3 / 1000, "loss": 0.1} for step in range(1, 61)
    ]
    run.mkdir(parents=True)
    (run / "trainer_state.json").write_text(json.dumps({"global_step": 60, "log_history": rows}), encoding="utf-8")


@pytest.mark.slow
def test_the_action_s_step_writes_what_its_inputs_ask_for_and_tells_where(tmp_path: Path) -> None:
    log(tmp_path / "my runs" / "a", 0.01)
    log(tmp_path / "my runs" / "b", 0.5)
    bound = '[gate]\n[[gate.bound]]\nname = "kl"\nmetric = "kl"\nmax = 0.1\n'
    (tmp_path / "policy.toml").write_text(bound, encoding="utf-8")
    asked = {"sarif": "the gate/gate.sarif", "junit": "junit.xml", "markdown": "gate.md"}
    done, outputs = gated_by_the_action(
        tmp_path, runs="my runs/a\nmy runs/b\n", settings="policy.toml", out="the gate", jobs="1", as_of="2026-01-31",
        **asked,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert outputs == {"exit-code": "3", "report": "the gate", **asked}
    assert json.loads((tmp_path / outputs["sarif"]).read_text(encoding="utf-8"))["version"] == "2.1.0"
    assert (tmp_path / "the gate" / "index.html").is_file()
    assert "::error title=ptt gate%3A failed (exit code 3)::" in done.stdout
    done, outputs = gated_by_the_action(tmp_path, runs="my runs/a", as_of="tomorrow", out="the gate", **asked)
    assert (done.returncode, outputs.pop("exit-code")) == (2, "2"), done.stderr
    assert set(outputs.values()) == {""}  # those of the call before are no answer to this one


def test_the_page_tells_every_exit_code_and_links_to_what_is_there() -> None:
    for text in OUTCOME_TEXT.values():
        assert f"| {text.exit_code} | {text.word if text.exit_code != 5 else 'unreadable'} |" in PAGE
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (DOCS / target).exists(), target

"""The CI files that are there to be copied: valid by their hosts' own schemas, and with options that exist."""

from __future__ import annotations

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
    assert {place for place, _ in commands()} == {"ci.md", *(file.name for file in FILES)}


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
    for name in ("github-actions.yml", "gitlab-ci.yml"):
        text = (DOCS / "ci" / name).read_text(encoding="utf-8")
        (words,) = [found for place, found in commands() if place == name]
        written = {words[at + 1] for at, word in enumerate(words) if word in {"--junit", "--sarif", "--markdown"}}
        assert written
        assert all(path.startswith("gate/") for path in written)
        assert set(re.findall(r"gate/gate\.\w+|gate/\w+\.xml", text)) == written


def test_the_page_tells_every_exit_code_and_links_to_what_is_there() -> None:
    for text in OUTCOME_TEXT.values():
        assert f"| {text.exit_code} | {text.word if text.exit_code != 5 else 'unreadable'} |" in PAGE
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (DOCS / target).exists(), target

"""Every block of README and docs is run as a reader would run it, and shows what the program prints."""

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from ptt.cli.app import app
from ptt.cli.exits import Exit
from ptt.diagnostics.advisories.advisory import shipped
from ptt.diagnostics.gate.policy import Known
from ptt.diagnostics.gate.read_policy import read_policy

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CATALOGUE = "CONTRIBUTING.md"  # its TOML is a part of metrics.toml
SETTINGS = {"gate", "budget", "diagnose", "slices", "metrics", "limits", "run", "logs"}  # tables of ptt.toml
NEEDS_A_TRAINER = ("trainer", "steps", "runs/long_run", "logs/agents")  # what a reader has and the project has not


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str


def blocks() -> Iterator[Block]:
    """Give every fenced block of every page."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(r"^```(\w*)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
            yield Block(page.name, text.count("\n", 0, found.start()) + 1, found[1], found[2])


def where(block: Block) -> str:
    return f"{block.page}:{block.line}"


def of_language(*languages: str) -> list[Block]:
    return [block for block in blocks() if block.language in languages]


def commands(block: Block) -> list[str]:
    """Give the lines of a block that call ptt, without what stands before it in the shell."""
    lines = block.text.replace("\\\n", " ").splitlines()
    found = (re.search(r"(?:^|\$ |&& |\. |-- )(ptt (?!: ).*)", line) for line in lines)
    return [one[1] for one in found if one]


SHOWN = [block for block in of_language("console") if "$ ptt" in block.text]
SHIPPED = [block for block in SHOWN if all("sample_logs" in command for command in commands(block))]


@pytest.mark.slow
@pytest.mark.parametrize("block", SHIPPED, ids=where)
def test_a_command_on_what_ships_prints_what_the_page_shows(block: Block, tmp_path: Path) -> None:
    (tmp_path / "sample_logs").symlink_to(ROOT / "sample_logs")
    for part in block.text.split("$ ")[1:]:
        command, shown = part.split("\n", 1)
        words = [sys.executable, "-m", "ptt", *shlex.split(command)[1:]]
        environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == Exit.JUDGED, done.stderr
        printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
        for passage in filter(None, (passage.strip("\n") for passage in re.split(r"^\.\.\.$", shown, flags=re.M))):
            assert passage in printed, printed


@pytest.mark.parametrize("block", [block for block in blocks() if commands(block)], ids=where)
def test_every_command_and_option_that_a_page_names_exists(block: Block) -> None:
    group = typer.main.get_command(app)
    for line in commands(block):
        words = shlex.split(line, comments=True)[1:]
        command = group
        while words and (inner := getattr(command, "commands", {}).get(words[0])):
            command, words = inner, words[1:]
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        known |= {"--help", "-h"}
        options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
        assert command is not group or options, line
        assert [option for option in options if option not in known] == [], line


@pytest.mark.parametrize("block", of_language("toml"), ids=where)
def test_settings_and_rules_of_a_page_are_valid(block: Block, tmp_path: Path) -> None:
    document = tomllib.loads(block.text)
    if block.page == CATALOGUE:
        return
    if "rule" in document:
        (tmp_path / "own.toml").write_text(block.text, encoding="utf-8")
        done = CliRunner().invoke(app, ["rules", "--check", str(tmp_path / "own.toml")])
        assert done.exit_code == Exit.JUDGED, done.output
        return
    assert document.keys() <= SETTINGS
    if "gate" in document and "..." not in block.text:
        read_policy(
            without_baseline(document),
            tmp_path / "ptt.toml",
            known=Known(advisories={one.id: one.level for one in shipped().advisories}),
        )


def without_baseline(document: dict[str, object]) -> dict[str, object]:
    """Leave out what names a file of the reader's own."""
    gate = {key: value for key, value in dict(document["gate"]).items() if key != "baseline"}  # type: ignore[call-overload]
    return {**document, "gate": gate}


@pytest.mark.slow
@pytest.mark.parametrize("block", of_language("python"), ids=where)
def test_python_of_a_page_runs_or_imports_what_is_there(block: Block, tmp_path: Path) -> None:
    tree = ast.parse(block.text)
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and str(node.module)[:3] == "ptt"]
    for node in imported:
        module = importlib.import_module(str(node.module))
        assert [name.name for name in node.names if not hasattr(module, name.name)] == [], node.module
    if block.page == CATALOGUE or any(word in block.text for word in NEEDS_A_TRAINER):
        return
    (tmp_path / "sample_logs").symlink_to(ROOT / "sample_logs")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", block.text]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

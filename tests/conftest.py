"""What every session does: it counts the answers that each rule gave, so that a rule without its three cases fails."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from judged_runs import shared_folder

from ptt.cli import output
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Healthy, RuleVerdict
from ptt.diagnostics.rules import RULES
from ptt.diagnostics.rules.interface import Rule

GC_ALLOCATIONS = 20_000  # between two collections: what tests make and drop is small
CASES = ("Broken", "Healthy", "NotJudged")
ANSWERS: dict[str, set[str]] = defaultdict(set)
"""The types of verdict that each rule gave in this process, and in the workers that have ended."""
run_rule = Rule.run
settings.register_profile("ptt", max_examples=40)  # a draw of each session; `--hypothesis-profile default` draws more
settings.load_profile("ptt")


def counting(rule: Rule, evidence: Evidence) -> RuleVerdict:
    """Run a rule and count its answer."""
    verdict = run_rule(rule, evidence)
    noted = isinstance(verdict, Healthy) and verdict.notes  # a finding too mild to break anything
    ANSWERS[rule.id] |= {type(verdict).__name__, *(["Broken"] if noted else [])}
    return verdict


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-rule", action="store_true", help="fail if a rule lacks one of its three cases")


def pytest_configure(config: pytest.Config) -> None:
    shared_folder()
    Rule.run = counting  # type: ignore[assignment, method-assign]
    controls = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if sys.dont_write_bytecode and not controls:  # else each command that a test starts would compile the package anew
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(shared_folder() / "bytecode")


@pytest.fixture(scope="session", autouse=True)
def _one_artist() -> Iterator[None]:
    """Have commands share the process that draws (but `watch`, which has its own): it takes as long to start as most
    tests.
    """
    artist = output.artist
    kept: list[output.Artist] = []
    with ExitStack() as until_the_end, pytest.MonkeyPatch.context() as patch:

        @contextmanager
        def shared() -> Iterator[output.Artist]:
            if not kept:
                kept.append(until_the_end.enter_context(artist()))
            yield kept[0]

        patch.setattr(output, "artist", shared)
        yield


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write the sample of each format below one run dir, and return them by their paths there."""
    from parser_samples import make_samples  # most sessions of a few files want none

    return make_samples(tmp_path_factory.mktemp("samples"))


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run a command in this process, in the test's own folder: no interpreter to start."""
    from typer.testing import CliRunner

    from ptt.cli.app import app

    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(app, [*map(str, args)])


def pytest_collection_finish() -> None:
    """Leave what was collected out of garbage collection, which would go through thousands of tests at every turn."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker of pytest-xdist counted."""
    for rule, answers in getattr(node, "workeroutput", {}).get("answers", {}).items():
        ANSWERS[rule].update(answers)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the counts to the controller; there, fail a whole session in which a case was missing."""
    if "ray" in sys.modules:  # it leaves files and processes to the end, which pytest would call an error
        with warnings.catch_warnings(action="ignore"):
            gc.collect()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["answers"] = {rule: sorted(answers) for rule, answers in ANSWERS.items()}
        return
    shutil.rmtree(shared_folder(), ignore_errors=True)
    if session.config.getoption("--every-rule"):
        missing = [f"{rule.id}: {case}" for rule in RULES for case in CASES if case not in ANSWERS[rule.id]]
        if missing:
            print("\nNo test has a rule give these answers; see CONTRIBUTING.md:", *missing, sep="\n  ")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

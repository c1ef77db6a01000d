"""What every session does: it counts the answers that each rule gave, so that a rule without its three cases fails."""

from __future__ import annotations

import gc
import shutil
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from shared_folder import shared_folder

if TYPE_CHECKING:  # importing the package takes seconds, which the process that only hands tests to workers saves
    from ptt.cli import output
    from ptt.diagnostics.evidence import Evidence
    from ptt.diagnostics.model import RuleVerdict
    from ptt.diagnostics.rules.interface import Rule

GC_ALLOCATIONS = 20_000  # between two collections: what tests make and drop is small
TESTS = Path(__file__).parent
CASES = ("Broken", "Healthy", "NotJudged")
ANSWERS: dict[str, set[str]] = defaultdict(set)
"""The types of verdict that each rule gave in this process, and in the workers that have ended."""
settings.register_profile("ptt", max_examples=40)  # a draw of each session; `--hypothesis-profile default` draws more
settings.load_profile("ptt")


def count_answers() -> None:
    """Have each rule count its answer."""
    from ptt.diagnostics.model import Healthy
    from ptt.diagnostics.rules.interface import Rule

    run_rule = Rule.run

    def counting(rule: Rule, evidence: Evidence) -> RuleVerdict:
        verdict = run_rule(rule, evidence)
        noted = isinstance(verdict, Healthy) and verdict.notes  # a finding too mild to break anything
        ANSWERS[rule.id] |= {type(verdict).__name__, *(["Broken"] if noted else [])}
        return verdict

    Rule.run = counting  # type: ignore[assignment, method-assign]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-rule", action="store_true", help="fail if a rule lacks one of its three cases")


def pytest_configure(config: pytest.Config) -> None:
    shared_folder()
    worker = getattr(config, "workerinput", None)
    if worker or not config.getoption("numprocesses", None):
        count_answers()
    if worker and config.args_source is config.ArgsSource.TESTPATHS and int(worker["workerid"].removeprefix("gw")) % 2:
        homes = {TESTS / path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
        config.args = sorted(map(str, homes), reverse=True)  # each compiles half of them, and reads the other's half


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests into the order that all workers must share."""
    items.sort(key=lambda item: item.path)


@pytest.fixture(scope="session", autouse=True)
def _one_artist() -> Iterator[None]:
    """Have commands share the process that draws (but `watch`, which has its own): it takes as long to start as most
    tests.
    """
    from ptt.cli import output

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


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start one browser for all pages."""
    from browsers import chromium

    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


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
        from ptt.diagnostics.rules import RULES

        missing = [f"{rule.id}: {case}" for rule in RULES for case in CASES if case not in ANSWERS[rule.id]]
        if missing:
            print("\nNo test has a rule give these answers; see CONTRIBUTING.md:", *missing, sep="\n  ")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

"""The command at a terminal: its width, short options, help with examples, completion, and the summary for a chat."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from judged_runs import kept_folder
from made_runs import rows_of, write_state
from typer.testing import Result

from ptt.cli.app import EXAMPLES
from ptt.diagnostics.config import Settings
from ptt.diagnostics.pipeline import RunLocation
from ptt.diagnostics.pipeline import judge_run as judge

SAMPLES = Path(__file__).parents[1] / "sample_logs"
WIDEST = 100


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_is_short_to_ask_for_and_ends_with_examples(command: str, invoke: Callable[..., Result]) -> None:
    done = invoke(*command.split(), "-h")
    assert done.exit_code == 0
    assert done.stdout == invoke(*command.split(), "--help").stdout
    ending = done.stdout.rstrip().splitlines()[-len(EXAMPLES[command]) :]
    assert [line.strip() for line in ending] == list(EXAMPLES[command])


def test_the_summary_of_a_token_run_is_short_enough_for_a_chat(invoke: Callable[..., Result], tmp_path: Path) -> None:
    out = kept_folder("tool_tail_growth")
    done = invoke("diagnose", SAMPLES / "tool_tail_growth", "-o", out)
    lines = done.stdout.splitlines()
    labels = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert labels == ["Verdict", "Outcome", "Limit", "Why", "Update", "Next", "Recomputed", "Not", "Report"]
    assert len(lines) <= 18
    assert max(map(len, lines)) <= WIDEST
    assert (out / "report.html").is_file()


def test_no_line_is_wider_than_a_hundred_columns(invoke: Callable[..., Result]) -> None:
    for words in (("rules",), ("rules", "entropy-collapse"), ("sources", SAMPLES / "healthy")):
        assert max(map(len, invoke(*words).stdout.splitlines())) <= WIDEST


@pytest.mark.slow
def test_gate_prints_a_line_a_run_and_explains_on_request(invoke: Callable[..., Result]) -> None:
    runs = [SAMPLES / "healthy", SAMPLES / "tool_tail_growth"]
    done = invoke("gate", *runs, "--quiet", "--reports", "none")
    lines = done.stdout.splitlines()
    assert done.exit_code == 3
    assert lines[0].startswith("■ tool_tail_growth  FAIL")
    assert "tool-tail-growth: observed 8.95 nats, limit 2 nats, since step 2" in " ".join(lines[0].split())
    assert lines[0].endswith("Severity critical; the policy fails at high or above.")  # whole, however long
    assert lines[1].startswith("● healthy  PASS")
    assert lines[2].startswith("■ ptt gate: failed, exit code 3")
    assert "would fail on" in invoke("gate", *runs, "--quiet", "--reports", "none", "--explain").stdout


@pytest.mark.slow
def test_the_shell_completes_the_names_of_rules() -> None:
    environment = {"_PTT_COMPLETE": "complete_bash", "COMP_WORDS": "ptt rules entropy-c", "COMP_CWORD": "2"}
    code = "import sys; sys.argv[0] = 'ptt'; from ptt.cli.app import app; app(prog_name='ptt')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.stdout.split() == ["entropy-collapse"]


def test_progress_covers_judging(tmp_path: Path) -> None:
    stages: list[tuple[str, int, int]] = []
    run = write_state(tmp_path / "run", rows_of(0))
    location = RunLocation(run=run, store=tmp_path / "store", name="run")
    judge(location, Settings(), progress=lambda stage, done, of: stages.append((stage, done, of)))
    assert [entry for entry in stages if entry[0] == "judging"] == [("judging", 0, 1), ("judging", 1, 1)]

"""What `ptt gate` prints, to the letter; foreign text steers neither the terminal nor rich."""

from __future__ import annotations

import io
import os
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from gate_reports import BOUND, SAMPLES, reports, run
from hypothesis import given, settings
from rich.console import Console

from ptt.diagnostics.gate.results import PASSES_ALTHOUGH, CheckKind, CheckResult, GateReport, Outcome
from ptt.diagnostics.model import Severity, Status
from ptt.reports.gate.checks import measured
from ptt.reports.gate.terminal import MAX_RUNS, print_gate

GOLDEN = Path(__file__).parent / "golden"
WIDTH = 100


def printed(report: GateReport, *, explain: bool = False, colour: bool = False, width: int = WIDTH) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, color_system="standard" if colour else None)
    print_gate(report, console, "ptt-report/gate/index.html", explain=explain)
    return out.getvalue()


@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_output_is_the_recorded_one(name: str, explain: bool) -> None:
    actual = printed(SAMPLES[name], explain=explain)
    recorded = GOLDEN / f"{name}.{'explained' if explain else 'terminal'}.txt"
    if os.environ.get("PTT_RECORD_GOLDEN"):
        recorded.write_text(actual, encoding="utf-8")
    assert actual == recorded.read_text(encoding="utf-8")


def test_the_outcome_stands_last_with_its_exit_code_and_why() -> None:
    lines = printed(SAMPLES["failed"]).splitlines()
    assert "exit code 3: a check found what the policy forbids" in " ".join(lines[-4:])
    assert "exit code 4" in printed(SAMPLES["blind"])


def test_explained_checks_say_what_would_have_failed_them() -> None:
    text = printed(SAMPLES["passed"], explain=True)
    checks = sum(len(one.checks) for one in SAMPLES["passed"].runs)
    assert text.count("would fail on") == checks
    assert text.count("data  ") == checks


@settings(max_examples=15, deadline=None)
@given(reports())
def test_nothing_in_a_report_steers_the_terminal(report: GateReport) -> None:
    for explain in (False, True):
        text = printed(report, explain=explain)
        assert not [c for c in text if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]
        assert not [line for line in text.splitlines() if line != line.rstrip()]


SEVERITY = CheckResult(
    id="severity:kl-over-target", kind=CheckKind.SEVERITY, outcome=Outcome.FAILED, severity=Severity.CRITICAL,
    title="no kl-over-target of severity high or above", rule="kl-over-target", metric="kl", observed=7.25, limit=0.3,
    unit="nats", since="since step 9", data="", fails_if="",
    claim="mean KL has stayed above 0.30 nats a token; its allowance (ann: ablation) expired after 2026-01-01",
)  # fmt: skip


def test_a_line_names_run_metric_value_limit_and_reason_and_is_whole_in_a_pipe() -> None:
    name = "a-run-whose-name-is-longer-than-what-a-line-of-a-narrow-terminal-has-room-for" * 2
    report = replace(SAMPLES["failed"], runs=(run(name, SEVERITY),), policy={"severity": "high"})
    assert " ".join(printed(report, width=40).splitlines()[0].split()) == (
        f"■ {name} FAIL kl-over-target: kl 7.25 nats, limit 0.3 nats, since step 9. Mean KL has stayed above "
        "0.30 nats a token; its allowance (ann: ablation) expired after 2026-01-01. Severity critical; the policy "
        "fails at high or above."
    )
    bound = printed(replace(report, runs=(run("seed 1", BOUND),))).splitlines()[0]
    for part in ("seed 1", "mean KL over the last 50 steps at most 0.2", "0.31 nats", "limit 0.2 nats", "It is 0.31"):
        assert part in " ".join(bound.split())
    terminal = printed(report, width=60, colour=True)
    assert max(map(len, re.sub(r"\x1b\[[\d;]*m", "", terminal).splitlines())) <= 60
    assert "expired after" in " ".join(terminal.split())


def test_a_pass_of_a_run_of_which_the_diagnosis_cannot_say_tells_what_was_checked() -> None:
    (good,) = SAMPLES["passed"].runs[:1]
    note = f"{PASSES_ALTHOUGH}the diagnosis cannot say whether the run is sound; only this was checked: a"
    text = printed(replace(SAMPLES["passed"], runs=(replace(good, status=Status.CANNOT_SAY, notes=(note, "other")),)))
    assert text.splitlines()[0].endswith(f"; {note}")
    assert "The run passed. Of 1 that passed the diagnosis cannot say whether it is sound." in text


def test_markup_of_rich_is_shown_as_written() -> None:
    (one,) = SAMPLES["passed"].runs[:1]
    report = replace(SAMPLES["passed"], runs=(replace(one, name="[bold]x[/bold]"),))
    assert "[bold]x[/bold]" in printed(report, colour=True)


def test_many_runs_that_passed_are_counted_and_the_worst_come_first() -> None:
    (good,) = SAMPLES["passed"].runs[:1]
    bad = run("bad", outcome=Outcome.UNREADABLE, error="torn")
    runs = [replace(good, name=f"run-{n}") for n in range(MAX_RUNS + 5)]
    lines = printed(GateReport(outcome=Outcome.UNREADABLE, runs=(*runs, bad))).splitlines()
    assert "bad" in lines[0]
    assert any(f"{MAX_RUNS + 5} runs passed" in line for line in lines)
    assert len(lines) < 12


def test_of_hundreds_of_bad_runs_the_worst_are_shown_and_the_others_counted_with_the_page_named() -> None:
    failing = SAMPLES["failed"].runs[0]
    torn = [run(f"torn-{n}", outcome=Outcome.UNREADABLE, error="torn") for n in range(200)]
    bad = [replace(failing, name=f"bad-{n}", outcome=Outcome.FAILED) for n in range(20)]
    good = [replace(SAMPLES["passed"].runs[0], name=f"good-{n}") for n in range(100)]
    text = printed(GateReport(outcome=Outcome.FAILED, runs=(*good, *torn, *bad)))
    heads = [line for line in text.splitlines() if not line.startswith(" ")]
    assert sum("bad-" in line for line in heads) == 20
    assert sum("torn-" in line for line in heads) == MAX_RUNS - 20
    assert heads[MAX_RUNS : MAX_RUNS + 2] == [
        f"◇ {200 - MAX_RUNS + 20} more runs cannot be read; the page named below lists all",
        "● 100 runs passed",
    ]
    assert "ptt-report/gate/index.html" in text.splitlines()[-1]
    assert printed(GateReport(outcome=Outcome.FAILED, runs=(*good, *torn, *bad)), explain=True).count("torn-") >= 200


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [(0.01, None, "(95% interval from 0.01, open above)"), (None, 0.5, "(95% interval up to 0.5, open below)")],
)
def test_an_end_of_an_interval_that_is_not_known_is_open(low: float | None, high: float | None, told: str) -> None:
    check = CheckResult(
        id="a", kind=CheckKind.BOUND, outcome=Outcome.PASSED, title="", claim="", data="", fails_if="", observed=0.1,
        low=low, high=high,
    )  # fmt: skip
    assert measured(check) == f"observed 0.1 {told}"

"""A run that stalls: what its consoles go on to say after the last step, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import ptt
from ptt.diagnostics.model import Finding, Severity
from ptt.diagnostics.parsers.io.console_incidents import Silence

DATED = "%Y-%m-%d %H:%M:%S"
WAITING = "waiting for 16 of 128 rollouts"
REFUSED = "request failed: connection refused"
START = datetime(2026, 3, 4, 5, 6, 7)
END = START + timedelta(minutes=40)  # of the last step, to within a minute


def console(
    *,
    hung: int,
    ends: str = "",
    steps: range = range(1, 41),
    at: datetime = START,
    rows: str = DATED,
    lines: str = DATED,
) -> str:
    """Return a console of steps of a minute, and `hung` lines, a minute each, behind them."""
    said = []
    for step in steps:
        at += timedelta(seconds=60 + step % 3)
        said.append(f"[{at.strftime(rows)}] step:{step} - actor/loss:0.1{step} - critic/score/mean:0.4{step}")
    for _ in range(hung):
        at += timedelta(seconds=60)
        said.append(f"[{at.strftime(lines)}] INFO {WAITING}")
    return "\n".join([*said, ends, ""])


def server(*, begins: datetime, said: Mapping[int, str]) -> str:
    """Return a console without rows that says these lines, by the number of minutes since it began."""
    return "".join(f"[{begins + timedelta(minutes=minute):{DATED}}] {text}\n" for minute, text in said.items())


def diagnosed(folder: Path, **consoles: str) -> ptt.Diagnosis:
    folder.mkdir()
    for name, text in consoles.items():
        (folder / f"{name}.log").write_text(text, "utf-8")
    return ptt.diagnose(folder)


def stalled(folder: Path, **consoles: str) -> list[Finding]:
    return [finding for finding in diagnosed(folder, **consoles).findings if finding.id == "run-stalled"]


def test_a_console_that_waits_behind_the_last_step_stalls_and_one_that_completes_does_not(tmp_path: Path) -> None:
    (found,) = stalled(tmp_path / "a", train=console(hung=90))
    assert (found.severity, found.observed) == (Severity.HIGH, 5400.0)
    assert '90 times "waiting for N of N rollouts"' in found.claim
    assert not stalled(tmp_path / "b", train=console(hung=4))
    assert not stalled(tmp_path / "c", train=console(hung=90, ends="Training completed."))


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("Engine 000: Running: 8 reqs, Waiting: 0 reqs", False), ("Avg prompt throughput: 9 tokens/s, idle", False),
        ("appending 3 rows", False), ("config changed", False), ("0 failed rollouts", False), ("errors=0", False),
        ("waiting for requests", False), ("request timeout=120", False), ("loss/prob_error 0.1", False),
        ("waiting for 16 requests", True), ("httpx.ConnectError", True), ("2 jobs hang", True),
        ("pending: 3", True), ("Retrying", True), ("sandbox timed out", True),
    ],
)  # fmt: skip
def test_a_line_waits_by_its_words_and_not_where_it_counts_none(line: str, waits: bool) -> None:
    seen = Silence()
    seen.row(b"2026-05-01 12:00:00 step 1")
    for _ in range(3):
        seen.line(f"2026-05-01 13:00:00 INFO {line}".encode())
    assert seen.facts(1).get("silent_said") == (3 if waits else None)


def test_times_with_a_date_and_times_without_are_not_subtracted(tmp_path: Path) -> None:
    told = diagnosed(tmp_path / "a", train=console(hung=90, rows="%H:%M:%S"))
    assert "run-stalled" in {check.id for check in told.healthy}  # its rows have times
    assert not stalled(tmp_path / "b", train=console(hung=90, lines="%H:%M:%S"))
    (found,) = stalled(tmp_path / "c", train=console(hung=90, rows="%H:%M:%S", lines="%H:%M:%S"))
    assert found.observed == 5400.0
    assert not stalled(tmp_path / "d", train=console(hung=90, lines="10:02:03<10:40:00"))  # of a bar


def test_a_console_without_dates_that_ends_quietly_is_judged(tmp_path: Path) -> None:
    told = diagnosed(tmp_path / "a", train=console(hung=0, rows="%H:%M:%S"))
    assert "run-stalled" in {check.id for check in told.healthy}


def test_a_start_that_hung_and_was_resumed_is_no_stall_of_the_next(tmp_path: Path) -> None:
    resumed = console(hung=0, steps=range(41, 81), at=START + timedelta(hours=4))
    assert not stalled(tmp_path / "a", a=console(hung=180), b=resumed)


def test_what_a_console_without_rows_says_counts_after_the_last_row_alone(tmp_path: Path) -> None:
    train, before = console(hung=0), dict.fromkeys(range(1, 25), REFUSED)
    lives_on = before | dict.fromkeys(range(25, 200), "GET /health 200 OK")
    assert not stalled(tmp_path / "a", train=train, server=server(begins=START, said=lives_on))
    refuses = server(begins=START, said=before | dict.fromkeys(range(45, 165), REFUSED))
    (found,) = stalled(tmp_path / "b", train=train, server=refuses)
    assert found.observed == pytest.approx(7440.0, abs=60.0)
    begins = END + timedelta(hours=9)
    (found,) = stalled(tmp_path / "c", train=train, next=server(begins=begins, said=dict.fromkeys(range(31), REFUSED)))
    assert found.observed == 1800.0  # from its own first line on
    (found,) = stalled(tmp_path / "d", train=console(hung=90), server=refuses)
    assert "connection refused" in found.claim  # the longer of both, with its own words
    (found,) = stalled(tmp_path / "e", train=console(hung=200), server=refuses)
    assert WAITING.split()[0] in found.claim


def test_times_of_steps_that_vary_are_told_by_their_98th_percentile(tmp_path: Path) -> None:
    rows = "".join(
        f'{{"step": {step}, "reward": 0.5, "time/step": {700 if step % 10 == 0 else 60}}}\n' for step in range(1, 41)
    )
    few = console(hung=50, steps=range(38, 41))  # from three rows no usual time is known
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "metrics.jsonl").write_text(rows, "utf-8")
    (tmp_path / "a" / "train.log").write_text(few, "utf-8")
    told = ptt.diagnose(tmp_path / "a")
    assert "run-stalled" in {check.id for check in told.healthy}
    assert "run-stalled" in {check.id for check in diagnosed(tmp_path / "b", train=few).not_judged}

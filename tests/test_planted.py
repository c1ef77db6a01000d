"""Faults that are planted into the log of a real run of this repository, and what the run's headline makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from slow_cases import first_fast

from benchmarks.loop.planted_faults import FAULTS
from benchmarks.loop.planted_log import Log, find_log
from ptt import api
from ptt.diagnostics.model import Severity

HEALTHY = Path(__file__).parents[1] / "sample_logs" / "healthy"
BY_NAME = {fault.name: fault for fault in FAULTS}
FITTING = ("rate-jump-blow-up", "rate-jump-nan", "rate-zero", "one-inf-reward", "one-nan-grad", "one-inf-loss",
           "reward-at-floor", "short-online")  # fmt: skip


def log_of(run: Path = HEALTHY) -> Log:
    log = find_log(run)
    assert log is not None
    for row in log.rows:
        row.setdefault("learning_rate", 2e-4)  # the sample was thinned to its other columns
    return log.thinned(5)


@pytest.mark.parametrize("name", first_fast(FITTING, 2))
def test_the_headline_names_the_planted_fault_s_link(name: str, tmp_path: Path) -> None:
    fault, log = BY_NAME[name], log_of()
    assert fault.fits(log)
    fault.plant(log, np.random.default_rng(4))
    found = api.diagnose(log.write(tmp_path / "run"))
    assert found.verdict.first_broken_link in fault.links, found.verdict.headline
    assert any(one.id in fault.ids for one in found.findings)


@pytest.mark.parametrize("rows", [4, 7, 12])
def test_the_first_rows_of_a_healthy_run_are_no_collapse(rows: int, tmp_path: Path) -> None:
    log = log_of().thinned(1, first=rows)
    assert len(log.rows) == rows
    found = api.diagnose(log.write(tmp_path / "run"))
    assert not [one.id for one in found.findings if one.severity.at_least(Severity.MEDIUM)]


def test_other_json_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"loss": 1}', encoding="utf-8")
    (tmp_path / "trace.jsonl").write_text('{"text": "loss"}\n' * 30, encoding="utf-8")
    assert find_log(tmp_path) is None

"""Rewards that rise while the outcome falls, and calls that multiply for nothing; healthy twins stay silent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reward_sets import judge_set
from trace_stories import found, not_judged

from ptt.diagnostics.model import Severity


def training(*, proxy: float, solved: float, calls: float = 0.0) -> Any:
    """Return attempts whose proxy, solved share and calls move so far from step 15 to step 30 on."""

    def one(rng: np.random.Generator, step: int, prompt: int) -> Mapping[str, float]:
        gone = float(np.clip((step - 15) / 15, 0, 1))
        made = rng.poisson(1.0 + calls * gone)
        return {
            "calls": made,
            "correct": rng.random() < 0.5 + solved * gone,
            "proxy_reward": rng.normal(0.5 + proxy * gone, 0.2) + (0.3 * made if calls else 0.0),
        }

    return one


def test_a_reward_that_pays_for_calls_is_named_with_what_it_pays_for(tmp_path: Path) -> None:
    diagnosis = judge_set(tmp_path, training(proxy=0.5, solved=-0.4, calls=2.0))
    (finding,) = found(diagnosis, "reward-hacking")
    assert finding.severity is Severity.HIGH
    assert finding.evidence["metric"] in {"proxy_reward", "reward"}
    assert "tool calls grew" in finding.claim
    assert "pays for" in finding.claim
    assert finding.onset_step is not None
    assert 13 <= finding.onset_step <= 30
    assert [one.severity for one in found(diagnosis, "calls-inflation")] == [Severity.MEDIUM]


@pytest.mark.slow
def test_a_reward_that_parts_from_the_outcome_alone_is_of_medium_severity(tmp_path: Path) -> None:
    (finding,) = found(judge_set(tmp_path, training(proxy=0.9, solved=-0.4)), "reward-hacking")
    assert finding.severity is Severity.MEDIUM


def test_learning_is_no_hacking(tmp_path: Path) -> None:
    diagnosis = judge_set(tmp_path, training(proxy=0.5, solved=0.4, calls=2.0))
    assert not found(diagnosis, "reward-hacking")
    assert not found(diagnosis, "calls-inflation")


@pytest.mark.slow
def test_a_run_that_collapses_is_no_hacking(tmp_path: Path) -> None:
    assert not found(judge_set(tmp_path, training(proxy=-0.3, solved=-0.4)), "reward-hacking")


@pytest.mark.slow
def test_a_small_part_that_rises_while_all_else_falls_is_no_hacking(tmp_path: Path) -> None:
    def one(rng: np.random.Generator, step: int, prompt: int) -> Mapping[str, float]:
        gone = float(np.clip((step - 15) / 15, 0, 1))
        return {"correct": rng.random() < 0.8 - 0.7 * gone, "format_reward": 0.1 * (rng.random() < 0.5 + 0.4 * gone)}

    assert not found(judge_set(tmp_path, one), "reward-hacking")


def test_a_flat_run_is_silent(tmp_path: Path) -> None:
    diagnosis = judge_set(tmp_path, training(proxy=0.0, solved=0.0))
    assert not [one for one in diagnosis.findings if one.id in {"reward-hacking", "calls-inflation", "judge-bias"}]


def test_without_an_outcome_nothing_is_judged(tmp_path: Path) -> None:
    def one(rng: np.random.Generator, step: int, prompt: int) -> Mapping[str, float]:
        return {"proxy_reward": step / 40}

    diagnosis = judge_set(tmp_path, one, steps=20)
    assert {"reward-hacking", "calls-inflation"} <= not_judged(diagnosis)

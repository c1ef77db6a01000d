"""A proximal policy is told as what it is: its pairs, how far it lies from the policy, and how far an average lags."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import series_of, write_recorder_run

from ptt import api
from ptt.diagnostics.evidence.proximal import ewma_lag, proximal_row
from ptt.diagnostics.model import Agreement, AuditRow, Diagnosis

STEPS, SEQUENCES, TOKENS = 30, 8, 24
LOGPS = {name: pl.List(pl.Float32) for name in ("policy_logp", "old_logp", "rollout_logp", "ref_logp", "prox_logp")}


def judged(folder: Path, gaps: Mapping[str, float]) -> Diagnosis:
    """Judge a run of these logprobs: each the policy's, off by so many nats up or down at every token."""
    generator = np.random.default_rng(4)
    rows: list[dict[str, Any]] = []
    for step in range(1, STEPS + 1):
        for _ in range(SEQUENCES):
            policy = -1.0 - generator.exponential(0.5, TOKENS)
            row = {name: policy + gap * generator.choice((-1, 1), TOKENS) for name, gap in gaps.items()}
            rows.append({"seq": len(rows), "step": step, "model_mask": [True] * TOKENS} | row)
    frame = pl.DataFrame(rows, schema_overrides={name: LOGPS[name] for name in gaps})
    return api.diagnose(write_recorder_run(folder, frame))


def row_of(diagnosis: Diagnosis) -> AuditRow:
    """Return what the audit says of the proximal policy."""
    (row,) = [row for row in diagnosis.audit or () if row.quantity == "proximal policy"]
    return row


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99])
def test_the_lag_is_the_mean_age_of_the_averaged_weights(decay: float) -> None:
    average = {0: 1.0}  # age -> weight
    for _ in range(4000):
        average = {age + 1: weight * decay for age, weight in average.items() if weight > 1e-12} | {0: 1 - decay}
    mean_age = sum(age * weight for age, weight in average.items()) / sum(average.values())
    assert ewma_lag(decay) == pytest.approx(mean_age, rel=1e-6)


def test_distance_to_the_proximal_policy_is_told_beside_the_update(tmp_path: Path) -> None:
    gaps = {"policy_logp": 0.0, "old_logp": 0.01, "prox_logp": 0.05, "rollout_logp": 0.02}
    row = row_of(judged(tmp_path / "run", gaps))
    assert row.agreement is Agreement.FACT
    assert row.recomputed == pytest.approx(0.05, rel=0.01)
    assert "mean |policy/prox| is 0.050 nats late, 5.0 times |policy/old|" in row.said
    assert "mean |prox/rollout| is" in row.said


def test_alone_it_stands_in_for_the_trainers_own_logprobs(tmp_path: Path) -> None:
    gaps = {"prox_logp": 0.0, "rollout_logp": 0.2, "ref_logp": 0.01}  # as AReaL's trainer is recorded
    diagnosis = judged(tmp_path / "run", gaps)
    assert diagnosis.signature.pair == "prox/ref"
    assert "engine-mismatch" in {finding.id for finding in diagnosis.findings}


def test_beside_other_logprobs_its_lag_is_no_mismatch_of_the_engine(tmp_path: Path) -> None:
    gaps = {"policy_logp": 0.0, "prox_logp": 0.2, "rollout_logp": 0.001, "ref_logp": 0.01}
    diagnosis = judged(tmp_path / "run", gaps)
    assert diagnosis.signature.pair == "policy/ref"
    assert "engine-mismatch" not in {finding.id for finding in diagnosis.findings}


def test_an_older_recording_of_old_logprobs_is_read_as_it_is(tmp_path: Path) -> None:
    diagnosis = judged(tmp_path / "run", {"old_logp": 0.0, "rollout_logp": 0.01, "ref_logp": 0.02})
    assert diagnosis.signature.pair == "old/ref"
    assert all(row.quantity != "proximal policy" for row in diagnosis.audit or ())


def test_a_logged_kl_and_a_decay_are_told_without_any_token() -> None:
    kl = series_of("kl/prox", [0.02] * 20 + [0.04] * 10)
    row = proximal_row({}, {"kl/prox": kl}, {"ewma_decay": 0.9})
    assert row is not None
    assert row.said.startswith("a moving average of the policy with decay 0.9, 9.0 updates behind on average")
    assert row.logged == pytest.approx(0.04)
    assert row.missing == ("prox_logp",)
    assert proximal_row({}, {}, {"ewma_decay": None}) is None
    assert proximal_row({}, {}, {"ewma_decay": 1.0}) is None

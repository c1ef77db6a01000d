"""Recorders hung onto trainers of veRL, OpenRLHF and AReaL: every entry ends up with its own token."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from trainers import DIVISORS, RESPONSES, SAMPLED, TRL, AReaL, Array, OpenRLHF, VerlV0, VerlV1

from ptt.recorders import areal, openrlhf, trl, verl


@pytest.fixture(params=["numpy", "torch"])
def array(request: pytest.FixtureRequest) -> Array:
    """Arrays as numpy everywhere, and as torch (floats in bfloat16) where that is installed."""
    if request.param == "numpy":
        return np.asarray
    torch = pytest.importorskip("torch", reason="torch is not installed; make test-trl installs it")

    def tensor(values: Any) -> Any:
        made = torch.tensor(np.asarray(values))
        return made.bfloat16() if made.is_floating_point() else made

    return tensor


def _each_entry_lies_with_its_token(found: pl.DataFrame, *columns: str) -> None:
    assert found["token_ids"].to_list() == RESPONSES
    assert found["model_mask"].to_list() == [[bool(one) for one in row] for row in SAMPLED]
    for column in columns:
        divisor = DIVISORS[column.removesuffix("_logp")]
        for ids, mask, held in zip(RESPONSES, SAMPLED, found[column].to_list(), strict=True):
            sampled = [-token / divisor for token, one in zip(ids, mask, strict=True) if one]
            assert [value for value, one in zip(held, mask, strict=True) if one] == sampled


def test_verl_v0_records_each_update(tmp_path: Path, array: Array) -> None:
    trainer = VerlV0(array)
    recorder = verl.record(trainer, tmp_path, every=2, strict=True)
    trainer.fit(4)
    assert len(trainer.updated) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000002.parquet", "step_000004.parquet"]
    found = pl.read_parquet(tmp_path / "step_000004.parquet")
    _each_entry_lies_with_its_token(found, "old_logp", "rollout_logp", "ref_logp")
    assert found["reward"].to_list() == [1.0, 0.0]
    assert found["group_id"].to_list() == ["a", "a"]
    assert found["sample_id"].to_list() == ["a_0", "a_1"]
    assert recorder.seconds > 0


def test_verl_v0_tells_rejected_tokens_from_tool_output(tmp_path: Path, array: Array) -> None:
    trainer = VerlV0(array)
    verl.record(trainer, tmp_path, strict=True)
    trainer.fit(1)
    found = pl.read_parquet(tmp_path / "step_000001.parquet")
    assert found["model_mask"][0].to_list() == [True, True, False, False, True]
    assert found["train_mask"][0].to_list() == [True, False, False, False, True]


def test_verl_v1_fetches_what_the_queue_holds(tmp_path: Path, array: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = VerlV1()
    batch, queue = VerlV1.batch_and_queue(array)
    monkeypatch.setitem(sys.modules, "transfer_queue", SimpleNamespace(kv_batch_get=queue.kv_batch_get))
    verl.record(trainer, tmp_path, strict=True)
    metrics: dict[str, Any] = {}
    trainer._compute_metrics(batch, metrics, {}, global_steps=7, epoch=0)
    assert metrics == {"training/global_step": 7}
    found = pl.read_parquet(tmp_path / "step_000007.parquet")
    _each_entry_lies_with_its_token(found, "old_logp", "rollout_logp")
    assert found["train_mask"][0].to_list() == [True, False, False, False, True]
    assert found["policy_version"].to_list() == [2, None]
    assert found["group_id"].to_list() == ["a", "a"]
    assert found["reward"].to_list() == [1.0, 1.0]


def test_openrlhf_moves_entries_back_to_their_token(tmp_path: Path, array: Array) -> None:
    trainer = OpenRLHF(array)
    openrlhf.record(trainer, tmp_path, strict=True)
    status, step = trainer.train_step([], 3)
    assert step == 4
    assert len(status["experiences"]) == 1
    found = pl.read_parquet(tmp_path / "step_000004.parquet")
    _each_entry_lies_with_its_token(found, "old_logp", "rollout_logp", "ref_logp")
    assert found["group_id"].to_list() == ["4-0", "4-0"]


def test_openrlhf_without_a_known_alignment_is_not_guessed(tmp_path: Path) -> None:
    trainer = OpenRLHF(np.asarray)
    made = trainer.experience_maker.make_experience_batch([])
    made[0].action_mask = np.ones_like(made[0].sequences)
    trainer.experience_maker = SimpleNamespace(make_experience_batch=lambda _: made)
    recorder = openrlhf.record(trainer, tmp_path)
    status, _ = trainer.train_step([], 0)
    assert status["experiences"] is made
    assert recorder.failures == 1
    assert list(tmp_path.iterdir()) == []


def test_areal_is_recorded_before_it_shifts_its_fields(tmp_path: Path, array: Array) -> None:
    trainer = AReaL(array)
    areal.record(trainer, tmp_path, strict=True)
    trainer.train(2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000008.parquet", "step_000009.parquet"]
    found = pl.read_parquet(tmp_path / "step_000008.parquet")
    _each_entry_lies_with_its_token(found, "old_logp", "rollout_logp", "ref_logp")
    assert found["policy_version"].to_list() == [5, 6]
    assert found["sample_id"].to_list() == ["8-0.0-0", "8-0.0-1"]


@pytest.mark.parametrize("record", [trl.record, verl.record, openrlhf.record, areal.record])
def test_a_trainer_without_the_methods_is_refused_before_training(tmp_path: Path, record: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"this recorder was made for .*; with another"):
        record(SimpleNamespace(), tmp_path)


class RLOOTrainer:
    """The methods of TRL's RLOOTrainer that are hung onto; its batch holds one sum for each completion."""

    add_callback = _calculate_rewards = _compute_loss = _get_per_token_logps_and_entropies = lambda *_: None

    def _generate_and_score_completions(self, inputs: list[str]) -> dict[str, Any]:
        return {"old_logps": np.zeros(len(inputs))}


def test_a_trainer_that_keeps_sums_alone_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"RLOOTrainer keeps no .* of single tokens.* made for GRPOTrainer of TRL 1"):
        trl.record(RLOOTrainer(), tmp_path)


def test_a_loss_that_passes_the_recorder_by_is_said_at_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))
    trainer = TRL()
    recorder = trl.record(trainer, tmp_path)
    trainer.state.global_step = 1
    trainer.callbacks[0].on_step_end(trainer.args, trainer.state, None)
    assert recorder.failures == 1
    assert "step 1 ended without _compute_loss" in caplog.text


@pytest.mark.parametrize("array_of", [np.asarray])
def test_a_fault_in_the_batch_never_reaches_the_training(tmp_path: Path, array_of: Array) -> None:
    trainer = VerlV0(array_of)
    recorder = verl.record(trainer, tmp_path)
    batch = SimpleNamespace(batch={}, non_tensor_batch={})
    assert trainer._update_actor(batch) == "metrics"  # type: ignore[arg-type]
    assert recorder.failures == 1


def test_trl_keeps_the_logprobs_and_the_batch_where_rewards_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))
    trainer = TRL()
    recorder = trl.record(trainer, tmp_path)
    trainer.train()
    assert recorder.failures == 1
    assert trl.PLACE not in trainer.loss_of[0]
    found = pl.read_parquet(tmp_path / "step_000001.parquet")
    _each_entry_lies_with_its_token(found.rename({"policy_logp": "old_logp"}), "old_logp", "ref_logp")

"""Recorders hung onto trainers of veRL, OpenRLHF and AReaL: every entry ends up with its own token."""

from __future__ import annotations

import sys
import time
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


@pytest.mark.slow
def test_verl_v0_ends_after_the_step_that_follows_a_stop(tmp_path: Path, array: Array) -> None:
    trainer = VerlV0(array)
    recorder = verl.record(trainer, tmp_path / "tokens", watch=True, stop="critical", report_dir=tmp_path / "report")
    assert recorder.watcher is not None
    for step in range(1, 4):
        recorder.log(step, {"loss": float("nan")})
    deadline = time.monotonic() + 60
    while not recorder.should_stop and time.monotonic() < deadline:
        time.sleep(0.05)
    assert trainer.total_training_steps == 100
    trainer.fit(4)
    assert trainer.total_training_steps == 2
    recorder.finish()


def test_verl_v1_takes_no_stop(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="stop= needs the step at which v0 ends"):
        verl.record(VerlV1(), tmp_path, watch=True, stop="critical")


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
    _each_entry_lies_with_its_token(found.rename({"prox_logp": "old_logp"}), "old_logp", "rollout_logp", "ref_logp")
    assert found["policy_version"].to_list() == [5, 6]
    assert found["sample_id"].to_list() == ["8-0.0-0", "8-0.0-1"]


@pytest.mark.parametrize("record", [trl.record, verl.record, openrlhf.record, areal.record])
def test_a_trainer_without_the_methods_is_refused_before_training(tmp_path: Path, record: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"this recorder was made for .*; with another"):
        record(SimpleNamespace(), tmp_path)


class OtherArguments(TRL):
    """A GRPO variant whose loss takes no `inputs`."""

    def _compute_loss(self, model: Any, batch: dict[str, Any]) -> float:
        raise AssertionError


class WithoutWeights(TRL):
    """A GRPO variant that weighs its rewards elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        del self.reward_weights


class Liger(TRL):
    """GRPOTrainer before TRL 1.16 with Liger's loss, which passes `_compute_loss` by."""

    use_liger_kernel = True

    def compute_liger_loss(self) -> None:
        """Stand for it."""


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (
            OtherArguments,
            r"OtherArguments._compute_loss takes \(model, batch\) and no inputs: this recorder was made for G",
        ),
        (WithoutWeights, r"WithoutWeights has no reward_weights: this recorder was made for GRPOTrainer"),
        (Liger, r"use_liger_kernel=True: Liger's loss keeps no log-probabilities of single tokens; set it False: this"),
    ],
)
def test_a_variant_that_could_not_be_recorded_is_refused_before_training(
    tmp_path: Path, kind: type[TRL], says: str
) -> None:
    trainer = kind()
    with pytest.raises(TypeError, match=says):
        trl.record(trainer, tmp_path)
    assert not vars(trainer).keys() & {"_compute_loss", "_calculate_rewards"}  # nothing hangs on it
    assert trainer.callbacks == []


class ByKeyword(TRL):
    """A GRPO variant that takes its loss with named arguments, and rewards of the usual shape."""

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        return np.array([[1.0], [0.0]])

    def train(self) -> None:
        batch = self._generate_and_score_completions(["a", "a"])
        for _ in range(2):  # micro-batches
            self._compute_loss(inputs=batch, model=self.model)
        self.state.global_step += 1
        for callback in self.callbacks:
            callback.on_step_end(self.args, self.state, None)

    def _generate_and_score_completions(self, inputs: list[str]) -> dict[str, Any]:
        made = super()._generate_and_score_completions(inputs)
        del made["ref_per_token_logps"]
        return made | {"completion_ids": made["completion_ids"].view(Placed)}


class Placed(np.ndarray[Any, Any]):
    """An array with torch's way to make another of its kind."""

    def new_tensor(self, values: Any) -> Any:
        return np.asarray(values)


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))


@pytest.mark.usefixtures("transformers")
def test_without_any_pair_rewards_groups_and_advantages_are_recorded_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    trainer = ByKeyword()
    recorder = trl.record(trainer, tmp_path, strict=True)
    for _ in range(3):
        trainer.train()
    assert recorder.failures == 0
    found = pl.read_parquet(tmp_path / "step_000003.parquet")
    assert {"old_logp", "ref_logp", "rollout_logp"}.isdisjoint(found.columns)
    _each_entry_lies_with_its_token(found[:2].rename({"policy_logp": "old_logp"}), "old_logp")
    assert found["reward"].to_list() == [1.0, 0.0] * 2
    assert found["rewards"].to_list() == [{"score": 1.0}, {"score": 0.0}] * 2
    assert found["group_id"].to_list() == ["3-0"] * 4
    assert found["advantage"].to_list() == [0.0] * 4
    said = [*caplog.messages, *capsys.readouterr().err.splitlines()]
    assert len(said) == 1  # before training, and not at each step
    assert said[0].startswith(f"ptt: recording policy_logp alone of each step to {tmp_path}")


@pytest.mark.usefixtures("transformers")
def test_a_step_of_which_a_micro_batch_is_lost_is_not_written_in_part(tmp_path: Path) -> None:
    trainer = ByKeyword()
    recorder = trl.record(trainer, tmp_path)
    trainer.train()
    loss, taken = trainer._compute_loss, iter(range(9))

    def sometimes(**given: Any) -> float:
        if next(taken) == 1:
            given["inputs"] = {name: value for name, value in given["inputs"].items() if name != "advantages"}
        return loss(**given)

    trainer._compute_loss = sometimes  # type: ignore[method-assign, assignment]
    trainer.train()
    trainer.train()
    assert recorder.failures == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000001.parquet", "step_000003.parquet"]


class OneTensor(ByKeyword):
    """A GRPO variant whose forward pass gives logprobs alone, of which the first row would pass for all."""

    def _get_per_token_logps_and_entropies(self, inputs: dict[str, Any]) -> Any:
        return super()._get_per_token_logps_and_entropies(inputs)[0]


@pytest.mark.usefixtures("transformers")
def test_where_each_step_fails_recording_stops_and_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = OneTensor()
    recorder = trl.record(trainer, tmp_path)
    for _ in range(5):
        trainer.train()
    assert trainer.state.global_step == 5
    assert recorder.stopped
    assert list(tmp_path.iterdir()) == []
    _, failed = caplog.messages  # after what is said before training
    assert "training goes on" in failed
    assert "not a tuple" in failed


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

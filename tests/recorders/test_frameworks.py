"""Recorders on the real classes of veRL, OpenRLHF and AReaL, at the versions in frameworks.txt.

The packages' own code runs: trainers, batches, alignments, advantages. Replaced are the edges that need a GPU or a
cluster: the workers' forward passes, Ray's hand-over, and for OpenRLHF the packages of CUDA kernels it imports.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import polars as pl
import pytest
from trainers import PROMPT, RESPONSES, SAMPLED, logps, padded

from ptt.recorders import areal, openrlhf, verl

pytestmark = pytest.mark.frameworks
CUDA = (
    "flash_attn", "flash_attn.bert_padding", "flash_attn.utils", "flash_attn.utils.distributed", "deepspeed",
    "deepspeed.ops", "deepspeed.ops.adam", "deepspeed.runtime", "deepspeed.runtime.zero", "deepspeed.runtime.utils",
    "deepspeed.runtime.zero.partition_parameters", "deepspeed.checkpoint", "vllm", "vllm.inputs", "vllm.utils",
)  # fmt: skip


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        find_spec(package) is None, reason=f"{package} is missing; make test-recorders installs it"
    )


def recorded(folder: Path, step: int) -> pl.DataFrame:
    return pl.read_parquet(folder / f"step_{step:06d}.parquet")


def each_entry_lies_with_its_token(found: pl.DataFrame, *columns: str) -> None:
    assert found["token_ids"].to_list() == RESPONSES
    assert found["model_mask"].to_list() == [[bool(one) for one in row] for row in SAMPLED]
    for column in columns:
        for ids, mask, held in zip(RESPONSES, SAMPLED, found[column].to_list(), strict=True):
            expected = logps(ids, column.removesuffix("_logp"))
            assert [value for value, one in zip(held, mask, strict=True) if one] == [
                value for value, one in zip(expected, mask, strict=True) if one
            ]


class Workers:
    """veRL's worker group: given the batch without padding, entry i is of token i + 1."""

    def __init__(self) -> None:
        self.updated = 0

    def compute_log_prob(self, batch: Any) -> Any:
        import torch
        from verl.utils import tensordict_utils as tu

        following = [torch.roll(row, -1).float() for row in batch["input_ids"].unbind()]
        log_probs = torch.nested.as_nested_tensor([-row / 64 for row in following], layout=torch.jagged)
        made = tu.get_tensordict({"log_probs": log_probs, "entropy": log_probs * 0})
        tu.assign_non_tensor(made, metrics={"mfu": 0.0})
        return made

    def update_actor(self, _batch: Any) -> Any:
        from verl.utils import tensordict_utils as tu

        self.updated += 1
        made = tu.get_tensordict({})
        tu.assign_non_tensor(made, metrics={"mfu": 0.0, "loss": 0.5})
        return made


def verl_config(*changed: str) -> Any:
    import verl as package
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(Path(package.__file__).parent / "trainer" / "config"), version_base=None):
        return compose("ppo_trainer", overrides=list(changed))


def verl_trainer(*changed: str) -> Any:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    trainer = object.__new__(RayPPOTrainer)  # its __init__ starts a cluster
    trainer.config, trainer.actor_rollout_wg, trainer.global_steps = verl_config(*changed), Workers(), 3
    return trainer


def verl_batch() -> Any:
    import numpy as np
    import torch
    from verl import DataProto

    ids, sampled = torch.tensor(padded(RESPONSES)), torch.tensor(padded(SAMPLED))
    prompts = torch.tensor([[0, *PROMPT]] * 2)
    whole = torch.cat([prompts, ids], dim=1)
    scores = torch.zeros(ids.shape)
    scores[0, 4] = 1.0
    tensors = {
        "prompts": prompts, "responses": ids, "input_ids": whole, "attention_mask": (whole > 0).long(),
        "position_ids": torch.clip(torch.cumsum((whole > 0).long(), dim=-1) - 1, min=0), "response_mask": sampled,
        "rollout_log_probs": torch.tensor(logps(ids.numpy(), "rollout")), "token_level_scores": scores,
    }  # fmt: skip
    return DataProto.from_dict(tensors=tensors, non_tensors={"uid": np.array(["a", "a"], dtype=object)})


@needs("verl")
def test_verls_trainer_computes_and_updates_and_each_entry_lies_with_its_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = verl_trainer("actor_rollout_ref.rollout.calculate_log_probs=True")
    recorder = verl.record(trainer, tmp_path, strict=True)
    assert "ptt: recording old/rollout of each step" in capsys.readouterr().err
    batch = verl_batch()
    old, _ = trainer._compute_old_log_prob(batch)
    old.batch.pop("entropys")
    batch = batch.union(old)
    rejected = batch.batch["response_mask"].clone()
    rejected[0, 1] = 0
    batch.batch["response_mask"] = rejected
    trainer._update_actor(batch)
    assert trainer.actor_rollout_wg.updated == 1
    found = recorded(tmp_path, 3)
    each_entry_lies_with_its_token(found, "old_logp", "rollout_logp")
    assert found["train_mask"][0].to_list() == [True, False, False, False, True]
    assert found["reward"].to_list() == [1.0, 0.0]
    assert found["group_id"].to_list() == ["a", "a"]
    assert recorder.failures == 0


@needs("verl")
def test_verls_bypass_does_not_read_as_agreement(tmp_path: Path) -> None:
    import torch
    from verl.trainer.ppo.rollout_corr_helper import apply_bypass_mode

    trainer = verl_trainer(
        "actor_rollout_ref.rollout.calculate_log_probs=True", "actor_rollout_ref.actor.use_kl_loss=True",
        "algorithm.rollout_correction.bypass_mode=True",
    )  # fmt: skip
    assert verl.plan_of(trainer).pairs == ("old/ref",)
    verl.record(trainer, tmp_path, strict=True)
    batch = verl_batch()
    apply_bypass_mode(
        batch, trainer.config.algorithm.rollout_correction, trainer.config.actor_rollout_ref.actor.policy_loss
    )
    batch.batch["ref_log_prob"] = torch.tensor(logps(batch.batch["responses"].numpy(), "ref"))
    trainer._update_actor(batch)
    found = recorded(tmp_path, 3)
    assert "rollout_logp" not in found.columns
    each_entry_lies_with_its_token(found, "ref_logp")


@needs("verl")
def test_verl_is_warned_of_where_nothing_will_be_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert verl.plan_of(verl_trainer()).pairs == ("old/rollout",)  # its defaults
    verl.record(verl_trainer("actor_rollout_ref.rollout.calculate_log_probs=False"), tmp_path)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "ptt.recorders"]
    assert said.startswith("NOTHING will be recorded")
    for setting in ("calculate_log_probs=True", "use_kl_loss=True"):
        assert setting in said


@needs("verl")
def test_verls_v1_trainer_fetches_from_transfer_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import transfer_queue
    from tensordict import TensorDict
    from trainers import VerlV1
    from transfer_queue import KVBatchMeta
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    made, held = VerlV1.batch_and_queue(torch.tensor)

    def kv_batch_get(**asked: Any) -> Any:
        return TensorDict(held.kv_batch_get(**asked), batch_size=[len(asked["keys"])])

    monkeypatch.setattr(transfer_queue, "kv_batch_get", kv_batch_get)

    class Trainer(PPOTrainer):  # type: ignore[misc,unused-ignore]
        def on_sample_end(self) -> None: ...
        def on_step_end(self) -> None: ...

    trainer: Any = object.__new__(Trainer)
    trainer.config = verl_config("actor_rollout_ref.rollout.calculate_log_probs=True")
    trainer._rollout_moe_lb_metrics_accumulator = None
    recorder = verl.record(trainer, tmp_path)
    batch = KVBatchMeta(keys=made.keys, tags=made.tags, partition_id="train")
    with pytest.raises(ValueError, match="not found in train"):  # the stand-in queue lacks what its metrics want
        trainer._compute_metrics(batch, {}, {}, global_steps=7, epoch=0)
    assert recorder.failures == 0
    each_entry_lies_with_its_token(recorded(tmp_path, 7), "old_logp", "rollout_logp")


@pytest.fixture
def openrlhf_trainer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """BasePPOTrainer with its own experience maker; models answer from the token ids, and Ray hands over as it is."""
    import transformers  # noqa: F401 -- before the edges, which it would take for the real packages

    class Edge(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return MagicMock(name=name)

    for name in CUDA:
        if name not in sys.modules:
            edge = Edge(name)
            edge.__path__, edge.__spec__ = [], ModuleSpec(name, None)
            monkeypatch.setitem(sys.modules, name, edge)
    import ray
    from openrlhf.trainer.ppo_trainer import BasePPOTrainer

    monkeypatch.setattr(ray, "put", lambda value: value)
    monkeypatch.setattr(ray, "get", lambda value: value)
    args = nested(
        actor={}, critic={"freezing_steps": -1}, ckpt={}, eval={},
        algo={
            "kl": {"target": None, "init_coef": 0.01, "use_loss": True, "estimator": "k1", "horizon": 1},
            "advantage": {"estimator": "reinforce", "gamma": 1.0, "lambd": 1.0, "no_std_norm": False,
                          "is_correction_level": "token"},
        },
        rollout={"n_samples_per_prompt": 2, "micro_batch_size": 2, "batch_size": 1},
        train={"dynamic_batch_enable": False, "colocate_all": False, "colocate_actor_ref": False,
               "colocate_critic_reward": False},
        ds={"ring_attn_size": 1, "tensor_parallel_size": 1, "enable_sleep": False},
        reward={"clip_range": (-10, 10), "overlong_buffer_len": None, "stop_properly_penalty_coef": None},
        logger={"wandb": {"key": None}, "tensorboard_dir": None}, vllm={"enable_sleep": False},
    )  # fmt: skip
    return BasePPOTrainer(
        SimpleNamespace(args=args), Models("old"), None, None, Models("ref"), None,
        MagicMock(pad_token_id=0, decode=lambda *_a, **_k: ["text"]),
    )  # fmt: skip


def nested(**sections: Any) -> Any:
    return SimpleNamespace(
        **{name: nested(**value) if isinstance(value, dict) else value for name, value in sections.items()}
    )


class Models:
    """OpenRLHF's group of model actors."""

    def __init__(self, which: str) -> None:
        self.which = which

    def async_run_method_batch(self, method_name: str, **given: Any) -> Any:
        import torch

        if method_name != "forward":
            return []
        return [[torch.tensor(logps(ids.numpy(), self.which))[:, 1:]] for ids in given["sequences"]]

    def async_run_method(self, method_name: str, **_given: Any) -> Any:
        return [{"kl": 0.0}] if method_name == "fit" else []


@needs("openrlhf")
def test_openrlhfs_trainer_makes_experience_and_each_entry_lies_with_its_token(
    openrlhf_trainer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from openrlhf.trainer.ppo_utils.experience import Experience

    recorder = openrlhf.record(openrlhf_trainer, tmp_path, strict=True)
    assert "ptt: recording old/ref, old/rollout of each step" in capsys.readouterr().err
    samples = []
    for place, (response, mask) in enumerate(zip(RESPONSES, SAMPLED, strict=True)):
        ids = torch.tensor([PROMPT + response])
        samples.append(
            Experience(
                sequences=ids,
                attention_mask=torch.ones_like(ids),
                action_mask=torch.tensor([[0, *mask]]),
                rollout_log_probs=torch.tensor(logps(ids.numpy(), "rollout"))[:, 1:],
                rewards=torch.tensor([1.0 - place]),
                response_length=torch.tensor([float(len(response))]),
                truncated=torch.tensor([False]),
                info={"reward": torch.tensor([1.0 - place])},
            )
        )
    _, step = openrlhf_trainer.train_step(samples, 3)
    assert step == 4
    found = recorded(tmp_path, 4)
    each_entry_lies_with_its_token(found, "old_logp", "rollout_logp", "ref_logp")
    assert found["group_id"].to_list() == ["4-0", "4-0"]
    assert found["advantage"].list.len().to_list() == [5, 3]
    assert recorder.failures == 0


def areal_actor(**changed: Any) -> Any:
    import torch
    from areal.api.cli_args import PPOActorConfig
    from areal.trainer.ppo.actor import PPOActor

    def forward(input_: Any, aggregate_fn: Any) -> Any:
        return torch.roll(torch.tensor(logps(input_["input_ids"].numpy(), "old")), -1, dims=-1)

    config = PPOActorConfig(experiment_name="e", trial_name="t", path="", adv_norm=None, reward_norm=None, **changed)
    return PPOActor(config, SimpleNamespace(eval=lambda: None, forward=forward))


def areal_trainer(**changed: Any) -> Any:
    from areal.trainer.rl_trainer import PPOTrainer

    trainer = object.__new__(PPOTrainer)  # its __init__ starts engines
    trainer.actor, trainer.ref, trainer.recover_info = areal_actor(**changed), None, None
    trainer.config = SimpleNamespace(actor=trainer.actor.config)
    return trainer


@needs("areal")
def test_areals_actor_is_recorded_before_it_shifts_its_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    trainer = areal_trainer(use_decoupled_loss=True)
    recorder = areal.record(trainer, tmp_path, strict=True)
    assert "ptt: recording prox/rollout of each step" in capsys.readouterr().err
    ids = torch.tensor(padded([PROMPT + row for row in RESPONSES], 8))
    mask = torch.tensor(padded([[0, 0, *row] for row in SAMPLED], 8))
    batch = {
        "input_ids": ids, "attention_mask": ids > 0, "loss_mask": mask, "versions": torch.where(mask > 0, 5, -1),
        "logprobs": torch.tensor(logps(ids.numpy(), "rollout", mask.numpy())), "rewards": torch.tensor([1.0, 0.0]),
    }  # fmt: skip
    (batch["prox_logp"],) = trainer.actor.compute_logp([batch])
    (shifted,) = trainer.actor.compute_advantages([batch])
    assert "advantages" in shifted
    found = recorded(tmp_path, 1)
    each_entry_lies_with_its_token(found.rename({"prox_logp": "old_logp"}), "old_logp", "rollout_logp")
    assert found["policy_version"].to_list() == [5, 5]
    assert recorder.failures == 0


@needs("areal")
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"recompute_logprob": True},
        {"use_decoupled_loss": True},
        {"use_decoupled_loss": True, "prox_logp_method": "loglinear"},
        {"use_decoupled_loss": True, "prox_logp_method": "metrics"},
    ],
)
def test_areals_own_answer_tells_whether_old_logprobs_come(changed: dict[str, Any]) -> None:
    trainer = areal_trainer(**changed)
    computed = trainer.config.actor.should_compute_prox_logp()
    plan = areal.plan_of(trainer)
    assert ("prox_logp" in plan.recorded) == computed
    assert plan.pairs == (("prox/rollout",) if computed else ())
    assert "ref_logp" in plan.settings  # kl_ctl is above 0 by default, and there is no reference engine


@needs("areal")
def test_a_wrong_place_in_areal_raises_at_once(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="has no compute_advantages"):
        areal.record(areal_actor(), tmp_path)


@needs("openrlhf")
def test_a_wrong_place_in_openrlhf_raises_at_once(openrlhf_trainer: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="has no train_step"):
        openrlhf.record(openrlhf_trainer.experience_maker, tmp_path)


@needs("verl")
def test_a_wrong_place_in_verl_raises_at_once(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="has no _log_rollout_data"):
        verl.record(verl_trainer().actor_rollout_wg, tmp_path)
    trainer = verl_trainer()
    verl.record(trainer, tmp_path)
    with pytest.raises(RuntimeError, match="called twice"):
        verl.record(trainer, tmp_path)

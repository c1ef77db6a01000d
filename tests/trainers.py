"""Trainers with the fields and methods the frameworks' sources name, whose logprobs can be told from the token id.

Of token k: old = -k/64, rollout = -k/32, reference = -k/16. An entry that lies with another token is then seen.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

Array = Callable[[Any], Any]

PROMPT = [1, 2]
RESPONSES = [[5, 6, 20, 21, 7], [8, 9, 10]]  # the first calls a tool, whose answer is 20, 21
SAMPLED = [[1, 1, 0, 0, 1], [1, 1, 1]]
WIDTH = 6
DIVISORS = {"old": 64, "rollout": 32, "ref": 16}


def padded(rows: list[list[Any]], width: int = WIDTH) -> Any:
    """Right-padded with zeros."""
    return np.array([row + [0] * (width - len(row)) for row in rows])


def logps(ids: Any, which: str, mask: Any = 1) -> Any:
    """What the stand-in policy gives to these tokens; 0 where the framework writes a dummy."""
    return (-np.asarray(ids, dtype=np.float32) / DIVISORS[which]) * np.asarray(mask)


def jagged(rows: list[Any]) -> Any:
    """Rows of their own length: torch's jagged layout where they are torch's, as TransferQueue gives them."""
    if isinstance(rows[0], np.ndarray):
        return rows
    import torch

    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


class DataProto:
    """veRL v0's batch: a TensorDict and a dict of object arrays."""

    def __init__(self, batch: dict[str, Any], non_tensor_batch: dict[str, Any]) -> None:
        self.batch = batch
        self.non_tensor_batch = non_tensor_batch


class VerlV0:
    """RayPPOTrainer as far as its fit() goes through the methods hung onto, rejection sampling included."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.global_steps = 0
        self.total_training_steps = 100
        self.updated: list[Any] = []

    def fit(self, steps: int) -> None:
        ids, sampled = padded(RESPONSES), padded(SAMPLED)
        whole = np.concatenate([[[0, *PROMPT]] * 2, ids], axis=1)
        for self.global_steps in range(1, steps + 1):
            scores = np.zeros(ids.shape, dtype=np.float32)
            scores[0, 4] = 1.0
            held = {
                "responses": ids,
                "response_mask": sampled,
                "attention_mask": (whole > 0).astype(np.int64),
                "rollout_log_probs": logps(ids, "rollout", sampled),
                "token_level_scores": scores,
                "advantages": np.full(ids.shape, 0.5, dtype=np.float32),
            }
            batch = DataProto({name: self.array(value) for name, value in held.items()}, {"uid": np.array(["a", "a"])})
            batch.batch["old_log_probs"] = self._compute_old_log_prob(batch)
            batch.batch["ref_log_prob"] = self.array(logps(ids, "ref"))
            rejected = sampled.copy()
            rejected[0, 1] = 0
            batch.batch["response_mask"] = self.array(rejected)
            self._update_actor(batch)

    def _compute_old_log_prob(self, batch: DataProto) -> Any:
        return self.array(logps(padded(RESPONSES), "old"))

    def _update_actor(self, batch: DataProto) -> str:
        self.updated.append(batch)
        return "metrics"


class Queue:
    """TransferQueue's kv_batch_get, which refuses fields a run has not put there."""

    def __init__(self, fields: dict[str, list[Any]], keys: list[str]) -> None:
        self.fields, self.keys = fields, keys

    def kv_batch_get(self, *, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        missing = [name for name in select_fields if name not in self.fields]
        if missing:
            raise ValueError(f"fields {missing} not found in {partition_id}")
        rows = {name: [self.fields[name][self.keys.index(key)] for key in keys] for name in select_fields}
        return {name: jagged(found) for name, found in rows.items()}


class VerlV1:
    """A PPO trainer of verl.trainer.ppo.v1: keys instead of a batch, one of them padding."""

    def _compute_metrics(self, batch: Any, metrics: Any, timing_raw: Any, global_steps: int, epoch: int) -> None:
        metrics["training/global_step"] = global_steps

    @staticmethod
    def batch_and_queue(array: Array) -> tuple[Any, Queue]:
        keys = ["a_0_0", "a_1_0", "pad_0_0"]
        rows, masks = [*RESPONSES, [3]], [*SAMPLED, [1]]
        trained = [[1, 0, 0, 0, 1], [1, 1, 1], [0]]
        fields = {
            "responses": [array(np.array(row)) for row in rows],
            "loss_mask": [array(np.array(row)) for row in masks],
            "response_mask": [array(np.array(row)) for row in trained],
            "rm_scores": [array(np.array([0.0] * (len(row) - 1) + [1.0], dtype=np.float32)) for row in rows],
            "rollout_log_probs": [array(logps(row, "rollout", mask)) for row, mask in zip(rows, masks, strict=True)],
            "old_log_probs": [array(logps(row, "old")) for row in rows],
        }
        tags = [{"min_global_steps": 2}, {"min_global_steps": None}, {"is_padding": True}]
        return SimpleNamespace(keys=keys, tags=tags, partition_id="train"), Queue(fields, keys)


class OpenRLHF:
    """BasePPOTrainer: train_step makes experience, [B, T] sequences beside [B, T - 1] fields of the next token."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.args = SimpleNamespace(rollout=SimpleNamespace(n_samples_per_prompt=2))
        self.experience_maker = SimpleNamespace(make_experience_batch=self._made)

    def train_step(self, rollout_samples: Any, global_step: int) -> tuple[dict[str, Any], int]:
        return {"experiences": self.experience_maker.make_experience_batch(rollout_samples)}, global_step + 1

    def _made(self, _samples: Any) -> list[Any]:
        ids = padded([PROMPT + row for row in RESPONSES], WIDTH + 2)
        actions = padded([[0, 0, *row] for row in SAMPLED], WIDTH + 2)[:, 1:]
        held = {
            "sequences": ids,
            "attention_mask": (ids > 0).astype(np.int64),
            "action_mask": actions,
            "action_log_probs": logps(ids, "old")[:, 1:],
            "base_action_log_probs": logps(ids, "ref")[:, 1:],
            "rollout_log_probs": logps(ids[:, 1:], "rollout", actions),
            "rewards": np.array([1.0, 0.0], dtype=np.float32),
        }
        return [SimpleNamespace(index=[0, 1], values=None, **{key: self.array(value) for key, value in held.items()})]


class RTensor:
    """What a single controller of AReaL holds in a tensor's place."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def to_local(self) -> Any:
        return self.data


class AReaL:
    """PPOTrainer: `actor.compute_advantages` gets one dict a group and changes its masks and logprobs in place."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.recover_info = SimpleNamespace(last_step_info=SimpleNamespace(global_step=6))
        self.actor = SimpleNamespace(compute_advantages=self._advantages)

    def _advantages(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for group in data:
            group.clear()
        return data

    def train(self, steps: int) -> None:
        for _ in range(steps):
            ids = padded([PROMPT + row for row in RESPONSES], WIDTH + 2)
            mask = padded([[0, 0, *row] for row in SAMPLED], WIDTH + 2)
            held = {
                "input_ids": ids,
                "attention_mask": (ids > 0),
                "loss_mask": mask,
                "logprobs": logps(ids, "rollout", mask),
                "prox_logp": np.roll(logps(ids, "old"), -1, axis=1),
                "ref_logp": np.roll(logps(ids, "ref"), -1, axis=1),
                "versions": np.where(mask > 0, 5 + (ids > 6), -1),
                "rewards": np.array([1.0, 0.0], dtype=np.float32),
            }
            self.actor.compute_advantages([{name: RTensor(self.array(value)) for name, value in held.items()}])


class TRL:
    """GRPOTrainer as far as one step goes through the methods hung onto; its rewards have a shape nobody expects."""

    use_liger_kernel = False

    def __init__(self) -> None:
        self.accelerator = SimpleNamespace(num_processes=1, process_index=0)
        self.model = SimpleNamespace(training=True)
        self.state = SimpleNamespace(global_step=0)
        self.args = SimpleNamespace(log_completions=False)
        self.reward_weights, self.reward_func_names = np.ones(1), ["score"]
        self.temperature, self.num_generations, self.tools = 1.0, 2, [len]
        self.callbacks: list[Any] = []
        self.loss_of: list[set[str]] = []

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def train(self) -> None:
        batch = self._generate_and_score_completions(["a", "a"])
        self._compute_loss(self.model, batch)
        self.state.global_step += 1
        for callback in self.callbacks:
            callback.on_step_end(self.args, self.state, None)

    def _generate_and_score_completions(self, inputs: list[str]) -> dict[str, Any]:
        self._calculate_rewards(inputs, inputs, [[], []], RESPONSES)
        ids = padded(RESPONSES)
        return {
            "completion_ids": ids,
            "completion_mask": ids > 0,
            "tool_mask": np.where(ids > 0, padded(SAMPLED), 1),
            "ref_per_token_logps": logps(ids, "ref"),
            "advantages": np.zeros(2, dtype=np.float32),
        }

    def _calculate_rewards(self, *_: Any) -> Any:
        return np.zeros((0, 3))

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> float:
        self.loss_of.append(set(inputs))
        self._get_per_token_logps_and_entropies(inputs)
        return 0.0

    def _get_per_token_logps_and_entropies(self, inputs: dict[str, Any]) -> tuple[Any, None, None]:
        return logps(inputs["completion_ids"], "old"), None, None

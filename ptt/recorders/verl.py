"""Record what veRL's PPO trainers train on: `record(trainer, folder)` before `trainer.fit()`, in the trainer's process.

The v0 trainer hands `_update_actor` a DataProto that holds old, rollout and reference logprobs together
(volcengine/verl, verl/trainer/ppo/ray_trainer.py); versions without that method hand the same batch to
`_log_rollout_data`, which is called only where `trainer.rollout_data_dir` is set. The v1 trainer keeps them in a
TransferQueue from which `_compute_metrics` can fetch them before they are cleared (verl/trainer/ppo/v1/
trainer_base.py, 0.9.1). Rejection sampling overwrites `response_mask`: it is then what got gradient (train_mask), and
what the policy sampled (model_mask) is the mask as it was before. The logprobs of the training forward stay in the
workers and are not recorded.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np

from ptt.recorders.recorder import Recorder, say, to_numpy
from ptt.recorders.trainer_hooks import Plan, announce, claim, hook, refusal, require_methods, setting
from ptt.recorders.watch_process import check_stop

MADE_FOR: Final = "the PPO trainers of veRL 0.9 (v0: RayPPOTrainer, v1: those of verl.trainer.ppo.v1)"
LISTS: Final = {
    "responses": "token_ids",
    "old_log_probs": "old_logp",
    "rollout_log_probs": "rollout_logp",
    "ref_log_prob": "ref_logp",
    "values": "value",
    "advantages": "advantage",
    "returns": "return",
}
SCORES: Final = ("rm_scores", "token_level_scores")  # a score a token, all but one of them 0: the reward is their sum
QUEUED: Final = (*LISTS, "rm_scores", "response_mask", "loss_mask")
BYPASS: Final = "algorithm.rollout_correction.bypass_mode=False"
SETTINGS: Final = {
    "rollout_logp": "actor_rollout_ref.rollout.calculate_log_probs=True",
    "ref_logp": "actor_rollout_ref.actor.use_kl_loss=True (or algorithm.use_kl_in_reward=True)",
}
MISSING: Final = (KeyError, ValueError, RuntimeError)  # what the queue raises for a field that no one put


def record(
    trainer: Any,
    folder: str | os.PathLike[str],
    every: int = 1,
    *,
    strict: bool = False,
    watch: bool = False,
    stop: str | None = None,
    report_dir: str | os.PathLike[str] | None = None,
) -> Recorder:
    """Record every `every`-th step of the trainer to recorder files in `folder`; return the recorder.

    With `watch` a process of its own judges the run while it trains (see `Recorder.watch`). With `stop="critical"` as
    well, the step after the one at which training must end is v0's last: saved, where `trainer.save_freq` is set.

    Says which pairs will be recorded, and which setting adds the missing ones. Raises TypeError for a trainer without
    the methods this hangs onto, RuntimeError for one that is recorded already; later errors never reach the training.
    """
    check_stop(stop, watch=watch)
    recorder = Recorder(folder, every=every, strict=strict)
    if hasattr(trainer, "_compute_metrics"):
        if stop is not None:
            raise refusal("stop= needs the step at which v0 ends (total_training_steps)", MADE_FOR)
        require_methods(trainer, "_compute_metrics", made_for=MADE_FOR)
        _start(trainer, recorder, watch=watch, report_dir=report_dir)
        hook(trainer, "_compute_metrics", recorder, before=partial(_record_v1, recorder, _is_bypassed(trainer)))
        return recorder
    update = "_update_actor" if hasattr(trainer, "_update_actor") else "_log_rollout_data"
    require_methods(trainer, update, made_for=MADE_FOR)
    _start(trainer, recorder, watch=watch, report_dir=report_dir)
    passing = _V0(trainer, recorder)
    if stop is not None:
        hook(trainer, update, recorder, before=passing.end_if_told)
    if hasattr(trainer, "_compute_old_log_prob"):
        hook(trainer, "_compute_old_log_prob", recorder, after=passing.scored)
    hook(trainer, update, recorder, before=passing.trained)
    return recorder


def _start(trainer: Any, recorder: Recorder, *, watch: bool, report_dir: str | os.PathLike[str] | None) -> None:
    claim(trainer, MADE_FOR)
    announce(plan_of(trainer), recorder)
    if watch:
        recorder.watch(report_dir)


def plan_of(trainer: Any) -> Plan:
    """Tell from the settings which log-probabilities a batch will hold (verl/trainer/config/ppo_trainer.yaml).

    Under `bypass_mode` the old ones are the rollout's, so whether trainer and engine agree is not recorded.
    """
    config = getattr(trainer, "config", None)
    if config is None:
        return Plan(recorded=("old_logp",), unknown=("rollout_logp", "ref_logp"))
    actor, bypass = setting(config, "actor_rollout_ref"), _is_bypassed(trainer)
    reference = setting(actor, "actor", "use_kl_loss") or setting(config, "algorithm", "use_kl_in_reward")
    given = {
        "old_logp": True,
        "rollout_logp": bool(setting(actor, "rollout", "calculate_log_probs")) and not bypass,
        "ref_logp": bool(reference),
    }
    settings = SETTINGS | ({"rollout_logp": BYPASS} if bypass else {})
    return Plan(
        recorded=tuple(name for name, known in given.items() if known),
        settings={name: add for name, add in settings.items() if not given[name]},
    )


def _is_bypassed(trainer: Any) -> bool:
    return bool(setting(getattr(trainer, "config", None), "algorithm", "rollout_correction", "bypass_mode"))


class _V0:
    """The driver holds the whole batch, padded: prompts left, responses right."""

    def __init__(self, trainer: Any, recorder: Recorder) -> None:
        self.trainer = trainer
        self.recorder = recorder
        self.sampled: Any = None

    def scored(self, _result: Any, batch: Any, *_args: Any, **_kwargs: Any) -> None:
        """Keep the mask as it is before rejection sampling."""
        self.sampled = batch.batch["response_mask"]

    def end_if_told(self, *_args: Any, **_kwargs: Any) -> None:
        """Make the next step the last: whether one is, `fit` asks when it begins (`is_last_step`)."""
        trainer = self.trainer
        if self.recorder.should_stop and trainer.total_training_steps > trainer.global_steps + 1:
            trainer.total_training_steps = trainer.global_steps + 1
            say(f"training ends after step {trainer.total_training_steps}: the watch asked for it.")

    def trained(self, batch: Any, *_args: Any, **_kwargs: Any) -> None:
        """Write the batch the actor is about to be updated with."""
        step = self.trainer.global_steps
        sampled, self.sampled = self.sampled, None
        if not self.recorder.wants(step):
            return
        fields = {name: batch.batch[name] for name in batch.batch.keys()}  # noqa: SIM118
        trained = to_numpy(fields["response_mask"])
        model = to_numpy(sampled) if sampled is not None and tuple(sampled.shape) == trained.shape else trained
        present = to_numpy(fields["attention_mask"])[:, -trained.shape[1] :]
        columns = _columns(fields, model, trained, bypass=_is_bypassed(self.trainer))
        scores = next((fields[name] for name in SCORES if name in fields), None)
        if scores is not None:
            columns["reward"] = to_numpy(scores).sum(-1)
        groups = batch.non_tensor_batch.get("uid")
        if groups is not None:
            columns |= {"group_id": list(groups), "sample_id": _numbered(groups)}
        self.recorder.write(step, columns, attention_mask=present)


def _record_v1(recorder: Recorder, bypass: bool, batch: Any, *args: Any, **kwargs: Any) -> None:
    """Write one step: the batch is a list of keys, whose fields lie in the queue as rows of their own length."""
    step = kwargs["global_steps"] if "global_steps" in kwargs else args[2]
    if not recorder.wants(step):
        return
    import transfer_queue as queue

    fetched = _fetched(queue, batch)
    fields = {name: [to_numpy(row) for row in _unbound(value)] for name, value in fetched.items()}
    trained = fields["response_mask"]
    columns = _columns(fields, fields.get("loss_mask", trained), trained, bypass=bypass)
    if "rm_scores" in fields:
        columns["reward"] = [float(np.sum(row)) for row in fields["rm_scores"]]
    columns["sample_id"] = list(batch.keys)
    columns["group_id"] = [key.rsplit("_", 2)[0] for key in batch.keys]  # keys are {uid}_{session}_{output}
    columns["policy_version"] = [tag.get("min_global_steps") for tag in batch.tags]
    real = [at for at, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
    recorder.write(step, {name: [column[at] for at in real] for name, column in columns.items()})


def _columns(fields: dict[str, Any], model: Any, trained: Any, *, bypass: bool) -> dict[str, Any]:
    lists = {column: fields[field] for field, column in LISTS.items() if field in fields}
    if bypass:  # the same values twice would read as a trainer and an engine that agree
        lists.pop("rollout_logp", None)
    return {**lists, "model_mask": model, "train_mask": trained}


def _fetched(queue: Any, batch: Any) -> dict[str, Any]:
    """Fetch the fields at once, or one by one where a run without critic or reference lacks some."""

    def fetch(*names: str) -> dict[str, Any]:
        data = queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(names))
        return {name: data[name] for name in names if name in data.keys()}  # noqa: SIM118

    try:
        return fetch(*QUEUED)
    except MISSING:
        fields: dict[str, Any] = {}
        for name in QUEUED:
            with suppress(*MISSING):
                fields |= fetch(name)
        return fields


def _unbound(value: Any) -> Any:
    return value.unbind() if hasattr(value, "unbind") else value


def _numbered(groups: Any) -> list[str]:
    seen: Counter[str] = Counter()
    names = []
    for group in map(str, groups):
        names.append(f"{group}_{seen[group]}")
        seen[group] += 1
    return names

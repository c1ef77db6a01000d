"""Record OpenRLHF's experience: `record(trainer, folder)` in the trainer's process, before `fit`.

`train_step(rollout_samples, global_step)` makes a list of Experience through `experience_maker.make_experience_batch`
(OpenRLHF/OpenRLHF, openrlhf/trainer/ppo_trainer.py, 0.11.2) and logs under global_step + 1. An Experience holds
`sequences` [B, T], right-padded, and per-token fields [B, T - 1] whose element i belongs to token i + 1
(openrlhf/trainer/ppo_utils/samples_generator.py): entries are moved back here, so that entry t belongs to token t.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

from ptt.recorders.recorder import Recorder, to_numpy
from ptt.recorders.trainer_hooks import (
    Plan,
    announce,
    around,
    claim,
    hook,
    require_argument,
    require_methods,
    setting,
)

MADE_FOR: Final = "BasePPOTrainer of OpenRLHF 0.11"
SETTINGS: Final = {
    "ref_logp": "--algo.kl.use_loss",
    "rollout_logp": "--algo.advantage.is_correction_level other than off",
}
LISTS: Final = {
    "action_log_probs": "old_logp",  # recomputed by the trainer before its first update of the step
    "base_action_log_probs": "ref_logp",
    "rollout_log_probs": "rollout_logp",
    "values": "value",
    "advantages": "advantage",
    "returns": "return",
}


def record(
    trainer: Any,
    folder: str | os.PathLike[str],
    every: int = 1,
    *,
    strict: bool = False,
    watch: bool = False,
    report_dir: str | os.PathLike[str] | None = None,
) -> Recorder:
    """Record every `every`-th step of the trainer to recorder files in `folder`; return the recorder.

    With `watch` a process of its own judges the run while it trains (see `Recorder.watch`).

    Says which pairs will be recorded, and which option adds the missing ones. Raises TypeError for a trainer that lacks
    the methods this hangs onto, RuntimeError for one that is recorded already; later errors never reach the training.
    """
    require_methods(trainer, "train_step", made_for=MADE_FOR)
    require_methods(getattr(trainer, "experience_maker", None), "make_experience_batch", made_for=MADE_FOR)
    global_step = require_argument(trainer, "train_step", "global_step", place=1, made_for=MADE_FOR)
    claim(trainer, MADE_FOR)
    recorder = Recorder(folder, every=every, strict=strict)
    announce(plan_of(trainer), recorder)
    if watch:
        recorder.watch(report_dir)
    group_size = int(trainer.args.rollout.n_samples_per_prompt)
    steps: list[int] = []

    def begin(*args: Any, **kwargs: Any) -> None:
        steps.append(int(global_step(args, kwargs)) + 1)

    def made(experiences: Any, *_args: Any, **_kwargs: Any) -> None:
        if steps and recorder.wants(steps[-1]):
            rows = [row for experience in experiences for row in _rows(experience, steps[-1], group_size)]
            recorder.write(steps[-1], rows)

    around(trainer, "train_step", recorder, enter=begin, leave=steps.clear)
    hook(trainer.experience_maker, "make_experience_batch", recorder, after=made)
    return recorder


def plan_of(trainer: Any) -> Plan:
    """Tell from the options which log-probabilities an Experience will hold (openrlhf/cli/train_ppo_ray.py)."""
    algo = setting(trainer, "args", "algo")
    if algo is None:
        return Plan(recorded=("old_logp",), unknown=("ref_logp", "rollout_logp"))
    level = setting(algo, "advantage", "is_correction_level")
    given = {"ref_logp": bool(setting(algo, "kl", "use_loss")), "rollout_logp": level not in (None, "off")}
    return Plan(
        recorded=("old_logp", *(name for name, known in given.items() if known)),
        settings={name: add for name, add in SETTINGS.items() if not given[name]},
    )


def _rows(experience: Any, step: int, group_size: int) -> list[dict[str, Any]]:
    """Cut each sample to what lies from its first sampled token to its last token."""
    ids, present = to_numpy(experience.sequences), to_numpy(experience.attention_mask) != 0
    actions = to_numpy(experience.action_mask) != 0
    if actions.shape[1] != ids.shape[1] - 1:
        raise ValueError(f"action_mask is {actions.shape} and sequences {ids.shape}: which token an entry belongs to?")
    values = {column: to_numpy(getattr(experience, field, None)) for field, column in LISTS.items()}
    rewards, index = to_numpy(experience.rewards), experience.index
    rows = []
    for row, action in enumerate(actions):
        if not action.any():
            continue
        first, last = int(action.argmax()), int(np.flatnonzero(present[row])[-1])
        cut = slice(first, last)  # entry i belongs to token i + 1
        columns = {name: value[row][cut] for name, value in values.items() if value is not None}
        columns |= {"token_ids": ids[row][first + 1 : last + 1], "model_mask": action[cut]}
        if index is not None:
            columns |= {"sample_id": f"{step}-{index[row]}", "group_id": f"{step}-{index[row] // group_size}"}
        if rewards is not None:
            columns["reward"] = float(rewards[row])
        rows.append(columns)
    return rows

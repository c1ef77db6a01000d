"""Record what AReaL's PPO trainer trains on: `record(trainer, folder)` before `trainer.train(...)`.

A workflow returns the behaviour policy's logprobs alone, of which no ratio can be made, and knows no step. The
trainer puts the proximal and the reference policy's beside them and hands all of it to `actor.compute_advantages`
(inclusionAI/AReaL, areal/trainer/rl_trainer.py; fields: areal/workflow/rlvr.py, multi_turn.py). There `logprobs`,
`loss_mask` and `versions` belong to their own token, `prox_logp` and `ref_logp`, which come from a forward pass, to
the next one (areal/trainer/ppo/actor.py): those are moved back here, before that method changes them in place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from ptt.recorders.recorder import Recorder, to_numpy
from ptt.recorders.trainer_hooks import Plan, announce, claim, hook, require_methods, setting

MADE_FOR: Final = "PPOTrainer of AReaL 1.0"
SETTINGS: Final = {
    "prox_logp": "actor.recompute_logprob=true (with actor.use_decoupled_loss: actor.prox_logp_method=recompute)",
    "ref_logp": "actor.kl_ctl above 0 with a `ref` section",
}
APPROXIMATED: Final = "loglinear"  # of prox_logp_method: no forward pass
OWN: Final = {"input_ids": "token_ids", "loss_mask": "model_mask", "logprobs": "rollout_logp"}
NEXT: Final = {"prox_logp": "prox_logp", "ref_logp": "ref_logp", "values": "value"}


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

    Steps are counted from 1, on from the step a recovered run starts at. Says which pairs will be recorded, and which
    setting adds the missing ones. Raises TypeError for a trainer that lacks the methods this hangs onto, RuntimeError
    for one that is recorded already; later errors never reach the training.
    """
    require_methods(getattr(trainer, "actor", None), "compute_advantages", made_for=MADE_FOR)
    claim(trainer, MADE_FOR)
    recorder = Recorder(folder, every=every, strict=strict)
    announce(plan_of(trainer), recorder)
    if watch:
        recorder.watch(report_dir)
    recovered = getattr(trainer, "recover_info", None)
    done = 0 if recovered is None else int(recovered.last_step_info.global_step) + 1
    steps = iter(range(done + 1, 1 << 62))

    def collected(data: Any, *_args: Any, **_kwargs: Any) -> None:
        step = next(steps)
        if recorder.wants(step):
            batches = [data] if isinstance(data, dict) else data
            named = [(f"{step}-{recorder.rank or 0}.{group}", batch) for group, batch in enumerate(batches)]
            recorder.write(step, [row for name, batch in named for row in _rows(batch, name)])

    hook(trainer.actor, "compute_advantages", recorder, before=collected)
    return recorder


def plan_of(trainer: Any) -> Plan:
    """Tell from the settings which log-probabilities a batch will hold (`PPOActorConfig`, areal/api/cli_args.py)."""
    actor = setting(trainer, "config", "actor")
    if actor is None:
        return Plan(recorded=("rollout_logp",), unknown=("prox_logp", "ref_logp"))
    given = {"prox_logp": _is_recomputed(actor), "ref_logp": _has_reference(trainer)}
    return Plan(
        recorded=("rollout_logp", *(name for name, known in given.items() if known)),
        settings={name: add for name, add in SETTINGS.items() if not given[name]},
    )


def _is_recomputed(actor: Any) -> bool:
    """Return whether the trainer computes the proximal policy's: an approximated one is never in the batch."""
    if setting(actor, "use_decoupled_loss"):
        return bool(setting(actor, "prox_logp_method") != APPROXIMATED)
    return bool(setting(actor, "recompute_logprob"))


def _has_reference(trainer: Any) -> bool:
    if hasattr(trainer, "ref"):  # its engine, which a positive kl_ctl alone does not make
        return trainer.ref is not None
    return bool(setting(trainer, "config", "actor", "kl_ctl"))


def _rows(batch: dict[str, Any], group: str) -> Iterable[dict[str, Any]]:
    """Cut each sequence to what lies from its first sampled token to its last token."""
    names = (*OWN, *NEXT, "versions", "rewards", "attention_mask")
    arrays = {name: _local(batch[name]) for name in names if batch.get(name) is not None}
    present, sampled = arrays["attention_mask"] != 0, arrays["loss_mask"] != 0
    for row, mask in enumerate(sampled):
        if not mask.any():
            continue
        first, last = int(mask.argmax()), int(np.flatnonzero(present[row])[-1]) + 1
        columns = {column: arrays[field][row][first:last] for field, column in OWN.items() if field in arrays}
        if first:
            shifted = slice(first - 1, last - 1)
            columns |= {column: arrays[field][row][shifted] for field, column in NEXT.items() if field in arrays}
        columns |= {"sample_id": f"{group}-{row}", "group_id": group}
        if "versions" in arrays:
            columns["policy_version"] = int(arrays["versions"][row][mask].min())  # of the oldest sampled token
        if "rewards" in arrays:
            columns["reward"] = float(arrays["rewards"][row])
        yield columns


def _local(value: Any) -> Any:
    """Fetch a tensor that a single controller only refers to (areal/infra/rpc/rtensor.py)."""
    return to_numpy(value.to_local() if hasattr(value, "to_local") else value)

"""One run: `python -m examples.reproduction.train baseline --seed 1 --steps 150 --out runs/baseline-1`.

TRL's GRPOTrainer with its tools, recorded by one line. The name is an arm's or a gallery case's. `--resume` continues
from the last checkpoint; `--unrecorded` trains without the recorder, to measure its cost.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

# What the caller has set stays: a run on a GPU downloads its model.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"} | os.environ

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from examples.reproduction.arms import ARMS, PROBES, Setting
from examples.reproduction.faults import ErroredDropped, FaultyTrainer, Killed
from examples.reproduction.gallery import GALLERY, onset
from examples.reproduction.policy import START, load_tokenizer
from examples.reproduction.rewards import rewards_of
from examples.reproduction.world import World, questions, tools_of, world_of

PROMPTS: Final = 2000
GROUP: Final = 8  # answers to each prompt
SEQUENCES: Final = 32  # a step, on all ranks together
CHECKPOINTS: Final = 5  # of a run that will be killed

SETTINGS: Final = ARMS | PROBES | {name: case.setting for name, case in GALLERY.items()}


class WorldClock(TrainerCallback):  # type: ignore[misc]
    """Keep the world's step that of the trainer."""

    def __init__(self, world: World) -> None:
        """Remember the world."""
        self.world = world

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        """Copy the trainer's step."""
        self.world.step = state.global_step


def config(
    setting: Setting, *, seed: int, steps: int, out: Path, changed: Mapping[str, Any] | None = None
) -> GRPOConfig:
    """Return the trainer's settings: those for a CPU, with what is changed."""
    sync = setting.sync_every
    settings: dict[str, Any] = dict(  # noqa: C408  (the keywords of GRPOConfig)
        output_dir=str(out), max_steps=steps, seed=seed, logging_steps=1, report_to=[], disable_tqdm=True,
        learning_rate=setting.learning_rate, lr_scheduler_type="constant_with_warmup", warmup_steps=10,
        beta=setting.beta, sync_ref_model=sync is not None, ref_model_sync_steps=sync or steps,
        loss_type="dapo", epsilon=setting.epsilon, off_policy_mask_threshold=setting.mask_above,
        temperature=1.0, max_grad_norm=1.0, entropy_coef=setting.entropy_coef,
        scale_rewards="none" if setting.reward_factor != 1 else "group",
        per_device_train_batch_size=SEQUENCES // setting.ranks, gradient_accumulation_steps=1, num_generations=GROUP,
        num_iterations=2,  # each generation is trained on twice, so that policy and old differ at all
        max_completion_length=160, max_tool_calling_iterations=4,
        save_strategy="steps" if setting.killed else "no", save_steps=steps // CHECKPOINTS, save_total_limit=1,
        bf16=False, use_cpu=True, activation_checkpointing=False, dataloader_pin_memory=False, disable_dropout=True,
        model_init_kwargs={"dtype": "float32"},  # our weights lie on disk at half precision
    )  # fmt: skip
    return GRPOConfig(**settings | dict(changed or {}))


def make_trainer(
    setting: Setting,
    *,
    seed: int,
    steps: int,
    out: Path,
    resume: bool,
    model: str = str(START),
    changed: Mapping[str, Any] | None = None,
) -> Any:
    """Return the trainer of a run, in a world of its own."""
    rank, first_step = int(os.environ.get("RANK", "0")), onset(setting, steps)
    world = world_of(setting, seed=100 * seed + rank, steps=steps)
    rewards, weights = rewards_of(setting, world, first_step)
    settings = config(setting, seed=seed, steps=steps, out=out, changed=changed)
    settings.reward_weights = weights
    callbacks: list[Any] = [WorldClock(world)]
    if setting.killed and not resume:
        callbacks.append(Killed(first_step))
    arguments = {
        "model": model, "reward_funcs": rewards, "args": settings, "callbacks": callbacks,
        "train_dataset": Dataset.from_list(questions(PROMPTS, seed)), "processing_class": load_tokenizer(model),
        "tools": tools_of(world),
    }  # fmt: skip
    if setting.sampler != "policy" or setting.nan_loss:
        return FaultyTrainer(setting=setting, first_step=first_step, **arguments)
    return (ErroredDropped if setting.drop_errored else GRPOTrainer)(**arguments)


def weights_digest(model: Any) -> str:
    """Return a digest of the weights, to tell whether two runs ended the same."""
    digest = hashlib.sha256()
    for _, tensor in sorted(model.state_dict().items()):
        digest.update(tensor.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def run(
    given: argparse.Namespace,
    *,
    model: str = str(START),
    changed: Callable[[Setting], Mapping[str, Any]] = lambda _setting: {},
    prepare: Callable[[Any], None] = lambda _trainer: None,
) -> dict[str, Any]:
    """Train as the arguments say, with what is changed in the trainer's settings, and return what it took.

    `prepare` is given the trainer when the recorder hangs onto it.
    """
    setting = SETTINGS[given.name]
    trainer = make_trainer(
        setting, seed=given.seed, steps=given.steps, out=given.out, resume=given.resume,
        model=model, changed=changed(setting),
    )  # fmt: skip
    recorder = None
    if not given.unrecorded:
        from ptt.recorders.trl import record

        watching: dict[str, Any] = (
            {"watch": True, "stop": "critical", "report_dir": given.watched} if given.watched else {}
        )
        recorder = record(trainer, given.out / "tokens", **watching)
    prepare(trainer)
    began, used = time.perf_counter(), time.process_time()
    try:
        trainer.train(resume_from_checkpoint=True if given.resume else None)
    finally:
        trainer.save_state()
    summary: dict[str, Any] = {
        "steps": trainer.state.global_step,
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_seconds": round(time.process_time() - used, 2),
        "weights": weights_digest(trainer.model),
    }
    if recorder is not None:
        summary |= {"recorder_seconds": round(recorder.seconds, 3), "recorder_failures": recorder.failures}
    return summary


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a run's arguments."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("name", choices=sorted(SETTINGS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--unrecorded", action="store_true")
    parser.add_argument("--watched", type=Path, metavar="FOLDER", help="watch it, with a stop; the report goes there")
    return parser


def main(arguments: Sequence[str]) -> None:
    """Read the arguments, train, and print the summary as the last line."""
    torch.set_num_threads(1)
    print(json.dumps(run(parser_of(__doc__).parse_args(arguments))))


if __name__ == "__main__":
    main(sys.argv[1:])

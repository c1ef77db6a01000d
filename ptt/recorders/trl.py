"""Record what TRL's GRPOTrainer trains on: `record(trainer, folder)` once, before `trainer.train()`.

The logprobs of the policy being updated are computed inside `_compute_loss` and kept nowhere; the rollout's own
values, masks and reference lie in the batch given to it, and rewards and messages pass through `_calculate_rewards`
(huggingface/trl, trl/trainer/grpo_trainer.py, 1.16). Each of these methods is wrapped on this one trainer; what the
trainer computes is not touched. Written when the optimizer step ends, so gradient accumulation gives one file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from inspect import unwrap
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from ptt.recorders.recorder import Recorder, say, to_numpy
from ptt.recorders.trainer_hooks import (
    Argument,
    Plan,
    agreed,
    announce,
    around,
    claim,
    hook,
    refusal,
    require_argument,
    require_methods,
    setting,
)
from ptt.recorders.watch_process import check_stop

MADE_FOR: Final = "GRPOTrainer of TRL 1.16 and its subclasses"
PLACE: Final = "ptt_place"  # a column of ours in the batch: TRL shuffles and splits it with the rest
BATCH: Final = {
    "old_per_token_logps": "old_logp",
    "sampling_per_token_logps": "rollout_logp",
    "ref_per_token_logps": "ref_logp",
}
SETTINGS: Final = {
    "ref_logp": "beta above 0",
    "old_logp": "num_iterations above 1",
    "rollout_logp": "use_vllm=True",
}
ATTRIBUTES: Final = (
    "accelerator", "args", "model", "num_generations", "reward_func_names", "reward_weights", "state", "temperature",
)  # fmt: skip
TOOL_ERROR: Final = "{'error': "  # how TRL renders a tool that raised; a tool that answers so has failed as well


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

    With `watch` a process of its own judges the run while it trains (see `Recorder.watch`): what it finds is said, and
    goes to the trackers as `ptt/...`. With `stop="critical"` as well, training ends after a checkpoint where it must.

    Says which pairs will be recorded, and which setting adds the missing ones. Without any pair, as by TRL's defaults,
    there is the policy's logprob, entropy, rewards, groups, advantages and masks. Raises TypeError for a trainer
    without the methods, arguments and attributes this hangs onto or without logprobs of single tokens (RLOOTrainer,
    Liger's loss), RuntimeError for one that trains already or is recorded already; later errors never reach the
    training.
    """
    require_methods(
        trainer, "_generate_and_score_completions", "_calculate_rewards", "_compute_loss",
        "_get_per_token_logps_and_entropies", "add_callback", made_for=MADE_FOR,
    )  # fmt: skip
    _need_token_logps(trainer)
    _need_attributes(trainer)
    taken = {
        "rewarded": [require_argument(trainer, "_calculate_rewards", name, place=at, made_for=MADE_FOR)
                     for name, at in (("inputs", 0), ("completions", 2))],
        "trained": [require_argument(trainer, "_compute_loss", "inputs", place=1, made_for=MADE_FOR)],
    }  # fmt: skip
    check_stop(stop, watch=watch)
    from transformers import TrainerCallback

    claim(trainer, MADE_FOR)
    processes = trainer.accelerator.num_processes
    rank = trainer.accelerator.process_index if processes > 1 else None
    recorder = Recorder(folder, rank=rank, every=every, strict=strict)
    announce(plan_of(trainer), recorder)
    passing = _Passing(trainer, recorder)
    hook(trainer, "_calculate_rewards", recorder, after=_given(passing.rewarded, taken["rewarded"]))
    hook(trainer, "_generate_and_score_completions", recorder, after=passing.generated)
    hook(trainer, "_get_per_token_logps_and_entropies", recorder, after=passing.scored)
    around(trainer, "_compute_loss", recorder, enter=passing.begin, leave=passing.end)
    hook(trainer, "_compute_loss", recorder, after=_given(passing.trained, taken["trained"]))

    class AtStepEnd(TrainerCallback):  # type: ignore[misc,unused-ignore]
        """Write what the optimizer step trained on."""

        def on_step_end(self, _args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
            if not recorder.stopped:
                with recorder.guarded():
                    passing.flush(state.global_step)

    trainer.add_callback(AtStepEnd())
    if watch:
        recorder.watch(report_dir)
        trainer.add_callback(_watching(trainer, recorder, stops=stop is not None))
    return recorder


def _watching(trainer: Any, recorder: Recorder, *, stops: bool) -> Any:
    """Return the callback that hands logs to the watch, what it tells to the trackers, and ends training by it."""
    from transformers import TrainerCallback

    class AtWatch(TrainerCallback):  # type: ignore[misc,unused-ignore]
        """Runs on every rank, also where recording has stopped: ranks agree on the stop at each step."""

        def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_kwargs: Any) -> None:
            recorder.log(state.global_step, logs or {})

        def on_step_end(self, _args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
            with recorder.guarded():
                _tell_trackers(trainer, recorder)
            if stops and agreed(recorder.should_stop, trainer.accelerator):
                control.should_save = control.should_training_stop = True
                with recorder.guarded():
                    _say_stop(trainer, recorder, state.global_step)

        def on_train_end(self, *_args: Any, **_kwargs: Any) -> None:
            if recorder.watcher is not None:
                recorder.watcher.close()

    return AtWatch()


def _tell_trackers(trainer: Any, recorder: Recorder) -> None:
    """Add what the watch told to what TRL logs next: a log call of our own would cut its means short."""
    for alarm in recorder.watcher.new_alarms() if recorder.watcher is not None else ():
        logged = getattr(trainer, "_metrics", {}).get("train")
        if logged is not None:
            logged[f"ptt/{alarm['kind']}/{alarm['rule']}"].append(float(alarm.get("value") or 1.0))


def _say_stop(trainer: Any, recorder: Recorder, step: int) -> None:
    if recorder.watcher is None or (alarm := recorder.watcher.stop) is None:  # on another rank
        return
    since = int(alarm.get("since_step") or alarm["step"])
    saved = [int(path.name.rpartition("-")[2]) for path in Path(trainer.args.output_dir).glob("checkpoint-[0-9]*")]
    healthy = max((at for at in saved if at < since), default=None)
    back = f"checkpoint-{healthy} is the last before step {since}, where it began" if healthy is not None else (
        f"no checkpoint is from before step {since}, where it began: start anew"
    )  # fmt: skip
    say(f"training ends at step {step} after a checkpoint, by {alarm['rule']}; {back}.")


def _given(take: Callable[..., None], arguments: Sequence[Argument]) -> Callable[..., None]:
    """Call `take` with a method's result and some of the arguments, however they were passed."""

    def called(result: Any, *args: Any, **kwargs: Any) -> None:
        take(result, *(argument(args, kwargs) for argument in arguments))

    return called


def _need_attributes(trainer: Any) -> None:
    """Refuse a trainer without what rewards and groups are read by."""
    missing = [name for name in ATTRIBUTES if not hasattr(trainer, name)]
    if missing:
        raise refusal(f"{type(trainer).__name__} has no {', '.join(missing)}", MADE_FOR)


def _need_token_logps(trainer: Any) -> None:
    """Refuse a trainer that names none of the batch's fields anywhere in its code: it has the methods but other data.

    RLOOTrainer puts only the sum over a completion into its batch. Liger's loss, of TRL before 1.16, passes
    `_compute_loss` by.
    """
    kind = type(trainer)
    methods = [unwrap(made) for base in kind.__mro__ for made in vars(base).values() if callable(made)]
    constants = [one for method in methods if hasattr(method, "__code__") for one in method.__code__.co_consts]
    keys = [one if isinstance(one, tuple) else (one,) for one in constants]  # a dict's keys are one constant
    if not any(key in BATCH for names in keys for key in names):
        raise refusal(
            f"{kind.__name__} keeps no log-probabilities of single tokens, so nothing could be recorded", MADE_FOR
        )
    liger = [name for name in ("use_liger_loss", "use_liger_kernel") if getattr(trainer, name, False) is True]
    if liger and hasattr(trainer, "compute_liger_loss"):
        raise refusal(
            f"{liger[0]}=True: Liger's loss keeps no log-probabilities of single tokens; set it False", MADE_FOR
        )


def plan_of(trainer: Any) -> Plan:
    """Tell from the trainer's settings which log-probabilities it will compute (`_generate_and_score_completions`).

    The old ones are computed where samples outlive an optimizer step, or where vLLM's are corrected for.
    """
    args = getattr(trainer, "args", None)
    engine = bool(setting(args, "use_vllm"))
    corrected = engine and setting(args, "vllm_importance_sampling_correction") is not False
    lasts = (setting(args, "steps_per_generation") or 1) * (setting(args, "num_iterations") or 1)
    given = {
        "policy_logp": True,
        "ref_logp": bool(setting(args, "beta")),
        "old_logp": corrected or (setting(args, "gradient_accumulation_steps") or 1) % lasts != 0,
        "rollout_logp": engine,
    }
    unknown = () if engine or getattr(trainer, "rollout_func", None) is None else ("rollout_logp",)
    return Plan(
        recorded=tuple(name for name, known in given.items() if known),
        settings={name: add for name, add in SETTINGS.items() if not given[name] and name not in unknown},
        unknown=unknown,
    )


class _Passing:
    """What has passed through the trainer since the last step, on the CPU and cut to its tokens."""

    def __init__(self, trainer: Any, recorder: Recorder) -> None:
        self.trainer = trainer
        self.recorder = recorder
        self.samples: list[dict[str, Any]] = []  # of the last generation, which may be an evaluation's
        self.trained_on: list[dict[str, Any]] = []
        self.in_loss = False
        self.trains = False  # whether the loss has passed through since the last step
        self.torn = False  # whether a micro-batch of this step could not be taken
        self.logps: tuple[Any, Any] | None = None
        self.rows: list[dict[str, Any]] = []
        self.label: tuple[int, int] = (-1, 0)

    @property
    def _training(self) -> bool:
        return bool(self.trainer.model.training)

    def rewarded(self, rewards: Any, inputs: Any, completions: Any) -> None:
        """Name the samples and keep their scores and messages, in the order before TRL shuffles."""
        count, trainer = len(inputs), self.trainer
        first = trainer.accelerator.process_index * count
        label = self._next_label()
        names = [f"{label}-{first + index}" for index in range(count)]
        if trainer.args.log_completions:  # the same names in the completions table tie its texts to these tokens
            names = _named_in_completions(trainer, names)
        scores = to_numpy(rewards)[first : first + count]
        weights = to_numpy(trainer.reward_weights)
        self.samples = [
            {
                "sample_id": names[index],
                "group_id": f"{label}-{(first + index) // trainer.num_generations}",
                "policy_version": trainer.state.global_step,
                "temperature": trainer.temperature,
                **self._scores(scores[index], weights),
                **_tools(completions[index], bool(getattr(trainer, "tools", None))),
            }
            for index in range(count)
        ]

    def _next_label(self) -> str:
        """Return a name for each generation: its first step, numbered where a step has several."""
        step = self.trainer.state.global_step + 1
        if not self._training:
            return f"eval{step}"
        self.label = (step, self.label[1] + 1 if self.label[0] == step else 0)
        return f"{step}.{self.label[1]}" if self.label[1] else f"{step}"

    def generated(self, batch: Any, *_args: Any, **_kwargs: Any) -> None:
        """Tie the samples to the rows of the batch, which TRL is about to shuffle and split."""
        samples, self.samples = self.samples, []
        if self._training:
            fits = len(samples) == len(batch["completion_ids"])  # a column of another length would stop TRL's shuffle
            self.trained_on = samples if fits else []
            if fits:
                batch[PLACE] = batch["completion_ids"].new_tensor(range(len(samples)))

    def _scores(self, scores: Any, weights: Any) -> dict[str, Any]:
        total = None if np.isnan(scores).all() else float(np.nansum(scores * weights))
        parts = {
            name: None if np.isnan(score) else float(score)
            for name, score in zip(self.trainer.reward_func_names, scores, strict=True)
        }
        return {"reward": total, "rewards": parts}

    def begin(self, *_args: Any, **_kwargs: Any) -> None:
        """Note that logprobs are those of the training forward from here on."""
        self.in_loss, self.logps = True, None

    def end(self) -> None:
        """Note that they no longer are."""
        self.in_loss = False

    def scored(self, result: Any, *_args: Any, **_kwargs: Any) -> None:
        """Keep the logprobs and entropies of the training forward; they are copied only after the loss."""
        if self.in_loss:
            if not isinstance(result, tuple):
                raise TypeError(f"_get_per_token_logps_and_entropies gives a {type(result).__name__}, not a tuple.")
            self.logps = (result[0], result[1])

    def trained(self, _loss: Any, inputs: Any) -> None:
        """Turn a micro-batch into rows; a step of which one could not be taken is not written."""
        self.trains = self.trains or self._training
        logps, self.logps = self.logps, None
        if not self._training or not self.recorder.wants(self.trainer.state.global_step + 1):
            return
        torn, self.torn = self.torn, True
        self.rows += self._rows(inputs, logps)
        self.torn = torn

    def _rows(self, inputs: Any, logps: tuple[Any, Any] | None) -> Iterator[dict[str, Any]]:
        values = {column: inputs.get(field) for field, column in BATCH.items()}
        if logps is not None:
            values |= {"policy_logp": logps[0], "entropy": logps[1]}
        arrays = {name: to_numpy(value) for name, value in values.items() if value is not None}
        ids, present = to_numpy(inputs["completion_ids"]), to_numpy(inputs["completion_mask"]) != 0
        model = present if inputs.get("tool_mask") is None else present & (to_numpy(inputs["tool_mask"]) != 0)
        places, advantages = inputs.get(PLACE), to_numpy(inputs["advantages"])
        known = [{}] * len(present) if places is None else [self.trained_on[position] for position in to_numpy(places)]
        for row, keep in enumerate(present):
            if keep.any():  # a completion left out of the loss (mask_truncated_completions) has no token here
                lists = {name: value[row][keep] for name, value in arrays.items()}
                advantage = advantages[row] if advantages.ndim == 1 else advantages[row][keep]
                lists |= {"token_ids": ids[row][keep], "model_mask": model[row][keep], "advantage": advantage}
                yield known[row] | lists

    def flush(self, step: int) -> None:
        """Write the step that has just ended."""
        rows, self.rows = self.rows, []
        trains, self.trains = self.trains, False
        torn, self.torn = self.torn, False
        if torn:  # said already; a part of a batch would pass for the whole
            return
        if rows:
            self.recorder.write(step, rows)
        elif not trains:  # a subclass or a patch
            raise RuntimeError(f"step {step} ended without _compute_loss: this trainer takes its loss elsewhere.")


def _named_in_completions(trainer: Any, names: list[str]) -> list[str]:
    """Name samples in the completions table as well, or return the names that a reward function gave them there."""
    pending = getattr(trainer, "_pending_extra_logs", None)  # TRL 1.0 and later
    logged = None if pending is None else pending.get("sample_id")
    if logged and len(logged) == len(names):
        return [str(name) for name in logged]
    if pending is not None and not logged:
        trainer._log_completion_extra("sample_id", names)
    return names


def _tools(messages: Any, has_tools: bool) -> dict[str, Any]:
    """Return one tool name and outcome an observation: parallel calls in one turn are one observation."""
    if not isinstance(messages, list) or not (has_tools or any(message.get("role") == "tool" for message in messages)):
        return {}  # what lies between model tokens may still be an environment's, of which no name is known
    runs = [(role, list(run)) for role, run in groupby(messages, key=lambda message: message.get("role"))]
    seen = [run for role, run in runs[:-1] if role == "tool"]  # results at the very end have no token after them
    names = ["+".join(dict.fromkeys(str(result.get("name")) for result in run)) for run in seen]
    failed = [any(str(result.get("content")).startswith(TOOL_ERROR) for result in run) for run in seen]
    return {"tool_names": names, "tool_failed": failed}

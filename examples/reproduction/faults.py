"""Break the trainer as the gallery's switches say: its sampler, its loss, its process. And one guard that TRL lacks."""

from __future__ import annotations

import os
import signal
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOTrainer
from trl.models import unwrap_model_for_generation
from trl.trainer.utils import pad

from examples.reproduction.arms import Setting
from ptt.recorders.trl import TOOL_ERROR

STALE_STEPS: Final = 24  # for which a stale sampler keeps its weights


class Killed(TrainerCallback):  # type: ignore[misc]
    """Kill the process after a step by a signal that it cannot catch."""

    def __init__(self, step: int) -> None:
        """Remember the step."""
        self.step = step

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        """Kill the process if this was the step."""
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


class FaultyTrainer(GRPOTrainer):  # type: ignore[misc]
    """A GRPOTrainer whose sampler or loss is broken as its setting says."""

    def __init__(self, *, setting: Setting, first_step: int, **kwargs: Any) -> None:
        """Take the setting, and the first step at which it acts."""
        super().__init__(**kwargs)
        self.setting, self.first_step = setting, first_step
        self.sampler: Any = None
        self.sampler_step = -1  # the step whose weights it has

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Sample from another copy of the weights; return tokens with their logprobs, as an inference engine does."""
        if self.setting.sampler == "policy":
            return super()._generate_single_turn(prompt_ids, *args, **kwargs)
        tensors = [torch.tensor(ids) for ids in prompt_ids]
        prompts = pad(tensors, padding_value=self._tokenizer.pad_token_id, padding_side="left")
        present = pad([torch.ones_like(ids) for ids in tensors], padding_value=0, padding_side="left")
        with (
            unwrap_model_for_generation(
                self.model_wrapped, self.accelerator, generation_kwargs=self.generation_kwargs
            ) as model,
            torch.no_grad(),
        ):
            made = self._sampler(model).generate(
                input_ids=prompts, attention_mask=present, generation_config=self.generation_config,
                return_dict_in_generate=True, output_logits=True,
            )  # fmt: skip
        return self._tokens_and_logprobs(made.sequences[:, prompts.size(1) :], made.logits)

    def _sampler(self, model: Any) -> Any:
        """Return the sampler, with new weights when they are due."""
        here = self.setting.bad_rank in (None, self.accelerator.process_index)
        kind, step = self.setting.sampler if here else "fresh", self.state.global_step
        if self.sampler is None:
            precision = torch.bfloat16 if kind == "bfloat16" else torch.float32
            self.sampler = AutoModelForCausalLM.from_config(model.config, dtype=precision).eval()
        elif step == self.sampler_step or (kind == "stale" and step - self.sampler_step < STALE_STEPS):
            return self.sampler
        self.sampler.load_state_dict(model.state_dict())
        self.sampler_step = step
        return self.sampler

    def _tokens_and_logprobs(self, tokens: Any, logits: Any) -> tuple[list[list[int]], list[list[float]]]:
        """Cut each sequence after its first end token, and look up its logprobs."""
        logps = [torch.log_softmax(one.float() / self.temperature, -1) for one in logits]
        chosen = torch.stack([logp.gather(1, tokens[:, place, None])[:, 0] for place, logp in enumerate(logps)], 1)
        ends = torch.isin(tokens, torch.tensor(self.eos_token_ids))
        keep = ends.cumsum(1) - ends.long() == 0
        cut = [(row[mask].tolist(), logp[mask].tolist()) for row, logp, mask in zip(tokens, chosen, keep, strict=True)]
        return [ids for ids, _ in cut], [logp for _, logp in cut]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Make the loss of one step NaN."""
        loss = super()._compute_loss(model, inputs)
        broken = self.setting.nan_loss and self.state.global_step + 1 == self.first_step
        return loss * float("nan") if broken else loss


class ErroredDropped(GRPOTrainer):  # type: ignore[misc]
    """A GRPOTrainer that learns nothing from an answer with a call that raised: its advantage is 0."""

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, *args: Any) -> Any:
        """Note which answers have such a call."""
        self.errored = torch.tensor([
            any(str(message["content"]).startswith(TOOL_ERROR) for message in one if message["role"] == "tool")
            for one in completions
        ])  # fmt: skip
        return super()._calculate_rewards(inputs, prompts, completions, *args)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """Take their advantage, before the batch is shuffled."""
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        return batch | {"advantages": batch["advantages"].masked_fill(self.errored, 0.0)}

"""A real TRL GRPO run with two tools on a tiny random model, offline and on the CPU: `trl_run.py OUT [WORD...]`.

Words: `record`; `watch` watches as well, and `unwatched` kills the watch after the second step; `still` trains at a
learning rate of 0; `reuse` trains on each generation twice; `bare` trains without a reference, as by TRL's defaults.
Prints one JSON object: seconds a step, and what recording cost of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, TrainerCallback, TrainerState
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen2_5_chat_template

STEPS = 18
WORDS = ("red", "blue", "stone", "river", "seven", "code", "answer")
CALLS = (
    '{"name": "lookup", "arguments": {"key": "stone"}}',
    '{"name": "lookup", "arguments": {"key": "nowhere"}}',  # raises: a failed call
    '{"name": "add", "arguments": {"a": 3, "b": 4}}',
)


def lookup(key: str) -> str:
    """Find a code.

    Args:
        key: Item.
    """
    return str({"stone": 417, "river": 93}[key])


def add(a: int, b: int) -> str:
    """Add numbers.

    Args:
        a: First.
        b: Second.
    """
    return str(a + b)


def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, a few words, whole tool calls as one token each, and the system prompt as one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *alphabet]
    made = Tokenizer(models.BPE(vocab={name: place for place, name in enumerate(names)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    found = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    found.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    texts = [f" {word}" for word in WORDS] + [f"<tool_call>\n{call}\n</tool_call>" for call in CALLS]
    found.add_tokens([AddedToken(text, normalized=False, special=False) for text in texts])
    found.chat_template = qwen2_5_chat_template
    shown = found.apply_chat_template(
        [{"role": "user", "content": "@@"}], tools=[lookup, add], tokenize=False, add_generation_prompt=True
    )
    system = shown[len("<|im_start|>") : shown.index("<|im_end|>")]
    found.add_tokens([AddedToken(system, normalized=False, special=False)])
    return found


def model(tok: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Random, but for a constant direction of the embeddings that makes words, tool calls and the end likely."""
    torch.manual_seed(0)
    made = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tok),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=512,
            tie_word_embeddings=False,
            pad_token_id=tok.pad_token_id,
            eos_token_id=tok.eos_token_id,
            bos_token_id=None,
        )
    )
    likely = {tok.eos_token_id: 2.0} | {tok.convert_tokens_to_ids(f" {word}"): 3.0 for word in WORDS}
    likely |= {tok.convert_tokens_to_ids(f"<tool_call>\n{call}\n</tool_call>"): 2.0 for call in CALLS}
    with torch.no_grad():
        made.model.embed_tokens.weight[:, 0] = 1.0
        made.lm_head.weight[:, 0] = -2.0 / 32**0.5
        for token, logit in likely.items():
            made.lm_head.weight[token, 0] = logit / 32**0.5
    return made


def uses_tools(completions: list[list[dict[str, object]]], **_: object) -> list[float]:
    """Reward calls that were answered."""
    return [float(sum(one["role"] == "tool" for one in messages)) for messages in completions]


def is_short(completion_ids: list[list[int]], **_: object) -> list[float]:
    """Reward brevity a little."""
    return [-0.01 * len(ids) for ids in completion_ids]


class KillsTheWatch(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Kills the process that watches, after the second step."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder

    def on_step_end(self, _args: object, state: TrainerState, _control: object, **_kwargs: object) -> None:
        if state.global_step == 2:
            self.recorder.watcher._process.kill()


def main(out: Path, words: list[str]) -> None:
    """Train, and print what it cost."""
    torch.set_num_threads(1)
    bare, watched = "bare" in words, "watch" in words
    tok = tokenizer()
    questions = [f"What is the code of {word}?" for word in WORDS]
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in questions * 8])
    config = GRPOConfig(
        output_dir=str(out), max_steps=STEPS, learning_rate=0.0 if "still" in words else 5e-3,
        beta=0.0 if bare else 0.01, seed=0, use_cpu=True, bf16=False,
        per_device_train_batch_size=16, gradient_accumulation_steps=2, num_generations=8,
        num_iterations=2 if "reuse" in words else 1,
        max_completion_length=320, max_tool_calling_iterations=3, logging_steps=1, save_strategy="no",
        log_completions=True, num_completions_to_print=0, report_to="none", disable_tqdm=True,
        gradient_checkpointing=False, dataloader_pin_memory=False, disable_dropout=True,
    )  # fmt: skip
    weights = out.with_name(out.name + "-model")  # on disk, since TRL makes the reference from the model's path
    if not weights.exists():  # several ranks share what a first run left
        model(tok).save_pretrained(weights)
    trainer = GRPOTrainer(
        model=str(weights), reward_funcs=[uses_tools, is_short], args=config, train_dataset=data,
        processing_class=tok, tools=[lookup, add],
    )  # fmt: skip
    recorder = None
    if "record" in words:
        from ptt.recorders.trl import record

        report = out.with_name(out.name + "-report")
        watching: dict[str, Any] = {"watch": True, "stop": "critical", "report_dir": report} if watched else {}
        recorder = record(trainer, out / "tokens", strict=True, **watching)
    if "unwatched" in words:
        trainer.add_callback(KillsTheWatch(recorder))
    sys.stderr.write("training begins\n")
    started = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - started
    trainer.save_state()
    cost = {} if recorder is None else {"recorder_ms_a_step": 1e3 * recorder.seconds / STEPS}
    print(json.dumps({"ms_a_step": 1e3 * seconds / STEPS, **cost}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

"""The policy: a byte-pair tokenizer of 600 tokens and a Qwen2 model of 0.28 million parameters, both made from scratch.

The chat template is the one that TRL ships for Qwen 2.5. Its system prompt, which lists the tools, is one token: on a
CPU the prompt would otherwise be most of the work, and it is the same in every conversation.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl.chat_template_utils import qwen2_5_chat_template

from examples.reproduction.world import World, demonstration, tools_of

START: Final = Path(__file__).with_name("start")  # what supervised training left: `make reproduce-start` makes it again
VOCABULARY: Final = 600
TEXTS: Final = 4000  # conversations, and as many diverse tool answers, to train the tokenizer on
MARKS: Final = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "assistant", "user")


def make_tokenizer() -> Any:
    """Return a tokenizer trained on demonstrations and on the diverse world's answers."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(
        _texts(),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in MARKS])
    tokenizer.chat_template = qwen2_5_chat_template
    tokenizer.add_tokens([AddedToken(system_prompt(tokenizer), normalized=False, special=False)])
    return tokenizer


def _texts() -> list[str]:
    rng, world = random.Random("texts"), World(diverse=True, seed=0)
    texts = []
    for _ in range(TEXTS):
        for message in demonstration(rng):
            calls = [call["function"] for call in message.get("tool_calls", ())]
            texts.append(message["content"])
            texts += [f"\n{json.dumps(call)}\n" for call in calls]
        texts.append(world.answer("lookup", "item", rng.randint(100, 999)))
    return texts


def system_prompt(tokenizer: Any) -> str:
    """Return what the chat template writes before the first question."""
    shown = tokenizer.apply_chat_template(
        [{"role": "user", "content": "?"}], tools=tools_of(World(diverse=False, seed=0)), tokenize=False
    )
    return str(shown[len("<|im_start|>") : shown.index("<|im_end|>")])


def make_model(tokenizer: Any) -> Any:
    """Return a model with random weights."""
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=512,
            initializer_range=0.05,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def save_start(model: Any, tokenizer: Any, folder: Path = START) -> None:
    """Save a policy at half precision: the weights ship with the code."""
    for part in (model.half(), tokenizer):
        part.save_pretrained(folder)


def load_tokenizer(model: str | Path = START) -> Any:
    """Return the tokenizer that belongs to the weights."""
    return AutoTokenizer.from_pretrained(model, padding_side="left")

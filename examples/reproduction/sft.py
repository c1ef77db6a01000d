"""Train the starting weights on demonstrations: `python -m examples.reproduction.sft [--steps 2000] [--out FOLDER]`.

The loss covers what the assistant says. A quarter of each batch are random sequences that repeat themselves: they teach
copying, which every answer needs, in a thousand steps fewer.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn import functional

from examples.reproduction.policy import START, VOCABULARY, make_model, make_tokenizer, save_start, system_prompt
from examples.reproduction.world import Message, demonstration

DEMONSTRATIONS: Final = 20_000
STEPS: Final = 2000
BATCH: Final = 32
COPIES: Final = 8  # of a batch: repeated sequences
COPY_WEIGHT: Final = 0.1
LEARNING_RATE: Final = 1.5e-3
WARM_UP: Final = 60
SIMILAR: Final = 8  # batches cut from one block sorted by length, so that a batch needs little padding
IGNORED: Final = -100
USUAL_TOKENS: Final = 25  # of the assistant; the loss is divided by it, as a mean over the batch favours short answers
SHOW_EVERY: Final = 100

Example = tuple[list[int], list[int]]  # tokens and labels; a label is IGNORED where the loss leaves it out


def parts(messages: Sequence[Message], system: str) -> Iterator[tuple[str, bool]]:
    """Yield the conversation as the chat template writes it, in parts, and whether each is the assistant's."""
    yield f"<|im_start|>{system}<|im_end|>\n", False
    for message in messages:
        if message["role"] == "assistant":
            calls = [json.dumps(call["function"]) for call in message.get("tool_calls", ())]
            said = "".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls) or message["content"]
            yield "<|im_start|>assistant\n", False
            yield f"{said}<|im_end|>", True
            yield "\n", False
        elif message["role"] == "tool":
            yield f"<|im_start|>user\n<tool_response>\n{message['content']}\n</tool_response><|im_end|>\n", False
        else:
            yield f"<|im_start|>user\n{message['content']}<|im_end|>\n", False


def example(messages: Sequence[Message], tokenizer: Any, system: str) -> Example:
    """Return the tokens of a conversation and its labels."""
    tokens: list[int] = []
    labels: list[int] = []
    for text, learnt in parts(messages, system):
        piece = tokenizer(text, add_special_tokens=False)["input_ids"]
        tokens += piece
        labels += piece if learnt else [IGNORED] * len(piece)
    return tokens, labels


def copying(rng: random.Random, digits: Sequence[int]) -> Example:
    """Return a random sequence, half of it digits, followed by itself; the loss covers the second copy."""
    words = range(3, VOCABULARY)  # behind the special tokens
    once = [rng.choice(digits) if rng.random() < 0.5 else rng.choice(words) for _ in range(rng.randint(6, 24))]
    between = [rng.choice(words) for _ in range(rng.randint(0, 6))]
    return once + between + once, [IGNORED] * (len(once) + len(between) + 1) + once[1:]


def batches(examples: Sequence[Example], rng: random.Random) -> Iterator[list[Example]]:
    """Yield batches of conversations of similar length, without end."""
    size = BATCH - COPIES
    order: list[Example] = []
    while True:
        while len(order) < size * SIMILAR:
            order += rng.sample(examples, len(examples))
        block, order = sorted(order[: size * SIMILAR], key=lambda one: len(one[0])), order[size * SIMILAR :]
        cut = [block[start : start + size] for start in range(0, len(block), size)]
        rng.shuffle(cut)
        yield from cut


def losses(model: Any, batch: Sequence[Example], padding: int) -> tuple[Any, Any]:
    """Return the loss of the conversations and that of the repeated sequences."""
    width = max(len(tokens) for tokens, _ in batch)
    tokens = torch.tensor([[*one, *[padding] * (width - len(one))] for one, _ in batch])
    labels = torch.tensor([[*one, *[IGNORED] * (width - len(one))] for _, one in batch])[:, 1:]
    learnt = labels != IGNORED
    hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1]
    loss = functional.cross_entropy(model.lm_head(hidden[learnt]), labels[learnt], reduction="none")
    copied = (torch.arange(len(batch)) >= BATCH - COPIES)[:, None].expand_as(learnt)[learnt]
    return loss[~copied].sum() / (USUAL_TOKENS * (BATCH - COPIES)), loss[copied].mean()


def train(steps: int, out: Path) -> None:
    """Make the tokenizer, train the model, and save both."""
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    model, system, rng = make_model(tokenizer), system_prompt(tokenizer), random.Random("demonstrations")
    examples = [example(demonstration(rng), tokenizer, system) for _ in range(DEMONSTRATIONS)]
    digits = [tokenizer.convert_tokens_to_ids(str(digit)) for digit in range(10)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    began, conversations = time.perf_counter(), batches(examples, rng)
    for step in range(1, steps + 1):
        rate = LEARNING_RATE * min(1.0, step / WARM_UP) * 0.5 * (1 + math.cos(math.pi * (step - 1) / steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = next(conversations) + [copying(rng, digits) for _ in range(COPIES)]
        said, copied = losses(model, batch, tokenizer.pad_token_id)
        optimizer.zero_grad(set_to_none=True)
        (said + COPY_WEIGHT * copied).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % SHOW_EVERY == 0 or step == steps:
            seconds = time.perf_counter() - began
            print(f"step {step}: loss {said:.3f}, of copying {copied:.3f}, {seconds:.0f} s", flush=True)
    save_start(model, tokenizer, out)


def main(arguments: Sequence[str]) -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=START)
    chosen = parser.parse_args(arguments)
    train(chosen.steps, chosen.out)


if __name__ == "__main__":
    main(sys.argv[1:])

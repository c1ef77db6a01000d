"""Load exported files with `datasets` and train one step of TRL's trainers on each: `train_on_exports.py FOLDER OUT`.

A tiny random model, offline and on the CPU. Prints one JSON object: rows, what was loaded, the loss of the step, and
the loss on what tools said (between RESULT's marks) and on all else, over the batches as TRL's own collators make them.
With `--plain`, SFT trains without `assistant_only_loss`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch
from datasets import Dataset, load_dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification
from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    KTOConfig,
    KTOTrainer,
    RewardConfig,
    RewardTrainer,
    SFTConfig,
    SFTTrainer,
)
from trl.chat_template_utils import qwen2_5_chat_template

LOADERS = {"parquet": "parquet", "jsonl": "json"}
RESULT = re.compile(r"\[result:.*?:result\]", re.DOTALL)


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes with the chat template of Qwen 2.5, which renders tool calls."""
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE(vocab={name: place for place, name in enumerate(names)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    found = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    found.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    found.chat_template = qwen2_5_chat_template
    return found


def save_model(tok: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save a random model."""
    torch.manual_seed(0)
    made = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tok),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=4096,
            pad_token_id=tok.pad_token_id,
            eos_token_id=tok.eos_token_id,
            bos_token_id=None,
        )
    )
    made.save_pretrained(folder)


def load(folder: Path, name: str) -> Dataset:
    """Load one exported file as a user would."""
    path = next(path for path in folder.glob(f"{name}.*") if path.suffix[1:] in LOADERS)
    cache = folder / "cache"
    return load_dataset(LOADERS[path.suffix[1:]], data_files=str(path), split="train", cache_dir=str(cache))


def train(kind: str, data: Dataset, tok: PreTrainedTokenizerFast, weights: Path, out: Path, *, plain: bool) -> Any:
    """Train one step and return the loss, with that on what tools said and on all else where tokens have one."""
    shared: dict[str, Any] = {
        "output_dir": str(out / kind), "max_steps": 1, "per_device_train_batch_size": 2, "use_cpu": True, "bf16": False,
        "report_to": "none", "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1, "seed": 0,
        "gradient_checkpointing": False, "dataloader_pin_memory": False,
    }  # fmt: skip
    given: dict[str, Any] = {"model": str(weights), "train_dataset": data, "processing_class": tok}
    if kind in ("pairs", "steps"):
        trainer = DPOTrainer(args=DPOConfig(**shared, max_length=2048), **given)
    elif kind == "kto":
        trainer = KTOTrainer(args=KTOConfig(**shared, max_length=2048), **given)
    elif kind == "sft":
        config = SFTConfig(**shared, max_length=2048, assistant_only_loss=not plain)
        trainer = SFTTrainer(args=config, **given)
    elif kind == "reward":
        scorer = Qwen2ForSequenceClassification.from_pretrained(weights, num_labels=1)
        trainer = RewardTrainer(args=RewardConfig(**shared, max_length=2048), **(given | {"model": scorer}))
    else:
        config = GRPOConfig(**shared, num_generations=2, max_completion_length=4)
        trainer = GRPOTrainer(args=config, reward_funcs=_length, **given)
    losses = token_losses(trainer, tok) if kind in ("pairs", "steps", "kto", "sft") else {}
    return {"loss": float(trainer.train().training_loss), **losses}


def token_losses(trainer: Any, tok: PreTrainedTokenizerFast) -> dict[str, float]:
    """Return the summed loss on tokens of tools and on others, masked as the trainer does, and unmasked on the former.

    Every token is a byte or a mark, so that the place of a character is that of its token.
    """
    found = {"on_tools": 0.0, "on_others": 0.0, "unmasked_on_tools": 0.0}
    for batch in trainer.get_train_dataloader():
        ids = batch["input_ids"]
        with torch.no_grad():
            logits = trainer.model(input_ids=ids, attention_mask=batch["attention_mask"]).logits
        nll = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
        trained = batch["labels"][:, 1:] != -100 if "labels" in batch else batch["completion_mask"][:, 1:].bool()
        for row, losses, mask in zip(ids, nll, trained, strict=True):
            said = "".join("#" if at in tok.all_special_ids else tok.decode([at]) for at in row.tolist())
            of_tools = torch.zeros(len(row), dtype=torch.bool)
            for span in RESULT.finditer(said):
                of_tools[span.start() : span.end()] = True
            found["on_tools"] += float(losses[mask & of_tools[1:]].sum())
            found["on_others"] += float(losses[mask & ~of_tools[1:]].sum())
            found["unmasked_on_tools"] += float(losses[of_tools[1:]].sum())
    return found


def _length(completion_ids: list[list[int]], **_: object) -> list[float]:
    return [float(sum(ids) % 7) for ids in completion_ids]


def main(folder: Path, out: Path, *, plain: bool = False) -> None:
    """Train on every exported file in a folder, and a reward model on the pairs."""
    torch.set_num_threads(1)
    tok = tokenizer()
    weights = out / "model"
    save_model(tok, weights)
    found = {}
    for kind in ("pairs", "kto", "sft", "grpo", "steps", "reward"):
        data = load(folder, "pairs" if kind == "reward" else kind)
        first = data[0]
        said = first["prompt"] + first.get("chosen", first.get("completion", []))
        rendered = tok.apply_chat_template(said, tools=first["tools"], tokenize=False)
        losses = train(kind, data, tok, weights, out, plain=plain)
        found[kind] = {"rows": len(data), **losses, "first": first, "rendered": rendered}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), plain="--plain" in sys.argv)

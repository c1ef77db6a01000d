"""One run on a GPU: `python -m examples.reproduction.gpu baseline --seed 1 --steps 120 --out runs/baseline-1`.

The arms are the same; the policy is an instruction-tuned model of half a billion parameters or more, and vLLM samples
in the trainer's process. Sampler and trainer then compute different logprobs for the same tokens, and the recorder
keeps both. vLLM and the large model are untried here. The trainer and the recorder ran on an H100 with the small model
in bfloat16. Without a GPU, a test builds the settings and reads the recorder's plan.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

from examples.reproduction.arms import Setting

MODEL: Final = "Qwen/Qwen2.5-0.5B-Instruct"  # Qwen/Qwen2.5-1.5B-Instruct needs a GPU of 40 GB or more
LEARNING_RATE_FACTOR: Final = 0.01  # of an arm's: what moves 0.28 million parameters destroys half a billion
MICRO_BATCH: Final = 8  # sequences: logits over 150,000 tokens fill the memory
COMPLETION: Final = 512  # tokens: a large model explains itself
CONTEXT: Final = 1536  # tokens of prompt, which lists the tools, and completion
VLLM_MEMORY: Final = 0.3  # of the GPU's; the rest is for weights, gradients, optimizer, and the reference


def why_not() -> str | None:
    """Return why this machine cannot run it, or None if it can."""
    if find_spec("torch") is None or find_spec("vllm") is None:
        return "torch or vLLM is not installed: `pip install -r examples/reproduction/requirements-gpu.txt`"
    import torch

    return None if torch.cuda.is_available() else "torch finds no GPU"


def gpu_settings(setting: Setting, *, bf16: bool = True) -> dict[str, Any]:
    """Return the fields of GRPOConfig that differ from those of a run on a CPU."""
    from examples.reproduction.train import SEQUENCES

    return {
        "use_cpu": False, "bf16": bf16, "activation_checkpointing": True, "dataloader_pin_memory": True,
        "learning_rate": setting.learning_rate * LEARNING_RATE_FACTOR,
        "per_device_train_batch_size": MICRO_BATCH, "gradient_accumulation_steps": SEQUENCES // MICRO_BATCH,
        "max_completion_length": COMPLETION,
        "use_vllm": True, "vllm_mode": "colocate", "vllm_max_model_length": CONTEXT,
        "vllm_gpu_memory_utilization": VLLM_MEMORY,
        "vllm_importance_sampling_correction": True,  # old logprobs are then computed beside vLLM's: the mismatch
    }  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Read the arguments, train, and print the summary as the last line."""
    if (reason := why_not()) is not None:
        raise SystemExit(f"The GPU run cannot start: {reason}.")
    os.environ.setdefault("HF_HUB_OFFLINE", "0")  # the model is downloaded; before train.py, which goes offline
    import torch

    from examples.reproduction.train import parser_of, run

    parser = parser_of(__doc__)
    parser.add_argument("--model", default=MODEL)
    given = parser.parse_args(arguments)
    bf16 = torch.cuda.is_bf16_supported()

    def changed(setting: Setting) -> dict[str, Any]:
        return gpu_settings(setting, bf16=bf16)

    print(json.dumps(run(given, model=given.model, changed=changed)))


if __name__ == "__main__":
    main(sys.argv[1:])

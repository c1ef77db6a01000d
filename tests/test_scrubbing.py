"""What the scrubber masks in one text, what it leaves alone, and that columns are scrubbed as single texts are."""

from __future__ import annotations

import time

import polars as pl
import pytest
from planted_secrets import secrets
from slow_cases import first_fast

from ptt.diagnostics.scrub.scrub import Scrubber, Sort

SPARED = """
eos_token: <|endoftext|> pad_token='<pad>' tokenizer: Qwen2.5-7B-Instruct
step:12 - actor/entropy:0.5 - perf/max_memory_allocated_gb:40.1 - val-core/openai/gsm8k/acc/mean@1:0.3
pass@1: 0.5 maj@8 best@N/mean val/pass@k.mean rollout_corr/chi2_token:-5.9604644775390625e-05
commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b and its short form 9f86d08
wandb run 3x8k2l1p of https://wandb.ai, uuid 123e4567-e89b-12d3-a456-426614174000
Qwen2.5-7B-Instruct-GRPO-lr1e-6-beta0p04-seed42-step1000 meta-llama/Meta-Llama-3.1-8B-Instruct
nvidia-cudnn-cu12==8.9.2.26 cuda 12.1.3.1 nccl version 2.21.5.1 driver 535.104.05
torch.distributed.run trl.trainer.grpo_trainer self.actor.net model.to run.sh train.py threading.local()
File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1501, in _call_impl
OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity)
chatcmpl-9a8B7c6D5e4F3g2H1i0J9k8L7m6N5 call_AbCdEf1234567890AbCdEf12
checkpoint-1000/global_step_200/actor/model_world_size_8_rank_0.pt
Qwen2VLForConditionalGeneration LlamaForSequenceClassificationWithHead
token ' the' (id 262): logprob -1.2 sort_key=reward, cache_key=9f86d081884c7d659a2feaa0c55ad015
2026-01-01 12:34:56,789 INFO [trainer.py:123] 10:20:30:40
std::vector<at::Tensor> c10::Error c10d::ProcessGroupNCCL::WorkNCCL(SeqNum=123, OpType=ALLREDUCE)
KeyError: 'loss'; TypeError: token: str; ValueError: key: None; api_key: null hub_token: <HUB_TOKEN>
max_tokens: 512, num_tokens=123456, tokens_per_second: 1234.5 total_tokens=12345678901234567
user: What is 2+2? assistant: 4, the node rank 3, host memory 3 GiB, host-to-device copy, server started
http://localhost:8000 127.0.0.1:29500 0.0.0.0:8265 see https://pytorch.org/docs and https://huggingface.co/gpt2
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 as a digest
Authentication required; basic understanding; bearer of news; token limit exceeded; password authentication failed
"""


@pytest.mark.parametrize("seed", range(40))
def test_a_secret_is_masked_wherever_it_stands(seed: int) -> None:
    scrubber = Scrubber()
    missed = [
        (secret.kind, text)
        for secret in secrets(seed)
        for line in (
            secret.line,
            f"ERROR: {secret.line}",
            f'{{"text": "{secret.line}", "n": 1}}',
            f"a\n  {secret.line}\nb",
        )
        if any(part in (text := scrubber.text(line)) for part in secret.hidden)
    ]
    assert missed == []


@pytest.mark.parametrize("seed", range(40))
def test_a_name_that_is_a_secret_is_masked(seed: int) -> None:
    scrubber = Scrubber()
    for secret in secrets(seed):
        if secret.name:
            for text in (secret.name, f"env/{secret.name}/reward", f"{secret.name}.jsonl"):
                assert (
                    not any(part in scrubber.text(text, Sort.ID) for part in secret.hidden) or secret.kind == "random"
                )
                assert not any(part in scrubber.text(text, Sort.NAME) for part in secret.hidden)


@pytest.mark.parametrize("line", SPARED.strip().splitlines())
def test_what_a_run_is_read_by_is_left_alone(line: str) -> None:
    assert Scrubber().text(line) == line


def test_a_column_is_scrubbed_as_its_texts_are() -> None:
    lines = [secret.line for seed in range(8) for secret in secrets(seed)] + SPARED.splitlines()
    alone, together = Scrubber(), Scrubber()
    assert together.series(pl.Series([*lines, None])).to_list() == [*map(alone.text, lines), None]


def test_scrubbing_twice_is_scrubbing_once() -> None:
    scrubber = Scrubber()
    once = [scrubber.text(secret.line) for secret in secrets()]
    assert [Scrubber().text(line) for line in once] == once


def test_one_secret_has_one_mask_and_another_has_another() -> None:
    scrubber = Scrubber()
    first, second = (secret.line for secret in secrets() if secret.kind in ("github", "github cut"))
    assert scrubber.text(first) == scrubber.text(first) == "request failed with [github-pat-1], retry"
    assert scrubber.text(second) == "request failed with [github-pat-2], retry"


def test_no_two_paths_are_called_alike() -> None:
    keys = [next(one.hidden[0] for one in secrets(seed) if one.kind == "github") for seed in (1, 2)]
    paths = [f"a/{keys[0]}.log", "a/[github-pat-1].log", "a/[github-pat-1]'.log", f"a/{keys[1]}.log", "b.log"]
    found = Scrubber().paths(paths)
    assert len(set(found)) == len(paths)
    assert [name for name, path in zip(found, paths, strict=True) if name == path] == [*paths[1:3], "b.log"]
    assert all(name.endswith(".log") and name.startswith(path[:2]) for name, path in zip(found, paths, strict=True))
    assert not any(key in name for key in keys for name in found)


def test_a_setting_is_masked_by_its_name() -> None:
    scrubber = Scrubber()
    assert scrubber.setting("env.OPENAI_API_KEY", "abcd1234wxyz") == "[key-1]"
    assert scrubber.setting("db_password", "hunter") == "[password-1]"
    assert scrubber.setting("hostname", "kakapo") == "[host-1]"
    assert scrubber.setting("output_dir", "/home/kim/runs/grpo") == "~/runs/grpo"
    kept: dict[str, str | int] = {
        "hub_token": "<HUB_TOKEN>",
        "pad_token": "<|endoftext|>",
        "max_tokens": 512,
        "model": "Qwen/Qwen2.5-7B",
        "seed": 1,
        "run_id": "3x8k2l1p",
        "commit": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    }
    assert {name: scrubber.setting(name, value) for name, value in kept.items()} == kept


@pytest.mark.parametrize("text", first_fast(["key=", "token: ", "password='", 'api_key="', "--secret "]))
def test_text_that_names_keys_over_and_over_takes_time_by_its_length_alone(text: str) -> None:
    def seconds(length: int) -> float:
        start = time.process_time()
        Scrubber().text(text * (length // len(text)))
        return time.process_time() - start

    seconds(1000)
    assert seconds(200_000) < 1.5


def test_a_key_longer_than_what_tells_it_is_masked_to_its_end() -> None:
    key = "Zq8" + "aB3dE6fG9hJ2" * 60
    assert key[-40:] not in Scrubber().text(f"api_key={key} and on")
    assert Scrubber().text(f"api_key={key} and on").endswith(" and on")

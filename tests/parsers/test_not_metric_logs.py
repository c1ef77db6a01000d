"""Files that lie beside a run and are no logs of it: whoever takes them, no metric is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parser_samples import parser_named, run_file, table, takers
from samples_calls import jsonl

WORDS = ("the", "loss", "reward", "step", "entropy", "kl", "##ing", "epoch", "accuracy", "<unk>")
SOURCE = '''"""Train a policy. Prints `step 10 | loss 0.5 | reward 1.0` at each step."""
import torch

LEARNING_RATE = 1e-4
for step in range(100):
    loss = model(batch)
    print(f"step {step} | loss: {loss:.4f} | lr: {LEARNING_RATE}")
    metrics = {"loss": 0.5, "reward": 1.0}
    history.append({'loss': loss, 'reward': reward, 'step': step})
'''
README = """# A policy for a game

Training for 1000 steps takes 3 hours; the loss is 0.25 at the end, the reward 0.75.

| model | reward | accuracy |
|-------|--------|----------|
| base  | 0.25   | 0.5      |
| ours  | 0.75   | 0.625    |

    python train.py --lr 1e-4 --epochs 3 --kl 0.05
"""
CONFIG = """model: tiny
ppo:
  lr: 1.0e-4
  kl_coef: 0.05
  epochs: 3
  reward_scale: 1.0
  entropy: 0.01
"""
USAGE = """usage: train.py [-h] [--loss LOSS] [--steps STEPS]
                [--plot_loss [PLOT_LOSS]]
train.py: error: argument --fp16: expected one of yes/no, true/false, 1/0
"""
SERVER = "".join(
    f'10.0.0.{at} - - [01/Jan/2026:00:00:{at:02d} +0000] "GET /step/{at} HTTP/1.1" 200 {512 + at}\n' for at in range(20)
)
TRACKER = "".join(
    f"2026-01-01 00:00:{at:02d},123 INFO    MainThread:{4000 + at} [wandb_run.py:_tail():{at}] publishing step {at}\n"
    for at in range(20)
)
CONFIGURED = """2024-10-12 15:33:25,980 INFO    MainThread:88 [wandb_init.py:init():620] calling init triggers
config: {'out_dir': 'out', 'eval_interval': 250, 'batch_size': 64, 'learning_rate': 0.001, 'dropout': 0.2}
2024-10-12 15:33:26,120 INFO    MainThread:88 [wandb_init.py:init():660] starting backend
"""
AGENT = f"╭{'─' * 30} New run {'─' * 30}╮\n│ Weigh the cat. │\n" + "".join(
    f"━━━ Step {at} ━━━\n[Step {at}: Duration 3.{at} seconds| Input tokens: {at},983 | Output tokens: {at * 100}]\n"
    for at in range(1, 6)
)
INSTALL = """Collecting torch==2.1
  Downloading torch-2.1.0-cp311-cp311-manylinux1_x86_64.whl (670.2 MB)
Requirement already satisfied: numpy in /usr/lib/python3 (1.26)
Successfully installed torch-2.1.0
"""
TESTS = """collected 12 items

tests/test_loss.py ........                                             [ 66%]
tests/test_reward.py ....                                               [100%]

============================== 12 passed in 3.25s ==============================
"""
GAMES = "".join(f"Game {at}: guess 1 CRANE, guess 2 SLATE, solved in {2 + at % 3} turns\n" for at in range(12))
RUNS = "".join(
    f'"run-{at}","finished","-","2026-05-0{at}T14:08:33.000Z","732","64","0.001","5000","{1 + at / 8}","{2 - at / 8}"\n'
    for at in range(1, 6)
)
NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "source": ["train()"], "outputs": [{"text": ["step 1 loss 0.5\n", "step 2 loss 0.25\n"]}]}
    ],
    "nbformat": 4,
}
BOXES = "0 0.5 0.25 0.125 0.0625\n1 0.25 0.5 0.125 0.125\n0 0.75 0.5 0.25 0.0625\n"
QUESTIONS = "".join(f"What is {at} + 1?,{at},{at + 1},{at + 2},{at + 3},B\n" for at in range(12))

FILES: dict[str, Any] = {
    "vocab.txt": "\n".join(WORDS * 20),
    "vocab.json": {word: at for at, word in enumerate(WORDS)},
    "merges.txt": "#version: 0.2\n" + "".join(f"{one} {other}\n" for one in WORDS[:5] for other in WORDS[:5]),
    "dict.txt": "".join(f"{word} {1000 - at}\n" for at, word in enumerate(WORDS * 3)),
    "char_tokenizer.json": {"char_to_id": {"a": 0, "b": 1}, "id_to_char": {"0": "a", "1": "b", "2": "c"}},
    "special_tokens_map.json": {"eos_token": "</s>", "pad_token": "<pad>"},
    "adapter_config.json": {"r": 8, "lora_alpha": 32.0, "lora_dropout": 0.1, "target_modules": ["query_key_value"]},
    "pytorch_model.bin.index.json": {"metadata": {"total_size": 12}, "weight_map": {"layers.0.w": "model-1.bin"}},
    "tsconfig.json": {"compilerOptions": {"target": "es5", "strict": True}, "include": ["src"]},
    "yarn.lock": '# yarn lockfile v1\n\nloss@^1.0.0:\n  version "1.0.2"\n  resolved "https://r.example/loss.tgz"\n',
    "uv.lock": 'version = 1\n\n[[package]]\nname = "reward"\nversion = "0.5.1"\nsource = { registry = "x" }\n',
    "pip-freeze.txt": "loss==0.5\nreward==1.0\nkl==0.1.2\n",
    "train.py": SOURCE,
    "train_source.txt": SOURCE,
    "settings.log": "train_steps = 3500\nmuon_lr = 0.025\nval_loss = 0\noptimizer1 = AdamW(params, lr=0.3)\n",
    "README.md": README,
    "readme.txt": README,
    "config.yaml": CONFIG,
    "config.txt": CONFIG,
    "nohup.out": USAGE,
    "access.log": SERVER,
    "debug-internal.log": TRACKER,
    "debug.log": CONFIGURED,
    "agent_output.txt": AGENT,
    "ruled.log": f"2024-02-15 01:59:21,744 {'-' * 100}\n2024-02-15 01:59:21,745 Model: tiny\n" * 3,
    "install.log": INSTALL,
    "pytest.log": TESTS,
    "game_log.txt": GAMES,
    "analysis.ipynb": NOTEBOOK,
    "labels/frame_1.txt": BOXES,
    "questions.csv": QUESTIONS,
    "runs.csv": "Name,State,Notes,Created,Runtime,batch_size,learning_rate,iter,train/loss,val/loss\n" + RUNS,
    "graphs.csv": "graph_id,stress,edges\n" + "".join(f"graph{at}.1,{at + 0.5},{at}\n" for at in range(9)),
    "seeds.json": {
        "runs": [{"seed": at, "exact_match": 0.5, "reward_mean": 0.25, "kl_mean": 0.125} for at in (1, 2, 3)]
    },
    "arms.csv": "arm,seed,step,n_samples,pass_at_1\n" + "".join(f"a{at},{at},50,40,0.{at}\n" for at in range(1, 7)),
    "confidence.csv": "arm,seed,benchmark,pass_at_1,ci_lo,ci_hi\n" + "base,1,aime,0.25,0.125,0.375\n" * 4,
    "prices.csv": "Date,Open,High,Low,Close,Volume\n" + "".join(f"2026-01-0{d},1,2,1,{d},9\n" for d in range(1, 9)),
    "nli.jsonl": jsonl([{"annotator_labels": ["neutral"], "pairID": f"{at}#0", "gold_label": "x"} for at in range(5)]),
    "preferences.jsonl": jsonl([{"prompt": "Hi", "chosen": "Hello", "rejected": "No", "score": 0.5}] * 5),
    "predictions.jsonl": jsonl([{"labels": "yes", "predict": "no"}] * 5),
    "generations.jsonl": jsonl([{"question_id": at, "text": "An answer.", "model_id": "m"} for at in range(5)]),
    "annotations.json": {
        "images": [{"id": at, "width": 64} for at in range(3)],
        "annotations": [{"id": 1, "area": 2.5}],
    },
    "regions.json": {"a.jpg1": {"size": 1, "regions": {"0": {"shape_attributes": {"all_points_x": [1, 2, 3]}}}}},
    "map.geojson": {"type": "FeatureCollection", "features": [{"geometry": {"coordinates": [8.5, 47.25]}}] * 3},
    "timers.json": {"name": "root", "gauges": {"Policy.Entropy.mean": {"value": 1.5, "min": 1.0, "count": 4}}},
    "wandb-metadata.json": {"os": "Linux", "args": ["--lr", "1e-4"], "memory": {"total": 125.5}, "cpu_count": 16},
    "eval_report.json": {
        "benchmarks": {"mgsm": {"en": {"accuracy": 0.5, "n": 250}, "fr": {"accuracy": 0.25, "n": 250}}}
    },
    "poem.log": "The loss is great,\nthe reward is small;\nstep by step\nwe lose it all.\n",
}


@pytest.mark.parametrize("name", FILES)
def test_no_metric_is_read_from_what_is_no_log(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = FILES[name]
    content = content if isinstance(content, str | bytes) else json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    file = run_file(path)
    for taker in takers(file):
        assert table(list(parser_named(taker).read(file)), "metrics").is_empty()

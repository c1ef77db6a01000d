"""Logs in the shapes that training code in the open writes: what is measured, at which steps, counted in what."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from parser_samples import losses, pieces_of, table
from samples_calls import jsonl

from ptt.diagnostics.parsers import Context, Piece

Points = list[tuple[int, float | None]]


@dataclass(frozen=True)
class Shape:
    """A file as its writer leaves it, and one or more of its metrics, under the name in the file."""

    file: str
    content: bytes | str | list[Any] | dict[str, Any]
    metrics: dict[str, Points]
    unit: str | None = None  # what the rows are counted in, where that is no step


THREE: Points = [(1, 0.5), (2, 0.25), (3, 0.125)]
TENS: Points = [(10, 0.5), (20, 0.25), (30, 0.125)]


def lines(template: str, values: Points = THREE) -> str:
    """Write a line for each row: `{at}` is its step, `{value}` what is measured."""
    return "".join(template.format(at=at, value=value) + "\n" for at, value in values)


def read(folder: Path, shape: Shape) -> list[Piece]:
    path = folder / shape.file
    path.parent.mkdir(parents=True, exist_ok=True)
    content = shape.content if isinstance(shape.content, str | bytes) else json.dumps(shape.content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return pieces_of(path)


def points(pieces: list[Piece], name: str) -> Points:
    frame = table(pieces, "metrics").filter(pl.col("name_raw").str.strip_prefix("console:") == name)
    return [(step, value) for step, value in frame.sort("step", "seq").select("step", "value").iter_rows()]


def unit(pieces: list[Piece]) -> str | None:
    told = [piece.facts.get("row_unit") for piece in pieces if isinstance(piece, Context)]
    return next((str(one) for one in told if one is not None), None)


LIGHTNING = """epoch,step,train_loss_epoch,train_loss_step,val_loss
0,49,,6.5,
0,99,,6.25,
0,99,6.375,,6.0
1,149,,5.5,
"""
BASELINES = """reward/mean,nupdates,total_timesteps,loss/policy_loss,loss/value_loss
-7.5,1,2048,-0.125,4.0
-6.5,2,4096,-0.25,2.0
"""
SB3 = """time/fps,time/total_timesteps,rollout/ep_rew_mean,time/iterations,train/loss,train/n_updates,train/approx_kl
1449,1024,-7.75,1,,,
861,2048,-6.5,2,1.25,10,0.015625
774,3072,-5.5,3,0.75,20,0.03125
"""
MONITOR = """#{"t_start": 1700000000.5, "env_id": "CartPole-v1"}
r,l,t
16.0,16,4.9
31.0,31,5.1
12.0,12,5.2
"""
ULTRALYTICS = """                  epoch,         train/box_loss,         train/cls_loss,       metrics/mAP50(B)
                      1,                 0.9375,                  4.875,                0.03125
                      2,                0.90625,                   4.25,                 0.0625
"""
SPINNING_UP = """Epoch\tAverageEpRet\tStdEpRet\tTotalEnvInteracts\tLossPi\tLossV\tKL\tTime
0\t-78.5\t19.25\t10000\t0.5\t21.5\t0.00390625\t16.5
1\t-77.25\t17.75\t20000\t0.25\t15.75\t0.0078125\t33.25
"""
SPINNING_UP_COST = "Epoch\tAverageEpRet\tAverageEpCost\n1\t-0.5\t74.25\n2\t-0.375\t50.25\n"
FLAIR = """EPOCH\tTIMESTAMP\tLEARNING_RATE\tTRAIN_LOSS\tDEV_LOSS\tDEV_F1
1\t02:00:27\t0.0000\t0.625\t0.5\t0.6875
2\t02:09:34\t0.0000\t0.5\t0.375\t0.75
"""
RLLIB = """training_iteration,done,hostname,episode_reward_mean,timesteps_total,hist_stats/episode_reward,config
1,False,ip-10-0-0-1,nan,64,[],"{'lr': 0.001, 'gamma': 0.99}"
2,False,ip-10-0-0-1,-20.5,128,"[-20.0
 -21.0]","{'lr': 0.001, 'gamma': 0.99}"
3,True,ip-10-0-0-1,-18.25,192,"[-18.0, -18.5]","{'lr': 0.001, 'gamma': 0.99}"
"""
WANDB_CHART = """"Step","run-a - reward/mean","run-a - reward/mean__MIN","run-a - reward/mean__MAX"
"1","0.25","0.25","0.25"
"2","0.375","0.25","0.5"
"""
DETECTRON = [
    {"data_time": 0.0078125, "iteration": at, "loss_mask": 0.6875, "lr": 1e-5, "time": 18.0, "total_loss": loss}
    for at, loss in ((19, 2.0), (39, 1.75), (59, 1.5))
]
RLLIB_LINES = [
    {"training_iteration": at, "done": at == 3, "date": "2018-11-10_00-18-12", "episode_reward_mean": reward,
     "config": {"lr": 1e-3, "num_workers": 32}, "info": {"learner": {"cur_lr": 5e-4, "entropy": 1.5}}}
    for at, reward in ((1, -20.5), (2, -19.0), (3, -18.25))
]  # fmt: skip
LLAMA_FACTORY = [
    {"current_steps": at, "total_steps": 40, "loss": loss, "reward": None, "lr": 1e-4, "epoch": at / 40,
     "percentage": 2.5 * at, "elapsed_time": "0:00:26", "remaining_time": "0:45:50"}
    for at, loss in ((10, 3.5), (20, 2.0), (30, 1.25))
]  # fmt: skip
DETR = [
    {"train_lr": 1e-4, "train_loss": loss, "test_loss": loss + 1, "epoch": at, "n_parameters": 41302368}
    for at, loss in ((0, 8.0), (1, 6.5), (2, 6.0))
]
TRAJECTORY = [
    *({"loss": 0.0, "grad_norm": at / 8, "reward": -0.125, "reward_std": 0.0, "kl": 0.0, "epoch": at / 400, "step": at}
      for at in (1, 2, 3)),
    {"train_runtime": 812.5, "train_samples_per_second": 0.5, "train_loss": 0.0, "epoch": 0.0075, "step": 3},
]  # fmt: skip
MEGATRON = {
    "lm loss": {"start_step": 1, "end_step": 11, "step_interval": 5, "values": {"1": 10.5, "6": 10.25, "11": 10.0}},
    "num-zeros": {"start_step": 1, "end_step": 11, "step_interval": 5, "values": {"1": 1580.0, "6": 1900.0, "11": 1.0}},
}
PPO_ITERATIONS = {
    "config": {"n_iters": 3, "lr": 3e-6},
    "iterations": [
        {"iteration": at, "wallclock_seconds": 950.5, "n_episodes": 100, "mean_return": back, "approx_kl": 0.015625}
        for at, back in ((7, -26.5), (8, -22.0), (9, -20.0))
    ],
    "aborted": False,
    "total_wallclock_seconds": 2851.5,
}
COLUMNS_BY_STEP = {
    "config": {"hyperparams": {"learning_rate": 3e-4}},
    "metrics": {"step": [100, 102, 104], "critic_loss": [8.5, 8.0, 7.5], "reward": [-1.5, -1.25, -1.0]},
    "episodes": [1, 1, 2],
}
TABLES = {
    "Lightning's metrics.csv": Shape(
        "lightning_logs/version_0/metrics.csv",
        LIGHTNING,
        {"train_loss_step": [(49, 6.5), (99, 6.25), (149, 5.5)], "val_loss": [(99, 6.0)]},
    ),
    "stable-baselines3's progress.csv": Shape(
        "progress.csv",
        SB3,
        {
            "train/loss": [(2048, 1.25), (3072, 0.75)],
            "rollout/ep_rew_mean": [(1024, -7.75), (2048, -6.5), (3072, -5.5)],
        },
    ),
    "baselines' progress.csv": Shape("progress.csv", BASELINES, {"loss/value_loss": [(2048, 4.0), (4096, 2.0)]}),
    "Gym's monitor.csv": Shape("0.monitor.csv", MONITOR, {"reward": [(1, 16.0), (2, 31.0), (3, 12.0)]}, "episode"),
    "Ultralytics' results.csv": Shape(
        "runs/train/results.csv", ULTRALYTICS, {"train/box_loss": [(1, 0.9375), (2, 0.90625)]}, "epoch"
    ),
    "Spinning Up's progress.txt": Shape(
        "progress.txt",
        SPINNING_UP,
        {"AverageEpRet": [(0, -78.5), (1, -77.25)], "LossV": [(0, 21.5), (1, 15.75)]},
        "epoch",
    ),
    "returns and costs of Spinning Up": Shape(
        "progress.txt", SPINNING_UP_COST, {"AverageEpRet": [(1, -0.5), (2, -0.375)]}, "epoch"
    ),
    "Flair's loss.tsv": Shape("loss.tsv", FLAIR, {"TRAIN_LOSS": [(1, 0.625), (2, 0.5)]}, "epoch"),
    "RLlib's progress.csv": Shape("progress.csv", RLLIB, {"episode_reward_mean": [(1, None), (2, -20.5), (3, -18.25)]}),
    "a chart of W&B": Shape("wandb_export.csv", WANDB_CHART, {"reward/mean": [(1, 0.25), (2, 0.375)]}),
    "a curve of TensorBoard": Shape(
        "run-.-tag-val_loss.csv",
        "Wall time,Step,Value\n1559699797.5,0,5.25\n1559702341.5,1,5.5\n",
        {"val_loss": [(0, 5.25), (1, 5.5)]},
    ),
    "a table of episodes": Shape(
        "ppo_log.csv",
        "Episode,Avg length,Avg reward\n200,99,-7.0\n400,98,-6.5\n600,97,-6.0\n",
        {"Avg reward": [(200, -7.0), (400, -6.5), (600, -6.0)]},
        "episode",
    ),
    "episodes over timesteps": Shape(
        "PPO_carla_0.csv",
        "episode,timestep,reward\n5,2053,177.5\n10,4065,162.25\n15,5843,198.5\n",
        {"reward": [(2053, 177.5), (4065, 162.25), (5843, 198.5)]},
    ),
    "a table with texts in its cells": Shape(
        "training_metrics.csv",
        "step,epoch,loss,val_loss,gpu\n2,0.01,2.5,None,8.2GB / 11GB\n4,0.03,2.25,1.5,8.2GB / 11GB\n",
        {"loss": [(2, 2.5), (4, 2.25)]},
    ),
}
DOCUMENTS = {
    "Detectron2's metrics.json": Shape(
        "output/metrics.json",
        jsonl(DETECTRON),
        {"total_loss": [(19, 2.0), (39, 1.75), (59, 1.5)], "loss_mask": [(19, 0.6875), (39, 0.6875), (59, 0.6875)]},
    ),
    "RLlib's result.json": Shape(
        "result.json", jsonl(RLLIB_LINES), {"episode_reward_mean": [(1, -20.5), (2, -19.0), (3, -18.25)]}
    ),
    "LLaMA-Factory's trainer_log.jsonl": Shape(
        "trainer_log.jsonl", jsonl(LLAMA_FACTORY), {"loss": [(10, 3.5), (20, 2.0), (30, 1.25)], "reward": []}
    ),
    "DETR's log.txt": Shape("log.txt", jsonl(DETR), {"train_loss": [(0, 8.0), (1, 6.5), (2, 6.0)]}, "epoch"),
    "a log history alone": Shape("trajectory.json", TRAJECTORY, {"grad_norm": [(1, 0.125), (2, 0.25), (3, 0.375)]}),
    "Megatron's golden values": Shape(
        "golden_values_dev.json", MEGATRON, {"lm loss": [(1, 10.5), (6, 10.25), (11, 10.0)]}
    ),
    "iterations below settings": Shape(
        "ppo_training_log.json", PPO_ITERATIONS, {"mean_return": [(7, -26.5), (8, -22.0), (9, -20.0)]}
    ),
    "columns below settings": Shape(
        "training_log.json", COLUMNS_BY_STEP, {"critic_loss": [(100, 8.5), (102, 8.0), (104, 7.5)]}
    ),
    "Keras' history": Shape(
        "history.json",
        {"loss": [1.5, 1.25, 1.0], "accuracy": [0.25, 0.5, 0.75], "val_loss": [1.75, 1.5, 1.5]},
        {"loss": [(1, 1.5), (2, 1.25), (3, 1.0)]},
        "row",
    ),
    "lists of epochs": Shape(
        "results/training_history.json",
        {
            "train_losses": [6.25, 5.25, 5.0],
            "val_losses": [6.0, 5.5, 5.25],
            "stopped_early": True,
            "config": {"d_model": 256},
        },
        {"train_losses": [(1, 6.25), (2, 5.25), (3, 5.0)]},
        "row",
    ),
    "losses by split over their iterations": Shape(
        "checkpoints/training_log.json",
        {
            "final_train_loss": 2.0,
            "loss_history": {"train": [4.25, 2.5, 2.0], "val": [4.25, 2.75, 2.25], "iters": [0, 250, 500]},
        },
        {"loss_history/train": [(0, 4.25), (250, 2.5), (500, 2.0)]},
    ),
    "losses by the time of their row": Shape(
        "training_log.json",
        [
            {"timestamp": f"2025-10-27 17:{38 + at}:21", "samples": 10 * at, "device": 0, "avg_loss": value}
            for at, value in THREE
        ],
        {"avg_loss": THREE},
        "row",
    ),
    "losses of an actor and a critic": Shape(
        "metrics.json",
        [{"step": at, "actor_loss": 5.0 - at, "critic_loss": 8.0, "alpha": 0.25} for at in range(3)],
        {"actor_loss": [(0, 5.0), (1, 4.0), (2, 3.0)]},
    ),
    "TensorBoard's curve as JSON": Shape(
        "run-ppo_1-tag-charts_episodic_return.json",
        [[1.7e9, 128, 21.0], [1.7e9 + 9, 256, 34.5]],
        {"charts_episodic_return": [(128, 21.0), (256, 34.5)]},
    ),
}
VERL = (
    "\x1b[36m(main_task pid=2105103)\x1b[0m step:{at} - global_seqlen/mean:5119.25 - actor/entropy_loss:{value}"
    " - actor/grad_norm:0.25 - mfu/actor:0.125"
)
BOX = """Using cpu device
---------------------------------
| rollout/           |          |
|    ep_len_mean     | 134      |
|    ep_rew_mean     | 87.5     |
| time/              |          |
|    total_timesteps | 2048     |
---------------------------------
-----------------------------------------
| rollout/                |             |
|    ep_len_mean          | 139         |
|    ep_rew_mean          | 92.25       |
| time/                   |             |
|    total_timesteps      | 4096        |
| train/                  |             |
|    approx_kl            | 0.015625    |
|    loss                 | 12.5        |
-----------------------------------------
"""
FRAMES = """Logging to logs
-----------------------------
| Episode Reward | 0.25     |
| frame          | 256      |
| value loss     | 0.5      |
-----------------------------
-----------------------------
| Episode Reward | 0.5      |
| frame          | 512      |
| value loss     | 0.25     |
-----------------------------
"""
OLMO = """2025-12-27 22:12:56.867\tsome-host:0\tolmo.train:990\tINFO\t[step={at}0/100,epoch=0]
    train/CrossEntropyLoss={value}
    train/Perplexity=8,624
    throughput/device/tokens_per_second=81,920"""
DEEPSPEED_CHAT = """epoch: 0|step: {at}|ppo_ep: 1|act_loss: {value}|cri_loss: 0.125|unsuper_loss: 0.0
average reward score: 0.375
-------------------------------------------------------------------------------------"""
MEGATRON_LINE = (
    " [2026-01-01 00:00:01] iteration       {at}0/     500 | consumed samples:        320 | elapsed time per iteration "
    "(ms): 812.5 | learning rate: 1.500000E-06 | global batch size:    32 | lm loss: {value} | loss scale: 1.0 "
    "| grad norm: 2.500 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
OPENRLHF = "".join(
    f"\rTrain epoch [1/1]:  {25 * at}%|##        | {at}/4 [00:1{at}<00:30, 10.0s/it, policy_loss={value}, "
    "actor_lr=5e-7, kl=0.0625, reward=0.5, return=0.25, response_length=128]"
    for at, value in THREE
)
NEMO_RL = """========================= Step {at}/100 =========================
▶ Generating responses for batch of size 32...
📊 Training Results:
  • Loss: {value}
  • Avg Reward: 0.375
  • Mean Generation Length: 128.0000

⏱️  Timing:
  • Total step time: 18.25s"""
ML_AGENTS = (
    "[INFO] Walker. Step: {at}0000. Time Elapsed: 21.125 s. Mean Reward: {value}. Std of Reward: 0.500. Training."
)
NANOGPT = """step 0: train loss 4.5, val loss 4.25
iter 0: loss 4.5, time 23218.37ms, mfu -100.00%
iter 1: loss 4.25, time 193.77ms, mfu 0.25%
"""
BUILD_NANOGPT = "step     {at} | loss: {value} | lr 6.0000e-04 | norm: 15.25 | dt: 192.47ms | tok/sec: 27374.43"
NANOCHAT = (
    "step 0000{at}/21400 (0.00%) | loss: {value} | lrm: 1.00 | dt: 1029.12ms | tok/sec: 509,437 | mfu: 48.12 "
    "| total time: 0.02m"
)
MLX = (
    "Iter {at}0: Train loss {value}, Learning Rate 1.000e-05, It/sec 0.250, Tokens/sec 128.500, Trained Tokens 1024, "
    "Peak mem 12.125 GB"
)
OPENNMT = (
    "[2024-01-01 00:00:01,512 INFO] Step {at}00/100000; acc: 12.5; ppl: 812.5; xent: {value}; lr: 0.00025; "
    "sents: 2048; bsz: 1024"
)
FLAIR_LINE = (
    "2024-02-15 01:51:45,969 epoch 1 - iter {at}0/40 - loss {value} - time (sec): 72.22 - samples/sec: 138.46 "
    "- lr: 0.000025"
)
FAIRSEQ = (
    "2024-01-01 00:00:01 | INFO | train_inner | epoch 001:     {at}0 / 500 loss={value}, ppl=64.5, wps=1024.5, "
    "num_updates={at}0, lr=0.000125, gnorm=2.5"
)
MMENGINE = (
    "2024/01/01 00:00:01 - mmengine - INFO - Epoch(train)  [1][{at}0/100]  lr: 1.0000e-03  eta: 0:10:12  "
    "time: 0.5125  data_time: 0.0125  memory: 2048  loss: {value}"
)
DETECTRON_LINE = (
    "[01/01 00:00:01 d2.utils.events]:  eta: 0:10:12  iter: {at}0  total_loss: {value}  loss_cls: 0.125  time: 0.5125"
    "  data_time: 0.0125  lr: 1e-05  max_mem: 2048M"
)
KERAS = """Epoch {at}/3
10/10 [==============================] - 1s 12ms/step - loss: {value} - accuracy: 0.5000"""
BATCHES = "[04:16:03] Batch {at}0/15000 | Loss: {value} | Student: 37.25 | Distill: 4.75 | Time: 37.9s | ETA: 146.8h"
RUNNING = (
    "[INFO|2024-11-26 22:09:01] logging.py:157 >> {{'loss': {value}, 'learning_rate': 2.5e-06, 'epoch': 0.{at}}}\n"
)
LOGGED_EPOCHS = """2025-08-29 02:40:41,503 - INFO - Epoch {at} complete:
2025-08-29 02:40:41,503 - INFO -   Avg Reward: 0.375
2025-08-29 02:40:41,503 - INFO -   Avg Loss: {value}"""
SPLIT_EPOCHS = """Epoch {at}:
Train: {value} (13783.75s)
Val:   0.25 (535.96s)
"""
FEDERATED = "[ROUND {at}/50] clients: 8, loss: {value}, accuracy: 0.5"
EPOCHS_BESIDE_BARS = """Epoch 1/3
Train Loss: 0.5 - Train Perplexity: 1.625
Epoch 2/3:  50%|##   | 5/10 [00:01<00:01, 5.00it/s, loss=0.375]
Epoch 2/3: 100%|#####| 10/10 [00:02<00:00, 5.00it/s, loss=0.25]
Epoch 2/3
Train Loss: 0.25 - Train Perplexity: 1.25
Epoch 3/3: 100%|#####| 10/10 [00:02<00:00, 5.00it/s, loss=0.125]
Epoch 3/3
Train Loss: 0.125 - Train Perplexity: 1.125
"""
CONSOLES = {
    "veRL below Ray": Shape("run.log", lines(VERL), {"actor/entropy_loss": THREE}),
    "boxes of stable-baselines3": Shape(
        "train.log", BOX, {"rollout/ep_rew_mean": [(2048, 87.5), (4096, 92.25)], "train/loss": [(4096, 12.5)]}
    ),
    "boxes of Baselines over frames": Shape("log.txt", FRAMES, {"value loss": [(256, 0.5), (512, 0.25)]}),
    "blocks of OLMo": Shape(
        "train.log", lines(OLMO), {"train/CrossEntropyLoss": TENS, "train/Perplexity": [(at, 8624.0) for at, _ in TENS]}
    ),
    "DeepSpeed-Chat": Shape("training.log", lines(DEEPSPEED_CHAT), {"act_loss": THREE}),
    "Megatron": Shape("megatron.log", lines(MEGATRON_LINE), {"lm loss": TENS}),
    "bars of OpenRLHF": Shape("train_ppo.log", OPENRLHF + "\n", {"policy_loss": THREE}),
    "steps of NeMo-RL": Shape("ray-driver.log", lines(NEMO_RL), {"Loss": THREE}),
    "ML-Agents": Shape("training.log", lines(ML_AGENTS), {"Mean Reward": [(at * 10000, value) for at, value in THREE]}),
    "nanoGPT": Shape("output.log", NANOGPT, {"loss": [(0, 4.5), (1, 4.25)], "val loss": [(0, 4.25)]}),
    "build-nanogpt's console": Shape(
        "nanogpt.out",
        "validation loss: 10.9531\n" + lines(BUILD_NANOGPT),
        {"loss": THREE, "norm": [(at, 15.25) for at, _ in THREE]},
    ),
    "build-nanogpt's log": Shape(
        "log.txt",
        "0 val 10.9531\n0 hella 0.2500\n" + lines("{at} train {value}"),
        {"train": THREE, "val": [(0, 10.9531)]},
    ),
    "modded-nanogpt": Shape(
        "log.txt", lines("step:{at}/6200 train_loss:{value} train_time:216ms step_avg:216.33ms"), {"train_loss": THREE}
    ),
    "llm.c": Shape(
        "main.log",
        "s:0 tel:11.0000\n" + lines("s:{at} trl:{value} lr:0.000002 norm:15.25"),
        {"trl": THREE, "tel": [(0, 11.0)]},
    ),
    "nanochat": Shape("base_train.log", lines(NANOCHAT), {"loss": THREE}),
    "MLX": Shape("lora.log", lines(MLX), {"Train loss": TENS}),
    "OpenNMT": Shape("train.log", lines(OPENNMT), {"xent": [(at * 100, value) for at, value in THREE]}),
    "Flair": Shape("training.log", lines(FLAIR_LINE), {"loss": TENS}),
    "fairseq": Shape("train.log", lines(FAIRSEQ), {"loss": TENS}),
    "MindSpore": Shape("train.log", lines("epoch: 1 step: {at}, loss is {value}"), {"loss": THREE}),
    "MMEngine": Shape("20240101_000000.log", lines(MMENGINE), {"loss": TENS}),
    "Detectron2": Shape("log.txt", lines(DETECTRON_LINE), {"total_loss": TENS}),
    "Keras' bar": Shape("keras.log", lines(KERAS), {"loss": TENS}),
    "episodes between bars": Shape(
        "ppo_train.log",
        lines("Episode {at}0/1000 | Reward: {value} | Accept: 22.5% | Loss: 0.0000 | ETA: 43.0m"),
        {"Reward": TENS},
        "episode",
    ),
    "episodes behind a logger": Shape(
        "training.log",
        lines("INFO:root:Episode {at}0 | Avg Reward: {value} | Epsilon: 0.990 | Win Rate: 45.00%"),
        {"Avg Reward": TENS},
        "episode",
    ),
    "names and numbers between blanks": Shape(
        "log_1.txt",
        lines("[INFO] 2025-11-03 10:37:15 Episode {at} reward -16.500 eps {value}"),
        {"reward": [(at, -16.5) for at, _ in THREE], "eps": THREE},
        "episode",
    ),
    "batches": Shape("log.txt", lines(BATCHES), {"Loss": TENS}),
    "LLaMA-Factory's running log": Shape("running_log.txt", lines(RUNNING), {"loss": THREE}, "row"),
    "epochs told by a logger": Shape("train.log", lines(LOGGED_EPOCHS), {"Avg Loss": THREE}, "epoch"),
    "losses by split below an epoch": Shape(
        "training_logs.txt", lines(SPLIT_EPOCHS), {"Train": THREE, "Val": [(at, 0.25) for at, _ in THREE]}, "epoch"
    ),
    "epochs, the first of them before any bar": Shape(
        "classic.txt", EPOCHS_BESIDE_BARS, {"Train Loss": THREE, "loss": [(15, 0.375), (20, 0.25), (30, 0.125)]}
    ),
    "rounds of federated learning": Shape(
        "server.log", lines(FEDERATED), {"loss": THREE, "accuracy": [(at, 0.5) for at, _ in THREE]}
    ),
    "cycles": Shape(
        "training.log", lines("after cycle={at} avg(utility)={value} avg(num_wins)=0.35"), {"avg(utility)": THREE}
    ),
}
SHAPES = TABLES | DOCUMENTS | CONSOLES


@pytest.mark.parametrize("name", SHAPES)
def test_a_log_in_the_shape_of_its_writer_is_read(tmp_path: Path, name: str) -> None:
    shape = SHAPES[name]
    pieces = read(tmp_path, shape)
    assert {metric: points(pieces, metric) for metric in shape.metrics} == shape.metrics
    assert unit(pieces) == shape.unit
    assert losses(pieces)[:2] == (0, 0)


MEANINGS = {
    ("blocks of OLMo", "train/CrossEntropyLoss"): "loss/total",
    ("llm.c", "trl"): "loss/total",
    ("llm.c", "tel"): "eval/loss",
    ("DeepSpeed-Chat", "act_loss"): "loss/policy",
    ("DeepSpeed-Chat", "cri_loss"): "critic/value_loss",
    ("DeepSpeed-Chat", "average reward score"): "reward/mean",
    ("Megatron", "lm loss"): "loss/total",
    ("boxes of stable-baselines3", "rollout/ep_rew_mean"): "reward/mean",
    ("Spinning Up's progress.txt", "AverageEpRet"): "reward/mean",
    ("Spinning Up's progress.txt", "LossV"): "critic/value_loss",
}


@pytest.mark.parametrize(("shape", "raw"), MEANINGS)
def test_a_writers_own_names_are_known(tmp_path: Path, shape: str, raw: str) -> None:
    metrics = table(read(tmp_path, SHAPES[shape]), "metrics")
    named = metrics.filter(pl.col("name_raw").str.strip_prefix("console:") == raw)
    assert named["name"].unique().to_list() == [MEANINGS[shape, raw]]

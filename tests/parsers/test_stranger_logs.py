# ruff: noqa: E501 - lines as they are printed
"""Logs as the training scripts of many projects print them: each form with the rows that a reader would see in it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from parser_samples import losses, pieces_of, run_file, table, takers


class Form(NamedTuple):
    """A file, and the points of its curves."""

    name: str
    text: str
    curves: dict[str, list[tuple[int, float]]]


def lines(*rows: str) -> str:
    return "".join(f"{row}\n" for row in rows)


NAN = math.nan
MARKS = "2024-05-01 12:00:0{},123 INFO [trainer.py:88] "

CONSOLES: dict[str, Form] = {
    "nanoGPT": Form(
        "train.log",
        lines(
            "number of parameters: 10.65M",
            "step 0: train loss 4.2874, val loss 4.2823",
            "iter 0: loss 4.2661, time 9000.10ms, mfu -100.00%",
            "iter 10: loss 3.2457, time 32.11ms, mfu 11.60%",
            "step 20: train loss 2.5, val loss 2.75",
            "iter 20: loss 2.7914, time 30.40ms, mfu 11.70%",
        ),
        {
            "loss": [(0, 4.2661), (10, 3.2457), (20, 2.7914)],
            "train loss": [(0, 4.2874), (20, 2.5)],
            "val loss": [(0, 4.2823), (20, 2.75)],
        },
    ),
    "llama2.c": Form(
        "out.txt",
        lines(
            "step 0: train loss 10.4, val loss 10.5",
            "0 | loss 10.4103 | lr 0.000000e+00 | 6000.10ms | mfu -100.00%",
            "1 | loss 10.3 | lr 5.000000e-07 | 900.00ms | mfu -100.00%",
            "2 | loss 10.2 | lr 1.000000e-06 | 901.00ms | mfu 12.50%",
        ),
        {"loss": [(0, 10.4103), (1, 10.3), (2, 10.2)], "lr": [(0, 0.0), (1, 5e-7), (2, 1e-6)]},
    ),
    "minGPT": Form(
        "nohup.out",
        lines(
            "iter_dt 0.00ms; iter 0: train loss 4.19",
            "iter_dt 89.11ms; iter 10: train loss 3.5",
            "iter_dt 88.20ms; iter 20: train loss 3.25",
        ),
        {"train loss": [(0, 4.19), (10, 3.5), (20, 3.25)]},
    ),
    "CleanRL": Form(
        "ppo.log",
        lines(
            "SPS: 1023",
            "global_step=128, episodic_return=22.0",
            "global_step=256, episodic_return=31.0",
            "SPS: 1103",
            "global_step=384, episodic_return=[45.]",
        ),
        {"episodic_return": [(128, 22.0), (256, 31.0), (384, 45.0)]},
    ),
    "stable-baselines3": Form(
        "sb3.log",
        "".join(
            "-----------------------------------------\n"
            "| rollout/                |             |\n"
            f"|    ep_rew_mean          | {reward}        |\n"
            "| time/                   |             |\n"
            f"|    total_timesteps      | {step}        |\n"
            "| train/                  |             |\n"
            f"|    approx_kl            | {kl} |\n"
            "-----------------------------------------\n"
            for step, reward, kl in ((2048, 21.5, "0.0085"), (4096, 26.25, "1.2e-05"), (6144, 31, "0.0101"))
        ),
        {
            "rollout/ep_rew_mean": [(2048, 21.5), (4096, 26.25), (6144, 31.0)],
            "train/approx_kl": [(2048, 0.0085), (4096, 1.2e-5), (6144, 0.0101)],
        },
    ),
    "Spinning Up": Form(
        "spinup.txt",
        "".join(
            "---------------------------------------\n"
            f"|             Epoch |              {epoch} |\n"
            f"|      AverageEpRet |            {ret} |\n"
            f"|          StdEpRet |            9.25 |\n"
            f"| TotalEnvInteracts |           {4000 * (epoch + 1)} |\n"
            f"|            LossPi |       {loss} |\n"
            "---------------------------------------\n"
            for epoch, ret, loss in ((0, 20.5, "-1.2e-05"), (1, 28.25, "-0.01"), (2, 41, "-0.02"))
        ),
        {
            "AverageEpRet": [(4000, 20.5), (8000, 28.25), (12000, 41.0)],
            "LossPi": [(4000, -1.2e-5), (8000, -0.01), (12000, -0.02)],
        },
    ),
    "rsl_rl": Form(
        "rsl.log",
        "".join(
            "################################################################################\n"
            f"                      Learning iteration {step}/1500                      \n"
            "\n"
            "                       Computation: 31034 steps/s (collection: 2.896s, learning 0.272s)\n"
            f"               Value function loss: {value}\n"
            "                    Surrogate loss: -0.0105\n"
            "             Mean action noise std: 0.99\n"
            f"                       Mean reward: {reward}\n"
            "               Mean episode length: 21.18\n"
            "--------------------------------------------------------------------------------\n"
            "                   Total timesteps: 98304\n"
            "                    Iteration time: 3.17s\n"
            "                        Total time: 3.17s\n"
            "                               ETA: 4751.7s\n"
            for step, reward, value in ((0, -1.5, 0.25), (1, 0.5, 0.125), (2, 3.2, 0.0625))
        ),
        {
            "Mean reward": [(0, -1.5), (1, 0.5), (2, 3.2)],
            "Value function loss": [(0, 0.25), (1, 0.125), (2, 0.0625)],
            "Surrogate loss": [(0, -0.0105), (1, -0.0105), (2, -0.0105)],
        },
    ),
    "PyTorch's DQN tutorial, as forked": Form(
        "dqn.log",
        lines(
            "Episode 1/500, Score: 12, Epsilon: 0.99, Average: 12.0",
            "Episode 2/500, Score: 15, Epsilon: 0.98, Average: 13.5",
            "Episode 3/500, Score: 9, Epsilon: 0.97, Average: 12.0",
        ),
        {
            "console:Score": [(1, 12.0), (2, 15.0), (3, 9.0)],
            "console:Epsilon": [(1, 0.99), (2, 0.98), (3, 0.97)],
            "console:Average": [(1, 12.0), (2, 13.5), (3, 12.0)],
        },
    ),
    "a blank between name and number": Form(
        "episodes.log",
        lines(
            "Episode 120 Reward: 13.5 Epsilon 0.3 Average: 12",
            "Episode 140 Reward: 14.5 Epsilon 0.2 Average: 13",
            "Episode 160 Reward: 15.5 Epsilon 0.1 Average: 14",
        ),
        {
            "console:Reward": [(120, 13.5), (140, 14.5), (160, 15.5)],
            "console:Epsilon": [(120, 0.3), (140, 0.2), (160, 0.1)],
            "console:Average": [(120, 12.0), (140, 13.0), (160, 14.0)],
        },
    ),
    "keon's DQN": Form(
        "keon.log",
        lines(
            "episode: 0/1000, score: 11, e: 1.0",
            "episode: 1/1000, score: 19, e: 0.95",
            "episode: 2/1000, score: 33, e: 0.9",
        ),
        {"console:score": [(0, 11.0), (1, 19.0), (2, 33.0)], "console:e": [(0, 1.0), (1, 0.95), (2, 0.9)]},
    ),
    "short names": Form(
        "ep.log",
        lines("ep 5/200, score=12", "ep 10/200, score=18", "ep 15/200, score=25"),
        {"console:score": [(5, 12.0), (10, 18.0), (15, 25.0)]},
    ),
    "Udacity's": Form(
        "udacity.log",
        "\rEpisode 99\tAverage Score: -1.25\rEpisode 100\tAverage Score: -0.5\n"
        "\rEpisode 200\tAverage Score: 12.75\n\rEpisode 300\tAverage Score: 100.25\n",
        {"console:Average Score": [(99, -1.25), (100, -0.5), (200, 12.75), (300, 100.25)]},
    ),
    "PyTorch's actor-critic example": Form(
        "ac.txt",
        lines(
            "Episode 10\tLast reward: 12.00\tAverage reward: 10.50",
            "Episode 20\tLast reward: 42.00\tAverage reward: 14.25",
            "Episode 30\tLast reward: 30.00\tAverage reward: 18.00",
        ),
        {
            "console:Last reward": [(10, 12.0), (20, 42.0), (30, 30.0)],
            "console:Average reward": [(10, 10.5), (20, 14.25), (30, 18.0)],
        },
    ),
    "PyTorch's MNIST example": Form(
        "mnist.log",
        lines(
            "Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300039",
            "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.213470",
            "",
            "Test set: Average loss: 0.0525, Accuracy: 9828/10000 (98%)",
            "",
            "Train Epoch: 2 [0/60000 (0%)]\tLoss: 0.25",
            "Train Epoch: 2 [640/60000 (1%)]\tLoss: 0.125",
        ),
        {"Loss": [(0, 2.300039), (640, 2.21347), (60000, 0.25), (60640, 0.125)]},
    ),
    "PyTorch's ImageNet example": Form(
        "imagenet.log",
        lines(
            "Epoch: [0][  0/500]\tTime  9.000 ( 9.000)\tData  3.000 ( 3.000)\tLoss 7.0e+00 (7.0e+00)\tAcc@1   0.39 (  0.39)",
            "Epoch: [0][ 10/500]\tTime  0.250 ( 0.500)\tData  0.001 ( 0.250)\tLoss 6.9e+00 (6.95e+00)\tAcc@1   0.78 (  0.50)",
            "Epoch: [1][  0/500]\tTime  0.250 ( 0.500)\tData  0.001 ( 0.250)\tLoss 5.0e+00 (5.0e+00)\tAcc@1   1.25 (  1.25)",
        ),
        {"Loss": [(0, 7.0), (10, 6.9), (500, 5.0)], "Acc@1": [(0, 0.39), (10, 0.78), (500, 1.25)]},
    ),
    "Keras": Form(
        "keras.log",
        lines(
            "Epoch 1/3",
            "1875/1875 [==============================] - 5s 2ms/step - loss: 0.29 - accuracy: 0.91 - val_loss: 0.14 - val_accuracy: 0.95",
            "Epoch 2/3",
            "1875/1875 [==============================] - 4s 2ms/step - loss: 0.14 - accuracy: 0.95 - val_loss: 0.10 - val_accuracy: 0.96",
            "Epoch 3/3",
            "1875/1875 [==============================] - 4s 2ms/step - loss: 0.10 - accuracy: 0.97 - val_loss: 0.09 - val_accuracy: 0.97",
        ),
        {"loss": [(1875, 0.29), (3750, 0.14), (5625, 0.10)], "val_loss": [(1875, 0.14), (3750, 0.10), (5625, 0.09)]},
    ),
    "Keras 3, redirected": Form(
        "keras3.log",
        lines(
            "Epoch 1/2",
            "\x1b[1m  1/100\x1b[0m \x1b[37m━━━━━━━━━━━━━━━━━━━━\x1b[0m \x1b[1m10s\x1b[0m 100ms/step - accuracy: 0.10 - loss: 2.30",
            "\x1b[1m100/100\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m1s\x1b[0m 3ms/step - accuracy: 0.50 - loss: 1.50",
            "Epoch 2/2",
            "\x1b[1m100/100\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m1s\x1b[0m 3ms/step - accuracy: 0.75 - loss: 1.00",
        ),
        {"loss": [(1, 2.3), (100, 1.5), (200, 1.0)], "accuracy": [(1, 0.1), (100, 0.5), (200, 0.75)]},
    ),
    "Keras, one line an epoch": Form(
        "verbose2.log",
        lines(
            "Epoch 1/3",
            "32/32 - 1s - loss: 0.9 - accuracy: 0.5 - 1s/epoch - 31ms/step",
            "Epoch 2/3",
            "32/32 - 0s - loss: 0.6 - accuracy: 0.7 - 90ms/epoch - 3ms/step",
            "Epoch 3/3",
            "32/32 - 0s - loss: 0.4 - accuracy: 0.8 - 91ms/epoch - 3ms/step",
        ),
        {"loss": [(32, 0.9), (64, 0.6), (96, 0.4)], "accuracy": [(32, 0.5), (64, 0.7), (96, 0.8)]},
    ),
    "fastai": Form(
        "fastai.txt",
        lines(
            "epoch     train_loss  valid_loss  accuracy  time    ",
            "0         0.503120    0.413210    0.812500  00:12     ",
            "1         0.403120    0.363210    0.843750  00:12     ",
            "2         0.303120    0.343210    0.875000  00:12     ",
        ),
        {
            "console:train_loss": [(0, 0.50312), (1, 0.40312), (2, 0.30312)],
            "console:valid_loss": [(0, 0.41321), (1, 0.36321), (2, 0.34321)],
            "console:accuracy": [(0, 0.8125), (1, 0.84375), (2, 0.875)],
        },
    ),
    "MMEngine": Form(
        "mm.log",
        lines(
            "2024/05/01 12:00:01 - mmengine - INFO - Epoch(train)  [1][ 50/100]  lr: 1.0000e-02  eta: 0:01:00  time: 0.2  data_time: 0.01  memory: 3000  loss: 2.3026  grad_norm: 1.5",
            "2024/05/01 12:00:11 - mmengine - INFO - Epoch(train)  [1][100/100]  lr: 1.0000e-02  eta: 0:00:50  time: 0.2  data_time: 0.01  memory: 3000  loss: 1.5  grad_norm: 1.25",
            "2024/05/01 12:00:15 - mmengine - INFO - Epoch(val) [1][10/10]    accuracy/top1: 45.5  data_time: 0.05  time: 0.1",
            "2024/05/01 12:00:21 - mmengine - INFO - Epoch(train)  [2][ 50/100]  lr: 1.0000e-02  eta: 0:00:30  time: 0.2  data_time: 0.01  memory: 3000  loss: 1.25  grad_norm: 1.0",
        ),
        {"loss": [(50, 2.3026), (100, 1.5), (150, 1.25)], "grad_norm": [(50, 1.5), (100, 1.25), (150, 1.0)]},
    ),
    "DeepSpeed": Form(
        "ds.log",
        lines(
            "[2024-05-01 12:00:01,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[9.65e-06, 9.65e-06], mom=[(0.9, 0.95)]",
            "steps: 10 loss: 2.1250 iter time (s): 0.811 samples/sec: 39.4",
            "steps: 20 loss: 2.0000 iter time (s): 0.809 samples/sec: 39.5",
            "steps: 30 loss: 1.8750 iter time (s): 0.810 samples/sec: 39.5",
        ),
        {"loss": [(10, 2.125), (20, 2.0), (30, 1.875)]},
    ),
    "DeepSpeed-Chat": Form(
        "step3.log",
        lines(
            "Epoch: 0 | Step: 0 | PPO Epoch: 1 | Actor Loss: -0.0125 | Critic Loss: 0.25 | Unsupervised Loss: 0.0",
            "End-to-End => Latency: 12.34s, TFLOPs: 4.56, Samples/sec: 2.59, Time/seq 0.39s, Batch Size: 32, Total Seq. Length: 512",
            "Average reward score: -1.5 | EMA reward score: -1.5",
            "-------------------------------------------------------------------------------------",
            "|E2E latency=12.34s |Gather latency=0.00s (0.00%) |Generate time=8.00s (64.80%) |",
            "Epoch: 0 | Step: 1 | PPO Epoch: 1 | Actor Loss: 0.0625 | Critic Loss: 0.125 | Unsupervised Loss: 0.0",
            "Average reward score: -1.25 | EMA reward score: -1.4975",
            "Epoch: 0 | Step: 2 | PPO Epoch: 1 | Actor Loss: 0.03125 | Critic Loss: 0.0625 | Unsupervised Loss: 0.0",
            "Average reward score: 0.75 | EMA reward score: -1.475",
        ),
        {
            "Actor Loss": [(0, -0.0125), (1, 0.0625), (2, 0.03125)],
            "Average reward score": [(0, -1.5), (1, -1.25), (2, 0.75)],
        },
    ),
    "Megatron": Form(
        "megatron.log",
        lines(
            " [2024-05-01 12:00:01] iteration      100/    1000 | consumed samples:        25600 | elapsed time per iteration (ms): 512.3 | learning rate: 1.500000E-05 | global batch size:   256 | lm loss: 1.025000E+01 | loss scale: 1.0 | grad norm: 2.500 | number of skipped iterations:   0 | number of nan iterations:   0 |",
            " [2024-05-01 12:01:01] iteration      200/    1000 | consumed samples:        51200 | elapsed time per iteration (ms): 511.3 | learning rate: 3.000000E-05 | global batch size:   256 | lm loss: 8.500000E+00 | loss scale: 1.0 | grad norm: 1.250 | number of skipped iterations:   0 | number of nan iterations:   0 |",
            "-----------------------------------------------------------------------------------------------",
            " validation loss at iteration 200 | lm loss value: 8.400000E+00 | lm loss PPL: 4.447000E+03 |",
            " [2024-05-01 12:02:01] iteration      300/    1000 | consumed samples:        76800 | elapsed time per iteration (ms): 511.3 | learning rate: 4.500000E-05 | global batch size:   256 | lm loss: 7.250000E+00 | loss scale: 1.0 | grad norm: 1.125 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        ),
        {"lm loss": [(100, 10.25), (200, 8.5), (300, 7.25)], "grad norm": [(100, 2.5), (200, 1.25), (300, 1.125)]},
    ),
    "fairseq": Form(
        "fairseq.log",
        lines(
            "2024-05-01 12:00:00 | INFO | train_inner | epoch 001:    100 / 1000 loss=13.25, nll_loss=12.5, ppl=5792.6, wps=7890, ups=2.1, wpb=3700, bsz=150, num_updates=100, lr=1.25e-05, gnorm=3.5, train_wall=47, wall=50",
            "2024-05-01 12:01:00 | INFO | train_inner | epoch 001:    200 / 1000 loss=11.25, nll_loss=10.5, ppl=1448.2, wps=7890, ups=2.1, wpb=3700, bsz=150, num_updates=200, lr=2.5e-05, gnorm=2.5, train_wall=47, wall=98",
            "2024-05-01 12:02:00 | INFO | train_inner | epoch 001:    300 / 1000 loss=10.25, nll_loss=9.5, ppl=724.1, wps=7890, ups=2.1, wpb=3700, bsz=150, num_updates=300, lr=3.75e-05, gnorm=1.5, train_wall=47, wall=146",
        ),
        {"loss": [(100, 13.25), (200, 11.25), (300, 10.25)], "gnorm": [(100, 3.5), (200, 2.5), (300, 1.5)]},
    ),
    "fairseq's JSON lines": Form(
        "fairseq_json.log",
        lines(
            '2024-05-01 12:00:00 | INFO | train_inner | {"epoch": 1, "update": 0.1, "loss": "13.25", "ppl": "5792.6", "num_updates": "100", "lr": "1.25e-05", "gnorm": "3.5"}',
            '2024-05-01 12:01:00 | INFO | train_inner | {"epoch": 1, "update": 0.2, "loss": "11.25", "ppl": "1448.2", "num_updates": "200", "lr": "2.5e-05", "gnorm": "2.5"}',
            '2024-05-01 12:02:00 | INFO | train_inner | {"epoch": 1, "update": 0.3, "loss": "10.25", "ppl": "724.1", "num_updates": "300", "lr": "3.75e-05", "gnorm": "1.5"}',
        ),
        {"loss": [(100, 13.25), (200, 11.25), (300, 10.25)], "gnorm": [(100, 3.5), (200, 2.5), (300, 1.5)]},
    ),
    "torchtune": Form(
        "log_1714500000.txt",
        lines(
            "Step 1 | loss:2.5 lr:2e-05 tokens_per_second_per_gpu:800.5",
            "Step 2 | loss:2.25 lr:4e-05 tokens_per_second_per_gpu:810.5",
            "Step 3 | loss:2.0 lr:6e-05 tokens_per_second_per_gpu:812.5",
        ),
        {"loss": [(1, 2.5), (2, 2.25), (3, 2.0)], "lr": [(1, 2e-5), (2, 4e-5), (3, 6e-5)]},
    ),
    "lit-gpt": Form(
        "litgpt.log",
        lines(
            "iter 1 step 0: loss 2.5000, iter time: 900.12ms",
            "iter 2 step 1: loss 2.2500, iter time: 800.12ms (optimizer.step)",
            "Epoch 1 | iter 16 step 1 | loss train: 1.500, val: n/a | iter time: 303.10 ms (step)",
            "Epoch 1 | iter 32 step 2 | loss train: 1.250, val: 1.375 | iter time: 300.10 ms (step)",
        ),
        {"loss train": [(16, 1.5), (32, 1.25)], "loss": [(1, 2.5), (2, 2.25)]},
    ),
    "LLaMA-Factory": Form(
        "running_log.txt",
        lines(
            "[INFO|2024-05-01 12:00:00] llamafactory.train.callbacks:143 >> {'loss': 1.5, 'learning_rate': 9.5e-05, 'epoch': 0.1, 'throughput': 3000.5}",
            "[INFO|2024-05-01 12:01:00] llamafactory.train.callbacks:143 >> {'loss': 1.25, 'learning_rate': 9.0e-05, 'epoch': 0.2, 'throughput': 3000.5}",
            "[INFO|2024-05-01 12:02:00] llamafactory.train.callbacks:143 >> {'loss': 1.0, 'learning_rate': 8.5e-05, 'epoch': 0.3, 'throughput': 3000.5}",
        ),
        {"console:loss": [(1, 1.5), (2, 1.25), (3, 1.0)]},
    ),
    "open-instruct": Form(
        "oi.log",
        lines(
            "05/01/2024 12:00:00 - INFO - __main__ -   Step: 1, LR: 2e-06, Loss: 1.5, TPS: 1234.5",
            "05/01/2024 12:01:00 - INFO - __main__ -   Step: 2, LR: 4e-06, Loss: 1.25, TPS: 1234.5",
            "05/01/2024 12:02:00 - INFO - __main__ -   Step: 3, LR: 6e-06, Loss: 1.0, TPS: 1234.5",
        ),
        {"Loss": [(1, 1.5), (2, 1.25), (3, 1.0)], "LR": [(1, 2e-6), (2, 4e-6), (3, 6e-6)]},
    ),
    "trlx": Form(
        "trlx.log",
        lines(
            "[RANK 0] [losses/total_loss: 0.25 | losses/policy_loss: -0.05 | losses/value_loss: 0.3]:   1%|▏         | 10/1000 [00:10<16:30,  1.00s/it]",
            "[RANK 0] [losses/total_loss: 0.2 | losses/policy_loss: -0.04 | losses/value_loss: 0.24]:   2%|▏         | 20/1000 [00:20<16:20,  1.00s/it]",
            "[RANK 0] [losses/total_loss: 0.15 | losses/policy_loss: -0.03 | losses/value_loss: 0.18]:   3%|▎         | 30/1000 [00:30<16:10,  1.00s/it]",
        ),
        {
            "losses/total_loss": [(10, 0.25), (20, 0.2), (30, 0.15)],
            "losses/value_loss": [(10, 0.3), (20, 0.24), (30, 0.18)],
        },
    ),
    "tqdm with a postfix": Form(
        "tqdm.err",
        "Epoch 1:  50%|█████     | 1/2 [00:01<00:01,  1.00it/s, loss=0.5, acc=81.2%]\r"
        "Epoch 1: 100%|██████████| 2/2 [00:02<00:00,  1.00it/s, loss=0.25, acc=90.5%]\n"
        "Epoch 2:  50%|█████     | 1/2 [00:01<00:01,  1.00it/s, loss=0.2, acc=91.5%]\r"
        "Epoch 2: 100%|██████████| 2/2 [00:02<00:00,  1.00it/s, loss=0.125, acc=95.0%]\n",
        {
            "loss": [(1, 0.5), (2, 0.25), (3, 0.2), (4, 0.125)],
            "acc": [(1, 0.812), (2, 0.905), (3, 0.915), (4, 0.95)],
        },
    ),
    "OpenRLHF": Form(
        "openrlhf.log",
        "Train epoch [1/1]:  50%|█████     | 1/2 [00:05<00:05,  5.00s/it, pg=-0.01, ret=0.5, glen=210, tlen=300, kl=0.02, act_lr=5e-7]\n"
        "Train epoch [1/1]: 100%|██████████| 2/2 [00:10<00:00,  5.00s/it, pg=-0.02, ret=0.625, glen=211, tlen=301, kl=0.03, act_lr=5e-7]\n",
        {"kl": [(1, 0.02), (2, 0.03)], "ret": [(1, 0.5), (2, 0.625)]},
    ),
    "AReaL": Form(
        "areal.log",
        lines(
            "20250601-12:00:01.123 StatsLogger INFO: Epoch 1/10 Step 1/100 Train step 1/1000 done.",
            "20250601-12:00:01.124 StatsLogger INFO: Stats (1/1):",
            "╒═════════════════════════════╤═════════╤═════════════════════╤═════════╕",
            "│ ppo_actor/actor_loss/avg    │ -0.0125 │ ppo_actor/entropy/avg │ 0.5   │",
            "├─────────────────────────────┼─────────┼─────────────────────┼─────────┤",
            "│ grpo/task_reward/avg        │ 0.25    │ ppo_actor/lr        │ 1.0e-06 │",
            "╘═════════════════════════════╧═════════╧═════════════════════╧═════════╛",
            "20250601-12:01:01.123 StatsLogger INFO: Epoch 1/10 Step 2/100 Train step 2/1000 done.",
            "╒═════════════════════════════╤═════════╤═════════════════════╤═════════╕",
            "│ ppo_actor/actor_loss/avg    │ -0.025  │ ppo_actor/entropy/avg │ 0.25  │",
            "├─────────────────────────────┼─────────┼─────────────────────┼─────────┤",
            "│ grpo/task_reward/avg        │ 0.5     │ ppo_actor/lr        │ 1.0e-06 │",
            "╘═════════════════════════════╧═════════╧═════════════════════╧═════════╛",
        ),
        {
            "ppo_actor/actor_loss/avg": [(1, -0.0125), (2, -0.025)],
            "ppo_actor/entropy/avg": [(1, 0.5), (2, 0.25)],
            "grpo/task_reward/avg": [(1, 0.25), (2, 0.5)],
        },
    ),
    "prime-rl": Form(
        "trainer.log",
        lines(
            "12:00:01    INFO Step 0 | Time: 12.34s | Loss: 0.0125 | Entropy: 0.5 | Mismatch KL: 0.001 | Grad. Norm: 0.25 | LR: 1.00e-06 | Throughput: 3000 tokens/s",
            "12:01:01    INFO Step 1 | Time: 12.34s | Loss: 0.0250 | Entropy: 0.4 | Mismatch KL: 0.002 | Grad. Norm: 0.50 | LR: 1.00e-06 | Throughput: 3000 tokens/s",
            "12:02:01    INFO Step 2 | Time: 12.34s | Loss: 0.0375 | Entropy: 0.3 | Mismatch KL: 0.003 | Grad. Norm: 0.75 | LR: 1.00e-06 | Throughput: 3000 tokens/s",
        ),
        {"Loss": [(0, 0.0125), (1, 0.025), (2, 0.0375)], "Entropy": [(0, 0.5), (1, 0.4), (2, 0.3)]},
    ),
    "GRPO-Zero": Form(
        "grpo_zero.out",
        lines(
            "\rStep 1, mean_reward: 0.12, train success_rate: 0.05, grad_norm: 0.50, duration: 30.12, num_finished_episodes: 256, mean_response_len: 512.50, entropy: 0.75",
            "\rStep 2, mean_reward: 0.15, train success_rate: 0.06, grad_norm: 0.75, duration: 30.12, num_finished_episodes: 256, mean_response_len: 500.25, entropy: 0.70",
            "\rEval success rate: 0.25                                                        ",
            "\rStep 3, mean_reward: 0.25, train success_rate: 0.10, grad_norm: 0.25, duration: 30.12, num_finished_episodes: 256, mean_response_len: 490.75, entropy: 0.65",
        ),
        {
            "mean_reward": [(1, 0.12), (2, 0.15), (3, 0.25)],
            "entropy": [(1, 0.75), (2, 0.7), (3, 0.65)],
            "grad_norm": [(1, 0.5), (2, 0.75), (3, 0.25)],
        },
    ),
    "nano-aha-moment": Form(
        "nano.log",
        lines(
            "Iteration 0/1000",
            "KEY METRICS: {'train/rewards/mean': 0.25, 'train/kl_penalty': 0.001, 'train/response_lengths': 300.5}",
            "Iteration 1/1000",
            "KEY METRICS: {'train/rewards/mean': 0.375, 'train/kl_penalty': 0.002, 'train/response_lengths': 310.5}",
            "Iteration 2/1000",
            "KEY METRICS: {'train/rewards/mean': 0.5, 'train/kl_penalty': 0.003, 'train/response_lengths': 320.5}",
        ),
        {
            "train/rewards/mean": [(0, 0.25), (1, 0.375), (2, 0.5)],
            "train/kl_penalty": [(0, 0.001), (1, 0.002), (2, 0.003)],
        },
    ),
    "TinyZero, from a worker": Form(
        "tinyzero.log",
        lines(
            "\x1b[36m(main_task pid=1234)\x1b[0m step:1 - critic/score/mean:0.050 - actor/entropy_loss:0.750 - actor/grad_norm:0.250",
            "\x1b[36m(main_task pid=1234)\x1b[0m ****** a sample ******",
            "\x1b[36m(main_task pid=1234)\x1b[0m step:2 - critic/score/mean:0.100 - actor/entropy_loss:0.700 - actor/grad_norm:nan",
        ),
        {"critic/score/mean": [(1, 0.05), (2, 0.1)], "actor/grad_norm": [(1, 0.25), (2, NAN)]},
    ),
    "simple_GRPO": Form(
        "simple.log",
        lines(
            "  1%|          | 1/100 [00:10<16:30, 10.00s/it]loss: 0.0125, reward: 0.5",
            "  2%|▏         | 2/100 [00:20<16:20, 10.00s/it]loss: 0.0250, reward: 0.75",
            "  3%|▎         | 3/100 [00:30<16:10, 10.00s/it]loss: 0.0375, reward: 1.0",
        ),
        {"loss": [(1, 0.0125), (2, 0.025), (3, 0.0375)], "reward": [(1, 0.5), (2, 0.75), (3, 1.0)]},
    ),
    "Tianshou": Form(
        "tianshou.log",
        lines(
            "Epoch #1: 1001it [00:05, 190.10it/s, env_step=1000, len=25, loss=0.125, n/ep=1, n/st=10, rew=25.00]",
            "Epoch #1: test_reward: 45.000000 ± 9.000000, best_reward: 45.000000 ± 9.000000 in #1",
            "Epoch #2: 1001it [00:05, 190.10it/s, env_step=2000, len=55, loss=0.0625, n/ep=1, n/st=10, rew=55.00]",
            "Epoch #2: test_reward: 95.000000 ± 9.000000, best_reward: 95.000000 ± 9.000000 in #2",
            "Epoch #3: 1001it [00:05, 190.10it/s, env_step=3000, len=95, loss=0.03125, n/ep=1, n/st=10, rew=95.00]",
            "Epoch #3: test_reward: 195.000000 ± 9.000000, best_reward: 195.000000 ± 9.000000 in #3",
        ),
        {"loss": [(1000, 0.125), (2000, 0.0625), (3000, 0.03125)], "rew": [(1000, 25.0), (2000, 55.0), (3000, 95.0)]},
    ),
    "ignite": Form(
        "ignite.log",
        lines(
            "2024-05-01 12:00:00,123 ignite.engine.engine.Engine INFO: Engine run starting with max_epochs=3.",
            "Training Results - Epoch: 1  Avg accuracy: 0.90 Avg loss: 0.35",
            "Validation Results - Epoch: 1  Avg accuracy: 0.91 Avg loss: 0.30",
            "Training Results - Epoch: 2  Avg accuracy: 0.95 Avg loss: 0.20",
            "Validation Results - Epoch: 2  Avg accuracy: 0.94 Avg loss: 0.22",
        ),
        {
            "console:loss": [(1, 0.35), (2, 0.2)],
            "console:eval_loss": [(1, 0.3), (2, 0.22)],
        },
    ),
    "flax": Form(
        "flax.log",
        lines(
            "I0501 12:00:00.123456 140 train.py:146] epoch:  1, train_loss: 0.25, train_accuracy: 92.50, test_loss: 0.07, test_accuracy: 97.50",
            "I0501 12:01:00.123456 140 train.py:146] epoch:  2, train_loss: 0.06, train_accuracy: 98.25, test_loss: 0.05, test_accuracy: 98.00",
            "I0501 12:02:00.123456 140 train.py:146] epoch:  3, train_loss: 0.04, train_accuracy: 98.75, test_loss: 0.04, test_accuracy: 98.50",
        ),
        {
            "console:train_loss": [(1, 0.25), (2, 0.06), (3, 0.04)],
            "console:test_loss": [(1, 0.07), (2, 0.05), (3, 0.04)],
        },
    ),
    "accelerate": Form(
        "accelerate.log",
        lines(
            "epoch 0: {'accuracy': 0.75, 'f1': 0.8}",
            "epoch 1: {'accuracy': 0.8, 'f1': 0.85}",
            "epoch 2: {'accuracy': 0.82, 'f1': 0.87}",
        ),
        {"console:accuracy": [(0, 0.75), (1, 0.8), (2, 0.82)], "console:f1": [(0, 0.8), (1, 0.85), (2, 0.87)]},
    ),
    "Transformers' examples without the trainer": Form(
        "no_trainer.log",
        lines(
            "05/01/2024 12:00:00 - INFO - __main__ - epoch 0: perplexity: 25.5 eval_loss: 3.24",
            "05/01/2024 12:10:00 - INFO - __main__ - epoch 1: perplexity: 22.25 eval_loss: 3.10",
            "05/01/2024 12:20:00 - INFO - __main__ - epoch 2: perplexity: 21.75 eval_loss: 3.08",
        ),
        {
            "console:perplexity": [(0, 25.5), (1, 22.25), (2, 21.75)],
            "console:eval_loss": [(0, 3.24), (1, 3.1), (2, 3.08)],
        },
    ),
    "epochs in brackets": Form(
        "brackets.log",
        lines(
            "[Epoch 1/10] train loss = 0.9, val_acc = 61.5%",
            "[Epoch 2/10] train loss = 0.6, val_acc = 75.0%",
            "[Epoch 3/10] train loss = 0.4, val_acc = 81.2%",
        ),
        {"console:train loss": [(1, 0.9), (2, 0.6), (3, 0.4)], "console:val_acc": [(1, 0.615), (2, 0.75), (3, 0.812)]},
    ),
    "columns between pipes": Form(
        "pipes",
        lines(
            "Step 10 | loss: 1.2 | reward 0.3", "Step 20 | loss: 1.1 | reward 0.4", "Step 30 | loss: 1.0 | reward 0.5"
        ),
        {"loss": [(10, 1.2), (20, 1.1), (30, 1.0)], "reward": [(10, 0.3), (20, 0.4), (30, 0.5)]},
    ),
    "an arrow and an average": Form(
        "arrows.out",
        lines("=> loss 1.2 (avg 1.3)", "=> loss 1.1 (avg 1.2)", "=> loss 1.0 (avg 1.1)", "=> loss 0.9 (avg 1.05)"),
        {"console:loss": [(1, 1.2), (2, 1.1), (3, 1.0), (4, 0.9)]},
    ),
    "figures of a batch under other names": Form(
        "rl_grpo.log",
        lines(
            *(
                row
                for batch, (loss, entropy, total) in enumerate(
                    ((-0.003, 0.82, 144.0), (0.0, 0.57, 111.0), (0.001, 0.55, 150.0))
                )
                for row in (
                    MARKS.format(batch) + f"rollout batch {batch} generated, length: 256",
                    MARKS.format(batch)
                    + f"rl_loss: {loss}, time: 109.087, l2_norm: 0.141, token_entropy: {entropy}, reward_data: "
                    f"{{'total_num': 256, 'total_reward': {total}, 'kl': tensor(0.25, device='cuda:0')}}",
                    MARKS.format(batch) + "model output: \nso <answer> 3 </answer>",
                    MARKS.format(batch) + "reward: {'format_reward': 1.0, 'answer_reward': 0.0, 'reward': 0.0}",
                    MARKS.format(batch) + f"rollout batch {batch} done, eval_acc: {(batch + 1) / 4}",
                )
            )
        ),
        {
            "rl_loss": [(0, -0.003), (1, 0.0), (2, 0.001)],
            "token_entropy": [(0, 0.82), (1, 0.57), (2, 0.55)],
            "l2_norm": [(0, 0.141), (1, 0.141), (2, 0.141)],
            "reward_data/total_reward": [(0, 144.0), (1, 111.0), (2, 150.0)],
            "reward_data/kl": [(0, 0.25), (1, 0.25), (2, 0.25)],
            "eval_acc": [(0, 0.25), (1, 0.5), (2, 0.75)],
        },
    ),
    "coloured, with a logger's prefix": Form(
        "colour.log",
        lines(
            *(
                f"\x1b[32m2024-05-01 12:00:0{at},123\x1b[0m \x1b[1mINFO\x1b[0m [trainer.py:88] step {10 * at} - "
                f"\x1b[33mloss\x1b[0m: {loss} - reward: {reward}"
                for at, loss, reward in ((1, 0.5, 0.1), (2, 0.4, 0.2), (3, "nan", 0.3))
            )
        ),
        {"loss": [(10, 0.5), (20, 0.4), (30, NAN)], "reward": [(10, 0.1), (20, 0.2), (30, 0.3)]},
    ),
    "thousands, kilos and seconds": Form(
        "units.log",
        lines(
            "step 1,000 | loss 2.5 | tokens 1,234,567 | 3.4k tok/s | 12.3s",
            "step 2,000 | loss 2.25 | tokens 2,469,134 | 3.4k tok/s | 12.3s",
            "step 3,000 | loss 2.125 | tokens 3,703,701 | 3.4k tok/s | 12.3s",
        ),
        {
            "loss": [(1000, 2.5), (2000, 2.25), (3000, 2.125)],
            "tokens": [(1000, 1234567.0), (2000, 2469134.0), (3000, 3703701.0)],
        },
    ),
    "a tag of the run in front": Form(
        "tagged.log",
        lines(
            "[gsm8k_8B_s042] step 10 loss=0.5 reward=0.25",
            "[gsm8k_8B_s042] step 20 loss=0.4 reward=0.35",
            "[gsm8k_8B_s042] step 30 loss=0.3 reward=0.45",
        ),
        {"loss": [(10, 0.5), (20, 0.4), (30, 0.3)], "reward": [(10, 0.25), (20, 0.35), (30, 0.45)]},
    ),
    "a dict behind a counter": Form(
        "dicts.log",
        lines(
            "Step 1 metrics: {'loss': 0.5, 'reward': {'mean': 0.25, 'std': 0.1}, 'hist': [1, 2, 3], 'name': 'it\\'s'}",
            "Step 2 metrics: {'loss': 0.4, 'reward': {'mean': 0.5, 'std': 0.2}, 'hist': [1, 2, 4], 'name': 'a'}",
            "Step 3 metrics: {'loss': 0.3, 'reward': {'mean': 0.75, 'std': 0.3}, 'hist': [2, 2, 4], 'name': 'a'}",
        ),
        {"loss": [(1, 0.5), (2, 0.4), (3, 0.3)], "reward/mean": [(1, 0.25), (2, 0.5), (3, 0.75)]},
    ),
    "a dict over several lines": Form(
        "pprint.log",
        "".join(
            f"step {step}\n{{'loss': {loss},\n 'reward': {reward},\n 'stats': {{'kl': 0.25}}}}\n"
            for step, loss, reward in ((1, 0.5, 0.1), (2, 0.4, 0.2), (3, 0.3, 0.3))
        ),
        {"loss": [(1, 0.5), (2, 0.4), (3, 0.3)], "reward": [(1, 0.1), (2, 0.2), (3, 0.3)]},
    ),
    "JSON over several lines": Form(
        "indented.log",
        "INFO start\n"
        + "".join(
            json.dumps({"step": step, "loss": loss, "extra": {"kl": 0.25}}, indent=2) + "\n"
            for step, loss in ((1, 0.5), (2, 0.4), (3, 0.3))
        ),
        {"loss": [(1, 0.5), (2, 0.4), (3, 0.3)], "extra/kl": [(1, 0.25), (2, 0.25), (3, 0.25)]},
    ),
    "names and numbers between tabs": Form(
        "tabs.log",
        lines(
            "iteration\t1\tloss\t0.5\treward\t0.1",
            "iteration\t2\tloss\t0.4\treward\t0.2",
            "iteration\t3\tloss\t0.3\treward\t0.3",
        ),
        {"loss": [(1, 0.5), (2, 0.4), (3, 0.3)], "reward": [(1, 0.1), (2, 0.2), (3, 0.3)]},
    ),
    "a block of names over tabs": Form(
        "tabular.log",
        "".join(
            f"========== iteration {step} ==========\nloss\t{loss}\nmean_reward\t{reward}\nkl\t0.01\n\n"
            for step, loss, reward in ((1, 0.5, 0.1), (2, 0.4, 0.2), (3, 0.3, 0.3))
        ),
        {"loss": [(1, 0.5), (2, 0.4), (3, 0.3)], "mean_reward": [(1, 0.1), (2, 0.2), (3, 0.3)]},
    ),
    "a table with columns of blanks": Form(
        "blanks.log",
        lines(
            "Step   Loss    Reward   KL",
            "10     0.5     0.1      0.01",
            "20     0.4     0.2      0.02",
            "30     0.3     0.3      0.03",
        ),
        {"Loss": [(10, 0.5), (20, 0.4), (30, 0.3)], "Reward": [(10, 0.1), (20, 0.2), (30, 0.3)]},
    ),
    "RLlib": Form(
        "rllib.log",
        lines(
            "iter: 1, episode_reward_mean: 21.5, episode_len_mean: 21.5, timesteps_total: 4000",
            "iter: 2, episode_reward_mean: 41.25, episode_len_mean: 41.25, timesteps_total: 8000",
            "iter: 3, episode_reward_mean: 65.75, episode_len_mean: 65.75, timesteps_total: 12000",
        ),
        {"episode_reward_mean": [(1, 21.5), (2, 41.25), (3, 65.75)]},
    ),
    "slime": Form(
        "slime.log",
        lines(
            "(MegatronTrainRayActor pid=99) [2025-06-01 12:00:00] model.py:500 - step 0: {'train/loss': 0.0, 'train/pg_loss': 0.001, 'train/entropy_loss': 0.25, 'train/grad_norm': 0.5}",
            "(RolloutManager pid=98) [2025-06-01 12:01:00] rollout.py:400 - perf 1: {'rollout/raw_reward': 0.5, 'rollout/response_len/mean': 512.0}",
            "(MegatronTrainRayActor pid=99) [2025-06-01 12:02:00] model.py:500 - step 1: {'train/loss': 0.1, 'train/pg_loss': 0.002, 'train/entropy_loss': 0.2, 'train/grad_norm': 0.75}",
            "(RolloutManager pid=98) [2025-06-01 12:03:00] rollout.py:400 - perf 2: {'rollout/raw_reward': 0.625, 'rollout/response_len/mean': 520.0}",
        ),
        {
            "train/loss": [(0, 0.0), (1, 0.1)],
            "train/grad_norm": [(0, 0.5), (1, 0.75)],
            "rollout/raw_reward": [(1, 0.5), (2, 0.625)],
        },
    ),
    "several rows of workers": Form(
        "ranks.log",
        lines(
            *(
                f"[rank {rank}] step {step}: loss {0.5 - step / 10 + rank / 100:.2f}"
                for step in (1, 2, 3)
                for rank in (0, 1)
            )
        ),
        {"loss": [(1, 0.4), (1, 0.41), (2, 0.3), (2, 0.31), (3, 0.2), (3, 0.21)]},
    ),
}


TABLES: dict[str, Form] = {
    "Lightning's table with holes": Form(
        "metrics.csv",
        lines("epoch,step,train_loss,val_loss", "0,49,0.5,", "0,99,0.4,", "0,99,,0.45", "1,149,0.3,"),
        {"train_loss": [(49, 0.5), (99, 0.4), (149, 0.3)], "val_loss": [(99, 0.45)]},
    ),
    "no header": Form(
        "loss.csv",
        lines("1,2.5,0.1", "2,2.25,0.2", "3,2.0,0.3", "4,1.75,0.4", "5,1.5,0.5"),
        {
            "console:column 2": [(1, 2.5), (2, 2.25), (3, 2.0), (4, 1.75), (5, 1.5)],
            "console:column 3": [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4), (5, 0.5)],
        },
    ),
    "semicolons": Form(
        "log.csv",
        lines("step;loss;reward", "1;0.5;0.1", "2;0.4;0.2", "3;0.3;0.3"),
        {"loss": [(1, 0.5), (2, 0.4), (3, 0.3)]},
    ),
    "an index in front": Form(
        "indexed.csv",
        lines(",loss,reward", "0,0.5,0.1", "1,0.4,0.2", "2,0.3,0.3"),
        {"console:loss": [(0, 0.5), (1, 0.4), (2, 0.3)], "console:reward": [(0, 0.1), (1, 0.2), (2, 0.3)]},
    ),
    "lists side by side": Form(
        "history.json",
        json.dumps({"loss": [0.5, 0.4, 0.3], "reward": [0.1, 0.2, 0.3], "config": {"lr": 1e-4}}),
        {"console:loss": [(1, 0.5), (2, 0.4), (3, 0.3)], "console:reward": [(1, 0.1), (2, 0.2), (3, 0.3)]},
    ),
    "records under a key": Form(
        "results.json",
        json.dumps({"args": {"lr": 1e-4}, "results": [{"step": step, "loss": 1 / step} for step in (1, 2, 4)]}),
        {"loss": [(1, 1.0), (2, 0.5), (4, 0.25)]},
    ),
    "records by step": Form(
        "steps.json",
        json.dumps({str(step): {"loss": 1 / step, "reward": step / 8} for step in (1, 2, 4)}),
        {"loss": [(1, 1.0), (2, 0.5), (4, 0.25)], "reward": [(1, 0.125), (2, 0.25), (4, 0.5)]},
    ),
    "JSON in a text": Form(
        "nested.jsonl",
        lines(*(json.dumps(json.dumps({"step": step, "loss": 1 / step})) for step in (1, 2, 4))),
        {"loss": [(1, 1.0), (2, 0.5), (4, 0.25)]},
    ),
    "JSON in a field": Form(
        "messages.jsonl",
        lines(
            *(
                json.dumps({"ts": f"2024-05-01T12:00:0{step}", "message": json.dumps({"step": step, "loss": 1 / step})})
                for step in (1, 2, 4)
            )
        ),
        {"loss": [(1, 1.0), (2, 0.5), (4, 0.25)]},
    ),
    "Python's dicts, one a line": Form(
        "log.txt",
        lines(*(repr({"step": step, "loss": 1 / step, "info": {"kl": 0.25}}) for step in (1, 2, 4))),
        {"loss": [(1, 1.0), (2, 0.5), (4, 0.25)], "info/kl": [(1, 0.25), (2, 0.25), (4, 0.25)]},
    ),
}


def _cell(outputs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"cell_type": "code", "source": ["trainer.train()"], "outputs": outputs}


PROGRESS = """
    <div>
      <progress value='300' max='300' style='width:300px; height:20px; vertical-align: middle;'></progress>
      [300/300 10:00, Epoch 1/1]
    </div>
    <table border="1" class="dataframe">
  <thead>
 <tr style="text-align: left;">
      <th>Step</th>
      <th>Training Loss</th>
      <th>Validation Loss</th>
    </tr>
  </thead>
  <tbody>
    <tr>
      <td>100</td>
      <td>1.500000</td>
      <td>1.600000</td>
    </tr>
    <tr>
      <td>200</td>
      <td>1.250000</td>
      <td>No log</td>
    </tr>
    <tr>
      <td>300</td>
      <td>1.000000</td>
      <td>1.125000</td>
    </tr>
  </tbody>
</table><p>"""

NOTEBOOKS: dict[str, Form] = {
    "the trainer's table of progress": Form(
        "sft.ipynb",
        json.dumps(
            {
                "cells": [
                    _cell([{"output_type": "display_data", "data": {"text/html": PROGRESS.splitlines(keepends=True)}}])
                ],
                "nbformat": 4,
            }
        ),
        {"Training Loss": [(100, 1.5), (200, 1.25), (300, 1.0)], "Validation Loss": [(100, 1.6), (300, 1.125)]},
    ),
    "dicts that a cell printed": Form(
        "grpo.ipynb",
        json.dumps(
            {
                "cells": [
                    {"cell_type": "markdown", "source": ["The loss is {'loss': 9.0, 'epoch': 9.0}"]},
                    _cell(
                        [
                            {
                                "output_type": "stream",
                                "name": "stdout",
                                "text": [
                                    "{'loss': 0.5, 'epoch': 0.1}\n",
                                    "{'loss': 0.4, 'epoch': 0.2}\n",
                                    "{'loss': 0.3, 'epoch': 0.3}\n",
                                ],
                            }
                        ]
                    ),
                ],
                "nbformat": 4,
            }
        ),
        {"console:loss": [(1, 0.5), (2, 0.4), (3, 0.3)]},
    ),
    "lines with a step": Form(
        "dqn.ipynb",
        json.dumps(
            {
                "nbformat": 4,
                "cells": [
                    _cell(
                        [
                            {
                                "output_type": "stream",
                                "name": "stdout",
                                "text": "".join(f"step {at}: loss {1 / at}, reward {at}\n" for at in (1, 2, 4)),
                            }
                        ]
                    )
                ],
            }
        ),
        {"loss": [(1, 1.0), (2, 0.5), (4, 0.25)], "reward": [(1, 1.0), (2, 2.0), (4, 4.0)]},
    ),
}

FORMS = CONSOLES | TABLES | NOTEBOOKS


def curves_of(path: Path) -> dict[str, list[tuple[int, float]]]:
    frame = table(pieces_of(path), "metrics").sort("seq", maintain_order=True)
    points: dict[str, list[tuple[int, float]]] = {}
    for name, step, value in frame.select("name_raw", "step", pl.col("value").fill_null(NAN)).iter_rows():
        points.setdefault(name, []).append((step, value))
    return points


@pytest.mark.parametrize("form", FORMS)
def test_the_curves_of_a_form_are_read_as_they_are_printed(tmp_path: Path, form: str) -> None:
    name, text, curves = FORMS[form]
    path = tmp_path / name
    path.write_text(text)
    found = curves_of(path)
    for metric, points in curves.items():
        assert [step for step, _ in found[metric]] == [step for step, _ in points], metric
        assert [value for _, value in found[metric]] == pytest.approx([value for _, value in points], nan_ok=True), (
            metric
        )
    assert losses(pieces_of(path))[1] == 0


PRINTED: dict[str, tuple[str, dict[str, str]]] = {
    "loguru": ("2024-05-01 12:00:0{at}.123 | INFO     | __main__:train:42 - step {at} loss {loss}", {"loss": ""}),
    "root logger": ("INFO:root:epoch={at} loss={loss} acc={high}", {"loss": "console:", "acc": "console:"}),
    "emoji": ("📊 Step {at} | Loss {loss} | 🎯 Reward {high}", {"Loss": "", "Reward": ""}),
    "Chinese": ("第 {at} 步: 损失：{loss}，奖励：{high}", {"loss": "", "reward": ""}),
    "Chinese, counted": ("训练轮次 [{at}/12], 训练损失: {loss}", {"train_loss": "console:"}),
    "Japanese": ("エポック {at}/12 損失: {loss} 精度: {high}", {"loss": "console:", "accuracy": "console:"}),
    "Korean": ("에폭 {at}/12 - 손실: {loss}, 정확도: {high}", {"loss": "console:", "accuracy": "console:"}),
    "German": ("Schritt {at}: Verlust = {loss}", {"loss": ""}),
    "French": ("Étape {at} - perte : {loss} - récompense : {high}", {"loss": "", "reward": ""}),
    "Portuguese": ("Passo {at}: perda={loss} recompensa={high}", {"loss": "", "reward": ""}),
    "Russian": ("Шаг {at}: потери {loss}, точность {high}", {"loss": "", "accuracy": ""}),
    "arrows": ("[   {at}/12] loss -> {loss}  reward → {high}", {"loss": "", "reward": ""}),
    "brackets": ("(TaskRunner pid=123) [score] {loss}", {"score": "console:"}),
    "bar with blanks": ("SFT:   2%|▎   | {at}/375 [02:09<1:13:19, 12.05s/it, loss {loss}]", {"loss": ""}),
    "YAML": ("---\nstep: {at}\nloss: {loss}\nreward: {high}", {"loss": "", "reward": ""}),
}


@pytest.mark.parametrize("form", PRINTED)
def test_a_line_that_recurs_is_a_curve_in_any_language(tmp_path: Path, form: str) -> None:
    line, fronts = PRINTED[form]
    path = tmp_path / "train.log"
    rows = [(at, 4.5 - at / 4, 0.5 + at / 16) for at in range(1, 7)]
    path.write_text(lines("Device: cuda", *(line.format(at=at, loss=loss, high=high) for at, loss, high in rows)))
    found = curves_of(path)
    for name, front in fronts.items():
        which = 2 if name.lower() in ("reward", "acc", "accuracy") else 1
        assert found[front + name] == [(row[0], row[which]) for row in rows]


BAR = "\r 10%|#   | {at}/43 [01:40<1:10:29, 100.69s/it]"
ROW = "{{'loss': {loss}, 'grad_norm': 0.3, 'learning_rate': 1e-06, 'epoch': {epoch}}}"


def _note(steps: int, words: int) -> str:
    body = lines(*(BAR.format(at=at) + "\n" + ROW.format(loss=4 / at, epoch=at / 43) for at in range(1, steps + 1)))
    return f"# Training logs\n\n```text\n# Training logs\n\n```text\n{body}```\n```\n" + "A word on it.\n" * words


def test_a_console_kept_as_markdown_is_a_log_and_a_manual_is_none(tmp_path: Path) -> None:
    kept, manual, report = (tmp_path / name for name in ("run_terminal.md", "README.md", "report.md"))
    kept.write_text(_note(12, 0))
    manual.write_text(_note(12, 0))
    report.write_text(_note(12, 60))
    assert [step for step, _ in curves_of(kept)["loss"]] == list(range(1, 13))
    assert not takers(run_file(manual))
    assert not takers(run_file(report))
    kept.write_text(_note(4, 0))
    assert not takers(run_file(kept))


def test_an_exception_that_workers_survive_at_every_step_ends_no_run(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    failed = 'Traceback (most recent call last):\n  File "env.py", line 7, in step\nValueError: no answer in: text {}\n'
    steps = "".join(failed.format(at * 10 + part) for at in (0,) for part in range(6))
    path.write_text(steps + "step 1 loss 2.5 reward 0.5\nstep 2 loss 2.25 reward 0.5\n" + failed.format(99))
    assert "exception" not in _kinds(path, after=2)
    path.write_text("step 1 loss 2.5 reward 0.5\nstep 2 loss 2.25 reward 0.5\n" + failed.format(99))
    assert "exception" in _kinds(path, after=2)


def _kinds(path: Path, after: int) -> list[str]:
    events = table(pieces_of(path), "events")
    return events.filter(pl.col("step") >= after)["kind"].to_list()


def test_rows_behind_the_headline_of_an_epoch_belong_to_those_that_follow(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    steps = "".join(
        f"  Q{at}: What is it...\n  Expected: a thing...\n    Loss: {4.5 - at / 4}\n\n" for at in range(1, 9)
    )
    path.write_text("--- Epoch 1/3 ---\n\n" + steps + "Traceback (most recent call last):\nKeyboardInterrupt\n")
    assert curves_of(path)["console:Loss"] == [(at, 4.5 - at / 4) for at in range(1, 9)]
    assert "exception" in _kinds(path, after=8)


CALL = (
    "{{'loss': {loss}, 'grad_norm': 0.16944053769111633, 'learning_rate': 1e-05, 'rewards/format/mean': "
    "-0.7250000238418579, 'reward': {reward}, 'reward_std': 0.9192387461662292, 'epoch': 0.5}}"
)


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("width", [77, 80, 121, 182])
def test_a_log_call_that_a_terminal_broke_is_read_as_one(tmp_path: Path, width: int, quote: str) -> None:
    rows = [(4.5 - at / 4, at / 16) for at in range(1, 7)]
    calls = [CALL.format(loss=loss, reward=reward).replace("'", quote) for loss, reward in rows]
    broken = (call[at : at + width].rstrip() for call in calls for at in range(0, len(call), width))
    path = tmp_path / "out.txt"
    path.write_text(lines("Device: cuda", *broken, "Saved to out"))
    found = curves_of(path)
    assert found["console:loss"] == [(at, loss) for at, (loss, _) in enumerate(rows, start=1)]
    assert found["console:reward"] == [(at, reward) for at, (_, reward) in enumerate(rows, start=1)]
    assert {value for _, value in found["console:rewards/format/mean"]} == {-0.7250000238418579}


def test_a_dict_that_is_cut_off_takes_no_line_with_it(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    cut = CALL.format(loss=9.0, reward=9.0)[:80]
    rows = [CALL.format(loss=4 / at, reward=0.5) for at in range(1, 4)]
    path.write_text(lines(rows[0], cut, rows[1], cut, "step skipped", rows[2]))
    assert [value for _, value in curves_of(path)["console:loss"]] == [4.0, 2.0, 4 / 3]


def test_few_rows_are_placed_by_the_spacing_that_the_trainer_printed(tmp_path: Path) -> None:
    fields = lines("GRPOConfig(", *(f"name_{at}={at}," for at in range(8)), "logging_steps=10,", ")")
    bar = "{}%|###   | {}/14 [01:00<00:30, 9.0s/it]\n"
    place = "2026-01-18 16:33:12.772 | DEBUG    | __main__:accuracy_reward:112 - predict_answer: 57\n"
    closing = "{'train_runtime': 133.8, 'reward': 0.25, 'epoch': 1.0}\n"
    path = tmp_path / "out.txt"
    row = "{'loss': 0.5, 'reward': 0.5, 'epoch': 0.71}\n"
    path.write_text(
        fields + bar.format(64, 9) + place + row + bar.format(71, 10) + place + closing + bar.format(100, 14)
    )
    found = curves_of(path)
    assert found["reward"] == [(10, 0.5), (14, 0.25)]
    assert "accuracy_reward" not in "".join(found)


def test_counts_of_an_evaluation_do_not_mix_with_those_of_batches(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    batches = [{"reward_0": 200 + at, "reward_1": 56 - at} for at in range(12)]
    evaluations = [{"reward_0": 600 - at, "reward_1": 424 + at} for at in range(3)]
    parts = [(*batches[4 * at : 4 * at + 4], evaluation) for at, evaluation in enumerate(evaluations)]
    path.write_text(lines("Device: cuda", *(str(printed) for part in parts for printed in part)))
    found = curves_of(path)
    assert [value for _, value in found["console:reward_0"]] == [200.0 + at for at in range(12)]


def test_a_dict_that_python_breaks_behind_long_entries_is_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    entries = "{{'rewards/format_reward_function_of_ours/mean': 0.5,\n 'loss': {loss},\n 'reward': 0.25}}"
    path.write_text(lines("Device: cuda", *(entries.format(loss=4 / at) for at in range(1, 5))))
    assert [value for _, value in curves_of(path)["console:loss"]] == [4 / at for at in range(1, 5)]

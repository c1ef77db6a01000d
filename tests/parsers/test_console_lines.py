"""Console logs line by line: each dialect with a small file of its own shape, and where its rows stand."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from parser_samples import losses, pieces_of, table

from ptt.diagnostics.parsers import Context
from ptt.diagnostics.parsers.io.interface import Piece

Row = tuple[int, str, float | None]


def facts(pieces: list[Piece]) -> dict[str, object]:
    return {name: value for piece in pieces if isinstance(piece, Context) for name, value in piece.facts.items()}


def rows_of(path: Path) -> list[Row]:
    return table(pieces_of(path), "metrics").sort("seq", maintain_order=True).select("step", "name_raw", "value").rows()


def console(folder: Path, text: str, name: str = "run.out") -> Path:
    path = folder / name
    path.write_text(text)
    return path


DIALECTS: dict[str, tuple[str, list[Row]]] = {
    "a dict, then the bar that is drawn again": (
        "{'loss': 0.5, 'epoch': 0.1}\r 33%|###       | 620/1875 [00:01<00:09,  1.00it/s]\n"
        "{'loss': 0.25, 'epoch': 0.2}  66%|######    | 1240/1875 [00:01<00:09,  1.00it/s]\n",
        [(1, "console:loss", 0.5), (1, "console:epoch", 0.1), (2, "console:loss", 0.25), (2, "console:epoch", 0.2)],
    ),
    "a dict behind a logger's prefix": (
        "[INFO|callbacks.py:310] 2024-05-01 10:00:00,123 >> {'loss': 0.5, 'epoch': 0.1}\n",
        [(1, "console:loss", 0.5), (1, "console:epoch", 0.1)],
    ),
    "a dict behind its step": (
        "(Actor pid=7) [2025-01-01 10:00:00] model.py:12 - step 3: {'train/loss': 0.5, 'train/grad_norm': 1.5}\n",
        [(3, "train/loss", 0.5), (3, "train/grad_norm", 1.5)],
    ),
    "minimind": (
        "Epoch:[1/2](100/200), loss: 0.5, lr: 0.00000004, epoch_time: 9.000min\n"
        "Epoch:[2/2](100/200) loss:0.25 lr:0.00000002 epoch_Time:42.0min:\n",
        [(100, "loss", 0.5), (100, "lr", 4e-8), (300, "loss", 0.25), (300, "lr", 2e-8)],
    ),
    "pairs with an equals sign": (
        "[step 50] avg_loss=0.5 acc=0.75\n[step 100] avg_loss=0.25 acc=1\n",
        [(50, "avg_loss", 0.5), (50, "acc", 0.75), (100, "avg_loss", 0.25), (100, "acc", 1.0)],
    ),
    "pairs with a colon": (
        "2024-05-01 10:00:00 INFO Step: 20 | Loss: 0.5 | KL: 0.25\n"
        "2024-05-01 10:00:09 INFO Step: 40 | Loss: nan | KL: 1,234.5\n",
        [(20, "Loss", 0.5), (20, "KL", 0.25), (40, "Loss", None), (40, "KL", 1234.5)],
    ),
    "a place in the code before the pairs": (
        "2026-10-08 20:06:38 - INFO - grpo_fast.py:1512 - training_step: 1, scores: 0.4688, time/total: 373.9\n"
        "2026-10-08 20:12:35 - INFO - grpo_fast.py:1512 - training_step: 2, scores: 0.25, time/total: 356.2\n",
        [(1, "scores", 0.4688), (1, "time/total", 373.9), (2, "scores", 0.25), (2, "time/total", 356.2)],
    ),
    "a ratio in brackets": (
        "[12/100] loss=0.5; reward=0.25\n[13/100] loss=0.25; reward=0.5\n",
        [(12, "loss", 0.5), (12, "reward", 0.25), (13, "loss", 0.25), (13, "reward", 0.5)],
    ),
    "Megatron": (
        " [2025-01-01 10:00:00] iteration      100/    5000 | consumed samples:        25600 |"
        " elapsed time per iteration (ms): 412.3 | lm loss: 6.6E+00 | grad norm: 0.9 |\n",
        [
            (100, "consumed samples", 25600.0),
            (100, "elapsed time per iteration (ms)", 412.3),
            (100, "lm loss", 6.6),
            (100, "grad norm", 0.9),
        ],
    ),
    "nanochat": (
        "step 00012/21400 (0.06%) | loss: 9.75 | lrm: 1.00 | dt: 12.34ms | tok/sec: 1,024 | mfu: 12.5\n",
        [(12, "loss", 9.75), (12, "lrm", 1.0), (12, "tok/sec", 1024.0), (12, "mfu", 12.5)],
    ),
    "nanoGPT": (
        "step 0: train loss 4.25, val loss 4.5\niter 0: loss 4.25, time 1ms, mfu -100.00%\n",
        [(0, "train loss", 4.25), (0, "val loss", 4.5), (0, "loss", 4.25)],
    ),
    "a PyTorch example whose steps start again": (
        "Epoch [1/2], Step [100/200], Loss: 0.75\nEpoch [1/2], Step [200/200], Loss: 0.5\n"
        "Epoch [2/2], Step [100/200], Loss: 0.25\n",
        [(100, "Loss", 0.75), (200, "Loss", 0.5), (300, "Loss", 0.25)],
    ),
    "steps counted from 0 in each epoch": (
        "".join(f"Epoch {epoch}/2, Step {at}, Loss: 0.{epoch}{at}\n" for epoch in (1, 2) for at in (0, 10, 20)),
        [(30 * (epoch - 1) + at, "Loss", float(f"0.{epoch}{at}")) for epoch in (1, 2) for at in (0, 10, 20)],
    ),
    "Keras": (
        "Epoch 1/2\n 50/100 [====>.....] - ETA: 3s - loss: 0.9 - accuracy: 0.5\x08\x08\x08\x08"
        "100/100 [==========] - 3s 30ms/step - loss: 0.5 - accuracy: 0.75\n"
        "Epoch 2/2\n100/100 [==========] - 3s 30ms/step - loss: 0.25 - accuracy: 0.75\n",
        [
            (50, "loss", 0.9),
            (50, "accuracy", 0.5),
            (100, "loss", 0.5),
            (100, "accuracy", 0.75),
            (200, "loss", 0.25),
            (200, "accuracy", 0.75),
        ],
    ),
    "a bar within each iteration": (
        "GRPO ITERATION 1/60\nIter 1 groups:  50%|#####     | 10/20 [00:01<00:01,  6.40s/q, loss=0.5, mean_r=0.25]\n"
        "Iter 1 | loss=0.75 | gt_match=50.0%\n  Question generation: 2/4 valid (50%) | q_reward=0.75\n"
        "GRPO ITERATION 2/60\nIter 2 groups: 100%|##########| 20/20 [00:02<00:00,  6.40s/q, loss=0.25, mean_r=0.5]\n"
        "Iter 2 | loss=0.5 | gt_match=75.0%\n  Question generation: 3/3 valid (100%) | q_reward=0.5\n",
        [
            (1, "loss", 0.5),
            (1, "mean_r", 0.25),
            (1, "loss", 0.75),
            (1, "gt_match", 0.5),
            (1, "q_reward", 0.75),
            (2, "loss", 0.25),
            (2, "mean_r", 0.5),
            (2, "loss", 0.5),
            (2, "gt_match", 0.75),
            (2, "q_reward", 0.5),
        ],
    ),
    "Lightning's bar": (
        "\rEpoch 0:  50%|#####     | 5/10 [00:01<00:01, 11.10it/s, v_num=0, train_loss=0.5]"
        "\rEpoch 0:  60%|######    | 6/10 [00:01<00:01, 11.10it/s, v_num=0, train_loss=0.5]"
        "\rEpoch 1:  50%|#####     | 5/10 [00:01<00:01, 11.10it/s, v_num=0, train_loss=0.25]\n",
        [(5, "train_loss", 0.5), (15, "train_loss", 0.25)],
    ),
    "Lightning's bar of an unknown number of batches": (
        "Epoch 0: : 0it [04:20, ?it/s, loss=1.5, v_num=0]Epoch 0, global step 8: 'reward' was not in top 1\n"
        "\rEpoch 1: : 0it [04:20, ?it/s, loss=1.5, v_num=0]"
        "\rEpoch 1: : 0it [08:20, ?it/s, loss=-.25, v_num=0]Epoch 1, global step 16: 'reward' was not in top 1\n",
        [(8, "loss", 1.5), (16, "loss", -0.25)],
    ),
    "OpenRLHF's bar": (
        "Train epoch [1/2]:  50%|#####     | 1/2 [00:10<00:10, 10.00s/it, policy_loss=0.5, kl=0.25]\n"
        "Train epoch [2/2]:  50%|#####     | 1/2 [00:10<00:10, 10.00s/it, policy_loss=0.25, kl=0.5]\n",
        [(1, "policy_loss", 0.5), (1, "kl", 0.25), (3, "policy_loss", 0.25), (3, "kl", 0.5)],
    ),
    "a bar with a dict behind it": (
        " 10%|#         | 1/10 [00:10<01:30, 10.00s/it, {'policy_loss': 0.5, 'reward': -1.0}]\n"
        " 20%|##        | 2/10 [00:20<01:20, 10.00s/it, {'policy_loss': 0.25, 'reward': 1.0}]\n",
        [(1, "policy_loss", 0.5), (1, "reward", -1.0), (2, "policy_loss", 0.25), (2, "reward", 1.0)],
    ),
    "NeMo-RL's boxes": (
        "\n========================= Step 3/100 =========================\n▶ Preparing batch...\n"
        "\n📊 Training Results:\n  • Loss: 0.0125\n  • Avg Reward: 0.5\n  • Mean Generation Length: 512.5\n"
        "\n⏱️  Timing:\n  • Total step time: 30.10s\n"
        "\n========================= Step 4/100 =========================\n  • Loss: 0.025\n  • Avg Reward: 0.75\n",
        [
            (3, "Loss", 0.0125),
            (3, "Avg Reward", 0.5),
            (3, "Mean Generation Length", 512.5),
            (4, "Loss", 0.025),
            (4, "Avg Reward", 0.75),
        ],
    ),
    "NeMo-RL's boxes between lines of many workers, with a sample and a validation": (
        "========================= Step 3/100 =========================\n▶ Starting validation at step 3...\n"
        "╭────── 🔥 Sample 1 | Reward: 1.0000 ──────╮\n│ **Step 2:**                              │\n"
        + "(Worker pid=7) [rank0]:W0226 [0/8] torch._dynamo hit config.recompile_limit (8) norm.py:282 cache.py:1295\n"
        * 80
        + "📊 Validation Results:\n    • Accuracy: 0.25\n📊 Training Results:\n  • Loss: 0.0125\n  • Avg Reward: 0.5\n",
        [(3, "eval_Accuracy", 0.25), (3, "Loss", 0.0125), (3, "Avg Reward", 0.5)],
    ),
    "an evaluation's list that a headline ends, and a sample's numbers below a step's own": (
        "Step 1/9\nEvaluation results:\n  - accuracy: 0.25\nStep 2/9\n  - loss: 0.5\n  - reward: 0.75\nsample output:\n"
        + "some words of the answer here\n" * 30
        + "  - reward: 0\n"
        + "some words of the answer here\n" * 90
        + "  - accuracy: 90\n",
        [(1, "eval_accuracy", 0.25), (2, "loss", 0.5), (2, "reward", 0.75)],
    ),
    "PRIME-RL": (
        "10:00:00    INFO Step 7 | Time: 12.30s | Loss: 0.0125 | Entropy: 0.5 | Mismatch KL: 0.001 | LR: 1.00e-06\n",
        [(7, "Loss", 0.0125), (7, "Entropy", 0.5), (7, "Mismatch KL", 0.001), (7, "LR", 1e-6)],
    ),
    "fairseq": (
        "01-01 10:00:00 | INFO | train_inner | epoch 001:    100 / 4166 loss=7.5, ppl=180.5, num_updates=100, lr=0.5\n"
        "01-01 10:00:09 | INFO | train_inner | epoch 001:    200 / 4166 loss=6.5, ppl=90.5, num_updates=200, lr=0.5\n",
        [
            (100, "loss", 7.5),
            (100, "ppl", 180.5),
            (100, "lr", 0.5),
            (200, "loss", 6.5),
            (200, "ppl", 90.5),
            (200, "lr", 0.5),
        ],
    ),
    "Stable-Baselines3's table": (
        "----------------------------------\n| rollout/           |           |\n|    ep_rew_mean     | 22.5      |\n"
        "| time/              |           |\n|    iterations      | 1         |\n|    total_timesteps | 2048      |\n"
        "| train/             |           |\n|    approx_kl       | 0.0125    |\n----------------------------------\n",
        [(2048, "rollout/ep_rew_mean", 22.5), (2048, "time/iterations", 1.0), (2048, "train/approx_kl", 0.0125)],
    ),
    "OLMo's boxes": (
        "2024-01-01 10:00:00.481\thost:0\tolmo.train:990\tINFO\t[step=10/1000,epoch=0]\n"
        "    optim/total_grad_norm=5.5\n    train/CrossEntropyLoss=9.25\n    throughput/device/tokens=1,024\n",
        [
            (10, "optim/total_grad_norm", 5.5),
            (10, "train/CrossEntropyLoss", 9.25),
            (10, "throughput/device/tokens", 1024),
        ],
    ),
    "DeepSpeed-Chat": (
        "epoch: 0|step: 3|ppo_ep: 1|act_loss: 0.5|cri_loss: 0.25\naverage reward score: -1.5\n"
        "epoch: 0|step: 4|ppo_ep: 1|act_loss: 0.25|cri_loss: 0.5\n",
        [
            *[(3, "ppo_ep", 1.0), (3, "act_loss", 0.5), (3, "cri_loss", 0.25), (3, "average reward score", -1.5)],
            *[(4, "ppo_ep", 1.0), (4, "act_loss", 0.25), (4, "cri_loss", 0.5)],
        ],
    ),
    "losses below an epoch": (
        "Epoch 1:\nTrain: 1.5 (13783.75s)\nVal:   0.75 (535.96s)\n\nEpoch 2:\nTrain: nan (14531.83s)\n",
        [(1, "console:Train", 1.5), (1, "console:Val", 0.75), (2, "console:Train", None)],
    ),
    "splits by a label": (
        "Epoch 1/2\nTrain - Loss: 0.5, Acc: 75%\nVal - Loss: 0.75, Acc: 50%\n",
        [
            *[(1, "console:Loss", 0.5), (1, "console:Acc", 0.75)],
            *[(1, "console:eval_Loss", 0.75), (1, "console:eval_Acc", 0.5)],
        ],
    ),
    "numbers behind a blank, before others": (
        "Episode: 3 reward -18.000 eps: 0.25\nEpisode: 4 reward -14.000 eps: 0.5\n",
        [(3, "console:reward", -18.0), (3, "console:eps", 0.25), (4, "console:reward", -14.0), (4, "console:eps", 0.5)],
    ),
    "numbers before a bar": (
        "\rEpoch 1/2 loss 0.5:  50%|#####     | 5/10 [00:01<00:01, 11.10it/s]"
        "\rEpoch 2/2 loss 0.25:  50%|#####     | 5/10 [00:01<00:01, 11.10it/s]\n",
        [(5, "loss", 0.5), (15, "loss", 0.25)],
    ),
    "bars below their epoch's headline": (
        "==== Epoch 1 ====\nLoss 0.5: 100%|##########| 10/10 [00:01<00:00, 11.10it/s]\n"
        "==== Epoch 2 ====\nLoss 0.25: 100%|##########| 10/10 [00:01<00:00, 11.10it/s]\n",
        [(10, "Loss", 0.5), (20, "Loss", 0.25)],
    ),
    "veRL, with a sample between": (
        "step:1 - actor/pg_loss:0.5 - critic/rewards/mean:0.25\n### Step 1:\nFormat score: 1\n"
        "step:2 - actor/pg_loss:0.25 - critic/rewards/mean:0.5\n",
        [
            *[(1, "actor/pg_loss", 0.5), (1, "critic/rewards/mean", 0.25)],
            *[(2, "actor/pg_loss", 0.25), (2, "critic/rewards/mean", 0.5)],
        ],
    ),
    "names in brackets": (
        "[Epoch 1/2] [Batch 40/300] [D loss: 0.5] [G loss: 1.25]\n",
        [(40, "D loss", 0.5), (40, "G loss", 1.25)],
    ),
    "batches of an epoch": (
        "(Worker pid=7) train | epoch   1 |  100/ 2000 batches | lr 20.00 | ms/batch 20.1 | loss  7.25 | ppl  1234.5\n",
        [(100, "lr", 20.0), (100, "loss", 7.25), (100, "ppl", 1234.5)],
    ),
    "Rich's bar": (
        "Epoch 0/9 ━━━━━━━━━━ 12/120 0:00:01 • 0:00:10 11.1it/s v_num: 0.000 train_loss: 0.5\n",
        [(12, "train_loss", 0.5)],
    ),
    "prose": (
        "Step 12: loss is 0.5\nAfter step 24, the loss is 0.25 and the mean reward is 0.75.\n",
        [(12, "loss", 0.5), (24, "loss", 0.25), (24, "mean reward", 0.75)],
    ),
    "JSON behind a prefix": (
        '2024-01-01 10:00:00 INFO {"step": 3, "loss": 0.5, "note": "x"}\n',
        [(3, "loss", 0.5)],
    ),
    "episodes": (
        "Episode 5 | reward: -10.5 | steps: 30\nEpisode 6 | reward: 0.75 | steps: 12\n",
        [
            (5, "console:reward", -10.5),
            (5, "console:steps", 30.0),
            (6, "console:reward", 0.75),
            (6, "console:steps", 12.0),
        ],
    ),
    "epochs": (
        "Epoch 1/3: train_loss=0.5 val_acc=93.5%\nEpoch 2/3: train_loss=0.25 val_acc=94.5%\n",
        [
            (1, "console:train_loss", 0.5),
            (1, "console:val_acc", 0.935),
            (2, "console:train_loss", 0.25),
            (2, "console:val_acc", 0.945),
        ],
    ),
    "shares and lists of the samples": (
        "[step 1/200] correct=3/4 rewards=['0.80', '0.80', '0.00', '0.40'] loss=-0.5 shard=3/8 gpus=[0, 1, 2]\n"
        "  [attempt 2] SKIP (ALL_WRONG, rewards=[0.0, 0.0, 0.0, 0.0]) - resampling\n"
        "[step 2/200] correct=0/4 rewards=[0.5, 1.0] loss=0.25 shard=4/8 gpus=[0, 1, 2]\n",
        [
            (1, "correct", 0.75),
            (1, "rewards", 0.5),
            (1, "loss", -0.5),
            (2, "correct", 0.0),
            (2, "rewards", 0.75),
            (2, "loss", 0.25),
        ],
    ),
    "metrics that count nothing": (
        "loss: 0.75, reward: 0.25\nloss: 0.5, reward: 0.5\nloss: 0.25, reward: 0.75\n",
        [
            (1, "console:loss", 0.75),
            (1, "console:reward", 0.25),
            (2, "console:loss", 0.5),
            (2, "console:reward", 0.5),
            (3, "console:loss", 0.25),
            (3, "console:reward", 0.75),
        ],
    ),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_is_read_in_a_file_of_any_name(tmp_path: Path, name: str) -> None:
    text, wanted = DIALECTS[name]
    for file in ("run.out", "slurm-123", "0.err"):
        path = console(tmp_path, text, file)
        found = rows_of(path)
        assert [row[:2] for row in found] == [row[:2] for row in wanted]
        assert [row[2] for row in found] == pytest.approx([row[2] for row in wanted])


def test_lines_of_settings_and_timings_are_no_metrics(tmp_path: Path) -> None:
    path = console(
        tmp_path,
        "Reward weights: accuracy=0.7, grounding=0.25, length_penalty_max=0.05\n"
        "Training for max steps: 1000, lr: 0.001, beta: 0.1\n"
        "[timing] sample processed in 191.74s\n"
        "Mémoire GPU: 6.46 GB allouée / 7.62 GB réservée\n" * 3 + "[step 50] loss=0.5 time=3.5s mem=12GB\n"
        "[step 60] loss=0.25 time=3.5s mem=12GB\n",
    )
    assert rows_of(path) == [(50, "loss", 0.5), (60, "loss", 0.25)]


def hugging_face(rows: int, every: int, total: int, *, clear: bool, closing: bool = True, cut: int = 0) -> str:
    """Write a console where each row came out some rows later than its bar, as a redirected one has them."""
    text, waiting = "", []
    for step in range(1, total + 1):
        text += f"\r  1%|#         | {step}/{total} [00:01<00:09,  1.00it/s]"
        if step % every == 0 and step // every <= rows:
            waiting.append(f"{{'loss': {step / 1000}, 'epoch': {round(step / total, 2)}}}\n")
            if clear:
                text += "\r" + " " * 50 + f"\r\r  1%|#         | {step}/{total} [00:01<00:09,  1.00it/s]"
    if closing:
        waiting.append("{'train_runtime': 12.5, 'train_loss': 0.5, 'epoch': 1.0}\n")
        text += "\r" + " " * 50 + f"\r\r100%|##########| {total}/{total} [00:01<00:09,  1.00it/s]" if clear else ""
    return text + "\n" + "".join(waiting[: len(waiting) - cut])


def test_what_a_script_prints_for_each_batch_counts_no_step_of_the_trainer(tmp_path: Path) -> None:
    text = ""
    for step in range(1, 101):
        text += f"\n{{'dpo/margin_mean': {step / 10}, 'epoch': {step / 100}}}\n" * 2
        text += f"\r{step:3}%|#         | {step}/100 [00:01<00:09,  1.00it/s]"
        if step % 10 == 0:
            text += f"\n{{'loss': {step / 1000}, 'learning_rate': 1e-06, 'epoch': {step / 100}}}\n"
    pieces = pieces_of(console(tmp_path, text + "\n{'train_runtime': 12.5, 'epoch': 1.0}\n"))
    found = table(pieces, "metrics")
    assert found.filter(pl.col("name_raw") == "loss")["step"].to_list() == list(range(10, 101, 10))
    assert facts(pieces)["max_steps"] == 100


@pytest.mark.parametrize("clear", [True, False])
def test_rows_are_placed_by_the_bars_that_were_drawn_around_them(tmp_path: Path, clear: bool) -> None:
    pieces = pieces_of(console(tmp_path, hugging_face(9, 20, 190, clear=clear)))
    found = table(pieces, "metrics").filter(pl.col("name_raw") == "loss")
    assert found["step"].to_list() == list(range(20, 200, 20))
    assert found["name"].to_list() == ["loss/total"] * 9
    assert facts(pieces) == {
        "rows_placed_by": "progress bars, one row every 20 steps",
        "max_steps": 190,
        "train_runtime": 12.5,
    }
    assert "row_unit" not in facts(pieces)
    assert table(pieces, "events").filter(pl.col("kind") == "exit").rows()[0][:4] == (
        190 if clear else 180,
        None,
        "exit",
        "training completed",
    )


def test_rows_behind_a_bar_each_stand_at_its_step(tmp_path: Path) -> None:
    text = "".join(
        f"  5%|#         | {step}/200 [00:53<16:18,  5.15s/it]{{'loss': 0.5, 'epoch': {step / 1000}}}\n"
        for step in (10, 20, 30)
    )
    assert [step for step, name, _ in rows_of(console(tmp_path, text)) if name == "loss"] == [10, 20, 30]


def test_rows_that_were_printed_and_never_written_are_counted(tmp_path: Path) -> None:
    pieces = pieces_of(console(tmp_path, hugging_face(9, 20, 190, clear=True, closing=False, cut=3)))
    assert table(pieces, "metrics").filter(pl.col("name_raw") == "loss")["step"].to_list() == [20, 40, 60, 80, 100, 120]
    assert losses(pieces)[0] == 3


def test_rows_stay_numbered_where_bars_leave_several_spacings(tmp_path: Path) -> None:
    pieces = pieces_of(console(tmp_path, hugging_face(4, 7, 190, clear=False, closing=False)))
    assert table(pieces, "metrics")["step"].unique().sort().to_list() == [1, 2, 3, 4]
    assert facts(pieces) == {"row_unit": "row"}


def test_a_row_that_a_bar_overwrote_is_counted(tmp_path: Path) -> None:
    text = "{'loss': 0.5, 'epoch': 0.1}\n{'loss': 0.25, 'grad_n 33%|###       | 620/1875 [00:01<00:09,  1.00it/s]\n"
    pieces = pieces_of(console(tmp_path, text))
    assert losses(pieces)[0] == 1
    assert len(table(pieces, "metrics")) == 2


def test_the_total_of_a_bar_that_counts_along_is_the_number_of_steps(tmp_path: Path) -> None:
    text = "".join(
        f"(TaskRunner pid=7) step:{step} - actor/pg_loss:0.5 - critic/rewards/mean:0.25\n"
        f"(TaskRunner pid=7) \rTraining Progress:   1%|          | {step}/300 [00:01<00:09,  1.00s/it]\n"
        for step in range(1, 5)
    )
    assert facts(pieces_of(console(tmp_path, text))) == {"framework": "verl", "max_steps": 300}


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("Episode 5 | reward: 0.5\nEpisode 6 | reward: 0.75\n", "episode"),
        ("Epoch 1/3: loss=0.5\nEpoch 2/3: loss=0.25\n", "epoch"),
        ("{'loss': 0.5, 'epoch': 0.1}\n", "row"),
    ],
)
def test_what_rows_count_is_told_where_it_is_no_step(tmp_path: Path, text: str, unit: str) -> None:
    assert facts(pieces_of(console(tmp_path, text)))["row_unit"] == unit


def test_an_epochs_summary_stands_at_its_last_step(tmp_path: Path) -> None:
    text = "step 10 | loss: 0.5\nstep 20 | loss: 0.25\nEpoch 1: val_loss=0.5\nstep 30 | loss: 0.25\n"
    assert (20, "val_loss", 0.5) in rows_of(console(tmp_path, text))


def test_a_console_that_is_one_line_of_bars_is_read_to_its_end(tmp_path: Path) -> None:
    values = [f"{4 / (1 + step):.4f}" for step in range(5000)]
    values.append(values[-1])  # only the bar goes on
    drawn = (
        f"\rTraining: {step // 50:3d}%|{'#' * (step // 500):10s}| {step}/5000 [00:01<00:09, 20.0it/s, L={loss}]"
        for step, loss in enumerate(values)
    )
    path = console(tmp_path, "".join(drawn) + "\n")
    assert path.stat().st_size > 1 << 18
    found = rows_of(path)
    assert (found[0], found[-1]) == ((0, "L", 4.0), (5000, "L", 0.0008))


def test_lines_that_recur_beside_a_trainers_rows_stay_in_their_own_count(tmp_path: Path) -> None:
    text = ""
    for step in range(1, 41):
        text += f"\nmean loss: {step / 100}\nmean reward: {step / 50}\n"
        text += f"\r{step:3}%|#         | {step}/40 [00:01<00:09,  1.00it/s]"
        text += f"\n{{'loss': {step / 1000}, 'learning_rate': 1e-06, 'epoch': {step / 40}}}\n"
    found = table(pieces_of(console(tmp_path, text + "\n{'train_runtime': 12.5, 'epoch': 1.0}\n")), "metrics")
    for name in ("loss", "console:mean loss", "console:mean reward"):
        assert found.filter(pl.col("name_raw") == name)["step"].to_list() == list(range(1, 41))

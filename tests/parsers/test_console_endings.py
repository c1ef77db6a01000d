"""How a run ended, as its console tells it, and which texts are taken for a console."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from parser_samples import pieces_of, run_file, table, takers

from ptt.diagnostics.parsers import Context

RAISED = (
    "Traceback (most recent call last):\n"
    '  File "/home/a/train.py", line 12, in <module>\n    main()\n'
    '  File "/home/a/reward_fn.py", line 41, in score\n    raise NotImplementedError("no maze")\n'
    '  File "/opt/conda/lib/python3.11/site-packages/torch/nn.py", line 7, in call\n    fail()\n'
    "NotImplementedError: no maze\n"
)
ROWS = "step 10 | loss: 0.5\nstep 20 | loss: 0.25\n"
WHERE = "NotImplementedError: no maze (reward_fn.py:41)"
PRINTED_END = "{'train_runtime': 12.5, 'train_loss': 0.5, 'epoch': 1.0}\n"


def console(folder: Path, text: str) -> Path:
    path = folder / "0.err"
    path.write_text(text)
    return path


def ends(path: Path) -> list[tuple[int | None, str, str]]:
    events = table(pieces_of(path), "events")
    kinds = ("exception", "exit", "last_line")
    return events.filter(pl.col("kind").is_in(kinds)).select("step", "kind", "text").rows() if len(events) else []


def facts(path: Path) -> dict[str, object]:
    return {key: value for piece in pieces_of(path) if isinstance(piece, Context) for key, value in piece.facts.items()}


def prefixed(text: str, prefix: str) -> str:
    return "".join(f"{prefix}{line}" for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "\x1b[36m(TaskRunner pid=123)\x1b[0m ",
        "[rank0]: ",
        "[default3]:",
        "3: ",
        "2024-05-01 10:00:00,123 - ERROR - ",
        "(WorkerDict pid=7, ip=10.0.0.1) ",
    ],
)
@pytest.mark.parametrize("before", ["", ROWS])
def test_an_exception_is_told_with_the_line_of_the_users_code(tmp_path: Path, prefix: str, before: str) -> None:
    path = console(tmp_path, before + prefixed(RAISED, prefix))
    assert takers(run_file(path)) == ["console_log"]
    assert ends(path) == [(20 if before else None, "exception", WHERE)]


def test_the_last_of_chained_exceptions_is_told(tmp_path: Path) -> None:
    chained = (
        RAISED
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + RAISED.replace("NotImplementedError: no maze", "KeyError: 'x'").replace("line 41", "line 43")
    )
    assert ends(console(tmp_path, chained)) == [(None, "exception", "KeyError: 'x' (reward_fn.py:43)")]


def test_the_cause_below_rays_exception_is_told(tmp_path: Path) -> None:
    text = (
        'Traceback (most recent call last):\n  File "/home/a/main.py", line 5, in main\n    ray.get(run.remote())\n'
        "ray.exceptions.RayTaskError(ValueError): \x1b[36mray::run()\x1b[39m (pid=7, ip=10.0.0.1)\n"
        '  File "/home/a/trainer/__init__.py", line 9, in fit\n    raise ValueError("bad batch")\n'
        "ValueError: bad batch\n"
    )
    assert ends(console(tmp_path, text)) == [(None, "exception", "ValueError: bad batch (trainer/__init__.py:9)")]


def test_what_only_follows_from_another_exception_is_left_out(tmp_path: Path) -> None:
    launcher = (
        'Traceback (most recent call last):\n  File "/opt/bin/torchrun", line 8, in <module>\n    main()\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\ntrain.py FAILED\n"
    )
    ranks = prefixed(RAISED, "[rank0]: ") + prefixed(RAISED, "[rank1]: ")
    assert ends(console(tmp_path, ranks + launcher)) == [(None, "exception", WHERE)]
    assert [text for _, _, text in ends(console(tmp_path, launcher))] == ["ChildFailedError (torchrun:8)"]


def test_a_rich_traceback_is_read(tmp_path: Path) -> None:
    text = (
        "╭───────────── Traceback (most recent call last) ─────────────╮\n"
        "│ /home/a/train.py:12 in <module>                             │\n"
        "│   ❱ 12 main()                                               │\n"
        "╰─────────────────────────────────────────────────────────────╯\n"
        "KeyError: 'prompt'\n"
    )
    assert ends(console(tmp_path, text)) == [(None, "exception", "KeyError: 'prompt' (train.py:12)")]


@pytest.mark.parametrize(
    "line",
    [
        "KeyboardInterrupt",
        "Killed",
        "./run.sh: line 12:  4711 Killed                  python train.py",
        "slurmstepd: error: *** JOB 4711 ON node1 CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** STEP 4711.0 ON node1 CANCELLED AT 2024-05-01T10:00:00 DUE TO PREEMPTION ***",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.",
        "Received SIGTERM, saving a checkpoint",
        "Signal d'interruption reçu. Arrêt propre à la fin de cette étape...",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "[rank2]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7) ran for 600000 milliseconds",
    ],
)
def test_what_stopped_a_run_from_outside_is_told(tmp_path: Path, line: str) -> None:
    ((step, kind, text),) = ends(console(tmp_path, ROWS + line + "\n"))
    assert (step, kind) == (20, "exception")
    assert text[-20:] == line[-20:]


@pytest.mark.parametrize(
    "bar", ["  0%|          | 0/41 [00:00<?, ?it/s]", "\r 22%|##        | 11/50 [1:56:28<6:52, 635.4s/it]"]
)
def test_what_is_printed_behind_a_bar_is_read(tmp_path: Path, bar: str) -> None:
    assert ends(console(tmp_path, bar + RAISED)) == [(None, "exception", WHERE)]
    cancelled = "slurmstepd: error: *** JOB 47 ON n1 CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***"
    assert ends(console(tmp_path, bar + "\n" + bar + bar + cancelled + "\n")) == [(None, "exception", cancelled)]


def test_a_message_may_begin_on_the_next_line(tmp_path: Path) -> None:
    for line, told in (("RuntimeError: ", "RuntimeError: no such device"), ("EOFError", "EOFError")):
        text = RAISED.replace("NotImplementedError: no maze", line) + "  no such device\n"
        assert [text for _, _, text in ends(console(tmp_path, text))] == [f"{told} (reward_fn.py:41)"]


def test_a_message_may_be_longer_than_what_usually_follows_an_exception(tmp_path: Path) -> None:
    text = "2024-05-01 10:00:00,123 INFO loading\n" * 3 + RAISED + "for (int j = 0; j < n; j++) {\n" * 400
    assert [text for _, kind, text in ends(console(tmp_path, text)) if kind == "exception"] == [WHERE]


def test_words_of_a_source_that_foresees_an_end_are_none(tmp_path: Path) -> None:
    text = ROWS + "    run: bool = False  # evaluate after training completed\nTensorBoard caught SIGTERM; exiting...\n"
    assert [kind for _, kind, _ in ends(console(tmp_path, text))] == ["last_line"]


def test_an_exception_that_training_survived_is_not_its_end(tmp_path: Path) -> None:
    found = ends(console(tmp_path, RAISED + ROWS))
    assert found == [(0, "exception", WHERE), (20, "last_line", "step 20 | loss: 0.25")]


@pytest.mark.parametrize(
    "closing",
    [PRINTED_END, "Training completed in 3 h\n", "Training finished!\n", "INFO - DPO fine-tuning completed at noon\n"],
)
def test_an_exception_before_the_closing_words_differs_from_one_behind_them(tmp_path: Path, closing: str) -> None:
    after = console(tmp_path, ROWS + closing + RAISED)
    assert [(kind, text) for _, kind, text in ends(after)] == [("exit", "training completed"), ("exception", WHERE)]
    assert facts(after)["exception_after_training"] is True
    before = console(tmp_path, RAISED + ROWS + closing)
    assert [kind for _, kind, _ in ends(before)] == ["exception", "exit"]
    assert "exception_after_training" not in facts(before)


def test_done_closes_a_run_whose_last_step_was_reached(tmp_path: Path) -> None:
    text = "[1/2] loss=0.5\n[2/2] loss=0.25\nDone.\n"
    assert [(kind, step) for step, kind, _ in ends(console(tmp_path, text))] == [("exit", 2)]
    assert [kind for _, kind, _ in ends(console(tmp_path, text.replace("/2", "/9")))] == ["last_line"]


def test_wandbs_summary_closes_a_run_unless_an_exception_came_before(tmp_path: Path) -> None:
    summary = "wandb: \nwandb: Run history:\nwandb: loss ▁▂▃\n"
    assert [kind for _, kind, _ in ends(console(tmp_path, ROWS + summary))] == ["exit"]
    assert [kind for _, kind, _ in ends(console(tmp_path, ROWS + RAISED + summary))] == ["exception"]


def test_the_last_line_is_kept_of_a_console_that_just_ends(tmp_path: Path) -> None:
    text = (
        ROWS + "\r 10%|###       | 20/100 [00:01<00:09,  1.00it/s]\r 20%|###       | 21/100 [00:01<00:09,  1.00it/s]\n"
    )
    assert ends(console(tmp_path, text)) == [(20, "last_line", "20%| 21/100 [00:01<00:09,  1.00it/s]")]


@pytest.mark.parametrize(
    ("last", "kept"),
    [
        (
            "step 30 | loss: 0.12 | kl: 0.5 | saving the optimiser",
            "step 30 | loss: 0.12 | kl: 0.5 | saving the optimiser",
        ),
        ("waiting | node 3 | rank 12 | ready", "waiting | node 3 | rank 12 | ready"),
        ("  7%|1         | 7/100 [00:01<00:09]", "7%| 7/100 [00:01<00:09]"),
        ("60%|\u2588\u2588\u2588\u258d    | 6/10 | loss 0.5 |", "60%| 6/10 | loss 0.5 |"),
        ("Train |\u2588\u2588\u2588   | 6/10", "Train | 6/10"),
    ],
)
def test_the_last_line_keeps_what_stands_between_pipes_but_pictures_of_bars(
    last: str, kept: str, tmp_path: Path
) -> None:
    assert ends(console(tmp_path, f"{ROWS}{last}\n"))[-1][1:] == ("last_line", kept)


def test_a_torn_last_line_costs_a_row_but_no_words(tmp_path: Path) -> None:
    assert [kind for _, kind, _ in ends(console(tmp_path, ROWS + "KeyboardInterrupt"))] == ["exception"]
    pieces = pieces_of(console(tmp_path, ROWS + "step 30 | loss: 0.12"))
    assert table(pieces, "metrics")["step"].to_list() == [10, 20]


README = (
    "# trainer\n\nRun it:\n\n```\nstep 1 | loss: 0.5\nstep 2 | loss: 0.25\n"
    + RAISED
    + "```\n\nThen read on.\n"
    + "More.\n" * 80
)
NO_LOGS = {
    "README.md": README,
    "train.py": f'"""Print.\n\n{ROWS}"""\nprint(f"step {{step}} | loss: {{loss}}")\n',
    "train": "import torch\n\nfor step in range(100):\n    loss = model(step)\n    print(f'step {step} loss {loss}')\n",
    "config.yaml": "learning_rate: 0.001\nloss: 0.5\nepochs: 3\nsteps: 100\n",
    "config": "lr: 0.001\nbeta: 0.1\nmax_steps: 100\nsteps: 100\nloss: dpo\nreward: 1.0\n",
    "requirements.txt": "torch==2.4.0\ntransformers>=4.44.0\nloss-functions==1.0\nstep-counter==3\n",
    "LICENSE": "MIT License\n\n1. Redistributions must retain step 3 of this list.\n2. No loss is 0.5 of anything.\n"
    * 30,
    "merges.txt": "#version: 0.2\nĠ t\nĠ a\nh e\ni n\nr e\no n\nĠt he\n" * 100,
    "vocab.txt": "[PAD]\n[UNK]\nstep\nloss\n##ing\n0\n1\n2\n" * 100,
    "train.txt": "Step 1: x = 4, y = 7\nStep 2: x + y = 11\nStep 3: 2 * 11 = 22\nThe answer is 22.\n\n" * 50,
    "tinystories.txt": "Once upon a time there was a cat. It took 3 steps. At step 4 it fell. Done.\n" * 200,
    "data.tsv": "step\tloss\n1\t0.5\n2\t0.25\n",
    "poetry.lock": 'name = "torch"\nversion = "2.4.0"\n',
    "tokenizer.model.txt": "<unk> 0\n<s> 0\n</s> 0\n▁t -0\n▁a -1\n" * 100,
    "issue.txt": "It fails:\n\n    " + RAISED.replace("\n", "\n    ") + "\nPlease help.\n",
    "prompts.txt": '{"prompt": "step 1: loss = 3"}\n{"prompt": "step 2: loss = 4"}\n',
    "judge.txt": "The reward is 1.0 where it is right. Reward: 0.5, and reward: 1 for all who read this far.\n" * 9,
    "settings.log": "config: {'batch_size': 12, 'learning_rate': 0.001, 'max_iters': 100}\n",
    "debug.log": "2024-10-12 15:43:04,911 INFO MainThread:7 [wandb_setup.py:_flush():77] x\n" + ROWS + RAISED,
    "page.html": f"<html><pre>{ROWS}</pre></html>",
    "job.sh": "#!/bin/bash\n#SBATCH --time=1:00\npython train.py --lr=0.1 --steps=100 --loss=0.5\n",
    "binary.log": "step 1 | loss: 0.5\nstep 2 | loss: 0.25\n\0\0\0",
    "empty.log": "",
}


@pytest.mark.parametrize("name", NO_LOGS)
def test_a_text_that_is_no_console_is_left_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(NO_LOGS[name])
    assert "console_log" not in takers(run_file(path))


def test_a_head_that_ends_inside_a_character_is_a_text(tmp_path: Path) -> None:
    for shift in range(3):
        path = console(tmp_path, "x" * shift + "模型训练\n" * 9000 + ROWS)
        assert takers(run_file(path)) == ["console_log"]


def test_an_exception_behind_rows_that_bars_place_is_of_the_last_of_them(tmp_path: Path) -> None:
    bar = "\r {at}%|#   | {at}/40 [01:40<1:10:29, 9.69s/it]\n"
    row = "{{'loss': 0.5, 'reward': 0.25, 'epoch': {epoch}}}\n"
    told = "[step 4] lr: 1e-06 beta: 0.04 loss: 0.5\n"
    rows = [bar.format(at=at) + row.format(epoch=at / 40) + (told if at == 4 else "") for at in range(1, 31)]
    found = ends(console(tmp_path, "".join(rows) + RAISED))
    assert (30, "exception", WHERE) in found

"""Which rows of a file are a training log's: runs below each other, torn rows, pasted output, and what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from parser_samples import facts_of, losses, parser_named, pieces_of, run_file, table, takers

import ptt
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.store.scan import read_table


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def curve(path: Path, name: str) -> list[tuple[int, float]]:
    metrics = table(pieces_of(path), "metrics")
    return [(row["step"], row["value"]) for row in metrics.rows(named=True) if row["name_raw"].endswith(name)]


def seeds(epochs: int) -> str:
    return jsonl(
        [
            {"seed": seed, "epoch": epoch, "train_loss": 1 - epoch / 8 + seed / 64}
            for seed in (0, 1, 2)
            for epoch in range(epochs)
        ]
    )


def sb3(step: int) -> str:
    return (
        "-----------------------------\n"
        "| rollout/           |      |\n"
        f"|    ep_rew_mean     | {step / 1024} |\n"
        "| time/              |      |\n"
        f"|    total_timesteps | {step} |\n"
        "-----------------------------\n"
    )


def notes(steps: int) -> str:
    return "# PPO agent\n```\nUsing cpu device\n" + "".join(sb3(2048 * at) for at in range(1, steps + 1)) + "```\n"


SET_BACK = [*range(1, 9), *range(5, 12), 1]
WEIGHTS = [[0.25] * 8] * 80


def printed(rows: int) -> str:
    """Return a console of the Trainer: a dict a step, and the bar that counts them."""
    return "".join(
        f"{{'loss': 0.5, 'reward': {at / 8}, 'epoch': {at}.0}}\n {at}%|#  | {at}/{rows} [00:0{at}<00:10, 1.2s/it]\n"
        for at in range(1, rows + 1)
    )


LOGS: dict[str, tuple[str, str, str, list[tuple[int, float]]]] = {
    "the seeds of one script": (
        "metrics.jsonl",
        seeds(3),
        "train_loss",
        [(at, 1 - at / 8 + seed / 64) for seed in (0, 1, 2) for at in range(3)],
    ),
    "steps that begin again in each epoch, and a label": (
        "metrics.json",
        json.dumps(
            [
                {"epoch": at // 4, "step": at % 4, "raw_reward": at / 8, "loss": 0.5, "kl": 0.25, "source": "AUTO"}
                for at in range(8)
            ]
        ),
        "raw_reward",
        [(at + 1, at / 8) for at in range(8)],
    ),
    "JSON lines that are called CSV, with a model in each": (
        "log.csv",
        jsonl(
            [
                {"generation": at, "best_fitness": at, "avg_fitness": at / 2, "best_weights": {"w1": WEIGHTS}}
                for at in range(4)
            ]
        ),
        "avg_fitness",
        [(at, at / 2) for at in range(4)],
    ),
    "a counter that was set back twice": (
        "metrics.csv",
        "timestamp,global_iter,version,train_loss,eval_score\n"
        + "".join(f"2026-04-25T09:0{at % 9}:11,{step},v{at},{at / 8},0.5\n" for at, step in enumerate(SET_BACK)),
        "train_loss",
        [(step, at / 8) for at, step in enumerate(SET_BACK)],
    ),
    "the output of a run kept in a text": (
        "results.md",
        notes(12),
        "ep_rew_mean",
        [(2048 * at, 2.0 * at) for at in range(1, 13)],
    ),
    "a console that was saved under the name of a text": (
        "20251225.md",
        printed(12),
        "reward",
        [(at, at / 8) for at in range(1, 13)],
    ),
}  # fmt: skip

NO_LOGS: dict[str, tuple[str, str]] = {
    "a result a seed": ("results.jsonl", seeds(1)),
    "two rows a seed": ("sizes.jsonl", seeds(2)),
    "an example in a manual": ("README.md", notes(12)),
    "an example in a text": ("guide.md", notes(3)),
    "a text of a few printed rows": ("notes.md", printed(9)),
    "a text with headings around printed rows": ("guide.md", "# Train\n" + printed(12)),
    "a report that quotes output": ("report.md", "A word.\n" * 100 + notes(12)),
    "samples from a source": (
        "data.jsonl",
        jsonl([{"step": at, "source": "a web page with a long title", "score": 0.5, "reward": 1.0} for at in range(9)]),
    ),
}


@pytest.mark.parametrize("case", LOGS)
def test_rows_are_read_as_they_stand(tmp_path: Path, case: str) -> None:
    name, text, metric, expected = LOGS[case]
    assert curve(written(tmp_path, name, text), metric) == expected


@pytest.mark.parametrize("case", NO_LOGS)
def test_what_is_no_log_gives_no_metric(tmp_path: Path, case: str) -> None:
    file = run_file(written(tmp_path, *NO_LOGS[case]))
    for taker in takers(file):
        assert table(list(parser_named(taker).read(file)), "metrics").is_empty()


def arms(rows: int) -> str:
    """Return the curves of three arms below each other, each from step 0 on."""
    lines = [f'"{arm}, T1.{at}",{step},{(step + at) / 8},0.5' for at, arm in enumerate("abc") for step in range(rows)]
    return "\n".join(["arm,step,critic/score/mean,actor/entropy_loss", *lines, ""])


def test_a_column_of_texts_that_restarts_the_step_names_runs(tmp_path: Path) -> None:
    path = written(tmp_path, "curves.csv", arms(12))
    assert curve(path, "critic/score/mean") == [(step, (step + at) / 8) for at in range(3) for step in range(12)]
    assert curve(path, "run") == [(step, float(at)) for at in range(3) for step in range(12)]
    assert "arm names 3 runs: a, T1.0; b, T1.1; c, T1.2." in losses(pieces_of(path))[2]
    assert ptt.diagnose(tmp_path).run.context["runs_in_file"] == 3


def test_a_table_of_results_by_name_is_no_log(tmp_path: Path) -> None:
    assert not takers(run_file(written(tmp_path, "curves.csv", arms(9))))


@pytest.mark.parametrize("torn", ["4,0.25,9,9", "4,9", "4,4,0.5,0.25,5,0.5,0.25"])
def test_a_row_with_other_fields_than_its_header_is_lost_and_counted(tmp_path: Path, torn: str) -> None:
    rows = [f"{at},{at / 8},0.25" for at in range(1, 8)]
    rows[3] = torn
    path = written(tmp_path, "progress.csv", "\n".join(["step,loss,reward", *rows, ""]))
    assert curve(path, "loss") == [(at, at / 8) for at in (1, 2, 3, 5, 6, 7)]
    lost, _, said = losses(pieces_of(path))
    assert lost == 1
    assert "torn or run together" in said


def test_a_separator_in_quotes_tears_no_row(tmp_path: Path) -> None:
    rows = "".join(f'{at},{at / 8},"a, b"\n' if at % 3 == 0 else f"{at},{at / 8},c\n" for at in range(1, 8))
    path = written(tmp_path, "progress.csv", f"step,loss,note\n{rows}")
    assert curve(path, "loss") == [(at, at / 8) for at in range(1, 8)]


LENGTHS: dict[str, tuple[str, str, dict[str, int]]] = {
    "Spinning Up": ("config.json", '{"epochs": 10, "pi_lr": 0.0003}', {"planned_epochs": 10}),
    "Lightning": ("hparams.yaml", "lr: 0.001\nmax_epochs: 20\n", {"planned_epochs": 20}),
    "W&B": ("config.yaml", "max_iters:\n    desc: null\n    value: 5000\n", {"planned_steps": 5000}),
    "classic RL": ("args.json", '{"env": {"num_episodes": 500}}', {"planned_episodes": 500}),
    "a column": ("log.csv", "step,total_steps,loss\n10,40,0.5\n20,40,0.4\n30,40,0.3\n", {"planned_steps": 40}),
    "Tinker": (
        "metrics.jsonl",
        jsonl([{"step": at, "progress/done_frac": (at + 1) / 7, "optim/lr": 0.1, "loss": 0.5} for at in range(7)]),
        {"max_steps": 7, "global_step": 6},
    ),
    "a header row": (
        "log.jsonl",
        jsonl([{"event": "config", "num_steps": 3}, *({"step": at, "loss": 0.5} for at in range(3))]),
        {"counted_steps": 3},
    ),
}


@pytest.mark.parametrize("case", LENGTHS)
def test_how_long_a_run_was_to_be_is_read(tmp_path: Path, case: str) -> None:
    name, text, expected = LENGTHS[case]
    assert facts_of(written(tmp_path, name, text)).items() >= expected.items()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("args.json", '{"rollout": {"enable_prefix_caching": true, "temperature": 0.7}, "lora_rank": 16}'),
        (
            "config.yaml",
            "rollout: {enable_prefix_caching: true, temperature: 0.7}\n# use_peft: true\nlora_rank: 16\n",
        ),
    ],
)
def test_what_sets_the_engine_apart_is_read(tmp_path: Path, name: str, text: str) -> None:
    expected = {"enable_prefix_caching": True, "temperature": 0.7, "lora_rank": 16}
    assert facts_of(written(tmp_path, name, text)) == expected


@pytest.mark.parametrize("name", ["package.json", "config.toml"])
def test_other_files_are_no_settings(tmp_path: Path, name: str) -> None:
    assert not takers(run_file(written(tmp_path, name, '{"epochs": 10}')))


def test_a_row_that_says_so_ends_a_log(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [*({"step": at, "loss": 0.5} for at in range(4)), {"event": "done"}]
    assert facts_of(written(tmp_path, "log.jsonl", jsonl(rows)))["status"] == "completed"
    assert "status" not in facts_of(written(tmp_path, "open.jsonl", jsonl([*rows, {"step": 4, "loss": 0.5}])))


@pytest.mark.parametrize(
    ("line", "closes"),
    [
        ("Stage 3 학습 완료!", True),
        ("训练完成", True),
        ("Entraînement terminé.", True),
        ("Total training time: 3h 12m", True),
        ("Saved final adapter to out/", True),
        ("Epoch 3 finished", False),
        ("체크포인트 저장 완료", False),
        ("Loading done", False),
    ],
)
def test_the_last_words_say_whether_the_run_was_whole(tmp_path: Path, line: str, *, closes: bool) -> None:
    rows = "".join(f"step {10 * at} | loss: {at / 8}\n" for at in range(1, 4))
    events = table(pieces_of(written(tmp_path, "train.log", f"{rows}{line}\n")), "events")
    assert ("exit" in events["kind"].to_list()) is closes
    gone_on = table(pieces_of(written(tmp_path, "again.log", f"{line}\n{rows}")), "events")
    assert "exit" not in gone_on["kind"].to_list()


def test_the_batches_of_an_epoch_do_not_hide_each_other(tmp_path: Path) -> None:
    rows = "".join(f"epoch:  {at // 5} loss:  {at / 8}\n" for at in range(15))
    path = written(tmp_path, "nohup.out", rows)
    assert curve(path, "loss") == [(at + 1, at / 8) for at in range(15)]
    assert facts_of(path)["row_unit"] == "row"


def test_one_of_several_seeds_in_a_file_is_judged_and_their_number_told(tmp_path: Path) -> None:
    outcome = ptt.diagnose(written(tmp_path, "metrics.jsonl", seeds(6)).parent).outcome
    assert outcome is not None
    assert outcome.said.startswith("The file holds 3 runs; the last is judged. The log ends at epoch 5")


def test_a_missing_library_is_the_cause_of_what_follows(tmp_path: Path) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/app/worker.py", line 5, in start\n'
        "    import fast_attention\n"
        "ImportError: fast_attention.so: undefined symbol: _ZN3c10\n"
        "\n"
        "The above exception was the direct cause of the following exception:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "/app/main.py", line 9, in main\n'
        "    start()\n"
        "RuntimeError: The actor with name Worker failed to import on the worker.\n"
    )
    events = table(pieces_of(written(tmp_path, "train.log", text)), "events")
    raised = [row["text"] for row in events.rows(named=True) if row["kind"] == "exception"]
    assert raised[0].startswith("ImportError: fast_attention.so: undefined symbol")


@pytest.mark.parametrize(("name", "rows"), [("fixed_width.txt", 60), ("pipes.log", 40)])
def test_a_table_goes_on_behind_a_line_that_is_no_row(name: str, rows: int, tmp_path: Path) -> None:
    store = ptt.ingest(Path(__file__).parents[1] / "fixtures" / "own_logs" / name, out=tmp_path)
    logged = read_table(store, "metrics").filter(~pl.col("name_raw").str.starts_with("console_lines/"))
    assert set(logged.group_by("name_raw").len()["len"]) == {rows}


def test_a_number_with_a_decimal_comma_is_not_read_as_another(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(f"step {n}: loss 0,{700 - n}, reward 0,{100 + n}\n" for n in range(1, 30)))
    with pytest.raises(InputError):
        ptt.ingest(tmp_path / "a.log", out=tmp_path / "out")


def test_rows_marked_as_an_evaluation_are_none_of_training(tmp_path: Path) -> None:
    rows = [{"step": 10 * n, "loss": 0.5, "reward": 0.1 * n, "lr": 1e-5, "eval": n == 3} for n in range(1, 6)]
    rows.insert(3, {"step": 30, "eval": True, "recall@10": 0.25})
    path = tmp_path / "train.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = table(pieces_of(path), "metrics").filter(pl.col("split") == "eval")
    assert found.filter(pl.col("name_raw") != "eval").select("step", "name_raw", "value").rows() == [
        (30, "eval/recall@10", 0.25)
    ]

"""What is a metric log, and what only looks like one: by content, whatever the file is called."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from parser_samples import losses, pieces_of, run_file, table, takers
from samples_calls import jsonl

from ptt.diagnostics.parsers import Context, Piece

Rows = list[dict[str, Any]]


def written(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content)).encode()
    path.write_bytes(content)
    return path


def series(pieces: list[Piece], name: str) -> list[tuple[int, float | None]]:
    frame = table(pieces, "metrics").filter(pl.col("name_raw") == name).sort("step", "seq")
    return [(step, value) for step, value in frame.select("step", "value").iter_rows()]


def facts(pieces: list[Piece]) -> dict[str, Any]:
    told = [piece.facts for piece in pieces if isinstance(piece, Context)]
    return {key: value for one in told for key, value in one.items()}


STEPS: Rows = [{"step": step, "loss": 1 / step, "lr": 1e-5} for step in (1, 2, 3)]
LOSSES = [(1, 1.0), (2, 0.5), (3, 1 / 3)]
SAME: dict[str, Any] = {
    "log.json": STEPS,
    "rows.txt": jsonl(STEPS),
    "out": jsonl(STEPS),
    "train.log": jsonl(STEPS),
    "one_a_line.json": jsonl(STEPS),
    "lists.jsonl": "".join(f"[{json.dumps(row)}]\n" for row in STEPS),
    "columns.json": {name: [row[name] for row in STEPS] for name in ("step", "loss", "lr")},
    "by_step.json": {str(row["step"]): {"loss": row["loss"], "lr": row["lr"]} for row in STEPS},
    "by_name.json": {f"step_{row['step']}": {"loss": row["loss"]} for row in STEPS},
    "beside.json": {"config": {"lr": 1e-5, "layers": [1, 2]}, "history": STEPS, "best": {"loss": 0.3}},
    "deep.json": {"run": {"results": {"metrics": STEPS}}},
    "points.json": {"loss": [[row["step"], row["loss"]] for row in STEPS]},
    "objects.json": {"loss": [{"step": row["step"], "value": row["loss"]} for row in STEPS]},
    "run-a-tag-loss.json": [[1.7e9 + row["step"], row["step"], row["loss"]] for row in STEPS],
    "packed.json.gz": gzip.compress(json.dumps(STEPS).encode(), mtime=0),
    "packed.txt.gz": gzip.compress(jsonl(STEPS), mtime=0),
    "packed.csv.gz": gzip.compress(b"step,loss\n1,1.0\n2,0.5\n3,0.3333333333333333\n", mtime=0),
    "headed.json": [["step", "loss"], *([row["step"], row["loss"]] for row in STEPS)],
    "indexed.json": {name: {str(at): row[name] for at, row in enumerate(STEPS)} for name in ("step", "loss", "lr")},
    "split.json": {
        "columns": ["step", "loss"],
        "index": [0, 1, 2],
        "data": [[row["step"], row["loss"]] for row in STEPS],
    },
    "values.jsonl": jsonl([{"globalStep": row["step"], "values": {"loss": row["loss"]}} for row in STEPS]),
    "comet.json": [
        {"metricName": name, "metricValue": str(row[name]), "step": row["step"], "timestamp": 1}
        for row in STEPS
        for name in ("loss", "lr")
    ],
    "long.jsonl": jsonl(
        [{"key": name, "value": row[name], "step": row["step"]} for row in STEPS for name in ("loss", "lr")]
    ),
    "fairseq.txt": jsonl([{"epoch": 1, "num_updates": str(row["step"]), "loss": str(row["loss"])} for row in STEPS]),
    "run-a-tag-loss.csv": "Wall time,Step,Value\n1.7e9,1,1.0\n1.7e9,2,0.5\n1.7e9,3,0.3333333333333333\n",
    "units.json": [{**row, "memory": "8.2GB / 11GB", "used": "69%", "took": "1h 2m", "left": "3 s"} for row in STEPS],
    "cells_of_lines.csv": "step,loss,values\n"
    + "".join(f'{row["step"]},{row["loss"]},"[1.5\n 2.5]"\n' for row in STEPS),
    "monitor.json": [
        {"step": row["step"], "timestamp": "2026-01-02", "metrics": {"loss": row["loss"]}} for row in STEPS
    ],
    "actions.csv": "step,task_id,action,loss\n1,a,look,1.0\n2,a,act,0.5\n3,b,look,0.3333333333333333\n",
    "table.csv": "Step,Loss\n1,1.0\n2,0.5\n3,0.3333333333333333\n",
    "table.dat": "step\tloss\tlr\n1\t1.0\t1e-5\n2\t0.5\t1e-5\n3\t0.3333333333333333\t1e-5\n",
}


@pytest.mark.parametrize("name", SAME)
def test_a_log_over_steps_is_read_in_whatever_shape_it_comes(tmp_path: Path, name: str) -> None:
    pieces = pieces_of(written(tmp_path, name, SAME[name]))
    assert (series(pieces, "loss") or series(pieces, "Loss")) == LOSSES
    assert "row_unit" not in facts(pieces)
    assert losses(pieces) == (0, 0, "")


COUNTED: dict[str, tuple[str, Any]] = {
    "episode": ("episode", [{"episode": at, "reward": at / 2, "steps": 9 - at % 3} for at in (1, 2, 3, 4)]),
    "epoch": ("epoch", {"epochs": [1, 2, 3, 4], "train_loss": [2, 1, 1, 1], "reward": [0.5, 1.0, 1.5, 2.0]}),
    "nothing": ("row", {"train_loss": [2, 1, 1, 1], "reward": [0.5, 1.0, 1.5, 2.0]}),
    "batches of epochs": (
        "row",
        [{"epoch": at // 2, "batch": at % 2, "loss": 0.5, "reward": (at + 1) / 2} for at in range(4)],
    ),
    "steps of epochs": (
        "row",
        [{"epoch": at // 2, "step": at % 2, "loss": 0.5, "reward": (at + 1) / 2} for at in range(4)],
    ),
    "environment settings in front": (
        "row",
        [
            {"env_info": "sys.platform: linux\n" * 20, "seed": 0},
            *(
                {"mode": "train", "epoch": 1 + at // 2, "iter": at % 2, "loss": 0.5, "reward": (at + 1) / 2}
                for at in range(4)
            ),
        ],
    ),
    "times alone": (
        "row",
        [{"timestamp": f"2026-01-02 03:04:0{at}", "cpu": 5.5, "gamma": 45, "reward": at / 2} for at in (1, 2, 3, 4)],
    ),
    "epoch as a part": ("row", [{"epoch": at / 8, "loss": 0.5, "reward": at / 2} for at in (1, 2, 3, 4)]),
}


@pytest.mark.parametrize("name", COUNTED)
def test_rows_without_a_step_are_counted_in_what_they_have(tmp_path: Path, name: str) -> None:
    unit, content = COUNTED[name]
    pieces = pieces_of(written(tmp_path, "log.json", content))
    assert series(pieces, "console:reward") == [(1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0)]
    assert facts(pieces)["row_unit"] == unit
    rewards = table(pieces, "metrics").filter(pl.col("name_raw") == "console:reward")
    assert set(rewards["name"]) == {"reward/mean"}


def test_the_step_of_the_trainer_counts_before_episodes_and_epochs(tmp_path: Path) -> None:
    rows = [{"epoch": at // 2, "episode": at, "update": at, "reward": 0.5, "global_step": at * 100} for at in range(4)]
    pieces = pieces_of(written(tmp_path, "log.json", rows))
    assert [step for step, _ in series(pieces, "reward")] == [0, 100, 200, 300]


def test_parts_that_name_their_step_apart_count_together_where_they_count_the_same(tmp_path: Path) -> None:
    def read(updates: int) -> list[Piece]:
        rows: Rows = []
        for at in range(20):
            rows += [
                {"rollout/step": at, "rollout/raw_reward": 0.1 * at},
                {"train/step": updates * at, "train/loss": 1.0},
            ]
        return pieces_of(written(tmp_path, f"{updates}/metrics.jsonl", jsonl(rows)))

    alike = read(1)
    assert [step for step, _ in series(alike, "rollout/raw_reward")] == list(range(20))
    assert series(alike, "train/loss")[7] == (7, 1.0)
    assert not series(read(4), "rollout/raw_reward")


def test_a_resumed_run_keeps_its_steps(tmp_path: Path) -> None:
    steps = [*range(1, 31), *range(21, 41)]
    rows = [{"step": step, "epoch": step // 10, "loss": 0.5} for step in steps]
    pieces = pieces_of(written(tmp_path, "metrics.jsonl", jsonl(rows)))
    assert [step for step, _ in series(pieces, "loss")] == sorted(steps)


def test_rows_of_an_evaluation_stand_in_series_of_their_own(tmp_path: Path) -> None:
    rows = [
        {"type": kind, "step": at, "loss": at + (kind == "eval") / 2} for at in (1, 2) for kind in ("train", "eval")
    ]
    for name, content in {"a.jsonl": jsonl(rows), "b.json": rows}.items():
        pieces = pieces_of(written(tmp_path, name, content))
        assert series(pieces, "loss") == [(1, 1.0), (2, 2.0)]
        assert series(pieces, "eval/loss") == [(1, 1.5), (2, 2.5)]
    columns = "type,step,loss\n" + "".join(f"{row['type']},{row['step']},{row['loss']}\n" for row in rows)
    assert series(pieces_of(written(tmp_path, "c.csv", columns)), "eval/loss") == [(1, 1.5), (2, 2.5)]


def test_a_curve_may_spell_nan_out_and_stand_beside_settings(tmp_path: Path) -> None:
    curve = {"start": 1, "steps": [1, 2, 3], "values": ["nan", 0.5, 0.25]}
    document = {"loss": curve, "reward": [[1, 0.5], [2, 0.75]], "kl": {"steps": [1], "values": [0.1]}}
    pieces = pieces_of(written(tmp_path, "curves.json", document))
    assert series(pieces, "loss") == [(1, None), (2, 0.5), (3, 0.25)]
    assert series(pieces, "reward") == [(1, 0.5), (2, 0.75)]


def test_several_logs_of_a_document_keep_apart_what_they_share(tmp_path: Path) -> None:
    document = {
        "train": STEPS,
        "val": [{"step": 3, "loss": 0.5}, {"step": 6, "loss": 0.25}],
        "episodes": [{"episode": at, "reward": at, "loss": 9.0} for at in (1, 2)],
    }
    pieces = pieces_of(written(tmp_path, "log.json", document))
    assert series(pieces, "loss") == LOSSES
    assert series(pieces, "val/loss") == [(3, 0.5), (6, 0.25)]
    assert series(pieces, "console:episodes/reward") == [(1, 1.0), (2, 2.0)]
    assert "row_unit" not in facts(pieces)


def test_lists_under_one_tail_keep_what_stands_before_it(tmp_path: Path) -> None:
    document = {
        "train/loss": [{"step": step, "loss": loss} for step, loss in LOSSES],
        "val/loss": [{"step": 3, "loss": 2.0}, {"step": 6, "loss": 3.0}],
        "kl": [{"step": step, "kl": 0.1} for step, _ in LOSSES],
    }
    pieces = pieces_of(written(tmp_path, "log.json", document))
    assert series(pieces, "train/loss") == LOSSES
    assert series(pieces, "val/loss") == [(3, 2.0), (6, 3.0)]
    assert series(pieces, "kl") == [(step, 0.1) for step, _ in LOSSES]


@pytest.mark.parametrize(
    ("keys", "runs"),
    [(("seed_1", "seed_2"), 2), (("sft", "rl"), 2), (("actor", "critic"), 1), (("agent_0", "agent_1"), 1),
     (("training_set", "holdout"), 1)],
)  # fmt: skip
def test_logs_under_keys_are_runs_only_where_the_keys_name_runs(
    tmp_path: Path, keys: tuple[str, ...], runs: int
) -> None:
    pieces = pieces_of(
        written(tmp_path, "log.json", {key: [row | {"reward": at} for row in STEPS] for at, key in enumerate(keys)})
    )
    losses = series(pieces, "loss") if runs > 1 else series(pieces, f"{keys[0]}/loss")
    assert losses == sorted(LOSSES * runs)


def test_a_log_tells_how_long_the_run_was_to_be(tmp_path: Path) -> None:
    rows = [{"current_steps": at, "total_steps": 4, "loss": 0.5} for at in (2, 4)]
    assert facts(pieces_of(written(tmp_path, "trainer_log.jsonl", jsonl(rows)))) == {"max_steps": 4, "global_step": 4}
    ended = [*STEPS, {"step": 3, "train_runtime": 12.5, "train_loss": 0.5}]
    assert facts(pieces_of(written(tmp_path, "log.json", ended)))["train_runtime"] == 12.5
    summary = {"epoch": 3.0, "train_loss": 0.5, "train_runtime": 12.5, "train_samples_per_second": 4.0}
    pieces = pieces_of(written(tmp_path, "all_results.json", summary))
    assert (facts(pieces), losses(pieces)) == ({"train_runtime": 12.5}, (0, 0, ""))


def test_a_torn_document_keeps_its_whole_rows(tmp_path: Path) -> None:
    for content in (json.dumps(STEPS), json.dumps({"history": STEPS})):
        pieces = pieces_of(written(tmp_path, "log.json", content[: content.index('"step": 3') + 12]))
        assert series(pieces, "loss") == LOSSES[:2]
        assert losses(pieces)[0] == 1


def test_a_document_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 1 / step} for step in range(1, 20_000)]
    path = written(tmp_path, "log.json", {"history": rows})
    assert takers(run_file(path)) == ["metrics_json"]
    assert len(series(pieces_of(path), "loss")) == len(rows)


def test_a_state_is_known_under_any_name_and_inside_a_document(tmp_path: Path) -> None:
    state = {"global_step": 3, "max_steps": 3, "log_history": STEPS}
    for content in (state, {"args": {"note": '"x": ['}, "trainer": {"state": state}}):
        path = written(tmp_path, "training_logs.json", content)
        assert takers(run_file(path)) == ["trl_state"]
        pieces = pieces_of(path)
        assert series(pieces, "loss") == LOSSES
        assert facts(pieces)["max_steps"] == 3
    torn = json.dumps(state)
    pieces = pieces_of(written(tmp_path, "copy.json", torn[: torn.rindex("{") + 5]))
    assert series(pieces, "loss") == LOSSES[:2]


PROSE = "It was the best of times, it was the worst of times. " * 3
NEGATIVES: dict[str, Any] = {
    "config.json": {"hidden_size": 64, "num_layers": 2, "router_aux_loss_coef": 0.001, "eos_token_id": [1, 2]},
    "adapter_config.json": {"r": 8, "lora_alpha": 16, "target_modules": ["q", "v"], "lora_dropout": 0.0},
    "generation_config.json": {"temperature": 0.7, "top_p": 0.9, "eos_token_id": [1, 2, 3]},
    "tokenizer.json": {
        "version": "1.0",
        "added_tokens": [{"id": at, "content": f"<{at}>", "special": True} for at in range(5)],
        "model": {"vocab": {"loss": 1, "reward": 2}, "merges": ["l o", "s s"]},
    },
    "vocab.json": {"loss": 0, "reward": 1, "step": 2, "kl": 3},
    "special_tokens_map.json": {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": {"content": "</s>"}},
    "model.safetensors.index.json": {"metadata": {"total_size": 9}, "weight_map": {"a.weight": "model-1.safetensors"}},
    "package-lock.json": {"lockfileVersion": 3, "packages": {"node_modules/loss": {"version": "1.0.0", "dev": True}}},
    "requirements.txt": "torch==2.1\ntrl==0.9\n",
    "poetry.lock": '[[package]]\nname = "loss"\nversion = "1.0"\n',
    "sft.jsonl": jsonl([{"id": at, "instruction": "Add", "output": "3", "score": 0.5} for at in range(5)]),
    "sft.json": [{"id": at, "question": "1 + 2?", "answer": "3", "reward": 0.5, "loss": 0.1} for at in range(5)],
    "dataset.csv": "id,text,label\n1,hello,0\n2,there,1\n3,again,0\n",
    "tasks.csv": "step,task_id,reward\n" + "".join(f"{n % 2 + 1},{'ab'[n // 2 % 2]},0.{n}\n" for n in range(8)),
    "scored.csv": "sample_id,length,reward\n1,20,0.5\n2,30,0.25\n3,40,0.5\n",
    "prices.csv": "Date,Open,High,Low,Close,Volume\n2026-01-02,1,2,1,2,9\n2026-01-03,2,3,2,3,9\n2026-01-04,2,3,2,3,9\n",
    "houses.csv": "area,rooms,price\n50,2,100\n60,3,120\n70,3,130\n",
    "chat.json": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi", "score": 1}],
    "chats.jsonl": jsonl([{"messages": [{"role": "user", "content": "Hello"}], "reward": 0.5}] * 3),
    "notebook.ipynb": {
        "cells": [{"cell_type": "code", "execution_count": at, "source": ["loss = 1"]} for at in (1, 2)]
    },
    "lm_eval.json": {"results": {"arc": {"acc,none": 0.5, "acc_stderr,none": 0.01}, "mmlu": {"acc,none": 0.25}}},
    "leaderboard.json": [{"model": name, "accuracy": 0.5, "loss": 0.25} for name in ("a", "b", "c")],
    "leaderboard.csv": "model,accuracy,loss\na,0.5,0.1\nb,0.25,0.2\nc,0.75,0.3\n",
    "sweep.json": [{"trial_id": at, "lr": 1e-4 * at, "final_loss": 0.5, "epochs": at % 2 + 3} for at in range(5)],
    "eval_results.json": {"epoch": 3.0, "eval_loss": 0.5, "eval_samples_per_second": 4.0},
    "wandb-metadata.json": {"os": "Linux", "args": ["--loss", "x"], "gpu_count": 2, "disk": {"/": {"total": 9}}},
    "ds_config.json": {"zero_optimization": {"stage": 2}, "fp16": {"loss_scale": 0}, "train_batch_size": "auto"},
    "map.geojson": {"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {"n": 1}}] * 3},
    "recipe.json": [{"step": at, "text": "Stir.", "minutes": 5} for at in (1, 2, 3)],
    "recipe.csv": "number,instruction\n1,Stir\n2,Wait\n",
    "story.jsonl": jsonl([{"chapter": at, "text": PROSE, "score": 0.5} for at in (1, 2, 3)]),
    "trajectory.json": [{"step": at, "action": "left", "observation": PROSE, "reward": 0.0} for at in (1, 2, 3)],
    "insurance.csv": "claim,premium,loss\n1,20,3\n4,50,6\n7,80,9\n",
    "settings.json": {"columns": ["name", "loss"], "data": [["a", 0.5], ["b", 0.25], ["c", 0.5]]},
    "compared.json": {"matched": [{"steps": 100, "tokens": 5}, {"steps": 200, "tokens": 9}]},
    "arms.json": [{"agent": name, "env_step": at, "rew": 0.5} for name in ("a", "b", "c") for at in range(4)],
    "seeds.csv": "seed,step,loss\n" + "".join(f"{seed},{at},0.5\n" for seed in (1, 2, 3) for at in range(2)),
    "by_seeds.json": {str(seed): {"reward": 0.5, "loss": 0.1} for seed in (42, 43, 44)},
    "per_depth.json": {"depths": {str(depth): {"loss": 0.5, "reward": 0.5} for depth in (8, 16)}},
    "scored.json": {"prompts": ["a", "b", "c"], "responses": ["d", "e", "f"], "reward_scores": [0.5, 0.25, 0.75]},
    "games.json": [{"round": at, "score": at * 10, "player": "x"} for at in (1, 2, 3)],
    "summary.json": {"loss": 0.5, "reward": 0.25, "_step": 100, "_runtime": 5.0},
    "by_seed.json": {"accuracy": [0.5, 0.25, 0.75], "seeds": [1, 2, 3]},
    "plot.json": {"x": [1, 2, 3], "y": [1.5, 2.5, 3.5]},
    "progress.jsonl": jsonl(
        [{"current_steps": at, "total_steps": 9, "percentage": 1.5, "epoch": 0.1} for at in (1, 2)]
    ),
    "numbers.txt": "1,2,3\n4,5,6\n7,8,9\n",
    "prose.txt": "loss, and reward\nare words, too\nof us, all\n",
    "settings.jsonl": jsonl([{"name": "lr", "value": 0.1}, {"name": "beta", "value": 0.2}, {"name": "kl", "value": 1}]),
    "brackets.json": b"[" * 70_000,
    "closed.json": b"}" * 100,
}


@pytest.mark.parametrize("name", NEGATIVES)
def test_what_is_no_log_is_not_read_as_metrics(tmp_path: Path, name: str) -> None:
    taken = takers(run_file(written(tmp_path, name, NEGATIVES[name])))
    assert not [taker for taker in taken if taker.startswith(("metrics_", "trl_state"))]


def test_a_parquet_table_may_be_counted_in_other_things_than_steps(tmp_path: Path) -> None:
    rewards = [0.5, 1.0, 1.5, 2.0]
    for unit, columns in {
        "episode": {"episode": [1, 2, 3, 4], "reward": rewards, "length": [5, 6, 7, 8]},
        "row": {"epoch": [1, 1, 1, 2], "batch": [1, 2, 3, 1], "reward": rewards},
    }.items():
        path = tmp_path / f"{unit}.parquet"
        pl.DataFrame(columns).write_parquet(path)
        pieces = pieces_of(path)
        assert series(pieces, "console:reward") == list(enumerate(rewards, 1))
        assert facts(pieces) == {"row_unit": unit}
    for number, foreign in enumerate(({"id": [1, 2], "reward": [0.5, 1.0]}, {"epoch": [1, 2], "text": ["a", "b"]})):
        path = tmp_path / f"{number}.parquet"
        pl.DataFrame(foreign).write_parquet(path)
        assert takers(run_file(path)) == []

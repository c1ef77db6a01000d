"""What the carriers' samples yield: steps where only some rows name them, flags, events, samples of machines."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
import time
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parser_samples import SAMPLES, losses, parser_named, pieces_of, run_file, table, takers
from samples_calls import jsonl
from samples_carriers import STATS, WANDB, sized, wandb_file, wandb_history, wandb_item

from ptt.diagnostics.parsers import Context, Piece, RunFile, wandb
from ptt.diagnostics.schema import Flag


def read(samples: dict[str, Path], rel: str) -> list[Piece]:
    return list(parser_named(SAMPLES[rel][0]).read(run_file(samples[rel], rel)))


def metrics(pieces: list[Piece]) -> list[tuple[object, ...]]:
    return table(pieces, "metrics").select("step", "name_raw", "value", "flag").rows()


def facts(pieces: list[Piece]) -> dict[str, object]:
    return {key: value for piece in pieces if isinstance(piece, Context) for key, value in piece.facts.items()}


def test_wandb_rows_without_the_step_belong_to_the_last_that_named_it(samples: dict[str, Path]) -> None:
    pieces = read(samples, "wandb/offline-run-1/run-1.wandb")
    assert metrics(pieces) == [
        (1, "profiling/wait", 0.5, Flag.FINITE),
        (1, "train/loss", 0.25, Flag.FINITE),
        (2, "train/loss", None, Flag.NAN),
        (2, "train/kl", None, Flag.NEG_INF),
        (2, "a.b", 0.001, Flag.FINITE),
        (2, "best", 0.75, Flag.FINITE),
    ]
    assert table(pieces, "metrics")["wall_time"][0] == 1700000001.5
    assert table(pieces, "events").select("step", "kind", "text").rows() == [
        (2, "stdout", "ValueError: no such thing"),
        (2, "exception", "ValueError: no such thing"),
        (2, "exit", "exit code 1 after 35 s"),
    ]
    assert table(pieces, "ranks").select("step", "wall_time", "device", "name", "value").rows() == [
        (2, 1.700000003e9, 1, "gpu.1.gpu", 75.5)
    ]
    assert facts(pieces) == {"beta": 0.04}


def test_texts_are_kept_whole_only_on_request(samples: dict[str, Path]) -> None:
    path = samples["wandb/offline-run-1/run-1.wandb"]
    file = RunFile(path=path, rel="x.wandb", size=path.stat().st_size, keep_text=True)
    events = table(list(wandb.PARSER.read(file)), "events")
    printed = events.filter(pl.col("kind") != "exception")["text"].to_list()
    assert printed == ["loading", "ValueError: no such thing", "exit code 1 after 35 s"]


def test_wandb_without_a_trainers_step_counts_log_calls(tmp_path: Path) -> None:
    calls = [wandb_history({"loss": f"{at / 4}", "_step": str(at)}, at) for at in range(3)]
    path = tmp_path / "run-1.wandb"
    path.write_bytes(wandb_file([*calls, WANDB[-1]]))
    assert [(step, value) for step, _, value, _ in metrics(pieces_of(path))] == [(0, 0.0), (1, 0.25), (2, 0.5)]


def typed(name: str, value: bytes) -> bytes:
    return sized(1, sized(1, name) + value)


def test_wandb_values_given_by_type_are_read(tmp_path: Path) -> None:
    double = b"\x31" + struct.pack("<d", 0.375)  # field 6, eight bytes
    whole = b"\x28\x05"  # field 5, zigzag: -3
    yes, none = b"\x20\x01", b"\x18\x00"
    items = typed("a", double) + typed("b", whole) + typed("c", yes) + typed("d", none) + typed("step", b"\x28\x0e")
    path = tmp_path / "run-1.wandb"
    path.write_bytes(wandb_file([sized(2, items), WANDB[-1]]))
    assert metrics(pieces_of(path)) == [
        (7, "a", 0.375, Flag.FINITE),
        (7, "b", -3.0, Flag.FINITE),
        (7, "c", 1.0, Flag.FINITE),
        (7, "d", None, Flag.NULL_IN_SOURCE),
    ]


def test_a_wandb_record_over_several_blocks_is_put_together(tmp_path: Path) -> None:
    padding = sized(3, sized(1, wandb_item("text", '"' + "x" * 100_000 + '"')))
    path = tmp_path / "run-1.wandb"
    path.write_bytes(wandb_file([WANDB[2], padding, *WANDB[3:]]))
    pieces = pieces_of(path)
    assert [row[0] for row in metrics(pieces)] == [1, 2, 2, 2, 2]
    assert losses(pieces) == (0, 0, "")


def test_a_damaged_wandb_block_costs_that_block_alone(tmp_path: Path) -> None:
    calls = [wandb_history({"loss": str(at), "step": str(at)}, at) for at in range(4000)]
    data = bytearray(wandb_file([*calls, WANDB[-1]]))
    data[2 * 32768 + 100] ^= 1
    path = tmp_path / "run-1.wandb"
    path.write_bytes(bytes(data))
    pieces = pieces_of(path)
    steps = [step for step, _, _, _ in metrics(pieces)]
    missing = sorted(set(range(4000)) - set(steps))
    assert missing == list(range(missing[0], missing[-1] + 1))
    assert 0 < len(missing) < 32768 / len(calls[-1])
    rows, size, note = losses(pieces)
    assert (rows, 30000 < size < 33000) == (1, True)
    assert "is damaged at byte" in note


def test_a_wandb_log_without_exit_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run-1.wandb"
    path.write_bytes(wandb_file(WANDB[:-1]))
    assert "no exit record" in losses(pieces_of(path))[2]


def test_deep_json_in_a_wandb_value_costs_that_value(tmp_path: Path) -> None:
    deep = wandb_history({"bad": '{"a":' * 100_000, "loss": "0.5", "step": "1"}, 0)
    path = tmp_path / "run-1.wandb"
    path.write_bytes(wandb_file([deep, STATS, WANDB[-1]]))
    assert metrics(pieces_of(path)) == [(1, "loss", 0.5, Flag.FINITE)]


def test_mlflow_flags_nan_and_infinities(samples: dict[str, Path]) -> None:
    pieces = read(samples, "mlflow.db")
    assert metrics(pieces) == [
        (1, "train/loss", 0.25, Flag.FINITE),
        (2, "train/loss", None, Flag.NAN),
        (2, "train/kl", None, Flag.POS_INF),
    ]
    assert table(pieces, "ranks").select("device", "value").rows() == [(3, 12.5)]
    assert facts(pieces) == {"beta": 0.04}
    (rel,) = [rel for rel in SAMPLES if rel.startswith("mlruns/")]
    assert metrics(read(samples, rel)) == [
        (1, "train/loss", 0.25, Flag.FINITE),
        (2, "train/loss", None, Flag.NAN),
        (3, "train/loss", None, Flag.NEG_INF),
    ]


def test_exports_take_the_trainers_step_and_the_plain_column(samples: dict[str, Path]) -> None:
    assert metrics(read(samples, "export/history.parquet")) == [
        (1, "profiling/wait", 0.5, Flag.FINITE),
        (1, "train/loss", 0.25, Flag.FINITE),
        (2, "train/loss", None, Flag.NAN),
    ]
    assert metrics(read(samples, "export/long.parquet")) == [
        (1, "loss", 0.5, Flag.FINITE),
        (2, "loss", 0.25, Flag.FINITE),
    ]
    assert metrics(read(samples, "export/chart.csv")) == [
        (1, "train/loss", 0.5, Flag.FINITE),
        (2, "train/loss", None, Flag.NAN),
    ]


def test_charts_of_several_runs_keep_the_runs_apart(tmp_path: Path) -> None:
    path = tmp_path / "chart.csv"
    path.write_text("Step,one - loss,two - loss\n1,0.5,0.75\n")
    assert [(name, value) for _, name, value, _ in metrics(pieces_of(path))] == [
        ("one - loss", 0.5),
        ("two - loss", 0.75),
    ]
    assert table(pieces_of(path), "metrics")["name"].null_count() == 2


def test_console_lines_are_read_without_being_evaluated(samples: dict[str, Path]) -> None:
    assert metrics(read(samples, "torchtune/log_1700000000.txt")) == [
        (1, "loss", 0.5, Flag.FINITE),
        (1, "lr", 0.001, Flag.FINITE),
        (1, "kl_loss", None, Flag.NAN),
        (2, "loss", 0.25, Flag.FINITE),
        (2, "lr", 0.001, Flag.FINITE),
        (2, "rewards", 0.75, Flag.FINITE),
    ]
    pieces = read(samples, "verl/train.log")
    assert metrics(pieces) == [
        (1, "actor/pg_loss", 0.25, Flag.FINITE),
        (1, "actor/grad_norm", 1.5, Flag.FINITE),
        (1, "training/epoch", 0.0, Flag.FINITE),
        (2, "actor/pg_loss", None, Flag.NAN),
        (2, "actor/grad_norm", None, Flag.POS_INF),
    ]
    printed = table(pieces, "events").filter(pl.col("kind") == "stdout")
    assert printed.select("step", "text").rows() == [(1, "Traceback (most recent call last):")]
    assert facts(pieces) == {"framework": "verl"}


def test_printed_dicts_are_numbered_and_never_share_a_series_with_known_steps(samples: dict[str, Path]) -> None:
    pieces = read(samples, "hf/train.log")
    rows = table(pieces, "metrics").select("step", "name_raw", "name", "split", "value").rows()
    assert (1, "console:loss", "loss/total", "train", 0.5) in rows
    assert (1, "console:kl", "kl/ref", "train", 1.5e-05) in rows
    assert (1, "console:grad_norm", "grad_norm", "train", None) in rows
    assert (1, "console:eval_loss", "eval/loss", "eval", 0.75) in rows
    assert (2, "console:grad_norm", "grad_norm", "train", 0.5) in rows
    assert (2, "console:train_loss", None, "train", 0.375) in rows


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': __import__('os').system('true'), 'epoch': 1}",
        "{'loss': [1, 2], 'epoch': 1}",
        "{'prompt': 'what is it', 'answer': 'nothing'}",
        "{'loss': 0.5, 'epoch': 1",
        "Step one | loss:0.5",
        "next step: 3 - wait",
    ],
)
def test_other_lines_are_no_log_calls(tmp_path: Path, line: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(line + "\n")
    assert takers(run_file(path)) == []


def test_a_very_long_line_costs_little_time(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"step:1 - loss:0.5\n" + b"{'a': " * 8_000_000 + b"\nstep:2 - loss:0.25\n")
    started = time.monotonic()
    assert [row[0] for row in metrics(pieces_of(path))] == [1, 2]
    assert time.monotonic() - started < 10


def test_json_lines_of_swift_art_and_tinker_name_their_framework(samples: dict[str, Path]) -> None:
    swift = read(samples, "swift/logging.jsonl")
    assert [(step, value) for step, name, value, _ in metrics(swift) if name == "loss"] == [(1, 0.5), (2, 0.25)]
    assert losses(swift) == (0, 0, "")
    logs = {"swift/logging.jsonl": "ms-swift", "art/history.jsonl": "art", "tinker/metrics.jsonl": "tinker"}
    assert {rel: facts(read(samples, rel))["framework"] for rel in logs} == logs


def test_areal_traces_are_durations_by_rank(samples: dict[str, Path]) -> None:
    columns = ["step", "rank", "name", "value"]
    assert table(read(samples, "perf_tracer/traces-r1.jsonl"), "ranks").select(columns).rows() == [
        (4, 1, "phase/train.rollout", 2.5)
    ]
    assert table(read(samples, "perf_tracer/sessions-r1.jsonl"), "ranks").select(columns).rows() == [
        (None, 1, "session/total_s", 4.0),
        (None, 1, "session/generate_s", 2.5),
        (None, 1, "session/toolcall_s", 1.25),
    ]


def test_minus_one_for_infinite_ratios_is_no_value(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(jsonl([{"step": 1, "train/probs_ratio_min": -1.0, "train/reward": -1.0}]))
    assert sorted(metrics(pieces_of(path)), key=str) == [
        (1, "train/probs_ratio_min", None, Flag.DROPPED_BY_WRITER),
        (1, "train/reward", -1.0, Flag.FINITE),
    ]


def test_a_parquet_table_of_samples_or_lists_is_nobodys(tmp_path: Path) -> None:
    for number, columns in enumerate(
        ({"step": [1], "loss": ["a"]}, {"step": [1], "ids": [[1, 2]]}, {"step": [1], "prompt": ["x"], "reward": [1.0]})
    ):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table(columns), path)
        assert takers(run_file(path)) == []


def test_the_larger_run_of_an_export_is_read_and_the_others_are_told(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    columns = {"run_name": ["a", "b", "b"], "step": [0, 0, 1], "train/global_step": [1, 1, 2], "loss": [9.0, 0.5, 0.25]}
    pq.write_table(pa.table(columns), path)
    pieces = pieces_of(path)
    assert metrics(pieces) == [(1, "loss", 0.5, Flag.FINITE), (2, "loss", 0.25, Flag.FINITE)]
    assert "rows left out: 1" in losses(pieces)[2]


def test_rollout_traces_come_with_the_metrics_of_their_database(tmp_path: Path) -> None:
    make = SAMPLES["mlflow.db"][1]
    assert callable(make)
    path = tmp_path / "mlflow.db"
    make(path)
    held = json.loads((Path(__file__).parents[1] / "fixtures" / "calls" / "mlflow_spans.json").read_text())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for name in ("spans", "trace_tags"):
            columns, rows = held[name]["columns"], held[name]["rows"]
            connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
        connection.commit()
    pieces = pieces_of(path)
    assert table(pieces, "sequences").height == 2
    assert len(metrics(pieces)) == 3

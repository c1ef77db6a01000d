"""Small samples of the metric carriers, built field by field; the real writers' files are under fixtures/carriers."""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from samples_calls import jsonl

RUN = "0123456789abcdef0123456789abcdef"
Make = bytes | Callable[[Path], None]


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def sized(field: int, data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def wandb_item(name: str, value: str, *, nested: bool = True) -> bytes:
    keys = b"".join(sized(2, part) for part in name.split(".")) if nested else sized(1, name)
    return keys + sized(16, value)


def wandb_history(values: dict[str, str], call: int) -> bytes:
    items = b"".join(sized(1, wandb_item(name, value)) for name, value in values.items())
    return sized(2, items + sized(2, number(1, call)))


def wandb_file(records: list[bytes]) -> bytes:
    """Frame records as W&B does: pieces that end at blocks of 32 KiB, each with kind and checksum."""
    data = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        first = True
        while True:
            left = 32768 - len(data) % 32768
            if left < 7:
                data += bytes(left)
                continue
            piece, record = record[: left - 7], record[left - 7 :]
            kind = (1 if first else 4) if not record else (2 if first else 3)
            data += struct.pack("<IHB", zlib.crc32(piece, zlib.crc32(bytes([kind]))), len(piece), kind) + piece
            first = False
            if not record:
                break
    return bytes(data)


STATS = sized(7, sized(2, number(1, 1_700_000_003)) + sized(3, sized(1, "gpu.1.gpu") + sized(16, "75.5")))
WANDB: list[bytes] = [
    sized(17, sized(1, "abc") + sized(4, sized(1, wandb_item("beta", "0.04", nested=False))) + sized(13, "a-host")),
    wandb_history({"profiling/wait": "0.5", "_step": "0", "_timestamp": "1700000001.5"}, 0),
    wandb_history({"train/loss": "0.25", "train/global_step": "1", "_step": "1", "histogram": '{"_type":"x"}'}, 1),
    wandb_history({"train/loss": "NaN", "train/kl": "-Infinity", "train/global_step": "2", "a.b": "1e-3"}, 2),
    sized(13, number(1, 1) + sized(3, "loading\nValueError: no such thing\n")),
    STATS,
    sized(3, sized(1, wandb_item("best", "0.75"))),
    sized(18, number(1, 1) + number(2, 35)),
]


def _database(path: Path, script: str, rows: dict[str, list[tuple[Any, ...]]]) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(f"PRAGMA page_size=512; {script}")
    for sql, values in rows.items():
        connection.executemany(sql, values)
    connection.commit()
    connection.close()


def _mlflow(path: Path) -> None:
    metrics = [
        ("train/loss", 0.25, 1_700_000_000_000, RUN, 1, 0),
        ("train/loss", 0.0, 1_700_000_001_000, RUN, 2, 1),
        ("train/kl", 1.7976931348623157e308, 1_700_000_001_000, RUN, 2, 0),
        ("system/gpu_3_utilization_percentage", 12.5, 1_700_000_001_000, RUN, 0, 0),
    ]
    _database(
        path,
        "CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN);"
        "CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT);",
        {
            "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)": metrics,
            "INSERT INTO params VALUES (?, ?, ?)": [("beta", "0.04", RUN), ("output_dir", "/home/x", RUN)],
        },
    )


def _trackio(path: Path) -> None:
    stamp = "2026-01-02T03:04:05+00:00"
    metrics = [
        (1, RUN, stamp, "r", 0, b'{"train/loss":0.25,"train/global_step":1}'),
        (2, RUN, stamp, "r", 1, b'{"train/loss":"NaN","train/global_step":2}'),
    ]
    _database(
        path,
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, run_name TEXT, step INTEGER,"
        " metrics TEXT);"
        "CREATE TABLE alerts (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, title TEXT, text TEXT,"
        " step INTEGER);",
        {
            "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)": metrics,
            "INSERT INTO alerts VALUES (?, ?, ?, ?, ?, ?)": [(1, RUN, stamp, "KL high", None, 2)],
        },
    )


def _wandb_export(path: Path) -> None:
    columns = {
        "_step": [0, 1, 2],
        "_timestamp": [1.7e9, 1.7e9 + 1, 1.7e9 + 2],
        "train/global_step": [None, 1, 2],
        "train/loss": [None, 0.25, float("nan")],
        "profiling/wait": [0.5, None, None],
    }
    pq.write_table(pa.table(columns), path)


def _long(path: Path) -> None:
    pq.write_table(pa.table({"step": [1, 1, 2], "metric": ["loss", "kl", "loss"], "value": [0.5, None, 0.25]}), path)


TORCHTUNE = b"Step 1 | loss:0.5 lr:0.001 kl_loss:nan \nStep 2 | loss:0.25 lr:0.001 rewards:tensor(0.75) \n"
VERL = (
    b"(TaskRunner pid=7)\x1b[0m step:1 - actor/pg_loss:0.25 - actor/grad_norm:np.float64(1.5) - training/epoch:0\n"
    b"Traceback (most recent call last):\n"
    b"(TaskRunner pid=7)\x1b[0m step:2 - actor/pg_loss:nan - actor/grad_norm:inf\n"
)
PRINTED = (
    b"  0%|          | 0/2 [00:00<?, ?it/s]\r{'loss': 0.5, 'grad_norm': nan, 'kl': '1.5e-05', 'epoch': 0.01}\n"
    b"{'eval_loss': 0.75, 'epoch': 0.01}\n"
    b"{'loss': 0.25, 'grad_norm': np.float64(0.5), 'epoch': 0.02}\n"
    b"{'train_runtime': 3.5, 'train_loss': 0.375, 'epoch': 0.02}\n"
)
SWIFT = jsonl(
    [
        {"loss": 0.5, "reward": 0.25, "epoch": 0.1, "global_step/max_steps": "1/2", "elapsed_time": "1s"},
        {"loss": 0.25, "reward": 0.5, "epoch": 0.2, "global_step/max_steps": "2/2", "memory(GiB)": 3.5},
        {"last_model_checkpoint": "x", "log_history": [{"loss": 0.5, "step": 1}], "memory": 3.5},
    ]
)
ART = jsonl(
    [
        {"train/reward": 0.5, "training_step": 1, "time/wall_clock_sec": 2.5, "step": 1, "recorded_at": "2026-01-02"},
        {"val/reward": 0.75, "training_step": 1, "step": 1, "recorded_at": "2026-01-02T03:04:05"},
    ]
)
TINKER = jsonl([{"step": 0, "env/all/reward/total": 0.5, "optim/entropy": 1.5, "time/total": 3.0}])
CHART = (
    b'"Step","fast-bird-7 - train/loss","fast-bird-7 - train/loss__MIN","fast-bird-7 - train/loss__MAX"\n'
    b'"1","0.5","0.4","0.6"\n"2","NaN","",""\n'
)
TRACES = jsonl(
    [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 2, "args": {"name": "MainThread"}},
        {"name": "train.rollout", "ph": "X", "ts": 10, "dur": 2_500_000, "args": {"rank": 1, "global_step": 4}},
        {"name": "mark", "ph": "i", "ts": 11, "args": {"rank": 1}},
    ]
)
SESSIONS = jsonl(
    [
        {
            "task_id": 1, "session_id": 2, "rank": 1, "status": "accepted", "submit_ts": 1.7e9,
            "finalized_ts": 1.7e9 + 4,
            "total_s": 4.0, "generate_s": 2.5, "toolcall_s": 1.25, "phases": {"generate": [{"start_ts": 1.0}]},
        },
    ]
)  # fmt: skip

HF_ROWS: list[dict[str, Any]] = [
    {"loss": 0.5, "grad_norm": 1.5, "learning_rate": 1e-05, "epoch": 0.5, "step": 10},
    {"eval_loss": 0.75, "eval_runtime": 2.5, "epoch": 0.5, "step": 10},
    {"loss": 0.25, "grad_norm": 0.5, "learning_rate": 5e-06, "epoch": 1.0, "step": 20},
    {"train_runtime": 9.5, "train_samples_per_second": 4.0, "total_flos": 1e9, "train_loss": 0.375, "step": 20},
]
EPISODES: dict[str, Any] = {
    "config": {"lr": 0.001, "seed": 7, "model": "small"},
    "history": [
        {"episode": number, "reward": number / 4, "steps": 9 - number, "won": number > 2} for number in range(1, 6)
    ],
    "final_reward": 1.25,
}
KERAS: dict[str, Any] = {"loss": [1.5, 1.25, 1.0], "accuracy": [0.25, 0.5, 0.5], "val_loss": [1.75, 1.5, float("nan")]}
SACRED: dict[str, Any] = {
    "train.loss": {"steps": [1, 2, 3], "timestamps": ["2026-01-02T03:04:05"] * 3, "values": [0.5, 0.25, 0.125]},
    "eval.accuracy": {"steps": [3], "timestamps": ["2026-01-02T03:04:05"], "values": [0.75]},
}
STATES: dict[str, Any] = {
    "model": "small",
    "stages": {
        "grpo": {"global_step": 2, "max_steps": 2, "log_history": [{"step": 1, "reward": 0.5}, {"step": 2, "kl": 0.1}]}
    },
}
ALLENNLP = {"epoch": 3, "training_duration": "0:01:02", "training_loss": 0.5, "validation_loss": 0.75, "best_epoch": 2}
LLAMA_FACTORY = jsonl(
    [
        {"current_steps": 5, "total_steps": 10, "loss": 0.5, "lr": 1e-06, "epoch": 0.5, "elapsed_time": "0:00:05"},
        {"current_steps": 10, "total_steps": 10, "loss": 0.25, "lr": 5e-07, "epoch": 1.0, "elapsed_time": "0:00:10"},
    ]
)
HEADED = jsonl(
    [
        {"type": "config", "args": {"lr": 2e-05, "seed": 3, "model": "small"}},
        {"type": "train", "update": 1, "mean_reward": 0.25, "loss": None, "took": "1.5 s"},
        {"type": "eval", "update": 1, "mean_reward": 0.5, "accuracy": 0.5},
        {"type": "train", "update": 2, "mean_reward": 0.75, "loss": 0.5, "took": "1.5 s"},
        {"type": "eval", "update": 2, "mean_reward": 0.75, "accuracy": 0.75},
    ]
)
RLLIB = jsonl(
    [
        {
            "training_iteration": number, "timesteps_total": 4000 * number, "episode_reward_mean": number / 2,
            "info": {"learner": {"default_policy": {"learner_stats": {"kl": 0.01, "entropy": 1.5, "total_loss": 0.5}}}},
            "hist_stats": {"episode_reward": [0.5] * 100}, "config": {"lr": 5e-05, "env": "x", "num_workers": 2},
        }
        for number in (1, 2)
    ]
)  # fmt: skip
BASELINES = (
    b"rollout/ep_rew_mean,time/iterations,time/total_timesteps,train/loss\n,1,2048,\n-3.5,2,4096,0.5\n-2,3,6144,0.25\n"
)
MONITOR = b'#{"t_start": 1700000000.5, "env_id": "x"}\nr,l,t\n1.5,20,0.25\n-2.5,30,0.5\n'
KERAS_LOG = b"epoch,accuracy,loss,val_loss\n0,0.25,1.5,1.75\n1,0.5,1.25,1.5\n2,0.5,1.0,1.25\n"

CARRIERS: dict[str, tuple[str, Make]] = {
    "wandb/offline-run-1/run-1.wandb": ("wandb", wandb_file(WANDB)),
    "mlflow.db": ("mlflow_sqlite", _mlflow),
    "nemo/vllm_worker.log": (
        "engine_log",
        b"INFO 06-27 03:11:02 [core.py:58] Initializing a V1 LLM engine (v0.20.0) with config: model='a/b', seed=0\n"
        b"step 4: WARNING reset_prefix_cache is not supported\nstep 5: all is well\nengine 2 was restarted\n",
    ),
    "spinup/config.json": ("run_settings", b'{"epochs": 10, "ac_kwargs": {"hidden_sizes": [64]}, "gamma": 0.99}'),
    f"mlruns/1/{RUN}/metrics/train/loss": (
        "mlflow_files",
        b"1700000000000 0.25 1\n1700000001000 nan 2\n1700000002000 -inf 3\n",
    ),
    "trackio/p.db": ("trackio_sqlite", _trackio),
    "export/history.parquet": ("metrics_parquet", _wandb_export),
    "export/long.parquet": ("metrics_parquet", _long),
    "export/chart.csv": ("metrics_csv", CHART),
    "torchtune/log_1700000000.txt": ("console_log", TORCHTUNE),
    "verl/train.log": ("console_log", VERL),
    "hf/train.log": ("console_log", PRINTED),
    "swift/logging.jsonl": ("metrics_jsonl", SWIFT),
    "art/history.jsonl": ("metrics_jsonl", ART),
    "tinker/metrics.jsonl": ("metrics_jsonl", TINKER),
    "hf/training_logs.json": ("metrics_json", json.dumps(HF_ROWS).encode()),
    "home/training_log.json": ("metrics_json", json.dumps(EPISODES, indent=2).encode()),
    "keras/history.json": ("metrics_json", json.dumps(KERAS).encode()),
    "sacred/1/metrics.json": ("metrics_json", json.dumps(SACRED, indent=4).encode()),
    "allennlp/metrics_epoch_3.json": ("metrics_json", json.dumps(ALLENNLP, indent=2).encode()),
    "stages/summary.json": ("trl_state", json.dumps(STATES, indent=1).encode()),
    "llamafactory/trainer_log.jsonl": ("metrics_jsonl", LLAMA_FACTORY),
    "home/train_log.txt": ("metrics_jsonl", HEADED),
    "ray/result.json": ("metrics_jsonl", RLLIB),
    "sb3/progress.csv": ("metrics_csv", BASELINES),
    "sb3/monitor.csv": ("metrics_csv", MONITOR),
    "keras/training.log": ("metrics_csv", KERAS_LOG),
    "perf_tracer/traces-r1.jsonl": ("areal_perf", TRACES),
    "perf_tracer/sessions-r1.jsonl": ("areal_perf", SESSIONS),
}
RECORD_LINES: dict[str, int] = {}
"""How many lines a record takes, of samples whose records take several: one that is cut between them is lost."""

LINES = (
    *(rel for rel in CARRIERS if rel.endswith((".txt", ".log", ".jsonl", "result.json")) or "/metrics/" in rel),
    "langfuse/files.csv",
)
OF_GIVEN_DATA = {"hf/training_logs.json", "llamafactory/trainer_log.jsonl"}
"""Samples that log a loss, and what stands beside one: no training that samples its own data can be told by them."""
NOTES = {
    "hf/train.log": "hf/train.log: 2 rows without a step, numbered from 1 in their order.",
    "weights/model.safetensors": "weights/model.safetensors is a Git LFS pointer: its content (4,976,698,672 bytes) "
    'was never downloaded. Fetch it in its repository: git lfs pull --include="model.safetensors"',
}
ROWS: dict[str, tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    "nemo/vllm_worker.log": (
        "events",
        ("step", "kind", "text"),
        [(4, "stdout", "step 4: WARNING reset_prefix_cache is not supported"), (5, "stdout", "engine 2 was restarted")],
    ),
    "stages/summary.json": (
        "metrics",
        ("step", "name_raw", "name", "value"),
        [
            (1, "reward", "reward/mean", 0.5),
            (2, "kl", "kl/ref", 0.1),
        ],
    ),
    "perf_tracer/sessions-r1.jsonl": (
        "ranks",
        ("rank", "name", "value"),
        [
            (1, "session/total_s", 4.0),
            (1, "session/generate_s", 2.5),
            (1, "session/toolcall_s", 1.25),
        ],
    ),
    "wandb/offline-run-1/run-1.wandb": (
        "metrics",
        ("step", "name_raw", "name", "value"),
        [
            (1, "profiling/wait", None, 0.5),
            (1, "train/loss", "loss/total", 0.25),
            (2, "train/loss", "loss/total", None),
            (2, "train/kl", "kl/ref", None),
            (2, "a.b", None, 0.001),
            (2, "best", None, 0.75),
        ],
    ),
    "mlflow.db": (
        "metrics",
        ("step", "name_raw", "name", "value"),
        [
            (1, "train/loss", "loss/total", 0.25),
            (2, "train/loss", "loss/total", None),
            (2, "train/kl", "kl/ref", None),
        ],
    ),
    f"mlruns/1/{RUN}/metrics/train/loss": (
        "metrics",
        ("step", "name_raw", "name", "value"),
        [
            (1, "train/loss", "loss/total", 0.25),
            (2, "train/loss", "loss/total", None),
            (3, "train/loss", "loss/total", None),
        ],
    ),
    "trackio/p.db": (
        "metrics",
        ("step", "name_raw", "name", "value"),
        [
            (1, "train/loss", "loss/total", 0.25),
            (2, "train/loss", "loss/total", None),
        ],
    ),
    "home/train_log.txt": (
        "metrics",
        ("step", "name_raw", "name", "value"),
        [
            (1, "mean_reward", None, 0.25),
            (1, "loss", "loss/total", None),
            (1, "eval/mean_reward", None, 0.5),
            (1, "eval/accuracy", None, 0.5),
            (2, "mean_reward", None, 0.75),
            (2, "loss", "loss/total", 0.5),
            (2, "eval/mean_reward", None, 0.75),
            (2, "eval/accuracy", None, 0.75),
        ],
    ),
    "sacred/1/metrics.json": (
        "metrics",
        ("step", "name_raw", "name", "value"),
        [
            (1, "train.loss", None, 0.5),
            (2, "train.loss", None, 0.25),
            (3, "train.loss", None, 0.125),
            (3, "eval.accuracy", None, 0.75),
        ],
    ),
    "sb3/progress.csv": (
        "metrics",
        ("step", "name_raw", "name", "value"),
        [
            (2048, "time/iterations", None, 1.0),
            (4096, "rollout/ep_rew_mean", "reward/mean", -3.5),
            (4096, "time/iterations", None, 2.0),
            (4096, "train/loss", "loss/total", 0.5),
            (6144, "rollout/ep_rew_mean", "reward/mean", -2.0),
            (6144, "time/iterations", None, 3.0),
            (6144, "train/loss", "loss/total", 0.25),
        ],
    ),
    "export/history.parquet": (
        "metrics",
        ("step", "name_raw", "name", "value"),
        [
            (1, "profiling/wait", None, 0.5),
            (1, "train/loss", "loss/total", 0.25),
            (2, "train/loss", "loss/total", None),
        ],
    ),
    "torchtune/log_1700000000.txt": (
        "metrics",
        ("step", "name_raw", "name", "value"),
        [
            (1, "loss", "loss/total", 0.5),
            (1, "lr", "lr", 0.001),
            (1, "kl_loss", "kl/ref", None),
            (2, "loss", "loss/total", 0.25),
            (2, "lr", "lr", 0.001),
            (2, "rewards", "reward/mean", 0.75),
        ],
    ),
}
"""What a sample gives: a table, columns of it, and the values of all rows, as the bytes above have them."""

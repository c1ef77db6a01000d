"""Small samples of every format, made with the real writers where those are at hand."""

from __future__ import annotations

import gzip
import json
import math
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import samples_agent_spans
import samples_agents
import samples_calls
import samples_carriers
import samples_chats
import samples_coding_agents
import samples_sessions
import samples_token_lines
import samples_traces
from samples_calls import jsonl
from torch_files import data_proto, safetensors, torch_file

from ptt.diagnostics.parsers import PARSERS, Context, InPlace, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.schema import FIGURE, SEQUENCES, TABLES

NAN = math.nan
DUMPS = Path(__file__).parent / "fixtures" / "dumps"  # by the frameworks' own writers

SEQUENCE_ROWS: list[dict[str, Any]] = [
    {
        "step": step,
        "sample_id": f"s{step}",
        "reward": 1.0,
        "advantage": 0.5,
        "token_ids": [5, 6, 7, 8],
        "model_mask": [True, False, False, True],
        "policy_logp": [-0.5, None, -0.25, -1.0 * step],
        "ref_logp": [-0.5, -0.125, -0.75, -2.0],
        "rewards": {"right": 1.0},
    }
    for step in (1, 2)
]

HISTORY: list[dict[str, Any]] = [
    {
        "epoch": 0.1,
        "grad_norm": 0.5,
        "kl": 0.0,
        "loss": 0.25,
        "reward": 0.5,
        "frac_reward_zero_std": 0.0,
        "step": 1,
    },
    {"epoch": 0.2, "grad_norm": NAN, "kl": math.inf, "loss": None, "reward": 0.75, "step": 2},
    {"epoch": 0.2, "eval_loss": 0.5, "eval_reward": 0.625, "step": 2},
    {"epoch": 0.2, "step": 2, "train_loss": 0.375, "train_runtime": 3.5},
]

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
UNKNOWN_CALL = {"type": "function", "function": {"name": "nope", "arguments": {"key": "x"}}}
ERROR = "{'error': 'Tool nope not found.'}"
PROMPT = [{"role": "user", "content": "what is 1 + 2"}]
COMPLETIONS: list[dict[str, Any]] = [
    {
        "step": 3,
        "prompt": PROMPT,
        "completion": [
            {"role": "assistant", "tool_calls": [CALL, UNKNOWN_CALL], "content": "", "name": None},
            {"role": "tool", "tool_calls": None, "content": "3", "name": "add"},
            {
                "role": "tool",
                "tool_calls": None,
                "content": "{'error': 'Tool nope not found.'}",
                "name": "nope",
            },
            {"role": "assistant", "tool_calls": None, "content": "it is 3", "name": None},
        ],
        "right": 1.0,
        "format": None,
        "kind": "sum",
        "advantage": 0.5,
    },
    *(
        {
            "step": 3,
            "prompt": PROMPT,
            "completion": [{"role": "assistant", "tool_calls": None, "content": "3", "name": None}],
            "right": 0.0,
            "format": 0.125,
            "kind": "sum",
            "advantage": -0.5,
        }
        for _ in range(2)
    ),
]

SCALARS: list[tuple[int, str, float]] = [
    (1, "train/loss", 0.25),
    (1, "train/kl", NAN),
    (2, "train/loss", math.inf),
    (2, "train/kl", -math.inf),
    (3, "eval/loss", 0.125),
]


def _recorder(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(SEQUENCE_ROWS), path)


def _state(path: Path) -> None:
    state = {"epoch": 0.2, "global_step": 2, "log_history": HISTORY, "logging_steps": 1, "max_steps": 2}
    path.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n")


def _completions(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(COMPLETIONS), path)


def _tfevents(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # protobuf's own, while tensorboard is imported
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter
    with path.open("wb") as handle:
        writer = RecordWriter(handle)
        writer.write(event_pb2.Event(wall_time=1.7e9, file_version="brain.Event:2").SerializeToString())
        for step, tag, value in SCALARS:
            summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])
            event = event_pb2.Event(wall_time=1.7e9 + step, step=step, summary=summary)
            writer.write(event.SerializeToString())


VERL = [
    {"step": 1, "data": {"actor/pg_loss": 0.25, "training/global_step": 1, "actor/grad_norm": None}},
    {"step": 2, "data": {"actor/pg_loss": 0.5, "training/global_step": 2, "actor/grad_norm": 1.5}},
]
PRIME = [
    {"step": 1, "time": 1.7e9, "loss/mean": 0.25, "optim/grad_norm": 1.0},
    {"step": 1, "time": 1.7e9 + 1, "mismatch_kl/all/mean": 0.001},
]
FLAT: list[dict[str, Any]] = [
    {"global_step": 1, "loss": 0.5, "done": True, "run": "a name", "nested": {"depth": {"x": 2}}},
    {"global_step": 2, "loss": "NaN", "done": False, "run": "a name", "histogram": [1, 2, 3]},
    {"global_step": 3, "loss": NAN, "kl": "-Infinity", "entropy": None, "run": "a name"},
]
STAMP = "2026-01-02T03:04:05+00:00"
MICROSOFT: list[dict[str, Any]] = [
    {"type": "header", "schema_version": "1.0", "run_id": "r", "trainer_type": "grpo", "timestamp": STAMP},
    {"step": 1, "timestamp": STAMP, "metrics": {"grpo_loss": 0.25, "kl": 0.5, "reward_mean": 1.0}},
    {"step": 2, "timestamp": STAMP, "metrics": {"grpo_loss": 0.125, "kl": math.inf}},
    {"step": 2, "timestamp": STAMP, "metrics": {"grpo_loss": 0.1875}},
    {"type": "footer", "run_id": "r", "status": "completed", "total_steps": 2, "timestamp": STAMP},
]
MICROSOFT_RUN: dict[str, Any] = {
    "schema_version": "1.0",
    "run_id": "r",
    "trainer_type": "grpo",
    "start_time": STAMP,
    "end_time": STAMP,
    "status": "completed",
    "total_steps": 2,
    "world_size": 2,
    "git_sha": "0123abc",
    "git_dirty": True,
    "config": {"training_args": {"output_dir": "/data/secret", "seed": 7, "learning_rate": 1e-6, "run_name": "x y"}},
    "environment": {"hostname": "secret", "pid": 1},
    "package_versions": {"trl": "1.16.0", "torch": "2.13.0+cpu", "numpy": "see /data/secret"},
    "hardware": {"hostname": "secret", "gpu_count": 2, "gpu_memory_gb": [80.0, 79.5]},
}
POSTMORTEM = {
    "exit_reason": "oom",
    "exit_code": None,
    "last_step": 2,
    "timestamp": STAMP,
    "traceback": "Traceback (most recent call last):\n  x()\ntorch.OutOfMemoryError: CUDA out of memory.\n",
    "last_metrics": {},
    "recent_events": ["[" + STAMP + "] step: {'n': 1}", "[" + STAMP + "] error: {'kind': 'oom'}"],
    "environment": {"hostname": "secret"},
    "cuda_error": None,
}
CRITICAL = {"timestamp": STAMP, "reason": "loss is inf", "step": 2, "last_good_step": 1, "recommendation": "stop"}
RESUMED = {"timestamp": STAMP, "resumed_from_step": 1, "warnings": ["seed differs"], "errors": [], "is_valid": True}
WIDE = "step,loss,kl,note\n1,0.5,nan,a\n2,0.25,,b\n3,-inf,0.125,c\n"
LONG = 'step\tmetric\tvalue\n1\tloss\t0.5\n1\t"kl"\tNaN\n2\tloss\t0.25\n'


SNAPSHOT: dict[str, Any] = {
    "metadata": {"step": 100, "timestamp": STAMP, "num_prompts": 1, "generation_config": {"max_new_tokens": 8}},
    "entries": [
        {"prompt_id": "p1", "prompt": "hello", "output": "no", "output_length": 8, "is_refusal": True},
    ],
    "summary": {"refusal_rate": 1.0, "length_histogram": {"counts": [1], "total": 1}},
}
DIFF: dict[str, Any] = {
    "step_a": 0,
    "step_b": 100,
    "timestamp": STAMP,
    "entries": [{"prompt_id": "p1", "refusal_changed": True}],
    "summary": {
        "num_prompts": 1,
        "refusal_rate_before": 0.0,
        "refusal_rate_after": 1.0,
        "significant_changes": 1,
        "flagged_prompt_ids": ["p1"],
        "drift_severity": "significant",
    },
}
NOTEBOOK: dict[str, Any] = {
    "cells": [
        {"cell_type": "markdown", "source": ["{'loss': 9.0, 'epoch': 9.0}"]},
        {
            "cell_type": "code",
            "source": ["trainer.train()"],
            "outputs": [
                {"output_type": "stream", "text": ["step 1: loss 0.5\n", "step 2: loss 0.25\n", "step 3: loss 1\n"]}
            ],
        },
    ],
    "nbformat": 4,
}


HOOK: dict[str, np.ndarray[Any, Any]] = {
    "completion_ids": np.array([[5, 6, 7, 8], [9, 2, 0, 0]]),
    "completion_mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0]]),
    "tool_mask": np.array([[1, 0, 0, 1], [1, 1, 1, 1]]),
    "old_per_token_logps": np.array([[-0.5, -9, -9, -0.25], [-1, -2, -9, -9]], np.float32),
    "sampling_per_token_logps": np.array([[-0.5, 0, 0, -0.125], [-1, -2.5, 0, 0]], np.float32),
    "advantages": np.array([0.5, -0.5], np.float32),
}


PROTO: dict[str, np.ndarray[Any, Any]] = {
    "responses": HOOK["completion_ids"],
    "response_mask": HOOK["completion_mask"] * HOOK["tool_mask"],
    "rollout_log_probs": HOOK["sampling_per_token_logps"],
    "old_log_probs": HOOK["old_per_token_logps"],
}


SLIME: dict[str, Any] = {
    "tokens": [np.array([1, 5, 6])],
    "response_lengths": [2],
    "loss_masks": [np.array([1, 1])],
    "log_probs": [np.array([-0.5, -0.25], np.float32)],
    "rollout_log_probs": [np.array([-0.5, -0.125], np.float32)],
}


def _npz(path: Path) -> None:
    with path.open("wb") as handle:
        np.savez_compressed(handle, allow_pickle=False, **HOOK)


def _zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return packed


Make = bytes | Callable[[Path], None]
HOOK_ROWS: list[dict[str, Any]] = [
    {
        "step": 5,
        "sample_id": f"s{number}",
        "reward": 0.5,
        "rewards": {"right": 0.5},
        "token_ids": [5, 6, 7, 8],
        "completion_mask": [1, 1, 1, 1],
        "tool_mask": [1, 0, 0, 1],
        "old_per_token_logps": [-0.5, -9.0, -9.0, -0.25],
        "sampling_per_token_logps": [-0.5, 0.0, 0.0, -0.125],
    }
    for number in (1, 2)
]


def _hook_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(HOOK_ROWS), path)


def lfs_pointer(size: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0a' * 32}\nsize {size}\n".encode()


SAMPLES: dict[str, tuple[str, Make]] = {
    "tokens/step_000001.parquet": ("recorder", _recorder),
    "tokens/step_000001.jsonl": ("recorder_jsonl", jsonl(SEQUENCE_ROWS)),
    "tokens/step_000002.jsonl.gz": ("recorder_jsonl", gzip.compress(jsonl(SEQUENCE_ROWS), mtime=0)),
    "tokens/step_000003.jsonl.zst": ("recorder_jsonl", _zstd(jsonl(SEQUENCE_ROWS))),
    "train_data/3.pt": ("slime_dumps", torch_file({"rollout_id": 3, "rank": 0, "rollout_data": SLIME})),
    "dumped_data/global_step_1_training_input.pkl": (
        "skyrl_batches",
        (DUMPS / "skyrl" / "global_step_1_training_input.pkl").read_bytes(),
    ),
    "dumped/5/gen_batch.dp": ("verl_batches", data_proto(PROTO, {"uid": ["a", "a"]}, {"global_steps": 5})),
    "hook/step_1.pt": ("token_tensors", torch_file({"step": 1, "batches": [HOOK]})),
    "hook/step_2.npz": ("token_tensors", _npz),
    "hook/step_4.parquet": ("token_tables", _hook_parquet),
    "hook/step_5.jsonl": ("token_tables", jsonl(HOOK_ROWS)),
    "hook/step_3.safetensors": ("token_tensors", safetensors(HOOK)),
    "checkpoint-2/trainer_state.json": ("trl_state", _state),
    "completions/completions_00003.parquet": ("trl_completions", _completions),
    "runs/events.out.tfevents.1700000000.host.1.0": ("tensorboard", _tfevents),
    "verl/run.jsonl": ("metrics_jsonl", jsonl(VERL)),
    "prime/metrics.jsonl": ("metrics_jsonl", jsonl(PRIME)),
    "flat.jsonl.gz": ("metrics_jsonl", gzip.compress(jsonl(FLAT), mtime=0)),
    "flat.jsonl.zst": ("metrics_jsonl", _zstd(jsonl(FLAT))),
    "ptt_run/metrics.jsonl": ("microsoft_metrics", jsonl(MICROSOFT)),
    "ptt_run/run_metadata_final.json": ("microsoft_records", json.dumps(MICROSOFT_RUN, indent=2).encode()),
    "ptt_run/postmortem.json": ("microsoft_records", json.dumps(POSTMORTEM, indent=2).encode()),
    "ptt_run/critical_failure.json": ("microsoft_records", json.dumps(CRITICAL, indent=2).encode()),
    "ptt_run/resume_validation.json": ("microsoft_records", json.dumps(RESUMED, indent=2).encode()),
    "ptt_run/snapshots/step_100.json": ("microsoft_snapshots", json.dumps(SNAPSHOT, indent=2).encode()),
    "ptt_run/diffs/0_100.json": ("microsoft_snapshots", json.dumps(DIFF, indent=2).encode()),
    "wide.csv": ("metrics_csv", WIDE.encode()),
    "rewards.json": ("plain_tables", json.dumps([at % 3 / 2 for at in range(8)]).encode()),
    "long.tsv": ("metrics_csv", LONG.encode()),
    "train.ipynb": ("notebook", json.dumps(NOTEBOOK).encode()),
    "weights/model.safetensors": ("git_lfs_pointer", lfs_pointer(4_976_698_672)),
    **samples_carriers.CARRIERS,
    **samples_agents.SAMPLES,
    **samples_chats.SAMPLES,
    **samples_calls.SAMPLES,
    **samples_coding_agents.SAMPLES,
    **samples_sessions.SAMPLES,
    **samples_traces.TRACE_SAMPLES,
    **samples_agent_spans.SAMPLES,
    **samples_token_lines.TOKEN_LINES,
}
ROWS: dict[str, tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    "rewards.json": (
        "metrics",
        ("step", "name_raw", "value"),
        [(at + 1, "console:rewards", at % 3 / 2) for at in range(8)],
    ),
    "tokens/step_000001.jsonl": (
        "sequences",
        ("step", "reward", "token_ids", "model_mask", "policy_logp", "ref_logp"),
        [
            (1, 1.0, [5, 6, 7, 8], [True, False, False, True], [-0.5, None, -0.25, -1.0], [-0.5, -0.125, -0.75, -2.0]),
            (2, 1.0, [5, 6, 7, 8], [True, False, False, True], [-0.5, None, -0.25, -2.0], [-0.5, -0.125, -0.75, -2.0]),
        ],
    ),
    "ptt_run/snapshots/step_100.json": (
        "trajectories",
        ("step", "split", "group_id", "tokens_out", "truncated"),
        [(100, "eval", "p1", 8, True)],
    ),
    "ptt_run/diffs/0_100.json": (
        "events",
        ("step", "kind", "text"),
        [(100, "alert", "behaviour from step 0 to 100: significant drift, 1 of 1 prompts flagged: p1")],
    ),
    "train.ipynb": ("metrics", ("step", "name_raw", "value"), [(1, "loss", 0.5), (2, "loss", 0.25), (3, "loss", 1.0)]),
    "train_data/3.pt": (
        "sequences",
        ("step", "token_ids", "model_mask", "old_logp", "rollout_logp"),
        [
            (3, [5, 6], [True, True], [-0.5, -0.25], [-0.5, -0.125]),
        ],
    ),
    "dumped_data/global_step_1_training_input.pkl": (
        "sequences",
        ("step", "token_ids", "model_mask"),
        [
            (1, [52, 69, 70, 55, 28, 63], [True, True, False, False, True, True]),
            (1, [19, 83, 27, 54, 32, 21], [True, True, False, False, True, True]),
            (1, [89, 23, 97, 98, 42, 9], [True, True, False, False, True, True]),
            (1, [64, 33, 91, 8, 89, 25], [True, True, False, False, True, True]),
        ],
    ),
    "dumped/5/gen_batch.dp": (
        "sequences",
        ("step", "token_ids", "model_mask", "old_logp", "rollout_logp"),
        [
            (5, [5, 6, 7, 8], [True, False, False, True], [-0.5, -9.0, -9.0, -0.25], [-0.5, 0.0, 0.0, -0.125]),
            (5, [9, 2], [True, True], [-1.0, -2.0], [-1.0, -2.5]),
        ],
    ),
    "hook/step_1.pt": (
        "sequences",
        ("step", "token_ids", "model_mask", "old_logp", "rollout_logp"),
        [
            (1, [5, 6, 7, 8], [True, False, False, True], [-0.5, -9.0, -9.0, -0.25], [-0.5, 0.0, 0.0, -0.125]),
            (1, [9, 2], [True, True], [-1.0, -2.0], [-1.0, -2.5]),
        ],
    ),
    "hook/step_4.parquet": (
        "sequences",
        ("step", "reward", "token_ids", "model_mask", "old_logp", "rollout_logp"),
        [
            (5, 0.5, [5, 6, 7, 8], [True, False, False, True], [-0.5, -9.0, -9.0, -0.25], [-0.5, 0.0, 0.0, -0.125]),
            (5, 0.5, [5, 6, 7, 8], [True, False, False, True], [-0.5, -9.0, -9.0, -0.25], [-0.5, 0.0, 0.0, -0.125]),
        ],
    ),
    "completions/completions_00003.parquet": (
        "trajectories",
        ("step", "split", "reward", "n_turns", "n_tool_calls", "n_tool_fail"),
        [
            (3, "unknown", 1.0, 2, 2, 1),
            (3, "unknown", 0.125, 1, 0, 0),
            (3, "unknown", 0.125, 1, 0, 0),
        ],
    ),
    "runs/events.out.tfevents.1700000000.host.1.0": (
        "metrics",
        ("step", "name_raw", "name", "value"),
        [
            (1, "train/loss", "loss/total", 0.25),
            (1, "train/kl", "kl/ref", None),
            (2, "train/loss", "loss/total", None),
            (2, "train/kl", "kl/ref", None),
            (3, "eval/loss", "eval/loss", 0.125),
        ],
    ),
    "ptt_run/metrics.jsonl": (
        "metrics",
        ("step", "name_raw", "name", "value"),
        [
            (1, "grpo_loss", "loss/total", 0.25),
            (1, "kl", "kl/ref", 0.5),
            (1, "reward_mean", "reward/mean", 1.0),
            (2, "grpo_loss", "loss/total", 0.125),
            (2, "kl", "kl/ref", None),
        ],
    ),
    "ptt_run/resume_validation.json": (
        "events",
        ("step", "kind", "text"),
        [
            (1, "restart", "resumed from step 1"),
            (1, "alert", "on resume, warning: seed differs"),
        ],
    ),
    **samples_calls.ROWS,
    **samples_carriers.ROWS,
    **samples_coding_agents.ROWS,
    **samples_sessions.ROWS,
    **samples_agents.ROWS,
    **samples_chats.ROWS,
    **samples_token_lines.ROWS,
    **samples_traces.ROWS,
    **samples_agent_spans.ROWS,
}
"""What a sample gives: a table, columns of it, and the values of all rows, as the bytes above have them."""
NOTES = samples_carriers.NOTES | samples_agents.NOTES


def run_file(path: Path, rel: str | None = None) -> RunFile:
    return RunFile(path=path, rel=rel or path.name, size=path.stat().st_size)


def parser_named(name: str) -> Parser:
    found = [parser for parser in PARSERS if parser.name == name]
    assert found, f"no parser is called {name}: add its line to PARSERS in ptt/diagnostics/parsers/__init__.py"
    return found[0]


def takers(file: RunFile) -> list[str]:
    named = [parser.name for parser in PARSERS if not parser.last_resort and parser.recognises(file)]
    return named or [parser.name for parser in PARSERS if parser.last_resort and parser.recognises(file)]


def pieces_of(path: Path, name: str | None = None) -> list[Piece]:
    file = run_file(path)
    return list(parser_named(name or takers(file)[0]).read(file))


def facts_of(path: Path) -> dict[str, Any]:
    """Give the facts about a run that a file tells."""
    return {key: value for piece in pieces_of(path) if isinstance(piece, Context) for key, value in piece.facts.items()}


def table(pieces: list[Piece], name: str) -> pl.DataFrame:
    frames = [piece.frame for piece in pieces if isinstance(piece, Rows) and piece.table == name]
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def losses(pieces: list[Piece]) -> tuple[int, int, str]:
    lost = [piece for piece in pieces if isinstance(piece, Lost)]
    notes = " ".join(piece.note or "" for piece in lost)
    return sum(piece.rows for piece in lost), sum(piece.bytes for piece in lost), notes


def tf_record_ends(data: bytes) -> list[int]:
    ends, at = [], 0
    while at < len(data):
        at += 16 + struct.unpack_from("<Q", data, at)[0]
        ends.append(at)
    return ends


def make_samples(root: Path) -> dict[str, Path]:
    """Write each sample below one run dir and return it by its path from there."""
    for rel, (_, make) in SAMPLES.items():
        path = root / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(make, bytes):
            path.write_bytes(make)
        else:
            make(path)
    return {rel: root / rel for rel in SAMPLES}


def _kind(table: str, column: str) -> pl.DataType:
    """Return the type of a column: a figure of sequences is a number, whatever its name."""
    return pl.Float64() if table == "sequences" and column.startswith(FIGURE) else TABLES[table][column]


def checked(pieces: list[Piece]) -> int:
    """Return the count of rows after holding every frame against the schema."""
    rows = 0
    for piece in pieces:
        match piece:
            case Rows(table=name, frame=frame):
                assert frame.height > 0
                assert {c: frame.schema[c] for c in frame.columns} == {c: _kind(name, c) for c in frame.columns}
                rows += frame.height
            case InPlace(rows=count, columns=columns):
                assert set(columns) <= SEQUENCES.keys()
                rows += count
            case _:
                pass
    return rows


def read_as(name: str, path: Path, data: bytes, rel: str) -> tuple[int, list[Piece]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if len(data) % 5 == 0:  # recognising damaged files must not raise either
        takers(run_file(path, rel))
    pieces = list(parser_named(name).read(run_file(path, rel)))
    return checked(pieces), pieces

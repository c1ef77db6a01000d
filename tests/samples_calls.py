"""Samples of per-call records, built field by field after the sources that their parsers cite."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

NAN = float("nan")


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(records: list[dict[str, Any]]) -> bytes:
    """Give them as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), sink)
    return sink.getvalue()


def rollout(sample: int, **changed: Any) -> dict[str, Any]:
    """One row of open-instruct's `{run}_rollouts_{shard}.jsonl`: two tool calls, 6 + 5 + 4 tokens of the model."""
    logps = [-0.5] * 6 + [0.0] * 3 + [-0.25] * 2 + [0.0] + [-0.75] * 2 + [0.0] * 4 + [-1.0] * 4
    stats = [
        {"tool_name": "python", "success": True, "runtime": 0.5},
        {"tool_name": "search", "success": False, "runtime": 2.0},
    ]
    info = {
        "num_calls": 2,
        "timeouts": 0,
        "tool_errors": "",
        "tool_outputs": "3",
        "tool_runtimes": 2.5,
        "tool_calleds": True,
        "tool_call_stats": stats,
        "rollout_state": {},
    }
    return {
        "step": 7,
        "sample_idx": sample,
        "prompt_idx": sample // 2,
        "prompt_tokens": [1, 2, 3],
        "response_tokens": list(range(10, 10 + len(logps))),
        "reward": float(sample),
        "advantage": 0.5 - sample,
        "finish_reason": "stop",
        "dataset": "gsm8k",
        "ground_truth": [4],
        "request_info": info,
        "logprobs": logps,
    } | changed


SCOPE = {"run_id": "r", "run_attempt": 0, "split": "train", "iteration": 3, "group_idx": 1, "traj_idx": 2}


def tinker_call(prompt: list[int], sampled: list[int], **changed: Any) -> dict[str, Any]:
    """One line of Tinker's `capture/sample.jsonl`."""
    return {
        "kind": "sample",
        "scope": {**SCOPE, "purpose": "rollout"},
        "created_at": 1.7e9,
        "num_samples": 1,
        "sampling_session_id": "s",
        "seq_id": 5,
        "model_path": "tinker://run/sampler_weights/000002",
        "prompt_tokens": prompt,
        "prompt_length": len(prompt),
        "sampling_params": {"max_tokens": 64, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "seed": None},
        "samples": [{"tokens": sampled, "logprobs": [-0.125 * at for at in sampled], "stop_reason": "stop"}],
        "status": "ok",
        "latency_sec": 0.5,
    } | changed


TURNS = [tinker_call([1, 2], [3, 4]), tinker_call([1, 2, 3, 4, 50, 51, 52], [6]), tinker_call([1, 2], [9, 8, 7])]
TRAIN_OPS = [
    {
        "kind": "train_op",
        "op": "forward_backward",
        "scope": SCOPE,
        "created_at": 1.7e9,
        "model_id": "m",
        "num_data": 4,
        "status": "ok",
        "metrics": {"loss:sum": 2.5, "kl": NAN},
        "latency_sec": 1.0,
    }
]
SUMMARY = {
    "schema_version": 1,
    "split": "train",
    "iteration": 3,
    "group_idx": 1,
    "traj_idx": 2,
    "tags": ["math"],
    "sampling_client_step": 2,
    "total_reward": 1.5,
    "final_reward": 1.0,
    "trajectory_metrics": {},
    "steps": [
        {"step_idx": 0, "ob_len": 2, "ac_len": 2, "reward": 0.0, "episode_done": False, "metrics": {}, "logs": {}},
        {"step_idx": 1, "ob_len": 7, "ac_len": 1, "reward": 0.5, "episode_done": True, "metrics": {}, "logs": {}},
    ],
    "final_ob_len": 8,
}
WIRE = """PRAGMA page_size = 512;
CREATE TABLE wire_rows (cursor INTEGER PRIMARY KEY, run_id TEXT NOT NULL, run_attempt INTEGER, split TEXT,
    iteration INTEGER, group_idx INTEGER, traj_idx INTEGER, purpose TEXT, sampling_session_id TEXT, seq_id INTEGER,
    sample_idx INTEGER, policy_version TEXT, created_at REAL, prompt_tokens TEXT, sampled_tokens TEXT, logprobs TEXT,
    metadata TEXT);"""


def wire_store(path: Path, calls: list[dict[str, Any]] | None = None) -> None:
    """Write Tinker's capture store: the calls as its client explodes them into rows."""
    connection = sqlite3.connect(path)
    connection.executescript(WIRE)
    for call in TURNS if calls is None else calls:
        for at, sample in enumerate(call["samples"]):
            scope = [call["scope"].get(name) for name in (*SCOPE, "purpose")]
            lists = [json.dumps(found) for found in (call["prompt_tokens"], sample["tokens"], sample["logprobs"])]
            more = json.dumps({"sampling_params": call["sampling_params"], "stop_reason": "stop"})
            row = [*scope, "s", 5, at, call["model_path"], 1.7e9, *lists, more]
            connection.execute(f"INSERT INTO wire_rows VALUES (NULL, {', '.join('?' * 16)})", row)
    connection.commit()
    connection.close()


QUESTION = {"role": "user", "content": "what is 1 + 2"}
ASKED = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": '{"a": 1}'}}]}
RESULT = {"role": "tool", "content": "3", "tool_call_id": "c"}
ANSWER = {"role": "assistant", "content": "it is 3"}


def trace(number: int, prompt: list[int], sampled: list[int], **changed: Any) -> dict[str, Any]:
    """One TraceRecord of rLLM's gateway, the second call of a session answering a tool's result."""
    return {
        "trace_id": f"t{number}",
        "session_id": "task:0",
        "model": "m",
        "messages": [QUESTION] if number == 0 else [QUESTION, ASKED, RESULT],
        "prompt_token_ids": prompt,
        "prompt_delta_token_ids": None,
        "parent_trace_id": None,
        "response_message": ASKED if number == 0 else ANSWER,
        "completion_token_ids": sampled,
        "logprobs": [-0.125 * at for at in sampled],
        "finish_reason": "stop",
        "weight_version": 4,
        "latency_ms": 12.0,
        "token_counts": {"prompt": len(prompt), "completion": len(sampled)},
        "timestamp": 1.7e9 + number,
        "metadata": {"training_step": 5},
    } | changed


TRACES = [trace(0, [1, 2], [3, 4]), trace(1, [1, 2, 3, 4, 50, 51, 52], [6])]


GATEWAY = """PRAGMA page_size = 512;
CREATE TABLE traces (trace_id TEXT PRIMARY KEY, data TEXT NOT NULL, created_at REAL NOT NULL);
CREATE TABLE trace_sessions (trace_id TEXT NOT NULL, session_id TEXT NOT NULL, run_id TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL, PRIMARY KEY (trace_id, session_id));
CREATE INDEX idx_traces_time ON traces(created_at);"""


def gateway(path: Path, traces: list[dict[str, Any]] | None = None) -> None:
    """Write rLLM's gateway database."""
    connection = sqlite3.connect(path)
    connection.executescript(GATEWAY)
    for found in TRACES if traces is None else traces:
        stamp = found["timestamp"]
        connection.execute("INSERT INTO traces VALUES (?, ?, ?)", (found["trace_id"], json.dumps(found), stamp))
        session = (found["trace_id"], found["session_id"], "run", stamp)
        connection.execute("INSERT INTO trace_sessions VALUES (?, ?, ?, ?)", session)
    connection.commit()
    connection.close()


def episode(**changed: Any) -> dict[str, Any]:
    """One episode of `rllm eval`'s store, with token ids."""
    steps = [
        {
            "prompt_ids": found["prompt_token_ids"],
            "response_ids": found["completion_token_ids"],
            "logprobs": found["logprobs"],
            "chat_completions": [*found["messages"], found["response_message"]],
            "advantage": 0.5,
            "weight_version": 4,
            "reward": 0.0,
        }
        for found in TRACES
    ]
    trajectory = {"uid": "u", "name": "solver", "steps": steps, "reward": 1.0, "signals": {"right": 1.0}}
    return {
        "id": "task:0",
        "task": {"id": "task"},
        "termination_reason": "env_done",
        "is_correct": True,
        "trajectories": [trajectory],
        "artifacts": {},
        "metrics": {},
        "metadata": {},
        "eval_idx": 0,
    } | changed


def logged_episode() -> dict[str, Any]:
    """One episode of rLLM's EpisodeLogger, which keeps texts alone."""
    steps = [{"observation": "q", "thought": "", "action": "a", "reward": 1.0, "done": True, "model_response": "a"}]
    steps[0]["chat_completions"] = [QUESTION, ASKED, RESULT, ANSWER]
    return {
        "training_step": 9,
        "epoch": 0,
        "episode_id": "task:1",
        "session_id": "s",
        "task": {"question": "q"},
        "task_hash": "0" * 8,
        "is_correct": False,
        "termination_reason": "max_turns_exceeded",
        "metrics": {},
        "metadata": {},
        "timing": {},
        "trajectories": [{"name": "solver", "uid": "u", "reward": 0.0, "num_steps": 1, "timing": {}, "steps": steps}],
    }


def chat(prompt: list[int], sampled: list[int], **changed: Any) -> dict[str, Any]:
    """One chat answer of vLLM with token ids, as its server writes it."""
    content: list[dict[str, Any]] = [
        {"token": f"token_id:{token}", "logprob": -0.125 * token, "bytes": None, "top_logprobs": []}
        for token in sampled
    ]
    return {
        "id": f"chatcmpl-{sampled[0]}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, "tool_calls": []},
                "logprobs": {"content": content},
                "finish_reason": "stop",
                "token_ids": sampled,
            }
        ],
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(sampled)},
        "prompt_logprobs": None,
        "prompt_token_ids": prompt,
    } | changed


def asked(step: int, answer: dict[str, Any]) -> dict[str, Any]:
    """One line of a gateway's log: request and response."""
    request = {"model": "m", "messages": [QUESTION], "temperature": 0.7, "logprobs": True}
    return {"step": step, "session_id": "c1", "request": request, "response": answer}


CHATS = [asked(2, chat([1, 2], [3, 4])), asked(2, chat([1, 2, 3, 4, 50, 51, 52], [6]))]

SAMPLES: dict[str, tuple[str, bytes | Callable[[Path], None]]] = {
    "rollouts/run_rollouts_000000.jsonl": ("open_instruct", jsonl([rollout(0), rollout(1)])),
    "log/capture/sample.jsonl": ("tinker_capture", jsonl(TURNS)),
    "log/capture/train_op.jsonl": ("tinker_capture", jsonl(TRAIN_OPS)),
    "store/capture.db": ("tinker_capture", wire_store),
    "log/iteration_000003/train_rollout_summaries.jsonl": ("tinker_rollouts", jsonl([SUMMARY])),
    "gateway.db": ("rllm_gateway", gateway),
    "eval/episodes/episode_000000_task.json": ("rllm_episodes", json.dumps(episode(), indent=2).encode()),
    "logs/episodes/train_step_9_epoch_0/episode_hash00000000_idtask_1.json": (
        "rllm_episodes",
        json.dumps(logged_episode(), indent=2).encode(),
    ),
    "calls/step_2.json": ("openai_logprobs", json.dumps(chat([1, 2], [3, 4])).encode()),
    "calls/log.jsonl": ("openai_logprobs", jsonl(CHATS)),
}
ROLLOUT_LOGPS = [*[-0.5] * 6, *[None] * 3, -0.25, -0.25, 0.0, -0.75, -0.75, *[None] * 4, *[-1.0] * 4]
ROWS: dict[str, tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    "rollouts/run_rollouts_000000.jsonl": (
        "sequences",
        ("step", "reward", "rollout_logp"),
        [
            (
                7,
                0.0,
                ROLLOUT_LOGPS,
            ),
            (
                7,
                1.0,
                ROLLOUT_LOGPS,
            ),
        ],
    ),
    "log/capture/sample.jsonl": (
        "sequences",
        ("step", "token_ids", "model_mask", "rollout_logp"),
        [
            (
                3,
                [3, 4, 50, 51, 52, 6],
                [True, True, False, False, False, True],
                [-0.375, -0.5, None, None, None, -0.75],
            ),
            (3, [9, 8, 7], [True, True, True], [-1.125, -1.0, -0.875]),
        ],
    ),
    "log/iteration_000003/train_rollout_summaries.jsonl": (
        "trajectories",
        ("step", "split", "reward", "n_turns"),
        [
            (3, "train", 1.5, 2),
        ],
    ),
    "gateway.db": (
        "sequences",
        ("step", "token_ids", "model_mask", "rollout_logp"),
        [
            (
                5,
                [3, 4, 50, 51, 52, 6],
                [True, True, False, False, False, True],
                [-0.375, -0.5, None, None, None, -0.75],
            ),
        ],
    ),
    "eval/episodes/episode_000000_task.json": (
        "sequences",
        ("step", "reward", "token_ids", "model_mask", "rollout_logp"),
        [
            (
                4,
                1.0,
                [3, 4, 50, 51, 52, 6],
                [True, True, False, False, False, True],
                [-0.375, -0.5, None, None, None, -0.75],
            ),
        ],
    ),
    "calls/step_2.json": (
        "sequences",
        ("step", "token_ids", "model_mask", "rollout_logp"),
        [
            (2, [3, 4], [True, True], [-0.375, -0.5]),
        ],
    ),
}
"""What a sample gives: a table, columns of it, and the values of all rows, as the bytes above have them."""

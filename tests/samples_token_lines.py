"""Samples of NeMo-RL, prime-rl and verifiers, field by field as their writers (named in the parsers) spell them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samples_calls import jsonl

NEMO: list[dict[str, Any]] = [
    {
        "content": [["<user>2+2", "tool call", "tool result", "4"]],
        "rewards": [1.0],
        "input_lengths": [8],
        "token_ids": [[5, 6, 7, 8, 9, 10, 11, 12, 0, 0]],
        "token_loss_mask": [[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]],
        "sample_loss_mask": [1.0],
        "advantages": [[0.5] * 10],
        "generation_logprobs": [[0.0, 0.0, -0.5, -0.25, 0.0, 0.0, -1.0, -2.0, 0.0, 0.0]],
        "prev_logprobs": [[0.0, 0.0, -0.625, -0.25, -3.0, -4.0, -1.5, -2.0, 0.0, 0.0]],
        "idx": 0,
    },
    {
        "content": [["<user>2+2", "4"]],
        "rewards": [0.0],
        "input_lengths": [4],
        "token_ids": [[5, 6, 13, 14, 0, 0, 0, 0, 0, 0]],
        "token_loss_mask": [[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]],
        "sample_loss_mask": [0.0],
        "advantages": [[-0.5] * 10],
        "generation_logprobs": [[0.0, 0.0, -0.125, -0.75] + [0.0] * 6],
        "prev_logprobs": [[0.0, 0.0, -0.125, -0.5] + [0.0] * 6],
        "idx": 1,
    },
]

VALIDATION: list[dict[str, Any]] = [
    {
        "content": [[{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]],
        "rewards": [1.0],
        "idx": 0,
    },
    {"content": [{"role": "user", "content": "3+3"}, {"role": "assistant", "content": "7"}], "rewards": 0.5, "idx": 1},
]


def prime_row(number: int, ids: list[int], mask: list[bool], **more: Any) -> dict[str, Any]:
    size = len(ids)
    trainer = [-5.0, *(-0.5 * keep for keep in mask[1:])]  # entry 0 is the placeholder
    return {
        "schema_version": 1,
        "step": 3,
        "rank": 0,
        "micro_step": 0,
        "micro_sequence_idx": number,
        "export_sequence_idx": number,
        "env_name": "calc",
        "token_ids": ids,
        "position_ids": list(range(size)),
        "loss_mask": mask,
        "advantages": [0.5 * keep for keep in mask],
        "inference_logprobs": [-0.75 * keep for keep in mask],
        "trainer_logprobs": trainer,
        "entropy": [0.25] * size,
        "mismatch_kl": [0.0] * size,
        "is_masked": [False] * size,
        "rl_weights": [None] * size,
        **more,
    }


PRIME = [
    prime_row(0, [1, 2, 3, 4, 5, 6], [False, False, True, False, False, True]),
    prime_row(1, [7, 8, 9], [True, True, True]),
]


def node(role: str, parent: int | None, ids: list[int], mask: list[int], **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": f"{role} {ids}", **more.pop("message", {})}
    sampled = any(mask)
    return {
        **({} if parent is None else {"parent": parent}),
        "message": message,
        "sampled": sampled,
        "timestamp": 1.7e9,
        "token_ids": ids,
        "mask": [bool(keep) for keep in mask],
        "is_content": [True] * len(ids),
        "logprobs": [-0.75] * sum(mask),
        **more,
    }


ASKED = {"tool_calls": [{"id": "call_0", "name": "calc", "arguments": '{"a": 2}'}]}
NODES = [
    node("user", None, [1, 2], [0, 0]),
    node("assistant", 0, [3], [1], message=ASKED, trainer_logprobs=[-0.5], advantages=[0.5]),
    node("tool", 1, [4, 5], [0, 0], message={"tool_call_id": "call_0"}),
    node("assistant", 2, [6], [1], trainer_logprobs=[-1.0], advantages=[0.5]),
]


def episode(name: str, nodes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    task = {"type": "Calc", "data": {"prompt": "2+2"}}
    trace = {
        "version": 1,
        "id": name,
        "verifiers": {"version": "0.4.0"},
        "task": task,
        "agent": {"config": {}, "name": "agent", "trainable": True},
        "nodes": nodes,
        "calls": [{"node": 1, "finish_reason": "tool_calls"}, {"node": 3, "finish_reason": "length"}],
        "rewards": {"correct": {"score": 1.0, "weight": 0.5}, "style": {"score": 0.25, "weight": 1.0}, "late": None},
        "metrics": {"calls": 1.0},
        "info": {},
        "is_completed": True,
        "stop_condition": "agent_completed",
        "errors": [],
    }
    return {
        "id": f"episode {name}",
        "env": {"id": "calc"},
        "task": task,
        "group": {"id": "g0"},
        "run": {"type": "train", "id": "r", "work": {"type": "train", "step": 2, "policy": {"start": 1, "end": 2}}},
        "ok": True,
        "errors": [],
        "traces": [trace],
        **more,
    }


EPISODES = [episode("t0", NODES), episode("t1", [node("user", None, [1], [0]), node("assistant", 0, [7, 8], [1, 1])])]

RESULTS: list[dict[str, Any]] = [
    {
        "example_id": 4,
        "prompt": [{"role": "user", "content": "2+2"}],
        "completion": [
            {"role": "assistant", "content": "", "tool_calls": ['{"id": "c", "function": {"name": "calc"}}']},
            {"role": "tool", "content": "4", "tool_call_id": "c"},
            {"role": "assistant", "content": "4"},
        ],
        "task": "calc",
        "reward": 1.0,
        "metrics": {"correct": 1.0},
        "is_completed": True,
        "is_truncated": False,
        "stop_condition": "done",
    },
    {
        "example_id": 4,
        "prompt": "2+2",
        "completion": "5",
        "reward": 0.0,
        "metrics": {"correct": 0.0},
        "error": {"error": "Timeout", "error_chain_repr": "", "error_chain_str": ""},
    },
]
METADATA = {
    "env_id": "calc",
    "env_args": {},
    "model": "tiny",
    "base_url": "http://localhost",
    "num_examples": 1,
    "rollouts_per_example": 2,
    "sampling_args": {"temperature": 0.7, "max_tokens": 64},
    "avg_reward": 0.5,
    "avg_metrics": {"correct": 0.5},
    "pass_at_k": {"1": 0.5},
}


def _stable(path: Path) -> None:
    path.write_bytes(jsonl(PRIME))
    (path.parent / "STABLE").touch()


TOKEN_LINES: dict[str, tuple[str, bytes | Callable[[Path], None]]] = {
    "exp_001/train_data_step7.jsonl": ("nemo_tokens", jsonl(NEMO)),
    "exp_001/train_data_step8.jsonl.gz": ("nemo_tokens", gzip.compress(jsonl(NEMO), mtime=0)),
    "exp_001/val_data_step7.jsonl": ("nemo_validation", jsonl(VALIDATION)),
    "token_exports/step_3/rank_0.jsonl": ("prime_tokens", _stable),
    "rollouts/step_3/train/effective/traces.jsonl": ("verifiers_traces", jsonl(EPISODES)),
    "evals/results.jsonl": ("verifiers_results", jsonl(RESULTS)),
    "evals/metadata.json": ("verifiers_metadata", json.dumps(METADATA).encode()),
}
ROWS: dict[str, tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    "exp_001/train_data_step7.jsonl": (
        "sequences",
        ("step", "reward", "token_ids", "model_mask", "old_logp", "rollout_logp"),
        [
            (
                7,
                1.0,
                [7, 8, 9, 10, 11, 12],
                [True, True, False, False, True, True],
                [-0.625, -0.25, -3.0, -4.0, -1.5, -2.0],
                [-0.5, -0.25, 0.0, 0.0, -1.0, -2.0],
            ),
            (7, 0.0, [13, 14], [True, True], [-0.125, -0.5], [-0.125, -0.75]),
        ],
    ),
    "exp_001/val_data_step7.jsonl": (
        "trajectories",
        ("step", "split", "reward", "n_turns", "n_tool_calls", "n_tool_fail"),
        [
            (7, "eval", 1.0, 1, 0, 0),
            (7, "eval", 0.5, 1, 0, 0),
        ],
    ),
    "token_exports/step_3/rank_0.jsonl": (
        "sequences",
        ("step", "token_ids", "model_mask", "policy_logp", "rollout_logp"),
        [
            (3, [3, 4, 5, 6], [True, False, False, True], [-0.5, -0.0, -0.0, -0.5], [-0.75, -0.0, -0.0, -0.75]),
            (3, [7, 8, 9], [True, True, True], [None, -0.5, -0.5], [-0.75, -0.75, -0.75]),
        ],
    ),
    "rollouts/step_3/train/effective/traces.jsonl": (
        "sequences",
        ("step", "reward", "token_ids", "model_mask", "policy_logp", "rollout_logp"),
        [
            (3, 0.75, [3, 4, 5, 6], [True, False, False, True], [-0.5, None, None, -1.0], [-0.75, None, None, -0.75]),
            (3, 0.75, [7, 8], [True, True], [None, None], [-0.75, -0.75]),
        ],
    ),
    "evals/results.jsonl": (
        "trajectories",
        ("split", "reward", "n_turns", "n_tool_calls", "n_tool_fail"),
        [
            ("eval", 1.0, 2, 1, 0),
            ("eval", 0.0, 1, 0, 0),
        ],
    ),
    "evals/metadata.json": (
        "evals",
        ("suite", "metric", "value"),
        [
            ("calc", "reward", 0.5),
            ("calc", "correct", 0.5),
            ("calc", "pass@1", 0.5),
        ],
    ),
}
"""What a sample gives: a table, columns of it, and the values of all rows, as the bytes above have them."""

"""Samples of rollout texts and traces, field by field after the sources that the parsers name."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
from samples_calls import jsonl

TRACES = Path(__file__).parent / "traces"


VERL_ROLLOUTS: list[dict[str, Any]] = [
    {"input": "2+2?", "output": "4", "gts": "4", "score": 1.0, "step": 5, "acc": True, "format": 0.5, "pred": "4"},
    {"input": "2+2?", "output": "5", "gts": "4", "score": float("nan"), "step": 5, "acc": False, "format": None},
]
VERL_UIDS: list[dict[str, Any]] = [
    {"input": "2+2?", "output": "4", "gts": None, "score": 1.0, "step": 6, "uid": f"p-1_{session}_0", "num_turns": 4}
    for session in range(2)
]
VERL_VALIDATION: list[dict[str, Any]] = [
    {"input": "q", "output": "a", "gts": "a", "score": score, "step": 5, "reward": score, "acc": score > 0}
    for score in (1.0, 0.0, 0.5)
]
SKYRL_EVALS: list[dict[str, Any]] = [
    {"input_prompt": "q", "output_response": "a", "score": 1.0, "stop_reason": "stop", "env_class": "gsm8k"}
    | {"env_extras": {"extra_info": {}}, "data_source": "openai/gsm8k"},
    {"input_prompt": "q", "output_response": "b", "score": [0.0, 0.25, 0.25], "stop_reason": "length"}
    | {"env_class": "gsm8k", "env_extras": {}, "data_source": "openai/gsm8k"},
]
SKYRL_FIGURES: list[dict[str, Any]] = [
    {"eval/all/avg_score": 0.75, "eval/all/pass_at_2": 1.0, "eval/openai/gsm8k/avg_score": 0.75}
]
AREAL_ROLLOUTS: list[dict[str, Any]] = [
    {"task_id": 3, "sample_idx": at, "seqlen": 9, "prompt_len": 4, "head_version": -1, "tail_version": 7}
    | {"reward": float(at), "prompt": "q", "completion": f"answer {at}"}
    for at in range(2)
]
ROLL_ROLLOUTS: dict[str, Any] = {
    "global_step": [4, 4],
    "id": ["0", "0"],
    "prompt": ["q", "q"],
    "domain": ["math_rule", "math_rule"],
    "responses": ["a", "b"],
    "scores": [1.0, 0.0],
    "sampling_params": ["{}", "{}"],
}
SWIFT_COMPLETIONS: list[dict[str, Any]] = [
    {
        "step": ["3", "3"],
        "prompt": ["q", "q"],
        "completion": ["a", "b"],
        "Accuracy": [1.0, 0.0],
        "Format": [0.5, None],
        "advantages": [0.7, -0.7],
        "entropy": [0.1, 0.2],
    },
]
SWIFT_REPEAT = {**SWIFT_COMPLETIONS[0], "step": ["3", "4"], "completion": ["b", "c"], "prompt": ["q", "q"]} | {
    "Accuracy": [0.0, 1.0],
    "Format": [None, 0.5],
    "advantages": [-0.7, 0.3],
}


def call(name: str, arguments: dict[str, Any], call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


TAU: list[dict[str, Any]] = [
    {
        "task_id": 2,
        "reward": 0.0,
        "info": {"task": {"user_id": "u"}, "reward_info": {"reward": 0.0}},
        "traj": [
            {"role": "system", "content": "policy"},
            {"role": "user", "content": "cancel"},
            {"role": "assistant", "content": None, "tool_calls": [call("find", {"id": "u"}, "c1")]},
            {"role": "tool", "tool_call_id": "c1", "name": "find", "content": "Error: user not found"},
            {"role": "assistant", "content": None, "tool_calls": [call("find", {"id": "v"}, "c2")]},
            {"role": "tool", "tool_call_id": "c2", "name": "find", "content": "v"},
            {"role": "assistant", "content": "done"},
        ],
        "trial": 0,
    },
    {"task_id": 2, "reward": 1.0, "info": {}, "traj": [{"role": "assistant", "content": "hi"}], "trial": 1},
]
SIMULATION: dict[str, Any] = {
    "id": "s-1",
    "task_id": "7",
    "timestamp": "2026-01-02T03:04:05",
    "start_time": "2026-01-02T03:04:05",
    "end_time": "2026-01-02T03:05:05",
    "duration": 60.0,
    "termination_reason": "max_steps",
    "reward_info": {"reward": 0.5, "reward_breakdown": {"DB": 1.0, "COMMUNICATE": 0.5}},
    "messages": [
        {"role": "assistant", "content": "hello", "turn_idx": 0, "usage": {"completion_tokens": 3}},
        {"role": "user", "content": None, "tool_calls": [{"id": "u1", "name": "look", "arguments": {}}]},
        {"role": "tool", "id": "u1", "content": "off", "error": False, "requestor": "user"},
        {
            "role": "assistant",
            "content": None,
            "timestamp": "2026-01-02T03:04:06+00:00",
            "tool_calls": [
                {"id": "a1", "name": "find", "arguments": {"id": 1}, "requestor": "assistant"},
                {"id": "a2", "name": "find", "arguments": {"id": 2}, "requestor": "assistant"},
            ],
        },
        {
            "role": "tool",
            "tool_messages": [
                {"role": "tool", "id": "a2", "content": "Error: 2", "error": True, "requestor": "assistant"},
                {"role": "tool", "id": "a1", "content": "one", "error": False, "requestor": "assistant"},
            ],
        },
    ],
    "trial": 0,
    "seed": 300,
}
TAU2: dict[str, Any] = {
    "timestamp": "2026-01-02T03:04:05",
    "info": {
        "num_trials": 1,
        "agent_info": {"implementation": "llm_agent", "llm": "some-model", "llm_args": {"temperature": 0.5}},
        "environment_info": {"domain_name": "telecom", "policy": ""},
    },
    "tasks": [{"id": "7"}],
    "simulations": [SIMULATION],
}
SWE: dict[str, Any] = {
    "environment": "swe_main",
    "trajectory": [
        {"action": "ls -l", "observation": "a.py", "response": "I look", "thought": "I", "execution_time": 0.25},
        {"action": "pyton a.py", "observation": "bash: pyton: command not found", "response": "I run"},
        {"action": "submit", "observation": "", "response": "done", "execution_time": 0.5},
    ],
    "history": [{"role": "system", "content": "x"}],
    "info": {"exit_status": "submitted", "submission": "diff", "model_stats": {"api_calls": 3}},
}
STAMP = "2026-01-02T03:04:0{}+00:00"
EPISODES: list[dict[str, Any]] = [
    {"episode_id": "e1", "step": 0, "type": "user_message", "content": "hi", "timestamp": STAMP.format(0)},
    {"episode_id": "e2", "step": 0, "type": "user_message", "content": "yo"},
    {"episode_id": "e1", "step": 1, "type": "tool_call", "tool": "search", "args": {"q": "x"}, "tokens": 12},
    {"episode_id": "e1", "step": 2, "type": "tool_result", "tool": "search", "error": "timeout"},
    {"episode_id": "e1", "step": 3, "type": "tool_call", "tool": "search", "args": {"q": "y"}},
    {"episode_id": "e1", "step": 4, "type": "tool_result", "tool": "search", "result": "found"},
    {"episode_id": "e1", "step": 5, "type": "assistant_message", "content": "it is so"},
    {"episode_id": "e1", "step": 6, "type": "episode_end", "success": True, "reward": 0.5, "total_tokens": 20},
    {"episode_id": "e2", "step": 1, "type": "tool_parse_error", "content": "{{"},
]


def attributes(**told: Any) -> list[dict[str, Any]]:
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue", bool: "boolValue"}
    return [
        {"key": key.replace("__", "."), "value": {kinds[type(value)]: str(value) if type(value) is int else value}}
        for key, value in told.items()
    ]


def span(name: str, start: int, end: int, **told: Any) -> dict[str, Any]:
    return {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": f"{start:016x}",
        "name": name,
        "startTimeUnixNano": str(1_700_000_000_000_000_000 + start * 1_000_000),
        "endTimeUnixNano": str(1_700_000_000_000_000_000 + end * 1_000_000),
        "status": {},
        "attributes": attributes(**told),
    }


ASKED = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "sum?"}]}])
ANSWERED = json.dumps(
    [{"role": "assistant", "parts": [{"type": "text", "content": "it is 3"}], "finish_reason": "stop"}]
)
SPANS = [
    span("invoke_agent", 0, 900, gen_ai__operation__name="invoke_agent"),
    span("chat m", 10, 110, gen_ai__operation__name="chat", gen_ai__usage__output_tokens=7)
    | {"traceId": "5b8efff798038103d269b633813fc60c"},
    span("execute_tool add", 120, 370, gen_ai__operation__name="execute_tool", gen_ai__tool__name="add")
    | {"status": {"code": "STATUS_CODE_OK"}},
    span(
        "execute_tool div",
        380,
        400,
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__call__id="c9",
        error__type="ZeroDivisionError",
    )
    | {"status": {"code": 2}},
    span(
        "chat m",
        410,
        600,
        gen_ai__operation__name="chat",
        gen_ai__usage__completion_tokens=9,
        gen_ai__input__messages=ASKED,
        gen_ai__output__messages=ANSWERED,
    )
    | {
        "events": [
            {
                "name": "gen_ai.evaluation.result",
                "attributes": attributes(gen_ai__evaluation__name="right", gen_ai__evaluation__score__value=0.5),
            }
        ]
    },
]


def exports(spans: list[dict[str, Any]]) -> dict[str, Any]:
    resource = {"attributes": attributes(service__name="agent")}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "t"}, "spans": spans}]}]}


INSPECT_START: dict[str, Any] = {
    "version": 2,
    "status": "success",
    "eval": {"eval_id": "e", "run_id": "r", "task": "sums", "model": "m", "metadata": {"step": 40}},
}
INSPECT_RESULTS: dict[str, Any] = {
    "plan": {"config": {"temperature": 0.5, "max_tokens": 64}},
    "results": {
        "completed_samples": 1,
        "scores": [{"name": "includes", "scorer": "includes", "metrics": {"accuracy": {"name": "a", "value": 1}}}],
    },
}
INSPECT_SAMPLE: dict[str, Any] = {
    "id": "one",
    "epoch": 1,
    "input": "1 + 2?",
    "messages": [
        {"role": "user", "content": "1 + 2?"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I add"}],
            "tool_calls": [{"id": "t1", "function": "add", "arguments": {"a": 1}}],
        },
        {"role": "tool", "tool_call_id": "t1", "function": "add", "content": "3"},
    ],
    "output": {"choices": [{"stop_reason": "max_tokens"}]},
    "scores": {"includes": {"value": "C"}},
    "events": [{"event": "tool", "id": "t1", "working_time": 0.125}],
}


def zip_file(held: dict[str, bytes], method: int = 93) -> bytes:
    """A zip file after APPNOTE.TXT 4.3; Python packs with zstd from 3.14 on."""
    local, listed = bytearray(), bytearray()
    for name, data in held.items():
        packed = pa.compress(data, codec="zstd", asbytes=True) if method == 93 else data
        told = struct.pack(
            "<5H3I2H", 63, 0, method, 0, 33, zlib.crc32(data), len(packed), len(data), len(name.encode()), 0
        )
        listed += b"PK\x01\x02" + struct.pack("<H", 63) + told + struct.pack("<3H2I", 0, 0, 0, 0, len(local))
        listed += name.encode()
        local += b"PK\x03\x04" + told + name.encode() + packed
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, len(held), len(held), len(listed), len(local), 0)
    return bytes(local + listed + end)


def inspect_zip(method: int = 93) -> bytes:
    header = json.dumps(INSPECT_START | INSPECT_RESULTS).encode()
    start = json.dumps(INSPECT_START).encode()
    sample = json.dumps(INSPECT_SAMPLE).encode()
    held = {"_journal/start.json": start, "samples/one_epoch_1.json": sample, "header.json": header}
    return zip_file(held, method)


def document(found: Any) -> bytes:
    return json.dumps(found).encode()


EPISODE_ROWS: list[dict[str, Any]] = [
    {"id": "7:0", "task_id": "7", "step": 4, "termination_reason": "env_done", "is_correct": True, "num_steps": 3,
     "trajectories": [{"name": "agent", "reward": 1.0}]},
    {"id": "7:1", "task_id": "7", "step": 4, "termination_reason": "max_prompt_length_exceeded", "is_correct": False,
     "num_steps": 0, "trajectories": []},
]  # fmt: skip
GYM_ROWS: list[dict[str, Any]] = [
    {"_ng_task_index": 0, "_ng_rollout_index": at, "train_step": 2, "agent_ref": {"name": "browser"}, "reward": reward,
     "failure_reason": why, "mask_sample": masked, "num_tool_calls": 3 * (why is None)}
    for at, (reward, why, masked) in enumerate([(1.0, None, False), (0.0, "session reset failed", True)])
]  # fmt: skip

SAMPLE_ROWS: list[dict[str, Any]] = [
    {"instance_id": "repo-1", "idx": at, "rewards": reward, "gen_tokens": tokens}
    for at, (reward, tokens) in enumerate([(1.0, 756), (0.0, 0)])
]  # fmt: skip
TURN_ROWS: list[dict[str, Any]] = [
    {"rollout_id": rollout, "task_id": "t1", "turn": turn, "reward": reward, "response_length": 10, "global_step": 3}
    for rollout, turns, reward in (("a", 2, 1.0), ("b", 3, 0.0)) for turn in range(turns)
]  # fmt: skip

TRACE_SAMPLES: dict[str, tuple[str, bytes]] = {
    "dump/train_data_step6.jsonl": ("sample_rows", jsonl(SAMPLE_ROWS)),
    "dump/turns.jsonl": ("sample_rows", jsonl(TURN_ROWS)),
    "episodes/train_step_4.jsonl": ("episode_ledger", jsonl(EPISODE_ROWS)),
    "gym/rollouts.jsonl": ("episode_ledger", jsonl(GYM_ROWS)),
    "rollouts/5.jsonl": ("verl_rollouts", jsonl(VERL_ROLLOUTS)),
    "validation/5.jsonl": ("verl_rollouts", jsonl(VERL_VALIDATION)),
    "exports/dumped_evals/global_step_8_evals/openai_gsm8k.jsonl": ("skyrl_evals", jsonl(SKYRL_EVALS)),
    "exports/dumped_evals/global_step_8_evals/aggregated_results.jsonl": ("skyrl_evals", jsonl(SKYRL_FIGURES)),
    "areal/rollout/7/3.jsonl": ("areal_rollouts", jsonl(AREAL_ROLLOUTS)),
    "roll/rollout_dump_data.step_4.jsonl": ("roll_rollouts", jsonl([ROLL_ROLLOUTS])),
    "swift/completions.jsonl": ("swift_completions", jsonl(SWIFT_COMPLETIONS)),
    "art/trajectories/train/0002.jsonl": ("art_trajectories", (TRACES / "art_0002.jsonl").read_bytes()),
    "art/trajectories/train/0003.parquet": ("art_trajectories", (TRACES / "art_0003.parquet").read_bytes()),
    "inspect/sums.eval": ("inspect_log", inspect_zip()),
    "inspect/sums.json": ("inspect_log", document(INSPECT_START | INSPECT_RESULTS | {"samples": [INSPECT_SAMPLE]})),
    "swe/astropy__astropy-1/astropy__astropy-1.traj": ("swe_agent", document(SWE)),
    "tau/tool-calling-m-0.0_range_0-2.json": ("tau_bench", document(TAU)),
    "tau2/results.json": ("tau_bench", document(TAU2)),
    "tau2/simulations/s-2.json": ("tau_bench", document(SIMULATION | {"id": "s-2"})),
    "otel/spans.json": ("otel_spans", document(exports(SPANS))),
    "otel/traces.jsonl": ("otel_spans", jsonl([exports(SPANS[:3]), exports(SPANS[3:])])),
    "agents/run.jsonl": ("microsoft_agents", jsonl(EPISODES)),
}
ROWS: dict[str, tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    "dump/train_data_step6.jsonl": (
        "trajectories",
        ("step", "split", "reward", "task", "tokens_out"),
        [
            (6, "train", 1.0, "repo-1", 756),
            (6, "train", 0.0, "repo-1", 0),
        ],
    ),
    "dump/turns.jsonl": (
        "trajectories",
        ("step", "reward", "task", "n_turns", "tokens_out"),
        [
            (3, 1.0, "t1", 2, 20),
            (3, 0.0, "t1", 3, 30),
        ],
    ),
    "validation/5.jsonl": (
        "trajectories",
        ("step", "split", "reward"),
        [
            (5, "eval", 1.0),
            (5, "eval", 0.0),
            (5, "eval", 0.5),
        ],
    ),
    "exports/dumped_evals/global_step_8_evals/openai_gsm8k.jsonl": (
        "trajectories",
        ("step", "split", "reward"),
        [
            (8, "eval", 1.0),
            (8, "eval", 0.5),
        ],
    ),
    "areal/rollout/7/3.jsonl": (
        "trajectories",
        ("step", "split", "reward"),
        [
            (7, "train", 0.0),
            (7, "train", 1.0),
        ],
    ),
    "roll/rollout_dump_data.step_4.jsonl": (
        "trajectories",
        ("step", "split", "reward"),
        [
            (4, "train", 1.0),
            (4, "train", 0.0),
        ],
    ),
    "episodes/train_step_4.jsonl": (
        "trajectories",
        ("step", "split", "reward", "success", "group_id", "stop_reason", "n_turns"),
        [
            (4, "train", 1.0, True, "7", "env_done", 3),
            (4, "train", None, False, "7", "max_prompt_length_exceeded", 0),
        ],
    ),
    "gym/rollouts.jsonl": (
        "trajectories",
        ("step", "reward", "group_id", "env", "error_type", "masked", "n_tool_calls"),
        [
            (2, 1.0, "0", "browser", None, False, 3),
            (2, 0.0, "0", "browser", "session reset failed", True, 0),
        ],
    ),
    "swift/completions.jsonl": (
        "trajectories",
        ("step", "split", "reward"),
        [
            (3, "unknown", 1.5),
            (3, "unknown", 0.0),
        ],
    ),
    "art/trajectories/train/0002.jsonl": (
        "trajectories",
        ("step", "split", "reward", "n_turns", "n_tool_calls", "n_tool_fail"),
        [
            (2, "train", 1.0, 2, 1, 0),
            (2, "train", 0.0, 1, 0, 0),
        ],
    ),
    "inspect/sums.eval": (
        "trajectories",
        ("step", "split", "reward", "success", "n_turns", "n_tool_calls", "n_tool_fail"),
        [
            (40, "eval", 1.0, True, 1, 1, 0),
        ],
    ),
    "swe/astropy__astropy-1/astropy__astropy-1.traj": (
        "trajectories",
        ("split", "n_turns", "n_tool_calls", "n_tool_fail"),
        [
            ("eval", 3, 3, None),
        ],
    ),
    "tau/tool-calling-m-0.0_range_0-2.json": (
        "trajectories",
        ("split", "reward", "success", "n_turns", "n_tool_calls", "n_tool_fail"),
        [
            ("eval", 0.0, False, 3, 2, 1),
            ("eval", 1.0, True, 1, 0, 0),
        ],
    ),
    "otel/traces.jsonl": (
        "trajectories",
        ("split", "n_turns", "n_tool_calls", "n_tool_fail"),
        [
            ("unknown", 2, 2, 1),
        ],
    ),
    "agents/run.jsonl": (
        "trajectories",
        ("split", "reward", "success", "n_turns", "n_tool_calls", "n_tool_fail"),
        [
            ("unknown", 0.5, True, 3, 2, 1),
            ("unknown", None, None, 1, 0, 0),
        ],
    ),
}
"""What a sample gives: a table, columns of it, and the values of all rows, as the bytes above have them."""

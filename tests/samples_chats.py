"""Samples of conversations as chat messages, after the writers that the parsers name; texts and tools are our own."""

from __future__ import annotations

import json
from typing import Any

from samples_calls import jsonl

TOOL = {"type": "function", "function": {"name": "weigh", "parameters": {"type": "object", "properties": {}}}}


def asked(name: str, arguments: Any, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


MESSAGES: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "system", "content": "you weigh"},
            {"role": "user", "content": "how heavy are both"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [asked("weigh", {"of": 1}, "a"), asked("weigh", 2, "b")],
            },
            {"role": "tool", "tool_call_id": "b", "content": '{"error": "no such thing"}'},
            {"role": "tool", "tool_call_id": "a", "content": "3 kg"},
            {"role": "assistant", "content": "one is 3 kg"},
        ],
        "tools": [TOOL],
        "parallel_tool_calls": True,
        "reward": 0.5,
        "metadata": {"task_id": "scales-7", "success": False},
        "model": "m",
    },
    {
        "messages": [
            {"role": "user", "content": "weigh it"},
            {"role": "assistant", "content": None, "function_call": {"name": "weigh", "arguments": "{}"}},
            {"role": "function", "name": "weigh", "content": "4 kg"},
            {"role": "assistant", "content": "4 kg"},
        ],
        "functions": [TOOL["function"]],
    },
]
CONTROL = b'{"messages": [{"role": "user", "content": "ring\x07"}, {"role": "assistant", "content": "a\tbell"}]}\n'
BLOCKS: list[dict[str, Any]] = [
    {"role": "user", "content": "weigh 9"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "the scales", "signature": "s"},
            {"type": "text", "text": "I weigh"},
            {"type": "tool_use", "id": "t1", "name": "weigh", "input": {"of": 9}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "out of order", "is_error": True},
            {"type": "text", "text": "and now"},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "I cannot weigh it"}]},
]
REQUEST: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "weigh 1"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "yes"}], "tool_calls": [asked("weigh", {}, "c")]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "1 kg"}]},
    ],
    "tools": [TOOL],
    "kwargs": {"temperature": 0.0},
    "response": {
        "id": "chatcmpl-1",
        "model": "m",
        "choices": [{"finish_reason": "length", "index": 0, "message": {"role": "assistant", "content": "1 k"}}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 2},
    },
    "cost": 0.25,
    "timestamp": 1757015046.7,
}
ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "I look"}]},
    {"type": "function_call", "call_id": "c1", "name": "weigh", "arguments": "{}", "status": "completed"},
    {"type": "web_search_call", "id": "ws", "status": "failed", "action": {"query": "scales"}},
    {"type": "function_call_output", "call_id": "c1", "output": "5 kg"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "5 kg"}]},
]
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "model": "m",
    "instructions": "you weigh",
    "output": ITEMS,
    "tools": [{"type": "function", "name": "weigh", "parameters": {}}],
    "usage": {"input_tokens": 20, "output_tokens": 8},
    "incomplete_details": None,
}
BATCH: list[dict[str, Any]] = [
    {
        "id": "batch_req_1",
        "custom_id": "q-1",
        "response": {
            "status_code": 200,
            "body": {
                "object": "chat.completion",
                "model": "m",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "6"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 1},
            },
        },
        "error": None,
    },
]
SHAREGPT: list[dict[str, Any]] = [
    {
        "conversations": [
            {"from": "human", "value": "weigh both"},
            {"from": "function_call", "value": '[{"name": "weigh", "arguments": {"of": 1}}, {"name": "weigh"}]'},
            {"from": "observation", "value": "1 kg"},
            {"from": "gpt", "value": "one is 1 kg"},
        ],
        "tools": json.dumps([TOOL["function"]]),
    },
    {
        "conversations": [
            {"from": "system", "value": "you weigh"},
            {"from": "human", "value": "weigh it"},
            {"from": "gpt", "value": '<tool_call>\n{"name": "weigh", "arguments": {}}\n</tool_call>'},
            {"from": "tool", "value": "<tool_response>\n2 kg\n</tool_response>"},
            {"from": "gpt", "value": "2 kg"},
        ],
    },
]
HARBOR: list[dict[str, Any]] = [
    {
        "conversations": [
            {"role": "user", "content": "you work in a shell"},
            {"role": "user", "content": "make a file"},
            {"role": "assistant", "content": "made"},
        ],
        "agent": "openhands",
        "model": "m",
        "model_provider": "p",
        "date": "2026-01-02T03:04:05",
        "task": "make-a-file",
        "episode": f"episode-{number}",
        "run_id": "run",
        "trial_name": "make-a-file__x",
        "tool_definitions": [TOOL],
        "result": result,
    }
    for number, result in enumerate(("1.0", "AgentTimeoutError", None))
]
GYM: list[dict[str, Any]] = [
    {
        "responses_create_params": {
            "input": [{"role": "user", "content": "weigh 5", "type": "message"}],
            "tools": [{"type": "function", "name": "weigh", "parameters": {}}],
        },
        "response": {"object": "response", "model": "m", "output": ITEMS, "usage": {"input_tokens": 0}},
        "reward": reward,
        "reward_components": {"right": reward, "format": 1.0},
        "is_correct": reward == 1.0,
        "_ng_task_index": 3,
        "_ng_rollout_index": attempt,
        "agent_ref": {"name": "scales"},
    }
    for attempt, reward in enumerate((1.0, 0.25))
]
BFCL_V1: list[dict[str, Any]] = [
    {"idx": 0, "result": [{"weigh": '{"of": 1}'}, {"weigh": '{"of": 2}'}], "input_token_count": 12}
    | {"output_token_count": 5, "latency": 0.5},
    {"idx": 1, "result": "[scales.weigh(of=1), scales.tare()]", "input_token_count": 12, "output_token_count": 5},
    {"idx": 2, "result": "Which of them?", "input_token_count": 12, "output_token_count": 5, "latency": 0.5},
]
BFCL_TURNS: list[dict[str, Any]] = [
    {
        "id": "multi_turn_base_4",
        "result": [[[{"tare": "{}"}, {"weigh": '{"of": 1}'}], []], [[{"weigh": '{"of": 2}'}], []]],
        "input_token_count": [[30, 40], [50, 60]],
        "output_token_count": [[3, 1], [2, 1]],
        "latency": [[0.5, 0.5], [0.5, 0.5]],
        "inference_log": [
            [{"role": "state_info", "class_name": "Scales", "content": {"tared": False}}],
            {
                "begin_of_turn_query": [{"role": "user", "content": "weigh 1"}],
                "step_0": [
                    {"role": "assistant", "content": [{"tare": "{}"}, {"weigh": '{"of": 1}'}]},
                    {"role": "handler_log", "content": "Decoded.", "model_response_decoded": ["tare()", "weigh(of=1)"]},
                    {"role": "tool", "content": "None"},
                    {"role": "tool", "content": '{"error": "no such thing"}'},
                ],
                "step_1": [{"role": "assistant", "content": []}],
            },
            {
                "begin_of_turn_query": [{"role": "user", "content": "and 2"}],
                "step_0": [
                    {"role": "assistant", "content": [{"weigh": '{"of": 2}'}]},
                    {"role": "tool", "content": "2 kg"},
                ],
                "step_1": [{"role": "assistant", "content": []}],
            },
        ],
    },
    {"id": "multi_turn_base_5", "result": "Error during inference: no connection", "traceback": "x"},
]
BFCL_SCORE: list[dict[str, Any]] = [
    {"accuracy": 0.5, "correct_count": 1, "total_count": 2},
    {
        "id": "multi_turn_base_5",
        "model_name": "m",
        "test_category": "multi_turn_base",
        "valid": False,
        "error": {"error_message": "no list", "error_type": "multi_turn:inference_error"},
        "prompt": {"id": "multi_turn_base_5", "question": [[{"role": "user", "content": "weigh 3"}]]},
        "model_result_raw": "Error during inference: no connection",
        "possible_answer": [["weigh(of=3)"]],
    },
]
ANSWER = {"id": "multi_turn_base_4", "ground_truth": [["tare()", "weigh(of=1)"], ["weigh(of=2)"]]}

SAMPLES: dict[str, tuple[str, bytes]] = {
    "chats/messages.jsonl": ("chat_messages", jsonl(MESSAGES) + CONTROL),
    "chats/blocks.json": ("chat_messages", json.dumps(BLOCKS, indent=1).encode()),
    "chats/request.json": ("chat_messages", json.dumps(REQUEST).encode()),
    "responses/log.jsonl": ("openai_responses", jsonl([RESPONSE])),
    "responses/items.json": ("openai_responses", json.dumps([{"role": "user", "content": "hi"}, *ITEMS]).encode()),
    "batches/output.jsonl": ("openai_responses", jsonl(BATCH)),
    "sharegpt/tools.json": ("sharegpt", json.dumps(SHAREGPT, indent=2).encode()),
    "harbor/make-a-file.traces.json": ("harbor_traces", json.dumps(HARBOR).encode()),
    "gym/example_rollouts.jsonl": ("nemo_gym", jsonl(GYM)),
    "bfcl/old/gorilla_openfunctions_v1_test_parallel_function_result.json": ("bfcl", jsonl(BFCL_V1)),
    "bfcl/result/m/multi_turn/BFCL_v4_multi_turn_base_result.json": ("bfcl", jsonl(BFCL_TURNS)),
    "bfcl/score/m/multi_turn/BFCL_v4_multi_turn_base_score.json": ("bfcl", jsonl(BFCL_SCORE)),
}
COUNTED = ("n_turns", "n_tool_calls", "n_tool_fail", "reward", "success", "task", "model")
ROWS: dict[str, tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    "chats/messages.jsonl": (
        "trajectories",
        COUNTED,
        [
            (2, 2, 1, 0.5, False, "scales-7", "m"),
            (2, 1, 0, None, None, None, None),
            (1, 0, 0, None, None, None, None),
        ],
    ),
    "chats/blocks.json": (
        "tool_calls",
        ("turn_idx", "name", "args_json", "ok", "ok_source", "error_text"),
        [(1, "weigh", '{"of": 9}', False, "flag", "out of order")],
    ),
    "chats/request.json": (
        "trajectories",
        ("n_turns", "n_tool_calls", "truncated", "stop_reason", "model", "tokens_in", "tokens_out", "cost_usd"),
        [(2, 1, True, "length", "m", 11, 2, 0.25)],
    ),
    "responses/log.jsonl": (
        "tool_calls",
        ("turn_idx", "name", "ok", "ok_source"),
        [(1, "weigh", True, "unknown"), (1, "web_search", False, "flag")],
    ),
    "responses/items.json": ("trajectories", ("n_turns", "n_tool_calls"), [(2, 2)]),
    "batches/output.jsonl": (
        "trajectories",
        ("sample_id", "n_turns", "stop_reason", "tokens_out"),
        [("q-1", 1, "stop", 1)],
    ),
    "sharegpt/tools.json": ("trajectories", COUNTED[:3], [(2, 2, 0), (2, 1, 0)]),
    "harbor/make-a-file.traces.json": (
        "trajectories",
        (*COUNTED, "error_type"),
        [
            (1, 0, 0, 1.0, True, "make-a-file", "m", None),
            (1, 0, 0, None, None, "make-a-file", "m", "AgentTimeoutError"),
            (1, 0, 0, None, None, "make-a-file", "m", None),
        ],
    ),
    "gym/example_rollouts.jsonl": (
        "trajectories",
        (*COUNTED, "group_id", "tokens_in"),
        [
            (2, 2, 1, 1.0, True, "scales/3", "m", "scales/3", None),
            (2, 2, 1, 0.25, False, "scales/3", "m", "scales/3", None),
        ],
    ),
    "bfcl/old/gorilla_openfunctions_v1_test_parallel_function_result.json": (
        "trajectories",
        ("n_turns", "n_tool_calls", "success", "task", "tokens_in", "tokens_out"),
        [
            (1, 2, None, "parallel_function/0", 12, 5),
            (1, 2, None, "parallel_function/1", 12, 5),
            (1, 0, None, "parallel_function/2", 12, 5),
        ],
    ),
    "bfcl/result/m/multi_turn/BFCL_v4_multi_turn_base_result.json": (
        "trajectories",
        (*COUNTED, "error_type", "truncated"),
        [
            (4, 3, 1, None, True, "multi_turn_base_4", "m", None, False),
            (0, 0, 0, None, False, "multi_turn_base_5", "m", "inference_error", None),
        ],
    ),
    "bfcl/score/m/multi_turn/BFCL_v4_multi_turn_base_score.json": (
        "evals",
        ("suite", "metric", "value", "n"),
        [("multi_turn_base", "accuracy", 0.5, 2)],
    ),
}
"""What a sample gives: a table, columns of it, and the values of all rows, as the bytes above have them."""

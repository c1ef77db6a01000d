"""Evaluations and agent logs: tasks, models, tokens, costs and counts against what was counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import samples_traces as made
from parser_samples import table, takers
from samples_calls import jsonl
from samples_traces import document
from trace_pieces import kept, read, told

from ptt.diagnostics.parsers import RunFile
from ptt.diagnostics.parsers.tau_bench import messages_of_ticks

# vf-eval 0.1: calls are texts of JSON, reward functions are columns, results have no ids

ASKED = json.dumps({"id": "c1", "type": "function", "function": {"name": "sum_up", "arguments": '{"of": [1, 2]}'}})
VF_EVAL: list[dict[str, Any]] = [
    {
        "id": 4,
        "prompt": [{"role": "user", "content": "1 + 2?"}],
        "completion": [
            {"role": "assistant", "content": "", "tool_calls": [ASKED]},
            {"role": "tool", "content": "3", "tool_calls": None},
            {"role": "assistant", "content": "three", "tool_calls": None},
        ],
        "task": "sums",
        "info": {"oai_tools": [{"type": "function", "function": {"name": "sum_up"}}]},
        "answer": "3",
        "reward": 1.25,
        "correct_answer_reward_func": 1.0,
        "format_reward_func": 0.25,
        "generation_ms": 12.5,
        "scoring_ms": 1.5,
        "total_ms": 14.0,
    },
    {"id": 4, "prompt": "1 + 2?", "completion": "4", "task": "sums", "answer": "3", "reward": 0.0, "judge_reward": 0.0},
]


def test_rewards_of_vf_eval_are_columns_and_its_calls_texts(tmp_path: Path) -> None:
    found = read(tmp_path, "results.jsonl", jsonl(VF_EVAL))
    columns = ("task", "group_id", "env", "reward", "success", "n_turns", "n_tool_calls", "tools_offered")
    assert told(found, *columns) == [
        ("4", "4", "sums", 1.25, True, 2, 1, ["sum_up"]),
        ("4", "4", "sums", 0.0, None, 1, 0, None),  # a judge's score is no label
    ]
    scores = table(found, "rewards").select("name", "score").rows()
    assert scores == [("correct_answer_reward_func", 1.0), ("format_reward_func", 0.25), ("judge_reward", 0.0)]
    (call,) = table(found, "tool_calls").to_dicts()
    assert (call["name"], call["args_json"], call["result_len"], call["ok_source"]) == (
        "sum_up", '{"of": [1, 2]}', 1, "unknown",
    )  # fmt: skip
    prompt, completion, tools = kept(found)[0]
    assert prompt == [{"role": "user", "content": "1 + 2?"}]
    assert completion[0]["tool_calls"][0]["function"] == {"name": "sum_up", "arguments": {"of": [1, 2]}}
    assert tools == VF_EVAL[0]["info"]["oai_tools"]


@pytest.mark.parametrize("missing", ["task", "completion", "reward"])
def test_rows_that_lack_what_vf_eval_writes_are_not_its(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(jsonl([{key: value for key, value in VF_EVAL[0].items() if key != missing}]))
    assert "verifiers_results" not in takers(RunFile(path=path, rel=path.name, size=path.stat().st_size))


# Inspect


def inspect_log(**sample: Any) -> bytes:
    return document(made.INSPECT_START | made.INSPECT_RESULTS | {"samples": [made.INSPECT_SAMPLE | sample]})


def test_failed_results_without_their_requests_still_count(tmp_path: Path) -> None:
    error = {"type": "timeout", "message": "too slow"}
    results = [
        {"role": "tool", "tool_call_id": f"c{at}", "function": "web", "content": "", "error": error if at else None}
        for at in range(4)
    ]
    found = read(tmp_path, "log.json", inspect_log(messages=results, scores=None, output=None, events=[]))
    assert told(found, "n_turns", "n_tool_calls", "n_tool_fail", "reward", "success") == [(0, 0, 3, None, None)]


def test_inspect_tells_task_model_tokens_tools_and_the_first_scorer(tmp_path: Path) -> None:
    answer = {"role": "assistant", "id": "m1", "content": "three"}
    thinking = [{"type": "reasoning", "reasoning": "add them"}, {"type": "text", "text": "three"}]
    event = {
        "event": "model",
        "timestamp": "2026-01-02T03:04:05+00:00",
        "completed": "2026-01-02T03:04:07+00:00",
        "tools": [{"name": "add", "description": "adds", "parameters": {}}],
        "output": {"choices": [{"message": answer}], "usage": {"output_tokens": 9}},
    }
    found = read(
        tmp_path,
        "log.json",
        inspect_log(
            messages=[{"role": "user", "content": "attachment://ab"}, answer | {"content": thinking}],
            attachments={"ab": "1 + 2?"},
            events=[event],
            scores={"includes": {"value": "I"}, "judge": {"value": {"tone": 0.5, "length": True}}},
            model_usage={"m": {"input_tokens": 40, "output_tokens": 9}, "grader": {"input_tokens": 999}},
            limit={"type": "token", "limit": 50},
            epoch=2,
        ),
    )
    columns = ("sample_id", "task", "env", "model", "tokens_in", "tokens_out", "reward", "success", "truncated")
    assert told(found, *columns) == [("one/2", "one", "sums", "m", 40, 9, 0.0, False, True)]
    assert told(found, "stop_reason", "tools_offered") == [("token", ["add"])]
    scores = set(table(found, "rewards").select("name", "score").rows())
    assert scores == {("includes", 0.0), ("judge/tone", 0.5), ("judge/length", 1.0)}
    turns = table(found, "turns").select("role", "text_len", "n_tokens", "t_start", "t_end").rows()
    assert turns == [("user", 6, None, None, None), ("assistant", 5, 9, 1767323045.0, 1767323047.0)]
    ((prompt, completion, _),) = kept(found)
    assert prompt[0]["content"] == "1 + 2?"
    assert completion == [{"role": "assistant", "content": "three", "reasoning_content": "add them"}]


@pytest.mark.parametrize(
    ("value", "metric", "success"),
    [("C", "mean", True), ("P", "mean", None), (1.0, "accuracy", True), (1.0, "mean", None), (False, "mean", False)],
)
def test_only_a_binary_scorer_labels_an_episode(tmp_path: Path, value: Any, metric: str, success: bool | None) -> None:
    results = {"scores": [{"name": "s", "scorer": "s", "metrics": {metric: {"value": 1}}}]}
    start = made.INSPECT_START | {"results": results}
    log = document(start | {"samples": [made.INSPECT_SAMPLE | {"scores": {"s": {"value": value}}}]})
    assert told(read(tmp_path, "log.json", log), "success") == [(success,)]


# tau-bench, tau2


def test_tau_names_tasks_costs_and_the_calls_of_the_reference(tmp_path: Path) -> None:
    actions = [{"name": "cancel", "kwargs": {}}, {"name": "respond", "kwargs": {}}, {"name": "find", "kwargs": {}}]
    run = made.TAU[0] | {"info": {"task": {"user_id": "u", "actions": actions}}}
    found = read(tmp_path, "runs.json", document([run]))
    assert told(found, "task", "group_id", "tools_required", "n_turns") == [("2", "2", ["cancel", "find"], 3)]

    usage = {"usage": {"prompt_tokens": 70, "completion_tokens": 3}}
    simulation = made.SIMULATION | {
        "agent_cost": 0.25,
        "messages": [made.SIMULATION["messages"][0] | usage, *made.SIMULATION["messages"][1:]],
    }
    user = {"name": "look", "requestor": "user"}
    tasks = [{"id": "7", "evaluation_criteria": {"actions": [{"name": "find", "requestor": "assistant"}, user]}}]
    found = read(tmp_path, "results.json", document(made.TAU2 | {"tasks": tasks, "simulations": [simulation]}))
    columns = ("task", "env", "model", "tools_required", "tokens_in", "tokens_out", "cost_usd", "n_turns")
    assert told(found, *columns) == [("7", "telecom", "some-model", ["find"], 70, 3, 0.25, 2)]
    assert table(found, "turns")["role"].to_list() == ["assistant", "assistant", "tool", "tool"]  # as the agent saw it


@pytest.mark.parametrize(
    ("rel", "data", "turns"),
    [
        ("task_2.json", document(made.TAU[0]), [3]),
        ("runs.jsonl", jsonl(made.TAU), [3, 1]),
        ("simulations.jsonl", jsonl([made.SIMULATION] * 2), [2, 2]),
    ],
)
def test_runs_may_be_a_file_or_a_line_each(tmp_path: Path, rel: str, data: bytes, turns: list[int]) -> None:
    assert [n_turns for (n_turns,) in told(read(tmp_path, rel, data), "n_turns")] == turns


def tick(**said: Any) -> dict[str, Any]:
    chunks = {
        f"{side}_chunk": {"role": side, "content": text or None, "contains_speech": bool(text)}
        for side, text in said.items()
        if isinstance(text, str)
    }
    return {"timestamp": "2026-01-02T03:04:05"} | chunks | {k: v for k, v in said.items() if isinstance(v, list)}


VOICE: list[dict[str, Any]] = [
    tick(user="I want ", agent=""),
    tick(user="to cancel", agent="Sure"),  # both speak
    tick(user="", agent=", which?"),
    *[tick(user="", agent="")] * 9,
    tick(user="seven", agent=""),
    tick(
        agent_tool_calls=[{"id": "k1", "name": "cancel", "arguments": {"order": 7}}],
        agent_tool_results=[{"role": "tool", "id": "k1", "content": "no such order", "error": True}],
    ),
    tick(agent="There is none."),
    *[tick(agent="")] * 3,
    tick(agent=" Anything else?"),
]


def test_ticks_of_voice_become_turns(tmp_path: Path) -> None:
    messages = messages_of_ticks(VOICE)
    assert [(message["role"], message.get("content")) for message in messages] == [
        ("user", "I want to cancel"),
        ("assistant", "Sure, which?"),
        ("user", "seven"),
        ("assistant", None),
        ("tool", "no such order"),
        ("assistant", "There is none. Anything else?"),
    ]
    voice = {key: value for key, value in made.SIMULATION.items() if key != "messages"} | {"ticks": VOICE}
    found = read(tmp_path, "simulations/s.json", document(voice | {"mode": "full_duplex"}))
    assert told(found, "n_turns", "n_tool_calls", "n_tool_fail") == [(3, 1, 1)]
    assert messages_of_ticks([None, {"agent_chunk": 3}, {"agent_tool_calls": "x"}]) == []


# Microsoft's toolkit


def step(number: int, kind: str, **told: Any) -> dict[str, Any]:
    return {"episode_id": "a", "step": number, "type": kind, **told}


def test_calls_that_could_not_be_parsed_are_malformed_calls(tmp_path: Path) -> None:
    rows = [
        step(0, "user_message", content="find it"),
        step(1, "assistant_message", content="I look", tokens=5),
        step(2, "tool_call", tool="search", args={"q": 1}, tokens=3),
        step(3, "tool_call", tool="fetch", args={"q": 2}),
        step(4, "tool_result", tool="search", error="Timeout: 30 s"),
        step(5, "tool_result", tool="fetch", result="page"),
        step(6, "tool_parse_error", content="{{", error="no JSON"),
        step(7, "assistant_message", content="done"),
        step(8, "episode_end", success=False, reward=0.5, total_cost=0.125, metadata={"task": "t-1", "model": "m"}),
    ]
    found = read(tmp_path, "run.jsonl", jsonl(rows))
    columns = ("task", "model", "n_turns", "n_tool_calls", "n_tool_fail", "cost_usd", "tokens_out", "success")
    assert told(found, *columns) == [("t-1", "m", 3, 2, 1, 0.125, 8, False)]
    calls = table(found, "tool_calls").select("turn_idx", "name", "ok", "error_type", "error_text").rows()
    assert calls == [
        (1, "search", False, None, "Timeout: 30 s"),
        (1, "fetch", True, None, None),
        (4, None, None, "tool_parse_error", "no JSON"),
    ]
    assert [message["role"] for message in kept(found)[0][1]] == [
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]

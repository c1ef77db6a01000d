"""Traces in layouts of their own: the same counts in whatever carrier, and no trace where nobody acts."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from parser_samples import checked, losses, parser_named, run_file, table, takers
from samples_calls import jsonl, parquet
from samples_chats import TOOL
from slow_cases import first_fast

from ptt.diagnostics.parsers.io.unrecognised import why_not

OWN = {"agent_records", "plain_transcripts"}
SAID: list[dict[str, Any]] = [
    {"speaker": "customer", "utterance": "weigh both"},
    {"speaker": "agent", "utterance": "", "actions": [{"tool": "weigh", "args": {"of": 1}}]},
    {"speaker": "environment", "utterance": "1 kg"},
    {"speaker": "agent", "utterance": "one is 1 kg"},
]


def test_a_prompt_kept_beside_its_answer_as_json_text_is_its_prompt(tmp_path: Path) -> None:
    asked, answered = [{"role": "user", "content": "weigh"}], [
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "weigh", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "1 kg"},
        {"role": "assistant", "content": "1 kg"},
    ]  # fmt: skip
    path = tmp_path / "rows.jsonl"
    path.write_bytes(jsonl([{"prompt": json.dumps(asked), "completion": json.dumps(answered), "reward": 1.0}] * 3))
    file = replace(run_file(path), keep_messages=True)
    chats = table(list(parser_named(takers(file)[0]).read(file)), "conversations")
    assert [json.loads(text) for text in chats["prompt"].to_list()] == [asked] * 3


def counts(path: Path, data: bytes) -> list[tuple[Any, ...]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    first = takers(run_file(path))[0]
    assert first in OWN
    pieces = list(parser_named(first).read(run_file(path)))
    assert checked(pieces) > 0
    assert losses(pieces)[:2] == (0, 0)
    return table(pieces, "trajectories").select("n_turns", "n_tool_calls", "n_tool_fail").rows()


CARRIERS: dict[str, bytes] = {
    "one.json": json.dumps({"run": {"log": {"rounds": SAID}}}, indent=1).encode(),
    "list.json": json.dumps(SAID).encode(),
    "record.jsonl": jsonl([{"dialog": SAID}]),
    "spelt.jsonl": jsonl([{"body": json.dumps({"dialog": json.dumps(SAID)})}]),
    "keyed.json": json.dumps({"task_1": {"dialog": SAID}}).encode(),
    "events.jsonl": jsonl([{"episode_id": "e", **entry} for entry in SAID]),
    "joined.jsonl": "".join(json.dumps(entry) for entry in SAID).encode() + b"\n",
    "among.log": b"starting\n" + jsonl(SAID) + b"[INFO] done\n",
    "pretty.json": "\n".join(json.dumps(entry, indent=2) for entry in SAID).encode(),
    "wrapped.jsonl": jsonl([{"kind": "log", "payload": {"data": entry}} for entry in SAID]),
    "column.csv": f'id,dialog\n1,"{json.dumps(SAID).replace(chr(34), chr(34) * 2)}"\n'.encode(),
    "table.parquet": parquet([{"id": 1, "steps": json.dumps(SAID)}]),
}


@pytest.mark.parametrize("name", CARRIERS)
def test_a_conversation_counts_the_same_in_whatever_holds_it(tmp_path: Path, name: str) -> None:
    assert counts(tmp_path / name, CARRIERS[name]) == [(2, 1, 0)]


def test_calls_listed_beside_a_conversation_are_its_own(tmp_path: Path) -> None:
    record = {
        "log": {
            "messages": [
                {"role": "user", "content": "weigh"},
                {"role": "assistant", "content": ""},
                {"role": "tool", "tool_call_id": "a", "content": {"error": "stuck"}},
                {"role": "assistant", "content": "stuck"},
            ]
        },
        "tool_calls": [{"tool_name": "weigh", "arguments": {"of": 1}, "success": False, "error": "stuck"}],
        "golden_action": [{"tool": "weigh", "args": {}}, {"tool": "tare", "args": {}}],
        "success": False,
    }
    assert counts(tmp_path / "r.json", json.dumps({"results": [record, record]}).encode()) == [(2, 1, 1)] * 2


def test_a_request_without_an_answer_in_it_begins_another_conversation(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"kind": "model_request", "prompt": "System: weigh\nHuman: 1"},
        {"kind": "model_response", "text": "", "calls": [{"tool": "weigh", "args": {"of": 1}}]},
        {"kind": "tool_started", "tool": "weigh", "input": "{'of': 1}"},
        {"kind": "tool_finished", "output": "content='1 kg' name='weigh' tool_call_id='c' status='error'"},
        {"kind": "model_request", "prompt": "System: weigh\nHuman: 1\nAI: []\nTool: 1 kg"},
        {"kind": "model_response", "text": "1 kg", "calls": []},
        {"kind": "model_request", "prompt": "System: weigh\nHuman: 2"},
        {"kind": "model_response", "text": "no", "calls": []},
    ]
    assert counts(tmp_path / "cb.jsonl", jsonl(rows)) == [(2, 1, 1), (1, 0, 0)]


def test_records_whose_list_of_calls_is_empty_are_episodes_of_their_own(tmp_path: Path) -> None:
    records = [{"task_id": at, "question": "?", "tool_calls": [], "passed": True} for at in range(2)]
    (tmp_path / "two.jsonl").write_bytes(jsonl(records))
    pieces = list(parser_named("agent_records").read(run_file(tmp_path / "two.jsonl")))
    names = table(pieces, "trajectories")["trajectory_id"].to_list()
    assert len({name.partition("-")[0] for name in names}) == 2
    assert counts(tmp_path / "r.json", json.dumps({"question": "?", "tool_calls": [], "passed": True}).encode()) == [
        (None, 0, 0)
    ]


def test_a_labelled_answer_without_actions_is_an_episode_and_a_channel_is_no_part_of_a_name(tmp_path: Path) -> None:
    def record(number: int, *names: str) -> dict[str, Any]:
        actions = [{"name": name, "arguments": {"id": number}, "result": "{}", "success": True} for name in names]
        return {"task_id": number, "success": True, "model_response": {"actions": actions, "reasoning": "I look."}}

    records = [record(0, "get_order", "get_user<|channel|>commentary"), record(1), record(2, "get_user")]
    (tmp_path / "r.json").write_text(json.dumps(records))
    pieces = list(parser_named("agent_records").read(run_file(tmp_path / "r.json")))
    assert table(pieces, "trajectories")["success"].to_list() == [True] * 3
    assert table(pieces, "tool_calls")["name"].to_list() == ["get_order", "get_user", "get_user"]


def test_an_action_that_names_a_tool_is_the_call_that_its_detail_holds(tmp_path: Path) -> None:
    calls = [
        {"t": at, "actor": "Analyst", "action": f"TOOL_CALL::{name}", "detail": {"args": {"n": at}, "result": {"x": 1}}}
        for at, name in enumerate(["mean", "trend"], 1)
    ]
    events = [{"t": 0, "actor": "Lead", "action": "START", "detail": "go"}, *calls]
    (tmp_path / "trace.json").write_text(json.dumps(events))
    pieces = list(parser_named("agent_records").read(run_file(tmp_path / "trace.json")))
    found = table(pieces, "tool_calls")
    assert found.select("name", "args_json", "result_len").rows() == [("mean", '{"n": 1}', 8), ("trend", '{"n": 2}', 8)]
    assert table(pieces, "trajectories").height == 1


def tagged(action: str, reward: str) -> bytes:
    return (
        f"[START] task=easy env=e model=m\n[STEP] step=1 action={action} reward={reward} done=false error=null\n"
        "[STEP] step=2 action=stop() reward=0.50 done=true error=bad reward=3\n[END] success=true steps=2\n"
    ).encode()


@pytest.mark.parametrize(
    ("action", "reward", "total"),
    [("weigh(1)", "1e-05", 0.50001), ("weigh('a reward=5 done=no')", "0.20", 0.7), ("weigh('c d')", "nan", math.nan)],
)
def test_a_printed_steps_reward_is_the_last_on_its_line(tmp_path: Path, action: str, reward: str, total: float) -> None:
    assert counts(tmp_path / "env.log", tagged(action, reward)) == [(2, 2, 1)]
    pieces = list(parser_named("agent_records").read(run_file(tmp_path / "env.log")))
    assert table(pieces, "trajectories")["reward"].to_list() == pytest.approx([total], nan_ok=True)
    assert table(pieces, "tool_calls")["name"].to_list() == ["weigh", "stop"]


def test_aiders_history_is_read(tmp_path: Path) -> None:
    text = "\n# aider chat started at 2025-05-04\n\n> Aider v0\n\n#### weigh it  \n\nIt is 1 kg.\n\n> Tokens: 1 sent\n"
    assert counts(tmp_path / ".aider.chat.history.md", text.encode()) == [(1, 0, 0)]


REFUSED: dict[str, bytes] = {
    "metrics.jsonl": jsonl([{"step": at, "loss": 0.1, "agent": 3, "action": 2, "reward": 1.0} for at in range(9)]),
    "rl.jsonl": jsonl([{"step": at, "action": 2, "observation": [0.1, 0.2], "reward": 1.0} for at in range(9)]),
    "config.json": json.dumps({"tools": [TOOL["function"]], "agent": {"name": "m", "args": {"n": 1}}}).encode(),
    "pipeline.json": json.dumps([{"name": "adam", "params": {"lr": 1}}, {"name": "warm", "params": {}}]).encode(),
    "texts.jsonl": jsonl([{"prompt": "weigh", "response": "1 kg", "label": 1}] * 4),
    "questions.jsonl": jsonl([{"question": "weigh", "answer": "1 kg", "source": "book"}] * 4),
    "pairs.jsonl": jsonl([{"chosen": SAID, "rejected": SAID}] * 3),
    "service.jsonl": jsonl([{"level": "info", "source": "agent", "message": "started", "type": "system"}] * 4),
    "campus.jsonl": jsonl([{"level": "info", "agent": "rag", "message": "started", "query": "weigh", "node": "n"}] * 4),
    "graded.jsonl": jsonl([{"question": "1 + 1?", "answer": "2", "correct": True, "failed_tools": []}] * 4),
    "needs.jsonl": jsonl([{"question": "1 + 1?", "answer": "2", "correct": True, "required_tools": []}] * 4),
    "shop.json": json.dumps({"rows": [{"interaction": "clicked it", "content": "Page", "reward": 0.5}] * 20}).encode(),
    "state.json": json.dumps(
        [
            {
                "prompt": "tell her",
                "initial_state": {
                    "threads": [
                        {
                            "messages": [
                                {"sender": "Nora", "text": "hi"},
                                {"sender": "agent", "text": "yes"},
                                {"sender": "user", "text": "so"},
                            ]
                        }
                    ]
                },
            }
        ]
    ).encode(),
    "calls.jsonl": jsonl([{"event": "llm_call", "model": "m", "messages": 2, "prompt_tokens": 9}] * 4),
    "tokenizer_config.json": json.dumps(
        {"chat_template": "{% if x %}<tool_call>{{ x }}<tool_response>{% endif %}" * 9}
    ).encode(),
    "path.json": json.dumps(
        {"history": [{"Alice": [8, 7], "Bob": [7, 8]}, {"Alice": "exited", "Bob": [1, 1]}]}
    ).encode(),
    "README.md": b"# Roles\n\n## User\n\nasks\n\n## Assistant\n\nanswers\n\n## Install\n\npip install it\n",
    "notes.txt": b"Question: what\nAnswer: that\nNote: the rest\nAgent: none\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_shows_no_agent_is_no_trace(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(REFUSED[name])
    assert OWN.isdisjoint(takers(run_file(tmp_path / name)))


LAYOUTS: dict[str, tuple[bytes, list[tuple[Any, ...]]]] = {
    "mapping.json": (
        json.dumps(
            {
                "mapping": {
                    f"n{at}": {"message": {"author": {"role": role}, "content": {"parts": ["weigh"]}}, "parent": None}
                    for at, role in enumerate(("user", "assistant", "user", "assistant"))
                }
            }
        ).encode(),
        [(2, 0, 0)],
    ),
    "traj.jsonl": (
        jsonl([{"step_num": at, "action": "click(1, 2)", "reward": 0, "done": at == 2} for at in range(3)]),
        [(3, 3, 0)],
    ),
    "asked.json": (
        json.dumps(
            {
                "interactions": [
                    {
                        "input": "weigh",
                        "agent_response": "1 kg",
                        "tools_used": [{"tool": "weigh", "input": "1", "output": "1 kg"}],
                    },
                    {"input": "more", "agent_response": "no", "tools_used": []},
                ]
            }
        ).encode(),
        [(2, 1, 0)],
    ),
    "whole.jsonl": (
        jsonl(
            [
                {"event_type": "ToolExecutionEvent", "tool_name": "weigh", "tool_args": {"of": at}, "success": at > 0,
                 "tool_call_id": "weigh_1", "result_preview": "1 kg"}
                for at in range(3)
            ]
        ),
        [(None, 3, 1)],
    ),
    "prefixed.log": (
        b"".join(b"2026-01-01 00:00:01 INFO agent - " + jsonl([entry]) for entry in SAID),
        [(2, 1, 0)],
    ),
    "crew.txt": (
        b"\x1b[1m# Agent: Weigher\x1b[0m\n## Task: weigh\n\n# Agent: Weigher\n## Thought: I do\n## Using tool: weigh\n"
        b'## Tool Input: \n{"of": 1}\n## Tool Output: \n1 kg\n\n# Agent: Weigher\n## Final Answer: \n1 kg\n',
        [(2, 1, 0)],
    ),
    "chain.log": (
        b"> Entering new AgentExecutor chain...\nThought: I do\nAction: weigh\nAction Input: 1\nObservation: 1 kg\n"
        b"Thought: known\nFinal Answer: 1 kg\n\n> Finished chain.\n" * 2,
        [(2, 1, 0), (2, 1, 0)],
    ),
    "called.jsonl": (
        jsonl([
            {"task": {"id": "t1"}, "execution_result": {"success": True, "tools_called": [
                {"tool_name": "weigh", "arguments": {"of": 1}, "result": "1 kg", "error": None},
                {"tool_name": "weigh", "arguments": {"of": 2}, "result": None, "error": "no scales"}]}},
            {"task": {"id": "t2"}, "execution_result": {"success": False, "tools_called": []}},
        ]),
        [(None, 2, 1), (None, 0, 0)],
    ),
    "scenes.json": (
        json.dumps(
            {scene: {"answer": "1 kg", "call_log": [{"name": "weigh", "args": {"of": scene}}]} for scene in "ab"}
            | {"c": {"answer": "none", "call_log": []}}
        ).encode(),
        [(None, 1, 0), (None, 1, 0), (None, 0, 0)],
    ),
    "scored.json": (
        json.dumps({"results": [
            {"id": at, "score": {"total": 1.0}, "actual_calls": [{"function": "weigh", "arguments": {}}] * (at > 0)}
            for at in range(3)
        ]}).encode(),
        [(None, 0, 0), (None, 1, 0), (None, 1, 0)],
    ),
    "kinds.json": (
        json.dumps([{"trace_id": "t1", "spans": [
            {"span_type": "reasoning", "span_id": "a", "reasoning_text": "I weigh"},
            {"span_type": "tool_call", "span_id": "b", "tool_name": "weigh", "tool_parameters": {"of": 1},
             "tool_result": "1 kg", "tool_error": None},
            {"span_type": "interpretation", "span_id": "d", "next_action": "final_answer", "raw_llm_output": "I know"},
            {"span_type": "final_answer", "span_id": "c", "answer_text": "1 kg"}]}]).encode(),
        [(2, 1, 0)],
    ),
    "eval.test.json": (
        json.dumps({"eval_cases": [{"eval_id": "e", "conversation": [
            {"user_content": {"parts": [{"text": "weigh"}], "role": "user"},
             "final_response": {"parts": [{"text": "1 kg"}], "role": "model"},
             "intermediate_data": {"tool_uses": [{"name": "weigh", "args": {"of": at}}]}} for at in range(2)]}]}
        ).encode(),
        [(2, 2, 0)],
    ),
    "numbered.jsonl": (
        jsonl([{"trace": [{"step": at // 2, "tool": "weigh", "args": {"of": at}, "result": "1 kg"} for at in range(4)],
                "metrics": {"sold": 3}}]),
        [(2, 4, 0)],
    ),
    "named.json": (
        json.dumps({"history": [
            {"role": "human", "content": "weigh"}, {"role": "Planner (thought)", "content": "I ask the weigher"},
            {"role": "Weigher", "content": "```python\nweigh(1)\n```"},
            {"role": "Computer_terminal", "content": "exitcode: 0\n1 kg"}, {"role": "Planner", "content": "1 kg"},
        ]}).encode(),
        [(3, 1, 0)],
    ),
    "events.jsonl": (
        jsonl([
            {"role": "user", "kind": "define_outcome", "content": "weigh"},
            {"role": "system", "kind": "model_request_start"},
            {"role": "agent", "kind": "message", "content": "I weigh"},
            {"role": "agent", "kind": "tool_use", "tool": "weigh", "content": "{}",
             "raw": {"type": "agent.tool_use", "id": "a", "name": "weigh", "input": {"of": 1}}},
            {"role": "agent", "kind": "tool_result", "content": "no scales",
             "raw": {"type": "agent.tool_result", "tool_use_id": "a", "is_error": True}},
            {"role": "agent", "kind": "message", "content": "I cannot"},
        ]),
        [(2, 1, 1)],
    ),
    "answered.jsonl": (
        jsonl([
            {"run_id": "r", "kind": "user_input", "text": "weigh"},
            {"run_id": "r", "kind": "model_call",
             "output": {"content": "", "tool_calls": [{"name": "weigh", "args": {"of": 1}}]}},
            {"run_id": "r", "kind": "tool_exec", "tool": "weigh", "args": {"of": 1}, "ok": False, "error": "no scales"},
            {"run_id": "r", "kind": "model_call", "output": {"content": "I cannot"}},
        ]),
        [(2, 1, 1)],
    ),
    "rated.json": (
        json.dumps([{"episode": 1, "history": [
            {"state": "hall", "action": "go north", "reward": -1, "next_state": "room"},
            {"state": "room", "action": "take lamp", "reward": 10, "next_state": "room"}]}]).encode(),
        [(2, 2, 0)],
    ),
    "valid.json": (
        json.dumps({str(at): {"task_id": at, "query": "weigh", "turn_history": {
            "actions": ["execute[ls", "submit"], "observations": ["no such file", ""], "rewards": [0.0, 1.0],
            "valid_action": [False, True]}} for at in range(2)}).encode(),
        [(2, 2, 1), (2, 2, 1)],
    ),
    "intermediate.json": (
        json.dumps([{"input": "weigh", "output": "1 kg", "intermediate_steps": [
            [{"tool": "weigh", "tool_input": "1", "log": "Action: weigh"}, "1 kg"],
            [{"tool": "weigh", "tool_input": "2", "log": "Action: weigh"}, "2 kg"]]}]).encode(),
        [(None, 2, 0)],
    ),
    "fenced.json": (
        json.dumps([{"task": "t", "log": [
            {"turn": at, "response": "I look\n```bash\nls\n```", "observation": "a b"} for at in range(2)]}]).encode(),
        [(2, 2, 0)],
    ),
    "lone.jsonl": (
        jsonl([{"task_id": "t", "score": 0, "tool_calls": [{"func_name": "weigh", "args": {}, "result": "1 kg"}] * 2,
                "history": [{"role_name": "Assistant", "content": "1 kg"}]}]),
        [(1, 2, 0)],
    ),
    "nested.json": (
        json.dumps({str(at): {"query": "weigh", "answer": {"method": "CoT", "answer_details": [
            {"role": "system", "message": "", "next": [{"role": "user", "message": "weigh", "next": [
                {"role": "tool", "message": "{'name': 'weigh', 'arguments': '{}', 'response': '{\"error\": \"\", \"re",
                 "next": [{"role": "assistant", "message": "1 kg", "next": []}]}]}]}]}} for at in range(2)}).encode(),
        [(2, 1, 0), (2, 1, 0)],
    ),
    "dumped.json": (
        json.dumps([
            {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": said}
            for kind, said in (
                ("HumanMessage", {"content": "weigh"}),
                ("AIMessage", {"content": "", "tool_calls": [{"name": "weigh", "args": {}, "id": "a"}]}),
                ("ToolMessage", {"content": "1 kg", "tool_call_id": "a"}), ("AIMessage", {"content": "1 kg"}))
        ]).encode(),
        [(2, 1, 0)],
    ),
    "raised.json": (
        json.dumps({"task": "t", "steps": [
            {"step_number": 1, "model_output": "I weigh", "observations": None, "error": {"message": "no scales"},
             "tool_calls": [{"id": "a", "function": {"name": "weigh", "arguments": "1"}}]},
            {"step_number": 2, "model_output": "I end", "observations": "1 kg", "error": None,
             "tool_calls": [{"id": "b", "function": {"name": "weigh", "arguments": "1"}}]}]}).encode(),
        [(2, 2, 1)],
    ),
    "agents.jsonl": (
        jsonl([{"step": at, "agent": "weigher", "prompt": "weigh", "response": f"{at} kg", "tool_calls": []}
               for at in range(2)]),
        [(2, 0, 0)],
    ),
    "roled.json": (
        json.dumps([{"resolved": True, "trajectory": [
            {"role": "assistant", "thought": "I look", "action": "ls -l", "observation": "a"},
            {"role": "assistant", "thought": "I end", "action": "submit", "observation": ""}]}]).encode(),
        [(2, 2, 0)],
    ),
    "unused.json": (
        json.dumps([{"is_correct": True, "turns": [
            {"turn": 1, "model_response": "I weigh", "function_calls": [{"name": "weigh", "arguments": {}}],
             "execution_results": ["1 kg"]},
            {"turn": 2, "model_response": "1 kg", "function_calls": [], "execution_results": []}]}] * 2).encode(),
        [(2, 1, 0), (2, 1, 0)],
    ),
    "runs.jsonl": (
        jsonl([
            entry
            for run in "ab"
            for entry in (
                {"type": "tool_call_started", "run": run, "call_id": "1", "tool": "weigh", "input": {"of": 1}},
                {"type": "tool_call_failed", "run": run, "call_id": "1", "tool": "weigh", "error": "no scales"},
                {"type": "agent_end", "run": run, "output": "I cannot", "success": False})
        ]),
        [(2, 1, 1), (2, 1, 1)],
    ),
    "env.log": (
        b"[START] task=easy env=scales model=m\n[STEP] step=1 action=weigh(of=1) reward=0.50 done=false error=null\n"
        b"[STEP] step=2 action=tell(kg=1) reward=0.90 done=true error=null\n[END] success=true steps=2 score=0.9\n"
        b"[START] task=easy env=scales model=m\n[STEP] step=1 action=tell(kg=2) reward=0.10 done=true error=null\n"
        b"[END] success=false steps=1 score=0.1\n",
        [(2, 2, 0), (1, 1, 0)],
    ),
    "rounds.jsonl": (
        jsonl([
            {"conversation_id": chat, "user_input": f"weigh {at}", "agent_response": f"{at} kg",
             "tools_used": [{"tool": "weigh", "args": {"of": at}, "result": f"{at} kg"}]}
            for chat in "abc" for at in range(3)
        ]),
        [(3, 3, 0)] * 3,
    ),
    "told.jsonl": (
        jsonl([{"user_input": "weigh", "agent_response": "1 kg", "log": SAID}] * 2),
        [(2, 1, 0)] * 2,
    ),
    "updates.json": (
        json.dumps([{"id": at, "reward": 1.0, "tool_calls": [{"tool": "weigh", "args": {"of": n}, "step": 100}
                    for n in range(3)]} for at in range(2)]).encode(),
        [(None, 3, 0)] * 2,
    ),
    "gold.txt": (b"### Prompt\nHow heavy is it?\n### Target\n1 kg\n### Response\n2 kg\n" * 3, [(3, 0, 0)]),
    "audit.txt": (
        "CONVERSATION\n\n[0] AUDITOR → TARGET:\n  Weigh it.\n\n[1] TARGET (with tool calls):\n"
        '  → Tool: weigh({"of":1})\n\n[2] TOOL RESULT (id=a):\n  1 kg\n\n[3] TARGET:\n  1 kg\n\n'
        "[4] AUDITOR → TARGET:\n  Again.\n".encode(),
        [(2, 1, 0)],
    ),
    "tagged.jsonl": (
        jsonl(
            [
                {
                    "question": "how heavy",
                    "correct": True,
                    "output": "<think>I look</think><search>1</search><information>1 kg</information>it is 1 kg",
                }
            ]
            * 2
        ),
        [(2, 1, 0), (2, 1, 0)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_other_layouts_are_read_by_their_parts(tmp_path: Path, name: str) -> None:
    data, rows = LAYOUTS[name]
    assert counts(tmp_path / name, data) == rows


NEAREST: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a.jsonl": (
        [{"turns": [{"who": "alpha", "text": "weigh"}, {"who": "beta", "text": "1 kg"}]}],
        "the list `turns` has texts in `text`, but `who` names no speaker that ptt knows: user, assistant, tool or "
        "system",
    ),
    "trace.jsonl": (
        [{"text": "weigh"}, {"text": "1 kg"}],
        "each record has texts in `text`, but nothing that says who speaks (role, from, speaker)",
    ),
    "b.jsonl": (
        [{"rounds": [{"speaker": "customer", "said": 1, "text": "weigh"}, {"speaker": "customer", "text": "both"}]}],
        "the list `rounds` has speakers in `speaker`, but none of the first 2 entries is the agent's (assistant)",
    ),
    "agent_log.jsonl": (
        [{"actor": "Coordinator", "action": "START", "detail": at} for at in range(3)],
        "each record has `actor`, but no text under content, text, message or value, and no tool with its arguments",
    ),
    "c.jsonl": (
        [{"tool": "weigh", "ms": 2}, {"tool": "tare", "ms": 3}],
        "each record names tools in `tool`, but neither arguments nor results",
    ),
}


@pytest.mark.parametrize("name", NEAREST)
def test_an_unread_file_is_told_which_part_it_lacks(tmp_path: Path, name: str) -> None:
    rows, lack = NEAREST[name]
    (tmp_path / name).write_bytes(jsonl(rows))
    file = run_file(tmp_path / name)
    assert takers(file) == []
    assert why_not(file) == f"Nearest is an agent trace: {lack}; docs/traces.md lists the names of all parts."


def test_other_unread_files_are_told_nothing_of_traces(tmp_path: Path) -> None:
    for name, data in REFUSED.items():
        (tmp_path / name).write_bytes(data)
        assert "trace" not in why_not(run_file(tmp_path / name))


HOSTILE: dict[str, bytes] = {
    "open.jsonl": jsonl(SAID) + b'{"a": "' * 40_000,
    "openings.log": jsonl(SAID) + b"{\n" * 200_000,
    "marks.txt": b"User: x\nAgent: y\n" * 20_000 + b"Tool call: " * 20_000,
    "tags.log": tagged("weigh(1)", "0.1")
    + b"[STEP] step=3 "
    + b"a" * 99_000
    + b"\n[STEP] step=4 "
    + b"action=" * 14_000,
    "called.json": json.dumps({"steps": [{"thought": "t", "action": "a(" * 50_000, "observation": "o"}]}).encode(),
    "episodes.log": b"Question: a\nThought: b\nAction: c[d]\nObservation: e\nThought: b\nObservation: e\n" * 11_000,
    "uses.md": (b"_**User**_\n\nfix\n\n_**Agent**_\n\n%b\n\n" * 2)
    % (b"", b'<tool-use data-tool-name="Read">\nx\n' * 15_000),
    "deep.jsonl": jsonl([SAID[0], SAID[1]]) + b'{"data": ' * 300 + b"1" + b"}" * 300 + b"\n",
}


@pytest.mark.parametrize("name", first_fast(HOSTILE, 2))
def test_hostile_files_take_no_longer_than_their_size(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(HOSTILE[name])
    began = time.process_time()
    for taker in takers(run_file(tmp_path / name)):
        checked(list(parser_named(taker).read(run_file(tmp_path / name))))
    assert time.process_time() - began < 8


def test_what_a_call_says_of_itself_labels_no_episode(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"session_id": "s", "tool": "weigh", "args": {"of": 1}, "result": "1 kg", "success": True},
        {"session_id": "s", "tool": "weigh", "args": {"of": 2}, "result": None, "success": False, "error": "no scales"},
        {"session_id": "s", "tool": None, "event_type": "evaluation_end", "payload": {"reward": 0.5}},
    ]
    for name, kept, labels in (("a.jsonl", rows[:2], (None, None)), ("b.jsonl", rows, (None, 0.5))):
        (tmp_path / name).write_bytes(jsonl(kept))
        pieces = list(parser_named("agent_records").read(run_file(tmp_path / name)))
        found = table(pieces, "trajectories").select("n_tool_calls", "n_tool_fail", "success", "reward").rows()
        assert found == [(2, 1, *labels)]


def test_the_states_that_an_agent_passes_through_are_one_episode(tmp_path: Path) -> None:
    def state(number: int) -> dict[str, Any]:
        call = {"function": {"name": "weigh", "arguments": json.dumps({"of": number})}, "id": f"c{number}"}
        messages = [
            {"role": "user", "content": f"State {number}?"},
            {"role": "assistant", "content": "I weigh.", "tool_calls": [call]},
        ]
        return {"id": number, "previous_state_id": number - 1, "actions": [{"completion": {"input": messages}}]}

    record = {"name": "an agent", "initial_message": "Weigh.", "transitions": [state(at) for at in range(3)]}
    assert counts(tmp_path / "t.json", json.dumps(record).encode()) == [(3, 3, 0)]

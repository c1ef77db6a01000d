"""Samples of agent traces in layouts of their own, after those that people keep; texts and tools are our own."""

from __future__ import annotations

import json
from typing import Any

from samples_calls import jsonl

FLAT: dict[str, Any] = {
    "task_id": "scales-1",
    "question": "how heavy is 1",
    "answer": "3 kg",
    "score": 0.5,
    "passed": False,
    "planner": {"route": "scales", "queries": ["weigh 1"]},
    "expected_tool_calls": [{"name": "weigh", "arguments": {"of": 9}}],
    "tool_calls": [
        {"name": "weigh", "category": "scales", "arguments": {"of": 1}, "summary": "3 kg", "success": True},
        {"name": "tare", "category": "scales", "arguments": {}, "summary": "stuck", "success": False},
    ],
}
STEPS: dict[str, Any] = {
    "id": "s1",
    "steps": [
        {"thought": "first", "action": "weigh", "action_input": {"of": 1}, "observation": "1 kg", "reward": 0.0},
        {"thought": "then", "action": "tare(2)", "observation": "done", "reward": 1.0},
    ],
}
NESTED: list[dict[str, Any]] = [
    {
        "state": {
            "history": [{"role": "user", "content": "weigh 1"}, {"role": "assistant", "content": "1 kg"}],
            "success": True,
            "terminate_reason": "done",
        },
        "task": {"task_id": 7},
    },
    {
        "state": {
            "history": json.dumps([{"role": "user", "content": "weigh 2"}, {"role": "assistant", "content": "2 kg"}]),
            "success": False,
        },
        "task": {"task_id": 8},
    },
]


def event(at: int, kind: str, **told: Any) -> dict[str, Any]:
    return {"ts": f"2026-01-01T00:00:{at:02d}", "session_id": f"s{at // 10}", "event_type": kind, **told}


EVENTS = [
    event(0, "session_start", model="m"),
    event(1, "user_message", payload={"text": "weigh 1"}),
    event(2, "llm_end", response="", tool_calls=[{"tool": "weigh", "args": {"of": 1}}]),
    event(3, "tool_start", tool="weigh", input={"of": 1}),
    event(4, "tool_end", tool="weigh", output="no scales", status="error"),
    event(5, "llm_token_delta", text="sor"),
    event(6, "llm_end", response="sorry", tool_calls=[]),
    event(7, "evaluation_end", payload={"result": {"reward": 0.25, "success": False}}),
    event(10, "user_message", payload={"text": "weigh 2"}),
    event(11, "agent_response", payload={"message": {"role": "assistant", "content": "2 kg"}}),
    event(12, "turn_end", payload={"message": {"role": "assistant", "content": "2 kg"}}),
]
PRETTY = "\n".join(
    json.dumps(entry, indent=2)
    for entry in (
        {"type": "human", "text": "weigh 1"},
        {"type": "tool_call", "tool_name": "weigh", "tool_id": "a", "parameters": {"of": 1}},
        {"type": "tool_result", "tool_id": "a", "output": "1 kg", "status": "success"},
        {"type": "assistant", "text": "1 kg"},
    )
)
TABLE = (
    "run_id,message_id,role,message\n"
    'a,0,system,"be brief,\nplease"\na,1,user,weigh 1\na,2,assistant,1 kg\nb,0,user,weigh 2\nb,1,assistant,2 kg\n'
)
ECHOED = "\n".join(
    f'{{"tool_name": "{name}", "input_args": {{}}, "output": "{said}", "success": true}}\n[tool call] {name} (ok)'
    for name, said in (("weigh", "1 kg"), ("unknown", "content='2 kg' name='tare' tool_call_id='b'"))
)
HEADED = """
=====
TASK 2 | reward=0.5 | termination=user_stop
=====

--- [0] user ---
weigh 1

--- [1] assistant ---
[TOOL_CALL: weigh({"of": 1})]

--- [2] tool ---
1 kg

--- [3] assistant ---
it is 1 kg

=====
TASK 5 | reward=0 | termination=max_steps
=====

--- [0] user ---
weigh 2

--- [1] assistant ---
no
"""
REACT = """Question: how heavy is 1
Thought 1: I weigh it
Action 1: weigh[1]
Observation 1: 1 kg
Thought 2: done
Action 2: Finish[1 kg]
Observation 2: Answer is CORRECT

Question: how heavy is 2
Thought 1: I guess
Action 1: Finish[9 kg]
Observation 1: Answer is INCORRECT
"""

COLUMNS = {
    str(at): {
        "query": f"weigh {at}",
        "dataset": "scales",
        "turn_history": {
            "actions": [f"weigh {at}", "submit 1 kg"],
            "observations": ["1 kg", "right"],
            "rewards": [0.0, reward],
        },
        "summary": {"max_reward": reward},
    }
    for at, reward in enumerate((1.0, 0.5))
}
WEIGHED = {"name": "weigh", "arguments": '{"of": 1}', "response": "1 kg"}
TREE = {
    "query": "weigh 1",
    "answer": {
        "steps": 2,
        "details": [
            {
                "role": "user",
                "message": "weigh 1",
                "next": [
                    {"role": "assistant", "message": "I give up", "next": []},
                    {
                        "role": "assistant",
                        "message": "I weigh it",
                        "next": [
                            {"role": "tool", "message": WEIGHED, "next": [{"role": "assistant", "message": "1 kg"}]}
                        ],
                    },
                ],
            }
        ],
    },
}
GROUP = {
    "puzzle_id": "p1",
    "prompt": "weigh 1",
    "rollouts": [
        {"response": "1 kg", "reward": 1.0, "solved": True},
        {"response": "2 kg", "reward": 0, "solved": False},
    ],
    "mean_reward": 0.5,
}
SIDES = [
    {
        "step": 0,
        "user_message": "weigh 1",
        "agent": {"thought": "I weigh it", "action": "weigh(1)"},
        "environment": "no scales",
        "usage": {"input_tokens": 5},
    },
    {"step": 1, "user_message": None, "agent": {"thought": "again", "action": "weigh(1)"}, "environment": "1 kg"},
]
ALTERNATIVES = {
    "seed": 3,
    "scores": [0.5, 0.25],
    "messages": [
        [{"role": "environment", "content": "state"}, {"role": "agent", "content": said}] for said in ("left", "right")
    ],
}

PLAYED = """You are in a room with scales.
Your task is to: weigh 1.
> think: I take it first.
OK.
> take 1 from table
You take 1.
> Think: Now the scales.
> weigh 1
Nothing happens.
"""

ROUNDS = [
    {
        "user": "weigh 1",
        "assistant": "1 kg",
        "tool_calls": [{"tool_name": "weigh", "args": {"of": 1}, "result": "1 kg", "tool_call_id": "c1"}],
    },
    {"user": "and 2", "assistant": "2 kg", "tool_calls": []},
]

SAMPLES: dict[str, tuple[str, bytes]] = {
    "own/rounds.json": ("agent_records", json.dumps(ROUNDS).encode()),
    "own/played.jsonl": ("agent_records", jsonl([{"name": "w1", "result": True, "traj": PLAYED}])),
    "own/columns.json": ("agent_records", json.dumps(COLUMNS).encode()),
    "own/tree.jsonl": ("agent_records", jsonl([TREE])),
    "own/group.jsonl": ("agent_records", jsonl([GROUP])),
    "own/sides.json": ("agent_records", json.dumps(SIDES).encode()),
    "own/alternatives.jsonl": ("agent_records", jsonl([ALTERNATIVES])),
    "own/run/scales-1.json": ("agent_records", json.dumps(FLAT, indent=1).encode()),
    "own/steps.jsonl": ("agent_records", jsonl([STEPS])),
    "own/results.json": ("agent_records", json.dumps({"config": {"n": 2}, "results": NESTED}).encode()),
    "own/events.jsonl": ("agent_records", jsonl(EVENTS)),
    "own/pretty.log": ("agent_records", PRETTY.encode()),
    "own/table.csv": ("agent_records", TABLE.encode()),
    "own/echoed.jsonl": ("agent_records", ECHOED.encode()),
    "own/headed.txt": ("plain_transcripts", HEADED.encode()),
    "own/react.txt": ("plain_transcripts", REACT.encode()),
}
COUNTED = ("n_turns", "n_tool_calls", "n_tool_fail", "reward", "success", "task")
ROWS: dict[str, tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    "own/run/scales-1.json": ("trajectories", COUNTED, [(None, 2, 1, 0.5, False, "scales-1")]),
    "own/steps.jsonl": (
        "tool_calls",
        ("turn_idx", "name", "args_json", "result_len"),
        [(0, "weigh", '{"of": 1}', 4), (2, "tare", "2", 4)],
    ),
    "own/results.json": ("trajectories", COUNTED, [(1, 0, 0, 1.0, True, "7"), (1, 0, 0, 0.0, False, "8")]),
    "own/events.jsonl": (
        "trajectories",
        (*COUNTED[:5], "sample_id", "model"),
        [(2, 1, 1, 0.25, False, "s0", "m"), (1, 0, 0, None, None, "s1", None)],
    ),
    "own/pretty.log": ("trajectories", COUNTED[:3], [(2, 1, 0)]),
    "own/table.csv": ("trajectories", (*COUNTED[:3], "sample_id"), [(1, 0, 0, "a"), (1, 0, 0, "b")]),
    "own/echoed.jsonl": (
        "tool_calls",
        ("name", "ok", "call_id"),
        [("weigh", True, "call_0"), ("tare", True, "call_1")],
    ),
    "own/columns.json": (
        "trajectories",
        (*COUNTED[:4], "sample_id"),
        [(2, 2, 0, 1.0, "0"), (2, 2, 0, 0.5, "1")],
    ),
    "own/tree.jsonl": ("trajectories", COUNTED[:3], [(2, 1, 0)]),
    "own/group.jsonl": ("trajectories", ("n_turns", "reward", "success"), [(1, 1.0, True), (1, 0.0, False)]),
    "own/sides.json": ("tool_calls", ("name", "result_len"), [("weigh", 9), ("weigh", 4)]),
    "own/alternatives.jsonl": ("trajectories", ("n_turns", "reward"), [(1, 0.5), (1, 0.25)]),
    "own/played.jsonl": ("tool_calls", ("name", "args_json"), [("take", "1 from table"), ("weigh", "1")]),
    "own/rounds.json": ("trajectories", ("n_tool_calls",), [(1,)]),
    "own/headed.txt": ("trajectories", COUNTED[:4], [(2, 1, 0, 0.5), (1, 0, 0, 0.0)]),
    "own/react.txt": ("trajectories", ("n_turns", "reward", "success"), [(2, 1.0, True), (1, 0.0, False)]),
}
NOTES: dict[str, str] = {
    "own/rounds.json": "read by its parts: text = `assistant`, calls = `tool_calls`, tool = `tool_name`, "
    "arguments = `args`, result = `result` (likely).",
    "own/played.jsonl": "read by its parts: text = `traj` (likely: calls and results by the marks in it).",
    "own/columns.json": "read by its parts: calls = `action`, result = `observation` (sure).",
    "own/tree.jsonl": "read by its parts: role = `role`, text = `message`, tool = `name`, "
    "arguments = `arguments`, result = `response` (likely).",
    "own/group.jsonl": "read by its parts: text = `response` (likely: calls and results by the marks in it).",
    "own/sides.json": "read by its parts: text = `thought`, calls = `action`, result = `environment` (likely).",
    "own/alternatives.jsonl": "read by its parts: role = `role`, text = `content` (sure).",
    "own/run/scales-1.json": "read by its parts: tool = `name`, arguments = `arguments`, result = `summary` (likely).",
    "own/steps.jsonl": "read by its parts: text = `thought`, calls = `action`, arguments = `action_input`, "
    "result = `observation` (likely).",
    "own/results.json": "read by its parts: role = `role`, text = `content` (sure).",
    "own/events.jsonl": "read by its parts: role = `role`, text = `content`, calls = `tool_calls`, tool = `tool`, "
    "arguments = `args`, result = `output`, episode = `session_id` (likely).",
    "own/pretty.log": "read by its parts: role = `type`, text = `text`, tool = `tool_name`, arguments = `parameters` "
    "(likely).",
    "own/table.csv": "read by its parts: role = `role`, text = `message`, episode = `run_id` (likely).",
    "own/echoed.jsonl": "read by its parts: tool = `tool_name`, arguments = `input_args`, result = `output` (likely).",
    "own/headed.txt": "read as a transcript by its headings that name speakers (likely).",
    "own/react.txt": "read as a transcript by the names of speakers that begin its lines (likely).",
}
NOTES = {rel: f"{rel}: {note}" for rel, note in NOTES.items()}

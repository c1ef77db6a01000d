"""Chat messages, Responses, ShareGPT, NeMo-Gym and BFCL: the same counts in whatever file, and labels beside."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from parser_samples import SAMPLES, checked, losses, parser_named, pieces_of, read_as, run_file, table, takers
from samples_calls import jsonl, parquet
from samples_chats import ANSWER, BATCH, BFCL_SCORE, BFCL_TURNS, BLOCKS, GYM, ITEMS, MESSAGES, SHAREGPT

from ptt.diagnostics.parsers import RunFile
from ptt.diagnostics.parsers.io.unrecognised import why_not

CHATS: list[list[dict[str, Any]]] = [record["messages"] for record in MESSAGES]


def document(found: Any) -> bytes:
    return json.dumps(found, indent=1).encode()


def counts(path: Path, data: bytes, keep: bool = False) -> tuple[str, list[tuple[Any, ...]], Any]:
    """Return who takes a file, turns, calls and failures of each trajectory, and the kept conversations."""
    path.write_bytes(data)
    file = RunFile(path=path, rel=path.name, size=len(data), keep_messages=keep)
    first = takers(file)[0]
    pieces = list(parser_named(first).read(file))
    assert checked(pieces) > 0
    assert losses(pieces) == (0, 0, "")
    rows = table(pieces, "trajectories").select("n_turns", "n_tool_calls", "n_tool_fail").rows()
    return first, rows, table(pieces, "conversations")


def counted(messages: list[dict[str, Any]]) -> tuple[int, int]:
    """Count turns and calls another way than the parser does: by the text of each message."""
    turns = [message for message in messages if message["role"] == "assistant"]
    return len(turns), sum(json.dumps(turn).count('"arguments"') for turn in turns)


LONG = {"content": "x" * 90_000, "role": "system"}  # longer than the bytes by which formats are recognised
VARIANTS: dict[str, bytes] = {
    "table.parquet": parquet([{"id": at, "messages": chat} for at, chat in enumerate(CHATS)]),
    "spelt.parquet": parquet([{"id": at, "messages": json.dumps(chat)} for at, chat in enumerate(CHATS)]),
    "long.json": jsonl([{"messages": [LONG, *CHATS[0]]}, {"messages": CHATS[1]}]),
    "long_list.json": document([{"messages": [LONG, *CHATS[0]]}, {"messages": CHATS[1]}]),
    "long_line.json": json.dumps({"messages": [LONG, *CHATS[0]]}).encode(),
    "lines.jsonl": jsonl(MESSAGES),
    "lines.json": jsonl(MESSAGES),
    "lines.jsonl.gz": gzip.compress(jsonl(MESSAGES), mtime=0),
    "list.json": document(MESSAGES),
    "list.json.gz": gzip.compress(document(MESSAGES), mtime=0),
    "lists.json": document(CHATS),
    "object.json": document({"model": "m", "episodes": MESSAGES}),
    "turned.jsonl": jsonl([dict(reversed(record.items())) for record in MESSAGES]),
    "spelt.jsonl": jsonl([{"id": at, "messages": json.dumps(chat)} for at, chat in enumerate(CHATS)]),
    "conversation.jsonl": jsonl([{"id": at, "conversation": chat} for at, chat in enumerate(CHATS)]),
    "log.jsonl": jsonl([{"message_log": chat, "reward": 1.0} for chat in CHATS]),
    "completions.jsonl": jsonl([{"prompt": chat[:1], "completion": chat[1:]} for chat in CHATS]),
    "asked.jsonl": jsonl([{"prompt": "a question", "completion": chat} for chat in CHATS]),
    "messages.jsonl": jsonl(CHATS[0]),
    "messages.json": document(CHATS[0]),
    "requests.jsonl": jsonl(
        [{"request": {"messages": chat[:-1]}, "response": {"choices": [{"message": chat[-1]}]}} for chat in CHATS]
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_messages_count_the_same_in_whatever_file_they_lie(tmp_path: Path, name: str) -> None:
    first, rows, _ = counts(tmp_path / name, VARIANTS[name])
    assert first == "chat_messages"
    assert [row[:2] for row in rows] == [counted(chat) for chat in CHATS][: len(rows)]
    assert [row[2] for row in rows] == [1, 0][: len(rows)]
    assert len(rows) == (1 if name.startswith(("messages", "long_line")) else 2)


def test_an_exported_conversation_has_its_calls_its_tools_and_the_prompt_apart(tmp_path: Path) -> None:
    kept = counts(tmp_path / "a.jsonl", jsonl(MESSAGES), keep=True)[2]
    first = {name: json.loads(kept[name][0]) for name in ("prompt", "completion", "tools")}
    assert [message["role"] for message in first["prompt"]] == ["system", "user"]
    assert first["completion"][0]["tool_calls"][0]["function"] == {"name": "weigh", "arguments": {"of": 1}}
    assert first["tools"] == MESSAGES[0]["tools"]
    legacy = json.loads(kept["completion"][1])
    assert [message["role"] for message in legacy] == ["assistant", "tool", "assistant"]
    assert legacy[0]["tool_calls"][0]["function"]["name"] == "weigh"


def test_the_call_that_a_result_shows_is_counted_once_and_its_error_is_kept(tmp_path: Path) -> None:
    call = {"function": "weigh", "args": {"of": 1}, "id": "a"}
    messages = [
        {"role": "user", "content": [{"type": "text", "content": "weigh"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": [{"type": "text", "content": ""}], "tool_call_id": "a", "tool_call": call,
         "error": "no scales"},
        {"role": "assistant", "content": [{"type": "text", "content": "I cannot"}]},
    ]  # fmt: skip
    assert counts(tmp_path / "run.json", document({"messages": messages}))[1] == [(2, 1, 1)]


def test_parts_of_an_interface_tell_call_and_result_in_one(tmp_path: Path) -> None:
    older = {"state": "result", "toolCallId": "a", "toolName": "weigh", "args": {"of": 1}, "result": {"kg": 1}}
    newer = {"type": "tool-weigh", "toolCallId": "b", "state": "output-error", "input": {}, "errorText": "no scales"}
    done = {"type": "dynamic-tool", "toolName": "tare", "toolCallId": "c", "state": "output-available", "input": {}}
    messages = [
        {"role": "user", "parts": [{"type": "text", "text": "weigh"}]},
        {"role": "assistant", "parts": [{"type": "tool-invocation", "toolInvocation": older}, newer, done]},
    ]
    assert counts(tmp_path / "chat.json", document({"id": "c", "messages": messages}))[1] == [(1, 3, 1)]
    calls = table(pieces_of(tmp_path / "chat.json"), "tool_calls")
    assert calls.select("name", "ok", "ok_source").rows()[1:] == [("weigh", False, "flag"), ("tare", True, "flag")]


def test_a_line_with_a_lone_backslash_is_read(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "find C:PATHS"}, {"role": "assistant", "content": "none"}]
    data = jsonl([{"messages": messages}] * 2).replace(b"C:PATHS", rb"C:\Paths\\x\.txt \d+")
    with pytest.raises(ValueError, match="escape"):
        json.loads(data.split(b"\n")[0])
    assert counts(tmp_path / "chats.jsonl", data)[1] == [(1, 0, 0)] * 2


def test_blocks_of_anthropic_become_calls_and_results(tmp_path: Path) -> None:
    log = {"model": "m", "system": "you weigh", "messages": BLOCKS[:-1]}
    answer = {"type": "message", "role": "assistant", "content": BLOCKS[-1]["content"], "stop_reason": "end_turn"}
    first, rows, kept = counts(tmp_path / "log.jsonl", jsonl([log | {"response": answer}]), keep=True)
    assert (first, rows) == ("chat_messages", [(2, 1, 1)])
    assert [m["role"] for m in json.loads(kept["prompt"][0])] == ["system", "user"]
    assert [m["role"] for m in json.loads(kept["completion"][0])] == ["assistant", "tool", "user", "assistant"]


def test_messages_of_langchain_are_read_with_their_status(tmp_path: Path) -> None:
    chat = [
        {"type": "human", "data": {"content": "weigh 1"}},
        {"type": "ai", "data": {"content": "", "tool_calls": [{"name": "weigh", "args": {"of": 1}, "id": "x"}]}},
        {"type": "tool", "data": {"content": "broken", "tool_call_id": "x", "status": "error", "type": "tool"}},
        {"type": "ai", "data": {"content": "no"}},
    ]
    assert counts(tmp_path / "a.json", document(chat))[:2] == ("chat_messages", [(2, 1, 1)])


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": CHATS[0][:2], "chosen": CHATS[0][2:], "rejected": CHATS[0][2:]},
        {"prompt": CHATS[0][:2], "answer": "3"},
        {"messages": ["a", "b"]},
        {"messages": []},
        {"messages": [{"role": "king", "content": "a"}]},
        {"messages": [{"body": "a", "from": "someone"}], "level": "info"},
        {"conversations": [{"from": "somebody@work", "value": "a mail"}]},
        {"input": "2+2", "output": "4"},
        {"output": [{"type": "text", "text": "a"}]},
        {"id": 3, "result": [1, 2], "latency": [1, 2]},
    ],
)
def test_what_merely_looks_like_a_conversation_is_nobodys(tmp_path: Path, record: dict[str, Any]) -> None:
    for name, data in (("a.jsonl", jsonl([record] * 3)), ("a.json", document([record] * 3))):
        path = tmp_path / name
        path.write_bytes(data)
        assert takers(run_file(path)) == []
        assert ("no episodes" in why_not(run_file(path))) == ("chosen" in record)


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


HOSTILE: list[str] = [
    '{"messages": [{"role": "user", "content": ' + deep(50_000) + "}]}",
    '{"messages": [{"role": "assistant", "content": null, "tool_calls": ' + deep(400) + "}]}",
    '{"messages": [{"role": 7, "content": {"type": 3}}, 4, {"role": "assistant", "tool_calls": {"function": 9}}]}',
    '{"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": [], "input": 5, "id": {}}]}]}',
    '{"messages": [{"role": "user", "content": "a", "timestamp": 1e999}], "reward": 1e999, "usage": [1]}',
    '{"messages": [{"role": "user", "content": "a"}], "task_id": {}, "success": "no", "cost": "x", "step": 1e300}',
    '{"messages": [{"role": "assistant", "content": "a", "function_call": 3, "tool_calls": "[{]"}], "tools": "[["}',
]


def test_gyms_own_record_tells_the_outcomes_of_calls_and_stands_in_for_a_response(tmp_path: Path) -> None:
    items = [
        {"type": "message", "role": "user", "content": "weigh 5"},
        {"type": "function_call", "call_id": "c1", "name": "weigh", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "bad input"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "No."}]},
    ]
    called = [{"call_id": "c1", "name": "weigh", "status": "failed", "error_type": "http_422", "output": "bad input"}]
    record = {
        "rollout_id": "4-1",
        "invocations": [{"status": "completed", "conversation": items}],
        "tool_calls": called,
    }
    row = {"reward": 0.0, "response": None, "ng_trajectory": record, "_ng_task_index": 4, "_ng_rollout_index": 1}
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(jsonl([row, row | {"response": {"output": items[1:]}, "_ng_rollout_index": 2}]))
    assert takers(run_file(path))[0] == "nemo_gym"
    pieces = list(parser_named("nemo_gym").read(run_file(path)))
    assert table(pieces, "trajectories").select("n_turns", "n_tool_fail", "reward").rows() == [(2, 1, 0.0)] * 2
    assert table(pieces, "tool_calls")["error_type"].to_list() == ["http_422"] * 2


@pytest.mark.parametrize("name", ["chat_messages", "openai_responses", "sharegpt", "nemo_gym", "harbor_traces", "bfcl"])
def test_hostile_records_cost_no_more_than_themselves(tmp_path: Path, name: str) -> None:
    texts = [
        *HOSTILE,
        *(
            text.replace("messages", "conversations").replace("role", "from").replace("content", "value")
            for text in HOSTILE
        ),
        *(text.replace("messages", "output").replace('"role"', '"type": "function_call", "role"') for text in HOSTILE),
        '{"responses_create_params": {"input": 4}, "response": {"output": [3, {"type": []}]}, "reward": "a"}',
        '{"conversations": [1], "agent": [], "model": {}, "episode": 1e99, "run_id": 3, "result": "x"}',
        '{"id": [], "result": [[[[[]]]]], "latency": "a"}',
        '{"id": 1, "result": "' + "f(" * 9_000 + '", "latency": 1, "input_token_count": [[1e999, "a"], {}]}',
        '{"id": 1, "result": [[["x", {"a": [1]}], 3]], "inference_log": [{"begin_of_turn_query": 3, "step_x": 4}]}',
    ]
    read_as(name, tmp_path / "a.jsonl", "\n".join([*texts, *map(json.dumps, MESSAGES), ""]).encode(), "a.jsonl")


def test_what_a_model_does_between_two_inputs_is_one_turn(tmp_path: Path) -> None:
    log = [{"input": [{"role": "user", "content": "hi"}], "instructions": "be brief", "output": [*ITEMS, ITEMS[-1]]}]
    first, rows, kept = counts(tmp_path / "a.jsonl", jsonl(log), keep=True)
    assert (first, rows) == ("openai_responses", [(3, 2, 1)])
    assert [m["role"] for m in json.loads(kept["prompt"][0])] == ["system", "user"]
    said = json.loads(kept["completion"][0])
    assert [m["role"] for m in said] == ["assistant", "tool", "tool", "assistant", "assistant"]
    assert said[0]["reasoning_content"] == "I look"


def test_parts_of_a_rollouts_reward_are_rewards_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(jsonl(GYM))
    pieces = list(parser_named("nemo_gym").read(run_file(path)))
    assert table(pieces, "rewards").select("name", "score").rows()[:2] == [("right", 1.0), ("format", 1.0)]


def test_plain_entries_and_tagged_calls_of_sharegpt_are_read(tmp_path: Path) -> None:
    plain = [{"items": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}]
    assert counts(tmp_path / "plain.json", document(plain))[:2] == ("sharegpt", [(1, 0, 0)])
    kept = counts(tmp_path / "tools.jsonl", jsonl(SHAREGPT), keep=True)[2]
    result = json.loads(kept["completion"][1])[1]
    assert result == {"role": "tool", "content": "2 kg", "tool_call_id": "text-call-0"}
    broken = [{"conversations": [{"from": "human", "value": "a"}, {"from": "function_call", "value": "{weigh"}]}]
    assert counts(tmp_path / "broken.json", document(broken))[1] == [(1, 1, 0)]


def leaderboard(root: Path) -> RunFile:
    for folder, name, rows in (
        ("result/m", "BFCL_v4_multi_turn_base_result.json", BFCL_TURNS),
        ("score/m", "BFCL_v4_multi_turn_base_score.json", BFCL_SCORE),
        ("possible_answer", "BFCL_v4_multi_turn_base.json", [ANSWER]),
    ):
        (root / folder).mkdir(parents=True)
        (root / folder / name).write_bytes(jsonl(rows))
    rel = "result/m/BFCL_v4_multi_turn_base_result.json"
    return run_file(root / rel, rel)


def test_scores_and_answers_beside_results_label_them(tmp_path: Path) -> None:
    rows = table(list(parser_named("bfcl").read(leaderboard(tmp_path))), "trajectories")
    assert rows.select("success", "tools_required").rows() == [(True, ["tare", "weigh"]), (False, None)]


def test_results_without_all_scores_stay_unlabelled(tmp_path: Path) -> None:
    file = leaderboard(tmp_path)
    scores = tmp_path / "score/m/BFCL_v4_multi_turn_base_score.json"
    held = scores.read_bytes()
    scores.write_bytes(jsonl(BFCL_SCORE[:1]))  # one failure is said to be there, and is not
    assert table(list(parser_named("bfcl").read(file)), "trajectories")["success"].null_count() == 2
    scores.unlink()
    (tmp_path.parent / "elsewhere.json").write_bytes(held)
    scores.symlink_to(tmp_path.parent / "elsewhere.json")  # out of the run
    assert table(list(parser_named("bfcl").read(file)), "trajectories")["success"].null_count() == 2


def test_a_score_file_lists_failures_alone_and_so_labels_nothing(tmp_path: Path) -> None:
    path = tmp_path / "BFCL_v4_multi_turn_base_score.json"
    path.write_bytes(jsonl(BFCL_SCORE))
    pieces = list(parser_named("bfcl").read(run_file(path)))
    row = table(pieces, "trajectories").select("success", "error_type", "tools_required").rows()
    assert row == [(None, "inference_error", ["weigh"])]


def test_the_text_of_a_step_without_calls_is_unknown_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "BFCL_v4_multi_turn_base_result.json"
    path.write_bytes(jsonl(BFCL_TURNS[:1]))
    turns = table(list(parser_named("bfcl").read(run_file(path))), "turns")
    assert [row["text_len"] for row in turns.to_dicts() if row["role"] == "assistant"] == [0, None, 0, None]


def test_calls_in_pythons_notation_are_calls_and_prose_is_none(tmp_path: Path) -> None:
    texts = ["[a.b(x=1, y=[2]), c()]", "a(1)", "I call a(1)", "a(1) + 2", "[a(1), 'b']", "a(" * 500]
    rows = [{"id": f"simple_{at}", "result": text, "latency": 1.0} for at, text in enumerate(texts)]
    found = counts(tmp_path / "BFCL_v3_simple_result.json", jsonl(rows))[1]
    assert [calls for _, calls, _ in found] == [2, 1, 0, 0, 0, 0]


ASKED: dict[str, tuple[str, str]] = {
    "rollouts/5.jsonl": ("2+2?", "4"),
    "areal/rollout/7/3.jsonl": ("q", "answer 0"),
    "roll/rollout_dump_data.step_4.jsonl": ("q", "a"),
    "swift/completions.jsonl": ("q", "a"),
    "exports/dumped_evals/global_step_8_evals/openai_gsm8k.jsonl": ("q", "a"),
    "completions/completions_00003.parquet": ("what is 1 + 2", "it is 3"),
    "art/trajectories/train/0002.jsonl": ("1 + 2?", "it is 3"),
    "art/trajectories/train/0003.parquet": ("1 + 2?", "it is 3"),
    "chats/request.json": ("weigh 1", "1 k"),
    "responses/log.jsonl": ("you weigh", "5 kg"),
    "gym/example_rollouts.jsonl": ("weigh 5", "5 kg"),
    "sharegpt/tools.json": ("weigh both", "one is 1 kg"),
    "harbor/make-a-file.traces.json": ("make a file", "made"),
    "bfcl/score/m/multi_turn/BFCL_v4_multi_turn_base_score.json": ("weigh 3", "Error during inference: no connection"),
}


@pytest.mark.parametrize("rel", ASKED)
def test_an_export_finds_what_was_asked_and_what_came_of_it(tmp_path: Path, rel: str) -> None:
    name, make = SAMPLES[rel]
    path = tmp_path / rel
    path.parent.mkdir(parents=True)
    if isinstance(make, bytes):
        path.write_bytes(make)
    else:
        make(path)
    file = RunFile(path=path, rel=rel, size=path.stat().st_size, keep_messages=True)
    pieces = list(parser_named(name).read(file))
    kept = table(pieces, "conversations")
    assert kept.height == table(pieces, "trajectories").height
    prompt, completion = (json.loads(kept[column][0]) for column in ("prompt", "completion"))
    assert "assistant" not in {message["role"] for message in prompt}
    assert (prompt[-1]["content"], completion[-1]["content"]) == ASKED[rel]


def test_groups_of_art_keep_their_trajectories_together(tmp_path: Path) -> None:
    path = tmp_path / "small" / "trajectories" / "train" / "0002.jsonl"
    path.parent.mkdir(parents=True)
    held = SAMPLES["art/trajectories/train/0002.jsonl"][1]
    assert isinstance(held, bytes)
    path.write_bytes(held.rstrip() + b"\n" + held)
    file = RunFile(path=path, rel="small/trajectories/train/0002.jsonl", size=path.stat().st_size)
    rows = table(list(parser_named("art_trajectories").read(file)), "trajectories")
    assert rows["group_id"].to_list() == ["2-0", "2-0", "2-1", "2-1"]
    assert rows["model"].unique().to_list() == ["small"]


def called(style: str) -> list[dict[str, Any]]:
    """Return one conversation of a call that fails, as different interfaces log it."""
    user = {"role": "user", "content": "weigh 1"}
    styles: dict[str, list[dict[str, Any]]] = {
        "gemini": [
            {"role": "user", "parts": [{"text": "weigh 1"}]},
            {
                "role": "model",
                "parts": [{"text": "so", "thought": True}, {"functionCall": {"name": "weigh", "args": {}}}],
            },
            {"role": "user", "parts": [{"functionResponse": {"name": "weigh", "response": {"error": "no"}}}]},
            {"role": "model", "parts": [{"text": "no"}]},
        ],
        "bedrock": [
            {"role": "user", "content": [{"text": "weigh 1"}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "x", "name": "weigh", "input": {}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "x", "content": [], "status": "error"}}]},
            {"role": "assistant", "content": [{"text": "no"}]},
        ],
        "vercel": [
            user,
            {
                "role": "assistant",
                "content": [{"type": "tool-call", "toolCallId": "x", "toolName": "weigh", "input": {}}],
            },
            {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "x", "output": "no", "isError": True}]},
            {"role": "assistant", "content": [{"type": "text", "text": "no"}]},
        ],
        "langchain": [
            {"type": "human", "content": "weigh 1"},
            {
                "type": "ai",
                "content": [{"type": "tool_use", "id": "x", "name": "weigh", "input": {}}],
                "tool_calls": [{"name": "weigh", "args": {}, "id": "x"}],
            },
            {"type": "tool", "content": "no", "tool_call_id": "x", "status": "error"},
            {"type": "ai", "content": "no"},
        ],
        "otel": [
            {"role": "user", "parts": [{"type": "text", "content": "weigh 1"}]},
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "x", "name": "weigh", "arguments": {}}]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "x", "response": "{'error': 'no'}"}]},
            {"role": "assistant", "content": "no"},
        ],
        "served": [  # the model's own interface runs the tool: its result stands in the same message
            user,
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "x", "name": "weigh", "input": {}},
                    {"type": "mcp_tool_result", "tool_use_id": "x", "content": "no", "is_error": True},
                ],
            },
            {"role": "assistant", "content": "no"},
        ],
        "factory": [
            {"role": "user", "content": [{"type": "text", "value": "weigh 1"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "reasoning", "value": "so"},
                    {"type": "tool_call", "value": '{"name": "weigh", "arguments": {}}'},
                ],
            },
            {"role": "tool", "content": [{"type": "text", "value": '{"error": "no"}'}]},
            {"role": "assistant", "content": [{"type": "text", "value": "no"}]},
        ],
        "flagged": [
            user,
            {"role": "assistant", "content": "", "tool_calls": [{"name": "weigh", "args": {}, "id": "x"}]},
            {"role": "tool", "tool_call_id": "x", "content": "no", "is_error": True},
            {"role": "assistant", "content": "no"},
        ],
        "spelt": [
            user,
            {"role": "assistant", "content": "", "tool_calls": '[{"id": "x", "function": {"name": "weigh"}}]'},
            {"role": "tool", "tool_call_id": "x", "content": "{'error': 'no'}"},
            {"role": "assistant", "content": "no"},
        ],
    }
    return styles[style]


@pytest.mark.parametrize(
    "style", ["gemini", "bedrock", "vercel", "langchain", "otel", "served", "factory", "flagged", "spelt"]
)
def test_calls_and_failures_are_found_in_each_interfaces_messages(tmp_path: Path, style: str) -> None:
    name = "contents" if style == "gemini" else "conv"  # a name of the writer's own is taken where it is the only chat
    first, rows, kept = counts(tmp_path / "a.jsonl", jsonl([{name: called(style)}]), keep=True)
    assert (first, rows) == ("chat_messages", [(2, 1, 1)])
    assert json.loads(kept["prompt"][0])[0]["content"] == "weigh 1"
    said = json.loads(kept["completion"][0])
    assert said[0]["tool_calls"][0]["function"]["name"] == "weigh"
    assert [message["role"] for message in said] == ["assistant", "tool", "assistant"]
    assert said[-1]["content"] == "no"


def test_answers_without_their_requests_are_not_attempts_at_one_prompt(tmp_path: Path) -> None:
    _, pieces = read_as("openai_responses", tmp_path / "output.jsonl", jsonl(BATCH * 2), "output.jsonl")
    assert table(pieces, "trajectories")["prompt_hash"].to_list() == [None] * 2 * len(BATCH)


def test_a_call_that_stands_in_a_block_and_among_the_calls_is_one(tmp_path: Path) -> None:
    def call(name: str) -> dict[str, Any]:
        return {"type": "function", "id": None, "function": {"name": name, "arguments": '{"a": 1}'}}

    calls = [call("read"), call("read"), call("write")]
    blocks = [{"type": "text", "text": "look"}, *({"type": "tool_call", "tool_call": one} for one in calls)]
    messages = [
        {"role": "user", "content": "do it"},
        {"role": "assistant", "content": blocks, "tool_calls": calls},
        {"role": "assistant", "content": [{"type": "tool_call", "tool_call": call("read")}]},
    ]
    _, rows, _ = counts(tmp_path / "chat.jsonl", jsonl([{"messages": messages}] * 2))
    assert {row[1:] for row in rows} == {(4, 0)}

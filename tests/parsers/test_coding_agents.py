"""Sessions of coding agents: counts against counts of the bytes themselves, outcomes, order, and foreign files."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import samples_coding_agents as made
from parser_samples import checked, losses, parser_named, run_file, table, takers
from samples_calls import jsonl
from samples_coding_agents import SAMPLES, document
from trace_pieces import told

from ptt.diagnostics.parsers import PARSERS, Piece, RunFile

DEPTH = 100_000


def read(folder: Path, rel: str, data: bytes, *, messages: bool = False) -> list[Piece]:
    path = folder / rel
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    file = RunFile(path=path, rel=rel, size=len(data), keep_messages=messages)
    (name,) = [parser.name for parser in PARSERS if parser.recognises(file) and not parser.general]
    return list(parser_named(name).read(file))


def read_file(path: Path) -> list[Piece]:
    (name,) = [name for name in takers(run_file(path)) if not parser_named(name).general]
    return list(parser_named(name).read(run_file(path)))


def calls(pieces: list[Piece], *columns: str) -> list[tuple[Any, ...]]:
    return table(pieces, "tool_calls").select(columns).rows()


def objects_in(found: Any) -> list[dict[str, Any]]:
    inside = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else []
    return [*([found] if isinstance(found, dict) else []), *(one for value in inside for one in objects_in(value))]


def counted(rel: str) -> tuple[int, int]:
    """Count turns and calls of a sample by another way than its parser: over all objects of the file, by their keys."""
    name, data = SAMPLES[rel]
    whole = [json.loads(line) for line in data.splitlines()] if rel.endswith("l") else [json.loads(data)]
    found = objects_in(whole)
    if name == "atif":
        return sum(one.get("source") == "agent" for one in found), sum("function_name" in one for one in found)
    if name == "mini_swe_agent":
        turns = sum(one.get("role") == "assistant" or one.get("object") == "response" for one in found)
        named = [one for one in found if one.get("name") == "bash"]
        blocks = [one for one in found if one.get("role") == "assistant" and "```bash" in str(one.get("content"))]
        return turns, len(named) + len(blocks)
    if name == "openhands":
        responses = {one["llm_response_id"] for one in found if "llm_response_id" in one}
        spoken = sum(one.get("kind") == "MessageEvent" and one["source"] == "agent" for one in found)
        acted = [one for one in found if str(one.get("action")) in {"run", "edit", "finish"}]
        return len(responses) + spoken + len(acted), sum(one.get("kind") == "ActionEvent" for one in found) + len(acted)
    if name == "claude_code":
        responses = {one["id"] for one in found if one.get("role") == "assistant"}
        return len(responses), sum(one.get("type") == "tool_use" for one in found)
    if name == "codex_cli":
        kinds = Counter(str(one.get("type")) for one in found if one.get("status") != "in_progress")
        turns = sum(one.get("type") == "message" and one["role"] == "assistant" for one in found)
        made_of = ("function_call", "custom_tool_call", "local_shell_call", "command_execution", "file_change")
        return turns + kinds["agent_message"] * ("item.completed" in kinds), sum(kinds[kind] for kind in made_of)
    if rel == "gemini/stream.jsonl":  # a turn ends where something else than a part of it follows
        order = [one["type"] if one.get("role") != "user" else "user" for one in whole]
        turns = sum(b in {"message", "tool_use"} and a != "message" for a, b in itertools.pairwise(order))
        return turns, order.count("tool_use")
    undone = rel.endswith("l")  # a message is there twice
    turns = sum(one.get("type") == "gemini" or one.get("role") == "model" for one in found)
    made_calls = sum("functionCall" in one or "status" in one for one in found)
    return turns - undone, made_calls - 3 * undone


@pytest.mark.parametrize("rel", SAMPLES)
def test_turns_and_calls_are_those_in_the_bytes(tmp_path: Path, rel: str) -> None:
    rows = table(read(tmp_path, rel, SAMPLES[rel][1]), "trajectories")
    assert (rows["n_turns"].sum(), rows["n_tool_calls"].sum()) == counted(rel)


@pytest.mark.parametrize("rel", SAMPLES)
def test_the_whole_conversation_is_kept_where_an_export_asks(tmp_path: Path, rel: str) -> None:
    found = read(tmp_path, rel, SAMPLES[rel][1], messages=True)
    kept, rows = table(found, "conversations"), table(found, "trajectories")
    assert kept["trajectory_id"].to_list() == rows["trajectory_id"].to_list()
    for prompt, completion in kept.select("prompt", "completion").rows():
        assert [message["role"] for message in json.loads(prompt)][-1:] in (["user"], [])  # streams leave it out
        asked = [call for message in json.loads(completion) for call in message.get("tool_calls", [])]
        assert all(call["function"]["name"] for call in asked)
        assert json.loads(completion)[0]["role"] == "assistant"


def test_a_copied_step_counts_as_in_its_file_and_a_subagent_is_an_episode(tmp_path: Path) -> None:
    copied = [step | {"is_copied_context": True} for step in made.ATIF["steps"][:3]]
    child = made.ATIF | {"session_id": "a-9"}
    whole = made.ATIF | {"steps": [*copied, made.ATIF["steps"][3]], "subagent_trajectories": [child]}
    rows = table(read(tmp_path, "t.json", document(whole)), "trajectories")
    assert rows.select("sample_id", "n_turns", "n_tool_calls").rows() == [("a-1", 2, 2), ("a-9", 2, 2)]


@pytest.mark.parametrize(
    ("rewards", "error", "expected"),
    [
        ({"reward": 1.0}, None, (1.0, True, None, None)),
        ({"reward": 0}, None, (0.0, False, None, None)),
        ({"reward": 0.5, "style": 1}, None, (0.5, None, None, None)),
        (None, "AgentTimeoutError", (None, None, True, None)),
        (None, "VerifierError", (None, None, None, "VerifierError")),
    ],
)
def test_a_trial_of_harbor_has_its_verifier_s_reward(
    tmp_path: Path, rewards: Any, error: str | None, expected: tuple[Any, ...]
) -> None:
    told = {"task_name": "add-two", "trial_name": "add-two__1", "verifier_result": {"rewards": rewards}}
    told |= {"exception_info": {"exception_type": error}} if error else {}
    (tmp_path / "result.json").write_bytes(document(told))
    child = made.ATIF | {"session_id": "a-9"}
    found = read(tmp_path, "agent/trajectory.json", document(made.ATIF | {"subagent_trajectories": [child]}))
    columns = ("reward", "success", "truncated", "error_type", "task")
    assert table(found, "trajectories").select(columns).rows() == [(*expected, "add-two"), (None,) * 5]


def test_events_kept_a_file_each_are_one_episode(tmp_path: Path) -> None:
    for name, events in (("sdk", made.OPENHANDS_SDK), ("older", made.OPENHANDS)):
        folder = tmp_path / name / "events"
        folder.mkdir(parents=True)
        for at, event in enumerate(events):
            rel = f"event-{at:05d}-0a1b2c3d.json" if name == "sdk" else f"{at}.json"
            (folder / rel).write_bytes(document(event))
        found = [read_file(path) for path in sorted(folder.iterdir())]
        rows = [table(pieces, "trajectories") for pieces in found]
        assert [row.height for row in rows] == [1] + [0] * (len(events) - 1)
        assert rows[0].select("n_turns", "n_tool_calls").rows() == [(3, 3)]


def test_events_in_lines_tell_model_tokens_and_cost(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 50, "completion_tokens": 5}
    use = {"model_name": "some-model", "accumulated_cost": 0.25, "accumulated_token_usage": usage}
    stats = {"usage_to_metrics": {"agent": use, "condenser": use | {"accumulated_cost": 0.0}}}
    state = {"id": "e0", "timestamp": made.at(0), "source": "environment", "key": "stats", "value": stats}
    found = read(
        tmp_path, "events.jsonl", jsonl([state | {"kind": "ConversationStateUpdateEvent"}, *made.OPENHANDS_SDK])
    )
    columns = ("n_turns", "model", "tokens_in", "tokens_out", "cost_usd", "stop_reason")
    assert table(found, "trajectories").select(columns).rows() == [(3, "some-model", 100, 10, 0.25, "message")]


def test_claude_output_as_one_list_is_read_as_its_lines(tmp_path: Path) -> None:
    listed = read(tmp_path, "out.json", document(made.CLAUDE_STREAM))
    streamed = read(tmp_path, "out.jsonl", jsonl(made.CLAUDE_STREAM))
    columns = ("trajectory_id", "n_turns", "n_tool_calls", "cost_usd", "tools_offered")
    one, other = (table(pieces, "trajectories").select(columns).rows() for pieces in (listed, streamed))
    assert one == other


def test_atif_steps_whose_logprobs_do_not_fit_give_no_sequence(tmp_path: Path) -> None:
    torn = json.loads(json.dumps(made.ATIF))
    torn["steps"][3]["metrics"]["logprobs"] = [-1.0, -2.0]
    found = read(tmp_path, "t.json", document(torn))
    assert table(found, "sequences")["rollout_logp"].to_list() == [[-0.5, -0.625]]
    assert "1 step without log-probabilities" in losses(found)[2]
    held = table(found, "sequences")["trajectory_id"].to_list()
    assert held == table(found, "trajectories")["trajectory_id"].to_list()


def test_mini_swe_agent_knows_a_failed_command_by_its_return_code(tmp_path: Path) -> None:
    found = read(tmp_path, "a.traj.json", document(made.MINI_2))
    assert calls(found, "call_id", "ok", "ok_source", "error_type") == [
        ("c1", True, "flag", None),
        ("c2", False, "flag", None),
        ("c3", False, "error_field", "TimeoutExpired"),
    ]


def test_mini_swe_agent_runs_the_only_shell_block_of_a_message(tmp_path: Path) -> None:
    said = "I add this:\n```python\nx = 1\n```\nfirst I look.\n```bash\nls\n```"
    messages = [
        {"role": "system", "content": "You can use bash."},
        {"role": "user", "content": "Please look."},
        {"role": "assistant", "content": said},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\na.py\n</output>"},
    ]
    found = read(tmp_path, "a.traj.json", document(made.MINI | {"messages": messages}))
    assert calls(found, "name", "turn_idx") == [("bash", 2)]


def test_a_response_that_could_not_be_read_is_a_failed_call_and_no_request(tmp_path: Path) -> None:
    told = {"role": "user", "content": "No tool calls found.", "extra": {"interrupt_type": "FormatError"}}
    chat = [*made.MINI_2["messages"][:2], {"role": "assistant", "content": "Well."}, told, *made.MINI_2["messages"][2:]]
    mini = read(tmp_path, "a.traj.json", document(made.MINI_2 | {"messages": chat}))
    feedback = {"results": [{"content": "Previous response had parsing errors:\nERROR: no JSON"}]}
    lost = {"step_id": 3, "source": "agent", "message": "Well.", "observation": feedback}
    steps = [*made.ATIF["steps"][:2], lost, *made.ATIF["steps"][2:]]
    atif = read(tmp_path, "t.json", document(made.ATIF | {"steps": steps}))
    for found, failures in ((mini, 3), (atif, 1)):
        assert calls(found, "turn_idx", "call_idx", "name", "ok", "error_type")[0] == (
            2,
            0,
            None,
            False,
            "invalid_arguments",
        )
        rows = table(found, "trajectories")
        assert rows["n_tool_fail"].to_list() == [failures]
        assert rows["n_tool_calls"].to_list() == [table(found, "tool_calls").height - 1]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            "<tool_use_error>InputValidationError: Read failed: file_path is missing</tool_use_error>",
            "invalid_arguments",
        ),
        ("<tool_use_error>Error: No such tool available: Look</tool_use_error>", "unknown_tool"),
        ("Error: InputStream of the program is closed", None),
        ("cat: tool.py: No such file", None),
    ],
)
def test_a_failed_call_says_whether_it_could_be_made(tmp_path: Path, said: str, kind: str | None) -> None:
    rows = json.loads(json.dumps(made.CLAUDE))
    for row in rows[8:10]:
        row["message"]["content"][0]["content"] = said
    assert calls(read(tmp_path, "s.jsonl", jsonl(rows)), "ok", "error_type")[1] == (False, kind)


def test_swe_agent_takes_the_calls_of_the_history_and_not_the_demonstration(tmp_path: Path) -> None:
    def asked(action: str, name: str, **told: Any) -> dict[str, Any]:
        call = {"id": f"id-{name}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        return {"role": "assistant", "content": "", "action": action, "tool_calls": [call], **told}

    steps = [{"action": "ls -l", "observation": "a.py", "response": "x", "execution_time": 0.5}]
    steps += [{"action": "submit", "observation": "", "response": "done"}]
    history = [
        asked("ls -l", "shown", is_demo=True),
        asked("grep", "lost"),
        asked("ls -l", "bash"),
        asked("submit", "submit"),
    ]
    stats = {"instance_cost": 0.25, "tokens_sent": 100, "tokens_received": 10, "api_calls": 3}
    settings = json.dumps({"agent": {"model": {"name": "some-model"}}})
    whole = {
        "environment": "i-1",
        "trajectory": steps,
        "history": history,
        "info": {"exit_status": "submitted (exit_cost)", "model_stats": stats, "resolved": False},
        "replay_config": settings,
    }
    found = read(tmp_path, "i-1/i-1.traj", document(whole))
    assert calls(found, "name", "call_id", "latency_s") == [("bash", "id-bash", 0.5), ("submit", "id-submit", None)]
    columns = ("task", "env", "success", "truncated", "model", "tokens_in", "tokens_out", "cost_usd")
    assert table(found, "trajectories").select(columns).rows() == [
        ("i-1", None, False, True, "some-model", 100, 10, 0.25)
    ]


def test_an_openhands_error_without_an_action_is_a_failed_call_and_no_request(tmp_path: Path) -> None:
    found = read(tmp_path, "e.json", document(made.OPENHANDS))
    assert calls(found, "call_idx", "name", "ok", "error_type") == [
        (0, "execute_bash", True, None),
        (1, None, False, "invalid_arguments"),
        (2, "str_replace_editor", False, None),
        (3, "finish", None, None),
    ]
    assert table(found, "trajectories").select("n_tool_calls", "n_tool_fail").rows() == [(3, 2)]
    assert table(found, "tool_calls")["latency_s"].to_list() == [1.0, None, 1.0, None]


def test_an_openhands_exit_code_is_no_outcome_either_way(tmp_path: Path) -> None:
    """Were only those of zero known, every command would seem to succeed."""
    found = read(tmp_path, "output.jsonl", jsonl([made.OUTPUT, made.PAIRS]))
    known = table(found, "tool_calls").filter(pl.col("name").is_in(["execute_bash", "run"]))
    assert known["ok_source"].to_list() == ["unknown", "unknown"]


@pytest.mark.parametrize(
    ("told", "success"),
    [
        ({"test_result": {"report": {"resolved": False}}}, False),
        ({"test_result": {"resolved": True}}, True),
        ({"test_result": {"result": True}}, True),
        ({"test_result": True}, True),
        ({"test_result": {"git_patch": "diff"}}, None),
        ({"test_result": {}, "success": True}, True),
    ],
)
def test_openhands_success_is_a_verdict_or_unknown(tmp_path: Path, told: dict[str, Any], success: bool | None) -> None:
    found = read(tmp_path, "output.jsonl", jsonl([made.OUTPUT | told]))
    assert table(found, "trajectories")["success"].to_list() == [success]


def test_events_of_old_versions_of_openhands_answer_those_before_them(tmp_path: Path) -> None:
    history = [
        {"content": "Mend a.py.", "wait_for_response": False, "action": "message"},
        {"command": "ls", "thought": "I look.", "action": "run"},
        {"content": "a.py", "command": "ls", "exit_code": 0, "observation": "run"},
        {"content": "What now?", "wait_for_response": True, "action": "message"},
        {"outputs": {}, "thought": "done", "action": "finish"},
    ]
    issue = {"owner": "larch", "repo": "larch", "number": 7}
    old = {"issue": issue, "history": history, "metrics": None, "success": True, "error": None}
    found = read(tmp_path, "output.jsonl", jsonl([old]))
    assert calls(found, "name", "args_json", "result_len") == [("run", '{"command": "ls"}', 4)]
    columns = ("task", "n_turns", "success", "stop_reason")
    assert table(found, "trajectories").select(columns).rows() == [("larch/larch/7", 3, True, "finish")]


def test_an_openhands_instance_that_failed_before_it_began_is_an_episode_without_turns(tmp_path: Path) -> None:
    broken = made.OUTPUT | {"history": None, "error": "OSError: no disk", "test_result": {}}
    found = read(tmp_path, "output.jsonl", jsonl([broken, made.OUTPUT]))
    columns = ("n_turns", "error_type", "stop_reason")
    assert table(found, "trajectories").select(columns).rows() == [(0, "OSError", "OSError"), (3, None, "finish")]


def test_lines_of_one_claude_response_are_one_turn_with_its_last_usage(tmp_path: Path) -> None:
    found = read(tmp_path, "s.jsonl", jsonl(made.CLAUDE), messages=True)
    assert calls(found, "name", "ok", "ok_source", "latency_s") == [
        ("Read", True, "flag", 0.25),
        ("Bash", False, "flag", None),
    ]
    first = json.loads(table(found, "conversations")["completion"][0])
    assert [message["role"] for message in first] == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert (first[0]["content"], first[0]["reasoning_content"]) == ("I read it.", "I look.")
    assert table(found, "turns").filter(pl.col("role") == "assistant")["n_tokens"].to_list() == [9, 8, 2, 4]


def test_claude_results_between_lines_of_one_response_follow_it(tmp_path: Path) -> None:
    """Parallel calls are answered while the response is still written out."""
    order = [2, 5, 6, 7, 3]
    woven = [made.CLAUDE[at] for at in order]
    woven[-1] = woven[-1] | {"message": woven[-1]["message"] | {"id": "m1"}}
    found = read(tmp_path, "s.jsonl", jsonl(woven))
    assert table(found, "trajectories").select("n_turns", "n_tool_calls").rows() == [(2, 2)]


def test_codex_exit_codes_stand_in_the_header_and_not_in_what_a_command_prints(tmp_path: Path) -> None:
    rows = [*made.CODEX[:9], *made.CODEX[-1:]]
    found = read(tmp_path, "r.jsonl", jsonl(rows))
    assert calls(found, "ok", "error_text") == [(True, None)]


def test_a_codex_session_keeps_each_response_apart(tmp_path: Path) -> None:
    found = read(tmp_path, "r.jsonl", jsonl(made.CODEX), messages=True)
    chat = json.loads(table(found, "conversations")["completion"][0])
    roles = [message["role"] for message in chat]
    assert roles == ["assistant", "tool"] * 4 + ["assistant"]
    assert Counter(len(message.get("tool_calls", ())) for message in chat if message["role"] == "assistant") == {
        1: 4,
        0: 1,
    }
    assert table(found, "trajectories")["n_turns"].to_list() == [2]  # as Codex counts them: its messages


def test_a_stream_of_gemini_may_follow_the_prompt_of_what_started_it(tmp_path: Path) -> None:
    prompt = {"type": "message", "role": "user", "content": "Mend a.py.", "ts": "2026-01-01T00:00:00"}
    alone = read(tmp_path, "stream.jsonl", jsonl(made.GEMINI_STREAM))
    found = read(tmp_path, "transcript.jsonl", jsonl([prompt, *made.GEMINI_STREAM]))
    assert told(found, "n_turns", "n_tool_calls", "model") == told(alone, "n_turns", "n_tool_calls", "model")


def test_a_gemini_checkpoint_pairs_by_order_and_knows_errors(tmp_path: Path) -> None:
    for data in (document(made.GEMINI_CHECKPOINT), document({"history": made.GEMINI_CHECKPOINT})):
        found = read(tmp_path, "checkpoint-a.json", data)
        assert calls(found, "turn_idx", "name", "ok") == [(1, "read_file", True), (3, "replace", False)]


def test_a_log_of_prompts_alone_is_said_to_hold_no_agent(tmp_path: Path) -> None:
    found = read(tmp_path, "logs.json", document(made.GEMINI_LOG))
    assert losses(found) == (0, 0, "logs.json contains the user's prompts alone, and nothing of the agent.")


FOREIGN: dict[str, Any] = {
    "atif_2.json": made.ATIF | {"schema_version": "ATIF-v2.0"},
    "nested.json": {"trajectory": made.ATIF},
    "chat.json": [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}],
    "config.json": {"info": {"model_stats": {}}, "messages": []},
    "events.json": [{"id": 1, "source": "sensor", "value": 3}],
    "kinds.json": [{"kind": "Pod", "id": 1}],
    "sessions.json": {"sessionId": "a", "startTime": "b", "rows": []},
    "parts.json": [{"role": "user", "parts": 3}],
}


@pytest.mark.parametrize("rel", FOREIGN)
def test_a_file_that_looks_alike_is_not_taken(tmp_path: Path, rel: str) -> None:
    path = tmp_path / rel
    path.write_bytes(document(FOREIGN[rel]))
    ours = {name for name, _ in SAMPLES.values()}
    assert not ours & set(takers(run_file(path)))


@pytest.mark.parametrize(
    "rows",
    [
        [{"type": "user", "message": "hi", "sessionId": "x"}],
        [{"type": "message", "role": "user", "content": "hi"}],
        [{"type": "reading", "payload": {"type": "message"}, "timestamp": "x"}],
        [{"instance_id": "x", "history": [{"role": "user"}], "metrics": {}}],
        [{"sessionId": "x", "projectHash": "y"}, {"step": 1, "loss": 0.5}],
        [{"id": "x", "timestamp": "y"}, {"type": "reading", "value": 3}],
    ],
)
def test_lines_that_look_alike_are_not_taken(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(jsonl(rows))
    ours = {name for name, _ in SAMPLES.values()}
    assert not ours & set(takers(run_file(path)))


@pytest.mark.parametrize("rel", SAMPLES)
def test_a_sample_with_a_deep_value_in_it_is_refused_at_once(tmp_path: Path, rel: str) -> None:
    name, data = SAMPLES[rel]
    at = [match.end() for match in re.finditer(rb'": ?', data)][-1]
    path = tmp_path / Path(rel).name
    path.write_bytes(data[:at] + b"[" * DEPTH + b"\n")
    start = time.process_time()
    found = list(parser_named(name).read(run_file(path)))
    assert time.process_time() - start < 2
    assert losses(found)[2]


@pytest.mark.parametrize("rel", SAMPLES)
def test_nesting_that_can_be_read_but_not_spelt_out_again_does_not_raise(tmp_path: Path, rel: str) -> None:
    name, data = SAMPLES[rel]
    path = tmp_path / Path(rel).name
    keys = [key for key in (b'"content": ', b'"arguments": ', b'"message": ', b'"args": ', b'"text": ') if key in data]
    for key in keys:
        for depth in (100, 300, 600, 900, 950, 990):
            nested = b"[" * depth + b"]" * depth
            at = data.index(key) + len(key)
            value, end = json.JSONDecoder().raw_decode(data[at:].decode())
            path.write_bytes(data[:at] + nested + data[at:].decode()[end:].encode())
            assert isinstance(list(parser_named(name).read(run_file(path))), list), value


HOSTILE: list[Any] = [None, True, -1, 2**70, 1e400, "x", "\ud800", [], {}, [None], [{"role": 1}], {"a": {"b": []}}]


@pytest.mark.slow
@pytest.mark.parametrize("rel", SAMPLES)
def test_any_value_in_any_place_is_read_or_lost_but_never_raised(tmp_path: Path, rel: str) -> None:
    name, data = SAMPLES[rel]
    by_line = rel.endswith("l")
    whole = [json.loads(line) for line in data.splitlines()] if by_line else json.loads(data)
    path = tmp_path / Path(rel).name
    for place in places(whole):
        if by_line and len(place) == 1:
            continue
        for value in HOSTILE:
            changed = json.loads(json.dumps(whole))
            inside = changed
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = value
            path.write_bytes(jsonl(changed) if by_line else document(changed))
            file = run_file(path)
            takers(file)
            checked(list(parser_named(name).read(file)))


def places(found: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    return [place for key, value in inside for place in [(*above, key), *places(value, (*above, key))]]

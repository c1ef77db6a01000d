"""Traces of spans and what trackers export: whatever the tracer, one conversation, its calls and what they came to."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import samples_agent_spans as spans
from parser_samples import losses, table, takers
from samples_calls import jsonl
from samples_traces import attributes, document, exports
from trace_pieces import kept, read, told

from ptt.diagnostics.parsers import RunFile
from ptt.diagnostics.parsers.io.message_shapes import messages_from

# spans: whatever the tracer, one conversation


TRACERS = [(rel, data) for rel, (_, data) in spans.SAMPLES.items() if isinstance(data, bytes)]


@pytest.mark.parametrize(("rel", "data"), TRACERS, ids=[rel for rel, _ in TRACERS])
def test_any_tracer_gives_the_conversation_once(tmp_path: Path, rel: str, data: bytes) -> None:
    found = read(tmp_path, rel, data)
    ((prompt, completion, tools),) = kept(found)
    assert prompt == spans.CHAT[:2]
    asked = spans.REQUEST | {"function": {"name": "look_up", "arguments": {"parcel": 7}}}
    said = [spans.CHAT[2] | {"tool_calls": [asked]}, *spans.CHAT[3:]]
    assert [{key: message[key] for key in expected} for message, expected in zip(completion, said, strict=True)] == said
    assert [tool.get("function", tool)["name"] for tool in tools] == ["look_up"]
    turns = table(found, "turns").select("role", "text_len", "n_tokens").rows()
    lengths = [len(message["content"]) for message in spans.CHAT]
    assert turns == list(zip([m["role"] for m in spans.CHAT], lengths, [None, None, 9, None, 7], strict=True))
    (call,) = table(found, "tool_calls").to_dicts()
    assert (call["name"], json.loads(call["args_json"]), call["result_len"]) == ("look_up", {"parcel": 7}, 10)
    assert (call["ok"], call["turn_idx"], call["latency_s"]) == (True, 2, pytest.approx(0.25))


def agents_sdk(name: str, start: float, parent: str | None, told: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Spell a span as OpenAI's Agents SDK exports it."""
    return {
        "object": "trace.span", "id": f"span_{name}", "trace_id": "trace_1", "parent_id": parent,
        "started_at": spans.stamp(start), "ended_at": spans.stamp(start + 0.25), "span_data": told, "error": None,
    } | more  # fmt: skip


AGENTS_SDK: list[dict[str, Any]] = [
    {"object": "trace", "id": "trace_1", "workflow_name": "Agent workflow", "group_id": None, "metadata": None},
    agents_sdk("a", 0, None, {"type": "agent", "name": "Clerk", "handoffs": [], "tools": ["look_up"]}),
    agents_sdk("g", 0, "span_a", {
        "type": "generation", "input": spans.CHAT[:2], "output": [spans.CHAT[2]], "model": "m-1",
        "usage": {"input_tokens": 40, "output_tokens": 9},
    }),
    agents_sdk("f", 1, "span_a", {
        "type": "function", "name": "look_up", "input": spans.ARGUMENTS, "output": None,
    }, error={"message": "Error running tool", "data": {"error": "no parcel 7"}}),
    agents_sdk("r", 2, "span_a", {"type": "response", "response_id": "resp_1"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rel", "data"),
    [
        ("spans.jsonl", jsonl(AGENTS_SDK)),
        ("spans.json", document({"traces": [{"id": "trace_1", "spans": AGENTS_SDK}]})),
    ],
    ids=["lines", "traces"],
)
def test_spans_of_the_agents_sdk_are_calls_of_models_and_tools(tmp_path: Path, rel: str, data: bytes) -> None:
    found = read(tmp_path, rel, data)
    assert losses(found)[0] == 0
    assert told(found, "n_turns", "n_tool_calls", "n_tool_fail", "model", "tokens_in") == [(2, 1, 1, "m-1", 40)]
    (call,) = table(found, "tool_calls").to_dicts()
    assert (call["name"], call["error_text"]) == ("look_up", "Error running tool")


@pytest.mark.parametrize("carry", [jsonl, lambda rows: document({"data": rows})], ids=["lines", "document"])
def test_start_success_and_finish_of_a_call_are_one(tmp_path: Path, carry: Any) -> None:
    rows = [stage for one in spans.INFERRED for stage in spans.staged(one)]
    found = read(tmp_path, "spans.jsonl" if carry is jsonl else "spans.json", carry(rows))
    assert told(found, "n_turns", "n_tool_calls", "n_tool_fail", "tokens_in") == [(2, 1, 0, 100)]
    (call,) = table(found, "tool_calls").to_dicts()
    assert (call["name"], json.loads(call["args_json"]), call["result_len"]) == ("call", {"parcel": 7}, 10)


def test_an_agent_that_began_and_called_nothing_is_an_attempt(tmp_path: Path) -> None:
    begun = {"event": "start", "span": {
        "span_id": "s1", "trace_id": "t1", "parent_id": None, "name": "agent.Clerk", "kind": "agent",
        "start_time": spans.stamp(0), "end_time": None, "attributes": {}, "events": [], "status": "ok",
    }}  # fmt: skip
    found = read(tmp_path, "spans.jsonl", jsonl([begun]))
    assert told(found, "n_turns", "n_tool_calls") == [(0, 0)]


def test_spans_of_no_kind_that_count_tokens_are_calls_of_a_model_where_there_are_no_others(tmp_path: Path) -> None:
    used = {"llm.model": "m-1", "llm.usage.input_tokens": 40, "llm.usage.output_tokens": 9}
    summed = spans.console(spans.PLAIN[0] | {"id": "a", "parent": "0", "attributes": used, "name": "agent"})
    calls = [
        spans.console(spans.PLAIN[1 + at] | {"id": f"b{at}", "parent": "a", "attributes": used, "name": "ask"})
        for at in range(2)
    ]
    found = read(tmp_path, "spans.jsonl", jsonl([summed, *calls]))
    assert told(found, "n_turns", "model", "tokens_in") == [(2, "m-1", 80)]
    beside = spans.console(spans.PLAIN[1])
    assert told(read(tmp_path, "more.jsonl", jsonl([summed, *calls, beside])), "n_turns") == [(1,)]


def test_a_torn_document_among_printed_spans_costs_itself(tmp_path: Path) -> None:
    torn = b'"links": ['.join(spans.PRINTED.rsplit(b'"links": []', 1))
    found = read(tmp_path, "spans.json", torn)
    assert told(found, "n_turns", "n_tool_calls") == [(2, 1)]  # the torn one was exported twice
    assert losses(found)[0] == 1


def test_a_plain_span_that_langfuse_was_sent_as_a_tools_call_is_one(tmp_path: Path) -> None:
    told = {"gen_ai.tool.call.id": "c1", "gen_ai.tool.name": "look_up", "input.value": spans.ARGUMENTS}
    rows = changed(spans.LANGFUSE, 3, type="SPAN", name="tool.look_up", input=None, metadata={"attributes": told})
    for row in rows:  # the model's own calls stand nowhere else
        if row["type"] == "GENERATION":
            row["output"] = {"role": "assistant", "content": "I look."}
    found = read(tmp_path, "observations.jsonl", jsonl(rows))
    (call,) = table(found, "tool_calls").to_dicts()
    assert (call["name"], call["call_id"], json.loads(call["args_json"])) == ("look_up", "c1", {"parcel": 7})


def changed(found: Any, at: int, **told: Any) -> Any:
    return [one | (told if number == at else {}) for number, one in enumerate(found)]


RAISED = [{"name": "exception", "attributes": {"exception.type": "KeyError", "exception.message": "no parcel 7"}}]
FAILING: dict[str, tuple[str, Any]] = {
    "langsmith_runs": ("runs.json", changed(spans.LANGSMITH, 3, error="KeyError('no parcel 7')", outputs=None)),
    "langfuse_traces": (
        "trace.json",
        spans.LANGFUSE_TRACE
        | {"observations": changed(spans.LANGFUSE, 3, level="ERROR", statusMessage="KeyError: no parcel 7")},
    ),
    "weave_calls": ("calls.json", changed(spans.WEAVE, 3, exception="KeyError: no parcel 7", output=None)),
    "mlflow_traces": (
        "trace.json",
        spans.MLFLOW
        | {"data": {"spans": changed(spans.MLFLOW_SPANS, 3, status={"code": "STATUS_CODE_ERROR"}, events=RAISED)}},
    ),
    "otel_spans": (
        "spans.json",
        exports(
            changed(spans.GEN_AI, 0, status={"code": 2}, events=[RAISED[0] | {"attributes": attributes(
                exception__type="KeyError", exception__message="no parcel 7"
            )}])
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_a_tool_that_raised_failed(tmp_path: Path, name: str) -> None:
    rel, held = FAILING[name]
    found = read(tmp_path, rel, document(held))
    assert told(found, "n_tool_calls", "n_tool_fail", "n_turns") == [(1, 1, 2)]
    ((ok, kind, text),) = table(found, "tool_calls").select("ok", "error_type", "error_text").rows()
    assert (ok, kind) == (False, "KeyError")
    assert "no parcel 7" in text


@pytest.mark.parametrize(
    ("rel", "data", "scores", "cost"),
    [
        ("runs.jsonl", jsonl(spans.LANGSMITH), {"correctness": 1.0, "tone": 0.5}, 0.5),
        ("trace.json", document(spans.LANGFUSE_TRACE), {"correctness": 1.0}, 0.5),
        ("trace.json", document(spans.MLFLOW), {"correctness": 1.0}, None),
    ],
)
def test_feedback_labels_an_episode_only_where_it_says_so(
    tmp_path: Path, rel: str, data: bytes, scores: dict[str, float], cost: float | None
) -> None:
    found = read(tmp_path, rel, data)
    assert dict(table(found, "rewards").select("name", "score").rows()) == scores
    assert told(found, "success", "cost_usd", "reward") == [(True, cost, 1.0 if len(scores) == 1 else None)]
    tasks = told(found, "task", "group_id")
    assert tasks == [("e-7", "e-7") if rel == "runs.jsonl" else (None, None)]


def test_traces_of_one_conversation_are_one_episode(tmp_path: Path) -> None:
    asked = [spans.GEN_AI[1], spans.GEN_AI[2] | {"traceId": "f" * 32}, spans.GEN_AI[0]]
    found = read(tmp_path, "spans.json", document(exports(asked)))
    assert told(found, "n_turns", "n_tool_calls") == [(2, 1)]
    apart = read(tmp_path, "spans.json", document(exports([
        one | {"traceId": f"{at:032x}"} for at, one in enumerate(spans.LLMETRY)
    ])))  # fmt: skip
    assert sorted(told(apart, "n_turns", "n_tool_calls")) == [
        (0, 1),
        (1, 0),
        (1, 1),
    ]  # a call belongs to the trace that asked for it


def test_a_client_inside_a_framework_is_counted_once(tmp_path: Path) -> None:
    inner = spans.LANGSMITH[1] | {"id": "inner", "parent_run_id": "r1", "name": "client"}
    found = read(tmp_path, "runs.jsonl", jsonl([*spans.LANGSMITH, inner]))
    assert told(found, "n_turns", "tokens_in") == [(2, 100)]


def test_of_an_evaluation_each_prediction_is_an_episode(tmp_path: Path) -> None:
    calls = [spans.weave_call("e0", "Evaluation.evaluate", 0, 9, inputs={}) | {"parent_id": None}]
    for at in range(2):
        score = {"model_output": spans.ANSWER, "scores": {"correct": at == 0, "judge": {"tone": 0.5}}}
        example = "weave:///team/project/object/rows:v1/attr/rows/id/ab12"
        calls.append(spans.weave_call(
            f"p{at}", "Evaluation.predict_and_score", at, at + 1, inputs={"example": example}, output=score,
            parent_id="e0",
        ))  # fmt: skip
        calls += [one | {"id": f"{at}{one['id']}", "parent_id": f"p{at}"} for one in spans.WEAVE[1:]]
    found = read(tmp_path, "calls.jsonl", jsonl(calls[::-1]))
    columns = ("task", "success", "n_turns", "n_tool_calls")
    assert sorted(told(found, *columns)) == [("ab12", False, 2, 1), ("ab12", True, 2, 1)]


HOSTILE: list[Any] = [
    {"run_type": "llm", "trace_id": "t", "inputs": {"messages": [[3, None, {"lc": 1, "kwargs": {"content": [{}]}}]]}},
    {"run_type": "tool", "trace_id": ["t"], "inputs": 3, "outputs": {"output": {"kwargs": 7}}, "child_runs": [3, {}]},
    {"id": "o", "traceId": "t", "type": "GENERATION", "startTime": 3, "usage": "x", "input": "[", "output": [[[[]]]]},
    {"op_name": 7, "trace_id": "t", "started_at": {}, "id": "a", "parent_id": "a", "inputs": [], "summary": 3},
    {"info": {"trace_id": 3, "experiment_id": 1, "assessments": [3]}, "data": {"spans": [3, {"attributes": 1}]}},
    {"attributes": {"mlflow.spanType": "[1]", "mlflow.spanInputs": 3}, "status": 3, "events": [{"name": "exception"}]},
    {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "t", "events": 3, "attributes": [
        {"key": "openinference.span.kind", "value": {"stringValue": "LLM"}},
        {"key": "llm.input_messages.0.message", "value": {"stringValue": "x"}},
        {"key": "llm.input_messages.0.message.role", "value": {"intValue": {}}},
        {"key": "llm.input_messages.x..", "value": {"boolValue": True}},
    ]}]}]}]},
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(HOSTILE)))
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_values_of_the_wrong_kind_do_not_raise(tmp_path: Path, at: int, suffix: str) -> None:
    found = read(tmp_path, f"export.{suffix}", jsonl([HOSTILE[at]]))
    assert table(found, "trajectories").height <= 1


@pytest.mark.parametrize(
    "row",
    [
        {"run_type": "llm", "name": "a"},
        {"run_type": ["llm"], "type": ["GENERATION"], "traceId": "t", "startTime": 1, "inputs": {}},
        {"type": "GENERATION", "input": "a"},
        {"id": "t", "timestamp": "now", "input": "a", "output": "b"},
        {"op_name": "a", "inputs": {}},
        {"info": {"model": "m"}, "data": {"spans": []}},
        {"attributes": {"color": "red"}, "trace_id": "t"},
    ],
)
def test_what_only_looks_like_an_export_is_nobodys(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "export.json"
    path.write_bytes(document([row]))
    names = {"langsmith_runs", "langfuse_traces", "weave_calls", "mlflow_traces", "otel_spans"}
    assert names.isdisjoint(takers(RunFile(path=path, rel=path.name, size=path.stat().st_size)))


def database(path: Path, tables: dict[str, list[dict[str, Any]]]) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for name, rows in tables.items():
            columns = list(rows[0])
            connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            marks = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", [tuple(row.values()) for row in rows])
        connection.commit()
    return path


def test_a_store_of_trackio_holds_traces_of_its_run(tmp_path: Path) -> None:
    log = {
        "timestamp": spans.stamp(0),
        "run_id": "r",
        "run_name": "r",
        "step": 12,
        "metrics": b'{"loss": 0.5}',
        "id": 1,
    }
    other = spans.TRACKIO[1] | {"id": "x", "run_id": "other"}
    path = database(tmp_path / "parcels.db", {"metrics": [log], "traces": [*spans.TRACKIO, other]})
    found = read(tmp_path, "parcels.db", path.read_bytes())
    assert told(found, "step", "reward", "n_turns", "n_tool_calls") == [(12, 1.0, 2, 1), (12, 0.0, 2, 1)]
    assert len(kept(found)) == 2
    assert not table(found, "metrics").is_empty()


def test_a_store_of_mlflow_holds_traces_of_agents(tmp_path: Path) -> None:
    metric = {"key": "loss", "value": 0.5, "timestamp": 1, "run_uuid": "r", "step": 1, "is_nan": 0}
    rows = [
        {
            "trace_id": "tr-1", "span_id": one["span_id"], "name": one["name"], "status": "OK",
            "start_time_unix_nano": one["start_time_unix_nano"], "end_time_unix_nano": one["end_time_unix_nano"],
            "content": json.dumps(one),
        }
        for one in spans.MLFLOW_SPANS
    ]  # fmt: skip
    tags = [{"trace_id": "tr-1", "key": "mlflow.traceName", "value": "agent"}]
    path = database(tmp_path / "mlflow.db", {"metrics": [metric], "spans": rows, "trace_tags": tags})
    found = read(tmp_path, "mlflow.db", path.read_bytes())
    assert told(found, "n_turns", "n_tool_calls", "model", "tokens_in") == [(2, 1, "m-1", 100)]
    assert kept(found)[0][0] == spans.CHAT[:2]


# what a second look at real shapes brought up


def test_openai_responses_anthropic_and_gemini_say_the_same() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": {"parcel": 7}}}
    asks = {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [call]}
    result = {"role": "tool", "content": "on its way", "tool_call_id": "c1"}
    anthropic = messages_from(
        {"system": "You track.", "messages": [
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"parcel": 7}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "on its way"}]}
            ]},
        ]},
        "user",
    )  # fmt: skip
    assert anthropic == [{"role": "system", "content": "You track."}, asks, result]
    responses = messages_from(
        {"input": [
            {"role": "developer", "content": [{"type": "input_text", "text": "You track."}]},
            {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": {"parcel": 7}},
            {"type": "function_call_output", "call_id": "c1", "output": "on its way"},
        ]},
        "user",
    )  # fmt: skip
    assert responses == [anthropic[0], {"role": "assistant", "content": "", "tool_calls": [call]}, result]
    gemini = messages_from(
        {"candidates": [{"content": {"role": "model", "parts": [
            {"text": "I look."}, {"functionCall": {"name": "look_up", "args": {"parcel": 7}, "id": "c1"}},
        ]}}]},
        "assistant",
    )  # fmt: skip
    assert gemini == [{"role": "assistant", "content": "I look.", "tool_calls": [call]}]


def test_deep_nesting_ends(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(400):
        deep = {"messages": [deep]}
    assert messages_from(deep, "user") == []
    found = read(tmp_path, "runs.jsonl", jsonl([spans.LANGSMITH[1] | {"inputs": deep}]))
    assert table(found, "trajectories").height <= 1


def test_mlflow_keeps_the_names_of_other_tracers(tmp_path: Path) -> None:
    told_by = {key: json.dumps(value) for key, value in {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m-1", "gen_ai.usage.input_tokens": 40,
        "gen_ai.response.finish_reasons": ["length"], "gen_ai.input.messages": [spans.parts(spans.CHAT[1])],
        "gen_ai.output.messages": [spans.parts(spans.CHAT[2])],
    }.items()}  # fmt: skip
    one = spans.MLFLOW_SPANS[1]
    bridged = one | {"attributes": {"mlflow.traceRequestId": "tr-1", "mlflow.spanType": "UNKNOWN"} | told_by}
    found = read(tmp_path, "trace.json", document({"spans": [bridged]}))
    columns = ("n_turns", "n_tool_calls", "model", "tokens_in", "stop_reason", "truncated")
    assert told(found, *columns) == [(1, 1, "m-1", 40, "length", True)]
    assert kept(found)[0][0] == [spans.CHAT[1]]


def test_a_root_tells_what_a_trace_does_where_nothing_else_does(tmp_path: Path) -> None:
    root = spans.observation("turn", "AGENT", 0, 3, input=spans.ASKED, output=spans.ANSWER) | {
        "parentObservationId": None, "level": "ERROR", "statusMessage": "Timeout: 30 s",
    }  # fmt: skip
    found = read(tmp_path, "page.json", document({"data": [root], "meta": {"cursor": None}}))
    assert told(found, "n_turns", "n_tool_calls", "error_type") == [(1, 0, "Timeout")]
    ((prompt, completion, _),) = kept(found)
    assert (prompt[0]["content"], completion[0]["content"]) == (spans.ASKED, spans.ANSWER)


def test_a_cell_without_end_costs_what_is_behind_it_and_is_counted(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("ptt.diagnostics.parsers.io.record_files.MAX_CELL", 5_000)
    rows = spans.table(spans.LANGFUSE_FILE)
    before = csv.field_size_limit()
    found = read(tmp_path, "files.csv", rows + b'"' + b"x" * 9_000 + b"\n1,2\n")
    assert table(found, "trajectories").height == 1
    assert losses(found)[0] == 1
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    "data", [b"", b"a,b,c,d,e\n", b'a,b,c,d,e\n"', b"step,loss,kl,lr,x\n1,2,3,4,5\n", b"\0,,,,,\n\0\n"]
)
def test_a_table_of_something_else_is_no_export(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(data)
    assert "langfuse_traces" not in takers(RunFile(path=path, rel=path.name, size=len(data)))


def senders() -> dict[str, list[dict[str, Any]]]:
    """Spans of one call of a model and one of a tool, as those send them who keep names of their own."""
    asked, said, found = json.dumps(spans.CHAT[:2]), json.dumps(spans.CHAT[2]), spans.FOUND
    kinds = {
        "langfuse": (
            {"langfuse.observation.type": "generation"},
            {"langfuse.observation.type": "tool", "tool.name": "look_up"},
            ("langfuse.observation.input", "langfuse.observation.output"),
        ),
        "braintrust": (
            {"braintrust.span_attributes": '{"type": "llm"}'},
            {"braintrust.span_attributes": '{"type": "tool"}', "gen_ai.tool.name": "look_up"},
            ("braintrust.input_json", "braintrust.output_json"),
        ),
        "mlflow": (
            {"mlflow.spanType": '"CHAT_MODEL"'},
            {"mlflow.spanType": '"TOOL"', "tool.name": "look_up"},
            ("mlflow.spanInputs", "mlflow.spanOutputs"),
        ),
    }
    return {
        name: [
            spans.span(1, 0, 1, model | {asks: asked, says: said}),
            spans.span(2, 1.25, 1.5, tool | {asks: spans.ARGUMENTS, says: found}),
        ]
        for name, (model, tool, (asks, says)) in kinds.items()
    } | {
        "litellm": [
            spans.span(1, 0, 1, {
                "gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps([spans.parts(spans.CHAT[1])]),
                "gen_ai.output.messages": '[{"role": "assistant", "parts": [], "finish_reason": "tool_calls"}]',
                "gen_ai.response.finish_reasons": '["tool_calls"]',
                "gen_ai.completion.0.function_call.name": "look_up",
                "gen_ai.completion.0.function_call.arguments": spans.ARGUMENTS,
            })
        ],
        "pydantic": [
            spans.span(1, 0, 1, {"gen_ai.operation.name": "chat", "gen_ai.input.messages": asked}),
            spans.span(2, 1.25, 1.5, {
                "gen_ai.tool.name": "look_up", "gen_ai.tool.call.id": "c1", "tool_arguments": spans.ARGUMENTS,
                "tool_response": found,
            }),
        ],
    }  # fmt: skip


@pytest.mark.parametrize("name", senders())
def test_who_sends_spans_may_name_things_otherwise(tmp_path: Path, name: str) -> None:
    found = read(tmp_path, "spans.json", document(exports(senders()[name])))
    assert told(found, "n_turns", "n_tool_calls") == [(1, 1)]
    (call,) = table(found, "tool_calls").to_dicts()
    assert (call["name"], json.loads(call["args_json"])) == ("look_up", {"parcel": 7})
    assert call["result_len"] == (None if name == "litellm" else 10)
    assert kept(found)[0][0][-1]["content"] == spans.ASKED
    assert told(found, "stop_reason") == [("tool_calls" if name == "litellm" else None,)]

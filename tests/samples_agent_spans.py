"""Samples of traces as their tracers write them, field by field after the sources that the parsers name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from samples_calls import jsonl
from samples_traces import attributes, document, exports

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look_up", "description": "finds a parcel", "parameters": {"type": "object"}},
}
SYSTEM, ASKED = "You track parcels.", "Where is parcel 7?"
FOUND, ANSWER = "on its way", "Parcel 7 is on its way."
ARGUMENTS = json.dumps({"parcel": 7})
EPOCH = 1_700_000_000
REQUEST: dict[str, Any] = {
    "id": "c1",
    "type": "function",
    "function": {"name": "look_up", "arguments": ARGUMENTS},
}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": ASKED},
    {"role": "assistant", "content": "", "tool_calls": [REQUEST]},
    {"role": "tool", "tool_call_id": "c1", "content": FOUND},
    {"role": "assistant", "content": ANSWER},
]
"""The conversation that each sample below holds: two calls of a model, one of a tool that works."""


def stamp(seconds: float) -> str:
    return f"2023-11-14T22:13:{20 + seconds:09.6f}+00:00"


def span(number: int, start: float, end: float, told: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": f"{number:016x}",
        "parentSpanId": f"{99:016x}",
        "name": more.pop("name", "call"),
        "startTimeUnixNano": str(EPOCH * 10**9 + int(start * 10**9)),
        "endTimeUnixNano": str(EPOCH * 10**9 + int(end * 10**9)),
        "status": more.pop("status", {}),
        "attributes": attributes(**{key.replace(".", "__"): value for key, value in told.items()}),
        **more,
    }


def flat(prefix: str, found: Any) -> dict[str, Any]:
    """Spell nested values as attributes with numbered names."""
    if isinstance(found, dict):
        return {name: v for key, value in found.items() for name, v in flat(f"{prefix}.{key}", value).items()}
    if isinstance(found, list):
        return {name: v for at, value in enumerate(found) for name, v in flat(f"{prefix}.{at}", value).items()}
    return {prefix: found}


def parts(message: dict[str, Any]) -> dict[str, Any]:
    """Spell a message as OpenTelemetry's conventions do."""
    kept: list[dict[str, Any]] = []
    if message["role"] == "tool":
        kept.append({"type": "tool_call_response", "id": message["tool_call_id"], "response": message["content"]})
    elif message["content"]:
        kept.append({"type": "text", "content": message["content"]})
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = json.loads(function["arguments"])
        kept.append({"type": "tool_call", "id": call["id"], "name": function["name"], "arguments": arguments})
    return {"role": message["role"], "parts": kept}


def open_inference(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{"tool_call": {"id": call["id"], "function": call["function"]}} for call in message.get("tool_calls", ())]
    rest = {key: value for key, value in message.items() if key != "tool_calls" and value}
    return {"message": rest | ({"tool_calls": calls} if calls else {})}


def llmetry(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())]
    return {k: v for k, v in message.items() if k != "tool_calls"} | ({"tool_calls": calls} if calls else {})


TOKENS = [(40, 9), (60, 7)]
ASKS = [CHAT[:2], CHAT[:4]]
SAYS = [CHAT[2], CHAT[4]]
TIMES = [(0.0, 1.0), (2.0, 2.5)]

GEN_AI = [
    span(1, 1.25, 1.5, {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look_up", "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": ARGUMENTS, "gen_ai.tool.call.result": FOUND,
    }, status={"code": 1}),
    *(
        span(2 + at, *TIMES[at], {
            "gen_ai.operation.name": "chat", "gen_ai.response.model": "m-1", "gen_ai.conversation.id": "talk-1",
            "gen_ai.usage.input_tokens": TOKENS[at][0], "gen_ai.usage.output_tokens": TOKENS[at][1],
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": SYSTEM}]),
            "gen_ai.input.messages": json.dumps([parts(message) for message in ASKS[at][1:]]),
            "gen_ai.output.messages": json.dumps([parts(SAYS[at]) | {"finish_reason": "stop"}]),
            "gen_ai.tool.definitions": json.dumps([TOOL]),
        })
        for at in range(2)
    ),
]  # fmt: skip
OPEN_INFERENCE = [
    span(1, 1.25, 1.5, {
        "openinference.span.kind": "TOOL", "tool.name": "look_up", "input.value": ARGUMENTS, "output.value": FOUND,
    }, status={"code": 1}),
    *(
        span(2 + at, *TIMES[at], {
            "openinference.span.kind": "LLM", "llm.model_name": "m-1", "llm.token_count.prompt": TOKENS[at][0],
            "llm.token_count.completion": TOKENS[at][1], "llm.tools.0.tool.json_schema": json.dumps(TOOL),
            **flat("llm.input_messages", [open_inference(message) for message in ASKS[at]]),
            **flat("llm.output_messages", [open_inference(SAYS[at])]),
        })
        for at in range(2)
    ),
]  # fmt: skip
LLMETRY = [
    span(1, 1.25, 1.5, {
        "traceloop.span.kind": "tool", "traceloop.entity.name": "look_up", "traceloop.entity.input": ARGUMENTS,
        "traceloop.entity.output": FOUND,
    }, status={"code": 1}),
    *(
        span(2 + at, *TIMES[at], {
            "llm.request.type": "chat", "gen_ai.request.model": "m-1", "gen_ai.usage.prompt_tokens": TOKENS[at][0],
            "gen_ai.usage.completion_tokens": TOKENS[at][1], "gen_ai.request.tools": json.dumps([TOOL]),
            **flat("gen_ai.prompt", [llmetry(message) for message in ASKS[at]]),
            **flat("gen_ai.completion", [llmetry(SAYS[at]) | {"finish_reason": "stop"}]),
        })
        for at in range(2)
    ),
]  # fmt: skip
VERCEL = [
    span(1, 1.25, 1.5, {
        "ai.operationId": "ai.toolCall", "ai.toolCall.name": "look_up", "ai.toolCall.id": "c1",
        "ai.toolCall.args": ARGUMENTS, "ai.toolCall.result": FOUND,
    }, status={"code": 1}),
    *(
        span(2 + at, *TIMES[at], {
            "ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m-1",
            "ai.usage.promptTokens": TOKENS[at][0], "ai.usage.completionTokens": TOKENS[at][1],
            "ai.response.finishReason": "stop", "ai.prompt.messages": json.dumps(ASKS[at]),
            "gen_ai.tool.definitions": json.dumps([TOOL]),
            **({"ai.response.text": ANSWER} if at else {
                "ai.response.toolCalls": json.dumps([{"toolCallId": "c1", "toolName": "look_up", "input": ARGUMENTS}]),
            }),
        })
        for at in range(2)
    ),
]  # fmt: skip
CONVENTIONS = {"gen_ai": GEN_AI, "openinference": OPEN_INFERENCE, "openllmetry": LLMETRY, "vercel": VERCEL}


def plain(otlp: dict[str, Any]) -> dict[str, Any]:
    """Return what a span of OTLP says, without its spelling."""
    told = {one["key"]: next(iter(one["value"].values())) for one in otlp["attributes"]}
    return {
        "trace": otlp["traceId"], "id": otlp["spanId"], "parent": otlp["parentSpanId"], "name": otlp["name"],
        "start": int(otlp["startTimeUnixNano"]), "end": int(otlp["endTimeUnixNano"]), "attributes": told,
        "ok": bool(otlp["status"]),
    }  # fmt: skip


def iso(nanoseconds: int) -> str:
    return stamp(nanoseconds / 1e9 - EPOCH).replace("+00:00", "Z")


def console(one: dict[str, Any]) -> dict[str, Any]:
    """Spell a span as the console exporter of OpenTelemetry's Python SDK does."""
    return {
        "name": one["name"], "context": {"trace_id": f"0x{one['trace']}", "span_id": f"0x{one['id']}"},
        "kind": "SpanKind.INTERNAL", "parent_id": f"0x{one['parent']}", "start_time": iso(one["start"]),
        "end_time": iso(one["end"]), "status": {"status_code": "OK" if one["ok"] else "UNSET"},
        "attributes": one["attributes"], "events": [], "links": [], "resource": {"attributes": {}, "schema_url": ""},
    }  # fmt: skip


def phoenix(one: dict[str, Any]) -> dict[str, Any]:
    """Spell a span as Phoenix does, its attributes in objects."""
    tree: dict[str, Any] = {}
    for name, value in one["attributes"].items():
        *path, last = name.split(".")
        place = tree
        for step in path:
            place = place.setdefault(step, {})
        place[last] = value
    return {
        "id": one["id"], "name": one["name"], "context": {"trace_id": one["trace"], "span_id": one["id"]},
        "span_kind": tree["openinference"]["span"]["kind"], "parent_id": one["parent"],
        "start_time": iso(one["start"]), "end_time": iso(one["end"]), "status_code": "OK" if one["ok"] else "UNSET",
        "status_message": "", "attributes": tree, "events": [],
    }  # fmt: skip


def jaeger(one: dict[str, Any]) -> dict[str, Any]:
    tags = [{"key": key, "type": "string", "value": str(value)} for key, value in one["attributes"].items()]
    return {
        "traceID": one["trace"], "spanID": one["id"], "operationName": one["name"],
        "references": [{"refType": "CHILD_OF", "traceID": one["trace"], "spanID": one["parent"]}],
        "startTime": one["start"] // 1000, "duration": (one["end"] - one["start"]) // 1000,
        "tags": [*tags, {"key": "span.kind", "type": "string", "value": "client"}], "logs": [], "processID": "p1",
    }  # fmt: skip


def events_of(one: dict[str, Any]) -> list[dict[str, Any]]:
    """Spell a span as two events, as ports of the Agents SDK log it: when it began, and when it had ended."""
    row = {
        "span_id": one["id"], "trace_id": one["trace"], "parent_id": one["parent"], "name": one["name"],
        "kind": one["attributes"]["openinference.span.kind"].lower(), "start_time": iso(one["start"]),
        "attributes": one["attributes"], "events": [], "status": "ok",
    }  # fmt: skip
    return [
        {"event": "start", "span": row | {"end_time": None, "attributes": {}}},
        {"event": "end", "span": row | {"end_time": iso(one["end"])}},
    ]


def staged(one: dict[str, Any]) -> list[dict[str, Any]]:
    """Spell a call as BeeAI does: a span when it starts, one when it succeeds, one when it has finished."""
    told = one["attributes"]
    later = {key: value for key, value in told.items() if "output" in key or "completion" in key or "name" in key}
    kind = {"openinference.span.kind": told["openinference.span.kind"]}
    asked = kind | {key: value for key, value in told.items() if key not in later}
    spans = [(one["start"], "start", asked), (one["end"], "success", kind | later), (one["end"], "finish", kind)]
    return [
        console(one | {"name": f"{one['name']}.{stage}-{one['id']}", "start": at, "end": at, "attributes": attributes,
                       "id": f"{one['id']}{stage}", "ok": False})
        for at, stage, attributes in spans
    ]  # fmt: skip


PLAIN = [plain(one) for one in GEN_AI]
INFERRED = [plain(one) for one in OPEN_INFERENCE]
PRINTED = "\n".join(json.dumps(console(one), indent=4) for one in [*PLAIN, PLAIN[0]]).encode()  # one is exported twice
CARRIED: dict[str, bytes] = {
    "otel/console.json": PRINTED,
    "otel/printed.jsonl": PRINTED,
    "otel/printed.txt": PRINTED,
    "otel/phoenix.json": document([phoenix(one) for one in INFERRED]),
    "otel/phoenix.jsonl": jsonl([console(one) | {"span_kind": "UNKNOWN"} for one in INFERRED]),
    "otel/jaeger.json": document({"data": [{"traceID": "5b", "spans": [jaeger(one) for one in PLAIN]}], "total": 0}),
    "otel/events.jsonl": jsonl([event for one in INFERRED for event in events_of(one)]),
}
"""The same spans as others export them."""


def dumped(message: dict[str, Any]) -> dict[str, Any]:
    """Spell a message as LangChain's `dumpd` does."""
    kind = {"system": "SystemMessage", "user": "HumanMessage", "assistant": "AIMessage", "tool": "ToolMessage"}
    calls = [
        {"id": call["id"], "name": call["function"]["name"], "args": json.loads(call["function"]["arguments"])}
        for call in message.get("tool_calls", ())
    ]
    told = {key: value for key, value in message.items() if key not in ("role", "tool_calls")}
    name = ["langchain", "schema", "messages", kind[message["role"]]]
    return {"lc": 1, "type": "constructor", "id": name, "kwargs": told | ({"tool_calls": calls} if calls else {})}


def run(name: str, kind: str, start: float, end: float, **told: Any) -> dict[str, Any]:
    return {
        "id": name, "trace_id": "r0", "parent_run_id": "r0", "name": name, "run_type": kind, "error": None,
        "start_time": stamp(start), "end_time": stamp(end), **told,
    }  # fmt: skip


LANGSMITH: list[dict[str, Any]] = [
    run("r0", "chain", 0, 3, inputs={"question": ASKED}, outputs={"answer": ANSWER}, reference_example_id="e-7")
    | {"parent_run_id": None, "feedback_stats": {"correctness": {"n": 1, "avg": 1.0}, "tone": {"n": 2, "avg": 0.5}}},
    *(
        run(
            f"r{1 + at}", "llm", *TIMES[at],
            inputs={"messages": [[dumped(message) for message in ASKS[at]]]},
            outputs={"generations": [[{
                "text": SAYS[at]["content"], "type": "ChatGeneration", "message": dumped(SAYS[at]),
                "generation_info": {"finish_reason": "stop"},
            }]]},
            extra={"metadata": {"ls_model_name": "m-1"}, "invocation_params": {"tools": [TOOL]}},
            prompt_tokens=TOKENS[at][0], completion_tokens=TOKENS[at][1], total_cost=0.25,
        )
        for at in range(2)
    ),
    run(
        "look_up", "tool", 1.25, 1.5, inputs={"input": ARGUMENTS},
        outputs={"output": dumped(CHAT[3]) | {"type": "constructor"}},
    ),
]  # fmt: skip
NESTED = LANGSMITH[0] | {"child_runs": [{k: v for k, v in one.items() if k != "trace_id"} for one in LANGSMITH[1:]]}


def observation(name: str, kind: str, start: float, end: float, **told: Any) -> dict[str, Any]:
    return {
        "id": f"o-{name}-{start}", "traceId": "t-1", "type": kind, "name": name, "parentObservationId": "o-0",
        "startTime": stamp(start), "endTime": stamp(end), "level": "DEFAULT", "statusMessage": None, **told,
    }  # fmt: skip


LANGFUSE: list[dict[str, Any]] = [
    *(
        observation(
            "chat", "GENERATION", *TIMES[at], input={"messages": ASKS[at], "tools": [TOOL]}, output=SAYS[at],
            model="m-1", usageDetails={"input": TOKENS[at][0], "output": TOKENS[at][1]}, calculatedTotalCost=0.25,
        )
        for at in range(2)
    ),
    observation("agent", "SPAN", 0, 3, input=ASKED, output=ANSWER),
    observation("look_up", "SPAN", 1.25, 1.5, input={"parcel": 7}, output=FOUND),
]  # fmt: skip
LANGFUSE_TRACE: dict[str, Any] = {
    "id": "t-1",
    "timestamp": stamp(0),
    "name": "parcels",
    "sessionId": "s",
    "input": ASKED,
    "output": ANSWER,
    "observations": LANGFUSE,
    "scores": [{"name": "correctness", "value": 1, "dataType": "BOOLEAN"}],
}
SNAKE = {"traceId": "trace_id", "parentObservationId": "parent_observation_id", "startTime": "start_time"} | {
    "endTime": "end_time", "usageDetails": "usage_details", "calculatedTotalCost": "total_cost",
    "statusMessage": "status_message", "model": "provided_model_name",
}  # fmt: skip
LANGFUSE_FILE = [
    {SNAKE.get(key, key): json.dumps(value) if isinstance(value, (dict, list)) else value for key, value in one.items()}
    for one in LANGFUSE
]


def table(rows: list[dict[str, Any]]) -> bytes:
    """Write rows as CSV; what is no text is JSON."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, sorted({key for row in rows for key in row}))
    writer.writeheader()
    writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
    return text.getvalue().encode()


def weave_call(name: str, op: str, start: float, end: float, **told: Any) -> dict[str, Any]:
    return {
        "id": name, "trace_id": "w-1", "parent_id": "w0", "op_name": f"weave:///team/project/op/{op}:v0",
        "started_at": stamp(start), "ended_at": stamp(end), "attributes": {}, "exception": None, **told,
    }  # fmt: skip


WEAVE: list[dict[str, Any]] = [
    weave_call("w0", "agent", 0, 3, inputs={"question": ASKED}, output=ANSWER) | {"parent_id": None},
    *(
        weave_call(
            f"w{1 + at}", "openai.chat.completions.create", *TIMES[at],
            inputs={"self": "client", "model": "m", "messages": ASKS[at], "tools": [TOOL]},
            output={"model": "m-1", "choices": [{"message": SAYS[at], "finish_reason": "stop"}]},
            summary={"usage": {"m-1": {"prompt_tokens": TOKENS[at][0], "completion_tokens": TOKENS[at][1]}}},
        )
        for at in range(2)
    ),
    weave_call("w3", "look_up", 1.25, 1.5, inputs={"parcel": 7}, output=FOUND),
]  # fmt: skip


def mlflow_span(
    name: str, kind: str, start: float, end: float, inputs: Any, outputs: Any, **told: Any
) -> dict[str, Any]:
    spelt = {"spanType": kind, "spanInputs": inputs, "spanOutputs": outputs, "traceRequestId": "tr-1", **told}
    return {
        "trace_id": "dGhlIHRyYWNl", "span_id": f"{name}{start}", "name": name,
        "parent_span_id": None if kind == "AGENT" else "agent0",
        "start_time_unix_nano": EPOCH * 10**9 + int(start * 10**9),
        "end_time_unix_nano": EPOCH * 10**9 + int(end * 10**9), "events": [],
        "status": {"code": "STATUS_CODE_OK", "message": ""},
        "attributes": {f"mlflow.{key}".replace("__", "."): json.dumps(value) for key, value in spelt.items()},
    }  # fmt: skip


MLFLOW_SPANS = [
    mlflow_span("agent", "AGENT", 0, 3, {"question": ASKED}, ANSWER),
    *(
        mlflow_span(
            "chat", "CHAT_MODEL", TIMES[at][0], TIMES[at][1], {"messages": ASKS[at], "model": "m"},
            {"model": "m-1", "choices": [{"message": SAYS[at], "finish_reason": "stop"}]},
            chat__tools=[TOOL], chat__tokenUsage={"input_tokens": TOKENS[at][0], "output_tokens": TOKENS[at][1]},
        )
        for at in range(2)
    ),
    mlflow_span("look_up", "TOOL", 1.25, 1.5, {"parcel": 7}, FOUND),
]  # fmt: skip
MLFLOW: dict[str, Any] = {
    "info": {
        "trace_id": "tr-1",
        "state": "OK",
        "assessments": [{"assessment_name": "correctness", "feedback": {"value": "yes"}}],
    },
    "data": {"spans": MLFLOW_SPANS},
}

TRACKIO: list[dict[str, Any]] = [
    {
        "id": "run:log:rollouts", "run_id": "r", "timestamp": stamp(0), "run_name": "r", "step": 12,
        "key": "train/rollouts", "trace_index": at, "messages": json.dumps(CHAT), "search_text": "", "log_id": "log",
        "metadata": json.dumps({"reward": 1.0 - at, "success": not at, "task": "parcel-7", "tone_score": 0.5}),
        "space_id": None,
    }
    for at in range(2)
]  # fmt: skip


def trackio_table(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(TRACKIO), path)


SAMPLES: dict[str, tuple[str, bytes | Callable[[Path], None]]] = {
    **{f"otel/{name}.json": ("otel_spans", document(exports(spans))) for name, spans in CONVENTIONS.items()},
    **{rel: ("otel_spans", data) for rel, data in CARRIED.items()},
    "otel/lines.jsonl": ("otel_spans", jsonl([exports([one]) for one in GEN_AI])),
    "langsmith/runs.jsonl": ("langsmith_runs", jsonl(LANGSMITH)),
    "langsmith/trace.json": ("langsmith_runs", document({"trace_id": "r0", "runs": LANGSMITH[::-1]})),
    "langsmith/nested.json": ("langsmith_runs", document(NESTED)),
    "langfuse/observations.jsonl": ("langfuse_traces", jsonl(LANGFUSE)),
    "langfuse/files.jsonl": ("langfuse_traces", jsonl(LANGFUSE_FILE)),
    "langfuse/files.csv": ("langfuse_traces", table(LANGFUSE_FILE)),
    "langfuse/download.json": ("langfuse_traces", document({"trace": LANGFUSE_TRACE, "observations": LANGFUSE})),
    "langfuse/page.json": ("langfuse_traces", document({"data": LANGFUSE, "meta": {"page": 1}})),
    "langfuse/trace.json": ("langfuse_traces", document(LANGFUSE_TRACE)),
    "langfuse/traces.json": ("langfuse_traces", document([LANGFUSE_TRACE])),
    "weave/calls.jsonl": ("weave_calls", jsonl(WEAVE[::-1])),
    "weave/calls.json": ("weave_calls", document({"calls": WEAVE})),
    "mlflow/trace.json": ("mlflow_traces", document(MLFLOW)),
    "mlflow/traces.jsonl": ("mlflow_traces", jsonl([MLFLOW])),
    "mlflow/artifacts/traces.json": ("mlflow_traces", document({"spans": MLFLOW_SPANS})),
}
ROWS: dict[str, tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    rel: (
        "trajectories",
        ("n_turns", "n_tool_calls", "n_tool_fail", "model", "tokens_in", "tokens_out", "tools_offered"),
        [(2, 1, 0, "m-1", 100, 16, ["look_up"])],
    )
    for rel in SAMPLES
} | {
    "trackio/parcels_traces.parquet": (
        "trajectories",
        ("step", "split", "reward", "success", "task", "n_turns", "n_tool_calls"),
        [(12, "train", 1.0, True, "parcel-7", 2, 1), (12, "train", 0.0, False, "parcel-7", 2, 1)],
    )
}
SAMPLES["trackio/parcels_traces.parquet"] = ("trackio_traces", trackio_table)

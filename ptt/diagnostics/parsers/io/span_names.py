"""What attributes of spans are called: OpenTelemetry's names, and those of tracers from before them or beside them.

Source: open-telemetry/semantic-conventions at 7b0c0fe, docs/gen-ai/ (`gen_ai.*`; also in events of a span),
traceloop/openllmetry (`gen_ai.prompt.0.content`, `traceloop.*`), Arize-ai/openinference at 1fe497f,
spec/semantic_conventions.md (`llm.input_messages.0.message.content`, `openinference.span.kind`), vercel/ai
(`ai.prompt.messages`, `ai.toolCall.*`), BerriAI/litellm at d59f8f9, litellm/integrations/opentelemetry.py,
monocle2ai/monocle (`span.type`, events `data.input`, `data.output`), and what Langfuse, MLflow, Braintrust, Pydantic
AI, BeeAI and ports of the Agents SDK send. A kind is also found under other names, by how they end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ptt.diagnostics.parsers.io.message_shapes import decoded, definitions_in, messages_from
from ptt.diagnostics.parsers.io.values import as_label, as_name, dicts_in

MODEL, TOOL = "model", "tool"
KINDS: Final = {
    "gen_ai.operation.name": {
        "chat": MODEL, "text_completion": MODEL, "generate_content": MODEL, "execute_tool": TOOL,
    },
    "openinference.span.kind": {"LLM": MODEL, "TOOL": TOOL},
    "traceloop.span.kind": {"tool": TOOL},
    "llm.request.type": {"chat": MODEL, "completion": MODEL},
    "langfuse.observation.type": {"generation": MODEL, "tool": TOOL},
    "span.type": {
        "inference": MODEL, "inference.framework": MODEL, "agentic.tool.invocation": TOOL,
        "agentic.mcp.invocation": TOOL,
    },
    "mlflow.spanType": {"CHAT_MODEL": MODEL, "LLM": MODEL, "TOOL": TOOL},
    "ai.operationId": {
        "ai.generateText.doGenerate": MODEL, "ai.streamText.doStream": MODEL, "ai.generateObject.doGenerate": MODEL,
        "ai.streamObject.doStream": MODEL, "ai.toolCall": TOOL,
    },
}  # fmt: skip
"""The attributes that give a span's kind, in order of preference."""
KIND_ENDS: Final = (".kind", "span.type", "span_kind", "span_type", "spantype")
SAID_KINDS: Final = {"llm": MODEL, "chat_model": MODEL, "generation": MODEL, "tool": TOOL}
"""How names of other attributes end that give a kind, and what they say."""
OF_TOOLS: Final = frozenset(
    {"gen_ai.tool.call.id", "tool.name", "tool_name", "function.name"}
)  # of a call, if no kind is given
MODEL_NAMES: Final = (
    "gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.response.model", "ai.model.id",
    "llm.request.model", "llm.model", "model",
)  # fmt: skip
INPUT_TOKENS: Final = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "ai.usage.promptTokens",
    "ai.usage.inputTokens", "llm.usage.input_tokens", "llm.usage.prompt_tokens", "metrics.prompt_tokens",
)  # fmt: skip
OUTPUT_TOKENS: Final = (
    "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
    "ai.usage.completionTokens", "ai.usage.outputTokens", "llm.usage.output_tokens", "llm.usage.completion_tokens",
    "metrics.completion_tokens",
)  # fmt: skip
COSTS: Final = ("gen_ai.usage.cost", "gen_ai.cost.total_cost", "llm.cost.total")
TOOL_NAMES: Final = (
    "gen_ai.tool.name", "tool.name", "ai.toolCall.name", "tool_name", "function.name", "traceloop.entity.name",
    "entity.1.name",
)  # fmt: skip
ARGUMENTS: Final = (
    "gen_ai.tool.call.arguments", "ai.toolCall.args", "tool_arguments", "tool.arguments", "tool.parameters",
    "tool.input", "function.input", "traceloop.entity.input", "input.value", "langfuse.observation.input",
    "braintrust.input_json", "mlflow.spanInputs",
)  # fmt: skip
RESULTS: Final = (
    "gen_ai.tool.call.result", "ai.toolCall.result", "tool_response", "tool.result", "tool.output", "function.output",
    "traceloop.entity.output", "output.value",
    "langfuse.observation.output", "braintrust.output_json", "mlflow.spanOutputs",
)  # fmt: skip
CALL_IDS: Final = ("gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id", "tool.call_id", "tool.id")
INPUTS: Final = (
    "gen_ai.input.messages", "ai.prompt.messages", "gen_ai.prompt", "langfuse.observation.input",
    "braintrust.input_json", "mlflow.spanInputs", "llm.request.messages", "llm.messages",
)  # fmt: skip
OUTPUTS: Final = (
    "gen_ai.output.messages", "gen_ai.completion", "langfuse.observation.output", "braintrust.output_json",
    "mlflow.spanOutputs", "llm.response.message", "llm.response.content",
)  # fmt: skip
INDEXED_INPUTS: Final = ("gen_ai.prompt.", "llm.input_messages.")
INDEXED_OUTPUTS: Final = ("gen_ai.completion.", "llm.output_messages.")
INDEXED: Final = (*INDEXED_INPUTS, *INDEXED_OUTPUTS, "llm.tools.")
EVENT_INPUT, EVENT_OUTPUT = "data.input", "data.output"  # events whose attributes are what went in and came out
WRAPPERS: Final = frozenset({"message", "tool_call", "message_content", "tool"})  # steps of a path that say nothing
STOPS: Final = ("ai.response.finishReason", "gen_ai.completion.0.finish_reason", "llm.finish_reason")
DEFINITIONS: Final = ("gen_ai.tool.definitions", "gen_ai.request.tools", "ai.prompt.tools")
TOOL_SPANS: Final = ("execute_tool ", "running tool: ", "tool: ", "tool.")  # how names of spans begin
STAGE: Final = re.compile(r"(.{1,300})\.(start|success|error|finish)(?:-(\w{1,36}))?", re.DOTALL)
MAX_PATH: Final = 8  # steps of an attribute's name


def first(attributes: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the first of some attributes that there is."""
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def kind_of(attributes: Mapping[str, Any]) -> str | None:
    """Return whether a span is a call of a model or a tool; None for all others, agents included."""
    for name, kinds in KINDS.items():
        if isinstance(said := attributes.get(name), str):
            kind = kinds.get(said) or kinds.get(said.strip('"'))  # MLflow's values are texts of JSON
            if kind is not None or name == "gen_ai.operation.name":
                return kind
    told = decoded(attributes.get("braintrust.span_attributes"))
    if isinstance(told, dict):
        return {"llm": MODEL, "tool": TOOL}.get(as_name(told.get("type")) or "")
    said = (as_name(value) for name, value in attributes.items() if name.lower().endswith(KIND_ENDS))
    kind = next((SAID_KINDS[name.lower()] for name in said if name and name.lower() in SAID_KINDS), None)
    if kind is not None or not KINDS.keys().isdisjoint(attributes) or OF_TOOLS.isdisjoint(attributes):
        return kind
    called = first(attributes, TOOL_NAMES) is not None
    return TOOL if called and first(attributes, (*ARGUMENTS, *RESULTS, *CALL_IDS)) is not None else None


def may_be_of_model(attributes: Mapping[str, Any]) -> bool:
    """Return whether a span of no kind names a model and counts tokens: a call of it, or what sums some up."""
    counted = first(attributes, (*INPUT_TOKENS, *OUTPUT_TOKENS)) is not None
    return counted and first(attributes, MODEL_NAMES) is not None and KINDS.keys().isdisjoint(attributes)


def named(span: str | None) -> str | None:
    """Return the tool that the name of a span tells."""
    name = span or ""
    return name.removeprefix(next((begin for begin in TOOL_SPANS if name.startswith(begin)), "")) or None


def stage_of(span: str | None) -> tuple[str, str] | None:
    """Return what a span shares with the others of one call, where a call is told as start, success and finish."""
    found = STAGE.fullmatch(span or "")
    return (found[1], found[3] or "") if found else None


def asked_of(attributes: Mapping[str, Any], events: list[tuple[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the messages that a model was sent; None where no texts were kept."""
    told = _told(attributes, events, INPUTS, INDEXED_INPUTS)
    if told is None:
        said = [_event_message(name, event) for name, event in events if name.endswith(".message")]
        told = [message for messages in said for message in messages] or None
    if told is None and attributes.get("input.value") is not None:
        told = messages_from(attributes["input.value"], "user")
    if told is None and (held := event(events, EVENT_INPUT)) is not None:
        told = messages_from(held, "user")
    system = messages_from(attributes.get("gen_ai.system_instructions"), "system")
    return told if told is None else system + told


def answered_of(attributes: Mapping[str, Any], events: list[tuple[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the messages that a model answered; None where no texts were kept."""
    told = _told(attributes, events, OUTPUTS, INDEXED_OUTPUTS)
    if told is None:
        said = [_event_message(name, event) for name, event in events if name == "gen_ai.choice"]
        told = [message for messages in said for message in messages] or None
    text, calls = attributes.get("ai.response.text"), decoded(attributes.get("ai.response.toolCalls"))
    if told is None and (text is not None or calls):
        told = messages_from({"role": "assistant", "content": text, "tool_calls": dicts_in(calls)}, "assistant")
    if told is None and attributes.get("output.value") is not None:
        told = messages_from(attributes["output.value"], "assistant")
    if told is None and (held := event(events, EVENT_OUTPUT)) is not None:
        told = messages_from(held, "assistant")
    return told


def event(events: list[tuple[str, Any]], name: str) -> Any:
    """Return the payload that an event of a name holds."""
    held: Mapping[str, Any] = next((told for called, told in events if called == name), {})
    return first(held, ("input", "response", "output"))


def _told(
    attributes: Mapping[str, Any], events: list[tuple[str, Any]], names: tuple[str, ...], indexed: tuple[str, ...]
) -> list[dict[str, Any]] | None:
    role = "user" if names is INPUTS else "assistant"
    known = None
    for found in (attributes, *(event for _, event in events)):
        if (told := first(found, names)) is not None:
            known = messages_from(told, role)
            break
    if known and any(message.get("content") or message.get("tool_calls") for message in known):
        return known
    for prefix in indexed:  # LiteLLM puts calls of tools there alone
        if messages := _numbered(attributes, prefix):
            return messages_from(messages, role)
    return known


def _event_message(name: str, event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the message of an event named `gen_ai.user.message` or `gen_ai.choice`."""
    role = "assistant" if name == "gen_ai.choice" else name.split(".")[-2]
    held = decoded(event.get("gen_ai.event.content"))
    told = held if isinstance(held, dict) else {key: decoded(value) for key, value in event.items()}
    inner = told.get("message")
    return messages_from({"role": role, **(inner if isinstance(inner, dict) else told)}, role)


def tools_of(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the definitions of the tools that a model was offered."""
    if (told := first(attributes, DEFINITIONS)) is not None:
        return definitions_in(told)
    schemas = [tool.get("json_schema") for tool in _numbered(attributes, "llm.tools.")]
    return definitions_in(schemas) or _numbered(attributes, "llm.request.functions.")


def stop_of(attributes: Mapping[str, Any]) -> str | None:
    """Return why a model stopped."""
    reasons = decoded(attributes.get("gen_ai.response.finish_reasons"))
    last = reasons[-1] if isinstance(reasons, list) and reasons else reasons
    return as_label(last) or as_name(first(attributes, STOPS))


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Put attributes like `llm.input_messages.0.message.role` together as a list of objects."""
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        path = [step for step in name.removeprefix(prefix).split(".", MAX_PATH) if step not in WRAPPERS]
        place = tree
        for step in path[:-1]:
            inner = place.setdefault(step, {})
            if not isinstance(inner, dict):
                break
            place = inner
        else:
            if path:
                place.setdefault(path[-1], value)
    found = _listed(tree)
    return dicts_in(found)


def _listed(tree: Any) -> Any:
    """Turn objects whose keys are numbers into lists."""
    if not isinstance(tree, dict):
        return tree
    inner = {key: _listed(value) for key, value in tree.items()}
    if inner and all(key.isascii() and key.isdecimal() for key in inner):
        return [inner[key] for key in sorted(inner, key=lambda key: (len(key), key))]
    return inner

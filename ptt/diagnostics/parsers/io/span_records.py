"""Read one span, whoever exported it: its ids, its times, whether it failed, and its attributes by dotted names.

Exporters spell the same few facts differently: OTLP's JSON, the SDKs' console exporters, Phoenix, Jaeger and Zipkin,
Braintrust, Logfire, Opik, the Agents SDK of OpenAI and its ports. Units of times are told apart by their size."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers.io import span_names as names
from ptt.diagnostics.parsers.io.message_shapes import decoded
from ptt.diagnostics.parsers.io.values import as_label, as_name, as_stamp, dict_of, dicts_in, nested

TRACES: Final = ("traceId", "trace_id", "traceID", "root_span_id")
SPANS: Final = ("spanId", "span_id", "spanID")
PARENTS: Final = ("parentSpanId", "parent_span_id", "parentId", "parent_id", "parentID")
NAMES: Final = ("name", "operationName", "span_name")
STARTS: Final = ("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime", "started_at",
                 "start_timestamp", "timestamp")  # fmt: skip
ENDS: Final = ("endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime", "ended_at", "end_timestamp")
LASTED: Final = {"duration": 1_000, "duration_ms": 1_000_000, "durationMs": 1_000_000}  # nanoseconds each
ATTRIBUTES: Final = ("attributes", "tags", "metadata")
KIND_KEYS: Final = ("span_kind", "spanKind", "span_type", "kind", "type")
KINDS: Final = {"llm": "LLM", "chat_model": "LLM", "generation": "LLM", "response": "LLM", "tool": "TOOL",
                "tool_call": "TOOL", "function": "TOOL", "agent": "AGENT"}  # fmt: skip
"""What a record calls its kind, and what OpenInference does."""
KIND: Final = "openinference.span.kind"
PAYLOADS: Final = {"input": "input.value", "inputs": "input.value", "output": "output.value", "outputs": "output.value"}
ERRORS: Final = frozenset({"error", "status_code_error", "statuscode.error", "failed", "failure", "2"})
OKS: Final = frozenset({"ok", "status_code_ok", "statuscode.ok", "success", "1"})
CHILDREN: Final = ("spans", "children", "child_spans")
VALUES: Final = ("stringValue", "intValue", "doubleValue", "boolValue")
MAX_DEPTH: Final = 16  # nesting that any attribute could mean
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNITS: Final = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000), (0, 1_000_000_000))  # from this size on: nanoseconds each


@dataclass(frozen=True, kw_only=True)
class Span:
    """One span. `failed`: None where its status does not say. `start`, `end`: nanoseconds since the epoch."""

    trace: str | None
    id: str | None
    parent: str | None
    name: str
    start: int | None
    end: int | None
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    failed: bool | None
    message: str | None

    @property
    def began(self) -> float | None:
        """When it began, in seconds."""
        return None if self.start is None else self.start / 1e9

    @property
    def ended(self) -> float | None:
        """When it ended, in seconds."""
        return None if self.end is None else self.end / 1e9

    @property
    def latency(self) -> float | None:
        """The seconds it took, by integers: a float of seconds since the epoch would round them."""
        known = self.start is not None and self.end is not None and self.end >= self.start
        return (self.end - self.start) / 1e9 if known else None  # type: ignore[operator]


def is_span(found: Any) -> bool:
    """Return whether an object is a span: it names its trace and itself, and when it began."""
    if not isinstance(found, dict) or _first(found, TRACES) is None:
        return False
    told = _identity(found) is not None and any(key in found for key in (*NAMES, "span_data", "span_attributes"))
    return told and _start_of(found) is not None


def spans_in(found: Any, trace: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the spans that an object is or holds, those of a tree with their parents; `trace`: whose they are."""
    waiting: list[tuple[Any, str | None, str | None]] = [(found, trace, None)]
    while waiting:
        row, of, parent = waiting.pop()
        if not isinstance(row, dict):
            continue
        if isinstance(row.get("span"), dict):  # an event of a span that begins or ends
            row = row["span"]
        beside = {key: value for key, value in (("trace_id", of), ("parent_id", parent)) if value is not None}
        row = {**beside, **row} if beside else row
        if is_span(row):
            yield row
            parent = _identity(row)
        below = next((row[key] for key in CHILDREN if isinstance(row.get(key), list)), ())
        of = _first(row, TRACES) or as_label(row.get("id")) or of
        waiting += [(child, of, parent) for child in reversed(below)]


def span_of(found: dict[str, Any]) -> Span:
    """Read a span."""
    told = dict_of(found.get("span_data"))
    attributes = _attributes_of(found, told)
    start = _start_of(found)
    failed, message = _status_of(found, attributes)
    return Span(
        trace=_first(found, TRACES),
        id=_identity(found),
        parent=_parent_of(found),
        name=_name_of(found, told),
        start=start,
        end=_end_of(found, start),
        attributes=attributes,
        events=list(_events_of(found)),
        failed=failed,
        message=message,
    )


def _first(found: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    for place in (found, found.get("context"), found.get("span_context")):
        if isinstance(place, dict):
            for key in keys:
                if name := as_label(place.get(key)):
                    return name
    return None


def _identity(found: dict[str, Any]) -> str | None:
    name = _first(found, SPANS)
    if name is None and (found.get("object") == "trace.span" or any(key in found for key in PARENTS)):
        name = as_label(found.get("id"))
    return name


def _parent_of(found: dict[str, Any]) -> str | None:
    told = next((as_label(found[key]) for key in PARENTS if found.get(key)), None)
    if told is None:
        parents = found.get("span_parents")  # Braintrust's
        told = as_label(parents[0]) if isinstance(parents, list) and parents else None
    if told is None:
        told = next((as_label(one.get("spanID")) for one in dicts_in(found.get("references"))), None)
    return told


def _name_of(found: dict[str, Any], told: dict[str, Any]) -> str:
    said = (told.get("name"), *(found.get(key) for key in NAMES), nested(found, "span_attributes", "name"))
    return next((name for value in said if (name := as_name(value))), "")


def _start_of(found: dict[str, Any]) -> int | None:
    start = next((at for key in STARTS if (at := nanoseconds(found.get(key))) is not None), None)
    return nanoseconds(nested(found, "metrics", "start")) if start is None else start


def _end_of(found: dict[str, Any], start: int | None) -> int | None:
    end = next((at for key in ENDS if (at := nanoseconds(found.get(key))) is not None), None)
    end = nanoseconds(nested(found, "metrics", "end")) if end is None else end
    if end is None and start is not None:
        for key, unit in LASTED.items():
            lasted = found.get(key)
            if isinstance(lasted, (int, float)) and not isinstance(lasted, bool) and 0 <= lasted < 1e15:
                return start + int(lasted * unit)
    return end


def nanoseconds(found: Any) -> int | None:
    """Read a time, a number of any unit or an ISO date, as nanoseconds since the epoch."""
    if isinstance(found, str):
        if not (found.isascii() and found.isdecimal() and len(found) < 20):
            stamp = as_stamp(found)
            zoned = stamp.replace(tzinfo=UTC) if stamp is not None and stamp.tzinfo is None else stamp
            return None if zoned is None else (zoned - EPOCH) // timedelta(microseconds=1) * 1_000
        found = int(found)
    if not isinstance(found, (int, float)) or isinstance(found, bool) or not 1e8 < found < 2**64:
        return None
    return int(found * next(unit for least, unit in UNITS if found >= least))


def _status_of(found: dict[str, Any], attributes: dict[str, Any]) -> tuple[bool | None, str | None]:
    """Return whether a span failed, and what it says of it."""
    status, error = found.get("status"), found.get("error")
    told = dict_of(status)
    codes = (told.get("code"), told.get("status_code"), status, found.get("status_code"), found.get("statusCode"),
             found.get("otel_status_code"), attributes.get("otel.status_code"))  # fmt: skip
    code = next((label.lower() for value in codes if (label := as_label(value))), "")
    raised = bool(error) or attributes.get("error") in (True, "true")
    said = (told.get("message"), told.get("description"), found.get("status_message"), nested(error, "message"), error,
            attributes.get("status.description"), attributes.get("otel.status_description"))  # fmt: skip
    message = next((name for value in said if (name := as_name(value))), None)
    if code in ERRORS or raised:
        return True, message
    return (False if code in OKS else None), message


def _attributes_of(found: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span by dotted names, with what its record says beside them."""
    held = next((found[key] for key in ATTRIBUTES if found.get(key)), None)
    attributes = attributes_of(held)
    for place in (told, found):
        for key, name in PAYLOADS.items():
            if place.get(key) is not None:
                attributes.setdefault(name, place[key])
    attributes |= {f"llm.{key}": told[key] for key in ("model", "usage") if told.get(key) is not None}
    for name, value in (("llm.usage", told.get("usage")), ("metrics", found.get("metrics"))):
        if isinstance(value, dict):
            _spread(name, value, attributes, 0)
    kinds = (told.get("type"), nested(found, "span_attributes", "type"), *(found.get(key) for key in KIND_KEYS))
    kind = next((KINDS[name] for value in kinds if (name := (as_name(value) or "").lower()) in KINDS), None)
    if kind is not None:
        attributes.setdefault(KIND, kind)
    return attributes


def attributes_of(held: Any) -> dict[str, Any]:
    """Return attributes, pairs of keys and typed values or objects in objects, by their dotted names."""
    held = decoded(held)
    attributes: dict[str, Any] = {}
    if isinstance(held, list):
        for pair in dicts_in(held):
            if isinstance(key := pair.get("key"), str):
                value = pair.get("value")
                _spread(key, value_of(value) if isinstance(value, dict) else value, attributes, 0)
    for key, value in dict_of(held).items():
        _spread(key, value, attributes, 0)
    return attributes


def _spread(name: str, value: Any, attributes: dict[str, Any], depth: int) -> None:
    """Note a value under its name, and the parts of an object, or of a list of messages, under theirs."""
    attributes.setdefault(name, value)
    if depth < MAX_DEPTH:
        if isinstance(value, dict):
            for key, part in value.items():
                _spread(f"{name}.{key}", part, attributes, depth + 1)
        elif isinstance(value, list) and f"{name}.".startswith(names.INDEXED):
            for at, part in enumerate(value):
                _spread(f"{name}.{at}", part, attributes, depth + 1)


def _events_of(found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for event in dicts_in(found.get("events")):
        yield as_label(event.get("name")) or "", attributes_of(event.get("attributes"))
    for event in dicts_in(found.get("logs")):  # Jaeger's
        fields = attributes_of(event.get("fields"))
        yield as_label(fields.get("event")) or "", fields


def value_of(found: Any, depth: int = 0) -> Any:
    """Read a typed value of OTLP; integers are text in this encoding."""
    if not isinstance(found, dict) or depth > MAX_DEPTH:
        return None
    if "arrayValue" in found:
        return [value_of(item, depth + 1) for item in _items(found["arrayValue"])]
    if "kvlistValue" in found:
        pairs = _items(found["kvlistValue"])
        return {str(nested(pair, "key")): value_of(nested(pair, "value"), depth + 1) for pair in pairs}
    return next((found[kind] for kind in VALUES if kind in found), None)


def _items(found: Any) -> list[Any]:
    value = nested(found, "values")
    return value if isinstance(value, list) else []

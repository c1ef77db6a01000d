"""The JSON encoding of OpenTelemetry's protocol: typed attribute values, and times in nanoseconds as text."""

from __future__ import annotations

from typing import Any, Final

from ptt.diagnostics.parsers.values import inner

VALUES: Final = ("stringValue", "intValue", "doubleValue", "boolValue")
DEEPEST: Final = 16  # nesting that any attribute could mean


def attributes(found: Any) -> dict[str, Any]:
    """Give the attributes of a span or an event by their keys."""
    told: dict[str, Any] = {}
    for item in items(found, "attributes"):
        key = inner(item, "key")
        if isinstance(key, str):
            told[key] = value_of(inner(item, "value"))
    return told


def value_of(found: Any, depth: int = 0) -> Any:
    """Read a typed value; integers are text in this encoding."""
    if not isinstance(found, dict) or depth > DEEPEST:
        return None
    if "arrayValue" in found:
        return [value_of(item, depth + 1) for item in items(found["arrayValue"], "values")]
    if "kvlistValue" in found:
        pairs = items(found["kvlistValue"], "values")
        return {str(inner(pair, "key")): value_of(inner(pair, "value"), depth + 1) for pair in pairs}
    return next((found[kind] for kind in VALUES if kind in found), None)


def seconds(found: Any) -> float | None:
    """Seconds since the epoch of nanoseconds."""
    value = _nanoseconds(found)
    return None if value is None else value / 1e9


def latency(span: dict[str, Any]) -> float | None:
    """Seconds between the ends of a span, taken before a float of this age could round them."""
    start, end = _nanoseconds(span.get("startTimeUnixNano")), _nanoseconds(span.get("endTimeUnixNano"))
    return (end - start) / 1e9 if start is not None and end is not None and end >= start else None


def _nanoseconds(found: Any) -> int | None:
    """Read a time, which is text in this encoding."""
    value = (
        int(found) if isinstance(found, str) and found.isascii() and found.isdecimal() and len(found) < 20 else found
    )
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 2**64:
        return None
    return int(value)


def items(found: Any, key: str) -> list[Any]:
    """Give the list under a key; an empty one where there is none."""
    value = inner(found, key)
    return value if isinstance(value, list) else []

"""Makes JSON of what is told: finite numbers of six digits or null, text any file can hold, the same bytes always."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from ptt.reports.foreign import encodable

SIGNIFICANT_DIGITS = 6  # more would differ between machines: sums of floats depend on their order

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


def finite_json(content: Mapping[str, object]) -> str:
    """Give the text of a document, one space to a level."""
    return json.dumps(_finite(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: object) -> Json:
    match value:
        case None | bool() | int():
            return value
        case float():
            return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
        case str():
            return encodable(str(value))
        case Mapping():
            return {encodable(str(key)): _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
    raise TypeError(f"JSON cannot hold a {type(value).__name__}")

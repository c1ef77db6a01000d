"""Read values of foreign logs as numbers, names and texts of the schema; None for values that do not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

import msgspec

MAX_STEP: Final = 1 << 53
"""Steps up to here are drawn and subtracted exactly; no counter of a trainer comes near, only one that overflowed."""
INT32: Final = 1 << 31  # one beyond what fits
NON_FINITE: Final = {
    "nan": float("nan"),
    "inf": float("inf"),
    "+inf": float("inf"),
    "infinity": float("inf"),
    "+infinity": float("inf"),
    "-inf": float("-inf"),
    "-infinity": float("-inf"),
}


def as_step(found: object) -> int | None:
    """Read a step written as int, as integral float, or as `3/100`; None for anything else."""
    if type(found) is int:
        return found if abs(found) <= MAX_STEP else None
    if isinstance(found, bool):
        return None
    if isinstance(found, str):
        head = found.split("/", 1)[0].strip()
        found = int(head) if head.isdecimal() and head.isascii() and len(head) < 19 else None
    if isinstance(found, float):
        found = int(found) if found.is_integer() else None
    if isinstance(found, int) and abs(found) <= MAX_STEP:
        return found
    return None


def as_value(found: object) -> float | None:
    """Read a number, a boolean or a spelt-out NaN; raise TypeError for what is no metric at all."""
    if found is None:
        return None
    if isinstance(found, (bool, float)):
        return float(found)
    if isinstance(found, int):
        try:
            return float(found)
        except OverflowError:  # JSON integers have no limit, doubles do
            return float("inf") if found > 0 else float("-inf")
    if isinstance(found, str) and (number := NON_FINITE.get(found.lower())) is not None:
        return number
    raise TypeError(f"{type(found).__name__} is not a metric value")


def as_seconds(found: object) -> float | None:
    """Read a wall time, in seconds since the epoch or as an ISO date; a date without an offset counts as UTC."""
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        return float(found) if 1e8 < found < 1e11 else None  # seconds between 1973 and 5138
    stamp = as_stamp(found)
    if stamp is None:
        return None
    return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()


def as_stamp(found: object) -> datetime | None:
    """Read an ISO date, with its UTC offset if it names one; None for anything else."""
    if not isinstance(found, str):
        return found if isinstance(found, datetime) else None
    try:
        return datetime.fromisoformat(found)
    except ValueError:
        return None


def as_score(found: Any) -> float | None:
    """Return a number, a boolean or a spelt-out NaN as float; None for anything else."""
    try:
        return as_value(found)
    except TypeError:  # a text or a list is not a score
        return None


def as_count(found: Any) -> int | None:
    """Return a count that fits the tables; counts may come as text, as OTLP spells integers."""
    if found is None:
        return None
    value = found if type(found) is int else as_step(found)
    return value if value is not None and 0 <= value < INT32 else None


def as_flag(found: Any) -> bool | None:
    """Return a boolean; None for anything else."""
    return found if isinstance(found, bool) else None


def as_label(found: Any) -> str | None:
    """Return a name or a number as text; None for anything else."""
    return str(found) if isinstance(found, int) and not isinstance(found, bool) else as_name(found)


def nested(found: Any, *path: str) -> Any:
    """Follow keys into nested objects; None if one is missing or not an object."""
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def as_number(found: Any) -> float | None:
    """Read a number, or one spelt out that JSON cannot hold."""
    return None if isinstance(found, bool) else as_score(found)


def as_int64(found: Any) -> int | None:
    """Read a whole number that fits Int64; also one that ends a name, as in `weights/000012`."""
    if isinstance(found, str):
        digits = re.search(r"(\d{1,18})$", found)
        return int(digits[1]) if digits else None
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    return found if type(found) is int and abs(found) < 2**63 else None


def as_int32(found: Any) -> int | None:
    """Read a whole number that fits Int32."""
    read = as_int64(found) if not isinstance(found, str) else None
    return read if read is not None and -INT32 <= read < INT32 else None


def as_id(found: Any) -> str | None:
    """Read a name, or a number for one."""
    if type(found) is int:
        return str(found)
    return found if isinstance(found, str) and found else None


def as_plain_number(found: Any) -> float | None:
    """Return a number as float; None for anything else."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        return float(found)
    except OverflowError:
        return None


def as_name(found: Any) -> str | None:
    """Return a text; None for anything else."""
    return found if isinstance(found, str) else None


NO_ERROR: Final = frozenset({"", "none", "null", "nan", "n/a", "na", "no", "no error", "ok", "false", "success", "0"})


def as_error(found: Any) -> str | None:
    """Return a text that names an error; None for one that says there was none, and for anything else."""
    return found if isinstance(found, str) and found.strip().lower() not in NO_ERROR else None


def as_text(content: Any) -> str:
    """Return a message's content as one text; parts of several kinds as JSON."""
    if content is None:
        return ""
    return content if isinstance(content, str) else as_json(content)


def plain_text(content: Any) -> str:
    """Return a message's content as one text; a list of parts becomes their joined texts if each has one."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content and all(isinstance(part, dict) for part in content):
        texts = [part.get("text") for part in content]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(map(str, texts))
    return as_text(content)


_SPELL: Final = json.JSONEncoder(sort_keys=True, default=str).encode  # json.dumps makes an encoder a call


def as_json(content: Any) -> str:
    """Spell anything out the same way every time."""
    return _SPELL(content)


def digest(content: Any) -> int:
    """Return a hash of anything that JSON can spell, the same in every process; keys count in any order."""
    try:
        spelt = msgspec.json.encode(content, enc_hook=str, order="sorted")
    except (TypeError, ValueError, RecursionError):  # keys that are not texts, half characters
        spelt = as_json(content).encode("utf-8", "replace")
    return int.from_bytes(blake2b(spelt, digest_size=8).digest(), "big")


def as_hash(text: str) -> int:
    """Return a hash that is the same in every process and fits UInt64."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big")


def dicts_in(found: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; nothing for any other value."""
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def dict_of(found: Any) -> dict[str, Any]:
    """Return an object; an empty one for any other value."""
    return found if isinstance(found, dict) else {}


def total(counts: Iterable[Any]) -> int | None:
    """Add up the counts; None if there are none."""
    known = [value for count in counts if (value := as_step(count)) is not None and value >= 0]
    return min(sum(known), (1 << 63) - 1) if known else None


def total_cost(costs: Iterable[Any]) -> float | None:
    """Add up the costs; None if there are none."""
    known = [value for cost in costs if (value := as_plain_number(cost)) is not None]
    return sum(known) if known else None


def first_name(names: Iterable[Any]) -> str | None:
    """Return the first that is a name."""
    return next((name for name in names if isinstance(name, str) and name), None)

"""Values of foreign objects as what a table can hold; None stands for what is none."""

from __future__ import annotations

from typing import Any, Final

from ptt.diagnostics.parsers.conversations import as_name
from ptt.diagnostics.parsers.metric_rows import as_step, as_value

LARGEST: Final = 2**31


def number(found: Any) -> float | None:
    """Return a number, a truth value or a spelt-out NaN as float; None for all else."""
    try:
        return as_value(found)
    except TypeError:  # a text, a list: no score
        return None


def count(found: Any) -> int | None:
    """Return a count that fits the tables; counts may come as text, as OTLP spells integers."""
    value = as_step(found)
    return value if value is not None and 0 <= value < LARGEST else None


def flag(found: Any) -> bool | None:
    """Return a truth value; None for all else."""
    return found if isinstance(found, bool) else None


def label(found: Any) -> str | None:
    """Return a name or a number as text; None for all else."""
    return str(found) if isinstance(found, int) and not isinstance(found, bool) else as_name(found)


def inner(found: Any, *path: str) -> Any:
    """Follow keys into nested objects; None where one is missing or is none."""
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found

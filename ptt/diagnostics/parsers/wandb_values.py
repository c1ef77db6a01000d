"""The values on W&B's log calls: numbers under their names, settings, steps."""

from __future__ import annotations

from typing import Any

from ptt.diagnostics.parsers.metric_rows import as_step, as_value
from ptt.diagnostics.parsers.metrics_jsonl import flatten
from ptt.diagnostics.parsers.wandb_record import Value, setting_of, value_of

OWN = ("_step", "_runtime", "_timestamp", "_wandb")  # what W&B adds to every log call


def read_value(value: Value) -> Any:
    """Read a value; None where its JSON is damaged."""
    try:
        return value_of(value)
    except ValueError:  # damaged JSON
        return None


def step_of(value: Value) -> int | None:
    """Read a value as a step; None if it is none."""
    return as_step(read_value(value))


def numbers_of(found: dict[str, Value]) -> dict[str, float | None]:
    """Keep what is a metric value; nested objects are joined with dots, as W&B shows them."""
    kept: dict[str, float | None] = {}
    for name, value in found.items():
        if name in OWN or name.startswith("_wandb."):
            continue
        try:
            read = value_of(value)
            if isinstance(read, dict):
                if "_type" not in read:  # else a histogram, a table or a picture
                    inner = {f"{name}.{key.replace('/', '.')}": entry for key, entry in flatten(read).items()}
                    kept.update(
                        {key: as_value(entry) for key, entry in inner.items() if not isinstance(entry, (str, list))}
                    )
            else:
                kept[name] = as_value(read)
        except (TypeError, ValueError):  # a text, a list, or damage
            continue
    return kept


def settings_of(found: dict[str, Value]) -> dict[str, Any]:
    """Read settings, those inside others by names joined with slashes."""
    read: dict[str, Any] = {}
    for name, value in found.items():
        if name != "_wandb":
            entry = setting_of(value)
            read.update(flatten({name: entry}) if isinstance(entry, dict) else {name: entry})
    return read

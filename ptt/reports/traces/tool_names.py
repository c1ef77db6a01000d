"""Short names of tools for display: `mcp__server__tool` as `tool`, where that tells it from all others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeVar

import polars as pl

from ptt.diagnostics.traces.compare import TraceComparison
from ptt.diagnostics.traces.model import Message, TraceDiagnosis

MCP: Final = re.compile(r"mcp__(.+?)__(.+)")
NAMED: Final = (("tools", "name"), ("error_classes", "tool"))  # tables and columns that name tools
LABEL: Final = "label"  # a column of sentences, which name tools among other words
Shown = TypeVar("Shown", TraceDiagnosis, TraceComparison)


def with_short_names(shown: Shown) -> Shown:
    """Return what is to be shown with short names of tools in its sentences, tables and calls; texts stay."""
    names = short_names(_tools(shown))
    if not names:
        return shown
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-])")
    renamed: Shown = _renamed(shown, lambda text: pattern.sub(lambda found: names[found[0]], text), names)
    return renamed


def _tools(shown: TraceDiagnosis | TraceComparison) -> set[str]:
    if isinstance(shown, TraceComparison):
        return _tools(shown.first.diagnosis) | _tools(shown.second.diagnosis)
    held = [shown.tables[table][column] for table, column in NAMED if table in shown.tables]
    return {name for column in held for name in column.drop_nulls()}


def short_names(tools: Iterable[str]) -> dict[str, str]:
    """Return the short name of each tool of an MCP server: with its server where two tools have the same."""
    tools = set(tools)
    parts = {name: found.groups() for name in tools if (found := MCP.fullmatch(name))}
    taken = Counter(parts[name][1] if name in parts else name for name in tools)
    short = {name: tool if taken[tool] == 1 else f"{server}__{tool}" for name, (server, tool) in parts.items()}
    twice = Counter([*short.values(), *(tools - parts.keys())])
    return {name: told for name, told in short.items() if twice[told] == 1}


def _renamed(value: Any, rename: Callable[[str], str], names: Mapping[str, str]) -> Any:
    if type(value) is str:  # not a word of ours, which is an enumeration's
        return rename(value)
    if isinstance(value, pl.DataFrame):
        shown = value.with_columns(pl.col(pl.String).replace(names))
        labels = [pl.Series(LABEL, map(rename, shown[LABEL].to_list()), pl.String)] if LABEL in shown.columns else []
        return shown.with_columns(labels)
    if isinstance(value, Message):
        calls = tuple(replace(call, name=rename(call.name)) for call in value.calls)
        return replace(value, calls=calls, mark=rename(value.mark))
    if isinstance(value, tuple):
        return tuple(_renamed(one, rename, names) for one in value)
    if isinstance(value, Mapping):
        return {key: _renamed(one, rename, names) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return replace(value, **{name: _renamed(one, rename, names) for name, one in held.items()})
    return value

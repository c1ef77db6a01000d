"""The tables of a trace report: finished cells by tool, error class, task, environment, model and step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ptt.diagnostics.traces.measures import MEASURES
from ptt.diagnostics.traces.model import TraceDiagnosis
from ptt.reports.figures.panels import DataTable
from ptt.reports.text.numbers import count, number, percent
from ptt.reports.text.sanitize import safe
from ptt.reports.traces.answers import interval_words, worst_tools

MAX_ROWS: Final = 200  # of a table: more lie in the store
NONE: Final = "–"
KINDS: Final[Mapping[str, str]] = {
    "task": "By task", "env": "By environment", "model": "By model", "step": "By training step", "tool": "By tool",
}  # fmt: skip
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """Tables that are folded together under one heading."""

    key: str
    title: str
    summary: str
    tables: tuple[DataTable, ...]


def chapters(diagnosis: TraceDiagnosis) -> tuple[Chapter, ...]:
    """Return the chapters that have a table."""
    made = (
        ("tools", "Tools and errors", "calls, failures, latency, error classes", _of_tools(diagnosis)),
        ("tail", "Tail of the tokens", "by tool, assistant turn and class of error", _of_tail(diagnosis)),
        ("groups", "Success by task, environment and model", "with 95% intervals", _of_groups(diagnosis)),
        ("measured", "All measured shares", "as the gate checks them", _measured(diagnosis)),
    )
    return tuple(
        Chapter(key=key, title=title, summary=summary, tables=tables) for key, title, summary, tables in made if tables
    )


def _of_tools(diagnosis: TraceDiagnosis) -> tuple[DataTable, ...]:
    head = (
        "Tool", "Calls", "Episodes", "Failed", "95% interval", "First part", "Last part", "Latency p50", "p95",
        "Repeated", "Malformed", "Success with", "Success without",
    )  # fmt: skip
    rows = [
        (
            safe(row["name"] or "no name"),
            count(row["calls"]),
            count(row["episodes"]),
            share(row["failed"]),
            interval(row),
            share(row["first_failed"]),
            share(row["last_failed"]),
            *(seconds(row[key]) for key in ("latency_p50", "latency_p95")),
            *(_of_calls(row, key) for key in ("repeated", "malformed")),
            *(share(row[key]) for key in ("success_with", "success_without")),
        )
        for row in worst_tools(diagnosis)
    ]
    errors = [
        (
            safe(row["tool"] or "no name"),
            safe(row["error_class"]),
            count(row["calls"]),
            share(row["share"]),
            safe(row["example"] or "", longest=160),
        )
        for row in rows_of(diagnosis, "error_classes")
    ]
    return (
        *_table(_tools_title(diagnosis, len(rows)), *_without_empty(head, rows)),
        *_table("Classes of errors", ("Tool", "Error", "Calls", "Of its failures", "For example"), errors),
    )


def _of_tail(diagnosis: TraceDiagnosis) -> tuple[DataTable, ...]:
    head = ("By", "Name", "Tokens", "Of the tail", "Of the tokens", "Lift", "95% interval", "p99 of |r|")
    rows = [
        (
            row["kind"].capitalize(),
            safe(row["name"]),
            count(row["tokens"]),
            share(row["tail_share"]),
            share(row["token_share"]),
            *(NONE if value is None else number(float(value)) for value in (row["lift"],)),
            NONE if row["low"] is None else f"{number(row['low'])} to {number(row['high'])}",
            NONE if row["p99"] is None else number(float(row["p99"])),
        )
        for row in rows_of(diagnosis, "token_tail")
    ]
    return _table("Where the tail sits: tools and errors are those before the tokens", head, rows)


def _tools_title(diagnosis: TraceDiagnosis, listed: int) -> str:
    called = diagnosis.traces.distinct_tools or 0
    most = f"The {count(listed)} tools called most, of {count(called)}" if called > listed else "Tools"
    return f"{most}, the worst first"


def _of_calls(row: Row, key: str) -> str:
    """Write a count of calls with its share of them; tables of an older ptt hold the share alone."""
    value = row[key]
    if value is None or isinstance(value, float):
        return share(value)
    return share(value / row["calls"]) if row["calls"] else NONE


def _without_empty(
    head: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Leave out the columns that hold nothing in any row."""
    kept = [index for index, _ in enumerate(head) if any(row[index] != NONE for row in rows)]
    return tuple(head[index] for index in kept), [tuple(row[index] for index in kept) for row in rows]


def _of_groups(diagnosis: TraceDiagnosis) -> tuple[DataTable, ...]:
    tables: list[DataTable] = []
    every = rows_of(diagnosis, "by")
    for kind, title in KINDS.items():
        named = [row for row in every if row["kind"] == kind]
        rows = [
            (
                safe(str(row["name"]) if row["name"] is not None else "no name"),
                count(row["episodes"]),
                count(row["labelled"]),
                share(row["success"]),
                interval(row),
                NONE if row["reward"] is None else number(float(row["reward"])),
                dollars(row.get("cost_usd")),
            )
            for row in named
        ]
        head = (title.removeprefix("By ").capitalize(), "Episodes", "Labelled", "Success", "95% interval", "Reward",
                "Cost an episode")  # fmt: skip
        tables += _table(title, *_without_empty(head, rows))
    return tuple(tables)


def _measured(diagnosis: TraceDiagnosis) -> tuple[DataTable, ...]:
    rows = [
        (
            f"{measure.label[:1].upper()}{measure.label[1:]}",
            name,
            share(found.value),
            interval_words(found.interval) or NONE,
            f"{count(found.hits)} of {count(found.trials)} {measure.of}",
        )
        for name, measure in MEASURES.items()
        if (found := diagnosis.measured.get(name)) is not None
    ]
    return _table("Shares", ("What", "Name", "Share", "95% interval", "Counted"), rows)


def rows_of(diagnosis: TraceDiagnosis, name: str) -> list[Row]:
    """Return the rows of a table; none where it is absent."""
    frame = diagnosis.tables.get(name)
    return [] if frame is None else list(frame.iter_rows(named=True))


def _table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> tuple[DataTable, ...]:
    if not rows:
        return ()
    cut = f"{title} (the first {MAX_ROWS} of {count(len(rows))})" if len(rows) > MAX_ROWS else title
    return (DataTable(title=cut, head=head, rows=tuple(rows[:MAX_ROWS])),)


def share(value: float | None) -> str:
    """Write a share, or a dash."""
    return NONE if value is None or value != value else percent(value)


def interval(row: Row) -> str:
    """Write the interval of a row, or a dash."""
    return NONE if row["low"] is None or row["high"] is None else interval_words((row["low"], row["high"]))


def dollars(value: float | None) -> str:
    """Write a cost, or a dash."""
    return NONE if value is None else f"${number(float(value))}"


def seconds(value: float | None) -> str:
    """Write a duration, or a dash."""
    return NONE if value is None or value != value else f"{number(float(value))} s"

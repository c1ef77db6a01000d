"""W&B's own log of a run, offline or online: history as metrics, the machine as ranks, output and exit as events.

Read without wandb: the framing in wandb_log.py, the messages in wandb_record.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ptt.diagnostics.parsers.aliases import framework_of
from ptt.diagnostics.parsers.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.metric_rows import MetricColumns, as_seconds
from ptt.diagnostics.parsers.settings_facts import safe_settings
from ptt.diagnostics.parsers.side_rows import EventLog, MachineLog, is_machine
from ptt.diagnostics.parsers.wandb_log import MAGIC, records
from ptt.diagnostics.parsers.wandb_record import (
    ALERT,
    CONFIG,
    EXIT,
    HISTORY,
    OUTPUT,
    RUN,
    STATS,
    STATS_ITEM,
    SUMMARY,
    Parts,
    alert_of,
    exit_of,
    history_step,
    items,
    output_of,
    parts_of,
    run_config,
    stats_time,
)
from ptt.diagnostics.parsers.wandb_values import numbers_of, read_value, settings_of, step_of
from ptt.diagnostics.parsers.wire import DamagedMessageError

# `_step` counts log calls; the trainer's own counter, where there is one, is the step. The first that occurs.
STEP_KEYS = (
    "train/global_step",
    "global_step",
    "training/global_step",
    "trainer/global_step",
    "trainer/step",
    "rollout/step",
    "train/step",
    "step",
)
DAMAGE = (DamagedMessageError, IndexError, struct.error)


@dataclass
class _Run:
    """What is known while the records go by."""

    file: RunFile
    step_key: str | None
    step: int | None  # of the latest log call that named one
    columns: MetricColumns = field(default_factory=MetricColumns)
    seq: int = 0
    bad: int = 0
    ended: bool = False
    names: set[str] = field(default_factory=set)
    summary: dict[str, float | None] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.events = EventLog(self.file)
        self.machine = MachineLog(self.file)


def recognises(file: RunFile) -> bool:
    """Say yes to the name with W&B's file header."""
    if not file.name.endswith(".wandb"):
        return False
    try:
        return file.head.startswith(MAGIC)
    except OSError:  # unreadable: nobody's
        return False


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics, machine samples and events; the file is read twice, first for the name of the step."""
    try:
        with file.path.open("rb") as handle:
            if handle.read(len(MAGIC)) != MAGIC:
                yield Lost(bytes=file.size, note=f"{file.rel} does not begin as a W&B log.")
                return
            handle.seek(0)
            run = _Run(file, *_step_key(records(handle, file)))
            handle.seek(0)
            yield from _pieces(run, records(handle, file))
    except OSError as error:  # gone, or its disk fails
        yield Lost(bytes=file.size, note=f"{file.rel} could not be read to its end: {error.strerror}.")
        return
    yield from _closing(run)


def _step_key(found: Iterator[bytes | Lost]) -> tuple[str | None, int | None]:
    """Choose the name of the training step, and its first value: what is logged before it belongs there."""
    first: dict[str, int] = {}
    for record in found:
        if isinstance(record, Lost):
            continue
        try:
            for part in parts_of(record):
                if part.kind == HISTORY:
                    for name, value in items(record, part):
                        if name in STEP_KEYS and name not in first and (step := step_of(value)) is not None:
                            first[name] = step
        except DAMAGE:
            continue
    key = next((name for name in STEP_KEYS if name in first), None)
    return key, first[key] if key else None


def _pieces(run: _Run, found: Iterator[bytes | Lost]) -> Iterator[Piece]:
    for record in found:
        if isinstance(record, Lost):
            yield record
            continue
        try:
            for part in parts_of(record):
                _take(run, record, part)
        except DAMAGE:  # right checksum, wrong content
            run.bad += 1
        if run.columns.full:
            yield Rows(table="metrics", frame=run.columns.take(run.file.rel))
        if run.machine.full:
            yield from run.machine.pieces()


def _take(run: _Run, record: bytes, part: Parts) -> None:
    """Take one part of a record into the run."""
    if part.kind == HISTORY:
        _take_history(run, record, part)
    elif part.kind == SUMMARY:
        run.summary.update(numbers_of(dict(items(record, part))))
    elif part.kind == STATS:
        when = stats_time(record, part)
        for name, value in numbers_of(dict(items(record, part, STATS_ITEM))).items():
            run.machine.add(run.step, when, name, value)
    elif part.kind == OUTPUT:
        kind, when, text = output_of(record, part)
        run.events.add_output(run.step, when, kind, text)
    elif part.kind == ALERT:
        run.events.add(run.step, None, "alert", alert_of(record, part))
    elif part.kind == EXIT:
        code, seconds = exit_of(record, part)
        after = "" if seconds is None else f" after {seconds} s"
        run.events.add(run.step, None, "exit", f"exit code {code}{after}")
        run.ended = True
    elif part.kind in (CONFIG, RUN):
        inner = part if part.kind == CONFIG else run_config(record, part)
        if inner is not None:
            run.settings.update(settings_of(dict(items(record, inner))))


def _take_history(run: _Run, record: bytes, part: Parts) -> None:
    found = dict(items(record, part))
    if run.step_key is None:
        step = step_of(found.get("_step")) if "_step" in found else history_step(record, part)
    else:
        step = step_of(found.pop(run.step_key, None))
    if step is not None:
        run.step = step
    if run.step is None:
        run.bad += 1
        return
    stamp = read_value(found.get("_timestamp"))
    wall_time = as_seconds(stamp) if isinstance(stamp, float) else None
    for name, value in numbers_of(found).items():
        run.columns.add(run.step, name, value, wall_time, run.seq)
        run.names.add(name)
        if is_machine(name):
            run.machine.add(run.step, wall_time, name, value)
    run.seq += 1


def _closing(run: _Run) -> Iterator[Piece]:
    """Yield what is known at the end: values that only the summary holds, the rest, and what the settings tell."""
    if run.step is not None:
        for name in sorted(run.summary.keys() - run.names - {run.step_key}):
            run.columns.add(run.step, name, run.summary[name], None, run.seq)
    if run.columns.steps:
        yield Rows(table="metrics", frame=run.columns.take(run.file.rel))
    yield from run.machine.pieces()
    yield from run.events.pieces()
    if run.bad:
        yield Lost(rows=run.bad, note=f"{run.file.rel}: {run.bad} record(s) are damaged or name no step.")
    if not run.ended:
        note = f"{run.file.rel} holds no exit record: the run was killed, crashed, or still goes on."
        yield Lost(note=note)
    facts = safe_settings(run.settings) | ({} if run.ended else {"exit_record": False})
    if framework := framework_of(run.names):
        facts["framework"] = framework
    if facts:
        yield Context(facts=facts)


PARSER = Parser(
    name="wandb",
    describes="W&B's `.wandb` logs, offline or online: metrics, samples of the machine, output that speaks of trouble.",
    priority=25,
    recognises=recognises,
    read=read,
)

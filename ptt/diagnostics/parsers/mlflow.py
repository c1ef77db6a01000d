"""MLflow's stores: SQLite with metrics, settings and traced spans, and files with a metric or a setting each.

Columns after `mlflow/store/tracking/dbmodels/models.py` of mlflow/mlflow. NaN is stored as 0 with `is_nan` set,
infinities as the largest double. Of several runs in one database the one with most metric rows counts, since their
steps cannot stand in one series; the others are told.

The file store has `{run}/metrics/` and `{run}/params/`; lines after `mlflow/store/tracking/file_store.py`:
milliseconds, value, step, and since version 3 perhaps the model and data set.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ptt.diagnostics.metrics.aliases import framework_of
from ptt.diagnostics.parsers.io.calls import (
    RESPELT,
    Array,
    Call,
    SequenceRows,
    Sessions,
    TokenRow,
    engine_call,
    joined_row,
    logp_array,
    token_array,
)
from ptt.diagnostics.parsers.io.interface import (
    Context,
    Lost,
    Parser,
    Piece,
    RunFile,
    count_notes,
    lost_notes,
    read_error,
)
from ptt.diagnostics.parsers.io.lines import blocks, is_torn, parse_json, torn_line
from ptt.diagnostics.parsers.io.metric_rows import MetricColumns, framework_facts
from ptt.diagnostics.parsers.io.setup_files import setup_context
from ptt.diagnostics.parsers.io.span_trees import Trace
from ptt.diagnostics.parsers.io.sqlite import of_database, rows, tables, tables_of
from ptt.diagnostics.parsers.io.telemetry import MachineLog
from ptt.diagnostics.parsers.io.trajectories import Samples, attempt
from ptt.diagnostics.parsers.io.values import as_int32, as_int64, as_number, as_step
from ptt.diagnostics.parsers.mlflow_traces import is_span, take

TAGS: Final = ("step", "sample_index", "rollout_n", "validate", "experiment_name")
SPANS: Final = (
    "SELECT trace_id, name, status, start_time_unix_nano, end_time_unix_nano, content FROM spans "
    "ORDER BY trace_id, start_time_unix_nano, span_id"
)
SPAN_COLUMNS: Final = {"trace_id", "span_id", "name", "status", "start_time_unix_nano", "end_time_unix_nano", "content"}
SPAN_TAGS: Final = "SELECT {trace}, key, value FROM trace_tags"


def read_spans(connection: sqlite3.Connection, file: RunFile) -> Iterator[Piece]:
    """Yield trajectories and tool calls of the traces that are veRL's or an agent's; of veRL's, sequences too."""
    schema = tables(connection)
    if not SPAN_COLUMNS.issubset(schema.get("spans", ())):
        return
    tags: dict[str, dict[str, str]] = {}
    column = "request_id" if "request_id" in schema.get("trace_tags", ()) else "trace_id"
    for row in rows(connection, file, SPAN_TAGS.format(trace=column), held=True):
        if isinstance(row, Lost):
            yield row
        elif row[1] in TAGS and isinstance(row[0], str) and isinstance(row[2], str):
            tags.setdefault(row[0], {})[row[1]] = row[2]
    reader, trace = _Reader(file), _Trace()
    for row in rows(connection, file, SPANS):
        if isinstance(row, Lost):
            yield row
            continue
        if row[0] != trace.name:
            yield from reader.end(trace)
            trace = _Trace(name=str(row[0]), tags=tags.get(str(row[0]), {}))
        trace.add(row)
    yield from reader.end(trace)
    yield from reader.close()


@dataclass
class _Trace:
    """What one trace holds: the loop's own sequence, else its generations, else the spans of any agent."""

    name: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    loop: dict[str, Any] | None = None
    calls: list[Call] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    tree: Trace = field(default_factory=Trace)

    def add(self, row: tuple[Any, ...]) -> None:
        """Take one span."""
        _, name, status, start, end, cell = row
        content = parse_json(cell)
        attributes = content.get("attributes") if isinstance(content, dict) else None
        attributes = attributes if isinstance(attributes, dict) else {}
        name = name if isinstance(name, str) else ""
        outputs, inputs = (_decoded(attributes.get(f"mlflow.span{side}")) for side in ("Outputs", "Inputs"))
        if isinstance(outputs, dict) and {"response_ids", "response_mask"} <= outputs.keys():
            self.loop = outputs
        elif isinstance(outputs, dict) and {"token_ids", "log_probs"} <= outputs.keys():
            self._generation(outputs, inputs if isinstance(inputs, dict) else {})
        elif name.endswith("Tool.execute"):
            took = (end - start) / 1e9 if isinstance(start, int) and isinstance(end, int) else None
            failed = isinstance(status, str) and status.upper() == "ERROR"
            self.tools.append({"name": name.removesuffix(".execute"), "ok": not failed, "latency_s": took})
        elif is_span(content):
            take(self.tree, content)

    def _generation(self, outputs: dict[str, Any], inputs: dict[str, Any]) -> None:
        tokens = token_array(outputs["token_ids"])
        if tokens is None or not len(tokens):
            return
        prompt = token_array(inputs.get("prompt_ids"))
        self.calls.append(engine_call(prompt, tokens, outputs["log_probs"], _version(outputs)))


BAD_LOOPS: Final = "traced rollout(s) skipped: lists of different lengths."
NO_LOGPS: Final = "generation(s) skipped: not one log-probability for each token."
VALIDATION: Final = "traced rollout(s) skipped: from validation, not training."
STEPLESS: Final = "traced rollout(s) skipped: no tag with the step."


class _Reader:
    """Turns traces into the tables."""

    def __init__(self, file: RunFile) -> None:
        self._file = file
        self._rows, self._samples = SequenceRows(), Samples(file, SQLITE.name)
        self._traces = 0
        self._counts = dict.fromkeys((BAD_LOOPS, NO_LOGPS, RESPELT, VALIDATION, STEPLESS), 0)

    def end(self, trace: _Trace) -> Iterator[Piece]:
        """Close one trace."""
        if trace.loop is None and not trace.calls:
            if not trace.tree.is_empty:
                attempt(lambda _, samples: trace.tree.put(trace.name, samples), {}, self._samples)
            if self._samples.full:
                yield from self._samples.take()
            return
        self._traces += 1
        step, loop = as_int64(trace.tags.get("step")), trace.loop or {}
        self._counts[STEPLESS] += step is None
        validation = trace.tags.get("validate") == "True"
        name, sample = f"{self._file.rel}:{trace.name}", trace.tags.get("sample_index")
        columns = {
            "step": step,
            "sample_id": None if sample is None else f"{step}/{sample}/{trace.tags.get('rollout_n')}",
            "group_id": None if sample is None else f"{step}/{sample}",
            "reward": as_number(loop.get("reward_score")),
        }
        turns = as_int32(loop.get("num_turns")) if loop else len(trace.calls)
        calls = [{"turn_idx": at, "call_idx": at, "ok_source": "flag", **tool} for at, tool in enumerate(trace.tools)]
        split = "eval" if validation else "train"
        self._samples.put(name, {**columns, "split": split, "n_turns": turns}, calls=calls)
        if validation:
            self._counts[VALIDATION] += 1
        else:
            yield from self._sequences(trace, {**columns, "trajectory_id": name})
        if self._samples.full:
            yield from self._samples.take()

    def _sequences(self, trace: _Trace, columns: dict[str, Any]) -> Iterator[Piece]:
        self._counts[NO_LOGPS] += sum(call.logps is None for call in trace.calls)
        if trace.loop is not None:
            row = _of_loop(trace.loop, columns)
            self._counts[BAD_LOOPS] += row is None
            if row is not None:
                yield from self._rows.add(row)
            return
        sessions = Sessions()
        for call in trace.calls:
            for _ in sessions.add("", call):
                pass  # a single session yields nothing before its end
        for at, joined in enumerate(sessions.close()):
            self._counts[RESPELT] += joined.retokenised
            version = min((version for version in joined.told if version is not None), default=None)
            more = {"sample_id": f"{columns['sample_id'] or trace.name}#{at}", "policy_version": version}
            yield from self._rows.add(joined_row(joined, {**columns, **more}))

    def close(self) -> Iterator[Piece]:
        """Yield the rest, and what could not be used."""
        yield from self._rows.take()
        yield from self._samples.take()
        yield from count_notes(self._file, self._counts, lost=(BAD_LOOPS,))
        if self._traces:
            yield Context(facts={"framework": "verl"})


def _of_loop(loop: dict[str, Any], columns: dict[str, Any]) -> TokenRow | None:
    """Read an agent loop's own sequence, mask and log-probabilities included."""
    tokens, mask = token_array(loop.get("response_ids")), token_array(loop.get("response_mask"))
    if tokens is None or mask is None or not len(tokens) or len(tokens) != len(mask):
        return None
    logps: Array | None = None
    if loop.get("response_logprobs") is not None:
        logps = logp_array(loop["response_logprobs"], len(tokens))
        if logps is None:
            return None
    return TokenRow(
        token_ids=tokens,
        model_mask=np.asarray(mask != 0),
        rollout_logp=logps,
        told={**columns, "policy_version": _version(loop)},
    )


def _version(outputs: dict[str, Any]) -> int | None:
    """Return the oldest weights that sampled, where the fully asynchronous trainer says so."""
    more = outputs.get("extra_fields")
    return as_int64(more.get("min_global_steps")) if isinstance(more, dict) else None


def _decoded(value: Any) -> Any:
    return parse_json(value) if isinstance(value, str) else value


BAD_ROWS: Final = "metric row(s) skipped: no usable name, step or value."
NEEDED = frozenset({"key", "value", "timestamp", "run_uuid", "step", "is_nan"})
LARGEST = sys.float_info.max
MACHINE = "system/"  # MLflow's own samples of the machine
RUNS = "SELECT run_uuid, COUNT(*), MAX(timestamp) FROM metrics GROUP BY run_uuid"
DELETED = "SELECT run_uuid FROM runs WHERE lifecycle_stage = 'deleted'"
METRICS = "SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid IS ? ORDER BY rowid"
PARAMS = "SELECT key, value FROM params WHERE run_uuid IS ?"


def recognises_sqlite(file: RunFile) -> bool:
    """Recognise a database with MLflow's table of metrics."""
    return set(tables_of(file).get("metrics", ())) >= NEEDED


def read_sqlite(file: RunFile) -> Iterator[Piece]:
    """Yield metrics, samples of the machine and settings of one run."""
    yield from of_database(file, _pieces)


def _pieces(connection: sqlite3.Connection, file: RunFile) -> Iterator[Piece]:
    schema = tables(connection)
    if not set(schema.get("metrics", ())) >= NEEDED:
        yield Lost(bytes=file.size, note=f"{file.rel} has no readable table of MLflow's metrics.")
        return
    counts, lost = _split(rows(connection, file, RUNS, held=True))
    yield from lost
    gone: set[Any] = set()
    if {"run_uuid", "lifecycle_stage"} <= set(schema.get("runs", ())):
        deleted, lost = _split(rows(connection, file, DELETED, held=True))
        yield from lost
        gone = {run for (run,) in deleted}
    live = [row for row in counts if row[0] not in gone] or counts
    ranked = sorted(live, key=lambda row: (-row[1], -(row[2] if isinstance(row[2], int) else 0), str(row[0])))
    if ranked:
        yield from _metrics(connection, file, ranked[0][0])
        if {"key", "value", "run_uuid"} <= set(schema.get("params", ())):
            params, lost = _split(rows(connection, file, PARAMS, (ranked[0][0],), held=True))
            yield from lost
            yield setup_context({str(key): None if value == NOTHING else value for key, value in params})
    if others := ranked[1:]:
        most = sum(row[1] for row in others)
        note = (
            f"{file.rel} contains {len(ranked)} runs; only the one with the most metric rows ({ranked[0][1]}) was read "
            f"(rows left out: {most})."
        )
        yield Lost(note=note)
    yield from read_spans(connection, file)


def _split(answers: Iterable[tuple[Any, ...] | Lost]) -> tuple[list[tuple[Any, ...]], list[Lost]]:
    """Return the rows of a query, and what of them is lost."""
    answers = list(answers)
    lost = [answer for answer in answers if isinstance(answer, Lost)]
    return [answer for answer in answers if not isinstance(answer, Lost)], lost


def _metrics(connection: sqlite3.Connection, file: RunFile, run: str) -> Iterator[Piece]:
    columns, machine = MetricColumns(file), MachineLog(file)
    bad = 0
    for seq, row in enumerate(rows(connection, file, METRICS, (run,))):
        if isinstance(row, Lost):
            yield row
            continue
        key, value, stamp, step, is_nan = row
        at = as_step(step)
        if not isinstance(key, str) or at is None or not isinstance(value, (int, float)):
            bad += 1
            continue
        number = float("nan") if is_nan else value_of(float(value))
        wall_time = stamp / 1000 if isinstance(stamp, (int, float)) else None
        if key.startswith(MACHINE):
            machine.add(None, wall_time, key, number)  # its step counts samples
        else:
            columns.add(at, key, number, wall_time, seq)
        yield from columns.flush()
        yield from machine.flush()
    yield from columns.pieces()
    yield from machine.pieces()
    yield from lost_notes(file, {BAD_ROWS: bad})
    yield from columns.framework()


def value_of(value: float) -> float:
    """Undo MLflow's writing of infinities as the largest double."""
    return float("inf") if value >= LARGEST else float("-inf") if value <= -LARGEST else value


SQLITE = Parser(
    name="mlflow_sqlite",
    describes="MLflow's SQLite store: metrics of its largest run, settings, machine; traces of agents and veRL.",
    held_against="real: MLflow 3.17.2",
    priority=27,
    recognises=recognises_sqlite,
    read=read_sqlite,
)


PLACE = re.compile(r"(?:^|.*/)(?:[0-9a-f]{32}/)?(metrics|params)/(.+)")
RUN_PLACE = re.compile(r"(?:^|.*/)[0-9a-f]{32}/(metrics|params)/(.+)")
NUMBER = rb"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|inf|nan)"
LINE = re.compile(rb"(\d{10,16}) (" + NUMBER + rb") (-?\d{1,18})(?: .*)?\r?")
BAD_LINES = "line(s) skipped: not a time, a value and a step."
PARAM_BYTES = 8192
NOTHING = "None"  # how MLflow writes a parameter that is none


def _kind_and_name(file: RunFile) -> tuple[str, str] | None:
    """Return `metrics` or `params` and the name, by the path."""
    match = RUN_PLACE.fullmatch(file.rel) or PLACE.fullmatch(file.rel)
    return (match.group(1), match.group(2)) if match else None


def recognises_files(file: RunFile) -> bool:
    """Recognise a file by the path, and for metrics by the form of the first line."""
    kind_and_name = _kind_and_name(file)
    if kind_and_name is None:
        return False
    head = file.readable_head
    if kind_and_name[0] == "params":
        return RUN_PLACE.fullmatch(file.rel) is not None and 0 < len(head) <= PARAM_BYTES
    return LINE.fullmatch(head.split(b"\n", 1)[0]) is not None


def read_files(file: RunFile) -> Iterator[Piece]:
    """Yield one metric of the run, or one of its settings."""
    kind, name = _kind_and_name(file) or ("metrics", file.name)
    if kind == "params":
        yield from _param(file, name)
        return
    columns, machine = MetricColumns(file), MachineLog(file)
    seq = bad = 0
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        lines = block.split(b"\n")
        for number, line in enumerate(lines):
            if not line.strip():
                continue
            match = LINE.fullmatch(line)
            if is_torn(block) and number == len(lines) - 1:  # a step that is cut still looks like one
                yield torn_line(file, line)
            elif match is None:
                bad += 1
            else:
                wall_time, value = int(match[1]) / 1000, float(match[2])  # inf and nan too
                if name.startswith(MACHINE):
                    machine.add(None, wall_time, name, value)
                else:
                    columns.add(int(match[3]), name, value, wall_time, seq)
                seq += 1
        yield from columns.pieces()
        yield from machine.pieces()
    yield from lost_notes(file, {BAD_LINES: bad})
    yield from framework_facts(framework_of([name]))


def _param(file: RunFile, name: str) -> Iterator[Piece]:
    try:
        text = file.head[:PARAM_BYTES].decode("utf-8", "replace")
    except OSError as error:  # gone, or its disk fails
        yield read_error(file, error)
        return
    yield setup_context({name: None if text == NOTHING else text})
    if _logs_nothing(file):
        yield Lost(note=f"{file.rel}: this MLflow run logged settings but no metric.")


def _logs_nothing(file: RunFile) -> bool:
    """Return whether this is a run's first settings file, and no metric is stored beside it."""
    params = next(folder for folder in file.path.parents if folder.name == "params")
    try:
        first = min(entry.name for entry in params.iterdir())
        logged = bool(list((params.parent / "metrics").iterdir()))
    except FileNotFoundError:
        logged = False
    except OSError:  # a folder that cannot be listed
        return False
    return not logged and file.path.relative_to(params).parts[0] == first


FILES = Parser(
    name="mlflow_files",
    describes="MLflow's file store (`mlruns/`): a metric a file, and its settings.",
    held_against="real: MLflow 3.17.2, file store",
    priority=28,
    recognises=recognises_files,
    read=read_files,
)

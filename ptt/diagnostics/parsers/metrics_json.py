"""Metric logs as one JSON document: lists of log calls, a list a metric, or log calls by their step, at any key.

What training scripts write with `json.dump`: the log history of Hugging Face trainers alone, Keras histories, sacred's
`metrics.json`, AllenNLP's `metrics_epoch_N.json`, lists of episodes beside settings and results. A summary alone, such
as `all_results.json` of Hugging Face, has no course: it tells that training ended, and how long it took.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from ptt.diagnostics.metrics.aliases import framework_of
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.parsers import trl
from ptt.diagnostics.parsers.io.counters import RUN_WORDS, Counter, count_of, is_counter_name
from ptt.diagnostics.parsers.io.interface import HEAD_BYTES, Context, Lost, Parser, Piece, RunFile, lost_notes
from ptt.diagnostics.parsers.io.json_documents import document_head, members
from ptt.diagnostics.parsers.io.lines import BOM, text_head
from ptt.diagnostics.parsers.io.metric_logs import (
    EVALUATION,
    RUNTIME,
    CallLog,
    counter_of,
    curve_name,
    is_training_name,
    sample_keys,
)
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED, MetricColumns, flatten, framework_facts
from ptt.diagnostics.parsers.io.setup_files import kept
from ptt.diagnostics.parsers.io.telemetry import safe_settings
from ptt.diagnostics.parsers.io.values import NON_FINITE, as_number, as_step
from ptt.diagnostics.parsers.metrics_jsonl import sample

MAX_BYTES: Final = 256 << 20  # a million log calls; JSON takes ten times its size when it is read
ROW_BYTES: Final = 250  # in memory, of a row that a value of a column becomes
MAX_NESTING: Final = 3  # a log lies one or two levels inside results, hardly deeper
MAX_SERIES: Final = 64  # of one document: more are the results of a sweep
KEYED: Final = re.compile(r"(?:(step|iter|iteration|update|epoch|episode|ep)[ _-]?)?(\d{1,12})", re.IGNORECASE)
CELLS: Final = (int, float, bool, type(None))  # types in a list that is a metric
POINT_LENGTHS: Final = (2, 3)  # step and value, perhaps after the time
POINT_COUNTERS: Final = ("step", "global_step", "iteration", "iter", "episode", "epoch")
MAX_POINT_KEYS: Final = 4  # of a point: step, value, time, and an epoch
SAMPLED_ROWS: Final = 2000  # used to find what counts the rows
# Keys that only say that a log follows.
PLAIN: Final = frozenset(
    {"history", "metrics", "log", "logs", "log_history", "training_history", "training_log", "training_logs",
     "records", "rows", "data", "steps", "episodes", "epochs", "iterations", "results", "entries", "train", "training",
     "train_log", "train_logs", "train_history", "training_metrics", "train_metrics", "loss_history", "per_step",
     "reward_history", "per_epoch", "per_episode", "curve", "curves", "training_curve", "training_curves",
     "step_metrics", "epoch_metrics", "step_logs", "raw_log_history", "raw_logs", "raw_history", "full_history",
     "log_entries", "scalar_series", "series", "scalars"}
)  # fmt: skip
SETTINGS: Final = frozenset(
    {"config", "configuration", "args", "arguments", "hparams", "hyperparameters", "hyper_parameters", "params",
     "parameters", "settings", "training_args", "training_config", "grpo_config", "ppo_config", "meta", "metadata"}
)  # fmt: skip
RUN_KEYS: Final = RUN_WORDS - {"agent"} | {"stage", "phase", "task"}
"""Words that name a run with a number beside them: agents train side by side."""
STAGES: Final = frozenset({"sft", "rl", "rlhf", "dpo", "ppo", "grpo", "pretrain", "pretraining"})
SUMMARY: Final = frozenset({"train_loss", "train_samples_per_second", "train_steps_per_second", "total_flos"})
HUGGING_FACE: Final = frozenset({"train_samples_per_second", "total_flos"})  # the closing row of its trainers
EPOCH_DOCUMENT: Final = frozenset({"epoch", "training_duration"})  # AllenNLP's, one an epoch
NO_STEP: Final = "row(s) skipped: no step."


@dataclass(frozen=True)
class Series:
    """One log inside a document: where it lies, its rows, and what counts them."""

    path: tuple[str, ...]
    rows: Sequence[dict[str, Any]]
    counter: Counter


def recognises(file: RunFile) -> bool:
    """Recognise a document with a metric log within its first bytes, whatever its name."""
    head = text_head(file).removeprefix(BOM).lstrip()
    if not head.startswith((b"{", b"[")) or sample(file) or trl.recognises_state(file):
        return False
    found = document_head(head.decode("utf-8", "replace"), whole=len(text_head(file)) < HEAD_BYTES)
    return bool(series_in(_tagged(found, file))) or _is_summary(found)


def _is_summary(found: Any) -> bool:
    """Return whether this is only the summary that a trainer writes at its end."""
    return isinstance(found, dict) and as_number(found.get(RUNTIME)) is not None and not SUMMARY.isdisjoint(found)


def series_in(found: Any, path: tuple[str, ...] = ()) -> list[Series]:
    """Return the metric logs of a document, in its first levels."""
    if isinstance(found, dict) and not path and found.keys() >= EPOCH_DOCUMENT and as_step(found["epoch"]) is not None:
        return [Series(path, [found], Counter(keys=("epoch",), unit="epoch"))]
    found = _lifted(found)
    tables, whole = _tables(found, path[-1] if path else "")
    series = [one for rows in tables if (one := _series(path, rows)) is not None]
    if isinstance(found, dict) and not (whole and series) and len(path) < MAX_NESTING:
        for key, inner in found.items():
            if isinstance(inner, dict | list):
                series += series_in(inner, (*path, key))
    return series[:MAX_SERIES]


def _series(path: tuple[str, ...], rows: Sequence[dict[str, Any]]) -> Series | None:
    """Return rows as a log; `{"loss": {"train": [...], "val": [...]}}` names what is measured above the columns.

    A list under the name of its only field is that metric's, by the longer of both names: `{"val/loss": [{"step": 1,
    "loss": 0.5}]}`.
    """
    own = [name for name in rows[0] if not is_counter_name(name)] if rows and path else []
    if len(own) == 1:
        shorter, longer = sorted((own[0], path[-1]), key=len)
        if f"/{longer}".endswith(f"/{shorter}"):
            rows = [{longer if name == own[0] else name: cell for name, cell in row.items()} for row in rows]
            path = path[:-1]
    counter = counter_of(rows[:SAMPLED_ROWS], trust_steps=False)
    if counter is None and path and is_training_name(path[-1]):
        rows = [
            {name if is_counter_name(name) else f"{path[-1]}/{name}": cell for name, cell in row.items()}
            for row in rows
        ]
        counter = counter_of(rows[:SAMPLED_ROWS], trust_steps=False)
    return None if counter is None else Series(path, rows, counter)


def _lifted(found: Any) -> Any:
    """Return columns with those of an inner object of the same length among them: components of the reward."""
    if not isinstance(found, dict):
        return found
    counts = {len(column) for name, column in found.items() if is_counter_name(name) and isinstance(column, list)}
    lifted: dict[str, Any] = {}
    for name, inner in found.items():
        columns = inner.values() if isinstance(inner, dict) and not any(map(is_counter_name, inner)) else ()
        if columns and len(counts) == 1 and all(isinstance(one, list) and len(one) in counts for one in columns):
            lifted |= {f"{name}/{key}": column for key, column in inner.items()}
        else:
            lifted[name] = inner
    return lifted


def _tables(found: Any, key: str) -> tuple[list[list[dict[str, Any]]], bool]:
    """Return what of a value could be rows of logs, and whether all of it was used for them."""
    if isinstance(found, list):
        rows = found if len(found) > 1 and all(isinstance(row, dict) for row in found) else []
        return [rows or _split_rows({"columns": found[:1] and found[0], "data": found[1:]})], True
    if not isinstance(found, dict):
        return [], True
    rows = _keyed_rows(found, key) or _indexed_rows(found) or _split_rows(found) or _point_rows(found)
    return ([rows], True) if rows else (list(_column_rows(found)), False)


def _indexed_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a pandas table, which is written a column at a time: `{"loss": {"0": 0.5, "1": 0.25}}`."""
    columns = list(found.values())
    if not all(
        isinstance(column, dict) and len(column) > 1 and column.keys() == columns[0].keys() for column in columns
    ):
        return []
    if not columns or not all(key.isdecimal() for key in columns[0]):
        return []
    return [{name: column[key] for name, column in found.items()} for key in columns[0]]


def _split_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a table that names its columns once: pandas' `columns` and `data`."""
    names, cells = found.get("columns"), found.get("data")
    if not isinstance(names, list) or not isinstance(cells, list) or len(cells) < 2:
        return []
    even = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    if not even or not all(isinstance(row, list) and len(row) == len(names) for row in cells):
        return []
    return [dict(zip(names, row, strict=True)) for row in cells]


def _keyed_rows(found: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the rows of an object that holds one under each step, epoch or episode; `key`: where it lies."""
    if len(found) < 2 or not all(isinstance(row, dict) for row in found.values()):
        return []
    matches = [match for name in found if (match := KEYED.fullmatch(name))]
    kinds = {(match[1] or "").lower() for match in matches}
    if len(matches) < len(found) or len(kinds) > 1:
        return []
    counts = [int(match[2]) for match in matches]
    counted = kinds.pop() or ("step" if _are_steps(counts, key.lower()) else "")
    return [{counted: at, **row} for at, row in zip(counts, found.values(), strict=True)] if counted else []


def _are_steps(counts: Sequence[int], key: str) -> bool:
    """Return whether bare numbers count steps, not seeds, sizes or ids: by where they lie, or as they begin."""
    if key:
        return key in PLAIN or key in EVALUATION or is_counter_name(key)
    return counts[0] in (0, 1) or counts[0] == counts[1] - counts[0]


def _point_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an object that holds the points of a curve under each metric."""
    by_count: dict[tuple[str, int], dict[str, Any]] = {}
    curves = {name: curve for name, inner in found.items() if (curve := _points(inner))[1]}
    is_log = 2 * len(curves) > len(found) and any(len(points) > 1 for _, points in curves.values())
    for name, (counted, points) in curves.items() if is_log else ():
        for count, value in points:
            by_count.setdefault((counted, count), {counted: count})[name] = value
    return [by_count[key] for key in sorted(by_count)]


def _points(found: Any) -> tuple[str, list[tuple[int, Any]]]:
    """Return what counts the points of a curve, and count and value of each; one alone where it says what it is."""
    pairs: list[tuple[Any, Any]] = []
    counted, minimum = "step", 2
    if isinstance(found, dict):
        steps, values = found.get("steps", found.get("step")), found.get("values", found.get("value"))
        if isinstance(steps, list) and isinstance(values, list) and len(steps) == len(values):
            pairs, minimum = list(zip(steps, values, strict=True)), 1
        elif isinstance(values, dict) and all(map(str.isdecimal, values)):
            pairs = [(int(step), value) for step, value in values.items()]
    elif isinstance(found, list):
        counted = next(
            (name for name in POINT_COUNTERS if found and isinstance(found[0], dict) and name in found[0]), "step"
        )
        for point in found:
            if isinstance(point, list) and len(point) in POINT_LENGTHS:
                pairs.append((point[-2], point[-1]))
            elif isinstance(point, dict) and "value" in point and counted in point and len(point) <= MAX_POINT_KEYS:
                pairs.append((point[counted], point["value"]))
            else:
                return counted, []
    points = [(count, value) for at, value in pairs if (count := as_step(at)) is not None and _is_cell(value)]
    rising = all(one[0] <= other[0] for one, other in pairwise(points))
    return counted, points if minimum <= len(points) == len(pairs) and rising else []


def _is_cell(value: Any) -> bool:
    """Return whether a value may be part of a curve; a writer may spell NaN out."""
    return type(value) in CELLS or (isinstance(value, str) and value.lower() in NON_FINITE)


def _column_rows(found: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows that columns of one length make: training and evaluation are logged at steps of their own."""
    lengths: dict[int, dict[str, list[Any]]] = {}
    for name, column in found.items() if not sample_keys(found) else ():
        if isinstance(column, list) and len(column) > 1 and all(map(_is_cell, column)):
            lengths.setdefault(len(column), {})[name] = column
    for alike in lengths.values():
        yield [dict(zip(alike, cells, strict=True)) for cells in zip(*alike.values(), strict=True)]


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the metrics of each log in the document, then what its settings and its end tell."""
    if file.size > MAX_BYTES:
        yield Lost(bytes=file.size, note=f"{file.rel} is larger than {MAX_BYTES >> 20} MB and was not read.")
        return
    fields: dict[str, Any] = {}
    elements: list[Any] = []
    streamed = frozenset(_first_keys(file))
    is_list = text_head(file).removeprefix(BOM).lstrip().startswith(b"[")
    for member in members(file, streamed, row_bytes=ROW_BYTES):
        if isinstance(member, Lost):
            yield member
            continue
        key, value = member
        if key in streamed:
            fields.setdefault(key, []).append(value)
        elif is_list:
            elements.append(value)
        else:
            fields[key] = value
    found = _tagged(elements or fields, file)
    series = series_in(found)
    if series:
        yield from _metrics(file, series)
    elif not _is_summary(found):
        yield Lost(bytes=file.size, note=f"{file.rel} has no rows of named numbers, so no metrics.")
    yield from _facts(found, series)


def _first_keys(file: RunFile) -> Iterator[str]:
    """Yield the keys of lists that the first bytes of an object show: torn, they keep the elements that are whole."""
    head = text_head(file).removeprefix(BOM).decode("utf-8", "replace")
    found = document_head(head, whole=False)
    if isinstance(found, dict):
        yield from (key for key, value in found.items() if isinstance(value, list) and value)


def _tagged(found: Any, file: RunFile) -> Any:
    """Return a curve exported by TensorBoard under its file's name: only that says what it is."""
    if isinstance(found, list) and found and isinstance(found[0], list) and _points(found)[1]:
        return {curve_name(file): found}
    return found


def _metrics(file: RunFile, series: Sequence[Series]) -> Iterator[Piece]:
    main = max(series, key=lambda one: len(one.rows))
    columns = MetricColumns(file)
    fronts: set[tuple[str, ...]] = set()
    bad = seq = 0
    names: set[str] = set()
    runs = _are_runs(series)
    known = _values(main) if len(series) > 1 and not runs else set()
    series = _numbered(series) if runs else series
    for one in series if runs else sorted(series, key=lambda one: one is not main):
        if one is not main and known and (told := _values(one)) and told <= known and not _evaluates(one):
            continue
        front = one.path[1:] if runs else _front(one, alone=len(series) == 1)
        taken = front in fronts and not _names(one).isdisjoint(names)
        if not runs and (taken or one.counter.unit != main.counter.unit):
            front = one.path
        fronts.add(front)
        names |= _names(one)
        log = CallLog(columns, one.counter, front="".join(f"{part}/" for part in front), seq=seq)
        for row in one.rows:
            bad += not log.add(row)
            yield from columns.flush()
        seq = log.seq
        yield from log.facts() if one is main else ()
    yield from columns.pieces()
    yield from lost_notes(file, {NO_STEP: bad})
    bare = {name.removeprefix(UNNUMBERED) for name in columns.names}
    yield from framework_facts(framework_of(bare) or ("transformers" if bare >= HUGGING_FACE else None))


def _are_runs(series: Sequence[Series]) -> bool:
    """Return whether logs under keys of their own are of several runs: the keys say so, by `seed_1`, `stage2` or `sft`.

    Each has the same metrics of training, more than one. Parts of one run, `actor` and `critic`, have that too.
    """
    heads = [one for one in series if len(one.path) == 1]
    keys = {one.path[0] for one in heads}
    if len(keys) < 2 or {one.path[:1] for one in series} != {(key,) for key in keys} or not all(map(_names_run, keys)):
        return False
    names = [{name for name in _names(one) if "/" not in name} for one in heads]  # components may be the stage's own
    trained = sum(is_training_name(name) for name in names[0])
    alike = all(other == names[0] for other in names) and len({one.counter for one in series}) == 1
    return alike and trained > 1


def _names_run(key: str) -> bool:
    words = words_of(key)
    numbered = not words.isdisjoint(RUN_KEYS) and any(map(str.isdecimal, words))
    return numbered or (not words.isdisjoint(STAGES) and words <= STAGES | RUN_KEYS)


def _numbered(series: Sequence[Series]) -> list[Series]:
    """Return the logs of runs with a number for each, by which they are told apart."""
    keys = list(dict.fromkeys(one.path[0] for one in series))
    return [replace(one, rows=[{**row, "run": keys.index(one.path[0])} for row in one.rows]) for one in series]


def _evaluates(series: Series) -> bool:
    return not {key.lower() for key in series.path}.isdisjoint(EVALUATION)


def _values(series: Series) -> set[tuple[int | None, str, float]]:
    """Return what a log says: step, name and value."""
    return {
        (count_of(row, series.counter), name, value)
        for row in series.rows
        for name, cell in row.items()
        if not is_counter_name(name) and (value := as_number(cell)) is not None
    }


def _names(series: Series) -> set[str]:
    return set().union(*(row.keys() for row in series.rows[:SAMPLED_ROWS])) - set(series.counter.keys)


def _front(series: Series, *, alone: bool) -> tuple[str, ...]:
    """Return which keys above a log belong into the names of its metrics."""
    told = tuple(key for key in series.path if key.lower() not in PLAIN)
    if alone:
        return tuple(key for key in told[-1:] if key.lower() in EVALUATION)
    return told


def _facts(found: Any, series: Sequence[Series]) -> Iterator[Context]:
    """Yield the settings beside the logs, and how long the training took."""
    if not isinstance(found, dict):
        return
    facts: dict[str, Any] = {}
    settings = {key: value for key, value in found.items() if key.lower() in SETTINGS and isinstance(value, dict)}
    plain = {key: value for key, value in found.items() if not isinstance(value, dict | list)}
    if series:
        facts |= safe_settings(flatten(settings) | plain)
    if (runtime := as_number(found.get(RUNTIME))) is not None:
        facts[RUNTIME] = runtime
    if facts:
        yield Context(facts=facts, settings=kept(_inner_settings(settings)))


def _inner_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings by their own names, without the name of the object they stand in."""
    return {name: value for inner in settings.values() for name, value in flatten(inner).items()}


PARSER = Parser(
    name="metrics_json",
    describes="Metric logs as a JSON document (log histories, Keras, sacred, AllenNLP, home-made): metrics.",
    held_against="source: transformers' log history, Keras, sacred's FileStorageObserver, AllenNLP; files of home-made "
    "loops",
    priority=22,
    general=True,
    recognises=recognises,
    read=read,
)

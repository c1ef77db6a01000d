"""Tables of numbers that hardly say what they are: read only in a run where no other file is a training log.

A curve dumped as a bare JSON list, a CSV without a header, two columns of text, rows of rewards without a step. What
opens one is a word of training in its name or its columns, and a course: a column that rises, or a plain series.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final

import numpy as np

from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.parsers.io.counters import COUNTERS, EPISODES, EPOCHS, Counter, Unit, count_name
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile, lost_notes
from ptt.diagnostics.parsers.io.lines import BOM, parse_json, pieces, text_head, too_large_to_parse
from ptt.diagnostics.parsers.io.metric_logs import (
    IDENTITIES,
    MAX_TEXT_CHARS,
    MEASURED,
    TRAINING,
    CallLog,
    curve_name,
    flat_call,
    is_number_text,
    sample_keys,
)
from ptt.diagnostics.parsers.io.metric_rows import TIME_KEYS, MetricColumns
from ptt.diagnostics.parsers.io.token_dumps import content, names_in
from ptt.diagnostics.parsers.io.values import as_number, as_seconds, as_step

MAX_BYTES: Final = 32 << 20  # unpacked: rows are objects here, a hundred times their text
MIN_ROWS: Final = 8  # fewer are a summary
MAX_COLUMNS: Final = 128  # more are features
MAX_SERIES: Final = 16  # lists without names: more are rows, or a matrix of weights
MAX_NESTING: Final = 3
FALLS: Final = 20  # one row in so many may begin the count anew: a log to which several starts append
MAX_PER_COUNT: Final = 1.5  # rows for each count, above which rows are numbered instead
WHOLE: Final = 0.9  # of the lines that must fit the table's width
SEPARATORS: Final = (",", "\t", ";")
BLANKS: Final = re.compile(r"[ \t]+")
ARRAYS: Final = frozenset(
    {"timesteps", "results", "ep_lengths", "rewards", "episode_rewards", "returns", "scores", "losses", "loss"}
)
"""Names of arrays in NumPy's archives that are curves."""
EVALUATED: Final = {"results": "eval/mean_reward", "ep_lengths": "eval/mean_ep_length"}  # stable-baselines3's
LIST: Final = re.compile(r"[,;\s]+")
UNNAMED: Final = "0"  # what pandas calls a column without a name
NAME: Final = re.compile(r"[^\W\d][\w ./%()\[\]#@+-]{0,80}")
ROW: Final = "__row"  # the key that numbers rows which count nothing

COURSE: Final = frozenset(
    {"episode", "episodes", "epoch", "epochs", "step", "steps", "iter", "iters", "iteration", "iterations", "elo",
     "exploitability", "regret", "length", "lengths", "len", "train", "training", "learning", "winrate", "wins",
     "winning", "log", "logs", "history", "progress", "curve", "curves", "policy", "critic", "actor", "metrics", "q",
     "update", "updates", "generation", "timesteps", "nashconv", "validation", "val", "rating", "loss", "advantage"}
)  # fmt: skip
"""Words of a log's name or of its columns, besides those of what is measured."""
KNOWN: Final = TRAINING | MEASURED | {"elo", "exploitability", "nashconv", "rating", "regret", "winrate", "wins"}
"""Words of measured values: a column named by them needs no counter."""
TELLING: Final = KNOWN | COURSE
SERIES: Final = KNOWN | {"curve", "episode", "episodes", "history", "length", "lengths", "q", "steps"}
"""Words in names of files with a single series: `train` alone could name a data set."""
ENDS: Final = frozenset({"best", "final"})  # one row for each run of a sweep
OUTPUT: Final = frozenset({"output", "out", "run", "stats", "results", "result"})  # names of logs, and of other files
NO_LOG: Final = frozenset(
    {"dataset", "datasets", "data", "prediction", "predictions", "submission", "benchmark", "benchmarks", "leaderboard",
     "sweep", "sweeps", "grid", "answers", "answer", "samples", "ablation", "ablations", "vocab", "vocabulary",
     "features", "labels", "embedding", "embeddings", "confusion", "comparison", "weights", "map", "tokens", "config",
     "confidence", "questions", "prices", "id", "ids", "idx", "index", "indices", "split", "splits"}
)  # fmt: skip
"""Words in names of files without a course of training, whatever their columns are called."""
NO_COURSE: Final = frozenset(
    {"label", "labels", "target", "feature", "features", "question", "answer", "prompt", "prediction", "predictions",
     "predicted", "text", "open", "close", "volume", "price", "seed", "benchmark", "model", "config", "trial", "arm",
     "dataset", "latitude", "longitude", "date", "symbol", "ticker", "user", "category", "threshold", "fpr", "tpr",
     "response", "code", "observation"}
)  # fmt: skip
"""Words of columns of data sets, sweeps and tables of things."""
ANSWERS_KEYS: Final = frozenset({"task_id", "task", "completion_len", "completion_length", "response_len"})


@dataclass(frozen=True)
class Table:
    """Rows by their columns, as read; `named`: the file names the columns."""

    rows: list[dict[str, Any]]
    named: bool

    @property
    def names(self) -> list[str]:
        """The columns, of all rows."""
        return list(dict.fromkeys(name for row in self.rows for name in row))


def recognises(file: RunFile) -> bool:
    """Recognise a table with a rising counter, or a single series, in a text whose words come from training."""
    if names_in(file, ARRAYS):
        return True
    if file.size > MAX_BYTES or b"\0" in text_head(file):
        return False
    return bool(_courses(file))


def _courses(file: RunFile) -> list[tuple[Table, Counter]]:
    """Return the tables of a file, and what counts their rows; looked into once."""
    key = "plain tables"
    if key not in file.looks:
        tables = _array_tables(file) if names_in(file, ARRAYS) else _text_tables(file)
        found = [(table, _counter(table, file)) for table in tables]
        file.looks[key] = [(table, counter) for table, counter in found if counter is not None]
    courses: list[tuple[Table, Counter]] = file.looks[key]
    return courses


def _text(file: RunFile) -> str | Lost:
    """Return the whole of a text, or why it is not read."""
    content = bytearray()
    for piece in pieces(file):
        if isinstance(piece, Lost):
            return piece
        content += piece
        if len(content) > MAX_BYTES:
            return Lost(bytes=file.size, note=f"{file.rel} contains more than {MAX_BYTES >> 20} MB and was not read.")
    if why := too_large_to_parse(file, content, "the document"):
        return Lost(bytes=file.size, note=f"{file.rel}: {why}; it was not read.")
    return content.removeprefix(BOM).decode("utf-8", "replace")


def _text_tables(file: RunFile) -> list[Table]:
    text = _text(file)
    return [] if isinstance(text, Lost) else _tables(text, file)


def _array_tables(file: RunFile) -> list[Table]:
    """Return the arrays of one length as columns; of several values a row, as stable-baselines3 evaluates, the mean."""
    found, _ = content(file)
    lengths: dict[int, dict[str, list[Any]]] = {}
    for name, array in found.items() if isinstance(found, dict) else ():
        if isinstance(array, np.ndarray) and array.dtype.kind in "fiu" and 1 <= array.ndim <= 2 and array.size:
            with np.errstate(all="ignore"):  # the mean of infinities is NaN
                column = array if array.ndim == 1 else array.astype(np.float64).mean(axis=1)
            lengths.setdefault(len(column), {})[EVALUATED.get(str(name), str(name))] = column.tolist()
    return [
        Table([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)], True)
        for columns in lengths.values()
    ]


def _tables(text: str, file: RunFile) -> list[Table]:
    """Return what of a text could be tables: JSON, JSON lines, or cells."""
    if not text.lstrip().startswith(("{", "[")):
        table = _cell_table(text, curve_name(file))
        return [table] if table else []
    whole = parse_json(text.encode("utf-8", "replace"))
    if whole is None:
        lines = [parse_json(line.encode("utf-8", "replace")) for line in text.splitlines() if line.strip()]
        good = [line for line in lines if isinstance(line, dict | list)]
        whole = good if len(good) >= max(MIN_ROWS, WHOLE * len(lines)) else None
    return list(_json_tables(whole, curve_name(file), 0))


def _json_tables(found: Any, name: str, level: int) -> Iterator[Table]:
    """Yield the tables of a document: rows by name, rows by place, columns of one length, or series without names."""
    if isinstance(found, list):
        yield from _list_tables(found, name)
        return
    if not isinstance(found, dict) or level > MAX_NESTING or sample_keys(found):
        return
    by_length: dict[int, dict[str, list[Any]]] = {}
    for key, inner in islice(found.items(), MAX_COLUMNS):
        if isinstance(inner, list) and inner and all(map(_is_cell, inner)):
            by_length.setdefault(len(inner), {})[f"{name}/{key}" if level or key.isdecimal() else key] = inner
        elif isinstance(inner, dict | list):
            yield from _json_tables(inner, key if not level else f"{name}/{key}", level + 1)
    for columns in by_length.values():
        yield Table([dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)], True)
    if len(found) >= MIN_ROWS and all(map(str.isdecimal, found)) and all(map(_is_cell, found.values())):
        yield Table([{"step": int(key), name: value} for key, value in found.items()], True)


def _list_tables(found: list[Any], name: str) -> Iterator[Table]:
    """Yield the tables of a list: numbers, lists of numbers, or objects."""
    if all(map(_is_cell, found)):
        yield Table([{name: value} for value in found], False)
    elif all(isinstance(row, dict) for row in found):
        yield Table([flat_call(row) for row in found], True)
    elif all(isinstance(row, list) and row and all(map(_is_cell, row)) for row in found):
        widths = {len(row) for row in found}
        if len(found) <= MAX_SERIES and min(widths) >= MIN_ROWS:  # a series each
            for number, series in enumerate(found, start=1):
                yield Table([{f"{name} {number}": value} for value in series], False)
        elif len(widths) == 1 and len(found[0]) <= MAX_SERIES:
            columns = _places(len(found[0]), name)
            yield Table([dict(zip(columns, row, strict=True)) for row in found], False)


def _places(width: int, name: str) -> list[str]:
    """Name columns by their place; the last of two by the file, as the value that is counted."""
    return ["column 1", name] if width == 2 else [f"column {place}" for place in range(1, width + 1)]


def _cell_table(text: str, name: str) -> Table | None:
    """Return a table of lines of cells, with or without a header; `name`: for a value without one."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    if len(lines) == 1:
        values = [cell for cell in LIST.split(lines[0].strip().rstrip(",;")) if cell]
        plain = len(values) >= MIN_ROWS and all(map(is_number_text, values))
        return Table([{name: float(value)} for value in values], False) if plain else None
    for separator in sorted((*SEPARATORS, " "), key=lambda one: one != ";" or ";" not in lines[0]):  # 1;0,5
        rows = [_cells(line, separator) for line in lines[:MIN_ROWS]]
        width = len(rows[-1]) if rows else 0
        if not 1 <= width <= MAX_COLUMNS or (width == 1 and separator != SEPARATORS[0]) or (width > 1 and _odd(rows)):
            continue
        if width == 1 and any(BLANKS.search(line.strip()) for line in lines[1:MIN_ROWS]):
            continue
        header = _header(rows[0], width)
        body = [cells for line in lines[bool(header) :] if len(cells := _cells(line, separator)) == width]
        if len(body) < WHOLE * (len(lines) - 1) or (not header and not _numbers_first(body)):
            continue
        names = [cell if cell != UNNAMED else name for cell in header] or (
            [name] if width == 1 else _places(width, name)
        )
        values = [[_value(cell) for cell in row] for row in body]
        return Table([dict(zip(names, row, strict=True)) for row in values], bool(header))
    return None


def _odd(rows: Sequence[Sequence[str]]) -> bool:
    return len({len(row) for row in rows[1:]}) > 1


def _header(cells: Sequence[str], width: int) -> list[str]:
    """Return the names of a first line; empty where it is a row like the others."""
    names = [cell.lstrip("#").strip() for cell in cells]
    if names == ["", UNNAMED]:  # a pandas series without a name
        return names
    named = [name for name in names if NAME.fullmatch(name) and not is_number_text(name)]
    unnamed = len(names) - len(named)
    good = len(names) == width == len(set(names)) and unnamed <= 1 and (not unnamed or "" in names)
    return names if good else []


def _numbers_first(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether rows without a header are numbers, except for a label."""
    return all(is_number_text(row[0]) and 3 * sum(map(is_number_text, row)) >= 2 * len(row) for row in rows)


def _cells(line: str, separator: str) -> list[str]:
    if separator == " ":
        return BLANKS.split(line.strip())
    try:
        return [cell.strip() for cell in next(csv.reader(io.StringIO(line), delimiter=separator), [])]
    except csv.Error:
        return []


def _value(cell: str) -> Any:
    """Return the number in a cell, in percent or with a decimal comma too; else its text."""
    for spelt in (cell, cell.removesuffix("%"), cell.replace(",", ".", 1)):
        if is_number_text(spelt):
            return float(spelt)
    return cell or None


def _is_cell(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _counter(table: Table, file: RunFile) -> Counter | None:
    """Return what counts the rows of a course of training; None for any other table."""
    rows, names = table.rows, table.names
    stem = words_of(file.name.partition(".")[0])
    if len(rows) < MIN_ROWS or len(names) > MAX_COLUMNS or stem & NO_LOG:
        return None
    words = frozenset[str]().union(*map(words_of, names)) if table.named else frozenset[str]()
    numbers = [name for name in names if sum(as_number(row.get(name)) is not None for row in rows) * 2 > len(rows)]
    if not numbers or _is_of_samples(table):
        return None
    rising = [name for name in numbers if _rises([as_number(row.get(name)) for row in rows], name in TIME_KEYS)]
    if _tells_things(table, counted=bool(rising)):
        return None
    telling = bool((words | stem | words_of(numbers[-1])) & TELLING)
    twice = len(rising) > 1 and bool(stem & OUTPUT)  # episodes and steps, in a file that is called an output
    measured = [name for name in numbers if name not in rising]
    if not (telling or twice) or not measured:
        return None
    plain = not table.named and len(numbers) == 1 and bool((stem | words_of(numbers[0])) & SERIES)
    timed = any(name in TIME_KEYS for name in rising)
    known = bool(frozenset[str]().union(*map(words_of, measured)) & KNOWN)
    if not (rising or plain or (known and len(numbers) == len(names) and not words & ENDS)):
        return None
    counters = [name for name in rising if name not in TIME_KEYS and (not table.named or _unit(name))]
    if table.named and not counters and not timed and not known:
        return None
    return _finest(counters, rows)


def _finest(counters: Sequence[str], rows: Sequence[dict[str, Any]]) -> Counter:
    """Return the column whose counts hardly repeat; without one, rows are numbered."""
    for name in counters:
        counts = [as_step(row.get(name)) for row in rows]
        falls = sum(one is not None and other is not None and one > other for one, other in pairwise(counts))
        if None not in counts and (falls or len(counts) <= MAX_PER_COUNT * len(set(counts))):
            fine = sum(one != other for one, other in pairwise(counts)) * MAX_PER_COUNT >= len(counts) - 1
            if fine:
                return Counter(keys=(name,), unit=_unit(name) or "row")
    return Counter(keys=(ROW,), unit="row")


def _unit(name: str) -> Unit | None:
    """Return what a column with this name counts; None if it is not a counter."""
    plain = count_name(name)
    if plain in COUNTERS:
        return COUNTERS[plain][1]
    words = words_of(name)
    if words & {*EPISODES}:
        return "episode"
    if words & {*EPOCHS}:
        return "epoch"
    return "step" if words & {"step", "steps", "timestep", "timesteps", "iteration", "update"} else None


def _rises(column: Sequence[float | None], clock: bool) -> bool:
    """Return whether a column counts: whole numbers or times that hardly ever fall, and then begin anew."""
    known = [value for value in column if value is not None]
    if len(known) < len(column) or len(set(known)) < MIN_ROWS // 2 or known[0] < 0:
        return False
    falls = [other for one, other in pairwise(known) if other < one]
    low = min(known)
    again = all(value <= low + (max(known) - low) / FALLS for value in falls)
    whole = all(value == int(value) for value in known if abs(value) < float("inf"))
    return (
        len(falls) <= len(known) // FALLS
        and again
        and (whole or clock or (not falls and len(set(known)) == len(known)))
    )


def _tells_things(table: Table, *, counted: bool) -> bool:
    """Return whether a column shows that rows are data, settings or things, rather than answers paid in training."""
    paid = counted and any(words_of(name) & TRAINING for name in table.names)
    for name in table.names if table.named else ():
        words = words_of(name)
        texts = [value for row in table.rows if isinstance(value := row.get(name), str)]
        if (words & NO_COURSE and not words & TRAINING) or (
            words & IDENTITIES and not paid and (len(set(texts)) > 1 or "id" in words)
        ):
            return True
    return False


def _is_of_samples(table: Table) -> bool:
    """Return whether rows hold prose, lists, or a text column whose values mostly differ: samples, not metrics."""
    for name in table.names:
        texts = [value for row in table.rows if isinstance(value := row.get(name), str)]
        if any(len(text) > MAX_TEXT_CHARS for text in texts):
            return True
        if texts and as_seconds(texts[0]) is None and 2 * len(set(texts)) > len(table.rows):
            return True
    lists = any(isinstance(value, list) for row in table.rows for value in row.values())
    return lists or (table.named and bool(sample_keys(table.rows[0]) - ANSWERS_KEYS))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the metrics of each table; unnamed columns, and rows without a counter, go by position."""
    columns = MetricColumns(file)
    courses = _courses(file)
    if not courses:
        text = _text(file) if not names_in(file, ARRAYS) else None
        yield text if isinstance(text, Lost) else Lost(bytes=file.size, note=f"{file.rel} has no course of numbers.")
    bad = seq = 0
    for table, counter in courses:
        log = CallLog(columns, counter, seq=seq)
        for number, row in enumerate(table.rows, start=1):
            numbered = {ROW: number, **row} if counter.keys == (ROW,) else row
            bad += not log.add(numbered)
            yield from columns.flush()
        seq = log.seq
        if counter is courses[0][1]:
            yield from log.facts()
    yield from columns.pieces()
    yield from lost_notes(file, {"row(s) skipped: no count, or nothing measured.": bad})


PARSER = Parser(
    name="plain_tables",
    describes="Plain tables and series of numbers (a CSV without header, two columns of text, a JSON list), in a run "
    "with no other training log: metrics.",
    held_against="source: files of home-made loops, written with numpy, csv and json",
    priority=40,
    general=True,
    last_resort=True,
    recognises=recognises,
    read=read,
)

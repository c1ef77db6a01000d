"""Console logs as text: the metrics printed on them, and the lines that speak of trouble as events.

torchtune's DiskLogger and StdoutLogger (`torchtune/training/metric_logging.py` of pytorch/torchtune), veRL's console
logger (`verl/utils/logger/aggregate_logger.py` of verl-project/verl), and the dicts that Hugging Face trainers print,
on SageMaker too. Such a dict names no step: its rows are numbered, and their names begin with `console:`, so that they
never stand in one series with rows whose step is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from ptt.diagnostics.metrics.aliases import canonical, framework_of
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.lines import blocks, is_torn, pieces, torn_line
from ptt.diagnostics.parsers.io.metric_rows import STEP_KEYS, MetricColumns, framework_facts
from ptt.diagnostics.parsers.io.telemetry import ESCAPES, EventLog
from ptt.diagnostics.parsers.io.values import NON_FINITE, as_step

LINE_CHARS = 1 << 18  # no log call prints more
PLAIN = r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?(?:[eE][+-]?\d{1,4})?|\.\d{1,400}|inf|nan|Infinity|NaN)"
WRAPPED = re.compile(rf"(?:(?:np|numpy)\.(?:float|int)\d+\(|tensor\()?({PLAIN})(?:\)|, [^()]{{0,80}}\))?")
VERL = re.compile(r"(?:^|[\s)])step:(\d{1,18}) - (.+)")
TORCHTUNE = re.compile(r"(?:^|\s)Step (\d{1,18}) \| (.+)")
DICT_PAIR = re.compile(
    r"'([^'\\]{1,200})': (?:'([^'\\]{0,200})'|(None|True|False|[^'\"\s{}\[\],()]{1,400}"
    r"|(?:np|numpy)\.(?:float|int)\d+\([^()]{1,400}\)|tensor\([^()]{1,400}\)))(, |\}$)"
)
WORDS: dict[str, float | None] = {"None": None, "True": 1.0, "False": 0.0}


@dataclass(frozen=True)
class ConsoleRow:
    """One log call; `step` is None where the line names none."""

    framework: str | None
    step: int | None
    values: dict[str, float | None]


def console_row(line: str) -> ConsoleRow | None:
    """Read one line as a log call; None if it is none."""
    if len(line) > LINE_CHARS:
        return None
    text = (ESCAPES.sub("", line) if "\x1b" in line else line).rstrip()
    if "step:" in text and (match := VERL.search(text)):
        return _pairs("verl", match.group(1), match.group(2).split(" - "))
    if "Step " in text and (match := TORCHTUNE.search(text)):
        return _pairs("torchtune", match.group(1), match.group(2).split(" "))
    start = text.find("{'")
    return _dict(text[start + 1 :]) if start >= 0 and text.endswith("}") else None


def number_of(text: str) -> float | None:
    """Read a number as Python, NumPy or torch print it; ValueError where it is none."""
    match = WRAPPED.fullmatch(text)
    if match is None:
        raise ValueError("no number")
    known = NON_FINITE.get(match.group(1).lower())
    return float(match.group(1)) if known is None else known


def _pairs(framework: str, step: str, pairs: list[str]) -> ConsoleRow | None:
    values: dict[str, float | None] = {}
    for pair in pairs:
        name, colon, text = pair.strip().rpartition(":")
        if not (name and colon):
            continue
        try:
            values[name] = WORDS[text] if text in WORDS else number_of(text)
        except ValueError:  # a text
            continue
    return ConsoleRow(framework, int(step), values) if values else None


def _dict(text: str) -> ConsoleRow | None:
    flat: dict[str, float | None] = {}
    step: int | None = None
    at = 0
    while at < len(text):
        match = DICT_PAIR.match(text, at)
        if match is None:  # a nested object, a list, prose: no log call
            return None
        at = match.end()
        name, quoted, bare, _ = match.groups()
        value = quoted if quoted is not None else bare
        if name in STEP_KEYS and step is None and (named := as_step(value)) is not None:
            step = named
            continue
        try:  # newer trainers print their rounded numbers as texts
            flat[name] = WORDS[value] if quoted is None and value in WORDS else number_of(value)
        except ValueError:
            continue
    known = "epoch" in flat or step is not None or any(map(canonical, flat))
    return ConsoleRow(None, step, flat) if flat and known else None


SUFFIXES = (".log", ".txt", ".out", ".err", ".log.gz", ".txt.gz", ".log.zst", ".txt.zst")
NAMES = ("stdout", "stderr", "nohup.out")
MAX_SEARCH_BYTES = 1 << 20  # how far the first log call may be from the beginning: models load, engines warm up
MARKS = (b"step:", b"Step ", b"{'")
UNNUMBERED = "console:"
CLOSING = "train_runtime"  # only the last row of a Hugging Face run has it


def recognises(file: RunFile) -> bool:
    """Recognise a text file with a log call near its beginning."""
    name = file.name.lower()
    if not (name.endswith(SUFFIXES) or name in NAMES):
        return False
    head = bytearray()
    for piece in pieces(file):
        if isinstance(piece, Lost) or b"\0" in piece:
            break
        head += piece
        if len(head) >= MAX_SEARCH_BYTES:
            break
    lines = bytes(head).split(b"\n")
    return any(_row(line) for line in lines if any(mark in line for mark in MARKS))


def _row(line: bytes) -> ConsoleRow | None:
    if len(line) > LINE_CHARS:
        return None
    return console_row(line.decode("utf-8", "replace"))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics block by block, then events; a line that is cut off is counted."""
    columns, events = MetricColumns(file), EventLog(file)
    names: set[str] = set()
    frameworks: set[str] = set()
    seq = numbered = 0
    step: int | None = None
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        lines = block.split(b"\n")
        if is_torn(block):
            yield torn_line(file, lines.pop())
        for line in lines:
            row = _row(line) if any(mark in line for mark in MARKS) else None
            if row is None:
                if len(line) <= LINE_CHARS:
                    events.add_output(step, None, "stdout", line.decode("utf-8", "replace"))
                continue
            prefix = ""
            if row.step is None:
                numbered += _is_step(row)
                prefix = UNNUMBERED
            step = numbered if row.step is None else row.step
            for name, value in row.values.items():
                columns.add(step, prefix + name, value, None, seq)
            names.update(row.values)
            frameworks |= {row.framework} if row.framework else set()
            seq += 1
        for frame in columns.frames():
            yield Rows(table="metrics", frame=_named(frame))
    yield from events.pieces()
    if numbered:
        yield Lost(note=f"{file.rel}: {numbered} row(s) name no step; they are numbered from 1 in their order.")
    yield from framework_facts(frameworks.pop() if len(frameworks) == 1 else framework_of(names))


def _is_step(row: ConsoleRow) -> bool:
    """Return whether a row without step is a training step's: not an evaluation, not the closing one."""
    return CLOSING not in row.values and not all(name.startswith("eval_") or name == "epoch" for name in row.values)


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """Return numbered rows the names and splits of what they begin with."""
    raws = [raw for raw in frame["name_raw"].unique().to_list() if raw.startswith(UNNUMBERED)]
    if not raws:
        return frame
    bare = [raw.removeprefix(UNNUMBERED) for raw in raws]
    raw = pl.col("name_raw")
    names = pl.Series([canonical(name) for name in bare], dtype=pl.String)
    splits = pl.Series(["eval" if name.startswith("eval_") else "train" for name in bare], dtype=pl.String)
    return frame.with_columns(
        name=raw.replace_strict(raws, names, default=pl.col("name"), return_dtype=pl.String),
        split=raw.replace_strict(raws, splits, default=pl.col("split"), return_dtype=pl.String),
    )


PARSER = Parser(
    name="console_log",
    describes="Console logs (torchtune, veRL, dicts of Hugging Face trainers): printed metrics, lines of trouble.",
    priority=50,
    recognises=recognises,
    read=read,
)

"""Console logs as text: the metrics printed on them, and the lines that speak of trouble as events.

torchtune's DiskLogger and StdoutLogger (`torchtune/training/metric_logging.py` of pytorch/torchtune), veRL's console
logger (`verl/utils/logger/aggregate_logger.py` of verl-project/verl), and the dicts that Hugging Face trainers print,
on SageMaker too. Such a dict names no step: its rows are numbered, and their names begin with `console:`, so that they
never stand in one series with rows whose step is known.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from ptt.diagnostics.parsers.aliases import canonical, framework_of
from ptt.diagnostics.parsers.console_lines import LINE_CHARS, ConsoleRow, console_row
from ptt.diagnostics.parsers.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.lines import blocks, is_torn, torn_line
from ptt.diagnostics.parsers.metric_rows import MetricColumns
from ptt.diagnostics.parsers.side_rows import EventLog
from ptt.diagnostics.parsers.streams import pieces

SUFFIXES = (".log", ".txt", ".out", ".err", ".log.gz", ".txt.gz", ".log.zst", ".txt.zst")
NAMES = ("stdout", "stderr", "nohup.out")
LOOKED_BYTES = 1 << 20  # how far the first log call may be from the beginning: models load, engines warm up
MARKS = (b"step:", b"Step ", b"{'")
UNNUMBERED = "console:"
CLOSING = "train_runtime"  # only the last row of a Hugging Face run has it


def recognises(file: RunFile) -> bool:
    """Say yes to a text file with a log call near its beginning."""
    name = file.name.lower()
    if not (name.endswith(SUFFIXES) or name in NAMES):
        return False
    held = bytearray()
    for piece in pieces(file):
        if isinstance(piece, Lost) or b"\0" in piece:
            break
        held += piece
        if len(held) >= LOOKED_BYTES:
            break
    lines = bytes(held).split(b"\n")
    return any(_row(line) for line in lines if any(mark in line for mark in MARKS))


def _row(line: bytes) -> ConsoleRow | None:
    if len(line) > LINE_CHARS:
        return None
    return console_row(line.decode("utf-8", "replace"))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics block by block, then events; a line that is cut off is counted."""
    columns, events = MetricColumns(), EventLog(file)
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
        if columns.steps:
            yield Rows(table="metrics", frame=_named(columns.take(file.rel)))
    yield from events.pieces()
    if numbered:
        yield Lost(note=f"{file.rel}: {numbered} row(s) name no step; they are numbered from 1 in their order.")
    framework = frameworks.pop() if len(frameworks) == 1 else framework_of(names)
    if framework:
        yield Context(facts={"framework": framework})


def _is_step(row: ConsoleRow) -> bool:
    """Whether a row without step is a training step's: not an evaluation, not the closing one."""
    return CLOSING not in row.values and not all(name.startswith("eval_") or name == "epoch" for name in row.values)


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """Give numbered rows the names and splits of what they begin with."""
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

"""What a parser makes of a metric log, rows and columns alike as rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ptt.diagnostics.parsers import Lost, Parser, Rows, RunFile
from ptt.diagnostics.parsers.io.interface import Context, Wide
from ptt.diagnostics.parsers.io.metric_blocks import long_rows
from ptt.diagnostics.parsers.io.metric_rows import metric_frame
from ptt.diagnostics.schema import METRICS

Facts = dict[str, str | int | float | bool | None]
INDEX = {"__step": "step", "__time": "wall_time", "__seq": "seq"}


def rows_and_losses(
    parser: Parser, path: Path
) -> tuple[pl.DataFrame, list[tuple[int, int, str | None]], list[Facts], int]:
    """Read a log: all its values as rows, what was lost, facts, and how many pieces were columns."""
    file = RunFile(path=path, rel=path.name, size=path.stat().st_size)
    frames, wide = [pl.DataFrame(schema=METRICS)], 0
    lost: list[tuple[int, int, str | None]] = []
    facts: list[Facts] = []
    for piece in parser.read(file):
        if isinstance(piece, Wide):
            frames.append(metric_frame(long_rows(piece.frame, [*INDEX]).rename(INDEX), path.name))
            wide += 1
        elif isinstance(piece, Rows):
            frames.append(piece.frame)
        elif isinstance(piece, Lost):
            lost.append((piece.rows, piece.bytes, piece.note))
        elif isinstance(piece, Context):
            facts.append(dict(piece.facts))
    found = pl.concat(frames).sort("name_raw", "seq")  # of a metric; in columns, rows of one step have one number
    return found.drop("seq"), lost, facts, wide

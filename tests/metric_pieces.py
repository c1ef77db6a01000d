"""What a parser makes of a metric log, rows and columns alike as rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from ptt.diagnostics.parsers import Lost, Parser, Rows, RunFile
from ptt.diagnostics.parsers.io import lines
from ptt.diagnostics.parsers.io.interface import Context, Wide
from ptt.diagnostics.parsers.io.metric_blocks import long_rows
from ptt.diagnostics.parsers.io.metric_rows import metric_frame
from ptt.diagnostics.schema import METRICS

Facts = dict[str, str | int | float | bool | None]
INDEX = {"__step": "step", "__time": "wall_time", "__seq": "seq"}


Read = tuple[pl.DataFrame, list[tuple[int, int, str | None]], list[Facts], int]


def rows_and_losses(parser: Parser, path: Path) -> Read:
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


def read_in_blocks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let logs be read so many bytes at a time."""
    monkeypatch.setattr(lines, "PIECE_BYTES", size)
    monkeypatch.setattr(lines, "BLOCK_BYTES", size)


def assert_same(by_column: Read, by_row: Read) -> None:
    """Compare what columns gave with what rows gave, one by one: values, losses and facts are the same."""
    assert_frame_equal(by_column[0], by_row[0], check_exact=True)
    assert by_column[1:3] == by_row[1:3]
    assert by_row[3] == 0

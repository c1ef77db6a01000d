"""Read one file of agent traces with the parser that takes it, and look at what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parser_samples import table

from ptt.diagnostics.parsers import PARSERS, Piece, RunFile


def read(folder: Path, rel: str, data: bytes) -> list[Piece]:
    """Read a file of these bytes with the one parser of its format, texts and messages kept."""
    path = folder / rel
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    file = RunFile(path=path, rel=rel, size=len(data), keep_text=True, keep_messages=True)
    (parser,) = [parser for parser in PARSERS if parser.recognises(file) and not parser.general]
    return list(parser.read(file))


def told(found: list[Piece], *columns: str) -> list[tuple[Any, ...]]:
    """Give these columns of the trajectories."""
    return table(found, "trajectories").select(columns).rows()


def kept(found: list[Piece]) -> list[tuple[Any, ...]]:
    """Give the conversations: prompt, completion, tools."""
    rows = table(found, "conversations").select("prompt", "completion", "tools").rows()
    return [tuple(cell and json.loads(cell) for cell in row) for row in rows]

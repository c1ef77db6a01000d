"""Outputs of Jupyter notebooks: the trainer's table of progress, and what a cell printed, as a console would show it.

Of several cells that log, each is a run or a stage of its own: the one with the most values is read, and a note names
the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any, Final

from ptt.diagnostics.parsers.console_log import ConsoleReader
from ptt.diagnostics.parsers.io.console_context import TextTable
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED, MetricColumns
from ptt.diagnostics.parsers.io.values import dict_of, dicts_in
from ptt.diagnostics.wording import counted

MAX_BYTES: Final = 64 << 20  # pictures make the most of a notebook; those with more of them log elsewhere
MIN_VALUES: Final = 3  # in a cell whose output is a log rather than an example of one
TAG: Final = re.compile(r"<[^<>]{0,400}>")


def recognises(file: RunFile) -> bool:
    """Recognise a notebook that has a cell with logged output."""
    return file.name.lower().endswith(".ipynb") and bool(_best(file))


def _best(file: RunFile) -> list[Piece]:
    """Return what the cell with the most values logged, read once; empty where none logged."""
    key = "cell that logged"
    if key not in file.looks:
        cells = [(_values(pieces), number, pieces) for number, pieces in _cells(file)]
        logged = [cell for cell in cells if cell[0] >= MIN_VALUES]
        best = max(logged, key=lambda cell: cell[:2], default=None)
        file.looks[key] = [] if best is None else [*best[2], *_notes(file, best[1], [at for _, at, _ in logged])]
    found: list[Piece] = file.looks[key]
    return found


def _notes(file: RunFile, read: int, logged: list[int]) -> Iterator[Lost]:
    others = [str(number) for number in logged if number != read]
    if others:
        named = f"{counted(len(others), 'cell(s)')} ({', '.join(others)})"
        yield Lost(note=f"{file.rel}: cell {read} is read, which logged most; also logged, not read: {named}.")


def _cells(file: RunFile) -> Iterator[tuple[int, list[Piece]]]:
    """Yield what each code cell logged, by its number among all cells."""
    if file.size > MAX_BYTES:
        return
    try:
        document = parse_json(file.path.read_bytes())
    except OSError:
        return
    for number, cell in enumerate(dicts_in(dict_of(document).get("cells")), start=1):
        outputs = dicts_in(cell.get("outputs")) if cell.get("cell_type") == "code" else []
        if outputs:
            yield number, [*_tables(file, outputs), *_printed(file, outputs)]


def _values(pieces: list[Piece]) -> int:
    return sum(piece.frame.height for piece in pieces if isinstance(piece, Rows) and piece.table == "metrics")


def _text(found: Any) -> str:
    """Return a text that may be stored as a list of lines."""
    if isinstance(found, list):
        return "".join(line for line in found if isinstance(line, str))
    return found if isinstance(found, str) else ""


def _printed(file: RunFile, outputs: list[dict[str, Any]]) -> Iterator[Piece]:
    """Yield what a cell printed, and how it failed."""
    parts = [_text(output.get("text")) for output in outputs if output.get("output_type") == "stream"]
    parts += ["\n".join(_text(output.get("traceback")).split("\n")) for output in outputs]
    text = "".join(parts).encode("utf-8", "replace")
    if not text.strip():
        return
    console = ConsoleReader(file)
    for line in text.split(b"\n"):
        console.line(line)
    pieces = [*console.flush(), *console.close()]
    if _values(pieces) >= MIN_VALUES:
        yield from pieces


def _tables(file: RunFile, outputs: list[dict[str, Any]]) -> Iterator[Piece]:
    """Yield the tables of progress: of one that is drawn again the last state."""
    htmls = [_text(dict_of(output.get("data")).get("text/html")) for output in outputs]
    columns, seq = MetricColumns(file), 0
    for html in htmls:
        rows = _rows(html)
        table = TextTable.headed("|".join(rows[0])) if len(rows) > 1 else None
        for cells in rows[1:] if table else ():
            found = table.row("|".join(cells)) if table else None
            if found is None:
                continue
            counter, values = found
            at = counter.epoch if counter.at is None else counter.at
            front = "" if counter.unit == "step" else UNNUMBERED
            for name, value in values.items():
                columns.add(at or 0, front + name, value, None, seq)
            seq += 1
    yield from columns.pieces()


def _rows(html: str) -> list[list[str]]:
    """Return the cells of a table, row by row; of several tables those of the last that has rows."""
    last = html.rpartition("<table")[2] if "<table" in html else ""
    rows = [part.partition("</tr>")[0] for part in last.split("<tr")[1:]]
    return [cells for row in rows if (cells := _row_cells(row))]


def _row_cells(row: str) -> list[str]:
    parts = re.split(r"<t[hd]\b", row)[1:]
    return [unescape(TAG.sub("", part.partition(">")[2])).strip().replace("|", "/") for part in parts]


def read(file: RunFile) -> Iterator[Piece]:
    """Yield what the cell with the most values logged."""
    found = _best(file)
    if not found:
        yield Lost(bytes=max(1, file.size), note=f"{file.rel}: no cell with a log could be read.")
    yield from found


PARSER = Parser(
    name="notebook",
    describes="Jupyter notebooks: what a cell logged, printed or as a trainer's table of progress.",
    held_against="source: transformers' NotebookProgressCallback and nbformat",
    priority=50,
    general=True,
    recognises=recognises,
    read=read,
)

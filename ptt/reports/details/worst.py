"""Which sequences to read first, in words and a table."""

from __future__ import annotations

from ptt.diagnostics.model import Diagnosis
from ptt.reports.details.part import DASH, Part, foreign_name, notes_on
from ptt.reports.foreign import safe
from ptt.reports.numbers import count, number, percent
from ptt.reports.panels import DataTable, table

SHOWN_SEQUENCES = 10
LOCATED = ("At token", "Observations before")


def worst(diagnosis: Diagnosis) -> Part | None:
    """Name the sequences with most tail tokens, by file and row."""
    frame = table(diagnosis, "top_sequences")
    if frame is None:
        return None
    rows = frame.head(SHOWN_SEQUENCES).to_dicts()
    first = rows[0]
    held = percent(float(sum(row["tail_share"] for row in rows)))
    where = f"row {count(first['row'])} of {foreign_name(first['path'])}" if first["path"] is not None else "no file"
    noun = "sequences" if len(rows) > 1 else "sequence"
    sentence = (
        f"The {count(len(rows))} {noun} with most tail tokens hold {held} of the tail; the first is {where} "
        f"(step {count(first['step'])}, largest |r| {number(first['max_abs_r'])}). Rows and tokens count from 0."
    )
    head = ("File", "Row", "Step", "Sample", "Group", "Tail tokens", "Tokens", "Largest |r|", *LOCATED, "Reward")
    shown = tuple(
        (
            foreign_name(row["path"]),
            count(row["row"]),
            count(row["step"]),
            *(foreign_name(row[name]) for name in ("sample_id", "group_id")),
            *(count(row[name]) for name in ("tail", "tokens")),
            number(row["max_abs_r"]),
            *(DASH if row[name] is None else count(row[name]) for name in ("max_at", "max_turn")),
            DASH if row["reward"] is None else number(row["reward"]),
        )
        for row in rows
    )
    tables = [DataTable(title="Sequences with most tail tokens", head=head, rows=shown)]
    texts = tuple(
        (foreign_name(row["path"]), count(row["row"]), safe(row["text"])) for row in rows if row["text"] is not None
    )
    if texts:
        title = "What was said at the largest |r|"
        tables.append(DataTable(title=title, head=("File", "Row", "Text"), rows=texts))
    sentence = " ".join([sentence, *notes_on(diagnosis, "top_sequences")])
    return Part(key="worst", title="Sequences to read first", sentence=sentence, tables=tuple(tables))

"""Which files hold the sequences and samples of each step, so that a finding can say where to look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.joined_sources import notes_on_copies
from ptt.diagnostics.evidence.placed_rows import Placement
from ptt.diagnostics.evidence.separate_starts import Starts
from ptt.diagnostics.evidence.validity import file_names, number_files
from ptt.diagnostics.model import Source
from ptt.diagnostics.parsers.io.run_files import CLOSED
from ptt.diagnostics.store.ingest import RUN_DIR, UNREADABLE, UNRECOGNISED
from ptt.diagnostics.store.wide_metrics import WideMetrics

MAX_UNRECOGNISED: Final = 20


def list_sources(
    table: pl.DataFrame, tokens: Tokens | None, damaged: Mapping[str, str], notes: Sequence[str]
) -> tuple[Source, ...]:
    """Return one source per file; foreign files beyond 20 are counted.

    `damaged`: files found damaged while their tokens were read, with the reason; their rows do not count.
    """
    every = {str(row["path"]): Source(**row) for row in table.sort("path").iter_rows(named=True)}
    for path, reason in damaged.items():
        if old := every.get(path):
            note = f"Damaged, left out: {reason}"
            every[path] = replace(old, rows_ok=0, rows_bad=old.rows_ok, bytes_lost=old.bytes, note=note)
    for path, count in (_count_unsound(tokens) if tokens else {}).items():
        if old := every.get(path):
            note = f"{count} rows left out: no step, no mask, or lists of different length."
            every[path] = replace(old, rows_ok=old.rows_ok - count, rows_bad=old.rows_bad + count, note=note)
    read = [source for source in every.values() if source.kind != UNRECOGNISED]
    foreign = [source for source in every.values() if source.kind == UNRECOGNISED]
    listed = [*read, *foreign[:MAX_UNRECOGNISED]]
    if len(foreign) > MAX_UNRECOGNISED:
        rest = foreign[MAX_UNRECOGNISED:]
        listed.append(_note_source(f"{len(rest)} more files", f"Unknown format; the first is {rest[0].path}.", rest))
    listed += [_note_source(RUN_DIR, note, []) for note in notes]
    return tuple(listed)


def with_notes(
    table: pl.DataFrame,
    metrics: pl.DataFrame,
    placements: Sequence[Placement],
    wide: WideMetrics,
    clocks: Mapping[str, str] | None = None,
    starts: Sequence[Starts] = (),
) -> pl.DataFrame:
    """Return the table of sources with notes on rows that others place, copies, contradictions, clocks and starts."""
    notes = {source: [note] for source, note in (clocks or {}).items()}
    for start in starts:
        notes.setdefault(start.source, []).insert(0, start.note)
    for one in placements:
        notes.setdefault(one.source, []).append(one.note)
    for source, told in notes_on_copies(metrics, wide).items():
        notes.setdefault(source, []).extend(told)
    if not notes:
        return table
    joined = [
        " ".join(filter(None, [note, *notes.get(path, [])])) or None
        for path, note in table.select("path", "note").iter_rows()
    ]
    return table.with_columns(pl.Series("note", joined, dtype=pl.String))


def _note_source(path: str, note: str, files: Sequence[Source]) -> Source:
    size = sum(file.bytes for file in files)
    kind = UNREADABLE if note.startswith(CLOSED) else UNRECOGNISED
    return Source(path=path, kind=kind, bytes=size, rows_ok=0, rows_bad=0, bytes_lost=0, note=note)


def _count_unsound(tokens: Tokens) -> dict[str, int]:
    """Count, by file, the rows whose lists did not fit together."""
    return Counter(file_names(tokens, tokens.tables.rows.filter(~pl.col("ok"))["seq"]).to_list())


SCHEMA: Final = {"kind": pl.String, "step": pl.Int64, "path": pl.String}


def files_by_step(tokens: Tokens | None, trajectories: pl.DataFrame) -> pl.DataFrame:
    """Return kind (tokens or samples), step and path: one row a step and kind, its first file."""
    samples = trajectories.select(pl.lit("samples").alias("kind"), "step", pl.col("source").alias("path"))
    frames = [samples]
    if tokens is not None:
        rows = tokens.sound_rows
        numbers, names = number_files(tokens, rows["seq"])
        firsts = (
            rows.select(pl.col("step").cast(pl.Int64), numbers).drop_nulls().group_by("step").agg(pl.col("file").min())
        )
        path = pl.Series("path", names, dtype=pl.String).gather(firsts["file"])
        frames.append(firsts.select(pl.lit("tokens").alias("kind"), "step", path))
    both = pl.concat([frame.cast(SCHEMA) for frame in frames]).drop_nulls()  # type: ignore[arg-type]
    return both.group_by("kind", "step").agg(pl.col("path").min()).sort("kind", "step")

"""Metrics of Microsoft's post-training toolkit: header, rounded rows under its own names, footer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import polars as pl

from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile, lost_notes
from ptt.diagnostics.parsers.io.json_blocks import fast_block
from ptt.diagnostics.parsers.io.lines import block_objects, blocks, first_objects, is_torn
from ptt.diagnostics.parsers.io.metric_blocks import Block
from ptt.diagnostics.parsers.io.metric_rows import MetricColumns, flatten, metric_values
from ptt.diagnostics.parsers.io.values import as_step

PREFERENCE = frozenset({"dpo", "orpo", "kto", "cpo"})
# With these trainers the names mean something else: the chosen reward, the margin, the SFT part of the loss.
MISLEADING = frozenset({"reward_mean", "reward_std"})
MISLEADING_ORPO = frozenset({"sft_loss"})
NEITHER = "line(s) skipped: not a header, row or footer."
RUNNING = "running"
LOSSES = {f"{trainer}_loss": trainer for trainer in ("orpo", "kto", "cpo", "dpo", "grpo", "ppo", "sft")}
# In this order: ORPO rows hold an SFT loss too. It identifies rows without a header (its early demos).

Facts = dict[str, str | int | float | bool | None]
Seen = tuple[int | None, frozenset[str]]  # the current step, and its names so far


def recognises(file: RunFile) -> bool:
    """Recognise the header line, or rows of exactly step, timestamp and metrics."""
    return any(_is_header(record) or _is_row(record) for record in first_objects(file))


def _is_header(record: dict[str, Any]) -> bool:
    return record.get("type") == "header" and {"schema_version", "trainer_type"} <= record.keys()


def _is_row(record: dict[str, Any]) -> bool:
    return {"step", "timestamp", "metrics"} <= record.keys() and isinstance(record["metrics"], dict)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics block by block, then what the header and footer say about the run."""
    facts: Facts = {"framework": "microsoft-ptt"}
    seen: Seen = (None, frozenset())
    schema = None
    seq = bad = 0
    for block in _cut_edges(blocks(file)):
        if isinstance(block, Lost):
            yield block
            continue
        quick = _quick(file, block, seq, schema)
        if quick is not None:
            seq, seen, schema = quick.behind, _seen_last(quick), quick.schema
            yield from quick.pieces(file, partial(_names, facts.get("algorithm")))
            continue
        columns = MetricColumns(file)
        for record in block_objects(file, block):
            if isinstance(record, Lost):
                yield record
            elif record is not None and _is_row(record) and as_step(record["step"]) is not None:
                seen = _add(record, columns, seen, seq)
                seq += 1
            else:
                bad += record is None or not _note_facts(record, facts)
        for frame in columns.frames():
            yield Rows(table="metrics", frame=_named(frame, facts.get("algorithm")))
    yield from lost_notes(file, {NEITHER: bad})
    yield Context(facts=facts)


def _cut_edges(stream: Iterator[bytes | Lost]) -> Iterator[bytes | Lost]:
    """Cut the first and the last two lines off each block: header, closing row and footer are for the slow way."""
    for block in stream:
        if isinstance(block, Lost):
            yield block
            continue
        start = block.find(b"\n") + 1
        last = block.rfind(b"\n", 0, len(block) - 1)
        end = max(start, block.rfind(b"\n", 0, max(0, last)) + 1)
        yield from filter(None, (block[:start], block[start:end], block[end:]))


def _quick(file: RunFile, block: bytes, seq: int, schema: pl.Schema | None) -> Block | None:
    """Read a block that holds only rows; header and footer are in the first and the last."""
    if is_torn(block) or b'"type"' in block or b'"metrics"' not in block:
        return None
    quick = fast_block(
        block, file, wrappers=("metrics",), steps=("step",), times=("timestamp",), seq=seq, schema=schema
    )
    return quick if isinstance(quick, Block) else None


def _seen_last(block: Block) -> Seen:
    steps = block.index["__step"]
    last = steps == steps[-1]
    names = (name for name, column in block.numbers.items() if column.filter(last).count())
    return int(steps[-1]), frozenset(names)


def _add(record: dict[str, Any], columns: MetricColumns, seen: Seen, seq: int) -> Seen:
    """Add one row, unless it is the closing one, whose only loss is the mean over the run."""
    step, values = as_step(record["step"]) or 0, metric_values(flatten(record["metrics"]))
    before = seen[1] if seen[0] == step else frozenset()
    # Taken for a row, it would overwrite the loss of the last step.
    is_mean = len(values) == 1 and all(name.endswith("_loss") and name in before for name in values)
    for name, value in ({} if is_mean else values).items():
        columns.add(step, name, value, columns.file.seconds(record["timestamp"]), seq)
    return step, before | values.keys()


def _note_facts(record: dict[str, Any], facts: Facts) -> bool:
    """Take the facts of a header or footer; False if the object is neither.

    A header without a footer comes from a killed run, or one still running.
    """
    if _is_header(record):
        trainer = record["trainer_type"]
        facts["status"] = RUNNING
        if isinstance(trainer, str) and trainer != "unknown":
            facts["algorithm"] = trainer
        return True
    if record.get("type") == "footer":
        if isinstance(record.get("status"), str):
            facts["status"] = record["status"]
        return True
    return False


def _names(algorithm: object, raws: list[str]) -> dict[str, str | None]:
    """Return the canonical names, corrected for suffixes of several ranks and for names with another meaning here."""
    distributed = "world_size" in raws
    plain = {raw: raw.removesuffix("_mean") if distributed and canonical(raw) is None else raw for raw in raws}
    trainer_type = algorithm or next((trainer for loss, trainer in LOSSES.items() if loss in plain.values()), None)
    misleading = MISLEADING if trainer_type in PREFERENCE else frozenset()
    if trainer_type == "orpo":
        misleading |= MISLEADING_ORPO
    return {raw: None if plain[raw] in misleading else canonical(plain[raw]) for raw in raws}


def _named(frame: pl.DataFrame, algorithm: object) -> pl.DataFrame:
    names = _names(algorithm, frame["name_raw"].unique().to_list())
    replacements = pl.Series(list(names.values()), dtype=pl.String)
    return frame.with_columns(name=pl.col("name_raw").replace_strict(list(names), replacements, return_dtype=pl.String))


PARSER = Parser(
    name="microsoft_metrics",
    describes="Metrics that Microsoft's post-training toolkit wrote beside a run: metrics, rounded.",
    held_against="real: Microsoft's callback beside TRL runs",
    priority=60,
    recognises=recognises,
    read=read,
)

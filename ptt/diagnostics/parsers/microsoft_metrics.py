"""Metrics of Microsoft's post-training toolkit: header, rounded rows under its own names, footer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from ptt.diagnostics.parsers.aliases import canonical
from ptt.diagnostics.parsers.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.lines import blocks, first_objects, is_torn, json_object, torn_line
from ptt.diagnostics.parsers.metric_rows import MetricColumns, as_seconds, as_step, metric_frame
from ptt.diagnostics.parsers.metrics_fast import fast_entries, seq_behind
from ptt.diagnostics.parsers.metrics_jsonl import flatten, numbers

PREFERENCE = frozenset({"dpo", "orpo", "kto", "cpo"})
# Under these trainers the names hold something else: the chosen reward, the margin, the SFT part of the loss.
MISLEADING = frozenset({"reward_mean", "reward_std"})
MISLEADING_ORPO = frozenset({"sft_loss"})
RUNNING = "running"

Facts = dict[str, str | int | float | bool | None]
Seen = tuple[int | None, frozenset[str]]  # the current step, and the names it had so far


def recognises(file: RunFile) -> bool:
    """Say yes to the header line, or to rows of exactly step, timestamp and metrics."""
    return any(_is_header(found) or _is_row(found) for found in first_objects(file))


def _is_header(found: dict[str, Any]) -> bool:
    return found.get("type") == "header" and {"schema_version", "trainer_type"} <= found.keys()


def _is_row(found: dict[str, Any]) -> bool:
    return {"step", "timestamp", "metrics"} <= found.keys() and isinstance(found["metrics"], dict)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics block by block, then what the header and footer say about the run."""
    facts: Facts = {"framework": "microsoft-ptt"}
    seen: Seen = (None, frozenset())
    seq = bad = 0
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        entries = _quick(block, seq)
        if entries is not None:
            seq, seen = seq_behind(entries), _seen_last(entries)
            yield Rows(table="metrics", frame=_named(metric_frame(entries, file.rel), facts.get("algorithm")))
            continue
        columns = MetricColumns()
        for line in filter(bytes.strip, block.split(b"\n")):
            found = json_object(line)
            if found is not None and _is_row(found) and as_step(found["step"]) is not None:
                seen = _add(found, columns, seen, seq)
                seq += 1
            elif found is None and is_torn(block):
                yield torn_line(file, line)
            else:
                bad += found is None or not _note_facts(found, facts)
        if columns.steps:
            yield Rows(table="metrics", frame=_named(columns.take(file.rel), facts.get("algorithm")))
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {bad} line(s) are neither header, row nor footer.")
    yield Context(facts=facts)


def _quick(block: bytes, seq: int) -> pl.DataFrame | None:
    """Read a block that holds nothing but rows; header and footer stand in the first and the last."""
    if is_torn(block) or b'"type"' in block or b'"metrics"' not in block:
        return None
    return fast_entries(block, wrappers=("metrics",), steps=("step",), times=("timestamp",), seq=seq)


def _seen_last(entries: pl.DataFrame) -> Seen:
    step = entries.filter(pl.col("seq") == pl.col("seq").max())["step"].item(0)
    return step, frozenset(entries.filter(pl.col("step") == step)["name_raw"])


def _add(found: dict[str, Any], columns: MetricColumns, seen: Seen, seq: int) -> Seen:
    """Add one row, unless it is the closing one, whose only loss is the mean over the run."""
    step, values = as_step(found["step"]) or 0, numbers(flatten(found["metrics"]))
    before = seen[1] if seen[0] == step else frozenset()
    # Taken for a row, it would overwrite the loss of the last step.
    is_mean = len(values) == 1 and all(name.endswith("_loss") and name in before for name in values)
    for name, value in ({} if is_mean else values).items():
        columns.add(step, name, value, as_seconds(found["timestamp"]), seq)
    return step, before | values.keys()


def _note_facts(found: dict[str, Any], facts: Facts) -> bool:
    """Take what a header or footer tells; False if the object is neither.

    A header without a footer is what a killed run leaves, or one that still goes on.
    """
    if _is_header(found):
        trainer = found["trainer_type"]
        facts["status"] = RUNNING
        if isinstance(trainer, str) and trainer != "unknown":
            facts["algorithm"] = trainer
        return True
    if found.get("type") == "footer":
        if isinstance(found.get("status"), str):
            facts["status"] = found["status"]
        return True
    return False


def _named(frame: pl.DataFrame, algorithm: object) -> pl.DataFrame:
    """Correct the canonical names: suffixes of several ranks, and names that mean something else here."""
    misleading = MISLEADING if algorithm in PREFERENCE else frozenset()
    if algorithm == "orpo":
        misleading |= MISLEADING_ORPO
    raws = frame["name_raw"].unique().to_list()
    distributed = "world_size" in raws
    names = [
        None if raw in misleading else canonical(raw) or (canonical(raw.removesuffix("_mean")) if distributed else None)
        for raw in raws
    ]
    return frame.with_columns(
        name=pl.col("name_raw").replace_strict(raws, pl.Series(names, dtype=pl.String), return_dtype=pl.String)
    )


PARSER = Parser(
    name="microsoft_metrics",
    describes="Metrics that Microsoft's post-training toolkit wrote beside a run: metrics, rounded.",
    priority=60,
    recognises=recognises,
    read=read,
)

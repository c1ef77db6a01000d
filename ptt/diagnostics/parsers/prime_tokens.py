"""prime-rl's `token_exports/step_{N}/rank_{R}.jsonl`: log-probabilities of trainer and engine, token by token.

One row a packed sequence that was trained on; all lists cover prompt and completion, without padding. The trainer's
entry 0 is a placeholder, since nothing precedes token 0. A value that is not finite is null. A step is whole once
`STABLE` lies beside its files. Written by `TokenExporter` (PrimeIntellect-ai/prime-rl,
src/prime_rl/trainer/rl/token_export.py, schema_version 1; later versions add export_step, run_id and rewards).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.flat_lists import flatten
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.lines import first_objects
from ptt.diagnostics.parsers.io.token_lines import Shape, frames, lost_rows, responses, token_hashes
from ptt.diagnostics.schema import SEQUENCES

KEYS: Final = frozenset({"step", "export_sequence_idx", "token_ids", "loss_mask"})
STABLE: Final = "STABLE"
FLOATS: Final = pl.List(pl.Float32)
SHAPE: Final[Shape] = {
    "step": pl.Int64(),
    "export_step": pl.Int64(),
    "rank": pl.Int32(),
    "micro_step": pl.Int64(),
    "export_sequence_idx": pl.Int64(),
    "env_name": pl.String(),
    "token_ids": pl.List(pl.Int32),
    "loss_mask": pl.List(pl.Boolean),
    "advantages": FLOATS,
    "rewards": FLOATS,
    "inference_logprobs": FLOATS,
    "trainer_logprobs": FLOATS,
    "entropy": FLOATS,
}
LISTS: Final = {
    "token_ids": "token_ids",
    "advantages": "advantage",
    "rewards": "rewards",
    "inference_logprobs": "rollout_logp",
    "trainer_logprobs": "policy_logp",
    "entropy": "entropy",
}
SHIFTED: Final = ("policy_logp", "entropy")  # values of the forward pass; those of token 0 are made up


def recognises(file: RunFile) -> bool:
    """Recognise a file by the keys of the first row."""
    return any(record.keys() >= KEYS for record in first_objects(file, 1))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield sequences from the first trained token on."""
    wrong = empty = 0
    for frame in frames(file, SHAPE):
        if isinstance(frame, Lost):
            yield frame
            continue
        whole = frame.filter(pl.col("step").is_not_null())
        sequences, unequal, silent = responses(
            whole.with_columns(token_hashes(whole["token_ids"])), mask="loss_mask", lists=tuple(LISTS)
        )
        wrong, empty = wrong + unequal + frame.height - whole.height, empty + silent
        if sequences.height:
            yield Rows(table="sequences", frame=_canonical(sequences))
    yield from lost_rows(file, wrong, empty)
    if not (file.path.parent / STABLE).is_file():
        yield Lost(note=f"{file.rel}: no {STABLE} beside it: the step may be incomplete.")
    yield Context(facts={"framework": "prime-rl"})


def _canonical(frame: pl.DataFrame) -> pl.DataFrame:
    """Bring rows cut to their responses to canonical columns."""
    step = pl.coalesce("export_step", "step")  # step of the run, if several share a trainer
    rows = frame.rename({**LISTS, "loss_mask": "model_mask", "env_name": "env"}).with_columns(
        *(_without_first(frame, name) for name in SHIFTED),
        step=step,
        reward=pl.col("rewards").list.first().cast(pl.Float64),
        sample_id=pl.format("{}-{}-{}", step, pl.col("rank").fill_null(0), "export_sequence_idx"),
    )
    kept = [name for name in SEQUENCES if name in rows.columns and _holds(rows[name])]
    return rows.select(kept)


def _without_first(frame: pl.DataFrame, name: str) -> pl.Expr:
    """Null entry 0 of rows whose response begins at token 0."""
    if frame["start"].min():
        return pl.col(name)
    rest = pl.concat_list(pl.lit(None, pl.Float32), pl.col(name).list.slice(1))
    return pl.when(pl.col("start") == 0).then(rest).otherwise(pl.col(name)).alias(name)


def _holds(column: pl.Series) -> bool:
    """Return whether anything is recorded: prime-rl writes lists of nulls for what does not apply."""
    if not isinstance(column.dtype, pl.List) or column.dtype.inner != pl.Float32():
        return True
    return not np.isnan(flatten(column.fill_null([]))[1]).all()


PARSER = Parser(
    name="prime_tokens",
    describes="prime-rl's token_exports: log-probabilities of trainer and engine token by token, entropy, advantages.",
    held_against="real: prime-rl's TokenExporter, replaying a recorded run",
    priority=10,
    recognises=recognises,
    read=read,
)

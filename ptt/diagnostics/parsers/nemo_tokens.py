"""NeMo-RL's `train_data_step{N}.jsonl`, written by default: log-probabilities of engine and trainer, token by token.

One row a sample, each field in a list of one; all lists cover prompt and response and are padded to the longest row of
the batch. Entry t is the log-probability of token t, 0.0 where nothing was generated. Written by
`Logger.log_batched_dict_as_jsonl` (NVIDIA-NeMo/RL, nemo_rl/utils/logger.py) from nemo_rl/algorithms/grpo.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.flat_lists import as_lists, flatten
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.lines import first_objects
from ptt.diagnostics.parsers.io.token_lines import Shape, frames, lost_rows, responses
from ptt.diagnostics.schema import SEQUENCES
from ptt.diagnostics.wording import counted

NAME: Final = re.compile(r"train_data_step(\d{1,15})\.jsonl(?:\.gz|\.zst)?", re.ASCII)
KEYS: Final = frozenset({"token_ids", "token_loss_mask", "input_lengths"})
FLOATS: Final = pl.List(pl.List(pl.Float32))
SHAPE: Final[Shape] = {
    "idx": pl.Int64(),
    "input_lengths": pl.List(pl.Int64),
    "rewards": pl.List(pl.Float64),
    "sample_loss_mask": pl.List(pl.Float64),
    "token_ids": pl.List(pl.List(pl.Int32)),
    "token_loss_mask": FLOATS,
    "advantages": FLOATS,
    "generation_logprobs": FLOATS,
    "prev_logprobs": FLOATS,
}
WHOLE: Final = "whole"  # the token ids with the prompt
LISTS: Final = {
    "token_ids": "token_ids",
    "advantages": "advantage",
    "generation_logprobs": "rollout_logp",
    "prev_logprobs": "old_logp",
}


def recognises(file: RunFile) -> bool:
    """Recognise a file by the name, which holds the step, and the keys of the first row."""
    return NAME.fullmatch(file.name) is not None and any(record.keys() >= KEYS for record in first_objects(file, 1))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield sequences from the first generated token to the row's own length."""
    named = NAME.fullmatch(file.name)
    if named is None:
        yield Lost(bytes=file.size, note=f"{file.rel}: its name has no step, so its rows were skipped.")
        return
    step = int(named[1])
    wrong = empty = forced = rows = 0
    for frame in frames(file, SHAPE):
        if isinstance(frame, Lost):
            yield frame
            continue
        sequences, unequal, silent = _sequences(frame, step, rows)
        rows += frame.height
        wrong, empty = wrong + unequal, empty + silent
        if sequences.height and "old_logp" not in sequences.columns:
            forced += sequences.height
        if sequences.height:
            yield Rows(table="sequences", frame=sequences)
    yield from lost_rows(file, wrong, empty)
    if forced:
        note = (
            f"{file.rel}: prev_logprobs left out of {counted(forced, 'row(s)')}: they are 0 on every token, as NeMo-RL "
            "leaves them under loss_fn.force_on_policy_ratio=true."
        )
        yield Lost(note=note)
    yield Context(facts={"framework": "nemo-rl"})


def _sequences(frame: pl.DataFrame, step: int, before: int) -> tuple[pl.DataFrame, int, int]:
    """Unwrap the rows and bring them to canonical columns; `before` rows of the file were read already."""
    inner = [name for name in SHAPE if name != "idx"]
    frame = frame.with_row_index("_row", offset=before).with_columns(pl.col(inner).list.first())
    frame, wrong, empty = responses(
        frame.with_columns(pl.col("token_ids").alias(WHOLE)),
        mask="token_loss_mask",
        lists=tuple(LISTS),
        end="input_lengths",
    )
    if not frame.height:
        return frame, wrong, empty
    rows = frame.rename({**LISTS, "token_loss_mask": "model_mask", "rewards": "reward"}).with_columns(
        _prompt_groups(frame, step),
        _trained(frame),
        step=pl.lit(step, pl.Int64),
        sample_id=pl.format("{}-{}", pl.lit(step), pl.coalesce(pl.col("idx"), pl.col("_row").cast(pl.Int64))),
    )
    rows = rows.select(name for name in SEQUENCES if name in rows.columns)
    return rows if np.any(flatten(rows["old_logp"].fill_null([]))[1]) else rows.drop("old_logp"), wrong, empty


def _trained(frame: pl.DataFrame) -> pl.Series:
    """Mark the tokens that got gradient: the model's, of samples that were not masked out as a whole."""
    mask = frame["token_loss_mask"]
    if not (frame["sample_loss_mask"] == 0).any():
        return mask.alias("train_mask")
    offsets, values = flatten(mask.list.eval(pl.element().fill_null(value=False)))  # a null says nothing of a token
    counted = frame["sample_loss_mask"].fill_null(1.0).to_numpy() != 0
    return pl.Series("train_mask", as_lists(values & np.repeat(counted, np.diff(offsets)), offsets))


def _prompt_groups(frame: pl.DataFrame, step: int) -> pl.Series:
    """Name groups by their prompt, which generations of one group share; NeMo-RL names none."""
    offsets, values = flatten(frame[WHOLE])
    ends = (offsets[:-1] + frame["start"].to_numpy()).tolist()
    names = [
        f"{step}-{blake2b(values[start:end].tobytes(), digest_size=8).hexdigest()}" if end > start else None
        for start, end in zip(offsets[:-1].tolist(), ends, strict=True)
    ]
    return pl.Series("group_id", names, dtype=pl.String)


PARSER = Parser(
    name="nemo_tokens",
    describes="NeMo-RL's train_data_step*.jsonl: log-probabilities of engine and trainer token by token, rewards.",
    held_against="real: NeMo-RL's own logger, replaying a recorded run",
    priority=10,
    recognises=recognises,
    read=read,
)

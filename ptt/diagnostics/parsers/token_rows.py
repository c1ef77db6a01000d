"""Samples of any framework to rows of the sequences table: every list of a row has one length, entry t is token t."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl

from ptt.diagnostics.inert import Plain
from ptt.diagnostics.parsers.interface import Lost, Piece, Rows, RunFile
from ptt.diagnostics.schema import LOGPS, SEQUENCES

Array: TypeAlias = np.ndarray[Any, Any]
Sample: TypeAlias = dict[str, Any]
"""Columns of the sequences table: arrays for lists, else numbers and texts; what is None is null."""

CHUNK_TOKENS: Final = 2_000_000  # of one frame: a file may hold many more
INT32: Final = 1 << 31
PAIR: Final = 2
LISTS: Final = ("token_ids", "train_mask", *LOGPS, "entropy", "advantage")
_NUMPY: Final = {"token_ids": np.int32, "model_mask": np.bool_, "train_mask": np.bool_}


def line(found: Plain, dtype: type = np.float64) -> Array | None:
    """Return a one-dimensional array of numbers; None if it is something else."""
    if isinstance(found, list) and not found:
        return np.zeros(0, dtype)
    if isinstance(found, np.ndarray) and found.ndim == 1:
        return found
    return None


def grid(found: Plain) -> Array | None:
    """Return a two-dimensional array of numbers; None if it is something else."""
    return found if isinstance(found, np.ndarray) and found.ndim == 2 else None


def number(found: Plain) -> float | None:
    """Return a number, also one in a tensor without dimensions."""
    if isinstance(found, np.ndarray) and found.size == 1:
        found = found.item()
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return float(found)


def integer(found: Plain) -> int | None:
    """Return a whole number."""
    if isinstance(found, np.ndarray) and found.size == 1 and found.dtype.kind in "iu":
        found = int(found.item())
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def identifier(found: Plain) -> str | None:
    """Return a name, or a number for one."""
    whole = integer(found)
    return found if isinstance(found, str) else None if whole is None else str(whole)


def sampled(mask: Array, rollout: Array | None) -> Array:
    """Tell which tokens the policy sampled where filtering has zeroed the whole mask of a sequence.

    What is left is the engine's placeholder: tokens that it did not sample carry exactly 0.0.
    """
    chosen: Array = mask != 0
    if chosen.any() or rollout is None or len(rollout) != len(chosen):
        return chosen
    told: Array = rollout != 0.0
    return told


def sequences(file: RunFile, samples: list[Sample], *, why: str = "") -> Iterator[Piece]:
    """Yield the samples whose lists fit together, and count the others; `why` tells what they usually are."""
    dated = [sample for sample in samples if sample.get("step") is not None]
    good = [made for sample in dated if (made := _checked(sample)) is not None]
    for part in _parts(good):
        yield Rows(table="sequences", frame=pl.DataFrame([_column(name, part) for name in _present(part)]))
    held = sorted({name for sample in good for name in LOGPS if name in sample})
    if good and len(held) < PAIR:
        which = f"{held[0]} alone" if held else "no log-probabilities"
        yield Lost(note=f"{file.rel} holds {which}: a ratio takes two of {', '.join(LOGPS)}.")
    if undated := len(samples) - len(dated):
        yield Lost(rows=undated, note=f"{file.rel}: neither its content nor its name tells the step.")
    if bad := len(dated) - len(good):
        note = f"{file.rel}: {bad} of {len(samples)} sequence(s) hold no tokens or lists of different lengths"
        yield Lost(rows=bad, note=f"{note}{why}.")


def _parts(samples: list[Sample]) -> Iterator[list[Sample]]:
    part: list[Sample] = []
    tokens = 0
    for sample in samples:
        part.append(sample)
        tokens += len(sample["model_mask"])
        if tokens >= CHUNK_TOKENS:
            yield part
            part, tokens = [], 0
    if part:
        yield part


def _checked(sample: Sample) -> Sample | None:
    mask = sample.get("model_mask")
    if mask is None or len(mask) == 0:
        return None
    made = {name: value for name, value in sample.items() if value is not None}
    for name in LISTS:
        value = made.get(name)
        if name == "advantage" and isinstance(value, float):  # one for the sequence is one for each token
            made[name] = np.full(len(mask), value)
        elif value is not None and not (isinstance(value, np.ndarray) and value.ndim == 1):
            del made[name]  # told once a sequence, not token by token
        elif value is not None and len(value) != len(mask):
            return None
    ids = made.get("token_ids")
    if ids is not None and (ids.dtype.kind not in "iu" or int(ids.min()) < -INT32 or int(ids.max()) >= INT32):
        del made["token_ids"]
    if not -INT32 <= made.get("rank", 0) < INT32:
        del made["rank"]
    reward = made.get("reward")
    if isinstance(reward, float) and not math.isfinite(reward):
        del made["reward"]
    return made


def _present(part: list[Sample]) -> list[str]:
    held = {name for sample in part for name in sample}
    return [name for name in SEQUENCES if name in held]


def _column(name: str, part: list[Sample]) -> pl.Series:
    kind = SEQUENCES[name]
    values = [sample.get(name) for sample in part]
    if not isinstance(kind, pl.List):
        return pl.Series(name, values, dtype=kind)
    dtype = _NUMPY.get(name, np.float32)
    with np.errstate(over="ignore"):  # a double beyond float32 is an infinity, and counted as one
        lists = [None if value is None else pl.Series(_cast(value, dtype)) for value in values]
    return pl.Series(name, lists, dtype=kind)


def _cast(value: Array, dtype: Any) -> Array:
    made: Array = value != 0 if dtype is np.bool_ else np.ascontiguousarray(value, dtype)
    return made

"""Values that are no log-probabilities: placeholders a writer left where it had none, found while tokens are read.

A logprob of exactly 0 is a legitimate float32 for a token of probability 1; it is taken for a placeholder only where
the other logprob of the pair says that the token was far from certain.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.statistics.arrays import BoolArray, IntArray
from ptt.diagnostics.statistics.cells import Columns

Values = npt.NDArray[Any]

MISSING_BELOW: Final = -9000.0  # OpenAI-style servers write -9999.0 for a missing or -inf logprob
PAD: Final = -1.0  # what older veRL pads logprobs with; exactly -1 is no value a softmax gives in practice
IMPOSSIBLE_ABOVE: Final = 1e-3  # a logprob above 0 by more than rounding
UNCERTAIN_BELOW: Final = -5.0  # nats: the other side gives the token less than 1 %
MIN_CONSTANT_TOKENS: Final = 8  # so many equal values in a row are no coincidence
MIN_SPREAD: Final = 0.5  # nats: what the other side's values span at least in such a row


class Anomaly(IntEnum):
    """What is wrong with a value."""

    FILLED_ROW = 0  # all logprobs of a sequence are one value, the other side's are not
    ZERO = 1  # exactly 0 where the other side is far from certain
    MISSING = 2  # -9999 and below
    PAD = 3  # exactly -1
    POSITIVE = 4  # above 0


@dataclass(frozen=True)
class Placeholders:
    """Tokens that cannot be used, and the records that say why."""

    unusable: BoolArray
    records: list[tuple[str, Anomaly, IntArray, IntArray]]  # column, kind, rows, tokens in each


def find_placeholders(
    names: tuple[str, str], values: tuple[Values, Values], row_of: IntArray, starts: IntArray, rows: IntArray
) -> Placeholders | None:
    """Find placeholders in both logprobs of a pair; None where there are none, which costs a few passes only.

    values: one entry per model token; row_of: its row; starts: first token of each row in `rows` (rows with tokens).
    """
    low = [np.fmin.reduceat(side, starts) for side in values]  # fmin: a NaN must not hide its neighbours
    high = [np.fmax.reduceat(side, starts) for side in values]
    count = np.diff(np.append(starts, len(row_of)))
    placeholders = Placeholders(np.zeros(len(row_of), np.bool_), [])
    for side_index, other_index in ((0, 1), (1, 0)):
        with np.errstate(invalid="ignore"):
            constant = (
                (low[side_index] == high[side_index])
                & (count >= MIN_CONSTANT_TOKENS)
                & (high[other_index] - low[other_index] > MIN_SPREAD)
            )
        if constant.any():
            placeholders.records.append((names[side_index], Anomaly.FILLED_ROW, rows[constant], count[constant]))
            placeholders.unusable[np.repeat(constant, count)] = True
        side, against = values[side_index], values[other_index]
        _mark_tokens(placeholders, names[side_index], Anomaly.ZERO, (side == 0) & (against < UNCERTAIN_BELOW), row_of)
        _mark_tokens(placeholders, names[side_index], Anomaly.PAD, side == PAD, row_of)
        if np.fmin.reduce(low[side_index]) <= MISSING_BELOW:
            _mark_tokens(placeholders, names[side_index], Anomaly.MISSING, side <= MISSING_BELOW, row_of)
        if np.fmax.reduce(high[side_index]) > IMPOSSIBLE_ABOVE:
            _mark_tokens(placeholders, names[side_index], Anomaly.POSITIVE, side > IMPOSSIBLE_ABOVE, row_of)
    return placeholders if placeholders.records else None


def _mark_tokens(placeholders: Placeholders, name: str, kind: Anomaly, where: BoolArray, row_of: IntArray) -> None:
    where = where & ~placeholders.unusable if placeholders.records else where
    if where.any():
        rows, count = np.unique(row_of[where], return_counts=True)
        placeholders.records.append((name, kind, rows, count))
        np.logical_or(placeholders.unusable, where, out=placeholders.unusable)


def placeholder_records(placeholders: Placeholders, seq: IntArray, step: IntArray, columns: tuple[str, ...]) -> Columns:
    """Return the anomalies of a batch as records: seq, step, column (index into `columns`), kind, n."""
    rows = np.concatenate([rows for _, _, rows, _ in placeholders.records])
    counts = [count for _, _, _, count in placeholders.records]
    each = [len(count) for count in counts]
    return {
        "seq": seq[rows].astype(np.uint32),
        "step": step[rows],
        "column": np.repeat([columns.index(name) for name, _, _, _ in placeholders.records], each).astype(np.uint8),
        "kind": np.repeat([int(kind) for _, kind, _, _ in placeholders.records], each).astype(np.uint8),
        "n": np.concatenate(counts).astype(np.uint32),
    }

"""Values that are no log-probabilities, found and left out while tokens are read.

What no model gives is told at sight: -9999 and below, values above 0, a row of one constant. What may be a logprob as
well (-1.0, 0) is left out only where `fill_values` has shown, over the run, that it stands in place of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.statistics.arrays import BoolArray, IntArray
from ptt.diagnostics.statistics.cells import Columns
from ptt.diagnostics.statistics.fill_values import (
    MIN_ROW_SPREAD,
    MIN_ROW_TOKENS,
    SENTINELS,
    SURE_ABOVE,
    Fills,
    confirmed,
)

Values = npt.NDArray[Any]

MISSING_BELOW: Final = -9000.0  # OpenAI-style servers write -9999.0 for a missing or -inf logprob
IMPOSSIBLE_ABOVE: Final = 1e-3  # a logprob above 0 by more than rounding
NO_FILLS: Final = Fills()


class Anomaly(IntEnum):
    """What is wrong with a value."""

    FILLED_ROW = 0  # all logprobs of a sequence are one value, the other side's are not
    ZERO = 1  # exactly 0 in place of a logprob
    MISSING = 2  # -9999 and below
    PAD = 3  # a sentinel (-1, -100) in place of a logprob
    POSITIVE = 4  # above 0
    FILL = 5  # some other value in place of logprobs


@dataclass(frozen=True)
class Placeholders:
    """Tokens that cannot be used, and the records that say why."""

    unusable: BoolArray
    records: list[tuple[str, Anomaly, IntArray, IntArray]]  # column, kind, rows, tokens in each


def find_placeholders(
    names: tuple[str, str],
    logps: Mapping[str, Values],
    rows: IntArray,
    count: IntArray,
    fills: Mapping[str, Fills],
) -> Placeholders | None:
    """Find placeholders in both logprobs of a pair; None where there are none, which costs a few passes only.

    logps: one entry per model token, of the pair and of any column that may confirm a zero; rows: those with tokens,
    and how many each has (count); fills: what stands in place of logprobs, by column.
    """
    values = [logps[name] for name in names]
    starts = np.cumsum(count) - count
    low = [np.fmin.reduceat(side, starts) for side in values]  # fmin: a NaN must not hide its neighbours
    high = [np.fmax.reduceat(side, starts) for side in values]
    placeholders = Placeholders(np.zeros(len(values[0]), np.bool_), [])
    for at, name in enumerate(names):
        side, against, known = values[at], values[1 - at], fills.get(name, NO_FILLS)
        thirds = [logps[third] for third in known.confirm if third in logps and third not in names]
        with np.errstate(invalid="ignore"):
            spread = high[1 - at] - low[1 - at] > MIN_ROW_SPREAD
            constant = (low[at] == high[at]) & (count >= MIN_ROW_TOKENS) & spread
        if constant.any():
            sure = constant & (low[at] >= SURE_ABOVE) & (low[at] <= 0)
            if known.zero_rows and sure.any():
                sure &= confirmed([np.fmin.reduceat(third, starts) for third in thirds], low[1 - at])
            constant &= ~sure
        if constant.any():
            placeholders.records.append((name, Anomaly.FILLED_ROW, rows[constant], count[constant]))
            placeholders.unusable[np.repeat(constant, count)] = True
        if known.zeros_below is not None:
            zero = (side == 0) & (against < known.zeros_below) & ~confirmed(thirds, against)
            _mark_tokens(placeholders, name, Anomaly.ZERO, zero, rows, count)
        for value in known.values:
            kind = Anomaly.PAD if value in SENTINELS else Anomaly.FILL
            _mark_tokens(placeholders, name, kind, side == np.float32(value), rows, count)
        if np.fmin.reduce(low[at]) <= MISSING_BELOW:
            _mark_tokens(placeholders, name, Anomaly.MISSING, side <= MISSING_BELOW, rows, count)
        if np.fmax.reduce(high[at]) > IMPOSSIBLE_ABOVE:
            _mark_tokens(placeholders, name, Anomaly.POSITIVE, side > IMPOSSIBLE_ABOVE, rows, count)
    return placeholders if placeholders.records else None


def unsampled_tokens(logps: Mapping[str, Values], fills: Mapping[str, Fills]) -> BoolArray | None:
    """Return the tokens that a fill value of any column proves not to be sampled; None where no column has one.

    A row that could not be scored is none: its tokens were sampled, and other columns hold their logprobs.
    """
    found: BoolArray | None = None
    for name in logps.keys() & fills.keys():
        values, known = logps[name], fills[name]
        mask = np.isin(values, np.array(known.values, values.dtype))
        if known.zeros_below is not None:
            zero = values == 0
            thirds = [logps[third] for third in known.confirm if third in logps]
            for against in (logps[other] for other in logps if other != name):
                with np.errstate(invalid="ignore"):
                    told = zero & (against < known.zeros_below)
                mask = mask | (told & ~confirmed([third for third in thirds if third is not against], against))
        found = mask if found is None else found | mask
    return found


def _mark_tokens(
    placeholders: Placeholders, name: str, kind: Anomaly, where: BoolArray, rows: IntArray, count: IntArray
) -> None:
    where = where & ~placeholders.unusable if placeholders.records else where
    if where.any():
        marked, each = np.unique(np.repeat(rows, count)[where], return_counts=True)
        placeholders.records.append((name, kind, marked, each))
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

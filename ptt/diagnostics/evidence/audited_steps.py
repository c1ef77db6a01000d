"""The rows of some steps, whole and with every column: what the audit of the objective recomputes from.

A run of many tokens is not read again: steps spread over the run, up to MAX_TOKENS, tell which formula the trainer
uses. Where something differs there, further steps can be read to find since when and in which rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.statistics.arrays import IntArray
from ptt.diagnostics.store.scan import SequenceScan, scan_range

MAX_WINDOW: Final = 24  # steps that one logged value may be the mean of
MIN_WINDOWS: Final = 3
LEAST_STEPS: Final = 8  # are read, however long they are: fewer tell little
MAX_STEPS: Final = 48  # enough for a share of agreeing steps, and for a change to be seen between two of them
MAX_TOKENS: Final = 1 << 18  # read again, unless LEAST_STEPS hold more: a few per cent of the time of a diagnosis
MOST_TOKENS: Final = 1 << 22  # in any case: 200 MB of columns


def spacing_of(steps: IntArray) -> int:
    """Return the usual distance of neighbouring steps, at least 1."""
    return max(1, int(np.median(np.diff(steps)))) if len(steps) > 1 else 1


def steps_to_audit(tokens: Tokens, recorded: IntArray, logged: IntArray) -> IntArray:
    """Choose recorded steps spread over the run, in runs of as many as one logged value may be the mean of.

    Two at least, so that a value logged of a neighbouring step is found. All steps of a short run; none where nothing
    is logged.
    """
    if not len(recorded) or not len(logged):
        return np.empty(0, np.int64)
    window, firsts = min(spacing_of(logged), MAX_WINDOW), np.arange(len(recorded))
    ends = _ends_of_windows(recorded, logged, window) if window > 1 else firsts
    if len(ends) >= MIN_WINDOWS:
        firsts = ends - window + 1
    else:
        window = 1
    a_step = max(float(tokens.sound_rows["length"].cast(pl.Int64).sum()) / len(recorded), 1.0)
    most = max(int(min(MAX_STEPS, MAX_TOKENS / a_step)), int(min(LEAST_STEPS, MOST_TOKENS / a_step)), MIN_WINDOWS)
    if window == 1 and len(recorded) <= most:
        return recorded
    length = max(window, 2)
    number = max(most // length, MIN_WINDOWS)
    chosen = firsts[np.unique(np.linspace(0, len(firsts) - 1, number).round().astype(np.int64))]
    places = np.unique(chosen[:, None] + np.arange(length))
    return recorded[places[places < len(recorded)]]


def _ends_of_windows(recorded: IntArray, logged: IntArray, window: int) -> IntArray:
    """Return the places among the recorded steps of those logged at the end of a window that is recorded whole."""
    ends = np.searchsorted(recorded, logged)
    whole = (ends < len(recorded)) & (ends >= window - 1)
    whole[whole] = recorded[ends[whole]] == logged[whole]
    whole[whole] = recorded[ends[whole] - window + 1] == logged[whole] - window + 1
    return ends[whole]


def rows_of_steps(tokens: Tokens, steps: Sequence[int]) -> pl.DataFrame:
    """Read the sound sequences of these steps whole, sorted by step and seq."""
    lines = tokens.sound_rows.select("seq", "step").filter(pl.col("step").is_in(list(steps)))
    return rows_of_sequences(tokens.scan, lines.select("seq"))


def rows_of_sequences(
    scan: SequenceScan, wanted: pl.DataFrame, *, columns: Collection[str] | None = None
) -> pl.DataFrame:
    """Read sequences (`seq`) whole, sorted by step and seq; of `columns` those that are recorded (None: all)."""
    only = pl.all() if columns is None else pl.col(*("seq", "step", *sorted(scan.columns.intersection(columns))))
    frames = [frame.select(only).join(wanted.lazy(), on="seq", how="semi") for frame in _frames(scan, wanted["seq"])]
    rows = pl.concat(pl.collect_all(frames), how="diagonal_relaxed") if frames else scan.frame.limit(0).collect()
    return rows.sort("step", "seq")


def _frames(scan: SequenceScan, seqs: pl.Series) -> list[pl.LazyFrame]:
    """Return a scan of each run of neighbouring sequences, or of all where a row may need others."""
    if not scan.divisible:
        return [scan.frame]
    numbers = np.sort(seqs.to_numpy().astype(np.int64))
    breaks = np.flatnonzero(np.diff(numbers, prepend=-2) > 1)
    ends = np.append(breaks[1:], len(numbers)) - 1
    return [
        scan_range(
            [file for file in scan.files if file.start <= last and file.start + file.rows > first], first, last + 1
        )
        for first, last in zip(numbers[breaks].tolist(), numbers[ends].tolist(), strict=True)
    ]

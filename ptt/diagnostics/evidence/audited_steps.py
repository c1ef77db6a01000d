"""The rows of some steps, whole and with every column: what the audit of the objective recomputes from.

A run of many tokens is not read again: steps spread over the run, up to MAX_TOKENS, tell which formula the trainer
uses. Where something differs there, further steps can be read to find since when and in which rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.statistics.arrays import IntArray
from ptt.diagnostics.store.scan import SequenceScan, scan_range

MAX_STEPS: Final = 48  # enough for a share of agreeing steps, and for a change to be seen between two of them
MAX_TOKENS: Final = 1 << 20  # read again: a twentieth of a run of 20M tokens


@dataclass(frozen=True, kw_only=True)
class AuditedSteps:
    """Rows of the chosen steps, one a sequence, sorted by step and seq; lists as recorded."""

    frame: pl.DataFrame
    steps: IntArray  # the chosen ones, ascending
    recorded: IntArray  # all that the run records


def audited_steps(tokens: Tokens) -> AuditedSteps | None:
    """Read the rows of steps spread evenly over the run, the first and the last among them; None without any."""
    lines = tokens.sound_rows.select("seq", "step", "length").drop_nulls("step")
    sizes = lines.group_by("step").agg(pl.col("length").cast(pl.Int64).sum()).sort("step")
    recorded = sizes["step"].to_numpy()
    if not len(recorded):
        return None
    mean = max(float(sizes["length"].to_numpy().mean()), 1.0)
    wanted = int(np.clip(MAX_TOKENS / mean, 1, min(MAX_STEPS, len(recorded))))
    chosen = recorded[np.unique(np.linspace(0, len(recorded) - 1, wanted).round().astype(np.int64))]
    return AuditedSteps(frame=rows_of_steps(tokens, chosen.tolist()), steps=chosen, recorded=recorded)


def rows_of_steps(tokens: Tokens, steps: Sequence[int]) -> pl.DataFrame:
    """Read the sound sequences of these steps whole, sorted by step and seq."""
    lines = tokens.sound_rows.select("seq", "step").filter(pl.col("step").is_in(list(steps)))
    wanted = lines.select("seq")
    frames = [frame.join(wanted.lazy(), on="seq", how="semi") for frame in _frames(tokens.scan, wanted["seq"])]
    rows = pl.concat(pl.collect_all(frames), how="diagonal_relaxed") if frames else tokens.scan.frame.limit(0).collect()
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

"""What is kept of one run's tokens so that it can be set against another run: any steps can be measured and redrawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The main pair of a run.

    cells: one row per (step, slice, bin): n and records.SUMS, as token_pass.TokenTables has them.
    sequences: one row per (seq, slice): step, unit (what is redrawn as a whole), n, records.SEQUENCE_SUMS and the
        coarse histogram as two lists.
    """

    pair: str
    slices: Mapping[int, str]  # number in the tables -> name: 0 text_only, 1 post_tool or post_observation
    cells: pl.DataFrame
    sequences: pl.DataFrame
    unit: str  # "prompt group" or "sequence"

"""Which files and ranks sequences come from, and how much of the records some of them are."""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.records import Extent

_RANK = re.compile(r"_rank(\d+)(?=[._])")


def file_names(tokens: Tokens, seq: pl.Series) -> pl.Series:
    """Give the file of each sequence, as `file`."""
    names = pl.Series("file", [file.name for file in tokens.scan.files], dtype=pl.String)
    return names.gather(_places(tokens, seq))


def with_ranks(tokens: Tokens, rows: pl.DataFrame) -> pl.DataFrame:
    """Add `rank`, as recorded or as the file is named; null where neither tells."""
    if "rank" in tokens.scan.columns:
        return rows.join(tokens.scalars.select("seq", "rank"), on="seq", how="left", maintain_order="left")
    named = [_RANK.search(file.name) for file in tokens.scan.files]
    numbers = pl.Series("rank", [int(found[1]) if found else None for found in named], dtype=pl.Int32)
    return rows.with_columns(numbers.gather(_places(tokens, rows["seq"])))


def extent_of(tokens: Tokens, rows: pl.DataFrame) -> Extent:
    """Say how much the sequences of `rows` (seq, step, n_model) are."""
    names = file_names(tokens, rows["seq"])
    return Extent(
        tokens=int(rows["n_model"].cast(pl.Int64).sum()),
        sequences=rows.height,
        first_step=int(rows["step"].min()) if rows.height else None,  # type: ignore[arg-type]
        last_step=int(rows["step"].max()) if rows.height else None,  # type: ignore[arg-type]
        files=names.n_unique(),
        example=str(names.min()) if rows.height else None,
    )


def _places(tokens: Tokens, seq: pl.Series) -> pl.Series:
    starts = np.array([file.start for file in tokens.scan.files])
    return pl.Series((np.searchsorted(starts, seq.to_numpy(), side="right") - 1).astype(np.uint32))

"""Keep what the token pass made, so that a second look at the same run does not read its tokens again."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from ptt.diagnostics.statistics.token_pass import TokenTables

FRAMES = ("cells", "sequences", "stretches", "rows", "bad", "anomalies", "samples")


def read_tokens(folder: Path, key: dict[str, object]) -> TokenTables | None:
    """Give the tables kept under `key`, or None."""
    place = folder / "tokens"
    try:
        if json.loads((place / "key.json").read_text(encoding="ascii")) != key:
            return None
        return TokenTables(**{name: pl.read_parquet(place / f"{name}.parquet", glob=False) for name in FRAMES})
    except (OSError, ValueError, pl.exceptions.PolarsError):  # absent or half written: made anew
        return None


def write_tokens(folder: Path, key: dict[str, object], tables: TokenTables) -> None:
    """Keep `tables` under `key`; the key is written last, so a torn write is no write."""
    place = folder / "tokens"
    place.mkdir(exist_ok=True)
    (place / "key.json").unlink(missing_ok=True)
    for name in FRAMES:
        getattr(tables, name).write_parquet(place / f"{name}.parquet", compression="lz4")
    (place / "key.json").write_text(json.dumps(key, sort_keys=True), encoding="ascii")

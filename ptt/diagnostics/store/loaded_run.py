"""A run that was opened, and its profile: what ties its tokens to prompt groups is kept in the store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.statistics.cells import CELL, SEQUENCE, unpack_cells
from ptt.diagnostics.statistics.tail_curves import Profile
from ptt.diagnostics.store.diagnosis import FOLDER


@dataclass(frozen=True, kw_only=True)
class LoadedRun:
    """What a path given on the command line turned out to be, judged."""

    diagnosis: Diagnosis
    profile: Profile | None
    why_no_profile: str  # empty where there is one
    source: str  # sha256 of what it was made from, the same on every machine
    kind: Literal["run", "archive", "store", "findings"]


UNITS: Final = "units.parquet"
FACTS: Final = "profile.json"
CELLS: Final = pl.Schema(unpack_cells(pl.DataFrame(schema=CELL)).schema)


def write_profile(folder: Path, *, store: Path, profile: Profile) -> None:
    """Write into `folder` what the store's token tables do not hold: units, and what the slices are called."""
    units = profile.sequences.select("seq", "unit").unique(maintain_order=True)
    units.write_parquet(folder / UNITS, compression="lz4", statistics=False)
    facts = {"pair": profile.pair, "slices": list(profile.slices.values()), "unit": profile.unit, "tokens": _key(store)}
    (folder / FACTS).write_text(json.dumps(facts), encoding="ascii")


def read_profile(store: Path) -> Profile | None:
    """Read the profile of a store, or None where its tokens were not kept."""
    try:
        text = (store / FOLDER / FACTS).read_text(encoding="ascii")
        facts = json.loads(text)
        if facts["tokens"] != _key(store):  # another look at the run left other tokens here
            return None
        cells = pl.read_parquet(store / "tokens" / "cells.parquet", glob=False)
        sequences = pl.read_parquet(store / "tokens" / "sequences.parquet", glob=False)
        units = pl.read_parquet(store / FOLDER / UNITS, glob=False).sort("seq")
        rows = np.searchsorted(units["seq"].to_numpy(), sequences["seq"].to_numpy())
        if cells.schema != CELLS or sequences.schema != pl.Schema(SEQUENCE):
            return None
        if not units["seq"].gather(rows).equals(sequences["seq"]):
            return None
        if facts["tokens"] != _key(store) or text != (store / FOLDER / FACTS).read_text(encoding="ascii"):
            return None  # another look at the run wrote here while these were read
        return Profile(
            pair=str(facts["pair"]),
            slices=dict(enumerate(str(name) for name in facts["slices"])),
            cells=cells.filter(pl.col("pair") == 0).drop("pair"),
            sequences=sequences.with_columns(units["unit"].gather(rows)),
            unit=str(facts["unit"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError, pl.exceptions.PolarsError):  # absent, or torn
        return None


def _key(store: Path) -> str:
    return (store / "tokens" / "key.json").read_text(encoding="ascii")

"""A run that was opened, and its profile: what ties its tokens to prompt groups is kept in the store."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl

from ptt.diagnostics.documents import convert_document, parse_json
from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.statistics.cells import CELL, SEQUENCE
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


@dataclass(frozen=True, kw_only=True)
class _ProfileFacts:
    pair: str
    slices: tuple[str, ...]
    unit: str
    tokens: str  # the key of the token tables it belongs to


UNITS: Final = "units.parquet"
FACTS: Final = "profile.json"
CELLS: Final = pl.Schema(CELL)


def write_profile(folder: Path, *, store: Path, profile: Profile) -> None:
    """Write into `folder` what the store's token tables do not hold: units, and what the slices are called."""
    units = profile.sequences.select("seq", "unit").unique(maintain_order=True)
    units.write_parquet(folder / UNITS, compression="lz4", statistics=False)
    facts = _ProfileFacts(
        pair=profile.pair, slices=tuple(profile.slices.values()), unit=profile.unit, tokens=_key(store)
    )
    (folder / FACTS).write_text(json.dumps(asdict(facts)), encoding="ascii")


def read_profile(store: Path) -> Profile | None:
    """Read the profile of a store, or None where its tokens were not kept."""
    try:
        content = (store / FOLDER / FACTS).read_bytes()
        facts = convert_document(parse_json(content), _ProfileFacts)
        if facts.tokens != _key(store):  # another look at the run left other tokens here
            return None
        cells = pl.read_parquet(store / "tokens" / "cells.parquet", glob=False)
        if "wide" not in cells.columns:  # of a store from before runs of many steps had wider cells
            cells = cells.with_columns(wide=pl.lit(0, pl.UInt8)).select(list(CELLS))
        sequences = pl.read_parquet(store / "tokens" / "sequences.parquet", glob=False)
        units = pl.read_parquet(store / FOLDER / UNITS, glob=False).sort("seq")
        rows = np.searchsorted(units["seq"].to_numpy(), sequences["seq"].to_numpy())
        if cells.schema != CELLS or sequences.schema != pl.Schema(SEQUENCE):
            return None
        if not units["seq"].gather(rows).equals(sequences["seq"]):
            return None
        if facts.tokens != _key(store) or content != (store / FOLDER / FACTS).read_bytes():
            return None  # another look at the run wrote here while these were read
        return Profile(
            pair=facts.pair,
            slices=dict(enumerate(facts.slices)),
            cells=cells.filter(pl.col("pair") == 0).drop("pair"),
            sequences=sequences.with_columns(units["unit"].gather(rows)),
            unit=facts.unit,
        )
    except (OSError, ValueError, pl.exceptions.PolarsError):  # absent, or torn
        return None


def _key(store: Path) -> str:
    return (store / "tokens" / "key.json").read_text(encoding="ascii")

"""Find the series a rule names: canonical, as the writer spelt it, of an evaluation, or of recorded tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.custom.subjects import TOKENS, closest
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.gathering.series import read_evaluation, spellings_of_training, training_by_name
from ptt.diagnostics.parsers.aliases import canonical
from ptt.diagnostics.parsers.microsoft_metrics import MISLEADING
from ptt.diagnostics.schema import Flag
from ptt.diagnostics.statistics.growth import MIN_BLOCK_TOKENS
from ptt.diagnostics.store.wide import WideMetrics

FEWEST_TOKENS: Final = {"p50": 3, "n": 0}
"""Of a step, for a statistic of it to count; else as many as a block of a tail needs."""


class Lookup:
    """The series of one run by any of their names; each is read once."""

    def __init__(self, evidence: Evidence, tables: Mapping[str, pl.DataFrame], wide: WideMetrics | None = None) -> None:
        self._evidence = evidence
        self._wide = wide or WideMetrics(Path())
        self._metrics = tables.get("metrics", pl.DataFrame())
        self._tokens = tables.get("step_stats", pl.DataFrame())
        self._found: dict[str, Series | str] = {}

    def series(self, name: str) -> Series | str:
        """Give the series of this name, or why there is none."""
        if name not in self._found:
            self._found[name] = self._series(name)
        return self._found[name]

    def _series(self, name: str) -> Series | str:
        if name.startswith(TOKENS):
            return self._of_tokens(name) or self._missing(name)
        evidence = self._evidence
        if name in MISLEADING and evidence.algorithm.family is Family.PREFERENCE:
            return f"{name} is what Microsoft's toolkit calls the chosen reward, or the margin, in preference training"
        named = evidence.metrics.get(canonical(name) or "")
        found = evidence.metrics.get(name) or evidence.other.get(name)
        if found is None and named is not None and named.raw_name == name:
            return named
        if found is None and "priority" in self._metrics.columns:
            found = training_by_name(self._metrics, self._wide, {name: name}).get(name)
            found = found or named or read_evaluation(self._metrics, name)
        return found or named or self._missing(name)

    def _of_tokens(self, name: str) -> Series | None:
        pair, slice_, statistic = name.removeprefix(TOKENS).split(":")
        if self._tokens.is_empty() or statistic not in self._tokens.columns:
            return None
        rows = self._tokens.filter((pl.col("pair") == pair) & (pl.col("slice") == slice_)).sort("step")
        values = rows[statistic].cast(pl.Float64).to_numpy()
        enough = rows["n"].to_numpy() >= FEWEST_TOKENS.get(statistic, MIN_BLOCK_TOKENS)
        steps, values = rows["step"].to_numpy()[enough], values[enough]
        if not np.isfinite(values).any():
            return None
        flags = np.where(np.isfinite(values), Flag.FINITE, Flag.NULL_IN_SOURCE).astype(np.uint8)
        values = np.where(np.isfinite(values), values, np.nan)
        return Series(name=name, raw_name=name, steps=steps, values=values, flags=flags)

    def _missing(self, name: str) -> str:
        """Say that nothing is logged under a name, and what the names most like it are."""
        if name.startswith(TOKENS):
            said, known = f"recorded tokens give no {name}", self._token_names(name.rsplit(":", 1)[-1])
        else:
            ours = canonical(name)
            other = f", nor under any other name of {ours}" if ours not in (None, name) else ""
            said, known = f"nothing is logged as {name}{other}", self._names()
        near = closest(name, known)
        return said + (f"; closest here: {', '.join(near)}" if near else "")

    def _token_names(self, statistic: str) -> set[str]:
        """Give the names under which this statistic of recorded tokens is there."""
        if self._tokens.is_empty():
            return set()
        held = self._tokens.select("pair", "slice").unique().iter_rows()
        return {f"{TOKENS}{pair}:{slice_}:{statistic}" for pair, slice_ in held}

    def _names(self) -> set[str]:
        names = set(self._evidence.metrics) | set(self._evidence.other)
        if "name_raw" in self._metrics.columns:
            names |= set(self._metrics["name_raw"].drop_nulls().unique())
            names |= set(spellings_of_training(self._metrics, self._wide))
        return names

"""What a run holds for a bound to be held against: its series by any of their names, and its tokens by slice."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.gathering.series import (
    read_evaluation,
    spellings_of_training,
    training_by_name,
)
from ptt.diagnostics.kept.opened import Opened
from ptt.diagnostics.parsers.aliases import canonical
from ptt.diagnostics.parsers.switches import how_to_record
from ptt.diagnostics.store.wide import WideMetrics

IntArray = npt.NDArray[np.int64]

NO_WIDE: Final = WideMetrics(Path())
TABLES_LEFT_OUT: Final = "give the run, its archive or its store: findings.json holds no curves"


@dataclass(frozen=True, kw_only=True)
class Absent:
    """Something a run does not hold: why, and how to have it."""

    reason: str
    enable: str


@dataclass(frozen=True)
class Seen:
    """One run as bounds see it; each series is made once."""

    opened: Opened

    def series(self, name: str, *, exact: bool) -> Series | Absent:
        """Give the series of a metric: canonical or as logged, of training or else of an evaluation."""
        found = self._logged_as(name) if exact else self._named(name)
        return found or self._absent(name)

    @property
    def last_step(self) -> int | None:
        """The last step of which anything is recorded."""
        return self.opened.diagnosis.run.last_step

    def file_of(self, series: Series) -> str | None:
        """Give the file that a series comes from; None where it is not known."""
        rows = (
            self._metrics.filter(pl.col("name_raw") == series.raw_name) if "source" in self._metrics.columns else None
        )
        return str(rows["source"][-1]) if rows is not None and rows.height else None

    def _named(self, name: str) -> Series | None:
        ours = self._canonical.get(canonical(name) or name)
        if ours is not None and name in (ours.name, ours.raw_name):
            return ours
        return self._logged_as(name) or ours

    def _logged_as(self, name: str) -> Series | None:
        """Give the series of one spelling: those of large logs are whole, of which the rows may hold a part."""
        held = self._by_spelling.get(name)
        if held is None and "name_raw" in self._metrics.columns:
            held = training_by_name(self._metrics, NO_WIDE, {name: name}).get(name)
            held = held or read_evaluation(self._metrics, name)
        return held

    def _absent(self, name: str) -> Absent:
        if self.opened.kind == "findings":
            return Absent(reason=f"no curve of {name} is at hand", enable=TABLES_LEFT_OUT)
        near = get_close_matches(name, sorted(self._names), n=3)
        close = f"; closest here: {', '.join(near)}" if near else ""
        line = how_to_record(self.opened.diagnosis.run.framework, ["metrics"])
        log = line or "log it with the trainer's other metrics, every step"
        return Absent(reason=f"nothing is logged as {name}{close}", enable=log)

    @property
    def _names(self) -> set[str]:
        rows = spellings_of_training(self._metrics, NO_WIDE) if "name_raw" in self._metrics.columns else ()
        return {*self._canonical, *self._by_spelling, *rows}

    @cached_property
    def _metrics(self) -> pl.DataFrame:
        frame = self.opened.diagnosis.tables.get("metrics", pl.DataFrame())
        if "name_raw" in frame.columns and "priority" not in frame.columns:
            return frame.with_columns(pl.lit(0, pl.Int32).alias("priority"))
        return frame

    @cached_property
    def _canonical(self) -> dict[str, Series]:
        return {one.name: one for one in self._table("series")}

    @cached_property
    def _by_spelling(self) -> dict[str, Series]:
        return {one.raw_name: one for one in (*self._table("other_series"), *self._canonical.values())}

    def _table(self, name: str) -> list[Series]:
        frame = self.opened.diagnosis.tables.get(name, pl.DataFrame())
        return [
            Series(
                name=part["name"][0],
                raw_name=part["name_raw"][0],
                steps=part["step"].to_numpy(),
                values=part["value"].fill_null(np.nan).to_numpy(),
                flags=part["flag"].to_numpy(),
            )
            for part in (frame.partition_by("name", maintain_order=True) if frame.height else ())
        ]

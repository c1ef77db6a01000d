"""Logged metrics of a run by canonical name: values in the order of their steps, and which of them are no numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Diagnosis

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LOST_SHARE: Final = 0.2  # of a window's values are NaN or infinite: the mean of the rest is a selection
NOT_NUMBERS: Final = (1, 2, 3)  # flags of NaN and the infinities (schema.Flag)


@dataclass(frozen=True, kw_only=True)
class Logged:
    """One metric of one run: steps in order; NaN where a value is no number."""

    logged_as: str
    steps: IntArray
    values: FloatArray
    bad: npt.NDArray[np.bool_]  # logged as NaN or an infinity

    def within(self, low: int, high: int) -> Logged:
        """Return the part from step `low` to step `high`, both included."""
        here = (self.steps >= low) & (self.steps <= high)
        return Logged(logged_as=self.logged_as, steps=self.steps[here], values=self.values[here], bad=self.bad[here])

    @property
    def lost(self) -> bool:
        """Whether so many values are NaN or infinite that the rest says nothing."""
        return bool(self.bad.sum() > LOST_SHARE * max(1, len(self.bad)))


Series = Mapping[str, Logged]


def logged_metrics(diagnosis: Diagnosis) -> dict[str, Logged]:
    """Return the training metrics of a run by canonical name; nothing where only its findings are at hand."""
    table = diagnosis.tables.get("series")
    if table is None:
        return {}
    series = {}
    for group in table.sort("name", "step", maintain_order=True).partition_by("name", maintain_order=True):
        values = group["value"].fill_null(math.nan).to_numpy()
        series[str(group["name"][0])] = Logged(
            logged_as=str(group["name_raw"][0]),
            steps=group["step"].to_numpy(),
            values=np.where(np.isfinite(values), values, math.nan),
            bad=np.isin(group["flag"].to_numpy(), NOT_NUMBERS),
        )
    return series

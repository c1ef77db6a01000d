"""Logged metrics of a run as a comparison takes them: in order, over the steps that are shared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.compare.comparison import Member

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LOST_SHARE: Final = 0.2  # of a window's values are no numbers: the mean of the rest is a selection
NOT_NUMBERS: Final = (1, 2, 3)  # flags of NaN and the infinities (schema.Flag)


@dataclass(frozen=True)
class Logged:
    """One metric of one run: steps in order; NaN where a value is no number."""

    steps: IntArray
    values: FloatArray
    bad: npt.NDArray[np.bool_]  # logged as NaN or an infinity
    raw: str

    def within(self, low: int, high: int) -> Logged:
        """Return the part from step `low` to step `high`, both included."""
        here = (self.steps >= low) & (self.steps <= high)
        return Logged(self.steps[here], self.values[here], self.bad[here], self.raw)

    @property
    def lost(self) -> bool:
        """Whether so much of it is no number that the rest tells nothing."""
        return bool(self.bad.sum() > LOST_SHARE * max(1, len(self.bad)))


Series = Mapping[str, Logged]


def series_of(member: Member) -> dict[str, Logged]:
    """Return the training metrics of a run by canonical name; nothing where only its findings are at hand."""
    table = member.diagnosis.tables.get("series")
    if table is None:
        return {}
    found = {}
    for group in table.sort("name", "step").partition_by("name", maintain_order=True):
        values = group["value"].fill_null(math.nan).to_numpy()
        found[str(group["name"][0])] = Logged(
            steps=group["step"].to_numpy(),
            values=np.where(np.isfinite(values), values, math.nan),
            bad=np.isin(group["flag"].to_numpy(), NOT_NUMBERS),
            raw=str(group["name_raw"][0]),
        )
    return found


def windows_of(low: int, high: int) -> list[tuple[int, int]]:
    """Cut the steps from `low` to `high` into three windows as long as each other."""
    edges = np.linspace(low, high + 1, 4).round().astype(int)
    return [(int(edges[part]), int(edges[part + 1]) - 1) for part in range(3)]

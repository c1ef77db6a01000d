"""The tokens of a sample to look at first: those with the largest |r|, each with what is beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

PEAKS: Final = 5  # tokens that windows are laid around
SHARE: Final = 0.1  # of the largest |r|: a token below it is not what stands out
BESIDE: Final = 4  # tokens on either side: what came before and what it led to


@dataclass(frozen=True, kw_only=True)
class Window:
    """Positions from `first` to `last`, both included, and the largest |r| there; null where none is finite."""

    first: int
    last: int
    largest: float | None


def windows(r: pl.Series) -> list[Window]:
    """Return the windows around the largest |r|, the largest first; overlapping ones are one.

    The beginning of the sample where no r is finite.
    """
    size = r.abs()
    usable = pl.DataFrame({"at": range(len(r)), "size": size}).filter(pl.col("size").is_finite())
    if usable.is_empty():
        return [Window(first=0, last=min(len(r), 2 * BESIDE + 1) - 1, largest=None)] if len(r) else []
    peaks = usable.sort("size", "at", descending=[True, False]).head(PEAKS)
    peaks = peaks.filter(pl.col("size") >= SHARE * pl.col("size").max()).sort("at")
    spans: list[tuple[int, int]] = []
    for at in peaks["at"].to_list():
        first, last = max(0, at - BESIDE), min(len(r) - 1, at + BESIDE)
        if spans and first <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))
    found = []
    for first, last in spans:
        inside = usable.filter(pl.col("at").is_between(first, last))["size"]
        found.append(Window(first=first, last=last, largest=float(inside.to_numpy().max())))
    return sorted(found, key=lambda window: (-(window.largest or 0.0), window.first))

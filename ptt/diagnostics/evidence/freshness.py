"""How old the trained sequences were: versions behind, by step."""

from __future__ import annotations

from dataclasses import dataclass

from ptt.diagnostics.evidence.series import Series


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """How old the trained sequences were: versions behind, by step."""

    lag: Series | None  # mean over a step's sequences; None where versions do not count as steps do
    most: Series | None  # of the oldest sequence of a step
    offset: int | None  # the smallest step - version of the run, taken for a lag of 0
    sequences: int
    known_share: float  # of the sequences: those with a version
    versions: int  # distinct
    uneven: str = ""  # why no lag can be told from the versions

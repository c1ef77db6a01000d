"""Limits on the cost of reading a run: their defaults, and the reason for each."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ptt.diagnostics.definitions import dataclass

MB: Final = 1 << 20
SECONDS_PER_MB: Final = 2.0
"""CPU seconds that each MB on disk adds to what its file and its run may take. The slowest sound files, such as console
logs, take a tenth of that."""
SECONDS_PER_FILE: Final = 0.05
"""CPU seconds that each file adds to what its run may take: a run of 100,000 small files is slow, and sound."""
ROWS_PER_MB: Final = 100_000
"""Rows that each MB on disk adds to what its run may hold: twice those of a table of metrics as text."""
TABLE: Final = "[budget]"  # of ptt.toml


@dataclass(frozen=True, kw_only=True)
class BudgetLimits:
    """What reading one run may cost; what lies beyond is lost, counted and reported.

    Each default is several times what the largest sound runs need, and small enough for a laptop.
    """

    memory_mb: int = 512  # what one reader may hold decoded at a time; a row of 128k tokens as JSON takes 8 MB
    seconds: float = 60.0  # CPU time of reading a run, to which its size and the number of its files add
    file_seconds: float = 4.0  # CPU time of reading a file, to which its size adds
    rows: int = 750_000  # in the tables of a run, to which its size adds; judging a row takes some 350 bytes
    names: int = 20_000  # distinct metrics of a run; per-layer statistics of a large model take thousands
    depth: int = 64  # objects and lists inside one another in JSON; trainers stay below ten
    steps: int = 50_000  # with recorded tokens; RL runs take thousands

    def overridden(self, *, memory_mb: int | None, seconds: float | None) -> BudgetLimits:
        """Return these limits with what a command line says; its seconds are for the run and for any one file of it."""
        limits = self if memory_mb is None else replace(self, memory_mb=memory_mb)
        return limits if seconds is None else replace(limits, seconds=seconds, file_seconds=seconds)


DEFAULT_LIMITS: Final = BudgetLimits()

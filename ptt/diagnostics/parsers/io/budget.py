"""The budget of reading a run: readers ask it before they take memory, and tick its clock as they go.

A reader that asks for too much gets `BudgetSpent`, which it lets pass: the one place that catches it is the ingest of a
file, where what was read so far stands and the rest is counted as lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, Literal

from ptt.diagnostics.budget_limits import (
    DEFAULT_LIMITS,
    MB,
    ROWS_PER_MB,
    SECONDS_PER_FILE,
    SECONDS_PER_MB,
    TABLE,
    BudgetLimits,
)

Key = Literal["memory_mb", "seconds", "file_seconds", "rows", "names", "depth", "steps"]
OF_TIME: Final = frozenset({"seconds", "file_seconds"})  # how much of a run they let through is not the same each time


def to_raise(key: Key) -> str:
    """Say how a limit is raised."""
    return f"raise {key} under {TABLE} in ptt.toml to read more"


class BudgetSpent(Exception):  # noqa: N818  # what was read stands: no error of the reader
    """Say in one clause which part of a budget is spent; whoever catches it adds the file."""

    def __init__(self, reason: str, key: Key) -> None:
        super().__init__(f"{reason} ({to_raise(key)})")
        self.reason, self.key = reason, key

    @property
    def of_time(self) -> bool:
        """Whether another try may get further."""
        return self.key in OF_TIME


class Budget:
    """What is left of a run's budget: one for all of its files, which are read one after another.

    Before `begin` no time is counted, so that a file can be read by itself.
    """

    __slots__ = (
        "_allowed",
        "_file_allowed",
        "_max_rows",
        "_names",
        "_rows",
        "_spent",
        "_started",
        "_steps",
        "deep_rows",
        "done",
        "limits",
        "lone_surrogates",
        "position",
        "refused_values",
    )

    def __init__(self, limits: BudgetLimits = DEFAULT_LIMITS, *, nbytes: int = 0, files: int = 0) -> None:
        self.limits = limits
        self.done = 0  # bytes of the current file, on disk, that are read and whose rows the reader has handed on
        self.position = 0  # bytes of the current file, on disk, that are read, whatever they gave
        self.refused_values = 0  # in the current file: values of metrics too many for the run
        self.deep_rows = 0  # in the current file: nested deeper than allowed
        self.lone_surrogates = 0  # in the current file: half characters in texts
        self._allowed = limits.seconds + SECONDS_PER_MB * nbytes / MB + SECONDS_PER_FILE * files
        self._max_rows = limits.rows + ROWS_PER_MB * (nbytes // MB)
        self._spent = 0.0  # CPU seconds on the files before
        self._started: float | None = None
        self._file_allowed = 0.0
        self._rows = 0
        self._names: set[str] | None = None
        self._steps: set[int] = set()

    def begin(self, nbytes: int) -> None:
        """Start the clock of the next file, which has `nbytes` bytes on disk."""
        self.end()
        self.done = self.position = self.refused_values = self.deep_rows = self.lone_surrogates = 0
        self._started = time.process_time()
        self._file_allowed = self.limits.file_seconds + SECONDS_PER_MB * nbytes / MB

    def end(self) -> None:
        """Add what the file at hand took to what the run took."""
        if self._started is not None:
            self._spent += time.process_time() - self._started
        self._started = None

    def charge(self, seconds: float) -> None:
        """Add CPU time that a process of its own spent on the file at hand."""
        if self._started is not None:
            self._started -= seconds

    @property
    def seconds_left(self) -> float:
        """CPU seconds that the file at hand may still take: the limit of a process that reads it."""
        taken = 0.0 if self._started is None else time.process_time() - self._started
        file_allowed = self.limits.file_seconds if self._started is None else self._file_allowed
        return max(0.0, min(file_allowed - taken, self._allowed - self._spent - taken))

    def tick(self) -> None:
        """Raise where the time of the file or the run is spent; called once a block, or a batch of rows."""
        if self._started is None:
            return
        taken = time.process_time() - self._started
        if taken > self._file_allowed:
            raise BudgetSpent(f"reading it took more than {self._file_allowed:.0f} s of CPU time", "file_seconds")
        if self._spent + taken > self._allowed:
            raise BudgetSpent(f"reading the run took more than {self._allowed:.0f} s of CPU time", "seconds")

    def take(self, *, nbytes: int, what: str) -> None:
        """Raise if `what` needs more memory than one reader may take; call it before allocating."""
        if nbytes > self.limits.memory_mb * MB:
            size = f"{max(1, nbytes >> 20)} MB"
            raise BudgetSpent(f"{what} takes {size} of memory; the limit is {self.limits.memory_mb} MB", "memory_mb")
        self.tick()

    def rows(self, count: int) -> None:
        """Count rows that are added to the run's tables, and raise where they are too many."""
        if self._rows + count > self._max_rows:
            raise BudgetSpent(f"the run has more than {self._max_rows} rows", "rows")
        self._rows += count

    def add_steps(self, steps: Iterable[int | None]) -> None:
        """Count the steps with recorded tokens; raise BudgetSpent where there are too many."""
        self._steps.update(step for step in steps if step is not None)
        if len(self._steps) > self.limits.steps:
            raise BudgetSpent(f"the run records tokens of more than {self.limits.steps} steps", "steps")

    def name(self, name: str) -> bool:
        """Return whether a metric of this name may be kept: it is known, or not one too many."""
        if self._names is None:
            self._names = set()
        if name in self._names:
            return True
        if len(self._names) >= self.limits.names:
            return False
        self._names.add(name)
        return True

    def refused(self, names: Iterable[str]) -> set[str]:
        """Return the metrics that may not be kept, the others being known from now on; by name, if too many come."""
        known = self._names or set()
        fresh = set(names) - known
        if len(known) + len(fresh) <= self.limits.names:
            self._names = known | fresh if fresh else self._names
            return set()
        return {name for name in sorted(fresh) if not self.name(name)}

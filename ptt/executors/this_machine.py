"""Fold the pieces of a long run, and judge many runs, in processes on all cores of this machine."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from ptt.diagnostics.engines.pieces import Group, Piece, RunPieces, fold_one
from ptt.diagnostics.statistics.partial_tables import PartialTables
from ptt.diagnostics.store.scan import READ_ERRORS
from ptt.processes import TASKS_PER_PROCESS, THREADS, Died, in_workers

Task = TypeVar("Task")
Result = TypeVar("Result")

ENOUGH_CORES: Final = 3
"""Polars decodes on one core while another adds up: two are busy without any other process."""
MAX_JOBS: Final = 4  # by default: each process may need the memory of a whole run
OF_EACH: Final = 500  # pieces a process: each leaves less than half a megabyte behind, and a new process costs two
AHEAD: Final = 4
"""Pieces handed out beyond the first that is not done, a process: what is done early waits here, 9 MB a piece."""


class ThisMachine:
    """The default executor: all cores of this machine."""

    @property
    def run_pieces(self) -> RunPieces | None:
        """Return what folds pieces on all cores; None where this process keeps them busy by itself."""
        if multiprocessing.current_process().daemon or os.environ.get(THREADS) == "1":  # one of many that share them
            return None
        return partial(fold_in_processes, jobs=cores()) if cores() >= ENOUGH_CORES else None

    @property
    def read_tasks(self) -> None:
        """Leave files to the process that writes the store."""

    def run_tasks(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        jobs: int | None,
        writes_to: Path,  # noqa: ARG002  of a cluster, whose nodes may not see it
    ) -> Generator[tuple[int, Result | Died]]:
        """Yield each task's number and result as they are done; a process takes some hundred milliseconds to start."""
        jobs = min(jobs or max(1, min(cores(), MAX_JOBS)), len(tasks))
        if len(tasks) < 2 or (jobs == 1 and len(tasks) <= TASKS_PER_PROCESS):
            for number, task in enumerate(tasks):
                yield number, function(task)
            return
        with closing(in_workers(function, tasks, jobs=jobs)) as answers:
            yield from answers


def cores() -> int:
    """Return how many cores this process may use: a container's share, not the whole machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def fold_in_processes(
    pieces: Sequence[Piece],
    groups: Mapping[int, Group],  # noqa: ARG001  their tables would go from one process to another and then here
    *,
    jobs: int,
) -> Generator[tuple[int, PartialTables | None]]:
    """Fold pieces in so many processes; None of what one of them cannot read or dies of: it is tried here once more."""
    jobs = min(jobs, len(pieces))
    with closing(in_workers(fold_or_none, pieces, jobs=jobs, ahead=AHEAD * jobs, of_each=OF_EACH)) as answers:
        for number, answer in answers:
            yield number, None if isinstance(answer, Died) else answer


def fold_or_none(piece: Piece) -> PartialTables | None:
    """Fold a piece, or return None where its files cannot be read: the caller meets the error, and reports it."""
    try:
        return fold_one(piece)
    except READ_ERRORS:
        return None

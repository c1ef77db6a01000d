"""Where the pieces of a long run are folded: in this process, or in processes on all cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from ptt.diagnostics.engines.pieces import Piece, RunPieces, fold_one
from ptt.diagnostics.statistics.partial_tables import PartialTables
from ptt.diagnostics.store.scan import READ_ERRORS
from ptt.processes import Died, in_workers

ENOUGH_CORES: Final = 3
"""Polars decodes on one core while another adds up: two are busy without any other process."""


def local_pieces() -> RunPieces | None:
    """Return what folds pieces on all cores of this machine; None where this process keeps them busy by itself."""
    affinity = getattr(os, "sched_getaffinity", None)  # of a container's share, not of the whole machine
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    if cores < ENOUGH_CORES or multiprocessing.current_process().daemon:  # one of many runs that are judged at a time
        return None
    return partial(fold_in_processes, jobs=cores)


def fold_in_processes(pieces: Sequence[Piece], *, jobs: int) -> Iterator[tuple[int, PartialTables]]:
    """Fold pieces in so many processes; what one of them cannot read or dies of is tried here once more."""
    with closing(in_workers(fold_or_none, pieces, jobs=min(jobs, len(pieces)))) as answers:
        for number, answer in answers:
            failed = answer is None or isinstance(answer, Died)
            yield number, fold_one(pieces[number]) if failed else answer  # type: ignore[misc]


def fold_or_none(piece: Piece) -> PartialTables | None:
    """Fold a piece, or return None where its files cannot be read: the caller meets the error, and reports it."""
    try:
        return fold_one(piece)
    except READ_ERRORS:
        return None

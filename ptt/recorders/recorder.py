"""Write one recorder file a step and rank, whole or not at all, without ever ending the training run it records."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from ptt.recorders.columns import per_row, table

LOG = logging.getLogger("ptt.recorders")


class Recorder:
    """Writes `folder/step_{step:06d}.parquet`, with `_rank{rank}` before the ending where several ranks write.

    `rank` is by default the environment's RANK where WORLD_SIZE is above 1, else none. `every` writes each n-th step
    alone. `strict` raises what is wrong with the rows or the disk; by default it is logged once (logger
    `ptt.recorders`) and training goes on. `fsync` waits until the disk has the file. `seconds` is what recording has
    cost so far, `failures` how many steps were lost.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        rank: int | None = None,
        every: int = 1,
        *,
        strict: bool = False,
        fsync: bool = False,
    ) -> None:
        """Check what was given; nothing is written yet. Raises ValueError for a folder, rank or every of no use."""
        if not os.fspath(folder):
            raise ValueError("the folder to record to is empty; give a folder of the run, such as OUTPUT_DIR/tokens.")
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder}: is a file; give a folder to record to.")
        if every < 1:
            raise ValueError(f"every={every}: give 1 for each step, 10 for each tenth.")
        self.rank = _rank_of_environment() if rank is None else rank
        if self.rank is not None and self.rank < 0:
            raise ValueError(f"rank={self.rank}: ranks are counted from 0.")
        self.every = every
        self.strict = strict
        self.fsync = fsync
        self.seconds = 0.0
        self.failures = 0
        self._written: set[int] = set()
        self._depth = 0

    def wants(self, step: int) -> bool:
        """Say whether this step is written: ask before doing work for it."""
        return step % self.every == 0

    def write(
        self,
        step: int,
        rows: Sequence[Mapping[str, Any]] | Mapping[str, Any],
        *,
        attention_mask: Any = None,
    ) -> Path | None:
        """Write the sequences of one step and give the file's path; None where `every` leaves the step out.

        `rows` is a list of dicts, one a sequence, or a dict of columns: lists, numpy arrays or torch tensors, a list
        column as [B, T] or as a list of rows. `attention_mask` [B, T] is 1 where there is a token: padding is cut by
        it. Names and types are those of docs/recorder.md. A step is written once: gather its micro-batches first.
        Raises ValueError, TypeError or OSError under `strict`; otherwise logs the first and gives None.
        """
        if not self.wants(step):
            return None
        with self.guarded():
            return self._write(step, rows, attention_mask)
        return None

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Count the time of what is inside, and keep its errors from the training loop unless `strict`."""
        started = perf_counter()
        self._depth += 1
        try:
            yield
        except Exception as error:  # whatever a framework's internals raise must not end a training run
            if self.strict:
                raise
            self.failures += 1
            if self.failures == 1:
                LOG.warning("recording to %s failed, training goes on; said once: %s", self.folder, error)
        finally:
            self._depth -= 1
            if not self._depth:  # a write within a hook is part of the hook's time
                self.seconds += perf_counter() - started

    def _write(self, step: int, rows: Any, attention_mask: Any) -> Path:
        import pyarrow.parquet as pq

        if step < 0 or step in self._written:
            why = "is negative" if step < 0 else "was written already; gather all its micro-batches and write once"
            raise ValueError(f"step {step} {why}.")
        suffix = "" if self.rank is None else f"_rank{self.rank}"
        path = self.folder / f"step_{step:06d}{suffix}.parquet"
        found = table(int(step), per_row(rows, attention_mask), self.rank)
        self.folder.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        try:
            with part.open("wb") as file:
                pq.write_table(found, file, compression="zstd", use_dictionary=False)
                if self.fsync:
                    file.flush()
                    os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        self._written.add(step)
        return path


def _rank_of_environment() -> int | None:
    """Give torchrun's rank where several processes train: without it they would write over each other."""
    try:
        return int(os.environ["RANK"]) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None
    except (KeyError, ValueError):
        return None

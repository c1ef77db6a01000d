"""Where work is done: the pieces of a long run, or many runs, in processes of this machine or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar

from ptt.diagnostics.engines.pieces import RunPieces
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.store.file_readings import RunTasks
from ptt.executors.this_machine import ThisMachine
from ptt.processes import Died

Task = TypeVar("Task")
Result = TypeVar("Result")


class Executor(Protocol):
    """Does work elsewhere; what comes of it is the same everywhere, to the byte."""

    @property
    def run_pieces(self) -> RunPieces | None:
        """What folds the pieces of a long run; None where this process does it by itself."""

    @property
    def read_tasks(self) -> RunTasks | None:
        """What reads the files of a run into a store; None where this process does it by itself."""

    def run_tasks(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, jobs: int | None, writes_to: Path
    ) -> Generator[tuple[int, Result | Died]]:
        """Yield each task's number and result as they are done; closing the generator ends all that is under way.

        `jobs`: how many are done at a time, None for as many as there is room for; `writes_to`: the folder that tasks
        write into.
        """
        ...


class Engine(StrEnum):
    """What `--engine` can be."""

    LOCAL = "local"
    RAY = "ray"


@contextmanager
def executor(engine: Engine, ray_address: str | None = None) -> Iterator[Executor]:
    """Open what an engine works on, and close it with the block."""
    if engine is Engine.LOCAL:
        if ray_address is not None:
            raise SettingsError("--ray-address is of --engine ray alone; give that as well.")
        yield ThisMachine()
        return
    from ptt.executors.ray_cluster import RayCluster  # here: most installations are without Ray

    with RayCluster(ray_address) as cluster:
        yield cluster

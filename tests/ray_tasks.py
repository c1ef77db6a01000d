"""What tests have done on workers, which import it by its name."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any


def merged(folder: Path, places: range, *given: Any) -> Any:
    """Add up a group, and leave files in a folder that tell of it."""
    from ptt.executors.ray_cluster import merge_or_none

    (folder / f"{places.start} begun").touch()
    tables = merge_or_none(places, *given)
    (folder / f"{places.start} {'done' if tables is not None else 'not possible'}").touch()
    return tables


def dying(folder: Path, places: range, *given: Any) -> Any:
    """Do the same; the first group's workers die each time, another's once."""
    mark = folder / f"{places.start} begun"
    if places.start == 0 or not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return merged(folder, places, *given)


def not_here(piece: object) -> object:
    from ptt.executors.ray_cluster import Unseen

    return Unseen(node="elsewhere")


def once(task: tuple[Path, int]) -> int:
    """Answer; the first time that somebody is asked for number 3, the worker is killed."""
    folder, number = task
    if number == 3 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def work(task: str) -> str:
    if task == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "raises":
        raise ValueError("a bug")
    return os.environ["POLARS_MAX_THREADS"]


def marked(task: tuple[Path, int]) -> int:
    (task[0] / f"done-{task[1]}").touch()
    return task[1]

"""Where output goes, and how long work is shown."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.store.archives import run_name
from ptt.diagnostics.store.claims import note_of, noted_run

STORE: Final = "store"
DEEPEST: Final = 4  # parents that are named to tell two runs of one name apart
LONGEST: Final = 200  # bytes of a folder's name; file systems take 255, and a number may follow


def output_folder(run: Path, out: Path | None) -> Path:
    """Give `--out`, or the default: below the current folder, or beside the run where that lies inside it.

    A folder that holds the output of another run of this name is left to it: the parents' names tell the two apart.
    """
    if out is not None:
        return out
    home, here = run.resolve(), Path.cwd().resolve()
    inside = home.is_dir() and (here == home or home in here.parents)
    base, mine = (home.parent if inside else Path()) / "ptt-report", note_of(run)
    return next(base / name for name in _names(home) if noted_run(base / name / STORE) in (None, mine))


def _names(home: Path) -> Iterator[str]:
    """Give what the output of a run may be called, the shortest first, without end."""
    name = run_name(home)
    yield _cut(name)
    for parent in home.parents[: DEEPEST - 1]:
        if parent.name:
            name = f"{parent.name}-{name}"
            yield _cut(name)
    for number in count(2):
        yield f"{_cut(name)}-{number}"


def _cut(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:LONGEST]) or "run"


def run_folders(runs: Sequence[Path], base: Path) -> list[Path]:
    """Give a folder of its own below `base` for the output of each run; equal names take their parents' names along."""
    homes = [run.resolve() for run in runs]
    names = [run_name(home) for home in homes]
    for depth in range(1, DEEPEST):
        doubled = {name for name, times in Counter(names).items() if times > 1}
        if not doubled:
            break
        names = [
            f"{home.parents[depth - 1].name}-{name}" if name in doubled and len(home.parents) >= depth else name
            for home, name in zip(homes, names, strict=True)
        ]
    taken: set[str] = set()
    return [base / _free(name, taken) for name in names]


def _free(name: str, taken: set[str]) -> str:
    """Give a name that is not taken, also where upper and lower case are one, and take it."""
    name = _cut(name)
    numbered = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
    free = next(one for one in numbered if one.casefold() not in taken)
    taken.add(free.casefold())
    return free


def check_figures(run: Path, figures: Path) -> None:
    """Refuse a folder for figures that is a file, or lies inside the run."""
    home, place = run.resolve(), figures.resolve()
    if home.is_dir() and (place == home or home in place.parents):
        raise SettingsError(f"{figures}: lies inside the run, which is never written to; give another --figures.")
    if place.exists() and not place.is_dir():
        raise SettingsError(f"{figures}: is a file; --figures takes a folder.")


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Show how far the work is on a terminal, and nothing where output is piped."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks = {}

        def tell(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=of)
            bars.update(tasks[what], completed=done, total=of)

        yield tell

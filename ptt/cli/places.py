"""Where output goes, and how long work is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.store.archives import run_name


def output_folder(run: Path, out: Path | None) -> Path:
    """Give `--out`, or the default: below the current folder, or beside the run where that lies inside it."""
    if out is not None:
        return out
    home, here = run.resolve(), Path.cwd().resolve()
    inside = home.is_dir() and (here == home or home in here.parents)
    return (home.parent if inside else Path()) / "ptt-report" / run_name(home)


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

"""Say where output goes, show progress, and draw the report in a second process while the run is judged."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from importlib import import_module
from itertools import chain, count
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ptt.cli.options import EngineName, ReportOptions
from ptt.cli.streams import grow_in_large_steps
from ptt.cli.traces_options import TracesOptions
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.store.archives import is_archive, run_name
from ptt.diagnostics.store.folders import NOTE, hash_location, noted_run
from ptt.processes import ends_with_us, leave_signals_to_the_parent, set_for_children, uninterrupted, without_main
from ptt.reports.text.sanitize import safe
from ptt.stopping import collect_seldom
from ptt.version import __version__

if TYPE_CHECKING:
    from ptt.diagnostics.compare.comparison import Comparison
    from ptt.diagnostics.model import Diagnosis
    from ptt.diagnostics.traces.model import TraceDiagnosis
    from ptt.object_stores.remote_paths import RemotePaths
    from ptt.reports.figures.faults import FigureFault
    from ptt.reports.run.html import Page


BASE: Final = "ptt-report"
STORE: Final = "store"
DRAWING: Final = "drawing the report"  # a stage of the progress bar
MAX_PARENTS: Final = 4  # that are named to distinguish two runs of one name
RESERVED: Final = ("index.html", "index.json", "gate.json", ".lock", "again", "store", NOTE)
"""What commands over several runs write of their own, beside a folder a run."""
INSIDE: Final = ("findings.json", "store")  # what an output folder holds: a run is called after the folder then
MAX_NAME: Final = 200  # bytes of a folder's name; file systems take 255, and a number may follow


def contains(run: Path, path: Path) -> bool:
    """Return whether a path is a run's folder or lies inside it: a run is never written to."""
    home = run.resolve()
    return home.is_dir() and path.resolve().is_relative_to(home)


def output_base(runs: Iterable[Path]) -> Path:
    """Return the default folder of all output: below the current one, or beside a run that contains that."""
    return next((run.resolve().parent for run in runs if contains(run, Path.cwd())), Path()) / BASE


def output_folder(run: Path, out: Path | None, *, ends: str = "") -> Path:
    """Return `--out`, or the default of a run: its name, and how that of this kind of output `ends`.

    A folder that holds the output of another run of this name is left to it: the parents' names distinguish the two.
    """
    if out is not None:
        return out
    base, location = output_base([run]), hash_location(run)
    folders = (base / f"{name}{ends}" for name in _names(run.resolve()))
    free = (None, location)
    return next(folder for folder in folders if noted_run(folder / STORE) in free and noted_run(folder) in free)


def named(run: Path) -> Path:
    """Return the path that a run is called after: of a store or findings.json the folder around it."""
    return run.parent if run.name in INSIDE and run.resolve().parent != run.resolve() else run


def _names(home: Path) -> Iterator[str]:
    """Yield what the output of a run may be called, the shortest first, without end."""
    name = run_name(home)
    yield _printable(name)
    for parent in home.parents[: MAX_PARENTS - 1]:
        if parent.name:
            name = f"{parent.name}-{name}"
            yield _printable(name)
    for number in count(2):
        yield f"{_printable(name)}-{number}"


def _printable(name: str) -> str:
    """Spell a name so that any file, page and terminal can hold it: bytes that are no text, and steering, by number."""
    text = os.fsencode(name)[:MAX_NAME].decode("utf-8", "backslashreplace")
    plain = "".join(sign if sign.isprintable() else f"_x{ord(sign):02x}" for sign in text.replace("\\", "_"))
    return os.fsdecode(os.fsencode(plain)[:MAX_NAME]) or "run"


def run_folders(runs: Sequence[Path], base: Path, *, reserved: Collection[str] = ()) -> list[Path]:
    """Return a folder of its own below `base` for the output of each run; equal names take their parents' names along.

    `reserved`: what the command itself writes into `base`.
    """
    homes = [run.resolve() for run in runs]
    names = [run_name(home) for home in homes]
    for depth in range(1, MAX_PARENTS):
        doubled = {name for name, times in Counter(names).items() if times > 1}
        if not doubled:
            break
        names = [
            f"{home.parents[depth - 1].name}-{name}" if name in doubled and len(home.parents) >= depth else name
            for home, name in zip(homes, names, strict=True)
        ]
    taken = {name.casefold() for name in (*RESERVED, *reserved)}  # upper and lower case may be one
    folders = []
    for name in map(_printable, names):
        numbered = chain([name], (f"{name}-{number}" for number in count(2)))
        folders.append(base / next(free for free in numbered if free.casefold() not in taken))
        taken.add(folders[-1].name.casefold())
    return folders


def check_figures(run: Path, figures: Path) -> None:
    """Refuse a folder for figures that is a file, or lies inside the run."""
    if contains(run, figures):
        raise SettingsError(f"{figures}: lies inside the run, which is never written to; give another --figures.")
    if figures.exists() and not figures.is_dir():
        raise SettingsError(f"{figures}: is a file; --figures takes a folder.")


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Show how far the work is on a terminal, and nothing where output is piped."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks = {}

        def tell(stage: str, done: int, of: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=of)
            bars.update(tasks[stage], completed=done, total=of)

        yield tell


def remote_paths() -> RemotePaths:
    """Open the door for paths in an object store, and show how far reading is."""
    from ptt.object_stores.remote_paths import RemotePaths

    return RemotePaths(lambda: progress_bar(Console(stderr=True)))


def say_what_stays_here(run: Path, engine: str) -> None:
    """Say of an archive that the cluster has no part in it."""
    from ptt.object_stores.remote_paths import shown

    if engine == EngineName.RAY and run.exists() and is_archive(run):
        typer.echo(
            f"ptt: {safe(shown(run))}: an archive is unpacked and read on this machine alone; to use the cluster, "
            "unpack it where all nodes see it.",
            err=True,
        )


def check_redaction(options: ReportOptions | TracesOptions) -> None:
    """Refuse options that would do nothing, or less than they seem to."""
    if not options.redact and (options.salt is not None or options.keep_tool_names):
        raise SettingsError("--salt and --keep-tool-names only work with --redact; add --redact, or drop them.")
    if options.salt is not None and not options.salt.strip():
        raise SettingsError("--salt is empty: anyone who guesses a name could find its hash; give a secret.")


def redact_traces(diagnosis: TraceDiagnosis, options: ReportOptions | TracesOptions) -> TraceDiagnosis:
    """Return what may be shared of agent traces."""
    from ptt.reports.redact.redact import default_salt, redacted_traces
    from ptt.reports.traces.findings_json import trace_findings_json

    salt = options.salt or default_salt(diagnosis.traces.name, trace_findings_json(diagnosis, __version__))
    return redacted_traces(diagnosis, salt=salt, keep_tool_names=options.keep_tool_names)


def write_traces(diagnosis: TraceDiagnosis, folder: Path, figures: Path | None) -> tuple[str, Path, list[FigureFault]]:
    """Write what a command says of agent traces; return findings.json, the page, and the figures that failed."""
    from ptt.reports.output import write_text
    from ptt.reports.traces.figures import write_trace_figures
    from ptt.reports.traces.findings_json import trace_findings_json
    from ptt.reports.traces.html import render_traces

    findings = trace_findings_json(diagnosis, __version__)
    write_text(folder / "findings.json", findings)
    page = render_traces(diagnosis)
    report = write_text(folder / "report.html", page.text)
    faults = list(page.faults)
    if figures is not None:
        write_trace_figures(diagnosis, figures, faults)
    return findings, report, faults


class Artist:
    """A process that has imported what draws by the time there is something to draw."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        with uninterrupted(), set_for_children(ends_with_us()), without_main():  # which imports more than drawing needs
            pool.submit(grow_in_large_steps)
            pool.submit(collect_seldom)
            for module in ("ptt.reports.figures.drawing", "ptt.reports.run.drawn"):
                pool.submit(import_module, module)  # starts the process

    def page(self, diagnosis: Diagnosis, beside: Comparison | None = None) -> Page:
        """Make the report, with the run's tails beside a baseline's where they were compared."""
        from ptt.reports.run.drawn import draw_run
        from ptt.reports.run.html import render_page

        shown = _for_drawing(diagnosis)
        drawn = self._pool.submit(draw_run, shown, beside)
        return render_page(shown, drawn.result)


@contextmanager
def artist() -> Iterator[Artist]:
    """Start the process, and end it with the block whatever happens."""
    spawn = get_context("spawn")  # a fork of a process with threads may hang
    begin = partial(leave_signals_to_the_parent, thread_stays=True)  # commands run in the main thread
    pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=begin)
    try:
        yield Artist(pool)
    except BaseException:  # Ctrl-C as well: nothing will be drawn, so do not wait until the process has imported all
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _for_drawing(diagnosis: Diagnosis) -> Diagnosis:
    """Return the plain diagnosis, whose class another process loads at little cost, without tables that nothing draws.

    Those tables grow with the run's rows.
    """
    from ptt.diagnostics.model import Diagnosis
    from ptt.diagnostics.store.diagnosis import STORE_TABLES, Tables

    values = {field.name: getattr(diagnosis, field.name) for field in fields(Diagnosis)}
    tables = diagnosis.tables.made if isinstance(diagnosis.tables, Tables) else diagnosis.tables
    if isinstance(tables, dict):  # those of a kept one are read when they are asked for
        values["tables"] = {name: table for name, table in tables.items() if name not in STORE_TABLES}
    return Diagnosis(**values)

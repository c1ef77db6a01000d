"""Judge agent traces as one set, and export training data from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ptt.api.runs import Paths, Progress, paths_of
from ptt.diagnostics import traces_pipeline
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.run_files import run_files
from ptt.diagnostics.store.file_readings import Reading, Task, read_task
from ptt.diagnostics.traces.model import TraceDiagnosis
from ptt.processes import Died, in_workers
from ptt.run_location import STORE, run_location, store_at, unpacked_run
from ptt.stopping import temporary_folder

if TYPE_CHECKING:
    from ptt.diagnostics.traces.exports.options import ExportOptions
    from ptt.diagnostics.traces.exports.quality import ExportReport


def traces(
    paths: Paths,
    *,
    out: str | Path | None = None,
    settings: Settings | None = None,
    keep_messages: bool = False,
    jobs: int = 1,
    progress: Progress | None = None,
) -> TraceDiagnosis:
    """Judge the agent traces at `paths` (files, folders or archives) as one set.

    With `out` the Parquet store is kept there. `keep_messages` keeps whole conversations in it, for an export. Raises
    InputError if no file holds an episode. `jobs` processes read at a time; what they find is the same. One path may be
    a store, which is judged again as it is.
    """
    given = paths_of(paths)
    if len(given) == 1 and (kept := store_at(given[0])) is not None:
        folder = kept.parent if kept.name == STORE else kept
        return traces_pipeline.reopened_traces(kept, name=folder.resolve().name)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(temporary_folder()) if out is None else out)
        files: list[RunFile] = []
        notes: list[str] = []
        for number, path in enumerate(given):
            unpacked = stack.enter_context(unpacked_run(run_location(path, folder), one_run=True))
            found, passed_over = run_files(unpacked.run)
            prefix = f"{number}-{path.name}/" if len(given) > 1 else ""
            files += [replace(file, rel=prefix + file.rel) for file in found]
            notes += [*unpacked.notes, *passed_over]
        return traces_pipeline.diagnose_traces(
            files,
            name=run_location(given[0], folder).name,
            store=folder / STORE,
            notes=notes,
            settings=settings,
            keep_messages=keep_messages,
            run_tasks=partial(_read_in_workers, jobs=jobs) if jobs > 1 else None,
            progress=progress,
        )


def _read_in_workers(tasks: Sequence[Task], *, jobs: int) -> Iterator[tuple[int, list[Reading] | Died]]:
    """Read tasks in processes; one task starts none."""
    if len(tasks) == 1:
        yield 0, read_task(tasks[0])
        return
    with closing(in_workers(read_task, tasks, jobs=min(jobs, len(tasks)))) as done:
        yield from done


def export_traces(kept: str | Path, to: str | Path, options: ExportOptions) -> ExportReport:
    """Write training data into `to` from what `traces(..., out=kept, keep_messages=True)` kept, and return its card.

    Raises InputError if no conversations are kept there, and SettingsError if the folder cannot be written to.
    """
    from ptt.diagnostics.traces.exports.export import export_traces as write  # here: it imports pyarrow

    store = store_at(Path(kept))
    if store is None:
        raise InputError(f"{kept}: holds no store; read the traces with keep_messages first.")
    return write(store, Path(to), options)

"""What is at the path a user gives: a run folder, an archive, a store, a findings.json, or several runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from shlex import quote
from typing import Final

from ptt.diagnostics import traces_pipeline
from ptt.diagnostics.errors import GIVE_A_RUN, InputError, SettingsError, SeveralRunsError, no_such_path
from ptt.diagnostics.model import Diagnosis, Status
from ptt.diagnostics.parsers.io.run_files import not_readable
from ptt.diagnostics.pipeline import RunLocation
from ptt.diagnostics.store import archives, run_identity
from ptt.diagnostics.store.findings_file import read_findings
from ptt.diagnostics.store.folders import noted_run
from ptt.diagnostics.store.manifest import is_store, stores_below
from ptt.diagnostics.store.sibling_runs import FolderRuns, find_runs
from ptt.diagnostics.traces.compare import TraceSide
from ptt.diagnostics.traces.model import with_records
from ptt.diagnostics.wording import counted
from ptt.object_stores.client import Url, is_url
from ptt.object_stores.remote_paths import FINDINGS, STORE, notes_of, why_not_fetched
from ptt.reports.traces.findings_json import read_trace_findings

MAX_NAMED: Final = 5  # folders named in an error
MARK: Final = ".made-of"  # names what findings.json and report.html were made of, by commands over many runs
TRACES: Final = ".traces"  # ends the name of the default folder of `ptt traces`


def run_exists(path: Path) -> bool:
    """Return whether there is something at a path; InputError where the system does not let us look into it."""
    try:
        if not path.exists():
            if why := why_not_fetched(path):
                raise InputError(why)
            return False
        if path.is_dir():
            os.scandir(path).close()
            (path / FINDINGS).exists()  # a folder may be listed and not entered
    except OSError as error:
        raise not_readable(path, error) from error
    return True


def not_there(path: Path, advice: str) -> InputError:
    """Return the error for a path at which nothing lies; for one in an object store it says what reads these."""
    if is_url(path):
        readers = "is read by the commands, ptt.diagnose and ptt.ingest alone"
        return InputError(f"{Url.parsed(path)}: {readers}; copy the run here, or use one of these.")
    return no_such_path(path, advice)


def store_at(path: Path) -> Path | None:
    """Return the store that a folder is, or holds as `ptt diagnose` leaves it."""
    folders = (path, path / STORE) if path.is_dir() else ()
    return next((folder for folder in folders if is_store(folder)), None)


def is_findings(path: Path) -> bool:
    """Return whether a file is a findings.json by its name."""
    return path.is_file() and path.name.endswith(FINDINGS)


def refuse_other_output(folder: Path, *, of_traces: bool, command: str = "") -> None:
    """Raise SettingsError where a folder holds what is written of a run and the output is of traces, or the reverse.

    `command` is the call whose output it is, without its --out.
    """
    if _holds_traces(folder) in (None, of_traces):
        return
    name, ends = folder.name.removesuffix(TRACES), TRACES if of_traces else ".run"
    names = (f"{name}{ends}" + (f"-{number}" if number > 1 else "") for number in count(1))
    free = next(path for path in map(folder.with_name, names) if _holds_traces(path) in (None, of_traces))
    raise SettingsError(
        f"{folder}: holds what {'ptt made of a run' if of_traces else 'ptt traces made'}, which this would overwrite; "
        + (f"run {command} --out {quote(str(free))}." if command else f"write to another folder, such as {free}.")
    )


def _holds_traces(folder: Path) -> bool | None:
    """Return whether a folder holds what `ptt traces` wrote, or else what a command over runs did; None for neither."""
    store = folder / STORE
    if (store / "kept").is_dir() or (folder / MARK).is_file() or noted_run(store) is not None:
        return False
    findings = folder / FINDINGS
    with suppress(InputError):  # of a file that nothing can be told from
        return read_trace_findings(findings) is not None if findings.is_file() else None
    return None


def run_location(run: Path, out: Path, *, keep: bool = False, one_run: bool = False) -> RunLocation:
    """Return where a run lies and where its store goes; an archive is identified where its store is kept."""
    archive = archives.is_archive(run)
    joined = " as one run" if one_run else ""  # what was joined is no answer where several would be refused
    return RunLocation(
        run=run,
        store=out / STORE,
        name=archives.run_name(run) if archive else run.resolve().name,
        keep=keep,
        identity=run_identity.identity(run) + joined if archive and keep else "",
    )


@contextmanager
def unpacked_run(location: RunLocation, *, one_run: bool) -> Iterator[RunLocation]:
    """Unpack an archive for as long as the block runs; InputError where there is no run, or more than one."""
    run, out = location.run, location.store.parent
    if not run.exists():
        raise not_there(run, GIVE_A_RUN)
    home = run.resolve()
    if home.is_dir() and (stores := stores_below(home)):
        raise InputError(
            f"{run}: contains what ptt wrote about {counted(len(stores), 'run(s)')}, not a run: "
            f"{', '.join(stores[:MAX_NAMED])}; give one of these folders, or the run itself."
        )
    if home.is_dir() and (out.resolve() == home or home in out.resolve().parents):
        raise SettingsError(f"{out}: lies inside the run, which is never written to; give another place with --out.")
    if not archives.is_archive(run):
        if not one_run:
            _refuse_several(run, find_runs(run))
        yield replace(location, notes=notes_of(run))
        return
    with archives.unpacked(run) as content:
        if not one_run:
            _refuse_several(run, find_runs(content.folder))
        yield replace(location, run=content.folder, notes=content.notes, archive=run)


def _refuse_several(run: Path, content: FolderRuns) -> None:
    if content.several:
        raise SeveralRunsError(run, [sibling.rel for sibling in content.runs], content.reason)


def runs_in(path: str | Path) -> FolderRuns:
    """Say which runs a folder holds and why they are not one; none for a run, a store, a file or an archive."""
    path = Path(path)
    try:
        if path.is_dir() and store_at(path) is None and not (path / FINDINGS).is_file():
            return find_runs(path)
    except OSError:  # it may not be entered, which is reported where it is read
        pass
    return FolderRuns(folder=path)


def each_run(paths: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """Put the runs of a folder that holds several in its place; return all, each once, and notes that say so."""
    runs: dict[Path, Path] = {}
    notes: list[str] = []
    for path in paths:
        content = runs_in(path)
        if content.several:
            notes.append(f"the folder {path.name} contains {len(content.runs)} runs; each is gated: {content.reason}")
            notes += content.notes
        runs |= {run.resolve(): run for run in ([sibling.path for sibling in content.runs] or [path])}
    return list(runs.values()), notes


def side_of_store(store: Path) -> TraceSide:
    """Judge the traces of a store again; it is named after the folder that it lies in."""
    folder = store.parent if store.name == STORE else store
    return TraceSide(diagnosis=traces_pipeline.reopened_traces(store, name=folder.resolve().name), store=store)


def kept_side(path: Path) -> TraceSide | None:
    """Return what is kept at a path; None where it is neither a store nor the findings.json of traces."""
    if (store := store_at(path)) is not None:
        return side_of_store(store)
    findings = path / FINDINGS if path.is_dir() else path
    if not is_findings(findings):
        return None
    diagnosis = read_trace_findings(findings)
    return None if diagnosis is None else TraceSide(diagnosis=with_records(diagnosis, read_findings(findings)))


def baseline_side(path: Path) -> TraceSide:
    """Return the traces that others are held against; InputError where nothing of them is kept there."""
    if not path.exists():
        raise InputError(f"{path}: there is no such folder or file; `ptt traces TRACES -o {path}` makes it.")
    side = kept_side(path)
    if side is None:
        raise InputError(
            f"{path}: is no store and no findings.json of ptt traces; `ptt traces TRACES -o ...` makes one."
        )
    return side


def traces_instead(store: Path | None, diagnosis: Diagnosis) -> TraceSide | None:
    """Return the traces of a run that holds nothing else, and that rules for runs cannot judge."""
    if store is None or diagnosis.verdict.status is not Status.CANNOT_SAY:
        return None
    return side_of_store(store) if traces_pipeline.holds_only_traces(store) else None


def traces_beside(store: Path | None) -> TraceSide | None:
    """Return the episodes that a run's store holds beside its curves; None where it holds none."""
    if store is None or not traces_pipeline.holds_traces(store):
        return None
    return side_of_store(store)


def traces_at(path: Path, out: Path) -> TraceSide | None:
    """Return the traces of a path that holds nothing else, by its own store or findings, or the store below `out`."""
    store = store_at(path) or store_at(out)
    if store is not None and not is_findings(path):
        return side_of_store(store) if traces_pipeline.holds_only_traces(store) else None
    return kept_side(path)

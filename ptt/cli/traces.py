"""`ptt traces`: read agent traces, judge them, write, print."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import typer
from rich.console import Console

from ptt import api
from ptt.api import REPORT
from ptt.cli.exits import CODES, figure_faults
from ptt.cli.output import DRAWING, check_figures, contains, output_folder, progress_bar, remote_paths
from ptt.cli.streams import print_json
from ptt.cli.traces_export import Export, write_exports
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.gate.traces import decide_traces
from ptt.diagnostics.model import Severity, Source
from ptt.diagnostics.store.ingest import UNREADABLE, UNRECOGNISED
from ptt.diagnostics.traces.compare import TraceComparison, TraceSide, compare_traces
from ptt.diagnostics.traces.model import TraceDiagnosis
from ptt.object_stores.remote_paths import shown
from ptt.reports.figures.drawing import FigureFault
from ptt.reports.output import write_text
from ptt.reports.text.terminal import open_console
from ptt.reports.traces.comparison import compare_traces_json, print_compared, render_compared
from ptt.reports.traces.findings_json import trace_findings_json
from ptt.reports.traces.html import render_traces, write_trace_figures
from ptt.reports.traces.terminal import print_traces
from ptt.run_location import FINDINGS, STORE, kept_side, run_exists, store_at
from ptt.stopping import temporary_folder
from ptt.version import __version__

MAX_JOBS: Final = 8  # by default: one process adds what the others read, and is the slowest from there on
AGAINST: Final = "against"  # the folder of the other set, below that of this one
SHARED: Final = "-redacted"  # ends the default folder of a report that is to be shared


@dataclass(frozen=True, kw_only=True)
class TracesOptions:
    """What the command line said."""

    out: Path | None
    figures: Path | None
    settings: Path | None
    fail_on: str | None
    redact: bool
    salt: str | None
    keep_tool_names: bool
    budget_memory: int | None
    budget_seconds: float | None
    as_json: bool
    jobs: int | None = None
    export: Export | None = None
    against: Path | None = None


def run(paths: Sequence[Path], options: TracesOptions) -> int:
    """Judge the traces at `paths` as one set, and return the exit code."""
    with remote_paths() as remote:
        if options.export is not None:
            remote.no_output(options.export.to, "--export-to")
        at_hand = replace(
            options,
            out=remote.output(options.out, of=paths),
            figures=remote.no_output(options.figures, "--figures"),
            against=remote.maybe(options.against),
        )
        return _run([remote.run(path) for path in paths], at_hand)


def _run(paths: Sequence[Path], options: TracesOptions) -> int:
    settings = _settings(options)
    folder = _checked_folder(paths, options)
    with temporary_folder() as scratch, progress_bar(Console(stderr=True)) as tell:
        # into a folder that is to be shared goes no store: it holds all that --redact takes out
        kept = Path(scratch) if options.redact else folder
        diagnosis = api.traces(
            list(paths),
            out=kept,
            settings=settings,
            jobs=options.jobs or min(os.cpu_count() or 1, MAX_JOBS),
            keep_messages=options.export is not None,
            progress=tell,
        )
        silent = silent_paths(paths, diagnosis)
        if options.redact:
            diagnosis = _redacted(diagnosis, options)
        text = trace_findings_json(diagnosis, __version__)
        write_text(folder / FINDINGS, text)
        tell(DRAWING, 0, 1)
        page = render_traces(diagnosis)
        report = write_text(folder / REPORT, page.text)
        faults = list(page.faults)
        compared = None
        if options.against is not None:
            side = TraceSide(diagnosis=diagnosis, store=store_at(paths[0]) or store_at(kept))
            compared = compare_traces(_other_side(options.against, kept / AGAINST, settings, options), side)
            text = compare_traces_json(compared, __version__)
            both = write_comparison(compared, folder, faults)
        if options.figures is not None:
            write_trace_figures(diagnosis, options.figures, faults)
    if options.as_json:
        print_json(text)
        if silent:
            typer.echo(f"ptt: {silent}", err=True)
    else:
        print_traces(diagnosis, open_console(), shown(report), note=silent)
        if compared is not None:
            typer.echo()
            print_compared(compared, open_console(), shown(both))
    if options.export is not None:
        for line in write_exports(options.export, store_at(paths[0]) or folder, folder):
            typer.echo(line, err=options.as_json)
    return figure_faults(faults) or CODES[decide_traces(diagnosis, fail_on=settings.fail_on)]


def silent_paths(paths: Sequence[Path], diagnosis: TraceDiagnosis) -> str:
    """Name the paths, of several given, that no episode was read from; empty where all gave some."""
    lines = []
    for number, path in enumerate(paths if len(paths) > 1 else ()):
        files = [source for source in diagnosis.sources if source.path.startswith(f"{number}-{path.name}/")]
        if any(source.kind in diagnosis.traces.kinds and source.rows_ok for source in files):
            continue
        lines.append(f"{path}: {_why_silent(files)}")
    return f"No episode was read from {'; '.join(lines)}." if lines else ""


def _why_silent(files: Sequence[Source]) -> str:
    if not any(source.bytes for source in files):
        return "it is empty"
    unread = next((source for source in files if source.kind == UNREADABLE), None)
    if unread is not None:
        return unread.note or "it cannot be read"
    if any(source.kind == UNRECOGNISED for source in files):
        return "its format is not recognised; ptt sources says what was found"
    return "it holds no episodes; ptt sources says what was found"


def write_comparison(compared: TraceComparison, folder: Path, faults: list[FigureFault]) -> Path:
    """Write compare.json and compare.html, and return the page."""
    write_text(folder / "compare.json", compare_traces_json(compared, __version__))
    page = render_compared(compared)
    faults += page.faults
    return write_text(folder / "compare.html", page.text)


def _other_side(path: Path, out: Path, settings: Settings, options: TracesOptions) -> TraceSide:
    """Open the set that this one is compared with: as it is kept, or read from its files."""
    if not run_exists(path):
        raise InputError(f"{path}: there is no such file or folder; give traces, or what ptt traces wrote of them.")
    if (side := kept_side(path)) is not None:
        return side
    jobs = options.jobs or min(os.cpu_count() or 1, MAX_JOBS)
    return TraceSide(diagnosis=api.traces([path], out=out, settings=settings, jobs=jobs), store=out / STORE)


def _settings(options: TracesOptions) -> Settings:
    if not options.redact and (options.salt is not None or options.keep_tool_names):
        raise SettingsError("--salt and --keep-tool-names only work with --redact; add --redact, or drop them.")
    if options.redact and options.against is not None:
        raise SettingsError("--against shows the names of tools; give it without --redact.")
    if options.salt is not None and not options.salt.strip():
        raise SettingsError("--salt is empty: anyone who guesses a name could find its hash; give a secret.")
    read = api.read_settings(options.settings)
    given = {None: read.fail_on, "never": None}
    return replace(
        read,
        fail_on=given[options.fail_on] if options.fail_on in given else Severity(str(options.fail_on)),
        budget=read.budget.overridden(memory_mb=options.budget_memory, seconds=options.budget_seconds),
    )


def _checked_folder(paths: Sequence[Path], options: TracesOptions) -> Path:
    """Return where to write; never into what is read."""
    for path in paths:
        if not run_exists(path):
            raise InputError(f"{path}: there is no such file or folder; give files or folders of agent traces.")
    if options.redact and options.export is not None:
        raise SettingsError("--export writes whole conversations, which --redact takes out; drop one of the two.")
    folder = output_folder(paths[0], options.out)
    if options.redact and options.out is None:
        folder = folder.with_name(folder.name + SHARED)
    exports = None if options.export is None else options.export.to
    for path in paths:
        for output_path in filter(None, (folder, options.figures, exports)):
            if contains(path, output_path) and store_at(path) is None:
                raise SettingsError(f"{output_path}: lies inside {path}, which is never written to; give --out.")
        if options.figures is not None:
            check_figures(path, options.figures)
    return folder


def _redacted(diagnosis: TraceDiagnosis, options: TracesOptions) -> TraceDiagnosis:
    from ptt.reports.redact.redact import default_salt
    from ptt.reports.redact.traces import redacted_traces

    salt = options.salt or default_salt(diagnosis.traces.name, trace_findings_json(diagnosis, __version__))
    return redacted_traces(diagnosis, salt=salt, keep_tool_names=options.keep_tool_names)

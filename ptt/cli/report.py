"""`ptt report`: show again what was judged, without the run, and in a form that can be shared."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

import typer
from rich.console import Console

from ptt import api
from ptt.api import REPORT
from ptt.cli.exits import figure_faults
from ptt.cli.options import ReportOptions
from ptt.cli.output import (
    DRAWING,
    Artist,
    check_redaction,
    output_folder,
    progress_bar,
    redact_traces,
    remote_paths,
    write_traces,
)
from ptt.cli.streams import print_json
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.model import Diagnosis, Status
from ptt.diagnostics.store.archives import run_name
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.traces.model import TraceDiagnosis
from ptt.object_stores.client import is_url
from ptt.object_stores.remote_paths import FINDINGS, STORE, shown
from ptt.reports.figures.faults import FigureFault
from ptt.reports.output import write_text
from ptt.reports.run.findings_json import findings_json
from ptt.reports.run.terminal import print_diagnosis
from ptt.reports.run.view import GUESSABLE
from ptt.reports.text.terminal import open_console
from ptt.reports.traces.terminal import print_traces
from ptt.run_location import refuse_other_output, traces_at
from ptt.stopping import temporary_folder
from ptt.version import __version__

BASE: Final = Path("ptt-report")
FIGURES: Final = "figures"


def run(options: ReportOptions, drawing: Artist) -> int:
    """Write the report of what the source is, and return the exit code."""
    check_redaction(options)
    source = options.source
    settings = api.read_settings(options.settings)
    with remote_paths() as remote:
        remote.no_output(options.figures, "--figures")
        out = remote.output(options.out)
        if out is None and is_url(source):
            out = Path(f"{remote.output(None, of=[source])}-report")
        return _run(remote.run(source, beside=True), replace(options, out=out), settings, drawing)


def _run(source: Path, options: ReportOptions, settings: Settings, drawing: Artist) -> int:
    for output_path in filter(None, (options.out, options.figures)):
        _keep_clear(source, output_path)
    with temporary_folder() as scratch, progress_bar(Console(stderr=True)) as tell:
        # into --out goes what is to be shared, and a store is not: it holds all that --redact takes out
        store = output_folder(source, None) if options.out is None else Path(scratch)
        as_it_was = options.settings is None and not options.rules  # as it was, whatever ./ptt.toml says
        opened = api.open_run(
            source, out=store, settings=settings, rules=options.rules or (), progress=tell, as_judged=as_it_was
        )
        traces = traces_at(source, store) if opened.kind == "findings" or _unjudged(opened) else None
        if traces is not None:
            return _report_traces(traces.diagnosis, source, options)
        diagnosis = _shown(opened.diagnosis, opened.source, options)
        folder = options.out or BASE / f"{diagnosis.run.name if options.redact else _name(source)}-report"
        _keep_clear(source, folder)
        refuse_other_output(folder, of_traces=False)
        faults: list[FigureFault] = []
        tell(DRAWING, 0, 1)
        written = _write(diagnosis, folder, options, drawing, faults)
    if diagnosis.guessable:
        typer.echo(f"ptt: {GUESSABLE}", err=True)
    if options.as_json:
        print_json(findings_json(diagnosis, __version__))
    else:
        print_diagnosis(diagnosis, open_console(), shown(written))
    return figure_faults(faults)


def _unjudged(opened: LoadedRun) -> bool:
    return opened.diagnosis.verdict.status is Status.CANNOT_SAY


def _report_traces(diagnosis: TraceDiagnosis, source: Path, options: ReportOptions) -> int:
    """Write the report of agent traces again, as `ptt traces` would."""
    if options.postmortem:
        raise SettingsError("--postmortem works with runs; the report of agent traces has no postmortem.")
    if options.redact:
        diagnosis = redact_traces(diagnosis, options)
    folder = options.out or BASE / f"{diagnosis.traces.name if options.redact else _name(source)}-report"
    _keep_clear(source, folder)
    refuse_other_output(folder, of_traces=True)
    findings, written, faults = write_traces(diagnosis, folder, options.figures)
    if options.as_json:
        print_json(findings)
    else:
        print_traces(diagnosis, open_console(), shown(written))
    return figure_faults(faults)


def _shown(diagnosis: Diagnosis, source: str, options: ReportOptions) -> Diagnosis:
    if not options.redact:
        return diagnosis
    from ptt.reports.redact.redact import default_salt, redacted

    guessable = options.salt is None and diagnosis.from_findings
    salt = options.salt or default_salt(source, findings_json(diagnosis, __version__))
    return redacted(diagnosis, salt=salt, keep_tool_names=options.keep_tool_names, guessable=guessable)


def _origin(source: Path) -> Path:
    """Return the folder that a store or findings.json lies in, as `ptt diagnose` wrote it, or the source itself."""
    home = source.resolve()
    return home.parent if home.name == FINDINGS or (home.name == STORE and (home / "manifest.json").is_file()) else home


def _name(source: Path) -> str:
    """Return what a run's own folder is called, or the folder that a store or findings.json lies in."""
    origin = _origin(source)
    made = origin != source.resolve() or (origin / FINDINGS).is_file() or (origin / STORE / "manifest.json").is_file()
    return run_name(origin) if made else output_folder(source, None).name


def _keep_clear(source: Path, output_path: Path) -> None:
    """Refuse to write over, or among, what the report is made from."""
    origin, target = _origin(source), output_path.resolve()
    if origin.is_dir() and (target == origin or (origin in target.parents and not (origin / FINDINGS).is_file())):
        raise SettingsError(
            f"{output_path}: is, or lies in, what the report is made from; give another --out or --figures."
        )
    if origin.is_dir() and origin / STORE in (target, *target.parents):
        raise SettingsError(
            f"{output_path}: lies inside the store, which is never written to; give another --out or --figures."
        )
    if output_path.exists() and not output_path.is_dir():
        raise SettingsError(f"{output_path}: is a file; --out and --figures take a folder.")


def _write(
    diagnosis: Diagnosis, folder: Path, options: ReportOptions, drawing: Artist, faults: list[FigureFault]
) -> Path:
    """Write every file, and return the one to open; figures that fail add to `faults`."""
    write_text(folder / FINDINGS, findings_json(diagnosis, __version__))
    page = drawing.page(diagnosis)
    faults += page.faults
    report = write_text(folder / REPORT, page.text)
    figures = options.figures or (folder / FIGURES if options.postmortem else None)
    drawn: list[Path] = []
    if figures is not None:
        from ptt.reports.figures.drawing import write_figures

        drawn = write_figures(diagnosis, figures, faults)
    if not options.postmortem:
        return report
    from ptt.reports.run.postmortem import postmortem

    ways = {path.stem: Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix() for path in drawn}
    pictures = {name: str(Path(way).with_suffix(".png").as_posix()) for name, way in ways.items()}
    return write_text(folder / "postmortem.md", postmortem(diagnosis, pictures))

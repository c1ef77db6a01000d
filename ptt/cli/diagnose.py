"""`ptt diagnose`: judge, write, print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import typer
from rich.console import Console

from ptt import api
from ptt.cli import diagnose_runs
from ptt.cli.diagnose_runs import ManyOptions, chosen_runs
from ptt.cli.exits import CODES, figure_faults
from ptt.cli.output import (
    DRAWING,
    Artist,
    check_figures,
    output_folder,
    progress_bar,
    remote_paths,
    say_what_stays_here,
)
from ptt.cli.streams import print_json
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import SettingsError, SeveralRunsError
from ptt.diagnostics.gate.judge import decide
from ptt.diagnostics.gate.traces import decide_traces
from ptt.diagnostics.model import Severity
from ptt.diagnostics.store import archives
from ptt.diagnostics.traces.model import TraceDiagnosis
from ptt.executors import Engine, Executor
from ptt.executors import executor as open_executor
from ptt.executors.this_machine import ThisMachine
from ptt.object_stores.remote_paths import RemotePaths, shown
from ptt.reports.output import write_text
from ptt.reports.run.terminal import print_diagnosis
from ptt.reports.text.names import sentence
from ptt.reports.text.sanitize import safe
from ptt.reports.text.terminal import open_console
from ptt.reports.traces.findings_json import trace_findings_json
from ptt.reports.traces.terminal import print_traces
from ptt.run_location import store_at, traces_instead
from ptt.version import __version__

THESE_ARE_TRACES: Final = (
    "Only agent traces are here, so they are judged as ptt traces does, which also compares sets (--against) and "
    "exports training data (--export)."
)


@dataclass(frozen=True, kw_only=True)
class DiagnoseOptions:
    """What the command line said."""

    out: Path | None
    figures: Path | None
    settings: Path | None
    fail_on: str | None
    keep_text: bool
    rules: Sequence[Path]
    jobs: int | None
    engine: str
    ray_address: str | None
    one_run: bool
    baseline: Path | None
    as_json: bool
    budget_memory: int | None
    budget_seconds: float | None


def run(paths: Sequence[Path], options: DiagnoseOptions, drawing: Artist) -> int:
    """Judge the run, or each of several, and return the exit code."""
    settings = _settings(options)
    with open_executor(Engine(options.engine), options.ray_address) as executor, remote_paths() as remote:
        remote.no_output(options.figures, "--figures")
        out = remote.output(options.out, of=paths)  # before the runs are read, which may take long
        here = remote.runs(paths)
        at_hand = replace(options, out=out, baseline=remote.maybe(options.baseline))
        return _run(here, at_hand, settings, drawing, executor, remote)


def _settings(options: DiagnoseOptions) -> Settings:
    read = api.read_settings(options.settings)
    return replace(
        read,
        keep_text=options.keep_text or read.keep_text,
        rules=(*read.rules, *options.rules),
        budget=read.budget.overridden(memory_mb=options.budget_memory, seconds=options.budget_seconds),
    )


def _run(
    paths: Sequence[Path],
    options: DiagnoseOptions,
    settings: Settings,
    drawing: Artist,
    executor: Executor,
    remote: RemotePaths,
) -> int:
    limit = settings.fail_on if options.fail_on is None else _severity(options.fail_on)
    many = ManyOptions(
        out=options.out,
        figures=options.figures,
        settings=settings,
        fail_on=limit,
        jobs=options.jobs,
        executor=executor,
        one_run=options.one_run,
        as_json=options.as_json,
        remote=remote,
    )
    chosen = chosen_runs(paths, one_run=options.one_run)
    if len(chosen.runs) > 1 and options.baseline is not None:
        raise SettingsError("--baseline works with one run; to compare several runs with one, use ptt compare.")
    if len(chosen.runs) > 1:
        return diagnose_runs.run(chosen, many)
    for note in chosen.notes:
        typer.echo(f"ptt: {safe(sentence(note))}", err=True)
    (path,) = chosen.runs
    say_what_stays_here(path, options.engine)
    try:
        return _run_one(path, settings, limit, options, drawing, executor)
    except SeveralRunsError:  # of an archive, which is looked into when it is unpacked
        with archives.unpacked(path) as content:
            inside = chosen_runs([content.folder], one_run=False)
            here = replace(many, executor=ThisMachine())  # no node of a cluster sees what is unpacked on this one
            return diagnose_runs.run(replace(inside, folder=path, notes=(*content.notes, *inside.notes)), here)


def _severity(text: str) -> Severity | None:
    return None if text == "never" else Severity(text)


def _run_one(
    path: Path,
    settings: Settings,
    limit: Severity | None,
    options: DiagnoseOptions,
    drawing: Artist,
    executor: Executor,
) -> int:
    folder = output_folder(path, options.out)
    if options.figures is not None:
        check_figures(path, options.figures)
    one_run = options.one_run or path.is_dir()  # a folder was looked into above
    with progress_bar(Console(stderr=True)) as tell:
        diagnosis = api.diagnose(path, out=folder, settings=settings, one_run=one_run, progress=tell, executor=executor)
        traces = traces_instead(store_at(path) or store_at(folder), diagnosis)
        if traces is not None:
            return _tell_traces(traces.diagnosis, folder, limit, options)
        findings = diagnosis.to_json()
        write_text(folder / "findings.json", findings)
        if options.baseline is None:
            tell(DRAWING, 0, 1)
            page = drawing.page(diagnosis)
        else:
            both = api.compare_kept(path, out=folder, baseline=options.baseline, settings=settings, progress=tell)
            tell(DRAWING, 0, 1)
            page = drawing.page(diagnosis, both)
        report = write_text(folder / "report.html", page.text)
        faults = list(page.faults)
        if options.figures is not None:
            from ptt.reports.figures.drawing import write_figures

            write_figures(diagnosis, options.figures, faults)
    if options.as_json:
        print_json(findings)
    else:
        print_diagnosis(diagnosis, open_console(), shown(report))
    return figure_faults(faults) or CODES[decide(diagnosis, fail_on=limit)]


def _tell_traces(diagnosis: TraceDiagnosis, folder: Path, limit: Severity | None, options: DiagnoseOptions) -> int:
    """Say of a path that holds agent traces alone what `ptt traces` says, and point there."""
    from ptt.reports.traces.html import render_traces, write_trace_figures

    findings = trace_findings_json(diagnosis, __version__)
    write_text(folder / "findings.json", findings)
    page = render_traces(diagnosis)
    report = write_text(folder / "report.html", page.text)
    faults = list(page.faults)
    if options.figures is not None:
        write_trace_figures(diagnosis, options.figures, faults)
    if options.as_json:
        print_json(findings)
    else:
        print_traces(diagnosis, open_console(), shown(report), note=THESE_ARE_TRACES)
    return figure_faults(faults) or CODES[decide_traces(diagnosis, fail_on=limit)]

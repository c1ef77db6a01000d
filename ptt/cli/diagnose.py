"""`ptt diagnose`: judge a run, or each of several, write, print, and end with the code of the worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Final

import typer
from rich.console import Console

from ptt import api
from ptt.api import REPORT
from ptt.cli.exits import CODES, fail_limit, figure_faults
from ptt.cli.many_runs import (
    WRITTEN,
    Output,
    Steps,
    is_drawn,
    judge_all,
    refuse_faults,
    relative_path,
    trace_set,
    write_run,
)
from ptt.cli.many_runs import Task as RunTask
from ptt.cli.options import DiagnoseOptions
from ptt.cli.output import (
    DRAWING,
    Artist,
    check_figures,
    contains,
    named,
    output_base,
    output_folder,
    progress_bar,
    remote_paths,
    run_folders,
    say_what_stays_here,
    write_traces,
)
from ptt.cli.streams import print_json
from ptt.diagnostics.config import Settings
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import SettingsError, SeveralRunsError
from ptt.diagnostics.gate.judge import decide
from ptt.diagnostics.gate.results import Outcome, worst
from ptt.diagnostics.gate.traces import decide_traces
from ptt.diagnostics.model import Severity
from ptt.diagnostics.store import archives
from ptt.diagnostics.store.archives import run_name
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.store.folders import note_run
from ptt.diagnostics.traces.model import as_run
from ptt.executors import Engine, Executor
from ptt.executors import executor as open_executor
from ptt.executors.this_machine import ThisMachine
from ptt.object_stores.remote_paths import RemotePaths, shown
from ptt.reports.output import write_text
from ptt.reports.run.index import DiagnosedRun, RunsIndex, diagnosed_run, index_html, index_json, print_index
from ptt.reports.run.terminal import print_diagnosis
from ptt.reports.text.names import sentence
from ptt.reports.text.sanitize import safe
from ptt.reports.text.terminal import open_console
from ptt.reports.traces.terminal import print_traces
from ptt.run_location import MARK, refuse_other_output, store_at, traces_instead
from ptt.version import __version__

INDEX: Final = "index.html"
JSON: Final = "index.json"
THESE_ARE_TRACES: Final = (
    "Only agent traces are here, so they are judged as ptt traces does, which also compares sets (--against) and "
    "exports training data (--export)."
)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of the command: its options, and what they stand for."""

    options: DiagnoseOptions  # with --out and --baseline as paths of this machine
    settings: Settings
    fail_on: Severity | None
    executor: Executor
    remote: RemotePaths


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The runs to judge, and how they were chosen."""

    runs: tuple[Path, ...]
    folder: Path | None = None  # the one folder that holds them all
    reason: str = ""
    notes: tuple[str, ...] = ()


def chosen_runs(paths: Sequence[Path], *, one_run: bool) -> Chosen:
    """Return each run once: of a folder that holds several, those."""
    runs: dict[Path, Path] = {}
    reasons: list[str] = []
    notes: list[str] = []
    for path in paths:
        content = api.runs_in(path) if not one_run else None
        siblings = content.runs if content is not None and content.several else ()
        if content is not None and siblings:
            reasons.append(content.reason if len(paths) == 1 else f"{path.name}: {content.reason}")
            notes += content.notes
        elif content is not None and content.reason:
            notes.append(f"Read as one run: {content.reason}")
        for run in [sibling.path for sibling in siblings] or [path]:
            if runs.setdefault(run.resolve(), run) != run:
                notes.append(f"Given more than once, judged once: {run.name}")
    several = len(paths) == 1 and len(runs) > 1
    return Chosen(
        runs=tuple(runs.values()),
        folder=paths[0] if several else None,
        reason="; ".join(reasons),
        notes=tuple(notes),
    )


def run(options: DiagnoseOptions, drawing: Artist) -> int:
    """Judge the run, or each of several, and return the exit code."""
    read = api.read_settings(options.settings)
    settings = replace(
        read,
        keep_text=options.keep_text or read.keep_text,
        rules=(*read.rules, *(options.rules or ())),
        advisories=(*read.advisories, *(options.advisories or ())),
        budget=read.budget.overridden(memory_mb=options.budget_memory, seconds=options.budget_seconds),
    )
    with open_executor(Engine(options.engine), options.ray_address) as executor, remote_paths() as remote:
        remote.no_output(options.figures, "--figures")
        out = remote.output(options.out, of=options.runs)  # before the runs are read, which may take long
        here = remote.runs(options.runs)
        call = Call(
            options=replace(options, out=out, baseline=remote.maybe(options.baseline)),
            settings=settings,
            fail_on=fail_limit(options.fail_on, settings),
            executor=executor,
            remote=remote,
        )
        return _run(here, call, drawing)


def _run(paths: Sequence[Path], call: Call, drawing: Artist) -> int:
    chosen = chosen_runs(paths, one_run=call.options.one_run)
    if len(chosen.runs) > 1 and call.options.baseline is not None:
        raise SettingsError("--baseline works with one run; to compare several runs with one, use ptt compare.")
    if len(chosen.runs) > 1:
        return _run_many(chosen, call)
    for note in chosen.notes:
        typer.echo(f"ptt: {safe(sentence(note))}", err=True)
    (path,) = chosen.runs
    say_what_stays_here(path, call.options.engine)
    try:
        return _run_one(path, call, drawing)
    except SeveralRunsError:  # of an archive, which is looked into when it is unpacked
        with archives.unpacked(path) as content:
            inside = chosen_runs([content.folder], one_run=False)
            here = replace(call, executor=ThisMachine())  # no node of a cluster sees what is unpacked on this one
            return _run_many(replace(inside, folder=path, notes=(*content.notes, *inside.notes)), here)


def _run_one(path: Path, call: Call, drawing: Artist) -> int:
    options, settings = call.options, call.settings
    folder = output_folder(path, options.out)
    refuse_other_output(folder, of_traces=False, command=f"ptt diagnose {quote(shown(path))}")
    if options.figures is not None:
        check_figures(path, options.figures)
    one_run = options.one_run or path.is_dir()  # a folder was looked into above
    with progress_bar(Console(stderr=True)) as tell:
        diagnosis = api.diagnose(
            path, out=folder, settings=settings, one_run=one_run, progress=tell, executor=call.executor
        )
        traces = traces_instead(store_at(path) or store_at(folder), diagnosis)
        if traces is not None:
            findings, report, faults = write_traces(traces.diagnosis, folder, options.figures)
            if options.as_json:
                print_json(findings)
            else:
                print_traces(traces.diagnosis, open_console(), shown(report), note=THESE_ARE_TRACES)
            return figure_faults(faults) or CODES[decide_traces(traces.diagnosis, fail_on=call.fail_on)]
        findings = diagnosis.to_json()
        write_text(folder / "findings.json", findings)
        both = None
        if options.baseline is not None:
            both = api.compare_kept(path, out=folder, baseline=options.baseline, settings=settings, progress=tell)
        tell(DRAWING, 0, 1)
        page = drawing.page(diagnosis, both)
        report = write_text(folder / REPORT, page.text)
        faults = list(page.faults)
        if options.figures is not None:
            from ptt.reports.figures.drawing import write_figures

            write_figures(diagnosis, options.figures, faults)
    if options.as_json:
        print_json(findings)
    else:
        print_diagnosis(diagnosis, open_console(), shown(report))
    return figure_faults(faults) or CODES[decide(diagnosis, fail_on=call.fail_on)]


@dataclass(frozen=True, kw_only=True)
class Task(RunTask):
    """One run and all that is needed to diagnose it."""

    fail_on: Severity | None
    figures: Path | None


def _judge(task: Task, opened: LoadedRun) -> DiagnosedRun:
    report = f"{task.folder.name}/{REPORT}"
    if (traces := trace_set(task, opened)) is not None:
        outcome = decide_traces(traces.diagnosis, fail_on=task.fail_on)
        run = as_run(traces.diagnosis)
        told = diagnosed_run(run, name=task.name, path=task.shown, outcome=outcome, report=report)
        return replace(told, framework=" + ".join(sorted(traces.diagnosis.traces.kinds)) or None)
    outcome = decide(opened.diagnosis, fail_on=task.fail_on)
    return diagnosed_run(opened.diagnosis, name=task.name, path=task.shown, outcome=outcome, report=report)


def _write(task: Task, opened: LoadedRun, judged: DiagnosedRun) -> DiagnosedRun:
    write_run(task, opened, report=True)
    if task.figures is not None:
        from ptt.reports.figures.drawing import write_figures
        from ptt.reports.figures.faults import FigureFault

        faults: list[FigureFault] = []
        write_figures(opened.diagnosis, task.figures / task.name, faults)
        refuse_faults(faults)
    return judged


def _failed(task: Task, outcome: Outcome, why: str) -> DiagnosedRun:
    return DiagnosedRun(name=task.name, path=task.shown, outcome=outcome, error=why)


def _crashed(judged: DiagnosedRun, why: str) -> DiagnosedRun:
    return replace(judged, outcome=Outcome.CRASHED, error=why, report=None)


def _is_written(task: Task, opened: LoadedRun, _: DiagnosedRun) -> bool:
    return task.figures is None and is_drawn(task, opened)


def _line(judged: DiagnosedRun, done: int, of: int) -> None:
    typer.echo(f"[{done}/{of}] {judged.standing}: {safe(judged.name)}", err=True)


STEPS: Final = Steps(judge=_judge, write=_write, failed=_failed, crashed=_crashed, is_written=_is_written, line=_line)


def _run_many(chosen: Chosen, call: Call) -> int:
    """Judge each run, write the index over all, and return the code of the worst."""
    options = call.options
    out = _output_folder(chosen, options.out)
    for path in (*chosen.runs, *([chosen.folder] if chosen.folder else [])):
        for option, written in {"out": out, "figures": options.figures}.items():
            if written is not None and contains(path, written):
                raise SettingsError(
                    f"{written}: lies inside {path}, which is never written to; give another --{option}."
                )
    folders = run_folders([named(path) for path in chosen.runs], out)
    call.remote.read_earlier(folders, mark=MARK, beside=WRITTEN)
    tasks = [
        Task(
            run=path,
            shown=relative_path(path),
            name=folder.name,
            folder=folder,
            settings=call.settings,
            one_run=options.one_run or path.is_dir(),
            fail_on=call.fail_on,
            figures=options.figures,
        )
        for path, folder in zip(chosen.runs, folders, strict=True)
    ]
    place = Output.below(out, "ptt diagnose", (INDEX, JSON))
    place.check(dict.fromkeys(chosen.runs, "one of the runs"))
    with place.exclusive():
        place.prepare()
        if chosen.folder is not None:
            note_run(out, chosen.folder)
        return _judge_and_print(chosen, call, tasks, place)


def _judge_and_print(chosen: Chosen, call: Call, tasks: list[Task], place: Output) -> int:
    runs = judge_all(tasks, STEPS, place.folder, doing="judging runs", jobs=call.options.jobs, executor=call.executor)
    outcome = worst([Outcome(run.outcome) for run in runs])
    index = RunsIndex(
        title="" if chosen.folder is None else run_name(chosen.folder.resolve()),
        runs=runs,
        outcome=outcome,
        exit_code=CODES[outcome],
        reason=chosen.reason,
        notes=chosen.notes,
    )
    place.write({INDEX: partial(index_html, index), JSON: partial(index_json, index, __version__)})
    if call.options.as_json:
        print_json(index_json(index, __version__))
    else:
        print_index(index, open_console(), shown(place.folder / INDEX))
    return CODES[outcome]


def _output_folder(chosen: Chosen, out: Path | None) -> Path:
    """Return --out, or the default: called after the folder that holds all runs, or beside other commands' output."""
    if out is not None:
        return out
    return output_base(chosen.runs) / "diagnose" if chosen.folder is None else output_folder(chosen.folder, None)

"""`ptt diagnose` of several runs: judge each, write an index over all, print, and end with the code of the worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import typer

from ptt import api
from ptt.api import REPORT
from ptt.cli import many_runs
from ptt.cli.exits import CODES, Exit
from ptt.cli.many_runs import (
    MARK,
    WRITTEN,
    Output,
    Refused,
    Steps,
    Stopped,
    is_drawn,
    judge_all,
    judge_kept,
    judge_one,
    refuse_faults,
    relative_path,
    run_progress,
    trace_set,
    write_run,
)
from ptt.cli.output import contains, named, output_base, output_folder, run_folders
from ptt.cli.streams import print_json
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.judge import decide
from ptt.diagnostics.gate.results import Outcome, worst
from ptt.diagnostics.gate.traces import decide_traces
from ptt.diagnostics.model import Severity
from ptt.diagnostics.store.archives import run_name
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.store.folders import note_run
from ptt.diagnostics.traces.as_run import as_run
from ptt.executors import Executor
from ptt.object_stores.remote_paths import RemotePaths, shown
from ptt.reports.run.index import DiagnosedRun, RunsIndex, diagnosed_run, index_html, index_json, print_index
from ptt.reports.text.numbers import counted
from ptt.reports.text.sanitize import safe
from ptt.reports.text.terminal import open_console
from ptt.version import __version__

INDEX: Final = "index.html"
JSON: Final = "index.json"


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


@dataclass(frozen=True, kw_only=True)
class Task(many_runs.Task):
    """One run and all that is needed to diagnose it."""

    fail_on: Severity | None
    figures: Path | None


def diagnose_one(task: Task, executor: Executor | None = None) -> DiagnosedRun | Refused:
    """Open, judge and write one run."""
    return judge_one(task, STEPS, executor)


def diagnose_kept(task: Task) -> DiagnosedRun | None:
    """Return what is kept of a run; None where it must be opened, or a report or figures be drawn."""
    return judge_kept(task, STEPS)


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
        from ptt.reports.figures.drawing import FigureFault, write_figures

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


STEPS: Final = Steps(judge=_judge, write=_write, failed=_failed, crashed=_crashed, is_written=_is_written)


@dataclass(frozen=True, kw_only=True)
class ManyOptions:
    """What the command line said, as far as many runs have a use for it."""

    out: Path | None
    figures: Path | None
    settings: Settings
    fail_on: Severity | None
    jobs: int | None
    executor: Executor
    one_run: bool
    as_json: bool
    remote: RemotePaths


def run(chosen: Chosen, options: ManyOptions) -> int:
    """Judge the runs and return the exit code."""
    out = _output_folder(chosen, options.out)
    for path in (*chosen.runs, *([chosen.folder] if chosen.folder else [])):
        for option, written in {"out": out, "figures": options.figures}.items():
            if written is not None and contains(path, written):
                raise SettingsError(
                    f"{written}: lies inside {path}, which is never written to; give another --{option}."
                )
    folders = run_folders([named(path) for path in chosen.runs], out)
    options.remote.read_earlier(folders, mark=MARK, beside=WRITTEN)
    tasks = [
        Task(
            run=path,
            shown=relative_path(path),
            name=folder.name,
            folder=folder,
            settings=options.settings,
            one_run=options.one_run or path.is_dir(),
            fail_on=options.fail_on,
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
        return _judge_and_print(chosen, options, tasks, place)


def _judge_and_print(chosen: Chosen, options: ManyOptions, tasks: list[Task], place: Output) -> int:
    judge = partial(judge_all, one=diagnose_one, kept=diagnose_kept, failed=_failed)
    try:
        with run_progress("judging runs", _line) as on_run:
            runs = judge(tasks, jobs=options.jobs, executor=options.executor, on_run=on_run)
    except Stopped as stopped:
        typer.echo(stopped.sentence(counted(len(tasks), "run"), place.folder), err=True)
        raise typer.Exit(Exit.STOPPED) from None
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
    if options.as_json:
        print_json(index_json(index, __version__))
    else:
        print_index(index, open_console(), shown(place.folder / INDEX))
    return CODES[outcome]


def _output_folder(chosen: Chosen, out: Path | None) -> Path:
    """Return --out, or the default: called after the folder that holds all runs, or beside other commands' output."""
    if out is not None:
        return out
    return output_base(chosen.runs) / "diagnose" if chosen.folder is None else output_folder(chosen.folder, None)


def _line(judged: DiagnosedRun, done: int, of: int) -> None:
    typer.echo(f"[{done}/{of}] {judged.standing}: {safe(judged.name)}", err=True)

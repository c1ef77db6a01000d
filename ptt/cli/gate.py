"""`ptt gate`: judge runs against a policy, write the evidence, print, and end with the code of the worst."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import typer

from ptt import api
from ptt.api import REPORT
from ptt.cli.exits import CODES
from ptt.cli.many_runs import (
    WRITTEN,
    Output,
    Steps,
    is_drawn,
    judge_all,
    relative_path,
    store_of,
    trace_set,
    write_run,
)
from ptt.cli.many_runs import Task as RunTask
from ptt.cli.options import GateOptions, GateReports
from ptt.cli.output import contains, named, output_base, remote_paths, run_folders
from ptt.cli.streams import print_json
from ptt.diagnostics.config import FILE_NAME, Settings
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.against_baseline import drift_notes
from ptt.diagnostics.gate.findings import expired_notes
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.gate.results import GatedRun, GateReport, Outcome, worst
from ptt.diagnostics.gate.traces import judge_trace_set
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.executors import Engine, Executor
from ptt.executors import executor as open_executor
from ptt.object_stores.client import is_url
from ptt.object_stores.remote_paths import RemotePaths, shown, url_of
from ptt.reports.gate import FORMATS, github_annotations, github_guard, index_html, job_summary, print_gate
from ptt.reports.text.sanitize import safe
from ptt.reports.text.terminal import open_console
from ptt.run_location import MARK, each_run, traces_beside

INDEX: Final = "index.html"
JSON: Final = "json"
SUMMARY: Final = "GITHUB_STEP_SUMMARY"
STANDARD_INPUT: Final = "-"
MAX_RUNS: Final = 10_000  # a page and a test report of more than this help nobody
MAX_LIST_BYTES: Final = 16 << 20  # bytes: ten thousand of the longest paths there can be


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The runs in the order they were given, and notes on how they were chosen."""

    runs: tuple[Path, ...]
    notes: tuple[str, ...]


def targets(given: Sequence[str], *, listed: Path | None, out: Path) -> Targets:
    """Return each run once; `out` is where this command writes, which is no run even where a glob finds it."""
    runs: dict[Path, Path] = {}
    repeated: dict[Path, Path] = {}
    found_own, target = False, _resolved(out)
    for path, from_glob in (*_expanded(given), *_listed(listed)):
        home = _resolved(path)
        if from_glob and target.is_relative_to(home):
            found_own = True
        elif home in runs:
            repeated[home] = path
        else:
            runs[home] = path
        if len(runs) > MAX_RUNS:
            raise SettingsError(f"more than {MAX_RUNS} runs given; gate them in several calls.")
    if not runs and found_own:
        raise SettingsError("the glob matches only the folder that this command writes to; give runs.")
    if not runs and listed is not None:
        raise SettingsError(f"{listed}: lists no run; write one path a line.")
    if not runs:
        raise SettingsError("no run given; give folders, archives or globs, or a file of paths with --list.")
    notes = [f"Given more than once, counted once: {path.name}." for path in repeated.values()]
    if found_own:
        notes.append("A glob also matched the folder that this command writes to; it was left out.")
    return Targets(runs=tuple(runs.values()), notes=tuple(notes))


def _expanded(words: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """Yield each path, and whether a glob chosen it; a file whose name looks like a glob is itself."""
    for word in words:
        if not word or "\0" in word:
            raise SettingsError("a RUN is empty; give a folder, an archive, a store or a findings.json.")
        if not glob.has_magic(word) or os.path.lexists(word) or is_url(word):
            yield Path(word), False
            continue
        names = sorted(islice(glob.iglob(word, recursive=True), MAX_RUNS + 1))  # noqa: PTH207  absolute ones as well
        if not names:
            raise SettingsError(f"{word}: matches nothing; give a run, or a glob that matches some.")
        yield from ((Path(name), True) for name in names)


def _listed(path: Path | None) -> Iterator[tuple[Path, bool]]:
    """Yield the paths of a list, one a line, as seen from the folder it lies in."""
    if path is None:
        return
    piped = str(path) == STANDARD_INPUT
    try:
        with nullcontext(sys.stdin.buffer) if piped else path.open("rb") as file:
            content = file.read(MAX_LIST_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path}: the list of runs cannot be read: {error.strerror or error}.") from error
    if len(content) > MAX_LIST_BYTES:
        raise SettingsError(f"{path}: too long for a list of runs; a list has paths, one a line.")
    folder = Path() if piped else path.parent
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        name = os.fsdecode(line.strip())
        if "\0" in name:
            raise SettingsError(f"{path}: line {number} is not a path; a list has paths, one a line.")
        if name and not name.startswith("#"):
            yield Path(name) if is_url(name) else folder / name, False


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links: reported when it is opened
        return path.absolute()


@dataclass(frozen=True, kw_only=True)
class Task(RunTask):
    """One run and all that is needed to gate it."""

    policy: Policy
    today: date
    reports: GateReports


def _judge(task: Task, opened: LoadedRun) -> GatedRun:
    traces = trace_set(task, opened)
    if traces is not None:
        return replace(judge_trace_set(traces, task.policy, name=task.name, today=task.today), path=task.shown)
    beside = traces_beside(store_of(task)) if task.policy.traces is not None else None
    gated = judge(opened, task.policy, name=task.name, today=task.today, traces=beside)
    return replace(gated, path=task.shown, first_broken_link=opened.diagnosis.verdict.first_broken_link)


def _write_run(task: Task, opened: LoadedRun, gated: GatedRun) -> GatedRun:
    wanted = _wants_report(task, gated)
    write_run(task, opened, report=wanted)
    return replace(gated, report=f"{task.folder.name}/{REPORT}") if wanted else gated


def _wants_report(task: Task, gated: GatedRun) -> bool:
    if task.reports is GateReports.FAILED:
        return gated.outcome is not Outcome.PASSED
    return task.reports is GateReports.ALL


def _failed(task: Task, outcome: Outcome, why: str) -> GatedRun:
    """Return why a run has no checks."""
    return GatedRun(name=task.name, path=task.shown, outcome=outcome, error=why)


def _crashed(gated: GatedRun, why: str) -> GatedRun:
    return replace(gated, outcome=Outcome.CRASHED, error=why)


def _is_written(task: Task, opened: LoadedRun, gated: GatedRun) -> bool:
    return is_drawn(task, opened) or not _wants_report(task, gated)


def _line(gated: GatedRun, done: int, of: int) -> None:
    shown = safe(gated.name).replace("##[", "## [")  # with it a line is a command wherever GitHub Actions finds it
    typer.echo(f"[{done}/{of}] {gated.outcome.value}: {shown}", err=True)


STEPS: Final = Steps(
    judge=_judge, write=_write_run, failed=_failed, crashed=_crashed, is_written=_is_written, line=_line
)


def run(options: GateOptions) -> int:
    """Gate the runs and return the exit code."""
    if options.as_json and options.github:
        raise SettingsError("--json and --github both print to standard output; use --out for gate.json and --github.")
    with remote_paths() as remote:
        return _run(options, remote)


def _run(options: GateOptions, remote: RemotePaths) -> int:
    today = _parse_day(options.as_of)
    settings = api.read_settings(options.settings)
    policy = api.gate_policy(options.settings, baseline=remote.maybe(options.baseline))
    for name, path in options.extra.items():
        remote.no_output(path, f"--{name}")
    out = _output_folder(options)
    chosen = targets(options.runs or (), listed=options.listed, out=out)
    out = remote.output(out) or out  # before the runs are read, which may take long
    chosen = replace(chosen, runs=tuple(remote.runs(chosen.runs)))
    if not options.one_run:
        runs, notes = each_run(chosen.runs)
        chosen = Targets(runs=tuple(runs), notes=(*chosen.notes, *notes))
    folders = _folders(chosen.runs, out, options.extra.values())
    remote.read_earlier(folders, mark=MARK, beside=WRITTEN)
    tasks = [
        Task(
            run=path,
            shown=relative_path(path),
            name=folder.name,
            folder=folder,
            settings=settings,
            one_run=options.one_run or path.is_dir(),
            policy=policy,
            today=today,
            reports=options.reports,
        )
        for path, folder in zip(chosen.runs, folders, strict=True)
    ]
    for run_dir in chosen.runs:
        for option, output_path in {"out": out, **options.extra}.items():
            if contains(run_dir, output_path):
                raise SettingsError(
                    f"{output_path}: lies inside {run_dir}, which is never written to; give another --{option}."
                )
    place = Output.below(out, "ptt gate", (INDEX, FORMATS[JSON].file), options.extra)
    place.check(_inputs(options, settings, policy, chosen))
    with open_executor(Engine(options.engine), options.ray_address) as executor, place.exclusive():
        return _gate_and_print(options, tasks, policy, chosen, place, executor, today)


def _gate_and_print(
    options: GateOptions,
    tasks: list[Task],
    policy: Policy,
    chosen: Targets,
    place: Output,
    executor: Executor,
    today: date,
) -> int:
    """Gate the runs, write what was chosen, print it, and return the exit code."""
    place.prepare()
    runs = judge_all(
        tasks, STEPS, place.folder, doing="gating runs", jobs=options.jobs, executor=executor, quiet=options.quiet
    )
    report = GateReport(
        outcome=worst([run.outcome for run in runs]),
        runs=runs,
        policy=policy.flat(),
        baseline=None if policy.baseline is None else relative_path(policy.baseline.file) or policy.baseline.file.name,
        notes=(*drift_notes(runs, policy), *expired_notes(policy, today=today), *chosen.notes),
    )
    own = {INDEX: partial(index_html, report), FORMATS[JSON].file: partial(FORMATS[JSON].render, report)}
    place.write(own | {name: partial(FORMATS[name].render, report) for name in options.extra})
    _print(report, options, place.folder / INDEX)
    return CODES[report.outcome]


def _print(report: GateReport, options: GateOptions, index: Path) -> None:
    if options.as_json:
        print_json(FORMATS[JSON].render(report))
        return
    start, end = github_guard(report) if options.github else ("", "")
    if start:  # what runs are called, and what they logged, must not be taken for the runner's commands
        typer.echo(start)
    print_gate(report, open_console(), shown(index), explain=options.explain)
    if end:
        typer.echo(end)
        rest_in = {} if _summarise(report) else {"rest_in": shown(index.parent / FORMATS[JSON].file)}
        typer.echo(github_annotations(report, **rest_in), nl=False)


def _summarise(report: GateReport) -> bool:
    """Add to the job's summary, and return whether it is there; that must not change what the gate says."""
    summary_path = os.environ.get(SUMMARY)
    if not summary_path:
        return False
    try:
        with Path(summary_path).open("a", encoding="utf-8") as file:
            file.write(job_summary(report))
    except OSError as error:
        typer.echo(f"ptt: {SUMMARY}: cannot be written: {error.strerror or error}.", err=True)
        return False
    return True


def _parse_day(text: str | None) -> date:
    if text is None:
        return datetime.now(UTC).date()
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(f"--as-of {text}: not a date; write it as 2026-01-31.") from error


def _output_folder(options: GateOptions) -> Path:
    """Return --out, or the default: below the current folder, or beside a run where that lies inside it."""
    if options.out is not None:
        return options.out
    upward = [Path(word) for word in options.runs or () if word in {".", "./"} or ".." in Path(word).parts]
    return output_base(upward) / "gate"


def _folders(runs: Sequence[Path], out: Path, files: Iterable[Path]) -> list[Path]:
    """Return a folder of its own for each run; what is gated may lie in a folder that this command wrote."""
    named_after = [named(run) for run in runs]
    inputs = {place for run in runs for place in _locations(run)}
    names = [file.name for file in files]  # one that goes into --out as well
    folders = run_folders(named_after, out, reserved=names)
    if inputs.isdisjoint(url_of(folder) or str(folder.resolve()) for folder in folders):
        return folders
    return run_folders(named_after, out / "again", reserved=names)


def _locations(run: Path) -> set[str]:
    """Return where a run lies, and the folder it is called after: in an object store by URL, not as laid out here."""
    if (url := url_of(run)) is None:
        return {str(run.resolve()), str(named(run).resolve())}
    return {url, url if named(run) == run else url.rpartition("/")[0]}


def _inputs(options: GateOptions, settings: Settings, policy: Policy, chosen: Targets) -> dict[Path, str]:
    """Return the files that this command reads, each with what it is."""
    read = dict.fromkeys(chosen.runs, "one of the runs")
    read |= dict.fromkeys(settings.rules, "a file of custom rules")
    read |= dict.fromkeys(settings.advisories, "a folder of advisories")
    read[options.settings or Path(FILE_NAME)] = "the settings file"
    if policy.baseline is not None:
        read[policy.baseline.file] = "the baseline"
    if options.listed is not None:
        read[options.listed] = "the list of runs"
    return read

"""Gate runs one by one or in processes of their own, and write what the gate says over all of them."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final

from ptt import api
from ptt.api import FINDINGS, REPORT
from ptt.cli.options import GateReports
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import InputError, SettingsError, no_room
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.gate.results import GatedRun, GateReport, Outcome
from ptt.diagnostics.store.exclusive_lock import LOCK_FILE, acquire
from ptt.diagnostics.store.loaded_run import LoadedRun
from ptt.processes import TASKS_PER_PROCESS, Died, in_workers
from ptt.reports.gate import FORMATS
from ptt.reports.gate.index import index_html
from ptt.reports.output import write_text
from ptt.reports.run.findings_json import findings_json
from ptt.version import __version__

KEPT: Final = Path("store/kept/diagnosis.json")
MARK: Final = ".made-of"  # names what findings.json and report.html were made of: drawing takes as long as judging
NOT_THE_RUN: Final = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS}  # faults of this machine


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run and all that is needed to gate it."""

    run: Path
    shown: str | None  # the path as outputs show it; None where it would tell of this machine
    name: str
    folder: Path  # where its output goes
    settings: Settings
    policy: Policy
    today: date
    reports: GateReports


@dataclass(frozen=True, kw_only=True)
class Refused:
    """What no run can be gated with: settings that turn out wrong in use, or an output place that is full."""

    why: str


def gate_one(task: Task) -> GatedRun | Refused:
    """Open, judge and write one run."""
    gated = None
    try:
        opened = api.open_run(task.run, out=task.folder, settings=task.settings)
        gated = _judge(task, opened)
        return _write_run(task, opened, gated)
    except BaseException as error:  # a panic of Polars is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise  # no fault of a run
        if gated is None and isinstance(error, SettingsError):
            return Refused(why=str(error))
        if why := no_room(error):  # no fault of a run either, and the next one would meet it as well
            return Refused(why=f"{task.folder.parent}: {why}; choose another place with --out, or make room.")
        if gated is None:
            return _failed(task, error)
        return replace(gated, outcome=Outcome.CRASHED, error=_describe(task, error))  # what was judged stands


def gate_kept(task: Task) -> GatedRun | None:
    """Gate a run that is kept as it is now; None where it must be opened, or a report be drawn."""
    try:
        opened = api.kept_run(task.run, out=task.folder, settings=task.settings)
        if opened is None:
            return None
        gated = _judge(task, opened)
        drawn = (task.folder / REPORT).is_file() and _read(task.folder / MARK) == _content_hash(task, opened)
        return _write_run(task, opened, gated) if drawn or not _wants_report(task, gated) else None
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException:  # a panic of Polars as well: it is met again, and reported, where the run is opened
        return None


def _judge(task: Task, opened: LoadedRun) -> GatedRun:
    gated = judge(opened, task.policy, name=task.name, today=task.today)
    return replace(gated, path=task.shown, first_broken_link=opened.diagnosis.verdict.first_broken_link)


def _write_run(task: Task, opened: LoadedRun, gated: GatedRun) -> GatedRun:
    """Write findings.json, and report.html where one is wanted; what lies there of this very diagnosis stays."""
    findings, report, mark = (task.folder / name for name in (FINDINGS, REPORT, MARK))
    made_of, wanted = _content_hash(task, opened), _wants_report(task, gated)
    if _read(mark) != made_of:
        for stale_path in (mark, report):  # of another state of this run: a report would contradict the gate
            stale_path.unlink(missing_ok=True)
        write_text(findings, findings_json(opened.diagnosis, __version__))
        write_text(mark, made_of)
    if wanted and not report.is_file():
        from ptt.reports.run.html import render_html

        write_text(report, render_html(opened.diagnosis))
    return replace(gated, report=f"{task.folder.name}/{REPORT}") if wanted else gated


def _wants_report(task: Task, gated: GatedRun) -> bool:
    if task.reports is GateReports.FAILED:
        return gated.outcome is not Outcome.PASSED
    return task.reports is GateReports.ALL


def _content_hash(task: Task, opened: LoadedRun) -> str:
    """Hash what is written: the diagnosis, and the tables that are kept beside it under its mark."""
    digest = hashlib.sha256(f"{__version__}\n{opened.source}\n".encode())
    kept = task.folder / KEPT
    digest.update(kept.read_bytes() if kept.is_file() else findings_json(opened.diagnosis, __version__).encode())
    return digest.hexdigest() + "\n"


def _failed(task: Task, error: BaseException) -> GatedRun:
    """Return why a run has no checks."""
    for name in (MARK, FINDINGS, REPORT):  # of an earlier pass: what they say is no longer known
        (task.folder / name).unlink(missing_ok=True)
    unreadable = isinstance(error, InputError) or (isinstance(error, OSError) and error.errno not in NOT_THE_RUN)
    outcome = Outcome.UNREADABLE if unreadable else Outcome.CRASHED
    return GatedRun(name=task.name, path=task.shown, outcome=outcome, error=_describe(task, error))


def _describe(task: Task, error: BaseException) -> str:
    """Return an error as words without paths of this machine, so that they are the same everywhere."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}{where}"
    shown = {path: own.name for own in (task.run, task.folder) for path in (own, own.absolute())}
    for path, name in {**shown, Path(tempfile.gettempdir()): "…"}.items():
        if len(path.parts) > 1:
            text = text.replace(str(path), name)
    return text


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


MAX_JOBS: Final = 4  # by default: each process may need the memory of a whole run

OnRun = Callable[[GatedRun, int, int], None]
"""Called with each run as it is done, how many are done, and of how many."""


class Stopped(Exception):  # noqa: N818  Ctrl-C is no error
    """Ended by Ctrl-C after so many runs."""

    def __init__(self, *, done: int) -> None:
        super().__init__(f"stopped after {done}")
        self.done = done


def default_jobs(runs: int) -> int:
    """Return how many runs are judged at a time where nobody says."""
    affinity = getattr(os, "sched_getaffinity", None)  # of a container's share, not of the whole machine
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, runs, MAX_JOBS))


def gate_all(tasks: Sequence[Task], *, jobs: int, on_run: OnRun | None = None) -> tuple[GatedRun, ...]:
    """Gate every run, and return the answers in the order of the tasks.

    Raises SettingsError where the settings turn out wrong in use, and Stopped on Ctrl-C; what was judged is kept.
    """
    done: dict[int, GatedRun] = {}
    try:
        with closing(_gate_all(tasks, jobs)) as answers:
            for number, answer in answers:
                if isinstance(answer, Refused):
                    raise SettingsError(answer.why)
                done[number] = _crashed(tasks[number], answer.how) if isinstance(answer, Died) else answer
                if on_run is not None:
                    on_run(done[number], len(done), len(tasks))
    except KeyboardInterrupt:
        raise Stopped(done=len(done)) from None
    return tuple(done[number] for number in range(len(tasks)))


def _crashed(task: Task, how: str) -> GatedRun:
    error = f"{how}; gate this run alone, with --jobs 1 or where there is more memory."
    return GatedRun(name=task.name, path=task.shown, outcome=Outcome.CRASHED, error=error)


def _gate_all(tasks: Sequence[Task], jobs: int) -> Generator[tuple[int, GatedRun | Refused | Died]]:
    waiting = []
    for number, task in enumerate(tasks):
        gated = gate_kept(task)  # takes milliseconds, and a process some hundred of them to start
        if gated is None:
            waiting.append(number)
        else:
            yield number, gated
    if len(waiting) < 2 or (jobs == 1 and len(waiting) <= TASKS_PER_PROCESS):
        for number in waiting:
            yield number, gate_one(tasks[number])
        return
    for index, answer in in_workers(gate_one, [tasks[number] for number in waiting], jobs=min(jobs, len(waiting))):
        yield waiting[index], answer


INDEX: Final = "index.html"
JSON: Final = "json"


@contextmanager
def exclusive_output(out: Path) -> Iterator[None]:
    """Keep other gates from writing to the same folder: two would mix their answers, and their stores."""
    with _write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        file = (out / LOCK_FILE).open("ab")
    with file:
        if not acquire(file.fileno(), blocking=False):
            raise SettingsError(
                f"{out}: another ptt gate is writing there; wait until it is done, or give another --out."
            )
        yield  # the lock goes with the file, also where the process is killed


def check(out: Path, extra: Mapping[str, Path], inputs: Mapping[Path, str]) -> None:
    """Refuse places that are one file, no file, or read: what lies there would be lost before it is opened."""
    outputs: dict[Path | tuple[int, int], str] = {}
    read = {key: role for path, role in inputs.items() for key in _identities(path)}
    for name, path in _outputs(out, extra).items():
        option = f"--{name}" if name in extra else "--out"
        with _write_errors(path):
            if path.is_dir():
                raise SettingsError(f"{path}: is a folder; give a file to write to.")
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise SettingsError(f"{path}: is a link or a device; give a file to write to.")
        for key in _identities(path):
            if key in read:
                raise SettingsError(f"{path}: is {read[key]}; give another file for {option}.")
            if outputs.setdefault(key, name) != name:
                raise SettingsError(f"{path}: would be written twice; give another file for {option}.")


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SettingsError(f"{path}: cannot be written: {error.strerror or error}.") from error


def _identities(path: Path) -> set[Path | tuple[int, int]]:
    """Return all that identifies a file: its path, and where it is there its device and inode."""
    keys: set[Path | tuple[int, int]] = {path.absolute()}
    with suppress(OSError, RuntimeError):
        keys.add(path.resolve())
        status = path.stat()
        keys.add((status.st_dev, status.st_ino))
    return keys


def prepare(out: Path, extra: Mapping[str, Path]) -> None:
    """Make sure that all can be written, and take away what an earlier gate wrote: it must not outlive a crash."""
    for path in _outputs(out, extra).values():
        with _write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)


def write(report: GateReport, out: Path, extra: Mapping[str, Path]) -> Path:
    """Write all of it, `extra` by the name of its format, and return where the index page lies."""
    for name, path in _outputs(out, extra).items():
        try:
            write_text(path, index_html(report) if name == INDEX else FORMATS[name].render(report))
        except OSError as error:
            why = error.strerror or str(error)
            raise SettingsError(f"{path}: {why}; choose another place with --out, or make room.") from error
    return out / INDEX


def _outputs(out: Path, extra: Mapping[str, Path]) -> dict[str, Path]:
    return {INDEX: out / INDEX, JSON: out / FORMATS[JSON].file, **extra}

"""Writes what a gate says over all runs: gate.json, the index page, and what CI was to be given."""

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
from enum import StrEnum
from pathlib import Path
from typing import Final

from ptt import api
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import InputError, SettingsError, no_room
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.gate.results import GatedRun, GateReport, Outcome
from ptt.diagnostics.store.exclusive_lock import LOCK_FILE, acquire
from ptt.diagnostics.store.loaded_run import LoadedRun
from ptt.processes import EACH, Died, in_workers
from ptt.reports.gate import FORMATS
from ptt.reports.gate.index import index_html
from ptt.reports.output import write_text
from ptt.reports.run.findings_json import findings_json
from ptt.version import __version__

FINDINGS: Final = "findings.json"
REPORT: Final = "report.html"
KEPT: Final = Path("store/kept/diagnosis.json")
MARK: Final = ".made-of"  # names what findings.json and report.html were made of: drawing takes as long as judging
NOT_THE_RUN: Final = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS}  # faults of this machine


class Reports(StrEnum):
    """Of which runs a report.html is drawn."""

    FAILED = "failed"  # of all that did not pass
    ALL = "all"
    NONE = "none"


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
    reports: Reports


@dataclass(frozen=True, kw_only=True)
class Refused:
    """What no run can be gated with: settings that turn out wrong in use, or an output place that is full."""

    why: str


def gate_one(task: Task) -> GatedRun | Refused:
    """Open, judge and write one run."""
    try:
        opened = api.open_run(task.run, out=task.folder, settings=task.settings)
        gated = _judged(task, opened)
    except SettingsError as error:
        return Refused(why=str(error))
    except BaseException as error:  # a panic of Polars is no Exception
        return _full(task, error) or _failed(task, error)
    try:
        return _written(task, opened, gated)
    except BaseException as error:  # what was judged stands, beside what went wrong
        _only_faults(error)
        return _full(task, error) or replace(gated, outcome=Outcome.CRASHED, error=_told(task, error))


def _full(task: Task, error: BaseException) -> Refused | None:
    """Tell that nothing more can be written: no fault of a run, and the next one would meet it as well."""
    why = no_room(error)
    return Refused(why=f"{task.folder.parent}: {why}; choose another place with --out, or make room.") if why else None


def gate_kept(task: Task) -> GatedRun | None:
    """Gate a run that is kept as it is now; None where it must be opened, or a report be drawn."""
    try:
        opened = api.kept_run(task.run, out=task.folder, settings=task.settings)
        if opened is None:
            return None
        gated = _judged(task, opened)
        if _wanted(task, gated) and not _drawn(task, opened):
            return None
        return _written(task, opened, gated)
    except BaseException as error:
        _only_faults(error)
        return None  # whatever it is, it is met again, and told, where the run is opened


def _judged(task: Task, opened: LoadedRun) -> GatedRun:
    gated = judge(opened, task.policy, name=task.name, today=task.today)
    return replace(gated, path=task.shown, first_broken_link=opened.diagnosis.verdict.first_broken_link)


def lost(task: Task, how: str) -> GatedRun:
    """Tell of a run whose process died."""
    error = f"{how}; gate this run alone, with --jobs 1 or where there is more memory."
    return GatedRun(name=task.name, path=task.shown, outcome=Outcome.CRASHED, error=error)


def _written(task: Task, opened: LoadedRun, gated: GatedRun) -> GatedRun:
    """Write findings.json, and report.html where one is wanted; what lies there of this very diagnosis stays."""
    findings, report, mark = (task.folder / name for name in (FINDINGS, REPORT, MARK))
    made_of, wanted = _made_of(task, opened), _wanted(task, gated)
    if _text(mark) != made_of:
        for place in (mark, report):  # of another state of this run: a report would contradict the gate
            place.unlink(missing_ok=True)
        write_text(findings, findings_json(opened.diagnosis, __version__))
        write_text(mark, made_of)
    if wanted and not report.is_file():
        from ptt.reports.run.html import render_html

        write_text(report, render_html(opened.diagnosis))
    return replace(gated, report=f"{task.folder.name}/{REPORT}") if wanted else gated


def _wanted(task: Task, gated: GatedRun) -> bool:
    """Tell whether a report is to be drawn."""
    return task.reports is Reports.ALL or (task.reports is Reports.FAILED and gated.outcome is not Outcome.PASSED)


def _drawn(task: Task, opened: LoadedRun) -> bool:
    """Tell whether the report that lies there is of this diagnosis."""
    return (task.folder / REPORT).is_file() and _text(task.folder / MARK) == _made_of(task, opened)


def _made_of(task: Task, opened: LoadedRun) -> str:
    """Name what is written: the diagnosis, and the tables that are kept beside it under its mark."""
    digest = hashlib.sha256(f"{__version__}\n{opened.source}\n".encode())
    kept = task.folder / KEPT
    digest.update(kept.read_bytes() if kept.is_file() else findings_json(opened.diagnosis, __version__).encode())
    return digest.hexdigest() + "\n"


def _failed(task: Task, error: BaseException) -> GatedRun:
    """Say why a run has no checks."""
    _only_faults(error)
    for name in (MARK, FINDINGS, REPORT):  # of an earlier pass: what they say is no longer known
        (task.folder / name).unlink(missing_ok=True)
    unreadable = isinstance(error, InputError) or (isinstance(error, OSError) and error.errno not in NOT_THE_RUN)
    outcome = Outcome.UNREADABLE if unreadable else Outcome.CRASHED
    return GatedRun(name=task.name, path=task.shown, outcome=outcome, error=_told(task, error))


def _only_faults(error: BaseException) -> None:
    """Let Ctrl-C and the end of the process pass: they are no fault of a run."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error


def _told(task: Task, error: BaseException) -> str:
    """Put an error into words, without the places of this machine, so that they are the same everywhere."""
    text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}{_where(error)}"
    for place, shown in (
        (task.run, task.run.name),
        (task.run.absolute(), task.run.name),
        (task.folder, task.folder.name),
        (task.folder.absolute(), task.folder.name),
        (Path(tempfile.gettempdir()), "…"),
    ):
        if len(place.parts) > 1:
            text = text.replace(str(place), shown)
    return text


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


MOST_JOBS: Final = 4  # by default: each process may need the memory of a whole run

Told = Callable[[GatedRun, int, int], None]
"""Hears of each run as it is done, how many are done, and of how many."""


class Stopped(Exception):  # noqa: N818  Ctrl-C is no error
    """Ended by Ctrl-C after so many runs."""

    def __init__(self, *, done: int) -> None:
        super().__init__(f"stopped after {done}")
        self.done = done


def default_jobs(runs: int) -> int:
    """Give how many runs are judged at a time where nobody says."""
    return max(1, min(_cores(), runs, MOST_JOBS))


def gate_all(tasks: Sequence[Task], *, jobs: int, told: Told | None = None) -> tuple[GatedRun, ...]:
    """Gate every run, and give the answers in the order of the tasks.

    Raises SettingsError where the settings turn out wrong in use, and Stopped on Ctrl-C; what was judged is kept.
    """
    done: dict[int, GatedRun] = {}
    try:
        with closing(_answers(tasks, jobs)) as answers:
            for number, answer in answers:
                if isinstance(answer, Refused):
                    raise SettingsError(answer.why)
                done[number] = lost(tasks[number], answer.how) if isinstance(answer, Died) else answer
                if told is not None:
                    told(done[number], len(done), len(tasks))
    except KeyboardInterrupt:
        raise Stopped(done=len(done)) from None
    return tuple(done[number] for number in range(len(tasks)))


def _answers(tasks: Sequence[Task], jobs: int) -> Generator[tuple[int, GatedRun | Refused | Died]]:
    waiting = []
    for number, task in enumerate(tasks):
        held = gate_kept(task)  # takes milliseconds, and a process some hundred of them to start
        if held is None:
            waiting.append(number)
        else:
            yield number, held
    if len(waiting) < 2 or (jobs == 1 and len(waiting) <= EACH):
        for number in waiting:
            yield number, gate_one(tasks[number])
        return
    for index, answer in in_workers(gate_one, [tasks[number] for number in waiting], jobs=min(jobs, len(waiting))):
        yield waiting[index], answer


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # of a container's share, not of the whole machine
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


INDEX: Final = "index.html"
JSON: Final = "json"


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Keep other gates from writing to the same folder: two would mix their answers, and their stores."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / LOCK_FILE).open("ab")
    except OSError as error:
        raise SettingsError(f"{out}: cannot be written: {error.strerror or error}.") from error
    with file:
        if not acquire(file.fileno(), blocking=False):
            raise SettingsError(
                f"{out}: another ptt gate is writing there; wait until it is done, or give another --out."
            )
        yield  # the lock goes with the file, also where the process is killed


def check(out: Path, extra: Mapping[str, Path], inputs: Mapping[Path, str]) -> None:
    """Refuse places that are one file, no file, or read: what lies there would be lost before it is opened."""
    taken: dict[Path | tuple[int, int], str] = {}
    held = {key: what for path, what in inputs.items() for key in _keys(path)}
    for name, place in _places(out, extra).items():
        option = f"--{name}" if name in extra else "--out"
        _file_or_nothing(place)
        for key in _keys(place):
            if key in held:
                raise SettingsError(f"{place}: is {held[key]}; give another file for {option}.")
            if taken.setdefault(key, name) != name:
                raise SettingsError(f"{place}: would be written twice; give another file for {option}.")


def _file_or_nothing(place: Path) -> None:
    try:
        if place.is_dir():
            raise SettingsError(f"{place}: is a folder; give a file to write to.")
        if place.is_symlink() or (place.exists() and not place.is_file()):
            raise SettingsError(f"{place}: is a link or a device; give a file to write to.")
    except OSError as error:
        raise SettingsError(f"{place}: cannot be written: {error.strerror or error}.") from error


def _keys(path: Path) -> set[Path | tuple[int, int]]:
    """Give all that tells a file: its place, and where it is there what the file system knows it by."""
    keys: set[Path | tuple[int, int]] = {path.absolute()}
    with suppress(OSError, RuntimeError):
        keys.add(path.resolve())
        found = path.stat()
        keys.add((found.st_dev, found.st_ino))
    return keys


def prepare(out: Path, extra: Mapping[str, Path]) -> None:
    """Make sure that all can be written, and take away what an earlier gate wrote: it must not outlive a crash."""
    for place in _places(out, extra).values():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
        except OSError as error:
            raise SettingsError(f"{place}: cannot be written: {error.strerror or error}.") from error


def write(report: GateReport, out: Path, extra: Mapping[str, Path]) -> Path:
    """Write all of it, `extra` by the name of its format, and give where the index page lies."""
    for name, place in _places(out, extra).items():
        try:
            write_text(place, index_html(report) if name == INDEX else FORMATS[name].render(report))
        except OSError as error:
            why = error.strerror or str(error)
            raise SettingsError(f"{place}: {why}; choose another place with --out, or make room.") from error
    return out / INDEX


def _places(out: Path, extra: Mapping[str, Path]) -> dict[str, Path]:
    return {INDEX: out / INDEX, JSON: out / FORMATS[JSON].file, **extra}

"""Judge many runs, one by one or in processes of their own, so that what happens to one costs no other."""

from __future__ import annotations

import errno
import hashlib
import tempfile
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

import typer
from rich.console import Console

from ptt import api
from ptt.api import REPORT
from ptt.cli.exits import Exit
from ptt.cli.output import progress_bar
from ptt.diagnostics.config import Settings
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import InputError, SettingsError, no_room
from ptt.diagnostics.gate.results import GatedRun, Outcome
from ptt.diagnostics.scrub.scrub import Scrubber
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.store.folders import LOCK_FILE, acquire
from ptt.diagnostics.traces.compare import TraceSide
from ptt.executors import Executor
from ptt.object_stores.remote_paths import FINDINGS, room_advice, url_of
from ptt.processes import Died
from ptt.reports.output import write_text
from ptt.reports.run.findings_json import findings_json
from ptt.reports.run.index import DiagnosedRun
from ptt.reports.text.numbers import counted
from ptt.reports.traces.findings_json import trace_findings_json
from ptt.run_location import MARK, kept_side, refuse_other_output, store_at, traces_instead
from ptt.version import __version__

if TYPE_CHECKING:
    from ptt.reports.figures.faults import FigureFault
    from ptt.reports.run.html import Page

KEPT: Final = Path("store/kept/diagnosis.json")
WRITTEN: Final = (FINDINGS, REPORT)  # beside the mark, of each run
NOT_THE_RUN: Final = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS}  # faults of this machine


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run and what is needed to judge it."""

    run: Path
    shown: str | None  # the path as outputs show it; None where it would tell of this machine
    name: str
    folder: Path  # where its output goes
    settings: Settings
    one_run: bool = True  # whoever made the task has looked; an archive is looked into when it is unpacked


AnyTask = TypeVar("AnyTask", bound=Task)
AnyAnswer = TypeVar("AnyAnswer", bound=DiagnosedRun | GatedRun)  # what a command makes of a run


@dataclass(frozen=True, kw_only=True)
class Refused:
    """What no run can be judged with: settings that turn out wrong in use, or an output place that is full."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Steps(Generic[AnyTask, AnyAnswer]):
    """What a command does with one run."""

    judge: Callable[[AnyTask, LoadedRun], AnyAnswer]
    write: Callable[[AnyTask, LoadedRun, AnyAnswer], AnyAnswer]
    failed: Callable[[AnyTask, Outcome, str], AnyAnswer]
    """Returns the answer for a run that could not be judged, and why."""
    crashed: Callable[[AnyAnswer, str], AnyAnswer]
    """Returns the answer for one that was judged, and whose output could not be written by a fault of ours."""
    is_written: Callable[[AnyTask, LoadedRun, AnyAnswer], bool]
    """Says whether nothing is left to draw of a run that is kept."""
    line: Callable[[AnyAnswer, int, int], None]
    """Prints that one is done, how many are, and of how many."""


def judge_one(steps: Steps[AnyTask, AnyAnswer], task: AnyTask, executor: Executor | None = None) -> AnyAnswer | Refused:
    """Open, judge and write one run: wherever the executor runs it, or here with a long one's tokens folded by it."""
    answer = None
    try:
        opened = api.open_run(
            task.run, out=task.folder, settings=task.settings, one_run=task.one_run, executor=executor
        )
        answer = steps.judge(task, opened)
        return steps.write(task, opened, answer)
    except BaseException as error:  # a panic of Polars is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise  # no fault of a run
        if answer is None and isinstance(error, SettingsError):
            return Refused(why=str(error))
        if why := no_room(error):  # no fault of a run either, and the next one would meet it as well
            return Refused(why=f"{task.folder.parent}: {why}; {room_advice(task.folder)}.")
        if answer is not None:
            return steps.crashed(answer, describe_error(task, error))  # what was judged stands
        for name in (MARK, *WRITTEN):  # of an earlier pass: what they say is no longer known
            (task.folder / name).unlink(missing_ok=True)
        unreadable = isinstance(error, InputError) or (isinstance(error, OSError) and error.errno not in NOT_THE_RUN)
        return steps.failed(task, Outcome.UNREADABLE if unreadable else Outcome.CRASHED, describe_error(task, error))


def _judge_kept(steps: Steps[AnyTask, AnyAnswer], task: AnyTask) -> AnyAnswer | None:
    """Judge a run from what is kept of it; None if the run has changed or its report must be drawn."""
    try:
        opened = api.kept_run(task.run, out=task.folder, settings=task.settings, one_run=task.one_run)
        if opened is None:
            return None
        answer = steps.judge(task, opened)
        return steps.write(task, opened, answer) if steps.is_written(task, opened, answer) else None
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException:  # a panic of Polars as well: it is met again, and reported, where the run is opened
        return None


def trace_set(task: Task, opened: LoadedRun) -> TraceSide | None:
    """Return the agent traces of a run that holds nothing else; None for any other."""
    if opened.kind == "findings":
        return kept_side(task.run)
    return traces_instead(store_of(task), opened.diagnosis)


def store_of(task: Task) -> Path | None:
    """Return the store that a run is, or that was made of it."""
    return store_at(task.run) or store_at(task.folder)


def is_drawn(task: Task, opened: LoadedRun) -> bool:
    """Return whether the report that lies there is of this very diagnosis."""
    return (task.folder / REPORT).is_file() and _read(task.folder / MARK) == _content_hash(task, opened)


def write_run(task: Task, opened: LoadedRun, *, report: bool) -> None:
    """Write findings.json, and report.html where it is wanted; what lies there of this very diagnosis stays."""
    findings, page, mark = (task.folder / name for name in (FINDINGS, REPORT, MARK))
    made_of = _content_hash(task, opened)
    if _read(mark) != made_of:
        for stale_path in (mark, page):  # of another state of this run: a report would contradict the answer
            stale_path.unlink(missing_ok=True)
        traces = trace_set(task, opened)
        write_text(findings, _findings(opened, traces))
        write_text(mark, made_of)
    if report and not page.is_file():
        drawn = _page(opened, trace_set(task, opened))
        write_text(page, drawn.text)
        refuse_faults(drawn.faults)


def _findings(opened: LoadedRun, traces: TraceSide | None) -> str:
    if traces is None:
        return findings_json(opened.diagnosis, __version__)
    return trace_findings_json(traces.diagnosis, __version__)


def _page(opened: LoadedRun, traces: TraceSide | None) -> Page:
    from ptt.reports.run.html import render_page
    from ptt.reports.traces.html import render_traces

    return render_page(opened.diagnosis) if traces is None else render_traces(traces.diagnosis)


def refuse_faults(faults: Sequence[FigureFault]) -> None:
    """Raise where a figure failed by a fault of ours: the page is written, and the run's outcome is a crash."""
    for fault in faults:
        if fault.ours:
            raise RuntimeError(f"the figure {fault.name} failed: {fault.error}")


def _content_hash(task: Task, opened: LoadedRun) -> str:
    """Hash what is written: the diagnosis, and the tables that are kept beside it under its mark."""
    digest = hashlib.sha256(f"{__version__}\n{opened.source}\n".encode())
    kept = task.folder / KEPT
    digest.update(kept.read_bytes() if kept.is_file() else findings_json(opened.diagnosis, __version__).encode())
    return digest.hexdigest() + "\n"


def describe_error(task: Task, error: BaseException) -> str:
    """Return an error as words without paths of this machine and without secrets, the same everywhere."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}{where}"
    shown = {path: own.name for own in (task.run, task.folder) for path in (own, own.absolute())}
    for path, name in {**shown, Path(tempfile.gettempdir()): "…"}.items():
        if len(path.parts) > 1:
            text = text.replace(str(path), name)
    return Scrubber().text(text)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def judge_all(
    tasks: Sequence[AnyTask],
    steps: Steps[AnyTask, AnyAnswer],
    folder: Path,
    *,
    doing: str,
    jobs: int | None,
    executor: Executor,
    quiet: bool = False,
) -> tuple[AnyAnswer, ...]:
    """Judge every run, show how far it is, and return the answers in the order of the tasks.

    `folder` is where the output goes, which a message on Ctrl-C names.
    Raises SettingsError where the settings turn out wrong in use, or a folder holds what `ptt traces` wrote.
    Ctrl-C ends the command; what was judged is kept.
    """
    for task in tasks:
        refuse_other_output(task.folder, of_traces=False)
    done: dict[int, AnyAnswer] = {}
    try:
        with (
            _run_progress(doing, steps.line, quiet=quiet) as on_run,
            closing(_judge_all(tasks, steps, jobs, executor)) as answers,
        ):
            for number, answer in answers:
                if isinstance(answer, Refused):
                    raise SettingsError(answer.why)
                if isinstance(answer, Died):
                    why = f"{answer.how}; judge this run alone with --jobs 1, or on a machine with more memory."
                    answer = steps.failed(tasks[number], Outcome.CRASHED, why)
                done[number] = answer
                if on_run is not None:
                    on_run(answer, len(done), len(tasks))
    except KeyboardInterrupt:
        stopped = f"ptt: stopped after {len(done)} of {counted(len(tasks), 'run')}"
        if (url := url_of(folder)) is not None:  # to upload them may take longer than a signal leaves us
            typer.echo(f"{stopped}; nothing was written to {url}.", err=True)
        else:
            kept = f"results so far are in {folder}, and the same command resumes from there."
            typer.echo(f"{stopped}; {kept}", err=True)
        raise typer.Exit(Exit.STOPPED) from None
    return tuple(done[number] for number in range(len(tasks)))


def _judge_all(
    tasks: Sequence[AnyTask], steps: Steps[AnyTask, AnyAnswer], jobs: int | None, executor: Executor
) -> Generator[tuple[int, AnyAnswer | Refused | Died]]:
    waiting = []
    for number, task in enumerate(tasks):
        answer = _judge_kept(steps, task)  # takes milliseconds, and a process some hundred of them to start
        if answer is None:
            waiting.append(number)
        else:
            yield number, answer
    if len(waiting) == 1:
        yield waiting[0], judge_one(steps, tasks[waiting[0]], executor)
        return
    chosen = [tasks[number] for number in waiting]
    one = partial(judge_one, steps)
    with closing(executor.run_tasks(one, chosen, jobs=jobs, writes_to=tasks[0].folder.parent)) as results:
        for index, result in results:
            yield waiting[index], result


@dataclass(frozen=True, kw_only=True)
class Output:
    """The folder that a command writes its answer over all runs into, and the files of that answer."""

    folder: Path
    command: str
    files: Mapping[str, Path]  # by what they are: the option that names the place, or none

    @classmethod
    def below(cls, folder: Path, command: str, own: Iterable[str], extra: Mapping[str, Path] | None = None) -> Self:
        """Return the place with its own files, and those that go elsewhere by the option that says where."""
        return cls(folder=folder, command=command, files={name: folder / name for name in own} | dict(extra or {}))

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep others from writing to the same folder: two would mix their answers, and their stores."""
        with write_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / LOCK_FILE).open("ab")
        with file:
            if not acquire(file.fileno(), blocking=False):
                raise SettingsError(
                    f"{self.folder}: another {self.command} is writing there; wait for it, or give another --out."
                )
            yield  # the lock goes with the file, also where the process is killed

    def check(self, inputs: Mapping[Path, str]) -> None:
        """Refuse places that are one file, no file, or read: what lies there would be lost before it is opened."""
        outputs: dict[Path | tuple[int, int], str] = {}
        read = {key: role for path, role in inputs.items() for key in _identities(path)}
        for name, path in self.files.items():
            option = "--out" if path == self.folder / name else f"--{name}"
            with write_errors(path):
                if path.is_dir():
                    raise SettingsError(f"{path}: is a folder; give a file to write to.")
                if path.is_symlink() or (path.exists() and not path.is_file()):
                    raise SettingsError(f"{path}: is a link or a device; give a file to write to.")
            for key in _identities(path):
                if key in read:
                    raise SettingsError(f"{path}: is {read[key]}; give another file for {option}.")
                if outputs.setdefault(key, name) != name:
                    raise SettingsError(f"{path}: would be written twice; give another file for {option}.")

    def prepare(self) -> None:
        """Make sure that all can be written, and take away an earlier answer: it must not outlive a crash."""
        for path in self.files.values():
            with write_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)

    def write(self, texts: Mapping[str, Callable[[], str]]) -> None:
        """Write every file, each by its name."""
        for name, path in self.files.items():
            text = texts[name]()
            try:
                write_text(path, text)
            except OSError as error:
                why = error.strerror or str(error)
                raise SettingsError(f"{path}: {why}; {room_advice(path)}.") from error


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Name the place where something cannot be written."""
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


def relative_path(path: Path) -> str | None:
    """Return a path as outputs may show it: below the current folder, or not at all."""
    if (url := url_of(path)) is not None:
        return url
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix() if ".." not in path.parts else None
    except ValueError:
        return None


@contextmanager
def _run_progress(
    doing: str, line: Callable[[AnyAnswer, int, int], None], *, quiet: bool = False
) -> Iterator[Callable[[AnyAnswer, int, int], None] | None]:
    """Show a bar on a terminal, and a line a run elsewhere."""
    console = Console(stderr=True)
    if quiet:
        yield None
    elif console.is_terminal:
        with progress_bar(console) as tell:
            yield lambda _, done, of: tell(doing, done, of)
    else:
        yield line

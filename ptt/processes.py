"""Run one function over many tasks, in processes that may die without stopping the others.

The pool of the standard library cannot tell whose process was killed, and ends them all.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import ModuleType
from typing import Final, TypeVar, cast

from ptt.diagnostics.definitions import dataclass
from ptt.stopping import END_SIGNALS, PARENT, end_with_parent, temporary_folder

Task = TypeVar("Task")
Result = TypeVar("Result")

THREADS: Final = "POLARS_MAX_THREADS"  # each process takes all cores otherwise, and they wait for one another
TASKS_PER_PROCESS: Final = 25
"""Tasks of one process. Allocators keep some 3 MB of each small run; a new process costs a second or two and starts
from nothing, so that a thousand runs need no more memory than a few do."""
HAS_MASKS: Final = hasattr(signal, "pthread_sigmask")  # not on Windows
END_SECONDS: Final = 5.0  # seconds for a process whose line is closed to end by itself
STOP_SECONDS: Final = 0.7  # for all that are told to end together, less than the command itself is given


@dataclass(frozen=True, kw_only=True)
class Died:
    """A process that ended in the middle of its task, and how."""

    how: str


def in_workers(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    jobs: int,
    ahead: int | None = None,
    of_each: int = TASKS_PER_PROCESS,
) -> Generator[tuple[int, Result | Died]]:
    """Yield each task's number and result as they are done; closing the generator ends all processes.

    `ahead`: no task is handed out so many after the first one that is not done, for who takes results in their order.
    `of_each`: how many tasks a process does before another takes its place.
    """
    waiting = deque(range(len(tasks)))
    done = [False] * len(tasks)
    first = 0  # task that is not done
    with temporary_folder("ptt-work-") as scratch:  # what a killed process leaves lying goes with it
        threads = os.environ.get(THREADS) or str(max(1, (os.cpu_count() or 1) // jobs))
        crew: dict[Connection, Worker] = {}
        idle: list[Worker] = []  # of the crew

        def hand_out() -> None:
            while waiting and len(crew) - len(idle) < jobs and (ahead is None or waiting[0] < first + ahead):
                if not idle:
                    with uninterrupted():
                        worker = Worker(function, {"TMPDIR": scratch, THREADS: threads})
                        crew[worker.line] = worker
                        idle.append(worker)
                number = waiting.popleft()
                idle.pop().give(number, tasks[number])

        try:
            hand_out()
            while at_work := [line for line, worker in crew.items() if worker not in idle]:
                for line in connection.wait(at_work):
                    worker = crew[cast("Connection", line)]
                    number, answer = worker.number, cast("Result | Died", worker.answer())
                    done[number] = True
                    while first < len(done) and done[first]:
                        first += 1
                    if isinstance(answer, Died):
                        del crew[worker.line]
                    elif waiting and worker.given < of_each:
                        idle.append(worker)
                    else:
                        del crew[worker.line]
                        worker.end()
                    hand_out()
                    yield number, answer
        finally:
            for worker in crew.values():
                worker.process.terminate()
            deadline = time.monotonic() + STOP_SECONDS
            for worker in crew.values():
                worker.end(max(0.0, deadline - time.monotonic()))


class Worker:
    """One process, which answers tasks by a function, and the line to it; to be started `uninterrupted`."""

    def __init__(
        self, function: Callable[..., object], environment: Mapping[str, str], *, imports_main: bool = True
    ) -> None:
        """`imports_main`: what it is given may be of the program that started the command."""
        context = get_context("spawn")  # a fork of a process with threads may hang
        self.line, theirs = context.Pipe()
        of_main = threading.current_thread() is threading.main_thread()
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, function, of_main), daemon=True)
        self.number, self.given = -1, 0
        main = nullcontext() if imports_main else without_main()  # a script that starts one as it is imported: no end
        with set_for_children({**environment, **(ends_with_us() if of_main else {})}), main:
            self.process.start()
        theirs.close()

    def give(self, number: int, task: object) -> None:
        """Hand over a task; that the process has died already shows when its answer is read."""
        self.number, self.given = number, self.given + 1
        with suppress(BrokenPipeError, ConnectionResetError):
            self.line.send(task)

    def answer(self, seconds: float | None = None) -> object:
        """Return what the task returned, or how the process died; one that takes longer than `seconds` is killed."""
        try:
            if not self.line.poll(seconds):
                self.end(0.0)
                return Died(how=f"its process did not answer for {seconds:.0f} s")
            return self.line.recv()
        except (EOFError, OSError):
            self.end()
            return Died(how=_exit_words(self.process.exitcode))

    def end(self, seconds: float = END_SECONDS) -> None:
        """Wait for the process, and kill it where it does not end by itself."""
        self.line.close()
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def leave_signals_to_the_parent(*, thread_stays: bool) -> None:
    """Ignore, in a process started uninterrupted, what reaches the whole group; end when the parent does, or tells.

    `thread_stays`: the thread that started it lives as long as the parent does.
    """
    for number in END_SIGNALS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
    end_with_parent(thread_stays=thread_stays)
    if HAS_MASKS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)


def _serve(line: Connection, function: Callable[..., object], thread_stays: bool) -> None:
    signal.signal(signal.SIGTERM, _leave)
    leave_signals_to_the_parent(thread_stays=thread_stays)
    with suppress(EOFError, OSError):  # the parent has hung up
        while True:
            line.send(function(line.recv()))


def _leave(number: int, _: object) -> None:
    """End by an exception, which runs what cleans up, and in silence: it may be raised inside an import.

    What is compiled writes to the descriptor: Polars prints a trace of its own where one of its imports is cut short.
    """
    sys.stderr = io.StringIO()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(128 + number)


def _exit_words(code: int | None) -> str:
    if code is None or code >= 0:
        return f"its process ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    why = ", which is how the system ends one when memory runs out" if name == "SIGKILL" else ""
    return f"its process was killed ({name}{why})"


def ends_with_us() -> Mapping[str, str]:
    """Return the variable that lets a process started from this thread, which must stay, end when this one does."""
    return {PARENT: str(os.getpid())}


@contextmanager
def without_main() -> Iterator[None]:
    """Let processes that are started in the block not import the program's main module, as they otherwise would."""
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


@contextmanager
def set_for_children(environment: Mapping[str, str]) -> Iterator[None]:
    """Set variables for what is started in the block: a new interpreter reads them before anything else."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let signals that end a process wait until the block is done, so that no process is started and forgotten.

    What is started in the block inherits that: it hears none before it can clean up.
    """
    if not HAS_MASKS:
        yield
        return
    from multiprocessing import resource_tracker  # needs what Windows has not

    resource_tracker.ensure_running()  # a process starts it where there is none, and that lets two signals in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    heard: list[int] = []  # by another thread, which is not masked: Python would tell the main one all the same
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {ending: signal.signal(ending, lambda number, _: heard.append(number)) for ending in END_SIGNALS}
    try:
        yield
    finally:
        for ending, handler in handlers.items():
            signal.signal(ending, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in heard[:1]:
            signal.raise_signal(number)

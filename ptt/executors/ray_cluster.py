"""Fold the pieces of a long run, and judge many runs, as tasks on a Ray cluster.

A task gets a piece or a run, a few hundred bytes of paths and numbers, and reads the files where it runs. Ray runs it
again where its worker or node dies. What it raises is raised here once more, by the same code as on one machine.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

from ptt.diagnostics.engines.pieces import Group, Merged, Piece, RunPieces, fold_one
from ptt.diagnostics.errors import PttError, SettingsError
from ptt.diagnostics.statistics.merge_tree import merge_group
from ptt.diagnostics.statistics.partial_tables import PartialTables
from ptt.diagnostics.store.file_readings import Reading, RunTasks, read_task
from ptt.diagnostics.store.file_readings import Task as ReadTask
from ptt.diagnostics.store.scan import READ_ERRORS
from ptt.executors.remote_tasks import Origin, SizedPiece, at_hand, origin_of, sizes_of
from ptt.executors.this_machine import cores
from ptt.object_stores.client import ObjectError
from ptt.object_stores.remote_paths import url_of
from ptt.processes import THREADS, Died
from ptt.stopping import END_SIGNALS, temporary_folder
from ptt.version import __version__

Task = TypeVar("Task")
Result = TypeVar("Result")
Key = TypeVar("Key")

ADDRESS: Final = "RAY_ADDRESS"  # Ray's own variable, which `ray job submit` sets
HERE: Final = "local"  # Ray's word for a cluster of this machine alone, which ends with us
REACH_SECONDS: Final = 10.0  # to open a connection
LOOK_SECONDS: Final = 5.0  # between two looks whether the cluster has cores, while nothing comes back
CORES_SECONDS: Final = 600.0  # for a node with cores to join: clouds start one in minutes
JOIN_SECONDS: Final = 60.0  # for a cluster to answer: Ray itself tries for minutes, and then ends the process
AHEAD: Final = 4
"""Tasks in flight or done and not yet fetched, a core, and a group more: enough to go on while one is folded anew after
its node died. A piece's tables have some 9 MB at most, so that they take 40 MB a core of the cluster's memory."""
MERGE_FROM: Final = 8  # cores: fewer leave the driver time to add pieces up, and have no room for sixteen and a group
RETRIES: Final = 3  # of a task whose worker or node died
STORE_BYTES: Final = 64 << 20  # of shared memory a core of a cluster of our own
MAX_FOLDER: Final = 40  # characters: Ray keeps sockets below it, whose paths may have 107
PROBE: Final = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"
SAME_FILES: Final = (
    "--ray-address needs a shared file system: every node reads a run's files, and writes output, at the same path as "
    "this machine"
)
SAME_SCRATCH: Final = "set TMPDIR to a folder that all nodes share, or give --out such a folder and copy it there"


@dataclass(frozen=True, kw_only=True)
class Call(Generic[Task]):
    """A task, and what must be so where it is done."""

    function: Callable[..., Any]  # of the task, and of what came of others
    task: Task
    folder: str  # relative paths start from here
    writes_to: str | None = None
    output: str | None = None  # URL of what is made there, and written to an object store at the end
    origin: Origin | None = None  # of files that the command's own node laid out
    version: str = __version__


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """Why a worker can do none of these tasks."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """A file that is not there where the piece was to be folded."""

    node: str


def call(given: Call[Any], *answers: object) -> object:
    """Do a task, on a worker; `answers`: what came of other tasks that it goes on from."""
    if given.version != __version__:
        return Unfit(why=f"has ptt {__version__}, and this command is {given.version}; install the same on all nodes")
    try:
        os.chdir(given.folder)
    except OSError:
        if given.writes_to is not None:  # what reads alone says which file it cannot see
            return Unfit(
                why=f"does not have the folder {given.folder}, from which this command was started; {SAME_FILES}"
            )
    if given.writes_to is not None and not Path(given.writes_to).is_dir():
        lacks = f"does not have the folder {given.writes_to}"
        if given.output is not None:
            return Unfit(why=f"{lacks}, in which {given.output} is made before it is written there; {SAME_SCRATCH}")
        return Unfit(why=f"{lacks}; {SAME_FILES}")
    with ExitStack() as stack:
        try:
            task = stack.enter_context(at_hand(given.task, given.origin, _node() if given.origin else ""))
        except ObjectError:
            return None  # the command's own node has it as it was
        except PttError as error:
            return Unfit(why=f"({platform.node()}) cannot read the run: {str(error).rstrip('.')}")
        return given.function(task, *answers)


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def fold_or_say_why(sized: SizedPiece) -> PartialTables | Unseen | None:
    """Fold a piece; None where its files cannot be read, or are others than those of the run.

    Another file may lie at the path on a disk of the node's own, or the node may see a file as it was.
    """
    try:
        return fold_one(sized.piece) if sizes_of(sized.piece) == sized.sizes else None
    except FileNotFoundError:
        return Unseen(node=platform.node())
    except READ_ERRORS:
        return None


def merge_or_none(places: range, *answers: object) -> PartialTables | None:
    """Add up the pieces of a group at these places, on a worker; None where one of them was not folded."""
    parts = [answer for answer in answers if isinstance(answer, PartialTables)]
    return merge_group(parts) if len(parts) == len(places) else None


def read_or_say_why(task: ReadTask) -> list[Reading] | Unseen | None:
    """Read files of a run; None where another one lies at the path of one of them."""
    try:
        same = all(file.path.stat().st_size == file.size for file in task.files)
    except FileNotFoundError:
        return Unseen(node=platform.node())
    return read_task(task) if same else None


class RayCluster:
    """A cluster at an address, which is joined at once; without one, a Ray of our own from the first task on."""

    def __init__(self, address: str | None = None) -> None:
        """`address`: `HOST:PORT` of the head node, `auto`, or None for what RAY_ADDRESS says."""
        self.address = address or os.environ.get(ADDRESS) or HERE
        self._ray: Any = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if importlib.util.find_spec("ray") is None:
            raise SettingsError(
                "--engine ray: Ray is not installed; install it with `pip install 'ptt-forensics[ray]'`."
            )
        if self.address != HERE:
            _find(self.address)
            self._join()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._ray = None

    @property
    def run_pieces(self) -> RunPieces | None:
        """What folds pieces on the cluster."""
        return self._fold_pieces

    def _fold_pieces(
        self, pieces: Sequence[Piece], groups: Mapping[int, Group]
    ) -> Generator[tuple[int, PartialTables | Merged | None]]:
        """Yield the tables of pieces and groups in their order; what is done early waits on the cluster.

        A group that cannot be added up there comes by its pieces, among them the one that could not be folded.
        """
        ray = self._join()
        with closing(self._started(self._begun(ray, pieces, groups), in_order=True)) as flights:
            for places, tasks in flights:
                merged = self._answer(ray, tasks[-1]) if len(tasks) > len(places) else None
                if isinstance(merged, PartialTables):
                    yield places.start, Merged(tables=merged)
                    continue
                for place, task in zip(places, tasks, strict=False):
                    answer = self._answer(ray, task)
                    _refuse_unseen(answer, [file.path for file in pieces[place].files])
                    yield place, answer if isinstance(answer, PartialTables) else None

    def _begun(
        self, ray: Any, pieces: Sequence[Piece], groups: Mapping[int, Group]
    ) -> Iterator[tuple[range, list[Any]]]:
        """Begin the tasks of one piece, or of one group with a last one that adds it up, whenever asked for the next.

        Whether the cluster has the cores for a group is looked at with each: it may grow and shrink meanwhile.
        """
        remote = self._remote(call)
        sized = [*map(SizedPiece.of, pieces)]
        place = 0
        while place < len(pieces):
            group = groups.get(place)
            if group is not None and 0 < _cores(ray) < MERGE_FROM:
                group = None
            places = range(place, place + (1 if group is None else len(group.pieces)))
            tasks = [remote.remote(self._call(fold_or_say_why, sized[at])) for at in places]
            if group is not None:
                tasks.append(remote.remote(self._call(merge_or_none, places), *tasks))
            yield places, tasks
            place = places.stop

    @property
    def read_tasks(self) -> RunTasks | None:
        """What reads files on the cluster."""
        return self._read

    def _read(self, tasks: Sequence[ReadTask]) -> Generator[tuple[int, list[Reading]]]:
        """Yield what was read of files, in their order; what the cluster could not read is read here."""
        with closing(self._answers(read_or_say_why, tasks, in_order=True)) as answers:
            for number, answer in answers:
                _refuse_unseen(answer, [file.path for file in tasks[number].files])
                yield number, answer if isinstance(answer, list) else read_task(tasks[number])

    def run_tasks(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, jobs: int | None, writes_to: Path
    ) -> Generator[tuple[int, Result | Died]]:
        """Yield each task's number and result as they are done, by default a task a core."""
        with closing(self._answers(function, tasks, jobs=jobs, writes_to=os.fspath(writes_to))) as answers:
            yield from answers

    def _answers(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        jobs: int | None = None,
        in_order: bool = False,
        writes_to: str | None = None,
    ) -> Generator[tuple[int, Result | Died]]:
        """Yield each task's number and what came of it."""
        ray = self._join()
        remote = self._remote(call)

        begun = ((number, [remote.remote(self._call(function, task, writes_to))]) for number, task in enumerate(tasks))
        with closing(self._started(begun, jobs=jobs, in_order=in_order)) as flights:
            for number, (task,) in flights:
                yield number, self._answer(ray, task)

    def _remote(self, function: Callable[..., object]) -> Any:
        """Return what starts a function as a task, which Ray does again where its worker or node dies."""
        return self._join().remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)(function)

    def _call(self, function: Callable[..., Any], task: Task, writes_to: str | None = None) -> Call[Task]:
        return Call(
            function=function,
            task=task,
            folder=os.fspath(Path.cwd()),
            writes_to=writes_to,
            output=None if writes_to is None else url_of(Path(writes_to)),
            origin=origin_of(task, _node()),
        )

    def _started(
        self, begun: Iterator[tuple[Key, list[Any]]], *, jobs: int | None = None, in_order: bool = False
    ) -> Generator[tuple[Key, list[Any]]]:
        """Yield each key of `begun` with its tasks, once the last of these is done.

        With `in_order`, keys come in the order of `begun`, and their tasks may still be running. At most `jobs` tasks
        (by default `AHEAD` per core) are in flight; a key's tasks count until the caller asks for the next key.
        """
        ray = self._join()
        flying: dict[Any, tuple[Key, list[Any]]] = {}  # by the last task of each
        held, more = 0, True  # tasks
        try:
            while more or flying:
                room = jobs or max(2, AHEAD * _cores(ray))
                while more and held < room:
                    following = next(begun, None)
                    more = following is not None
                    if following is not None:
                        flying[following[1][-1]] = following
                        held += len(following[1])
                if flying:
                    done = next(iter(flying)) if in_order else self._done(ray, list(flying))
                    yield flying[done]
                    held -= len(flying.pop(done)[1])
        finally:
            for _, tasks in flying.values():
                # Ray 2.60 ends this process where a task is cancelled just as the last of those it waits for is done
                # ("Tried to complete task that was not pending"); without them it ends by itself.
                for left in tasks if len(tasks) == 1 else tasks[:-1]:
                    with suppress(Exception):  # the cluster is gone, and its tasks with it
                        ray.cancel(left, force=True)

    def _done(self, ray: Any, tasks: list[Any]) -> Any:
        """Return one of the tasks that is done, as soon as there is one; say so where no core can do any."""
        since: float | None = None
        while not (done := ray.wait(tasks, num_returns=1, timeout=LOOK_SECONDS)[0]):
            if _cores(ray):
                since = None
            elif since is None:
                since = time.monotonic()
                waits = f"waiting for a node with some, for {CORES_SECONDS / 60:.0f} minutes at most"
                sys.stderr.write(f"ptt: the Ray cluster at {self.address} has no CPUs; {waits}.\n")
            elif time.monotonic() - since > CORES_SECONDS:
                raise SettingsError(
                    f"--engine ray: no node of the cluster at {self.address} has had a CPU for "
                    f"{CORES_SECONDS / 60:.0f} minutes; add nodes, or start the head node with --num-cpus."
                )
        return done[0]

    def _answer(self, ray: Any, task: object) -> Any:
        """Get what came of a task; a worker that lacks what all tasks need ends the command."""
        try:
            answer = ray.get(self._done(ray, [task]))
        except ray.exceptions.RayTaskError as error:
            lines = str(error).splitlines()
            if "failed to import" in str(error) or isinstance(error.cause, ImportError):
                raise SettingsError(
                    f"a Ray worker cannot import ptt {__version__}: {lines[-1] if lines else error}; install "
                    "ptt-forensics[ray] in the environment of all nodes."
                ) from error
            return Died(how=f"it raised {lines[-1] if lines else type(error.cause).__name__}")
        except ray.exceptions.RayError as error:  # after so many tries
            return Died(how=f"its Ray worker died {1 + RETRIES} times ({type(error).__name__})")
        if isinstance(answer, Unfit):
            raise SettingsError(f"a node of the Ray cluster {answer.why}.")
        return answer

    def _join(self) -> Any:
        """Connect to the cluster, or start one; what Ray has to say goes to no output of ours."""
        if self._ray is not None:
            return self._ray
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing of ours reports to anybody
        os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # 30 are not enough on a machine that is busy
        with _quiet():
            import ray

            logging.getLogger("ray").setLevel(logging.ERROR)  # it sets another while it is imported
            if ray.is_initialized():  # by the program that called us, which also ends it
                self._ray = ray
                return ray
            own = self._own() if self.address == HERE else {}
            try:
                ray.init(
                    address=self.address,
                    log_to_driver=False,
                    configure_logging=False,
                    runtime_env={"env_vars": {THREADS: "1"}},  # a task has one core
                    **own,
                )
            except (Exception, SystemExit) as error:  # Ray raises of every kind, and ends the process too
                raise SettingsError(f"Ray at {self.address}: {_first_line(error)}; check --ray-address.") from error
        self._stack.callback(ray.shutdown)
        self._ray = ray
        return ray

    def _own(self) -> dict[str, object]:
        """Return what a Ray of our own is started with: nobody else can reach it, and its files go with us."""
        folder = self._stack.enter_context(temporary_folder("ptt-ray-"))
        return {
            "include_dashboard": False,
            "object_store_memory": STORE_BYTES * max(2, cores()),
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": folder if len(folder) <= MAX_FOLDER else None,
        }


def _cores(ray: Any) -> int:
    """Return how many cores the cluster has; 0 while its nodes are yet to join."""
    return int(ray.cluster_resources().get("CPU", 0))


def _refuse_unseen(answer: object, paths: Sequence[Path]) -> None:
    """Raise where a worker did not see files that are there."""
    if isinstance(answer, Unseen) and all(path.exists() for path in paths):
        raise SettingsError(f"{paths[0]}: is not on the node {answer.node}; {SAME_FILES}.")


def _find(address: str) -> None:
    """Raise where no cluster answers at an address in good time."""
    if address == "auto" or "://" in address:
        return  # Ray looks for these itself, and gives up by itself
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise SettingsError(f"--ray-address {address}: is not HOST:PORT of a head node, nor auto.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SettingsError(
            f"--ray-address {address}: nothing answers there ({why}); give a running head node."
        ) from error
    probe = [sys.executable, "-P", "-c", PROBE, address]  # -P: a ray.py in the current folder is none of ours
    try:
        subprocess.run(probe, check=True, timeout=JOIN_SECONDS, capture_output=True, text=True)  # noqa: S603  Python itself
    except subprocess.TimeoutExpired as error:
        raise SettingsError(
            f"--ray-address {address}: no Ray cluster answers there within {JOIN_SECONDS:.0f} s; give the port of the "
            "head node (6379 unless it was started with another)."
        ) from error
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "").strip().splitlines()
        raise SettingsError(f"--ray-address {address}: {lines[-1] if lines else 'Ray cannot join it'}.") from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0] or type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what Ray prints and warns of out of our output, and its handlers of signals out of our way."""
    of_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in END_SIGNALS} if of_main else {}
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

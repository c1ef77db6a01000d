"""Fold the pieces of a long run, and judge many runs, as tasks on a Ray cluster.

A task gets a piece or a run, a few hundred bytes of paths and numbers, and reads the files where it runs. Ray runs it
again where its worker or node dies. What it raises is raised here once more, by the same code as on one machine.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import platform
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.pieces import Group, Merged, Piece, RunPieces, fold_one
from ptt.diagnostics.errors import PttError, SettingsError
from ptt.diagnostics.statistics.merge_tree import merge_group
from ptt.diagnostics.statistics.partial_tables import PartialTables
from ptt.diagnostics.store.file_readings import Reading, RunTasks, read_task
from ptt.diagnostics.store.file_readings import Task as ReadTask
from ptt.diagnostics.store.scan import READ_ERRORS
from ptt.executors.ray_driver import RETRIES, Driver, Lost, LostClusterError, Raised
from ptt.executors.this_machine import cores
from ptt.object_stores.client import ObjectError
from ptt.object_stores.remote_paths import RemotePaths, url_of
from ptt.object_stores.remote_runs import RemoteFile, fetched
from ptt.processes import Died
from ptt.stopping import temporary_folder
from ptt.version import __version__

Task = TypeVar("Task")
Result = TypeVar("Result")
Key = TypeVar("Key")
Found = TypeVar("Found")

ADDRESS: Final = "RAY_ADDRESS"  # Ray's own variable, which `ray job submit` sets
HERE: Final = "local"  # Ray's word for a cluster of this machine alone, which ends with us
REACH_SECONDS: Final = 10.0  # to open a connection
FRESH_SECONDS: Final = 1.0  # for how long the number of cores is taken as it was
LOOK_SECONDS: Final = 5.0  # between two looks whether the cluster has cores, while nothing comes back
CORES_SECONDS: Final = 600.0  # for a node with cores to join: clouds start one in minutes
LOST_SECONDS: Final = 20.0  # for another to join where all that had cores are gone
JOIN_SECONDS: Final = 60.0  # for a cluster to answer: Ray itself tries for minutes
START_SECONDS: Final = 180.0  # for a Ray of our own, on a machine that is busy
AHEAD: Final = 4
"""Tasks in flight or done and not yet fetched, a core, and a group more: enough to go on while one is folded anew after
its node died. A piece's tables have some 9 MB at most, so that they take 40 MB a core of the cluster's memory."""
MERGE_FROM: Final = 8  # cores: fewer leave the driver time to add pieces up, and have no room for sixteen and a group
STORE_BYTES: Final = 64 << 20  # of shared memory a core of a cluster of our own
MAX_FOLDER: Final = 40  # characters: Ray keeps sockets below it, whose paths may have 107
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


def work(given: bytes, *answers: bytes) -> bytes:
    """Do a task as Ray carries it: what goes between the command and workers is opaque to the process between them."""
    return pickle.dumps(call(pickle.loads(given), *map(pickle.loads, answers)))  # noqa: S301  our own


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
        self._driver: Driver | None = None
        self._stack = ExitStack()
        self._had_cores, self._found_cores, self._look_from = False, 0, 0.0

    def __enter__(self) -> Self:
        if importlib.util.find_spec("ray") is None:
            raise SettingsError(
                "--engine ray: Ray is not installed; install it with `pip install 'ptt-forensics[ray]'`."
            )
        if self.address != HERE:
            _reach(self.address)
            self._join()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

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
        with closing(self._started(self._begun(pieces, groups), in_order=True)) as flights:
            for places, tasks in flights:
                merged = self._answer(tasks[-1]) if len(tasks) > len(places) else None
                if isinstance(merged, PartialTables):
                    yield places.start, Merged(tables=merged)
                    continue
                for place, task in zip(places, tasks, strict=False):
                    answer = self._answer(task)
                    _refuse_unseen(answer, [file.path for file in pieces[place].files])
                    yield place, answer if isinstance(answer, PartialTables) else None

    def _begun(self, pieces: Sequence[Piece], groups: Mapping[int, Group]) -> Iterator[tuple[range, list[int]]]:
        """Begin the tasks of one piece, or of one group with a last one that adds it up, whenever asked for the next.

        Whether the cluster has the cores for a group is looked at with each: it may grow and shrink meanwhile.
        """
        sized = [*map(SizedPiece.of, pieces)]
        place = 0
        while place < len(pieces):
            group = groups.get(place)
            if group is not None and 0 < self._cores() < MERGE_FROM:
                group = None
            places = range(place, place + (1 if group is None else len(group.pieces)))
            tasks = [self._begin(self._call(fold_or_say_why, sized[at])) for at in places]
            if group is not None:
                tasks.append(self._begin(self._call(merge_or_none, places), after=tasks))
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
        under_way = True
        try:
            with closing(self._answers(function, tasks, jobs=jobs, writes_to=os.fspath(writes_to))) as answers:
                yield from answers
            under_way = False
        finally:
            if under_way:  # for minutes, maybe: Ray ends what it does for a process that has left
                self._leave()

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
        begun = ((number, [self._begin(self._call(function, task, writes_to))]) for number, task in enumerate(tasks))
        with closing(self._started(begun, jobs=jobs, in_order=in_order)) as flights:
            for number, (task,) in flights:
                yield number, self._answer(task)

    def _begin(self, given: Call[Any], after: Sequence[int] = ()) -> int:
        return self._join().begin(pickle.dumps(given), after)

    def _call(self, function: Callable[..., Any], task: Task, writes_to: str | None = None) -> Call[Task]:
        return Call(
            function=function,
            task=task,
            folder=os.fspath(Path.cwd()),
            writes_to=writes_to,
            output=None if writes_to is None else url_of(Path(writes_to)),
            origin=origin_of(task, self._join().node),
        )

    def _started(
        self, begun: Iterator[tuple[Key, list[int]]], *, jobs: int | None = None, in_order: bool = False
    ) -> Generator[tuple[Key, list[int]]]:
        """Yield each key of `begun` with its tasks, once the last of these is done.

        With `in_order`, keys come in the order of `begun`, and their tasks may still be running. At most `jobs` tasks
        (by default `AHEAD` per core) are in flight; a key's tasks count until the caller asks for the next key. Those
        that are in flight when the caller asks no more are left to end by themselves.
        """
        flying: dict[int, tuple[Key, list[int]]] = {}  # by the last task of each
        held, more = 0, True  # tasks
        try:
            while more or flying:
                room = jobs or max(2, AHEAD * self._cores())
                while more and held < room:
                    following = next(begun, None)
                    more = following is not None
                    if following is not None:
                        flying[following[1][-1]] = following
                        held += len(following[1])
                if flying:
                    done = next(iter(flying)) if in_order else self._first_done(list(flying))
                    yield flying[done]
                    _, tasks = flying.pop(done)
                    self._join().drop(tasks)
                    held -= len(tasks)
        finally:
            if self._driver is not None:
                self._driver.drop([task for _, tasks in flying.values() for task in tasks])

    def _first_done(self, tasks: Sequence[int]) -> int:
        return self._until(partial(self._join().first_done, tasks, LOOK_SECONDS))

    def _until(self, look: Callable[[], Found | None]) -> Found:
        """Look until there is something; say so where no core can do any task."""
        since: float | None = None
        while (found := look()) is None:
            longest = LOST_SECONDS if self._had_cores else CORES_SECONDS
            if self._cores():
                since = None
            elif since is None:
                since = time.monotonic()
                at_most = f"{longest / 60:.0f} minutes" if longest >= 60 else f"{longest:.0f} s"
                waits = f"waiting for a node with some, for {at_most} at most"
                sys.stderr.write(f"ptt: the Ray cluster at {self.address} has no CPUs; {waits}.\n")
            elif time.monotonic() - since > longest and self._had_cores:
                raise LostClusterError(
                    self.address, f"its nodes with CPUs have left, and none has joined for {longest:.0f} s"
                )
            elif time.monotonic() - since > longest:
                raise SettingsError(
                    f"--engine ray: no node of the cluster at {self.address} has had a CPU for "
                    f"{longest / 60:.0f} minutes; add nodes, or start the head node with --num-cpus."
                )
        return found

    def _cores(self) -> int:
        """Return how many cores the cluster has; 0 while its nodes are yet to join."""
        if (now := time.monotonic()) >= self._look_from:
            self._found_cores, self._look_from = self._join().cores(), now + FRESH_SECONDS
            self._had_cores |= self._found_cores > 0
        return self._found_cores

    def _answer(self, task: int) -> Any:
        """Get what came of a task; a worker that lacks what all tasks need ends the command."""
        result = self._until(partial(self._join().result, task, LOOK_SECONDS))
        if isinstance(result, Raised) and result.cannot_import:
            raise SettingsError(
                f"a Ray worker cannot import ptt {__version__}: {result.last}; install ptt-forensics[ray] in the "
                "environment of all nodes."
            )
        if isinstance(result, Raised):
            return Died(how=f"it raised {result.last}")
        if isinstance(result, Lost):
            self._join().cores()  # raises where not the task is lost, but the cluster
            return Died(how=f"its Ray worker died {1 + RETRIES} times ({result.kind})")
        assert isinstance(result, bytes)
        answer = pickle.loads(result)  # noqa: S301  of a worker, which runs what we tell it
        if isinstance(answer, Unfit):
            raise SettingsError(f"a node of the Ray cluster {answer.why}.")
        return answer

    def _join(self) -> Driver:
        """Connect to the cluster, or start one."""
        if self._driver is not None and not self._driver.ended:
            return self._driver
        self._leave()  # one that has ended, in a program that goes on
        folder = self._stack.enter_context(temporary_folder("ptt-ray-"))
        address = _of_program() or HERE if self.address == HERE else self.address
        own, seconds = (_own(folder), START_SECONDS) if address == HERE else ({}, JOIN_SECONDS)
        try:
            self._driver = Driver(work, address, folder, own, seconds=seconds)
        except LostClusterError as error:
            self._leave()
            check = "check --ray-address, and its port: 6379 unless the head node was started with another"
            raise SettingsError(f"Ray at {address}: {error.why}; {check}.") from error
        return self._driver

    def _leave(self) -> None:
        """End the process that talks to Ray, and a Ray of our own with it."""
        if self._driver is not None:
            self._driver.leave()
        self._driver = None
        self._stack.close()


def _own(folder: str) -> dict[str, object]:
    """Return what a Ray of our own is started with: nobody else can reach it, and its files go with us."""
    return {
        "include_dashboard": False,
        "object_store_memory": STORE_BYTES * max(2, cores()),
        "_node_ip_address": "127.0.0.1",
        "_temp_dir": folder if len(folder) <= MAX_FOLDER else None,
    }


def _of_program() -> str | None:
    """Return the address of the cluster that the program that called us has joined."""
    ray = sys.modules.get("ray")
    return str(ray.get_runtime_context().gcs_address) if ray is not None and ray.is_initialized() else None


def _refuse_unseen(answer: object, paths: Sequence[Path]) -> None:
    """Raise where a worker did not see files that are there."""
    if isinstance(answer, Unseen) and all(path.exists() for path in paths):
        raise SettingsError(f"{paths[0]}: is not on the node {answer.node}; {SAME_FILES}.")


def _reach(address: str) -> None:
    """Raise where nothing answers at an address in good time."""
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


@dataclass(frozen=True, kw_only=True)
class SizedPiece:
    """A piece, and how large its files are where the command runs."""

    piece: Piece
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, piece: Piece) -> SizedPiece:
        """Measure the files; one that cannot be measured is met where the piece is folded here."""
        try:
            return cls(piece=piece, sizes=sizes_of(piece))
        except OSError:
            return cls(piece=piece, sizes=())


def sizes_of(piece: Piece) -> tuple[int, ...]:
    """Measure the files of a piece."""
    return tuple(file.path.stat().st_size for file in piece.files)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a task's files come from: a whole run, or some objects of one in the order of the task's files."""

    home: str  # node that laid them out
    run: str | None = None
    files: tuple[RemoteFile, ...] = ()
    every_column: bool = False


def origin_of(task: object, home: str) -> Origin | None:
    """Return where the files of a task come from, on the node that laid them out; None for files of a file system."""
    held = task.piece if isinstance(task, SizedPiece) else task
    if isinstance(held, Piece | ReadTask):
        paths = [file.path for file in held.files]
        urls = list(map(url_of, paths))
        if not all(urls):
            return None
        try:
            states = [path.stat() for path in paths]
        except OSError:  # met where the files are read
            return None
        files = tuple(
            RemoteFile(url=url, size=state.st_size, mtime_ns=state.st_mtime_ns)
            for url, state in zip(urls, states, strict=True)
            if url is not None
        )
        return Origin(home=home, files=files, every_column=isinstance(held, ReadTask))
    run = getattr(task, "run", None)
    url = url_of(run) if isinstance(run, Path) else None
    return None if url is None else Origin(home=home, run=url)


@contextmanager
def at_hand(task: Any, origin: Origin | None, node: str) -> Iterator[Any]:
    """Yield a task whose files are on this node while the block runs.

    Raises ObjectError where an object is no longer what it was, and PttError where the store cannot be read from here.
    """
    if origin is None or node == origin.home:
        yield task
    elif origin.run is not None:
        with RemotePaths() as remote:
            yield replace(task, run=remote.run_or_why(Path(origin.run)))
    else:
        with fetched(origin.files, every_column=origin.every_column) as paths:
            held = task.piece if isinstance(task, SizedPiece) else task
            here = (replace(file, path=path) for file, path in zip(held.files, paths, strict=True))
            held = replace(held, files=tuple(here))
            yield replace(task, piece=held) if isinstance(task, SizedPiece) else held

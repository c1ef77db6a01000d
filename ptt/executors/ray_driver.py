"""The process that talks to Ray for the command: Ray's own code may end it, or never answer, and ends nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import SettingsError, first_line
from ptt.processes import THREADS, Died, Worker, uninterrupted
from ptt.stopping import kill_sessions

RETRIES: Final = 3  # of a task whose worker or node died
ANSWER_SECONDS: Final = 35.0  # for any answer: without a head node Ray tries for a minute, and then ends the process
LEAVE_SECONDS: Final = 15.0  # to leave a cluster
SAYS: Final = re.compile(r"^\[.* [CE] [\d ]+\] (?:\(.*?\) )?(\w+\.(?:cc|h):\d+: .+)$", re.MULTILINE)  # when it ends


@dataclass(frozen=True, kw_only=True)
class Raised:
    """What a task raised, by its last line."""

    last: str
    cannot_import: bool


@dataclass(frozen=True, kw_only=True)
class Lost:
    """A task whose workers died each time, by the name of Ray's exception."""

    kind: str


@dataclass(frozen=True, kw_only=True)
class Broken:
    """Why Ray did not do what it was asked for."""

    why: str


class LostClusterError(SettingsError):
    """Ray ended while the command needed it."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(
            f"--engine ray: Ray at {address} is gone: {why}; run the same command again, which goes on from what is "
            "kept, or run it without --engine ray."
        )
        self.why = why


class Driver:
    """The command's side: it asks one thing after the other, and waits for each answer for a bounded time."""

    def __init__(
        self, work: Callable[..., bytes], address: str, folder: str, own: Mapping[str, object], *, seconds: float
    ) -> None:
        """Join a cluster, or start one, within so many seconds; raises LostClusterError where there is none.

        `work`: does a task, given what came of others; `folder`: for what Ray says; `own`: what Ray is started with.
        """
        self.ended = False  # so that nothing can be asked any more
        self._address, self._own = address, bool(own)
        self._said = Path(folder) / "driver.txt"
        self._count = 0
        self._begun: list[tuple[int, bytes, tuple[int, ...]]] = []  # said with the next question, as what is dropped
        self._dropped: list[int] = []
        with uninterrupted():
            self._worker = Worker(_answer, {"TMPDIR": folder} if own.get("_temp_dir") else {}, imports_main=False)
        self.node = cast("str", self._ask("join", work, address, self._said, own, seconds=seconds))

    def begin(self, task: bytes, after: Sequence[int] = ()) -> int:
        """Begin a task, which goes on from what came of others, and return its number."""
        self._count += 1
        self._begun.append((self._count, task, tuple(after)))
        return self._count

    def drop(self, tasks: Sequence[int]) -> None:
        """Let go of what comes of tasks; those that are under way end by themselves."""
        self._dropped += tasks

    def first_done(self, tasks: Sequence[int], seconds: float) -> int | None:
        """Return one of the tasks that is done, as soon as there is one; None where there is none in time."""
        return cast("int | None", self._ask("first_done", tasks, seconds, seconds=seconds + ANSWER_SECONDS))

    def result(self, task: int, seconds: float) -> bytes | Raised | Lost | None:
        """Return what came of a task; None where it is not done in time."""
        found = self._ask("result", task, seconds, seconds=seconds + ANSWER_SECONDS)
        return cast("bytes | Raised | Lost | None", found)

    def cores(self) -> int:
        """Return how many cores the cluster has; 0 while its nodes are yet to join."""
        return cast("int", self._ask("cores"))

    def leave(self) -> None:
        """End the process; a cluster then ends what it still does for it, and a Ray of our own ends."""
        if not self.ended:
            self._worker.process.terminate()
        self._end(LEAVE_SECONDS)

    def _end(self, seconds: float = 0.0) -> None:
        if self.ended:
            return
        self.ended = True
        if self._own:
            kill_sessions([self._worker.process.pid])  # some look for the others for minutes before they end
        self._worker.end(seconds)

    def _ask(self, what: str, *given: object, seconds: float = ANSWER_SECONDS) -> object:
        question = (self._begun, self._dropped, what, given)
        self._begun, self._dropped = [], []
        try:
            self._worker.give(0, question)
            said = self._worker.answer(seconds)
        except BaseException:  # what is answered later would be taken for the answer to another question
            self._end()
            raise
        if isinstance(said, Died):
            why = f"{said.how}{self._last_words()}"
        elif isinstance(said, Broken):
            why = said.why
        else:
            return said
        self._end()
        raise LostClusterError(self._address, why)

    def _last_words(self) -> str:
        try:
            words = SAYS.findall(self._said.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return ""
        return f" ({words[-1].strip().rstrip('.')})" if words else ""


class _Joined:
    """What the process knows of Ray."""

    def __init__(self, work: Callable[..., bytes], address: str, said: Path, own: Mapping[str, object]) -> None:
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for ours in (1, 2):  # what Ray prints goes to no output of ours
            os.dup2(output, ours)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing of ours reports to anybody
        os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # 30 are not enough on a machine that is busy
        if own and hasattr(os, "setsid"):
            os.setsid()  # of processes that end together
        import ray

        ray.init(
            address=address,
            log_to_driver=False,
            configure_logging=False,
            runtime_env={"env_vars": {THREADS: "1"}},  # a task has one core
            **own,
        )
        self._ray: Any = ray
        self._work = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)(work)
        self._tasks: dict[int, Any] = {}
        self.node = str(ray.get_runtime_context().get_node_id())

    def begin(self, number: int, task: bytes, after: Sequence[int]) -> None:
        self._tasks[number] = self._work.remote(task, *(self._tasks[other] for other in after))

    def drop(self, number: int) -> None:
        del self._tasks[number]  # no `ray.cancel`: Ray 2.60 ends this process where a task is done at that moment

    def first_done(self, numbers: Sequence[int], seconds: float) -> int | None:
        found = {self._tasks[number]: number for number in numbers}
        done, _ = self._ray.wait(list(found), num_returns=1, timeout=seconds)
        return found[done[0]] if done else None

    def result(self, number: int, seconds: float) -> object:
        task, errors = self._tasks[number], self._ray.exceptions
        if not self._ray.wait([task], timeout=seconds)[0]:
            return None
        try:
            return self._ray.get(task)
        except errors.RayTaskError as error:
            lines = str(error).splitlines()
            cannot_import = "failed to import" in str(error) or isinstance(error.cause, ImportError)
            return Raised(last=lines[-1] if lines else type(error.cause).__name__, cannot_import=cannot_import)
        except (errors.LocalRayletDiedError, errors.RaySystemError, errors.RpcError):
            raise  # not the task is lost, but the cluster, or our node of it
        except errors.RayError as error:  # after so many tries
            return Lost(kind=type(error).__name__)

    def cores(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))


_joined: list[_Joined] = []  # at most one, in the process


def _answer(question: tuple[Sequence[tuple[int, bytes, Sequence[int]]], Sequence[int], str, tuple[Any, ...]]) -> object:
    """Do what the command says and asks, in the process."""
    begun, dropped, what, given = question
    try:
        if what == "join":
            _joined.append(_Joined(*given))
            return _joined[0].node
        for number, task, after in begun:
            _joined[0].begin(number, task, after)
        for number in dropped:
            _joined[0].drop(number)
        return getattr(_joined[0], what)(*given)
    except (Exception, SystemExit) as error:  # Ray raises of every kind, and ends the process too
        return Broken(why=first_line(error))

"""Stop the command and its processes within two seconds of a signal, leaving no process and no temporary folder.

Python hears a signal between two steps of its own, and a query of Polars or a running thread may keep it from that for
long. So a thread listens as well, and ends what has not ended by itself in time.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

END_SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
GRACE_SECONDS: Final = 1.3  # to end in order, of the two that are promised: giving back gigabytes takes a while as well
DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG in Linux' <sys/prctl.h>
PARENT: Final = "PTT_ENDS_WITH"
"""A variable that a process of ours is started with: the number of the process that it ends with. `ptt/__init__.py`
looks for it, since a process hears of its function only after it has imported all that this needs."""

OBJECTS_PER_COLLECTION: Final = 400_000
"""Python looks for cycles of garbage after 700 new objects: hundreds of times while a thousand modules are imported,
which alone leave 200,000, and each look at so many takes 80 ms."""

_folders: set[Path] = set()


@contextmanager
def temporary_folder(prefix: str = "ptt-", within: Path | None = None) -> Iterator[str]:
    """Make a folder that goes with the block, and also where the command is stopped in the middle of anything.

    `within`: where it lies, if not where the system keeps temporary files, which may be memory.
    """
    import tempfile  # here, as below: start-up counts

    home = within or Path(tempfile.gettempdir())
    folder = home.absolute() / f"{prefix}{os.urandom(8).hex()}"
    _folders.add(folder)  # before it is there: a signal may come between any two steps
    folder.mkdir(mode=0o700)
    try:
        yield str(folder)
    finally:
        _remove(folder)
        _folders.discard(folder)


def _remove_folders() -> None:
    for folder in tuple(_folders):
        _remove(folder)


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def collect_seldom() -> None:
    """Look for cycles of garbage seldom, and not at the end, when Python would go through all objects thrice."""
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    atexit.register(gc.freeze)


def until_stopped(run: Callable[[], None]) -> None:
    """Run the command; where a signal ends it, end as Ctrl-C does, with code 128 + number. What is ignored stays so.

    A function rather than a context, so that no step of entering one lies outside of what is caught.
    """
    heard: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        heard.append(number)
        if len(heard) == 1:  # a second one would interrupt the clearing up
            raise KeyboardInterrupt

    try:
        listening = [number for number in END_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # as by nohup
        for number in listening:
            signal.signal(number, stop)
        _listen(frozenset(listening))
        run()
    except BaseException:
        if not heard:
            raise  # nobody stopped it: whatever it is, it is shown as ever
    finally:
        if heard:
            _remove_folders()
    if heard:
        _exit(128 + heard[0])


def _exit(code: int) -> None:
    """End with this code: `sys.exit` gives 130 where KeyboardInterrupt came through an `exec`, as in an import."""
    _kill_processes()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _listen(signals: frozenset[int]) -> None:
    """Start the thread that ends the process where it does not end by itself."""
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    signal.set_wakeup_fd(sender, warn_on_full_buffer=False)

    def wait() -> None:
        while (number := os.read(receiver, 1)[0]) not in signals:
            pass
        time.sleep(GRACE_SECONDS)
        _kill_processes()
        _remove_folders()
        os._exit(128 + number)

    threading.Thread(target=wait, name="listens for signals", daemon=True).start()


def _kill_processes() -> None:
    """Kill what works for us: a process that is about to start would end by itself, only later."""
    if (multiprocessing := sys.modules.get("multiprocessing")) is not None:  # what was not imported started none
        children = multiprocessing.active_children()
        for child in children:
            with suppress(OSError):
                child.kill()
        kill_sessions([child.pid for child in children])


def kill_sessions(leaders: Sequence[int | None]) -> None:
    """Kill what is in the session of one of these processes, as a Ray of our own has; on Linux only."""
    sessions = {str(leader).encode() for leader in leaders}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if status.read_bytes().rpartition(b")")[2].split()[3] in sessions:
                os.kill(int(status.parent.name), signal.SIGKILL)


def end_early_with_parent() -> None:
    """Let this process end when the one that started it does, from now on: what it imports first may take seconds.

    Only Linux lets it, and only a process that `multiprocessing` started from a thread that stays (see PARENT).
    """
    parent = os.environ.pop(PARENT, "")  # not for what this one starts
    if sys.platform.startswith("linux") and "--multiprocessing-fork" in sys.orig_argv:
        _ask_linux()
        if str(os.getppid()) != parent:  # it ended before we asked
            os._exit(1)


def end_with_parent(*, thread_stays: bool) -> None:
    """Let this process, one of `multiprocessing`, end when the one that started it does, in whatever way that ends.

    `thread_stays`: the thread that started it lives as long as its process does; Linux goes by the thread.
    """
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is None:
        return
    if thread_stays and sys.platform.startswith("linux"):
        _ask_linux()
        if os.getppid() != parent.pid:  # it ended before we asked
            os._exit(1)
    threading.Thread(target=_outlive, args=(parent.join,), name="watches the parent", daemon=True).start()


def _ask_linux() -> None:
    """Ask for SIGKILL at the parent's end: it comes also while a long call keeps every thread of Python waiting."""
    import ctypes

    with suppress(OSError, AttributeError):  # a C library without it: the thread is what is left
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)


def _outlive(wait: Callable[[], object]) -> None:
    wait()  # at the end of a pipe that the parent holds: it closes in whatever way that one ends
    os._exit(1)

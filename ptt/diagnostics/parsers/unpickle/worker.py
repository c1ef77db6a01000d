"""This side of the reading process: started once, asked file by file, ended when it takes too long."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

from ptt.diagnostics.parsers.unpickle import wire
from ptt.diagnostics.parsers.unpickle.values import Array, Limits, Plain, RefusedError

# -I: neither the folder ptt is called in nor the environment may put a module before ours.
START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ptt.diagnostics.parsers.unpickle.child import main; main()"
)
TEXT_MOST: Final = 1 << 29  # of JSON, which the limits on nodes and text keep far below
GRACE: Final = 5.0  # seconds to end by itself


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a file holds; `guarded` is false where the system cannot limit the memory of a process."""

    value: Plain
    guarded: bool


class Worker:
    """A process that reads files. It starts with the first file, is replaced when it dies, and ends with `close`.

    `read` may be called from several threads; files are read one after the other.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, path: Path) -> Answer:
        """Return what the file holds. Raises RefusedError with the reason if it will not be read, or OSError."""
        size = path.stat().st_size
        with self._lock:
            message, arrays = self._timed(path, size)
        if isinstance(reason := message.get("refused"), str):
            raise RefusedError(reason)
        return Answer(value=wire.decode(message.get("tree"), arrays), guarded=message.get("guarded") is True)

    def close(self) -> None:
        """End the process; the next `read` starts another."""
        with self._lock:
            self._end(kill=False)

    def _timed(self, path: Path, size: int) -> tuple[dict[str, Any], list[Array]]:
        process = self._running()
        late = threading.Event()
        seconds = self._limits.clock_for(size)

        def stop() -> None:
            late.set()
            process.kill()

        clock = threading.Timer(seconds, stop)
        clock.daemon = True
        clock.start()
        try:
            message, arrays = self._ask(process, path, size)
        except EOFError as error:
            code = self._end(kill=False)
            raise RefusedError(_death(code, late=seconds if late.is_set() else None)) from error
        except BaseException:  # Ctrl-C as well: what is still to come would be taken for the next answer; raised again
            self._end(kill=True)
            raise
        finally:
            clock.cancel()
        if "spent" in message:  # a process that ran out of memory once has little to start from
            self._end(kill=True)
        return message, arrays

    def _ask(self, process: subprocess.Popen[bytes], path: Path, size: int) -> tuple[dict[str, Any], list[Array]]:
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"path": str(path.resolve()), "limits": asdict(self._limits)}
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:  # it died since the last answer
            raise EOFError from error
        text_size, body_size = wire.HEAD.unpack(_exactly(process.stdout, wire.HEAD.size))
        limits = self._limits
        if text_size > TEXT_MOST or body_size > limits.arrays_for(size, packed=True):
            raise RefusedError("the reading process answered nonsense")
        text = _exactly(process.stdout, text_size)
        return wire.unpack(bytes(text), memoryview(_exactly(process.stdout, body_size)))

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._end(kill=True)
        if self._process is None:
            path = json.dumps([part for part in sys.path if part])
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and nothing of a file's in the command
                [sys.executable, "-I", "-c", START, path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def _end(self, *, kill: bool) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        if kill:
            process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # a request that was never taken
                    pipe.close()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return process.returncode


def _death(code: int | None, *, late: float | None) -> str:
    if late is not None:
        return f"reading it takes longer than {late:.0f} seconds"
    if code is not None and -code == getattr(signal, "SIGXCPU", None):
        return "reading it takes more time than its size explains"
    return f"the process that read it died (exit code {code})"


def _exactly(stream: IO[bytes], size: int) -> bytearray:
    """Read `size` bytes; fewer mean that the process has died."""
    found = bytearray(size)
    view, at = memoryview(found), 0
    while at < size:
        count = stream.readinto(view[at:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        at += count
    return found

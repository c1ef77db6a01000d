"""The reading process from the outside: started once, asked file by file, ended when it takes too long.

Plain values travel from it as JSON with the arrays' bytes behind it, never as a pickle."""

from __future__ import annotations

import json
import math
import signal
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers.unpickle.values import Array, Limits, Node, Plain, RefusedError

HEAD: Final = struct.Struct("<QQ")  # bytes of JSON, bytes of arrays
ALLOWED: Final = frozenset("biuf")


def encode(value: Plain) -> tuple[Any, list[Array]]:
    """Return a tree for JSON and the arrays it refers to; each array once."""
    arrays: list[Array] = []
    places: dict[int, int] = {}

    def tree(item: Plain) -> Any:
        if isinstance(item, np.ndarray):
            if id(item) not in places:
                places[id(item)] = len(arrays)
                arrays.append(np.ascontiguousarray(item))
            return ["a", places[id(item)]]
        if isinstance(item, list):
            return ["l", [tree(entry) for entry in item]]
        if isinstance(item, dict):
            return ["d", [[key, tree(entry)] for key, entry in item.items()]]
        if isinstance(item, Node):
            return ["n", item.name, [tree(arg) for arg in item.args], tree(item.state)]
        return item

    return tree(value), arrays


def pack(message: dict[str, Any], arrays: list[Array]) -> list[bytes | memoryview]:
    """Return what is to be written, piece by piece."""
    message["arrays"] = [[made.dtype.str, list(made.shape)] for made in arrays]
    text = json.dumps(message).encode()
    bodies = [made.reshape(-1).view(np.uint8).data for made in arrays if made.size]
    return [HEAD.pack(len(text), sum(body.nbytes for body in bodies)), text, *bodies]


def unpack(text: bytes, body: memoryview) -> tuple[dict[str, Any], list[Array]]:
    """Read a message back; everything is checked, since the sender has read a hostile file."""
    try:
        message = json.loads(text)
        arrays, at = [], 0
        for code, shape in message["arrays"]:
            dtype = np.dtype(str(code))
            size = math.prod(shape) * dtype.itemsize
            if dtype.kind not in ALLOWED or min(shape, default=0) < 0 or at + size > len(body):
                raise RefusedError("the reading process gave an invalid answer")
            arrays.append(np.frombuffer(body[at : at + size], dtype).reshape(shape))
            at += size
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RefusedError("the reading process gave an invalid answer") from error
    return message, arrays


def decode(tree: Any, arrays: list[Array]) -> Plain:
    """Undo `encode`."""
    if not isinstance(tree, list):
        return tree  # type: ignore[no-any-return]
    match tree:
        case ["a", int(at)] if 0 <= at < len(arrays):
            return arrays[at]
        case ["l", list(entries)]:
            return [decode(entry, arrays) for entry in entries]
        case ["d", list(pairs)]:
            return {key: decode(entry, arrays) for key, entry in pairs}
        case ["n", str(name), list(args), state]:
            return Node(name, [decode(arg, arrays) for arg in args], decode(state, arrays))
        case _:
            raise RefusedError("the reading process gave an invalid answer")


# -I: neither the current folder nor the environment may put a module before ours.
START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ptt.diagnostics.parsers.unpickle.child import main; main()"
)
MAX_JSON_BYTES: Final = 1 << 29  # of JSON; the limits on nodes and text keep it far below
GRACE: Final = 5.0  # seconds to end on its own


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A file's content; `guarded` is false if the system cannot limit a process's memory."""

    value: Plain
    guarded: bool
    seconds: float = 0.0  # CPU time that reading took


class Worker:
    """A process that reads files. It starts with the first file, is replaced when it dies, and ends with `close`.

    `read` may be called from several threads; files are read one after the other.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, path: Path, *, seconds: float | None = None) -> Answer:
        """Return the file's content, using at most `seconds` of CPU time.

        Raises RefusedError, with the reason and the time spent, if the file is refused; or OSError.
        """
        size = path.stat().st_size
        limits = self._limits if seconds is None else replace(self._limits, cpu=min(self._limits.cpu, seconds))
        with self._lock:
            message, arrays = self._timed(path, size, limits)
        took = message.get("seconds")
        took = float(took) if isinstance(took, int | float) else 0.0
        if isinstance(reason := message.get("refused"), str):
            raise RefusedError(reason, seconds=took)
        value = decode(message.get("tree"), arrays)
        return Answer(value=value, guarded=message.get("guarded") is True, seconds=took)

    def close(self) -> None:
        """End the process; the next `read` starts another."""
        with self._lock:
            self._end(kill=False)

    def _timed(self, path: Path, size: int, limits: Limits) -> tuple[dict[str, Any], list[Array]]:
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
            message, arrays = self._ask(process, path, size, limits)
        except EOFError as error:
            code = self._end(kill=False)
            why = _death(code, late=seconds if late.is_set() else None)
            raise RefusedError(why, seconds=limits.cpu_for(size)) from error
        except BaseException:  # Ctrl-C as well: what is still to come would be taken for the next answer; raised again
            self._end(kill=True)
            raise
        finally:
            clock.cancel()
        if "spent" in message:  # a process that ran out of memory once has little to start from
            self._end(kill=True)
        return message, arrays

    def _ask(
        self, process: subprocess.Popen[bytes], path: Path, size: int, limits: Limits
    ) -> tuple[dict[str, Any], list[Array]]:
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"path": str(path.resolve()), "limits": asdict(limits)}
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:  # it died since the last answer
            raise EOFError from error
        text_size, body_size = HEAD.unpack(_exactly(process.stdout, HEAD.size))
        if text_size > MAX_JSON_BYTES or body_size > limits.arrays_for(size, packed=True):
            raise RefusedError("the reading process gave an invalid answer")
        text = _exactly(process.stdout, text_size)
        return unpack(bytes(text), memoryview(_exactly(process.stdout, body_size)))

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
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        count = stream.readinto(view[at:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        at += count
    return data

"""Start `ptt watch` on what a recorder writes, in a process of its own, and hear what it tells; training never waits.

What the trainer logs goes to its standard input, in lines that a full pipe drops whole. Its standard output brings a
line of JSON for each notice. Where it dies, training goes on unwatched.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

CRITICAL: Final = "critical"
EVERY_SECONDS: Final = 2.0
PIPE_BYTES: Final = 4096  # that POSIX writes to a pipe whole or not at all
EXIT_SECONDS: Final = 60.0  # that the end of the program waits for the report
PACKAGE: Final = Path(__file__).parents[2]


def check_stop(stop: str | None, *, watch: bool) -> None:
    """Refuse what a stop cannot go by, before training."""
    if stop not in (None, CRITICAL):
        raise ValueError(f"stop={stop!r}: give 'critical', which ends training on the stop budget alone, or None.")
    if stop is not None and not watch:
        raise ValueError(f"stop={stop!r} takes watch=True, which finds out when.")


class WatchProcess:
    """The process that judges a run while it trains, and what it has told so far."""

    def __init__(self, folder: Path, report_dir: str | os.PathLike[str] | None, say: Any) -> None:
        """`say(text, level)` tells the user."""
        out = [] if report_dir is None else ["--out", os.fspath(report_dir)]
        words = ["watch", os.fspath(folder), *out, "--json", "--from-trainer", "--every", str(EVERY_SECONDS)]
        paths = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
        alone = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1", "CUDA_VISIBLE_DEVICES": ""}
        threads = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}  # beside a trainer that needs the cores
        self._process = subprocess.Popen(  # noqa: S603  ourselves
            [sys.executable, "-m", "ptt", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **alone, **threads},
            start_new_session=True,  # what interrupts the training lets this one judge it
        )
        self._say, self._closed = say, False
        self.alarms: list[dict[str, Any]] = []
        self._taken = 0
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
        self._threads = [
            threading.Thread(target=read, args=(stream,), name="hears the watch", daemon=True)
            for read, stream in ((self._hear, self._process.stdout), (self._pass_on, self._process.stderr))
        ]
        for thread in self._threads:
            thread.start()
        atexit.register(self._at_exit, os.getpid())

    @property
    def stop(self) -> dict[str, Any] | None:
        """The first alarm that ends training, if one was told."""
        return next((alarm for alarm in list(self.alarms) if alarm["kind"] == "stop"), None)

    def new_alarms(self) -> list[dict[str, Any]]:
        """Return what was told since this was last asked."""
        new = self.alarms[self._taken :]
        self._taken += len(new)
        return new

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Hand over what the trainer logged at a step; numbers alone."""
        numbers = {
            str(name): float(value)
            for name, value in metrics.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        lines, line = [], ""
        for name, value in numbers.items():  # a line a few metrics, each small enough
            entry = f"{json.dumps(name)}: {json.dumps(value if math.isfinite(value) else float(value))}"
            if line and len(line) + len(entry) > PIPE_BYTES - 100:
                lines.append(line)
                line = ""
            line += f", {entry}" if line else entry
        for some in filter(None, [*lines, line]):
            self._write(f'{{"step": {int(step)}, "metrics": {{{some}}}}}\n'.encode())

    def _write(self, line: bytes) -> None:
        stdin = self._process.stdin
        if stdin is not None and not self._closed and len(line) <= PIPE_BYTES:
            with suppress(OSError):  # full, as where the watch hangs, or broken, as where it died
                os.write(stdin.fileno(), line)

    def close(self) -> None:
        """Say that training is over: the watch tests what is left, judges the run, and ends."""
        if not self._closed and self._process.stdin is not None:
            self._write(b'{"ended": true}\n')
            self._closed = True
            with suppress(OSError):
                self._process.stdin.close()

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for the report, and return the exit code of `ptt watch`; None where it takes longer."""
        self.close()
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        for thread in self._threads:
            thread.join(1.0)
        return code

    def _at_exit(self, process: int) -> None:
        if os.getpid() == process:  # and not a fork of it
            self.wait(EXIT_SECONDS)

    def _hear(self, stream: IO[bytes]) -> None:
        for line in stream:
            with suppress(ValueError, KeyError, TypeError):
                notice = json.loads(line)
                if notice["kind"] in ("warning", "stop"):
                    self.alarms.append(notice)
                step = "" if notice.get("step") is None else f"step {notice['step']}: "
                self._say(f"{step}{notice['kind']}: {notice['text']}", logging.WARNING)
        if not self._closed:
            self._process.wait()
            self._say("the watch has ended before the training, which goes on unwatched", logging.WARNING)

    def _pass_on(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._say(line.decode("utf-8", "replace").rstrip().removeprefix("ptt: "), logging.INFO)

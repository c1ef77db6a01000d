"""The command in a process of its own and the processes it starts, for tests that interrupt or kill them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

LINUX = Path("/proc/self/task").is_dir()


def started(*words: str, temporary: Path = Path("tmp")) -> subprocess.Popen[str]:
    """Start the command as a user does, with temporary files in a folder of its own."""
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "ptt", *words],
        env={**os.environ, "TMPDIR": str(temporary.absolute())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def exit_code(process: subprocess.Popen[str]) -> int:
    """Give the code as a shell does: Python ends by the signal itself where Ctrl-C fell into an `exec` of some text."""
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def until_spawned(process: subprocess.Popen[str], count: int, seconds: float = 60.0) -> list[int]:
    """Wait until the command has started so many processes that work for it, on Linux, and give their numbers."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if len(found := _spawned(process.pid)) == count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"it did not start as many processes as {count}")


def _spawned(parent: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if b"spawn_main" in command:
            found.append(int(child))
    return found

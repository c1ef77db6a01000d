"""Draw the report in a second process: importing matplotlib takes as long as judging a small run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import TYPE_CHECKING

from ptt.workers import leave_ctrl_c_to_the_parent, uninterrupted

if TYPE_CHECKING:
    from ptt.diagnostics.model import Diagnosis


class Artist:
    """A process that has imported what draws by the time there is something to draw."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        with uninterrupted():
            pool.submit(_ready)  # starts the process

    def html(self, diagnosis: Diagnosis) -> str:
        """Give the report."""
        return self._pool.submit(_html, diagnosis).result()


@contextmanager
def artist() -> Iterator[Artist]:
    """Start the process, and end it with the block whatever happens."""
    spawn = get_context("spawn")  # a fork of a process with threads may hang
    pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=leave_ctrl_c_to_the_parent)
    try:
        yield Artist(pool)
    except BaseException:  # Ctrl-C as well: nothing will be drawn, so do not wait until the process has imported all
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _ready() -> None:
    from ptt.reports import render  # noqa: F401


def _html(diagnosis: Diagnosis) -> str:
    from ptt.reports.render import render_html

    return render_html(diagnosis)

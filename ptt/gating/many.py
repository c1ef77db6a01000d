"""Gates many runs: those that are kept as they are now at once, the others in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Final

from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.values import GatedRun
from ptt.gating.one import Refused, Task, gate_kept, gate_one, lost
from ptt.workers import EACH, Died, in_workers

MOST_JOBS: Final = 4  # by default: each process may need the memory of a whole run

Told = Callable[[GatedRun, int, int], None]
"""Hears of each run as it is done, how many are done, and of how many."""


class Stopped(Exception):  # noqa: N818  Ctrl-C is no error
    """Ended by Ctrl-C after so many runs."""

    def __init__(self, *, done: int) -> None:
        super().__init__(f"stopped after {done}")
        self.done = done


def default_jobs(runs: int) -> int:
    """Give how many runs are judged at a time where nobody says."""
    return max(1, min(_cores(), runs, MOST_JOBS))


def gate_all(tasks: Sequence[Task], *, jobs: int, told: Told | None = None) -> tuple[GatedRun, ...]:
    """Gate every run, and give the answers in the order of the tasks.

    Raises SettingsError where the settings turn out wrong in use, and Stopped on Ctrl-C; what was judged is kept.
    """
    done: dict[int, GatedRun] = {}
    try:
        with closing(_answers(tasks, jobs)) as answers:
            for number, answer in answers:
                if isinstance(answer, Refused):
                    raise SettingsError(answer.why)
                done[number] = lost(tasks[number], answer.how) if isinstance(answer, Died) else answer
                if told is not None:
                    told(done[number], len(done), len(tasks))
    except KeyboardInterrupt:
        raise Stopped(done=len(done)) from None
    return tuple(done[number] for number in range(len(tasks)))


def _answers(tasks: Sequence[Task], jobs: int) -> Generator[tuple[int, GatedRun | Refused | Died]]:
    waiting = []
    for number, task in enumerate(tasks):
        held = gate_kept(task)  # takes milliseconds, and a process some hundred of them to start
        if held is None:
            waiting.append(number)
        else:
            yield number, held
    if len(waiting) < 2 or (jobs == 1 and len(waiting) <= EACH):
        for number in waiting:
            yield number, gate_one(tasks[number])
        return
    for index, answer in in_workers(gate_one, [tasks[number] for number in waiting], jobs=min(jobs, len(waiting))):
        yield waiting[index], answer


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # of a container's share, not of the whole machine
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""Gate runs one by one or in processes of their own, and write what the gate says over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final

from ptt.api import REPORT
from ptt.cli import many_runs
from ptt.cli.many_runs import (
    Output,
    Refused,
    Steps,
    is_drawn,
    judge_all,
    judge_kept,
    judge_one,
    store_of,
    trace_set,
    write_run,
)
from ptt.cli.options import GateReports
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.gate.results import GatedRun, GateReport, Outcome
from ptt.diagnostics.gate.traces import judge_trace_set
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.executors import Executor
from ptt.reports.gate import FORMATS
from ptt.reports.gate.index import index_html
from ptt.run_location import traces_beside

INDEX: Final = "index.html"
JSON: Final = "json"
OnRun = Callable[[GatedRun, int, int], None]
"""Called with each run as it is done, how many are done, and of how many."""


@dataclass(frozen=True, kw_only=True)
class Task(many_runs.Task):
    """One run and all that is needed to gate it."""

    policy: Policy
    today: date
    reports: GateReports


def gate_one(task: Task, executor: Executor | None = None) -> GatedRun | Refused:
    """Open, judge and write one run."""
    return judge_one(task, STEPS, executor)


def gate_kept(task: Task) -> GatedRun | None:
    """Gate a run that is kept as it is now; None where it must be opened, or a report be drawn."""
    return judge_kept(task, STEPS)


def _judge(task: Task, opened: LoadedRun) -> GatedRun:
    traces = trace_set(task, opened)
    if traces is not None:
        return replace(judge_trace_set(traces, task.policy, name=task.name, today=task.today), path=task.shown)
    beside = traces_beside(store_of(task)) if task.policy.traces is not None else None
    gated = judge(opened, task.policy, name=task.name, today=task.today, traces=beside)
    return replace(gated, path=task.shown, first_broken_link=opened.diagnosis.verdict.first_broken_link)


def _write(task: Task, opened: LoadedRun, gated: GatedRun) -> GatedRun:
    wanted = _wants_report(task, gated)
    write_run(task, opened, report=wanted)
    return replace(gated, report=f"{task.folder.name}/{REPORT}") if wanted else gated


def _wants_report(task: Task, gated: GatedRun) -> bool:
    if task.reports is GateReports.FAILED:
        return gated.outcome is not Outcome.PASSED
    return task.reports is GateReports.ALL


def _failed(task: Task, outcome: Outcome, why: str) -> GatedRun:
    """Return why a run has no checks."""
    return GatedRun(name=task.name, path=task.shown, outcome=outcome, error=why)


def _crashed(gated: GatedRun, why: str) -> GatedRun:
    return replace(gated, outcome=Outcome.CRASHED, error=why)


def _is_written(task: Task, opened: LoadedRun, gated: GatedRun) -> bool:
    return is_drawn(task, opened) or not _wants_report(task, gated)


STEPS: Final = Steps(judge=_judge, write=_write, failed=_failed, crashed=_crashed, is_written=_is_written)


def gate_all(
    tasks: Sequence[Task], *, jobs: int | None, executor: Executor, on_run: OnRun | None = None
) -> tuple[GatedRun, ...]:
    """Gate every run, and return the answers in the order of the tasks.

    Raises SettingsError where the settings turn out wrong in use, and Stopped on Ctrl-C; what was judged is kept.
    """
    return judge_all(tasks, jobs=jobs, executor=executor, one=gate_one, kept=gate_kept, failed=_failed, on_run=on_run)


def output(out: Path, extra: Mapping[str, Path]) -> Output:
    """Return where the gate writes: its index and gate.json into `out`, and `extra` by the name of its format."""
    return Output.below(out, "ptt gate", (INDEX, FORMATS[JSON].file), extra)


def exclusive_output(out: Path) -> AbstractContextManager[None]:
    """Keep other gates from writing to the same folder."""
    return output(out, {}).exclusive()


def write(report: GateReport, place: Output) -> Path:
    """Write all of it and return where the index page lies."""
    own = {INDEX: partial(index_html, report), FORMATS[JSON].file: partial(FORMATS[JSON].render, report)}
    place.write(own | {name: partial(FORMATS[name].render, report) for name in place.files if name not in own})
    return place.folder / INDEX

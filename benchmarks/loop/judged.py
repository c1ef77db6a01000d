"""One made run, written, judged as `ptt diagnose` would, and set against its truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.loop.faults import FAULTS, Fault
from benchmarks.loop.files import write
from benchmarks.loop.healthy import healthy
from benchmarks.loop.made import Made
from benchmarks.loop.real import FITS, REAL, real
from benchmarks.loop.span import size_of, spread
from ptt import api
from ptt.diagnostics.model import Finding, Severity

BY_NAME: Final = {fault.name: fault for fault in FAULTS}


@dataclass(frozen=True, kw_only=True)
class Task:
    """A run to make: healthy where there is no fault."""

    algorithm: str
    seed: int
    fault: str = ""
    size: str = "usual"
    spanned: bool = False  # spread over what real logs span; the fault's size is drawn then

    @property
    def title(self) -> str:
        """Name the run."""
        size = "spanned" if self.spanned else self.size
        return f"{self.fault or 'healthy'} {size} {self.algorithm} {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Told:
    """One finding, as far as the table asks."""

    id: str
    severity: str
    link: str
    onset: int | None
    cause: str | None


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What was said of one run, beside what is true of it."""

    task: Task
    dialect: str
    steps: int  # from the first to the last
    onset: int | None  # the true one
    findings: tuple[Told, ...]
    headline: str
    first_link: str | None
    crashes: tuple[str, ...]
    place: float | None = None  # of the true onset, from 0 at the first step to 1 at the last
    size: float = 1.0  # of the fault, of its usual one

    @property
    def alarms(self) -> tuple[Told, ...]:
        """Findings at or above medium."""
        return tuple(told for told in self.findings if Severity(told.severity).at_least(Severity.MEDIUM))

    @property
    def roots(self) -> tuple[str, ...]:
        """Ids of those that follow from no other, each once."""
        return tuple(dict.fromkeys(told.id for told in self.alarms if told.cause is None))

    @property
    def naming(self) -> Told | None:
        """The finding that names the fault, the earliest where there are several."""
        fault = BY_NAME[self.task.fault]
        found = [told for told in self.findings
                 if told.id in fault.ids and Severity(told.severity).at_least(fault.least)]  # fmt: skip
        return min(found, key=lambda told: told.onset if told.onset is not None else 1 << 60, default=None)

    @property
    def headed(self) -> bool:
        """Whether the headline's link is the fault's, and one of its names is a root."""
        fault = BY_NAME[self.task.fault]
        named = self.naming
        if named is None:
            return False
        if not Severity(named.severity).at_least(Severity.MEDIUM):
            return not self.alarms  # a note: nothing louder stands above it
        return self.first_link == fault.link and any(one in fault.ids for one in self.roots)


def make(task: Task) -> tuple[Made, int | None]:
    """Make the run of a task, and give the true onset where it has one."""
    run = _healthy(task)
    if not task.fault:
        return run, None
    return BY_NAME[task.fault].inject(run, _size(task, run))


def _healthy(task: Task) -> Made:
    if task.algorithm == REAL:
        return replace(real(), seed=task.seed)
    run = healthy(task.algorithm, task.seed, dialects=BY_NAME[task.fault].dialects if task.fault else ())
    return spread(run) if task.spanned else run


def _size(task: Task, run: Made) -> float:
    return size_of(run, task.fault) if task.spanned else sizes_of(BY_NAME[task.fault])[task.size]


def sizes_of(fault: Fault) -> dict[str, float]:
    """Give the sizes of a fault by word."""
    return dict(fault.sizes) if fault.sizes else {"usual": 1.0}


def judge(task: Task) -> Judged:
    """Make a run, write it, judge it, and forget it."""
    run, onset = make(task)
    first, last = int(run.steps[0]), int(_healthy(task).steps[-1])  # a fault may end the run
    with TemporaryDirectory(prefix="loop-") as folder:
        found = api.diagnose(write(run, Path(folder) / "run"))
    return Judged(
        task=task,
        dialect=run.dialect,
        steps=int(run.steps[-1] - run.steps[0]),
        onset=onset,
        place=None if onset is None else (onset - first) / max(1, last - first),
        size=_size(task, run) if task.fault else 1.0,
        findings=tuple(_told(finding) for finding in found.findings),
        headline=found.verdict.headline,
        first_link=str(found.verdict.first_broken_link) if found.verdict.first_broken_link else None,
        crashes=tuple(f"{crash.id}: {crash.error}" for crash in found.crashes),
    )


def _told(finding: Finding) -> Told:
    return Told(
        id=finding.id,
        severity=str(finding.severity),
        link=str(finding.link),
        onset=finding.onset_step,
        cause=finding.consequence_of,
    )


def spanned_tasks(healthy_seeds: Sequence[int], fault_seeds: Sequence[int], algorithms: Sequence[str]) -> list[Task]:
    """List runs that are spread over what real logs span: healthy ones, and each fault at a size drawn for each."""
    made = [one for one in algorithms if one != REAL]
    tasks = [Task(algorithm=algorithm, seed=seed, spanned=True) for algorithm in made for seed in healthy_seeds]
    return tasks + [
        Task(algorithm=algorithm, seed=seed, fault=fault.name, spanned=True)
        for fault in FAULTS
        for algorithm in fault.algorithms
        if algorithm in made
        for seed in fault_seeds
    ]


def tasks_of(healthy_seeds: Sequence[int], fault_seeds: Sequence[int], algorithms: Sequence[str]) -> list[Task]:
    """List the runs of a bench: the healthy ones of each algorithm, and each fault at each size."""
    tasks = [Task(algorithm=algorithm, seed=seed) for algorithm in algorithms for seed in healthy_seeds]
    tasks += [
        Task(algorithm=REAL, seed=seed, fault=name) for name in FITS for seed in fault_seeds if REAL in algorithms
    ]
    tasks += [
        Task(algorithm=algorithm, seed=seed, fault=fault.name, size=size)
        for fault in FAULTS
        for algorithm in fault.algorithms
        if algorithm in algorithms
        for size in sizes_of(fault)
        for seed in fault_seeds
    ]
    return tasks

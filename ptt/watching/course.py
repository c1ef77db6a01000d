"""What has arrived of each step, and when a step is complete: its files of all ranks, and its line of the log.

A step is tested once, when a later one has begun and every source that owes it a part has given it. A source that falls
silent is waited for a few steps only. What arrives after that is judged at the end of the run, and not tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ptt.diagnostics.watch.observed import ObservedStep, StepTail

LOGS: Final = "logs"  # the name of all metric logs together, as a source
WENT_ON: Final = 10  # steps that are logged and not recorded before the recording counts as given up
LATE_STEPS: Final = 3  # steps, or as many of a source's own intervals, that are waited for it


@dataclass
class Source:
    """How far one source of a run's steps has come: a log, or the files of one rank."""

    last: int
    spacing: int | None = None  # steps from one that it has to the next, the smallest so far; None: it has one alone

    def saw(self, step: int) -> None:
        """Note a step that it has."""
        if step > self.last:
            self.spacing = min(self.spacing or step, step - self.last)
            self.last = step

    def owes(self, step: int, newest: int) -> bool:
        """Return whether its part of a step is still to come."""
        spacing = self.spacing or 1
        return self.last + spacing <= step and newest - step < LATE_STEPS * spacing


@dataclass
class Course:
    """The steps of a run that were not tested yet."""

    first: int | None = None  # the first step that was tested
    tested: int | None = None  # the last step that was
    anew: bool = False  # whether the run began again at its first step
    logged: int | None = None  # the last step that the trainer itself said it has done
    sources: dict[str, Source] = field(default_factory=dict)
    waiting: dict[int, ObservedStep] = field(default_factory=dict)  # what logs, and files of other formats, say
    files: dict[int, list[str]] = field(default_factory=dict)  # token files, read when their step is complete
    again: int | None = None  # the first of the steps that came after they were tested, if that was not told yet
    told_at: int | None = None  # `tested` when it was last told

    def saw(self, source: str, steps: Iterable[int], *, written_over: bool = True) -> None:
        """Note which steps a source has. `written_over`: it would have had them before, if they were of this run."""
        for step in sorted(steps):
            if source in self.sources:
                self.sources[source].saw(step)
            else:
                self.sources[source] = Source(last=step)
            if self.tested is not None and step < self.tested - LATE_STEPS:
                self.again = step if self.again is None else min(self.again, step)
                self.anew = self.anew or (written_over and self.first is not None and step <= self.first)

    def add(self, observed: ObservedStep) -> None:
        """Add what was read of a step; of a metric that comes twice the later value counts."""
        if self._is_over(observed.step):
            return
        known = self.waiting.get(observed.step)
        if known is not None:
            observed = ObservedStep(
                step=observed.step,
                metrics={**known.metrics, **observed.metrics},
                tails=observed.tails if observed.tails is not None else known.tails,
            )
        self.waiting[observed.step] = observed

    def add_file(self, step: int, rel: str) -> None:
        """Add a token file of a step."""
        if not self._is_over(step) and rel not in self.files.setdefault(step, []):
            self.files[step].append(rel)

    def _is_over(self, step: int) -> bool:
        return self.tested is not None and step <= self.tested

    @property
    def newest(self) -> int | None:
        """The last step that has begun: by the token files, and by the logs where these went on without them.

        One line of a log that counts something else is no step of the run.
        """
        recorded = [source.last for name, source in self.sources.items() if name != LOGS]
        if not recorded:
            return self.sources[LOGS].last if LOGS in self.sources else None
        beyond = [step for step in self.waiting if step > max(recorded)]
        return max(beyond) if len(beyond) >= WENT_ON else max(recorded)

    def complete(self, *, ended: bool) -> list[int]:
        """Return the steps to test now, ascending; of a run that has ended all."""
        steps: list[int] = []
        newest = self.newest
        for step in sorted(self.waiting.keys() | self.files.keys()):
            begun = newest is None or (newest <= step and (self.logged is None or self.logged < step))
            if not ended and (begun or any(one.owes(step, newest or step) for one in self.sources.values())):
                break
            steps.append(step)
        return steps

    def take(self, step: int) -> ObservedStep:
        """Return what is known of a step, which is tested with that."""
        self.first, self.tested = step if self.first is None else self.first, step
        self.files.pop(step, None)
        return self.waiting.pop(step, ObservedStep(step=step))

    def came_again(self) -> str:
        """Say that tested steps came again, once for each resumption; empty where none did."""
        first, self.again = self.again, None
        if first is None or self.told_at == self.tested:
            return ""
        self.told_at = self.tested
        return (
            f"step {first} was written after step {self.tested} had been tested, as of a resumed or rewritten run; "
            "each step is tested once, and the end judges all"
        )

    def state(self) -> dict[str, Any]:
        """Return all of it, as JSON holds it."""
        return {
            "first": self.first,
            "tested": self.tested,
            "logged": self.logged,
            "sources": {name: [source.last, source.spacing] for name, source in self.sources.items()},
            "waiting": [asdict(step) for step in self.waiting.values()],
            "files": [[step, rels] for step, rels in self.files.items()],
            "told_at": self.told_at,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Course:
        """Return the course that had this state."""
        return cls(
            first=state["first"],
            tested=state["tested"],
            logged=state["logged"],
            sources={name: Source(*numbers) for name, numbers in state["sources"].items()},
            waiting={step.step: step for step in map(_step, state["waiting"])},
            files={step: list(rels) for step, rels in state["files"]},
            told_at=state["told_at"],
        )


def _step(found: Mapping[str, Any]) -> ObservedStep:
    tails = found["tails"]
    return ObservedStep(
        step=found["step"],
        metrics=found["metrics"],
        tails=None if tails is None else {name: StepTail(**tail) for name, tail in tails.items()},
    )

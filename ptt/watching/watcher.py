"""One look after another at a run that is being written: what is new, what it shows, and whether the run has ended."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ptt.diagnostics.config import Settings
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.gather import describe_run
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.evidence.run_end import Ending, RunEnd, read_end
from ptt.diagnostics.parsers import PARSERS
from ptt.diagnostics.parsers.io.interface import RunFile, parser_of
from ptt.diagnostics.store.scan import RECORDER, steps_of
from ptt.diagnostics.verdict.checkpoints import find_checkpoints
from ptt.diagnostics.watch.monitor import Alarm, Monitor
from ptt.diagnostics.watch.observed import ObservedStep
from ptt.watching.course import LOGS, Course
from ptt.watching.listing import FileState, Mode, Place
from ptt.watching.reading import Reading, last_line_end, read_new, reads_in_part

HUNG_TIMES: Final = 10  # the usual time of a step, without a write
ENDED_TIMES: Final = 60
PAUSE_TIMES: Final = 3  # the longest pause that the run has made before: evaluations and checkpoints take as long again
MIN_HUNG_SECONDS: Final = 60.0
MIN_ENDED_SECONDS: Final = 600.0
SETTLE_SECONDS: Final = 5.0  # after a run has said that it is over, for what it still writes
PACE_POINTS: Final = 50  # looks with a new step, that the usual time of a step is taken from
READ_SHARE: Final = 20  # a log that is read whole is read again after so many times what that took
ASIDE_BYTES: Final = 1 << 16  # a log this long without a metric holds none
NUMBER: Final = re.compile(r"\d{1,18}")
MAX_EVENTS: Final = 200
TOKEN_FILES: Final = 64  # read together, so that a long run that is looked at first takes no more memory than another
OPEN_ENDS: Final = (Ending.UNKNOWN, Ending.OPEN, Ending.SHORT)


@dataclass(frozen=True, kw_only=True)
class Notice:
    """One thing to tell: an alarm, or what became known of the run's course.

    kind: warning | stop | note | end. The others are of alarms; guards: what to set, in sentences. checkpoint: the last
    one before it began.
    """

    kind: str
    rule: str
    step: int | None
    text: str
    since_step: int | None = None
    value: float | None = None
    limit: float | None = None
    guards: tuple[str, ...] = ()
    checkpoint: str | None = None

    @property
    def line(self) -> str:
        """The line to print."""
        at = "" if self.step is None else f"step {self.step}: "
        if self.kind not in ("warning", "stop"):
            return f"{at}{self.text}"
        back = "" if self.checkpoint is None else f"; the last checkpoint before that is {self.checkpoint}"
        return f"{at}{self.kind.upper()} {self.text}{back}"


def _notice_of(alarm: Alarm, checkpoint: str | None) -> Notice:
    since = f" since step {alarm.since_step}" if alarm.since_step < alarm.step else ""
    return Notice(
        kind=alarm.kind,
        rule=alarm.rule,
        step=alarm.step,
        text=f"{alarm.rule}{since}: {alarm.claim}",
        since_step=alarm.since_step,
        value=alarm.value,
        limit=alarm.limit,
        guards=tuple(guard.says for guard in alarm.guards),
        checkpoint=checkpoint,
    )


@dataclass
class Pace:
    """When the run's steps were written, and its longest pause; times in seconds of the file system's clock."""

    points: list[tuple[float, int]] = field(default_factory=list)
    written: float = 0.0  # the last write of any file
    longest: float = 0.0

    def saw(self, written: float, step: int | None) -> None:
        """Note the last write that a look found, and the newest step."""
        if self.written and written > self.written:
            self.longest = max(self.longest, written - self.written)
        self.written = max(self.written, written)
        if step is not None and (not self.points or step > self.points[-1][1]):
            self.points = [*self.points, (self.written, step)][-PACE_POINTS:]

    @property
    def usual(self) -> float | None:
        """Seconds from one step to the next; None before two looks found different ones."""
        if len(self.points) < 2:
            return None
        (begun, first), (ended, last) = self.points[0], self.points[-1]
        return (ended - begun) / (last - first)

    def limit(self, times: float, fewest: float) -> float:
        """Return after how many seconds without a write more than an ordinary pause has passed."""
        return max(times * (self.usual or 0.0), PAUSE_TIMES * self.longest, fewest)


class Watcher:
    """Follows one run. `state` and `restored` let another process go on, which tells the same."""

    def __init__(
        self,
        place: Place,
        settings: Settings,
        *,
        after: int | None = None,
        idle_seconds: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`after`: the last step that is not tested, as of a warm-up.

        `idle_seconds`: without a write, after which the run has ended; by default it goes by its own pace.
        """
        self._place, self._settings, self._clock = place, settings, clock
        self._idle, self._after = idle_seconds, after
        self.files: dict[str, FileState] = {}
        self.fresh: list[str] = []  # files whose state changed since `state` was last kept
        self.monitor = Monitor.start(limits=settings.limits)
        self.course, self.pace = Course(), Pace()
        self.facts: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.told: set[str] = set()  # of notices that are told once
        self.alarms: list[Notice] = []
        self.end: RunEnd | None = None
        self._read_again: dict[str, float] = {}  # when a log that is read whole may be read again
        self._looked = 0.0

    @property
    def stopped(self) -> bool:
        """Whether a stop was told."""
        return any(notice.kind == "stop" for notice in self.alarms)

    def look(self, *, closed: bool = False, given: Sequence[ObservedStep] = ()) -> Iterator[Notice]:
        """Read what is new and yield what it makes known.

        `closed`: whoever writes the run has said that it is over. `given`: steps that the trainer itself told of.
        """
        self._looked = self._clock()
        changed = self._changed()
        self._take(changed, given, last=closed)
        if self.course.anew:
            first = self.course.first
            self._begin_anew()
            self._take(changed, given, last=closed)
            yield Notice(kind="note", rule="begun-anew", step=first, text="the run began again: the watch starts anew")
        if changed or given:
            written = max((state.changed / 1e9 for _, state in changed), default=self._looked)
            self.pace.saw(written, self.course.newest)
        yield from self._end_notices(closed=closed)
        for step in self._complete(ended=self.end is not None):
            for alarm in self.monitor.observe(step):
                self.alarms.append(_notice_of(alarm, self._checkpoint_before(alarm.since_step)))
                yield self.alarms[-1]
        if again := self.course.came_again():
            yield Notice(kind="note", rule="resumed", step=self.course.tested, text=again)
        if self.end is not None:
            yield Notice(kind="end", rule="run-ended", step=self.course.tested, text=_ended(self.end))

    def _take(self, changed: Sequence[tuple[str, FileState]], given: Sequence[ObservedStep], *, last: bool) -> None:
        self._saw_logged(given)
        if given:
            self.course.logged = max(step.step for step in given)
        if changed:
            self._read(changed, last=last)

    def _begin_anew(self) -> None:
        """Forget the run that lay here before; its files are known, so that what is left of it is not read as new."""
        self.monitor = Monitor.start(limits=self._settings.limits)
        self.course, self.pace = Course(), Pace()
        self.facts, self.events, self.alarms = {}, [], []
        self.told.clear()
        self._read_again.clear()

    def _changed(self) -> list[tuple[str, FileState]]:
        changed = []
        for rel, state in self._place.listed(self.files):
            known = self.files.get(rel)
            if known is not None and known.same(state):
                continue
            if known is None:
                known = self._renamed(state)
            appended = known is not None and known.ident == state.ident and state.size >= known.read
            kept = known if appended and known is not None else FileState(ident=0, size=0, changed=0)
            changed.append((rel, replace(state, read=kept.read, mode=kept.mode)))
        return changed

    def _renamed(self, state: FileState) -> FileState | None:
        """Return what is known of a rotated log under its earlier name."""
        if not state.ident:
            return None
        earlier = (known for known in self.files.values() if known.ident == state.ident and known.mode is Mode.LINES)
        return next(earlier, None)

    def _read(self, changed: Sequence[tuple[str, FileState]], *, last: bool) -> None:
        with self._place.here([rel for rel, _ in changed]) as root:
            logs = []
            for rel, state in changed:
                file = RunFile(path=root / rel, rel=rel, size=state.size)
                with suppress(OSError):  # it went away: the next look lists it again
                    if state.mode is None or (state.mode is Mode.ASIDE and not state.read):
                        state = self._recognised(file, state)
                    if state.mode is Mode.TOKENS:
                        self._add_tokens(file)
                    if state.mode in (Mode.LINES, Mode.WHOLE):
                        logs.append((file, state))
                        continue
                    self._keep(rel, state)
            self._read_logs(logs, root, last=last)

    def _recognised(self, file: RunFile, state: FileState) -> FileState:
        """Say how a file is to be read, by the parser that takes it."""
        self._read_again.pop(file.rel, None)  # of another file of this name
        parser = parser_of(file, PARSERS)
        if parser is not None and parser.name == RECORDER:
            return replace(state, mode=Mode.TOKENS)
        logged = parser is not None and parser.of_training
        return replace(state, mode=Mode.WHOLE if logged else Mode.ASIDE)

    def _add_tokens(self, file: RunFile) -> None:
        steps = [step for step in steps_of(file) if step is not None]
        for step in steps:
            self.course.add_file(step, file.rel)
        if steps:
            self.course.saw(_source_of(file.rel, steps), steps, written_over=file.rel in self.files)
        file.looks.clear()

    def _read_logs(self, logs: Sequence[tuple[RunFile, FileState]], root: Path, *, last: bool) -> None:
        """Read the new lines of logs, and others whole, these only for a share of the time."""
        spans = []
        for file, state in logs:
            if state.mode is Mode.LINES:
                end = last_line_end(file.path, state.read, state.size)
                if end > state.read:
                    spans.append(replace(file, span=(state.read, end)))
                self._keep(file.rel, replace(state, read=max(end, state.read)))
            elif last or self._looked >= self._read_again.get(file.rel, 0.0):
                self._read_whole(file, state, root)
        self._saw(read_new(spans, root, self._settings))

    def _read_whole(self, file: RunFile, state: FileState, root: Path) -> None:
        begun = time.perf_counter()
        reading = read_new([file], root, self._settings)
        logged = bool(reading.steps or reading.events or reading.facts)
        whole = reading.steps
        if self.course.tested is not None:  # what was read before is no second coming
            reading = replace(reading, steps=tuple(step for step in whole if step.step > self.course.tested))
        self._saw(reading)
        mode = Mode.WHOLE if logged or state.size < ASIDE_BYTES else Mode.ASIDE
        in_part = reads_in_part(file, root, self._settings, replace(reading, steps=whole)) if whole else False
        read = last_line_end(file.path, 0, state.size) if in_part else state.size
        self._keep(file.rel, replace(state, mode=Mode.LINES if in_part else mode, read=read))
        self._read_again[file.rel] = self._looked + READ_SHARE * (time.perf_counter() - begun)

    def _saw(self, reading: Reading) -> None:
        self._saw_logged(reading.steps)
        self.facts |= reading.facts
        sources = {event["source"] for event in reading.events}
        over = [event for event in self.events if event["kind"] != "last_line" or event["source"] not in sources]
        self.events = [*over, *(event for event in reading.events if event not in over)][-MAX_EVENTS:]

    def _saw_logged(self, steps: Sequence[ObservedStep]) -> None:
        if steps:
            self.course.saw(LOGS, (step.step for step in steps))
        for step in steps:
            self.course.add(step)

    def _keep(self, rel: str, state: FileState) -> None:
        self.files[rel] = state
        self.fresh.append(rel)

    def _complete(self, *, ended: bool) -> Iterator[ObservedStep]:
        """Yield the steps to test now, with what their token files hold."""
        steps = self.course.complete(ended=ended)
        while self._after is not None and steps and steps[0] <= self._after:
            self.course.take(steps.pop(0))
        for some in (steps[at : at + TOKEN_FILES] for at in range(0, len(steps), TOKEN_FILES)):
            rels = list(dict.fromkeys(rel for step in some for rel in self.course.files.get(step, ())))
            with self._place.here(rels) as root:
                files = []
                for rel in rels:
                    with suppress(OSError):
                        files.append(RunFile(path=root / rel, rel=rel, size=(root / rel).stat().st_size))
                recorded = {step.step: step for step in read_new(files, root, self._settings).steps}
            for step in some:
                if step in recorded:
                    self.course.add(recorded[step])
                yield self.course.take(step)

    def _end_notices(self, *, closed: bool) -> Iterator[Notice]:
        """Find out whether the run has ended, or hangs; each is told once."""
        newest, silent = self.course.newest, self._looked - self.pace.written
        run = describe_run("run", self.facts, {}, None, np.array([] if newest is None else [newest]))
        said = read_end(run, [Event(**event) for event in self.events], {})
        ends = self._idle if self._idle is not None else self.pace.limit(ENDED_TIMES, MIN_ENDED_SECONDS)
        if said.ending not in OPEN_ENDS and said.ending is not Ending.COMPLETED:
            yield from self._once("exception", newest, f"the run's log says: {said.known_by}")
        if closed or (said.ending not in OPEN_ENDS and silent > max(SETTLE_SECONDS, 2 * (self.pace.usual or 0.0))):
            self.end = said
        elif self.pace.written and silent > ends:
            self.end = replace(said, known_by=f"nothing was written for {silent:.0f} s")
        elif self.pace.usual and silent > self.pace.limit(HUNG_TIMES, MIN_HUNG_SECONDS):
            text = f"hung-step: nothing written for {silent:.0f} s, where a step takes {self.pace.usual:.2g} s"
            yield from self._once("hung-step", newest, text)
        else:
            self.told.discard("hung-step")  # it goes on

    def _checkpoint_before(self, step: int) -> str | None:
        files = (RunFile(path=Path(rel), rel=rel, size=state.size) for rel, state in self.files.items())
        earlier = [checkpoint.path for checkpoint in find_checkpoints(files) if checkpoint.step < step]
        return earlier[-1] if earlier else None

    def _once(self, rule: str, step: int | None, text: str) -> Iterator[Notice]:
        if rule not in self.told:
            self.told.add(rule)
            self.alarms.append(Notice(kind="warning", rule=rule, step=step, text=text, since_step=step))
            yield self.alarms[-1]

    def state(self) -> dict[str, Any]:
        """Return all but the states of files, as JSON holds it."""
        return {
            "monitor": self.monitor.state(),
            "course": self.course.state(),
            "pace": asdict(self.pace),
            "facts": self.facts,
            "events": self.events,
            "told": sorted(self.told),
            "alarms": [asdict(notice) for notice in self.alarms],
        }

    def restore(self, state: Mapping[str, Any], files: Mapping[str, FileState]) -> None:
        """Go on from what `state` returned; ValueError, KeyError or TypeError where it is none of this version."""
        monitor, course = Monitor.restored(state["monitor"]), Course.restored(state["course"])
        pace = Pace(**{**state["pace"], "points": [tuple(point) for point in state["pace"]["points"]]})
        alarms = [Notice(**{**notice, "guards": tuple(notice["guards"])}) for notice in state["alarms"]]
        self.monitor, self.course, self.pace, self.alarms = monitor, course, pace, alarms
        self.facts, self.events, self.told = dict(state["facts"]), list(state["events"]), set(state["told"])
        self.files = dict(files)


def _source_of(rel: str, steps: Sequence[int]) -> str:
    """Return what files of one source are called: their name without the step, which leaves the rank."""
    numbers = (found for found in NUMBER.finditer(rel) if len(steps) == 1 and int(found[0]) == steps[0])
    return rel if (number := next(numbers, None)) is None else f"{rel[: number.start()]}#{rel[number.end() :]}"


def _ended(end: RunEnd) -> str:
    """Say how the run ended and by what that is known."""
    how = "has ended" if end.ending in OPEN_ENDS else f"ended: {end.ending}"
    return f"the run {how}" + (f" ({end.known_by})" if end.known_by else "")

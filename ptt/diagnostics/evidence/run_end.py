"""How a run ended, by all that its files say: completed, raised, killed, preempted, stopped by hand, or open."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import compiled, dataclass
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.aliases import bare_name
from ptt.diagnostics.model import STEP, Run
from ptt.diagnostics.wording import pct


class Ending(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    EXCEPTION = "exception"  # that training did not survive
    OUT_OF_MEMORY = "out of memory"  # an exception too, of a device or of the process
    FAILED = "failed"  # a code or a status says so, and nothing says why
    KILLED = "killed"
    PREEMPTED = "preempted"  # by the scheduler: time limit, or a job with priority
    STOPPED = "stopped by hand"
    OPEN = "open"  # a log was opened and never closed: killed, or still going on
    SHORT = "short"  # the record ends before the last step, and nothing says why
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """How a run ended, and by what it is known."""

    ending: Ending
    known_by: str = ""  # what says so: the text of an event, or a clause
    source: str | None = None  # the file that says so
    place: str | None = None  # the line that raised an exception, `reward_fn.py:41`
    last_line: str | None = None  # of the console, if it does not show the end itself
    saved: bool = False  # the record is a trainer's state, saved before the end: nothing later can be in it
    raised_after: str | None = None  # an exception after training had completed


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run came of what was set."""

    step: int | None  # last logged or saved
    planned: int | None  # steps that were set
    spacing: float  # steps from one logged row to the next

    @property
    def share(self) -> float | None:
        """The share of the steps that were set which the run reached; None where their number is not known."""
        return None if self.planned is None or self.step is None else self.step / self.planned

    @property
    def at(self) -> str:
        """The last step and how many were set, as they end a clause; empty where no step is known."""
        if self.step is None:
            return ""
        return f" at step {self.step}" + (f" of {self.planned}" if self.planned else "")

    def went_on(self, step: int | None) -> bool:
        """Return whether rows were logged behind a step: what happened there was survived, or the run was resumed."""
        return step is not None and self.step is not None and self.step - step > GONE_ON_ROWS * self.spacing


DONE_SHARE: Final = 0.999  # of the planned steps: the last one may not have been saved
GONE_ON_ROWS: Final = 2  # logged rows behind an event
MIN_SCHEDULE: Final = 10  # logged rates, falling at the end: fewer do not show a schedule
SCHEDULE_END: Final = 0.02  # of the highest rate
PLANNED_SHARE: Final = 0.2  # of the planned steps: a run that reached less more likely counts them in another unit
OVERSHOT: Final = 1.1  # times the plan: the last rollout ends beyond it
STATUSES: Final = ("completed", "finished", "success", "succeeded")
CLOSING_ROW: Final = "train_runtime"  # in the last row of a Hugging Face trainer; others log it as a plain fact
CLOSED: Final = compiled(r"^training completed\b", re.IGNORECASE)
EXIT_CODE: Final = compiled(r"^exit code (-?\d+)")
BAD_STATUS: Final = compiled(r"^(?:exit reason: (?!completed)|run status: (?!completed|running|finished))\w+")
PLACE: Final = compiled(r"\(([^()\s]{1,200}\.py:\d+)\)$")

PREEMPTED: Final = compiled(
    r"DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)|\b(?:was|been|job|node|instance) preempted\b|^PREEMPTED\b|"
    r"\bspot (?:instance )?interruption|(?:run status|exit reason): (?:preempt|time_?limit)",
    re.IGNORECASE,
)
STOPPED: Final = compiled(
    r"\bKeyboardInterrupt\b|\bkeyboard interrupt|\bSIGINT\b|\bgot signal: 2\b|\binterrupted by (?:the )?user\b|"
    r"\bsignal\b.{0,24}\binterrup|\binterrupt(?:ion)? (?:signal|received|detected)|\btraining (?:was )?interrupted\b|"
    r"\bCANCELLED AT (?!.*DUE TO)|(?:run status|exit reason): (?:keyboard_?|user_?)?(?:interrupt|abort|cancel|stopped)",
    re.IGNORECASE,
)
# torchrun ends the workers next to a failed process: that is not a cause.
SWEPT_UP: Final = compiled(r"Sending process \d+ closing signal|death signal, shutting down workers")
KILLED: Final = compiled(
    r"^(?:\S{1,200}: line \d+: +\d+ )?(?:Killed|Terminated)(?:\s{2,}.*)?$|\bSIG(?:KILL|TERM|HUP)\b|"
    r"\bgot signal: (?:9|15)\b|(?i:\bexit ?code *: *-(?:9|15)\b|(?:run status|exit reason): (?:killed|sigterm|sigkill))"
)
KILLED_BY_KERNEL: Final = compiled(
    r"oom[-_ ]?kill|Out of memory: Kill|killed due to the node running low on memory", re.IGNORECASE
)
OUTPUT: Final = ("stdout", "stderr")  # streams whose lines may only show handled trouble, not the end
MEMORY: Final = compiled(
    r"^(?:(?:\w+\.)*[A-Z]\w+(?:Error|Exception)\b.*|CUDA |HIP |CUDA error: )?(?:OutOfMemoryError\b|out of memory\b)|"
    r"^(?:\w+\.)*OutOfMemoryError\b|^MemoryError\b|^exit reason: oom\b|CUBLAS_STATUS_ALLOC_FAILED|"
    r"^(?:\w+\.)*[A-Z]\w+Error\b.*Tried to allocate"
)
"""Lines of a process that memory ended; one that handled it ("could not load: CUDA out of memory") has not ended."""
RAISED: Final = compiled(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\(\w+\))?(?::|$| \()")
EXCEPTION: Final = compiled(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:\(\w+\))?(?::|$| \()")
PRINTED: Final = compiled(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w+(?:Error|Exception|Interrupt)(?::|$)")
FATAL: Final = compiled(
    r"^Traceback \(most recent call last\)|\bSIG(?:SEGV|ABRT|BUS)\b|Segmentation fault|^Aborted\b|^Bus error|"
    r"^CUDA error|NCCL error|Watchdog caught collective operation timeout|ProcessGroupNCCL.{0,80}timed? ?out|"
    r"ChildFailedError"
)
# Raised by the processes around the one that failed: they report the failure, not its cause.
CONSEQUENCE: Final = compiled(
    r"^(?:\w+\.)*(?:ChildFailedError|CalledProcessError|RayTaskError|RayActorError|ActorDiedError|WorkerCrashedError|"
    r"ProcessRaisedException|ProcessExitedException|DistNetworkError|DistStoreError|DistBackendError|SystemExit|"
    r"ConnectionResetError|BrokenPipeError|EOFError|SignalException)\b"
    r"|^RuntimeError: (?:The actor with name \S+ failed to import on the worker|Failed to import \S+ because of)"
    r"|^AssertionError: failed to get register_center_actor"
)
INTERRUPT_CODES: Final[Mapping[int, Ending]] = {
    130: Ending.STOPPED, 137: Ending.KILLED, 143: Ending.KILLED, -9: Ending.KILLED, -15: Ending.KILLED,
}  # fmt: skip
WANDB_INTERRUPT: Final = 255  # `ExitHooks` of wandb/wandb: the code it writes for a KeyboardInterrupt, and no other


def raised_words(text: str) -> str:
    """Return what a script did that met this: it raised an exception, or was ended from outside."""
    return f"raised {text}" if EXCEPTION.match(text) else f"was ended: {text.removeprefix('error: ')}"


def progress_of(run: Run) -> Progress:
    """Return how far a run came."""
    planned = _planned(run)
    saved = run.context.get("global_step")
    step = run.last_step
    if planned is not None and step is not None and isinstance(saved, int | float) and saved <= planned:
        step = max(step, int(saved))  # the last steps may log nothing
    if run.first_step == 0 and planned is not None and step == planned - 1:  # counted from 0
        step = planned
    spacing = 1.0
    if run.first_step is not None and run.last_step is not None and run.step_count > 1:
        spacing = (run.last_step - run.first_step) / (run.step_count - 1)
    return Progress(step=step, planned=planned, spacing=spacing)


def _planned(run: Run) -> int | None:
    """Return how many steps were set, in the unit that the run's rows are counted in; None where nothing tells."""
    names = {STEP: ("max_steps", "planned_steps"), "epoch": ("planned_epochs",), "episode": ("planned_episodes",)}
    for name in names.get(run.step_unit, ()):
        given = _count(run, name)
        if given is None or (name == "max_steps" and (run.last_step or 0) > given):
            continue  # a plan that the run went past counts something else, as the steps of an episode
        if name == "max_steps" or _is_same_count(run.last_step, given):
            return given
    exact = _count(run, "counted_steps")
    last = run.last_step if run.step_unit == STEP else None
    return exact if exact is not None and last is not None and last in (exact - 1, exact) else None


def _count(run: Run, name: str) -> int | None:
    given = run.context.get(name)
    return int(given) if isinstance(given, int | float) and not isinstance(given, bool) and given > 0 else None


def _is_same_count(last: int | None, planned: int) -> bool:
    """Return whether a setting counts what the rows do: a run's timesteps are many to each of its iterations."""
    return last is not None and PLANNED_SHARE * planned <= last <= OVERSHOT * planned


def read_end(
    run: Run,
    events: Sequence[Event],
    other: Mapping[str, Series],
    *,
    rate: Series | None = None,
    done_share: float = DONE_SHARE,
) -> RunEnd:
    """Return how a run ended. Any source that says it completed is believed; else the last cause counts.

    `other`: series without a canonical name, which include a trainer's closing row; `rate`: the learning rate, whose
    schedule shows the end if nothing else does.
    """
    progress = progress_of(run)
    ends = [event for event in events if not (event.aside or progress.went_on(event.step))]
    closing = next((series for raw, series in other.items() if bare_name(raw) == CLOSING_ROW), None)
    known_by = _completed(run, progress, ends, closing, done_share)
    if known_by is not None:
        return RunEnd(ending=Ending.COMPLETED, known_by=known_by, raised_after=_raised_after(run, ends))
    last = next((one for one in reversed(ends) if one.kind == "last_line"), None)
    survived = {one.source for one in ends if one.kind == "last_line"}  # output that continued after what was raised
    said = [one for one in ends if one.kind != "last_line" and not SWEPT_UP.search(one.text)]
    ending, event = _cause([one for one in said if one.source not in survived or one.kind == "exit"])
    if event is None:
        if rate is not None and (at := _schedule_ended(rate, progress)):
            return RunEnd(ending=Ending.COMPLETED, known_by=f"its learning rate had decayed to {at}")
        source = None if last is None else last.source
        silent = _silent(run, progress)
        saved = silent is Ending.SHORT and last is None and run.context.get("global_step") == progress.step
        return RunEnd(ending=silent, source=source, last_line=None if last is None else last.text, saved=saved)
    place = PLACE.search(event.text)
    return RunEnd(
        ending=ending,
        known_by=event.text,
        source=event.source,
        place=place.group(1) if place else None,
        last_line=None if last is None else last.text,
    )


def _completed(
    run: Run, progress: Progress, ends: Sequence[Event], closing: Series | None, done_share: float
) -> str | None:
    """Return what says that training completed, or None."""
    seconds = run.context.get(CLOSING_ROW)
    if isinstance(seconds, int | float):
        return f"its trainer closed after {seconds:.0f} s"
    if closing is not None and len(closing.steps) and not progress.went_on(int(closing.steps[-1])):
        return f"its trainer wrote the closing row ({CLOSING_ROW})"
    if progress.share is not None and progress.share >= done_share:
        return f"it reached {pct(min(1.0, progress.share))} of the planned steps"
    status = run.context.get("status")
    if isinstance(status, str) and status.lower() in STATUSES:
        return "it says it completed"
    if any(CLOSED.match(event.text) for event in ends):
        return "its trainer said that training completed"
    codes = _codes(ends)
    return "it ended with exit code 0" if codes[-1:] == [0] else None


def _schedule_ended(rate: Series, progress: Progress) -> str:
    """Return the level that the learning rate had decayed to, if its schedule ends at the last step; else ""."""
    steps, values = rate.finite()
    if len(values) < MIN_SCHEDULE or values.max() <= 0 or progress.went_on(int(steps[-1])):
        return ""
    falling = bool((np.diff(values[-MIN_SCHEDULE:]) < 0).all())
    next_one = values[-1] + (values[-1] - values[-2])  # on this line, the next value would be zero or below
    if falling and values[-1] <= SCHEDULE_END * values.max() and (values[-1] == 0 or next_one <= 0):
        return "0" if values[-1] == 0 else f"{pct(values[-1] / values.max())} of its highest"
    return ""


def _codes(ends: Sequence[Event]) -> list[int]:
    return [int(code.group(1)) for event in ends if (code := EXIT_CODE.match(event.text))]


def _raised_after(run: Run, ends: Sequence[Event]) -> str | None:
    """Return the exception that a script raised after training, if its exit code or its console shows one."""
    raised = _raised(ends)
    if not raised or not (run.context.get("exception_after_training") or any(_codes(ends)[-1:])):
        return None
    return (_own(raised) or raised)[-1].text


def _raised(said: Sequence[Event]) -> list[Event]:
    """Return the exceptions: the last line of each traceback, and in other output the lines that look like one."""
    traced: set[str] = set()
    raised = []
    for event in said:
        if event.text.startswith("Traceback"):
            traced.add(event.source)
        elif event.kind == "exception":
            raised += [event] if RAISED.match(event.text) else []
        elif event.source in traced and PRINTED.match(event.text):
            raised.append(event)
    return [event for event in raised if not _is_kill(event.text)]


def _is_kill(text: str) -> bool:
    return bool(KILLED.search(text) or KILLED_BY_KERNEL.search(text))


def _own(raised: Sequence[Event]) -> list[Event]:
    """Return the exceptions that say why a process failed, not only that another did."""
    return [event for event in raised if not CONSEQUENCE.search(event.text)]


def _cause(said: Sequence[Event]) -> tuple[Ending, Event | None]:
    """Return what ended a run that did not complete, and the event that says so.

    A scheduler and a user come before what they bring about; a signal counts where no exception came after it.
    """
    told = [event for event in said if event.kind not in OUTPUT or KILLED_BY_KERNEL.search(event.text)]
    for pattern, ending in ((PREEMPTED, Ending.PREEMPTED), (STOPPED, Ending.STOPPED)):
        if event := _last(told, pattern):
            return ending, event
    raised = _raised(said)
    own = _own(raised)
    killed = next((event for event in reversed(told) if _is_kill(event.text)), None)
    if killed is not None and (not own or said.index(killed) > said.index(own[-1])):
        return Ending.KILLED, killed
    if raised:
        event = (own or raised)[-1]
        return (Ending.OUT_OF_MEMORY if MEMORY.search(event.text) else Ending.EXCEPTION), event
    return _by_code(said, _last(said, MEMORY))


def _last(said: Sequence[Event], pattern: re.Pattern[str]) -> Event | None:
    return next((event for event in reversed(said) if pattern.search(event.text)), None)


def _by_code(said: Sequence[Event], memory: Event | None) -> tuple[Ending, Event | None]:
    """Return what exit codes, states and lone words of trouble say."""
    coded = next((event for event in reversed(said) if EXIT_CODE.match(event.text)), None)
    for code in _codes([coded] if coded else []):
        if code == WANDB_INTERRUPT and coded is not None and coded.source.endswith(".wandb"):
            return Ending.STOPPED, coded
        if code in INTERRUPT_CODES:
            return INTERRUPT_CODES[code], coded
    if memory is not None:
        return Ending.OUT_OF_MEMORY, memory
    event = coded or _last(said, BAD_STATUS) or _last(said, FATAL)
    return (Ending.FAILED, event) if event else (Ending.UNKNOWN, None)


def _silent(run: Run, progress: Progress) -> Ending:
    """Return how a run stands that says nothing of its end.

    If less is missing than the distance between two rows, nothing was cut off: the next row would come after the end.
    """
    if run.context.get("status") == "running" or run.context.get("exit_record") is False:
        return Ending.OPEN
    if progress.planned is None or progress.step is None or progress.planned - progress.step < progress.spacing:
        return Ending.UNKNOWN
    return Ending.SHORT

"""What a run did over its steps, what its fault cost, and where a watch could have stopped it."""

from __future__ import annotations

from ptt.diagnostics.definitions import dataclass

Interval = tuple[float, float]
Steps = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class SeriesOutcome:
    """What one recorded series did over the run, whatever it is called; values are its finite ones."""

    name: str  # canonical; as spelt where it has no canonical name
    logged_as: str
    split: str = "train"  # train | eval
    label: str = ""  # what a sentence calls it
    unit: str = ""
    direction: str | None = None  # "higher" or "lower" is better, by name or settings; None: not known
    count: int = 0  # finite values
    not_finite: int = 0  # values logged as NaN or an infinity
    first_step: int | None = None
    last_step: int | None = None
    first: float | None = None
    last: float | None = None
    best: float | None = None  # by its direction; None where that is not known
    best_step: int | None = None
    low: float | None = None
    high: float | None = None
    early: float | None = None  # mean of its first part
    late: float | None = None  # mean of its last part
    change: Interval | None = None  # 95%, late less early, autocorrelation allowed for; None: too few values
    movement: str = "cannot_say"  # rose | fell | flat | cannot_say
    detectable: float | None = None  # smallest change that would have been told from its noise
    still_moving: bool = False  # in its last part, the way it moved before
    settled_at: int | None = None  # step from which on it lies about its last level; None: not before its second half
    turn: float | None = None  # level beyond both ends, where it went and came back from
    turn_step: int | None = None
    changed_at: int | None = None  # step from which on it stayed at its new level
    changed_interval: Steps | None = None
    spikes: int = 0  # values far off their neighbours
    noise: float | None = None  # standard deviation of a value about its own course
    at_zero: float = 0.0  # share of values that are exactly 0
    bound: float | None = None  # its smallest or largest value, where it stays there at the end
    at_bound: float = 0.0  # share of its values at that bound
    spread_left: float | None = None  # late noise over early noise


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How far a run got and what it did, whether or not anything is wrong with it."""

    ended: str = "unknown"  # finished | stopped | killed | crashed | running | unknown
    steps: Steps | None = None
    planned: int | None = None
    series: tuple[SeriesOutcome, ...] = ()  # most telling first
    series_left_out: int = 0  # more series than are kept
    best_checkpoint: str | None = None
    how_ended: str = ""  # the sentences of `said`, each where there is something to say
    did: str = ""  # what moved from what to what
    cost: str = ""
    said: str = ""  # two or three sentences


@dataclass(frozen=True, kw_only=True)
class Guard:
    """Something to set so that the next run does not go the same way, with the value that this run gives."""

    name: str  # kl-cap | tail-cap | rollback | curriculum
    value: float
    unit: str
    says: str


@dataclass(frozen=True, kw_only=True)
class StopReplay:
    """Where an always-valid watch over this run would have stopped it, at a budget of false stops for the whole run.

    step: None where it would have run to its end. watched: rules that had enough values for a test.
    """

    budget: float
    first_step: int
    last_step: int
    step: int | None = None
    rule: str = ""
    since_step: int | None = None  # where what it was stopped for probably began
    claim: str = ""
    warned_step: int | None = None  # of the first warning
    guards: tuple[Guard, ...] = ()
    watched: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """One sentence: at which step, of how many, and how sure."""
        odds = f"one false stop in {1 / self.budget:,.0f} runs"
        if self.step is None:
            return f"A live watch would not have stopped it, at {odds}."
        return f"It could have been stopped at step {self.step:,} of {self.last_step:,}, at {odds}."


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run went on for after the fault of its headline began, and after the point where it could have stopped.

    steps: from the first step with the fault to the last, both included. hours: None where no times are logged.
    """

    rule: str
    onset_step: int
    last_step: int
    steps: int
    hours: float | None = None
    stop_step: int | None = None  # where a watch would have stopped it; None: nowhere
    steps_after_stop: int | None = None
    hours_after_stop: float | None = None
    said: str = ""  # one sentence; where it could have stopped, it follows the one that says so

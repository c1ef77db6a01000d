"""What judging agent traces hands to reports, gates and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ptt.diagnostics.model import Finding, Healthy, Interval, NotJudged, RuleCrash, RunVerdict, Source

if TYPE_CHECKING:
    import polars as pl

EPISODE: Final = "episode"


@dataclass(frozen=True, kw_only=True)
class Share:
    """So many of so many, with its 95% interval; `clusters` are what was resampled: tasks, or episodes without any."""

    hits: int
    trials: int
    interval: Interval | None = None  # None where there are too few clusters
    clusters: int = 0

    @property
    def value(self) -> float | None:
        """Hits over trials; None without trials."""
        return self.hits / self.trials if self.trials else None


@dataclass(frozen=True, kw_only=True)
class TraceSet:
    """What the traces are, as far as their files tell; None is what no file tells."""

    name: str
    kinds: Mapping[str, int]  # parser -> episodes
    episodes: int
    labelled: int  # episodes whose success or failure is known
    assistant_turns: int | None
    tool_calls: int | None
    tool_errors: int | None  # None where no call's outcome is recorded
    reward_mean: float | None
    rewarded: int
    distinct_tools: int | None
    cost_usd: float | None = None  # of the episodes that record theirs, in total
    costed: int = 0
    success: Share | None = None
    order: str = EPISODE  # what findings are dated by: "step" of training, or the number of the "episode"
    first: int | None = None
    last: int | None = None
    tasks: int | None = None


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of an example: texts are shortened, scrubbed and not escaped."""

    role: str
    text: str
    calls: tuple[str, ...] = ()  # name(arguments) of each call
    failed: bool = False  # the result of a call that failed
    marked: bool = False  # where the two of a pair part, or what the finding is about


@dataclass(frozen=True, kw_only=True)
class Example:
    """An episode to look at, and why."""

    trajectory_id: str
    finding: str  # id of the finding that it shows; "" for a pair that parts
    title: str
    source: str
    outcome: str  # "success", "failure" or "unknown"
    reward: float | None
    messages: tuple[Message, ...]


@dataclass(frozen=True, kw_only=True)
class Parting:
    """Where a failing episode parts from a succeeding one of the same prompt, the two side by side."""

    group: str
    turn: int  # assistant turns before it are shared, from 0
    success: Example
    failure: Example
    why: str  # what tells the turn, in a sentence


@dataclass(frozen=True, kw_only=True)
class TraceDiagnosis:
    """Everything that judging agent traces hands on."""

    traces: TraceSet
    verdict: RunVerdict
    findings: tuple[Finding, ...]
    healthy: tuple[Healthy, ...]
    not_judged: tuple[NotJudged, ...]
    crashes: tuple[RuleCrash, ...]
    sources: tuple[Source, ...]
    tables: Mapping[str, pl.DataFrame]  # by name, columns as in docs/traces.md
    examples: tuple[Example, ...] = ()
    partings: tuple[Parting, ...] = ()
    redacted: bool = False
    measured: Mapping[str, Share] = field(default_factory=dict)  # by the names that gate checks use

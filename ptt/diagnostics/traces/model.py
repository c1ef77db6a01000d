"""What judging agent traces hands to reports, gates and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import (
    Aggregates,
    Answer,
    Diagnosis,
    Finding,
    Healthy,
    Interval,
    Link,
    NotJudged,
    RuleCrash,
    Run,
    RunVerdict,
    Signature,
    Source,
)

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One share: what it is called, what it is a share of, its link of the loop, and its worse direction."""

    label: str
    of: str
    link: Link
    worse: str = "higher"  # or lower


MEASURES: Final[Mapping[str, Measure]] = {
    "success_rate": Measure(label="success", of="labelled episodes", link=Link.EVALUATION, worse="lower"),
    "tool_failure_rate": Measure(label="failed tool calls", of="calls with a known outcome", link=Link.ENVIRONMENT),
    "malformed_rate": Measure(label="malformed tool calls", of="calls", link=Link.ENVIRONMENT),
    "loop_rate": Measure(label="loops", of="episodes", link=Link.EXPLORATION),
    "truncated_rate": Measure(label="truncation", of="episodes", link=Link.SYSTEMS),
    "void_rate": Measure(label="void turns", of="assistant turns", link=Link.ENVIRONMENT),
    "recovery_rate": Measure(label="recovery after a failed call", of="failures", link=Link.EXPLORATION, worse="lower"),
    "refusal_rate": Measure(label="refusals", of="episodes", link=Link.EXPLORATION),
    "repetition_rate": Measure(label="repetition", of="episodes", link=Link.EXPLORATION),
    "duplicate_rate": Measure(label="near-duplicates", of="episodes", link=Link.EXPLORATION),
    "pseudo_success_rate": Measure(label="pseudo-success", of="labelled episodes", link=Link.REWARD),
}
"""By the names that `TraceDiagnosis.measured` has; in the order of reports."""


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
    """What the traces are, as far as their files say; None for what no file says."""

    name: str
    kinds: Mapping[str, int]  # parser -> episodes
    episodes: int
    labelled: int  # episodes whose success or failure is known
    assistant_turns: int | None
    tool_calls: int | None
    tool_errors: int | None  # calls known to have failed; None where neither outcomes nor results are recorded
    reward_mean: float | None
    rewarded: int
    distinct_tools: int | None
    cost_usd: float | None = None  # of the episodes that record theirs, in total
    costed: int = 0
    tokens_in: int | None = None  # of the episodes that record theirs, in total
    tokens_out: int | None = None
    success: Share | None = None
    order: str = EPISODE  # what findings are dated by: "step" of training, or the number of the "episode"
    first: int | None = None
    last: int | None = None
    tasks: int | None = None


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call in a message, and how it ended; arguments only where texts are kept."""

    name: str
    arguments: str = ""
    failed: bool | None = None  # None where it is not known
    known_by: str = ""  # how: see call_outcomes.KNOWN_BY
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of an example: texts are shortened, scrubbed and not escaped; "" where none are kept."""

    role: str
    text: str
    number: int | None = None  # in its episode, from 1
    length: int | None = None  # of the whole text, in characters
    calls: tuple[Call, ...] = ()
    more_calls: int = 0  # that are not shown
    failed: bool = False  # the result of a call that failed
    mark: str = ""  # what is to be seen here: where the two of a pair part, or what a finding is about


@dataclass(frozen=True, kw_only=True)
class Example:
    """An episode to look at, and why."""

    name: str  # its own id, else its file and its number there
    source: str
    outcome: str  # "success", "failure" or "unknown"
    reward: float | None
    messages: tuple[Message, ...]
    findings: tuple[int, ...] = ()  # their numbers in the diagnosis, from 0; none of a pair that parts
    length: int = 0  # messages in all


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
    tables: Mapping[str, pl.DataFrame]  # by name; docs/tables.md says what each column is
    examples: tuple[Example, ...] = ()
    partings: tuple[Parting, ...] = ()
    redacted: bool = False
    measured: Mapping[str, Share] = field(default_factory=dict)  # by the names that gate checks use

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table; none where it is absent."""
        frame = self.tables.get(table)
        return [] if frame is None else frame.to_dicts()


def named_by(finding: Finding) -> tuple[str, ...]:
    """Return the episodes that a finding names for reading."""
    names = finding.evidence.get("episodes")
    return tuple(names.split(", ")) if isinstance(names, str) and names else ()


def tool_of(finding: Finding) -> str | None:
    """Return the tool that a finding is about."""
    kind, _, name = (finding.slice or "").partition(":")
    return name if kind == "tool" else None


NO_LOGPROBS: Final = "agent traces hold no log-probabilities"
SIGNATURE: Final = Signature(
    status=Answer.CANNOT_SAY,
    reason=NO_LOGPROBS,
    pair=None,
    aggregates=Aggregates(status="cannot_say", metrics={}, alarms={}),
)


def as_run(diagnosis: TraceDiagnosis) -> Diagnosis:
    """Return the verdict, the findings and the files as those of a run whose steps are the traces' own order."""
    traces = diagnosis.traces
    known = traces.first is not None and traces.last is not None
    return Diagnosis(
        run=Run(
            name=traces.name,
            framework=None,
            algorithm=None,
            first_step=traces.first,
            last_step=traces.last,
            step_count=(traces.last or 0) - (traces.first or 0) + 1 if known else 0,
            sequences=traces.episodes,
            model_tokens=0,
            step_unit=traces.order,
        ),
        verdict=diagnosis.verdict,
        signature=SIGNATURE,
        findings=diagnosis.findings,
        healthy=diagnosis.healthy,
        not_judged=diagnosis.not_judged,
        crashes=diagnosis.crashes,
        sources=diagnosis.sources,
        redacted=diagnosis.redacted,
        tables={},
    )


def with_records(diagnosis: TraceDiagnosis, run: Diagnosis) -> TraceDiagnosis:
    """Return the traces with the records of `run` in place of their own; the other way round than `as_run`."""
    return replace(
        diagnosis,
        traces=replace(diagnosis.traces, name=run.run.name),
        verdict=run.verdict,
        findings=run.findings,
        healthy=run.healthy,
        not_judged=run.not_judged,
        crashes=run.crashes,
        sources=run.sources,
        redacted=run.redacted,
    )

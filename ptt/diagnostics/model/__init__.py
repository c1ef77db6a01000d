"""The types that all later stages share: links, severities, findings, verdicts, and the diagnosis they make up."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model.outcome import Cost as Cost
from ptt.diagnostics.model.outcome import Guard as Guard
from ptt.diagnostics.model.outcome import Interval as Interval
from ptt.diagnostics.model.outcome import Outcome as Outcome
from ptt.diagnostics.model.outcome import SeriesOutcome as SeriesOutcome
from ptt.diagnostics.model.outcome import Steps as Steps
from ptt.diagnostics.model.outcome import StopReplay as StopReplay
from ptt.diagnostics.model.update import CAUSES as CAUSES
from ptt.diagnostics.model.update import GuardPrice as GuardPrice
from ptt.diagnostics.model.update import Ledger as Ledger
from ptt.diagnostics.model.update import LedgerShare as LedgerShare
from ptt.diagnostics.model.update import OutputDiversity as OutputDiversity
from ptt.diagnostics.model.update import Support as Support
from ptt.diagnostics.model.update import SupportMass as SupportMass
from ptt.diagnostics.model.update import SupportShare as SupportShare

if TYPE_CHECKING:
    import polars as pl

JsonScalar = str | int | float | bool | None

STEP: Final = "step"
STEP_BEFORE_NUMBER: Final = re.compile(r"\b([Ss])tep(s?)(?=\s[\d−-])")
STEP_AFTER_NUMBER: Final = re.compile(r"(?<=\d)([\s-](?:logged |recorded )?)step(s?)\b(?!\s?\d)")


def in_unit(text: str, unit: str, *, counts: bool = False) -> str:
    """Call the steps that a text numbers by what the rows of the log are: "since row 10".

    With `counts`, counted steps too: "97 rows". Advice is left alone, where steps are the trainer's own. A step without
    a number stays a step: the time of a step, log every step.
    """
    if unit == STEP:
        return text
    text = STEP_BEFORE_NUMBER.sub(lambda found: (unit.capitalize() if found[1] == "S" else unit) + found[2], text)
    return text if not counts else STEP_AFTER_NUMBER.sub(lambda found: found[1] + unit + found[2], text)


CUSTOM: Final = "custom:"
"""Begins the id of a rule of the user's own, so that none can be taken for a built-in one."""


class Link(StrEnum):
    """The links of the training loop, outside in; the order is the order of suspicion."""

    DATA_VALIDITY = "data_validity"
    ENVIRONMENT = "environment"
    EVALUATION = "evaluation"
    REWARD = "reward"
    TRAINING_SIGNAL = "training_signal"
    POLICY_UPDATE = "policy_update"
    CRITIC = "critic"
    EXPLORATION = "exploration"
    DATA_FRESHNESS = "data_freshness"
    NUMERICS = "numerics"
    SYSTEMS = "systems"


class Severity(StrEnum):
    """How much a finding matters, worst first."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the worst; grows with harmlessness."""
        return list(Severity).index(self)

    def at_least(self, other: Severity) -> bool:
        """Return whether this is as bad as `other`, or worse."""
        return self.rank <= other.rank


class Status(StrEnum):
    """The verdict on a whole run."""

    UNSTABLE = "unstable"
    SUSPECT = "suspect"
    HEALTHY = "healthy"
    CANNOT_SAY = "cannot_say"


class Answer(StrEnum):
    """Whether the signature was found."""

    FOUND = "found"
    NOT_FOUND = "not_found"
    CANNOT_SAY = "cannot_say"


LIKELY: Final = "likely cause: "
"""Begins the sentence of a finding's context that names the cause."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One failure this run shows, with its numbers and the limit they passed."""

    id: str
    severity: Severity
    link: Link
    claim: str
    observed: float | None
    limit: float | None
    unit: str
    slice: str | None = None
    onset_step: int | None = None  # at which it began; of what grew, began to grow
    onset_interval: Steps | None = None
    held_from_step: int | None = None  # the first logged step, where it held there already: then it has no onset
    limit_passed_step: int | None = None  # where that is another step: at which what grew was above the limit
    limit_passed_interval: Steps | None = None
    context: tuple[str, ...] = ()  # sentences: what the logs show where it sets in, and its likely cause
    evidence: Mapping[str, JsonScalar] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()  # the smallest look or experiment that tells this from its rivals
    next: tuple[str, ...] = ()  # what to do once it is confirmed, in the order an expert would
    consequence_of: str | None = None

    @property
    def likely_cause(self) -> str:
        """The sentence that names its likely cause in this run; empty where none is named."""
        return next((text for text in self.context if text.startswith(LIKELY)), "")

    @property
    def seen_step(self) -> int | None:
        """The first step the logs show it at: its onset, else the first logged one, else where it passed its limit."""
        steps = (self.onset_step, self.held_from_step, self.limit_passed_step)
        return next((step for step in steps if step is not None), None)

    @property
    def seen_interval(self) -> Steps | None:
        """The interval of `seen_step`."""
        if self.onset_step is None and self.held_from_step is None:
            return self.limit_passed_interval
        return self.onset_interval


def since_words(finding: Finding, write: Callable[[int], str] = str) -> str:
    """Say since when a finding holds, and how closely that is known; empty where it is not. `write` writes a step."""
    if finding.onset_step is not None:
        return f"since step {write(finding.onset_step)}{between_words(finding.onset_interval, write)}"
    if finding.held_from_step is not None:
        return "from the first logged step"
    if finding.limit_passed_step is None:
        return ""
    return f"past its limit at step {write(finding.limit_passed_step)}"


def between_words(interval: Steps | None, write: Callable[[int], str] = str) -> str:
    """Say in brackets between which steps one lies; empty where it is known to a step, or not how closely."""
    low, high = interval or (0, 0)
    return f" (between {write(low)} and {write(high)})" if low + 1 < high else ""


@dataclass(frozen=True, kw_only=True)
class NotJudged:
    """A question that this run cannot answer, why, and what to record so that the next one can."""

    id: str
    link: Link
    reason: str
    missing: tuple[str, ...] = ()
    enable: str = ""
    applies: bool = True  # False: the question makes no sense for this kind of training
    absent: bool = False  # True: nothing at all of what is missing is recorded, and the reason says so


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A rule that found its failure; one rule may find it in more than one form."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class Healthy:
    """A rule that looked and found nothing wrong; `notes` are findings worth knowing, at most low."""

    id: str
    link: Link
    reason: str
    notes: tuple[Finding, ...] = ()


RuleVerdict = Broken | Healthy | NotJudged


READING: Final = "reading:"
EVIDENCE: Final = "evidence:"
"""Begin the ids of crashes before any rule: of a parser or a step of the store, and of a topic of the evidence."""


@dataclass(frozen=True, kw_only=True)
class RuleCrash:
    """A rule, or a step before the rules, that raised: a fault of ours, shown, and paid for with the exit code."""

    id: str  # of a rule; or `reading:` with a parser's name, `evidence:` with a topic's
    error: str

    @property
    def of_rule(self) -> bool:
        """Whether a rule raised, and not what it looks at."""
        return not self.id.startswith((READING, EVIDENCE))


MOVED: Final = 1.2
"""Late over early, either way: a tail that moved by less is called flat."""


@dataclass(frozen=True, kw_only=True)
class TailGrowth:
    """Late window over early window of one slice's |log-ratio| percentiles; intervals are 95%."""

    p95: float | None
    p99: float | None
    interval_p95: Interval | None
    interval_p99: Interval | None
    beyond: Interval | None = None  # share of tokens beyond a ratio of two, in the early and in the late window

    @property
    def movements(self) -> frozenset[str]:
        """What the slice's tail did, rose, fell or flat, by each measure of it: several where they disagree."""
        ratios = [ratio for ratio in (self.p95, self.p99) if ratio is not None]
        if self.beyond is not None and any(self.beyond):
            early, late = self.beyond
            ratios.append(late / early if early else MOVED)
        return frozenset("rose" if ratio >= MOVED else "fell" if ratio <= 1 / MOVED else "flat" for ratio in ratios)


@dataclass(frozen=True, kw_only=True)
class Aggregates:
    """Whether loss, reward, entropy, mean KL and gradient norm would have raised an alarm."""

    status: str  # quiet | alarming | cannot_say
    metrics: Mapping[str, str]  # canonical name -> flat | rose | fell | cannot_say
    alarms: Mapping[str, int]  # canonical name -> first step of its alarm
    alarm_intervals: Mapping[str, Steps] = field(default_factory=dict)  # 95%, of the alarms
    means_passed: Mapping[str, int] = field(default_factory=dict)  # first step of a mean over its limit, if well before
    last_steps: Mapping[str, int] = field(default_factory=dict)  # of those that end before the run does

    @property
    def until(self) -> int | None:
        """The last step that all of them cover, or None: the run's last."""
        return min(self.last_steps.values(), default=None)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The judgement on tool-conditioned variance amplification, and the numbers behind it."""

    status: Answer
    reason: str
    pair: str | None
    aggregates: Aggregates
    onset_step: int | None = None  # from which the tail grew
    onset_interval: Steps | None = None
    limit_passed_step: int | None = None  # at which a mean over 20 steps of it passed the limit of the finding
    limit_passed_interval: Steps | None = None
    lead_steps: int | None = None
    lead_is_lower_bound: bool = False
    lead_interval: tuple[int, int | None] | None = None  # 95%; open above where no aggregate raised an alarm
    lead_until: int | None = None  # the last step that tokens and aggregates cover, where the run goes on after it
    growth: Mapping[str, TailGrowth] = field(default_factory=dict)  # slice -> growth
    p_value: float | None = None
    false_alarm_rate: float | None = None
    conditions: Mapping[str, bool | None] = field(default_factory=dict)  # growth, localised, lasting, material


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file of the run: what read it and what was lost."""

    path: str
    kind: str
    bytes: int
    rows_ok: int
    rows_bad: int
    bytes_lost: int
    note: str | None


STATE: Final = frozenset(
    {"global_step", "logging_steps", "max_steps", "save_steps", "status", "train_batch_size", "train_runtime",
     "exit_reason", "row_unit", "rows_placed_by", "kind_of_training", "rows_until", "rows_until_step",
     "long_step_seconds", "silent_seconds", "silent_after_step", "silent_lines", "silent_says", "silent_said",
     "lines_from", "lines_until", "lines_said_from", "lines_count", "lines_say", "lines_said"}
)  # fmt: skip
"""What a trainer's saved state or its log holds by itself: of its settings hardly any."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What the run is, as far as its files tell."""

    name: str
    framework: str | None
    algorithm: str | None
    first_step: int | None
    last_step: int | None
    step_count: int
    sequences: int
    model_tokens: int
    context: Mapping[str, JsonScalar] = field(default_factory=dict)
    step_unit: str = STEP  # what a step of it is: "row", "episode" or "epoch" where the files number no steps
    placed_by: str | None = None  # what put rows without a step at their steps
    kind: str | None = None  # of training: online, supervised, preference, ...; None where nothing tells it
    kind_reason: str = ""  # by what it was told

    @property
    def settings(self) -> dict[str, JsonScalar]:
        """What the run records of its settings, without what every trainer's state holds."""
        return {name: value for name, value in sorted(self.context.items()) if name not in STATE}


@dataclass(frozen=True, kw_only=True)
class CoreQuestion:
    """One of the questions that a run must answer before it is called healthy, and what it could have seen."""

    question: str  # reward, loss, entropy, ...
    judged: bool  # on enough rows for a fault of the size below to be seen
    rows: int  # values that were logged of it
    metric: str | None = None  # what it was judged by, as logged
    change: str = ""  # what would have shown, up to its size: "a fall of the reward by"
    detectable: float | None = None  # the smallest such change, seen in four of five such runs
    unit: str = ""
    why: str = ""  # it was not judged


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How much of a run was judged: the checks that gave an answer, and what its core questions could have seen."""

    judged: int
    asked: int
    core: tuple[CoreQuestion, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every core question was judged; a run that none was put to holds no training."""
        return bool(self.core) and all(question.judged for question in self.core)


@dataclass(frozen=True, kw_only=True)
class RunVerdict:
    """The answer in one sentence, the link that broke first, and what to do, in order."""

    status: Status
    headline: str
    first_broken_link: Link | None
    next: tuple[str, ...]
    coverage: Coverage | None = None  # None: judged by a version that did not say


MISCOUNTED: Final = "miscounted"
"""Key of a finding's evidence: the canonical metrics that are not what they are called, and whose judgements follow."""


class Agreement(StrEnum):
    """What recomputing one thing that the trainer says gave."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_CHECKABLE = "not_checkable"
    FACT = "fact"  # there is nothing logged to hold it against


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """One thing that the trainer says, recomputed from the run's own rows or held against another metric of its own."""

    quantity: str  # canonical name of a metric, "advantage" or "loss denominator"
    agreement: Agreement
    said: str  # what agrees, the nearest that does not, or the fact: "k3, mean over the sampled tokens of a step"
    logged_as: str | None = None  # the metric or column, as spelt
    formula: str | None = None  # id of the estimator: "grpo", "k3"; the same id means the same quantity
    reduction: str | None = None  # id of the reduction: "token_mean/model_mask"
    logged: float | None = None  # typical (median) value that is logged, at the steps where it was checked
    recomputed: float | None = None  # the same, recomputed
    error: float | None = None  # typical relative error of what agrees, or of the nearest
    steps: int = 0  # that it was checked at
    agreeing: int = 0  # of them
    since: int | None = None  # first step from which on it differs
    reason: str = ""  # why it is not checkable, or what may be the matter
    missing: tuple[str, ...] = ()  # columns or metrics that would make it checkable
    finding: str | None = None  # id of the rule whose finding it led to


class Strength(StrEnum):
    """What speaks for an advisory; the three are never mixed."""

    CAUSE = "cause"  # its version and settings hold, and the run shows its signature
    NOTE = "note"  # its settings hold, and the run does not or cannot show the rest, or its version is not certain
    POSSIBLE = "possible"  # the run shows its signature, and not all of its settings are recorded


NO_VERSION: Final = " is affected, and the version is not recorded"
"""Ends the reason of a match that hangs on a version."""


@dataclass(frozen=True, kw_only=True)
class AdvisoryMatch:
    """One advisory that may concern a run, what speaks for it, and what to change."""

    id: str
    strength: Strength
    kind: str  # bug | silent-setting | risky-setting
    severity: Severity
    summary: str
    effect: str
    findings: tuple[str, ...] = ()  # ids of the run's findings that belong to its signature
    settings: Mapping[str, JsonScalar] = field(default_factory=dict)  # that hold, as the run records them
    looked_for: bool = False  # of a note: the run could have shown its signature, and does not
    shaped: bool = False  # its signature asks for the shape of a metric, not for findings alone
    by_default: tuple[str, ...] = ()  # of these settings: not written, so that the framework's default counts
    packages: Mapping[str, str] = field(default_factory=dict)  # affected, with the version recorded; "" if none is
    unsure: tuple[str, ...] = ()  # why it is no more than a note
    would_show: tuple[str, ...] = ()  # what to record, so that the run says whether it applies
    change: str = ""  # the line to write
    where: str = ""
    upgrade: str = ""
    workaround: str = ""
    references: tuple[str, ...] = ()
    source: str = ""  # the folder of one's own that it comes from; empty: it comes with ptt


@dataclass(frozen=True, kw_only=True)
class AdvisoryReport:
    """Which advisories concern a run, and what was known of it when they were matched."""

    version: str  # of the database
    date: str
    count: int  # advisories that were held against the run
    framework: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)  # recorded versions of packages that advisories name
    settings: int = 0  # how many are recorded
    unresolved: int = 0  # of a config: settings whose value is a variable of the shell
    matches: tuple[AdvisoryMatch, ...] = ()  # strongest first

    def of(self, strength: Strength) -> tuple[AdvisoryMatch, ...]:
        """Return the matches of one strength."""
        return tuple(match for match in self.matches if match.strength is strength)


@dataclass(frozen=True, kw_only=True)
class DiagnosisRecord:
    """What a diagnosis says, without its tables: what a store keeps as JSON."""

    run: Run
    verdict: RunVerdict
    signature: Signature
    findings: tuple[Finding, ...]
    healthy: tuple[Healthy, ...]
    not_judged: tuple[NotJudged, ...]
    crashes: tuple[RuleCrash, ...]
    sources: tuple[Source, ...]
    from_findings: bool = False  # True: read back from findings.json, which holds only a part of a diagnosis
    outcome: Outcome | None = None  # None: judged by a version that did not describe it
    audit: tuple[AuditRow, ...] | None = None  # what the trainer says, recomputed; None: not made
    ledger: Ledger | None = None  # None: no finding asks for it
    support: Support | None = None  # what the tail follows; None: no finding asks for it
    advisories: AdvisoryReport | None = None  # None: judged by a version that knew none
    cost: Cost | None = None  # None: nothing is wrong, or it is not known since when
    stop_replay: StopReplay | None = None  # None: nothing that a watch looks at was recorded
    redacted: bool = False  # True: names and texts of the run were taken out, so that it can be shared
    guessable: bool = False  # True of a redacted one whose hashes no secret keys: a guessed name can be confirmed

    @property
    def passed(self) -> tuple[Healthy, ...]:
        """The checks that found nothing: what one noted stands among the findings, and nowhere as healthy."""
        return tuple(check for check in self.healthy if not check.notes)

    @property
    def stop(self) -> StopReplay | None:
        """Where a watch would have stopped the run, if the whole run bears that out.

        A finding of the same rule does, or a serious one since a step as near to that of the watch as its stop.
        """
        stop = self.stop_replay
        if stop is None or stop.step is None:
            return None
        since = stop.step if stop.since_step is None else stop.since_step
        serious = [one.onset_step for one in self.findings if one.severity.at_least(Severity.MEDIUM)]
        near = any(onset is not None and abs(onset - since) <= stop.step - since for onset in serious)
        return stop if near or any(one.id == stop.rule for one in self.findings) else None


@dataclass(frozen=True, kw_only=True)
class Diagnosis(DiagnosisRecord):
    """Everything that judging hands to the reports."""

    tables: Mapping[str, pl.DataFrame]
    judged_with: str = ""  # says so where a store shows what it was judged to be under other settings or by another ptt

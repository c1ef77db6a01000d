"""Read findings.json back into a diagnosis, as far as it contains one, and refuse anything else in the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field, structs

from ptt.diagnostics.documents import (
    Count,
    DocumentError,
    Integer,
    Number,
    Scalar,
    convert_document,
    parse_json,
    read_at_most,
)
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.metrics.catalogue import called
from ptt.diagnostics.model import (
    AdvisoryReport,
    Aggregates,
    Agreement,
    Answer,
    AuditRow,
    CoreQuestion,
    Cost,
    Coverage,
    Diagnosis,
    Finding,
    Guard,
    GuardPrice,
    Ledger,
    LedgerShare,
    Link,
    NotJudged,
    Outcome,
    OutputDiversity,
    RuleCrash,
    Run,
    RunVerdict,
    SeriesOutcome,
    Severity,
    Signature,
    Source,
    Status,
    StopReplay,
    Support,
    SupportMass,
    SupportShare,
    TailGrowth,
)

SCHEMA_VERSION: Final = 1
MAX_BYTES: Final = 64 << 20  # a run of a hundred thousand files lists them in some 15 MB
MAX_FINDINGS: Final = 1000  # there are some 150 rules, and few find their failure in more than two slices
MAX_ENTRIES: Final = 1000  # in a list or mapping of one finding
MAX_SOURCES: Final = 1_000_000
MAX_CHAIN: Final = 40  # findings between a first cause and a last consequence: no page could fold a longer chain
NOT_APPLICABLE: Final = "does not apply to "
"""How every rule begins its reason where its question makes no sense for a kind of training."""

Texts = Annotated[tuple[str, ...], Meta(max_length=MAX_ENTRIES)]
StepInterval = tuple[Integer, Integer]


class _Part(Struct):
    """An object of the document; keys that a later release adds are passed over."""


class _Version(_Part):
    schema_version: int


class _Steps(_Part):
    first: Integer | None
    last: Integer | None
    count: Count
    unit: Literal["step", "row", "episode", "epoch"] = "step"
    placed_by: str | None = None


class _Run(_Part):
    name: str
    framework: str | None
    algorithm: str | None
    steps: _Steps
    sequences: Count
    model_tokens: Count
    kind: str | None = None
    kind_reason: str = ""


class _CoreQuestion(_Part):
    question: str
    judged: bool
    rows: Count
    metric: str | None
    change: str
    detectable: Number | None
    unit: str
    why: str


class _Coverage(_Part):
    judged: Count
    asked: Count
    core: Annotated[tuple[_CoreQuestion, ...], Meta(max_length=MAX_ENTRIES)]


class _Verdict(_Part):
    status: Status
    headline: str
    first_broken_link: Link | None
    next: Texts
    coverage: _Coverage | None = None


class _SeriesOutcome(_Part):
    name: str
    logged_as: str
    first: Number | None
    last: Number | None
    best: Number | None
    best_step: Integer | None
    change: tuple[Number, Number] | None
    changed_at: Integer | None
    split: Literal["train", "eval"] = "train"
    direction: Literal["higher", "lower"] | None = None
    unit: str = ""
    count: Count = 0
    not_finite: Count = 0
    first_step: Integer | None = None
    last_step: Integer | None = None
    low: Number | None = None
    high: Number | None = None
    early: Number | None = None
    late: Number | None = None
    movement: Literal["rose", "fell", "flat", "cannot_say"] = "cannot_say"
    detectable: Number | None = None
    changed_interval: StepInterval | None = None
    still_moving: bool = False
    settled_at: Integer | None = None
    turn: Number | None = None
    turn_step: Integer | None = None
    spikes: Count = 0
    noise: Number | None = None
    at_zero: Number = 0.0
    bound: Number | None = None
    at_bound: Number = 0.0
    spread_left: Number | None = None


class _Outcome(_Part):
    ended: Literal["finished", "stopped", "killed", "crashed", "running", "unknown"]
    steps: StepInterval | None
    series: Annotated[tuple[_SeriesOutcome, ...], Meta(max_length=MAX_ENTRIES)]
    best_checkpoint: str | None
    said: str
    planned: Integer | None = None
    series_left_out: Count = 0
    how_ended: str = ""
    did: str = ""
    cost: str = ""


class _Guard(_Part):
    name: str
    value: Number
    unit: str
    says: str


class _StopReplay(_Part):
    budget: Annotated[float, Meta(gt=0, lt=1)]
    first_step: Integer
    last_step: Integer
    step: Integer | None
    rule: str
    since_step: Integer | None
    claim: str
    warned_step: Integer | None
    guards: Annotated[tuple[_Guard, ...], Meta(max_length=MAX_ENTRIES)]
    watched: Texts


class _Cost(_Part):
    rule: str
    onset_step: Integer
    last_step: Integer
    steps: Count
    hours: Number | None
    stop_step: Integer | None
    steps_after_stop: Integer | None
    hours_after_stop: Number | None
    said: str = ""


class _Aggregates(_Part):
    status: Literal["quiet", "alarming", "cannot_say"]
    metrics: Annotated[Mapping[str, Literal["flat", "rose", "fell", "cannot_say"]], Meta(max_length=MAX_ENTRIES)]
    last_steps: Annotated[Mapping[str, Integer], Meta(max_length=MAX_ENTRIES)] = field(default_factory=dict)


class _Growth(_Part):
    p95: Number | None
    p99: Number | None
    interval_p99: tuple[Number, Number] | None


class _Signature(_Part):
    status: Answer
    reason: str
    pair: str | None
    aggregates: _Aggregates
    onset_step: Integer | None
    onset_interval: StepInterval | None
    lead_steps: Integer | None
    lead_is_lower_bound: bool
    growth: Annotated[Mapping[str, _Growth], Meta(max_length=MAX_ENTRIES)]
    p_value: Number | None
    false_alarm_rate: Number | None
    lead_interval: tuple[Integer, Integer | None] | None = None
    lead_until: Integer | None = None
    limit_passed_step: Integer | None = None
    limit_passed_interval: StepInterval | None = None


class _Finding(_Part):
    id: str
    severity: Severity
    link: Link
    slice: str | None
    onset_step: Integer | None
    onset_interval: StepInterval | None
    claim: str
    observed: Number | None
    limit: Number | None
    unit: str
    evidence: Annotated[Mapping[str, Scalar], Meta(max_length=MAX_ENTRIES)]
    causes: Texts
    next: Texts  # what confirms it comes first there, and cannot be separated from the rest
    consequence_of: str | None
    context: Texts = ()
    held_from_step: Integer | None = None
    limit_passed_step: Integer | None = None
    limit_passed_interval: StepInterval | None = None


class _AuditRow(_Part):
    quantity: str
    agreement: Agreement
    said: str
    logged_as: str | None
    formula: str | None
    reduction: str | None
    logged: Number | None
    recomputed: Number | None
    error: Number | None
    steps: Count
    agreeing: Count
    since: Integer | None
    reason: str
    missing: Texts
    finding: str | None


class _LedgerShare(_Part):
    by: str
    value: str
    share: Number
    token_share: Number
    signed: Number
    kl: Number
    masked: Number
    truncated: Number
    clipped: Number


class _GuardPrice(_Part):
    guard: str
    pair: str | None
    tail: tuple[Number, Number] | None
    cost: tuple[Number, Number] | None
    second_moment: Number | None
    holds: bool
    reason: str


class _Ledger(_Part):
    finding: str
    objective: str
    reason: str
    said: str
    place: str
    approximated: str
    since: Integer | None
    steps: Count
    tokens: Count
    half_tokens: Number | None
    early_half_tokens: Number | None
    effective_sequences: Number | None
    tail_share: Number | None
    tail_tokens: Number | None
    second_moment: Number | None
    shares: Annotated[tuple[_LedgerShare, ...], Meta(max_length=MAX_ENTRIES)]
    guards: Annotated[tuple[_GuardPrice, ...], Meta(max_length=MAX_ENTRIES)]
    cheapest: str | None


class _SupportShare(_Part):
    cause: Literal["novelty", "errors", "length", "exposure"]
    share: Number | None
    interval: tuple[Number, Number] | None
    reason: str = ""


class _SupportMass(_Part):
    window: Literal["early", "late"]
    by: str
    value: str
    tokens: Count
    groups: Count
    policy: Number
    reference: Number
    reference_interval: tuple[Number, Number]
    unsupported: Number
    unsupported_interval: tuple[Number, Number]
    tail_share: Number | None


class _OutputDiversity(_Part):
    window: Literal["early", "mid", "late"]
    outputs: Count
    distinct: Count
    exact: Number
    near: Number
    unseen: Number
    familiarity: Number


class _Support(_Part):
    follows: Literal["novelty", "errors", "length", "exposure", "none", "cannot_tell"]
    reason: str
    pair: str
    steps: Count
    tokens: Count
    groups: Count
    shares: Annotated[tuple[_SupportShare, ...], Meta(max_length=MAX_ENTRIES)]
    masses: Annotated[tuple[_SupportMass, ...], Meta(max_length=MAX_ENTRIES)]
    outputs: Annotated[tuple[_OutputDiversity, ...], Meta(max_length=MAX_ENTRIES)]
    alpha: tuple[Number, Number] | None
    changes: Literal["moves", "frozen", "cannot_tell"]
    change: Number | None
    change_interval: tuple[Number, Number] | None


class _NotJudged(_Part):
    id: str
    link: Link
    reason: str
    missing: Texts
    enable: str


class _Crash(_Part):
    id: str
    error: str


class _Source(_Part):
    path: str
    kind: str
    rows_ok: Count
    rows_bad: Count
    bytes_lost: Count
    note: str | None


class _Document(_Part):
    run: _Run
    verdict: _Verdict
    signature: _Signature
    findings: Annotated[tuple[_Finding, ...], Meta(max_length=MAX_FINDINGS)]
    not_judged: Annotated[tuple[_NotJudged, ...], Meta(max_length=MAX_FINDINGS)]
    sources: Annotated[tuple[_Source, ...], Meta(max_length=MAX_SOURCES)]
    crashes: Annotated[tuple[_Crash, ...], Meta(max_length=MAX_FINDINGS)] = ()
    outcome: _Outcome | None = None
    stop_replay: _StopReplay | None = None
    cost: _Cost | None = None
    audit: Annotated[tuple[_AuditRow, ...], Meta(max_length=MAX_FINDINGS)] | None = None
    ledger: _Ledger | None = None
    support: _Support | None = None
    advisories: AdvisoryReport | None = None


def read_findings(path: Path) -> Diagnosis:
    """Read a findings.json; InputError says which key is wrong. There are no tables in it, and no healthy checks."""
    parsed = _parse(path)
    try:
        version = convert_document(parsed, _Version).schema_version
        if version != SCHEMA_VERSION:
            raise DocumentError("schema_version", f"is {version}, and this version of ptt reads {SCHEMA_VERSION}")
        diagnosis = _diagnosis(convert_document(_of_a_run(parsed), _Document))
        check_chains(diagnosis.findings)
    except DocumentError as error:
        raise InputError(
            f"{path}: is not a readable findings.json: {error}. Give the findings.json, or better the store, "
            "that `ptt diagnose` wrote."
        ) from error
    return diagnosis


def _parse(path: Path) -> object:
    try:
        content = read_at_most(path, MAX_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise InputError(
            f"{path}: has more than {MAX_BYTES >> 20} MiB, more than any findings.json; give the store that "
            "`ptt diagnose` wrote."
        ) from error
    try:
        return parse_json(content)
    except ValueError as error:
        raise InputError(f"{path}: is not JSON ({str(error)[:200]}); write it again with `ptt diagnose`.") from error


def _of_a_run(parsed: object) -> object:
    """Leave out the table of costs of a trace set: the `cost` of a run is another thing."""
    if isinstance(parsed, dict) and isinstance(parsed.get("cost"), list):
        return {key: value for key, value in parsed.items() if key != "cost"}
    return parsed


def _diagnosis(document: _Document) -> Diagnosis:
    run, signature = structs.asdict(document.run), structs.asdict(document.signature)
    steps, aggregates = document.run.steps, document.signature.aggregates
    del run["steps"]
    signature["aggregates"] = Aggregates(**structs.asdict(aggregates), alarms={})
    signature["growth"] = {
        name: TailGrowth(**structs.asdict(growth), interval_p95=None)
        for name, growth in document.signature.growth.items()
    }
    return Diagnosis(
        run=Run(
            **run,
            first_step=steps.first,
            last_step=steps.last,
            step_count=steps.count,
            step_unit=steps.unit,
            placed_by=steps.placed_by,
        ),
        verdict=RunVerdict(**{**structs.asdict(document.verdict), "coverage": _coverage(document.verdict.coverage)}),
        signature=Signature(**signature),
        findings=tuple(Finding(**structs.asdict(finding)) for finding in document.findings),
        healthy=(),
        not_judged=tuple(
            NotJudged(
                **structs.asdict(item),
                applies=bool(item.missing or item.enable) or not item.reason.startswith(NOT_APPLICABLE),
            )
            for item in document.not_judged
        ),
        crashes=tuple(RuleCrash(id=crash.id, error=crash.error) for crash in document.crashes),
        # findings.json does not hold the bytes, and no report shows them
        sources=tuple(Source(**structs.asdict(source), bytes=0) for source in document.sources),
        tables={},
        from_findings=True,
        outcome=_outcome(document.outcome),
        advisories=document.advisories,
        stop_replay=_stop_replay(document.stop_replay),
        cost=None if document.cost is None else Cost(**structs.asdict(document.cost)),
        audit=None if document.audit is None else tuple(AuditRow(**structs.asdict(row)) for row in document.audit),
        ledger=_ledger(document.ledger),
        support=None if document.support is None else _support(document.support),
    )


def _support(support: _Support) -> Support:
    lists: dict[str, Any] = {
        "shares": tuple(SupportShare(**structs.asdict(one)) for one in support.shares),
        "masses": tuple(SupportMass(**structs.asdict(one)) for one in support.masses),
        "outputs": tuple(OutputDiversity(**structs.asdict(one)) for one in support.outputs),
    }
    return Support(**structs.asdict(support) | lists)


def _coverage(coverage: _Coverage | None) -> Coverage | None:
    if coverage is None:
        return None
    core = tuple(CoreQuestion(**structs.asdict(question)) for question in coverage.core)
    return Coverage(judged=coverage.judged, asked=coverage.asked, core=core)


def _ledger(ledger: _Ledger | None) -> Ledger | None:
    if ledger is None:
        return None
    shares = tuple(LedgerShare(**structs.asdict(share)) for share in ledger.shares)
    guards = tuple(GuardPrice(**structs.asdict(price)) for price in ledger.guards)
    return Ledger(**{**structs.asdict(ledger), "shares": shares, "guards": guards})


def _outcome(outcome: _Outcome | None) -> Outcome | None:
    if outcome is None:
        return None
    series = tuple(SeriesOutcome(**structs.asdict(one), label=called(one.name, one.split)) for one in outcome.series)
    return Outcome(**{**structs.asdict(outcome), "series": series})


def _stop_replay(replay: _StopReplay | None) -> StopReplay | None:
    if replay is None:
        return None
    guards = tuple(Guard(**structs.asdict(guard)) for guard in replay.guards)
    return StopReplay(**{**structs.asdict(replay), "guards": guards})


def check_chains(findings: tuple[Finding, ...]) -> None:
    """Refuse long chains: each link of one but its ends is a finding that both follows and is followed."""
    causes = {finding.consequence_of for finding in findings}
    known = {finding.id for finding in findings}
    between = [finding for finding in findings if finding.id in causes and finding.consequence_of in known]
    if len(between) > MAX_CHAIN:
        raise DocumentError(
            "findings", f"has more than {MAX_CHAIN} that both follow from another and are followed by one"
        )

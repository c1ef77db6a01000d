"""Judge a share that should stay low: what it rose to over the order of the episodes, or what it is throughout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, NotJudged, Verdict
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray
from ptt.diagnostics.traces.model import Parting, Share
from ptt.diagnostics.traces.order import Shift, shift_of
from ptt.diagnostics.traces.tables import TraceTables
from ptt.diagnostics.wording import pct

WHOLE: Final = 0.9  # of the trials: it happens almost every time, so nothing else can be seen
FEW_HITS: Final = 5  # in episodes too few for an interval: then what is seen is told as it is, as a note
FEW_SHARE: Final = 0.5  # of the trials there: any agent occasionally does less than this
MAX_SHOWN: Final = 3  # episodes that a finding names for reading: nobody reads more
INFO_SHARE: Final = 0.5  # of the level that counts: a share above is worth a note


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a share may come to."""

    floor: float  # what one that rose must reach to matter
    factor: float  # and times the early share
    medium: float  # a share in the end that makes a rise so severe
    high: float
    chronic: float  # too much, whatever it was at first
    surely: float | None = None
    """Where the low end of its interval must lie for a share of `chronic` to count; there itself without one."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a share, in the words of its findings."""

    trials: str  # "tool calls"
    hits: str  # "fail": completes "90% of the tool calls"
    bounds: Bounds
    causes: tuple[str, ...]
    confirm: str
    next: tuple[str, ...]
    unit: str = "share"
    metric: str = ""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A share of the set, and how its hits lie: of each episode."""

    share: Share
    hits: FloatArray
    trials: FloatArray
    rate: str | None = None  # its name among the rates of the set; None of what is looked at alone
    tool: str | None = None
    reach: float = 1.0  # share of the episodes that it concerns: what happens in few is no fault of the whole
    more: Mapping[str, JsonScalar] = field(default_factory=dict)

    @classmethod
    def of(
        cls, tables: TraceTables, hits: pl.Series, trials: pl.Series | None = None, *, rate: str | None = None
    ) -> Measured:
        """Measure a value of each episode: hits of trials, or of the episodes where `hits` is known."""
        weights = np.ones(len(hits)) if trials is None else trials.fill_null(0).to_numpy().astype(np.float64)
        return cls(
            share=tables.share(hits, trials),
            hits=hits.cast(pl.Float64).fill_null(0.0).to_numpy(),
            trials=np.where(hits.is_not_null().to_numpy(), weights, 0.0),
            rate=rate,
        )


def judge_share(tables: TraceTables, asked: Asked, measured: Measured) -> Finding | None:
    """Return what is wrong with a share: a rise, or else a level that is too high throughout; None if nothing is."""
    bounds, share = asked.bounds, measured.share
    if not share.trials:
        return None
    rise = _rise(tables, bounds, measured)
    low = share.interval[0] if share.interval is not None else None
    level, limit = _level(bounds, share, low)
    if level is not None and level.at_least(Severity.MEDIUM):
        ended = shift_of(
            tables.order, measured.hits, measured.trials, lambda early, late: late < np.minimum(early, bounds.floor)
        )
        level = level if ended is None else Severity.LOW  # it is over
    if rise is not None and tables.order.arbitrary and level is not None:
        rise = None  # the level is surer than an order that nothing tells
    severity = level if rise is None else min(filter(None, (level, _risen(bounds, rise))), key=lambda each: each.rank)
    if severity is None:
        return None
    if measured.reach < bounds.floor and severity.rank < Severity.MEDIUM.rank:
        severity = Severity.MEDIUM  # a fault of its own, in few episodes
    limit = bounds.floor if rise is not None else limit
    return _finding(tables, asked, measured, rise, (severity, limit))


def _rise(tables: TraceTables, bounds: Bounds, measured: Measured) -> Shift | None:
    """Return the rise of a share: as it was tested with the others of the set, or else alone."""
    if measured.rate is None:
        return shift_of(tables.order, measured.hits, measured.trials, partial(rises, bounds))
    return tables.shift(measured.rate)


def rises(bounds: Bounds, early: FloatArray, late: FloatArray) -> BoolArray:
    """Tell whether a rise of a share matters."""
    matters: BoolArray = late >= np.maximum(bounds.floor, bounds.factor * early)
    return matters


def _risen(bounds: Bounds, rise: Shift) -> Severity:
    if rise.late >= bounds.high:
        return Severity.HIGH
    return Severity.MEDIUM if rise.late >= bounds.medium else Severity.LOW


def _level(bounds: Bounds, share: Share, low: float | None) -> tuple[Severity | None, float]:
    """Return how bad a level is, by what it is at least, as far as chance goes; and what it was held against."""
    value, note = share.value or 0.0, INFO_SHARE * bounds.chronic
    if low is None:
        told = share.hits >= FEW_HITS and value >= FEW_SHARE
        return Severity.LOW if told else None, FEW_SHARE
    if low >= bounds.high:
        return Severity.CRITICAL if value >= WHOLE else Severity.HIGH, bounds.high
    if low >= (bounds.chronic if bounds.surely is None else bounds.surely) and value >= bounds.chronic:
        return Severity.MEDIUM, bounds.chronic
    return Severity.LOW if low >= note else None, note


def _finding(
    tables: TraceTables, asked: Asked, measured: Measured, rise: Shift | None, held: tuple[Severity, float]
) -> Finding:
    (severity, limit), share = held, measured.share
    trials = asked.trials if measured.tool is None else f"{asked.trials} of {measured.tool}"
    counts = f"{share.hits:,} of {share.trials:,}"
    if rise is not None:
        claim = (
            f"{pct(rise.early)} of the {trials} {asked.hits} at first, {pct(rise.late)} at the end ({counts} in all)"
        )
    elif share.interval is not None:
        low, high = share.interval
        claim = (
            f"{pct(share.value or 0.0)} of the {trials} {asked.hits} ({counts}; 95% interval {pct(low)} to {pct(high)})"
        )
    else:
        claim = f"{counts} {trials} {asked.hits}"
    evidence: dict[str, JsonScalar] = {"metric": asked.metric, "hits": share.hits, "trials": share.trials}
    if share.interval is not None:
        evidence |= {"low": share.interval[0], "high": share.interval[1], "clusters": share.clusters}
    if rise is not None:
        evidence |= {"early": rise.early, "late": rise.late, "p_value": rise.p_value}
    if not tables.order.timed and rise is not None:
        evidence["order"] = "of the files"
    evidence |= measured.more
    evidence["episodes"] = tables.names(shown_episodes(measured, tables, rise))
    return Finding(
        severity=severity,
        claim=claim,
        observed=share.value if rise is None else rise.late,
        limit=limit,
        unit=asked.unit,
        slice=f"tool:{measured.tool}" if measured.tool is not None else None,
        onset_step=rise.onset if rise else None,
        onset_interval=rise.interval if rise else None,
        evidence=evidence,
        causes=asked.causes,
        confirm=(asked.confirm.format(where=f"from {tables.traces.order} {rise.onset} on" if rise else "named here"),),
        next=asked.next,
    )


def shown_episodes(measured: Measured, tables: TraceTables, rise: Shift | None) -> list[int]:
    """Return the first episodes with the most hits, from the onset on."""
    hits = measured.hits.copy()
    if rise is not None:
        hits[tables.order.place < rise.onset] = 0
    worst = np.argsort(-np.minimum(hits, FEW_HITS), kind="stable")[:MAX_SHOWN]
    return [int(at) for at in worst if hits[at] > 0]


CALLS_ENABLE: Final = "write episodes as messages with their tool calls and results"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a check hands on: its answer, and what it counted on the way."""

    verdict: Verdict
    measured: Mapping[str, Share] = field(default_factory=dict)
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    partings: tuple[Parting, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Check:
    """One question to the traces; findings take its id and link, where they name no other link."""

    id: str
    link: Link
    judge: Callable[[TraceTables], Judged]


def graded(*findings: Finding, reason: str) -> Verdict:
    """Return findings by severity: broken if one is at least medium, else as notes beside a clean answer."""
    if any(finding.severity.at_least(Severity.MEDIUM) for finding in findings):
        return Broken(findings=findings)
    return Healthy(reason=reason, notes=findings)


def undated(verdict: Verdict) -> Verdict:
    """Make changes notes: they are over an order that is of the files alone, and says nothing of time."""
    match verdict:
        case Broken():
            return graded(*map(_as_note, verdict.findings), reason="it changes over the order of the files alone")
        case Healthy():
            return replace(verdict, notes=tuple(map(_as_note, verdict.notes)))
        case _:
            return verdict


def _as_note(finding: Finding) -> Finding:
    if finding.onset_step is None:
        return finding
    return replace(finding, severity=Severity.INFO, claim=f"{finding.claim}; over the order of the files, not of time")


def no_calls(tables: TraceTables) -> Judged:
    """Return that there is no call to judge; where messages are recorded, they are all that the agent did."""
    if (tables.episodes["said"].sum() or 0) > 0:
        return not_judged(
            "no message holds a tool call, and actions that are written as text are not read as calls",
            missing=("tool_calls",),
            applies=False,
        )
    return not_judged("no tool calls are recorded", missing=("tool_calls",), enable=CALLS_ENABLE)


def not_judged(reason: str, *, missing: tuple[str, ...] = (), enable: str = "", applies: bool = True) -> Judged:
    """Return that a question has no answer, and what to record so that it has one."""
    return Judged(verdict=NotJudged(reason=reason, missing=missing, enable=enable, applies=applies))

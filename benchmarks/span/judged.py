"""One drawn run: made, written, judged as `ptt diagnose` judges it, and set against its truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks import naive
from benchmarks.span.draw import draw
from benchmarks.span.dump import make, metrics_of, write
from benchmarks.span.faults import break_data, calm
from benchmarks.span.run import Drawn
from benchmarks.span.truth import Truth, truth_of
from ptt import api
from ptt.diagnostics.model import Finding, Link, Severity

LATE_REASON: Final = "before the end"  # words of the reason that a rise came too late to be told from noise
TAIL_IDS: Final = ("tool-tail-growth", "tail-growth-everywhere", "tails-high")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What was said of one run, beside what is true of it."""

    seed: int
    fault: str  # planted in its data; empty: none
    plan: str
    form: str
    shape: str
    spacing: str
    precision: str
    tool_use: str  # rising, falling, or neither
    recorded: int  # steps
    span: int  # from the first recorded step to the last
    truth: Truth
    status: str
    verdict: str
    reason: str
    severity: str | None  # of the worst tail finding
    onset: int | None
    interval: tuple[int, int] | None
    passed: int | None  # since when it is said to lie above its limit
    truly_passed: int | None  # since when the true percentile does
    holder_named: bool | None
    faults: tuple[str, ...]  # findings on data validity at low or above
    blocked: bool  # one of them made the signature unjudged
    alarms_truly: bool
    aggregates: str
    lead: int | None
    naive: tuple[bool, ...]
    crashes: tuple[str, ...]
    conditions: Mapping[str, bool | None] = field(default_factory=dict)  # of the signature; none: it was not judged


def judge(task: tuple[int, str]) -> Judged:
    """Draw, make and judge the run of a seed, with a fault in its data where one is named."""
    seed, fault = task
    drawn = calm(draw(seed)) if fault else draw(seed)
    table = make(drawn)
    if fault:
        drawn, table = break_data(fault, drawn, table)
    with TemporaryDirectory(prefix="span-") as folder:
        found = api.diagnose(write(drawn, Path(folder) / "run", table))
    return _judged(drawn, fault, table, found)


def _judged(drawn: Drawn, fault: str, table: pa.Table, found: api.Diagnosis) -> Judged:
    truth, signature = truth_of(drawn), found.signature
    tails = [finding for finding in found.findings if finding.id in TAIL_IDS]
    own = next((finding for finding in tails if finding.id == "tool-tail-growth"), None)
    validity = [one for one in found.findings if one.link is Link.DATA_VALIDITY and one.severity.at_least(Severity.LOW)]
    return Judged(
        seed=drawn.seed,
        fault=fault,
        plan=drawn.plan,
        form=drawn.post.form,
        shape=drawn.post.shape,
        spacing=drawn.layout.spacing,
        precision=drawn.layout.precision,
        tool_use=drawn.tool_use,
        recorded=len(drawn.layout.steps),
        span=int(drawn.layout.steps[-1] - drawn.layout.steps[0]),
        truth=truth,
        status=str(signature.status),
        verdict=str(found.verdict.status),
        reason=signature.reason,
        severity=str(min(tails, key=lambda one: one.severity.rank).severity) if tails else None,
        onset=signature.onset_step,
        interval=signature.onset_interval,
        passed=getattr(signature, "limit_passed_step", None),
        truly_passed=_passed(drawn, own),
        holder_named=_names(tails, found.verdict.headline, truth),
        faults=tuple(f"{one.id} {one.severity}" for one in validity),
        blocked=signature.status == "cannot_say" and "cannot be trusted" in signature.reason,
        alarms_truly=metrics_of(drawn)[1],
        aggregates=signature.aggregates.status,
        lead=None if signature.lead_is_lower_bound else signature.lead_steps,
        naive=_naive(drawn, table),
        crashes=tuple(f"{crash.id}: {crash.error}" for crash in found.crashes),
        conditions=signature.conditions,
    )


def _passed(drawn: Drawn, finding: Finding | None) -> int | None:
    """Give the first recorded step at which the true percentile lies above the finding's limit."""
    if finding is None or finding.limit is None:
        return None
    quantile = {"p95": 0.95, "p99": 0.99}.get(str(finding.evidence.get("percentile")), 0.99)
    above = drawn.levels("post", quantile, drawn.places) > finding.limit
    return int(drawn.layout.steps[drawn.places[np.argmax(above)]]) if above.any() else None


def _names(tails: Sequence[Finding], headline: str, truth: Truth) -> bool | None:
    """Whether the tail's finding, and the headline where that is about the tail, name the value that holds it.

    None where no tail is found. Of a run whose tail no value holds: whether one is named all the same.
    """
    if not tails:
        return None
    if truth.holder is None:
        return any("holder_value" in finding.evidence for finding in tails)
    name, value = truth.holder
    wanted = {"rank": f"rank {value}", "tool result": "failed", "version": "policy version"}.get(name, value)
    heads = [finding for finding in tails if headline.startswith(finding.claim)]
    return any(wanted in finding.claim for finding in heads or tails)


def _naive(drawn: Drawn, table: pa.Table) -> tuple[bool, ...]:
    """Ask what people look at instead."""
    frame = pl.from_arrow(table.select(["step", "model_mask", "policy_logp", "ref_logp"]))
    assert isinstance(frame, pl.DataFrame)
    step, r, post = naive.tokens_of(frame)
    place = np.searchsorted(drawn.layout.steps, step) + 1
    count = len(drawn.layout.steps)
    kl = metrics_of(drawn)[0]["kl"]
    mean = np.convolve(kl, np.ones(min(20, count)) / min(20, count), "valid")
    return (
        naive.p95_ratio(place, r, count),
        bool((mean > naive.KL_LIMIT).any()),
        naive.ks_on_tokens(place[post], r[post], count),
    )

"""A statistic of a metric over a window lies within its bound.

The statistic itself decides, not its interval: a bound is a number that people agreed on, and an archived run must get
the same answer whenever it is asked. Were the interval to decide, runs near the bound, for which it was written, would
be neither passed nor failed. That the bound lies within the noise is told instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.custom.terms import link_of
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.baseline_shift import step_noise
from ptt.diagnostics.evidence.series import (
    LOST_SHARE,
    MIN_DEAD_VALUES,
    Series,
    read_evaluation,
    training_metric_names,
    training_series,
)
from ptt.diagnostics.gate.policy import POOLED, Bound, Ess, Logged, Policy, Tail, Window, name_of
from ptt.diagnostics.gate.results import CheckKind, CheckResult, Outcome
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.metrics.recording import how_to_record
from ptt.diagnostics.model import Broken, Diagnosis, Link, Run, Severity
from ptt.diagnostics.rules.data_validity import missing_logprobs
from ptt.diagnostics.schema import Flag
from ptt.diagnostics.statistics.arrays import IntArray
from ptt.diagnostics.statistics.autocorrelated_mean import MIN_SUMMARY_VALUES, Z975, summarize
from ptt.diagnostics.statistics.ess import pooled_ess
from ptt.diagnostics.statistics.tail_curves import Profile, tail_curve
from ptt.diagnostics.statistics.windows import WINDOWS, Span, split_steps
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.store.wide_metrics import WideMetrics
from ptt.diagnostics.verdict.headline import contaminated
from ptt.diagnostics.wording import sig

NO_WIDE: Final = WideMetrics(Path())
NO_TABLES: Final = "give the run, its archive or its store: findings.json has no curves"


MAX_INTERVAL_RATIO: Final = 10.0  # between the ends of an interval: a bound inside of it divides nothing from nothing
FEW_WEIGHTS_NOTE: Final = "; a few weights decide it, so a bound on a tail of the slice is more reliable"
MIN_RECORDED_STEPS: Final = 5  # recorded steps: a tail of fewer is of one spell of the run

NO_NUMBER: Final = (Flag.NAN, Flag.POS_INF, Flag.NEG_INF, Flag.DROPPED_BY_WRITER)


@dataclass(frozen=True)
class RunSeries:
    """One run as bounds see it; each series is made once."""

    opened: LoadedRun

    def series(self, name: str, *, exact: bool) -> Series | Unmeasured:
        """Return the series of a metric: canonical or as logged, of training or else of an evaluation."""
        series = self._logged_as(name) if exact else self._named(name)
        return series or self._absent(name)

    def file_of(self, series: Series) -> str | None:
        """Return the file that a series comes from; None where it is not known."""
        if "source" not in self._metrics.columns:
            return None
        rows = self._metrics.filter(pl.col("name_raw") == series.raw_name)
        return str(rows["source"][-1]) if rows.height else None

    def _named(self, name: str) -> Series | None:
        logged = self._canonical.get(canonical(name) or name)
        if logged is not None and name in (logged.name, logged.raw_name):
            return logged
        return self._logged_as(name) or logged

    def _logged_as(self, name: str) -> Series | None:
        """Return the series of one spelling: of a large log it is whole, where rows may hold only part of it."""
        logged = self._by_spelling.get(name)
        if logged is None and "name_raw" in self._metrics.columns:
            logged = training_series(self._metrics, NO_WIDE, {name: name}).get(name)
            logged = logged or read_evaluation(self._metrics, name)
        return logged

    def _absent(self, name: str) -> Unmeasured:
        if self.opened.kind == "findings":
            return Unmeasured(reason=f"no curve of {name} is available", enable=NO_TABLES)
        near = get_close_matches(name, sorted(self._names), n=3)
        close = f"; closest here: {', '.join(near)}" if near else ""
        line = how_to_record(self.opened.diagnosis.run.framework, ["metrics"])
        log = line or "log it with the trainer's other metrics at every step"
        return Unmeasured(reason=f"nothing is logged as {name}{close}", enable=log)

    @property
    def _names(self) -> set[str]:
        rows = training_metric_names(self._metrics, NO_WIDE) if "name_raw" in self._metrics.columns else ()
        return {*self._canonical, *self._by_spelling, *rows}

    @cached_property
    def _metrics(self) -> pl.DataFrame:
        frame = self.opened.diagnosis.tables.get("metrics", pl.DataFrame())
        if "name_raw" in frame.columns and "priority" not in frame.columns:
            return frame.with_columns(pl.lit(0, pl.Int32).alias("priority"))
        return frame

    @cached_property
    def _canonical(self) -> dict[str, Series]:
        return {logged.name: logged for logged in self._table("series")}

    @cached_property
    def _by_spelling(self) -> dict[str, Series]:
        return {logged.raw_name: logged for logged in (*self._table("other_series"), *self._canonical.values())}

    def _table(self, name: str) -> list[Series]:
        frame = self.opened.diagnosis.tables.get(name, pl.DataFrame())
        return [
            Series(
                name=part["name"][0],
                raw_name=part["name_raw"][0],
                steps=part["step"].to_numpy(),
                values=part["value"].fill_null(np.nan).to_numpy(),
                flags=part["flag"].to_numpy(),
            )
            for part in (frame.partition_by("name", maintain_order=True) if frame.height else ())
        ]


MAX_SILENT_SHARE: Final = 0.1
"""Of a run's steps: what is silent for longer than this at an end has no window there. Two of its own intervals are let
pass, since evaluations are rare."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A statistic of a run with its 95% interval (NaN where none is known) and what it was taken from."""

    value: float
    low: float
    high: float
    data: str
    file: str | None = None


@dataclass(frozen=True, kw_only=True)
class Unmeasured:
    """Why a statistic cannot be given; `no_number` where NaN stands in its place, which no policy lets pass."""

    reason: str
    enable: str
    data: str = ""
    no_number: bool = False


def window_of(count: int, window: Window) -> slice:
    """Return which of `count` values in their order a window holds."""
    if window.name == "last":
        return slice(max(0, count - window.count), count)
    if window.name == "all":
        return slice(0, count)
    bounds = np.cumsum([0, *(len(part) for part in np.array_split(np.arange(count), 3))])
    third = WINDOWS.index(window.name)
    return slice(int(bounds[third]), max(int(bounds[third + 1]), int(bounds[third]) + 1))


def window_words(window: Window, *, of: str = "logged") -> str:
    """Describe a window."""
    match window.name:
        case "all":
            return "the whole run"
        case "last":
            return f"the last {window.count} {of} steps"
        case third:
            return f"the {third} third"


def silent_at(steps: IntArray, window: Window, run: Run) -> str:
    """Return up to or from where something is logged that is not at the end of the run that its window is of."""
    if run.first_step is None or run.last_step is None:
        return ""
    reach = reach_of(steps, run)
    if window.name != "early" and run.last_step - int(steps[-1]) > reach:
        return f"only up to step {steps[-1]}, but the run reaches step {run.last_step}"
    if window.name in ("early", "all") and int(steps[0]) - run.first_step > reach:
        return f"only from step {steps[0]} on, but the run starts at step {run.first_step}"
    return ""


def reach_of(steps: IntArray, run: Run) -> float:
    """Return how many steps something may be silent: a part of the run, or two of its own intervals."""
    spacing = float(np.median(np.diff(steps))) if len(steps) > 1 else 0.0
    return max(MAX_SILENT_SHARE * ((run.last_step or 0) - (run.first_step or 0)), 2 * spacing)


def token_statistic(bound: Bound, subject: Tail | Ess, run: RunSeries) -> Measured | Unmeasured:
    """Compute a bound's statistic from the tokens of a slice."""
    profile = run.opened.profile
    if profile is None:
        if run.opened.kind == "findings":
            return Unmeasured(reason="findings.json has no tokens", enable=NO_TABLES)
        line = how_to_record(run.opened.diagnosis.run.framework, ["policy_logp", "ref_logp", "model_mask"])
        reason = run.opened.why_no_profile or "the run has no per-token log-probabilities"
        return Unmeasured(reason=reason, enable=line or "record the tokens: docs/recorder.md")
    distrust = distrusted(run.opened.diagnosis, profile.pair)
    if distrust is not None:
        return Unmeasured(
            reason=f"the logprobs cannot be trusted: {distrust}",
            enable="fix how they are recorded first",
            no_number=True,
        )
    if subject.slice not in profile.slices.values():
        slices = " and ".join(profile.slices.values())
        return Unmeasured(
            reason=f"the run has no slice {subject.slice}, but {slices}", enable=f"set a bound on {slices}"
        )
    steps = profile.cells["step"].unique().sort().to_numpy()
    cut = steps[window_of(len(steps), bound.window)]
    words = window_words(bound.window, of="recorded")
    data = f"{profile.pair}, {words}: {len(cut)} recorded steps from {cut[0]} to {cut[-1]}"
    if len(cut) < MIN_RECORDED_STEPS * (3 if bound.statistic == "ratio" else 1):
        return Unmeasured(reason=f"{len(cut)} recorded steps are too few", enable="record more steps", data=data)
    gone = _why_unrecorded(profile, subject.slice, bound.window, steps, cut, run.opened.diagnosis.run)
    if gone:
        return Unmeasured(
            reason=gone, enable="record tokens over the whole run; check whether it still calls tools", data=data
        )
    thirds = split_steps(cut.tolist(), 3)
    spans = (thirds[0], thirds[-1]) if bound.statistic == "ratio" else (Span(int(cut[0]), int(cut[-1])),)
    levels = _tails(profile, subject, spans) if isinstance(subject, Tail) else _ess(profile, subject, spans)
    data += f", {levels.tokens} tokens of {subject.slice}"
    if levels.overflows:
        return Unmeasured(
            reason=f"weights of {subject.slice} are too large to compute",
            enable="find out where the policies diverge: log-ratios of some tokens are in the hundreds",
            data=data,
            no_number=True,
        )
    if not all(math.isfinite(value) for value in (*levels.values, *levels.errors)):
        return Unmeasured(
            reason=f"{levels.tokens} tokens of {subject.slice} are too few for it", enable="record more", data=data
        )
    statistic = _combine(levels, data)
    ends = [end for end in (bound.low, bound.high) if end is not None]
    wide = statistic.high > MAX_INTERVAL_RATIO * statistic.low
    if wide and any(statistic.low <= end <= statistic.high for end in ends):
        reach = f"anything from {sig(statistic.low)} to {sig(statistic.high)}"
        return Unmeasured(
            reason=f"{levels.tokens} tokens of {subject.slice} leave it at {reach}",
            enable="record more sequences, or take a longer window"
            + (FEW_WEIGHTS_NOTE if isinstance(subject, Ess) else ""),
            data=data,
        )
    return statistic


def distrusted(diagnosis: Diagnosis, pair: str) -> str | None:
    """Return why tails of a pair pass nothing, or None: copied or filled logprobs have the smallest of all.

    Of tokens without a number nobody knows how far they lie out; where they are many, they may be the tail.
    """
    many = [
        finding
        for finding in diagnosis.findings
        if finding.id == missing_logprobs.ID and finding.severity.at_least(Severity.HIGH)
    ]
    return contaminated([Broken(findings=diagnosis.findings)], pair) or next((finding.claim for finding in many), None)


def _why_unrecorded(profile: Profile, slice_: str, window: Window, steps: IntArray, cut: IntArray, run: Run) -> str:
    """Return where a window has no tokens, or hardly any, of the part of the run that it is to stand for."""
    silent = silent_at(steps, window, run)
    if silent:
        return f"tokens are recorded {silent}"
    number = {name: key for key, name in profile.slices.items()}[slice_]
    token_steps = profile.cells.filter(pl.col("slice") == number)["step"].unique().sort().to_numpy()
    inside = token_steps[(token_steps >= cut[0]) & (token_steps <= cut[-1])]
    if len(inside) < MIN_RECORDED_STEPS:
        return f"{slice_} tokens occur at {len(inside)} of its {len(cut)} recorded steps"
    if cut[-1] - inside[-1] > reach_of(token_steps, run):
        return f"there are no {slice_} tokens after step {inside[-1]}"
    return ""


@dataclass(frozen=True, kw_only=True)
class _Levels:
    """Natural logarithms of a figure, one a span, their standard errors, and how many tokens they are of."""

    values: tuple[float, ...]
    errors: tuple[float, ...]
    tokens: int
    most: float = math.inf  # what the figure is never above
    overflows: bool = False  # sums of weights are no numbers: nothing can be worse


def _combine(levels: _Levels, data: str) -> Measured:
    """Return the level of one span, or the last over the first."""
    if len(levels.values) == 1:
        log, error, most = levels.values[0], levels.errors[0], levels.most
    else:
        log, error, most = levels.values[-1] - levels.values[0], math.hypot(*levels.errors), math.inf
    return Measured(
        value=math.exp(log),
        low=math.exp(log - Z975 * error),
        high=min(most, math.exp(log + Z975 * error)),
        data=data,
    )


def _tails(profile: Profile, subject: Tail, spans: tuple[Span, ...]) -> _Levels:
    curve = tail_curve(profile, slice_name=subject.slice, quantile=subject.quantile, spans=spans)
    return _Levels(
        values=tuple(float(value) for value in curve.log_value),
        errors=tuple(math.sqrt(own) if own >= 0 else math.nan for own in curve.own.tolist()),
        tokens=int(curve.tokens.sum()),
    )


def _ess(profile: Profile, subject: Ess, spans: tuple[Span, ...]) -> _Levels:
    """Return ESS/n of token weights, with the error that leaving out whole units one at a time gives (jackknife)."""
    estimates = [pooled_ess(profile, slice_name=subject.slice, span=span) for span in spans]
    return _Levels(
        values=tuple(math.log(estimate.share) if estimate.share > 0 else math.nan for estimate in estimates),
        errors=tuple(estimate.error for estimate in estimates),
        tokens=sum(estimate.tokens for estimate in estimates),
        most=1.0,
        overflows=any(estimate.overflows for estimate in estimates),
    )


def metric_statistic(bound: Bound, subject: Logged, run: RunSeries) -> Measured | Unmeasured:
    """Compute a bound's statistic from the curve of a metric."""
    series = run.series(subject.name, exact=subject.exact)
    if isinstance(series, Unmeasured):
        return series
    known = series.flags != Flag.NULL_IN_SOURCE  # a null may be a row that does not log the metric
    steps, values, flags = series.steps[known], series.values[known], series.flags[known]
    if not len(steps):
        return Unmeasured(reason=f"{series.raw_name} has no value", enable="log a number at every step")
    cut = window_of(len(steps), bound.window)
    data = f"{series.raw_name}, {window_words(bound.window)}: steps {steps[cut][0]} to {steps[cut][-1]}"
    silent = silent_at(steps, bound.window, run.opened.diagnosis.run)
    if silent:
        return Unmeasured(
            reason=f"{series.raw_name} is logged {silent}", enable="find out why it is not logged there", data=data
        )
    bad = np.isin(flags[cut], NO_NUMBER)
    finite = np.isfinite(values[cut])
    data += f", {int(finite.sum())} finite values of {len(finite)}"
    if bad[-MIN_DEAD_VALUES:].all() or bad.sum() > LOST_SHARE * len(bad):
        return Unmeasured(
            reason=f"{series.raw_name} is NaN or infinite at {int(bad.sum())} of {len(bad)} steps there",
            enable="find out first why these values are not finite: see metrics-lost and nan-precursors",
            data=data,
            no_number=True,
        )
    _, every = series.finite()
    spread, ar1 = step_noise(every) if len(every) > MIN_SUMMARY_VALUES else (float(np.std(every)), 0.0)
    statistic = summarize(
        steps[cut][finite].astype(np.float64), values[cut][finite], bound.statistic, spread=spread, ar1=ar1
    )
    if isinstance(statistic, str):
        return Unmeasured(
            reason=f"{series.raw_name}: {statistic}", enable="log it at every step, or run longer", data=data
        )
    if not math.isfinite(statistic.value):
        return Unmeasured(reason=f"{series.raw_name}: its values are too large to sum up", enable="", data=data)
    return Measured(value=statistic.value, low=statistic.low, high=statistic.high, data=data, file=run.file_of(series))


SHOWN_DIGITS: Final = 3
MAX_DIGITS: Final = 9
ROUNDING: Final = 1e-9  # of a value: sums of floats depend on their order, and 300 times 0.3 is not 90


def check_bounds(opened: LoadedRun, policy: Policy) -> Iterator[CheckResult]:
    """Yield one result for each bound."""
    run = RunSeries(opened)
    for bound in policy.bounds:
        subject = bound.subject
        if isinstance(subject, Logged):
            measured, link = metric_statistic(bound, subject, run), link_of(subject.name)
        else:
            measured, link = token_statistic(bound, subject, run), Link.POLICY_UPDATE
        blank = CheckResult(
            id=f"bound:{bound.name}",
            kind=CheckKind.BOUND,
            outcome=Outcome.BLIND,
            title=f"{_subject_words(bound)} {_bound_words(bound)}",
            claim="",
            data=measured.data or "nothing",
            fails_if=f"a value {_fails_if(bound)}",
            limit=bound.high if bound.high is not None else bound.low,
            unit=bound.unit or ("nats" if isinstance(subject, Tail) and bound.statistic == POOLED else ""),
            link=link,
            metric=name_of(subject),
        )
        if isinstance(measured, Unmeasured):
            yield replace(
                blank,
                claim=measured.reason,
                excused=policy.cannot_say_passes and not measured.no_number,
                next=(measured.enable,) if measured.enable else (),
            )
        else:
            yield _compared(blank, bound, measured)


def _compared(blank: CheckResult, bound: Bound, measured: Measured) -> CheckResult:
    limit = _limit(bound, measured.value)
    failed = _lies_beyond(bound, measured.value)
    review = "look at the curve in the report; if the level is intended, change the bound by review"
    return replace(
        blank,
        outcome=Outcome.FAILED if failed else Outcome.PASSED,
        claim=_claim(bound, measured, limit, failed=failed),
        observed=measured.value,
        limit=limit,
        low=measured.low if math.isfinite(measured.low) else None,
        high=measured.high if math.isfinite(measured.high) else None,
        file=measured.file,
        next=(review,) if failed else (),
    )


def _lies_beyond(bound: Bound, value: float) -> bool:
    """Return whether a value lies beyond its bound; one that is no number does, since nothing can be said for it."""
    within = [value >= bound.low - _slack(value, bound.low)] if bound.low is not None else []
    within += [value <= bound.high + _slack(value, bound.high)] if bound.high is not None else []
    return not all(within)


def _slack(value: float, end: float) -> float:
    return ROUNDING * max(abs(value), abs(end))


def _limit(bound: Bound, value: float) -> float:
    """Return the bound that the value passed, or else the nearer one."""
    ends = [end for end in (bound.low, bound.high) if end is not None]
    return min(ends, key=lambda end: abs(value - end))


def _subject_words(bound: Bound) -> str:
    name = name_of(bound.subject)
    head = {POOLED: name, "ratio": f"last third over first of {name}"}.get(
        bound.statistic, f"{bound.statistic} of {name}"
    )
    of = "logged" if isinstance(bound.subject, Logged) else "recorded"
    return f"{head} over {window_words(bound.window, of=of)}"


def _bound_words(bound: Bound) -> str:
    unit = f" {bound.unit}" if bound.unit else ""
    if bound.low is not None and bound.high is not None:
        return f"lies between {bound.low:g} and {bound.high:g}{unit}"
    return f"is at most {bound.high:g}{unit}" if bound.high is not None else f"is at least {bound.low:g}{unit}"


def _fails_if(bound: Bound) -> str:
    ends = [f"below {bound.low:g}"] if bound.low is not None else []
    ends += [f"above {bound.high:g}"] if bound.high is not None else []
    return " or ".join(ends)


def _claim(bound: Bound, measured: Measured, limit: float, *, failed: bool) -> str:
    """Return where the value lies; its size stands beside it, and here where three digits would hide the bound."""
    side = "above" if measured.value > limit else "below"
    where = f"it lies {side} its bound" if failed else "it lies within its bounds"
    if bound.low is None or bound.high is None:
        where = where.replace("bounds", "bound")
    if measured.value != limit and f"{measured.value:.{SHOWN_DIGITS}g}" == f"{limit:.{SHOWN_DIGITS}g}":
        where += f", at {_distinct(measured.value, limit)}"
    near = measured.low <= limit <= measured.high and measured.low < measured.high
    return f"{where}, by less than its own noise" if near else where


def _distinct(value: float, limit: float) -> str:
    """Write a value with as many digits as tell it from its limit: 0.3004 is not 0.3."""
    for digits in range(SHOWN_DIGITS, MAX_DIGITS):
        if (text := f"{value:.{digits}g}") != f"{limit:.{digits}g}":
            return text
    return repr(value)

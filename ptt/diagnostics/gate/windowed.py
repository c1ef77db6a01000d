"""Cut what a bound looks at out of a run: the window's values or tokens, or why they cannot be judged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.evidence.departures import step_noise
from ptt.diagnostics.evidence.series import DEAD_VALUES, LOST_SHARE, Series
from ptt.diagnostics.gate.policy import Bound, Window
from ptt.diagnostics.gate.seen import TABLES_LEFT_OUT, Absent, Seen
from ptt.diagnostics.gate.subjects import Ess, Logged, Tail
from ptt.diagnostics.judging import contaminated
from ptt.diagnostics.model import Broken
from ptt.diagnostics.parsers.switches import how_to_record
from ptt.diagnostics.schema import Flag
from ptt.diagnostics.statistics.profile import Profile
from ptt.diagnostics.statistics.summaries import Z975, summary
from ptt.diagnostics.statistics.versus import curve
from ptt.diagnostics.statistics.windows import WINDOWS, Span, parts

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NO_NUMBER: Final = (Flag.NAN, Flag.POS_INF, Flag.NEG_INF, Flag.DROPPED_BY_WRITER)
STOPPED: Final = 0.1
"""Of a run's steps: a metric that is silent for longer than this at an end has no window there. Two of its own
intervals are let pass, since evaluations are rare."""
LEAST_UNITS: Final = 10  # sequences or prompt groups: fewer, and single ones decide an effective sample size
LEAST_RECORDED: Final = 5  # recorded steps: a tail of fewer is of one spell of the run


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A statistic of a run with its 95 % interval (NaN where none is known) and what it was taken from."""

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


def measured(bound: Bound, seen: Seen) -> Measured | Unmeasured:
    """Take a bound's statistic from a run."""
    match bound.subject:
        case Logged(name=name, exact=exact):
            series = seen.series(name, exact=exact)
            if isinstance(series, Absent):
                return Unmeasured(reason=series.reason, enable=series.enable)
            return _of_series(bound, series, seen)
        case Tail() | Ess():
            return _of_tokens(bound, bound.subject, seen)


def _of_series(bound: Bound, series: Series, seen: Seen) -> Measured | Unmeasured:
    known = series.flags != Flag.NULL_IN_SOURCE  # a null may be a row that does not log the metric
    steps, values, flags = series.steps[known], series.values[known], series.flags[known]
    if not len(steps):
        return Unmeasured(reason=f"{series.raw_name} holds no value", enable="log a number every step")
    cut = _part(len(steps), bound.window)
    data = f"{series.raw_name}, {window_words(bound.window)}: steps {steps[cut][0]} to {steps[cut][-1]}"
    silent = _silent(steps, bound.window, seen)
    if silent:
        return Unmeasured(reason=f"{series.raw_name} {silent}", enable="find out why it is not logged there", data=data)
    bad = np.isin(flags[cut], NO_NUMBER)
    finite = np.isfinite(values[cut])
    data += f", {int(finite.sum())} finite values of {len(finite)}"
    if bad[-DEAD_VALUES:].all() or bad.sum() > LOST_SHARE * len(bad):
        return Unmeasured(
            reason=f"{series.raw_name} is NaN or infinite at {int(bad.sum())} of {len(bad)} steps there",
            enable="find out why these are no numbers first: see metrics-lost and nan-precursors",
            data=data,
            no_number=True,
        )
    _, every = series.finite()
    spread, likeness = step_noise(every) if len(every) > 10 else (float(np.std(every)), 0.0)
    found = summary(
        steps[cut][finite].astype(np.float64), values[cut][finite], bound.statistic, spread=spread, likeness=likeness
    )
    if isinstance(found, str):
        return Unmeasured(reason=f"{series.raw_name}: {found}", enable="log it every step, or run longer", data=data)
    if not math.isfinite(found.value):
        return Unmeasured(reason=f"{series.raw_name}: its values are too large to sum up", enable="", data=data)
    return Measured(value=found.value, low=found.low, high=found.high, data=data, file=seen.file_of(series))


def _part(count: int, window: Window) -> slice:
    """Give which of `count` values in their order a window holds."""
    if window.name == "last":
        return slice(max(0, count - window.count), count)
    if window.name == "all":
        return slice(0, count)
    bounds = np.cumsum([0, *(len(part) for part in np.array_split(np.arange(count), 3))])
    third = WINDOWS.index(window.name)
    return slice(int(bounds[third]), max(int(bounds[third + 1]), int(bounds[third]) + 1))


def _silent(steps: IntArray, window: Window, seen: Seen) -> str:
    """Tell where a metric is not logged at the end of the run that its window is of; empty where it is."""
    run = seen.opened.diagnosis.run
    if run.first_step is None or run.last_step is None:
        return ""
    apart = float(np.median(np.diff(steps))) if len(steps) > 1 else 0.0
    reach = max(STOPPED * (run.last_step - run.first_step), 2 * apart)
    if window.name != "early" and run.last_step - int(steps[-1]) > reach:
        return f"is logged up to step {steps[-1]}, and the run up to step {run.last_step}"
    if window.name in ("early", "all") and int(steps[0]) - run.first_step > reach:
        return f"is logged from step {steps[0]} on, and the run from step {run.first_step} on"
    return ""


def _of_tokens(bound: Bound, subject: Tail | Ess, seen: Seen) -> Measured | Unmeasured:
    profile = seen.opened.profile
    if profile is None:
        if seen.opened.kind == "findings":
            return Unmeasured(reason="findings.json holds no tokens", enable=TABLES_LEFT_OUT)
        line = how_to_record(seen.opened.diagnosis.run.framework, ["policy_logp", "ref_logp", "model_mask"])
        reason = seen.opened.why_no_profile or "the run holds no per-token log-probabilities"
        return Unmeasured(reason=reason, enable=line or "record the tokens: docs/recorder.md")
    distrust = contaminated([Broken(findings=seen.opened.diagnosis.findings)], profile.pair)
    if distrust is not None:  # copied or filled logprobs have the smallest tails of all
        return Unmeasured(
            reason=f"the logprobs cannot be trusted: {distrust}",
            enable="mend how they are recorded first",
            no_number=True,
        )
    if subject.slice not in profile.slices.values():
        held = " and ".join(profile.slices.values())
        return Unmeasured(reason=f"the run has no slice {subject.slice}, but {held}", enable=f"hold {held} to a bound")
    steps = profile.cells["step"].unique().sort().to_numpy()
    cut = steps[_part(len(steps), bound.window)]
    data = f"{profile.pair}, {window_words(bound.window)}: {len(cut)} recorded steps from {cut[0]} to {cut[-1]}"
    if len(cut) < LEAST_RECORDED * (3 if bound.statistic == "ratio" else 1):
        return Unmeasured(reason=f"{len(cut)} recorded steps are too few", enable="record more steps", data=data)
    thirds = parts(cut.tolist(), 3)
    spans = (thirds[0], thirds[-1]) if bound.statistic == "ratio" else (Span(int(cut[0]), int(cut[-1])),)
    levels = _tails(profile, subject, spans) if isinstance(subject, Tail) else _ess(profile, subject, spans)
    data += f", {levels.tokens} tokens of {subject.slice}"
    if not all(math.isfinite(value) for value in (*levels.values, *levels.errors)):
        return Unmeasured(
            reason=f"{levels.tokens} tokens of {subject.slice} are too few for it", enable="record more", data=data
        )
    return _together(levels, data)


@dataclass(frozen=True, kw_only=True)
class _Levels:
    """Natural logarithms of a figure, one a span, their standard errors, and how many tokens they are of."""

    values: tuple[float, ...]
    errors: tuple[float, ...]
    tokens: int
    most: float = math.inf  # what the figure is never above


def _together(levels: _Levels, data: str) -> Measured:
    """Give the level of one span, or the last over the first."""
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
    found = curve(profile, slice_name=subject.slice, quantile=subject.quantile, spans=spans)
    return _Levels(
        values=tuple(float(value) for value in found.log_value),
        errors=tuple(math.sqrt(own) if own >= 0 else math.nan for own in found.own.tolist()),
        tokens=int(found.tokens.sum()),
    )


def _ess(profile: Profile, subject: Ess, spans: tuple[Span, ...]) -> _Levels:
    """Give ESS/n of token weights, with the error that leaving out whole units one at a time gives (jackknife)."""
    number = {name: key for key, name in profile.slices.items()}[subject.slice]
    rows = profile.sequences.filter(pl.col("slice") == number)
    values, errors, tokens = [], [], 0
    for span in spans:
        here = rows.filter(pl.col("step").is_between(span.first, span.last))
        sums = here.group_by("unit").agg(pl.col("n").cast(pl.Float64).sum(), pl.col("s_rho", "s_rho2").sum())
        tokens += int(sums["n"].sum())
        value, error = ess_share(*(sums.sort("unit")[name].to_numpy() for name in ("n", "s_rho", "s_rho2")))
        values.append(math.log(value) if value > 0 else math.nan)
        errors.append(error)
    return _Levels(values=tuple(values), errors=tuple(errors), tokens=tokens, most=1.0)


def ess_share(n: FloatArray, first: FloatArray, second: FloatArray) -> tuple[float, float]:
    """Give (sum w)^2 / (n sum w^2) over units, and the jackknife standard error of its logarithm."""
    units = len(n)
    if units < LEAST_UNITS or not (np.isfinite(first).all() and np.isfinite(second).all()):
        return math.nan, math.nan
    value = first.sum() ** 2 / (n.sum() * second.sum())
    without = (first.sum() - first) ** 2 / ((n.sum() - n) * (second.sum() - second))
    if not (np.isfinite(without) & (without > 0)).all():
        return float(value), math.nan
    logs = np.log(without)
    return float(value), math.sqrt((units - 1) / units * float(np.square(logs - logs.mean()).sum()))


def window_words(window: Window) -> str:
    """Say what a window is."""
    match window.name:
        case "all":
            return "the whole run"
        case "last":
            return f"the last {window.count} logged steps"
        case third:
            return f"the {third} third"

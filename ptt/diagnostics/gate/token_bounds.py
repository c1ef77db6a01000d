"""Take a tail or an effective sample size over a window from the recorded tokens, with what redrawing them gives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.gate.lookup import (
    NO_TABLES,
    Measured,
    RunSeries,
    Unmeasured,
    reach_of,
    silent_at,
    window_of,
    window_words,
)
from ptt.diagnostics.gate.policy import Bound, Window
from ptt.diagnostics.gate.subjects import Ess, Tail
from ptt.diagnostics.metrics.recording import how_to_record
from ptt.diagnostics.model import Broken, Diagnosis, Run, Severity
from ptt.diagnostics.rules.data_validity import missing_logprobs
from ptt.diagnostics.statistics.autocorrelated_mean import Z975
from ptt.diagnostics.statistics.ess import pooled_ess
from ptt.diagnostics.statistics.tail_curves import Profile, tail_curve
from ptt.diagnostics.statistics.windows import Span, split_steps
from ptt.diagnostics.verdict.headline import contaminated
from ptt.diagnostics.wording import sig

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MAX_INTERVAL_RATIO: Final = 10.0  # between the ends of an interval: a bound inside of it divides nothing from nothing
FEW_WEIGHTS_NOTE: Final = "; a few weights decide it, so a bound on a tail of the slice is more reliable"
MIN_RECORDED_STEPS: Final = 5  # recorded steps: a tail of fewer is of one spell of the run


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

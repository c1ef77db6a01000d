"""Hold the tails of a run against the baseline's, on the baseline's own spans of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.gate.baseline.values import Baseline, BaselineComparison, Draft, Figures, untested
from ptt.diagnostics.statistics.noninferiority import (
    EXCLUDED_RATIO,
    MATERIAL_NATS,
    MIN_WINDOW_SPANS,
    TESTED_WINDOWS,
    Noninferiority,
    decide,
    noninferiority_test,
)
from ptt.diagnostics.statistics.step_matching import MIN_SPANS
from ptt.diagnostics.statistics.tail_curves import Curve, join_tail, third_of
from ptt.diagnostics.statistics.tail_growth import FLOOR

QUANTILES: Final = ("p95", "p99")
NO_TOOLS: Final = "; see whether the run still calls tools"
TWO_SEEDS: Final = 2  # of a baseline: their distance is known with one degree of freedom
MAX_TIMES: Final = 50.0  # as much data; more is no advice
FAIL_SHARE: Final = 1.96 / 2.5
"""Of a 95 % interval's half: p below 0.02 over several questions asks for some 2.5 standard errors."""
AT_FLOOR: Final = math.log(FLOOR) + 1e-4  # files hold five digits
WHERE: Final = {"all": "over the run", "late": "late in the run"}


def drafts(mine: Figures, baseline: Baseline, *, limit: float) -> list[Draft]:
    """Return each slice's tail beside the baseline's, over the whole run and late in it."""
    having = [run for run in baseline.runs if run.tails]
    if not having:
        if not mine.tails and mine.pair is None:
            return []  # neither side records tokens: nobody asks
        why = next((run.why_no_tails for run in baseline.runs if run.why_no_tails), "its runs recorded no tokens")
        return [
            _blind_draft("tails", None, f"the baseline holds no tails: {why}", "renew it with runs that record tokens")
        ]
    theirs = having[0]
    if mine.pair is None or not mine.tails:
        return [
            _blind_draft(
                "tails",
                None,
                f"the run has no tails: {mine.why_no_tails or 'no tokens are recorded'}",
                "record tokens as the baseline's runs did; `ptt sources` names the line that does",
            )
        ]
    if mine.pair != theirs.pair:
        reason = f"the run's tails are of {mine.pair}, the baseline's of {theirs.pair}: they answer different questions"
        return [_blind_draft("tails", None, reason, "record the same logprobs, or make a baseline of this pair")]
    results = []
    for name in sorted({curve.slice for run in having for curve in run.tails}):
        results += _slice(name, mine, having, limit)
    return results


def _slice(name: str, figures: Figures, having: Sequence[Figures], limit: float) -> list[Draft]:
    sides = [
        [run for run in (curves_of(run_figures, name) for run_figures in side) if run is not None]
        for side in ([figures], having)
    ]
    if not sides[0]:
        others = ", ".join(sorted(figures.slices))
        reason = f"the run has no slice {name} but {others}: tools are told by other evidence, and slices differ by it"
        return [_blind_draft(f"tails.{name}", name, reason, "record tool names and masks as the baseline's runs did")]
    tokens = [sum(int(curve.tokens.sum()) for run in side for curve in run) for side in sides]
    if not any(tokens):
        return []  # nobody has such tokens: nothing to ask
    if not tokens[0]:
        reason = f"the run has no {name} tokens on the baseline's steps: nothing to judge, and no improvement"
        return [
            _blind_draft(f"tails.{name}", name, reason, "see whether the run still calls tools, and how far it came")
        ]
    joined = [[join_tail(run, floors=MATERIAL_NATS) for run in side] for side in sides]
    return [
        _test(name, window, joined[0], joined[1], limit, floored(*sides, window=window)) for window in TESTED_WINDOWS
    ]


def floored(mine: Sequence[Sequence[Curve]], theirs: Sequence[Sequence[Curve]], *, window: str) -> str:
    """Return which percentiles counted for more than they are, and what both are without that; empty where none did.

    A reader who divides the percentiles, or looks at them in a figure, must find the factor that is told.
    """
    raised, levels, least = [], [], False
    for quantile in QUANTILES:
        sides = [
            np.array([curve.log_value for run in side for curve in run if curve.quantile == quantile])
            for side in (mine, theirs)
        ]
        places = np.arange(sides[0].shape[1]) if window == "all" else _late(sides[0].shape[1])
        known = [np.isfinite(side[:, places]).any(axis=0) for side in sides]
        shared = places[known[0] & known[1]]
        if not len(shared):
            return ""
        if any((side[:, shared] < math.log(MATERIAL_NATS[quantile])).any() for side in sides):
            raised.append(f"{quantile} below {MATERIAL_NATS[quantile]:.2f}")
        least |= any((side[:, shared] <= AT_FLOOR).any() for side in sides)
        own, other = (math.exp(float(np.nanmean(side[:, shared], axis=0).mean())) for side in sides)
        levels.append(f"{quantile} {own:.3g} against {other:.3g} nats, {own / other:.3g} times")
    if not raised:
        return ""
    taken = f" (each taken as {FLOOR:.1g} nats at least)" if least else ""
    as_they_are = f"as they are, by the geometric mean of spans{taken}: {'; '.join(levels)}"
    return f"spans with {' or '.join(raised)} nats count as that; {as_they_are}"


def _test(
    name: str, window: str, run_curves: Sequence[Curve], base_curves: Sequence[Curve], limit: float, raised: str
) -> Draft:
    seen = noninferiority_test(run_curves, base_curves, window=window, floor=None)
    places = np.arange(len(run_curves[0].spans)) if window == "all" else _late(len(run_curves[0].spans))
    observed, expected = _level(run_curves, places), _level(base_curves, places)
    steps = f"steps {run_curves[0].spans[places[0]].first} to {run_curves[0].spans[places[-1]].last}"
    tokens = sum(int(curve.tokens[places].sum()) for curve in run_curves)
    known = math.isfinite(seen.ratio)
    spans = "1 shared span" if seen.spans == 1 else f"{seen.spans} shared spans"
    comparison = BaselineComparison(
        id=f"tails.{name}.{window}",
        statistic="tails",
        slice=name,
        outcome="blind",
        words="",
        observed=observed,
        expected=expected,
        ratio=seen.ratio if known else None,
        low=seen.low if known else None,
        high=seen.high if known else None,
        limit=limit,
        unit="x",
        data=f"p95 and p99 of |r| {WHERE[window]}, {steps}: {spans}, {tokens:,} tokens",
        extra={"window": window, "detectable": seen.detectable if math.isfinite(seen.detectable) else None},
    )
    if not known:
        needed = f"{MIN_SPANS} over the run" + (f" and {MIN_WINDOW_SPANS} late" if window == "late" else "")
        few = (
            "only 1 span holds"
            if seen.spans == 1
            else f"only {seen.spans} spans hold"
            if seen.spans
            else "no span holds"
        )
        words = f"{WHERE[window]} {few} enough tokens on both sides: too few to tell; it takes {needed}"
        next_ = "train as far as the baseline did, or record more steps" + (NO_TOOLS if name != "text_only" else "")
        return untested(replace(comparison, words=words, next=(next_,)))
    more = _advise(run_curves, base_curves, window, seen, limit, tokens)
    return Draft(
        found=comparison,
        p_value=seen.p_value,
        settle=lambda settled, adjusted: _settle(settled, adjusted, seen, limit, more, raised),
    )


@dataclass(frozen=True, kw_only=True)
class _More:
    """What would tell where the noise is too wide."""

    words: str
    next: str


def _advise(
    run_curves: Sequence[Curve],
    base_curves: Sequence[Curve],
    window: str,
    seen: Noninferiority,
    limit: float,
    tokens: int,
) -> _More:
    """Return how many tokens would do, or that one more seed would; either is an estimate from what is there."""
    if len(base_curves) == TWO_SEEDS:
        third = noninferiority_test(run_curves, [*base_curves, _mean_seed(base_curves)], window=window, floor=None)
        if decide(third, limit=limit, p_value=min(1.0, third.p_value * len(TESTED_WINDOWS))) != "cannot_say":
            return _More(words="", next="add a third seed to the baseline: two tell little of how far seeds lie apart")
    factor = _times_as_many(seen, limit) if len(base_curves) == 1 else math.inf
    words = ""
    if factor < MAX_TIMES:
        words = f"; some {float(f'{tokens * factor:.2g}'):,.0f} tokens, {factor:.1f} times as many, would tell"
    seeds = "" if len(base_curves) == 1 else "add seeds to the baseline, "
    return _More(words=words, next=f"{seeds}record more steps or sequences, or train longer")


def _mean_seed(theirs: Sequence[Curve]) -> Curve:
    """Return a seed in the middle of others."""
    return replace(
        theirs[0],
        log_value=np.mean([curve.log_value for curve in theirs], axis=0),
        own=np.mean([curve.own for curve in theirs], axis=0),
    )


def _times_as_many(seen: Noninferiority, limit: float) -> float:
    """Return how many times as much data would tell, were noise to fall with its root; inf where none would."""
    middle, half = math.log(seen.ratio), (math.log(seen.high) - math.log(seen.low)) / 2
    rooms = [math.log(max(EXCLUDED_RATIO, limit)) - middle]  # to show that it is not worse
    if seen.ratio > limit:
        rooms.append(middle * FAIL_SHARE)
    return min(((half / room) ** 2 for room in rooms if room > 0), default=math.inf)


def _settle(
    comparison: BaselineComparison, adjusted: float, seen: Noninferiority, limit: float, more: _More, raised: str
) -> BaselineComparison:
    suffix = f" ({raised})" if raised else ""
    level = f"tails {WHERE[str(comparison.extra['window'])]} {seen.ratio:.2f} times the baseline's"
    between = f"({seen.low:.2f} to {seen.high:.2f})"
    decision = decide(seen, limit=limit, p_value=adjusted)
    if decision == "worse":
        words = f"{level} {between}: beyond noise and beyond the limit of {limit:g} times{suffix}"
        return replace(comparison, outcome="failed", words=words)
    if decision == "not_worse":
        inside = "within the limit" if seen.ratio <= limit else "beyond the limit, but not beyond noise"
        return replace(comparison, outcome="passed", words=f"{level} {between}: {inside}{suffix}")
    words = f"{level}, but with this noise it could be {seen.low:.2f} to {seen.high:.2f} times: too wide to tell"
    return replace(comparison, outcome="blind", words=words + more.words + suffix, next=(more.next,))


def curves_of(run: Figures, name: str) -> list[Curve] | None:
    """Return the curves of p95 and p99 of one slice."""
    curves = [curve for curve in run.tails if curve.slice == name and curve.quantile in QUANTILES]
    return curves if len(curves) == len(QUANTILES) else None


def _late(count: int) -> npt.NDArray[np.int64]:
    return np.flatnonzero(third_of(count) == 2)


def _level(side: Sequence[Curve], places: npt.NDArray[np.int64]) -> float | None:
    """Return the geometric mean of the tails in nats; None where no span holds enough tokens."""
    values = np.concatenate([curve.log_value[places] for curve in side])
    values = values[np.isfinite(values)]
    return math.exp(float(values.mean())) if len(values) else None


def _blind_draft(id_: str, slice_: str | None, words: str, next_: str) -> Draft:
    return untested(
        BaselineComparison(
            id=id_, statistic="tails", slice=slice_, outcome="blind", words=words, unit="x", next=(next_,)
        )
    )

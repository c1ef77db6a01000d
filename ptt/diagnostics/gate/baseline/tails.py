"""Hold the tails of a run against the baseline's, on the baseline's own spans of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.gate.baseline.values import Baseline, BaselineComparison, Draft, Figures, untested
from ptt.diagnostics.statistics.noninferiority import (
    EXCLUDED_RATIO,
    MATERIAL_NATS,
    MIN_WINDOW_SPANS,
    RATIO_LIMIT,
    TESTED_WINDOWS,
    Noninferiority,
    Percentiles,
    compare_percentiles,
    decide_percentiles,
    fails_from,
    joint_p_value,
    worst_decision,
)
from ptt.diagnostics.statistics.step_matching import MIN_SPANS
from ptt.diagnostics.statistics.tail_curves import Curve, third_of
from ptt.diagnostics.statistics.tail_growth import FLOOR
from ptt.diagnostics.wording import sig

QUANTILES: Final = ("p95", "p99")
NO_TOOLS: Final = "; check whether the run still calls tools"
MAX_ADVISED_SEEDS: Final = 5  # of a baseline: with so many, one more narrows no interval by a twentieth
MAX_TIMES: Final = 50.0  # as much data; more is no advice
FAIL_SHARE: Final = 1.96 / 2.5
"""Of a 95% interval's half: p below 0.02 over several questions asks for some 2.5 standard errors."""
AT_FLOOR: Final = math.log(FLOOR) + 1e-4  # files hold five digits
SEEDS_THAT_SHOW: Final = 3  # with fewer, one more seed tells what their spread is
SUSPECT: Final = 0.2  # p-value, adjusted over all tails, below which a run that does not fail is left open
MAX_UNCERTAIN: Final = 10.0  # times what is seen: a factor that may be higher by as much says nothing
MIN_TOKENS_SHARE: Final = 0.5  # of the tokens of the seed that has fewest
WHERE: Final = {"all": "over the run", "late": "late in the run"}


def drafts(mine: Figures, baseline: Baseline, *, limit: float, setting: Sequence[Figures] = ()) -> list[Draft]:
    """Return each slice's tail beside the baseline's, over the whole run and late in it.

    `setting`: all runs that show how far seeds lie apart, where they are more than the baseline's.
    """
    having = [run for run in baseline.runs if run.tails]
    if not having:
        if not mine.tails and mine.pair is None:
            return []  # neither side records tokens: nobody asks
        why = next((run.why_no_tails for run in baseline.runs if run.why_no_tails), "its runs recorded no tokens")
        return [
            _blind_draft("tails", None, f"the baseline has no tails: {why}", "renew it with runs that record tokens")
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
        reason = f"the run's tails are of {mine.pair}, the baseline's of {theirs.pair}: they measure different things"
        return [_blind_draft("tails", None, reason, "record the same logprobs, or make a baseline of this pair")]
    results = []
    for name in sorted({curve.slice for run in having for curve in run.tails}):
        results += _slice(name, mine, having, limit, [run for run in setting if run.tails])
    return results


def _slice(
    name: str, figures: Figures, having: Sequence[Figures], limit: float, setting: Sequence[Figures]
) -> list[Draft]:
    sides = [sides_of(side, name) for side in ([figures], having, setting)]
    if not sides[0]:
        others = ", ".join(sorted(figures.slices))
        reason = (
            f"the run has no slice {name} but {others}: tool output is recognised by different evidence, so the "
            "slices differ"
        )
        return [_blind_draft(f"tails.{name}", name, reason, "record tool names and masks as the baseline's runs did")]
    tokens = [sum(int(curve.tokens.sum()) for run in side for curve in run) for side in sides]
    if not any(tokens):
        return []  # nobody has such tokens: nothing to ask
    if not tokens[0]:
        reason = f"the run has no {name} tokens on the baseline's steps: nothing to judge, and no improvement"
        return [
            _blind_draft(f"tails.{name}", name, reason, "check whether the run still calls tools, and how far it got")
        ]
    by_window = dict(zip(TESTED_WINDOWS, compare_percentiles(*sides[:2], setting=sides[2]), strict=True))
    return [_test(name, window, sides, limit, found) for window, found in by_window.items()]


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
            raised.append(f"a {quantile} below {MATERIAL_NATS[quantile]:.2f}")
        least |= any((side[:, shared] <= AT_FLOOR).any() for side in sides)
        own, other = (math.exp(float(np.nanmean(side[:, shared], axis=0).mean())) for side in sides)
        levels.append(f"{quantile} is {sig(own)} against {sig(other)} nats ({sig(own / other)} times)")
    if not raised:
        return ""
    taken = f", each span counted as at least {FLOOR:.1g} nats" if least else ""
    return (
        f"{' or '.join(raised).capitalize()} nats counts as that much, because smaller tails do no harm. As measured, "
        f"{' and '.join(levels)}; these are geometric means over spans of steps{taken}"
    )


def _test(
    name: str,
    window: str,
    each: Sequence[Sequence[Sequence[Curve]]],
    limit: float,
    found: Percentiles,
) -> Draft:
    mine, theirs, setting = each
    spans = mine[0][0].spans
    places = np.arange(len(spans)) if window == "all" else _late(len(spans))
    tokens = sum(tokens_of(run, places) for run in mine)
    shared = min(seen.spans for seen in found.values())
    counted_spans = "1 shared span" if shared == 1 else f"{shared} shared spans"
    steps = f"steps {spans[places[0]].first} to {spans[places[-1]].last}"
    comparison = BaselineComparison(
        id=f"tails.{name}.{window}",
        statistic="tails",
        slice=name,
        outcome="blind",
        words="",
        limit=limit,
        unit="x",
        data=f"p95 and p99 of |r| {WHERE[window]}, {steps}: {counted_spans}, {tokens:,} tokens,"
        f" against {len(theirs)} baseline {'run' if len(theirs) == 1 else 'runs'}",
        extra={"window": window},
    )
    if not all(math.isfinite(seen.ratio) for seen in found.values()):
        return untested(_without_spans(comparison, shared))
    sides = _Sides(mine=mine, theirs=theirs, setting=setting or theirs, places=places, window=window, tokens=tokens)
    return Draft(
        found=_told_by(comparison, _widest(found), found, sides),
        p_value=joint_p_value(found),
        settle=lambda settled, adjusted: _settle(settled, adjusted, found, limit, sides),
    )


def _without_spans(comparison: BaselineComparison, spans: int) -> BaselineComparison:
    window = str(comparison.extra["window"])
    needed = f"{MIN_SPANS} over the run" + (f" and {MIN_WINDOW_SPANS} late" if window == "late" else "")
    few = "only 1 span has" if spans == 1 else f"only {spans} spans have" if spans else "no span has"
    words = f"{WHERE[window]} {few} enough tokens on both sides: too few to judge; it takes {needed}"
    next_ = "train as far as the baseline did, or record more steps"
    return replace(comparison, words=words, next=(next_ + (NO_TOOLS if comparison.slice != "text_only" else ""),))


@dataclass(frozen=True, kw_only=True)
class _Sides:
    """The runs of either side, by percentile, and which of their spans are asked about."""

    mine: Sequence[Sequence[Curve]]
    theirs: Sequence[Sequence[Curve]]
    setting: Sequence[Sequence[Curve]]  # all seeds, whose spread counts: the others', and the run's own if it is one
    places: npt.NDArray[np.int64]
    window: str
    tokens: int


def _widest(found: Percentiles) -> str:
    return max(found, key=lambda name: found[name].high)


def _told_by(comparison: BaselineComparison, name: str, found: Percentiles, sides: _Sides) -> BaselineComparison:
    """Return the comparison with the figures of one percentile: the one that decided."""
    seen = found[name]
    return replace(
        comparison,
        observed=_level(sides.mine, name, sides.places),
        expected=_level(sides.theirs, name, sides.places),
        ratio=seen.ratio,
        low=seen.low,
        high=seen.high,
        extra={
            **comparison.extra,
            "percentile": name,
            "seeds_apart": seen.apart,
        },
    )


def _settle(
    comparison: BaselineComparison, adjusted: float, found: Percentiles, limit: float, sides: _Sides
) -> BaselineComparison:
    """Decide by the percentile that is worse by most, or else by the one that can least be told to be no worse."""
    decisions = decide_percentiles(found, limit=limit, p_value=adjusted, window=sides.window)
    decision = worst_decision(list(decisions.values()))
    deciding = max((name for name in found if decisions[name] == decision), key=lambda name: found[name].high)
    if decision == "worse":
        deciding = max((name for name in found if decisions[name] == decision), key=lambda name: found[name].ratio)
    comparison = _told_by(comparison, deciding, found, sides)
    seen = found[deciding]
    beside = "".join(f". {name} is {_factor(found[name])}" for name in found if name != deciding)
    suffix = f". {raised}" if (raised := floored(sides.mine, sides.theirs, window=sides.window)) else ""
    level = f"{deciding} {WHERE[sides.window]} is {seen.ratio:.2f} times the baseline's"
    if decision == "worse":
        words = f"{level} ({seen.low:.2f} to {seen.high:.2f}), beyond noise and beyond the limit of {limit:g} times"
        return replace(comparison, outcome="failed", words=words + _apart(seen) + beside + suffix)
    if decision == "not_worse":
        inside = "within the limit" if seen.ratio <= limit else "beyond the limit, but not beyond noise"
        excluded = max(EXCLUDED_RATIO, limit)
        bound = f"; {excluded:g} times is excluded at 5%" if seen.high >= excluded else ""
        words = f"{level} ({seen.low:.2f} to {seen.high:.2f}{bound}), {inside}"
        comparison, would = _would_fail(comparison, found, limit, sides)
        return replace(comparison, outcome="passed", words=words + would + _apart(seen) + beside + suffix)
    if _all_that_can_be_bounded(adjusted, [found[name] for name in found if decisions[name] == decision], limit, sides):
        comparison, would = _would_fail(comparison, found, limit, sides)
        words = (
            f"{level} ({seen.low:.2f} to {seen.high:.2f}), not beyond noise; {len(sides.setting)} seeds cannot exclude "
            f"{max(EXCLUDED_RATIO, limit):g} times here"
        )
        return replace(comparison, outcome="passed", words=words + would + _apart(seen) + beside + suffix)
    noise = "with this noise, and the spread between seeds," if len(sides.theirs) == 1 else "with this noise"
    words = f"{level}, but {noise} it could be {seen.low:.2f} to {seen.high:.2f} times: too wide to judge"
    more, next_ = _advise(sides, limit, seen)
    return replace(comparison, outcome="blind", words=words + more + _apart(seen) + beside + suffix, next=(next_,))


def _all_that_can_be_bounded(adjusted: float, unsure: Sequence[Noninferiority], limit: float, sides: _Sides) -> bool:
    """Return whether a run may pass although a factor of 1.6 is not excluded, because its baseline can bound no less.

    Three seeds show how far sound runs lie apart, and one more hardly narrows that. The run must record about as much
    as they do, the factor must be known to one of ten, and what is seen must speak for a run
    that may pass: it lies nearer to the limit than to 1.6, and noise often gives as much. One of the seeds itself is
    part of the spread that it is held against.
    """
    if len(sides.setting) < SEEDS_THAT_SHOW or any(seen.high >= MAX_UNCERTAIN * seen.ratio for seen in unsure):
        return False
    fewest = min(tokens_of(run, sides.places) for run in sides.theirs)
    if sides.tokens < MIN_TOKENS_SHARE * fewest:
        return False
    own = len(sides.setting) > len(sides.theirs)
    return own or (adjusted >= SUSPECT and all(seen.ratio < _nearer(limit) for seen in unsure))


def _nearer(limit: float) -> float:
    """Return the factor below which a run lies nearer to the limit than to what must not pass."""
    return math.sqrt(limit * max(EXCLUDED_RATIO, limit))


def _would_fail(
    comparison: BaselineComparison, found: Percentiles, limit: float, sides: _Sides
) -> tuple[BaselineComparison, str]:
    """Return the comparison with what its pass is worth: how much higher this tail would have had to be to fail."""
    factor = fails_from(sides.mine[0], sides.theirs, found, window=sides.window, limit=limit, setting=sides.setting)
    known = _rounded_up(factor)
    words = f"; a tail {known:g} times as high as this would fail" if known else "; no height of this tail would fail"
    return replace(comparison, extra={**comparison.extra, "fails_from": known}), words


def _apart(seen: Noninferiority) -> str:
    """Say that the seeds' own spread counted, and how wide it is."""
    if not seen.apart:
        return ""
    return f"; the seeds lie a log-SD of {sig(seen.apart)} apart, not the {sig(seen.assumed)} assumed, and that counts"


def _factor(seen: Noninferiority) -> str:
    return f"{seen.ratio:.2f} times ({seen.low:.2f} to {seen.high:.2f})"


def _advise(sides: _Sides, limit: float, seen: Noninferiority) -> tuple[str, str]:
    """Return how many tokens would tell, and what to do; either is an estimate from what is there."""
    count = len(sides.theirs)
    if count < MAX_ADVISED_SEEDS and _one_more_seed_tells(sides, limit):
        another = {1: "second", 2: "third"}.get(count, "further")
        return "", f"add a {another} seed to the baseline: {_so_few(count)} little about the spread between seeds"
    factor = _times_as_many(seen, limit)
    words = ""
    if factor < MAX_TIMES:
        words = (
            f"; about {float(f'{sides.tokens * factor:.2g}'):,.0f} tokens, {factor:.1f} times as many, would be enough"
        )
    return words, "add seeds to the baseline, record more steps or sequences, or train longer"


def _so_few(count: int) -> str:
    return "one says" if count == 1 else f"{('', '', 'two', 'three', 'four')[count]} say"


def _one_more_seed_tells(sides: _Sides, limit: float) -> bool:
    """Return whether the run would be judged, had the baseline one more seed, in the middle of the others."""
    (found,) = compare_percentiles(sides.mine, [*sides.theirs, _middle(sides.theirs)], windows=(sides.window,))
    p_value = min(1.0, joint_p_value(found) * len(TESTED_WINDOWS))
    decisions = decide_percentiles(found, limit=limit, p_value=p_value, window=sides.window)
    bounded = all(seen.ratio < _nearer(limit) and seen.high < MAX_UNCERTAIN * seen.ratio for seen in found.values())
    shows = len(sides.theirs) + 1 == SEEDS_THAT_SHOW and p_value >= SUSPECT and bounded
    return shows or "cannot_say" not in decisions.values() or "worse" in decisions.values()


def _middle(seeds: Sequence[Sequence[Curve]]) -> list[Curve]:
    """Return a run in the middle of several, with their noise."""
    return [
        replace(
            curves[0],
            log_value=np.mean([curve.log_value for curve in curves], axis=0),
            own=np.mean([curve.own for curve in curves], axis=0),
        )
        for curves in zip(*seeds, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What a baseline can bound in one slice and window, by what the gate says of a run in the middle of its seeds."""

    slice: str
    window: str
    fails_from: float | None  # times as high as the seeds' middle; None: no height would fail
    excluded: float  # a factor that must be excluded before "not worse" is said
    open: tuple[str, ...]  # percentiles in which it could not be
    apart: float | None  # log-SD of the seeds, where it counts instead of the assumed one
    assumed: float


def reach(baseline: Baseline, *, limit: float = RATIO_LIMIT) -> tuple[Reach, ...]:
    """Return what a baseline can bound in each tail, whatever run it is asked about."""
    having, results = [run for run in baseline.runs if run.tails], []
    for name in sorted({curve.slice for run in having for curve in run.tails}):
        seeds = sides_of(having, name)
        middle = _middle(seeds)
        for window, found in zip(TESTED_WINDOWS, compare_percentiles([middle], seeds), strict=True):
            if not all(math.isfinite(seen.ratio) for seen in found.values()):
                continue
            decisions = decide_percentiles(found, limit=limit, p_value=1.0, window=window)
            widest = max(found.values(), key=lambda seen: seen.apart or 0.0)
            results.append(
                Reach(
                    slice=name,
                    window=window,
                    fails_from=_rounded_up(fails_from(middle, seeds, found, window=window, limit=limit)),
                    excluded=EXCLUDED_RATIO,
                    open=tuple(each for each in found if decisions[each] == "cannot_say"),
                    apart=widest.apart,
                    assumed=widest.assumed,
                )
            )
    return tuple(results)


def _rounded_up(factor: float) -> float | None:
    return math.ceil(10 * factor) / 10 if math.isfinite(factor) else None


def _times_as_many(seen: Noninferiority, limit: float) -> float:
    """Return how many times as much data would tell, were noise to fall with its root; inf where none would."""
    middle, half = math.log(seen.ratio), (math.log(seen.high) - math.log(seen.low)) / 2
    rooms = [math.log(max(EXCLUDED_RATIO, limit)) - middle]  # to show that it is not worse
    if seen.ratio > limit:
        rooms.append(middle * FAIL_SHARE)
    return min(((half / room) ** 2 for room in rooms if room > 0), default=math.inf)


def sides_of(runs: Sequence[Figures], name: str) -> list[list[Curve]]:
    """Return the curves of one slice of each run that has them."""
    return [curves for curves in (curves_of(run, name) for run in runs) if curves is not None]


def curves_of(run: Figures, name: str) -> list[Curve] | None:
    """Return the curves of p95 and p99 of one slice."""
    curves = [curve for curve in run.tails if curve.slice == name and curve.quantile in QUANTILES]
    return curves if len(curves) == len(QUANTILES) else None


def tokens_of(run: Sequence[Curve], places: npt.NDArray[np.int64]) -> int:
    """Return how many tokens a run's percentiles are of."""
    return int(np.min([curve.tokens[places] for curve in run], axis=0).sum())


def _late(count: int) -> npt.NDArray[np.int64]:
    return np.flatnonzero(third_of(count) == 2)


def _level(side: Sequence[Sequence[Curve]], name: str, places: npt.NDArray[np.int64]) -> float | None:
    """Return the geometric mean of a percentile in nats, as it is judged; None where no span holds enough tokens."""
    values = np.concatenate([curve.log_value[places] for run in side for curve in run if curve.quantile == name])
    values = np.maximum(values[np.isfinite(values)], math.log(MATERIAL_NATS[name]))
    return math.exp(float(values.mean())) if len(values) else None


def _blind_draft(id_: str, slice_: str | None, words: str, next_: str) -> Draft:
    return untested(
        BaselineComparison(
            id=id_, statistic="tails", slice=slice_, outcome="blind", words=words, unit="x", next=(next_,)
        )
    )

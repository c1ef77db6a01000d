"""Hold the tails of a run against the baseline's, on the baseline's own spans of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.baseline.drafts import Draft, unasked
from ptt.diagnostics.baseline.values import Against, Baseline, Figures
from ptt.diagnostics.statistics.curves import Curve, tail, window_of
from ptt.diagnostics.statistics.versus import MATERIAL, TESTED, Versus, decided, versus

QUANTILES: Final = ("p95", "p99")
NO_TOOLS: Final = "; see whether the run still calls tools"
WHERE: Final = {"all": "over the run", "late": "late in the run"}


def drafts(mine: Figures, baseline: Baseline, *, limit: float) -> list[Draft]:
    """Give each slice's tail beside the baseline's, over the whole run and late in it."""
    having = [run for run in baseline.runs if run.tails]
    if not having:
        if not mine.tails and mine.pair is None:
            return []  # neither side records tokens: nobody asks
        why = next((run.why_no_tails for run in baseline.runs if run.why_no_tails), "its runs recorded no tokens")
        return [_blind("tails", None, f"the baseline holds no tails: {why}", "renew it with runs that record tokens")]
    theirs = having[0]
    if mine.pair is None or not mine.tails:
        return [
            _blind(
                "tails",
                None,
                f"the run has no tails: {mine.why_no_tails or 'no tokens are recorded'}",
                "record tokens as the baseline's runs did; `ptt sources` names the line that does",
            )
        ]
    if mine.pair != theirs.pair:
        what = f"the run's tails are of {mine.pair}, the baseline's of {theirs.pair}: they answer different questions"
        return [_blind("tails", None, what, "record the same logprobs, or make a baseline of this pair")]
    found = []
    for name in sorted({curve.slice for run in having for curve in run.tails}):
        found += _slice(name, mine, having, limit)
    return found


def _slice(name: str, mine: Figures, having: Sequence[Figures], limit: float) -> list[Draft]:
    sides = [[run for run in (curves_of(one, name) for one in side) if run is not None] for side in ([mine], having)]
    if not sides[0]:
        others = ", ".join(sorted(mine.slices))
        what = f"the run has no slice {name} but {others}: tools are told by other evidence, and slices differ by it"
        return [_blind(f"tails.{name}", name, what, "record tool names and masks as the baseline's runs did")]
    tokens = [sum(int(curve.tokens.sum()) for run in side for curve in run) for side in sides]
    if not any(tokens):
        return []  # nobody has such tokens: nothing to ask
    if not tokens[0]:
        what = f"the run has no {name} tokens on the baseline's steps: nothing to judge, and no improvement"
        return [_blind(f"tails.{name}", name, what, "see whether the run still calls tools, and how far it came")]
    held = [[tail(run, floors=MATERIAL) for run in side] for side in sides]
    return [_test(name, window, held[0], held[1], limit) for window in TESTED]


def _test(name: str, window: str, mine: Sequence[Curve], theirs: Sequence[Curve], limit: float) -> Draft:
    seen = versus(mine, theirs, window=window, floor=None)
    places = np.arange(len(mine[0].spans)) if window == "all" else _late(len(mine[0].spans))
    observed, expected = _level(mine, places), _level(theirs, places)
    steps = f"steps {mine[0].spans[places[0]].first} to {mine[0].spans[places[-1]].last}"
    tokens = sum(int(curve.tokens[places].sum()) for curve in mine)
    known = math.isfinite(seen.ratio)
    spans = "1 shared span" if seen.spans == 1 else f"{seen.spans} shared spans"
    found = Against(
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
        few = (
            "only 1 span holds"
            if seen.spans == 1
            else f"only {seen.spans} spans hold"
            if seen.spans
            else "no span holds"
        )
        words = f"{WHERE[window]} {few} enough tokens on both sides: too few to tell"
        next_ = "train as far as the baseline did, or record more steps" + (NO_TOOLS if name != "text_only" else "")
        return unasked(replace(found, words=words, next=(next_,)))
    return Draft(found=found, p_value=seen.p_value, settle=lambda one, adjusted: _settle(one, adjusted, seen, limit))


def _settle(found: Against, adjusted: float, seen: Versus, limit: float) -> Against:
    level = f"tails {WHERE[str(found.extra['window'])]} {seen.ratio:.2f} times the baseline's"
    between = f"({seen.low:.2f} to {seen.high:.2f})"
    decision = decided(seen, limit=limit, p_value=adjusted)
    if decision == "worse":
        words = f"{level} {between}: beyond noise and beyond the limit of {limit:g} times"
        return replace(found, outcome="failed", words=words)
    if decision == "not_worse":
        inside = "within the limit" if seen.ratio <= limit else "beyond the limit, but not beyond noise"
        return replace(found, outcome="passed", words=f"{level} {between}: {inside}")
    words = f"{level}, but with this noise it could be {seen.low:.2f} to {seen.high:.2f} times: too wide to tell"
    return replace(found, outcome="blind", words=words, next=("record more steps or sequences, or train longer",))


def curves_of(run: Figures, name: str) -> list[Curve] | None:
    """Give the curves of p95 and p99 of one slice."""
    held = [curve for curve in run.tails if curve.slice == name and curve.quantile in QUANTILES]
    return held if len(held) == len(QUANTILES) else None


def _late(count: int) -> npt.NDArray[np.int64]:
    return np.flatnonzero(window_of(count) == 2)


def _level(side: Sequence[Curve], places: npt.NDArray[np.int64]) -> float | None:
    """Give the geometric mean of the tails in nats; None where no span holds enough tokens."""
    values = np.concatenate([curve.log_value[places] for curve in side])
    values = values[np.isfinite(values)]
    return math.exp(float(values.mean())) if len(values) else None


def _blind(id_: str, slice_: str | None, words: str, next_: str) -> Draft:
    return unasked(
        Against(id=id_, statistic="tails", slice=slice_, outcome="blind", words=words, unit="x", next=(next_,))
    )

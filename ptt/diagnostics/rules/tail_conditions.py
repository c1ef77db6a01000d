"""The four conditions of the signature, tested on one pair's tails: growth, localised, lasting, material.

tool_tail_growth turns them into the signature and its findings; docs/statistics.md has the tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.tails import Tails
from ptt.diagnostics.rules.interface import Limits
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.bootstrap import interval
from ptt.diagnostics.statistics.tail_growth import (
    FLOOR,
    LateRise,
    Percentile,
    SliceTails,
    TailShift,
    excess_growth,
    late_rise,
    tail_shift,
)

MIN_WINDOW_TOKENS: Final = 300  # three tokens above p99: fewer, and a window's p99 is an anecdote
MIN_GROWTH: Final = 1.2  # late over early, of the tail and of its ratio to text: less is no alarm
MAX_TREND_P: Final = 0.05  # p of the rank trend over blocks: a few wild blocks are no growth
LARGE_GROWTH: Final = 1.5  # late over early: so much may not be called no growth where p is below MAX_UNSURE_P
MAX_UNSURE_P: Final = 0.1  # above it not even much growth raises a doubt: one stable run in ten gives as much
MAX_LATE_P: Final = 0.02  # of a rise in the last blocks: so clear, it may not be called no growth
LARGE_LATE_GROWTH: Final = 1.5  # last blocks over all before them: likewise
END_RANK: Final = 0.8  # of the blocks before that most of the last ones lie above
MAX_TEXT_P: Final = 0.05  # p of text-only growth: enough to speak of growth everywhere
MIN_DRAWN_SHARE: Final = 0.9  # of redrawings of the late window: on the same side of the limit
EXCESS_NATS: Final = math.log(2.0)  # post-tool over text-only growth: another factor of two on the weights


@dataclass(frozen=True, kw_only=True)
class JudgedTail:
    """What judging hands to telling: the post-tool tail; `name` is the percentile that tells of it."""

    name: str
    post: Percentile
    p_value: float  # of growth and localisation, the larger
    growth_p: float
    conditions: Mapping[str, bool | None]
    end: LateRise | None = None  # where the tail rose, or may have risen, in the last blocks and not before

    @property
    def grew(self) -> bool:
        """Whether the tail grew beyond noise."""
        return self.conditions["growth"] is True


def block_means_around(percentile: Percentile, end: LateRise) -> tuple[float, float]:
    """Return the mean of a percentile's blocks before the last ones, and of these."""
    rose = np.isin(np.arange(len(percentile.blocks)), end.blocks)
    return tuple(  # type: ignore[return-value]
        float(np.mean(part)) if len(part := values[np.isfinite(values)]) else math.nan
        for values in (percentile.blocks[~rose], percentile.blocks[rose])
    )


def judge_tail(tails: Tails, limits: Limits) -> JudgedTail:
    """Return the post-tool tail with its four conditions, each None where it cannot be decided.

    `limits`: false_alarms (a rate), material_p99 and high_p95 (nats). A rise in the last blocks alone is judged
    there.
    """
    steps = tails.steps / len(tails.blocks)
    own = tail_shift(tails.post, None, steps=steps)
    p_value = own.p_value
    localised: bool | None = None
    if min(tails.text.window_tokens[0], tails.text.window_tokens[-1]) >= MIN_WINDOW_TOKENS:
        localised, of_localised = _localised(tails, limits, steps=steps)
        p_value = max(p_value, of_localised) if math.isfinite(of_localised) else p_value
    percentiles = tails.post.percentiles
    name = "p95" if percentiles["p95"].growth() >= MIN_GROWTH else "p99"
    tail = JudgedTail(
        name=name,
        post=percentiles[name],
        p_value=p_value,
        growth_p=own.p_value,
        conditions={
            "growth": _grew(
                own,
                limits,
                steady=any(_steady(part) for part in percentiles.values()),
                high=float(percentiles["p95"].windows[2]) > limits["high_p95"],
            ),
            "localised": localised,
            "lasting": _lasting(tails.post),
            "material": _material(percentiles["p99"].windows_drawn[2], limits["material_p99"]),
        },
    )
    return _late(tails, tail, limits, steps=steps) or tail


def _late(tails: Tails, tail: JudgedTail, limits: Limits, *, steps: float) -> JudgedTail | None:
    """Return the tail as it rose in the last blocks, where the whole run shows no signature; None where it did not."""
    if tail.grew:
        return None
    end = late_rise(tails.post, None, steps=steps)
    if end.factor < MIN_GROWTH or not _is_rise(tails.post, end):
        return None
    sure = end.p_value < limits["false_alarms"]
    unsure = end.p_value < MAX_LATE_P and end.factor >= LARGE_LATE_GROWTH and tail.conditions["growth"] is False
    if not sure and not unsure:
        return None
    p99 = tails.post.percentiles["p99"]
    material = _material(np.nanmean(p99.drawn[list(end.blocks)], axis=0), limits["material_p99"])
    if material is False:
        return None
    localised, p_value = _late_localised(tails, end, limits, steps=steps) if sure else (None, math.nan)
    name = "p95" if block_means_around(tails.post.percentiles["p95"], end)[1] > limits["material_p99"] else "p99"
    return JudgedTail(
        name=name,
        post=tails.post.percentiles[name],
        p_value=max(end.p_value, p_value) if math.isfinite(p_value) else end.p_value,
        growth_p=end.p_value,
        conditions={"growth": True if sure else None, "localised": localised, "lasting": True, "material": material},
        end=end,
    )


def _is_rise(post: SliceTails, end: LateRise) -> bool:
    """Return whether the last blocks lie above the others in p95 or p99, as ranks and as redrawn: no few wild ones."""
    for percentile in post.percentiles.values():
        usable = np.isfinite(percentile.blocks)
        rose = np.isin(np.arange(len(usable)), end.blocks)
        before, after = percentile.blocks[usable & ~rose], percentile.blocks[usable & rose]
        if not len(before) or not len(after):
            continue
        drawn = percentile.drawn[usable & rose].mean(axis=0)
        by_rank = (after > np.quantile(before, END_RANK)).mean() >= END_RANK
        if by_rank and interval(drawn)[0] > before.mean():
            return True
    return False


def _late_localised(tails: Tails, end: LateRise, limits: Limits, *, steps: float) -> tuple[bool | None, float]:
    """Return whether the last blocks rose against text-only tails as well, by ratio, and the p-value."""
    size = len(end.blocks)
    ratio = late_rise(tails.post, tails.text, steps=steps, size=size)
    if ratio.p_value < limits["false_alarms"] and ratio.factor >= MIN_GROWTH:
        return True, ratio.p_value
    text = late_rise(tails.text, None, steps=steps, size=size)
    return False if text.p_value < MAX_TEXT_P and text.factor >= MIN_GROWTH else None, ratio.p_value


def _localised(tails: Tails, limits: Limits, *, steps: float) -> tuple[bool | None, float]:
    """Return whether post-tool tails outgrew text-only tails, by ratio or by nats, and the p-value of the clearer one.

    By nats only where most of the late tail lies after tools, and more of it than of the tokens.
    """
    ratio = tail_shift(tails.post, tails.text, steps=steps)
    if math.isnan(ratio.p_value):
        return None, math.nan
    held = tails.late_tail_share > max(0.5, tails.late_token_share)
    excess = excess_growth(tails.post, tails.text, steps=steps, margin=EXCESS_NATS) if held else None
    by_nats = excess is not None and excess.p_value < limits["false_alarms"]
    p_value = ratio.p_value if excess is None else min(ratio.p_value, excess.p_value)
    if by_nats or _moved(ratio, limits):
        return True, p_value
    if excess is not None and excess.nats > EXCESS_NATS:  # so much more, but noise could have done it
        return None, p_value
    of_text = tail_shift(tails.text, None, steps=steps)  # that text grew as well takes proof of its own
    text_grew = of_text.p_value < MAX_TEXT_P and of_text.factor >= MIN_GROWTH
    return False if text_grew else None, p_value


def _steady(percentile: Percentile) -> bool:
    """Return whether blocks rise by rank, and windows still differ when blocks and sequences are redrawn."""
    return percentile.trend_p < MAX_TREND_P and percentile.growth_interval()[0] > 1.0


def _grew(shift: TailShift, limits: Limits, *, steady: bool, high: bool) -> bool | None:
    """Return whether the tail grew; None where it could not be tested, or much growth is not quite beyond noise."""
    if math.isnan(shift.p_value):  # too few blocks with tokens: no test was made
        return None
    if steady and _moved(shift, limits):
        return True
    unsure = shift.factor >= LARGE_GROWTH and shift.p_value < MAX_UNSURE_P
    clear = steady and shift.p_value < MAX_LATE_P  # a low tail that wobbles is no reason to doubt a healthy run
    return None if unsure and (high or clear) else False


def _moved(shift: TailShift, limits: Limits) -> bool:
    return shift.p_value < limits["false_alarms"] and shift.factor >= MIN_GROWTH


def _lasting(post: SliceTails) -> bool | None:
    """Return whether the last sixth lies above halfway, on the log scale, between early window and peak."""
    each = post.percentiles.values()
    last = math.prod(part.last_sixth for part in each)
    if not math.isfinite(last):
        return None
    windows = np.prod([np.maximum(part.windows, FLOOR) for part in each], axis=0)
    return bool(last >= math.sqrt(windows[0] * np.nanmax(windows)))


def _material(drawn: FloatArray, limit: float) -> bool | None:
    """Return whether a late p99 lies above the limit, by nine of ten of its redrawings."""
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return None
    above = float((drawn > limit).mean())
    return True if above >= MIN_DRAWN_SHARE else False if above <= 1 - MIN_DRAWN_SHARE else None

"""The dates of a tail that grew: since when it grows, when it passed its limit, and how long before the usual curves.

tool_tail_growth puts them into the signature and its findings; docs/statistics.md has how they are told.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.series import Series, excess_interval, rolling_width
from ptt.diagnostics.evidence.tails import Tails
from ptt.diagnostics.model import Aggregates, Run, Steps
from ptt.diagnostics.rules.single_series import lasting_excess
from ptt.diagnostics.statistics.change_point import rate_change
from ptt.diagnostics.statistics.level_crossing import crossing_interval, level_crossing
from ptt.diagnostics.statistics.ramp_change import RiseOnset, rise_onset
from ptt.diagnostics.statistics.rare_tails import RareRise, share_beyond
from ptt.diagnostics.statistics.tail_growth import GROWTH_OFFSET

Dated = tuple[int, Steps]
"""A step, and the 95% interval of it."""
Dates = tuple[Dated | None, Dated | None]
"""Since when a tail grows, and when it passed its limit."""
ALARM_REACH: Final = 1.5  # times the width of an alarm's mean: as far before the alarm its limit may have been passed
MOST_STEPS: Final = 60  # that date a rise one by one: more take longer and say no more
MIN_REACH: Final = 10  # of them on either side of the interval that blocks give: they show both levels
MOST_UNLIKE: Final = 4.0  # times the median block's: a block's own variance for its few or many tokens


def growth_onset(tails: Tails) -> Dated | None:
    """Return the step from which the post-tool tail rises: p95 and p99 together, as log(x + GROWTH_OFFSET).

    Blocks date it first. Where they join several steps, the steps about that date do so again, one by one.
    """
    part = tails.post
    values = np.log(np.column_stack([each.blocks for each in part.percentiles.values()]) + GROWTH_OFFSET)
    drawn = [np.log(each.drawn + GROWTH_OFFSET).var(axis=1) for each in part.percentiles.values()]
    usable = np.isfinite(values).all(axis=1) & np.isfinite(drawn).all(axis=0)
    if not usable.any():
        return None
    tokens, sampling = part.tokens[usable], float(np.mean(drawn, axis=0)[usable].mean())
    # by tokens alone: a block in which no sequence of the tail was drawn would seem to know its level best
    own = sampling * np.clip(np.median(tokens) / tokens, 1 / MOST_UNLIKE, MOST_UNLIKE)
    spans = [tails.blocks[place] for place in np.flatnonzero(usable).tolist()]
    steps = tails.observations / len(tails.blocks)
    onset = rise_onset(values[usable], own, spans, recorded=tails.recorded, steps=steps)
    if onset is None:
        return None
    finer = _onset_by_step(tails, onset, blocks=len(spans), sampling=sampling)
    return (onset.step, onset.interval) if finer is None else (finer.step, finer.interval)


def _onset_by_step(tails: Tails, onset: RiseOnset, *, blocks: int, sampling: float) -> RiseOnset | None:
    """Return the onset as single steps (or bursts) date it, within reach of what blocks say.

    `sampling`: the variance that a block's values have by themselves. None where steps are no finer than blocks, or
    where the interval covers too many of them for single steps to tell more.
    """
    series = tails.post_steps
    values = np.log(np.column_stack(list(series.percentiles.values())) + GROWTH_OFFSET)
    usable = np.isfinite(values).all(axis=1)
    spans = [series.spans[place] for place in np.flatnonzero(usable).tolist()]
    if len(spans) <= blocks:
        return None
    low, high = onset.interval
    begin = max(0, bisect_left(spans, low, key=lambda span: span.last) - MIN_REACH)
    end = min(len(spans), bisect_right(spans, high, key=lambda span: span.first) + MIN_REACH)
    if end - begin > MOST_STEPS:
        return None
    reach = (MOST_STEPS - (end - begin)) // 2
    part = slice(max(0, begin - reach), end + reach)
    own = np.full(len(spans[part]), sampling * len(spans) / blocks)
    steps = tails.observations / len(series.spans)
    return rise_onset(values[usable][part], own, spans[part], recorded=tails.recorded, steps=steps)


def _rare_onset(tails: Tails, rise: RareRise) -> Dated | None:
    """Return the step from which more sequences have a token beyond the limit of a far tail's growth."""
    maxima = tails.post.far.maxima
    filled = np.flatnonzero(maxima.sum(axis=1) > 0)
    change = rate_change(share_beyond(maxima, rise.limit)[filled], maxima.sum(axis=1)[filled])
    if change is None:
        return None
    first, low, high = (int(filled[place]) for place in change)
    return tails.far_blocks[first].first, (tails.far_blocks[low].last, tails.far_blocks[high].last)


def dates(tails: Tails, name: str, limit: float, run: Run, *, rare: RareRise | None = None) -> Dates:
    """Return since when the post-tool tail grows, and when a percentile of it passed a limit: not before it grew.

    `rare`: where a few tokens beyond p99 grew. Where noise puts both dates the other way round, growth began where the
    limit was passed at the latest.
    """
    onset = growth_onset(tails) if rare is None else _rare_onset(tails, rare)
    passed = limit_passed(tails, name, limit, run)
    if onset is None or passed is None or passed[0] >= onset[0]:
        return onset, passed
    (step, (low, high)), (crossed, (_, last)) = onset, passed
    if crossed < low:  # a passing excess long before
        return onset, (step, (low, max(step, last)))
    return (crossed, (low, high)), passed


def limit_passed(tails: Tails, name: str, limit: float, run: Run) -> Dated | None:
    """Return the step at which a post-tool percentile first passed a limit, as far as a monitor would have told.

    Within the steps whose mean gave the tail's alarm it is where the best rising curve passes the limit: a mean over 20
    steps does so late. Without an alarm it is where such a curve through the whole run does. The interval holds both,
    and reaches back over the gap to what was recorded before.
    """
    series = _tail_series(tails, name, run)
    values = tails.post_steps.percentiles[name]
    usable = np.isfinite(values)
    spans = [span for span, use in zip(tails.post_steps.spans, usable, strict=True) if use]
    level, curve = math.log(limit + GROWTH_OFFSET), np.log(values[usable] + GROWTH_OFFSET)
    first = level_crossing(curve, level)
    if series is None or first is None:
        return None
    low, high = crossing_interval(curve, level)
    alarm = tail_alarm(tails, name, limit, run)
    if alarm is not None:
        end = 1 + int(np.searchsorted([span.last for span in spans], alarm[0]))
        begin = max(0, end - math.ceil(ALARM_REACH * series.width))
        within = level_crossing(curve[begin:end], level)
        first = end - 1 if within is None else begin + within
    low, high = min(low, first), max(high, first)
    before = spans[low - 1].last + 1 if low else spans[0].first
    before = before if alarm is None else min(before, alarm[1][0])
    return spans[first].first, (before, spans[min(high, len(spans) - 1)].last)


def tail_alarm(tails: Tails, name: str, limit: float, run: Run) -> Dated | None:
    """Return the step at which a mean over 20 steps of a post-tool percentile passes a limit, as an aggregate's does.

    The mean takes as many trainer steps as one of a metric that is logged at every step of the run. The interval
    reaches back to the recorded step before.
    """
    series = _tail_series(tails, name, run)
    excess = None if series is None else lasting_excess(series, limit)
    if series is None or excess is None:
        return None
    alarm = series.excess(limit)
    low, high = excess_interval(series, limit, excess.onset if alarm is None else alarm)
    return excess.onset, (min(low, excess.interval[0]), max(high, excess.onset))


def _tail_series(tails: Tails, name: str, run: Run) -> Series | None:
    """Return a post-tool percentile by step, with the width of mean that covers the steps an aggregate's covers."""
    spans, values = tails.post_steps.spans, tails.post_steps.percentiles[name]
    if len(spans) < 2 or run.first_step is None or run.last_step is None:
        return None
    steps = np.array([span.last for span in spans])
    logged = max(2, run.step_count)
    covered = rolling_width(logged) * (run.last_step - run.first_step) / (logged - 1)
    return Series(
        name=name,
        raw_name=f"{name} of |r|",
        steps=steps,
        values=values,
        flags=np.isnan(values).astype(np.uint8),
        window=max(1, round(covered / float(np.median(np.diff(steps))))),
    )


def lead_over_aggregates(
    alarm: Dated | None, aggregates: Aggregates, last: int | None
) -> tuple[int | None, bool, tuple[int, int | None] | None]:
    """Return the lead, whether it is a lower bound, and its 95% interval, open above where it is one.

    From the step at which a mean of the tail alarmed to the first at which one of an aggregate did: means over as many
    steps both. Without an aggregate's alarm it is to the `last` step that both cover.
    """
    if alarm is None or last is None:
        return None, False, None
    step, (low, high) = alarm
    if not aggregates.alarms:
        known = aggregates.status != "cannot_say" and last >= high
        return (last - step, True, (last - high, None)) if known else (None, False, None)
    name = min(aggregates.alarms, key=lambda metric: (aggregates.alarms[metric], metric))
    other = aggregates.alarms[name]
    first, final = aggregates.alarm_intervals.get(name, (other, other))
    lead = other - step
    below, above = math.hypot(high - step, other - first), math.hypot(step - low, final - other)
    return lead, False, (math.floor(lead - below), math.ceil(lead + above))

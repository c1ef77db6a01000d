"""What a tail did, since when, and which condition decided: dates and the reason of a signature."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.series import Series, excess_interval, rolling_width
from ptt.diagnostics.evidence.tails import Tails
from ptt.diagnostics.model import Aggregates, Run, Steps, TailGrowth
from ptt.diagnostics.rules.interface import Limits
from ptt.diagnostics.rules.single_series import lasting_excess
from ptt.diagnostics.rules.tail_conditions import (
    MIN_GROWTH,
    MIN_WINDOW_TOKENS,
    PERCENTILES_SHARE,
    JudgedTail,
    block_means_around,
)
from ptt.diagnostics.statistics.change_point import crossing_interval, level_crossing, rate_change
from ptt.diagnostics.statistics.ramp_change import RiseOnset, rise_onset
from ptt.diagnostics.statistics.rare_tails import RareRise, share_beyond
from ptt.diagnostics.statistics.tail_growth import GROWTH_OFFSET, LateRise, Percentile
from ptt.diagnostics.wording import pct, sig

Dated = tuple[int, Steps]
"""A step, and the 95% interval of it."""
Dates = tuple[Dated | None, Dated | None]
"""Since when a tail grows, and when it passed its limit."""
ALARM_REACH: Final = 1.5  # times the width of an alarm's mean: as far before the alarm its limit may have been passed
MOST_STEPS: Final = 60  # steps, at most, that date a rise one by one: more take longer and add nothing
MIN_REACH: Final = 10  # of them on either side of the interval from blocks, so that both levels show
MOST_UNLIKE: Final = 4.0  # times the median block's: limit of a block's own variance from few or many tokens


def growth_onset(tails: Tails) -> Dated | None:
    """Return the step from which the post-tool tail rises: p95 and p99 together, as log(x + GROWTH_OFFSET).

    Blocks give a first date. If they join several steps, the steps around that date are then used one by one.
    """
    part = tails.post
    values = np.log(np.column_stack([each.blocks for each in part.percentiles.values()]) + GROWTH_OFFSET)
    drawn = [np.log(each.drawn + GROWTH_OFFSET).var(axis=1) for each in part.percentiles.values()]
    usable = np.isfinite(values).all(axis=1) & np.isfinite(drawn).all(axis=0)
    if not usable.any():
        return None
    tokens, sampling = part.tokens[usable], float(np.mean(drawn, axis=0)[usable].mean())
    # only tokens count: resampled variances would trust a block most when its sample missed the tail
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
    """Return the step at which a post-tool percentile first passed a limit, as a monitor could have seen it.

    It is where the best rising curve, within the steps whose mean gave the tail's alarm, passes the limit: a mean over
    20 steps passes it late. Without an alarm, the curve goes through the whole run. The interval holds both, and
    reaches back over the gap to the previous record.
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
    """Return the step at which a mean over 20 steps of a post-tool percentile passes a limit, as an aggregate's would.

    The mean covers as many trainer steps as that of a metric logged at every step. The interval reaches back to the
    previous recorded step.
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
    """Return the lead, whether it is a lower bound, and its 95% interval, open above if it is a bound.

    It runs from the step at which the tail's mean raised an alarm to the first at which an aggregate's did; both means
    cover as many steps. Without an aggregate's alarm, it runs to the `last` step that both cover.
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


MAX_TOLD_WEIGHT: Final = math.log(1e6)  # nats: a larger weight says no more to a reader
MOST_RUNS: Final = 0.5  # above it, more than half of all runs have such a p-value
MAX_NAMED_P: Final = 0.2  # of growth by MIN_GROWTH or more: noise gives it so seldom that it is not called "none"


def reason(tails: Tails, tail: JudgedTail, limits: Limits) -> str:
    """Return what the tail did, and which condition decided."""
    conditions = tail.conditions
    if tail.end is not None:
        return _reason_of_end(tails, tail, tail.end)
    if tail.rare is not None:
        return _reason_of_rare(tails, tail, tail.rare, limits)
    post = tails.post.percentiles[tail.name]
    grew = f"{slice_label(tails).lower()} {tail.name} of |r| went {_path(post)} nats"
    text = f"text-only {_path(tails.text.percentiles[tail.name])}"
    if tail.rise is not None and conditions["growth"] is not False and post.growth() < MIN_GROWTH:
        before, after = block_means_around(post, tail.rise)  # it rose before the early third was over
        first = tails.blocks[tail.rise.blocks[0]].first
        what = f"{slice_label(tails).lower()} {tail.name} of |r|"
        grew = f"{what} went {sig(before)} → {sig(after)} nats from step {first} on"
    if tail.since is not None:
        equal = f"0 at step {tail.since}, where policy and reference were equal,"
        grew = f"{slice_label(tails).lower()} {tail.name} of |r| went from {equal} to {_path(post)} nats"
    p99 = float(tails.post.percentiles["p99"].windows[2])
    if conditions["growth"] is False:
        return _reason_of_no_growth(tails, tail, limits)
    if conditions["material"] is False:
        return f"{grew}, but its late p99 of {sig(p99)} nats stays below {nats(limits['material_p99'])}"
    if conditions["lasting"] is False:
        return f"{grew}, then came back: {sig(post.last_sixth)} in the last sixth"
    if conditions["growth"] is None and conditions["localised"] is False and no_further_than_text(tails):
        return f"{grew}, and {text}: it grew there as well, and after tools it reaches no further"
    if conditions["growth"] is None and math.isnan(tail.growth_p):
        return f"{grew}, but too few blocks of steps have such tokens to test it"
    if conditions["growth"] is None and tail.growth_p < PERCENTILES_SHARE * limits["false_alarms"]:
        return f"{grew}: more than noise explains (p = {sig(tail.growth_p)}), but only a few blocks of steps carry it"
    if conditions["growth"] is None:
        return f"{grew}: noise in this run would give as much in {_one_of(tail.growth_p)} runs"
    if conditions["localised"] is False:
        return f"{grew}, and {text} as well: growth everywhere, not only after tools"
    if conditions["lasting"] is None and math.isfinite(post.last_sixth):
        return f"{grew}, but neither percentile rose far enough to show whether it lasts"
    if conditions["lasting"] is None:
        return f"{grew}, but the last sixth of the run has no such tokens to show whether it lasts"
    if conditions["localised"] is None:
        if min(tails.text.window_tokens[0], tails.text.window_tokens[-1]) < MIN_WINDOW_TOKENS:
            return f"{grew}, but there are too few text-only tokens to judge whether they grew as well"
        return f"{grew}; noise hides whether it outgrew {text}"
    if conditions["material"] is None:
        return (
            f"{grew}; its late p99 of {sig(p99)} nats is too close to the limit of {nats(limits['material_p99'])} to "
            "judge"
        )
    return f"{grew} while {text}"


def no_further_than_text(tails: Tails) -> bool:
    """Return whether the late post-tool tail lies below the text-only one: what grew did not grow after tools alone."""
    return all(
        part.windows[2] < tails.text.percentiles[name].windows[2] for name, part in tails.post.percentiles.items()
    )


def _reason_of_no_growth(tails: Tails, tail: JudgedTail, limits: Limits) -> str:
    """Return that growth is not shown, and how often noise gives as much where it does so seldom."""
    name, most = max(tails.post.percentiles.items(), key=lambda item: (item[1].growth(), item[0]))
    label, rate = slice_label(tails).lower(), PERCENTILES_SHARE * limits["false_alarms"]
    if not (most.growth() >= MIN_GROWTH and tail.growth_p < MAX_NAMED_P):
        return f"{label} {tail.name} of |r| went {_path(tail.post)} nats: no growth beyond the run's own noise"
    return (
        f"{label} {name} of |r| went {_path(most)} nats (×{sig(most.growth())}), which noise in this run gives in "
        f"{_one_of(tail.growth_p)} runs (p = {sig(tail.growth_p)}): growth is not shown, which takes p < {sig(rate)}"
    )


def _reason_of_rare(tails: Tails, tail: JudgedTail, rise: RareRise, limits: Limits) -> str:
    """Return how a few tokens beyond p99 grew, and which condition decided."""
    weight = f" (a weight of {math.exp(rise.limit):,.0f})" if rise.limit < MAX_TOLD_WEIGHT else ""
    grew = (
        f"{slice_label(tails).lower()} tokens beyond {nats(rise.limit)}{weight} went from {pct(rise.before)} to "
        f"{pct(rise.after)}, in {rise.units[0]} → {rise.units[1]} sequences (p = {sig(rise.growth_p)})"
    )
    p99 = f"p99 {_path(tail.post)} nats"
    conditions = tail.conditions
    if conditions["material"] is False:
        return f"{grew}; {p99} stays below {nats(limits['material_p99'])}, so truncated weights are hardly affected"
    if conditions["lasting"] is False:
        return f"{grew}, then came back"
    if conditions["localised"] is False:
        return f"{grew}, but such tokens grew in text-only as well"
    if conditions["localised"] is None:
        return f"{grew}; noise hides whether text-only ones grew as much"
    if conditions["lasting"] is None:
        return f"{grew}; there are too few in the last sixth to judge whether it lasts"
    if conditions["material"] is None:
        return f"{grew}; {p99} is too close to the limit of {nats(limits['material_p99'])} to judge"
    return f"{grew} while text-only ones did not; {p99}"


def _one_of(p_value: float) -> str:
    """Say in how many runs noise does that, worded to precede "runs"."""
    return "most" if p_value > MOST_RUNS else f"one in {1 / max(p_value, 1e-3):.0f}"


def _reason_of_end(tails: Tails, tail: JudgedTail, end: LateRise) -> str:
    """Return what the tail did in the last blocks, and which condition decided."""
    before, after = block_means_around(tail.post, end)
    first = tails.blocks[end.blocks[0]].first
    left = tails.blocks[end.blocks[-1]].last - first + 1
    rose = (
        f"{slice_label(tails).lower()} {tail.name} of |r| went {sig(before)} → {sig(after)} nats from step {first} on, "
        f"{left} step{'s' if left > 1 else ''} before the end"
    )
    conditions = tail.conditions
    if conditions["growth"] is None:
        return f"{rose}: too late to rule out noise, which gives as much in {_one_of(end.p_value)} runs"
    p99 = block_means_around(tails.post.percentiles["p99"], end)[1]
    if conditions["material"] is False:
        return f"{rose}, but its p99 there is only {sig(p99)} nats"
    if conditions["lasting"] is False:
        return f"{rose}, then came back"
    if conditions["material"] is None:
        return f"{rose}; its p99 of {sig(p99)} nats there is too close to the limit to judge"
    if min(tails.text.window_tokens[0], tails.text.window_tokens[-1]) < MIN_WINDOW_TOKENS:
        return f"{rose}, but there are too few text-only tokens to judge whether they grew as well"
    text_before, text_after = block_means_around(tails.text.percentiles[tail.name], end)
    text = f"text-only {sig(text_before)} → {sig(text_after)}"
    if conditions["localised"] is None:
        return f"{rose}; noise hides whether it outgrew {text}"
    return f"{rose}, and {text} as well" if conditions["localised"] is False else f"{rose} while {text}"


SIDES: Final = {
    "policy/ref": ("The policy", "its reference"),
    "old/ref": ("The policy", "its reference"),
    "policy/rollout": ("The policy", "the engine that sampled"),
    "old/rollout": ("The trainer", "the inference engine"),
    "policy/old": ("The policy", "its own old logprobs"),
    "prox/ref": ("The policy", "its reference"),
    "policy/prox": ("The policy", "the proximal policy"),
    "prox/rollout": ("The proximal policy", "the engine that sampled"),
}


def sides(pair: str) -> tuple[str, str]:
    """Return who moved away from whom, as a sentence begins and ends with them."""
    return SIDES.get(pair, ("The policy", "the other side of the pair"))


def where(tails: Tails) -> str:
    """Return where the tokens of the post-tool slice are, worded to end a sentence."""
    return "after tool calls" if tails.post.name == "post_tool" else "after observations"


def path_beside_text(tails: Tails, name: str, text_growth: TailGrowth) -> str:
    """Return how far a percentile came from the early to the late third, and what text-only tokens did.

    That these fell, or did not grow, is said only where every measure of their tail has it so.
    """
    post, text = tails.post.percentiles[name].windows, tails.text.percentiles[name].windows
    beside = f"text-only {sig(text[0])} to {sig(text[2])}"
    if text_growth.movements == {"fell"}:
        beside = "text-only fell"
    elif text_growth.movements and "rose" not in text_growth.movements:
        beside = "text-only did not grow"
    return f"{name} of |r| went from {sig(post[0])} to {sig(post[2])} nats ({beside})"


def slice_label(tails: Tails) -> str:
    """Return the name of the post-tool slice, worded to begin a sentence."""
    return tails.post.name.replace("_", "-").capitalize()


def _path(percentile: Percentile) -> str:
    return " → ".join(f"{sig(value)}" for value in percentile.windows)


def nats(value: float) -> str:
    """Return a value in nats."""
    return f"{sig(value)} nats"

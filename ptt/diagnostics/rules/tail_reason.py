"""Says what a tail did and which condition decided: the reason of a signature, from its conditions and figures.

tool_tail_growth judges; the sentences stand here, one function for each way in which a tail may have grown.
"""

from __future__ import annotations

import math
from typing import Final

from ptt.diagnostics.evidence.tails import Tails
from ptt.diagnostics.model import TailGrowth
from ptt.diagnostics.rules.interface import Limits
from ptt.diagnostics.rules.tail_conditions import (
    MIN_GROWTH,
    MIN_WINDOW_TOKENS,
    PERCENTILES_SHARE,
    JudgedTail,
    block_means_around,
)
from ptt.diagnostics.statistics.rare_tails import RareRise
from ptt.diagnostics.statistics.tail_growth import LateRise, Percentile
from ptt.diagnostics.wording import pct, sig

MAX_TOLD_WEIGHT: Final = math.log(1e6)  # nats: a larger weight says no more to a reader
MOST_RUNS: Final = 0.5  # a p-value above it is that of more than half of the runs
MAX_NAMED_P: Final = 0.2  # of growth by MIN_GROWTH or more: so seldom from noise, it is not called none


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
    """Say how many runs noise does that in, as it stands before "runs"."""
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
}


def sides(pair: str) -> tuple[str, str]:
    """Return who moved away from whom, as a sentence begins and ends with them."""
    return SIDES.get(pair, ("The policy", "the other side of the pair"))


def where(tails: Tails) -> str:
    """Return where the tokens of the post-tool slice stand, as it ends a sentence."""
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
    """Return what the post-tool slice is called where a sentence begins with it."""
    return tails.post.name.replace("_", "-").capitalize()


def _path(percentile: Percentile) -> str:
    return " → ".join(f"{sig(value)}" for value in percentile.windows)


def nats(value: float) -> str:
    """Return a value in nats."""
    return f"{sig(value)} nats"

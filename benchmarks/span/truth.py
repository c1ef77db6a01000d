"""What is true of a drawn run: whether it shows the signature, how large, since when, and if its size can carry it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import t as student

from benchmarks.span.run import LN2, BoolArray, Drawn, Growth

ALARM: Final = 0.01  # rate of false alarms at which growth must be told from noise
POWER: Final = 0.97  # with which a test that knew the noise and the change would tell it
LEAST_TOKENS: Final = 300  # of a slice on either side of the change: fewer, and a p99 is an anecdote
LEAST_EXTREMES: Final = 12  # tokens beyond, to be expected after the change
LATE: Final = 0.8  # of the run: growth that starts here or later is late
GREW, GREW_NOT = 1.3, 1.1  # of the tail (geometric mean of p95 and p99), after over before; between is open
OUTGREW, OUTGREW_NOT = 1.3, 1.1  # likewise, over text-only growth
MATERIAL, MATERIAL_NOT = 1.2 * LN2, 0.85 * LN2  # of p99 in the end
EXCESS, EXCESS_NOT = 1.4 * LN2, 0.7 * LN2  # nats of post-tool over text-only growth
HELD, HELD_NOT = 0.6, 0.45  # of the late tail, by post-tool tokens
EXTREME: Final = 2.0  # nats: a weight of seven, where the mass beyond p99 is the danger
FAR: Final = 2.5  # times the p99 before: likewise beyond it
MOST_FAR_TEXT: Final = 0.5  # of the post-tool share of extreme tokens: more, and they are not of tools
TAIL_SLOPE: Final = 3.0  # of log share beyond by log |r|, near p99


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is true of a run; `signature` is None where a condition lies too near its limit to claim either."""

    signature: bool | None
    why: str  # the condition that is not met, or not clear
    size: float  # p99 after over before
    nats: float  # p99 after less before
    late_p99: float
    rare: bool  # the growth is of a few tokens in a thousand, beyond p99
    late: bool  # it begins in the last fifth
    carried: float  # log growth over the least that the run's own size and noise let be told: below 1 it cannot
    start: int | None  # step from which on the tail moves
    halfway: int | None  # step at which half of the way, in logs, is gone
    holder: tuple[str, str] | None


def truth_of(drawn: Drawn) -> Truth:
    """Tell the truth of a run."""
    growth = drawn.post
    before99, after99 = ends(drawn, 0.99)
    signature, why = _signature(drawn)
    moves = growth.shape not in ("none", "swing")
    steps, u = drawn.layout.steps, drawn.layout.u
    half = growth.curve(u) >= 0.5
    return Truth(
        signature=signature,
        why=why,
        size=after99 / before99,
        nats=after99 - before99,
        late_p99=after99,
        rare=growth.form == "rare",
        late=moves and growth.start >= LATE,
        carried=carried(drawn),
        start=int(steps[np.searchsorted(u, growth.start)]) if moves and growth.start <= 1 else None,
        halfway=int(steps[np.argmax(half)]) if moves and half.any() else None,
        holder=(growth.attribute, growth.value) if growth.attribute else None,
    )


def sides(drawn: Drawn, growth: Growth) -> tuple[BoolArray, BoolArray]:
    """Mark the recorded steps before a growth and after it; without one, the first third and the last."""
    u = drawn.layout.u
    if growth.shape in ("none", "swing", "spike"):
        return u <= 1 / 3, u >= 2 / 3
    margin = 0.25 * (growth.end - growth.start)
    before = u <= max(growth.start + margin, u[0]) if growth.shape != "step" else u < growth.start
    after = u >= min(growth.end - margin, u[-1])
    if not before.any():  # it has begun before the first step
        before = u <= u[0]
    return before, after & ~before


def ends(drawn: Drawn, quantile: float, slice_name: str = "post") -> tuple[float, float]:
    """Give the true level of a slice before the post-tool growth and after it (of text alone, before and after its)."""
    growth = drawn.post if drawn.post.shape != "none" else drawn.text
    places = drawn.places
    levels = np.log(drawn.levels(slice_name, quantile, places))
    before, after = (part[places] for part in sides(drawn, growth))
    first = levels[before] if before.any() else levels[:1]
    last = levels[after] if after.any() else levels[-1:]
    return math.exp(float(first.mean())), math.exp(float(last.mean()))


def _signature(drawn: Drawn) -> tuple[bool | None, str]:
    """Ask the four conditions of the true levels."""
    if drawn.plan == "blind":
        return None, drawn.blindness
    (before95, after95), (before99, after99) = (ends(drawn, quantile) for quantile in (0.95, 0.99))
    text = [ends(drawn, quantile, "text") for quantile in (0.95, 0.99)]
    grew = math.sqrt(after95 / before95 * after99 / before99)
    outgrew = grew / math.sqrt(text[0][1] / text[0][0] * text[1][1] / text[1][0])
    excess = max(
        (after95 - before95) - (text[0][1] - text[0][0]),
        (after99 - before99) - (text[1][1] - text[1][0]),
    )
    held = _held_by_post(drawn)
    if drawn.post.form == "rare":  # the percentiles hardly move: the mass beyond them does
        return _rare(drawn)
    by_nats = _clear(excess, EXCESS, EXCESS_NOT), _clear(held, HELD, HELD_NOT)
    by_ratio = _clear(outgrew, OUTGREW, OUTGREW_NOT)
    localised = True if by_ratio or all(by_nats) else False if by_ratio is False and False in by_nats else None
    if by_ratio is not True:  # growth of both by as much is growth everywhere, whatever it is in nats
        grown = _clear(grew / outgrew, GREW, GREW_NOT)
        alike = False if by_ratio is False and grown is True else None
        localised = alike if grown is not False and localised is not False else localised
    asked = {
        "growth": _clear(grew, GREW, GREW_NOT),
        "lasting": drawn.post.shape not in ("spike", "swing"),
        "localised": localised,
        "material": _clear(after99, MATERIAL, MATERIAL_NOT),
    }
    signature, why = _all(asked)
    if signature is False and why in ("growth", "localised") and _is_far_tail(drawn):
        return None, "far tail"
    return signature, why


def _is_far_tail(drawn: Drawn) -> bool:
    """Ask whether a share of the sequences moves so far that their tokens are extreme, and text has next to none such.

    Percentiles and the mass beyond them then say different things, and either answer has its reason.
    """
    if drawn.post.form != "share" or _rare(drawn)[0] is not True:
        return False
    after = sides(drawn, drawn.post)[1][drawn.places]
    limit = _extreme(drawn)
    post, text = (float(drawn.beyond(name, limit, drawn.places)[after].mean()) for name in ("post", "text"))
    return text <= MOST_FAR_TEXT * post


def _rare(drawn: Drawn) -> tuple[bool | None, str]:
    """Ask them of a few tokens per thousand: many times as many as before, and some nats large."""
    places = drawn.places
    before, after = (part[places] for part in sides(drawn, drawn.post))
    share = drawn.beyond("post", _extreme(drawn), places)
    first, last = float(share[before].mean()), float(share[after].mean()) if after.any() else 0.0
    return _all(
        {
            "growth": _clear(last / max(first, 1e-6), 2.0, 1.2),
            "material": _clear(ends(drawn, 0.99)[1], MATERIAL, MATERIAL_NOT),
        }
    )


def _extreme(drawn: Drawn) -> float:
    """Give the |r| from which on a token is extreme."""
    return max(EXTREME, FAR * ends(drawn, 0.99)[0])


def _all(asked: dict[str, bool | None]) -> tuple[bool | None, str]:
    for name, answer in asked.items():
        if answer is False:
            return False, name
    unclear = [name for name, answer in asked.items() if answer is None]
    return (None, unclear[0]) if unclear else (True, "")


def _clear(value: float, least: float, most: float) -> bool | None:
    return True if value >= least else False if value <= most else None


def _held_by_post(drawn: Drawn) -> float:
    """Give the share of the late tail (|r| above ln 2) that follows a tool call."""
    places = drawn.places
    after = sides(drawn, drawn.post)[1][places]
    places = places[after] if after.any() else places[-1:]
    tokens = np.clip(drawn.tools[places], 0, 1) * drawn.after
    post, text = (float((share * drawn.beyond(name, LN2, places)).mean()) for name, share in
                  (("post", tokens), ("text", 1 - tokens)))  # fmt: skip
    return post / (post + text) if post + text else 0.0


def carried(drawn: Drawn) -> float:
    """Give the true log growth over the least that could be told, of the tail and of its ratio to text the smaller.

    The least is what a test with the run's true noise and the true place of the change tells with POWER at ALARM:
    step noise that follows itself, sequences that share a scale, and so many tokens.
    """
    growth = drawn.post
    if growth.shape in ("none", "spike", "swing"):
        return math.nan
    before, after = sides(drawn, growth)
    if not before.any() or not after.any():
        return 0.0
    if growth.form == "rare":
        return _rare_carried(drawn, before, after)
    own, text = ([ends(drawn, q, name) for q in (0.95, 0.99)] for name in ("post", "text"))
    rose, of_text = (0.5 * sum(math.log(last / first) for first, last in both) for both in (own, text))
    step, degrees = _step_variance(drawn, before, after)
    post, plain = (_sampling_variance(drawn, name, before, after) for name in ("post", "text"))
    needed = float(student.ppf(1 - ALARM, degrees) + student.ppf(POWER, degrees))
    apart = math.sqrt(2 * (1 - drawn.noise.shared) * step + post + plain)
    by_ratio = (rose - of_text) / (needed * apart)
    by_nats = -math.inf
    if _held_by_post(drawn) >= HELD:  # the second way: p99 in nats, beyond the margin of ln 2
        error = math.hypot(own[1][1], text[1][1]) * apart / math.sqrt(2)
        by_nats = (own[1][1] - own[1][0] - (text[1][1] - text[1][0]) - LN2) / (needed * error)
    return min(rose / (needed * math.sqrt(step + post)), max(by_ratio, by_nats))


def _step_variance(drawn: Drawn, before: BoolArray, after: BoolArray) -> tuple[float, float]:
    """Give the variance of after less before from step noise, and the degrees of freedom that the steps are worth."""
    steps = drawn.layout.steps
    alike = drawn.noise.rho ** np.abs(steps[:, None] - steps[None, :]).astype(np.float64)
    covariance = alike * drawn.noise.step_sd[:, None] * drawn.noise.step_sd[None, :]
    weights = after / after.sum() - before / before.sum()
    used = before | after
    worth = used.sum() ** 2 / float(alike[np.ix_(used, used)].sum())
    return float(weights @ covariance @ weights), max(2.0, worth - 2)


def _sampling_variance(drawn: Drawn, slice_name: str, before: BoolArray, after: BoolArray) -> float:
    """Give the variance of log p99, after less before, from so many sequences and tokens."""
    total = 0.0
    for part in (before, after):
        rows, tokens = extent(drawn, slice_name, part)
        if tokens < LEAST_TOKENS:
            return math.inf
        rows *= 1 - drawn.layout.duplicates
        moving, growth = 1.0, drawn.post if slice_name == "post" else drawn.text
        spread = drawn.noise.sequence_sd**2 + drawn.noise.group_sd**2 * drawn.layout.group
        if growth.shape != "none" and part is after:  # the tail is that of the sequences that move
            moving = _moving_share(drawn, slice_name, part)
            if growth.form == "share":  # and how many of them move is chance
                spread += 1 / TAIL_SLOPE**2
        total += 2 * spread / max(rows * moving, 1.0) + 1 / (TAIL_SLOPE**2 * 0.01 * tokens)
    return total


def _moving_share(drawn: Drawn, slice_name: str, part: BoolArray) -> float:
    """Give the share of a slice's tokens that move, at some steps."""
    shares, _ = drawn.parts(slice_name, np.flatnonzero(part))
    return float(shares[:, 1::2].sum(axis=1).mean())


def _rare_carried(drawn: Drawn, before: BoolArray, after: BoolArray) -> float:
    """Give how many extreme tokens are to be expected after the change, over the least to be told."""
    places = np.flatnonzero(after)
    limit = _extreme(drawn)
    share = float(drawn.beyond("post", limit, places).mean())
    first = float(drawn.beyond("post", limit, np.flatnonzero(before)).mean())
    tokens = extent(drawn, "post", after)[1] * (1 - drawn.layout.duplicates)
    earlier = extent(drawn, "post", before)[1] * share
    return min(tokens * (share - 2 * first), earlier) / LEAST_EXTREMES / _clumping(drawn, after, share)


def _clumping(drawn: Drawn, after: BoolArray, share: float) -> float:
    """Give the variance of the number of extreme tokens over its mean: a Poisson count has 1.

    Where only one value's tokens move, many of them come in the few sequences that have it: ten of one sequence tell as
    much as one. Anywhere, or on one rank, of which each step has its part, they come one by one.
    """
    growth, layout = drawn.post, drawn.layout
    attribute = drawn.attribute(growth.attribute)
    if attribute is None or attribute.name == "rank":
        return 1.0
    held = float(attribute.shares[attribute.values.index(growth.value)][after].mean())
    together = float(layout.length[after].mean()) * drawn.after  # post-tool tokens of a sequence
    if attribute.name in ("tool", "tool result"):  # of which each answer has its part
        together /= (1 + drawn.observations) / 2
    return 1 + (1 - held) * together * share / held


def extent(drawn: Drawn, slice_name: str, part: BoolArray) -> tuple[float, float]:
    """Give how many sequences and tokens of a slice some steps are to hold."""
    layout = drawn.layout.per_step[part]
    tools = np.clip(drawn.tools[part], 0, 1)
    if slice_name == "post":
        return float((layout * tools).sum()), float((layout * tools * drawn.after * drawn.layout.length[part]).sum())
    return float(layout.sum()), float((layout * (1 - tools * drawn.after) * drawn.layout.length[part]).sum())

"""This run shows a reward whose parts or weights changed in mid-run.

What: the logged total is exactly a weighted sum of the logged parts before a step and after it, and no single set of
weights gives both; or a part that was never logged before is logged at every step after it and counts in the sum. It is
reported where the change moves the total by at least a fifth of its level. Or scale (mean square over mean), level and
spread of the total all grew to 2.5 times or more from one logged step to the next, for good, and level and spread
by the same factor. Or the rewards of each epoch are those of the one before, row by row, and one amount more.
Why it matters: rewards before and after are on different scales. What looks like a jump, a fall or a gap to the
evaluation at that step is the revision, and every revision can be gamed in new ways.
What it is not: a part that earned nothing at first and pays from some step on. Its weight was the same before; and its
pay adds more to the spread of rewards than to their level. A total that is not a sum of its parts, or whose weights
change all the time, is not judged.
What to do: check the revised reward against outcomes it does not use; compare only steps with the same parts and
weights.
Source: TRL and ms-swift log the total and every part unrounded, and the total is their weighted sum.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import mean_reward
from ptt.diagnostics.rules.single_series import aligned, metric_evidence
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.wording import pct, sig

MIN_STEPS = 20  # on either side: more than there are parts, so that an exact fit is no accident
MAX_PARTS = 8
SCALE_FACTOR = 2.5  # in scale, level and spread: rewards of 0 or M keep their scale while they are learnt
MAX_SPREAD_RATIO = 1.5  # between the growth of spread and level: scaling rewards scales both
MAX_PAID = 1  # of MIN_STEPS before the change: a part that paid more often had already begun to pay
FIRST_STEPS = 5  # of a part that joined: one that starts near 0 does not move the total
MAX_WRONG = 1  # of MIN_STEPS on either side of the change: a step with hardly a success shows no scale
LASTING_SHARE = 0.9  # of all steps before it, and of all after it
KEPT_SHARE = 0.9  # of the steps with a positive mean: the others show no scale
EXACT = 1e-4  # of the total's largest size: sums of float32 means, logged with five digits at least
MIN_SCATTER = 0.01  # of the total's largest size: a total that stands still fits any weights
MIN_CHANGE = 0.2  # of the total's largest size
MIN_EPOCH_ROWS = 20  # of each of at least two epochs: as many rewards that learning would have raised each by its own
UNIFORM_FACTOR = 3.0  # times the spread of what rewards gained from epoch to epoch: their mean gain is more
DIFFERENT_SHARE = 0.5  # of the gain: rewards of one epoch differ by more, and not along a course
LEARNT_MISFIT = 1.1  # times the squared misfit of one gain for all: learning explains the gains as well
CURVE_DEGREE = 3  # of the course that is taken out of an epoch: a smooth curve goes on alike in the next
ENABLE = "log the total reward and the mean of each part at every step, as TRL does with several reward_funcs"


Change = tuple[int, float, str]
"""Which value is the first after it, how far it moves the total, and what it is."""


class Parts(NamedTuple):
    """The total beside its parts at the steps that log a total; 0 where a part is not logged."""

    names: tuple[str, ...]
    steps: IntArray
    total: FloatArray  # (n,)
    values: FloatArray  # (n, parts)
    logged: BoolArray  # (n, parts)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether one set of weights makes up the total throughout."""
    reward = mean_reward(evidence, 2 * MIN_STEPS)
    if isinstance(reward, NotJudged):
        return reward
    epoch = evidence.metrics.get("epoch") or evidence.other.get("epoch")
    if epoch is not None and (raised := _raised_by_epoch(reward, epoch)) is not None:
        return _finding(reward, reward.finite()[0], raised, limits, parts="")
    components = evidence.rewards.components if evidence.rewards is not None else {}
    parts = _parts(reward, components)
    rescaled = _rescaled(reward, evidence.metrics.get("reward/std"), parts)
    if rescaled is not None:
        return _finding(reward, reward.finite()[0], rescaled, limits, parts="")
    if parts is None:
        return NotJudged(
            reason=f"two to {MAX_PARTS} parts of the reward, each logged beside the total, are needed",
            missing=("rewards/<name>/mean",),
            enable=ENABLE,
        )
    change = _joined(parts) or _reweighted(parts)
    if change is None:
        if _fixed_weights(parts) is not None:
            return Healthy(reason=f"one set of weights of {len(parts.names)} parts gives the total at all steps")
        reason = "the total is not a weighted sum of the logged parts, so a revision would not show"
        return NotJudged(reason=reason, missing=("rewards/<name>/mean",), enable=ENABLE)
    _, moved, what = change
    share = moved / float(np.abs(parts.total).max())
    if share < limits["change"]:
        return Healthy(reason=f"{what}; it changes the total by {pct(share)} of its level")
    return _finding(reward, parts.steps, change, limits, parts=", ".join(parts.names))


def _finding(reward: Series, steps: IntArray, change: Change, limits: Limits, *, parts: str) -> Finding:
    place, moved, what = change
    onset = int(steps[place])
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The reward was revised: {what}",
        observed=moved / float(np.abs(reward.finite()[1]).max()),
        limit=limits["change"],
        unit="of the total's level",
        onset_step=onset,
        onset_interval=(int(steps[place - 1]), onset),
        evidence=metric_evidence(reward, parts=parts) if parts else metric_evidence(reward),
        causes=(
            "the run was resumed with different reward functions or weights",
            "the scorer was changed in mid-run",
            *(() if parts else ("a part of the reward that is not logged, and pays only from that step on",)),
        ),
        confirm=(f"compare the reward functions and weights of the configurations before and after step {onset}",),
        next=(
            "check the revised reward against an outcome that it does not use, on samples from both sides",
            f"compare rewards before step {onset} only with each other, and rewards from then on only with each other",
        ),
    )


def _raised_by_epoch(reward: Series, epoch: Series) -> Change | None:
    """Return the first row of the second epoch if each epoch pays the same rows alike, and all of them more.

    Learning raises rewards by what is left to learn of each; the same gain for all is paid for the epoch.
    """
    steps, values, epochs = aligned(reward, epoch)
    starts = np.flatnonzero(np.diff(epochs)) + 1
    count = len(starts) + 1
    length = len(values) // count
    if count < 2 or length < MIN_EPOCH_ROWS or len(values) != count * length or np.any(starts % length):
        return None
    table = values.reshape(count, length)
    gains = np.diff(table, axis=0)
    mean, spread = gains.mean(axis=1), gains.std(axis=1)
    places = np.arange(length)
    course = np.polynomial.Polynomial.fit(places, table[0], CURVE_DEGREE)(places)
    uniform = bool((mean >= UNIFORM_FACTOR * spread).all() and (gains > 0).all())
    if not uniform or (table[0] - course).std() < DIFFERENT_SHARE * mean.max() or _is_learnt(table):
        return None
    told = f"each of {length} rewards is {sig(gains[0].min())} to {sig(gains[0].max())} higher in the second epoch than"
    return (
        int(np.searchsorted(reward.finite()[0], steps[length])),
        float(mean[0]),
        f"{told} in the first, whatever it was",
    )


def _is_learnt(table: FloatArray) -> bool:
    """Return whether what rows gain from epoch to epoch goes with p(1 - p), as in logistic learning.

    table: rewards, (epochs, rows). p is the reward between two epochs, in 0 to 1 or a wider range of theirs.
    """
    gains, between = np.diff(table, axis=0), (table[1:] + table[:-1]) / 2
    lowest, highest = min(0.0, float(table.min())), max(1.0, float(table.max()))
    left = (between - lowest) * (highest - between)
    slopes = (gains * left).sum(axis=1, keepdims=True) / np.square(left).sum(axis=1, keepdims=True)
    of_learning = np.square(gains - slopes * left).sum()
    of_constant = np.square(gains - gains.mean(axis=1, keepdims=True)).sum()
    return bool(of_learning <= LEARNT_MISFIT * of_constant)


def _rescaled(reward: Series, spread: Series | None, parts: Parts | None) -> Change | None:
    """Return the step from which rewards are on a scale several times as large, or None.

    The measure is the mean square over the mean, which is M for a reward of 0 or M, whatever its share of successes: it
    moves with the scale, not with learning. It must differ on the two sides of one place between two logged values.
    Level and spread must have grown too, by one factor, and not only through parts that pay from there on.
    """
    if spread is None:
        return None
    steps, means, spreads = aligned(reward, spread)
    usable = means > 0  # a step without any success shows no scale
    steps, means, spreads = steps[usable], means[usable], spreads[usable]
    if len(steps) < 2 * MIN_STEPS or usable.mean() < KEPT_SHARE:
        return None
    scale = means + np.square(spreads) / means
    for place in _jumps(scale):
        sides = slice(place - MIN_STEPS, place), slice(place, place + MIN_STEPS)
        growths = [float(np.mean(values[sides[1]]) / np.mean(values[sides[0]])) for values in (means, spreads)
                   if np.mean(values[sides[0]]) > 0]  # fmt: skip
        if len(growths) == 2 and min(growths) >= SCALE_FACTOR and max(growths) <= MAX_SPREAD_RATIO * min(growths):
            old, new = float(np.median(means[:place])), float(np.median(means[place:]))
            logged = int(np.searchsorted(reward.finite()[0], steps[place]))
            if parts is not None and _begins_to_pay(parts, logged):
                continue
            return logged, new - old, f"rewards became {sig(new / old)} times as large"
    return None


def _begins_to_pay(parts: Parts, place: int) -> bool:
    """Return whether parts that earned nothing before a place make the total larger from there on, at equal weights."""
    weights = _fixed_weights(parts)
    if weights is None:
        return False
    before, after = slice(max(0, place - MIN_STEPS), place), slice(place, place + MIN_STEPS)
    idle = np.count_nonzero(parts.values[before], axis=0) <= MAX_PAID
    others = parts.values[:, ~idle] @ weights[~idle]
    return bool(others[after].mean() < SCALE_FACTOR * others[before].mean())


def _jumps(scale: FloatArray) -> list[int]:
    """Return the places that part a scale in two, nearly without exception near them and over the run."""
    logs = np.log(scale)
    if len(logs) < 2 * MIN_STEPS:
        return []
    medians = np.median(sliding_window_view(logs, MIN_STEPS), axis=1)  # over the steps from each place on
    before, after = medians[:-MIN_STEPS], medians[MIN_STEPS:]
    return [
        int(at) + MIN_STEPS
        for at in np.flatnonzero(after - before >= np.log(SCALE_FACTOR))
        if _parts_in_two(logs, int(at) + MIN_STEPS, before[at] + (after[at] - before[at]) / 2)
    ]


def _parts_in_two(logs: FloatArray, place: int, middle: float) -> bool:
    """Return whether a scale lies below a level before a place and above it from there on."""
    before, after = logs[place - MIN_STEPS : place], logs[place : place + MIN_STEPS]
    wrong = max(np.count_nonzero(before > middle), np.count_nonzero(after < middle))
    if wrong > MAX_WRONG or not logs[place - 1] < middle < logs[place]:
        return False
    return bool(min((logs[:place] < middle).mean(), (logs[place:] > middle).mean()) >= LASTING_SHARE)


def _parts(reward: Series, components: Mapping[str, Series]) -> Parts | None:
    names = tuple(sorted(name for name, series in components.items() if len(series.finite()[0]) >= MIN_STEPS))
    if not 2 <= len(names) <= MAX_PARTS:
        return None
    steps, total = reward.finite()
    values, logged = np.zeros((len(steps), len(names))), np.zeros((len(steps), len(names)), dtype=bool)
    for column, name in enumerate(names):
        at, part = components[name].finite()
        _, places, others = np.intersect1d(steps, at, return_indices=True)
        values[places, column], logged[places, column] = part[others], True
    return Parts(names, steps, total, values, logged)


def _misfit(parts: Parts, fitted: slice, judged: slice) -> FloatArray:
    """Return how far the totals of some rows lie from the weighted sum that fits others best."""
    weights = np.linalg.lstsq(parts.values[fitted], parts.total[fitted], rcond=None)[0]
    misfit: FloatArray = np.abs(parts.values[judged] @ weights - parts.total[judged])
    return misfit


def _fixed_weights(parts: Parts) -> FloatArray | None:
    """Return the weights with which the parts add up to the total at all steps; None if no single set does."""
    weights = np.linalg.lstsq(parts.values, parts.total, rcond=None)[0].astype(np.float64)
    misfit = np.abs(parts.values @ weights - parts.total).max()
    return weights if misfit <= EXACT * float(np.abs(parts.total).max()) else None


def _joined(parts: Parts) -> Change | None:
    """Return where a part joined the sum, or left it for good, and how much of the total it is."""
    weights = _fixed_weights(parts)
    if weights is None:
        return None
    for column, name in enumerate(parts.names):
        logged = parts.logged[:, column]
        edges = np.flatnonzero(np.diff(logged.astype(int)))
        if len(edges) == 1 and MIN_STEPS <= edges[0] + 1 <= len(logged) - MIN_STEPS:
            place = int(edges[0]) + 1
            paid = parts.values[logged, column]
            beside = paid[:FIRST_STEPS] if logged[-1] else paid[-FIRST_STEPS:]
            moved = float(np.abs(weights[column] * beside).mean())
            return place, moved, f"its part {name} is {'new' if logged[-1] else 'gone'}"
    return None


def _reweighted(parts: Parts) -> Change | None:
    """Return where other weights begin, and how far the old ones lie from the totals after it.

    The first rows give the old weights, the last the new: each set must be exact from its end to the change.
    """
    size = float(np.abs(parts.total).max())
    tolerance, ends = EXACT * size, (slice(0, MIN_STEPS), slice(len(parts.total) - MIN_STEPS, None))
    still = any(float(parts.total[end].std()) < MIN_SCATTER * size for end in ends)
    if still or _fixed_weights(parts) is not None:
        return None
    old, new = (_misfit(parts, end, slice(None)) <= tolerance for end in ends)
    if old.all() or new.all() or not (old[ends[0]].all() and new[ends[1]].all()):
        return None
    place = int(np.flatnonzero(~old)[0])
    if not new[place:].all() or bool(old[place:].sum() > len(old[place:]) // 2):
        return None
    moved = float(_misfit(parts, slice(0, place), slice(place, None)).mean())
    return place, moved, "the total weights its parts differently from that step on"


RULE = rule(check, "reward-revised", Link.REWARD, max_severity=Severity.MEDIUM, change=MIN_CHANGE)

"""Choose the estimator that gives the recorded advantages, and explain the samples that it does not give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ptt.diagnostics.statistics.advantage_estimators import (
    CORE,
    EQUAL,
    ESTIMATORS,
    Estimate,
    Estimator,
    Precision,
    RewardedBatch,
    agrees,
    precision_of,
    size_by,
    std_by,
)
from ptt.diagnostics.statistics.advantage_faults import (
    Lines,
    codes_of,
    in_groups,
    lines_of,
    negated,
    of_earlier_steps,
    other_groupings,
    permuted,
)
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

FITS: Final = 0.98  # of the telling samples: the rest are single ones, such as answers cut short
MAJORITY: Final = 0.5  # of the telling samples fit by themselves: what the others should be is then known
FITS_OTHERWISE: Final = 0.6  # by one fault throughout: exact agreement of so many is no chance
CLEARER: Final = 0.1  # than without that fault
STEP_FITS: Final = 0.95  # of a step's telling samples
MIN_STEPS: Final = 3  # that fit before the first that does not
TELLING: Final = 0.005  # of the usual size of an advantage: nearer to 0 it tells no estimator from another
USUAL: Final = 95  # percentile of the sizes of advantages: of groups with equal rewards only noise is left
MAX_TRIED: Final = 1 << 15  # samples on which other groupings are tried
MIN_EXPLAINED: Final = 8  # samples: the size of a usual group
MIN_SHARE: Final = 0.03  # of the samples that do not fit: fewer may be explained by chance
REMAINDERS: Final = frozenset({"reward", "zero", "noise", "clipped"})  # what another fault may leave of a batch
OF_A_STEP: Final = 0.2  # of a step's samples that do not fit: fewer are chance, or the remainder of another fault
OFF_CENTRE: Final = 0.1  # mean of a group's advantages over their root mean square


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """What is fitted: samples with reward, group and step, their advantages, and their order."""

    batch: RewardedBatch
    advantage: FloatArray
    number: IntArray  # by which the id of a sample orders it
    size: int  # samples of a whole group, by the settings or the commonest

    def at(self, rows: BoolArray) -> Sampled:
        """Return some samples, with codes from 0 again."""
        batch = self.batch
        return replace(
            self,
            batch=RewardedBatch(
                reward=batch.reward[rows],
                group=codes_of(batch.group[rows]),
                batch=codes_of(batch.batch[rows]),
                rank=None if batch.rank is None else codes_of(batch.rank[rows]),
                length=None if batch.length is None else batch.length[rows],
            ),
            advantage=self.advantage[rows],
            number=self.number[rows],
        )


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Samples whose advantage is something else than the estimator's, and what it is."""

    name: (
        str  # "sign", a grouping's name, "shuffle", "stale", "reward", "zero", "clipped", "order", "centre", "unknown"
    )
    said: str
    rows: BoolArray  # (samples,)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The estimator, how many samples it gives, and what the others are."""

    estimator: Estimator
    known: bool  # False: it is only the nearest of those that do not fit
    telling: BoolArray  # (samples,) those that tell estimators apart
    agreeing: BoolArray  # (samples,)
    error: float  # median relative error of the telling samples
    lines: float  # share of the telling groups whose advantages rise with the reward on a line
    explanations: tuple[Explanation, ...] = ()


def fit_advantages(sampled: Sampled) -> Fit:
    """Find the estimator, then explain what does not fit it."""
    precision = precision_of(sampled.advantage, sampled.batch.reward)
    telling = _telling(sampled)
    estimator, share = _nearest(sampled, precision, telling, ESTIMATORS)
    known = share >= FITS or (share >= MAJORITY and telling.sum() >= MIN_EXPLAINED)
    if share < FITS:
        other = _under_one_fault(sampled, precision, share)
        if other is not None and (not known or other[1] > share + CLEARER):
            estimator, known = other[0], True
        elif not known:
            found = _fits_scaled(sampled, precision, telling) or _fits_at_first(sampled, precision, telling)
            estimator, known = (estimator, False) if found is None else (found, True)
    value, scale = _estimate(estimator, sampled.batch)
    agreeing = agrees(sampled.advantage, (value, scale), precision)
    telling = telling | (~agreeing & (np.abs(value) > _small(sampled)))
    lines = _risen_lines(sampled, precision, telling)
    error = np.abs(sampled.advantage - value) / np.maximum(np.abs(value), _small(sampled))
    fit = Fit(
        estimator=estimator,
        known=known,
        telling=telling,
        agreeing=agreeing,
        error=float(np.median(error[telling])) if telling.any() else 0.0,
        lines=lines,
    )
    if not known or not (telling & ~agreeing).any():
        return fit
    return replace(fit, explanations=_explain(sampled, fit, precision))


def _estimate(estimator: Estimator, batch: RewardedBatch) -> Estimate:
    found = estimator.estimate(batch)
    assert found is not None, "chosen among those that could be estimated"
    return found


def _small(sampled: Sampled) -> float:
    sizes = np.abs(sampled.advantage)
    return TELLING * float(np.percentile(sizes[sizes > 0], USUAL)) if (sizes > 0).any() else TELLING


def _telling(sampled: Sampled) -> BoolArray:
    return np.asarray(np.abs(sampled.advantage) > _small(sampled))


def _nearest(
    sampled: Sampled, precision: Precision, telling: BoolArray, among: Sequence[Estimator]
) -> tuple[Estimator, float]:
    """Return the estimator with which most telling samples agree, and their share."""
    best, most = among[0], -1.0
    for estimator in among:
        found = estimator.estimate(sampled.batch)
        if found is None:
            continue
        share = _share(sampled, found, precision, telling)
        if share > most + 1e-9:
            best, most = estimator, share
    return best, most


def _share(sampled: Sampled, found: Estimate, precision: Precision, telling: BoolArray) -> float:
    """Return the share that agrees of samples whose advantage, recorded or estimated, is not near 0."""
    concerned = telling | (np.abs(found[0]) > _small(sampled))
    return float(agrees(sampled.advantage, found, precision)[concerned].mean()) if concerned.any() else 1.0


def _some_steps(sampled: Sampled) -> Sampled:
    """Return the samples of steps spread over the run, at most MAX_TRIED of them."""
    every = -(-len(sampled.advantage) // MAX_TRIED)
    return sampled if every == 1 else sampled.at(sampled.batch.batch % every == 0)


def _under_one_fault(sampled: Sampled, precision: Precision, share: float) -> tuple[Estimator, float] | None:
    """Return the estimator that agrees if the whole run has one fault; None where none agrees with enough samples."""
    some = _some_steps(sampled)
    telling = _telling(some)
    best: tuple[Estimator, float] | None = None
    groupings = list(other_groupings(some.batch, some.number, some.size))
    for estimator in CORE:
        own = _estimate(estimator, some.batch)
        right = agrees(some.advantage, own, precision)
        concerned = telling | (np.abs(own[0]) > _small(some))
        others = [agrees(some.advantage, negated(own), precision)]
        others += [
            agrees(some.advantage, in_groups(some.batch, estimator, grouping.code), precision)
            for grouping in groupings
            if grouping.name != "batch"  # an estimator of its own
        ]
        moved = permuted(some.advantage, own, precision, some.batch.batch, ~right)
        late = of_earlier_steps(some.advantage, own, precision, some.batch.batch, some.number, ~right & ~moved)
        others.append(moved | late)
        shares = [float((right | other)[concerned].mean()) if concerned.any() else 0.0 for other in others]
        if max(shares) > (best[1] if best else max(FITS_OTHERWISE, share + CLEARER)):
            best = estimator, max(shares)
    return best


def _fits_scaled(sampled: Sampled, precision: Precision, telling: BoolArray) -> Estimator | None:
    """Return the estimator that gives all advantages but for one factor, as a reward scale or a coefficient is."""
    for estimator in CORE:
        value, scale = _estimate(estimator, sampled.batch)
        both = telling & (np.abs(value) > 0)
        if not both.any():
            continue
        factor = float(np.median(sampled.advantage[both] / value[both]))
        if factor > 0 and _share(sampled, (factor * value, factor * scale), precision, telling) >= FITS:
            return _scaled(estimator, factor)
    return None


def _scaled(estimator: Estimator, factor: float) -> Estimator:
    def estimate(batch: RewardedBatch) -> Estimate:
        value, scale = _estimate(estimator, batch)
        return factor * value, factor * scale

    return replace(estimator, said=f"{estimator.said}, times {factor:.4g}", estimate=estimate)


def _fits_at_first(sampled: Sampled, precision: Precision, telling: BoolArray) -> Estimator | None:
    """Return the estimator that gives all advantages up to some step, and then none; None where none does."""
    batch = sampled.batch.batch
    found: tuple[int, Estimator] | None = None
    for estimator in ESTIMATORS:
        estimate = estimator.estimate(sampled.batch)
        if estimate is None:
            continue
        good = agrees(sampled.advantage, estimate, precision)
        trials = np.bincount(batch, weights=telling)
        hits = np.bincount(batch, weights=telling & good)
        fits = hits[trials > 0] >= STEP_FITS * trials[trials > 0]
        first = int(np.argmin(fits)) if not fits.all() else len(fits)
        if first >= MIN_STEPS and fits[first:].mean() <= 0.5 and (found is None or first > found[0]):
            found = first, estimator
    return None if found is None else found[1]


def _risen_lines(sampled: Sampled, precision: Precision, telling: BoolArray) -> float:
    """Return the share of telling samples in groups of several rewards whose advantages rise on a line."""
    lines = lines_of(sampled.advantage, sampled.batch.reward, sampled.batch.group, precision, precision.reward)
    judged = telling & np.isfinite(lines.slope)
    return float((lines.straight & (lines.slope > 0))[judged].mean()) if judged.any() else 0.0


def _explain(sampled: Sampled, fit: Fit, precision: Precision) -> tuple[Explanation, ...]:
    """Give each sample that does not fit the explanation that most of them share, in the steps that hold any."""
    wrong = ~fit.agreeing
    bad_steps = np.bincount(sampled.batch.batch, weights=wrong & fit.telling) > 0
    among = bad_steps[sampled.batch.batch]
    part, off = sampled.at(among), wrong[among]
    own = _estimate(fit.estimator, sampled.batch)
    own_part = own[0][among], own[1][among]
    candidates = list(_candidates(part, fit.estimator, own_part, precision, off))
    late = of_earlier_steps(sampled.advantage, own, precision, sampled.batch.batch, sampled.number, wrong & among)
    candidates.append(Explanation(name="stale", said="advantages of an earlier step", rows=late[among]))
    candidates = [_in_most_of_a_step(one, part.batch.batch, off & fit.telling[among]) for one in candidates]
    left = off.copy()
    least = max(MIN_EXPLAINED, MIN_SHARE * float((off & fit.telling[among]).sum()))
    chosen: list[Explanation] = []
    while candidates:
        counts = [int((one.rows & left & fit.telling[among]).sum()) for one in candidates]
        best = int(np.argmax(counts))
        if counts[best] < (1 if chosen and candidates[best].name in REMAINDERS else least):
            break
        one = candidates.pop(best)
        chosen.append(replace(one, rows=one.rows & left))
        left &= ~one.rows
    lines = lines_of(part.advantage, part.batch.reward, part.batch.group, precision, precision.reward)
    parts = left & fit.telling[among] & lines.straight & (lines.slope > 0) & (size_by(part.batch.group) < part.size)
    if parts.sum() > sum(int((one.rows & fit.telling[among]).sum()) for one in chosen):
        return ()  # rows of whole groups are missing from the records: what else fits does so by chance
    chosen += _unexplained(part, fit.telling[among], left, lines)
    return tuple(replace(one, rows=_spread(one.rows, among)) for one in chosen)


def _in_most_of_a_step(one: Explanation, batch: IntArray, off: BoolArray) -> Explanation:
    """Return the explanation in those steps of which it explains a good part of what does not fit."""
    if one.name in REMAINDERS:
        return one
    share = np.bincount(batch, weights=one.rows & off) / np.maximum(np.bincount(batch, weights=off), 1)
    return replace(one, rows=one.rows & (share >= OF_A_STEP)[batch])


def _spread(rows: BoolArray, among: BoolArray) -> BoolArray:
    whole = np.zeros(len(among), np.bool_)
    whole[among] = rows
    return whole


def _candidates(
    part: Sampled, estimator: Estimator, own: Estimate, precision: Precision, off: BoolArray
) -> Iterator[Explanation]:
    """Yield what the samples that are off may be; the first of equals is taken."""
    batch, advantage = part.batch, part.advantage
    yield Explanation(name="sign", said="the sign turned", rows=off & agrees(advantage, negated(own), precision))
    tried = (*([estimator] if estimator in CORE else []), *(one for one in CORE if one is not estimator))
    for grouping in other_groupings(batch, part.number, part.size):
        wide = grouping.name in ("batch", "rank")
        wider = size_by(grouping.code) > size_by(batch.group) if wide else True
        for one in tried if wide or estimator not in CORE else tried[:1]:
            rows = off & wider & agrees(advantage, in_groups(batch, one, grouping.code), precision)
            yield Explanation(name=grouping.name, said=grouping.said, rows=rows)
    levels = [("of one step", batch.batch), ("of one group", batch.group)]
    levels += [
        ("of one rank", grouping.code)
        for grouping in other_groupings(batch, part.number, part.size)
        if grouping.name == "rank"
    ]
    levels += [] if batch.rank is None else [("of one rank", batch.rank)]
    for said, code in levels:
        rows = permuted(advantage, own, precision, code, off)
        yield Explanation(name="shuffle", said=f"the right advantages on other samples {said}", rows=rows)
    small = _small(part)
    unchanged = np.abs(advantage - batch.reward) <= precision.absolute + precision.relative * np.abs(advantage)
    yield Explanation(name="reward", said="the reward itself", rows=off & unchanged & (np.abs(advantage) > small))
    yield Explanation(name="zero", said="0", rows=off & (advantage == 0))
    bound = float(np.abs(advantage[off]).max(initial=0.0))
    at_bound = np.isclose(np.abs(advantage), bound) & (np.abs(own[0]) > bound) & (advantage * own[0] > 0)
    yield Explanation(name="clipped", said=f"clipped at {bound:.3g}", rows=off & at_bound)
    silent = std_by(batch.reward, batch.group, ddof=0) <= EQUAL
    noise = silent & (std_by(advantage, batch.group, ddof=0) <= precision.absolute + EQUAL)
    yield Explanation(name="noise", said="rounding, where all rewards of the group are equal", rows=off & noise)
    for one in ESTIMATORS:
        if one not in CORE and one.formula not in ("reward", "batch_whitening") and one is not estimator:
            found = one.estimate(batch)
            if found is not None:
                name = "batch" if one.whole_batch else "estimator" if one.centred else "centre"
                yield Explanation(name=name, said=one.said, rows=off & agrees(advantage, found, precision))
    if estimator.grouped:
        for one in CORE:
            rows = off & agrees(advantage, _estimate(one, batch), precision)
            yield Explanation(name="estimator", said=one.said, rows=rows)


def _unexplained(part: Sampled, telling: BoolArray, left: BoolArray, lines: Lines) -> list[Explanation]:
    """Sort what nothing explains by group: against the order of rewards, off the centre, or neither."""
    left = left & telling
    whole = size_by(part.batch.group) >= part.size
    rising = lines.straight & (lines.slope > 0)
    centre = left & rising & whole & (np.abs(lines.mean) > OFF_CENTRE * lines.spread)
    judged = left & np.isfinite(lines.slope) & ~rising
    falling = judged & (lines.slope < 0)
    found = []
    if centre.sum() >= MIN_EXPLAINED:
        found.append(Explanation(name="centre", said="off the centre of their group", rows=centre))
        left = left & ~centre
    if judged.sum() >= MIN_EXPLAINED and falling.sum() >= FALLING * judged.sum():
        found.append(Explanation(name="order", said="in no order of the rewards", rows=judged))
        left = left & ~judged
    if left.any():
        found.append(Explanation(name="unknown", said="nothing known", rows=left))
    return found


FALLING: Final = 0.25  # of the groups' samples: advantages that follow another reward still rise with this one

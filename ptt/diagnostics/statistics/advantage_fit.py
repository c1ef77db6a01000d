"""Choose the estimator that gives the recorded advantages, and explain the samples that it does not give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
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
    Grouping,
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
MAJORITY: Final = 0.4  # of the telling samples fit, one rank of two: what others should be is known
FITS_OTHERWISE: Final = 0.6  # by one fault throughout: exact agreement of so many is no chance
FEW_OF_EACH: Final = 0.1  # of the telling samples, of those that agree and of those that are the reward itself
CLEARER: Final = 0.1  # than without that fault
STEP_FITS: Final = 0.95  # of a step's telling samples
MIN_STEPS: Final = 3  # that fit before the first that does not, with
MIN_BEFORE: Final = 24  # telling samples: fewer may fit by chance
TELLING: Final = 0.005  # of the usual size of an advantage: nearer to 0 it tells no estimator from another
USUAL: Final = 95  # percentile of the sizes of advantages: of groups with equal rewards only noise is left
MAX_TRIED: Final = 1 << 15  # samples on which other groupings are tried
MIN_EXPLAINED: Final = 8  # samples: the size of a usual group
MIN_ALONE: Final = 4  # telling samples of a short record, if a group-relative estimator gives them all
MIN_SHARE: Final = 0.03  # of the samples that do not fit: fewer may be explained by chance
MIN_WHOLE: Final = 64  # telling samples that fit before: eight usual groups
MIN_WHOLE_STEPS: Final = 5
WHOLE_SHARE: Final = 0.3  # of samples that wider groups explain without a deviation: few values agree often
WIDE: Final = ("rank", "batch")  # unions of groups, in which the advantages of each still rise on a line
UNSCALED: Final = ("dr_grpo", "rloo")
NOISE: Final = 0.01  # an advantage where all rewards are equal: their rounding over the estimator's epsilon
REMAINDERS: Final = frozenset({"reward", "zero", "noise", "clipped"})  # what another fault may leave of a batch
HARMLESS: Final = REMAINDERS | {"estimator"}
BREAKING: Final = frozenset({"sign", "stride", "interleaved", "shifted", "shuffle", "stale"})
"""Faults after which some group's advantages do not rise with its rewards on a line."""
CONVINCING: Final = 0.8  # of what does not fit: parts of groups agree with other ways of grouping here and there
OF_A_STEP: Final = 0.2  # of a step's samples that do not fit: fewer are chance, or the remainder of another fault
FALLING: Final = 0.25  # of the groups' samples: advantages that follow another reward still rise with this one
OFF_CENTRE: Final = 0.1  # mean of a group's advantages over their root mean square


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """What is fitted: samples with reward, group and step, their advantages, and their order."""

    batch: RewardedBatch
    advantage: FloatArray
    number: IntArray  # by which the id of a sample orders it
    size: int  # samples of a whole group, by the settings or the commonest
    size_known: bool = False  # by the settings

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
    lines: Lines
    parts: BoolArray  # (samples,) that do not agree, but rise with the reward as those of a part of a group do
    explanations: tuple[Explanation, ...] = ()


def fit_advantages(sampled: Sampled) -> Fit:
    """Find the estimator, then explain what does not fit it."""
    precision = precision_of(sampled.advantage, sampled.batch.reward)
    telling = _telling(sampled)
    lines = lines_of(sampled.advantage, sampled.batch, precision)
    some = _some_steps(sampled)
    estimator, share = _nearest(some, precision, _telling(some))
    if some is not sampled:
        share = _share(sampled, _estimate(estimator, sampled.batch), precision, telling)
    known = share >= MAJORITY and telling.sum() >= MIN_EXPLAINED
    known |= share == 1.0 and estimator.grouped and telling.sum() >= MIN_ALONE
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
    error = np.abs(sampled.advantage - value) / np.maximum(np.abs(value), _small(sampled))
    fit = Fit(
        estimator=estimator,
        known=known,
        telling=telling,
        agreeing=agreeing,
        error=float(np.median(error[telling])) if telling.any() else 0.0,
        lines=lines,
        parts=~agreeing & ~lines.broken,
    )
    if not known or not (telling & ~agreeing).any():
        return fit
    return _explained(sampled, fit, precision)


def _estimate(estimator: Estimator, batch: RewardedBatch) -> Estimate:
    found = estimator.estimate(batch)
    assert found is not None, "chosen among those that could be estimated"
    return found


def _small(sampled: Sampled) -> float:
    sizes = np.abs(sampled.advantage)
    return TELLING * float(np.percentile(sizes[sizes > 0], USUAL)) if (sizes > 0).any() else TELLING


def _telling(sampled: Sampled) -> BoolArray:
    return np.asarray(np.abs(sampled.advantage) > _small(sampled))


def _nearest(sampled: Sampled, precision: Precision, telling: BoolArray) -> tuple[Estimator, float]:
    """Return the estimator with which most telling samples agree, and their share."""
    best, most = ESTIMATORS[0], -1.0
    for estimator in ESTIMATORS:
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
    lines = lines_of(some.advantage, some.batch, precision)
    mixed = bool(lines.broken[telling].mean() > 1 - FITS) if telling.any() else False
    best: tuple[Estimator, float] | None = None
    groupings = [one for one in other_groupings(some.batch, some.number, some.size) if mixed or one.name in WIDE]
    unchanged = agrees(some.advantage, (some.batch.reward, np.ones(len(telling))), precision)
    for estimator in CORE:
        own = _estimate(estimator, some.batch)
        right = agrees(some.advantage, own, precision)
        concerned = telling | (np.abs(own[0]) > _small(some))
        if not concerned.any():
            continue
        others = [
            agrees(some.advantage, in_groups(some.batch, estimator, grouping.code), precision) for grouping in groupings
        ]
        if min(float(right[concerned].mean()), float(unchanged[concerned].mean())) >= FEW_OF_EACH:
            others.append(unchanged)
        if mixed:
            others.append(agrees(some.advantage, negated(own), precision))
            moved = permuted(some.advantage, own, precision, some.batch.batch, ~right)
            late = of_earlier_steps(some.advantage, own, precision, some.batch.batch, some.number, ~right & ~moved)
            others.append(moved | late)
        shares = [float((right | other)[concerned].mean()) for other in others]
        least = max(FITS_OTHERWISE if mixed else FITS, share + CLEARER)
        if shares and max(shares) > (best[1] if best else least):
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
        if not (trials > 0).any():
            break
        fits = hits[trials > 0] >= STEP_FITS * trials[trials > 0]
        if fits.all():
            return estimator
        first = int(np.argmin(fits))
        enough = first >= MIN_STEPS and trials[trials > 0][:first].sum() >= MIN_BEFORE
        if enough and fits[first:].mean() <= MAJORITY and (found is None or first > found[0]):
            found = first, estimator
    return None if found is None else found[1]


def _explained(sampled: Sampled, fit: Fit, precision: Precision) -> Fit:
    """Give each sample that does not fit the explanation that most of them share, in the steps that hold any."""
    wrong = ~fit.agreeing
    among = (np.bincount(sampled.batch.batch, weights=wrong & fit.telling) > 0)[sampled.batch.batch]
    part, off, telling = sampled.at(among), wrong[among], fit.telling[among]
    lines = lines_of(part.advantage, part.batch, precision)
    own = _estimate(fit.estimator, sampled.batch)
    candidates = list(_candidates(part, fit.estimator, (own[0][among], own[1][among]), precision, off))
    late = of_earlier_steps(sampled.advantage, own, precision, sampled.batch.batch, sampled.number, wrong & among)
    candidates.append(Explanation(name="stale", said="advantages of an earlier step", rows=late[among]))
    candidates = [_where_it_holds(one, part.batch.batch, off & telling, lines.broken & telling) for one in candidates]
    chosen, left = _greedy(candidates, off, telling)
    harmful = [one for one in chosen if one.name not in HARMLESS]
    told = sum(int((one.rows & telling).sum()) for one in harmful)
    aside = sum(int((one.rows & telling).sum()) for one in chosen) - told
    if told < CONVINCING * (int((off & telling).sum()) - aside):
        chosen, left = [one for one in chosen if one.name in HARMLESS], off
        for one in chosen:
            left = left & ~one.rows
    whole = size_by(part.batch.group) >= part.size
    if not (sampled.size_known or _whole_before(sampled, fit, off & whole & lines.rising, telling & whole)):
        whole = np.zeros(len(off), np.bool_)
    chosen += _unexplained(telling & left, lines, whole)
    explanations = tuple(replace(one, rows=_spread(one.rows, among)) for one in chosen)
    explained = np.zeros(len(wrong), np.bool_)
    for one in explanations:
        explained |= one.rows
    return replace(fit, explanations=explanations, parts=fit.parts & ~explained)


def _whole_before(sampled: Sampled, fit: Fit, off: BoolArray, telling: BoolArray) -> bool:
    """Return whether groups of the usual size are whole: all fitted for a while, and most no longer do since.

    Groups whose size changed there are parts since then, or were before: that is the record's doing.
    """
    wrong = np.bincount(sampled.batch.batch, weights=~fit.agreeing & fit.telling) > 0
    before = fit.telling & (sampled.batch.batch < np.flatnonzero(wrong)[0])
    steps = len(np.unique(sampled.batch.batch[before]))
    enough = before.sum() >= MIN_WHOLE and steps >= MIN_WHOLE_STEPS and telling.any()
    if not (enough and off[telling].mean() >= MAJORITY and fit.estimator.grouped):
        return False
    size = size_by(sampled.batch.group)
    return bool(np.median(size[before]) == np.median(size[~fit.agreeing & fit.telling]) == sampled.size)


def _greedy(candidates: list[Explanation], off: BoolArray, telling: BoolArray) -> tuple[list[Explanation], BoolArray]:
    """Take the explanation of most samples, then of most of the rest, and so on; return them, and what is left."""
    left = off.copy()
    least = max(MIN_EXPLAINED, MIN_SHARE * float((off & telling).sum()))
    chosen: list[Explanation] = []
    while candidates:
        counts = [int((one.rows & left & telling).sum()) for one in candidates]
        best = int(np.argmax(counts))
        remainder = candidates[best].name in REMAINDERS and any(one.name in BREAKING for one in chosen)
        if counts[best] < (1 if remainder else least):
            break
        one = candidates.pop(best)
        chosen.append(replace(one, rows=one.rows & left))
        left &= ~one.rows
    return chosen, left


def _spread(rows: BoolArray, among: BoolArray) -> BoolArray:
    whole = np.zeros(len(among), np.bool_)
    whole[among] = rows
    return whole


def _where_it_holds(one: Explanation, batch: IntArray, off: BoolArray, broken: BoolArray) -> Explanation:
    """Return the explanation in those steps of which it explains a good part.

    Samples that changed places or groups are told only at steps where some group's advantages do not rise with its
    rewards on a line: elsewhere they may be those of whole groups of which a part is recorded.
    """
    if one.name in REMAINDERS:
        return one
    share = np.bincount(batch, weights=one.rows & off) / np.maximum(np.bincount(batch, weights=off), 1)
    steps = share >= OF_A_STEP
    if one.name in BREAKING:
        steps &= np.bincount(batch, weights=broken) > 0
    return replace(one, rows=one.rows & steps[batch])


def _candidates(
    part: Sampled, estimator: Estimator, own: Estimate, precision: Precision, off: BoolArray
) -> Iterator[Explanation]:
    """Yield what the samples that are off may be; the first of equals is taken."""
    turned = off & agrees(part.advantage, negated(own), precision)
    yield Explanation(name="sign", said="the sign turned", rows=turned)
    groupings = list(other_groupings(part.batch, part.number, part.size))
    yield from _of_other_groups(part, estimator, groupings, precision, off)
    levels = [("of one step", part.batch.batch), ("of one group", part.batch.group)]
    levels += [("of one rank", grouping.code) for grouping in groupings if grouping.name == "rank"]
    levels += [] if part.batch.rank is None else [("of one rank", part.batch.rank)]
    for said, code in levels:
        rows = permuted(part.advantage, own, precision, code, off)
        yield Explanation(name="shuffle", said=f"the right advantages on other samples {said}", rows=rows)
    yield from _remainders(part, own, precision, off)
    yield from _of_other_estimators(part, estimator, precision, off)


def _of_other_groups(
    part: Sampled, estimator: Estimator, groupings: Sequence[Grouping], precision: Precision, off: BoolArray
) -> Iterator[Explanation]:
    """Yield the estimator over other groups; over those as wide as a batch, others too, since it is other code."""
    tried = (*([estimator] if estimator in CORE else []), *(one for one in CORE if one is not estimator))
    size = size_by(part.batch.group)
    whole = size >= part.size
    for grouping in groupings:
        wide = grouping.name in WIDE
        allowed = off & (size_by(grouping.code) > size) if wide else off
        for one in tried if wide or estimator not in CORE else tried[:1]:
            rows = allowed & agrees(part.advantage, in_groups(part.batch, one, grouping.code), precision)
            by_chance = wide and one.formula in UNSCALED and rows.any() and whole[rows].mean() < WHOLE_SHARE
            if not by_chance:
                yield Explanation(name=grouping.name, said=grouping.said, rows=rows)


def _remainders(part: Sampled, own: Estimate, precision: Precision, off: BoolArray) -> Iterator[Explanation]:
    """Yield what is left of samples that a fault, a filter or a bound takes out."""
    advantage, batch = part.advantage, part.batch
    unchanged = np.abs(advantage - batch.reward) <= precision.absolute + precision.relative * np.abs(advantage)
    unchanged &= np.abs(advantage) > _small(part)
    yield Explanation(name="reward", said="the reward itself", rows=off & unchanged)
    yield Explanation(name="zero", said="0", rows=off & (advantage == 0))
    bound = float(np.abs(advantage[off]).max(initial=0.0))
    at_bound = np.isclose(np.abs(advantage), bound) & (np.abs(own[0]) > bound) & (advantage * own[0] > 0)
    yield Explanation(name="clipped", said=f"clipped at {bound:.3g}", rows=off & at_bound)
    silent = std_by(batch.reward, batch.group, ddof=0) <= EQUAL
    noise = off & silent & (np.abs(advantage) <= NOISE)
    yield Explanation(name="noise", said="rounding, where all rewards of the group are equal", rows=noise)


def _of_other_estimators(
    part: Sampled, estimator: Estimator, precision: Precision, off: BoolArray
) -> Iterator[Explanation]:
    """Yield other estimators over the recorded groups: a change of the estimator is no fault unless it does harm."""
    for one in ESTIMATORS:
        found = one.estimate(part.batch)
        if one is estimator or one.formula in ("reward", "batch_whitening") or found is None:
            continue
        name = "batch" if one.whole_batch else "estimator" if one.centred else "centre"
        yield Explanation(name=name, said=one.said, rows=off & agrees(part.advantage, found, precision))


def _unexplained(left: BoolArray, lines: Lines, whole: BoolArray) -> list[Explanation]:
    """Sort what nothing explains by group: against the order of rewards, off the centre, or neither.

    `whole`: (samples,) in groups that are recorded whole for sure. A part of a group is off the centre as well.
    """
    centre = left & lines.rising & whole & (np.abs(lines.mean) > OFF_CENTRE * lines.spread)
    broken = left & lines.broken
    found = []
    if centre.sum() >= MIN_EXPLAINED:
        found.append(Explanation(name="centre", said="off the centre of their group", rows=centre))
    if broken.sum() >= MIN_EXPLAINED and (broken & lines.falling).sum() >= FALLING * broken.sum():
        found.append(Explanation(name="order", said="in no order of the rewards", rows=broken))
    elif broken.any():
        found.append(Explanation(name="unknown", said="nothing known", rows=broken))
    return found

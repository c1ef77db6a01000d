"""What else the advantages of samples may be than their estimator's: of other groups, of other samples, of other steps.

Every function takes samples as parallel arrays and returns, for each, whether its advantage is explained so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.advantage_estimators import (
    EQUAL,
    Estimate,
    Estimator,
    Precision,
    RewardedBatch,
    agrees,
    mean_by,
    size_by,
)
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

RANKS: Final = (2, 4, 8, 16)  # over which a batch may be divided
STALE_STEPS: Final = 4  # recorded steps back: a batch held longer than that is a buffer
PROBED_STEPS: Final = 1024  # evenly spread: where none of them holds an earlier step's advantages, none is looked for
ALIGNED: Final = 0.95  # of a step's wrong advantages stand at the same place of an earlier step


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """Another way of cutting a batch into groups: codes from 0, and which fault it is."""

    name: str  # "stride", "interleaved", "shifted", "rank" or "batch"
    said: str
    code: IntArray


def codes_of(*columns: IntArray) -> IntArray:
    """Return one code from 0 for each distinct combination (entries,), in the order of the combinations."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        distinct, inverse = np.unique(column, return_inverse=True)
        code = np.unique(code * len(distinct) + inverse, return_inverse=True)[1].astype(np.int64)
    return code


def places(batch: IntArray, *order: IntArray) -> IntArray:
    """Return each sample's place in its batch, from 0, by these keys, the first of which counts most (samples,)."""
    at = np.lexsort((*order[::-1], batch))
    ordered = batch[at]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    within = np.arange(len(at)) - np.repeat(starts, np.diff(np.append(starts, len(at))))
    place = np.empty(len(at), np.int64)
    place[at] = within
    return place


def other_groupings(samples: RewardedBatch, number: IntArray, size: int) -> Iterator[Grouping]:
    """Yield ways of cutting batches that ignore or mistake the recorded groups.

    `number`: (samples,) where a sample stands among those of its step by its id; `size`: samples of a whole group.
    """
    batch, group = samples.batch, samples.group
    count = size_by(batch).astype(np.int64)
    rows = np.arange(len(batch))
    yield Grouping(name="batch", said="the whole batch", code=batch)
    if size > 1:
        for said, order in (("samples in the order of their ids", number), ("samples in the order of the dump", rows)):
            place = places(batch, order)
            yield Grouping(name="stride", said=f"every {size} {said}", code=codes_of(batch, place // size))
            groups = np.maximum(-(-count // size), 1)
            said = f"every n-th of the {said}"
            yield Grouping(name="stride", said=said, code=codes_of(batch, place % groups))
        nth = places(group, number)
        for within in (nth, number % size):
            place = places(batch, within, number)
            said = f"every {size} samples in the order first answers, second answers, and so on"
            yield Grouping(name="interleaved", said=said, code=codes_of(batch, place // size))
    yield from _shifted(batch, group, number)
    yield from _ranks(batch, group, number, count)


def _shifted(batch: IntArray, group: IntArray, number: IntArray) -> Iterator[Grouping]:
    at = np.lexsort((number, batch))
    for by in (1, -1):
        code = np.empty(len(group), np.int64)
        code[at] = np.roll(group[at], by)
        said = f"groups whose ids are {'one row late' if by > 0 else 'one row early'}"
        yield Grouping(name="shifted", said=said, code=codes_of(batch, code))


def _ranks(batch: IntArray, group: IntArray, number: IntArray, count: IntArray) -> Iterator[Grouping]:
    first = np.full(int(group.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, group, number)
    ordinal = places(batch, first[group])  # of samples by their group, then one number a group
    lead = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(lead, group, ordinal)
    groups = np.bincount(batch[np.unique(group, return_index=True)[1]], minlength=int(batch.max(initial=0)) + 1)
    rank_of_group = _rank_in(lead, group, batch)
    for ranks in RANKS:
        said = f"a {_NTH[ranks]} of the batch, as one of {ranks} ranks holds it"
        whole = rank_of_group * ranks // np.maximum(groups[batch], 1)
        yield Grouping(name="rank", said=said, code=codes_of(batch, whole))
        rows = places(batch, number) * ranks // np.maximum(count, 1)
        yield Grouping(name="rank", said=said, code=codes_of(batch, rows))


_NTH: Final = {2: "half", 4: "quarter", 8: "eighth", 16: "sixteenth"}


def _rank_in(lead: IntArray, group: IntArray, batch: IntArray) -> IntArray:
    """Return the number of each sample's group among those of its batch, in the order of `lead`."""
    of = np.zeros(len(lead), np.int64)
    of[group] = batch
    return places(of, lead)[group]


def in_groups(samples: RewardedBatch, estimator: Estimator, code: IntArray) -> Estimate:
    """Return what an estimator gives in other groups."""
    found = estimator.estimate(replace(samples, group=code))
    assert found is not None, "estimators that need nothing but a group"
    return found


def negated(estimate: Estimate) -> Estimate:
    """Return an estimate with the sign turned."""
    return -estimate[0], estimate[1]


def permuted(
    advantage: FloatArray, estimate: Estimate, precision: Precision, code: IntArray, among: BoolArray
) -> BoolArray:
    """Return which of the samples `among` hold the advantages of others: in their code, both have the same values.

    Sorted within each code, the recorded advantages must equal the estimated ones throughout.
    """
    explained = np.zeros(len(advantage), np.bool_)
    rows = np.flatnonzero(among)
    if not len(rows):
        return explained
    own = codes_of(code[rows])
    value, scale = estimate[0][rows], estimate[1][rows]
    left, right = np.lexsort((advantage[rows], own)), np.lexsort((value, own))
    equal = agrees(advantage[rows][left], (value[right], scale[right]), precision)
    whole = np.bincount(own[left], weights=~equal) == 0
    several = np.bincount(own) > 1
    explained[rows] = (whole & several)[own]
    return explained


def of_earlier_steps(
    advantage: FloatArray,
    estimate: Estimate,
    precision: Precision,
    batch: IntArray,
    number: IntArray,
    among: BoolArray,
) -> BoolArray:
    """Return which of the samples `among` hold what an earlier step's sample at the same place should have."""
    at = np.lexsort((number, batch))
    starts = np.searchsorted(batch[at], np.arange(int(batch.max(initial=-1)) + 2))

    def stale(step: int) -> IntArray:
        """Return the rows of a step that hold an earlier step's."""
        rows = at[starts[step] : starts[step + 1]]
        wrong = among[rows]
        values = advantage[rows][wrong]
        if np.ptp(values) == 0:
            return rows[:0]
        for before in range(step - 1, max(step - 1 - STALE_STEPS, -1), -1):
            other = at[starts[before] : starts[before + 1]]
            if len(other) != len(rows):
                continue
            same = agrees(advantage[rows], (estimate[0][other], estimate[1][other]), precision)
            if same[wrong].mean() >= ALIGNED:
                return rows[wrong & same]
            left, right = np.sort(advantage[rows]), np.argsort(estimate[0][other])
            if agrees(left, (estimate[0][other][right], estimate[1][other][right]), precision).all():
                return rows[wrong]
        return rows[:0]

    explained = np.zeros(len(advantage), np.bool_)
    steps = np.unique(batch[among])
    probed = steps[:: len(steps) // PROBED_STEPS + 1]
    if any(len(stale(step)) for step in probed.tolist()):
        for step in steps.tolist():
            explained[stale(step)] = True
    return explained


@dataclass(frozen=True, kw_only=True)
class Lines:
    """How the advantages of each sample's group lie over its rewards; three of (samples,) that exclude each other."""

    rising: BoolArray  # on a line that rises, as those of every group-relative estimator do, also of a part of a group
    silent: BoolArray  # one reward, one advantage
    broken: BoolArray  # on no line, on one that falls, or one reward with several advantages
    falling: BoolArray  # of the broken, those whose advantages fall with the reward on the whole
    mean: FloatArray  # of the group's advantages, (samples,)
    spread: FloatArray  # root mean square of the group's advantages, (samples,)


def lines_of(advantage: FloatArray, samples: RewardedBatch, precision: Precision) -> Lines:
    """Fit a line to each group, to the advantages, and where lengths are known to those times the length."""
    reward, group = samples.reward, samples.group
    room = max(precision.reward, EQUAL)
    straight, slope, equal = _line(advantage, reward, group, precision, room)
    if samples.length is not None:
        by_length = advantage * samples.length
        coarse = replace(precision, absolute=precision.absolute * float(samples.length.max(initial=1.0)))
        other = _line(by_length, reward, group, coarse, room)
        taken = ~straight & other[0] & (other[1] > 0)
        straight, slope, equal = straight | taken, np.where(taken, other[1], slope), equal | other[2]
    varied = np.isfinite(slope)
    rising, silent = straight & (slope > 0), ~varied & equal
    return Lines(
        rising=rising,
        silent=silent,
        broken=~rising & ~silent,
        falling=varied & ~rising & (slope < 0),
        mean=mean_by(advantage, group),
        spread=np.sqrt(mean_by(advantage**2, group)),
    )


def _line(
    values: FloatArray, reward: FloatArray, group: IntArray, precision: Precision, room: float
) -> tuple[BoolArray, FloatArray, BoolArray]:
    """Return whether each group is on a line, its slope (NaN for one reward), and whether its values are all equal."""
    x, y = reward - mean_by(reward, group), values - mean_by(values, group)
    square = mean_by(x * x, group)
    varied = np.sqrt(square) > room
    slope = np.where(varied, mean_by(x * y, group) / np.where(varied, square, 1.0), np.nan)
    scale = np.abs(np.nan_to_num(slope))
    allowed = 4 * (precision.absolute + precision.relative * np.abs(values) + precision.reward * scale)
    off = np.abs(y - np.where(varied, slope, 0.0) * x) > allowed
    apart = np.abs(y) > allowed
    whole, equal = (np.bincount(group, weights=one)[group] == 0 for one in (off, apart))
    return varied & whole, slope, equal

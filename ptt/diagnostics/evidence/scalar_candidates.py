"""The ways in which trainers turn tokens into one logged number, sound ones first, and known ways of miscounting it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.audited_batch import ALL, MODEL, TRAIN, ZEROED, Batch
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.recomputed_scalars import (
    Layout,
    RowSums,
    clamped_k3,
    k3,
    mixed,
    one_a_row,
    padded,
    part_mean,
    ratio,
    sequence_mean,
    sequence_sum,
    step_high,
    step_low,
    step_sum,
    token_mean,
)

Facts = Mapping[str, JsonScalar]
Reduce = Callable[[RowSums, Layout], FloatArray]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to compute a logged scalar."""

    formula: str  # id
    reduction: str  # id
    said: str  # completes "kl is"
    value: Callable[[Batch], FloatArray]  # (steps,)
    wrong: str = ""  # what is counted wrongly, completes "the logged value"; "": sound
    partial: bool = False  # wrong in a part of the rows alone

    @property
    def name(self) -> str:
        """Identify it among those of one metric."""
        return f"{self.formula} {self.reduction}"


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A quantity of each token, or of each row, before it is reduced."""

    id: str
    said: str
    make: Callable[[Batch], FloatArray | None]  # (tokens,)
    padding: float = 0.0  # what a padded position has
    wrong: str = ""

    def sums(self, batch: Batch, mask: str, *, ends: bool = False) -> RowSums:
        """Return its sums by row over one mask; `ends`: with the least and the largest of each row."""

        def made() -> FloatArray:
            values = self.make(batch)
            return np.full(int(batch.starts[-1]), np.nan) if values is None else values

        return batch.sums(self.id, made, mask, ends=ends)


Candidates = Callable[[Batch, Facts], Iterator[Candidate]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What a logged scalar is, and how it may have been made."""

    quantity: str  # canonical name, or one of our own where the catalogue has none
    label: str
    needs: tuple[str, ...]  # columns
    sound: Candidates
    wrong: Candidates
    centre: float = 0.0  # what it is where nothing happens
    floor: float = 0.0
    whole: bool = True  # it depends on every row of the step: where it agrees, the rows are whole
    steers: bool = False  # the metric shows what scales the gradient
    update: bool = False  # it is 0 before the first update of a step: trainers average it over passes


def nothing(_batch: Batch, _facts: Facts) -> Iterator[Candidate]:
    """Yield no candidate."""
    yield from ()


KL_FLOOR: Final = 1e-7  # nats: what float32 logprobs of rare tokens leave of a difference
WRONG_PAIR: Final = "compares {}"
INVERTED: Final = "has the ratio upside down"
SIGN: Final = "has the wrong sign"
ENGINE_PAIRS: Final = ("old/rollout", "policy/rollout", "prox/rollout")


def column(name: str, said: str) -> Quantity:
    """Return a recorded column of numbers as a quantity."""
    return Quantity(id=name, said=said, make=lambda batch: batch.flat(name))


FORMULAS: Final[Mapping[str, tuple[Callable[[FloatArray], FloatArray], str, float]]] = {
    "k1": (lambda r: r, "the mean log ratio (k1)", 0.0),
    "k1_negative": (lambda r: -r, "the negative mean log ratio", 0.0),
    "abs": (np.abs, "the absolute log ratio", 0.0),
    "k2": (lambda r: r**2 / 2, "half the squared log ratio (k2)", 0.0),
    "squared": (lambda r: r**2, "the squared log ratio", 0.0),
    "k3": (k3, "k3", 0.0),
    "k3_clamped": (clamped_k3, "k3, clamped", 0.0),
    "k3_inverted": (lambda r: k3(-r), "k3 of the inverted ratio", 0.0),
    "ratio": (ratio, "the ratio", 1.0),
    "inverse_ratio": (lambda r: ratio(-r), "the inverted ratio", 1.0),
    "multiplicative_error": (lambda r: ratio(np.abs(r)), "exp of the absolute log ratio", 1.0),
}
"""Of a log ratio: how it is computed, its words, and what a padded position has."""
SIDES: Final = {
    "policy": "policy",
    "old": "old policy",
    "rollout": "engine",
    "ref": "reference",
    "prox": "proximal policy",
    ZEROED: "engine",
}
MASKS: Final = {
    MODEL: "the sampled tokens",
    TRAIN: "the trained tokens",
    ALL: "all completion tokens, tool output included",
}
PARTS: Final = (2, 4, 8)  # ranks or micro-batches that a step may be divided into
MICRO_BATCHES: Final = (
    "per_device_train_batch_size", "micro_batch_size", "ppo_micro_batch_size_per_gpu", "micro_train_batch_size",
    "train_micro_batch_size",
)  # fmt: skip
LIMITS: Final = ("max_completion_length", "max_response_length")
TOOLS_COUNTED: Final = "counts tool output"
PADDING_COUNTED: Final = "counts padding"


def pair_words(pair: str) -> str:
    """Say which two sides a log ratio has."""
    top, bottom = pair.split("/")
    return f"{SIDES[top]} over {SIDES[bottom]}"


def of_pair(formula: str, pair: str, wrong: str = "") -> Quantity:
    """Return a formula of the log ratio of a pair."""
    function, words, padding = FORMULAS[formula]

    def make(batch: Batch) -> FloatArray | None:
        r = batch.log_ratio(pair)
        return None if r is None else function(r)

    return Quantity(
        id=f"{formula} {pair}", said=f"{words} of {pair_words(pair)}", make=make, padding=padding, wrong=wrong
    )


def available(batch: Batch, pairs: Sequence[str]) -> list[str]:
    """Return the pairs whose two sides the batch holds."""
    return [pair for pair in pairs if batch.log_ratio(pair) is not None]


def setting(facts: Facts, names: Sequence[str]) -> float | None:
    """Return the first of these settings that is a number."""
    values = (facts.get(name) for name in names)
    return next((float(one) for one in values if isinstance(one, int | float) and not isinstance(one, bool)), None)


# ---- how a step is divided


@dataclass(frozen=True, kw_only=True)
class Division:
    """Parts of each step, by micro-batch or by rank."""

    id: str
    said: str
    make: Callable[[Batch], IntArray]  # (rows,)
    number: int

    def parts(self, batch: Batch) -> IntArray:
        """Number the rows by their part, (rows,)."""
        return batch.parts(self.id, lambda: self.make(batch))


def divisions(batch: Batch, facts: Facts) -> list[Division]:
    """Return the divisions of a step that may stand behind a mean of means: ranks, then micro-batches."""
    found = []
    if "rank" in batch.frame.columns and batch.frame["rank"].n_unique() > 1 and not batch.frame["rank"].has_nulls():
        number = int(batch.frame["rank"].n_unique())
        found.append(Division(id="rank", said="rank", make=_ranks, number=number))
    sizes = batch.layout.sizes
    for number in PARTS:
        if (sizes >= 2 * number).all():
            found += [
                Division(
                    id=f"part_{number}", said=f"{_ORDINAL[number]} of the batch",
                    make=partial(_ordered_part, number), number=number,
                ),
                Division(
                    id=f"recorded_part_{number}", said=f"{_ORDINAL[number]} of the batch",
                    make=partial(_recorded_part, number), number=number,
                ),
            ]  # fmt: skip
    size = setting(facts, MICRO_BATCHES)
    if size is not None and 1 < size < sizes.min():
        number = int(-(-sizes.max() // size))
        words = f"micro-batch of {int(size)}"
        found.append(
            Division(id=f"micro_batch_{int(size)}", said=words, make=partial(_micro, int(size)), number=number)
        )
    return found


_ORDINAL: Final = {2: "half", 4: "quarter", 8: "eighth"}


def _ranks(batch: Batch) -> IntArray:
    return batch.frame["rank"].rank("dense").to_numpy().astype(np.int64) - 1


def _recorded_part(number: int, batch: Batch) -> IntArray:
    return batch.layout.equal_parts(number)


def _ordered_part(number: int, batch: Batch) -> IntArray:
    return batch.in_order * number // np.repeat(batch.layout.sizes, batch.layout.sizes)


def _micro(size: int, batch: Batch) -> IntArray:
    return batch.layout.place // size


# ---- means of a quantity of tokens


def masks_of(batch: Batch) -> list[str]:
    """Return the masks that a sound mean may be over, and that differ."""
    return [mask for mask in batch.masks if mask != ALL]


def sound_means(
    quantity: Quantity, batch: Batch, facts: Facts, *, sums_allowed: bool = False, divided: bool = True
) -> Iterator[Candidate]:
    """Yield the usual means of a quantity, the simplest first."""
    masks = masks_of(batch)
    for mask in masks:
        yield _mean(quantity, mask, "token_mean", token_mean, f"mean over {MASKS[mask]} of the step")
    for mask in masks:
        yield _mean(quantity, mask, "sequence_mean", sequence_mean, f"mean of the sequences' means over {MASKS[mask]}")
    for division in divisions(batch, facts) if divided else ():
        for mask in masks:
            yield _of_parts(quantity, mask, division)
    limit = setting(facts, LIMITS)
    if sums_allowed:
        for mask in masks:
            yield _mean(quantity, mask, "sequence_sum", sequence_sum, f"mean of the sequences' sums over {MASKS[mask]}")
    if limit and constant_denominator(facts):
        for mask in masks:
            said = f"sum over {MASKS[mask]}, over rows times {limit:g}"
            yield _mean(quantity, mask, "constant", lambda s, lay: sequence_sum(s, lay) / limit, said)


def constant_denominator(facts: Facts) -> bool:
    """Return whether the settings divide by a constant length, as Dr. GRPO does."""
    return str(facts.get("loss_type")) == "dr_grpo" or str(facts.get("loss_agg_mode")) == "seq-mean-token-sum-norm"


def _mean(quantity: Quantity, mask: str, name: str, reduce: Reduce, said: str, wrong: str = "") -> Candidate:
    def value(batch: Batch) -> FloatArray:
        return reduce(quantity.sums(batch, mask, ends=reduce in (step_low, step_high)), batch.layout)

    return Candidate(
        formula=quantity.id, reduction=f"{name}/{mask}", said=f"{quantity.said}, {said}", value=value,
        wrong=wrong or quantity.wrong,
    )  # fmt: skip


def _of_parts(quantity: Quantity, mask: str, division: Division) -> Candidate:
    def value(batch: Batch) -> FloatArray:
        return part_mean(quantity.sums(batch, mask), batch.layout, division.parts(batch))

    said = f"{quantity.said}, mean of the means of each {division.said} over {MASKS[mask]}"
    return Candidate(
        formula=quantity.id, reduction=f"{division.id}_mean/{mask}", said=said, value=value, wrong=quantity.wrong
    )


# ---- miscounted means


@dataclass(frozen=True, kw_only=True)
class Miscount:
    """Sums by row of the positions that a wrong mask counts."""

    id: str
    wrong: str
    sums: Callable[[Quantity, Batch, bool], RowSums]  # True: with the least and the largest


def _with_tools(quantity: Quantity, batch: Batch, ends: bool) -> RowSums:
    return quantity.sums(batch, ALL, ends=ends)


def _with_padding(mask: str, quantity: Quantity, batch: Batch, ends: bool) -> RowSums:
    return padded(quantity.sums(batch, mask, ends=ends), batch.layout.padding, quantity.padding)


def _as_nothing(padding: bool, quantity: Quantity, batch: Batch, ends: bool) -> RowSums:
    """Return sums over the policy's own tokens that count the others, and padding, as 0."""
    own = quantity.sums(batch, MODEL, ends=ends)
    others = batch.layout.lengths - own.count
    return padded(own, others + (batch.layout.padding if padding else 0), 0.0)


def miscounts(batch: Batch) -> list[Miscount]:
    """Return the wrong masks that differ from the right one here."""
    found = []
    tools = ALL in batch.masks
    if tools:
        found.append(Miscount(id="tools", wrong=TOOLS_COUNTED, sums=_with_tools))
    found.append(Miscount(id="padding", wrong=PADDING_COUNTED, sums=partial(_with_padding, MODEL)))
    if tools:
        both = f"{TOOLS_COUNTED} and padding"
        found.append(Miscount(id="width", wrong=both, sums=partial(_with_padding, ALL)))
        found.append(Miscount(id="tools as 0", wrong=f"{TOOLS_COUNTED} as 0", sums=partial(_as_nothing, False)))
        found.append(Miscount(id="width as 0", wrong=f"{both} as 0", sums=partial(_as_nothing, True)))
    return found


REDUCTIONS: Final[Mapping[str, tuple[Reduce, str]]] = {
    "token_mean": (token_mean, "mean over the step"),
    "sequence_mean": (sequence_mean, "mean of the sequences' means"),
}


def miscounted_means(quantity: Quantity, batch: Batch, facts: Facts, *, summed: bool = True) -> Iterator[Candidate]:
    """Yield what a mean becomes where padding or tool output counts, in all rows or in those of one rank."""
    found = miscounts(batch)
    for miscount in found:
        for name, (reduce, said) in REDUCTIONS.items():
            yield Candidate(
                formula=quantity.id, reduction=f"{name}/{miscount.id}", said=f"{quantity.said}, {said}",
                value=partial(_miscounted, quantity, miscount, reduce), wrong=quantity.wrong or miscount.wrong,
            )  # fmt: skip
    limit = setting(facts, LIMITS)
    if limit and not constant_denominator(facts):
        said = f"sum over rows times the longest length, {limit:g}"
        yield _mean(
            quantity, MODEL, "constant", lambda s, lay: sequence_sum(s, lay) / limit, said, f"{PADDING_COUNTED} as 0"
        )
    if summed:
        yield _mean(quantity, MODEL, "step_sum", step_sum, "sum over the step", "is a sum where a mean is named")
        yield _mean(
            quantity, MODEL, "sequence_sum", sequence_sum, "mean of the sequences' sums", "is a sum over each sequence"
        )
    for division in divisions(batch, facts):
        yield from _in_one_part(quantity, found, division)


def _miscounted(quantity: Quantity, miscount: Miscount, reduce: Reduce, batch: Batch) -> FloatArray:
    return reduce(miscount.sums(quantity, batch, reduce in (step_low, step_high)), batch.layout)


JOINED: Final = {
    "token_mean": "mean over the step",
    "mean_of_means": "mean of the means of each {}",
    "weighted_mean": "mean of the means of each {}, weighted by its sampled tokens",
}
"""How ranks may put their means together."""


def _in_one_part(quantity: Quantity, found: Sequence[Miscount], division: Division) -> Iterator[Candidate]:
    for miscount in found:
        for part in range(division.number):
            for how, said in JOINED.items():
                yield Candidate(
                    formula=quantity.id,
                    reduction=f"{how}/{miscount.id} in {division.id} {part}",
                    said=f"{quantity.said}, {said.format(division.said)}",
                    value=partial(_partly_miscounted, quantity, miscount, division, part, how),
                    wrong=f"{miscount.wrong} in one {division.said}",
                    partial=True,
                )


def _partly_miscounted(
    quantity: Quantity, miscount: Miscount, division: Division, part: int, how: str, batch: Batch
) -> FloatArray:
    parts, own = division.parts(batch), quantity.sums(batch, MODEL)
    sums = mixed(own, miscount.sums(quantity, batch, False), parts == part)
    if how == "token_mean":
        return token_mean(sums, batch.layout)
    return part_mean(sums, batch.layout, parts, own.count if how == "weighted_mean" else None)


# ---- extremes


def extremes(quantity: Quantity, batch: Batch, *, high: bool) -> Iterator[Candidate]:
    """Yield the largest or the least of a quantity over the tokens, then what padding or tool output makes of it.

    Such positions may count in all rows, or in those of one rank.
    """
    reduce, word = (step_high, "largest") if high else (step_low, "least")
    name = "max" if high else "min"
    for mask in masks_of(batch):
        yield _mean(quantity, mask, name, reduce, f"{word} over {MASKS[mask]} of the step")
    for miscount in miscounts(batch):
        yield Candidate(
            formula=quantity.id, reduction=f"{name}/{miscount.id}", said=f"{quantity.said}, {word} of the step",
            value=partial(_miscounted, quantity, miscount, reduce), wrong=quantity.wrong or miscount.wrong,
        )  # fmt: skip
    for division in divisions(batch, {}):
        for miscount in miscounts(batch):
            for part in range(division.number):
                yield Candidate(
                    formula=quantity.id, reduction=f"{name}/{miscount.id} in {division.id} {part}",
                    said=f"{quantity.said}, {word} of the step",
                    value=partial(_partly_extreme, quantity, miscount, division, part, reduce),
                    wrong=f"{miscount.wrong} in one {division.said}", partial=True,
                )  # fmt: skip


def _partly_extreme(
    quantity: Quantity, miscount: Miscount, division: Division, part: int, reduce: Reduce, batch: Batch
) -> FloatArray:
    there = division.parts(batch) == part
    sums = mixed(quantity.sums(batch, MODEL, ends=True), miscount.sums(quantity, batch, True), there)
    return reduce(sums, batch.layout)


# ---- one value a row


def row_values(
    name: str, said: str, values: Callable[[Batch], FloatArray | None], reduce: Reduce, reduction: str, words: str,
    wrong: str = "",
) -> Candidate:  # fmt: skip
    """Return a reduction of one value a row."""

    def value(batch: Batch) -> FloatArray:
        found = values(batch)
        return (
            np.full(len(batch.steps), np.nan)
            if found is None
            else reduce(one_a_row(np.asarray(found, np.float64)), batch.layout)
        )

    return Candidate(formula=name, reduction=reduction, said=f"{said}, {words}", value=value, wrong=wrong)


ROW_REDUCTIONS: Final[Mapping[str, tuple[Callable[[RowSums, Layout], FloatArray], str]]] = {
    "mean": (token_mean, "mean over the rows of the step"),
    "max": (step_high, "largest of the step"),
    "min": (step_low, "least of the step"),
}
"""Of one value a row: how it is reduced, and its words."""


def sequence_ratios(batch: Batch, pair: str, *, product: bool) -> FloatArray | None:
    """Return exp of the mean, or of the sum, of each row's log ratios over the policy's own tokens, (rows,)."""
    if batch.log_ratio(pair) is None:
        return None
    sums = of_pair("k1", pair).sums(batch, MODEL)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(sums.count > 0, sums.total / sums.count, np.nan)
    return ratio(np.where(sums.count > 0, sums.total, np.nan) if product else mean)


def with_wrong(candidate: Candidate, wrong: str) -> Candidate:
    """Return the same way as one that is wrong for a metric."""
    return replace(candidate, wrong=wrong)


def clipped(batch: Batch, pair: str, *, low: float, high: float, side: str, signed: str) -> FloatArray | None:
    """Return 1 for tokens whose ratio lies outside the clip range, else 0, (tokens,).

    side: "low", "high" or "both". signed: "advantage" counts only where the clip takes the gradient away, "" all,
    "against" the opposite.
    """
    r = batch.log_ratio(pair)
    if r is None:
        return None
    below: BoolArray = r < np.log1p(-low)
    above: BoolArray = r > np.log1p(high)
    if signed:
        advantage = batch.flat("advantage")
        if advantage is None:
            return None
        positive, negative = advantage > 0, advantage < 0
        if signed == "against":
            positive, negative = negative, positive
        below, above = below & negative, above & positive
    counted = {"low": below, "high": above, "both": below | above}[side]
    return np.where(np.isfinite(r), counted.astype(np.float64), np.nan)


GRID: Final = ((0.2, 0.2), (0.2, 0.28), (0.1, 0.1), (0.28, 0.28), (0.3, 0.3), (0.4, 0.4), (0.05, 0.05))
LOW_SETTINGS: Final = ("clip_ratio_low", "epsilon", "clip_ratio", "cliprange", "eps_clip")
HIGH_SETTINGS: Final = ("clip_ratio_high", "epsilon_high", "eps_clip_high")


def clip_ranges(facts: Facts) -> tuple[tuple[float, float], ...]:
    """Return the clip range below and above 1 that the settings name, else the usual ones."""
    low = setting(facts, LOW_SETTINGS)
    high = setting(facts, HIGH_SETTINGS)
    return GRID if low is None else ((low, low if high is None else high),)

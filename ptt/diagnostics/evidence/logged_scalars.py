"""Which logged metrics token rows can give, and the candidates for each: by canonical name, else by its spelling."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.audited_batch import MODEL, ZEROED, Batch, component
from ptt.diagnostics.evidence.scalar_candidates import (
    Candidate,
    Division,
    Facts,
    Quantity,
    available,
    clip_ranges,
    clipped,
    divisions,
    extremes,
    miscounted_means,
    of_pair,
    row_values,
    sequence_ratios,
    setting,
    sound_means,
    with_wrong,
)
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.aliases import bare_name
from ptt.diagnostics.schema import ADVANTAGE
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray
from ptt.diagnostics.statistics.recomputed_scalars import (
    Layout,
    RowSums,
    group_spreads,
    one_a_row,
    part_mean,
    spread,
    step_high,
    step_low,
    step_sum,
    token_mean,
)

KL_FLOOR: Final = 1e-7  # nats: what float32 logprobs of rare tokens leave of a difference
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


@dataclass(frozen=True, kw_only=True)
class LoggedScalar:
    """A series with its kind."""

    kind: Kind
    series: Series


def nothing(batch: Batch, facts: Facts) -> Iterator[Candidate]:
    """Yield no candidate."""
    yield from ()


# ---- divergences

WRONG_PAIR: Final = "compares {}"
KL_FORMULAS: Final = ("k3", "k1", "k2", "abs", "k3_clamped", "squared")


def _k3_weighted(pair: str, weight: str) -> Quantity:
    """Return k3 times the ratio, as TRL's use_bias_correction_kl has it."""

    def make(batch: Batch) -> FloatArray | None:
        estimate, weights = of_pair("k3", pair).make(batch), of_pair("ratio", weight).make(batch)
        return None if estimate is None or weights is None else estimate * weights

    return Quantity(id=f"k3 x ratio {pair}", said="k3 times the ratio of policy over old policy", make=make)


def _divergence(
    pairs: Sequence[str], formulas: Sequence[str], batch: Batch, facts: Facts, *, sums_allowed: bool = False
) -> Iterator[Candidate]:
    for pair in available(batch, pairs):
        for formula in formulas:
            yield from sound_means(of_pair(formula, pair), batch, facts, sums_allowed=sums_allowed)
        if pair == "policy/ref" and "k3" in formulas and batch.log_ratio("policy/old") is not None:
            yield from sound_means(_k3_weighted(pair, "policy/old"), batch, facts)


def _miscounted_divergence(
    pairs: Sequence[str], formulas: Sequence[str], odd: Mapping[str, str], other: Mapping[str, str],
    batch: Batch, facts: Facts,
) -> Iterator[Candidate]:  # fmt: skip
    """Yield wrong masks, then wrong formulas (`odd`), then wrong pairs (`other`), with what each is."""
    there = available(batch, pairs)
    for pair in there:
        for formula in formulas:
            yield from miscounted_means(of_pair(formula, pair), batch, facts)
        if pair == "policy/ref" and "k3" in formulas and batch.log_ratio("policy/old") is not None:
            yield from miscounted_means(_k3_weighted(pair, "policy/old"), batch, facts)
    for pair in there:
        for formula, wrong in odd.items():
            yield from sound_means(of_pair(formula, pair, wrong), batch, facts, divided=False)
    for pair in available(batch, list(other)):
        for formula in formulas:
            yield from sound_means(of_pair(formula, pair, WRONG_PAIR.format(other[pair])), batch, facts, divided=False)


INVERTED: Final = "has the ratio upside down"
SIGN: Final = "has the wrong sign"
POLICY_ENGINE = "policy and engine, not policy and reference"
OLD_ENGINE = "trainer and engine"
REF_PAIRS: Final = ("policy/ref", "old/ref", "rollout/ref")
ENGINE_PAIRS: Final = ("old/rollout", "policy/rollout")

KL_REF: Final = Kind(
    quantity="kl/ref",
    label="the KL to the reference",
    needs=("policy_logp", "ref_logp"),
    floor=KL_FLOOR,
    sound=partial(_divergence, REF_PAIRS, KL_FORMULAS, sums_allowed=True),
    wrong=partial(
        _miscounted_divergence,
        REF_PAIRS,
        KL_FORMULAS,
        {"k3_inverted": INVERTED, "k1_negative": SIGN},
        {
            "policy/old": "the policy with its old self, not with the reference",
            "old/rollout": "trainer and engine, not policy and reference",
            "policy/rollout": "trainer and engine, not policy and reference",
        },
    ),
)
OLD_FORMULAS: Final = ("k1_negative", "k3", "k2", "k3_inverted", "abs", "squared")
KL_OLD: Final = Kind(
    update=True,
    quantity="kl/old",
    label="the KL of the update",
    needs=("policy_logp", "old_logp"),
    floor=KL_FLOOR,
    sound=partial(_divergence, ("policy/old", "policy/rollout"), OLD_FORMULAS),
    wrong=partial(
        _miscounted_divergence,
        ("policy/old", "policy/rollout"),
        OLD_FORMULAS,
        {"k1": SIGN},
        {
            "policy/ref": "policy and reference, not policy and old policy",
            "old/ref": "old policy and reference, not policy and old policy",
            "old/rollout": "trainer and engine, not policy and old policy",
        },
    ),
)
NOT_ENGINE: Final = {
    "policy/ref": "policy and reference, not trainer and engine",
    "old/ref": "policy and reference, not trainer and engine",
    "policy/old": "policy and old policy, not trainer and engine",
}
ENGINE_FORMULAS: Final = ("k1_negative", "k3", "k3_inverted", "k1", "k2", "abs")


def _engine(formulas: Sequence[str], quantity: str, label: str, *, odd: Mapping[str, str] = {}) -> Kind:
    pairs = (*ENGINE_PAIRS, f"old/{ZEROED}", f"policy/{ZEROED}")
    return Kind(
        quantity=quantity, label=label, needs=("old_logp", "rollout_logp"), floor=KL_FLOOR,
        sound=partial(_divergence, ENGINE_PAIRS, formulas),
        wrong=partial(_miscounted_divergence, pairs, formulas, odd, NOT_ENGINE),
    )  # fmt: skip


MISMATCH_KL: Final = _engine(ENGINE_FORMULAS, "mismatch/kl", "the KL of trainer and engine")
MISMATCH_K3: Final = _engine(("k3", "k3_inverted"), "mismatch/k3", "the k3 of trainer and engine")
MISMATCH_ABS: Final = _engine(
    ("abs",), "mismatch/logp_abs_mean", "the logprob gap of trainer and engine", odd={"squared": "is squared"}
)
PROB_ERROR: Final = Kind(
    quantity="mismatch/prob_error",
    label="the probability error of trainer and engine",
    needs=("old_logp", "rollout_logp"),
    centre=1.0,
    sound=partial(_divergence, ENGINE_PAIRS, ("multiplicative_error",)),
    wrong=partial(_miscounted_divergence, ENGINE_PAIRS, ("multiplicative_error",), {}, NOT_ENGINE),
)


def _probability_gap(pair: str) -> Quantity:
    def make(batch: Batch) -> FloatArray | None:
        top, bottom = pair.split("/")
        one, two = batch.flat(f"{top}_logp"), batch.flat(bottom if bottom == ZEROED else f"{bottom}_logp")
        return None if one is None or two is None else np.abs(np.exp(one) - np.exp(two))

    return Quantity(
        id=f"probability gap {pair}", said="the difference of trainer's and engine's probability", make=make
    )


def _gap_means(batch: Batch, facts: Facts) -> Iterator[Candidate]:
    for pair in available(batch, ENGINE_PAIRS):
        yield from sound_means(_probability_gap(pair), batch, facts)


def _gap_miscounts(batch: Batch, facts: Facts) -> Iterator[Candidate]:
    for pair in available(batch, (*ENGINE_PAIRS, f"old/{ZEROED}")):
        yield from miscounted_means(_probability_gap(pair), batch, facts)
    for pair, wrong in NOT_ENGINE.items():
        if batch.log_ratio(pair) is not None:
            for one in sound_means(_probability_gap(pair), batch, facts, divided=False):
                yield with_wrong(one, WRONG_PAIR.format(wrong))


PROB_DIFF: Final = Kind(
    quantity="mismatch/prob_diff", label="the probability gap of trainer and engine",
    needs=("old_logp", "rollout_logp"), floor=KL_FLOOR, sound=_gap_means, wrong=_gap_miscounts,
)  # fmt: skip


def _largest(
    quantities: Sequence[Quantity], high: bool, wrong: bool, zeroed: Sequence[Quantity], batch: Batch, facts: Facts
) -> Iterator[Candidate]:
    for quantity in (*quantities, *zeroed) if wrong else quantities:
        if quantity.make(batch) is not None:
            for one in extremes(quantity, batch, high=high):
                if bool(one.wrong) is wrong:
                    yield one


def _extreme(
    quantity: str, label: str, quantities: Sequence[Quantity], zeroed: Sequence[Quantity] = (), *,
    needs: tuple[str, ...], high: bool, centre: float = 0.0, steers: bool = False,
) -> Kind:  # fmt: skip
    return Kind(
        quantity=quantity, label=label, needs=needs, centre=centre, floor=KL_FLOOR, whole=False, steers=steers,
        sound=partial(_largest, quantities, high, False, zeroed), wrong=partial(_largest, quantities, high, True, zeroed),
    )  # fmt: skip


ABS_MAX: Final = _extreme(
    "mismatch/logp_abs_max", "the largest logprob gap of trainer and engine",
    [of_pair("abs", pair) for pair in ENGINE_PAIRS], [of_pair("abs", f"old/{ZEROED}")],
    needs=("old_logp", "rollout_logp"), high=True,
)  # fmt: skip
PROB_DIFF_MAX: Final = _extreme(
    "mismatch/prob_diff_max", "the largest probability gap of trainer and engine",
    [_probability_gap(pair) for pair in ENGINE_PAIRS], [_probability_gap(f"old/{ZEROED}")],
    needs=("old_logp", "rollout_logp"), high=True,
)  # fmt: skip

# ---- importance ratios

CAPS: Final = (2.0, 3.0, 5.0, 10.0)
CAP_SETTINGS: Final = (
    "vllm_importance_sampling_cap", "vllm_importance_sampling_clip_max", "rollout_is_threshold", "tis_clip",
)  # fmt: skip
FAR: Final = 0.3  # of the mean weight, away from 1, in the median step: a quarter of the gradient is gone or too much
NEAR: Final = 0.1  # nats: and the sequences' mean log ratio is this small
RATIO_PAIRS: Final = ("old/rollout", "policy/rollout", "policy/old")
SUMMED: Final = "is exp of the sum of each sequence's log ratios, not of their mean: it falls or grows with the length of the answer"
SUMMED_IN: Final = "is exp of the sum of each sequence's log ratios, not of their mean,"


def _caps(facts: Facts) -> list[float | None]:
    cap = setting(facts, CAP_SETTINGS)
    return [None, cap] if cap is not None else [None, *CAPS]


def _capped(pair: str, cap: float | None, *, dropped: bool = False) -> Quantity:
    base = of_pair("ratio", pair)
    if cap is None:
        return base

    def make(batch: Batch) -> FloatArray | None:
        values = base.make(batch)
        if values is None:
            return None
        return np.where(values > cap, 0.0, values) if dropped else np.minimum(values, cap)

    how = f"0 above {cap:g}" if dropped else f"at most {cap:g}"
    return Quantity(id=f"ratio {how} {pair}", said=f"{base.said}, {how}", make=make, padding=1.0)


def _row_ratio(pair: str, cap: float | None, dropped: bool, product: bool, batch: Batch) -> FloatArray | None:
    values = sequence_ratios(batch, pair, product=product)
    if values is None or cap is None:
        return values
    return np.where(values > cap, 0.0, values) if dropped else np.minimum(values, cap)


def _sequence_level(reduce: str, batch: Batch, facts: Facts, *, product: bool) -> Iterator[Candidate]:
    name = "sequence_product" if product else "sequence_ratio"
    said = "exp of the sum of a sequence's log ratios" if product else "exp of the mean of a sequence's log ratios"
    reducer, words = ROW_REDUCTIONS[reduce]
    for pair in available(batch, RATIO_PAIRS):
        for cap in _caps(facts):
            for dropped in (False, True) if cap is not None else (False,):
                how = "" if cap is None else f", 0 above {cap:g}" if dropped else f", at most {cap:g}"
                yield row_values(
                    f"{name}{how} {pair}", f"{said}{how}", partial(_row_ratio, pair, cap, dropped, product), reducer,
                    f"{reduce}/rows", words,
                )  # fmt: skip


def summed_far(batch: Batch) -> bool:
    """Return whether products over a sequence lie far from 1 although the tokens' ratios are near it."""
    for pair in available(batch, ("old/rollout", "policy/rollout")):
        mean, product = (sequence_ratios(batch, pair, product=product) for product in (False, True))
        if mean is None or product is None or not np.isfinite(mean).any():
            continue
        weights = token_mean(one_a_row(product), batch.layout)
        near = np.nanmedian(np.abs(np.log(mean))) < NEAR
        if near and np.nanmedian(np.abs(weights - 1)) > FAR:
            return True
    return False


ROW_REDUCTIONS: Final[Mapping[str, tuple[Callable[[RowSums, Layout], FloatArray], str]]] = {
    "mean": (token_mean, "mean over the rows of the step"),
    "max": (step_high, "largest of the step"),
    "min": (step_low, "least of the step"),
}


def _ratios(reduce: str, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    for pair in available(batch, RATIO_PAIRS):
        for cap in _caps(facts):
            for dropped in (False, True) if cap is not None else (False,):
                quantity = _capped(pair, cap, dropped=dropped)
                if reduce == "mean":
                    yield from sound_means(quantity, batch, facts, divided=cap is None)
                else:
                    yield from (one for one in extremes(quantity, batch, high=reduce == "max") if not one.wrong)
    yield from _sequence_level(reduce, batch, facts, product=False)
    if _configured_product(facts) or not summed_far(batch):
        yield from _sequence_level(reduce, batch, facts, product=True)


def _configured_product(facts: Facts) -> bool:
    return str(facts.get("vllm_importance_sampling_mode")).startswith("sequence")


def _summed_in_part(reduce: str, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    """Yield weights of sequences that are products in the rows of one rank alone."""
    reducer, words = ROW_REDUCTIONS[reduce]
    for pair in available(batch, ("old/rollout", "policy/rollout")):
        for cap in _caps(facts):
            for division in divisions(batch, facts):
                for part in range(division.number):
                    one = row_values(
                        f"sequence weights {pair}", "exp of the mean of a sequence's log ratios",
                        partial(_partly_summed, pair, cap, division, part), reducer,
                        f"{reduce}/{cap} products in {division.id} {part}", words,
                        wrong=f"{SUMMED_IN} in one {division.said}",
                    )  # fmt: skip
                    yield replace(one, partial=True)


def _partly_summed(pair: str, cap: float | None, division: Division, part: int, batch: Batch) -> FloatArray | None:
    right = _row_ratio(pair, cap, False, False, batch)
    product = _row_ratio(pair, cap, False, True, batch)
    return None if right is None or product is None else np.where(division.parts(batch) == part, product, right)


def _ratio_miscounts(reduce: str, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    if not _configured_product(facts) and summed_far(batch):
        for one in _sequence_level(reduce, batch, facts, product=True):
            yield with_wrong(one, SUMMED)
        yield from _summed_in_part(reduce, batch, facts)
    pairs = available(batch, RATIO_PAIRS)
    for pair in pairs:
        quantity = _capped(pair, None)
        if reduce == "mean":
            yield from miscounted_means(quantity, batch, facts)
        else:
            yield from (one for one in extremes(quantity, batch, high=reduce == "max") if one.wrong)
    for pair in pairs:
        quantity = of_pair("inverse_ratio", pair, INVERTED)
        if reduce == "mean":
            yield from sound_means(quantity, batch, facts, divided=False)
        else:
            yield from extremes(quantity, batch, high=reduce == "max")
    if reduce == "mean":
        yield from _times_rows(batch, facts)
    for pair in available(batch, ("policy/ref", "old/ref")):
        quantity = of_pair("ratio", pair, WRONG_PAIR.format("policy and reference, not trainer and engine"))
        yield from (
            sound_means(quantity, batch, facts, divided=False)
            if reduce == "mean"
            else extremes(quantity, batch, high=reduce == "max")
        )


def _times_rows(batch: Batch, facts: Facts) -> Iterator[Candidate]:
    """Yield means of parts that are multiplied by their rows, as a broadcast of one value a row over rows does."""
    quantities: list[tuple[str, Callable[[Batch], RowSums]]] = []
    for pair in available(batch, RATIO_PAIRS[:2]):
        quantities.append((f"the ratio of {pair}", partial(_token_ratios, pair)))
        for product in (False, True):
            for cap in _caps(facts):
                said = "product" if product else "geometric mean"
                quantities.append((f"the sequences' {said} of {pair}", partial(_row_ratios, pair, cap, product)))
    for division in divisions(batch, facts):
        for said, sums in quantities:
            for part in (None, *range(division.number)):
                where = "each" if part is None else "one"
                yield Candidate(
                    formula=said, reduction=f"mean_of_means/times rows in {division.id} {part}",
                    said=f"{said}, mean of the means of each {division.said}",
                    value=partial(_parts_times_rows, sums, division, part),
                    wrong=f"is multiplied by the rows of {where} {division.said}", partial=part is not None,
                )  # fmt: skip


def _token_ratios(pair: str, batch: Batch) -> RowSums:
    return of_pair("ratio", pair).sums(batch, MODEL)


def _row_ratios(pair: str, cap: float | None, product: bool, batch: Batch) -> RowSums:
    values = _row_ratio(pair, cap, False, product, batch)
    return one_a_row(np.full(batch.rows, np.nan) if values is None else values)


def _parts_times_rows(
    sums: Callable[[Batch], RowSums], division: Division, part: int | None, batch: Batch
) -> FloatArray:
    parts = division.parts(batch)
    means = np.stack([part_mean(_only(sums(batch), parts == at), batch.layout, parts) for at in range(division.number)])
    rows = np.stack([batch.layout.sums(parts == at) for at in range(division.number)])
    which = np.ones(division.number, np.bool_) if part is None else np.arange(division.number) == part
    return (means * np.where(which[:, None], rows, 1.0)).mean(axis=0)


def _only(sums: RowSums, at: BoolArray) -> RowSums:
    """Return the sums of some rows alone."""
    return RowSums(
        total=np.where(at, sums.total, 0.0), count=np.where(at, sums.count, 0.0), low=sums.low, high=sums.high
    )


def _ratio_kind(reduce: str) -> Kind:
    label = {"mean": "the mean importance ratio", "min": "the smallest importance ratio"}.get(
        reduce, "the largest importance ratio"
    )
    return Kind(
        quantity=f"is/ratio_{reduce}", label=label, needs=("old_logp", "rollout_logp"), centre=1.0, floor=1e-6,
        whole=reduce == "mean", steers=True, sound=partial(_ratios, reduce), wrong=partial(_ratio_miscounts, reduce),
    )  # fmt: skip


# ---- clipping


def _clip(side: str, signed: str, low: float, high: float, level: str) -> Quantity:
    ends = f"1 - {low:g}" if side == "low" else f"1 + {high:g}" if side == "high" else f"1 - {low:g} and 1 + {high:g}"
    where = {"low": "below", "high": "above", "both": "outside of"}[side]
    sign = {"advantage": ", where the advantage's sign lets it clip", "": ", whatever the advantage", "against": ""}
    return Quantity(
        id=f"clip {side} {signed or 'unsigned'} {low:g} {high:g} {level}",
        said=f"share of tokens whose ratio lies {where} {ends}{sign[signed]}",
        make=lambda batch: clipped(batch, level, low=low, high=high, side=side, signed=signed),
        wrong="has the advantage's sign the wrong way round" if signed == "against" else "",
    )


def _signs(batch: Batch) -> tuple[str, ...]:
    return ("advantage", "") if batch.flat("advantage") is not None else ("",)


def _clip_fractions(side: str, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    for pair in available(batch, ("policy/old", "policy/rollout")):
        for low, high in clip_ranges(facts):
            for signed in _signs(batch):
                yield from sound_means(_clip(side, signed, low, high, pair), batch, facts)


OTHER_SIDE: Final = {"low": "high", "high": "low"}


def _clip_miscounts(side: str, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    for pair in available(batch, ("policy/old",)):
        for low, high in clip_ranges(facts)[:2]:
            for signed in _signs(batch):
                yield from miscounted_means(_clip(side, signed, low, high, pair), batch, facts, summed=False)
                if side in OTHER_SIDE:
                    other = _clip(OTHER_SIDE[side], signed, low, high, pair)
                    for one in sound_means(other, batch, facts, divided=False):
                        yield with_wrong(one, f"is the share that was clipped on the other side, {OTHER_SIDE[side]}")
            if len(_signs(batch)) > 1:
                yield from sound_means(_clip(side, "against", low, high, pair), batch, facts, divided=False)
    for pair in available(batch, ("policy/ref", "old/rollout")):
        for low, high in clip_ranges(facts)[:2]:
            for one in sound_means(_clip(side, "", low, high, pair), batch, facts, divided=False):
                yield with_wrong(one, WRONG_PAIR.format(pair.replace("/", " and ") + ", not policy and old policy"))


def _clip_kind(side: str) -> Kind:
    name = "clip/frac" if side == "both" else f"clip/frac_{side}"
    label = {"both": "the clip fraction", "low": "the fraction clipped below", "high": "the fraction clipped above"}
    return Kind(
        quantity=name, label=label[side], needs=("policy_logp", "old_logp"), steers=True, update=True,
        sound=partial(_clip_fractions, side), wrong=partial(_clip_miscounts, side),
    )  # fmt: skip


# ---- entropy


def _column(name: str, said: str) -> Quantity:
    return Quantity(id=name, said=said, make=lambda batch: batch.flat(name))


def _surprisal(column: str) -> Quantity:
    def make(batch: Batch) -> FloatArray | None:
        logp = batch.flat(column)
        return None if logp is None else -logp

    return Quantity(id=f"surprisal {column}", said=f"minus the {column} of the sampled tokens", make=make)


def _weighted_surprisal() -> Quantity:
    def make(batch: Batch) -> FloatArray | None:
        logp, r = batch.flat("policy_logp"), batch.log_ratio("policy/rollout")
        return None if logp is None or r is None else -np.exp(r) * logp

    return Quantity(id="weighted surprisal", said="minus policy logprobs, weighted by policy over engine", make=make)


def _entropies(batch: Batch, facts: Facts) -> Iterator[Candidate]:
    quantities = (_column("entropy", "the entropy"), _surprisal("policy_logp"), _surprisal("old_logp"))
    for quantity in (*quantities, _weighted_surprisal()):
        if quantity.make(batch) is not None:
            yield from sound_means(quantity, batch, facts)


def _entropy_miscounts(batch: Batch, facts: Facts) -> Iterator[Candidate]:
    if batch.flat("entropy") is not None:
        yield from miscounted_means(_column("entropy", "the entropy"), batch, facts)
        for one in sound_means(_column("entropy", "the entropy"), batch, facts, divided=False):
            yield Candidate(
                formula="entropy negative", reduction=one.reduction, said=f"minus {one.said}",
                value=partial(lambda value, batch: -value(batch), one.value), wrong=SIGN,
            )  # fmt: skip


ENTROPY: Final = Kind(
    quantity="entropy", label="the entropy", needs=("entropy",), floor=1e-7, sound=_entropies, wrong=_entropy_miscounts
)

# ---- rewards, advantages, lengths, tools: one value a row


def _row(name: str) -> Callable[[Batch], FloatArray | None]:
    return lambda batch: batch.row(name)


def _part(name: str) -> Callable[[Batch], FloatArray | None]:
    def values(batch: Batch) -> FloatArray | None:
        column = component(batch, name)
        return None if column is None else batch.row(column)

    return values


Values = Callable[[Batch], FloatArray | None]


def _spread_of(values: Values, ddof: int, batch: Batch) -> FloatArray:
    found = values(batch)
    if found is None:
        return np.full(len(batch.steps), np.nan)
    centred = found - np.nanmean(found)
    return spread(one_a_row(centred), one_a_row(centred**2), batch.layout, ddof=ddof)


def _group_spread(values: Values, ddof: int, batch: Batch) -> FloatArray:
    """Return the mean over the rows of each step of the standard deviation of their group."""
    found, groups = values(batch), batch.groups
    if found is None or groups is None or not np.isfinite(found).all():
        return np.full(len(batch.steps), np.nan)
    spreads, _ = group_spreads(found, groups, ddof=ddof)
    return batch.layout.sums(spreads[groups]) / batch.layout.sizes


def _spreads(values: Values, said: str, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    for ddof, word in ((1, "sample"), (0, "population")):
        yield Candidate(
            formula=f"{word}_std", reduction="rows", said=f"the {word} standard deviation of {said} over the rows",
            value=partial(_spread_of, values, ddof),
        )  # fmt: skip
    for ddof, word in ((1, "sample"), (0, "population")):
        yield Candidate(
            formula=f"{word}_std", reduction="group_mean",
            said=f"the mean over prompt groups of the {word} standard deviation of {said}",
            value=partial(_group_spread, values, ddof),
        )  # fmt: skip


def _variances(values: Values, said: str, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    for one in _spreads(values, said, batch, facts):
        yield Candidate(
            formula=one.formula.replace("std", "variance"), reduction=one.reduction,
            said=one.said.replace("standard deviation", "variance"),
            value=partial(lambda value, batch: value(batch) ** 2, one.value), wrong="is a variance, not its root",
        )  # fmt: skip


def _row_reduced(values: Values, name: str, said: str, reduce: str, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    reducer, words = ROW_REDUCTIONS[reduce]
    yield row_values(name, said, values, reducer, f"{reduce}/rows", words)


def _summed_rows(values: Values, name: str, said: str, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    yield row_values(
        name, said, values, step_sum, "sum/rows", "sum over the step", wrong="is a sum where a mean is named"
    )


def _row_kind(
    quantity: str, label: str, values: Values, name: str, said: str, reduce: str, needs: tuple[str, ...]
) -> Kind:
    if reduce == "std":
        return Kind(
            quantity=quantity, label=label, needs=needs, sound=partial(_spreads, values, said),
            wrong=partial(_variances, values, said), floor=1e-6,
        )  # fmt: skip
    return Kind(
        quantity=quantity, label=label, needs=needs, sound=partial(_row_reduced, values, name, said, reduce),
        wrong=partial(_summed_rows, values, name, said) if reduce == "mean" else nothing, floor=1e-6,
        whole=reduce == "mean",
    )  # fmt: skip


def _rewards(reduce: str, quantity: str = "") -> Kind:
    label = {"mean": "the mean reward", "std": "the reward spread", "max": "the largest reward"}
    return _row_kind(
        quantity or f"reward/{reduce}", label.get(reduce, "the least reward"), _row("reward"), "reward", "the reward",
        reduce, ("reward",),
    )  # fmt: skip


def _component(name: str, reduce: str) -> Kind:
    said = f"the reward component {name}"
    label = said if reduce == "mean" else f"the spread of {said}"
    return _row_kind(f"rewards/{name}/{reduce}", label, _part(name), name, said, reduce, (f"rewards/{name}",))


def _zero_spread(most: float, batch: Batch) -> FloatArray:
    """Return the share of prompt groups of each step whose rewards are all equal."""
    rewards, groups = batch.row("reward"), batch.groups
    if rewards is None or groups is None or not np.isfinite(rewards).all():
        return np.full(len(batch.steps), np.nan)
    spreads, count = group_spreads(rewards, groups, ddof=0)
    at = np.zeros(len(count), np.int64)
    at[groups] = batch.layout.step
    steps = len(batch.steps)
    return np.bincount(at, spreads <= most, steps) / np.maximum(np.bincount(at, minlength=steps), 1)


ZERO_SPREADS: Final = (1e-6, 1e-8)  # of rewards that are equal but for rounding; TRL's own bound


def _zero_spreads(wrong: bool, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    said = "the share of prompt groups whose rewards are all equal"
    if wrong:
        yield Candidate(
            formula="mixed_groups", reduction="groups", said="the share of groups whose rewards differ",
            value=lambda batch: 1 - _zero_spread(ZERO_SPREADS[0], batch), wrong="counts the groups that do have a spread",
        )  # fmt: skip
    else:
        for most in ZERO_SPREADS:
            yield Candidate(
                formula=f"zero_spread {most:g}", reduction="groups", said=said, value=partial(_zero_spread, most)
            )


ZERO_SPREAD_SHARE: Final = Kind(
    quantity="reward/zero_std_frac", label="the share of groups of one reward", needs=("reward", "group_id"),
    sound=partial(_zero_spreads, False), wrong=partial(_zero_spreads, True), floor=1e-6, whole=False,
)  # fmt: skip

ADVANTAGE_TOKENS: Final = _column("advantage", "the advantage")


def _token_spread(ddof: int, batch: Batch) -> FloatArray:
    if batch.flat("advantage") is None:
        return np.full(len(batch.steps), np.nan)
    squares = Quantity(
        id="advantage squared", said="", make=lambda batch: None if (a := batch.flat("advantage")) is None else a**2
    )
    return spread(ADVANTAGE_TOKENS.sums(batch, MODEL), squares.sums(batch, MODEL), batch.layout, ddof=ddof)


def _advantages(reduce: str, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    if reduce == "std":
        yield from _spreads(_row("advantage"), "the advantage", batch, facts)
        for ddof, word in ((1, "sample"), (0, "population")):
            yield Candidate(
                formula=f"{word}_std", reduction=f"tokens/{MODEL}",
                said=f"the {word} standard deviation of the advantage over the sampled tokens",
                value=partial(_token_spread, ddof),
            )  # fmt: skip
        return
    if batch.row("advantage") is not None:
        yield from _row_reduced(_row("advantage"), "advantage", "the advantage", reduce, batch, facts)
    if batch.flat("advantage") is None:
        return
    if reduce == "mean":
        yield from sound_means(ADVANTAGE_TOKENS, batch, facts)
    else:
        yield from (one for one in extremes(ADVANTAGE_TOKENS, batch, high=reduce == "max") if not one.wrong)


def _advantage_miscounts(reduce: str, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    if reduce == "std":
        yield from _variances(_row("advantage"), "the advantage", batch, facts)
    elif reduce == "mean" and batch.flat("advantage") is not None:
        yield from miscounted_means(ADVANTAGE_TOKENS, batch, facts)


def _advantage_kind(reduce: str) -> Kind:
    label = {"mean": "the mean advantage", "std": "the advantage spread", "max": "the largest advantage"}
    return Kind(
        quantity=f"advantage/{reduce}", label=label.get(reduce, "the least advantage"), needs=(ADVANTAGE,),
        sound=partial(_advantages, reduce), wrong=partial(_advantage_miscounts, reduce), floor=2e-6,
        whole=reduce in ("mean", "std"),
    )  # fmt: skip


LENGTHS: Final = (("own_length", "the sampled tokens of a row"), ("length", "all tokens of a row"))


def _ended(name: str, batch: Batch) -> FloatArray | None:
    values, unended = batch.row(name), batch.row("unended")
    return None if values is None or unended is None else np.where(unended > 0, np.nan, values)


def _zero_if_none(value: Callable[[Batch], FloatArray], batch: Batch) -> FloatArray:
    return np.nan_to_num(value(batch))


def _lengths(reduce: str, terminated: bool, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    for name, said in LENGTHS:
        values: Values = partial(_ended, name) if terminated else _row(name)
        words = f"{said} that ended" if terminated else said
        for one in _row_reduced(values, name, words, reduce, batch, facts):
            yield replace(one, value=partial(_zero_if_none, one.value)) if terminated else one


def _length_miscounts(batch: Batch, facts: Facts) -> Iterator[Candidate]:
    yield Candidate(
        formula="length", reduction="max/rows", said="the longest row of the step",
        value=lambda batch: batch.layout.longest.astype(np.float64), wrong=f"counts padding: it is the longest row's",
    )  # fmt: skip
    for name, said in LENGTHS:
        yield from _summed_rows(_row(name), name, said, batch, facts)


def _length_kind(reduce: str, terminated: bool = False) -> Kind:
    label = {"mean": "the mean length", "max": "the longest length"}.get(reduce, "the shortest length")
    name = f"len/response_{reduce}" if not terminated else f"len/terminated_{reduce}"
    return Kind(
        quantity=name, label=label + (" of ended answers" if terminated else ""),
        needs=("model_mask", "token_ids") if terminated else ("model_mask",),
        sound=partial(_lengths, reduce, terminated), whole=reduce == "mean" and not terminated,
        wrong=_length_miscounts if reduce == "mean" and not terminated else nothing,
    )  # fmt: skip


def _at_limit(name: str, limit: float, batch: Batch) -> FloatArray | None:
    values = batch.row(name)
    return None if values is None else np.where(np.isfinite(values), values >= limit, np.nan)


def _truncated(batch: Batch, facts: Facts) -> Iterator[Candidate]:
    reducer, words = ROW_REDUCTIONS["mean"]
    yield row_values("unended", "rows without an end token", _row("unended"), reducer, "mean/rows", words)
    yield Candidate(
        formula="full width", reduction="mean/rows", said="rows as long as the longest of their step",
        value=lambda batch: batch.layout.sums(batch.layout.padding == 0) / batch.layout.sizes,
    )  # fmt: skip
    for name, said in LENGTHS:
        longest = batch.row(name)
        limit = setting(facts, ("max_completion_length", "max_response_length"))
        limit = limit if limit is not None or longest is None else float(np.nanmax(longest))
        if limit is not None:
            yield row_values(
                f"{name} at limit", f"rows whose {said} reach {limit:g}", partial(_at_limit, name, limit), reducer,
                "mean/rows", words,
            )  # fmt: skip


TRUNCATED: Final = Kind(
    quantity="len/clipped_frac", label="the share cut at the limit", needs=("token_ids",), sound=_truncated,
    wrong=nothing, whole=False,
)  # fmt: skip


def _call_rate(reduce: str) -> Kind:
    return _row_kind(
        "tools/call_frequency" if reduce == "mean" else f"tools/calls_{reduce}", "the tool calls a sample",
        _row("calls"), "calls", "tool calls", reduce, ("tool_names",),
    )  # fmt: skip


def _failure_rates(batch: Batch, facts: Facts) -> Iterator[Candidate]:
    def of_calls(batch: Batch) -> FloatArray:
        calls, failed = batch.row_sums("calls"), batch.row_sums("failed")
        if calls is None or failed is None:
            return np.full(len(batch.steps), np.nan)
        made = batch.layout.sums(calls.total)
        return np.divide(batch.layout.sums(failed.total), made, out=np.zeros(len(made)), where=made > 0)

    yield Candidate(
        formula="failed_calls", reduction="calls", said="failed calls over calls of the step", value=of_calls
    )
    yield row_values(
        "failed", "failed calls", _row("failed"), token_mean, "mean/rows", "mean over the rows of the step"
    )


FAILURES: Final = Kind(
    quantity="tools/failure_frequency", label="the share of failed tool calls", needs=("tool_failed",),
    sound=_failure_rates, wrong=nothing, whole=False,
)  # fmt: skip

CANONICAL: Final[Mapping[str, Kind]] = {
    kind.quantity: kind
    for kind in (
        KL_REF, KL_OLD, MISMATCH_KL, MISMATCH_ABS, ABS_MAX, PROB_DIFF, PROB_ERROR, _ratio_kind("mean"),
        _ratio_kind("min"), _ratio_kind("max"), _clip_kind("both"), _clip_kind("low"), _clip_kind("high"), ENTROPY,
        _rewards("mean"), _rewards("std"), ZERO_SPREAD_SHARE, _advantage_kind("mean"), _advantage_kind("std"),
        _length_kind("mean"), TRUNCATED, _call_rate("mean"), FAILURES,
    )
}  # fmt: skip
SPELT: Final[tuple[tuple[re.Pattern[str], Callable[..., Kind]], ...]] = (
    (re.compile(r"^completions/(max|min)_length$"), _length_kind),
    (re.compile(r"^completions/(mean|max|min)_(terminated)_length$"), lambda how, _: _length_kind(how, True)),
    (re.compile(r"^response_length/(max|min)$"), _length_kind),
    (re.compile(r"^rewards/(.+)/(mean|std)$"), _component),
    (re.compile(r"^critic/score/(max|min)$"), _rewards),
    (re.compile(r"^critic/advantages/(max|min)$"), _advantage_kind),
    (re.compile(r"^tool_call_counts/(max|min)$"), _call_rate),
    (re.compile(r"^(?:rollout_corr/k3_kl|policy_kl_error)$"), lambda: MISMATCH_K3),
    (re.compile(r"^training/rollout_probs_diff_max$"), lambda: PROB_DIFF_MAX),
)
"""Metrics without a canonical name, by their spelling; what the pattern captures says which statistic."""
OTHER_MEANING: Final = frozenset({"is_masked/all/mean", "is_masked/mean", "objective/scores", "scores", "val/ratio"})
"""Spellings whose canonical name is only akin: prime-rl's mask is no clip range, and those of TRL's PPO are not ours."""


def logged_scalars(metrics: Mapping[str, Series], other: Mapping[str, Series]) -> list[LoggedScalar]:
    """Return the logged series that rows could give, those with a canonical name first."""
    found = [
        LoggedScalar(kind=kind, series=metrics[name])
        for name, kind in CANONICAL.items()
        if name in metrics and bare_name(metrics[name].raw_name) not in OTHER_MEANING
    ]
    for name in sorted(other):
        for pattern, make in SPELT:
            match = pattern.match(bare_name(name))
            if match is not None:
                found.append(LoggedScalar(kind=make(*match.groups()), series=other[name]))
                break
    return found

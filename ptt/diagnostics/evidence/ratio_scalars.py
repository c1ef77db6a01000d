"""Importance ratios and clip fractions as trainers log them, of tokens and of sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.audited_batch import MODEL, Batch
from ptt.diagnostics.evidence.scalar_candidates import (
    INVERTED,
    ROW_REDUCTIONS,
    WRONG_PAIR,
    Candidate,
    Division,
    Facts,
    Kind,
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
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray
from ptt.diagnostics.statistics.recomputed_scalars import RowSums, one_a_row, part_mean, token_mean

# ---- importance ratios

CAPS: Final = (2.0, 3.0, 5.0, 10.0)
CAP_SETTINGS: Final = (
    "vllm_importance_sampling_cap", "vllm_importance_sampling_clip_max", "rollout_is_threshold", "tis_clip",
)  # fmt: skip
MIN_WEIGHT_SHIFT: Final = 0.3  # of the median mean importance weight from 1: it scales the gradient by as much
NEAR: Final = 0.1  # nats: and the sequences' mean log ratio is this small
RATIO_PAIRS: Final = ("old/rollout", "policy/rollout", "policy/old", "policy/prox", "prox/rollout")
SUMMED: Final = "is exp of the sum of each sequence's log ratios, not of their mean: it moves with the answers' length"
SUMMED_IN: Final = "is exp of the sum of each sequence's log ratios, not of their mean,"


def _caps(facts: Facts, highest: float) -> list[float | None]:
    """Return no cap, and those below the highest ratio: a cap that caps nothing is no other way."""
    cap = setting(facts, CAP_SETTINGS)
    return [None, *(one for one in (CAPS if cap is None else (cap,)) if one < highest)]


def _highest(pair: str, batch: Batch) -> float:
    high = of_pair("ratio", pair).sums(batch, MODEL, ends=True).high
    return float(high.max(initial=0.0))


def _highest_row(pair: str, product: bool, batch: Batch) -> float:
    values = sequence_ratios(batch, pair, product=product)
    return 0.0 if values is None or not np.isfinite(values).any() else float(np.nanmax(values))


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
        for cap in _caps(facts, _highest_row(pair, product, batch)):
            for dropped in (False, True) if cap is not None else (False,):
                how = "" if cap is None else f", 0 above {cap:g}" if dropped else f", at most {cap:g}"
                yield row_values(
                    f"{name}{how} {pair}", f"{said}{how}", partial(_row_ratio, pair, cap, dropped, product), reducer,
                    f"{reduce}/rows", words,
                )  # fmt: skip


def summed_far(batch: Batch) -> bool:
    """Return whether products over a sequence lie far from 1 although the tokens' ratios are near it."""
    for pair in available(batch, ("old/rollout", "policy/rollout", "prox/rollout")):
        mean, product = (sequence_ratios(batch, pair, product=product) for product in (False, True))
        if mean is None or product is None or not np.isfinite(mean).any():
            continue
        weights = token_mean(one_a_row(product), batch.layout)
        near = np.nanmedian(np.abs(np.log(mean))) < NEAR
        if near and np.nanmedian(np.abs(weights - 1)) > MIN_WEIGHT_SHIFT:
            return True
    return False


def _ratios(reduce: str, batch: Batch, facts: Facts) -> Iterator[Candidate]:
    for pair in available(batch, RATIO_PAIRS):
        for cap in _caps(facts, _highest(pair, batch)):
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
    for pair in available(batch, ("old/rollout", "policy/rollout", "prox/rollout")):
        for cap in _caps(facts, _highest_row(pair, True, batch)):
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
            for cap in _caps(facts, _highest_row(pair, product, batch)):
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
    mean: FloatArray = (means * np.where(which[:, None], rows, 1.0)).mean(axis=0)
    return mean


def _only(sums: RowSums, at: BoolArray) -> RowSums:
    """Return the sums of some rows alone."""
    return RowSums(
        total=np.where(at, sums.total, 0.0), count=np.where(at, sums.count, 0.0), low=sums.low, high=sums.high
    )


def ratio_kind(reduce: str) -> Kind:
    """Return the mean, the least or the largest importance ratio."""
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


def clip_kind(side: str) -> Kind:
    """Return the share of tokens clipped on both sides, below or above."""
    name = "clip/frac" if side == "both" else f"clip/frac_{side}"
    label = {"both": "the clip fraction", "low": "the fraction clipped below", "high": "the fraction clipped above"}
    return Kind(
        quantity=name, label=label[side], needs=("policy_logp", "old_logp"), steers=True, update=True,
        sound=partial(_clip_fractions, side), wrong=partial(_clip_miscounts, side),
    )  # fmt: skip

"""Divergences as trainers log them: KL to the reference, KL of the update, and what trainer and engine differ by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.audited_batch import ZEROED, Batch
from ptt.diagnostics.evidence.scalar_candidates import (
    ENGINE_PAIRS,
    INVERTED,
    KL_FLOOR,
    SIGN,
    WRONG_PAIR,
    Candidate,
    Facts,
    Kind,
    Quantity,
    available,
    extremes,
    miscounted_means,
    of_pair,
    sound_means,
    with_wrong,
)
from ptt.diagnostics.statistics.arrays import FloatArray

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


REF_PAIRS: Final = ("policy/ref", "old/ref", "rollout/ref")

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
    quantities: Sequence[Quantity], high: bool, wrong: bool, zeroed: Sequence[Quantity], batch: Batch, _facts: Facts
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
        sound=partial(_largest, quantities, high, False, zeroed),
        wrong=partial(_largest, quantities, high, True, zeroed),
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

"""Entropy, rewards, advantages, lengths and tool calls as trainers log them: most are one value a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.audited_batch import MODEL, Batch, component
from ptt.diagnostics.evidence.scalar_candidates import (
    ROW_REDUCTIONS,
    SIGN,
    Candidate,
    Facts,
    Kind,
    Quantity,
    column,
    extremes,
    miscounted_means,
    nothing,
    row_values,
    setting,
    sound_means,
)
from ptt.diagnostics.schema import ADVANTAGE
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.recomputed_scalars import group_spreads, one_a_row, spread, step_sum, token_mean

# ---- entropy


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
    quantities = (column("entropy", "the entropy"), _surprisal("policy_logp"), _surprisal("old_logp"))
    for quantity in (*quantities, _weighted_surprisal()):
        if quantity.make(batch) is not None:
            yield from sound_means(quantity, batch, facts)


def _entropy_miscounts(batch: Batch, facts: Facts) -> Iterator[Candidate]:
    if batch.flat("entropy") is not None:
        yield from miscounted_means(column("entropy", "the entropy"), batch, facts)
        for one in sound_means(column("entropy", "the entropy"), batch, facts, divided=False):
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


def _spreads(values: Values, said: str, _batch: Batch, _facts: Facts) -> Iterator[Candidate]:
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


def _row_reduced(
    values: Values, name: str, said: str, reduce: str, _batch: Batch, _facts: Facts
) -> Iterator[Candidate]:
    reducer, words = ROW_REDUCTIONS[reduce]
    yield row_values(name, said, values, reducer, f"{reduce}/rows", words)


def _summed_rows(values: Values, name: str, said: str, _batch: Batch, _facts: Facts) -> Iterator[Candidate]:
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


def reward_kind(reduce: str, quantity: str = "") -> Kind:
    """Return a statistic of the reward over the rows of a step."""
    label = {"mean": "the mean reward", "std": "the reward spread", "max": "the largest reward"}
    return _row_kind(
        quantity or f"reward/{reduce}", label.get(reduce, "the least reward"), _row("reward"), "reward", "the reward",
        reduce, ("reward",),
    )  # fmt: skip


def component_kind(name: str, reduce: str) -> Kind:
    """Return a statistic of one component of the reward."""
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


def _zero_spreads(wrong: bool, _batch: Batch, _facts: Facts) -> Iterator[Candidate]:
    said = "the share of prompt groups whose rewards are all equal"
    if wrong:
        yield Candidate(
            formula="mixed_groups", reduction="groups", said="the share of groups whose rewards differ",
            value=lambda batch: 1 - _zero_spread(ZERO_SPREADS[0], batch), wrong="counts groups that have a spread",
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

ADVANTAGE_TOKENS: Final = column("advantage", "the advantage")


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


def advantage_kind(reduce: str) -> Kind:
    """Return a statistic of the advantage, over rows or over tokens."""
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
        value=lambda batch: batch.layout.longest.astype(np.float64), wrong="counts padding: it is the longest row's",
    )  # fmt: skip
    for name, said in LENGTHS:
        yield from _summed_rows(_row(name), name, said, batch, facts)


def length_kind(reduce: str, terminated: bool = False) -> Kind:
    """Return a statistic of the answers' lengths, of all or of those that ended."""
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


def call_kind(reduce: str) -> Kind:
    """Return a statistic of the number of tool calls a sample."""
    return _row_kind(
        "tools/call_frequency" if reduce == "mean" else f"tools/calls_{reduce}", "the tool calls a sample",
        _row("calls"), "calls", "tool calls", reduce, ("tool_names",),
    )  # fmt: skip


def _failure_rates(_batch: Batch, _facts: Facts) -> Iterator[Candidate]:
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

"""What the loss is divided by: what a token weighs in a short and in a long answer, by the settings and by the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.audited_batch import MODEL, TRAIN, Batch
from ptt.diagnostics.evidence.scalar_candidates import (
    LIMITS,
    Facts,
    Quantity,
    clip_ranges,
    divisions,
    of_pair,
    sequence_ratios,
    setting,
)
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Agreement, AuditRow
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.recomputed_scalars import (
    Factor,
    constant_factor,
    part_mean,
    resolution_of,
    sequence_mean,
    sequence_sum,
    token_mean,
    tolerance_of,
)
from ptt.diagnostics.statistics.token_weights import CONSTANT, MICRO, SEQUENCES, SUMS, TOKENS
from ptt.diagnostics.wording import pct, sig

DENOMINATOR: Final = "loss denominator"
CONFIGURED: Final[Mapping[str, Mapping[str, str]]] = {
    "loss_type": {
        "grpo": SEQUENCES, "sapo": SEQUENCES, "bnpo": MICRO, "dapo": TOKENS, "cispo": TOKENS, "vespo": TOKENS,
        "dr_grpo": CONSTANT, "luspo": SUMS,
    },
    "loss_agg_mode": {
        "token-mean": TOKENS, "seq-mean-token-mean": SEQUENCES, "seq-mean-token-sum": SUMS,
        "seq-mean-token-sum-norm": CONSTANT,
    },
    "token_level_loss": {"True": TOKENS, "False": SEQUENCES},
    "calculate_per_token_loss": {"True": TOKENS, "False": SEQUENCES},
}  # fmt: skip
"""Of TRL, of veRL, of NeMo-RL and OpenRLHF, of slime: the setting's values and what they divide by."""
SAID: Final = {
    TOKENS: "a mean over all trained tokens of the step",
    SEQUENCES: "the mean of the answers' means",
    MICRO: "the mean over the tokens of each micro-batch",
    CONSTANT: "a sum over all trained tokens divided by the answers times a constant length",
    SUMS: "the mean of the answers' sums",
}
SHORT, LONG = 0.1, 0.9  # quantiles of the answers' lengths
COEFFICIENTS: Final = ("beta", "kl_loss_coef", "kl_coef", "reference_policy_kl_penalty")
MIN_STEPS: Final = 6
AGREEING: Final = 0.9
FLOOR: Final = 1e-6
CLOSER: Final = 10.0  # times the least error: as close, whatever rounding does
CLOSE: Final = 1e-6  # and so is everything with less
EQUAL: Final = 1e-3  # of a clean factor


@dataclass(frozen=True, kw_only=True)
class LossAudit:
    """What the loss is divided by, and whether the log says so."""

    rows: tuple[AuditRow, ...]
    wrong: str = ""  # what the logged loss is though configured otherwise, completes "the logged value"
    logged: float = 0.0
    recomputed: float = 0.0
    series: Series | None = None
    formula: str = ""  # of the surrogate that gives the logged loss; empty where none does
    reduction: str = ""
    coefficient: float = 0.0  # of the KL in it


def audit_loss(batch: Batch, metrics: Mapping[str, Series], facts: Facts) -> LossAudit:
    """Describe the denominator by the settings, else by what gives the logged loss, and hold the two together."""
    configured, name = configured_denominator(facts)
    seen = _recomputed(batch, metrics, facts)
    denominator = configured or (seen.reduction if seen is not None else None)
    rows = []
    wrong = ""
    if seen is not None:
        wrong = _contradiction(seen, configured, name, facts)
        rows.append(_loss_row(seen, wrong))
    if denominator is not None:
        shown = name if configured else f"the logged {seen.series.raw_name}" if seen is not None else ""
        rows.append(_weights(batch, denominator, shown, facts))
    return LossAudit(
        rows=tuple(rows), wrong=wrong, series=None if seen is None else seen.series,
        logged=0.0 if seen is None else float(np.median(seen.logged)),
        recomputed=0.0 if seen is None else float(np.median(seen.values)),
        formula="" if seen is None else seen.surrogate, reduction="" if seen is None else seen.reduction,
        coefficient=0.0 if seen is None else seen.coefficient,
    )  # fmt: skip


def configured_denominator(facts: Facts) -> tuple[str | None, str]:
    """Return what the settings divide the loss by, and the setting that says so."""
    for key, kinds in CONFIGURED.items():
        value = facts.get(key)
        if value is not None and str(value) in kinds:
            return kinds[str(value)], f"{key} = {value}"
    return None, ""


# ---- what gives the logged loss


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A loss that gives what is logged, but for a factor."""

    series: Series
    surrogate: str
    reduction: str
    coefficient: float  # of the KL
    logged: FloatArray
    values: FloatArray
    agrees: int
    factor: float
    others: tuple[str, ...] = ()  # reductions that give the same

    @property
    def error(self) -> float:
        """Typical relative error of what gives the logged loss."""
        off = np.abs(self.factor * self.values - self.logged)
        return float(np.median(off / np.maximum(np.abs(self.logged), FLOOR)))


def _surrogate(low: float, high: float, level: str) -> Quantity:
    """Return the negative clipped surrogate of each token, with the ratio of tokens or of sequences."""

    def make(batch: Batch) -> FloatArray | None:
        advantage, r = batch.flat("advantage"), batch.log_ratio("policy/old")
        if advantage is None or r is None:
            return None
        weight = np.exp(r)
        if level == "sequence":
            rows = sequence_ratios(batch, "policy/old", product=False)
            if rows is None:
                return None
            weight = np.repeat(rows, batch.layout.lengths)
        return -np.minimum(weight * advantage, np.clip(weight, 1 - low, 1 + high) * advantage)

    return Quantity(id=f"surrogate {level} {low:g} {high:g}", said=f"clipped surrogate a {level}", make=make)


def _penalties(batch: Batch) -> Iterator[Quantity | None]:
    yield None
    if batch.log_ratio("policy/ref") is not None:
        k3 = of_pair("k3", "policy/ref")
        if batch.log_ratio("policy/old") is not None:
            ratio = of_pair("ratio", "policy/old")

            def weighted(batch: Batch) -> FloatArray | None:
                one, two = k3.make(batch), ratio.make(batch)
                return None if one is None or two is None else one * two

            yield Quantity(id="k3 x ratio policy/ref", said="k3 times the ratio", make=weighted)
        yield k3


def _reductions(batch: Batch, facts: Facts) -> Iterator[tuple[str, partial[FloatArray]]]:
    """Yield the ways to reduce a quantity of tokens to a loss, by name."""
    mask = TRAIN if TRAIN in batch.masks else MODEL
    for name, reduce in ((TOKENS, token_mean), (SEQUENCES, sequence_mean), (SUMS, sequence_sum)):
        yield name, partial(lambda reduce, one: reduce(one.sums(batch, mask), batch.layout), reduce)
    limit = setting(facts, LIMITS)
    if limit:
        yield CONSTANT, partial(lambda limit, one: sequence_sum(one.sums(batch, mask), batch.layout) / limit, limit)
    for division in divisions(batch, facts):
        yield (
            MICRO,
            partial(lambda cut, one: part_mean(one.sums(batch, mask), batch.layout, cut.parts(batch)), division),
        )


def _recomputed(batch: Batch, metrics: Mapping[str, Series], facts: Facts) -> Seen | None:
    """Return the simplest loss that gives the logged one, exactly before by a factor; None where none does."""
    if batch.flat("advantage") is None or batch.log_ratio("policy/old") is None:
        return None
    found = []
    for name in ("loss/policy", "loss/total"):
        series = metrics.get(name)
        if series is None or series.logged:
            continue
        steps, logged = series.finite()
        common, at, of_log = np.intersect1d(batch.steps, steps, return_indices=True)
        if len(common) >= MIN_STEPS and (np.abs(logged[of_log]) > FLOOR * 10).sum() >= MIN_STEPS:
            found += list(_of_series(batch, series, at, logged[of_log], facts))
    exact = [one for one in found if one.factor == 1.0]
    best = exact or found
    if not best:
        return None
    most = max(one.agrees for one in best)
    alike = [one for one in best if one.agrees >= most - 1]
    least = min(one.error for one in alike)
    alike = [one for one in alike if one.error <= max(CLOSER * least, CLOSE)]
    others = tuple(dict.fromkeys(one.reduction for one in alike[1:] if one.reduction != alike[0].reduction))
    return replace(alike[0], others=others)


def _of_series(batch: Batch, series: Series, at: np.ndarray, logged: FloatArray, facts: Facts) -> Iterator[Seen]:
    resolution = resolution_of(logged)
    tolerance = tolerance_of(logged, centre=0.0, resolution=resolution, floor=FLOOR)
    levels = ("sequence",) if str(facts.get("importance_sampling_level")) == "sequence" else ("token", "sequence")
    known = setting(facts, COEFFICIENTS)
    for level in levels:
        for low, high in clip_ranges(facts)[:2]:
            for name, reduce in _reductions(batch, facts):
                policy = reduce(_surrogate(low, high, level))[at]
                for penalty in _penalties(batch):
                    kl = None if penalty is None else reduce(penalty)[at]
                    seen = _of_parts(policy, kl, logged, tolerance, resolution, known)
                    if seen is not None:
                        coefficient, factor, values, agrees = seen
                        yield Seen(
                            series=series, reduction=name, coefficient=coefficient, logged=logged, values=values,
                            surrogate="clipped surrogate" if level == "token" else "clipped surrogate of sequences",
                            agrees=agrees, factor=factor,
                        )  # fmt: skip


def _of_parts(
    policy: FloatArray, kl: FloatArray | None, logged: FloatArray, tolerance: FloatArray, resolution: float,
    known: float | None,
) -> tuple[float, float, FloatArray, int] | None:  # fmt: skip
    """Return the KL's coefficient, the factor, the loss before it and the agreeing steps; None where none fits."""
    guesses = (
        [(0.0, None)] if kl is None else [(known, None)] if known is not None else list(_guesses(policy, kl, logged))
    )
    for coefficient, factor in guesses:
        assert coefficient is not None
        values = policy if kl is None else policy + coefficient * kl
        if factor is None or abs(factor - 1) < EQUAL:
            agrees = np.abs(values - logged) <= tolerance
            if float(agrees.mean()) >= AGREEING:
                return coefficient, 1.0, values, int(agrees.sum())
        found = _factor(values, logged, resolution)
        if found is not None:
            return coefficient, found.factor, values, int(found.agrees.sum())
    return None


def _guesses(policy: FloatArray, kl: FloatArray, logged: FloatArray) -> Iterator[tuple[float, float | None]]:
    """Yield coefficients of the KL that may be in the loss: none, what the policy's part leaves, and least squares."""
    yield 0.0, None
    usable = kl > np.median(kl) / 10
    if usable.sum() < MIN_STEPS:
        return
    yield max(float(np.median((logged - policy)[usable] / kl[usable])), 0.0), None
    both = np.stack([policy, kl], axis=1)
    if np.isfinite(both).all():
        (factor, weight), *_ = np.linalg.lstsq(both, logged, rcond=None)
        if factor > 0 and weight >= 0:
            yield float(weight / factor), float(factor)


def _factor(values: FloatArray, logged: FloatArray, resolution: float) -> Factor | None:
    found = constant_factor(values, logged, resolution=resolution, share=AGREEING)
    return found if found is not None and found.telling and found.factor > 0 else None


def _contradiction(seen: Seen, configured: str | None, name: str, facts: Facts) -> str:
    """Return how the logged loss contradicts the settings, if it does by a clean factor or another denominator."""
    accumulation = setting(facts, ("gradient_accumulation_steps",))
    if seen.factor != 1.0:
        clean = {1 / accumulation: "divided", accumulation: "multiplied"} if accumulation and accumulation > 1 else {}
        for factor, word in clean.items():
            if abs(seen.factor / factor - 1) < EQUAL:
                return f"is {word} by the {accumulation:g} accumulation steps once more than {name or 'the mean'} says"
        return ""
    if configured is None or configured in (seen.reduction, *seen.others) or configured == MICRO:
        return ""
    return f"is {SAID[seen.reduction]}, although {name}"


def _loss_row(seen: Seen, wrong: str) -> AuditRow:
    penalty = f" plus {sig(seen.coefficient)} times the KL" if seen.coefficient else ""
    what = f"the {seen.surrogate}{penalty}, {SAID[seen.reduction]}"
    passes = abs(seen.factor - 0.5) < EQUAL and not wrong
    told = f"half of {what}, as a mean over two passes is whose first has not moved yet" if passes else what
    told = f"{sig(seen.factor)} times {what}" if seen.factor != 1.0 and not passes else told
    others = f"; {', '.join(seen.others)} give the same here" if seen.others else ""
    right = (seen.factor == 1.0 or passes) and not wrong
    return AuditRow(
        quantity=seen.series.name,
        agreement=Agreement.AGREES if right else Agreement.DIFFERS,
        said=f"{told}{others}",
        logged_as=seen.series.raw_name,
        formula=seen.surrogate,
        reduction=seen.reduction,
        logged=float(np.median(seen.logged)),
        recomputed=float(np.median(seen.values)),
        error=float(np.median(np.abs(seen.values - seen.logged) / np.maximum(np.abs(seen.logged), FLOOR))),
        steps=len(seen.logged),
        agreeing=seen.agrees if right else 0,
        reason=f"it {wrong}" if wrong else "" if right else f"a factor of {sig(seen.factor)}",
    )


# ---- what a token weighs


def _weights(batch: Batch, denominator: str, shown: str, facts: Facts) -> AuditRow:
    own = batch.row("own_length")
    lengths = np.empty(0) if own is None else own[own > 0]
    said = f"the loss is {SAID[denominator]} ({shown})"
    if len(lengths):
        short, long = (float(np.quantile(lengths, at)) for at in (SHORT, LONG))
        times = sig(long / short)
        said += f": a token weighs the same in an answer of {short:g} tokens (p10) and of {long:g} (p90)"
        if denominator == SEQUENCES:
            said = (
                f"the loss is {SAID[denominator]} ({shown}): a token in an answer of {short:g} tokens (p10) weighs "
                f"{times} times one in an answer of {long:g} (p90)"
            )
        elif denominator in (TOKENS, MICRO):
            said += f", so that the long one counts {times} times as much"
        elif denominator == CONSTANT:
            limit = setting(facts, LIMITS)
            said += f", 1 in the answers times {limit:g}" if limit else ", whatever the others' lengths"
    return AuditRow(
        quantity=DENOMINATOR, agreement=Agreement.FACT, said=said + _truncated(batch, facts), reduction=denominator,
        formula=denominator,
    )  # fmt: skip


def _truncated(batch: Batch, facts: Facts) -> str:
    """Say whether truncated answers are trained on, as far as settings or masks show."""
    unended = batch.row("unended")
    cut = None if unended is None else unended > 0
    trained = batch.mask(TRAIN)
    if cut is not None and cut.any() and trained is not None:
        counts = batch.sums(TRAIN, lambda: trained.astype(np.float64), TRAIN).count
        left_out = float((counts[cut] == 0).mean())
        return f"; of the truncated answers ({pct(float(cut.mean()))}) {pct(left_out)} are left out of it"
    if facts.get("mask_truncated_completions") is True:
        return "; truncated answers are left out of it"
    share = "" if cut is None or not cut.any() else f" ({pct(float(cut.mean()))})"
    return f"; truncated answers{share} count in it" if facts.get("mask_truncated_completions") is False else ""

"""This run shows a pair whose logprobs differ in temperature or in the base of the logarithm.

What: r is proportional to the logprob itself: R^2 above 0.8 for pairs that should agree (engine, old and current
policy). Against the reference, early in the run: a clearly positive slope with R^2 above 0.4; r negative on more than
85% of tokens, which cannot happen on tokens that the policy sampled (their mean r is a KL, never negative); or, in the
first steps, r of one sign on as many tokens and the fraction of the logprob that base 2 or 10 gives. Or, from a step on
or until one, the ratio of both logprobs jumps by a third or more, while the other column stays what it was and tokens
lie as close to the new curve as to the old.
Why it matters: raw logprobs (before temperature) against scaled ones leave r = (1/T - 1) log p on every token, a heavy
tail without any learning; importance weights then punish rare tokens.
What to do: have the engine return processed logprobs, or divide the trainer's logits by the temperature as well.
Source: vLLM's default `logprobs_mode` is raw; slope 1/T - 1 of r on the denominator.
"""

import math

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.column_faults import ColumnFault
from ptt.diagnostics.evidence.mismatch_tokens import GROWING
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import (
    BLOCKS,
    column_finding,
    columns_of,
    extent,
    recorded_validity,
    shared_column,
    since_when,
)
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.statistics.column_faults import MIN_JUMP
from ptt.diagnostics.statistics.pair_sample import PairSample
from ptt.diagnostics.wording import pct, sig

MIN_R2_NEAR = 0.8  # R^2 of pairs that should agree: 0.2 at most in sound runs
MIN_R2_DRIFT = 0.4  # R^2 against the reference: drift itself has a negative slope (r falls where ref was high)
MIN_SLOPE_NEAR = 0.05  # T = 0.95: smaller mismatches drown in kernel noise
MIN_SLOPE_DRIFT = 0.2
MIN_NEGATIVE_SHARE = 0.85  # of tokens early in the run: 0.47 to 0.62 in sound runs
MIN_TOKENS = 1000
MIN_FACTOR = math.exp(MIN_JUMP)  # factor by which the ratio of both logprobs jumps
BASES = {2: math.log(2), 10: math.log(10)}  # a logprob to base b is 1 / log(b) times the natural one
MAX_BASE_ERROR = 0.06  # of r over the logprob, around a base's value: a few steps' drift moves its median by this much
EFFECT = "r = (1/T - 1) log p on every token: it is in tails, ESS, E[rho^2] and KL"
DRIFT_PAIRS = ("policy/ref", "old/ref")


@requires(recorded_validity)
def check(validity: Validity, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the line of r on the logprob."""
    bases = {pair: first for pair, first in validity.first.items() if _base_of(first, limits) is not None}
    scaled = bases | {
        pair: early
        for pair, (_, early) in validity.pairs.items()
        if early is not None and pair not in bases and _is_scaled(pair, early, limits)
    }
    parts = tuple(
        _part(fault)
        for fault in evidence.column_faults
        if fault.found.kind == "scaled"
        and abs(math.log(fault.found.during)) >= math.log(limits["jump"])
        and not _grew(fault, evidence)
    )
    if not scaled:
        return Broken(findings=parts) if parts else Healthy(reason="no pair's r is proportional to its logprob")
    return Broken(findings=(_whole(scaled, validity, limits), *parts))


def _grew(fault: ColumnFault, evidence: Evidence) -> bool:
    """Return whether the two drew apart with the updates and by the token: no temperature does, and it jumps."""
    pattern = evidence.mismatch_pattern
    return fault.pairs[0].endswith("/rollout") and pattern is not None and pattern.name in GROWING


def _whole(scaled: dict[str, PairSample], validity: Validity, limits: Limits) -> Finding:
    pair, early = max(scaled.items(), key=lambda item: np.nan_to_num(item[1].r_squared))
    fitted = math.isfinite(early.slope)
    return Finding(
        severity=Severity.HIGH,
        claim=_claim(pair, early, limits),
        observed=early.slope if fitted else early.negative_share,
        limit=None,
        unit="slope" if fitted else "share",
        evidence={
            "pair": pair,
            "pairs": ", ".join(scaled),
            "slope": early.slope if fitted else None,
            "r_squared": early.r_squared if math.isfinite(early.r_squared) else None,
            "negative_share": early.negative_share,
            "sampled_tokens": early.tokens,
            **extent(validity.extent, EFFECT),
            BLOCKS: shared_column(scaled, next(iter(scaled))),
        },
        causes=("raw logprobs on one side, temperature-scaled ones on the other", "logarithms to base 2 on one side"),
        next=("set the engine's logprobs mode to processed, or apply the temperature to the trainer's logits",),
    )


def _part(fault: ColumnFault) -> Finding:
    top, bottom = columns_of(fault)
    return column_finding(
        fault,
        Severity.HIGH,
        f"{bottom} is {sig(fault.found.during)} times what goes with {top}{since_when(fault)}, in the median: "
        f"{fault.column or 'one of them'} is taken at another temperature or to another base there",
        limit=1.0,
        unit="x",
        evidence={"pairs": ", ".join(fault.pairs)},
        effect=EFFECT,
        causes=("the temperature of sampling or scoring was changed on one side", "logarithms to base 2 on one side"),
        next=("compare the temperature and the logprobs mode of both sides before and after that step",),
    )


def _is_scaled(pair: str, early: PairSample, limits: Limits) -> bool:
    if pair in DRIFT_PAIRS:
        fits = early.slope > MIN_SLOPE_DRIFT and early.r_squared > limits["fit_drift"]
        return fits or (early.tokens >= MIN_TOKENS and early.negative_share > limits["negative_share"])
    return abs(early.slope) > MIN_SLOPE_NEAR and early.r_squared > limits["fit_near"]


def _base_of(first: PairSample, limits: Limits) -> int | None:
    """Return the log base of one side, from r over the logprob in the first steps; None if no base fits."""
    sided = max(first.negative_share, 1 - first.negative_share) > limits["negative_share"]
    if not sided or first.tokens < MIN_TOKENS:
        return None
    ratios = {base: (size - 1, 1 / size - 1) for base, size in BASES.items()}
    near = [base for base, both in ratios.items() if min(abs(first.usual_ratio - one) for one in both) < MAX_BASE_ERROR]
    return near[0] if near else None


def _claim(pair: str, early: PairSample, limits: Limits) -> str:
    base = _base_of(early, limits)
    if base is not None:
        return (
            f"r of {pair} is {sig(early.usual_ratio)} times the logprob in the median and of one sign, as if one "
            f"side used base {base}"
        )
    if math.isfinite(early.slope) and early.r_squared > limits["fit_drift"]:
        return (
            f"r of {pair} is {sig(early.slope)} times the logprob (R² {early.r_squared:.2f}), as if one side were "
            f"taken at {sig(1 / (1 + early.slope))} times the temperature of the other"
        )
    return (
        f"r of {pair} is negative on {pct(early.negative_share)} of tokens early in the run, as if only the policy's "
        "side were divided by a temperature"
    )


RULE = rule(
    check,
    "scaled-logprobs",
    Link.DATA_VALIDITY,
    fit_near=MIN_R2_NEAR,
    fit_drift=MIN_R2_DRIFT,
    negative_share=MIN_NEGATIVE_SHARE,
    jump=MIN_FACTOR,
)

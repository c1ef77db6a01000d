"""This run shows two logprob columns that are copies of each other.

What: r is exactly 0 (below 1e-12) on 99.9% of tokens of a pair, over the whole run, although the policy moved: a KL or
a gradient is logged, or another pair differs. It holds for the pair in use, and (as a low finding) for the engine's
logprobs beside the trainer's. Where nothing recorded shows whether the policy moved, the finding says so. Or r is 0 on
as many tokens that are not nearly certain from a step on, until a step, or in one slice, and differs otherwise.
Why it matters: the pair then carries no information: no tail, no ratio, an ESS of 1 by construction. It looks perfectly
healthy.
What it is not: a policy that does not move (the learning rate is 0, or only steps before the first update are
recorded, or of old logprobs only the first batch of rollouts), numbers too coarse for so small a KL, or old logprobs
beside the policy's where each batch gets one update. All these are reported as notes, and no tail is judged on
the pair.
What to do: record the policy at its training forward pass. With a single update per batch, policy and old are equal by
definition, and veRL's bypass mode sets old to the engine's.
Source: veRL bypass_mode, slime use_rollout_logprobs, NeMo-RL force_on_policy_ratio, TRL without vLLM.
"""

import math

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.column_faults import ColumnFault
from ptt.diagnostics.evidence.tails import Tails
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import (
    BLOCKS,
    NONE_RECORDED,
    column_finding,
    columns_of,
    extent,
    recorded_validity,
    since_when,
)
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.wording import pct, sig

ZERO_SHARE = 0.999  # of tokens
MOVED = ("kl/ref", "kl/old", "grad_norm")  # above 0 only if the policy moves
MIN_KL = 1e-7  # nats a token: below it a logged KL is rounding
ENGINE_PAIRS = ("old/rollout", "policy/rollout", "prox/rollout")
MIN_EDGE = 0.5  # of the usual |r|, next to a copy: a policy that only begins to move starts at a small part of it
MIN_COARSE_TOKENS = (
    10_000  # this many agree to the last bit of a coarse type only in copies: noise crosses some rounding boundary
)
EFFECT = "tails, ratios and KL of the pair are 0 and its ESS is 1 whatever happens"


@requires(recorded_validity)
def check(validity: Validity, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of exact zeros of the pair in use, and of the engine's pairs."""
    tails = evidence.tails
    if tails is None or not tails.tokens:
        return NONE_RECORDED
    parts = tuple(_part(fault) for fault in evidence.column_faults if _is_part(fault, validity, evidence, limits))
    engine = [pair for pair in ENGINE_PAIRS if pair != tails.pair and _same(validity, pair, limits)]
    copies = [_engine(engine, validity, limits)] if engine else []
    if tails.zero_share > limits["copied"]:
        still = _why_still(tails, validity, evidence)
        return Broken(findings=(_finding(tails, validity, evidence, limits, still), *copies, *parts))
    if copies or parts:
        return Broken(findings=(*parts, *copies))
    return Healthy(reason=f"r of {tails.pair} is 0 on {pct(tails.zero_share)} of tokens")


def _is_part(fault: ColumnFault, validity: Validity, evidence: Evidence, limits: Limits) -> bool:
    """Return whether columns that are not equal all along are copies at some steps or in a slice."""
    found, pair = fault.found, fault.pairs[0]
    if found.kind != "copied" or found.during <= limits["copied"] or pair == "policy/old":
        return False
    if fault.whole_run and found.slice is None:
        return pair == "old/ref" and evidence.tails is not None and evidence.tails.pair != pair
    return not fault.span.from_start or _moved_meanwhile(fault, validity, evidence)


def _moved_meanwhile(fault: ColumnFault, validity: Validity, evidence: Evidence) -> bool:
    """Return whether a policy that equals the other column from the start had left it all the same.

    A policy that only then begins to move is near it in the next steps; one that was copied is where it got to.
    """
    pair, kl = fault.pairs[0], evidence.metrics.get("kl/ref")
    coarse = any(f"{side}_logp" in validity.rounding for side in pair.split("/"))
    if kl is not None and pair.endswith("/ref") and not coarse:
        steps, values = kl.finite()
        inside = values[(steps >= fault.span.since) & (steps <= fault.span.until)]
        if len(inside):
            return float(np.median(np.abs(inside))) > MIN_KL
    return fault.found.edge > MIN_EDGE


def _part(fault: ColumnFault) -> Finding:
    found, (top, bottom) = fault.found, columns_of(fault)
    otherwise = f", and on {pct(found.otherwise)} otherwise" if math.isfinite(found.otherwise) else ""
    if fault.whole_run:
        cause = "old logprobs are taken from the reference's pass, or the reference is the old policy"
        step = f"look which forward pass {top} and {bottom} are taken from"
    else:
        cause = "the writer takes one column from the other from a restart or a switch on"
        step = f"compare how {top} and {bottom} are filled before and after that step"
    return column_finding(
        fault,
        Severity.LOW if fault.pairs[0] in ENGINE_PAIRS else Severity.MEDIUM,
        f"{top} and {bottom} are one number{since_when(fault)} (r is 0 on {pct(found.during)} of tokens that "
        f"are not nearly certain{otherwise}): one is a copy of the other",
        limit=ZERO_SHARE,
        unit="share",
        evidence={"share_otherwise": found.otherwise if math.isfinite(found.otherwise) else None},
        effect=EFFECT,
        causes=(cause,),
        next=(step,),
    )


def _same(validity: Validity, pair: str, limits: Limits) -> bool:
    """Return whether a pair's logprobs are equal; coarse ones must all be, and many."""
    whole, _ = validity.pairs.get(pair, (None, None))
    if whole is None or whole.zero_share <= limits["copied"]:
        return False
    coarse = any(f"{side}_logp" in validity.rounding for side in pair.split("/"))
    return not coarse or (whole.zero_share == 1.0 and whole.tokens >= MIN_COARSE_TOKENS)


def _why_still(tails: Tails, validity: Validity, evidence: Evidence) -> str | None:
    """Return why both logprobs may be equal although neither is a copy, or None."""
    if tails.pair == "policy/old":
        return "policy and old logprobs are equal where each batch gets one update"
    rate = _largest(evidence, "lr")
    set_rate = evidence.run.context.get("learning_rate")
    if rate == 0.0 or (rate is None and set_rate == 0 and not isinstance(set_rate, bool)):
        return "the learning rate is 0, so the policy does not move"
    if _largest(evidence, "grad_norm") == 0.0:
        return "every gradient is 0, so the policy does not move"
    if tails.steps == 1:
        return "only one step is recorded, and before its first update a policy equals its reference"
    if tails.pair.startswith("old/") and tails.observations == 1:
        return "one batch of rollouts is recorded, and before its first update a policy equals its reference"
    kl = _largest(evidence, "kl/ref")
    spacing = max((one.spacing for one in validity.rounding.values()), default=0.0)
    if kl is not None and tails.pair.endswith("/ref") and math.sqrt(2 * kl) < spacing:
        return f"the logged KL is {sig(kl)} at most, and the recorded numbers are {sig(spacing)} nats apart"
    return None


def _largest(evidence: Evidence, name: str) -> float | None:
    """Return the greatest size of a logged metric's values, None where it is not logged."""
    series = evidence.metrics.get(name)
    values = series.finite()[1] if series is not None else np.empty(0)
    return float(np.abs(values).max()) if len(values) else None


def _moved(tails: Tails, validity: Validity, evidence: Evidence, limits: Limits) -> str | None:
    """Return what says that the policy moved, or None."""
    for name in MOVED:
        largest = _largest(evidence, name)
        if largest is not None and largest > MIN_KL:
            return f"{evidence.metrics[name].raw_name} reaches {sig(largest)}"
    sides = set(tails.pair.split("/"))
    for pair, (whole, _) in validity.pairs.items():
        if (
            whole is not None
            and pair == "policy/old"
            and sides & {"policy", "old"}
            and not _same(validity, pair, limits)
        ):
            return f"{pair} differs"
    return None


def _finding(tails: Tails, validity: Validity, evidence: Evidence, limits: Limits, still: str | None) -> Finding:
    same = f"r of {tails.pair} is 0 on {pct(tails.zero_share)} of tokens"
    moved = None if still else _moved(tails, validity, evidence, limits)
    if still:
        claim = f"{same}: {still}"
    elif moved:
        claim = f"{same}, although {moved}: one logprob is a copy of the other"
    else:
        claim = (
            f"{same}: either one logprob is a copy of the other or the policy does not move; nothing logged shows which"
        )
    return Finding(
        severity=Severity.INFO if still else Severity.MEDIUM,
        claim=claim,
        observed=tails.zero_share,
        limit=limits["copied"],
        unit="share",
        evidence={
            "pair": tails.pair,
            "still": still,
            "moved": moved,
            **extent(validity.extent, EFFECT),
            BLOCKS: tails.pair,
        },
        causes=(still,)
        if still
        else ("the trainer reuses the engine's or the old logprobs", "the reference is the policy itself"),
        next=("record a pair of two policies: the training forward pass, and a frozen reference or the engine",)
        if still
        else ("record the logprobs of the training forward pass and of a frozen reference",),
    )


def _engine(pairs: list[str], validity: Validity, limits: Limits) -> Finding:
    share = max(whole.zero_share for pair in pairs if (whole := validity.pairs[pair][0]) is not None)
    return Finding(
        severity=Severity.LOW,
        claim=f"r of {' and '.join(pairs)} is 0 on {pct(share)} of tokens: rollout_logp is a copy of the trainer's, so "
        "a mismatch of trainer and engine cannot show",
        observed=share,
        limit=limits["copied"],
        unit="share",
        evidence={"pair": pairs[0], **extent(validity.extent, EFFECT)},
        causes=(
            "the trainer's logprobs were written in place of the engine's",
            "old logprobs are taken from the engine",
        ),
        next=("record the logprobs that the engine itself returned with the samples",),
    )


RULE = rule(check, "copied-logprobs", Link.DATA_VALIDITY, max_severity=Severity.MEDIUM, copied=ZERO_SHARE)

"""This run shows a pair whose two logprobs are copies of each other.

What: r is exactly 0 (below 1e-12) on 99.9 % of tokens of a pair, over the whole run.
Why it matters: the pair then says nothing: no tail, no ratio, ESS of 1 by construction. It reads as perfectly healthy.
What to do: record the policy at its training forward; with a single update a batch policy and old are the same by
nature, and veRL's bypass mode sets old to the engine's.
Source: veRL bypass_mode, slime use_rollout_logprobs, NeMo-RL force_on_policy_ratio, TRL without vLLM.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, NONE_RECORDED, extent, recorded_validity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule

ZERO_SHARE = 0.999  # of tokens


@requires(recorded_validity)
def check(validity: Validity, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of exact zeros of the pair in use."""
    tails = evidence.tails
    if tails is None or not tails.tokens:
        return NONE_RECORDED
    if tails.zero_share <= limits["copied"]:
        return Healthy(reason=f"r of {tails.pair} is 0 on {tails.zero_share:.1%} of tokens")
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"r of {tails.pair} is 0 on {tails.zero_share:.1%} of tokens: one logprob is a copy of the other",
        observed=tails.zero_share,
        limit=limits["copied"],
        unit="share",
        evidence={
            "pair": tails.pair,
            **extent(validity.extent, "tails, ratios and KL of the pair are 0 and its ESS is 1 whatever happens"),
            BLOCKS: tails.pair,
        },
        causes=("the trainer reuses the engine's or the old logprobs", "the reference is the policy itself"),
        next=("record the logprobs of the training forward and of a frozen reference",),
    )


RULE = rule(check, "copied-logprobs", Link.DATA_VALIDITY, max_severity=Severity.MEDIUM, copied=ZERO_SHARE)

"""This run shows engine logprobs renormalised over a truncated vocabulary.

What: r of trainer against engine is negative on nearly all tokens (95%), by more than 0.01 nats in the median.
Why it matters: under top-p or top-k the engine divides by the kept mass S and the trainer does not: r = log S on every
token, a one-sided bias that importance weights carry into the loss.
What to do: sample with top_p = 1 and top_k off, or replay the kept set in the trainer.
Source: processed logprobs are renormalised over the kept set; median shift log S.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, early_engine_pairs, extent, recorded_validity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.wording import pct, sig

ONE_SIDED_SHARE = 0.95  # of tokens: kernel noise leaves 0.5 to 0.75 on either side
MIN_SHIFT = 0.01  # nats: S below 0.99
MAX_R2 = 0.5  # of r on the logprob: a temperature mismatch is one-sided too, and has its own rule
PAIRS = ("policy/rollout", "old/rollout", "prox/rollout")


@requires(recorded_validity)
def check(validity: Validity, _: Evidence, limits: Limits) -> Verdict:
    """Judge the sign of r against the engine."""
    samples = early_engine_pairs(validity, PAIRS)
    if isinstance(samples, NotJudged):
        return samples
    for pair, early in samples.items():
        if (
            early.negative_share > limits["one_sided"]
            and early.median_r < -limits["shift"]
            and not early.r_squared > MAX_R2
        ):
            return Finding(
                severity=Severity.MEDIUM,
                claim=f"r of {pair} is negative on {pct(early.negative_share)} of tokens, by "
                f"{sig(early.median_r)} nats in the median: the engine's logprobs are "
                "renormalised over fewer tokens",
                observed=early.median_r,
                limit=-limits["shift"],
                unit="nats",
                evidence={
                    "pair": pair,
                    "negative_share": early.negative_share,
                    **extent(validity.extent, "r is shifted by log S on every token: mean ratio and KL are biased"),
                    BLOCKS: pair,
                },
                causes=("top_p or top_k sampling with processed logprobs",),
                next=("rerun ten steps with top_p = 1 and top_k off and look at the median of r",),
            )
    return Healthy(reason="r against the engine is not one-sided")


RULE = rule(
    check,
    "truncated-support",
    Link.DATA_VALIDITY,
    max_severity=Severity.MEDIUM,
    one_sided=ONE_SIDED_SHARE,
    shift=MIN_SHIFT,
)

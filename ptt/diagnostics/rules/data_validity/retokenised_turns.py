"""This run shows log-ratios against the engine that are large exactly where a turn begins.

What: more than half of the largest 1% of |r| between trainer and engine sit on the first token after an observation,
and they matter (apart from the median shift, |r| of such tokens decides the tail).
Why it matters: the trainer scores different token ids from those the engine sampled: text was decoded and encoded again
between turns, and the boundary tokens merged differently.
What to do: carry token ids from turn to turn instead of text; compare ids of one multi-turn sequence.
Source: retokenisation drift is reported by several multi-turn trainers; r concentrates at turn boundaries.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, early_engine_pairs, extent, recorded_validity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.wording import pct

MIN_BOUNDARY_SHARE = 0.5  # of the largest 1% of |r|
MIN_P99 = 0.5  # nats: the 99th percentile; kernel noise concentrates at boundaries too, but is far smaller
PAIRS = ("old/rollout", "policy/rollout", "prox/rollout")


@requires(recorded_validity)
def check(validity: Validity, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge where the largest |r| against the engine sit."""
    samples = early_engine_pairs(validity, PAIRS)
    if isinstance(samples, NotJudged):
        return samples
    pattern = evidence.mismatch_pattern
    if "old/rollout" in samples and (pattern is None or pattern.name != "at_boundaries"):
        # where a turn begins tokens are unlikely: r is large there for the noise of logits alone
        return Healthy(reason="the logits differ no more where turns begin")
    for pair, early in samples.items():
        if early.boundary_share > limits["share"] and early.p99 > limits["material"]:
            return Finding(
                severity=Severity.MEDIUM,
                claim=f"{pct(early.boundary_share)} of the largest |r| of {pair} sit on the first token of a turn: the "
                "trainer scores different tokens from those the engine sampled",
                observed=early.boundary_share,
                limit=limits["share"],
                unit="share",
                evidence={
                    "pair": pair,
                    "share_of_tokens": early.boundary_tokens,
                    **extent(validity.extent, "the tail, ESS and E[rho^2] of the pair come from turn boundaries"),
                    BLOCKS: pair,
                },
                causes=("text is decoded and encoded again between turns",),
                next=("compare the engine's and the trainer's token ids of one multi-turn sequence",),
            )
    return Healthy(reason="large |r| against the engine do not cluster where turns begin")


RULE = rule(
    check,
    "retokenised-turns",
    Link.DATA_VALIDITY,
    max_severity=Severity.MEDIUM,
    share=MIN_BOUNDARY_SHARE,
    material=MIN_P99,
)

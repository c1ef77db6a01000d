"""This run shows tool output that is marked as sampled by the policy.

What: the logged frequency says that tools are called, but fewer than a quarter of the sequences that should hold an
observation do.
Why it matters: tool tokens in the mask are trained on. Their log-ratios, on text the policy never chose, enter every
statistic, and the post-tool slice is empty or wrong.
What to do: compare the mask with the roles of the messages; tool output and template tokens must be false.
Source: `tool_mask`, `response_mask` and `loss_mask` differ in name and meaning between frameworks; a wrong one trains
on tool output without any error.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, extent, recorded_validity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.wording import pct

MIN_USE = 0.2  # calls a sample: with fewer there is too little to compare
MIN_OBSERVED_SHARE = 0.25  # of the expected share


@requires(recorded_validity)
def check(validity: Validity, evidence: Evidence, limits: Limits) -> Verdict:
    """Hold the recorded observations against the logged tool calls."""
    series = evidence.metrics.get("tools/call_frequency")
    if series is None or len(series.finite()[0]) < MIN_LOGGED:
        return NotJudged(
            reason="no tool-call frequency is logged to compare the masks with",
            missing=("tools/call_frequency",),
            enable="log tool calls per sample (TRL does with tools), or record tool_names with the sequences",
        )
    expected = float(np.minimum(series.finite()[1], 1.0).mean())
    if expected < MIN_USE or validity.observed_share >= limits["observed"] * expected:
        return Healthy(
            reason=f"{pct(validity.observed_share)} of sequences contain an observation; {pct(expected)} call a tool"
        )
    return Finding(
        severity=Severity.HIGH,
        claim=f"Tools are called in about {pct(expected)} of samples, but only {pct(validity.observed_share)} of "
        "recorded sequences contain an observation: tool output is marked as the policy's own",
        observed=validity.observed_share,
        limit=limits["observed"] * expected,
        unit="share",
        held_from_step=evidence.run.first_step,
        evidence={
            "expected_share": expected,
            "logged_as": series.raw_name,
            **extent(validity.extent, "tool output counts as sampled, and post-tool tokens as text-only"),
            BLOCKS: "all",
        },
        causes=("the mask of trained tokens counts tool output", "a padding mask was written instead"),
        next=("print tokens and mask of one sequence with a tool call: the tool's answer must be false",),
    )


RULE = rule(check, "unmasked-tools", Link.DATA_VALIDITY, observed=MIN_OBSERVED_SHARE)

"""This run shows tool output that is marked as sampled by the policy.

What: sequences name the tools they called, and in a fifth of them or more the mask marks every token. Or whole runs of
marked tokens are text that the policy all but never samples. Or the logged frequency says that tools are called, but
fewer than a quarter of the sequences that should hold an observation do. Each is looked for window by window.
Why it matters: tool tokens in the mask are trained on. Their log-ratios, on text the policy never chose, enter every
statistic, and the post-tool slice is empty or wrong.
What to do: compare the mask with the roles of the messages; tool output and template tokens must be false.
Source: `tool_mask`, `response_mask` and `loss_mask` differ in name and meaning between frameworks; a wrong one trains
on tool output without any error.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.mask import MIN_OBSERVED, MIN_WHOLE, MaskEvidence
from ptt.diagnostics.evidence.series import MIN_LOGGED
from ptt.diagnostics.evidence.validity import Extent, Validity
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, dates_of, extent, recorded_validity, when_words
from ptt.diagnostics.rules.data_validity.surprisal_off_entropy import in_runs
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.statistics.fault_since import FaultSpan
from ptt.diagnostics.wording import pct, sig

MIN_UNLIKELY = 0.05  # of marked tokens: 0.03 at most if the policy sampled them all
MIN_LAG = 1.0  # versions behind, on average: older than the freshest rollouts of the run
CLAIM = "tool output is marked as the policy's own"


@requires(recorded_validity)
def check(validity: Validity, evidence: Evidence, limits: Limits) -> Verdict:
    """Hold the masks against the tools that are named, the surprisal of what they mark, and logged tool calls."""
    mask = evidence.mask
    verdicts = [_named(mask, limits), _surprising(mask, evidence, limits)] if mask is not None else []
    verdicts.append(_logged(validity, evidence, limits))
    for kind in (Finding, Healthy):
        for verdict in verdicts:
            if isinstance(verdict, kind):
                return verdict
    return NotJudged(
        reason="neither tool names nor a tool-call frequency is recorded to compare the masks with",
        missing=("tool_names", "tools/call_frequency"),
        enable="log tool calls per sample (TRL does with tools), or record tool_names with the sequences",
    )


def _named(mask: MaskEvidence, limits: Limits) -> Finding | Healthy | None:
    """Judge the sequences that name tools."""
    calls = mask.calls
    if calls is None:
        return None
    span = calls.span
    if span is None or calls.share < limits["whole"]:
        return Healthy(
            reason=f"in {pct(1 - calls.share)} of the sequences that name a tool, the mask leaves tokens out"
        )
    if span.from_start and span.to_end and _all_sampled(mask):
        return Healthy(reason="tool output is not among the recorded tokens: the policy sampled all that are marked")
    return _finding(
        f"In {pct(calls.share)} of the sequences that name a tool every token is marked as sampled"
        f" {when_words(span)}: {CLAIM}",
        calls.share,
        limits["whole"],
        span,
        mask.extents[span],
        {"witness": "tool_names"},
    )


def _all_sampled(mask: MaskEvidence) -> bool:
    sampled = mask.sampled
    return sampled is not None and sampled.whole.tokens > 0 and sampled.excess is None


def _surprising(mask: MaskEvidence, evidence: Evidence, limits: Limits) -> Finding | None:
    """Judge the runs of tokens that the policy rarely samples."""
    sampled = mask.sampled
    excess = sampled.excess if sampled is not None and sampled.inversion is None else None
    if excess is None or excess.unlikely < limits["unlikely"] or not in_runs(excess):
        return None
    if _is_stale(evidence, excess.span):
        return None
    return _finding(
        f"Whole runs of marked tokens are ones that the policy all but never samples {when_words(excess.span)} "
        f"({sig(excess.inside.surprisal)} nats in the mean, at an entropy of {sig(excess.inside.entropy)}): {CLAIM}",
        excess.unlikely,
        limits["unlikely"],
        excess.span,
        mask.extents[excess.span],
        {"witness": "entropy"},
    )


def _is_stale(evidence: Evidence, span: FaultSpan) -> bool:
    """Return whether an older policy sampled the tokens, which makes whole sequences unlikely."""
    lag = evidence.freshness.lag if evidence.freshness is not None else None
    if lag is None:
        return False
    steps, values = lag.finite()
    inside = values[span.holds(steps)]
    return len(inside) > 0 and float(inside.mean()) >= MIN_LAG


def _logged(validity: Validity, evidence: Evidence, limits: Limits) -> Finding | Healthy | None:
    """Hold the recorded observations against the logged tool calls, over the run and window by window."""
    series = evidence.metrics.get("tools/call_frequency")
    if series is None or len(series.finite()[0]) < MIN_LOGGED:
        return None
    expected = float(np.minimum(series.finite()[1], 1.0).mean())
    mask = evidence.mask
    found = mask.unobserved if mask is not None else None
    if mask is not None and found is not None and found.observed < limits["observed"] * found.expected:
        return _finding(
            f"Tools are called in about {pct(found.expected)} of samples, but only {pct(found.observed)} of recorded "
            f"sequences contain an observation {when_words(found.span)}: {CLAIM}",
            found.observed,
            limits["observed"] * found.expected,
            found.span,
            mask.extents[found.span],
            {"witness": "logged calls", "expected_share": found.expected, "logged_as": series.raw_name},
        )
    return Healthy(
        reason=f"{pct(validity.observed_share)} of sequences contain an observation; {pct(expected)} call a tool"
    )


def _finding(
    claim: str, observed: float, limit: float, span: FaultSpan, held: Extent, facts: dict[str, JsonScalar]
) -> Finding:
    return Finding(
        severity=Severity.HIGH,
        claim=claim,
        observed=observed,
        limit=limit,
        unit="share",
        **dates_of(span),
        evidence={
            **facts,
            **extent(held, "tool output counts as sampled, and post-tool tokens as text-only"),
            BLOCKS: "all",
        },
        causes=("the mask of trained tokens counts tool output", "a padding mask was written instead"),
        next=("print tokens and mask of one sequence with a tool call: the tool's answer must be false",),
    )


RULE = rule(
    check,
    "unmasked-tools",
    Link.DATA_VALIDITY,
    max_severity=Severity.HIGH,
    observed=MIN_OBSERVED,
    whole=MIN_WHOLE,
    unlikely=MIN_UNLIKELY,
)

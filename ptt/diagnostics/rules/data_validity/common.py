"""What the rules on data validity share: the answer without sequences, and how a finding says what it contaminates."""

from __future__ import annotations

from ptt.diagnostics.evidence import Evidence, Validity
from ptt.diagnostics.model import Healthy, Link, NotJudged

BLOCKS = "contaminates"
"""Key of a finding's evidence: the pairs whose tails are not to be judged while it stands, or "all"."""


def none_recorded(rule: str) -> NotJudged:
    """Say that there are no logprobs to judge."""
    return NotJudged(
        id=rule,
        link=Link.DATA_VALIDITY,
        reason="no per-token logprobs are recorded",
        missing=("policy_logp", "ref_logp", "model_mask"),
        enable="write recorder files: docs/recorder.md",
    )


def sound(rule: str, reason: str) -> Healthy:
    """Say that a rule found nothing."""
    return Healthy(id=rule, link=Link.DATA_VALIDITY, reason=reason)


def validity_of(evidence: Evidence) -> Validity | None:
    """Give what is known of the recorded logprobs, if any are."""
    return evidence.validity if evidence.validity is not None and evidence.validity.sequences else None

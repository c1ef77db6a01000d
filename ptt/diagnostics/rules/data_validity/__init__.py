"""What the rules on data validity share: the answer without sequences, and how a finding says what it contaminates."""

from __future__ import annotations

from typing import Protocol

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.rules.interface import NotJudged

BLOCKS = "contaminates"
"""Key of a finding's evidence: the pairs whose tails are not to be judged while it stands, or "all"."""


class Counted(Protocol):
    """What says how much of the records it is."""

    @property
    def tokens(self) -> int | None: ...  # noqa: D102
    @property
    def sequences(self) -> int | None: ...  # noqa: D102
    @property
    def first_step(self) -> int | None: ...  # noqa: D102
    @property
    def last_step(self) -> int | None: ...  # noqa: D102
    @property
    def files(self) -> int | None: ...  # noqa: D102
    @property
    def example(self) -> str | None: ...  # noqa: D102


def extent(what: Counted, effect: str) -> dict[str, JsonScalar]:
    """Say, as a finding's evidence, how much it concerns and what it does to which statistic.

    Every finding of this link carries these keys; `tokens` are model tokens, `example` is one of the files.
    """
    return {
        "tokens": what.tokens,
        "sequences": what.sequences,
        "first_step": what.first_step,
        "last_step": what.last_step,
        "files": what.files,
        "example": what.example,
        "effect": effect,
    }


def none_recorded() -> NotJudged:
    """Say that there are no logprobs to judge."""
    return NotJudged(
        reason="no pair of per-token logprobs is recorded",
        missing=("policy_logp", "ref_logp", "model_mask"),
        enable="write recorder files: docs/recorder.md",
    )


def validity_of(evidence: Evidence) -> Validity | None:
    """Give what is known of the recorded logprobs, if any are."""
    return evidence.validity if evidence.validity is not None and evidence.validity.sequences else None

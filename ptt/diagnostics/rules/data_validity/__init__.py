"""What the rules on data validity share: the recorded logprobs, and how a finding says what it contaminates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.column_faults import ColumnFault
from ptt.diagnostics.evidence.mask import SampledMasks
from ptt.diagnostics.evidence.validity import AnomalyCount, Extent, MissingLogprobs, Validity
from ptt.diagnostics.model import JsonScalar, Severity
from ptt.diagnostics.rules.interface import Finding, NotJudged
from ptt.diagnostics.statistics.fault_since import FaultSpan
from ptt.diagnostics.statistics.pair_sample import PairSample
from ptt.diagnostics.statistics.slices import SLICES

OTHER_TOKENS = "r compares different tokens: tails, ESS, E[rho^2] and KL of the pair mean nothing"
BLOCKS = "contaminates"
"""Key of a finding's evidence: the pairs whose tails must not be judged while the finding holds, or "all"."""


def extent(what: Extent | AnomalyCount | MissingLogprobs, effect: str) -> dict[str, JsonScalar]:
    """Return, as evidence, how much of the records a finding affects and what it does to which statistic.

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


NONE_RECORDED = NotJudged(
    reason="no pair of per-token logprobs is recorded",
    missing=("policy_logp", "ref_logp", "model_mask"),
    enable="write recorder files: docs/recorder.md",
    absent=True,
)


def recorded_validity(evidence: Evidence) -> Validity | NotJudged:
    """Return what is known about the recorded logprobs, or that no pair of them is recorded."""
    if evidence.validity is not None and evidence.validity.sequences:
        return evidence.validity
    return replace(NONE_RECORDED, missing=evidence.tails_missing) if evidence.recorded_logps else NONE_RECORDED


def when_words(span: FaultSpan) -> str:
    """Say when a fault holds, as a sentence goes on: "from step 61 on", "up to step 60"."""
    if span.from_start:
        return "at all steps" if span.to_end else f"up to step {span.until}"
    return f"from step {span.since} on" if span.to_end else f"from step {span.since} to {span.until}"


def dates_of(span: FaultSpan) -> dict[str, Any]:
    """Return since when a fault holds, as a finding has it: what holds at the first recorded step has no onset."""
    if span.from_start:
        return {"held_from_step": span.since}
    return {"onset_step": span.since, "onset_interval": span.since_interval}


def sampled_masks(evidence: Evidence) -> tuple[SampledMasks, Mapping[FaultSpan, Extent]] | NotJudged:
    """Return what sequences spread over the run show about the masks, or that none could be read."""
    mask = evidence.mask
    return (mask.sampled, mask.extents) if mask is not None and mask.sampled is not None else NONE_RECORDED


def early_engine_pairs(validity: Validity, pairs: Iterable[str]) -> dict[str, PairSample] | NotJudged:
    """Return the early samples of those pairs against the engine that are recorded, in their order."""
    samples = {pair: early for pair in pairs if pair in validity.pairs and (early := validity.pairs[pair][1])}
    return samples or NotJudged(
        reason="no engine logprobs are recorded",
        missing=("rollout_logp",),
        enable="record the inference engine's own logprobs as rollout_logp",
        absent=True,
    )


def since_when(fault: ColumnFault) -> str:
    """Return, as a part of a sentence, where and when a fault holds: " after the first observation from step 61 on"."""
    places = {None: "", SLICES[0]: " before any observation", SLICES[1]: " after the first observation"}
    place = places[fault.found.slice]
    return place if fault.whole_run else f"{place} {when_words(fault.span)}"


def blocked_by(fault: ColumnFault) -> str:
    """Return what the fault contaminates: the column that several pairs have in common, or the pair."""
    return fault.column or fault.pairs[0]


def columns_of(fault: ColumnFault) -> tuple[str, str]:
    """Return the names of the two columns that a fault lies between."""
    top, bottom = fault.pairs[0].split("/")
    return f"{top}_logp", f"{bottom}_logp"


def column_finding(
    fault: ColumnFault, severity: Severity, claim: str, *, effect: str, evidence: dict[str, JsonScalar], **more: Any
) -> Finding:
    """Return what is found of two columns at some steps or in a slice; `more` are other fields of the finding."""
    return Finding(
        severity=severity,
        claim=claim,
        observed=fault.found.during,
        slice=fault.found.slice,
        **dates_of(fault.span),
        evidence={"pair": fault.pairs[0], **evidence, **extent(fault.extent, effect), BLOCKS: blocked_by(fault)},
        **more,
    )


def shared_column(pairs: Collection[str], otherwise: str) -> str:
    """Return the logprob column that several pairs have in common, or `otherwise`."""
    common = set.intersection(*(set(pair.split("/")) for pair in pairs))
    return f"{common.pop()}_logp" if len(pairs) > 1 and len(common) == 1 else otherwise

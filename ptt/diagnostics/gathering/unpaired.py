"""Say of a run whose sequences hold no pair of logprobs which one alone is there, and which would make a pair of it."""

from __future__ import annotations

from ptt.diagnostics.schema import LOGPS
from ptt.diagnostics.statistics.pairs import available
from ptt.diagnostics.store.manifest import Manifest

NONE_RECORDED = ("policy_logp", "ref_logp", "model_mask")


def unpaired(manifest: Manifest) -> tuple[str, tuple[str, ...]]:
    """Give the reason, and the logprobs each of which would do; no reason where no sequence is recorded at all."""
    columns = {name for file in manifest.in_place if file.rows for name in file.columns}
    columns |= {name for part in manifest.parts if part.rows for name in part.columns}
    held = columns & set(LOGPS)
    if not columns:
        return "", NONE_RECORDED
    if not held:
        return "sequences are recorded without any logprobs", NONE_RECORDED
    partners = tuple(name for name in LOGPS if name not in held and available(held | {name}))
    alone = " and ".join(sorted(held))
    reason = (
        f"{alone} alone is recorded, and a log-ratio takes two: {' or '.join(partners)} of the same tokens is missing"
    )
    return reason, partners

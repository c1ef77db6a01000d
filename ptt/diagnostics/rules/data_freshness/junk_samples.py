"""This run shows samples that are junk from the beginning of their record on.

What: half or more of the recorded answers are one or two characters or one loop of words over and over, and were so at
the first recorded steps already, or came to be so from one step to the next.
Why it matters: no policy that was worth training says that: the engine that samples is broken, by its precision, its
weights, its template or its kernels. All groups fail alike, and nothing is learnt.
What it is not: a policy that comes to repeat itself while it trains (repetition-rise).
What to do: sample from the same weights without the engine.
Source: modelscope/ms-swift#5271 (float16 under vLLM: format reward 0 from the first step). The share is our own.
"""

from __future__ import annotations

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules.faulty_samples import Told, judge_faulty
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.wording import pct

SHARE = 0.5  # of the answers
HIGH_SHARE = 0.8
UNRECORDED = NotJudged(
    reason="too few texts of answers are recorded",
    missing=("answers",),
    enable="save samples with their texts",
    absent=True,
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of answers that say nothing."""
    counts = None if evidence.faults is None else evidence.faults.junk
    return judge_faulty(counts, limits, unrecorded=UNRECORDED, words=_told, sudden=True)


def _told(part: Counts, when: str) -> Told:
    return Told(
        claim=f"{when}, {pct(part.share)} of recorded answers are one or two characters or one loop over and over: the "
        "engine that samples is broken, not the policy or its reward",
        causes=(
            "the engine computes in a precision that overflows for this model (float16)",
            "it holds other weights than the trainer, or a part of them: a merge, a cast, a shard",
            "a chat template or an image processor that the engine applies otherwise",
        ),
        confirm=("sample ten prompts from the same weights with transformers' generate: are they junk too?",),
        next=("run the engine in bfloat16 or float32, and compare its logprobs with the trainer's on one text",),
    )


RULE = rule(check, "junk-samples", Link.DATA_FRESHNESS, share=SHARE, high=HIGH_SHARE, families=REWARDED_LANGUAGE)

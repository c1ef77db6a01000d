"""This run shows samples that are trained with the advantages of other samples.

What: the advantages of a step, of one rank or of a group are the right ones as a set, to the last digit, but lie on
other samples than the rewards say: they are shuffled. Or they are those of an earlier step, place by place or as a set
(high where it is most samples, medium where it is a part).
Why it matters: a sample is pushed up or down by what another earned. On average over a shuffle nothing is learnt, and
what is learnt is noise; means, deviations and histograms of the advantage look as they should.
What it is not: several optimiser steps on one batch, whose samples keep their own advantages.
What to do: compare the order of samples where rewards are scored with that where the loss is taken: sorting by length,
balancing over ranks, shuffling of mini-batches and buffers must move all columns together.
Source: TRL shuffles the generation batch as one dictionary (`shuffle_sequence_dict`), veRL reorders with
`DataProto.reorder` in `balance_batch`, for this very reason.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.advantages import OTHERS, AdvantageFault
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Finding, Limits, Verdict, rule
from ptt.diagnostics.rules.training_signal import (
    LEAST_SHARE,
    MOST_SHARE,
    confirm_rows,
    fault_fields,
    recomputed_fault,
    whose,
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether samples have their own advantages."""
    fault = recomputed_fault(evidence, OTHERS, limits)
    return _finding(fault, evidence, limits) if isinstance(fault, AdvantageFault) else fault


def _finding(fault: AdvantageFault, evidence: Evidence, limits: Limits) -> Finding:
    stale = fault.name == "stale"
    how = "are those of an earlier step" if stale else "belong to other samples: right as a set, but shuffled"
    return Finding(
        **fault_fields(fault, evidence.advantages, limits),
        claim=f"The advantages of {whose(fault)}, {how}",
        causes=("a buffer of advantages that is not refreshed with its batch",)
        if stale
        else (
            "samples reordered (by length, over ranks, into mini-batches) without their advantages",
            "rewards gathered from workers in another order than the samples",
        ),
        confirm=(confirm_rows(fault),),
        next=(
            "carry advantages in the same container as the tokens, and assert on a sample's id where the loss is taken",
            "discard what was trained with them",
        ),
    )


RULE = rule(
    check,
    OTHERS,
    Link.TRAINING_SIGNAL,
    max_severity=Severity.HIGH,
    least=LEAST_SHARE,
    most=MOST_SHARE,
    families=REWARDED_LANGUAGE,
)

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
from ptt.diagnostics.rules.interface import Limits, Verdict
from ptt.diagnostics.rules.training_signal import Told, judge_recomputed, recomputed_rule, whose


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether samples have their own advantages."""
    return judge_recomputed(evidence, OTHERS, limits, _told)


def _told(fault: AdvantageFault) -> Told:
    stale = fault.name == "stale"
    how = "are those of an earlier step" if stale else "belong to other samples: right as a set, but shuffled"
    return Told(
        claim=f"The advantages of {whose(fault)}, {how}",
        causes=("a buffer of advantages that is not refreshed with its batch",)
        if stale
        else (
            "samples reordered (by length, over ranks, into mini-batches) without their advantages",
            "rewards gathered from workers in another order than the samples",
        ),
        next=(
            "carry advantages in the same container as the tokens, and assert on a sample's id where the loss is taken",
            "discard what was trained with them",
        ),
    )


RULE = recomputed_rule(check, OTHERS)

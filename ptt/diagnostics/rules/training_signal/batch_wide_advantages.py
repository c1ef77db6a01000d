"""This run shows advantages normalised over the whole batch, although the algorithm compares answers to one prompt.

What: the advantages agree, to the last digit, with the mean of all samples of the batch, or of one rank's, subtracted
from the reward, in a run whose algorithm compares within prompt groups or that did so at its other steps (high where it
is most samples, medium where it is a part).
Why it matters: prompts differ in how hard they are. All answers to an easy prompt are pushed up and all to a hard one
pushed down; which of them was better hardly counts.
What it is not: REINFORCE++, which whitens over the batch by design; there it is a fact, and no finding. Nor the group's
mean over the batch's deviation (TRL `scale_rewards="batch"`), which is centred by group.
What to do: find the branch that falls back on the batch, for instance where a group has lost samples, and make it
group by prompt.
Source: GRPO's baseline is the group's mean (arXiv 2402.03300, eq. 3 of section 4.1); REINFORCE++ (2501.03262) takes the
batch's.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.advantages import BATCH, AdvantageFault
from ptt.diagnostics.rules.interface import Healthy, Limits, Verdict
from ptt.diagnostics.rules.training_signal import Told, judge_recomputed, recomputed_rule, whose


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether advantages are normalised as the algorithm says."""
    return judge_recomputed(
        evidence, BATCH, limits, lambda fault: _told(fault, grouped=bool(evidence.algorithm.groups))
    )


def _told(fault: AdvantageFault, *, grouped: bool) -> Told | Healthy:
    if fault.throughout and not grouped:
        return Healthy(reason=f"{fault.said}; nothing says that groups should be compared")
    whole = fault.name == "batch"
    return Told(
        claim=f"The advantages of {whose(fault)}, are normalised over {'the whole batch' if whole else fault.said}, "
        "not within the prompt's group",
        causes=(
            "a fallback to the batch where groups are not whole",
            "a normalisation of the batch instead of the group",
        ),
        next=("take mean and deviation by group id", "discard what was trained with them"),
    )


RULE = recomputed_rule(check, BATCH)

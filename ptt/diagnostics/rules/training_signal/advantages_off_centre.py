"""This run shows advantages of whole prompt groups whose mean is far from 0.

What: advantages rise with the rewards of their group, but the group's mean is not subtracted, or another is: their mean
within whole groups is more than a tenth of their size from 0 (high where it is most samples, medium where it is a
part).
Why it matters: whatever is common to all answers to a prompt is pushed up or down with them. The gradient is mostly
noise, and with rewards of one sign the policy is pulled towards whatever it samples.
What it is not: records that hold a part of a group, which is not told from this unless other groups of the same size
are right. Nor rewards taken for advantages throughout, which advantages-without-baseline judges.
What to do: find what is subtracted: a baseline that is stale, that of another reward, or none.
Source: advantages of GRPO, Dr. GRPO and RLOO sum to 0 over a group (arXiv 2402.03300, 2503.20783, 2402.14740).
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.advantages import CENTRE, AdvantageFault
from ptt.diagnostics.rules.interface import Healthy, Limits, Verdict
from ptt.diagnostics.rules.training_signal import Told, judge_recomputed, recomputed_rule, whose

LASTING = 10  # steps: from here on advantages-without-baseline speaks of rewards taken for advantages
WHOLE_STEPS = 0.9  # of the samples


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether the advantages of a group have mean 0."""
    return judge_recomputed(evidence, CENTRE, limits, _told)


def _told(fault: AdvantageFault) -> Told | Healthy:
    if fault.name == "reward" and fault.steps >= LASTING and fault.share >= WHOLE_STEPS:
        return Healthy(reason="advantages are the rewards: advantages-without-baseline judges that")
    how = "are the rewards themselves" if fault.name == "reward" else "are off the centre of their group"
    return Told(
        claim=f"The advantages of {whose(fault)}, {how}: its mean is not subtracted",
        causes=("a baseline that is stale, or of another reward", "a branch that skips the baseline"),
        next=("subtract the mean of the group's own rewards", "discard what was trained with them"),
    )


RULE = recomputed_rule(check, CENTRE)

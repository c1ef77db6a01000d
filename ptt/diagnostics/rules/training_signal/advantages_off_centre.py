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
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.training_signal import (
    LEAST_SHARE,
    MOST_SHARE,
    confirm_rows,
    fault_fields,
    recomputed_fault,
    whose,
)

LASTING = 10  # steps: from here on advantages-without-baseline speaks of rewards taken for advantages
WHOLE_STEPS = 0.9  # of the samples


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether the advantages of a group have mean 0."""
    fault = recomputed_fault(evidence, CENTRE, limits)
    if not isinstance(fault, AdvantageFault):
        return fault
    if fault.name == "reward" and fault.steps >= LASTING and fault.share >= WHOLE_STEPS:
        return Healthy(reason="advantages are the rewards: advantages-without-baseline judges that")
    return _finding(fault, evidence, limits)


def _finding(fault: AdvantageFault, evidence: Evidence, limits: Limits) -> Finding:
    how = "are the rewards themselves" if fault.name == "reward" else "are off the centre of their group"
    return Finding(
        **fault_fields(fault, evidence.advantages, limits),
        claim=f"The advantages of {whose(fault)}, {how}: its mean is not subtracted",
        causes=("a baseline that is stale, or of another reward", "a branch that skips the baseline"),
        confirm=(confirm_rows(fault),),
        next=("subtract the mean of the group's own rewards", "discard what was trained with them"),
    )


RULE = rule(
    check,
    CENTRE,
    Link.TRAINING_SIGNAL,
    max_severity=Severity.HIGH,
    least=LEAST_SHARE,
    most=MOST_SHARE,
    families=REWARDED_LANGUAGE,
)

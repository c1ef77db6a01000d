"""This run shows prompt groups that shrank to one sample each, which is compared with itself.

What: at some steps nine in ten samples are alone in their group and have an advantage of 0, while steps with as many
samples hold whole groups (high where it is most samples since, medium where it is a part).
Why it matters: a sample less its own mean is 0: there is no gradient, and the run goes on as if it learnt.
What it is not: records with one sample of each group, whose advantages are not 0. Nor groups whose samples all earn the
same, which no-signal-groups counts. Advantages that equal the rewards are judged by advantages-without-baseline.
What to do: look at how group ids are made: an id a sample instead of one a prompt, or one sample a prompt.
Source: with a group of one, NeMo-RL takes the reward for its own baseline (`calculate_baseline_and_std_per_prompt`),
and GRPO's deviation is 0.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.advantages import SINGLE, AdvantageFault
from ptt.diagnostics.rules.interface import Limits, Verdict
from ptt.diagnostics.rules.training_signal import Told, judge_recomputed, recomputed_rule, whose


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether groups hold more than one sample."""
    return judge_recomputed(evidence, SINGLE, limits, _told)


def _told(fault: AdvantageFault) -> Told:
    return Told(
        claim=f"{whose(fault)}, are alone in their group, with an advantage of 0",
        causes=("a group id for each sample instead of one for each prompt", "one sample a prompt"),
        next=("make one id a prompt, before its samples are split over workers", "sample several answers a prompt"),
    )


RULE = recomputed_rule(check, SINGLE)

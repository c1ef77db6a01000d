"""This run shows advantages that compare a sample with answers to other prompts.

What: the advantages agree, to the last digit, with the estimator over other groups than those recorded: every n samples
in their order although groups have gaps or lie interleaved, or group ids that are a row late (high where it is most
samples, medium where it is a part).
Why it matters: the baseline is that of another prompt. An answer to an easy prompt is pushed up for being easy, one to
a hard prompt is pushed down, whatever it is worth among the answers to its own.
What it is not: whole-batch normalisation, which batch-wide-advantages judges. Nor records that hold a part of a group:
its advantages still rise with its rewards on a line.
What to do: group by the prompt's id, not by position; where rollouts can be lost, filtered or reordered, a reshape to
(prompts, samples) mixes them.
Source: `rewards.view(-1, num_generations)` is right only for whole groups that lie together (TRL, GRPOTrainer); veRL
groups by `uid` (`compute_grpo_outcome_advantage`).
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.advantages import GROUPS, AdvantageFault
from ptt.diagnostics.rules.interface import Limits, Verdict
from ptt.diagnostics.rules.training_signal import Told, judge_recomputed, recomputed_rule, whose


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether advantages were computed within the recorded groups."""
    return judge_recomputed(evidence, GROUPS, limits, _told)


def _told(fault: AdvantageFault) -> Told:
    return Told(
        claim=f"The advantages of {whose(fault)}, compare answers to different prompts: they are those of {fault.said}",
        causes=(
            "groups cut by position (a reshape) although some lost samples",
            "samples that lie in another order than the reshape takes them for",
            "group ids joined to the wrong rows",
        ),
        next=(
            "compute mean and deviation by group id, and assert how many distinct prompts a group holds",
            "discard what was trained with them",
        ),
    )


RULE = recomputed_rule(check, GROUPS)

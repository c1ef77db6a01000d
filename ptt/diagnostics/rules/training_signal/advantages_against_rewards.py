"""This run shows advantages whose order within prompt groups is not that of the rewards.

What: recomputed from the recorded rewards, the advantages of some or all groups have the sign turned, or follow no
order of the rewards, while the estimator is known: from the other groups, or because the turned ones agree to the last
digit (high where it is most samples, medium where it is a part).
Why it matters: the best answers of a prompt are pushed down, the worst pushed up. The policy unlearns what is rewarded.
What it is not: another reward. Advantages that come from a shaped reward still rise with the recorded one in most
groups; where no estimator fits to begin with, nothing is said.
What to do: look for a minus: a cost that is logged as a reward, a loss that is already negated, one rank with its own
code. Then train again from a checkpoint before the first wrong step.
Source: every group-relative estimator gives a larger advantage to a larger reward of the same group (GRPO, arXiv
2402.03300; RLOO, 2402.14740; Dr. GRPO, 2503.20783).
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.advantages import AGAINST, AdvantageFault
from ptt.diagnostics.rules.interface import Limits, Verdict
from ptt.diagnostics.rules.training_signal import Told, judge_recomputed, recomputed_rule, whose


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether advantages have the order of the rewards."""
    return judge_recomputed(evidence, AGAINST, limits, _told)


def _told(fault: AdvantageFault) -> Told:
    turned = fault.name == "sign"
    how = "have the sign turned" if turned else "are in no order of the rewards of their group"
    return Told(
        claim=f"The advantages of {whose(fault)}, {how}" + (": the best answers are pushed down" if turned else ""),
        causes=("a sign that is turned twice, or once too often: a cost taken for a reward",)
        if turned
        else ("rewards or advantages joined to the wrong samples", "advantages of a reward that is not recorded"),
        next=(
            "follow one sample from its reward to the loss and find where the sign or the order changes",
            "discard what was trained with them",
        ),
    )


RULE = recomputed_rule(check, AGAINST)

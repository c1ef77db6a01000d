"""What the rules on the critic share: whether there is one, and what to do where it is wrong."""

from __future__ import annotations

from collections.abc import Callable

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.rules.interface import NotJudged, does_not_apply
from ptt.diagnostics.rules.single_series import logged

LEARNT_VARIANCE = 0.1  # explained variance from which a critic has learnt something about the returns
MIN_LOSS = 0.05  # values off by 0.2 to 0.3: less is little, beside rewards of 0 and 1
FIT = "train the critic alone on the rollouts of one step, with the policy frozen: can it fit their returns?"
REPAIRS = (
    "if it cannot: check the bootstrap target, the mask of the last token, and that values and returns share a scale",
    "then bring the returns to unit scale (normalise them or scale the reward down)",
    "then change the critic's learning rate, up or down, and nothing else",
    "then warm the critic up for some steps before the policy starts to learn",
)
ENABLE = "log it from the critic's update: veRL critic/*, OpenRLHF critic_loss and values, TRL's PPO loss/value_avg"


def critic_metric(name: str, *, what: str) -> Callable[[Evidence], Series | NotJudged]:
    """Read a series of the critic; without a critic the question makes no sense."""

    def read(evidence: Evidence) -> Series | NotJudged:
        if evidence.algorithm.critic is False:
            return does_not_apply(f"{evidence.algorithm.title} training has no critic")
        return logged(evidence, name, what=what, enable=ENABLE)

    return read

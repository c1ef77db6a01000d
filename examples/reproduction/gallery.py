"""The failure gallery: the healthy control with one switch thrown, and what each switch plants.

Each case says which link of the training loop is broken, since which step, and which findings may name it in a
headline. A case without a link is benign: a verdict that accuses it is a false alarm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from examples.reproduction.arms import HEALTHY, Setting

SEEDS: Final = (11, 12)
STEPS: Final = 120
HALF: Final = 0.5  # of the run
UNKNOWN: Final = "bcdfghjkl"  # first letters of half the items
LATE: Final = 0.7  # of the run: a slow tool costs time, so it begins late


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run with a fault that we planted, and what is true of it."""

    setting: Setting
    link: str | None  # the broken link; None where nothing is wrong
    findings: tuple[str, ...] = ()  # rule ids; each of them names the fault
    says: str  # what a reader should learn from the verdict

    def since(self, steps: int) -> int | None:
        """Return the first step that the fault affects, or None if nothing is wrong."""
        return None if self.link is None else onset(self.setting, steps)


def onset(setting: Setting, steps: int) -> int:
    """Return the first step of a run at which its switch acts."""
    return int(setting.since * steps) + 1


GALLERY: Final = {
    "reward-hacking": Case(
        setting=replace(HEALTHY, reward="activity", learning_rate=5e-4, beta=0.001),
        link="reward",
        findings=("reward-hacking", "components-diverge", "calls-inflation", "length-inflation"),
        says="the reward pays for calls and words; right answers become rarer",
    ),
    "stale-sampler": Case(
        setting=replace(HEALTHY, sampler="stale", learning_rate=2e-4),
        link="data_freshness",
        findings=("engine-mismatch", "stale-rollouts", "mismatch-after-tools", "old-logprobs-off"),
        says="the sampler gets new weights every 24 steps only",
    ),
    "bf16-sampler": Case(
        setting=replace(HEALTHY, sampler="bfloat16"),
        link=None,
        says="the sampler rounds to bfloat16, and differs by thousandths",
    ),
    "learning-rate-x2000": Case(
        setting=replace(HEALTHY, learning_rate=2000 * HEALTHY.learning_rate),
        link="policy_update",
        findings=(
            "learning-rate-high",
            "update-too-large",
            "ratio-explosion",
            "kl-over-target",
            "clip-fraction-high",
            "policy-drift",
        ),
        says="the first updates destroy the policy",
    ),
    "learning-rate-0": Case(
        setting=replace(HEALTHY, learning_rate=0.0),
        link="policy_update",
        findings=("learning-rate-zero", "kl-zero"),
        says="nothing is learnt",
    ),
    "entropy-collapse": Case(
        setting=replace(HEALTHY, entropy_coef=-2.0, diverse=True),
        link="exploration",
        findings=("negative-entropy-bonus", "entropy-collapse", "template-collapse", "equal-lengths"),
        says="the entropy bonus has the wrong sign: the loss pays for certainty",
    ),
    "nan": Case(
        setting=replace(HEALTHY, nan_loss=True, since=HALF),
        link="numerics",
        findings=("metrics-lost", "nan-precursors", "loss-divergence"),
        says="one loss is NaN, and so is every weight after it",
    ),
    "one-infinite-reward": Case(
        setting=replace(HEALTHY, infinite_reward=True, since=HALF),
        link="reward",
        findings=("reward-outliers", "metrics-lost"),
        says="one score divides by zero: the mean reward of that step is infinite, and its group teaches nothing",
    ),
    "tool-failures-rise": Case(
        setting=replace(HEALTHY, late_failure_rate=0.7, since=HALF),
        link="environment",
        findings=("tool-failures", "failures-unrecovered"),
        says="more and more calls of every tool raise",
    ),
    "slow-tool": Case(
        setting=replace(HEALTHY, slow_tool="stock", since=LATE),
        link="environment",
        findings=("tool-latency", "throughput-drop"),
        says="one tool takes a second and a half to answer",
    ),
    "bad-tool": Case(
        setting=replace(HEALTHY, late_failure_rate=0.9, failing_tool="stock", since=HALF),
        link="environment",
        findings=("tool-failures", "underused-tools"),
        says="one tool of three fails nine times in ten",
    ),
    "tool-lies": Case(
        setting=replace(HEALTHY, lying_tools=True, since=HALF),
        link="reward",  # the tools' answers look as before: right answers are the first that show it
        findings=("reward-fell",),
        says="two tools return wrong values, in the usual form and without an error",
    ),
    "half-unanswerable": Case(
        setting=replace(HEALTHY, unknown_items=UNKNOWN),
        link=None,
        says="the tools answer null for every second item, all along: no answer to these questions is right",
    ),
    "bad-rank": Case(
        setting=replace(HEALTHY, sampler="stale", bad_rank=1, ranks=2, learning_rate=2e-4),
        link="data_freshness",
        findings=("rank-mismatch", "engine-mismatch", "stale-rollouts", "mismatch-after-tools"),
        says="the sampler of rank 1 alone gets new weights every 24 steps only",
    ),
    "killed-and-resumed": Case(
        setting=replace(HEALTHY, killed=True, since=HALF),
        link=None,
        says="killed in mid-run, and resumed from the last checkpoint",
    ),
    "reward-scale": Case(
        setting=replace(HEALTHY, reward_factor=100.0, since=HALF),
        link="reward",
        findings=("reward-revised", "reward-variance", "reward-jump", "advantage-scale"),
        says="right answers pay 100 instead of 1, and advantages are not divided by their spread",
    ),
}

"""What kind of training a run is: which rules ask anything of it at all depends on that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ptt.diagnostics.model import JsonScalar


class Family(StrEnum):
    """How the data comes about, and what is learnt from it."""

    ONLINE = "online"  # the policy samples its own data: GRPO, PPO, RLOO, REINFORCE++ and their kin
    PREFERENCE = "preference"  # pairs or labels that were there before: DPO, ORPO, KTO, CPO, SimPO, IPO
    SUPERVISED = "supervised"  # given answers: SFT, distillation from text
    REWARD_MODEL = "reward_model"  # a head that scores


NAMES: Final[Mapping[str, Family]] = {
    **dict.fromkeys(
        ("grpo", "ppo", "rloo", "gspo", "cispo", "dapo", "dr_grpo", "reinforce", "reinforce_plus_plus", "reinforce++",
         "reinforce_baseline", "reinforce_plus_plus_baseline", "remax", "opo", "grpo_passk", "gpg", "gae", "vapo",
         "group_norm", "online_dpo", "nash_md", "xpo", "sapo", "bnpo", "async_grpo"),
        Family.ONLINE,
    ),
    **dict.fromkeys(("dpo", "orpo", "kto", "cpo", "simpo", "ipo", "bco"), Family.PREFERENCE),
    **dict.fromkeys(("sft", "gkd", "distillation"), Family.SUPERVISED),
    **dict.fromkeys(("reward_model", "reward", "rm", "prm"), Family.REWARD_MODEL),
}  # fmt: skip
CRITIC_NAMES: Final = frozenset({"ppo", "gae", "vapo"})
GROUP_NAMES: Final = frozenset(
    {"grpo", "gspo", "cispo", "dapo", "dr_grpo", "rloo", "grpo_passk", "opo", "gpg", "group_norm", "sapo", "bnpo",
     "async_grpo"}
)  # fmt: skip
ONLINE_METRICS: Final = frozenset(
    {"kl/old", "clip/frac", "reward/zero_std_frac", "len/response_mean", "staleness/mean", "is/ratio_mean"}
)


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """What is known of the algorithm; None where the files do not tell."""

    name: str | None = None
    family: Family | None = None
    critic: bool | None = None  # whether a value head is trained
    groups: bool | None = None  # whether advantages are relative to a group of samples of one prompt

    @property
    def title(self) -> str:
        """Name it as a sentence does."""
        if self.name:
            return self.name.upper() if len(self.name) <= 5 else self.name.replace("_", " ")
        return {Family.REWARD_MODEL: "reward model"}.get(self.family, str(self.family)) if self.family else "unknown"


def algorithm_of(facts: Mapping[str, JsonScalar], metrics: Collection[str]) -> Algorithm:
    """Tell the algorithm from settings and from canonical metric names; settings count more than names."""
    spelt = [str(facts[key]).lower() for key in ("algorithm", "adv_estimator", "loss_type") if facts.get(key)]
    name = next((word for word in spelt if word in NAMES), None)
    family = NAMES[name] if name else _family(metrics)
    critic: bool | None = any(metric.startswith("critic/") and "loss" in metric for metric in metrics) or None
    if critic is None and (name or family not in (None, Family.ONLINE)):
        critic = name in CRITIC_NAMES
    groups: bool | None = "reward/zero_std_frac" in metrics or None
    if groups is None and (name or family not in (None, Family.ONLINE)):
        groups = name in GROUP_NAMES
    return Algorithm(name=name, family=family, critic=critic, groups=groups)


def _family(metrics: Collection[str]) -> Family | None:
    held = set(metrics)
    if held & ONLINE_METRICS:
        return Family.ONLINE
    if any(metric.startswith("dpo/") for metric in held):
        return Family.PREFERENCE
    if any(metric.startswith("sft/") for metric in held):
        return Family.SUPERVISED
    return Family.ONLINE if "reward/mean" in held else None

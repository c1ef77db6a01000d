"""What kind of training a run is: which rules ask anything of it at all depends on that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ptt.diagnostics.metrics.name_words import words_of
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
SYNONYMS: Final[Mapping[str, str]] = {
    "gae": "ppo",
    "group_norm": "grpo",
    "reward": "reward_model",
    "rm": "reward_model",
}
"""An advantage estimator, or a short word, for the algorithm that uses it."""
CRITIC_NAMES: Final = frozenset({"ppo", "vapo"})
GROUP_NAMES: Final = frozenset(
    {"grpo", "gspo", "cispo", "dapo", "dr_grpo", "rloo", "grpo_passk", "opo", "gpg", "sapo", "bnpo", "async_grpo"}
)
LOSS_SETTINGS: Final = ("loss_mode", "policy_loss_type", "pref_loss")
SETTINGS: Final = ("algorithm", *LOSS_SETTINGS, "rlhf_type", "adv_estimator", "advantage_estimator", "loss_type")
"""Facts that name the algorithm, the plainest first: veRL's `loss_mode: gspo` stands beside an estimator of GRPO's. A
loss that names none counts for nothing."""
ONLINE_METRICS: Final = frozenset(
    {"kl/old", "clip/frac", "reward/zero_std_frac", "len/response_mean", "staleness/mean", "is/ratio_mean"}
)
FITTED_METRICS: Final = frozenset({"grad_norm", "eval/loss", "sft/perplexity"})
HF_METRICS: Final = FITTED_METRICS | {"lr"}  # Hugging Face's own trainer; those of RL log a reward beside the rate
LEARNT_BY_REWARD: Final = frozenset(
    {"reward", "rewards", "return", "returns", "score", "scores", "kl", "advantage", "advantages", "policy", "actor",
     "critic", "rollout", "rollouts", "completion", "completions", "episode", "episodes", "margin", "margins",
     "chosen", "rejected", "logps", "accuracies", "objective", "ppo", "grpo", "dpo", "win", "success"}
)  # fmt: skip
"""Words of what a loss alone does not have beside it, where answers are given: any of them, and the kind stays open."""
PAIR_METRICS: Final = frozenset({"dpo/margin", "dpo/accuracy", "dpo/logp_chosen", "dpo/logp_rejected"})

SEQUENCE_LEVELS: Final = ("sequence", "sequence_token")  # of TRL's importance_sampling_level: GSPO by another name
COMMONEST: Final = {
    Family.SUPERVISED: "sft",
    Family.PREFERENCE: "dpo",
    Family.REWARD_MODEL: "reward_model",
    Family.ONLINE: "grpo",
}
REPORTER_PREFIXES: Final = ("console:", "train/")
MARKS: Final[tuple[tuple[frozenset[str], frozenset[str], str | None], ...]] = (
    # names that are all there, names of which none is, what they tell: the first that fits counts.
    # Read in the trainers of TRL (0.24, 1.16) and NeMo-RL. OpenRLHF's DPO and reward model log the same names.
    (frozenset({"loss/xpo"}), frozenset(), "xpo"),
    (frozenset({"rewards/probabilities"}), frozenset(), "nash_md"),
    (frozenset({"objective/scores_margin"}), frozenset(), "online_dpo"),
    (frozenset({"loss/value_avg"}), frozenset(), "ppo"),
    (frozenset({"ppo/loss/value"}), frozenset(), "ppo"),
    (frozenset({"ppo_loss"}), frozenset(), "ppo"),
    (frozenset({"policy/approxkl_avg"}), frozenset({"loss/value_avg"}), "rloo"),
    (frozenset({"frac_reward_zero_std"}), frozenset(), "grpo"),  # TRL's RLOO logs the same names since 0.21
    (frozenset({"reward", "completions/mean_length"}), frozenset(), "grpo"),
    (frozenset({"reward", "completion_length"}), frozenset(), "grpo"),  # TRL before 0.16, Unsloth
    (frozenset({"grpo_loss"}), frozenset(), "grpo"),
    (frozenset({"log_odds_ratio"}), frozenset(), "orpo"),
    (frozenset({"odds_ratio_loss"}), frozenset(), "orpo"),  # LLaMA-Factory, beside TRL's names of pairs
    (frozenset({"orpo_loss"}), frozenset(), "orpo"),
    (frozenset({"cpo_loss"}), frozenset(), "cpo"),
    (frozenset({"kto_loss"}), frozenset(), "kto"),
    (frozenset({"desirable_loss", "undesirable_loss"}), frozenset(), "kto"),  # no other objective has these two sides
    (frozenset({"dpo_loss"}), frozenset(), "dpo"),
    (frozenset({"rewards/margins", "kl"}), frozenset({"rewards/accuracies", "reward"}), "kto"),
    (frozenset({"rewards/margins", "delta"}), frozenset({"rewards/accuracies", "reward"}), "bco"),
    (frozenset({"rewards/margins", "nll_loss"}), frozenset({"reward"}), None),  # CPO, SimPO, or DPO with an SFT part
    (frozenset({"rewards/margins", "rewards/accuracies"}), frozenset({"reward"}), "dpo"),
    (frozenset({"accuracy", "margin", "min_reward", "max_reward"}), frozenset(), "reward_model"),
    (frozenset({"rewards_chosen_mean", "preference_loss"}), frozenset(), "dpo"),  # NeMo-RL, and the next
    (frozenset({"rewards_chosen_mean", "num_valid_samples"}), frozenset(), "reward_model"),
    (frozenset({"gpt_loss"}), frozenset({"policy_loss"}), "sft"),
    (frozenset({"sft_loss"}), frozenset({"reward", "preference_loss"}), "sft"),
    (frozenset({"mean_token_accuracy"}), frozenset({"reward", "rewards/margins", "completions/mean_length"}), "sft"),
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


def samples_online(algorithm: Algorithm) -> bool:
    """Return whether the policy samples its own data, as far as is known: RL, and what no file tells the kind of."""
    return algorithm.family in (None, Family.ONLINE)


def trainer_of(algorithm: Algorithm) -> str | None:
    """Return the algorithm whose trainer such a run is configured by; of a family whose kind is open, the commonest."""
    return algorithm.name or (COMMONEST.get(algorithm.family) if algorithm.family else None)


def detect_algorithm(
    facts: Mapping[str, JsonScalar],
    metrics: Collection[str],
    *,
    logged: Collection[str] = (),
    sampled: bool = False,
    texts: bool = False,
) -> Algorithm:
    """Detect the algorithm from settings, from metric names as their writer spelt them, and from canonical ones.

    Settings count more than names. `sampled`: an inference engine's logprobs are recorded, so something was sampled.
    `texts`: samples or tokens are recorded, so that a loss without a reward beside it proves nothing.
    """
    if str(facts.get("importance_sampling_level")) in SEQUENCE_LEVELS:
        facts = {"algorithm": "gspo", **facts}
    spelt = [str(facts[key]).lower().replace("-", "_") for key in SETTINGS if facts.get(key)]
    name = next((word for word in spelt if word in NAMES), None) or _match_marks(logged)
    name = SYNONYMS.get(name, name) if name else None
    family = NAMES[name] if name else _family(set(metrics)) or (Family.ONLINE if sampled else None)
    if family is None and not texts and _only_fitted(set(metrics), logged, facts.get("framework")):
        family = Family.SUPERVISED
    decided = name is not None or family not in (None, Family.ONLINE)
    critic: bool | None = any(metric.startswith("critic/") and "loss" in metric for metric in metrics) or None
    if critic is None and decided:
        critic = name in CRITIC_NAMES
    groups: bool | None = "reward/zero_std_frac" in metrics or None
    if groups is None and (decided or critic):  # an advantage over a critic's values is relative to no group
        groups = name in GROUP_NAMES
    return Algorithm(name=name, family=family, critic=critic, groups=groups)


def _match_marks(logged: Collection[str]) -> str | None:
    """Return the algorithm by the names that only its trainer logs."""
    names = set()
    for raw in logged:
        bare = raw
        for prefix in REPORTER_PREFIXES:
            bare = bare.removeprefix(prefix)
        names.add(bare)
    return next((name for present, absent, name in MARKS if present <= names and not absent & names), None)


def _only_fitted(metrics: set[str], logged: Collection[str], framework: JsonScalar) -> bool:
    """Return whether a loss is logged with what stands beside it where answers are given, and nothing of RL."""
    if "loss/total" not in metrics or not metrics & (HF_METRICS if framework == "transformers" else FITTED_METRICS):
        return False
    return not any(words_of(raw) & LEARNT_BY_REWARD for raw in logged)


def _family(metrics: set[str]) -> Family | None:
    if metrics & ONLINE_METRICS:
        return Family.ONLINE
    if metrics & PAIR_METRICS:
        return Family.PREFERENCE
    if any(metric.startswith("sft/") for metric in metrics):
        return Family.SUPERVISED
    return Family.ONLINE if "reward/mean" in metrics else None

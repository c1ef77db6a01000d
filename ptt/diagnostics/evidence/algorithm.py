"""What kind of training a run is, which decides which rules apply to it at all.

Settings say it, or names that only one trainer logs; failing that, the metrics that are logged, and last the words in
names of files and folders."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.guessed_names import spelt_words
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.wording import sig


class Family(StrEnum):
    """How the data comes about, and what is learnt from it."""

    ONLINE = "online"  # the policy samples its own data: GRPO, PPO, RLOO, REINFORCE++ and their kin
    PREFERENCE = "preference"  # pairs or labels that were there before: DPO, ORPO, KTO, CPO, SimPO, IPO
    SUPERVISED = "supervised"  # given answers: SFT, distillation from text
    REWARD_MODEL = "reward_model"  # a head that scores
    DISTILLATION = "distillation"  # the policy samples, and a teacher takes the place of the reward
    CLASSIC_RL = "classic_rl"  # a policy without language acts in an environment


SAMPLED: Final = frozenset({Family.ONLINE, Family.DISTILLATION, Family.CLASSIC_RL})
"""The policy samples its own data."""
LANGUAGE: Final = frozenset({Family.ONLINE, Family.DISTILLATION})
"""It samples texts: they have tokens, lengths, tools, and mostly a reference."""
PAIRED: Final = frozenset({Family.PREFERENCE, Family.REWARD_MODEL})
"""It learns from pairs, or labels, that were there before."""
REWARDED: Final = frozenset({Family.ONLINE, Family.CLASSIC_RL})
"""It samples for a reward."""

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
    **dict.fromkeys(("on_policy_distillation",), Family.DISTILLATION),
    **dict.fromkeys(("dqn", "sac", "td3", "a2c", "a3c", "ddpg", "trpo", "qr_dqn", "impala"), Family.CLASSIC_RL),
}  # fmt: skip
HINTS: Final[Mapping[str, Family]] = {
    **{name: family for name, family in NAMES.items() if name not in {"reward", "reinforce"}},
    **dict.fromkeys(("rlhf", "rlvr", "rloo", "rlaif"), Family.ONLINE),
    **dict.fromkeys(("preference", "preferences", "pref"), Family.PREFERENCE),
    **dict.fromkeys(("finetune", "finetuning", "finetuned", "ft"), Family.SUPERVISED),
    **dict.fromkeys(("opd",), Family.DISTILLATION),
    **dict.fromkeys(("sb3", "gym", "gymnasium", "atari", "mujoco", "cartpole", "cleanrl"), Family.CLASSIC_RL),
}  # fmt: skip
"""Words in names of metrics, files and folders that hint at a kind of training, where nothing else shows it."""
JOINED_HINTS: Final = re.compile(
    r"(?i)reward[-_ ]?model|on[-_ ]policy[-_ ]distill\w*|fine[-_ ]tun\w*|stable[-_ ]baselines3?"
)
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
"""Facts that name the algorithm, the clearest first: veRL logs `loss_mode: gspo` together with GRPO's estimator. A loss
that names no algorithm is ignored."""
ONLINE_METRICS: Final = (
    "reward/zero_std_frac", "len/response_mean", "kl/old", "clip/frac", "staleness/mean", "is/ratio_mean",
    "advantage/mean", "advantage/std", "len/clipped_frac", "critic/explained_variance", "critic/value_loss",
)  # fmt: skip
"""What only a policy that samples has; the most telling first."""
ENVIRONMENT_METRICS: Final = ("episode/length", "exploration/epsilon", "throughput/fps")
LANGUAGE_METRICS: Final = (
    "kl/ref", "len/response_mean", "len/clipped_frac", "reward/zero_std_frac", "kl/teacher", "sft/token_accuracy",
    "throughput/tokens", "tokens/seen", "tokens/step", "mismatch/kl", "mismatch/logp_abs_mean", "reward/true",
)  # fmt: skip
"""What is logged of texts, and of no other environment."""
LANGUAGE_WORDS: Final = frozenset(
    {"token", "tokens", "completion", "completions", "prompt", "prompts", "response", "responses", "kl_ref", "llm",
     "vllm", "perplexity", "answer", "answers", "turns", "ref", "reference"}
)  # fmt: skip
ENVIRONMENT_SPACES: Final = ("rollout/ep_", "charts/episodic_")  # of Stable-Baselines3 and CleanRL
FITTED_METRICS: Final = frozenset({"grad_norm", "eval/loss", "sft/perplexity"})
HF_METRICS: Final = FITTED_METRICS | {"lr"}  # Hugging Face's own trainer; those of RL log a reward beside the rate
LEARNT_BY_REWARD: Final = frozenset(
    {"reward", "rewards", "return", "returns", "score", "scores", "kl", "advantage", "advantages", "policy", "actor",
     "critic", "rollout", "rollouts", "completion", "completions", "episode", "episodes", "margin", "margins",
     "chosen", "rejected", "logps", "accuracies", "objective", "ppo", "grpo", "dpo", "win", "success"}
)  # fmt: skip
"""Words that a log of a plain loss never has. With any of them in a name, the kind of training stays open."""
PAIR_METRICS: Final = ("dpo/margin", "dpo/accuracy", "dpo/logp_chosen", "dpo/logp_rejected")
LN_2: Final = float(np.log(2.0))  # the loss of pairs that are ranked by chance, where the reference is the policy
LN_2_WITHIN: Final = 0.03  # of the first logged loss: a mean over a few steps
GIVEN_METRICS: Final = ("loss/total", "eval/loss", "sft/perplexity", "eval/perplexity")

SEQUENCE_LEVELS: Final = ("sequence", "sequence_token")  # values of TRL's importance_sampling_level that make it GSPO
COMMONEST: Final = {
    Family.SUPERVISED: "sft",
    Family.PREFERENCE: "dpo",
    Family.REWARD_MODEL: "reward_model",
    Family.ONLINE: "grpo",
}
REPORTER_PREFIXES: Final = ("console:", "train/")
MARKS: Final[tuple[tuple[frozenset[str], frozenset[str], str | None], ...]] = (
    # names that must all be there, names that must not, the algorithm they show; the first match counts.
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
    """What is known about the algorithm; None where the files do not say."""

    name: str | None = None
    family: Family | None = None
    critic: bool | None = None  # whether a value head is trained
    groups: bool | None = None  # whether advantages are relative to a group of samples of one prompt
    reason: str = ""  # what shows it; completes "taken for it:"

    @property
    def title(self) -> str:
        """Name it as a sentence does."""
        if self.name:
            return self.name.upper() if len(self.name) <= 5 else self.name.replace("_", " ")
        return str(self.family).replace("_rl", " RL").replace("_", " ") if self.family else "unknown"


def samples_online(algorithm: Algorithm) -> bool:
    """Return whether the policy samples its own data, as far as is known: RL, and what no file tells the kind of."""
    return algorithm.family is None or algorithm.family in SAMPLED


def samples_texts(algorithm: Algorithm) -> bool:
    """Return whether the policy samples text, as far as is known."""
    return algorithm.family is None or algorithm.family in LANGUAGE


def kin(family: Family) -> frozenset[Family]:
    """Return the kinds of training that pass for this one, where only that the policy samples matters."""
    return SAMPLED if family is Family.ONLINE else frozenset({family})


def trainer_of(algorithm: Algorithm) -> str | None:
    """Return the algorithm whose trainer such a run is configured by; of a family whose kind is open, the commonest."""
    return algorithm.name or (COMMONEST.get(algorithm.family) if algorithm.family else None)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a run shows of its training besides settings."""

    metrics: frozenset[str]  # canonical names
    logged: tuple[str, ...] = ()  # as spelt
    framework: str | None = None
    sampled: bool = False  # an inference engine's logprobs are recorded
    texts: bool = False  # samples or tokens are recorded, so that a loss without a reward beside it proves nothing
    places: tuple[str, ...] = ()  # the run's name and those of its files
    series: Callable[[str], Series | None] = lambda _: None

    def words(self) -> set[str]:
        """Return the words of all spellings."""
        return {word for raw in self.logged for word in words_of(raw)}

    def values(self, name: str) -> np.ndarray:
        """Return the finite values of a metric."""
        series = self.series(name)
        return np.empty(0) if series is None else series.finite()[1]

    def spelling(self, name: str) -> str:
        """Return the name of a metric in the log."""
        series = self.series(name)
        return name if series is None else series.raw_name


Told = tuple[Family, str]
"""A kind of training, and by what it was told."""


def detect_algorithm(
    facts: Mapping[str, JsonScalar],
    metrics: Collection[str],
    *,
    logged: Collection[str] = (),
    sampled: bool = False,
    texts: bool = False,
    places: Collection[str] = (),
    series: Callable[[str], Series | None] = lambda _: None,
) -> Algorithm:
    """Detect the algorithm from settings, from metric names as their writer spelt them, and from canonical ones.

    Settings count more than names, names more than values and words of files. `sampled`: an inference engine's
    logprobs are recorded, so something was sampled. `texts`: samples or tokens are recorded.
    """
    if str(facts.get("importance_sampling_level")) in SEQUENCE_LEVELS:
        facts = {"algorithm": "gspo", **facts}
    framework = facts.get("framework")
    shown = Shown(
        metrics=frozenset(metrics),
        logged=tuple(sorted(logged)),
        framework=framework if isinstance(framework, str) else None,
        sampled=sampled,
        texts=texts,
        places=tuple(sorted(places)),
        series=series,
    )
    name, reason = _named(facts, logged)
    kind = facts.get(KIND)
    told = (Family(kind), SET) if isinstance(kind, str) and kind in tuple(Family) else None
    if told is not None and name is not None and told[0] not in kin(NAMES[name]):
        name = None
    if told is None and name is not None:
        told = _in_an_environment(shown, NAMES[name]) or (NAMES[name], reason)
    family, reason = told or _by_metrics(shown) or _by_hints(shown) or (None, "")
    return _described(shown, name, family, reason)


KIND: Final = "kind_of_training"  # the fact that `[run] kind` of ptt.toml becomes
SET: Final = "ptt.toml says so"


def algorithm_name(word: str) -> str | None:
    """Return our name for the algorithm that a setting names; None if it is unknown."""
    word = word.lower().replace("-", "_")
    return SYNONYMS.get(word, word) if word in NAMES else None


def _named(facts: Mapping[str, JsonScalar], logged: Collection[str]) -> tuple[str | None, str]:
    """Return the algorithm that settings or one trainer's names tell, and which."""
    for key in SETTINGS:
        if name := algorithm_name(str(facts.get(key) or "")):
            return name, f"its settings say {key} = {facts[key]}"
    name = _match_marks(logged)
    return (SYNONYMS.get(name, name), f"it logs what {name} alone logs") if name else (None, "")


def _described(shown: Shown, name: str | None, family: Family | None, reason: str) -> Algorithm:
    metrics = shown.metrics
    decided = name is not None or family not in (None, Family.ONLINE)
    critic: bool | None = any(metric.startswith("critic/") and "loss" in metric for metric in metrics) or None
    if critic is None and decided:
        critic = name in CRITIC_NAMES
    groups: bool | None = "reward/zero_std_frac" in metrics or None
    if groups is None and (decided or critic):  # an advantage over a critic's values is relative to no group
        groups = name in GROUP_NAMES
    return Algorithm(name=name, family=family, critic=critic, groups=groups, reason=reason)


def _match_marks(logged: Collection[str]) -> str | None:
    """Return the algorithm by the names that only its trainer logs."""
    names = set()
    for raw in logged:
        bare = raw
        for prefix in REPORTER_PREFIXES:
            bare = bare.removeprefix(prefix)
        names.add(bare)
    return next((name for present, absent, name in MARKS if present <= names and not absent & names), None)


def _in_an_environment(shown: Shown, family: Family) -> Told | None:
    """Return that a policy without language acts in an environment, where episodes are logged and nothing of texts."""
    if family is not Family.ONLINE:
        return None
    marks = [name for name in ENVIRONMENT_METRICS if name in shown.metrics]
    spaces = [raw for raw in shown.logged if raw.removeprefix("console:").startswith(ENVIRONMENT_SPACES)]
    if not (marks or spaces) or shown.metrics & set(LANGUAGE_METRICS) or shown.words() & LANGUAGE_WORDS:
        return None
    if shown.texts or shown.sampled or not ("reward/mean" in shown.metrics or spaces):
        return None
    by = shown.spelling(marks[0]) if marks else spaces[0]
    return Family.CLASSIC_RL, f"episodes of an environment (`{by}`) and nothing of texts"


def _by_metrics(shown: Shown) -> Told | None:
    """Return the kind of training by what is logged, and by what of it."""
    metrics = shown.metrics
    if found := _in_an_environment(shown, Family.ONLINE) or _distilled(shown):
        return found
    if sampling := [name for name in ONLINE_METRICS if name in metrics]:
        return Family.ONLINE, f"it logs `{shown.spelling(sampling[0])}`, which only sampling has"
    if pairs := [name for name in PAIR_METRICS if name in metrics]:
        model = next((word for place in shown.places for word in _hints(place) if word[1] is Family.REWARD_MODEL), None)
        if model and not {"dpo/logp_chosen", "dpo/logp_rejected"} & metrics:
            return Family.REWARD_MODEL, f"pairs are ranked (`{shown.spelling(pairs[0])}`), and a file says {model[0]}"
        return Family.PREFERENCE, f"pairs are compared (`{shown.spelling(pairs[0])}`)"
    if any(metric.startswith("sft/") for metric in metrics):
        return Family.SUPERVISED, "it logs how well given answers are predicted"
    if "reward/mean" in metrics:
        return Family.ONLINE, f"a reward is logged (`{shown.spelling('reward/mean')}`)"
    if shown.sampled:
        return Family.ONLINE, "an inference engine's log-probabilities are recorded"
    if not shown.texts and _only_fitted(set(metrics), shown.logged, shown.framework):
        return _of_pairs(shown) or (Family.SUPERVISED, "a loss and no reward")
    return None


def _of_pairs(shown: Shown) -> Told | None:
    """Return a preference family if the loss begins near ln 2, as that of pairs does, and a name hints at pairs too."""
    losses = shown.values("loss/total")
    if not len(losses) or abs(losses[0] - LN_2) > LN_2_WITHIN:
        return None
    hints = [hint for text in (*shown.logged, *shown.places) for hint in _hints(text)]
    word, family = next((hint for hint in hints if hint[1] in PAIRED), ("", None))
    return (family, f"the loss starts at {sig(losses[0])}, near ln 2, and a name says {word}") if family else None


def _distilled(shown: Shown) -> Told | None:
    """Return whether a teacher takes the place of the reward, or, of texts that were there, of the answers."""
    if "kl/teacher" not in shown.metrics or shown.values("reward/mean").any():
        return None
    by = f"the KL to a teacher (`{shown.spelling('kl/teacher')}`) and no reward"
    sampling = shown.sampled or shown.texts or shown.metrics & {*ONLINE_METRICS, "entropy", "reward/mean"}
    return (Family.DISTILLATION if sampling else Family.SUPERVISED), by


def _by_hints(shown: Shown) -> Told | None:
    """Return the kind from weaker signs: words in names of metrics, then of files and folders, then a loss on its own.

    Words that hint at two kinds decide nothing.
    """
    places = shown.places if shown.logged else ()  # a log without metrics has no training to name
    for what, texts in (("a metric's name", shown.logged), ("the name of a file or folder", places)):
        told = {family: word for text in texts for word, family in _hints(text)}
        if len(told) == 1 and not (shown.texts and Family.SUPERVISED in told):
            family, word = next(iter(told.items()))
            return family, f"{what} says {word}"
    if shown.texts or not shown.metrics & set(GIVEN_METRICS) or shown.words() & LEARNT_BY_REWARD:
        return None
    losses = shown.values("loss/total")
    if len(losses) and losses.min() < 0 < losses.max():
        return Family.ONLINE, "a loss on both sides of 0, as a policy's is"
    if not len(losses) or losses.min() <= 0 or shown.words() & AMBIGUOUS:
        return None
    if abs(losses[0] - LN_2) <= LN_2_WITHIN:  # the loss of pairs, or of two classes
        return None
    return Family.SUPERVISED, "a loss above 0 and no reward"


AMBIGUOUS: Final = frozenset({"acc", "accuracy"})  # of tokens, of pairs, or of tasks


def _hints(text: str) -> Iterable[tuple[str, Family]]:
    """Yield the words in a name that hint at a kind of training, with that kind."""
    for match in JOINED_HINTS.findall(text):
        word = match.lower()
        family = Family.REWARD_MODEL if "reward" in word else Family.SUPERVISED if "tun" in word else Family.CLASSIC_RL
        yield word, Family.DISTILLATION if "distill" in word else family
    for word in spelt_words(text):
        if word in HINTS:
            yield word, HINTS[word]


def _only_fitted(metrics: set[str], logged: Collection[str], framework: JsonScalar) -> bool:
    """Return whether the log has a loss with the metrics of supervised training, and none of RL."""
    if "loss/total" not in metrics or not metrics & (HF_METRICS if framework == "transformers" else FITTED_METRICS):
        return False
    return not any(words_of(raw) & LEARNT_BY_REWARD for raw in logged)

"""The setup of a training run, in one place: which framework, which package versions, which settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.parsers.io.setup_files import LEFT_OUT, PACKAGE_NAMES
from ptt.diagnostics.store.manifest import Manifest

__all__ = ["BASES", "LEFT_OUT", "TrainingSetup", "setup_of"]

BASES: Final[Mapping[str, tuple[str, ...]]] = {
    "search-r1": ("verl",),
    "rllm": ("verl",),
    "ms-swift": ("trl",),
    "unsloth": ("trl",),
    "llamafactory": ("trl",),
    "axolotl": ("trl",),
    "miles": ("slime",),
    "slime": ("megatron",),
    "prime-rl": ("verifiers",),
}
"""What a framework is made of: its trainer or a fork of it is the other's."""
OWN_TRAINERS: Final = frozenset({"llamafactory"})
"""Those that replace what they are made of where it could go wrong: losses, batches, scaling."""
GENERIC: Final = frozenset({"transformers", "microsoft-ptt", "ptt", "generic"})
"""Writers of logs that tell nothing of who trains."""
WRAPPERS: Final = ("args", "config", "training_args", "train", "hparams", "trainer_args", "cfg")
"""Under which trackers and loops file all settings: `args.beta` is `beta`."""
MARKS: Final[tuple[tuple[str, str], ...]] = (
    ("search-r1", r"retriever\.url|do_search|actor_rollout_ref\.actor\.state_masking"),
    ("rllm", r"rllm\..+|agent\.max_steps"),
    ("agent-lightning", r"agentlightning\..+"),
    ("trinity-rft", r"synchronizer\.sync_(?:method|style|interval)|buffer\.(?:explorer|trainer)_input\..+"),
    ("areal", r"gconfig\..+|actor\.ppo_n_minibatches|rollout\.max_head_offpolicyness"),
    ("roll", r"actor_train\..+|actor_infer\..+"),
    ("skyrl", r"generator\.(?:n_samples_per_prompt|sampling_params\..+|inference_engine.*)|trainer\.policy\..+"),
    ("nemo-rl", r"grpo\.num_prompts_per_step|policy\.generation\..+|loss_fn\.ratio_clip_min"),
    ("verl", r"actor_rollout_ref\..+|critic\.ppo_.+|algorithm\.adv_estimator|data\.(?:train_files|multiturn\..+)"),
    ("prime-rl", r"orchestrator\..+|trainer\.loss\.\w+|inference\.(?:model|parallel)\..+|max_async_level"),
    ("openrlhf", r"micro_rollout_batch_size|init_kl_coef|micro_train_batch_size|critic_pretrain"),
    ("miles", r"miles_.+"),
    ("slime", r"rollout_function_path|sglang_mem_fraction_static|num_steps_per_rollout|rollout_num_gpus.*"),
    (
        "open-instruct",
        r"num_unique_prompts_rollout|num_samples_per_prompt_rollout|number_samples_per_prompt|ground_truths_key",
    ),
    ("ms-swift", r"rlhf_type|swift_version|tuner_backend"),
    ("llamafactory", r"finetuning_type|pref_ftx|dataset_dir|cutoff_len"),
    ("axolotl", r"trl\.num_generations|sequence_len|micro_batch_size|base_model|axolotl_config_path"),
    ("verifiers", r"rollouts_per_example|zero_truncated_completions"),
    ("tinker-cookbook", r"dataset_builder\..+|kl_penalty_coef|num_substeps"),
    ("trl", r"num_generations|vllm_mode|scale_rewards|steps_per_generation|desirable_weight|reference_free|rpo_alpha"),
    ("megatron", r"tensor_model_parallel_size|use_mcore_models|micro_batch_size"),
)
"""Names that only one framework's settings have, the more particular framework first."""
STRONG: Final = 2  # settings: of a framework whose names others may use too, as many must be there
LOOSE: Final = frozenset({"axolotl", "megatron", "llamafactory", "prime-rl", "rllm", "verifiers", "tinker-cookbook"})
TRAINERS: Final = (
    "unsloth", "ms-swift", "llamafactory", "axolotl", "verl", "openrlhf", "nemo-rl", "skyrl", "slime", "miles",
    "prime-rl", "areal", "roll", "open-instruct", "rllm", "tinker-cookbook", "trl",
)  # fmt: skip
"""Distributions that are frameworks, those made of another first."""


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """Which framework, package versions and settings a run, or a config alone, records."""

    framework: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)  # distribution, as PyPI compares names -> version
    settings: Mapping[str, JsonScalar] = field(default_factory=dict)  # dotted names; None is null
    in_part: bool = False  # others may have been set and were not read: no default stands in for them
    logged: frozenset[str] = frozenset()  # metrics that the run logs, of those that only some releases do

    def lookup(self, key: str) -> tuple[bool, JsonScalar]:
        """Return whether a setting is written, and its value; a dotted name may stand below others."""
        key = spelt(key)
        if key in self.settings:
            return True, self.settings[key]
        for wrapper in WRAPPERS:
            if (wrapped := f"{wrapper}.{key}") in self.settings:
                return True, self.settings[wrapped]
        found = {self.settings[name] for name in self.settings if name.endswith(f".{key}")} if "." in key else set()
        return (True, found.pop()) if len(found) == 1 else (False, None)

    def is_of(self, framework: str) -> bool | None:
        """Return whether a framework trains the run, itself or in what is made of it; None where none is known."""
        if self.framework is None:
            return None
        made_of = () if self.framework in OWN_TRAINERS else BASES.get(self.framework, ())
        return framework in {self.framework, *made_of}


def spelt(key: str) -> str:
    """Return a setting's name as all of them are compared: lower case, dots and underscores."""
    return key.replace("/", ".").replace("-", "_").lower()


def setup_of(manifest: Manifest, *, told: str | int | None = None) -> TrainingSetup:
    """Return the setup that the files of a run state; `told`: the framework, by its user's word, which counts first."""
    stated = manifest.facts.get("framework")
    made = make_setup(stated if isinstance(stated, str) else None, manifest.packages, manifest.settings, manifest.facts)
    made = replace(made, in_part=manifest.settings_in_part)
    return replace(made, framework=told.lower()) if isinstance(told, str) else made


def make_setup(
    stated: str | None,
    packages: Mapping[str, str],
    settings: Mapping[str, JsonScalar],
    facts: Mapping[str, JsonScalar] | None = None,
) -> TrainingSetup:
    """Return a setup; where nobody states the framework, settings or packages tell it."""
    known = dict(packages)
    for name, value in {**(facts or {}), **settings}.items():
        if isinstance(value, str | float) and (found := VERSION_SETTING.search(name)):
            known.setdefault(PACKAGE_NAMES[found[1]], str(value))
    names = {spelt(name): value for name, value in settings.items()}
    return TrainingSetup(framework=_framework(stated, known, names), packages=known, settings=names)


VERSION_SETTING: Final = re.compile(rf"(?:^|[._])({'|'.join(map(re.escape, sorted(PACKAGE_NAMES)))})_version$")


def _framework(stated: str | None, packages: Mapping[str, str], settings: Mapping[str, JsonScalar]) -> str | None:
    by_settings = next((name for name, pattern in MARKS if _marked(name, pattern, settings)), None)
    by_package = next((name for name in TRAINERS if name in packages), None)
    said = stated.lower() if stated is not None and stated.lower() not in GENERIC else None
    told = by_settings if by_settings and by_settings not in BASES.get(said or "", ()) else said or by_package
    made_of_it = (other for other in (by_settings, by_package) if other and told in BASES.get(other, ()))
    return next(made_of_it, told) or (stated.lower() if stated else None)


def _marked(name: str, pattern: str, settings: Mapping[str, JsonScalar]) -> bool:
    count = sum(re.fullmatch(rf"(?:{'|'.join(WRAPPERS)})?\.?(?:{pattern})", key) is not None for key in settings)
    return count >= (STRONG if name in LOOSE else 1)

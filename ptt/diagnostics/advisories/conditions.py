"""Say whether a setup has an advisory's version and settings: yes, no, or not recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from operator import ge, gt, le, lt
from typing import Final

from msgspec import UNSET
from packaging.version import Version

from ptt.diagnostics.advisories.advisory import (
    COMPARISONS,
    AffectedPackage,
    Condition,
    OtherSetting,
    Plain,
    distribution,
    parse_version,
)
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.training_setup import LEFT_OUT, TrainingSetup
from ptt.diagnostics.model import NO_VERSION, JsonScalar

BUILDS: Final = ("cu", "cpu", "rocm", "xpu", "post")  # local parts that name a build of a release, not a change to it
TOLERANCE: Final = 1e-9  # relative: 0.1 that was written as 1e-1
LARGEST: Final = 1e300  # no setting: beyond it integers have no float
Tri = bool | None
"""None: not recorded."""
SETTINGS_OF_RELEASES: Final[Mapping[str, Mapping[str, tuple[str | None, str | None]]]] = {
    "trl": {
        "vllm_device": ("0.14.0", "0.18.0"),
        "vllm_server_host": ("0.16.0", None),
        "scale_rewards": ("0.16.0", None),
        "vllm_mode": ("0.18.0", None),
        "steps_per_generation": ("0.18.0", None),
        "generation_batch_size": ("0.18.0", None),
        "generation_kwargs": ("0.19.0", None),
        "vllm_importance_sampling_correction": ("0.23.0", None),
        "vllm_enable_sleep_mode": ("0.23.0", None),
        "vllm_importance_sampling_mode": ("0.26.0", None),
        "max_tool_calling_iterations": ("0.27.0", None),
    },
    "verl": {
        "actor_rollout_ref.actor.fsdp_config.grad_offload": (None, "0.3.0.post1"),
        "critic.model.fsdp_config.param_offload": (None, "0.8.0"),
        "critic.model.fsdp_config.optimizer_offload": (None, "0.8.0"),
        "actor_rollout_ref.rollout.prometheus.enable": ("0.6.1", None),
        "reward.custom_reward_function.path": ("0.7.1", None),
        "actor_rollout_ref.rollout.checkpoint_engine.backend": ("0.7.1", None),
    },
    "nemo-rl": {
        "policy.dtensor_cfg.enabled": ("0.2.0", None),
        "grpo.use_dynamic_sampling": ("0.4.0", None),
        "grpo.async_grpo.enabled": ("0.4.0", None),
        "grpo.reward_shaping.enabled": ("0.4.0", None),
        "policy.dtensor_cfg._v2": ("0.4.0", None),
        "loss_fn.force_on_policy_ratio": ("0.5.0", None),
        "loss_fn.kl_input_clamp_value": ("0.5.0", None),
        "grpo.adv_estimator.name": ("0.6.0", None),
        "grpo.seq_logprob_error_threshold": ("0.6.0", None),
        "grpo.val_at_end": ("0.6.0", None),
    },
}
"""Settings that only some releases have, by their configs at each tag: the first that has it, the first without.

A config that writes one is of no other release, also where nobody recorded the version.
"""
METRICS_OF_RELEASES: Final[Mapping[str, Mapping[str, tuple[str | None, str | None]]]] = {
    "trl": {
        "completion_length": (None, "0.17.0"),
        "completions/mean_length": ("0.17.0", None),
        "clip_ratio/region_mean": ("0.17.0", None),
        "sampling/sampling_logp_difference/mean": ("0.23.0", None),
        "tools/call_frequency": ("0.26.0", None),
    },
}
"""The same of what a run logs, by `grpo_trainer.py` at each tag."""


@dataclass(frozen=True, kw_only=True)
class RangeAnswer:
    """Whether a package is in its range, and what makes that uncertain."""

    holds: Tri
    version: str = ""
    unsure: str = ""


def in_range(package: AffectedPackage, setup: TrainingSetup) -> RangeAnswer:
    """Hold the recorded version of a package against its range.

    A development version, a local one and one installed from a commit are matched by their base, and uncertain.
    """
    text = setup.packages.get(distribution(package.name))
    if not text:
        if not _may_be_of(package, setup):
            return RangeAnswer(holds=False)
        if package.introduced is None and package.fixed is None:
            return RangeAnswer(holds=None, unsure=f"whether {package.name} is installed is not recorded")
        return RangeAnswer(holds=None, unsure=f"{package.words}{NO_VERSION}")
    version = parse_version(text)
    if version is None:
        return RangeAnswer(holds=None, version=text, unsure=f"{package.name} {text} is no released version")
    inside = _between(Version(version.base_version), package)
    local = version.local is not None and not version.local.startswith(BUILDS)
    if version.is_devrelease or local:
        return RangeAnswer(
            holds=inside,
            version=text,
            unsure=f"{package.name} {text} is a development or local version, matched as {version.base_version}",
        )
    return RangeAnswer(holds=_between(version, package), version=text)


def _may_be_of(package: AffectedPackage, setup: TrainingSetup) -> bool:
    """Return whether a release in the range can have all the settings that are written and the metrics logged."""
    name = distribution(package.name)
    written: list[tuple[str | None, str | None]] = []
    if setup.framework == name:
        written += [ends for key, ends in SETTINGS_OF_RELEASES.get(name, {}).items() if setup.lookup(key)[0]]
        written += [ends for key, ends in METRICS_OF_RELEASES.get(name, {}).items() if key in setup.logged]
    low = [Version(end) for end in (package.introduced, *(since for since, _ in written)) if end]
    high = [Version(end) for end in (package.fixed, *(until for _, until in written)) if end]
    return not low or not high or max(low) < min(high)


def _between(version: Version, package: AffectedPackage) -> bool:
    low, high = (None if end is None else Version(end) for end in (package.introduced, package.fixed))
    public = Version(version.public)
    return (low is None or low <= public) and (high is None or public < high)


@dataclass(frozen=True, kw_only=True)
class SettingAnswer:
    """Whether a condition on a setting holds, and by which value; `by_default`: it is not written."""

    holds: Tri
    value: JsonScalar = None
    by_default: bool = False
    unlikely: bool = False  # nobody knows, and by the framework's default it does not hold


def holds(key: str, condition: Condition, setup: TrainingSetup) -> SettingAnswer:
    """Hold a condition against the recorded settings."""
    written, value = setup.lookup(key)
    if condition.absent:
        return SettingAnswer(holds=value is None if setup.settings else None)
    by_default = not written and condition.default is not UNSET
    if by_default:
        value = _default(condition, setup)
        if not setup.settings and value is not None:
            return SettingAnswer(holds=None, unlikely=_all(_parts(condition, value, setup)) is False)
    if value is None:
        return (
            SettingAnswer(holds=_of_null(condition))
            if written
            else SettingAnswer(holds=None, unlikely=bool(condition.present))
        )
    if value == LEFT_OUT:  # a text that was not kept: it is there, and that is all
        return SettingAnswer(holds=True if _asks_presence(condition) else None, value="set")
    return SettingAnswer(holds=_all(_parts(condition, value, setup)), value=value, by_default=by_default)


def _default(condition: Condition, setup: TrainingSetup) -> JsonScalar:
    if isinstance(condition.default, OtherSetting):
        return _limit(condition.default, setup)
    return None if condition.default is UNSET else condition.default


def _asks_presence(condition: Condition) -> bool:
    compared = any(getattr(condition, name) is not None for name in COMPARISONS)
    return bool(condition.present) and condition.is_ is UNSET and condition.not_ is UNSET and not compared


def _of_null(condition: Condition) -> bool:
    """Judge a setting that is written as null: it is no value, so that only `not` can hold."""
    compared = any(getattr(condition, name) is not None for name in COMPARISONS)
    return condition.is_ is UNSET and not condition.present and not compared


def _all(answers: Iterable[Tri]) -> Tri:
    found = list(answers)
    return False if False in found else None if None in found else True


def _parts(condition: Condition, value: JsonScalar, setup: TrainingSetup) -> Iterable[Tri]:
    if condition.is_ is not UNSET:
        yield _is_any(value, condition.is_)
    if condition.not_ is not UNSET:
        yield not _is_any(value, condition.not_)
    number = _number(value)
    for name in COMPARISONS:
        if (limit := getattr(condition, name)) is None:
            continue
        left = None if number is None else _times(number, condition.times, setup)
        right = _limit(limit, setup)
        yield None if left is None or right is None else COMPARE[name](left, right)


def _is_any(value: JsonScalar, wanted: Plain | tuple[Plain, ...]) -> bool:
    options = wanted if isinstance(wanted, tuple) else (wanted,)
    return any(_equal(value, option) for option in options)


def _equal(value: JsonScalar, wanted: Plain) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        return abs(value - wanted) <= TOLERANCE * max(abs(value), abs(wanted))
    return str(value).lower() == str(wanted).lower()


def _number(value: JsonScalar) -> float | None:
    """Return a number that can be compared; None for NaN, the infinities and what overflows."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        return None
    return float(value)


def _times(number: float, keys: Iterable[str], setup: TrainingSetup) -> float | None:
    factors = [_number(setup.lookup(key)[1]) for key in keys]
    known = [factor for factor in factors if factor is not None]
    return number * prod(known) if len(known) == len(factors) else None


def _limit(limit: float | OtherSetting, setup: TrainingSetup) -> float | None:
    if not isinstance(limit, OtherSetting):
        return float(limit)
    written, value = setup.lookup(limit.setting)
    number = _number(value if written else limit.default)
    return None if number is None else _times(number, limit.times, setup)


COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "above": gt,
    "below": lt,
    "at_least": ge,
    "at_most": le,
    "not_multiple_of": lambda value, of: of > 0 and abs(value / of - round(value / of)) > TOLERANCE,
    "differs_from": lambda value, other: not _equal(value, other),
}

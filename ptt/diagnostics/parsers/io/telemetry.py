"""What run logs hold beside metrics: events, samples of the machines, and the settings that are safe to repeat."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.parsers.io.interface import Rows, RunFile
from ptt.diagnostics.parsers.io.values import as_plain_number, as_step
from ptt.diagnostics.schema import EVENTS, RANKS

TEXT_CHARS = 300
FIRST_EVENTS, LAST_EVENTS = 200, 800  # of one file: enough to show how it began and how it ended
FLUSH_ROWS = 50_000
ESCAPES = compiled(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
UNPRINTED = compiled(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]+")
PRIVATE = (
    (compiled(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"), "…"),  # e-mail addresses
    (compiled(r"(?:~|/[\w.@+-]+)(?:/[\w.@+-]+)*/(?=[\w.@+-])"), "…/"),  # folders; the file's own name tells enough
    (compiled(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), "…"),  # addresses of machines
)
TROUBLE: Final = (
    "error", "exception", "traceback", "warn", "out of memory", "killed", "sigterm", "sigkill", "sigsegv", "sigint",
    "abort", "fail", "crash", "timeout", "time out", "timed out", "nccl", "resum", "restart", "checkpoint", "preempt",
    "diverg", "overflow", "not flushed", "params_dict",
)  # fmt: skip
TROUBLE_WORDS = compiled(r"\b(?:nan|inf|oom)\b")
NOISE = compiled(r"deprecat|FutureWarning|UserWarning|warnings\.warn\(", re.IGNORECASE)
DEVICE = compiled(r"(?:^|[./_])gpu[./_](\d{1,3})(?=[._/])", re.IGNORECASE)
NODE = compiled(r"^ray/(node\.\d{1,4})\.")
# A node in NeMo-RL's and MLflow's names, a rank in trackio's (mlflow/system_metrics, trackio/gpu.py).
PLACE = compiled(r"^(?:ray/(node\.\d{1,4})\.|system/([^/]{1,64})/(?=gpu_)|rank(\d{1,5})/)")


def is_device_sample(name: str) -> bool:
    """Return whether a metric is a sample of one node's device, as NeMo-RL's logger writes it among the metrics."""
    return NODE.match(name) is not None


def safe_line(text: str) -> str:
    """Make one shortened line of a text, without escape codes, folders and addresses."""
    whole = UNPRINTED.sub(" ", ESCAPES.sub("", text[: 8 * TEXT_CHARS])).strip()
    for pattern, instead in PRIVATE:
        whole = pattern.sub(instead, whole)
    return whole if len(whole) <= TEXT_CHARS else f"{whole[:TEXT_CHARS]}…"


def speaks_of_trouble(text: str) -> bool:
    """Return whether a line of output is about trouble, a checkpoint or a restart; a loop beats one pattern."""
    lower = text.lower()
    for word in TROUBLE:
        if word in lower:
            return not NOISE.search(text)
    if "nan" in lower or "inf" in lower or "oom" in lower:
        return TROUBLE_WORDS.search(lower) is not None and not NOISE.search(text)
    return False


@dataclass
class EventLog:
    """The events of one file; if there are very many, the first and the last.

    Lines of output are kept if they mention trouble, a checkpoint or a restart; all of them only if texts are kept,
    since trainers print samples too.
    """

    file: RunFile
    left_out: int = 0
    _first: list[tuple[int | None, float | None, str, str]] = field(default_factory=list)
    _last: deque[tuple[int | None, float | None, str, str]] = field(default_factory=lambda: deque(maxlen=LAST_EVENTS))

    def add(self, step: int | None, wall_time: float | None, kind: str, text: str) -> None:
        """Keep one event."""
        row = (step, wall_time, kind, safe_line(text))
        if len(self._first) < FIRST_EVENTS:
            self._first.append(row)
        else:
            self.left_out += len(self._last) == LAST_EVENTS
            self._last.append(row)

    def add_output(self, step: int | None, wall_time: float | None, kind: str, text: str) -> None:
        """Keep the lines of output worth keeping; a progress bar counts with its last state."""
        for line in text.split("\n"):
            line = line.rstrip("\r").rpartition("\r")[2]
            if line.strip() and (self.file.keep_text or speaks_of_trouble(line[: 8 * TEXT_CHARS])):
                self.add(step, wall_time, kind, line)

    def pieces(self) -> Iterator[Rows]:
        """Yield what was kept."""
        if rows := [(*row, self.file.rel) for row in (*self._first, *self._last)]:
            yield Rows(table="events", frame=pl.DataFrame(rows, schema=EVENTS, orient="row"))


@dataclass
class MachineLog:
    """Samples of machines and devices, one value a row."""

    file: RunFile
    rank: int | None = None
    _rows: list[tuple[int | None, float | None, str | None, int | None, int | None, str, float, str]] = field(
        default_factory=list
    )

    def add(self, step: int | None, wall_time: float | None, name: str, value: float | None) -> None:
        """Keep one value; the device, and the number of the node, are read from the name."""
        if value is None or value != value or value in (float("inf"), float("-inf")):
            return
        device, place = DEVICE.search(name), PLACE.match(name)
        ray_node, node, rank = place.groups() if place else (None, None, None)
        self._rows.append(
            (
                step,
                wall_time,
                ray_node or node,
                int(rank) if rank else self.rank,
                int(device.group(1)) if device else None,
                name,
                value,
                self.file.rel,
            )
        )

    def pieces(self) -> Iterator[Rows]:
        """Yield what was kept, and start again empty."""
        if self._rows:
            yield Rows(table="ranks", frame=pl.DataFrame(self._rows, schema=RANKS, orient="row"))
            self._rows = []

    def flush(self) -> Iterator[Rows]:
        """Yield `pieces` where many rows have gathered."""
        if len(self._rows) >= FLUSH_ROWS:
            yield from self.pieces()


Facts = dict[str, str | int | float | bool | None]

PLAIN_WORD: Final = compiled(r"[A-Za-z][A-Za-z0-9_+-]{0,31}")
_NUMBER: Final = compiled(r"[+-]?(?:\d{1,18}|(?:\d{1,18}\.\d{0,18}|\.\d{1,18}|\d{1,18})(?:[eE][+-]?\d{1,3})?)")

# By the last part of a setting's name, so that `actor_rollout_ref.actor.clip_ratio` matches too.
SAFE_SETTINGS: Final = frozenset(
    {
        "adv_estimator", "advantage_estimator", "algorithm", "beta", "bf16", "calculate_per_token_loss", "cliprange",
        "cliprange_value", "clip_ratio", "clip_ratio_high", "clip_ratio_low", "delta", "entropy_coeff", "eps_clip",
        "eps_clip_high",
        "epsilon", "epsilon_high", "fp16", "gamma", "generation_batch_size", "gradient_accumulation_steps",
        "gradient_checkpointing", "init_kl_coef", "kl_coef", "kl_loss_coef", "kl_loss_type", "kl_target", "lam",
        "lambd", "learning_rate", "logging_steps", "importance_sampling_level", "loss_agg_mode", "loss_mode",
        "loss_type", "lr", "lr_scheduler_type", "mask_infra_failed_completions", "mask_truncated_completions",
        "max_completion_length",
        "max_grad_norm", "max_prompt_length", "max_response_length", "max_steps", "max_tool_calling_iterations",
        "micro_batch_size", "mini_batch_size", "n_samples_per_prompt", "norm_adv_by_std_in_grpo", "num_generations",
        "num_iterations",
        "num_samples_per_prompt", "per_device_train_batch_size", "policy_loss_type", "pref_loss", "rlhf_type",
        "ppo_epochs", "ppo_mini_batch_size", "ratio_type", "ref_model_mixup_alpha", "ref_model_sync_steps",
        "ewma_decay",
        "ref_policy_update_freq", "ref_update_interval", "reward_clip", "rollout_batch_size", "rollout_temperature",
        "save_steps", "scale_rewards", "seed", "steps_per_generation", "sync_ref_model", "target_kl", "temperature",
        "token_level_loss", "top_k", "top_p", "total_training_steps", "train_batch_size", "use_kl_in_reward",
        "use_kl_loss", "use_vllm", "vllm_importance_sampling_cap", "vllm_importance_sampling_clip_max",
        "rollout_is_threshold", "reference_policy_kl_penalty", "vllm_importance_sampling_correction",
        "vllm_importance_sampling_mode",
        "warmup_ratio", "warmup_steps", "weight_decay",
    }
)  # fmt: skip


ENGINE_SETTINGS: Final = frozenset(
    {"apply_rope_fusion", "bias_activation_fusion", "clear_kv_cache_on_weight_sync", "enable_prefix_caching",
     "enable_rollout_routing_replay", "enable_sleep_mode", "expert_model_parallel_size", "free_cache_engine",
     "load_in_4bit", "load_in_8bit", "lora_r", "lora_rank", "pack_length", "packing",
     "quantization", "recompute_kv_cache_after_weight_updates", "rollout_is_threshold", "rollout_temperature",
     "rollout_top_p", "sglang_quantization", "temperature", "tis_clip", "top_p", "ulysses_sequence_parallel_size",
     "use_fault_tolerance", "use_fused_kernels", "use_lora", "use_peft", "use_rollout_routing_replay",
     "vllm_enable_lora", "vllm_enable_prefix_caching", "vllm_enable_sleep_mode", "vllm_importance_sampling_cap",
     "vllm_importance_sampling_clip_max", "vllm_importance_sampling_correction"}
)  # fmt: skip
"""What may set the inference engine apart from the trainer, or corrects for it."""

PLANNED: Final[Mapping[str, frozenset[str]]] = {
    "planned_steps": frozenset(
        {"total_steps", "num_training_steps", "training_steps", "train_steps", "max_iters", "total_iters",
         "max_iterations", "total_iterations", "total_updates", "total_timesteps", "max_timesteps", "total_env_steps"}
    ),
    "planned_epochs": frozenset({"epochs", "num_epochs", "n_epochs", "num_train_epochs", "max_epochs", "total_epochs"}),
    "planned_episodes": frozenset({"episodes", "num_episodes", "n_episodes", "max_episodes", "total_episodes"}),
    "counted_steps": frozenset({"num_steps", "num_iterations", "iterations", "n_iterations", "num_updates", "steps"}),
}  # fmt: skip
"""How long a run was to be, by the unit; `counted_steps`: as often the length of a rollout or the passes over one."""
PLANS: Final[Mapping[str, str]] = {name: plan for plan, names in PLANNED.items() for name in names}

MAX_PATH_END: Final = 60  # characters of a checkpoint's path that hold its step
RESUMED_FROM: Final = compiled(r"(?:checkpoint|step)[-_](\d{1,9})/?$")  # of a checkpoint's path
ROLLOUT_N: Final = compiled(r"(?:^|[./])rollout[./]n$")
EPISODE_STEPS: Final = compiled(
    r"(?:^|[./_])(?:agents?|env|envs|environments?|rollouts?|episodes?|workflow|tools?)[./](?:[^./]+[./])*max_steps$"
)
"""The steps of one episode, not of the training: rLLM's `agent.max_steps`, `env.max_steps`."""


def safe_settings(settings: Mapping[str, Any]) -> Facts:
    """Take the settings that are on the list, by their last part; the shortest name counts where two share it."""
    facts: Facts = {}
    for name in sorted(settings, key=lambda name: (name.count(".") + name.count("/"), name), reverse=True):
        if EPISODE_STEPS.search(name):
            continue
        last = re.split(r"[./]", name)[-1]
        if last in PLANS and (count := as_step(settings[name]) or 0) > 0:
            facts[PLANS[last]] = count
        if last == "resume_from_checkpoint" and (found := RESUMED_FROM.search(str(settings[name])[-MAX_PATH_END:])):
            facts["resumed_from_step"] = int(found[1])
        if last in SAFE_SETTINGS | ENGINE_SETTINGS and (value := plain_setting(settings[name])) is not None:
            facts[last] = value
        elif ROLLOUT_N.search(name) and (value := plain_setting(settings[name])) is not None:
            facts["rollout_n"] = value  # `n` by itself is the name of too many things
    return facts


def length_and_engine(settings: Mapping[str, Any]) -> Facts:
    """Take of settings the run's length and start, what may set its engine apart, and masks of failed samples."""
    taken = PLANNED.keys() | ENGINE_SETTINGS | {"max_steps", "mask_infra_failed_completions", "resumed_from_step"}
    return {name: value for name, value in safe_settings(settings).items() if name in taken}


def plain_setting(value: Any) -> str | int | float | bool | None:
    """Return a number, a boolean or one short word; None for anything else. The ingest refuses too large integers."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        number = as_plain_number(value)
        return value if number is None else _number(number)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text in ("True", "true", "False", "false"):
        return text in ("True", "true")
    if _NUMBER.fullmatch(text):
        return _number(float(text))
    return text if PLAIN_WORD.fullmatch(text) and text not in ("None", "null", "nan", "inf") else None


def _number(value: float) -> int | float | None:
    if value != value or abs(value) == float("inf"):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else value

"""The one table that says of every field and column of a diagnosis how it may be shared: what is not in it is not."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from ptt.diagnostics import model


class Treat(Enum):
    """What becomes of a value when it is redacted."""

    KEEP = auto()  # numbers, truth values and words of our own; a text that holds any other word is hashed
    SENTENCE = auto()  # put together by us: our own words and numbers are kept, every other word is hashed
    FILE = auto()  # hashed; what kind of file it is stays
    SAMPLE = auto()  # hashed, as the following are
    GROUP = auto()
    TOOL = auto()  # unless tool names are to be kept
    SLICE = auto()  # kept, but for the tool or the curve that it is named after
    ENVIRONMENT = auto()
    RUN = auto()
    RULE = auto()  # kept, but for a rule of the user's own
    HOLDER = auto()  # of the tail: what it is depends on the column `by`
    ITEM = auto()  # of the run's context: kept where it tells nothing of what the run is about
    ERROR = auto()  # of a rule that crashed: its kind and our own line are kept, its message is not
    SETTINGS = auto()  # those of SETTINGS are kept, the others dropped
    EVIDENCE = auto()  # by its key
    EACH = auto()  # records, classified themselves
    NAMED = auto()  # values that are kept, by names that are hashed unless they are ours
    DROP = auto()


K, S = Treat.KEEP, Treat.SENTENCE

FIELDS: Final[Mapping[type, Mapping[str, Treat]]] = {
    model.Run: {
        "name": Treat.RUN, "framework": K, "algorithm": K, "first_step": K, "last_step": K, "step_count": K,
        "sequences": K, "model_tokens": K, "context": Treat.SETTINGS,
    },
    model.RunVerdict: {"status": K, "headline": S, "first_broken_link": K, "next": S},
    model.Signature: {
        "status": K, "reason": S, "pair": K, "aggregates": Treat.EACH, "onset_step": K, "onset_interval": K,
        "lead_steps": K, "lead_is_lower_bound": K, "lead_interval": K, "growth": Treat.NAMED, "p_value": K,
        "false_alarm_rate": K, "conditions": Treat.NAMED,
    },
    model.Aggregates: {"status": K, "metrics": Treat.NAMED, "alarms": Treat.NAMED, "alarm_intervals": Treat.NAMED},
    model.Finding: {
        "id": Treat.RULE, "severity": K, "link": K, "claim": S, "observed": K, "limit": K, "unit": K,
        "slice": Treat.SLICE, "onset_step": K, "onset_interval": K, "evidence": Treat.EVIDENCE, "causes": S,
        "confirm": S, "next": S, "consequence_of": Treat.RULE,
    },
    model.NotJudged: {"id": Treat.RULE, "link": K, "reason": S, "missing": K, "enable": S, "applies": K},
    model.Healthy: {"id": Treat.RULE, "link": K, "reason": S, "notes": Treat.EACH},
    model.RuleCrash: {"id": Treat.RULE, "error": Treat.ERROR},
    model.Source: {
        "path": Treat.FILE, "kind": K, "bytes": K, "rows_ok": K, "rows_bad": K, "bytes_lost": K, "note": Treat.DROP,
    },
}  # fmt: skip

_BOUNDS = ("early", "late")
_WITH_INTERVAL = ("", "_lo", "_hi")

TABLES: Final[Mapping[str, Mapping[str, Treat]]] = {
    "aggregates": {"name": K, "step": K, "value": K, "mean": K, "limit": K},
    "tail_emergence": {
        "slice": K, "q": K, "step_first": K, "step_last": K, "step_mid": K, "value": K, "lo": K, "hi": K,
        "n_tokens": K, "n_sequences": K,
    },
    "ecdf": {"slice": K, "part": K, "x": K, "cdf": K, "n_tokens": K, "step_first": K, "step_last": K, "window": K},
    "ess": {
        "level": K, "weights": K, "step_first": K, "step_last": K, "step_mid": K, "ess_fraction": K, "n": K,
        "top_share": K, "slice": K,
    },
    "growth": {
        "slice": K, "part": K, "parts": K, "n_tokens": K, "n_sequences": K, "step_first": K, "step_last": K, "p50": K,
        "p95": K, "p99": K, "p999": K,
    },
    "exposure": {
        "weights": K, "cap": K, "dominated": K,
        **{f"{name}_{end}": K for name in ("alpha", "m_text", "m_tool", "total") for end in _BOUNDS},
        **{f"top_{name}_{end}": K for name in ("token", "sequence") for end in _BOUNDS},
        **{f"{name}{end}": K for name in ("change", "exposure", "text", "tool") for end in _WITH_INTERVAL},
        **{f"{name}_share{end}": K for name in ("exposure", "text", "tool") for end in _WITH_INTERVAL},
    },
    "heaviness": {
        "window": K, "slice": K, "level": K, "weights": K, "n": K, "k_hat": K, "threshold": K, "second_moment": K,
        "chi2": K, "chi2_normalised": K, "ess_fraction": K, "reason": S,
    },
    "extremes": {
        "window": K, "slice": K, "n": K,
        **{f"{name}{end}": K for name in ("p999", "above_2", "above_5", "above_10", "above_100")
           for end in _WITH_INTERVAL},
    },
    "tail_ratios": {
        "window": K, "percentile": K, "text": K, "post": K, "ratio": K, "ratio_lo": K, "ratio_hi": K,
    },
    "counterfactual": {
        "pair": K, "guard": K, "level": K, "slice": K, "window": K, "n": K, "hit": K, "ess_fraction": K,
        "second_moment": K, "mass_removed": K, "bias": K,
    },
    "attribution": {
        "by": K, "value": Treat.HOLDER, "rest": K, "tail": K, "tokens": K, "tail_share": K, "token_share": K, "lift": K,
        "n_sequences": K, "tail_sequences": K, "limit": K,
    },
    "top_sequences": {
        "path": Treat.FILE, "row": K, "step": K, "sample_id": Treat.SAMPLE, "group_id": Treat.GROUP, "tail": K,
        "tokens": K, "tail_share": K, "max_abs_r": K, "max_at": K, "max_turn": K, "reward": K, "text": Treat.DROP,
    },
    "staleness": {
        "slice": K, "lag": K, "n": K, "n_sequences": K, "p95": K, "p99": K, "share": K, "offset": K, "slope": K,
        "slope_lo": K, "slope_hi": K,
    },
    "details_notes": {"table": K, "reason": S},
    "checkpoints": {"role": K, "step": K, "path": Treat.FILE, "weights": K, "bytes": K, "note": S},
    "context": {"item": K, "present": K, "value": Treat.ITEM, "source": S, "enable": S},
    "checklists": {"phase": K, "item": K, "answer": K, "evidence": S},
}  # fmt: skip
"""Every table that a report shows."""

NAMES: Final[Mapping[tuple[str, str], Treat]] = {
    ("tools", "name"): Treat.TOOL,
    ("tool_calls", "name"): Treat.TOOL,
    ("trajectories", "env"): Treat.ENVIRONMENT,
    ("checkpoints", "path"): Treat.FILE,
    ("top_sequences", "path"): Treat.FILE,
    ("top_sequences", "sample_id"): Treat.SAMPLE,
    ("top_sequences", "group_id"): Treat.GROUP,
}
"""Columns whose values are names of the run's own, wherever they stand."""

LEFT_OUT: Final = frozenset(
    {
        "metrics", "trajectories", "tool_calls", "audit", "tools", "files", "step_stats", "ranks", "series",
        "other_series",
    }
)  # fmt: skip
"""Tables that no report shows: none of their rows is shared."""

SETTINGS: Final = frozenset(
    {
        "algorithm", "beta", "bf16", "clip_range", "entropy_coef", "epsilon", "epsilon_high", "fp16", "gamma",
        "generation_batch_size", "global_step", "gradient_accumulation_steps", "gradient_checkpointing", "kl_coef",
        "lam", "learning_rate", "logging_steps", "loss_type", "lr_scheduler_type", "mask_truncated_completions",
        "max_completion_length", "max_grad_norm", "max_prompt_length", "max_steps", "max_tool_calling_iterations",
        "min_p", "num_generations", "num_iterations", "num_train_epochs", "per_device_train_batch_size",
        "resumed_from_step", "save_steps", "scale_rewards", "seed", "steps_per_generation", "sync_ref_model",
        "target_kl", "temperature", "top_k", "top_p", "train_batch_size", "use_vllm", "vllm_importance_sampling_cap",
        "vllm_importance_sampling_correction", "vllm_importance_sampling_mode", "warmup_ratio", "warmup_steps",
        "weight_decay", "world_size", "accelerate_version", "numpy_version", "torch_version", "transformers_version",
        "trl_version", "verl_version", "vllm_version",
    }
)  # fmt: skip
"""Settings of training that say how it was done and not on what, where or by whom."""

ITEMS: Final = frozenset({"settings", "seed", "resumed", "gaps"})
"""Items of the run's context that can be told; of the others only that they are recorded."""

HOLDERS: Final[Mapping[str, Treat]] = {
    "group": Treat.GROUP,
    "env": Treat.ENVIRONMENT,
    "tool name": Treat.TOOL,
    "tools": K,
    "top sequences": K,
}
"""What a value of the table `attribution` names; every other kind is numbers or words of ours."""

KEYS: Final[Mapping[str, Treat]] = {
    "tool": Treat.TOOL,
    "tool_name": Treat.TOOL,
    "env": Treat.ENVIRONMENT,
    "environment": Treat.ENVIRONMENT,
    "trajectory_id": Treat.SAMPLE,
    "sample_id": Treat.SAMPLE,
    "group_id": Treat.GROUP,
    "device": Treat.DROP,
    "exit_reason": Treat.DROP,
    "error": Treat.DROP,
    "message": Treat.DROP,
    "text": Treat.DROP,
}
"""Evidence whose value is no number and no sentence of ours, by its key."""

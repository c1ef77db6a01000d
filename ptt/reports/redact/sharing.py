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
    PARTS = auto()  # kept as KEEP is, but part by part: an id of ours that is put together with slashes
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
    PUBLIC = auto()  # of an advisory that comes with ptt: kept, and what the run says in it is an option of that one
    VERSION = auto()  # of a released package, or a date of ours: kept as it is
    VERSIONS = auto()  # by package: those that are released versions
    NAMED = auto()  # values that are kept, by names that are hashed unless they are ours
    DROP = auto()


K, S = Treat.KEEP, Treat.SENTENCE


def _columns(kept: str, **others: Treat) -> Mapping[str, Treat]:
    """Return how each field or column may be shared; those in `kept` stay unchanged."""
    return dict.fromkeys(kept.split(), K) | others


FIELDS: Final[Mapping[type, Mapping[str, Treat]]] = {
    model.Run: _columns(
        "framework algorithm first_step last_step step_count sequences model_tokens step_unit kind",
        name=Treat.RUN, context=Treat.SETTINGS, placed_by=S, kind_reason=S,
    ),
    model.RunVerdict: _columns("status first_broken_link", headline=S, next=S, coverage=Treat.EACH),
    model.Coverage: _columns("judged asked", core=Treat.EACH),
    model.CoreQuestion: _columns("question judged rows change detectable unit", metric=S, why=S),
    model.Outcome: _columns(
        "ended steps planned series_left_out",
        series=Treat.EACH, best_checkpoint=S, how_ended=S, did=S, cost=S, said=S,
    ),
    model.SeriesOutcome: _columns(
        "name label split unit direction count not_finite first_step last_step first last best best_step low high "
        "early late change movement detectable still_moving settled_at turn turn_step changed_at changed_interval "
        "spikes noise at_zero bound at_bound spread_left",
        logged_as=S,
    ),
    model.StopReplay: _columns(
        "budget first_step last_step step rule since_step warned_step watched", claim=S, guards=Treat.EACH,
    ),
    model.Cost: _columns(
        "rule onset_step last_step steps hours stop_step steps_after_stop hours_after_stop", said=S,
    ),
    model.Guard: _columns("name value unit", says=S),
    model.Signature: _columns(
        "status pair onset_step onset_interval limit_passed_step limit_passed_interval lead_steps lead_is_lower_bound "
        "lead_interval lead_until p_value false_alarm_rate",
        reason=S, aggregates=Treat.EACH, growth=Treat.NAMED, conditions=Treat.NAMED,
    ),
    model.Aggregates: _columns("status", metrics=Treat.NAMED, alarms=Treat.NAMED, alarm_intervals=Treat.NAMED,
        means_passed=Treat.NAMED, last_steps=Treat.NAMED,
    ),
    model.Finding: _columns(
        "severity link observed limit unit onset_step onset_interval held_from_step limit_passed_step "
        "limit_passed_interval",
        id=Treat.RULE, claim=S, context=S, slice=Treat.SLICE, evidence=Treat.EVIDENCE, causes=S, confirm=S, next=S,
        consequence_of=Treat.RULE,
    ),
    model.AuditRow: _columns(
        "agreement logged recomputed error steps agreeing since missing",
        quantity=S, said=S, logged_as=S, reason=S, formula=Treat.PARTS, reduction=Treat.PARTS, finding=Treat.RULE,
    ),
    model.Ledger: _columns(
        "since steps tokens half_tokens early_half_tokens effective_sequences tail_share tail_tokens second_moment "
        "cheapest",
        finding=Treat.RULE, objective=S, reason=S, said=S, place=S, approximated=S,
        shares=Treat.EACH, guards=Treat.EACH,
    ),
    model.LedgerShare: _columns("by share token_share signed kl masked truncated clipped", value=Treat.KEEP),
    model.GuardPrice: _columns("guard pair tail cost second_moment holds", reason=S),
    model.Support: _columns(
        "follows pair steps tokens groups alpha changes change change_interval",
        reason=S, shares=Treat.EACH, masses=Treat.EACH, outputs=Treat.EACH,
    ),
    model.SupportShare: _columns("cause share interval", reason=S),
    model.SupportMass: _columns(
        "window by value tokens groups policy reference reference_interval unsupported unsupported_interval tail_share"
    ),
    model.OutputDiversity: _columns("window outputs distinct exact near unseen familiarity"),
    model.AdvisoryReport: _columns(
        "count framework settings unresolved", version=Treat.VERSION, date=Treat.VERSION, packages=Treat.VERSIONS,
        matches=Treat.EACH,
    ),
    model.AdvisoryMatch: _columns(
        "strength kind severity looked_for shaped",
        **dict.fromkeys(("id", "summary", "effect", "by_default", "change", "where", "upgrade", "workaround",
            "references"), Treat.PUBLIC),
        findings=Treat.RULE, settings=Treat.PUBLIC, packages=Treat.VERSIONS, unsure=S, would_show=S, source=Treat.FILE,
    ),
    model.NotJudged: _columns("link missing applies absent", id=Treat.RULE, reason=S, enable=S),
    model.Healthy: _columns("link", id=Treat.RULE, reason=S, notes=Treat.EACH),
    model.RuleCrash: _columns("", id=Treat.RULE, error=Treat.ERROR),
    model.Source: _columns("kind bytes rows_ok rows_bad bytes_lost", path=Treat.FILE, note=Treat.DROP),
}  # fmt: skip


def _each(*names: str, ends: tuple[str, ...] = ("", "_lo", "_hi")) -> str:
    return " ".join(name + end for name in names for end in ends)


_BOUNDS = ("_early", "_late")

TABLES: Final[Mapping[str, Mapping[str, Treat]]] = {
    "aggregates": _columns("name step value mean limit"),
    "courses": _columns("split step value", logged_as=S),
    "finding_series": _columns("step value flag", metric=S, logged_as=S),
    "support_course": _columns("step_first step_last step_mid alpha text_only failed familiar unfamiliar"),
    "tail_emergence": _columns("slice q step_first step_last step_mid value lo hi n_tokens n_sequences"),
    "ecdf": _columns("slice part x cdf n_tokens step_first step_last window"),
    "ess": _columns("level weights step_first step_last step_mid ess_fraction lo hi n top_share slice"),
    "growth": _columns("slice part parts n_tokens n_sequences step_first step_last p50 p95 p99 p999"),
    "exposure": _columns(
        f"weights cap dominated {_each('alpha', 'm_text', 'm_tool', 'total', ends=_BOUNDS)} "
        f"{_each('top_token', 'top_sequence', ends=_BOUNDS)} {_each('change', 'exposure', 'text', 'tool')} "
        f"{_each('exposure_share', 'text_share', 'tool_share')}"
    ),
    "heaviness": _columns(
        "window slice level weights n k_hat threshold second_moment chi2 chi2_normalised ess_fraction", reason=S
    ),
    "extremes": _columns(f"window slice n {_each('p999', 'above_2', 'above_5', 'above_10', 'above_100')}"),
    "tail_ratios": _columns("window percentile text post ratio ratio_lo ratio_hi"),
    "counterfactual": _columns(
        "pair guard level slice window n hit ess_fraction second_moment mass_removed bias"
    ),
    "attribution": _columns(
        "by rest tail tokens tail_share token_share lift n_sequences tail_sequences limit", value=Treat.HOLDER
    ),
    "ledger": _columns(
        "by rest window tokens token_share share signed kl_share masked truncated clipped lift", value=Treat.HOLDER
    ),
    "ledger_steps": _columns(
        "step tokens weight second_moment half_tokens effective_sequences sequences post_share post_tokens tail_share "
        "tail_tokens kl_share clipped"
    ),
    "ledger_guards": _columns("guard pair tail_low tail_high cost_low cost_high second_moment holds", reason=S),
    "checkpoints": _columns("role step weights bytes", path=Treat.FILE, note=S),
    "top_sequences": _columns(
        "row step step_row tail tokens tail_share max_abs_r max_at max_turn reward", path=Treat.FILE,
        sample_id=Treat.SAMPLE, group_id=Treat.GROUP, text=Treat.DROP,
    ),
    "staleness": _columns("slice lag n n_sequences p95 p99 share offset slope slope_lo slope_hi"),
    "details_notes": _columns("table", reason=S),
    "context": _columns("item present", value=Treat.ITEM, source=S, enable=S),
    "checklists": _columns("phase item answer", evidence=S),
}  # fmt: skip
"""Every table that a report shows."""

NAMES: Final[Mapping[tuple[str, str], Treat]] = {
    ("tools", "name"): Treat.TOOL,
    ("tool_calls", "name"): Treat.TOOL,
    ("trajectories", "env"): Treat.ENVIRONMENT,
    **{
        (table, column): treat
        for table, columns in TABLES.items()
        for column, treat in columns.items()
        if treat in {Treat.FILE, Treat.SAMPLE, Treat.GROUP}
    },
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
        "lam", "learning_rate", "logging_steps", "loss_mode", "loss_type", "lr_scheduler_type",
        "mask_truncated_completions", "max_completion_length", "max_grad_norm", "max_prompt_length", "max_steps",
        "max_tool_calling_iterations", "min_p", "num_generations", "num_iterations", "num_train_epochs",
        "per_device_train_batch_size", "ref_model_mixup_alpha", "ref_model_sync_steps", "ref_policy_update_freq",
        "ewma_decay", "ref_update_interval", "resumed_from_step", "rollout_n", "save_steps", "scale_rewards", "seed",
        "steps_per_generation", "sync_ref_model", "target_kl", "temperature", "top_k", "top_p", "train_batch_size",
        "use_vllm", "vllm_importance_sampling_cap", "vllm_importance_sampling_correction",
        "vllm_importance_sampling_mode", "warmup_ratio", "warmup_steps", "weight_decay", "world_size",
        "accelerate_version", "numpy_version", "torch_version", "transformers_version", "trl_version", "verl_version",
        "vllm_version",
    }
)  # fmt: skip
"""Settings of training that say how it was done and not on what, where or by whom."""

ITEMS: Final = frozenset({"settings", "seed", "resumed", "gaps"})
"""Items of the run's context that can be told; of the others only that they are recorded."""

HOLDERS: Final[Mapping[str, Treat]] = {
    "group": Treat.GROUP,
    "env": Treat.ENVIRONMENT,
    "tool name": Treat.TOOL,
}
"""What a value of the table `attribution` names; every other kind is numbers or words of ours."""

HOLDERS_OF: Final[Mapping[str, Treat]] = {
    "tool": Treat.TOOL,
    "environment": Treat.ENVIRONMENT,
    **dict.fromkeys(
        ("tool result", "observation number", "policy version", "lag", "rank", "temperature", "top_p", "logprob kind"),
        K,
    ),
}
"""What a finding's `holder_value` names, by its `holder_attribute`; of any other it names a group of samples."""

KEYS: Final[Mapping[str, Treat]] = {
    **dict.fromkeys(("tool", "tool_name"), Treat.TOOL),
    **dict.fromkeys(("env", "environment"), Treat.ENVIRONMENT),
    **dict.fromkeys(("trajectory_id", "sample_id"), Treat.SAMPLE),
    "group_id": Treat.GROUP,
    **dict.fromkeys(("device", "exit_reason", "error", "message", "text"), Treat.DROP),
}
"""Evidence whose value is no number and no sentence of ours, by its key."""

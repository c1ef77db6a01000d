"""Why trainer and engine disagree, from logged metrics and settings alone: the first cause, its rivals, the advice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow_cases import first_fast

import ptt
from ptt.diagnostics.evidence.excursions import RESTART, Recurrence, SeriesExcursions
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.evidence.mismatch_causes import CAUSES, Sign, rank_causes
from ptt.diagnostics.evidence.mismatch_course import metric_signs
from ptt.diagnostics.evidence.mismatch_settings import TOLD, told_signs
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.training_setup import make_setup
from ptt.diagnostics.model import Finding
from ptt.diagnostics.statistics.recurring_excursions import Excursion, Excursions

STEPS = 80
AT = np.arange(1, STEPS + 1)
NOISE = np.exp(0.1 * np.random.default_rng(5).normal(size=STEPS))
TRL, SKYRL = "sampling/sampling_logp_difference/mean", "policy/rollout_train_logprobs_abs_diff_mean"
NEMO, SLIME = "train/token_mult_prob_error", "train/train_rollout_logprob_abs_diff"
GROWING = 0.01 + 0.4 * (1 - np.exp(-AT / 20.0)) * (AT > 2)


def run_in(folder: Path, metrics: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> Path:
    rows = [{"step": int(step), **{name: float(values[at]) for name, values in metrics.items()}}
            for at, step in enumerate(AT)]  # fmt: skip
    folder.joinpath("metrics.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    if settings is not None:
        folder.joinpath("config.json").write_text(json.dumps(settings))
    return folder


def named(folder: Path, metrics: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> Finding:
    """Return the finding of the engine family that carries an answer."""
    found = ptt.diagnose(run_in(folder, metrics, settings)).findings
    return next(finding for finding in found if "cause_1" in finding.evidence)


FLAT, MOVING = 0.3 + 0.02 * (NOISE - 1), 0.2 + 0.006 * AT
SEQUENCES = {"train/min_seq_mult_prob_error": 1.01 * np.ones(STEPS)}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "never synced": ("weights-not-synced", {TRL: GROWING * NOISE, "reward": FLAT}, {"vllm_enable_sleep_mode": True}),
    "a part of the weights": (
        "weights-partly-synced",
        {SKYRL: GROWING * NOISE, "reward/avg_raw_reward": MOVING, "timing/sync_weights": 8 * NOISE},
        {},
    ),
    "an adapter added twice": (
        "adapter-twice",
        {"rollout_correction/log_ppl_abs_diff": np.where(AT < 50, 0.001, 1.1) * NOISE,
         "reward": np.where(AT < 50, 0.7, 0.0) + 0.02 * NOISE},
        {"use_peft": True},
    ),
    "a cache that epochs empty": (
        "cache-not-cleared",
        {SKYRL: np.where(AT % 20 == 1, 0.02, 0.9) * NOISE, "trainer/epoch": (AT - 1) // 20},
        {"enable_prefix_caching": True},
    ),
    "a level that falls back to the first one once, by less than a factor of 5": (
        "cache-not-cleared",
        {SKYRL: (0.023 + 0.08 * np.minimum(1, (AT - 1) % 50 / 40)) * NOISE**0.3},
        {"enable_prefix_caching": True},
    ),
    "packed rows": (
        "packing",
        {"debug/vllm_vs_local_logprob_diff_mean": 0.11 * NOISE, "debug/vllm_vs_local_logprob_diff_std": 0.26 * NOISE},
        {"pack_length": 8192},
    ),
    "rows of a recurrent model that are split over ranks": (
        "packing",
        {"mismatch_kl/all/mean": 0.03 * NOISE},
        {"trainer": {"model": {"name": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "cp": 2}}},
    ),
    "a few tokens": (
        "kernel",
        {NEMO: 1 + np.where(AT % 7 == 3, 500.0, 0.01) * NOISE, "train/max_seq_mult_prob_error":
         1 + np.where(AT % 7 == 3, 9e5, 0.02) * NOISE} | SEQUENCES,
        {},
    ),
    "a share of the prompts": (
        "prompt-bound-fault",
        {NEMO: 35.0 * NOISE, "train/max_seq_mult_prob_error": 400.0 * NOISE} | SEQUENCES,
        {},
    ),
    "an update that breaks what agreed": (
        "weights-partly-synced",
        {TRL: np.where(AT == 1, 0.06, 3.8) * NOISE, "reward": np.where(AT == 1, 0.4, 0.01) * NOISE},
        {},
    ),
    "an update that breaks all sequences by many orders of magnitude": (
        "weights-partly-synced",
        {NEMO: 1 + np.where(AT == 1, 0.01, 1e8) * NOISE**20,
         "train/max_seq_mult_prob_error": 1 + np.where(AT == 1, 0.02, 4e9) * NOISE**20,
         "train/min_seq_mult_prob_error": 1 + np.where(AT == 1, 0.007, 9e3) * NOISE**20},
        {},
    ),
    "sequences that are all broken before any update": (
        "weights-partly-synced",
        {NEMO: 1 + 1e5 * NOISE**20, "train/max_seq_mult_prob_error": 1 + 4e6 * NOISE**20,
         "train/min_seq_mult_prob_error": 1.7 * NOISE**0.1},
        {"expert_model_parallel_size": 8},
    ),
    "a trainer that reads sound answers as another model": (
        "trainer-weights",
        {SLIME: 1.4 * NOISE**0.3, "rollout/raw_reward": 0.47 + FLAT, "perf/update_weights_time": 7 * NOISE},
        {"lora_rank": 32, "moe_runner_backend": "flashinfer_trtllm"},
    ),
    "a ratio alone, of logprobs divided by the temperature": (
        "raw-vs-processed",
        {"sampling/importance_sampling_ratio/mean": 1.43 * NOISE**0.1},
        {"temperature": 0.6},
    ),
    "ratios cut though whole sequences agree": (
        "shift",
        {"rollout_correction/log_ppl_abs_diff": 0.002 * NOISE, "rollout_correction/is_weight_mean": 1.03 * NOISE**0.1,
         "rollout_correction/clipped_frac": 0.12 * NOISE},
        {"temperature": 1.0, "context_parallel_size": 2},
    ),
    "tokens of another text": (
        "template-or-retokenisation",
        {TRL: 0.06 * NOISE, "sampling/sampling_logp_difference/max": 20.0 * NOISE, "tools/call_frequency": 1.3 * NOISE},
        {"temperature": 1.0},
    ),
    "a temperature under the rollout's name": (
        "temperature",
        {TRL: 0.08 * NOISE},
        {"rollout_temperature": 0.8, "vllm_enable_sleep_mode": False},
    ),
    "logprobs at other places": (
        "shift",
        {"rollout_correction/log_ppl_abs_diff": 0.006 * NOISE, "rollout_correction/is_weight_mean": 3.0 * NOISE,
         "rollout_correction/clipped_frac": 0.15 * NOISE},
        {"temperature": 1.0, "top_p": 1.0},
    ),
    "a context without its images": (
        "template-or-retokenisation",
        {"training/rollout_probs_diff_mean": 0.11 * NOISE, "rollout_corr/chi2_token": -0.08 * NOISE},
        {"actor_rollout_ref": {"rollout": {"temperature": 1.0, "top_p": 1.0, "limit_mm_per_prompt": {"image": 2}}}},
    ),
    "a growth that begins again with a new engine": (
        "cache-not-cleared",
        {SKYRL: (0.004 + 0.0006 * np.where(AT > 45, AT - 45, AT) ** 2) * NOISE, "reward/avg_raw_reward": MOVING},
        {"enable_prefix_caching": True},
    ),
    "a level that falls far at once and begins again": (
        "cache-not-cleared",
        {NEMO: 1 + 0.018 * np.exp(np.where(AT > 47, AT - 47, AT) / 25.0) * NOISE**0.3, "train/reward": MOVING},
        {},
    ),
    "a saw below the limit": (
        "stale-weights",
        {TRL: (0.012 + 0.006 * (AT % 6)) * NOISE**0.3, "reward": MOVING},
        {"update_weights_interval": 6},
    ),
    "a trainer with Megatron's dropout": (
        "trainer-dropout",
        {SLIME: 0.86 * NOISE, "rollout/raw_reward": FLAT},
        {"attention_dropout": 0.1, "hidden_dropout": 0.1, "rollout_temperature": 1.0, "rollout_top_p": 1.0},
    ),
    "a trainer whose rows are padded": (
        "padding",
        {"rollout_corr/log_ppl_abs_diff": 1.8 * NOISE**0.3, "critic/score/mean": FLAT},
        {"actor_rollout_ref": {"model": {"use_remove_padding": False}, "rollout": {"temperature": 1.0, "top_p": 1.0}}},
    ),
    "a trainer that differs from itself": (
        "kernel",
        {NEMO: 1.06 + 0.005 * NOISE, "train/probs_ratio": 1.002 * NOISE**0.001},
        {"grpo": {"num_prompts_per_step": 64, "num_generations_per_prompt": 16},
         "policy": {"train_global_batch_size": 1024, "generation": {"temperature": 1.0, "top_p": 1.0}}},
    ),
    "weights that never move, and a level that does": (
        "kernel",
        {SLIME: 0.12 * NOISE**8, "train/grad_norm": 0.0 * AT},
        {"rollout_temperature": 1.0, "rollout_top_p": 1.0},
    ),
    "bitwise at the first step alone": (
        "stale-weights",
        {"train/vllm_kl": np.where(AT == 1, 0.0, 1e-5) * NOISE},
        {"actor.batch_invariant": True, "vllm.batch_invariant": True, "temperature": 1.0},
    ),
    "an engine over two nodes": (
        "kernel",
        {SLIME: 0.12 * NOISE},
        {"rollout_num_gpus_per_engine": 16, "num_gpus_per_node": 8, "rollout_temperature": 1.0, "rollout_top_p": 1.0},
    ),
    "prompts that come again": (
        "cache-not-cleared",
        {"training/rollout_probs_diff_mean": np.where(AT < 21, 0.004, 0.09) * NOISE, "training/epoch": (AT - 1) // 20},
        {"rollout": {"enable_prefix_caching": True, "temperature": 1.0}},
    ),
    "a last layer in bfloat16": (
        "precision",
        {NEMO: 1 + 0.06 * NOISE},
        {"policy": {"megatron_cfg": {"fp32_lm_head": False, "expert_model_parallel_size": 8},
                    "router_replay": {"enabled": True}, "generation": {"temperature": 1.0, "top_p": 1.0}}},
    ),
    "truncated sampling below the limit": (
        "top-p",
        {"rollout_correction/log_ppl_abs_diff": 0.03 * NOISE, "rollout_correction/kl": 0.03 * NOISE},
        {"temperature": 1.0, "top_p": 0.9, "top_k": 50},
    ),
    "two temperatures": (
        "temperature",
        {TRL: 0.08 * NOISE},
        {"rollout_temperature": 0.7, "sampling_params": {"temperature": 1.0}, "eval": {"top_p": 0.5}},
    ),
    "late tokens, worse as answers grow": (
        "kernel",
        {TRL: 0.009 * NOISE * (1 + AT / 20.0), "sampling/sampling_logp_difference/max": 0.2 * NOISE * (1 + AT / 4.0),
         "completions/mean_length": 400.0 * (1 + AT / 20.0)},
        {"temperature": 1.0},
    ),
    "steps without a bad row are no cache emptied": (
        "kernel",
        {NEMO: 1.01 + np.where(AT % 13 == 4, 0.0, 20.0) * NOISE**8, "train/max_seq_mult_prob_error":
         1.02 + np.where(AT % 13 == 4, 0.0, 9e3) * NOISE**8} | SEQUENCES,
        {"policy": {"generation": {"vllm_cfg": {"enable_prefix_caching": True}}}},
    ),
    "labels beside the splits of rows": (
        "shift",
        {"training/rollout_probs_diff_mean": 0.0055 * NOISE, "training/rollout_probs_diff_max": 1 - 0.001 * NOISE},
        {"actor": {"megatron": {"context_parallel_size": 2}, "lr": 1e-6, "bf16": True}},
    ),
    "an engine whose known bug fits": (
        "adapter-missing",
        {"rollout_correction/log_ppl_abs_diff": GROWING * NOISE, "rollout_correction/kl": GROWING * NOISE,
         "reward": FLAT},
        {"rlhf_type": "grpo", "vllm_mode": "server", "tuner_type": "lora", "multi_turn_scheduler": "math",
         "async_generate": True, "swift_version": "4.2.0"},
    ),
    "both sides' means alone": (
        "temperature",
        {"rollout/log_probs": -2.9 * NOISE, "rollout/rollout_log_probs": -2.9 * NOISE + 0.3},
        {"rollout_temperature": 0.7},
    ),
    "ratios below 1 at every step": (
        "top-p",
        {"sampling/importance_sampling_ratio/mean": 1 - 0.003 * NOISE, TRL: 0.003 * NOISE},
        {"top_p": 0.95},
    ),
    "an adapter's growth that is slow from the start": (
        "adapter-missing",
        {SLIME: 0.033 * np.exp(AT / 58.0) * NOISE**0.3, "rollout/raw_reward": FLAT,
         "perf/update_weights_time": 7 * NOISE},
        {"lora_rank": 32},
    ),
    "noise that grows late": (
        "precision",
        {TRL: 0.02 * NOISE * np.where(AT < 50, 1.0, np.exp((AT - 50) / 12.0)), "reward": MOVING},
        {"use_peft": False},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", first_fast(CASES, 4))
def test_the_course_of_a_mismatch_names_its_cause(case: str, tmp_path: Path) -> None:
    cause, metrics, settings = CASES[case]
    found = named(tmp_path, metrics, settings)
    assert found.evidence["cause_1"] == cause
    assert found.causes  # each with what speaks for it
    assert found.confirm[0] == found.evidence["experiment"]
    assert found.next[0] == found.evidence["setting"]


def test_weights_that_never_arrive_are_told_without_a_word_of_float32(tmp_path: Path) -> None:
    _, metrics, settings = CASES["never synced"]
    found = named(tmp_path, metrics | {"frac_reward_zero_std": 0 * AT}, settings)
    assert "vllm_enable_sleep_mode=False" in found.next[0]
    assert "float32" not in " ".join((*found.confirm, *found.next))
    assert "does not get the new weights" in found.likely_cause


def test_without_its_setting_a_pair_is_named_with_what_tells_it_apart(tmp_path: Path) -> None:
    found = named(tmp_path, {TRL: GROWING * NOISE, "reward": FLAT})
    assert found.evidence["cannot_tell_apart"] == "weights-not-synced or base-weights"
    assert "first layer" in str(found.evidence["experiment"])


def test_a_mismatch_that_no_sign_explains_names_no_single_cause(tmp_path: Path) -> None:
    found = named(tmp_path, {"rollout_corr/kl": 0.2 * NOISE})
    assert "leave it open" in found.likely_cause
    assert found.confirm[1] == f"so that metrics tell: log {found.evidence['record']}"


def series_of(name: str, values: Any, *, every: int = 1) -> Series:
    return Series(name=name, raw_name=name, steps=AT * every, values=values, flags=np.zeros(STEPS, np.uint8))


def signs_of(
    mismatch: Series, *beside: Series, settings: Mapping[str, Any] | None = None, **given: Any
) -> tuple[str, ...]:
    """Return what the signs of a mean |r|, of metrics beside it and of settings say."""
    given = {"excursions": (), "happened": {}} | given
    metrics = {one.name: one for one in (mismatch, *beside)}
    setup = make_setup(None, {}, settings or {})
    return tuple(one.text for one in metric_signs(metrics, other={}, pairs={}, setup=setup, **given))


MEAN, STEADY = "mismatch/logp_abs_mean", series_of("mismatch/logp_abs_mean", 0.1 * NOISE)
SAID: tuple[tuple[dict[str, Any], str], ...] = (
    ({"use_peft": False, "lora_r": 16}, "no adapter is trained (use_peft=False)"),
    ({"actor.use_lora": False, "actor.lora_rank": 32}, "no adapter is trained (actor.use_lora=False)"),
    ({"policy.peft.enabled": False, "policy.peft.dim": 8}, "no adapter is trained (policy.peft.enabled=False)"),
    ({"train_type": "full", "lora_rank": 8}, "no adapter is trained (train_type=full)"),
    ({"lora_rank": 0}, "no adapter is trained (lora_rank=0)"),
    ({"lora_rank": 1}, "an adapter is trained (lora_rank=1)"),
    ({"train_type": "lora", "lora_rank": 8}, "an adapter is trained (lora_rank=8)"),
    ({"use_peft": None, "model.lora_rank": 0, "model.lora.rank": 8}, "an adapter is trained (model.lora.rank=8)"),
    ({"num_speculative_tokens": 1}, "a draft model speculates (num_speculative_tokens=1)"),
    ({"enable_prefix_caching": "off"}, "prefix caching is off (enable_prefix_caching=off)"),
    ({"enable_prefix_caching": "auto", "use_lora": None}, ""),
    ({"ep_size": 1, "moe_router_load_balancing_type": "aux_loss", "data_parallel_size": 8}, ""),
    ({"ep_size": 8}, "the model has experts (ep_size=8)"),
    ({"model_is_recurrent": True}, ""),  # one sequence a row, on one rank
    ({"fp8_recipe": "tensorwise", "fp8_format": "e4m3", "fp8_cfg.enabled": False}, ""),
    ({"fp8_cfg.enabled": True}, "weights are quantised (fp8_cfg.enabled=True)"),
    ({"image_key": "images", "freeze_vit": True, "max_pixels": None, "limit_mm_per_prompt.image": 0}, ""),
    ({"vllm.limit_mm_per_prompt.image": 2}, "prompts hold images or sounds (vllm.limit_mm_per_prompt.image=2)"),
    ({"top_k": 1_000_000}, ""),
    ({"top_k": 50}, "sampling is truncated (top_k=50)"),
    ({"reward_model.rollout.temperature": 0.7, "user_model.top_p": 0.9, "actor_rollout_ref.ref.top_k": 5}, ""),
    ({"actor_rollout_ref.rollout.min_p": 0.1}, "sampling is truncated (actor_rollout_ref.rollout.min_p=0.1)"),
    ({"lora_dropout": 0.05, "use_peft": False}, "no adapter is trained (use_peft=False)"),
    ({"attention_dropout": 0.0, "hidden_dropout": 0}, "the trainer drops no activations (attention_dropout=0.0)"),
    ({"rollout.load_format": "dummy", "lora_rank": 0}, "no adapter is trained (lora_rank=0)"),  # and not of verl
    ({"rollout_num_gpus_per_engine": 8, "num_gpus_per_node": 8}, ""),
    ({"rollout.dtype": "torch.bfloat16", "megatron.dtype": "bf16", "fsdp_config.dtype": "float32"}, ""),
    (
        {"rollout.dtype": "float16", "megatron.dtype": "bfloat16"},
        "the engine computes in another number type than the trainer (rollout.dtype=float16)",
    ),
    ({"router_replay.mode": "R2"}, ""),
    ({"actor.attn_impl": "sdpa"}, ""),  # no other trainer packs with it
    (
        {"use_remove_padding": False},
        "rows are padded, and their masks must be right on both sides (use_remove_padding=False)",
    ),
    ({"router_replay.mode": "R3"}, "the engine's routing is replayed in the trainer (router_replay.mode=R3)"),
)


@pytest.mark.parametrize(("settings", "said"), SAID, ids=lambda one: str(one)[:60])
def test_settings_say_one_thing_or_nothing(settings: dict[str, Any], said: str) -> None:
    assert [*signs_of(STEADY, settings=settings)[len(signs_of(STEADY)) :]] == [said] * bool(said)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"train_batch_size": 64, "ppo_mini_batch_size": 64, "ppo_epochs": 1}, True),
        ({"train_batch_size": 64, "ppo_mini_batch_size": 64, "ppo_epochs": 2}, False),
        ({"train_batch_size": 64, "ppo_mini_batch_size": 16}, False),
        ({"train_batch_size": 64, "ppo_mini_batch_size": 64, "bypass_mode": True}, False),
        ({}, False),
    ],
)
def test_a_trainer_differs_from_itself_only_where_nothing_else_moves_its_ratio(
    settings: dict[str, Any], told: bool
) -> None:
    said = signs_of(STEADY, series_of("kl/old", 0.01 * NOISE), settings=settings)
    assert any("differs from itself" in text for text in said) == told
    assert not any("itself" in text for text in signs_of(STEADY, series_of("kl/old", 0 * NOISE), settings=settings))


@pytest.mark.parametrize(("before", "after", "lost"), [(-1.0, -1.1, False), (-1.0, -3.0, True), (0.5, 0.1, True)])
def test_a_reward_crashes_by_its_size_whatever_its_sign(before: float, after: float, lost: bool) -> None:
    jumped, noise = series_of(MEAN, np.where(AT < 60, 0.012, 0.3) * NOISE), 0.05 * np.log(NOISE)
    said = signs_of(jumped, series_of("reward/mean", np.where(AT < 60, before, after) + noise))
    assert any("the reward falls" in text for text in said) == lost


def spikes_of(mismatch: Series, *spans: tuple[int, int]) -> tuple[Recurrence, ...]:
    found = tuple(Excursion(first=first, last=last, extreme=first) for first, last in spans)
    off = Excursions(side=1, spans=found, level=np.zeros(STEPS), distance=9.0, gap=9.0, p_value=0.0, gap_p_value=0.0)
    return (Recurrence(lead=SeriesExcursions(series=mismatch, excursions=off)),)


@pytest.mark.parametrize(("depth", "told"), [(0.006, True), (0.001, False), (0.002, False)])
def test_a_saw_below_the_limit_is_told_where_it_is_deep_and_nears_the_limit(
    depth: float, told: bool, tmp_path: Path
) -> None:
    found = ptt.diagnose(run_in(tmp_path, {TRL: (0.012 + depth * (AT % 6)) * NOISE**0.3, "reward": MOVING})).findings
    assert [finding.severity.name for finding in found if finding.id == "engine-mismatch"] == ["LOW"] * told


@pytest.mark.parametrize(("high", "told"), [(0.04, True), (0.015, False)])
def test_a_rise_within_the_limit_is_told_where_it_goes_with_weight_updates(
    high: float, told: bool, tmp_path: Path
) -> None:
    rises = np.where(AT % 13 == 1, high, 0.008) * NOISE**0.3
    run_in(tmp_path, {TRL: rises, "timing/weight_sync": np.where(AT % 13 == 1, 9.0, 0.0)})
    found = [finding for finding in ptt.diagnose(tmp_path).findings if finding.id == "engine-mismatch"]
    causes = [(one.severity.name, str(one.evidence["cause_1"])[:7]) for one in found]
    assert causes == [("LOW", "weights")] * told  # not synced, or in part


@pytest.mark.parametrize(
    ("settings", "promise"),
    [
        ({"batch_invariant": True}, True),
        ({"batch_invariant": False}, False),
        ({"vllm.batch_invariant": True}, False),  # of one side
        ({"vllm.batch_invariant": True, "actor.batch_invariant": False}, False),
        ({"deterministic_mode": True, "sglang_enable_deterministic_inference": True}, False),  # repeatable, no more
        ({"true_on_policy_mode": True}, True),
    ],
)
def test_a_mismatch_that_leaves_zero_is_told_where_both_sides_promise_to_agree(
    settings: dict[str, bool], promise: bool, tmp_path: Path
) -> None:
    run_in(tmp_path, {"train/vllm_kl": np.where(AT == 1, 0.0, 1e-5) * NOISE}, settings | {"temperature": 1.0})
    found = [finding.severity.name for finding in ptt.diagnose(tmp_path).findings if finding.id == "engine-mismatch"]
    assert found == ["LOW"] * promise


@pytest.mark.parametrize(
    ("settings", "size", "told"),
    [
        ({"true_on_policy_mode": True}, 4.5e-4, True),
        ({"true_on_policy_mode": True}, 0.0, False),
        ({"true_on_policy_mode": True}, 1e-7, False),  # as floats are printed
        ({"true_on_policy_mode": False}, 4.5e-4, False),
        ({"sglang_rl_on_policy_target": None}, 4.5e-4, False),
        ({"sglang_enable_deterministic_inference": True}, 4.5e-4, False),  # of the engine alone
    ],
)
def test_a_small_mismatch_is_told_where_none_at_all_is_promised(
    settings: dict[str, Any], size: float, told: bool, tmp_path: Path
) -> None:
    run_in(tmp_path, {SLIME: size * NOISE}, {**settings, "temperature": 1.0})
    found = [one for one in ptt.diagnose(tmp_path).findings if one.id == "engine-mismatch"]
    assert [one.severity.name for one in found] == ["LOW"] * told
    assert all("true_on_policy_mode=True" in one.claim for one in found)


PREFIX = "WARNING Found mismatch in prefix tokens for example {} at trajectory step 1"


@pytest.mark.parametrize(
    ("line", "a_step", "told"),
    [
        (PREFIX, 3, True),
        (PREFIX, 1, False),  # 80 lines: single turns
        (PREFIX + ", masking it", 3, False),
        ("WARNING prefix cache hit for example {}, tokens match", 3, False),
    ],
)
def test_turns_that_are_tokenised_again_are_told_by_the_console_alone(
    line: str, a_step: int, told: bool, tmp_path: Path
) -> None:
    run_in(tmp_path, {"mismatch_kl/all/mean": 0.002 * NOISE, "reward/all/mean": MOVING})
    step = "SUCCESS Step {} | Time: 71.48s | Reward: 0.4877 | Throughput: 8869.9 tokens/s"
    said = [one for at in AT.tolist() for one in [line.format(at)] * a_step + [step.format(at)]]
    text = "".join(f"{14 + at // 3600}:{at // 60 % 60:02}:{at % 60:02} {one}\n" for at, one in enumerate(said))
    tmp_path.joinpath("orchestrator.log").write_text(text)
    found = [one for one in ptt.diagnose(tmp_path).findings if one.id == "engine-mismatch"]
    assert [(one.severity.name, one.observed) for one in found] == [("LOW", 240.0)] * told


@pytest.mark.parametrize("every", [1, 10])
def test_steps_off_after_a_restart_are_those_next_to_each_other_in_the_log(every: int) -> None:
    mismatch = series_of(MEAN, np.where((AT >= 40) & (AT < 43), 0.5, 0.01), every=every)
    for at, told in ((40 * every - 1, True), (30 * every, False)):
        said = signs_of(mismatch, excursions=spikes_of(mismatch, (39, 41)), happened={RESTART: np.array([at])})
        assert any("restart" in text for text in said) == told


@pytest.mark.parametrize(("restarts", "told"), [((18, 58), True), ((18,), False), (range(2, 80, 4), False)])
def test_each_stretch_off_follows_a_restart_or_none_does(restarts: Any, told: bool) -> None:
    mismatch = series_of(MEAN, np.where(np.isin(AT, (*range(20, 28), *range(60, 70))), 0.5, 0.01))
    spikes = spikes_of(mismatch, (19, 26), (59, 68))
    said = signs_of(mismatch, excursions=spikes, happened={RESTART: np.array([*restarts])})
    assert any("follow a restart" in text for text in said) == told


def test_a_line_on_weights_is_no_line_on_what_stands_far_from_them() -> None:
    assert TOLD["not_loaded"].search("weights of lm_head were not initialized")
    assert not TOLD["not_loaded"].search(f"weights sent {'.' * 150} cache not loaded")


@pytest.mark.parametrize(
    ("sign_name", "line"),
    [
        ("not_loaded", "missing keys: ['lm_head.weight']"),
        ("not_loaded", "missing or unexpected keys: 3"),
        ("replay_missing", "Routing weights missing: 12"),
        ("cache_stays", "cache flush failed: 1"),
        ("cache_stays", "flush_cache requests failed: 2"),
    ],
)
@pytest.mark.parametrize("none", ["0", "none", "[]"])
def test_a_count_of_no_faults_is_none(sign_name: str, line: str, none: str) -> None:
    assert TOLD[sign_name].search(line)
    assert not TOLD[sign_name].search(f"{line.partition(':')[0]}: {none}")


@pytest.mark.parametrize(
    ("reward", "sync", "first"),
    [
        (np.where(AT < 60, 0.2 + 0.006 * AT, 0.2), 5.0 + 0 * AT, "base-weights"),  # back where it began
        (np.where(AT < 60, 0.2 + 0.006 * AT, 0.0), 5.0 + 0 * AT, "weights-partly-synced"),  # far below it
        (0.3 + 0.0 * AT, np.where(AT < 60, 5.0, 0.01), "weights-not-synced"),
    ],
)
def test_what_reward_and_weight_updates_do_at_a_jump_tells_which_weights(
    reward: Any, sync: Any, first: str, tmp_path: Path
) -> None:
    jumped = np.where(AT < 60, 0.012, 0.3) * NOISE
    assert (
        named(tmp_path, {TRL: jumped, "reward": reward * NOISE, "time/weight_sync": sync}).evidence["cause_1"] == first
    )


def test_a_reward_that_rises_and_falls_again_shows_that_updates_arrive(tmp_path: Path) -> None:
    hump = 0.3 + 0.2 * np.sin(np.pi * AT / STEPS)
    for name, reward, moves in (("flat", FLAT, False), ("hump", hump, True)):
        (tmp_path / name).mkdir()
        found = named(tmp_path / name, {TRL: GROWING * NOISE, "reward": reward})
        assert ("some of the updates reach them" in " ".join(found.causes)) == moves


def test_single_tokens_alone_are_a_low_finding(tmp_path: Path) -> None:
    mean, worst = {TRL: 0.015 * NOISE}, "sampling/sampling_logp_difference/max"
    assert not [one for one in ptt.diagnose(run_in(tmp_path, mean | {worst: 2.0 * NOISE})).findings
                if one.id == "engine-mismatch"]  # fmt: skip
    found = named(tmp_path, mean | {worst: 18.0 * NOISE})
    assert (found.severity, found.limit) == ("low", 10.0)
    assert found.evidence["cannot_tell_apart"] == "template-or-retokenisation or shift"


def test_weights_that_the_engine_did_not_take_are_read_in_its_log(tmp_path: Path) -> None:
    metrics = {SKYRL: 0.9 * NOISE, "trainer/global_step": AT}
    quiet = named(run_in(tmp_path, metrics), metrics)
    assert quiet.evidence["cannot_tell_apart"] is not None
    line = "WARNING layerwise.py Failed to load weights for 6132 parameters, keeping kernel tensors"
    lines = [f"step:{step} - timing_s/step:4.0 - critic/score/max:1.0\n{line}" for step in AT]
    tmp_path.joinpath("run.log").write_text("\n".join(lines))
    told = named(tmp_path, metrics)
    assert told.evidence["cause_1"] == "weights-partly-synced"
    assert told.evidence["cannot_tell_apart"] is None
    assert "6132 parameters" in told.causes[0]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("WARNING reset_prefix_cache not yet supported with this engine", "cache-not-cleared"),
        ("[TP0] Cache not flushed because there are pending requests. #queue-req: 3", "cache-not-cleared"),
        ("[TP1] Parameter model.layers.3.mlp.gate_up_proj.weight not found in params_dict", "weights-partly-synced"),
        ("ValueError: Out of range float values are not JSON compliant: nan", "weights-partly-synced"),
        (
            "LoRA module 'k_proj' is not among the supported ones. These parameters will be ignored",
            "weights-partly-synced",
        ),
    ],
)
def test_an_engines_own_log_is_evidence(line: str, cause: str, tmp_path: Path) -> None:
    metrics = {TRL: GROWING * NOISE}
    tmp_path.joinpath("vllm.log").write_text("".join(f"step {step}: {line}\n" for step in AT))
    found = named(tmp_path, metrics)
    assert found.evidence["cause_1"] == cause
    assert line in found.causes[0]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("R3 router replay fallback: 212 of 4096 routes are missing", "expert-routing"),
        ("Load state dict with unexpected LoRA keys: 12", "weights-partly-synced"),
        ("AssertionError: Cache flush failed after updating weights", "cache-not-cleared"),
        ("Cache flushed successfully!", None),
        ("Router: 3 workers are ready", None),
    ],
)
def test_lines_of_an_engine_weigh_what_they_speak_of(line: str, cause: str | None) -> None:
    signs = list(told_signs([Event(step=3, kind="stdout", text=line, source="vllm.log")]))
    assert [max(one.weights, key=lambda name: one.weights[name]) for one in signs] == ([] if cause is None else [cause])


def test_weights_that_never_move_are_not_late_in_the_engine(tmp_path: Path) -> None:
    metrics = {TRL: GROWING * NOISE, "learning_rate": 1e-6 + 0 * AT}
    assert named(tmp_path, metrics).evidence["cause_1"] == "weights-not-synced"
    found = named(tmp_path, metrics | {"learning_rate": 0.0 * AT})
    assert not {"weights-not-synced", "stale-weights"} & {found.evidence[f"cause_{place}"] for place in (1, 2)}


def test_engines_that_are_started_again_answer_with_other_weights(tmp_path: Path) -> None:
    off = np.isin(AT, (20, 41, 66))
    at = "".join(f"rollout {step}: engine 2 failed its health check; starting replacement\n" for step in AT[off])
    tmp_path.joinpath("rollout.log").write_text(at)
    found = named(tmp_path, {TRL: np.where(off, 0.3, 0.01) * NOISE})
    assert found.evidence["cause_1"] == "base-weights"
    assert "restart of an engine" in found.claim


@pytest.mark.parametrize(
    ("correlation", "worst", "accused"),
    [(0.9994, 0.18, False), (0.995, 0.18, True), (None, 0.18, False), (None, 0.7, True), (None, None, True)],
)
def test_probabilities_that_rounding_sets_apart_are_healthy(
    correlation: float | None, worst: float | None, accused: bool, tmp_path: Path
) -> None:
    metrics: dict[str, Any] = {"training/rollout_probs_diff_mean": 0.0058 * NOISE}
    if worst is not None:
        metrics["training/rollout_probs_diff_max"] = worst * NOISE
    if correlation is not None:
        metrics["training/rollout_actor_probs_pearson_corr"] = correlation + 0 * AT
    assert (engine_mismatch(tmp_path, metrics) is not None) == accused


def test_an_experiment_names_the_settings_that_this_run_can_turn(tmp_path: Path) -> None:
    _, metrics, _ = CASES["a few tokens"]
    settings = {"speculative_config": {"method": "mtp"}, "enable_chunked_prefill": True, "seed": 3}
    experiment = str(named(tmp_path, metrics, settings).evidence["experiment"])
    assert experiment.endswith("try one by one: no draft model, chunked prefill off")


@pytest.mark.parametrize(("least", "told"), [(0.8, True), (0.0, False)])
def test_a_ratio_below_what_truncation_leaves_is_not_its_doing(least: float, told: bool) -> None:
    ratios = series_of("is/ratio_mean", 1 - 0.05 * NOISE), series_of("is/ratio_min", least + 0 * AT)
    assert any("one side alone is normalised" in text for text in signs_of(STEADY, *ratios)) == told


def test_areal_packs_rows_whose_boundaries_sdpa_does_not_read() -> None:
    setup = make_setup("areal", {}, {"actor.attn_impl": "sdpa"})
    said = metric_signs({MEAN: STEADY}, other={}, pairs={}, setup=setup, excursions=(), happened={})
    assert any(one.weights.get("packing", 0) > 1 and "sdpa" in one.text for one in said)


@pytest.mark.parametrize("ratio", [1.0, 1.2, np.where(AT % 3, 1.0, 2.0)])
def test_a_ratio_near_1_or_far_at_times_alone_accuses_nobody(ratio: Any, tmp_path: Path) -> None:
    assert engine_mismatch(tmp_path, {"sampling/importance_sampling_ratio/mean": ratio * NOISE**0.1}) is None


def test_no_sequence_agrees_where_the_best_one_is_off() -> None:
    errors = {"mean": 40.0, "max": 400.0, "min": 2.0}
    beside = [series_of(f"mismatch/seq_error_{name}", value * NOISE) for name, value in errors.items()]
    said = signs_of(series_of("mismatch/prob_error", 40.0 * NOISE), *beside)
    assert any("no sequence agrees" in text for text in said)
    assert not any("the best sequence agrees" in text for text in said)


def test_ratios_beyond_their_bounds_weigh(tmp_path: Path) -> None:
    share = {"rollout_corr/rollout_is_ratio_fraction_low": 0.15 * NOISE}
    mild = {"training/rollout_probs_diff_mean": 0.02 * NOISE}
    assert named(tmp_path, mild).severity == "medium"
    found = named(tmp_path, mild | share)
    assert found.severity == "high"
    assert found.evidence["truncated_share"] == pytest.approx(0.15, rel=0.1)


def test_signs_add_up_and_the_nearest_rival_stays_in_sight() -> None:
    signs = (
        Sign(text="a", weights={"kernel": 2.0, "rope": 2.2, "precision": -1.0}),
        Sign(text="b", weights={"kernel": 0.5, "precision": 0.5}),
    )
    answer = rank_causes(signs, framework="nemo-rl")
    assert answer is not None
    assert [cause.name for cause in answer.causes] == ["kernel", "rope"]
    assert answer.first.score == 2.5
    assert answer.first.for_ == ("a", "b")
    assert answer.indistinguishable == ("kernel", "rope")  # rope: 2.2 less its prior
    assert "rotary" in answer.experiment
    assert rank_causes((), framework=None) is None
    assert rank_causes((Sign(text="c", weights={"kernel": -1.0}),), framework=None) is None


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_has_words_an_experiment_and_a_setting(cause: str) -> None:
    answer = rank_causes((Sign(text="seen", weights={cause: 9.0}),), framework="a framework without settings")
    assert answer is not None
    assert answer.indistinguishable is None
    assert answer.first.title
    assert answer.experiment
    assert answer.setting


KL = "rollout_correction/kl"
JUMP = np.where(AT < 50, 0.001, 0.006) * NOISE


def engine_mismatch(folder: Path, metrics: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> Any:
    found = ptt.diagnose(run_in(folder, metrics, settings)).findings
    return next((finding for finding in found if finding.id.startswith("engine-mismatch")), None)


@pytest.mark.parametrize(("factor", "severity"), [(1.0, "low"), (3.0, "medium")])
def test_a_jump_within_the_limit_is_told_with_its_step_and_causes(factor: float, severity: str, tmp_path: Path) -> None:
    finding = engine_mismatch(tmp_path, {KL: factor * JUMP})
    assert (finding.severity.value, finding.onset_step) == (severity, 50)
    assert "at step 50" in finding.evidence["cause_1_for"]
    assert "within the limit of 0.1" in finding.claim


@pytest.mark.parametrize(
    "metrics",
    [
        {KL: 0.001 * NOISE},
        {KL: 0.001 * NOISE**8},
        {KL: 0.002 * AT / 20 * NOISE, "entropy/mean": 0.1 * AT / 20},
        {KL: 0.002 * AT / 20 * NOISE, "completions/mean_length": 100.0 + 100 * AT},
        {KL: 1e-6 * JUMP / 0.001},
        {KL: np.where(AT < 40, 0.001, np.where(AT < 50, 0.006, 0.001)) * NOISE},
    ],
    ids=["level", "noise", "entropy", "length", "near nothing", "back again"],
)
def test_noise_and_growth_in_proportion_are_no_rise(metrics: dict[str, Any], tmp_path: Path) -> None:
    assert engine_mismatch(tmp_path, metrics) is None


def test_a_rise_as_turns_get_more_points_to_their_boundaries(tmp_path: Path) -> None:
    rise = {KL: 0.0005 * (1 + AT / 8) * NOISE, "num_turns": 1 + AT / 20}
    assert engine_mismatch(tmp_path, rise).evidence["cause_1"] == "template-or-retokenisation"


def test_sequences_masked_on_one_side_point_to_few_tokens(tmp_path: Path) -> None:
    masked = {SKYRL: 0.014 * NOISE, SKYRL.replace("mean", "max"): 4.0 * NOISE,
              "policy/outlier_seq_under_low_ratio": 0.03 * NOISE}  # fmt: skip
    high = "policy/outlier_seq_over_high_ratio"
    assert engine_mismatch(tmp_path, {**masked, high: 0.03 * NOISE}) is None
    finding = engine_mismatch(tmp_path, {**masked, high: 0.0 * NOISE})
    assert (finding.severity.value, finding.evidence["cause_1"]) == ("low", "template-or-retokenisation")


def test_the_names_of_pipelinerl_and_twinkle_reach_the_rule(tmp_path: Path) -> None:
    assert engine_mismatch(tmp_path, {"rl/mean_abs_log_ratio_new_old": 0.06 * NOISE}).severity.value == "medium"
    twinkle = {"train/logp_diff_mean": -0.02 * NOISE, "train/importance_ratio_mean": 1 - 0.0025 * NOISE}
    finding = engine_mismatch(tmp_path, twinkle, {"top_p": 0.95})
    assert finding.severity.value == "low"

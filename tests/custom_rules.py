"""Rules of a user's own for tests, the metrics they are asked of, and short ways to judge them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from builders import Array, evidence_of

from ptt.diagnostics.custom.files import toml_rules
from ptt.diagnostics.custom.judge import Lookup, judge
from ptt.diagnostics.custom.terms import CustomRule
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Broken, Finding, RuleVerdict

GRPO = Algorithm(name="grpo", family=Family.ONLINE, critic=False, groups=True)
DPO = Algorithm(name="dpo", family=Family.PREFERENCE, critic=False, groups=False)


def rule(text: str) -> CustomRule:
    rules, problems = toml_rules(text, file="mine.toml")
    assert problems == []
    return rules[0]


def on(metric: str = "kl/ref", **keys: Any) -> CustomRule:
    given = {"id": "mine", "severity": "high", "link": "reward", "metric": metric} | keys
    return rule("[[rule]]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in given.items()))


def judged(
    rule: CustomRule, metrics: Mapping[str, Series | Sequence[float] | Array], algorithm: Algorithm | None = None
) -> RuleVerdict:
    evidence = evidence_of(metrics=metrics)
    if algorithm is not None:
        evidence = replace(evidence, algorithm=algorithm)
    return judge(rule, evidence, Lookup(evidence, {}).series)


def found(verdict: RuleVerdict) -> Finding:
    assert isinstance(verdict, Broken)
    (finding,) = verdict.findings
    return finding


WHOLE = '[[rule]]\nid = "a"\nseverity = "high"\nmetric = "kl/ref"\nis = "> 1"\n'

FLAT = np.full(100, 0.1)
STEP = np.concatenate([np.full(60, 0.1), np.full(40, 0.9)])
HUMP = np.concatenate([np.full(40, 0.1), np.full(20, 0.9), np.full(40, 0.1)])
FALL = np.concatenate([np.full(60, 0.9), np.full(40, 0.1)])

# name, trainers, metric, condition, window, min_steps, severity of the 15 rules that Microsoft's toolkit brings along
THEIRS: list[tuple[str, str, str, str, int, int, str]] = [
    ("empty_response_rate_high", "dpo, ppo, grpo, orpo, kto", "empty_response_rate", "> 0.1", 20, 30, "high"),
    ("yaml_kl_divergence_high", "dpo, ppo, kto, grpo", "kl", "> 0.3", 20, 30, "high"),
    ("repetition_rate_high", "dpo, ppo, sft, grpo", "repetition_rate", "> 0.2", 20, 30, "medium"),
    ("response_truncation_rate_high", "dpo, ppo, sft, grpo", "truncation_rate", "> 0.3", 20, 30, "medium"),
    ("yaml_reward_variance_spike", "dpo, ppo, orpo, kto, grpo", "reward_std", "spike(2.5x)", 20, 50, "high"),
    ("dpo_logp_gap_collapse", "dpo, orpo, cpo", "logps_gap", "< 0.5", 20, 30, "high"),
    ("yaml_dpo_loss_random", "dpo", "dpo_loss", "range(0.68, 0.71)", 20, 30, "high"),
    ("yaml_margin_collapse", "dpo, orpo, cpo", "reward_margin", "< 0.1", 20, 30, "high"),
    ("yaml_grpo_group_reward_collapse", "grpo", "group_reward_std", "< 0.01", 20, 40, "high"),
    ("grpo_importance_sampling_ratio_anomaly", "grpo, ppo", "importance_sampling_ratio", "< 0.5", 20, 30, "high"),
    ("grpo_reward_without_quality", "grpo, ppo", "reward_quality_divergence", "> 0.5", 30, 50, "high"),
    ("yaml_clip_fraction_high", "ppo, grpo", "clip_fraction", "> 0.3", 20, 30, "medium"),
    ("yaml_entropy_collapse", "ppo, grpo", "entropy", "drop(50%)", 30, 50, "high"),
    ("ppo_explained_variance_low", "ppo, grpo", "explained_variance", "< 0.1", 30, 50, "high"),
    ("yaml_value_head_divergence", "ppo", "value_loss", "> 0.5", 20, 30, "medium"),
]
CANONICAL = {
    "kl": "kl/ref", "reward_std": "reward/std", "dpo_loss": "loss/total", "reward_margin": "dpo/margin",
    "group_reward_std": "reward/std", "importance_sampling_ratio": "is/ratio_mean", "clip_fraction": "clip/frac",
    "explained_variance": "critic/explained_variance", "value_loss": "critic/value_loss",
    "truncation_rate": "len/clipped_frac",
}  # fmt: skip


def their_file(row: tuple[str, str, str, str, int, int, str]) -> str:
    name, trainers, metric, condition, window, least, severity = row
    return (
        f"# theirs\nname: {name}\ndescription: Looks at {metric}.\ntrainers: [{trainers}]\nmetric: {metric}\n"
        f'condition: "{condition}"\nwindow: {window}\nseverity: {severity}\n'
        f'message: "{metric} is {{value:.3f}}: look."\n'
        f'reference: "A paper (2023), section 4"\nmin_steps: {least}\nenabled: true\n'
    )

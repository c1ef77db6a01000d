"""Which loss a run trains on, from settings as trainers write them and from what the audit found."""

from __future__ import annotations

import math

import pytest

from ptt.diagnostics.evidence.algorithm import detect_algorithm
from ptt.diagnostics.evidence.loss_denominator import LossAudit
from ptt.diagnostics.evidence.policy_objective import FoundObjective, objective_of
from ptt.diagnostics.statistics.token_weights import (
    CLIPPED,
    CONSTANT,
    K1,
    PLAIN,
    PRODUCT,
    SEQUENCE,
    SEQUENCES,
    SUMS,
    TOKEN,
    TOKENS,
    TRUNCATED,
)


def found(seen: LossAudit | None = None, **facts: str | float | bool) -> FoundObjective:
    return objective_of(facts, detect_algorithm(facts, ()), seen)


@pytest.mark.parametrize(
    ("facts", "surrogate", "level", "reduction"),
    [
        ({"framework": "trl", "loss_type": "dapo"}, CLIPPED, TOKEN, TOKENS),
        ({"framework": "trl", "loss_type": "grpo"}, CLIPPED, TOKEN, SEQUENCES),
        ({"framework": "trl", "loss_type": "dr_grpo", "max_completion_length": 160}, CLIPPED, TOKEN, CONSTANT),
        ({"loss_type": "grpo", "importance_sampling_level": "sequence"}, CLIPPED, SEQUENCE, SEQUENCES),
        ({"framework": "trl", "loss_type": "cispo"}, TRUNCATED, TOKEN, TOKENS),
        ({"framework": "trl", "algorithm": "rloo"}, CLIPPED, PRODUCT, SUMS),
        ({"framework": "verl", "adv_estimator": "rloo"}, CLIPPED, TOKEN, TOKENS),
        ({"framework": "verl", "loss_mode": "gspo", "adv_estimator": "grpo"}, CLIPPED, SEQUENCE, SEQUENCES),
        ({"framework": "verl", "loss_mode": "gpg"}, PLAIN, TOKEN, TOKENS),
        ({"framework": "verl", "loss_agg_mode": "seq-mean-token-sum"}, CLIPPED, TOKEN, SUMS),
        ({"framework": "openrlhf", "advantage_estimator": "reinforce"}, PLAIN, TOKEN, TOKENS),
    ],
)  # fmt: skip
def test_settings_name_the_loss(facts: dict[str, str | float], surrogate: str, level: str, reduction: str) -> None:
    objective = found(None, **facts).objective
    assert (objective.surrogate, objective.level, objective.reduction) == (surrogate, level, reduction)


def test_ranges_caps_and_kl_are_those_of_the_settings() -> None:
    trl = found(framework="trl", loss_type="cispo", epsilon=0.2, epsilon_high=5.0, beta=0.04).objective
    assert (1 - trl.low, 1 + trl.high, trl.kl) == (0.0, 5.0, 0.04)  # TRL's epsilon_high is the cap itself
    clip: dict[str, str | float] = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
    verl = found(None, framework="verl", **clip, use_kl_loss=True, kl_loss_coef=0.001, kl_loss_type="kl").objective
    assert (verl.low, verl.high, verl.dual, verl.kl, verl.estimator) == (0.2, 0.28, 3.0, 0.001, K1)
    capped = found(
        framework="trl", vllm_importance_sampling_correction=True, vllm_importance_sampling_cap=2.0
    ).objective
    assert (capped.cap, capped.cap_masks) == (2.0, False)
    assert math.isinf(found(framework="trl", vllm_importance_sampling_correction=False).objective.cap)
    assert found(framework="verl", use_kl_loss=False, kl_loss_coef=0.1).objective.kl == 0


def test_without_settings_the_logged_loss_tells() -> None:
    audit = LossAudit(rows=(), formula="clipped surrogate of sequences", reduction=SEQUENCES, coefficient=0.05)
    seen = found(audit, framework="trl", algorithm="grpo")
    assert (seen.objective.level, seen.objective.reduction, seen.objective.kl) == (SEQUENCE, SEQUENCES, 0.05)
    assert "by the logged loss" in seen.said
    assert "assumed" in found(framework="trl", algorithm="grpo").said


def test_a_loss_without_a_known_formula_is_named() -> None:
    assert found(framework="trl", loss_type="sapo").unknown == "sapo"
    assert found(framework="verl", loss_mode="geo_mean", adv_estimator="grpo").unknown == "geo_mean"
    assert not found(framework="verl", adv_estimator="grpo").unknown
